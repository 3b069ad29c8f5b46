/* SPDX-License-Identifier: Apache-2.0 */
/* What one of very many ranks needs to know before it saves: its part of the checkpoint, and for
 * the rank that writes the metadata, all of it. The other ranks are not there; memory is the peak
 * column's. `bench --scale` measures both, and plans of live reshards, over many numbers of ranks
 * and tensors. */
#include "bench.h"
#include "base/mem.h"
#include "format/dcp_catalogue.h"
#include "write/image.h"

#include <reshard/reshard_live.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

typedef struct saving {
    rsd_state     *state;
    rsi_image_spec spec;
    size_t         chunks;
    uint64_t       bytes; /* of metadata */
} saving;

static void must(rsd_err rc, const rsd_error *err)
{
    if (!rc)
        return;
    fprintf(stderr, "bench: %s\n", err->msg);
    exit(3);
}

static void make_state(saving *s, int64_t ranks, int tensors)
{
    const int64_t shape[] = { 65536, 8192 };
    char          rules_text[96], name[64];
    rsd_rules    *rules;
    rsd_layout   *layout;
    rsd_error     err;

    snprintf(rules_text, sizeof(rules_text), "mesh dp=%" PRId64 " tp=%d; * shard(0)@dp shard(1)@tp",
             ranks < 8 ? 1 : ranks / 8, ranks < 8 ? (int)ranks : 8);
    must(rsd_rules_parse(rules_text, &rules, &err), &err);
    must(rsd_rules_layout(rules, "t", RSD_BF16, 2, shape, &layout, &err), &err);
    must(rsd_state_create(&s->state, &err), &err);
    for (int t = 0; t < tensors; t++) {
        snprintf(name, sizeof(name), "model.layers.%d.weight", t);
        must(rsd_state_tensor(s->state, name, layout, RSD_BF16, 2, shape, 0, NULL, &err), &err);
    }
    rsd_layout_free(layout);
    rsd_rules_free(rules);
}

static void make_image(void *arg)
{
    saving   *s = arg;
    rsi_image image;
    rsd_error err;

    must(rsi_image_make(&image, s->state, &s->spec, &err), &err);
    s->chunks = image.meta->nchunks;
    rsi_image_release(&image);
}

static rsd_err count_bytes(void *arg, const void *bytes, size_t len, rsd_error *err)
{
    (void)bytes;
    (void)err;
    *(uint64_t *)arg += len;
    return RSD_OK;
}

static void make_metadata(void *arg)
{
    saving   *s = arg;
    rsi_image image;
    rsi_bytes catalogue = { 0 };
    rsd_error err;

    s->bytes = 0;
    must(rsi_image_make(&image, s->state, &s->spec, &err), &err);
    s->chunks = image.meta->nchunks;
    must(rsi_dcp_meta_write(image.meta, count_bytes, &s->bytes, &err), &err);
    if (!rsi_catalogue_make(image.meta, &(rsi_meta_id){ .bytes = s->bytes }, &catalogue))
        must(rsi_fail(&err, RSD_E_NOMEM, "no memory for a catalogue"), &err);
    rsi_free(catalogue.at);
    rsi_image_release(&image);
}

static bool measure(int64_t ranks, int tensors, int32_t rank, bench_result *out)
{
    saving           s = { .spec = { .format = RSD_FORMAT_DCP, .own_only = true, .rank = rank } };
    const bench_work work[] = { rank ? make_image : make_metadata };
    void *const      arg[] = { &s };
    double           seconds;

    make_state(&s, ranks, tensors);
    bench_turns(1, work, arg, 5, &seconds, NULL);
    rsd_state_free(s.state);
    out->value = seconds * 1e3;
    out->unit = "ms";
    if (rank)
        snprintf(out->note, sizeof(out->note), "%" PRId64 " ranks, %d tensors, %zu own chunks",
                 ranks, tensors, s.chunks);
    else
        snprintf(out->note, sizeof(out->note),
                 "%.2f M chunks a second, %" PRId64 " ranks, %d tensors, %.0f MB of metadata",
                 (double)s.chunks / seconds / 1e6, ranks, tensors, (double)s.bytes / 1e6);
    return true;
}

static bool rank_1k(bench_result *out)
{
    return measure(1024, 1000, 341, out);
}

static bool rank_64k(bench_result *out)
{
    return measure(65536, 1000, 21845, out);
}

static bool metadata(bench_result *out)
{
    return measure(1024, 1000, 0, out);
}

/* ---- many numbers of ranks and tensors ---- */

typedef struct scaling {
    const char *what;
    void (*run)(void *arg);
    int32_t rank;
    saving  s;
    /* of live plans: [tensors] pointers to the same two layouts */
    const rsd_layout **from, **to;
    size_t             tensors;
} scaling;

static void make_image_of(void *arg)
{
    make_image(&((scaling *)arg)->s);
}

static void make_metadata_of(void *arg)
{
    make_metadata(&((scaling *)arg)->s);
}

static void make_plan(void *arg)
{
    scaling  *k = arg;
    rsd_plan *plan;
    rsd_error err;

    must(rsd_plan_create(k->tensors, k->from, k->to, k->rank, &plan, &err), &err);
    rsd_plan_free(plan);
}

/* Of the tensors of make_state: rows and columns on one mesh, and with half as many columns on the
 * next. */
static void make_layouts(scaling *k, int64_t ranks, size_t tensors)
{
    const int64_t shape[] = { 65536, 8192 };
    const int     tp = ranks < 8 ? (int)ranks : 8;
    rsd_layout   *layout[2];
    rsd_rules    *rules;
    rsd_error     err;
    char          text[96];

    for (int i = 0; i < 2; i++) {
        const int now = i && tp > 1 ? tp / 2 : tp;

        snprintf(text, sizeof(text), "mesh dp=%" PRId64 " tp=%d; * shard(0)@dp shard(1)@tp",
                 ranks / now, now);
        must(rsd_rules_parse(text, &rules, &err), &err);
        must(rsd_rules_layout(rules, "t", RSD_BF16, 2, shape, &layout[i], &err), &err);
        rsd_rules_free(rules);
    }
    k->from = calloc(tensors, sizeof(k->from[0]));
    k->to = calloc(tensors, sizeof(k->to[0]));
    for (size_t t = 0; k->from && k->to && t < tensors; t++) {
        k->from[t] = layout[0];
        k->to[t] = layout[1];
    }
}

static double cpu_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* One line of CSV: processor time, the least of three, and the memory of the whole process. */
static void scale_one(const scaling *of, int64_t ranks, int tensors)
{
    const int64_t rank = of->rank ? ranks / 3 : 0;
    scaling       k = *of;
    double        least = 1e9;
    struct rusage usage;

    if (of->run == make_plan) {
        make_layouts(&k, ranks, (size_t)tensors);
    } else {
        make_state(&k.s, ranks, tensors);
        k.s.spec =
            (rsi_image_spec){ .format = RSD_FORMAT_DCP, .own_only = true, .rank = (int32_t)rank };
    }
    k.rank = (int32_t)rank;
    k.tensors = (size_t)tensors;
    for (int i = 0; i < 3; i++) {
        double start = cpu_now();

        k.run(&k);
        least = cpu_now() - start < least ? cpu_now() - start : least;
    }
    getrusage(RUSAGE_SELF, &usage);
    printf("%s,%" PRId64 ",%d,%.4g,%.1f\n", k.what, ranks, tensors, least * 1e3,
           (double)usage.ru_maxrss / 1024);
    fflush(stdout);
}

int bench_scale(void)
{
    static const int64_t ranks[] = { 1, 8, 64, 512, 4096, 65536 };
    static const int     tensors[] = { 10, 100, 1000, 10000 };
    static const scaling of[] = { { .what = "save", .run = make_image_of, .rank = 1 },
                                  { .what = "metadata", .run = make_metadata_of },
                                  { .what = "live", .run = make_plan, .rank = 1 } };

    printf("what,ranks,tensors,cpu_ms,mib\n");
    fflush(stdout);
    for (size_t w = 0; w < 3; w++)
        for (size_t r = 0; r < sizeof(ranks) / sizeof(ranks[0]); r++)
            for (size_t t = 0; t < sizeof(tensors) / sizeof(tensors[0]); t++) {
                int   status = 0;
                pid_t pid;

                /* the metadata of more chunks take minutes, and say no more */
                if (of[w].run == make_metadata_of && ranks[r] * tensors[t] > 8000000)
                    continue;
                pid = fork();
                if (pid == 0) {
                    scale_one(&of[w], ranks[r], tensors[t]);
                    _exit(0);
                }
                if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
                    return 3;
            }
    return 0;
}

const bench_case scale_cases[] = { { "scale.save.rank", rank_1k },
                                   { "scale.save.rank.64k", rank_64k },
                                   { "scale.save.metadata", metadata },
                                   { 0 } };
