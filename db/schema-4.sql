-- SPDX-License-Identifier: Apache-2.0
-- From version 3 to 4: transfers one way. Units and unknowns as in schema.sql.

-- 1: a sends to b, which sends nothing meanwhile; time until b has it. NULL: each sends
-- to the other at once; time until both have both.
ALTER TABLE link ADD COLUMN one_way INTEGER CHECK (one_way = 1);
DROP INDEX link_identity;
CREATE UNIQUE INDEX link_identity
    ON link (run_id, device_a_id, limiter_a, device_b_id, limiter_b, transport, bytes,
             ifnull(channels, 0), ifnull(host_b, ''), ifnull(one_way, 0));
