/* SPDX-License-Identifier: Apache-2.0 */
/* An invalid argument on one rank is an error on all ranks; none of them waits. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "ranks_threads.h"

int main(void)
{
    return run_suite("arguments_of_one_rank", ranks_arguments);
}
