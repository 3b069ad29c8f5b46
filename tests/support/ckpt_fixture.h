/* SPDX-License-Identifier: Apache-2.0 */
/* What tests of checkpoints share: stores in memory, files put there by hand, archives and metadata
 * made without rsd_save, tensors whose elements are their own index. Everything asserts. */
#ifndef CKPT_FIXTURE_H
#define CKPT_FIXTURE_H

#include "format/dcp_meta.h"
#include "format/tensor_pickle.h"
#include "format/value.h"
#include "store/store.h"

/* ---- stores and files ---- */

rsd_store *fix_store(void); /* "mem:" */
void       fix_put(rsd_store *store, const char *name, const void *bytes, size_t len);
void       fix_put_text(rsd_store *store, const char *name, const char *text);
/* The bytes of a file; free() them. */
unsigned char *fix_get(rsd_store *store, const char *name, size_t *len);
rsd_err        fix_remove(rsd_store *store, const char *name);
/* Turns these bits of one byte, or all of them. */
void fix_xor(rsd_store *store, const char *name, uint64_t at, unsigned char bits);
void fix_flip(rsd_store *store, const char *name, uint64_t at);
/* Names in a folder ("": the top), sorted, with a space between; static. */
const char *fix_list(rsd_store *store, const char *folder);
/* One checksum of all files in a folder and their names. */
uint32_t fix_sum(rsd_store *store, const char *folder);

/* Opens a checkpoint that is good. */
rsd_ckpt *fix_open(rsd_store *store, const char *path);
/* Opening fails with this code and a message that has `text`. */
void fix_refused(rsd_store *store, const char *path, rsd_err code, const char *text);

/* What was asked of a counting store. */
typedef struct fix_counts {
    uint64_t reads, bytes;
    uint64_t data_files;       /* DCP's, that something was read from */
    int64_t  fail_at;          /* the read that fails, from 1 on; 0: none */
    void (*before)(void *arg); /* each read, if not NULL */
    void *arg;
} fix_counts;
/* Reads through to `inner`, which lives longer. */
rsd_store *fix_counting_store(rsd_store *inner, fix_counts *counts);

/* ---- archives and DCP folders by hand ---- */

typedef struct fix_bytes {
    unsigned char *at; /* for free */
    size_t         len;
} fix_bytes;

/* A torch.save archive of this pickle and n storages. */
fix_bytes fix_archive(const void *pickle, size_t pickle_len, size_t n, const void *const *storage,
                      const uint64_t *bytes);
/* An archive of one tensor. */
fix_bytes fix_tensor_item(const rsi_tensor_pickle *tensor, const void *storage);
/* An archive of a value; all tensors in it, at most ten, are views of storage "0", which has these
 * bytes. NULL: it is left out. */
fix_bytes fix_value_item(const rsd_value *value, const void *storage, uint64_t bytes);
void      fix_put_metadata(rsd_store *store, const char *name, const rsi_dcp_meta *meta);

/* ---- states ---- */

/* A view of a whole packed tensor. */
rsd_view fix_whole(int ndim, const int64_t *shape, const void *data);
rsd_box  fix_box1(int64_t off, int64_t len);
rsd_box  fix_box2(int64_t off0, int64_t off1, int64_t len0, int64_t len1);
rsd_box  fix_box3(const int64_t off[3], const int64_t len[3]);
/* Adds a tensor of int32 that are their own index; the memory is `data`. `layout` is taken over. */
void fix_add_ramp(rsd_state *state, const char *name, rsd_layout *layout, int ndim,
                  const int64_t *shape, int32_t *data);
/* Saves such tensors, t0, t1 and so on, in four row shards; without checksums. */
void fix_save_ramps(rsd_store *store, const char *path, int tensors, int64_t rows, int64_t cols);
/* A layout from rules: "mesh tp=2; * shard(0)@tp". */
rsd_layout *fix_layout(const char *rules, rsd_dtype dtype, int ndim, const int64_t *shape);

/* ---- the library from inside ---- */

#define FIX_SUMS ".reshard-sums" /* in a folder; appended to the name of a single file */
bool    fix_has_sums(void);      /* this build has checksums */
bool    fix_has_zstd(void);
int64_t fix_memory(void); /* bytes that the library holds */
/* How often a save reused the image of an earlier one. */
uint64_t fix_images_reused(void);
void     fix_forget_image(const rsd_state *state);
/* Ranks are threads, where cmocka's asserts can't be used: they return an error instead. */
#define FIX_CHECK(x)                                                                               \
    do {                                                                                           \
        if (!(x))                                                                                  \
            return fix_fails(err, __FILE__, __LINE__, #x);                                         \
    } while (0)
/* Returns RSD_E_BUG; the message has the place, `what` and the error so far. */
rsd_err fix_fails(rsd_error *err, const char *file, int line, const char *what);

/* ---- the nth allocation fails ---- */

/* Calls run for every n, once with only the nth failing and once with all from it on, until n is
 * beyond what it takes. It fails with RSD_E_NOMEM or not at all; `after`, if not NULL, looks at
 * what is left each time. */
void fix_every_allocation(rsd_err (*run)(void *arg, rsd_error *err),
                          void (*after)(void *arg, rsd_err rc), void *arg);

#endif
