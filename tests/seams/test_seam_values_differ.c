/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks give values of other lengths under one name (host names, positions, states of generators):
 * what is saved is one of them, and can be read. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "ranks_threads.h"

int main(void)
{
    return run_suite("values", ranks_values);
}
