/* SPDX-License-Identifier: Apache-2.0 */
/* The suite of live_suite.c on forked processes that UCX connects. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "forked_ranks.h"

int main(void)
{
    return forked_suite("live_ucx", 1, (const int[]){ FORKED_UCX }, NULL, 0);
}
