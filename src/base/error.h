/* SPDX-License-Identifier: Apache-2.0 */
/* Errors: the function that detects an error writes the message, its callers add context. Every
 * other file of the library includes this. Next: mem.h. */
#ifndef RSI_ERROR_H
#define RSI_ERROR_H

#include <reshard/reshard.h>
#include <stdarg.h>

#if defined(__GNUC__)
#define RSI_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define RSI_COLD              __attribute__((cold)) /* called only when something fails */
#else
#define RSI_PRINTF(fmt, args)
#define RSI_COLD
#endif

/* Fills *err (which may be NULL) and returns `code`, so that `return rsi_fail(...)` reads well.
 * Control characters, which untrusted names may contain, become '?'; a text that is too long ends
 * in "...". */
rsd_err rsi_fail(rsd_error *err, rsd_err code, const char *fmt, ...) RSI_PRINTF(3, 4) RSI_COLD;
void    rsi_vfail(rsd_error *err, rsd_err code, const char *fmt, va_list args);
/* The same for a system call that set `sys_errno`; its description is added after a colon. */
rsd_err rsi_fail_errno(rsd_error *err, rsd_err code, int sys_errno, const char *fmt, ...)
    RSI_PRINTF(4, 5) RSI_COLD;
/* Puts "<context>: " in front of the message of an error already reported; a file that both begin
 * with is named once. Sets the error's code to
 * `code`, usually its own, and returns it. */
rsd_err rsi_while(rsd_error *err, rsd_err code, const char *fmt, ...) RSI_PRINTF(3, 4) RSI_COLD;

#endif
