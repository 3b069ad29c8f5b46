/* SPDX-License-Identifier: Apache-2.0 */
/* nanotron's checkpoints: below model/ one safetensors file for each parameter, or for each
 * tensor-parallel part of it, in folders named like the parameter. A part's metadata say which
 * slices of the whole it has. */
#ifndef RSI_ST_NANOTRON_H
#define RSI_ST_NANOTRON_H

#include "format/files.h"
#include "format/st_dcp.h"

/* True if a folder with these names is such a checkpoint. */
bool rsi_nanotron_is(char *const *names, size_t n);
/* The files below model/, relative to the checkpoint, sorted; in files->mem. */
rsd_err rsi_nanotron_list(rsi_files *files, char ***out, size_t *n, rsd_error *err);
/* Gives the file's only tensor its parameter's name and cuts it into the parts that its metadata
 * list; *dcp, empty before, says where they lie. */
rsd_err rsi_nanotron_parts(const char *path, rsi_st_header *header, rsi_st_dcp *dcp,
                           rsd_error *err);

#endif
