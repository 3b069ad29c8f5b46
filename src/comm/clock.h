/* SPDX-License-Identifier: Apache-2.0 */
/* The monotonic clock that deadlines use. */
#ifndef RSI_CLOCK_H
#define RSI_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline int64_t rsi_clock_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static inline int64_t rsi_clock_ms(void)
{
    return rsi_clock_ns() / 1000000;
}

#endif
