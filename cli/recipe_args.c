/* SPDX-License-Identifier: Apache-2.0 */
/* Finds and reads recipes and the numbers that they need. */
#include "recipe_args.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MOST ((off_t)16 << 20) /* bytes of a recipe or a config */

static int read_file(const args *a, const char *path, char **out, size_t *len)
{
    FILE       *file = fopen(path, "rb");
    struct stat st;
    char       *text = NULL;
    int         code = EXIT_DONE;

    if (!file || fstat(fileno(file), &st))
        code = refuse(a, EXIT_COULD_NOT, "could not open \"%s\": %s", path, strerror(errno));
    else if (!S_ISREG(st.st_mode) || st.st_size > FILE_MOST)
        code = refuse(a, EXIT_COULD_NOT, "\"%s\" is not a file of at most 16 MiB", path);
    if (!code) {
        text = calloc((size_t)st.st_size + 1, 1);
        *len = text ? fread(text, 1, (size_t)st.st_size, file) : 0;
        if (!text || ferror(file))
            code = refuse(a, EXIT_COULD_NOT, "could not read \"%s\"", path);
    }
    if (file)
        fclose(file);
    if (code)
        free(text);
    else
        *out = text;
    return code;
}

bool recipe_folder(char *buf, size_t cap)
{
    static const char *const below[] = { "../share/reshard/recipes", "../recipes" };
    const char              *own = getenv("RESHARD_RECIPES");
    char                     exe[4096], path[sizeof(exe) + 64];
    ssize_t                  n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
    bool                     found = own && *own;
    struct stat              st;

    snprintf(path, sizeof(path), "%s", found ? own : "");
    exe[n > 0 ? n : 0] = '\0';
    if (!found && n > 0)
        *strrchr(exe, '/') = '\0';
    for (size_t i = 0; i < sizeof(below) / sizeof(below[0]) && !found && n > 0; i++) {
        snprintf(path, sizeof(path), "%s/%s", exe, below[i]);
        found = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    }
    return found && memccpy(buf, path, '\0', cap); /* false: it does not fit */
}

int recipe_text(const args *a, const char *name, char **out)
{
    char        folder[4096 + 64], path[8192];
    struct stat st;
    size_t      len;
    const char *from = name;
    int         code;

    if (stat(name, &st) != 0 && !strchr(name, '/') && recipe_folder(folder, sizeof(folder))) {
        snprintf(path, sizeof(path), "%s/%s.recipe", folder, name);
        if (stat(path, &st) == 0)
            from = path;
    }
    if (from == name && stat(name, &st) != 0 && !strchr(name, '/'))
        return refuse(a, EXIT_COULD_NOT,
                      "recipe \"%s\": no file has that name, and none of `reshard recipe list`",
                      name);
    code = read_file(a, from, out, &len);
    if (!code && memchr(*out, '\0', len)) {
        free(*out);
        *out = NULL;
        code = refuse(a, EXIT_MISUSE, "recipe \"%s\": it is not text: it has a NUL byte", name);
    }
    return code;
}

static int set_number(const args *a, rsd_recipe *recipe, const char *text)
{
    const char *sign = strchr(text, '=');
    char        name[64], *end;
    rsd_error   err = { .msg = "" };
    double      value;

    if (!sign || sign == text || (size_t)(sign - text) >= sizeof(name))
        return misuse(a, "--set \"%s\": expected NAME=N", text);
    memcpy(name, text, (size_t)(sign - text));
    name[sign - text] = '\0';
    value = strtod(sign + 1, &end);
    if (strcmp(sign + 1, "true") == 0 || strcmp(sign + 1, "false") == 0)
        value = sign[1] == 't';
    else if (!sign[1] || *end)
        return misuse(a, "--set \"%s\": \"%s\" is not a number", text, sign + 1);
    return rsd_recipe_set(recipe, name, value, &err) ? misuse(a, "--set: %s", err.msg) : EXIT_DONE;
}

static int set_config(const args *a, rsd_recipe *recipe, const char *path)
{
    rsd_error err = { .msg = "" };
    char     *text;
    size_t    len;
    int       code = read_file(a, path, &text, &len);

    if (code)
        return code;
    if (rsd_recipe_config(recipe, text, len, &err))
        code = refuse(a, EXIT_MISUSE, "config \"%s\": %s", path, err.msg);
    free(text);
    return code;
}

int recipe_read(const args *a, const char *name, rsd_recipe **out)
{
    rsd_recipe *recipe = NULL;
    rsd_error   err = { .msg = "" };
    char       *text = NULL;
    int         code = recipe_text(a, name, &text);

    if (!code && rsd_recipe_parse(text, args_has(a, "reverse"), &recipe, &err))
        code = err.code == RSD_E_INVALID
                   ? refuse(a, EXIT_MISUSE, "recipe \"%s\": %s", name, err.msg)
                   : fail(a, &err);
    free(text);
    for (size_t i = 0; i < args_count(a, "config") && !code; i++)
        code = set_config(a, recipe, args_at(a, "config", i));
    for (size_t i = 0; i < args_count(a, "set") && !code; i++)
        code = set_number(a, recipe, args_at(a, "set", i));
    if (code)
        rsd_recipe_free(recipe);
    else
        *out = recipe;
    return code;
}

const char *made_of(const rsd_made *made, char *buf, size_t cap)
{
    char how[64];

    snprintf(how, sizeof(how), "%s%s%s", made->tied ? " (tied)" : "",
             made->reordered ? " (reordered)" : "", made->scaled ? " (scaled)" : "");
    if (made->nfrom == 0)
        snprintf(buf, cap, "constants");
    else if (made->nfrom <= 3)
        snprintf(buf, cap, "%s%s%s%s%s%s", made->from[0], made->nfrom > 1 ? ", " : "",
                 made->nfrom > 1 ? made->from[1] : "", made->nfrom > 2 ? ", " : "",
                 made->nfrom > 2 ? made->from[2] : "", how);
    else
        snprintf(buf, cap, "%s .. %s, %zu tensors%s", made->from[0], made->from[made->nfrom - 1],
                 made->nfrom, how);
    return buf;
}
