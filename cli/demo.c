/* SPDX-License-Identifier: Apache-2.0 */
/* reshard demo: two layouts of one tensor, drawn, and the plan from one to the other. */
#include "cli.h"

#include <inttypes.h>
#include <string.h>

static const int64_t demo_shape[] = { 10, 24 };
static const char    before[] = "mesh dp=2 tp=4; *.norm replicate; * shard(0)@dp shard(1)@tp";
static const char    after[] = "mesh tp=3; *.norm replicate; * shard(1)@tp";

static int failed(const rsd_error *err)
{
    fprintf(stderr, "reshard: %s\n", err->msg);
    return EXIT_COULD_NOT;
}

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
    draw_layout(stdout, layout, draw_in_colour(stdout));
    printf("\n");
}

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
    return arrived == tensor_bytes ? RSD_OK : RSD_E_BUG;
}

static rsd_err show_plan(const rsd_layout *src, const rsd_layout *dst, rsd_error *err)
{
    rsd_plan *plan = NULL;
    rsd_err   rc = rsd_plan_create(1, &src, &dst, 0, &plan, err);

    if (rc)
        return rc;
    printf("The plan between them, which every rank makes alone:\n\n");
    rc = print_totals(plan, rsd_layout_world(src),
                      demo_shape[0] * demo_shape[1] * (int64_t)rsd_dtype_size(RSD_F32), err);
    if (!rc) {
        printf("Rank 0 in full:\n\n");
        rc = rsd_plan_each(plan, print_move, NULL, err);
    }
    rsd_plan_free(plan);
    return rc;
}

int cmd_demo(int argc, char **argv)
{
    rsd_layout *src = NULL, *dst = NULL;
    rsd_error   err = { 0 };
    rsd_err     rc;

    if (argc > 1) {
        fprintf(stderr, "reshard: demo takes no arguments, found \"%s\"\n", argv[1]);
        return EXIT_MISUSE;
    }
    rc = layout_of(before, &src, &err);
    if (!rc)
        rc = layout_of(after, &dst, &err);
    if (!rc) {
        printf("A tensor \"layer.weight\", float32 [10, 24], one character for each element:\n");
        printf("the digit is the rank that holds it.\n\n");
        show("Before: eight ranks, rows over dp, columns over tp", before, src);
        show("After: three ranks, columns over tp", after, dst);
        rc = show_plan(src, dst, &err);
    }
    rsd_layout_free(src);
    rsd_layout_free(dst);
    return rc ? failed(&err) : EXIT_DONE;
}
