/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "profiler/progress.h"
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "db/parse.h"

void hcp_progress_init(struct hcp_progress *progress)
{
    const char *term = getenv("TERM");
    progress->active = isatty(2) && !(term && strcmp(term, "dumb") == 0);
    progress->shown = 0;
}

char *hcp_format_duration(double seconds, char text[24])
{
    if (isnan(seconds) || seconds < 0 || seconds > 1e7)
        snprintf(text, 24, "?");
    else if (seconds < 99.5)
        snprintf(text, 24, "%.0f s", seconds);
    else if (seconds < 5970)
        snprintf(text, 24, "%d min %d s", (int)(seconds + 0.5) / 60,
                 (int)(seconds + 0.5) % 60);
    else
        snprintf(text, 24, "%d h %d min", (int)(seconds / 60) / 60,
                 (int)(seconds / 60) % 60);
    return text;
}

void hcp_progress_show(struct hcp_progress *progress, int done, int total, double left_s,
                       const char *what)
{
    char left[24];
    if (!progress->active)
        return;
    fprintf(stderr, "\r\033[K%d/%d cells, %s left  %s", done, total,
            hcp_format_duration(left_s, left), what);
    fflush(stderr);
    progress->shown = 1;
}

void hcp_progress_clear(struct hcp_progress *progress)
{
    if (progress->shown)
        fputs("\r\033[K", stderr);
    progress->shown = 0;
}

static void say_waiting(int number)
{
    static volatile sig_atomic_t said;
    static const char text[] = "hcp-profile: waiting for the database: another program "
                               "seems to have it locked\n";
    (void)number;
    if (said)
        return;
    said = 1;
    if (write(2, text, sizeof text - 1) < 0)
        said = 0;
}

void hcp_waiting_begin(void)
{
    struct sigaction action = {.sa_handler = say_waiting, .sa_flags = SA_RESTART};
    sigaction(SIGALRM, &action, NULL);
    alarm(1);
}

void hcp_waiting_end(void)
{
    alarm(0);
}

int hcp_parse_duration(const char *text, const char *option, double *out,
                       struct hcp_err *err)
{
    char number[32];
    size_t n = strlen(text);
    double unit = 1;
    if (n > 1 && n < sizeof number && strchr("smh", text[n - 1])) {
        unit = text[n - 1] == 'h' ? 3600 : text[n - 1] == 'm' ? 60 : 1;
        n--;
    }
    struct hcp_err why;
    snprintf(number, sizeof number, "%.*s", (int)n, text);
    if (n >= sizeof number || hcp_parse_double(number, out, &why) != HCP_OK ||
        !(*out > 0) || *out > 1e6)
        return hcp_fail(err, HCP_USAGE, "%s '%s' is not a time; write 90s, 5m or 1h",
                        option, text);
    *out *= unit;
    return HCP_OK;
}
