/* SPDX-License-Identifier: Apache-2.0 */
/* reshard plan: what loading a checkpoint into another layout would read, move and need, per rank;
 * writes nothing and reads only metadata. It makes two plans. One goes from the files to the new
 * ranks and numbers the files beyond all ranks, so that nothing counts as already local. The other,
 * for DCP, goes from the ranks that wrote the files to the new ones. */
#include "page.h"
#include "plan_recipe.h"
#include "recipe_args.h"
#include "simulate.h"

#include <reshard/reshard_live.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Tensors are planned in groups: layouts take more memory than the metadata that describe them. */
enum { MOST_TENSORS = 2048, MOST_CHUNKS = 1 << 16, MOST_SEEN = 16 << 20 };

/* The work of one rank, in bytes. */
typedef struct share {
    int64_t needs, reads, pieces, keeps, sends, receives;
    int32_t files, peers;
} share;

typedef struct planning {
    const args *a;
    rsd_ckpt   *ckpt;
    rsd_rules  *rules;
    int32_t     world; /* ranks before and after */
    bool        moves; /* the writing rank of everything is known */
    holders     held;
    share      *ranks; /* [world] */
    /* the current group */
    size_t         n;                   /* tensors */
    rsd_layout    *files[MOST_TENSORS]; /* owner: world + number of the file */
    rsd_layout    *old[MOST_TENSORS];   /* owner: source rank */
    rsd_layout    *want[MOST_TENSORS];
    int32_t        first, end; /* ranks whose peers are recorded in `seen` */
    unsigned char *seen;       /* [end - first][world + files] one bit each */
    bool           json;
    json_out       out;
    columns        table;
} planning;

static int no_memory(const planning *p)
{
    return refuse(p->a, EXIT_COULD_NOT, "no memory for the plan");
}

/* ---- all ranks, all files ---- */

/* Counts the files, and the ranks that hold something before or after. */
static int count_holders(planning *p, size_t t, const rsd_tensor_info *info)
{
    rsd_error err = { .msg = "" };

    for (size_t i = 0; i < info->chunks; i++) {
        rsd_chunk chunk = { .size = sizeof(chunk) };
        size_t    number;
        int32_t   writer;

        if (rsd_ckpt_chunk(p->ckpt, t, i, &chunk, &err))
            return fail(p->a, &err);
        if (!holders_number(&p->held, chunk.file, &number))
            return no_memory(p);
        writer = file_writer(chunk.file);
        p->moves = p->moves && writer >= 0;
        if (rsd_ckpt_format(p->ckpt) == RSD_FORMAT_DCP && writer >= p->world)
            p->world = writer + 1;
    }
    return EXIT_DONE;
}

static int wanted_layout(planning *p, const rsd_tensor_info *info, rsd_layout **out)
{
    rsd_error err = { .msg = "" };
    rsd_err   rc =
        rsd_rules_layout(p->rules, info->name, info->dtype, info->ndim, info->shape, out, &err);

    if (!rc)
        return EXIT_DONE;
    if (rc == RSD_E_NOTFOUND || rc == RSD_E_INVALID || rc == RSD_E_MISMATCH)
        return refuse(p->a, EXIT_MISUSE, "%s", err.msg);
    return fail(p->a, &err);
}

static int count_all(planning *p)
{
    const size_t n = rsd_ckpt_tensors(p->ckpt);
    int          code = EXIT_DONE;

    p->moves = rsd_ckpt_format(p->ckpt) == RSD_FORMAT_DCP && n > 0;
    for (size_t t = 0; t < n && !code; t++) {
        rsd_layout     *want = NULL;
        rsd_tensor_info info = { .size = sizeof(info) };
        rsd_error       err = { .msg = "" };

        if (rsd_ckpt_tensor(p->ckpt, t, &info, &err))
            return fail(p->a, &err);
        code = wanted_layout(p, &info, &want);
        if (!code && rsd_layout_world(want) > p->world)
            p->world = rsd_layout_world(want);
        rsd_layout_free(want);
        if (!code)
            code = count_holders(p, t, &info);
    }
    p->ranks = code ? NULL : calloc((size_t)p->world + 1, sizeof(p->ranks[0]));
    return code || p->ranks ? code : no_memory(p);
}

/* ---- the layouts of a group ---- */

static int stored_layouts(planning *p, size_t t, const rsd_tensor_info *info)
{
    rsd_box  *box = calloc(info->chunks + 1, sizeof(*box));
    int32_t  *owner = calloc(2 * info->chunks + 1, sizeof(*owner)), *writer;
    rsd_error err = { .msg = "" };
    rsd_err   rc = RSD_OK;
    int       code = box && owner ? EXIT_DONE : no_memory(p);

    writer = owner ? owner + info->chunks : NULL;
    for (size_t i = 0; !code && !rc && i < info->chunks; i++) {
        rsd_chunk chunk = { .size = sizeof(chunk) };
        size_t    number = 0;

        rc = rsd_ckpt_chunk(p->ckpt, t, i, &chunk, &err);
        if (rc)
            break;
        if (!holders_number(&p->held, chunk.file, &number))
            code = no_memory(p);
        box[i] = chunk.box;
        owner[i] = p->world + (int32_t)number;
        writer[i] = file_writer(chunk.file);
    }
    if (!rc && !code)
        rc = rsd_layout_create_boxes(info->dtype, info->ndim, info->shape, info->chunks, owner, box,
                                     &p->files[p->n], &err);
    if (!rc && !code && p->moves)
        rc = rsd_layout_create_boxes(info->dtype, info->ndim, info->shape, info->chunks, writer,
                                     box, &p->old[p->n], &err);
    free(box);
    free(owner);
    return rc ? fail(p->a, &err) : code;
}

static void free_group(planning *p)
{
    for (size_t i = 0; i < MOST_TENSORS; i++) {
        rsd_layout_free(p->files[i]);
        rsd_layout_free(p->old[i]);
        rsd_layout_free(p->want[i]);
        p->files[i] = p->old[i] = p->want[i] = NULL;
    }
    p->n = 0;
}

/* Takes tensors, starting with *next, until the group is full. */
static int make_group(planning *p, size_t *next)
{
    const size_t n = rsd_ckpt_tensors(p->ckpt);
    uint64_t     chunks = 0;
    int          code = EXIT_DONE;

    free_group(p);
    while (*next < n && p->n < MOST_TENSORS && chunks < MOST_CHUNKS && !code) {
        rsd_tensor_info info = { .size = sizeof(info) };
        rsd_error       err = { .msg = "" };

        if (rsd_ckpt_tensor(p->ckpt, *next, &info, &err))
            return fail(p->a, &err);
        code = wanted_layout(p, &info, &p->want[p->n]);
        if (!code)
            code = stored_layouts(p, *next, &info);
        chunks += info.chunks;
        p->n++;
        ++*next;
    }
    return code;
}

/* ---- the plans ---- */

/* Records a rank's peers: files, or ranks. */
typedef struct noting {
    planning *p;
    int32_t   rank;
} noting;

static rsd_err note(void *arg, const rsd_move *move)
{
    const noting   *k = arg;
    const planning *p = k->p;
    const size_t    across = (size_t)p->world + p->held.n;
    const int32_t   peer = move->from == k->rank ? move->to : move->from;
    const size_t    bit = (size_t)(k->rank - p->first) * across + (size_t)peer;

    if (peer != k->rank)
        p->seen[bit / 8] |= (unsigned char)(1u << bit % 8);
    return RSD_OK;
}

static int plan_group(planning *p, rsd_layout **from, int32_t rank, rsd_plan_stats *out)
{
    rsd_error err = { .msg = "" };
    noting    k = { .p = p, .rank = rank };
    rsd_plan *plan;

    if (rsd_plan_create(p->n, (const rsd_layout *const *)from, (const rsd_layout *const *)p->want,
                        rank, &plan, &err))
        return fail(p->a, &err);
    rsd_plan_stats_get(plan, out, NULL);
    rsd_plan_each(plan, note, &k, NULL);
    rsd_plan_free(plan);
    return EXIT_DONE;
}

static int add_group(planning *p, int32_t rank)
{
    share         *r = &p->ranks[rank];
    rsd_plan_stats s = { .size = sizeof(s) };
    int            code = plan_group(p, p->files, rank, &s);

    if (code)
        return code;
    r->reads += s.bytes_recv;
    r->pieces += s.moves;
    for (size_t i = 0; i < p->n; i++)
        r->needs += rsd_layout_bytes(p->want[i], rank);
    if (!p->moves)
        return EXIT_DONE;
    code = plan_group(p, p->old, rank, &s);
    r->keeps += s.bytes_local;
    r->sends += s.bytes_sent;
    r->receives += s.bytes_recv;
    return code;
}

static void count_seen(planning *p)
{
    const size_t across = (size_t)p->world + p->held.n;

    for (int32_t rank = p->first; rank < p->end; rank++)
        for (size_t k = 0; k < across; k++) {
            const size_t bit = (size_t)(rank - p->first) * across + k;

            if (p->seen[bit / 8] >> bit % 8 & 1)
                *(k < (size_t)p->world ? &p->ranks[rank].peers : &p->ranks[rank].files) += 1;
        }
}

/* Plans ranks first to end, over all tensors. */
static int plan_ranks(planning *p)
{
    const size_t n = rsd_ckpt_tensors(p->ckpt), across = (size_t)p->world + p->held.n;
    int          code = EXIT_DONE;

    p->seen = calloc((size_t)(p->end - p->first) * across / 8 + 1, 1);
    if (!p->seen)
        return no_memory(p);
    for (size_t next = 0; next < n && !code;) {
        code = make_group(p, &next);
        for (int32_t rank = p->first; rank < p->end && !code; rank++)
            code = add_group(p, rank);
    }
    free_group(p);
    if (!code)
        count_seen(p);
    free(p->seen);
    return code;
}

static int plan_all(planning *p)
{
    int code = count_all(p);

    if (code)
        return code;
    for (int32_t rank = 0; rank < p->world && !code; rank = p->end) {
        const int64_t most = (int64_t)MOST_SEEN * 8 / (p->world + (int64_t)p->held.n + 1) + 1;

        p->first = rank;
        p->end = p->world - rank < most ? p->world : rank + (int32_t)most;
        code = plan_ranks(p);
    }
    return code;
}

/* ---- printing ---- */

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

static void print_ranks(planning *p, share *total)
{
    for (int32_t rank = 0; rank < p->world; rank++) {
        const share *s = &p->ranks[rank];
        char         who[16];

        snprintf(who, sizeof(who), "%" PRId32, rank);
        print_share(p, who, rank, s, p->moves);
        total->needs += s->needs;
        total->reads += s->reads;
        total->pieces += s->pieces;
        total->keeps += s->keeps;
        total->sends += s->sends;
        total->receives += s->receives;
    }
    total->files = (int32_t)p->held.n;
}

static int print_plan(planning *p)
{
    static const char *const with[] = { ">rank",  ">needs", ">reads",    "?>pieces", "?>files",
                                        ">keeps", ">sends", ">receives", NULL };
    static const char *const without[] = {
        ">rank", ">needs", ">reads", "?>pieces", "?>files", NULL
    };
    const bool moves = p->moves;
    share      total = { 0 };

    if (p->json) {
        json_open_object(&p->out, NULL);
        json_text(&p->out, "path", p->a->operand[0]);
        json_uint(&p->out, "tensors", rsd_ckpt_tensors(p->ckpt));
        json_open_array(&p->out, "ranks");
    } else {
        columns_begin(&p->table, moves ? with : without);
    }
    print_ranks(p, &total);
    if (p->json)
        json_close(&p->out);
    print_share(p, "all", -1, &total, moves);
    if (p->json) {
        json_close(&p->out);
        return EXIT_DONE;
    }
    if (!columns_print(&p->table, stdout))
        return no_memory(p);
    printf("\n");
    print_wrapped(stdout, "needs: memory of the rank; reads: bytes from files, in so many pieces");
    if (moves)
        print_wrapped(stdout,
                      "keeps, sends, receives: if the ranks that wrote the files still held them");
    return EXIT_DONE;
}

/* ---- as a page ---- */

static void page_ranks(planning *p, page *to)
{
    const bool moves = p->moves;

    for (int32_t rank = 0; rank < p->world; rank++) {
        const share *s = &p->ranks[rank];

        page_rank(to, (const int64_t[]){ s->needs, s->reads, moves ? s->keeps : -1,
                                         moves ? s->sends : -1, moves ? s->receives : -1 });
    }
}

static int page_wanted(planning *p, page *to, size_t t)
{
    rsd_layout     *want = NULL;
    rsd_tensor_info info = { .size = sizeof(info) };
    rsd_error       err = { .msg = "" };
    int             code;

    if (rsd_ckpt_tensor(p->ckpt, t, &info, &err))
        return fail(p->a, &err);
    code = wanted_layout(p, &info, &want);
    if (!code)
        code = page_tensor(to, p->ckpt, t, want);
    rsd_layout_free(want);
    return code;
}

static int write_page(planning *p)
{
    size_t     cap = rsd_rules_text(p->rules, NULL, 0) + 1;
    char      *rules = malloc(cap);
    page_about about = { p->a->operand[0], rules, rsd_ckpt_format(p->ckpt), NULL };
    page      *to = NULL;
    int        code;

    if (!rules)
        return no_memory(p);
    rsd_rules_text(p->rules, rules, cap);
    code = page_begin(p->a, args_text(p->a, "html", "-"), &about, &to);
    for (size_t t = 0; !code && t < rsd_ckpt_tensors(p->ckpt); t++)
        code = page_wanted(p, to, t);
    if (!code)
        code = page_objects(to, p->ckpt, rsd_ckpt_objects(p->ckpt), NULL);
    if (!code)
        page_ranks(p, to);
    free(rules);
    return page_end(to, code);
}

/* ---- the command ---- */

static int run(const args *a)
{
    planning   *p = NULL;
    const char *spec = args_text(a, "layout", NULL);
    int         code;

    if (!spec)
        return misuse(a, "plan needs --layout SPEC");
    if (args_has(a, "json") && args_has(a, "html"))
        return misuse(a, "--json and --html can't be combined");
    if (args_has(a, "simulate"))
        return args_has(a, "html") ? misuse(a, "--simulate and --html can't be combined")
                                   : simulate(a);
    if (args_has(a, "from"))
        return misuse(a, "--from needs --simulate");
    if (!args_has(a, "recipe") &&
        (args_has(a, "set") || args_has(a, "config") || args_has(a, "reverse")))
        return misuse(a, "--set, --config and --reverse need --recipe");
    p = calloc(1, sizeof(*p));
    if (!p)
        return refuse(a, EXIT_COULD_NOT, "no memory for the plan");
    p->a = a;
    p->json = args_has(a, "json");
    p->out.out = stdout;
    code = source_rules(a, spec, &p->rules);
    if (!code)
        code = source_open(a, a->operand[0], &p->ckpt);
    if (!code && args_has(a, "recipe")) {
        code = plan_recipe(a, p->rules, p->ckpt);
    } else {
        if (!code)
            code = plan_all(p);
        if (!code)
            code = args_has(a, "html") ? write_page(p) : print_plan(p);
    }
    free_group(p);
    free(p->ranks);
    free(p->held.file);
    rsd_ckpt_close(p->ckpt);
    rsd_rules_free(p->rules);
    free(p);
    return code;
}

static const option_spec options[] = {
    { "layout", 'l', OPT_PATH, "SPEC", "the target layout: rules, or a file with rules" },
    { "recipe", 0, OPT_PATH, "RECIPE", "plan the tensors that a recipe makes from CKPT's" },
    OPTIONS_RECIPE,
    { "from", 0, OPT_PATH, "SPEC",
      "with --simulate: the layout that is saved; default: the target's" },
    { "simulate", 0, OPT_TEXT, "WHAT",
      "estimate a save, a load and a live reshard on many ranks: ranks=N,hosts=N,store=SIZE,"
      "link=SIZE,memory=SIZE" },
    OPTION_JSON,
    { "html", 0, OPT_PATH, "FILE", "write an HTML page: tiles before and after, and moves" },
    { 0 },
};

const command cmd_plan = {
    .name = "plan",
    .line = "show what each rank would read, move and need when resharding",
    .operands = "CKPT",
    .min = 1,
    .max = 1,
    .options = options,
    .text =
        "Shows for each rank of another layout how much memory its part takes, how many bytes, "
        "pieces and files it would read, and, if the checkpoint records which rank wrote which "
        "file, how many bytes it would keep, send and receive if the old ranks still held "
        "them. Reads only metadata and writes nothing.\n"
        "\n"
        "SPEC is a mesh and rules, each ended by `;` or a line break; the first rule that "
        "matches a name wins:\n"
        "\n"
        "  mesh dp=2 tp=4; *.wq.weight shard(0)@tp; *norm* replicate; * shard(0)@dp\n"
        "\n"
        "--html writes one page that works offline: each tensor's tiles before and after "
        "with the moves between them, and the bytes of each rank. FILE `-` is stdout.\n"
        "\n"
        "--recipe plans the tensors that a recipe makes from CKPT's: which ones each is made from, "
        "and what every rank would read of them. With --html the page shows both for each "
        "tensor; tensors that are copied unchanged also get the tiles before and the moves.\n"
        "\n"
        "--simulate needs no ranks: it counts what a save in the layout --from, a load and a "
        "live reshard to --layout would move, from shapes alone, and estimates the time. CKPT "
        "may then also be a text file NAME.shapes, with lines NAME DTYPE DIM DIM ...; "
        "{0..60} in a name stands for each of these numbers. WHAT describes the machine: "
        "hosts (default: one for 8 ranks), and bytes a second of the store (10GB), of each "
        "host's link (12.5GB) and of each rank's copies (2GB; `reshard bench` measures them).",
    .examples = "# from any saved layout to 8 ranks\n"
                "reshard plan step-1000 --layout 'mesh tp=8; *norm* replicate; * shard(0)@tp'\n"
                "# the same as a page\n"
                "reshard plan step-1000 --layout 'mesh tp=8; * shard(0)@tp' --html plan.html\n"
                "# what a model would cost on ranks that you don't have\n"
                "reshard plan model.shapes --from 'mesh dp=128 tp=8; * shard(0)@dp shard(1)@tp' "
                "--layout 'mesh tp=64; * shard(0)@tp' --simulate hosts=128,store=100GB\n",
    .run = run,
};
