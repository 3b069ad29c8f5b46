/* SPDX-License-Identifier: Apache-2.0 */
/* Puts the parts of the suite together. Next: comm_suite_messages.c. */
#include "comm_suite.h"

#include <stdlib.h>

unsigned char suite_byte(int32_t from, size_t id, size_t i)
{
    return (unsigned char)((size_t)from * 31 + id * 7 + i + i / 251);
}

unsigned char *suite_message(int32_t from, size_t id, size_t bytes)
{
    unsigned char *data = malloc(bytes + 1);

    for (size_t i = 0; data && i < bytes; i++)
        data[i] = suite_byte(from, id, i);
    return data;
}

bool suite_is_message(const unsigned char *data, int32_t from, size_t id, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (data[i] != suite_byte(from, id, i))
            return false;
    return true;
}

const comm_case *comm_suite(size_t i)
{
    const comm_case *const part[] = { comm_suite_messages, comm_suite_collectives,
                                      comm_suite_groups, comm_suite_end };

    for (size_t p = 0; p < sizeof(part) / sizeof(part[0]); p++)
        for (const comm_case *c = part[p]; c->name; c++)
            if (i-- == 0)
                return c;
    return NULL;
}
