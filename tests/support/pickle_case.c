/* SPDX-License-Identifier: Apache-2.0 */
/* Reads pickles that tests write out as bytes. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "pickle_case.h"

#include <string.h>

const rsi_pickle_class pickle_classes[3] = {
    { "m", "Known", 1, 0 },
    { "m", "Folds", 2, RSI_PICKLE_FOLD_BUILD },
    { "m", "Calls", 3, RSI_PICKLE_FOLD_CALL },
};

rsd_err pickle_fold(void *arg, const rsi_pickle *p, rsi_pickle_object *object, rsi_pv *out,
                    rsd_error *err)
{
    pickle_reading *r = arg;

    (void)err;
    r->folds++;
    object->keep = r->keep;
    *out = object->id == 3 ? rsi_pickle_none()
                           : rsi_pickle_user((uint32_t)rsi_pickle_count(p, object->state) / 2);
    return RSD_OK;
}

pickle_reading pickle_open(void)
{
    rsi_pickle_options options = { .classes = pickle_classes, .nclasses = 3, .fold = pickle_fold };
    pickle_reading     r = { 0 };

    assert_int_equal(rsi_pickle_create(&options, &r.p, &r.err), RSD_OK);
    return r;
}

void pickle_load(pickle_reading *r, const char *bytes, size_t len)
{
    rsi_pickle_options options = {
        .classes = pickle_classes, .nclasses = 3, .fold = pickle_fold, .arg = r
    };
    rsi_source source = rsi_memory_source(bytes, len, "test");
    bool       keep = r->keep;

    *r = (pickle_reading){ .keep = keep };
    assert_int_equal(rsi_pickle_create(&options, &r->p, &r->err), RSD_OK);
    r->rc = rsi_pickle_read(r->p, &source, &r->root, &r->used, &r->err);
}

void pickle_refuse(const char *bytes, size_t len, const char *message)
{
    pickle_reading r = { 0 };

    pickle_load(&r, bytes, len);
    assert_int_equal(r.rc, RSD_E_FORMAT);
    if (!strstr(r.err.msg, message))
        fail_msg("\"%s\" is not in \"%s\"", message, r.err.msg);
    rsi_pickle_free(r.p);
}

void pickle_accept(pickle_reading *r, const char *bytes, size_t len)
{
    pickle_load(r, bytes, len);
    if (r->rc)
        fail_msg("%s", r->err.msg);
}
