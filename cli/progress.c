/* SPDX-License-Identifier: Apache-2.0 */
/* Progress on stderr, and signals: both are handled in the callbacks of long work. */
#include "cli.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

/* Seconds between updates: of a bar, and of lines without a terminal. */
#define REDRAW  0.1
#define NEWLINE 10.0

#define MOST_SIGNALS 2 /* pending while work stops cleanly; the next one ends the program */

static volatile sig_atomic_t caught, count, noticed;

#define NOTICE 0.9 /* seconds in which work must check the flag */
#define FINISH 3.0 /* and then end */

static void set_timer(double seconds)
{
    const long             whole = (long)seconds;
    const struct itimerval at = {
        .it_value = { .tv_sec = whole, .tv_usec = (long)((seconds - (double)whole) * 1e6) }
    };

    setitimer(ITIMER_REAL, &at, NULL);
}

/* Leaves no more behind than a kill does. */
static void give_up(int sig)
{
    (void)sig;
    _exit(128 + caught);
}

/* timeout and mpirun send a signal twice, to the process and to its group, but mean one. */
static void remember(int sig)
{
    if (!caught)
        set_timer(NOTICE);
    caught = sig;
    if (++count >= MOST_SIGNALS)
        signal(sig, SIG_DFL);
}

void signals_watch(void)
{
    struct sigaction sa = { .sa_handler = remember, .sa_flags = SA_RESTART };
    struct sigaction end = { .sa_handler = give_up };
    struct sigaction old;

    sigemptyset(&sa.sa_mask);
    sigemptyset(&end.sa_mask);
    sigaction(SIGALRM, &end, NULL);
    /* A shell's background job ignores SIGINT; keep ignoring it then. */
    if (sigaction(SIGINT, NULL, &old) == 0 && old.sa_handler != SIG_IGN)
        sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);
}

int signals_caught(void)
{
    return caught;
}

void progress_begin(progress *p, const args *a, const char *verb)
{
    const bool terminal = isatty(STDERR_FILENO);
    bool       show = terminal;

    if (args_has(a, "progress") || reporting())
        show = true;
    if (args_has(a, "no-progress") || args_has(a, "quiet") || !speaks(a))
        show = false;
    *p = (progress){ .out = show ? stderr : NULL, .line = terminal || reporting(), .verb = verb };
    p->start = p->last = now();
    signals_watch();
}

static void draw_bar(FILE *out, double part, int width)
{
    const int full = (int)(part * width);

    fprintf(out, "[");
    for (int i = 0; i < width; i++)
        fputc(i < full ? '#' : '-', out);
    fprintf(out, "]");
}

/* For programs that run the tool: RESHARD_REPORT=1 makes stderr easy to read for them. */
bool reporting(void)
{
    return getenv("RESHARD_REPORT") != NULL;
}

static void draw(const progress *p, double t)
{
    const double part = p->total > 0 ? (double)p->done / (double)p->total : 1;
    const double gone = t - p->start;
    const double left = part > 0 ? gone / part - gone : 0;
    const int    width = p->line ? screen_width(p->out) : 0;
    const long   seconds = (long)left + 1;
    const double rate = gone > 0 ? (double)p->done / gone / 1e9 : 0;

    if (reporting()) {
        fprintf(p->out, "progress %" PRId64 " %" PRId64 "\n", p->done, p->total);
        return;
    }
    if (p->line)
        fprintf(p->out, "\r");
    fprintf(p->out, "%s ", p->verb);
    if (width > 60)
        draw_bar(p->out, part, width > 100 ? 50 : width - 50);
    fprintf(p->out, " %3d%%  %.2f GB/s", (int)(part * 100), rate);
    if (seconds < 360000)
        fprintf(p->out, "  %ld:%02ld left", seconds / 60, seconds % 60);
    fprintf(p->out, p->line ? "\033[K" : "\n");
    fflush(p->out);
}

int progress_step(void *progress_arg, int64_t done, int64_t total)
{
    progress *p = progress_arg;

    p->done = done;
    p->total = total;
    if (p->out) {
        double t = now();

        if (t - p->last >= (p->line ? REDRAW : NEWLINE)) {
            p->last = t;
            p->drawn = true;
            draw(p, t);
        }
    }
    if (caught && !noticed) {
        noticed = true;
        set_timer(FINISH);
    }
    return caught != 0;
}

void progress_end(progress *p)
{
    if (p->out && reporting())
        draw(p, now());
    else if (p->out && p->line && p->drawn)
        fprintf(p->out, "\r\033[K");
    p->out = NULL;
}
