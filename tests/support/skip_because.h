/* SPDX-License-Identifier: Apache-2.0 */
#ifndef SKIP_BECAUSE_H
#define SKIP_BECAUSE_H

/* cmocka's skip(), with a line that says why. Include <cmocka.h> too. */
#define skip_because(why)                                                                          \
    do {                                                                                           \
        print_message("%s\n", why);                                                                \
        skip();                                                                                    \
    } while (0)

#endif
