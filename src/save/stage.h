/* SPDX-License-Identifier: Apache-2.0 */
/* A copy of the bytes that this rank will write, so that the caller may change its tensors
 * meanwhile. The state keeps the memory from one save to the next. */
#ifndef RSI_STAGE_H
#define RSI_STAGE_H

#include "save/save.h"

/* Staging memory: huge pages where the system has them. */
typedef struct rsi_stage_memory {
    unsigned char *at;
    size_t         bytes;
} rsi_stage_memory;

typedef struct rsi_stage {
    rsi_stage_memory *mem;
    rsd_state         state; /* the job's tensors, with views into `mem` */
    rsd_view         *view;
    rsi_out_part    **bytes; /* [nbytes] parts of the image that now point here, */
    const void      **was;   /* [nbytes] and where they pointed before */
    size_t            nbytes;
    const rsd_state  *real;
} rsi_stage;

/* Copies with several threads. From then on job->state and the image refer to the copies. Call
 * rsi_stage_end even after a failure. [local] */
rsd_err rsi_stage_make(rsi_stage *stage, rsi_save_job *job, const rsd_state *home, rsd_error *err);
/* Checks that all bytes that this rank is to write are present. Part of the above. [local] */
rsd_err rsi_stage_check(const rsi_save_job *job, rsd_error *err);
/* Undoes that; `home`, the caller's state, keeps the memory. */
void rsi_stage_end(rsi_stage *stage, rsi_save_job *job, const rsd_state *home);

/* Gets at least `bytes` bytes: the memory kept by `home`, or new. */
rsd_err rsi_stage_take(const rsd_state *home, size_t bytes, rsi_stage_memory **out, rsd_error *err);
void    rsi_stage_give(const rsd_state *home, rsi_stage_memory *mem); /* NULL is fine */
void    rsi_stage_forget(const rsd_state *home);                      /* frees the kept memory */
void    rsi_stage_move(const rsd_state *to, const rsd_state *from);   /* moves it */

#endif
