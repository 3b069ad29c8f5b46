/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that give other options, or call another function, than the others: one error on all. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "ranks_threads.h"

int main(void)
{
    return run_suite("options_differ", ranks_options);
}
