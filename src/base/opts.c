/* SPDX-License-Identifier: Apache-2.0 */
#include "base/opts.h"

#include <reshard/reshard_folder.h>
#include <reshard/reshard_live.h>
#include <stddef.h>
#include <string.h>

#define SIZE_MOST ((size_t)64 << 10) /* an uninitialised size can be any number */

/* Enumerated fields: 0 to `most`. */
static const struct {
    const char *name, *field; /* of the struct, of the field */
    size_t      at;
    int         most;
} choices[] = {
    { "rsd_read_opts", "verify", offsetof(rsd_read_opts, verify), RSD_NEVER },
    { "rsd_save_opts", "format", offsetof(rsd_save_opts, format), RSD_FORMAT_ZERO },
    { "rsd_save_opts", "sync", offsetof(rsd_save_opts, sync), RSD_NEVER },
    { "rsd_save_opts", "checksum", offsetof(rsd_save_opts, checksum), RSD_NEVER },
    { "rsd_load_opts", "verify", offsetof(rsd_load_opts, verify), RSD_NEVER },
    { "rsd_load_opts", "cooperate", offsetof(rsd_load_opts, cooperate), RSD_NEVER },
    { "rsd_convert_opts", "format", offsetof(rsd_convert_opts, format), RSD_FORMAT_MEGATRON },
    { "rsd_convert_opts", "sync", offsetof(rsd_convert_opts, sync), RSD_NEVER },
    { "rsd_convert_opts", "checksum", offsetof(rsd_convert_opts, checksum), RSD_NEVER },
    { "rsd_convert_opts", "verify", offsetof(rsd_convert_opts, verify), RSD_NEVER },
    { "rsd_convert_opts", "carry", offsetof(rsd_convert_opts, carry), RSD_NEVER },
    { "rsd_part_opts", "sync", offsetof(rsd_part_opts, sync), RSD_NEVER },
    { "rsd_part_opts", "checksum", offsetof(rsd_part_opts, checksum), RSD_NEVER },
    { "rsd_publish_opts", "sync", offsetof(rsd_publish_opts, sync), RSD_NEVER },
    { "rsd_publish_opts", "checksum", offsetof(rsd_publish_opts, checksum), RSD_NEVER },
    { "rsd_reshard_opts", "direct", offsetof(rsd_reshard_opts, direct), RSD_NEVER },
};

static rsd_err check_choices(const void *known, const char *name, rsd_error *err)
{
    for (size_t i = 0; i < sizeof(choices) / sizeof(choices[0]); i++) {
        int value;

        if (strcmp(choices[i].name, name) != 0)
            continue;
        memcpy(&value, (const char *)known + choices[i].at, sizeof(value));
        if (value < 0 || value > choices[i].most)
            return rsi_fail(err, RSD_E_INVALID, "%s.%s is %d: known values are 0 to %d", name,
                            choices[i].field, value, choices[i].most);
    }
    return RSD_OK;
}

_Static_assert(sizeof(rsd_choice) == sizeof(int) && sizeof(rsd_format) == sizeof(int),
               "an enum is kept as an int");

static rsd_err check_size(size_t size, const char *name, rsd_error *err)
{
    if (size < sizeof(size) || size > SIZE_MOST)
        return rsi_fail(err, RSD_E_INVALID, "%s.size is %zu: set it to sizeof(%s)", name, size,
                        name);
    return RSD_OK;
}

rsd_err rsi_opts_take(void *known, size_t bytes, const void *opts, const char *name, rsd_error *err)
{
    const unsigned char *from = opts;
    size_t               size;
    rsd_err              rc;

    if (!opts)
        return RSD_OK;
    memcpy(&size, opts, sizeof(size));
    rc = check_size(size, name, err);
    if (rc)
        return rc;
    for (size_t i = bytes; i < size; i++)
        if (from[i])
            return rsi_fail(
                err, RSD_E_INVALID,
                "%s has %zu bytes, of which reshard knows %zu in version %s: the rest must be zero",
                name, size, bytes, rsd_version());
    memcpy(known, opts, size < bytes ? size : bytes);
    memcpy(known, &bytes, sizeof(bytes));
    return check_choices(known, name, err);
}

rsd_err rsi_result_check(const void *out, const char *name, rsd_error *err)
{
    size_t size;

    if (!out)
        return rsi_fail(err, RSD_E_INVALID, "missing argument: the %s to fill", name);
    memcpy(&size, out, sizeof(size));
    return check_size(size, name, err);
}

void rsi_result_give(void *out, const void *known, size_t bytes)
{
    size_t size;

    memcpy(&size, out, sizeof(size));
    memcpy(out, known, size < bytes ? size : bytes);
    memcpy(out, &size, sizeof(size));
}
