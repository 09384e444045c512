/* SPDX-License-Identifier: Apache-2.0
 *
 * One progress line with the time left, on stderr when that is a terminal; and a word
 * when nothing moves.
 */
#ifndef HCP_PROGRESS_H
#define HCP_PROGRESS_H
#include "db/error.h"

struct hcp_progress {
    int active; /* stderr is a terminal */
    int shown;  /* a line stands there */
};

void hcp_progress_init(struct hcp_progress *progress);
/* done of total cells; left_s seconds left (NaN: not known); what: the cell at hand. */
void hcp_progress_show(struct hcp_progress *progress, int done, int total, double left_s,
                       const char *what);
/* Clears the line, so that other text can be printed. */
void hcp_progress_clear(struct hcp_progress *progress);

/* Around what another program's lock may hold up: a line on stderr after a second, once a
 * program run. Uses SIGALRM. */
void hcp_waiting_begin(void);
void hcp_waiting_end(void);

/* "45 s" "3 min 20 s" "1 h 5 min" into text[24]; returns text. */
char *hcp_format_duration(double seconds, char text[24]);
/* "90" "90s" "1.5m" "2h" -> seconds. HCP_USAGE, with the option's name, for anything
 * else. */
int hcp_parse_duration(const char *text, const char *option, double *out,
                       struct hcp_err *err);

#endif
