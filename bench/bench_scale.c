/* SPDX-License-Identifier: Apache-2.0 */
/* What one of very many ranks needs to know before it saves: its part of the checkpoint, and for
 * the rank that writes the metadata, all of it. The other ranks are not there; memory is the peak
 * column's. */
#include "bench.h"
#include "base/mem.h"
#include "format/dcp_catalogue.h"
#include "write/image.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

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

    snprintf(rules_text, sizeof(rules_text), "mesh dp=%" PRId64 " tp=8; * shard(0)@dp shard(1)@tp",
             ranks / 8);
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

const bench_case scale_cases[] = { { "scale.save.rank", rank_1k },
                                   { "scale.save.rank.64k", rank_64k },
                                   { "scale.save.metadata", metadata },
                                   { 0 } };
