/* SPDX-License-Identifier: Apache-2.0 */
/* Temporary folders for commands. */
#include "cli.h"

#include <errno.h>
#include <ftw.h>
#include <stdlib.h>
#include <string.h>

int scratch_make(const args *a, const char *dir, char **out)
{
    static const char name[] = "/reshard-XXXXXX";
    const size_t      cap = strlen(dir) + sizeof(name);
    char             *folder = malloc(cap);

    if (!folder)
        return refuse(a, EXIT_COULD_NOT, "no memory for a name");
    snprintf(folder, cap, "%s%s", dir, name);
    if (!mkdtemp(folder)) {
        free(folder);
        return refuse(a, EXIT_COULD_NOT, "could not create a folder in \"%s\": %s", dir,
                      strerror(errno));
    }
    *out = folder;
    return EXIT_DONE;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st, (void)type, (void)at;
    return remove(path);
}

void scratch_remove(char *folder)
{
    if (folder)
        nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    free(folder);
}
