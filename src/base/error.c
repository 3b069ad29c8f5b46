/* SPDX-License-Identifier: Apache-2.0 */
/* Fills in rsd_error: one line of text, truncated to fit, safe to print. */
#include "base/error.h"
#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
    rsd_err     code;
    const char *name;
} names[] = {
    { RSD_OK, "RSD_OK" },
    { RSD_E_INVALID, "RSD_E_INVALID" },
    { RSD_E_MISMATCH, "RSD_E_MISMATCH" },
    { RSD_E_UNSUPPORTED, "RSD_E_UNSUPPORTED" },
    { RSD_E_NOTFOUND, "RSD_E_NOTFOUND" },
    { RSD_E_EXISTS, "RSD_E_EXISTS" },
    { RSD_E_FORMAT, "RSD_E_FORMAT" },
    { RSD_E_CORRUPT, "RSD_E_CORRUPT" },
    { RSD_E_NOMEM, "RSD_E_NOMEM" },
    { RSD_E_IO, "RSD_E_IO" },
    { RSD_E_COMM, "RSD_E_COMM" },
    { RSD_E_CANCELED, "RSD_E_CANCELED" },
    { RSD_E_TIMEOUT, "RSD_E_TIMEOUT" },
    { RSD_E_BUG, "RSD_E_BUG" },
};

const char *rsd_err_name(rsd_err code)
{
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (names[i].code == code)
            return names[i].name;
    return "unknown error";
}

/* Ends a truncated message in "..." and replaces control characters and invalid UTF-8 with '?'. */
static void finish(char *msg, bool cut)
{
    size_t   len = strlen(msg);
    uint32_t code = 0;

    if (cut && len >= 3) {
        size_t end = len - 3;

        while (end > 0 && ((unsigned char)msg[end] & 0xc0) == 0x80)
            end--; /* don't split a UTF-8 character */
        memcpy(msg + end, "...", 4);
    }
    len = strlen(msg);
    for (size_t i = 0, n; i < len; i += n) {
        n = rsi_utf8(msg + i, len - i, &code);
        if (n == 0 || rsi_is_hidden(code)) {
            n = n ? n : 1;
            memset(msg + i, '?', n);
        }
    }
}

static void fill(rsd_error *err, rsd_err code, int sys_errno, const char *fmt, va_list args)
{
    int want;

    memset(err, 0, sizeof(*err));
    err->code = (int32_t)code;
    err->sys_errno = sys_errno;
    err->rank = -1;
    want = vsnprintf(err->msg, sizeof(err->msg), fmt, args);
    finish(err->msg, want >= (int)sizeof(err->msg));
}

void rsi_vfail(rsd_error *err, rsd_err code, const char *fmt, va_list args)
{
    if (err)
        fill(err, code, 0, fmt, args);
}

rsd_err rsi_fail(rsd_error *err, rsd_err code, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    rsi_vfail(err, code, fmt, args);
    va_end(args);
    return code;
}

rsd_err rsi_fail_errno(rsd_error *err, rsd_err code, int sys_errno, const char *fmt, ...)
{
    char        text[128];
    const char *reason;
    char        what[sizeof(err->msg)];
    int         want;
    va_list     args;

    if (!err)
        return code;
    va_start(args, fmt);
    fill(err, code, sys_errno, fmt, args);
    va_end(args);
    reason = strerror_r(sys_errno, text, sizeof(text)); /* GNU: returns the text */
    memcpy(what, err->msg, sizeof(what));
    want = snprintf(err->msg, sizeof(err->msg), "%s: %s", what, reason);
    finish(err->msg, want >= (int)sizeof(err->msg));
    return code;
}

rsd_err rsi_while(rsd_error *err, rsd_err code, const char *fmt, ...)
{
    char    what[sizeof(err->msg)];
    char    where[sizeof(err->msg)];
    size_t  file; /* length of the file's name that `where` begins with */
    int     want;
    va_list args;

    if (!err)
        return code;
    va_start(args, fmt);
    vsnprintf(where, sizeof(where), fmt, args);
    va_end(args);
    memcpy(what, err->msg, sizeof(what));
    err->code = (int32_t)code;
    file = strncmp(where, "file \"", 6) == 0 ? 7 + strcspn(where + 6, "\"") : 0;
    if (file && (strncmp(what, where, file) != 0 || strncmp(what + file, ": ", 2) != 0))
        file = 0;
    want = snprintf(err->msg, sizeof(err->msg), "%s: %s", where, what + (file ? file + 2 : 0));
    finish(err->msg, want >= (int)sizeof(err->msg));
    return code;
}
