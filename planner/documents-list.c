/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "planner/options.h"

struct list {
    int64_t *lengths;
    size_t n, room;
};

static int append(struct list *list, int64_t length, int64_t times, struct hcp_err *err)
{
    if (times > (int64_t)(HCP_DOCUMENTS_MAX - list->n))
        return hcp_fail(err, HCP_USAGE, "more than %zu documents", HCP_DOCUMENTS_MAX);
    while (list->n + (size_t)times > list->room) {
        size_t room = list->room ? 2 * list->room : 64;
        int64_t *more = realloc(list->lengths, room * sizeof *more);

        if (!more)
            return hcp_fail(err, HCP_FAILED, "out of memory");
        list->lengths = more;
        list->room = room;
    }
    while (times-- > 0)
        list->lengths[list->n++] = length;
    return HCP_OK;
}

/* LENGTH or N*LENGTH. */
static int take_word(const char *word, struct list *list, struct hcp_err *err)
{
    const char *star = strchr(word, '*');
    char count[24];
    int64_t times = 1, length;
    int rc;

    if (star) {
        if ((size_t)(star - word) >= sizeof count)
            return hcp_fail(err, HCP_USAGE, "'%.40s' repeats too often", word);
        memcpy(count, word, (size_t)(star - word));
        count[star - word] = 0;
        rc = hcp_parse_int(count, "number of documents", 1, (int64_t)HCP_DOCUMENTS_MAX,
                           &times, err);
        if (rc)
            return rc;
    }
    rc = hcp_parse_len(star ? star + 1 : word, 1, &length, err);
    return rc ? rc : append(list, length, times, err);
}

/* The words of a line, up to a remark. */
static int take_line(char *line, struct list *list, struct hcp_err *err)
{
    char *save, *word;

    line[strcspn(line, "#")] = 0;
    for (word = strtok_r(line, ", \t\r\n\v\f", &save); word;
         word = strtok_r(NULL, ", \t\r\n\v\f", &save)) {
        int rc = take_word(word, list, err);

        if (rc)
            return rc;
    }
    return HCP_OK;
}

static int read_file(const char *option, const char *path, struct list *list,
                     struct hcp_err *err)
{
    FILE *in = strcmp(path, "-") == 0 ? stdin : fopen(path, "r");
    struct hcp_err why = {0};
    char *line = NULL;
    size_t size = 0;
    int rc = HCP_OK;

    if (!in)
        return hcp_fail(err, HCP_USAGE,
                        "%s: cannot open '%.200s': %s; give lengths as in "
                        "4096,8192,700, or a file of them",
                        option, path, strerror(errno));
    for (long number = 1; rc == HCP_OK && getline(&line, &size, in) >= 0; number++) {
        rc = take_line(line, list, &why);
        if (rc)
            hcp_fail(err, rc, "%.200s, line %ld: %.400s", path, number, why.text);
    }
    if (rc == HCP_OK && ferror(in))
        rc = hcp_fail(err, HCP_FAILED, "%s: cannot read '%.200s': %s", option, path,
                      strerror(errno));
    free(line);
    if (in != stdin)
        fclose(in);
    return rc;
}

int documents_list(const char *option, const char *text, int64_t **lengths, size_t *n,
                   struct hcp_err *err)
{
    struct list list = {0};
    struct hcp_err why = {0};
    int rc;

    /* A list begins with a digit, and nothing else is in it. */
    if (isdigit((unsigned char)text[0]) &&
        strspn(text, "0123456789,*KkMmGg ") == strlen(text)) {
        char *copy = strdup(text);

        rc = copy ? take_line(copy, &list, &why)
                  : hcp_fail(&why, HCP_FAILED, "out of memory");
        free(copy);
        if (rc)
            hcp_fail(err, rc, "%s: %.900s", option, why.text);
    } else {
        rc = read_file(option, text, &list, err);
    }
    if (rc == HCP_OK && list.n == 0)
        rc = hcp_fail(err, HCP_USAGE, "%s: there is no length in '%.200s'", option, text);
    if (rc) {
        free(list.lengths);
        return rc;
    }
    *lengths = list.lengths;
    *n = list.n;
    return HCP_OK;
}
