/* SPDX-License-Identifier: Apache-2.0 */
/* reshard plan: what loading a checkpoint into another layout would read, move and need, for each
 * rank; writes nothing and reads only metadata. Two plans are made. One goes from the files to the
 * new ranks, with a number beyond all ranks for each file, so that nothing is at home already. The
 * other, for DCP, goes from the ranks that wrote the files to the new ones. */
#include "page.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct planning {
    const args  *a;
    rsd_ckpt    *ckpt;
    rsd_rules   *rules;
    int32_t      world; /* ranks before and after */
    size_t       n;     /* tensors */
    rsd_layout **files; /* [n] owner: world + number of the file */
    rsd_layout **old;   /* [n] owner: the rank that wrote it; NULL: not known */
    rsd_layout **want;  /* [n] */
    holders      held;
    bool         json;
    json_out     out;
    columns      table;
} planning;

/* What one rank has to do, in bytes. */
typedef struct share {
    int64_t needs, reads, pieces, keeps, sends, receives;
    int32_t files, peers;
} share;

static int no_memory(const planning *p)
{
    return refuse(p->a, EXIT_COULD_NOT, "no memory for the plan");
}

/* ---- the layouts ---- */

static int stored_layouts(planning *p, size_t t, const rsd_tensor_info *info)
{
    rsd_box  *box = calloc(info->chunks + 1, sizeof(*box));
    int32_t  *owner = calloc(2 * info->chunks + 1, sizeof(*owner)), *writer;
    rsd_error err = { .msg = "" };
    bool      known = rsd_ckpt_format(p->ckpt) == RSD_FORMAT_DCP;
    rsd_err   rc = RSD_OK;
    int       code = box && owner ? EXIT_DONE : no_memory(p);

    writer = owner ? owner + info->chunks : NULL;
    for (size_t i = 0; !code && i < info->chunks; i++) {
        rsd_chunk chunk;
        size_t    number = 0;

        rc = rsd_ckpt_chunk(p->ckpt, t, i, &chunk, &err);
        if (rc)
            break;
        if (!holders_number(&p->held, chunk.file, &number))
            code = no_memory(p);
        box[i] = chunk.box;
        owner[i] = p->world + (int32_t)number;
        writer[i] = file_writer(chunk.file);
        known = known && writer[i] >= 0;
    }
    if (!rc && !code)
        rc = rsd_layout_create_boxes(info->dtype, info->ndim, info->shape, info->chunks, owner, box,
                                     &p->files[t], &err);
    if (!rc && !code && known)
        rc = rsd_layout_create_boxes(info->dtype, info->ndim, info->shape, info->chunks, writer,
                                     box, &p->old[t], &err);
    free(box);
    free(owner);
    return rc ? fail(p->a, &err) : code;
}

static int wanted_layout(planning *p, size_t t, const rsd_tensor_info *info)
{
    rsd_error err = { .msg = "" };
    rsd_err   rc = rsd_rules_layout(p->rules, info->name, info->dtype, info->ndim, info->shape,
                                    &p->want[t], &err);

    if (!rc)
        return EXIT_DONE;
    if (rc == RSD_E_NOTFOUND || rc == RSD_E_INVALID || rc == RSD_E_MISMATCH)
        return refuse(p->a, EXIT_MISUSE, "%s", err.msg);
    return fail(p->a, &err);
}

/* All ranks that hold something before or after. */
static int count_ranks(planning *p, size_t t, const rsd_tensor_info *info)
{
    const bool dcp = rsd_ckpt_format(p->ckpt) == RSD_FORMAT_DCP;
    rsd_error  err = { .msg = "" };

    if (rsd_layout_world(p->want[t]) > p->world)
        p->world = rsd_layout_world(p->want[t]);
    for (size_t i = 0; dcp && i < info->chunks; i++) {
        rsd_chunk chunk;

        if (rsd_ckpt_chunk(p->ckpt, t, i, &chunk, &err))
            return fail(p->a, &err);
        if (file_writer(chunk.file) >= p->world)
            p->world = file_writer(chunk.file) + 1;
    }
    return EXIT_DONE;
}

static int make_layouts(planning *p)
{
    int (*const step[])(planning *, size_t, const rsd_tensor_info *) = { wanted_layout, count_ranks,
                                                                         stored_layouts };
    rsd_error err = { .msg = "" };

    p->n = rsd_ckpt_tensors(p->ckpt);
    p->files = calloc(p->n + 1, sizeof(rsd_layout *));
    p->old = calloc(p->n + 1, sizeof(rsd_layout *));
    p->want = calloc(p->n + 1, sizeof(rsd_layout *));
    if (!p->files || !p->old || !p->want)
        return no_memory(p);
    for (size_t i = 0; i < sizeof(step) / sizeof(step[0]); i++)
        for (size_t t = 0; t < p->n; t++) {
            rsd_tensor_info info;
            int             code;

            if (rsd_ckpt_tensor(p->ckpt, t, &info, &err))
                return fail(p->a, &err);
            code = step[i](p, t, &info);
            if (code)
                return code;
        }
    return EXIT_DONE;
}

/* ---- the plans ---- */

static bool writers_known(const planning *p)
{
    for (size_t t = 0; t < p->n; t++)
        if (!p->old[t])
            return false;
    return p->n > 0;
}

static int stats_of(planning *p, rsd_layout **from, int32_t rank, rsd_plan_stats *out)
{
    rsd_error err = { .msg = "" };
    rsd_plan *plan;

    if (rsd_plan_create(p->n, (const rsd_layout *const *)from, (const rsd_layout *const *)p->want,
                        rank, &plan, &err))
        return fail(p->a, &err);
    rsd_plan_stats_get(plan, out);
    rsd_plan_free(plan);
    return EXIT_DONE;
}

static int share_of(planning *p, int32_t rank, bool moves, share *out)
{
    rsd_plan_stats s;
    int            code = stats_of(p, p->files, rank, &s);

    if (code)
        return code;
    *out = (share){ .reads = s.bytes_recv, .pieces = s.moves, .files = s.peers };
    for (size_t t = 0; t < p->n; t++)
        out->needs += rsd_layout_bytes(p->want[t], rank);
    if (!moves)
        return EXIT_DONE;
    code = stats_of(p, p->old, rank, &s);
    out->keeps = s.bytes_local;
    out->sends = s.bytes_sent;
    out->receives = s.bytes_recv;
    out->peers = s.peers;
    return code;
}

/* ---- what is printed ---- */

static void add_size(columns *c, int64_t bytes)
{
    char text[32];

    columns_add(c, size_text((uint64_t)bytes, text, sizeof(text)));
}

static void print_share(planning *p, const char *who, int32_t rank, const share *s, bool moves)
{
    columns *c = &p->table;

    if (p->json) {
        json_open_object(&p->out, rank < 0 ? "total" : NULL);
        if (rank >= 0)
            json_int(&p->out, "rank", rank);
        json_int(&p->out, "needs", s->needs);
        json_int(&p->out, "reads", s->reads);
        if (rank >= 0)
            json_int(&p->out, "files", s->files);
        json_int(&p->out, "pieces", s->pieces);
        if (moves) {
            json_int(&p->out, "keeps", s->keeps);
            json_int(&p->out, "sends", s->sends);
            json_int(&p->out, "receives", s->receives);
        }
        if (moves && rank >= 0)
            json_int(&p->out, "peers", s->peers);
        json_close(&p->out);
        return;
    }
    columns_add(c, who);
    add_size(c, s->needs);
    add_size(c, s->reads);
    columns_addf(c, "%" PRId64, s->pieces);
    columns_addf(c, "%" PRId32, s->files);
    if (moves) {
        add_size(c, s->keeps);
        add_size(c, s->sends);
        add_size(c, s->receives);
    }
}

static int print_ranks(planning *p, bool moves, share *total)
{
    for (int32_t rank = 0; rank < p->world; rank++) {
        share s;
        char  who[16];
        int   code = share_of(p, rank, moves, &s);

        if (code)
            return code;
        snprintf(who, sizeof(who), "%" PRId32, rank);
        print_share(p, who, rank, &s, moves);
        total->needs += s.needs;
        total->reads += s.reads;
        total->pieces += s.pieces;
        total->keeps += s.keeps;
        total->sends += s.sends;
        total->receives += s.receives;
    }
    total->files = (int32_t)p->held.n;
    return EXIT_DONE;
}

static int print_plan(planning *p)
{
    static const char *const with[] = { ">rank",  ">needs", ">reads",    "?>pieces", "?>files",
                                        ">keeps", ">sends", ">receives", NULL };
    static const char *const without[] = {
        ">rank", ">needs", ">reads", "?>pieces", "?>files", NULL
    };
    const bool moves = writers_known(p);
    share      total = { 0 };
    int        code;

    if (p->json) {
        json_open_object(&p->out, NULL);
        json_text(&p->out, "path", p->a->operand[0]);
        json_uint(&p->out, "tensors", p->n);
        json_open_array(&p->out, "ranks");
    } else {
        columns_begin(&p->table, moves ? with : without);
    }
    code = print_ranks(p, moves, &total);
    if (p->json)
        json_close(&p->out);
    if (!code)
        print_share(p, "all", -1, &total, moves);
    if (code) {
        free(p->table.text);
    } else if (p->json) {
        json_close(&p->out);
    } else {
        if (!columns_print(&p->table, stdout))
            return no_memory(p);
        printf("\n");
        print_wrapped(stdout,
                      "needs: memory of the rank; reads: bytes from files, in so many pieces");
        if (moves)
            print_wrapped(
                stdout,
                "keeps, sends, receives: if the ranks that wrote the files still held them");
    }
    return code;
}

/* ---- as a page ---- */

static int page_ranks(planning *p, page *to)
{
    const bool moves = writers_known(p);

    for (int32_t rank = 0; rank < p->world; rank++) {
        share s;
        int   code = share_of(p, rank, moves, &s);

        if (code)
            return code;
        page_rank(to, (const int64_t[]){ s.needs, s.reads, moves ? s.keeps : -1,
                                         moves ? s.sends : -1, moves ? s.receives : -1 });
    }
    return EXIT_DONE;
}

static int write_page(planning *p)
{
    size_t     cap = rsd_rules_text(p->rules, NULL, 0) + 1;
    char      *rules = malloc(cap);
    page_about about = { p->a->operand[0], rules, rsd_ckpt_format(p->ckpt) };
    page      *to = NULL;
    int        code;

    if (!rules)
        return no_memory(p);
    rsd_rules_text(p->rules, rules, cap);
    code = page_begin(p->a, args_text(p->a, "html", "-"), &about, &to);
    for (size_t t = 0; !code && t < p->n; t++)
        code = page_tensor(to, p->ckpt, t, p->want[t]);
    if (!code)
        code = page_objects(to, p->ckpt, rsd_ckpt_objects(p->ckpt), NULL);
    if (!code)
        code = page_ranks(p, to);
    free(rules);
    return page_end(to, code);
}

/* ---- the command ---- */

static void free_layouts(rsd_layout **layout, size_t n)
{
    for (size_t i = 0; layout && i < n; i++)
        rsd_layout_free(layout[i]);
    free(layout);
}

static int run(const args *a)
{
    planning    p = { .a = a, .json = args_has(a, "json"), .out = { .out = stdout } };
    const char *spec = args_text(a, "layout", NULL);
    int         code;

    if (!spec)
        return misuse(a, "plan needs --layout SPEC");
    if (p.json && args_has(a, "html"))
        return misuse(a, "--json and --html exclude each other");
    code = source_rules(a, spec, &p.rules);
    if (!code)
        code = source_open(a, a->operand[0], &p.ckpt);
    if (!code)
        code = make_layouts(&p);
    if (!code)
        code = args_has(a, "html") ? write_page(&p) : print_plan(&p);
    free_layouts(p.files, p.n);
    free_layouts(p.old, p.n);
    free_layouts(p.want, p.n);
    free(p.held.file);
    rsd_ckpt_close(p.ckpt);
    rsd_rules_free(p.rules);
    return code;
}

static const option_spec options[] = {
    { "layout", 'l', OPT_PATH, "SPEC", "the layout to plan for: rules, or a file with rules" },
    OPTION_JSON,
    { "html", 0, OPT_PATH, "FILE", "write a page for browsers: tiles before and after, and moves" },
    { 0 },
};

const command cmd_plan = {
    .name = "plan",
    .line = "show what resharding would read, move and need, for each rank",
    .operands = "CKPT",
    .min = 1,
    .max = 1,
    .options = options,
    .text = "Shows for each rank of another layout how much memory its part takes, how many bytes "
            "it would read in how many pieces from how many files, and, if the checkpoint tells "
            "which rank wrote what, how many bytes that rank would keep, send and receive if the "
            "old ranks still held them. Reads only metadata and writes nothing.\n"
            "\n"
            "SPEC is a mesh and rules, the first that matches a name wins; `;` or a new line ends "
            "each:\n"
            "\n"
            "  mesh dp=2 tp=4; *.wq.weight shard(0)@tp; *norm* replicate; * shard(0)@dp\n"
            "\n"
            "--html writes one page that needs no network: each tensor's tiles before and after "
            "with the moves between them, and the bytes of each rank. FILE `-` is stdout.",
    .examples = "# from however it was saved to 8 ranks\n"
                "reshard plan step-1000 --layout 'mesh tp=8; *norm* replicate; * shard(0)@tp'\n"
                "# the same to look at\n"
                "reshard plan step-1000 --layout 'mesh tp=8; * shard(0)@tp' --html plan.html\n",
    .run = run,
};
