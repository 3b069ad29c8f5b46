/* SPDX-License-Identifier: Apache-2.0 */
/* What a load costs the machines that the ranks run on, and the network between them:
 *
 *     mpi_hosts FOLDER HOSTS
 *
 * The ranks save to FOLDER and every rank loads everything. tests/hosts/run starts it where each
 * machine has a network device of its own, eth0, whose counters are looked at too. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "ckpt_fixture.h"
#include "comm/comm.h"
#include "launched.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TENSORS = 40, ROWS = 48, COLS = 1024, MOST = 16, GROUPS = 64 };
#define TENSOR_BYTES ((uint64_t)ROWS * COLS * 4)
#define DATA_BYTES   (TENSORS * TENSOR_BYTES)

/* Of one load, on one rank. */
typedef struct cost {
    uint64_t read;                        /* bytes from the store */
    uint64_t messages[MOST], bytes[MOST]; /* sent to each other machine, named by its first rank */
    uint64_t came, left;                  /* bytes of the network device */
} cost;

typedef struct place {
    char name[64];
} place;

/* Messages to the machine of rank 0 from each other one, with these bytes; and to each other one,
 * of which this is not metadata, at most. */
enum { TO_FIRST = 5, TO_FIRST_BYTES = 56, FROM_FIRST = 7, LOG_BYTES = 2048 };

static int32_t       world; /* ranks */
static const int64_t shape[] = { ROWS, COLS };

/* ---- messages between machines ---- */

static struct {
    rsd_comm_ops ops;        /* as they were */
    int32_t      host[MOST]; /* of each rank: the first rank there */
    int32_t      me;
    size_t       ngroups;
    struct {
        void   *self;
        int32_t rank[MOST]; /* in the first comm */
    } group[GROUPS];
    atomic_ullong messages[MOST], bytes[MOST]; /* to each machine */
} net;

static const int32_t *ranks_of(void *self)
{
    for (size_t i = net.ngroups; i-- > 0;)
        if (net.group[i].self == self)
            return net.group[i].rank;
    abort();
}

static rsd_err counted_send(void *self, int32_t to, int32_t tag, const void *data, size_t bytes,
                            void **request, rsd_error *err)
{
    int32_t host = net.host[ranks_of(self)[to]];

    if (host != net.host[net.me] && tag != RSI_TAG_SIGN) { /* heartbeats depend on time */
        atomic_fetch_add(&net.messages[host], 1);
        atomic_fetch_add(&net.bytes[host], bytes);
    }
    return net.ops.send(self, to, tag, data, bytes, request, err);
}

static rsd_err noted_split(void *self, int32_t n, const int32_t *ranks, void **out, rsd_error *err)
{
    const int32_t *all = ranks_of(self);
    rsd_err        rc = net.ops.split(self, n, ranks, out, err);

    if (rc || !*out)
        return rc;
    if (net.ngroups == GROUPS)
        abort();
    net.group[net.ngroups].self = *out;
    for (int32_t i = 0; i < n; i++)
        net.group[net.ngroups].rank[i] = all[ranks[i]];
    net.ngroups++;
    return RSD_OK;
}

/* [collective] The names of machines are as different as the machines here. *hosts: how many. */
static rsd_err count_messages(rsd_comm *comm, int *hosts, rsd_error *err)
{
    place   mine = { { 0 } }, all[MOST];
    rsd_err rc;

    gethostname(mine.name, sizeof(mine.name) - 1);
    rc = rsi_allgather(comm, &mine, sizeof(mine), all, err);
    *hosts = 0;
    for (int32_t r = 0; r < comm->size && !rc; r++) {
        for (net.host[r] = 0; strcmp(all[net.host[r]].name, all[r].name) != 0;)
            net.host[r]++;
        *hosts += net.host[r] == r;
        net.group[0].rank[r] = r;
    }
    net.group[0].self = comm->self;
    net.ngroups = 1;
    net.me = comm->rank;
    net.ops = comm->ops;
    comm->ops.send = counted_send;
    comm->ops.split = noted_split;
    return rc;
}

/* Bytes that eth0 of this machine has received and sent. */
static rsd_err look_at_device(uint64_t *came, uint64_t *left, rsd_error *err)
{
    FILE              *file = fopen("/proc/net/dev", "r");
    char               line[512];
    unsigned long long in, out;
    bool               found = false;

    while (file && !found && fgets(line, sizeof(line), file))
        found = sscanf(line, " eth0: %llu %*u %*u %*u %*u %*u %*u %*u %llu", &in, &out) == 2;
    if (file)
        fclose(file);
    if (!found)
        return rsi_fail(err, RSD_E_NOTFOUND, "this machine has no network device eth0");
    *came = in;
    *left = out;
    return RSD_OK;
}

/* ---- the job ---- */

/* The first n tensors, which every rank holds whole; int32 that are their own index. */
static rsd_err make_state(int32_t rank, int n, int32_t *data, rsd_state **out, rsd_error *err)
{
    char       rules[64];
    rsd_rules *made = NULL;
    rsd_err    rc = rsd_state_create(out, err);

    snprintf(rules, sizeof(rules), "mesh n=%d; * replicate", (int)world);
    if (!rc)
        rc = rsd_rules_parse(rules, &made, err);
    for (int i = 0; i < n && !rc; i++) {
        char name[16];

        snprintf(name, sizeof(name), "t%d", i);
        rc = rsd_state_add(*out, name, made, rank, RSD_I32, 2, shape,
                           data + (size_t)i * ROWS * COLS, err);
    }
    rsd_rules_free(made);
    return rc;
}

static rsd_err save(rsd_comm *comm, rsd_store *store, int32_t *data, rsd_error *err)
{
    rsd_save_opts opts = {
        .size = sizeof(opts), .store = store, .threads = 1, .checksum = RSD_NEVER
    };
    rsd_state *state = NULL;
    rsd_err    rc;

    for (size_t i = 0; i < (size_t)TENSORS * ROWS * COLS; i++)
        data[i] = (int32_t)(i % ((size_t)ROWS * COLS));
    rc = make_state(comm->rank, TENSORS, data, &state, err);
    if (!rc)
        rc = rsd_save("ck", comm, state, &opts, err);
    rsd_state_free(state);
    return rc;
}

/* Loads the first n tensors; *bytes: read from the store by this rank. */
static rsd_err load(rsd_comm *comm, int32_t rank, rsd_store *store, int n, int32_t *data,
                    uint64_t *bytes, rsd_error *err)
{
    fix_counts    counts = { 0 };
    rsd_store    *counting = fix_counting_store(store, &counts);
    rsd_load_opts opts = { .size = sizeof(opts), .store = counting, .threads = 1 };
    rsd_state    *state = NULL;
    rsd_err       rc = make_state(rank, n, data, &state, err);

    memset(data, 0xee, (size_t)n * TENSOR_BYTES);
    if (!rc)
        rc = rsd_load("ck", comm, state, &opts, err);
    *bytes = counts.bytes;
    for (size_t i = 0; i < (size_t)n * ROWS * COLS && !rc; i++)
        if (data[i] != (int32_t)(i % ((size_t)ROWS * COLS)))
            rc = rsi_fail(err, RSD_E_BUG, "element %zu is wrong", i);
    rsd_state_free(state);
    rsd_store_close(counting);
    return rc;
}

/* [collective] All ranks look at the device before the first goes on, and after the last is done.
 */
static rsd_err load_together(rsd_comm *comm, rsd_store *store, int n, int32_t *data, cost *spent,
                             rsd_error *err)
{
    uint64_t came = 0, left = 0;
    rsd_err  rc = rsi_agree(comm, look_at_device(&came, &left, err), err);

    *spent = (cost){ 0 };
    for (int h = 0; h < MOST; h++)
        net.messages[h] = net.bytes[h] = 0;
    if (!rc)
        rc = load(comm, comm->rank, store, n, data, &spent->read, err);
    for (int h = 0; h < MOST; h++) {
        spent->messages[h] = net.messages[h];
        spent->bytes[h] = net.bytes[h];
    }
    rc = rsi_agree(comm, rc, err);
    if (!rc)
        rc = look_at_device(&spent->came, &spent->left, err);
    spent->came -= came;
    spent->left -= left;
    return rc;
}

/* ---- what it must come to ---- */

/* The ranks of a machine together; [0] is what they were sent. */
static cost sum_for(const rsd_comm *comm, const cost *of, int32_t host)
{
    cost sum = { .came = of[host].came, .left = of[host].left };

    for (int32_t r = 0; r < comm->size; r++) {
        sum.read += net.host[r] == host ? of[r].read : 0;
        sum.messages[0] += of[r].messages[host];
        sum.bytes[0] += of[r].bytes[host];
    }
    return sum;
}

/* `one` and `all` are the loads of one and of all tensors, `alone` is what one rank without others
 * reads. Rank 0 reads the metadata and sends them to each other machine once, with a few words that
 * are answered; that is all that crosses the network, however much is loaded. */
static rsd_err check(const rsd_comm *comm, int hosts, const cost *one, const cost *all,
                     uint64_t meta, uint64_t alone, rsd_error *err)
{
    for (int32_t h = 0; h < comm->size; h++) {
        const cost     few = sum_for(comm, one, h), sum = sum_for(comm, all, h);
        const uint64_t others = (uint64_t)hosts - 1;

        if (net.host[h] != h)
            continue;
        if (comm->rank == 0)
            printf("machine of rank %d: %llu bytes read; %llu messages, %llu bytes from others; "
                   "eth0 %llu in, %llu out\n",
                   (int)h, (unsigned long long)sum.read, (unsigned long long)sum.messages[0],
                   (unsigned long long)sum.bytes[0], (unsigned long long)sum.came,
                   (unsigned long long)sum.left);
        FIX_CHECK(sum.read == (h == 0 ? alone : alone - meta));
        FIX_CHECK(sum.messages[0] == (h == 0 ? TO_FIRST * others : FROM_FIRST));
        FIX_CHECK(h > 0 || sum.bytes[0] == TO_FIRST_BYTES * others);
        FIX_CHECK(h == 0 || (sum.bytes[0] >= meta && sum.bytes[0] <= meta + LOG_BYTES));
        FIX_CHECK(few.messages[0] == sum.messages[0] && few.bytes[0] == sum.bytes[0]);
        FIX_CHECK(sum.came >= sum.bytes[0] && sum.came < DATA_BYTES / 64);
        FIX_CHECK(sum.left > 0 && sum.left < DATA_BYTES / 64);
    }
    return RSD_OK;
}

static rsd_err load_and_check(rsd_comm *comm, rsd_store *store, int hosts, int32_t *data,
                              rsd_error *err)
{
    cost     mine[2], of[2][MOST];
    uint64_t alone;
    size_t   meta;
    rsd_err  rc = load(NULL, comm->rank, store, TENSORS, data, &alone, err);

    free(fix_get(store, "ck/.metadata", &meta));
    rc = rsi_agree(comm, rc, err);
    /* The first finds out who shares a machine. */
    for (int i = -1; i < 2 && !rc; i++)
        rc = load_together(comm, store, i == 0 ? 1 : TENSORS, data, &mine[i > 0], err);
    for (int i = 0; i < 2 && !rc; i++)
        rc = rsi_allgather(comm, &mine[i], sizeof(cost), of[i], err);
    FIX_CHECK(rc || (alone >= DATA_BYTES + meta && alone < DATA_BYTES + DATA_BYTES / 64));
    return rc ? rc : check(comm, hosts, of[0], of[1], meta, alone, err);
}

static rsd_err run(rsd_comm *comm, const char *folder, int hosts, rsd_error *err)
{
    int32_t   *data = malloc(DATA_BYTES);
    rsd_store *store = NULL;
    int        found = 0;
    rsd_err    rc = rsd_store_open(folder, &store, err);

    if (!rc)
        rc = save(comm, store, data, err);
    if (!rc)
        rc = count_messages(comm, &found, err);
    if (!rc && found != hosts)
        rc = rsi_fail(err, RSD_E_INVALID, "the ranks run on %d machines, not %d", found, hosts);
    if (!rc)
        rc = load_and_check(comm, store, hosts, data, err);
    rsd_store_close(store);
    free(data);
    return rc;
}

int main(int argc, char **argv)
{
    rsd_error err = { .rank = -1 };
    rsd_comm *comm = launched_comm("mpi_hosts");
    rsd_err   rc;

    if (!comm || argc != 3 || rsd_comm_size(comm) > MOST)
        return 2;
    world = rsd_comm_size(comm);
    rc = run(comm, argv[1], atoi(argv[2]), &err);
    return launched_end(comm, "hosts", rc, &err, rc ? 0 : 1);
}
