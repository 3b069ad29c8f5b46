/* SPDX-License-Identifier: Apache-2.0 */
/* How long it takes to open checkpoints with very many chunks or tensors, and what memory it takes.
 */
#include "bench.h"
#include "bench_data.h"
#include "base/mem.h"
#include "format/dcp_catalogue.h"

#include <reshard/reshard.h>

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    TENSORS = 1000,
    CHUNKS = 512,
    ROW = 64,
    ITEM = 4096
}; /* chunks of a tensor; rows and bytes of each */

/* A file that is written, and the hash of its bytes. */
typedef struct hashed_file {
    FILE               *out;
    rsi_hash128_stream *hash;
    rsi_meta_id         id;
} hashed_file;

static rsd_err put_file(void *arg, const void *bytes, size_t len, rsd_error *err)
{
    hashed_file *to = arg;

    (void)err;
    rsi_hash128_feed(to->hash, bytes, len);
    to->id.bytes += len;
    return fwrite(bytes, 1, len, to->out) == len ? RSD_OK : RSD_E_IO;
}

static bool put_metadata(const char *path, const rsi_dcp_meta *meta, rsi_meta_id *id)
{
    char        name[PATH_MAX + 32];
    hashed_file to = { .hash = rsi_hash128_create() };
    bool        ok;

    snprintf(name, sizeof(name), "%s/.metadata", path);
    to.out = fopen(name, "w");
    rsi_hash128_begin(to.hash);
    ok = to.out && rsi_dcp_meta_write(meta, put_file, &to, NULL) == RSD_OK;
    rsi_hash128_end(to.hash, to.id.hash);
    rsi_hash128_free(to.hash);
    *id = to.id;
    return to.out && fclose(to.out) == 0 && ok;
}

static bool put_catalogue(const char *path, const rsi_dcp_meta *meta, const rsi_meta_id *id)
{
    char      name[PATH_MAX + 32];
    rsi_bytes bytes = { 0 };
    FILE     *out;
    bool      ok;

    snprintf(name, sizeof(name), "%s/" RSI_CATALOGUE_NAME, path);
    out = fopen(name, "w");
    ok = out && rsi_catalogue_make(meta, id, &bytes) &&
         fwrite(bytes.at, 1, bytes.len, out) == bytes.len;
    rsi_free(bytes.at);
    return out && fclose(out) == 0 && ok;
}

/* `.metadata` of TENSORS tensors in CHUNKS row shards, and files that are as long as it says but
 * empty. */
static bool make_chunks(const char *path, bool catalogue)
{
    static const int64_t  shape[] = { (int64_t)CHUNKS * ROW, 16 };
    static const char    *file[CHUNKS];
    static rsi_dcp_tensor tensor[TENSORS];
    rsi_dcp_meta          meta = { .tensor = tensor,
                                   .ntensors = TENSORS,
                                   .nchunks = TENSORS * CHUNKS,
                                   .file = file,
                                   .nfiles = CHUNKS,
                                   .version = "1.0.0" };
    char                  name[PATH_MAX];
    rsi_meta_id           id;

    meta.row = calloc(meta.nchunks, sizeof(meta.row[0]));
    meta.box = calloc(meta.nchunks * 4, sizeof(meta.box[0]));
    if (!meta.row || !meta.box || mkdir(path, 0777) != 0)
        return false;
    for (size_t f = 0; f < CHUNKS; f++) {
        char *text = malloc(32);
        int   fd;

        snprintf(text, 32, "__%zu_0.distcp", f);
        file[f] = text;
        snprintf(name, sizeof(name), "%s/%s", path, text);
        fd = open(name, O_CREAT | O_WRONLY, 0666);
        if (fd < 0 || ftruncate(fd, (off_t)TENSORS * ITEM) != 0)
            return false;
        close(fd);
    }
    for (size_t t = 0; t < TENSORS; t++) {
        char *text = malloc(64);

        snprintf(text, 64, "model.layers.%zu.feed_forward.w1.weight", t);
        tensor[t] = (rsi_dcp_tensor){ .name = text,
                                      .shape = shape,
                                      .first = t * CHUNKS,
                                      .nchunks = CHUNKS,
                                      .box = t * CHUNKS * 4,
                                      .dtype = RSD_BF16,
                                      .ndim = 2 };
        for (size_t i = 0; i < CHUNKS; i++) {
            int64_t *box = meta.box + (t * CHUNKS + i) * 4;

            box[0] = (int64_t)i * ROW;
            box[2] = ROW;
            box[3] = shape[1];
            meta.row[t * CHUNKS + i] = (rsi_dcp_row){ .file = (uint32_t)i,
                                                      .transforms = RSI_DCP_NO_TRANSFORMS,
                                                      .offset = (int64_t)t * ITEM,
                                                      .length = ITEM };
        }
    }
    return put_metadata(path, &meta, &id) && (!catalogue || put_catalogue(path, &meta, &id));
}

static bool make_512k(const char *path)
{
    return make_chunks(path, false);
}

static bool make_512k_catalogue(const char *path)
{
    return make_chunks(path, true);
}

/* Opens and closes; the number of tensors is what the compiler must not leave out. */
typedef struct opening {
    char      path[PATH_MAX];
    char     *only; /* the tensor asked for; NULL: all */
    bool      read; /* its elements, too */
    size_t    tensors;
    rsd_error err;
} opening;

static void open_once(void *arg)
{
    opening  *o = arg;
    rsd_ckpt *ckpt;

    o->tensors = 0;
    if (rsd_ckpt_open(NULL, o->path, &ckpt, &o->err) != RSD_OK)
        return;
    o->tensors = rsd_ckpt_tensors(ckpt);
    rsd_ckpt_close(ckpt);
}

static bool measure_open(opening *o, size_t tensors, bench_result *out)
{
    const bench_work work[] = { open_once };
    void *const      arg[] = { o };
    double           seconds;

    bench_warm(o->path);
    bench_turns(1, work, arg, 5, &seconds, NULL);
    if (o->tensors != tensors) {
        snprintf(out->note, sizeof(out->note), "%.150s", o->err.msg);
        return false;
    }
    out->value = seconds;
    out->unit = "s";
    return true;
}

static bool dcp_512k(bench_result *out)
{
    static opening o;
    struct stat    st;
    char           meta[PATH_MAX + 16];

    bench_path("dcp.512k", o.path, sizeof(o.path));
    if (!bench_prepare(o.path, make_512k) || !measure_open(&o, TENSORS, out))
        return false;
    snprintf(meta, sizeof(meta), "%s/.metadata", o.path);
    if (stat(meta, &st) == 0)
        snprintf(out->note, sizeof(out->note), "%d chunks in %d tensors, .metadata of %.0f MB",
                 TENSORS * CHUNKS, TENSORS, (double)st.st_size / 1e6);
    return true;
}

/* A safetensors file of a million tensors of nothing: a header of 59 MB. */
static bool make_st_1m(const char *path)
{
    enum {
        N = 1000000,
        LINE = 59
    }; /* bytes for each tensor: t000000 to t999999 are equally long */
    FILE    *out = fopen(path, "w");
    uint64_t len = (uint64_t)N * LINE + 1; /* little-endian, as the machines this runs on */

    if (!out)
        return false;
    fwrite(&len, 8, 1, out);
    for (int i = 0; i < N; i++)
        fprintf(out, "%s\"t%06d\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}",
                i ? "," : "{", i);
    fputc('}', out);
    return fclose(out) == 0;
}

static bool st_1m(bench_result *out)
{
    static opening o;

    bench_path("million_empty.safetensors", o.path, sizeof(o.path));
    if (!bench_prepare(o.path, make_st_1m) || !measure_open(&o, 1000000, out))
        return false;
    snprintf(out->note, sizeof(out->note), "a header of 1,000,000 tensors");
    return true;
}

/* 1,000 tensors of 4 KiB in the files of ranks: whole ones, or each in chunks. */
static bool make_files(const char *path, const char *layout_rules)
{
    static unsigned char bytes[4096];
    const int64_t        shape[] = { 512, 4 };
    rsd_view             view = { .box = { 2, { 0 }, { 512, 4 } }, .data = bytes };
    rsd_rules           *rules;
    rsd_layout          *layout;
    rsd_state           *state;
    rsd_error            err;
    rsd_err              rc = rsd_rules_parse(layout_rules, &rules, &err);

    if (!rc)
        rc = rsd_rules_layout(rules, "t", RSD_BF16, 2, shape, &layout, &err);
    if (!rc)
        rc = rsd_state_create(&state, &err);
    for (int i = 0; i < 1000 && !rc; i++) {
        char name[64];

        snprintf(name, sizeof(name), "model.layers.%d.weight", i);
        rc = rsd_state_tensor(state, name, layout, RSD_BF16, 2, shape, 1, &view, &err);
    }
    return !rc && rsd_save(path, NULL, state, NULL, &err) == RSD_OK;
}

static bool make_whole(const char *path)
{
    return make_files(path, "mesh dp=8; * replicate");
}

static bool make_chunked(const char *path)
{
    return make_files(path, "mesh dp=8; * shard(0)@dp");
}

static bool make_sums(const char *path)
{
    return make_files(path, "mesh dp=512; * shard(0)@dp");
}

int bench_read(const char *path, const char *name)
{
    static unsigned char bytes[4096];
    rsd_read_opts        opts = { .size = sizeof(opts), .verify = RSD_ALWAYS };
    rsd_view             view = { .box = { 2, { 0 }, { 512, 4 } }, .data = bytes };
    rsd_ckpt            *ckpt;
    size_t               t;
    rsd_err              rc = rsd_ckpt_open(NULL, path, &ckpt, NULL);

    if (rc)
        return 3;
    rc = rsd_ckpt_find(ckpt, name, &t, NULL);
    if (!rc)
        rc = rsd_ckpt_read(ckpt, t, &view, &opts, NULL);
    rsd_ckpt_close(ckpt);
    return rc ? 3 : 0;
}

int bench_list(const char *path, const char *only)
{
    rsd_ckpt       *ckpt;
    rsd_tensor_info info = { .size = sizeof(info) };
    rsd_error       err;

    if (rsd_ckpt_open(NULL, path, &ckpt, &err) != RSD_OK)
        return 3;
    for (size_t t = 0; t < rsd_ckpt_tensors(ckpt); t++) {
        rsd_chunk chunk = { .size = sizeof(chunk) };

        if (rsd_ckpt_tensor(ckpt, t, &info, &err) != RSD_OK || (only && strcmp(only, info.name)))
            continue;
        printf("%s %zu\n", info.name, info.chunks);
        for (size_t i = 0; only && i < info.chunks; i++)
            if (rsd_ckpt_chunk(ckpt, t, i, &chunk, &err) == RSD_OK)
                printf("%s %" PRIu64 "\n", chunk.file, chunk.offset);
    }
    rsd_ckpt_close(ckpt);
    return 0;
}

/* From the start of a process to its end. */
static void list_in_process(void *arg)
{
    opening *o = arg;
    int      status;
    pid_t    pid = fork();

    if (pid == 0) {
        int null = open("/dev/null", O_WRONLY);

        dup2(null, STDOUT_FILENO);
        execl("/proc/self/exe", "bench", o->read ? "--read" : "--list", o->path, o->only,
              (char *)NULL);
        _exit(3);
    }
    o->tensors = waitpid(pid, &status, 0) == pid && status == 0 ? 1000 : 0;
}

static bool measure_process(const char *name, bool (*make)(const char *path), char *only, bool read,
                            bench_result *out)
{
    static opening   o;
    const bench_work work[] = { list_in_process };
    void *const      arg[] = { &o };
    double           seconds;

    bench_path(name, o.path, sizeof(o.path));
    if (!bench_prepare(o.path, make))
        return false;
    o.only = only;
    o.read = read;
    bench_warm(o.path);
    bench_turns(1, work, arg, 41, &seconds, NULL);
    out->value = seconds * 1e3;
    out->unit = "ms";
    return o.tensors == 1000;
}

static bool open_1000(bench_result *out)
{
    snprintf(out->note, sizeof(out->note), "1,000 tensors in 8 files: process start to listing");
    return measure_process("dcp.whole", make_whole, NULL, false, out);
}

static bool open_8000(bench_result *out)
{
    snprintf(out->note, sizeof(out->note), "the same with each tensor in 8 chunks");
    return measure_process("dcp.chunked", make_chunked, NULL, false, out);
}

static bool one_512k(bench_result *out)
{
    static char name[] = "model.layers.500.feed_forward.w1.weight";

    snprintf(out->note, sizeof(out->note),
             "one tensor of 512 k chunks, from its catalogue; 30 ms and 20 MiB at most");
    return measure_process("dcp.512k.catalogue", make_512k_catalogue, name, false, out);
}

static bool cat_512k(bench_result *out)
{
    static char name[] = "model.layers.500.weight";

    snprintf(
        out->note, sizeof(out->note),
        "the same with its elements and their checksums, a file each; 30 ms and 20 MiB at most");
    return measure_process("dcp.512k.sums", make_sums, name, true, out);
}

const bench_case open_cases[] = {
    { "open.one.512k", one_512k },
    { "open.cat.512k", cat_512k },
    { "open.dcp.512k", dcp_512k },
    { "open.1000", open_1000 },
    { "open.8000", open_8000 },
    { "open.st.1m", st_1m },
    { 0 },
};
