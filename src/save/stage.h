/* SPDX-License-Identifier: Apache-2.0 */
/* The bytes that this rank will write, copied, so that the caller may change its tensors while they
 * are written. The memory is kept in the state from one save to the next. */
#ifndef RSI_STAGE_H
#define RSI_STAGE_H

#include "save/save.h"

/* Memory of stages: huge pages where the system has them. */
typedef struct rsi_stage_memory {
    unsigned char *at;
    size_t         bytes;
} rsi_stage_memory;

typedef struct rsi_stage {
    rsi_stage_memory *mem;
    rsd_state         state; /* the tensors of the job's, whose views are in `mem` */
    rsd_view         *view;
    rsi_out_part    **bytes; /* [nbytes] parts of the image that lead here now, */
    const void      **was;   /* [nbytes] and where they led before */
    size_t            nbytes;
    const rsd_state  *real;
} rsi_stage;

/* Copies, with several threads. From then on job->state and the image lead to the copies. After a
 * failure rsi_stage_end is called too. [local] */
rsd_err rsi_stage_make(rsi_stage *stage, rsi_save_job *job, const rsd_state *home, rsd_error *err);
/* Are all bytes there that this rank is to write? Part of the above. [local] */
rsd_err rsi_stage_check(const rsi_save_job *job, rsd_error *err);
/* Undoes that; `home`, the state that the caller gave, keeps the memory. */
void rsi_stage_end(rsi_stage *stage, rsi_save_job *job, const rsd_state *home);

/* At least so many bytes: those that `home` has kept, or new ones. */
rsd_err rsi_stage_take(const rsd_state *home, size_t bytes, rsi_stage_memory **out, rsd_error *err);
void    rsi_stage_give(const rsd_state *home, rsi_stage_memory *mem); /* NULL is fine */
void    rsi_stage_forget(const rsd_state *home);                      /* frees what it keeps */

#endif
