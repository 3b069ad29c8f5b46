/* SPDX-License-Identifier: Apache-2.0 */
/* reshard demo: makes a small sharded checkpoint, draws it, shows the plan to another mesh, writes
 * the checkpoint for that mesh, verifies it and compares the two. Works in a folder of its own,
 * which it removes again. */
#include "cli.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 10, COLS = 24 };

static const int64_t demo_shape[] = { ROWS, COLS };
static const char    before[] = "mesh dp=2 tp=4; * shard(0)@dp shard(1)@tp";
static const char    after[] = "mesh tp=3; * shard(1)@tp";

static rsd_err layout_of(const char *text, rsd_layout **out, rsd_error *err)
{
    rsd_rules *rules;
    rsd_err    rc = rsd_rules_parse(text, &rules, err);

    if (rc)
        return rc;
    rc = rsd_rules_layout(rules, "layer.weight", RSD_F32, 2, demo_shape, out, err);
    rsd_rules_free(rules);
    return rc;
}

static void show(const char *title, const char *rules, const rsd_layout *layout)
{
    printf("%s\n    layout \"%s\"\n\n", title, rules);
    draw_layout(stdout, layout, in_colour(stdout));
    printf("\n");
}

/* ---- the plan ---- */

static rsd_err print_move(void *arg, const rsd_move *move)
{
    char box[256];

    (void)arg;
    rsd_box_text(&move->box, box, sizeof(box));
    if (move->from == move->to)
        printf("    keeps    %s\n", box);
    else if (move->from_box >= 0)
        printf("    sends    %-16s to rank %" PRId32 "\n", box, move->to);
    else
        printf("    receives %-16s from rank %" PRId32 "\n", box, move->from);
    return RSD_OK;
}

/* The whole exchange in one table, and that nothing is lost on the way. */
static rsd_err print_totals(const rsd_plan *plan, int32_t world, int64_t tensor_bytes,
                            rsd_error *err)
{
    int64_t arrived = 0;

    printf("    rank     keeps     sends  receives  peers\n");
    for (int32_t rank = 0; rank < world; rank++) {
        rsd_plan      *view;
        rsd_plan_stats s;
        rsd_err        rc = rsd_plan_view(plan, rank, &view, err);

        if (rc)
            return rc;
        rsd_plan_stats_get(view, &s);
        printf("    %4" PRId32 " %7" PRId64 " B %7" PRId64 " B %7" PRId64 " B  %5" PRId32 "\n",
               rank, s.bytes_local, s.bytes_sent, s.bytes_recv, s.peers);
        arrived += s.bytes_local + s.bytes_recv;
        rsd_plan_free(view);
    }
    printf("\n    the tensor has %" PRId64 " B, %" PRId64 " B arrive: %s\n\n", tensor_bytes,
           arrived, arrived == tensor_bytes ? "every byte once" : "THAT IS WRONG");
    if (arrived != tensor_bytes)
        *err = (rsd_error){ .code = RSD_E_BUG, .msg = "the plan does not move every byte once" };
    return (rsd_err)err->code;
}

static rsd_err show_plan(const rsd_layout *src, const rsd_layout *dst, rsd_error *err)
{
    rsd_plan *plan = NULL;
    rsd_err   rc = rsd_plan_create(1, &src, &dst, 0, &plan, err);

    if (rc)
        return rc;
    printf("The plan between them, which every rank makes alone:\n\n");
    rc = print_totals(plan, rsd_layout_world(src),
                      (int64_t)ROWS * COLS * (int64_t)rsd_dtype_size(RSD_F32), err);
    if (!rc) {
        printf("Rank 0 in full:\n\n");
        rc = rsd_plan_each(plan, print_move, NULL, err);
        printf("\n");
    }
    rsd_plan_free(plan);
    return rc;
}

/* ---- the checkpoints ---- */

static rsd_err save(const char *path, const rsd_layout *layout, float *weight, rsd_error *err)
{
    rsd_view   view = { .box = { 2, { 0 }, { ROWS, COLS } }, .data = weight };
    rsd_state *state;
    rsd_err    rc = rsd_state_create(&state, err);

    if (rc)
        return rc;
    rc = rsd_state_push(state, "model", err);
    if (!rc)
        rc = rsd_state_tensor(state, "layer.weight", layout, RSD_F32, 2, demo_shape, 1, &view, err);
    if (!rc)
        rc = rsd_save(path, NULL, state, NULL, err);
    rsd_state_free(state);
    return rc;
}

static void print_damage(void *arg, const rsd_error *what)
{
    (void)arg;
    printf("    damage: %s\n", what->msg);
}

/* Lists what the files of a checkpoint hold, verifies it and reads the tensor back. */
static rsd_err show_checkpoint(const char *path, float *weight, rsd_error *err)
{
    rsd_view        view = { .box = { 2, { 0 }, { ROWS, COLS } }, .data = weight };
    rsd_tensor_info info;
    rsd_ckpt       *ckpt;
    size_t          damages = 0;
    rsd_err         rc = rsd_ckpt_open(NULL, path, &ckpt, err);

    if (rc)
        return rc;
    rc = rsd_ckpt_tensor(ckpt, 0, &info, err);
    for (size_t i = 0; !rc && i < info.chunks; i++) {
        rsd_chunk chunk;
        char      box[256];

        rc = rsd_ckpt_chunk(ckpt, 0, i, &chunk, err);
        if (rc)
            break;
        rsd_box_text(&chunk.box, box, sizeof(box));
        printf("    %-14s %-16s bytes %" PRIu64 " to %" PRIu64 "\n", chunk.file, box, chunk.offset,
               chunk.offset + chunk.length - 1);
    }
    if (!rc)
        rc = rsd_ckpt_verify(ckpt, NULL, print_damage, NULL, &damages, err);
    if (!rc)
        rc = rsd_ckpt_read(ckpt, 0, &view, NULL, err);
    if (!rc)
        printf("    verified: %zu damages\n\n", damages);
    rsd_ckpt_close(ckpt);
    return rc;
}

/* Saves with the first layout, reads that, saves with the second, reads that: the same numbers? */
static rsd_err go_there(const char *folder, const rsd_layout *src, const rsd_layout *dst,
                        rsd_error *err)
{
    static float original[ROWS * COLS], once[ROWS * COLS], twice[ROWS * COLS];
    char         first[64], second[64];
    rsd_err      rc;

    for (int i = 0; i < ROWS * COLS; i++)
        original[i] = (float)i;
    snprintf(first, sizeof(first), "%s/eight", folder);
    snprintf(second, sizeof(second), "%s/three", folder);
    rc = save(first, src, original, err);
    if (!rc) {
        printf("A checkpoint for the first layout, as PyTorch would read it:\n\n");
        rc = show_checkpoint(first, once, err);
    }
    if (!rc)
        rc = save(second, dst, once, err);
    if (!rc) {
        printf("Read back and saved for the second:\n\n");
        rc = show_checkpoint(second, twice, err);
    }
    if (rc)
        return rc;
    if (memcmp(original, twice, sizeof(original)) != 0) {
        *err = (rsd_error){ .code = RSD_E_BUG, .msg = "the tensor changed on the way" };
        return RSD_E_BUG;
    }
    printf("The tensor is the same, bit for bit.\n");
    return RSD_OK;
}

static int run(const args *a)
{
    char       *folder = NULL;
    rsd_layout *src = NULL, *dst = NULL;
    rsd_error   err = { .msg = "" };
    rsd_err     rc;
    int         code = scratch_make(a, "/tmp", &folder);

    if (code)
        return code;
    rc = layout_of(before, &src, &err);
    if (!rc)
        rc = layout_of(after, &dst, &err);
    if (!rc) {
        printf("A tensor \"layer.weight\", float32 [%d, %d], one character for each element:\n",
               ROWS, COLS);
        printf("the digit is the rank that holds it.\n\n");
        show("Before: eight ranks, rows over dp, columns over tp", before, src);
        show("After: three ranks, columns over tp", after, dst);
        rc = show_plan(src, dst, &err);
    }
    if (!rc)
        rc = go_there(folder, src, dst, &err);
    scratch_remove(folder);
    rsd_layout_free(src);
    rsd_layout_free(dst);
    return rc ? fail(a, &err) : EXIT_DONE;
}

const command cmd_demo = {
    .name = "demo",
    .line = "draw two layouts of a tensor, the plan between them, and do it",
    .operands = "",
    .text = "Makes a small sharded checkpoint, draws who holds what of it, shows the plan to "
            "another mesh, writes the checkpoint for that mesh, verifies it and compares the two. "
            "Works in a folder of its own below /tmp, which it removes again.",
    .run = run,
};
