/* SPDX-License-Identifier: Apache-2.0 */
/* The one function of the library that is built with UCX, which ucx_plugin.c loads. */
#ifndef RSI_UCX_PLUGIN_H
#define RSI_UCX_PLUGIN_H

#include <reshard/reshard_plugin.h>

#define RSI_UCX_SYMBOL "rsd_ucx_transport"

/* All fields of *with are known. [collective] */
RSD_API rsd_err rsd_ucx_transport(int32_t rank, int32_t count, const rsd_meeting *with,
                                  const rsd_comm_ops **ops, void **self, rsd_error *err);

/* The ranks that meet in the folder RESHARD_MEET; their number and count are in other variables.
 * `env` is getenv, or a test's. [collective] */
rsd_err rsi_comm_create_met(const char *(*env)(const char *name), rsd_comm **out, rsd_error *err);

#endif
