/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a fuzz target over files, so that what fuzzing found once is tested for ever, by any
 * compiler: every file named on the command line and every file below each folder named there. The
 * target is linked in. */
#include <dirent.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_DEPTH = 8, PATH_BYTES = 4096 };

static size_t ran;

static int complain(const char *path)
{
    fprintf(stderr, "%s: %s\n", path, strerror(errno));
    return 1;
}

/* The bytes are in memory of exactly their size, so that a sanitizer sees a read behind them. */
static int run_file(const char *path, size_t size)
{
    FILE    *file = fopen(path, "rb");
    uint8_t *bytes = malloc(size ? size : 1);
    size_t   got = file && bytes ? fread(bytes, 1, size, file) : 0;
    int      failed = !file || !bytes || got != size;

    if (file)
        fclose(file);
    if (failed) {
        free(bytes);
        return complain(path);
    }
    LLVMFuzzerTestOneInput(bytes, size);
    free(bytes);
    ran++;
    return 0;
}

static int run_path(const char *path, int depth)
{
    struct stat    st;
    struct dirent *entry;
    DIR           *folder;
    int            failed = 0;

    if (stat(path, &st) != 0)
        return complain(path);
    if (!S_ISDIR(st.st_mode))
        return run_file(path, (size_t)st.st_size);
    folder = depth < MAX_DEPTH ? opendir(path) : NULL;
    if (!folder)
        return complain(path);
    while (!failed && (entry = readdir(folder)) != NULL) {
        char below[PATH_BYTES];
        int  len = snprintf(below, sizeof(below), "%s/%s", path, entry->d_name);

        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 && len > 0 &&
            (size_t)len < sizeof(below))
            failed = run_path(below, depth + 1);
    }
    closedir(folder);
    return failed;
}

int main(int argc, char **argv)
{
    int failed = 0;

    for (int i = 1; i < argc; i++)
        failed |= run_path(argv[i], 0);
    printf("%zu inputs\n", ran);
    return failed || ran == 0;
}
