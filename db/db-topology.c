/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <string.h>
#define ROW struct hcp_topology_row
#include "db/columns.h"

static const struct hcp_column columns[] = {
    TEXT("device", device_a, "d.slug"),
    TEXT("peer_device", device_b, "e.slug"),
    TEXT("connection", connection, "t.connection"),
    INT("links", links, "t.links", -1, 0),
    TEXT("detail", detail, "t.detail"),
    INT("sm_count", sm_count_a, "d.sm_count", -1, 1),
    INT("peer_sm_count", sm_count_b, "e.sm_count", -1, 1),
    TEXT("origin", from.origin, "r.origin"),
    TEXT("run_uid", from.run_uid, "r.uid"),
    TEXT("host", from.host, "r.host"),
    TEXT("peer_host", host_b, "t.host_b"),
    TEXT("device_uuid", uuid_a, "d.uuid"),
    TEXT("device_name", name_a, "d.name"),
    TEXT("peer_uuid", uuid_b, "e.uuid"),
    TEXT("peer_name", name_b, "e.name"),
    TEXT("driver", from.driver, "r.driver"),
    TEXT("cuda_version", from.cuda_version, "r.cuda_version"),
    TEXT("tool_version", from.tool_version, "r.tool_version"),
    TEXT("measured_at", from.measured_at, "t.measured_at"),
};
static const char *const identity[] = {
    "run_uid", "device", "device_uuid", "peer_device", "peer_uuid", "peer_host", NULL};
const struct hcp_rows hcp_topology_rows = {
    "topology",
    "topology t JOIN run r ON r.id = t.run_id JOIN device d ON d.id = t.device_a_id "
    "JOIN device e ON e.id = t.device_b_id",
    "run r CROSS JOIN device d CROSS JOIN device e CROSS JOIN topology t ON r.id = "
    "t.run_id AND d.id = t.device_a_id AND e.id = t.device_b_id",
    " ORDER BY d.slug, e.slug, r.host, t.host_b, d.uuid, e.uuid, r.uid, t.id",
    columns,
    sizeof columns / sizeof *columns,
    identity};

void hcp_topology_row_init(struct hcp_topology_row *row)
{
    memset(row, 0, sizeof *row);
    hcp_rows_unknown(&hcp_topology_rows, row);
    strcpy(row->from.origin, "measured");
}

int hcp_topology_row_validate(const struct hcp_topology_row *row, struct hcp_err *err)
{
    int rc = hcp_check_texts(columns, sizeof columns / sizeof *columns, row, err);

    if (!rc)
        rc = hcp_check_word("connection", row->connection, "nvlink pcie host network",
                            err);
    if (!rc && row->links != -1)
        rc = hcp_check_range("links", row->links, 0, INT32_MAX, err);
    if (!rc)
        rc = hcp_check_device(row->device_a, "", err);
    if (!rc)
        rc = hcp_check_device(row->device_b, "", err);
    return rc ? rc : hcp_check_provenance(&row->from, err);
}

HCP_KIND(topology, struct hcp_topology_row, hcp_topology_row_init,
         hcp_topology_row_validate, "topology", 3)
