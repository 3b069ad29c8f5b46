/* SPDX-License-Identifier: Apache-2.0 */
/* How the tool ends: errors as exit codes, messages on stderr, the state of stdout. */
#include "cli.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

int exit_code(const rsd_error *err)
{
    switch ((rsd_err)err->code) {
    case RSD_OK:
        return EXIT_DONE;
    case RSD_E_INVALID:
    case RSD_E_MISMATCH:
        return EXIT_MISUSE;
    case RSD_E_FORMAT:
    case RSD_E_CORRUPT:
        return EXIT_INVALID;
    case RSD_E_UNSUPPORTED:
    case RSD_E_NOTFOUND:
    case RSD_E_EXISTS:
    case RSD_E_NOMEM:
    case RSD_E_IO:
    case RSD_E_COMM:
    case RSD_E_CANCELED:
    case RSD_E_TIMEOUT:
    case RSD_E_BUG:
        break;
    }
    return EXIT_COULD_NOT;
}

bool speaks(const args *a)
{
    return !a || !a->comm || rsd_comm_rank(a->comm) == 0;
}

/* "reshard: ..."; control characters from names are made visible. */
static void say(const args *a, const char *fmt, va_list list)
{
    char line[1024];

    if (!speaks(a))
        return;
    vsnprintf(line, sizeof(line), fmt, list);
    fflush(stdout);
    fprintf(stderr, "reshard: ");
    print_safe(stderr, line);
    fprintf(stderr, "\n");
}

int refuse(const args *a, int code, const char *fmt, ...)
{
    va_list list;

    va_start(list, fmt);
    say(a, fmt, list);
    va_end(list);
    return code;
}

int misuse(const args *a, const char *fmt, ...)
{
    va_list list;

    va_start(list, fmt);
    say(a, fmt, list);
    va_end(list);
    if (!speaks(a))
        return EXIT_MISUSE;
    if (a && a->cmd)
        fprintf(stderr, "try: reshard help %s\n", a->cmd->name);
    else
        fprintf(stderr, "try: reshard help\n");
    return EXIT_MISUSE;
}

int fail(const args *a, const rsd_error *err)
{
    const int sig = signals_caught();

    if (sig)
        return 128 + sig;
    if (reporting())
        fprintf(stderr, "error %d %d %s\n", (int)err->code, (int)err->sys_errno, err->msg);
    return refuse(a, exit_code(err), "%s",
                  err->msg[0] ? err->msg : rsd_err_name((rsd_err)err->code));
}

void output_begin(void)
{
    /* A closed stdout must not end work that does more than print. */
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* exceeding `ulimit -f` is a write error */
}

bool output_over(void)
{
    return ferror(stdout) != 0;
}

/* Asks the system, since errno may come from a later call. */
static bool reader_gone(void)
{
    struct pollfd out = { .fd = STDOUT_FILENO, .events = POLLOUT };

    return poll(&out, 1, 0) == 1 && out.revents & (POLLERR | POLLHUP);
}

int finish_output(int code)
{
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    if (errno == EPIPE || reader_gone())
        return code;
    fprintf(stderr, "reshard: could not write to stdout: %s\n", strerror(errno));
    return EXIT_COULD_NOT;
}

/* ---- suggestions ---- */

#define LONGEST_WORD 32

/* Letters to insert, remove or change to turn a into b; words that are too long count as far
 * apart. */
static size_t distance(const char *a, const char *b)
{
    size_t row[LONGEST_WORD + 1];
    size_t la = strlen(a), lb = strlen(b);

    if (la > LONGEST_WORD || lb > LONGEST_WORD)
        return LONGEST_WORD;
    for (size_t j = 0; j <= lb; j++)
        row[j] = j;
    for (size_t i = 1; i <= la; i++) {
        size_t diagonal = row[0];

        row[0] = i;
        for (size_t j = 1; j <= lb; j++) {
            size_t change = diagonal + (a[i - 1] != b[j - 1]);
            size_t other = 1 + (row[j] < row[j - 1] ? row[j] : row[j - 1]);

            diagonal = row[j];
            row[j] = change < other ? change : other;
        }
    }
    return row[lb];
}

const char *nearest(const char *wrong, const char *const *word)
{
    const char *best = NULL;
    size_t      least = strlen(wrong) / 3 + 1; /* more: a different word */

    for (; *word; word++) {
        size_t d = distance(wrong, *word);

        if (d <= least && d < strlen(wrong)) {
            best = *word;
            least = d - (d > 0);
        }
    }
    return best;
}
