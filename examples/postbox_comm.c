/* SPDX-License-Identifier: Apache-2.0 */
/* The table of a comm over the postbox; reshard_plugin.h says what each function must do. */
#include "postbox.h"

#include <stdio.h>

static rsd_error broken; /* set once, by stop */

static int32_t own_rank(void *self)
{
    return *(const int32_t *)self;
}

static int32_t own_count(void *self)
{
    return (void)self, 2;
}

static rsd_err fail(rsd_error *err, rsd_err code, const char *why)
{
    *err = (rsd_error){ .code = (int32_t)code, .rank = -1 };
    snprintf(err->msg, sizeof(err->msg), "%s", why);
    return code;
}

static rsd_err own_send(void *self, int32_t to, int32_t tag, const void *data, size_t bytes,
                        void **request, rsd_error *err)
{
    *request = NULL; /* copied, so already finished */
    if (postbox_post((letter){ own_rank(self), to, tag, false, false, bytes, (void *)data, NULL }))
        return RSD_OK;
    return fail(err, RSD_E_NOMEM, "no memory for a message");
}

static rsd_err own_recv(void *self, int32_t from, int32_t tag, void *data, size_t bytes,
                        void **request, rsd_error *err)
{
    *request = postbox_post((letter){ from, own_rank(self), tag, true, false, bytes, data, NULL });
    return *request ? RSD_OK : fail(err, RSD_E_NOMEM, "no memory for a message");
}

static rsd_err own_test(void *self, void **request, rsd_error *err)
{
    (void)self;
    if (*request && postbox_done(*request))
        *request = NULL;
    return *request && broken.code ? (*err = broken, (rsd_err)broken.code) : RSD_OK;
}

static rsd_err own_wait_some(void *self, size_t n, void **request, int64_t timeout_ms,
                             rsd_error *err)
{
    uint64_t seen = postbox_wait(0, 0), next; /* first, so no message is missed */

    for (;; seen = next) {
        size_t open = 0, left = 0;

        for (size_t i = 0; i < n; i++) {
            open += request[i] != NULL;
            if (own_test(self, &request[i], err))
                return (rsd_err)err->code;
            left += request[i] != NULL;
        }
        if (left < open || !open)
            return RSD_OK;
        next = postbox_wait(seen, timeout_ms);
        if (next == seen)
            return fail(err, RSD_E_TIMEOUT, "nothing came");
    }
}

static bool own_cancel(void *self, void **request)
{
    (void)self;
    if (*request)
        postbox_cancel(*request);
    *request = NULL;
    return true;
}

static void own_stop(void *self, const rsd_error *why)
{
    (void)self;
    if (!broken.code)
        broken = *why;
    postbox_ring();
}

static rsd_err own_split(void *self, int32_t n, const int32_t *ranks, void **out, rsd_error *err)
{
    return (void)self, (void)n, (void)ranks, (void)out, fail(err, RSD_E_UNSUPPORTED, "no groups");
}

static void own_close(void *self)
{
    (void)self;
}

const rsd_comm_ops postbox_ops = {
    .size = sizeof(postbox_ops),
    .name = "own",
    .rank = own_rank,
    .count = own_count,
    .send = own_send,
    .recv = own_recv,
    .test = own_test,
    .wait_some = own_wait_some,
    .cancel = own_cancel,
    .stop = own_stop,
    .split = own_split,
    .close = own_close,
};
