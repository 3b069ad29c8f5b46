/* SPDX-License-Identifier: Apache-2.0 */
/* The catalogue of a DCP checkpoint: is it, byte for byte, what its metadata make? Opening ignores
 * a catalogue that is damaged or of other metadata, so this is where that is said. Next:
 * hash_rows.c. */
#include "base/mem.h"
#include "format/dcp.h"
#include "format/dcp_catalogue.h"
#include "verify/verify_core.h"

#include <string.h>

static rsd_err compare(rsi_file *file, const rsi_bytes *want, rsd_error *why)
{
    unsigned char *is = NULL;
    rsd_err        rc = RSD_OK;

    if (file->size == want->len && want->len) {
        is = rsi_alloc_aligned(64, want->len);
        rc = is ? rsi_file_read(file, 0, is, want->len, why)
                : rsi_fail(why, RSD_E_NOMEM, "no memory for a catalogue of %zu bytes", want->len);
    }
    if (!rc && (!is || memcmp(is, want->at, want->len) != 0))
        rc = rsi_fail(why, RSD_E_CORRUPT,
                      "it does not match the metadata and is ignored; `reshard manifest "
                      "--overwrite` replaces or removes it");
    rsi_free(is);
    return rc ? rsi_while(why, rc, "catalogue \"%s\"", file->name) : RSD_OK;
}

rsd_err rsi_verify_catalogue(rsi_verifying *v, rsd_error *err)
{
    rsi_damage damage = { .kind = RSI_DAMAGE_SIDE, .first = v->ckpt->files.n, .what.rank = -1 };
    rsi_file  *file = NULL;
    rsi_bytes  want = { 0 };
    rsd_err    rc;

    if (v->ckpt->format != RSD_FORMAT_DCP || v->ckpt->files.single || !rsi_hash128_available() ||
        rsi_files_open_beside(&v->ckpt->files, RSI_CATALOGUE_NAME, false, &file, NULL))
        return RSD_OK;
    rc = rsi_dcp_make_catalogue(v->ckpt, &want, &damage.what);
    if (!rc)
        rc = compare(file, &want, &damage.what);
    rsi_file_close(file, NULL);
    rsi_free(want.at);
    if (rc == RSD_E_NOMEM && err)
        *err = damage.what;
    return rc && rc != RSD_E_NOMEM ? rsi_verify_note(v, &damage, err) : rc;
}
