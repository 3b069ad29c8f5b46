/* SPDX-License-Identifier: Apache-2.0 */
/* What plan --simulate found, as a table or JSON. A time is the largest of what the store, the
 * busiest host's link and the busiest rank's memory need, plus what only one rank does. */
#include "simulate.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* Measured by `make bench CASES='scale.*'`; docs/scale.md has the table. */
#define CHUNKS_A_SECOND 1.2e6              /* metadata written */
#define CHUNK_BYTES     113                /* of .metadata */
#define BLOCK           ((int64_t)4 << 20) /* of a write or read */
#define BUFFERS         ((int64_t)64 << 20)

/* One of save, load and live. -1: there is no such thing. */
typedef struct cost {
    const char *name;
    int64_t     total, host, rank; /* bytes; of the busiest */
    int64_t     files, requests, messages, memory;
    double      of_store, of_link, of_rank, alone;
} cost;

static int64_t largest(const int64_t *of, int32_t n)
{
    int64_t most = 0;

    for (int32_t i = 0; i < n; i++)
        most = larger(most, of[i]);
    return most;
}

/* The ranks agree and vote along binary trees. */
static int64_t rounds(const simulation *s)
{
    return (int64_t)ceil(log2((double)s->ranks + 1));
}

static void set_times(const simulation *s, cost *c)
{
    c->of_store = c->files >= 0 ? (double)c->total / s->store : 0;
    c->of_link = (double)c->host / s->link;
    c->of_rank = (double)c->rank / s->memory;
}

static cost cost_of_save(const simulation *s)
{
    cost c = { .name = "save", .total = s->bytes, .files = 1, .messages = 4 * rounds(s) };

    for (int32_t h = 0; h < s->hosts; h++) {
        int64_t sum = 0;

        for (int32_t r = h * s->per_host; r < (h + 1) * s->per_host && r < s->ranks; r++)
            sum += s->writes[r];
        c.host = larger(c.host, sum);
    }
    c.rank = largest(s->writes, s->ranks);
    c.requests = (c.rank + BLOCK - 1) / BLOCK;
    c.memory = BUFFERS;
    c.alone = (double)s->chunks / CHUNKS_A_SECOND;
    set_times(s, &c);
    return c;
}

static cost cost_of_load(const simulation *s)
{
    cost c = { .name = "load", .files = s->sources, .messages = 4 * rounds(s) };

    for (int32_t h = 0; h < s->hosts; h++)
        c.total += s->host_reads[h];
    c.host = largest(s->host_reads, s->hosts);
    c.rank = largest(s->needs, s->ranks);
    c.requests = larger(s->pieces, (c.rank + BLOCK - 1) / BLOCK);
    c.memory = c.rank + BUFFERS;
    c.alone = (double)s->chunks / CHUNKS_A_SECOND;
    set_times(s, &c);
    return c;
}

static cost cost_of_live(const simulation *s)
{
    cost    c = { .name = "live", .files = -1, .requests = -1, .messages = s->messages };
    int64_t n = s->looked_at > 0 ? s->looked_at : 1;

    c.total = (int64_t)((double)s->live_received / (double)n * s->ranks);
    c.host = s->live_crossed * s->per_host;
    c.rank = s->live_busiest;
    c.memory = largest(s->needs, s->ranks) + s->plan_bytes + ((int64_t)16 << 20);
    set_times(s, &c);
    return c;
}

static double seconds(const cost *c)
{
    return fmax(c->of_store, fmax(c->of_link, c->of_rank)) + c->alone;
}

static const char *limit(const cost *c)
{
    const double most = fmax(fmax(c->of_store, c->alone), fmax(c->of_link, c->of_rank));

    return most == 0             ? "nothing"
           : most == c->of_store ? "the store"
           : most == c->of_link  ? "a host's link"
           : most == c->of_rank  ? "a rank's copies"
                                 : "the metadata";
}

/* ---- printing ---- */

static void print_json(const simulation *s, const cost *of, int n)
{
    json_out j = { .out = stdout };

    json_open_object(&j, NULL);
    json_text(&j, "path", s->a->operand[0]);
    json_int(&j, "tensors", s->tensors);
    json_int(&j, "bytes", s->bytes);
    json_int(&j, "ranks", s->ranks);
    json_int(&j, "hosts", s->hosts);
    json_int(&j, "chunks", s->chunks);
    json_int(&j, "metadata", s->chunks * CHUNK_BYTES);
    json_int(&j, "planned", s->looked_at);
    for (int i = 0; i < n; i++) {
        json_open_object(&j, of[i].name);
        json_int(&j, "bytes", of[i].total);
        json_int(&j, "host", of[i].host);
        json_int(&j, "rank", of[i].rank);
        if (of[i].files >= 0) {
            json_int(&j, "files", of[i].files);
            json_int(&j, "requests", of[i].requests);
        }
        json_int(&j, "messages", of[i].messages);
        json_int(&j, "memory", of[i].memory);
        json_real(&j, "seconds", seconds(&of[i]));
        json_text(&j, "limit", limit(&of[i]));
        json_close(&j);
    }
    json_close(&j);
}

static void add_sizes(columns *c, const char *what, const cost *of, int n, size_t at)
{
    char text[32];

    columns_add(c, what);
    for (int i = 0; i < n; i++) {
        int64_t value;

        memcpy(&value, (const char *)&of[i] + at, sizeof(value));
        columns_add(c, size_text((uint64_t)value, text, sizeof(text)));
    }
}

static void add_counts(columns *c, const char *what, const cost *of, int n, size_t at)
{
    columns_add(c, what);
    for (int i = 0; i < n; i++) {
        int64_t value;

        memcpy(&value, (const char *)&of[i] + at, sizeof(value));
        if (value < 0)
            columns_add(c, "-");
        else
            columns_addf(c, "%" PRId64, value);
    }
}

static void add_times(columns *c, const char *what, const cost *of, int n, size_t at)
{
    columns_add(c, what);
    for (int i = 0; i < n; i++) {
        double value;

        memcpy(&value, (const char *)&of[i] + at, sizeof(value));
        columns_addf(c, "%.3g s", value);
    }
}

static void print_machine(const simulation *s)
{
    char bytes[32], meta[32];

    printf("%" PRId64 " tensor%s, %s; %" PRId64 " chunk%s, %s of metadata\n", s->tensors,
           plural((uint64_t)s->tensors), size_text((uint64_t)s->bytes, bytes, sizeof(bytes)),
           s->chunks, plural((uint64_t)s->chunks),
           size_text((uint64_t)s->chunks * CHUNK_BYTES, meta, sizeof(meta)));
    printf("%" PRId32 " rank%s on %" PRId32 " host%s; GB/s: store %.4g, link of a host %.4g, "
           "copies of a rank %.4g\n\n",
           s->ranks, plural((uint64_t)s->ranks), s->hosts, plural((uint64_t)s->hosts),
           s->store / 1e9, s->link / 1e9, s->memory / 1e9);
}

int simulate_print(simulation *s)
{
    static const char *const title[] = { "", ">save", ">load", ">live", NULL };
    const cost               of[] = { cost_of_save(s), cost_of_load(s), cost_of_live(s) };
    columns                  c = { 0 };

    if (args_has(s->a, "json"))
        return print_json(s, of, 3), EXIT_DONE;
    print_machine(s);
    columns_begin(&c, title);
    add_sizes(&c, "bytes in all", of, 3, offsetof(cost, total));
    add_sizes(&c, "busiest host", of, 3, offsetof(cost, host));
    add_sizes(&c, "busiest rank", of, 3, offsetof(cost, rank));
    add_counts(&c, "  files", of, 3, offsetof(cost, files));
    add_counts(&c, "  requests", of, 3, offsetof(cost, requests));
    add_counts(&c, "  messages", of, 3, offsetof(cost, messages));
    add_sizes(&c, "  memory", of, 3, offsetof(cost, memory));
    add_times(&c, "time of the store", of, 3, offsetof(cost, of_store));
    add_times(&c, "  of a host's link", of, 3, offsetof(cost, of_link));
    add_times(&c, "  of a rank's copies", of, 3, offsetof(cost, of_rank));
    add_times(&c, "  of the metadata", of, 3, offsetof(cost, alone));
    columns_add(&c, "in all");
    for (int i = 0; i < 3; i++)
        columns_addf(&c, "%.3g s", seconds(&of[i]));
    if (!columns_print(&c, stdout))
        return refuse(s->a, EXIT_COULD_NOT, "no memory for the table");
    printf("\nlimited by: %s; %s; %s\n", limit(&of[0]), limit(&of[1]), limit(&of[2]));
    if (s->looked_at < s->ranks)
        printf("files and requests of loads, live: the most of %" PRId32
               " ranks that were planned\n",
               s->looked_at);
    return EXIT_DONE;
}
