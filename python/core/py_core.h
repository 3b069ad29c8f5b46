/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of reshard._core, the C half of the Python package. They use the public
 * headers and Python's limited API only, keep no Python object in static memory, and never call
 * Python without the GIL: work that takes time runs in py_work.c, without it.
 *
 * Results follow Python: NULL or -1 means that an exception is set. */
#ifndef PY_CORE_H
#define PY_CORE_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <reshard/reshard_folder.h>

#include <pthread.h>
#include <stdatomic.h>

/* ---- py_module.c: what belongs to one interpreter ---- */

typedef struct work work;

typedef struct core {
    PyObject *make_error;                                        /* reshard._errors.make */
    PyObject *array, *view, *ckpt, *saving, *part, *comm, *plan; /* types */
    PyObject *state, *layout, *series;                           /* and for ranks */
    PyObject *stash;
    work     *abandoned; /* still running after their callers were interrupted */
    bool      settles;   /* the program's end waits for those that write */
} core;

core *core_of(PyObject *self); /* of an object of one of the types */
/* Sets the exception that belongs to an error of the library. Always -1. */
int fail_with(core *c, const rsd_error *err);
/* UTF-8 from a file as str; bytes that are no UTF-8 become lone surrogates. */
PyObject *text_of(const char *text, size_t len);
/* The UTF-8 of a str, which lives as long as it; lone surrogates, NULs are refused. */
const char *utf8_of(PyObject *text);
PyObject   *ints_of(int n, const int64_t *value); /* a tuple */
/* Reads a tuple of at most RSD_MAX_NDIM ints; returns their number. */
int ints_from(PyObject *tuple, int64_t *out);
/* Frees an object of a heap type. */
void object_free(PyObject *self);

/* ---- py_work.c: the library's calls, in a thread, so that Ctrl-C and progress work ---- */

enum { WORK_STAGED = 1, WORK_DONE = 2 };

/* The first member of what one call needs. */
struct work {
    rsd_err (*run)(work *w, rsd_error *err); /* without the GIL */
    void (*free)(work *w);                   /* with the GIL */
    pthread_mutex_t lock;
    pthread_cond_t  change;
    int             phase; /* guarded by lock */
    bool            started, joined;
    bool            writes; /* files, which it removes if it is canceled */
    pthread_t       thread;
    pid_t           process; /* a forked child has no such thread */
    atomic_bool     cancel;
    atomic_llong    at, total; /* progress in bytes */
    rsd_comm       *comm;      /* aborted when the caller is interrupted; NULL: none */
    rsd_err         rc;        /* valid when done */
    rsd_error       err;
    work           *next;
};

/* Allocates `size` zeroed bytes that begin with a work. */
work *work_new(size_t size, rsd_err (*run)(work *, rsd_error *), void (*release)(work *));
/* An rsd_progress whose arg is the work. */
int work_progress(void *arg, int64_t done, int64_t total);
/* For `run`, when part of it is done. */
void work_reach(work *w, int phase);
/* Runs it in this thread: for calls that take next to no time. */
int work_inline(core *c, work *w);
/* Starts it, waits until `phase` and calls progress(done, total) meanwhile. On an exception of a
 * signal handler or of `progress`, asks the work to stop and waits a moment for it. */
int work_run(core *c, work *w, int phase, PyObject *progress);
/* Waits for a started work: 1 if it reached `phase`, 0 after `seconds` (negative: never). */
int work_wait(core *c, work *w, int phase, double seconds, PyObject *progress);
/* Waits for a started work to its end, whatever signals come; nothing is raised. */
void work_join(work *w);
/* Frees it, or leaves it to a later call if it still runs. */
void work_free(core *c, work *w);

/* ---- py_array.c: memory that results own ---- */

/* Memory that may outlive the array; freed with its last user, who needs no GIL. */
typedef struct block {
    atomic_long users;
    void       *data;
} block;

typedef struct array {
    PyObject   ob_base;
    block     *memory;
    rsd_dtype  dtype;
    int        ndim;
    int64_t    shape[RSD_MAX_NDIM], stride[RSD_MAX_NDIM]; /* stride in elements, packed */
    Py_ssize_t bytes;
    Py_ssize_t byte_shape[RSD_MAX_NDIM], byte_stride[RSD_MAX_NDIM]; /* for the buffer protocol */
    PyObject  *weak;
} array;

extern PyType_Spec array_spec;
/* Not zeroed. */
array *array_new(core *c, rsd_dtype dtype, int ndim, const int64_t *shape);
/* Memory that nothing was written to yet: in huge pages it takes a fraction of the page faults.
 * Only a hint. */
void expect_writes(void *data, size_t bytes);

/* ---- py_dlpack.c ---- */

PyObject *dlpack_export(array *a, bool versioned);
/* The device of memory on this machine's processors. */
PyObject *dlpack_device(void);

/* ---- py_view.c: memory of others ---- */

typedef struct view {
    PyObject  ob_base;
    PyObject *owner;  /* keeps the memory; NULL: `buffer` does */
    Py_buffer buffer; /* buffer.obj NULL: not used */
    rsd_dtype dtype;
    int       ndim;
    int64_t   shape[RSD_MAX_NDIM];
    int64_t   stride[RSD_MAX_NDIM]; /* bytes; all zero: packed */
    void     *data;
    bool      read_only;
} view;

extern PyType_Spec view_spec;

/* ---- py_overlap.c ---- */

/* True if two of the targets share a byte, or one of them touches a byte twice. */
bool reads_overlap(size_t n, const rsd_read *read, bool *no_memory);

/* ---- py_notes.c: findings of a work, as pairs of texts ---- */

typedef struct notes {
    size_t n, cap;
    char **text;      /* [2 * n] */
    bool   no_memory; /* some are missing */
} notes;              /* zeroed: none */

void      notes_add(notes *all, const char *one, const char *two);
PyObject *notes_list(const notes *all); /* of pairs */
void      notes_free(notes *all);

/* ---- py_comm.c ---- */

extern PyType_Spec comm_spec;

PyObject *core_meet(PyObject *module, PyObject *args);
PyObject *core_settle(PyObject *module, PyObject *none);
/* The comm behind a Comm, for one call, until comm_leave; NULL with an exception if it is closed or
 * in use. All three with the GIL. A work sets its `comm` and leaves when it is freed. */
typedef struct shared_comm shared_comm;
shared_comm               *comm_enter(PyObject *self);
rsd_comm                  *comm_used(const shared_comm *s);
void                       comm_leave(shared_comm *s);    /* NULL is fine */
rsd_comm                  *comm_to_abort(PyObject *self); /* NULL: closed */

/* ---- py_live.c, py_stash.c ---- */

extern PyType_Spec plan_spec, stash_spec;

PyObject *core_plan(PyObject *module, PyObject *args);
PyObject *core_stash(PyObject *module, PyObject *args);

/* ---- py_ckpt.c, py_objects.c, py_catalogue.c, py_part.c and the files of the other calls ---- */

extern PyType_Spec ckpt_spec, saving_spec, part_spec;

PyObject *core_open(PyObject *module, PyObject *args);
/* As read: that of the universal form is "zero". */
const char *format_name(rsd_format format);
/* The checkpoint behind a Ckpt, until ckpt_leave; NULL with ValueError if it is closed. */
typedef struct opened opened;
opened               *ckpt_enter(PyObject *self);
rsd_ckpt             *ckpt_of(PyObject *self); /* the same, only while the GIL is held */
rsd_ckpt             *ckpt_opened(opened *o);
void                  ckpt_leave(opened *o); /* NULL is fine */
PyObject             *ckpt_object_names(PyObject *self, PyObject *none);
PyObject             *ckpt_object(PyObject *self, PyObject *args);
PyObject             *ckpt_object_healths(PyObject *self, PyObject *none);
PyObject             *ckpt_lost(PyObject *self, PyObject *none);
PyObject             *ckpt_notes(PyObject *self, PyObject *none);
PyObject             *ckpt_skipped(PyObject *self, PyObject *none);
PyObject             *name_of(const char *text); /* text_of */
PyObject             *transforms_of(const rsd_chunk *chunk);
PyObject             *ckpt_catalogue(PyObject *self, PyObject *none);
PyObject             *ckpt_object_paths(PyObject *self, PyObject *none);
PyObject             *ckpt_dcp(PyObject *self, PyObject *none);
PyObject             *ckpt_object_place(PyObject *self, PyObject *number);
PyObject             *ckpt_object_bytes(PyObject *self, PyObject *args);
PyObject             *core_save(PyObject *module, PyObject *args, PyObject *kwargs);
PyObject             *core_verify(PyObject *module, PyObject *args, PyObject *kwargs);
PyObject             *core_convert(PyObject *module, PyObject *args);
PyObject             *core_write_part(PyObject *module, PyObject *args, PyObject *kwargs);
PyObject             *core_publish(PyObject *module, PyObject *args, PyObject *kwargs);

/* A value as a Python object. hook(kind, x) makes what Python has no type for: kind "dtype",
 * "device", "opaque" with a str, "tensor" with an Array (None: not read). */
PyObject *value_to_python(core *c, const rsd_value *v, PyObject *hook);
/* The reverse; the value may point into Views, which become tensors. */
int value_from_python(core *c, PyObject *x, rsd_values *owner, const rsd_value **out);
/* Adds a dict, its nested dicts and lists to a state. */
int state_fill(core *c, PyObject *tree, rsd_state *state, rsd_values *values,
               const rsd_rules *rules);

/* ---- py_layout.c, py_ranks.c, py_series.c: for ranks ---- */

typedef struct spread {
    PyObject    ob_base;
    rsd_layout *layout;
    rsd_dtype   dtype;
    int         ndim;
    int64_t     shape[RSD_MAX_NDIM];
    size_t      n;                   /* boxes of this rank */
    rsd_view   *view;                /* [n] without memory; strides of a packed local tensor */
    rsd_box    *at;                  /* [n] where each box begins in the local tensor */
    int64_t     local[RSD_MAX_NDIM]; /* shape of the local tensor, if n > 0 */
} spread;

typedef struct rank_state rank_state;

extern PyType_Spec layout_spec, state_spec, series_spec;

/* The views of this rank's boxes in its local tensor, n of them; strides in bytes, NULL: packed.
 * -1, without an exception: the local tensor has another shape. */
int layout_views(const spread *l, void *data, int ndim, const int64_t *sizes,
                 const int64_t *strides, rsd_view *out);
/* The state behind a State. */
rsd_state *state_of(rank_state *s);
/* Lets the tensors' memory go. */
void state_staged(rank_state *s);
/* Enters a Comm for a work, which leaves it when it is freed; None: this process alone, NULL. */
int ranks_enter(PyObject *comm, work *w, shared_comm **out);

PyObject *core_load(PyObject *module, PyObject *args, PyObject *kwargs);

#endif
