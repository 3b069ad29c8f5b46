/* SPDX-License-Identifier: Apache-2.0 */
/* plan --simulate: what saving in one layout and loading in another would cost on many ranks, from
 * shapes alone. Tensors of one shape and layout form a class, whose boxes are looked at once for
 * every rank; live plans are made for some ranks only. Next: simulate_print.c. */
#include "simulate.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LINE = 4096, SPLIT_BYTES = 1 << 20, LOOKED_AT = 16, MOST_PLANNED = 1 << 20 };

/* ---- the shapes: of a checkpoint, or of a text ---- */

static int no_memory(const simulation *s)
{
    return refuse(s->a, EXIT_COULD_NOT, "no memory for the simulation");
}

static int layout_of(const simulation *s, const rsd_rules *rules, const rsd_tensor_info *info,
                     rsd_layout **out)
{
    rsd_error err = { .msg = "" };
    rsd_err   rc =
        rsd_rules_layout(rules, info->name, info->dtype, info->ndim, info->shape, out, &err);

    if (rc == RSD_E_NOTFOUND || rc == RSD_E_INVALID || rc == RSD_E_MISMATCH)
        return refuse(s->a, EXIT_MISUSE, "%s", err.msg);
    return rc ? fail(s->a, &err) : EXIT_DONE;
}

/* Adds a tensor to its class. */
static int add_tensor(simulation *s, const rsd_tensor_info *info)
{
    tensor_class now = { .n = 1 };
    int          code = layout_of(s, s->from_rules, info, &now.from);

    if (!code)
        code = layout_of(s, s->to_rules, info, &now.to);
    s->tensors += !code;
    for (size_t i = 0; i < s->nclasses && !code; i++)
        if (rsd_layout_equal(s->class[i].from, now.from) &&
            rsd_layout_equal(s->class[i].to, now.to)) {
            s->class[i].n++;
            goto drop;
        }
    if (!code && s->nclasses == MOST_CLASSES)
        code =
            refuse(s->a, EXIT_COULD_NOT, "more than %d kinds of shapes and layouts", MOST_CLASSES);
    if (!code) {
        now.bytes = (int64_t)rsd_dtype_size(info->dtype);
        for (int d = 0; d < info->ndim; d++)
            now.bytes *= info->shape[d];
        s->class[s->nclasses++] = now;
        return EXIT_DONE;
    }
drop:
    rsd_layout_free(now.from);
    rsd_layout_free(now.to);
    return code;
}

/* "{0..60}" in a name stands for each of these numbers. */
static int add_named(simulation *s, rsd_tensor_info *info, const char *name, int line)
{
    const char *open = strstr(name, "{");
    int64_t     first, last;
    int         used = 0, code = EXIT_DONE;
    char        one[MOST_LINE];

    if (!open) {
        info->name = name;
        return add_tensor(s, info);
    }
    if (sscanf(open, "{%" SCNd64 "..%" SCNd64 "}%n", &first, &last, &used) != 2 || used == 0 ||
        last - first > 1 << 20)
        return refuse(s->a, EXIT_MISUSE, "\"%s\", line %d: expected {FIRST..LAST} in a name",
                      s->a->operand[0], line);
    for (int64_t i = first; i <= last && !code; i++) {
        snprintf(one, sizeof(one), "%.*s%" PRId64 "%s", (int)(open - name), name, i, open + used);
        code = add_named(s, info, one, line);
    }
    return code;
}

/* "NAME DTYPE DIM DIM ..." */
static int add_line(simulation *s, char *text, int line)
{
    rsd_tensor_info info = { .size = sizeof(info) };
    const char     *name = strsep(&text, " \t"), *word = NULL;
    bool            good = true;

    while (text && (word = strsep(&text, " \t")) && !*word)
        ;
    good = word && rsd_dtype_parse(word, &info.dtype, NULL) == RSD_OK;
    while (good && text) {
        char *end;

        word = strsep(&text, " \t");
        if (!*word)
            continue;
        good = info.ndim < RSD_MAX_NDIM;
        if (good)
            info.shape[info.ndim++] = strtoll(word, &end, 10);
        good = good && *end == 0 && info.shape[info.ndim - 1] >= 0;
    }
    if (!good)
        return refuse(s->a, EXIT_MISUSE, "\"%s\", line %d: expected NAME DTYPE DIM DIM ...",
                      s->a->operand[0], line);
    return add_named(s, &info, name, line);
}

static int read_shapes(simulation *s, FILE *in)
{
    char text[MOST_LINE];
    int  code = EXIT_DONE;

    for (int line = 1; !code && fgets(text, sizeof(text), in); line++) {
        text[strcspn(text, "#\r\n")] = 0;
        if (text[strspn(text, " \t")])
            code = add_line(s, text + strspn(text, " \t"), line);
    }
    return code;
}

static int read_tensors(simulation *s, rsd_ckpt *ckpt)
{
    int code = EXIT_DONE;

    for (size_t t = 0; t < rsd_ckpt_tensors(ckpt) && !code; t++) {
        rsd_tensor_info info = { .size = sizeof(info) };
        rsd_error       err = { .msg = "" };

        code = rsd_ckpt_tensor(ckpt, t, &info, &err) ? fail(s->a, &err) : add_tensor(s, &info);
    }
    return code;
}

static int read_model(simulation *s)
{
    const char *path = s->a->operand[0], *end = strrchr(path, '.');
    rsd_ckpt   *ckpt = NULL;
    int         code;

    if (end && strcmp(end, ".shapes") == 0) {
        FILE *in = fopen(path, "re");

        if (!in)
            return refuse(s->a, EXIT_COULD_NOT, "could not open \"%s\": %s", path, strerror(errno));
        code = read_shapes(s, in);
        fclose(in);
        return code;
    }
    code = source_open(s->a, path, &ckpt);
    if (!code)
        code = read_tensors(s, ckpt);
    rsd_ckpt_close(ckpt);
    return code;
}

/* ---- who holds what ---- */

/* One rank's part of a tensor: ranks with equal keys hold the same. */
typedef struct part {
    uint64_t key;
    int64_t  bytes, boxes, rows; /* rows: of the first box, which bound how often it is split */
    int32_t  rank, host;
} part;

static uint64_t mixed(uint64_t key, uint64_t value)
{
    key = (key ^ value) * 0x9e3779b97f4a7c15u;
    return key ^ key >> 29;
}

static void look_at_part(const simulation *s, const rsd_layout *layout, int32_t rank, part *p)
{
    rsd_box box[64];
    int64_t n = (int64_t)rsd_layout_boxes(layout, rank, box, 64);

    *p = (part){
        .rank = rank, .host = rank / s->per_host, .boxes = n, .key = mixed(1, (uint64_t)n)
    };
    p->bytes = rsd_layout_bytes(layout, rank);
    for (int64_t i = 0; i < n && i < 64; i++)
        for (int d = 0; d < box[i].ndim; d++) {
            p->key = mixed(p->key, (uint64_t)box[i].off[d]);
            p->key = mixed(p->key, (uint64_t)box[i].len[d]);
        }
    p->rows = n > 0 && box[0].ndim > 0 ? box[0].len[0] : 1;
}

static int by_key(const void *a, const void *b)
{
    const part *x = a, *y = b;

    return (x->key > y->key) - (x->key < y->key);
}

static int by_host(const void *a, const void *b)
{
    const part *x = a, *y = b;

    return x->host != y->host ? x->host - y->host : by_key(a, b);
}

/* A save writes each part once; its holders divide it, in chunks of at least 1 MiB. */
static void count_writes(simulation *s, const tensor_class *c, part *all)
{
    qsort(all, (size_t)s->ranks, sizeof(*all), by_key);
    for (int32_t i = 0, end; i < s->ranks; i = end) {
        int64_t split;

        for (end = i; end < s->ranks && all[end].key == all[i].key; end++)
            ;
        if (all[i].bytes == 0)
            continue;
        split = all[i].bytes / all[i].boxes / SPLIT_BYTES + 1;
        split = split > end - i ? end - i : split;
        split = split > all[i].rows ? all[i].rows : split;
        s->chunks += c->n * all[i].boxes * split;
        for (int32_t k = i; k < end; k++)
            s->writes[all[k].rank] += c->n * all[i].bytes / (end - i);
    }
}

/* A load reads each part once a host. */
static void count_reads(simulation *s, const tensor_class *c, part *all)
{
    qsort(all, (size_t)s->ranks, sizeof(*all), by_host);
    for (int32_t i = 0; i < s->ranks; i++) {
        s->needs[all[i].rank] += c->n * all[i].bytes;
        if (i == 0 || by_host(&all[i], &all[i - 1]) != 0)
            s->host_reads[all[i].host] += c->n * all[i].bytes;
    }
}

static int count_parts(simulation *s)
{
    part *all = calloc((size_t)s->ranks, sizeof(*all));

    s->writes = calloc((size_t)s->ranks, sizeof(*s->writes));
    s->needs = calloc((size_t)s->ranks, sizeof(*s->needs));
    s->host_reads = calloc((size_t)s->hosts, sizeof(*s->host_reads));
    for (size_t i = 0; all && s->writes && s->needs && s->host_reads && i < s->nclasses; i++) {
        for (int32_t r = 0; r < s->ranks; r++)
            look_at_part(s, s->class[i].from, r, &all[r]);
        count_writes(s, &s->class[i], all);
        for (int32_t r = 0; r < s->ranks; r++)
            look_at_part(s, s->class[i].to, r, &all[r]);
        count_reads(s, &s->class[i], all);
        s->bytes += s->class[i].n * s->class[i].bytes;
    }
    free(all);
    return all && s->writes && s->needs && s->host_reads ? EXIT_DONE : no_memory(s);
}

/* ---- live plans of some ranks ---- */

/* What a rank gets. */
typedef struct getting {
    const simulation *s;
    int32_t           rank, last;               /* last: rank of the move before */
    rsd_layout      **from;                     /* [tensors] */
    int64_t           pieces, sources, crossed; /* crossed: bytes from other hosts */
} getting;

/* Moves come peer by peer. */
static rsd_err add_move(void *arg, const rsd_move *move)
{
    getting *g = arg;

    if (move->to != g->rank)
        return RSD_OK;
    g->pieces++;
    g->sources += move->from != g->last;
    g->last = move->from;
    if (move->from / g->s->per_host != g->rank / g->s->per_host)
        g->crossed += rsd_box_count(&move->box) *
                      (int64_t)rsd_dtype_size(rsd_layout_dtype(g->from[move->tensor]));
    return RSD_OK;
}

static int plan_rank(simulation *s, size_t n, rsd_layout **from, rsd_layout **to, int32_t rank)
{
    getting        g = { .s = s, .rank = rank, .last = -1, .from = from };
    rsd_plan_stats got = { .size = sizeof(got) };
    rsd_error      err = { .msg = "" };
    rsd_plan      *plan;

    if (rsd_plan_create(n, (const rsd_layout *const *)from, (const rsd_layout *const *)to, rank,
                        &plan, &err))
        return fail(s->a, &err);
    rsd_plan_stats_get(plan, &got, NULL);
    rsd_plan_each(plan, add_move, &g, NULL);
    rsd_plan_free(plan);
    s->looked_at++;
    s->live_received += got.bytes_recv;
    s->live_crossed = larger(s->live_crossed, g.crossed);
    s->pieces = larger(s->pieces, g.pieces);
    s->sources = larger(s->sources, g.sources);
    s->messages = larger(s->messages, got.messages);
    s->live_busiest = larger(s->live_busiest, got.bytes_sent + got.bytes_recv);
    s->plan_bytes = larger(s->plan_bytes, (int64_t)got.plan_bytes);
    return EXIT_DONE;
}

static int plan_some(simulation *s)
{
    size_t       n = 0;
    rsd_layout **from = calloc((size_t)s->tensors, sizeof(rsd_layout *));
    rsd_layout **to = calloc((size_t)s->tensors, sizeof(rsd_layout *));
    int          code = from && to ? EXIT_DONE : no_memory(s);

    for (size_t i = 0; i < s->nclasses && !code; i++)
        for (int64_t k = 0; k < s->class[i].n; k++, n++) {
            from[n] = s->class[i].from;
            to[n] = s->class[i].to;
        }
    /* An odd step, so that the ranks looked at have different places on every axis of a mesh. */
    for (int64_t i = 0; i < LOOKED_AT && i < s->ranks && !code; i++)
        code = plan_rank(
            s, n, from, to,
            (int32_t)(s->ranks <= LOOKED_AT ? i : i * (s->ranks / LOOKED_AT | 1) % s->ranks));
    free(from);
    free(to);
    return code;
}

/* ---- the machine ---- */

static bool set_number(const char *value, int32_t *out)
{
    char *end;
    long  n = strtol(value, &end, 10);

    *out = (int32_t)n;
    return *value && *end == 0 && n > 0 && n <= 1 << 24;
}

static bool set_rate(const char *value, double *out)
{
    uint64_t bytes;
    bool     good = size_parse(value, &bytes) && bytes > 0;

    *out = good ? (double)bytes : 0;
    return good;
}

static int parse_machine(simulation *s)
{
    char *text = strdup(args_text(s->a, "simulate", "")), *rest = text, *word;
    int   code = text ? EXIT_DONE : no_memory(s);

    while (!code && rest && (word = strsep(&rest, ","))) {
        char *value = strchr(word, '=');
        bool  good = value;

        if (good)
            *value++ = 0;
        if (good && strcmp(word, "ranks") == 0)
            good = set_number(value, &s->ranks);
        else if (good && strcmp(word, "hosts") == 0)
            good = set_number(value, &s->hosts);
        else if (good && strcmp(word, "store") == 0)
            good = set_rate(value, &s->store);
        else if (good && strcmp(word, "link") == 0)
            good = set_rate(value, &s->link);
        else if (good && strcmp(word, "memory") == 0)
            good = set_rate(value, &s->memory);
        else
            good = false;
        if (!good)
            code =
                misuse(s->a, "--simulate takes ranks=N,hosts=N,store=SIZE,link=SIZE,memory=SIZE, "
                             "the last three in bytes a second");
    }
    free(text);
    return code;
}

/* The number of ranks, and of those that share a host. */
static int count_ranks(simulation *s)
{
    int32_t world = 1;

    for (size_t i = 0; i < s->nclasses; i++) {
        int32_t from = rsd_layout_world(s->class[i].from), to = rsd_layout_world(s->class[i].to);

        world = (int32_t)larger(world, larger(from, to));
    }
    if (s->ranks == 0)
        s->ranks = world;
    if (s->ranks < world)
        return misuse(s->a, "the layouts have %" PRId32 " ranks, but --simulate has ranks=%" PRId32,
                      world, s->ranks);
    if (s->hosts == 0)
        s->hosts = (s->ranks + 7) / 8;
    if (s->hosts > s->ranks)
        return misuse(s->a, "--simulate has more hosts than ranks");
    s->per_host = (s->ranks + s->hosts - 1) / s->hosts;
    return EXIT_DONE;
}

int simulate(const args *a)
{
    simulation *s = calloc(1, sizeof(*s));
    const char *to = args_text(a, "layout", NULL);
    int         code;

    if (!s)
        return refuse(a, EXIT_COULD_NOT, "no memory for the simulation");
    *s = (simulation){ .a = a, .store = 10e9, .link = 12.5e9, .memory = 2e9 };
    code = parse_machine(s);
    if (!code)
        code = source_rules(a, to, &s->to_rules);
    if (!code)
        code = source_rules(a, args_text(a, "from", to), &s->from_rules);
    if (!code)
        code = read_model(s);
    if (!code && s->tensors == 0)
        code = refuse(a, EXIT_MISUSE, "\"%s\" has no tensors", a->operand[0]);
    if (!code && s->tensors > MOST_PLANNED)
        code = refuse(a, EXIT_COULD_NOT, "more than %d tensors", MOST_PLANNED);
    if (!code)
        code = count_ranks(s);
    if (!code)
        code = count_parts(s);
    if (!code)
        code = plan_some(s);
    if (!code)
        code = simulate_print(s);
    for (size_t i = 0; i < s->nclasses; i++) {
        rsd_layout_free(s->class[i].from);
        rsd_layout_free(s->class[i].to);
    }
    rsd_rules_free(s->from_rules);
    rsd_rules_free(s->to_rules);
    free(s->writes);
    free(s->needs);
    free(s->host_reads);
    free(s);
    return code;
}
