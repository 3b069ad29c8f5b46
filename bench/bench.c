/* SPDX-License-Identifier: Apache-2.0 */
/* bench [--csv FILE] [PATTERN]: runs the cases whose whole name matches, prints a table and puts
 * their rows into FILE, where the rows of other cases stay. */
#include "bench.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MOST_ROWS   256
#define MOST_ROUNDS 64
#define HEADER      "case,value,unit,ideal,of_ideal,peer,peer_value,vs_peer,peak_mib,spread"

static const bench_case *const groups[] = {
    plan_cases,    copy_cases,   open_cases,         read_cases,  ckpt_cases,  live_cases,
    convert_cases, folder_cases, tool_cases,         stash_cases, async_cases, scale_cases,
    torch_cases,   py_cases,     redistribute_cases, hf_cases,
};

typedef struct row {
    char name[64], csv[256];
} row;

double bench_now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void *bench_memory(size_t bytes)
{
    void *p = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);

    if (!p) {
        fprintf(stderr, "bench: no memory for %zu bytes\n", bytes);
        exit(3);
    }
    memset(p, 1, bytes);
    return p;
}

static double took;   /* < 0: nobody said */
static double spread; /* of the last turns: see bench_result */

void bench_took(double seconds)
{
    took = seconds;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static double median(double *values, int n)
{
    qsort(values, (size_t)n, sizeof(values[0]), by_value);
    return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

void bench_turns(int n, const bench_work *work, void *const *arg, int rounds, double *seconds,
                 double *ratio)
{
    double time[8][MOST_ROUNDS], ratios[8][MOST_ROUNDS];

    rounds = rounds < 3 ? 3 : rounds > MOST_ROUNDS ? MOST_ROUNDS : rounds;
    for (int r = -1; r < rounds; r++)
        for (int turn = 0; turn < n; turn++) {
            int    i = r & 1 ? n - 1 - turn : turn; /* nobody always has the same one before him */
            double start = bench_now();

            took = -1;
            work[i](arg[i]);
            if (r >= 0)
                time[i][r] = took < 0 ? bench_now() - start : took;
        }
    for (int i = 0; i < n; i++)
        for (int r = 0; r < rounds; r++)
            ratios[i][r] = time[i][r] / time[0][r];
    for (int i = 0; i < n; i++) { /* median sorts */
        seconds[i] = median(time[i], rounds);
        if (ratio)
            ratio[i] = median(ratios[i], rounds);
    }
    spread = 100 * (time[0][3 * rounds / 4] - time[0][rounds / 4]) / seconds[0];
}

/* In a child, so that the peak of memory is the case's own and a crash ends only that case. */
static bool run_apart(const bench_case *c, bench_result *out, double *peak_mib)
{
    struct rusage usage;
    int           ends[2], status = 0;
    ssize_t       got;
    pid_t         pid;

    if (pipe(ends) != 0 || (pid = fork()) < 0)
        return false;
    if (pid == 0) {
        bool ok = c->run(out);

        out->spread = out->spread > 0 ? out->spread : spread;
        got = write(ends[1], out, sizeof(*out));
        _exit(ok && got == (ssize_t)sizeof(*out) ? 0 : 1);
    }
    close(ends[1]);
    got = read(ends[0], out, sizeof(*out));
    close(ends[0]);
    if (wait4(pid, &status, 0, &usage) != pid || got != (ssize_t)sizeof(*out))
        return false;
    *peak_mib = (double)usage.ru_maxrss / 1024;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

/* Empty for what there is not. */
static const char *number(char *buf, size_t cap, double value)
{
    snprintf(buf, cap, "%.4g", value);
    return value > 0 ? buf : "";
}

static void to_csv(const bench_case *c, const bench_result *r, double peak_mib, row *out)
{
    char        v[32], i[32], o[32], p[32], s[32], m[32], w[32];
    const char *at = strchr(c->name, '@');

    snprintf(out->name, sizeof(out->name), "%s", c->name);
    snprintf(out->csv, sizeof(out->csv), "%s,%s,%s,%s,%s,%s,%s,%s,%s,%s", c->name,
             number(v, sizeof(v), r->value), r->unit, number(i, sizeof(i), r->ideal),
             number(o, sizeof(o), r->of_ideal), at && r->peer_value > 0 ? at + 1 : "",
             number(p, sizeof(p), r->peer_value), number(s, sizeof(s), r->vs_peer),
             number(m, sizeof(m), peak_mib), number(w, sizeof(w), r->spread));
}

static void print_row(const bench_case *c, const bench_result *r, double peak_mib)
{
    char ideal[32], of[32], peer[32], vs[32];

    printf("%-28s %10.4g %-5s %10s %9s %10s %8s %8.1f  %s\n", c->name, r->value, r->unit,
           number(ideal, sizeof(ideal), r->ideal), number(of, sizeof(of), r->of_ideal),
           number(peer, sizeof(peer), r->peer_value), number(vs, sizeof(vs), r->vs_peer), peak_mib,
           r->note);
    fflush(stdout);
}

static int load(const char *path, row *rows)
{
    FILE *file = fopen(path, "r");
    char  line[256];
    int   n = 0;

    if (!file)
        return 0;
    while (n < MOST_ROWS && fgets(line, sizeof(line), file)) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "case,", 5) == 0 || !strchr(line, ','))
            continue;
        snprintf(rows[n].csv, sizeof(rows[n].csv), "%s", line);
        snprintf(rows[n].name, sizeof(rows[n].name), "%.*s", (int)strcspn(line, ","), line);
        n++;
    }
    fclose(file);
    return n;
}

static int replace(row *rows, int n, const row *fresh)
{
    for (int i = 0; i < n; i++)
        if (strcmp(rows[i].name, fresh->name) == 0) {
            rows[i] = *fresh;
            return n;
        }
    if (n < MOST_ROWS)
        rows[n++] = *fresh;
    return n;
}

static bool save(const char *path, const row *rows, int n)
{
    FILE *file = fopen(path, "w");

    if (!file) {
        perror(path);
        return false;
    }
    fprintf(file, "%s\n", HEADER);
    for (int i = 0; i < n; i++)
        fprintf(file, "%s\n", rows[i].csv);
    return fclose(file) == 0;
}

int main(int argc, char **argv)
{
    static row  rows[MOST_ROWS];
    const char *csv = NULL, *pattern = "*";
    int         n = 0, ran = 0, failed = 0;

    if ((argc == 3 || argc == 4) && strcmp(argv[1], "--list") == 0)
        return bench_list(argv[2], argc == 4 ? argv[3] : NULL);
    if (argc == 4 && strcmp(argv[1], "--read") == 0)
        return bench_read(argv[2], argv[3]);
    if (argc == 2 && strcmp(argv[1], "--scale") == 0)
        return bench_scale();
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--csv") == 0 && i + 1 < argc)
            csv = argv[++i];
        else
            pattern = argv[i];
    }
    n = csv ? load(csv, rows) : 0;
    printf("%-28s %10s %-5s %10s %9s %10s %8s %8s\n", "case", "value", "unit", "ideal", "of_ideal",
           "peer", "vs_peer", "peak_mib");
    for (size_t g = 0; g < sizeof(groups) / sizeof(groups[0]); g++)
        for (const bench_case *c = groups[g]; c->name; c++) {
            bench_result r = { .unit = "" };
            double       peak = 0;
            row          fresh;

            if (fnmatch(pattern, c->name, 0) != 0)
                continue;
            ran++;
            if (!run_apart(c, &r, &peak)) {
                printf("%-28s could not be run: %s\n", c->name, r.note);
                failed++;
                continue;
            }
            print_row(c, &r, peak);
            to_csv(c, &r, peak, &fresh);
            n = replace(rows, n, &fresh);
        }
    if (ran == 0)
        fprintf(stderr, "bench: no case matches \"%s\"\n", pattern);
    if (csv && ran > 0 && !save(csv, rows, n))
        return 3;
    return ran == 0 ? 2 : failed ? 3 : 0;
}
