/* SPDX-License-Identifier: Apache-2.0 */
/* What every rank has of its own in a folder of rank files: plain tensors and objects of the same
 * name that are no replicas of each other. CRC32s in the files' directories tell without reading
 * data. Objects and random states differ by design: the lowest rank's is kept, and that is noted.
 * Tensors of different shapes, and the flat shards of FSDP1's optimizer, are parts of a whole that
 * no file describes: they are left out by name. Other tensors that differ are damage, which
 * `verify` reports. */
#include "base/checked.h"
#include "base/mem.h"
#include "format/path.h"
#include "format/ranks.h"
#include "format/value_digest.h"
#include "shape/box.h"

#include <string.h>

/* How another rank's value compares with the one that was kept; the larger counts. */
typedef enum verdict { SAME, UNKNOWN, DIFFERENT, OTHER_SHAPE, LEFT_OUT } verdict;

typedef struct settling {
    rsi_torch *t;
    uint8_t   *tensor, *object; /* verdicts, by number */
    rsi_note  *note;
    size_t     nnotes;
} settling;

static const char own[] = "other ranks have different ones: the lowest rank's is kept";
static const char shapes[] = "its dtype or shape differs between ranks, and no file says how these "
                             "make a whole";
static const char flat[] = "each rank has a flat shard (FSDP1), without names and shapes of "
                           "parameters: save FSDP.optim_state_dict(model, optimizer) instead";

/* ---- comparing ---- */

static bool same_shape(const rsd_value_tensor *a, const rsd_value_tensor *b)
{
    return a->dtype == b->dtype && a->ndim == b->ndim &&
           memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof(a->shape[0])) == 0;
}

static bool extent_of(const rsi_torch *t, uint32_t file, const rsd_value_tensor *view,
                      rsi_extent *out)
{
    const rsi_torch_file *f = &t->file[file];
    rsi_tensor_pickle     facts;

    rsi_torch_tensor_of(view, &facts);
    return rsi_torch_extent(&f->source, &f->zip, &facts, out, NULL) == RSD_OK;
}

/* The CRC32s tell if both tensors fill their records in the same way. */
static verdict compare_tensors(const rsi_torch *t, uint32_t file_a, const rsd_value_tensor *a,
                               uint32_t file_b, const rsd_value_tensor *b)
{
    int64_t    bytes = 0;
    rsi_extent x, y;

    if (!same_shape(a, b))
        return OTHER_SHAPE;
    if (!rsi_product(a->ndim, a->shape, (int64_t)rsd_dtype_size(a->dtype), &bytes) || bytes == 0)
        return SAME;
    if (!extent_of(t, file_a, a, &x) || !extent_of(t, file_b, b, &y) || !x.has_crc || !y.has_crc ||
        x.record_bytes != (uint64_t)bytes || y.record_bytes != (uint64_t)bytes ||
        x.big_endian != y.big_endian || x.conj != y.conj || x.neg != y.neg ||
        memcmp(a->stride, b->stride, (size_t)a->ndim * sizeof(a->stride[0])) != 0)
        return UNKNOWN;
    return x.crc32 == y.crc32 ? SAME : DIFFERENT;
}

static rsd_err see_tensor(void *arg, rsd_value_tensor *tensor, bool opaque, rsd_error *err)
{
    (void)tensor, (void)opaque, (void)err;
    *(bool *)arg = true;
    return RSD_OK;
}

/* An object with storages inside is compared by their CRC32s. */
static verdict compare_opaque(const rsi_torch *t, uint32_t file_a, const rsi_opaque *a,
                              uint32_t file_b, const rsi_opaque *b)
{
    verdict worst = SAME;

    if (!a || !b || !a->known || !b->known)
        return UNKNOWN;
    if (memcmp(a->digest, b->digest, sizeof(a->digest)) != 0 || a->n != b->n)
        return DIFFERENT;
    for (size_t i = 0; i < a->n; i++) {
        verdict one = compare_tensors(t, file_a, &a->storage[i], file_b, &b->storage[i]);

        worst = one > worst ? one : worst;
    }
    return worst;
}

static rsd_err compare_objects(const rsi_torch *t, uint32_t file_a, const rsd_value *a,
                               uint32_t file_b, const rsd_value *b, verdict *out, rsd_error *err)
{
    const rsi_archive x = { .source = t->file[file_a].source, .zip = t->file[file_a].zip };
    const rsi_archive y = { .source = t->file[file_b].source, .zip = t->file[file_b].zip };
    bool              data = false;
    uint64_t          one[2], two[2];
    rsd_err           rc = rsi_torch_each_tensor(a, see_tensor, &data, err);

    rc = rc ? rc : rsi_torch_each_tensor(b, see_tensor, &data, err);
    if (rc || data) {
        *out = compare_opaque(t, file_a, rsi_value_opaque(a), file_b, rsi_value_opaque(b));
        return rc;
    }
    rc = rsi_value_digest(&x, a, one, err);
    rc = rc ? rc : rsi_value_digest(&y, b, two, err);
    *out = rc ? UNKNOWN : memcmp(one, two, sizeof(one)) == 0 ? SAME : DIFFERENT;
    return rc == RSD_E_UNSUPPORTED ? RSD_OK : rc;
}

static bool is_random_state(const rsi_torch_entry *e)
{
    const rsd_value_tensor *tensor = e->whole ? NULL : rsd_value_tensor_of(e->value);

    return tensor && tensor->dtype == RSD_U8 && tensor->ndim == 1 &&
           (strstr(e->name, "rng") || strstr(e->name, "random"));
}

/* Compares a replica with what was kept. Sets r->own if differing is no damage. */
static rsd_err judge(settling *s, rsi_torch_replica *r, rsd_error *err)
{
    const rsi_torch       *t = s->t;
    const bool             tensor = r->entry < t->tensors.n;
    const rsi_torch_entry *e = tensor ? &t->tensors.at[r->entry] : &t->objects.at[~r->entry];
    uint8_t               *at = tensor ? &s->tensor[r->entry] : &s->object[~r->entry];
    verdict                v = DIFFERENT;
    rsd_err                rc = RSD_OK;

    if (!r->value) {
        const rsi_torch_piece *p = e->whole->piece;
        rsd_value_tensor       a, b;

        while (!rsi_box_equal(&p->box, &r->piece.box))
            p++;
        rsi_torch_piece_view(p, &a);
        rsi_torch_piece_view(&r->piece, &b);
        v = compare_tensors(t, p->file, &a, r->file, &b);
    } else if (!tensor) {
        rc = compare_objects(t, e->file, e->value, r->file, r->value, &v, err);
        r->own = v != UNKNOWN;
    } else if (!e->whole && rsd_value_type_of(r->value) == RSD_VALUE_TENSOR) {
        v = compare_tensors(t, e->file, rsd_value_tensor_of(e->value), r->file,
                            rsd_value_tensor_of(r->value));
        r->own = is_random_state(e) && v != UNKNOWN;
    }
    if (v > *at)
        *at = (uint8_t)v;
    return rc;
}

/* ---- flat shards ---- */

/* The length of "optim.state" in "optim.state.0.exp_avg"; 0: it is no optimizer's state. */
static size_t state_of(const rsi_torch_entry *e)
{
    const size_t n = e->nparts;

    return n >= 3 && e->part[n - 3].key && strcmp(e->part[n - 3].key, "state") == 0
               ? rsi_path_join(e->part, n - 2, NULL, 0)
               : 0;
}

/* The states of one optimizer. */
typedef struct optimizer {
    bool cut;     /* some are parts or have the shape of a parameter */
    bool differs; /* vectors differ between ranks */
} optimizer;

static void note(settling *s, const char *name, const char *why)
{
    s->note[s->nnotes++] = (rsi_note){ .name = name, .why = why };
}

static int32_t ndim_of(const rsi_torch_entry *e)
{
    return e->whole ? e->whole->ndim : rsd_value_tensor_of(e->value)->ndim;
}

/* An optimizer whose states are all vectors, and some differ between ranks, is FSDP1's. */
static rsd_err leave_flat(settling *s, optimizer *all, rsd_error *err)
{
    const rsi_torch_entries *list = &s->t->tensors;
    rsi_map                  found = { 0 };
    uint64_t                 number;
    rsd_err                  rc = RSD_OK;

    for (int pass = 0; pass < 2; pass++)
        for (size_t i = 0; i < list->n && !rc; i++) {
            const rsi_torch_entry *e = &list->at[i];
            const size_t           len = state_of(e);
            const int32_t          ndim = ndim_of(e);
            optimizer             *o;

            number = found.count;
            if (len > 0 && !rsi_map_add(&found, e->name, len, &number, NULL))
                rc = rsi_torch_no_memory(err);
            o = len > 0 && !rc ? &all[number] : NULL;
            if (o && pass == 0) {
                o->cut = o->cut || e->whole || ndim > 1;
                o->differs = o->differs || (ndim == 1 && s->tensor[i] > SAME);
            } else if (o && ndim == 1 && !o->cut && o->differs) {
                s->tensor[i] = LEFT_OUT;
                note(s, e->name, flat);
            }
        }
    rsi_map_release(&found);
    return rc;
}

/* ---- what becomes of it ---- */

static void note_own(settling *s)
{
    const rsi_torch *t = s->t;

    for (size_t i = 0; i < t->tensors.n; i++) {
        const rsi_torch_entry *e = &t->tensors.at[i];

        if (s->tensor[i] == OTHER_SHAPE && is_random_state(e))
            s->tensor[i] = DIFFERENT;
        if (s->tensor[i] == OTHER_SHAPE)
            note(s, e->name, shapes);
        else if (s->tensor[i] == DIFFERENT && is_random_state(e))
            note(s, e->name, own);
    }
    for (size_t i = 0; i < t->objects.n; i++)
        if (s->object[i] >= DIFFERENT)
            note(s, t->objects.at[i].name, own);
}

/* After the notes: tensors that `verify` will report. */
static void note_damage(settling *s)
{
    for (size_t i = 0; i < s->t->tensors.n; i++) {
        const rsi_torch_entry *e = &s->t->tensors.at[i];

        if (s->tensor[i] == DIFFERENT && !is_random_state(e))
            note(s, e->name, own);
    }
}

static bool is_kept(const settling *s, size_t i)
{
    return s->tensor[i] < OTHER_SHAPE;
}

static bool add_name(rsi_torch *t, const char *name, uint64_t number)
{
    return rsi_map_add(&t->names, name, strlen(name), &number, NULL);
}

/* Removes the tensors that are left out, and gives the others new numbers. */
static rsd_err drop(settling *s, rsd_error *err)
{
    rsi_torch *t = s->t;
    uint64_t  *number = rsi_calloc(t->tensors.n, sizeof(number[0]));
    size_t     n = 0, nreplicas = 0;
    bool       ok = number != NULL;

    rsi_map_release(&t->names);
    for (size_t i = 0; i < t->tensors.n && ok; i++) {
        if (!is_kept(s, i))
            continue;
        number[i] = n;
        ok = add_name(t, t->tensors.at[i].name, n);
        t->tensors.at[n++] = t->tensors.at[i];
    }
    for (size_t i = 0; i < t->objects.n && ok; i++)
        ok = add_name(t, t->objects.at[i].name, ~(uint64_t)i);
    for (size_t k = 0; k < t->nreplicas && ok; k++) {
        rsi_torch_replica r = t->replica[k];

        if (r.entry < t->tensors.n && !is_kept(s, r.entry))
            continue;
        if (r.entry < t->tensors.n)
            r.entry = number[r.entry];
        t->replica[nreplicas++] = r;
    }
    rsi_free(number);
    t->tensors.n = n;
    t->nreplicas = nreplicas;
    return ok ? RSD_OK : rsi_torch_no_memory(err);
}

rsd_err rsi_ranks_settle(rsd_ckpt *ckpt, rsi_torch *t, rsd_error *err)
{
    optimizer *all = rsi_calloc(t->tensors.n, sizeof(all[0]));
    settling   s = { .t = t,
                     .tensor = rsi_calloc(t->tensors.n, sizeof(s.tensor[0])),
                     .object = rsi_calloc(t->objects.n, sizeof(s.object[0])) };
    rsd_err    rc = RSD_OK;

    s.note = rsi_arena_array(&ckpt->mem, t->tensors.n + t->objects.n, sizeof(s.note[0]));
    if (!all || !s.tensor || !s.object || !s.note)
        rc = rsi_torch_no_memory(err);
    for (size_t k = 0; k < t->nreplicas && !rc; k++)
        rc = judge(&s, &t->replica[k], err);
    rc = rc ? rc : leave_flat(&s, all, err);
    if (!rc) {
        note_own(&s);
        ckpt->nnotes = s.nnotes;
        note_damage(&s);
        ckpt->note = s.note;
        ckpt->ndiffering = s.nnotes - ckpt->nnotes;
        rc = drop(&s, err);
    }
    rsi_free(all);
    rsi_free(s.tensor);
    rsi_free(s.object);
    return rc;
}
