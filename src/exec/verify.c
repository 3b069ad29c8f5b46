/* SPDX-License-Identifier: Apache-2.0 */
/* Goes through every chunk and every object of a checkpoint, on several threads, and reports what
 * is wrong in the order of the catalogue. */
#include "exec/verify.h"
#include "base/mem.h"
#include "base/workers.h"
#include "exec/fetch.h"

#include <pthread.h>
#include <string.h>

typedef struct verifying {
    rsd_ckpt       *ckpt;
    pthread_mutex_t lock;
    rsd_error      *found; /* [n] with what is wrong, in the order it was seen */
    size_t         *where; /* [n] number of the tensor or object, for sorting */
    size_t          n, cap;
} verifying;

/* Some errors say that the machine, not the checkpoint, is at fault. */
static bool is_damage(rsd_err rc)
{
    return rc == RSD_E_FORMAT || rc == RSD_E_CORRUPT || rc == RSD_E_IO || rc == RSD_E_NOTFOUND ||
           rc == RSD_E_UNSUPPORTED;
}

static rsd_err note(verifying *v, size_t where, const rsd_error *what, rsd_error *err)
{
    rsd_err rc = RSD_OK;

    pthread_mutex_lock(&v->lock);
    if (v->n == v->cap) {
        size_t     cap = v->cap ? 2 * v->cap : 16;
        rsd_error *found = rsi_realloc(v->found, cap, sizeof(found[0]));
        size_t    *places = found ? rsi_realloc(v->where, cap, sizeof(places[0])) : NULL;

        v->found = found ? found : v->found;
        v->where = places ? places : v->where;
        v->cap = places ? cap : v->cap;
        if (!places)
            rc = rsi_fail(err, RSD_E_NOMEM, "no memory for the list of damages");
    }
    if (!rc) {
        size_t i = v->n++;

        for (; i > 0 && v->where[i - 1] > where; i--) {
            v->where[i] = v->where[i - 1];
            v->found[i] = v->found[i - 1];
        }
        v->where[i] = where;
        v->found[i] = *what;
    }
    pthread_mutex_unlock(&v->lock);
    return rc;
}

static rsd_err check_tensor(verifying *v, size_t t, rsd_error *err)
{
    rsd_tensor_info info;

    v->ckpt->ops->tensor(v->ckpt, t, &info);
    for (size_t i = 0; i < info.chunks; i++) {
        rsd_error what = { .rank = -1 };
        rsd_chunk chunk;
        uint32_t  file;
        bool      checked;
        rsd_err   rc = rsi_check_record(v->ckpt, t, i, &checked, &what);

        if (!rc)
            continue;
        v->ckpt->ops->chunk(v->ckpt, t, i, &chunk, &file);
        rsi_while(&what, rc, "tensor \"%s\": file \"%s\"", info.name, chunk.file);
        if (!is_damage(rc)) {
            if (err)
                *err = what;
            return rc;
        }
        rc = note(v, t, &what, err);
        if (rc)
            return rc;
    }
    return RSD_OK;
}

static rsd_err check_object(verifying *v, size_t i, rsd_error *err)
{
    rsd_error        what = { .rank = -1 };
    const char      *name = "";
    const rsd_value *value;
    rsd_values      *owner;
    rsd_err          rc = rsd_values_create(&owner, err);

    if (rc)
        return rc;
    rc = v->ckpt->ops->object(v->ckpt, i, &name, owner, &value, &what);
    rsd_values_free(owner);
    if (!rc)
        return RSD_OK;
    rsi_while(&what, rc, "object \"%s\"", name);
    if (is_damage(rc))
        return note(v, v->ckpt->ntensors + i, &what, err);
    if (err)
        *err = what;
    return rc;
}

static rsd_err check_one(void *arg, size_t i, rsd_error *err)
{
    verifying *v = arg;

    return i < v->ckpt->ntensors ? check_tensor(v, i, err)
                                 : check_object(v, i - v->ckpt->ntensors, err);
}

rsd_err rsi_verify(rsd_ckpt *ckpt, const rsd_read_opts                    *opts,
                   void (*damage)(void *arg, const rsd_error *what), void *arg, size_t *count,
                   rsd_error *err)
{
    verifying    v = { .ckpt = ckpt, .lock = PTHREAD_MUTEX_INITIALIZER };
    rsi_workers *workers = NULL;
    rsd_err      rc = rsi_workers_create(opts->threads, &workers, err);

    if (!rc)
        rc = rsi_workers_run(workers, ckpt->ntensors + ckpt->nobjects, check_one, &v, err);
    for (size_t i = 0; !rc && damage && i < v.n; i++)
        damage(arg, &v.found[i]);
    if (!rc && count)
        *count = v.n;
    rsi_workers_free(workers);
    rsi_free(v.found);
    rsi_free(v.where);
    return rc;
}
