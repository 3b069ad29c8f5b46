/* SPDX-License-Identifier: Apache-2.0 */
/* Human order of names: numbers by value, so that layers.2 comes before layers.10, and a dot before
 * all else, so that everything below one name stays together. */
#include "cli.h"

#include <ctype.h>
#include <string.h>

/* Compares two runs of digits and skips them: by value, then the shorter one, with fewer zeros. */
static int compare_numbers(const char **a, const char **b)
{
    const size_t la = strspn(*a, "0123456789"), lb = strspn(*b, "0123456789");
    const size_t za = strspn(*a, "0"), zb = strspn(*b, "0");
    const size_t na = la > za ? la - za : 0, nb = lb > zb ? lb - zb : 0;
    int          c = na != nb ? (na < nb ? -1 : 1) : memcmp(*a + la - na, *b + lb - nb, na);

    *a += la;
    *b += lb;
    return c ? c : (la > lb) - (la < lb);
}

int name_compare(const char *a, const char *b)
{
    int c = 0;

    while (!c && *a && *b) {
        if (isdigit((unsigned char)*a) && isdigit((unsigned char)*b)) {
            c = compare_numbers(&a, &b);
        } else {
            const int x = *a == '.' ? 0 : (unsigned char)*a, y = *b == '.' ? 0 : (unsigned char)*b;

            c = x - y;
            a++;
            b++;
        }
    }
    return c ? c : (*a != '\0') - (*b != '\0');
}

bool name_below(const char *name, const char *top)
{
    const size_t len = strlen(top);

    return strncmp(name, top, len) == 0 && name[len] == '.';
}
