/* SPDX-License-Identifier: Apache-2.0 */
/* Opens what the command line names: checkpoints, layouts, objects. */
#include "cli.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MOST_RULES ((off_t)16 << 20) /* bytes of a rules file */

static int open_with(const args *a, const char *path, bool salvage, rsd_ckpt **out)
{
    const rsd_open_opts opts = { .size = sizeof(opts), .salvage = salvage };
    rsd_error           err = { .msg = "" };
    rsd_err             rc = rsd_ckpt_open_with(NULL, path, &opts, out, &err);
    struct stat         st;

    if (rc == RSD_E_NOTFOUND && stat(path, &st) == 0) /* a file that its metadata refer to */
        return refuse(a, EXIT_INVALID, "%s", err.msg);
    return rc ? fail(a, &err) : EXIT_DONE;
}

int source_open(const args *a, const char *path, rsd_ckpt **out)
{
    return open_with(a, path, false, out);
}

int source_salvage(const args *a, const char *path, rsd_ckpt **out)
{
    return open_with(a, path, true, out);
}

static int read_rules(const args *a, const char *path, off_t size, char **out)
{
    FILE  *in = fopen(path, "re");
    char  *text = NULL;
    size_t got;
    int    code = EXIT_DONE;

    if (!in)
        return refuse(a, EXIT_COULD_NOT, "could not open \"%s\": %s", path, strerror(errno));
    if (size > MOST_RULES) {
        code = refuse(a, EXIT_MISUSE, "\"%s\" is too long for a layout", path);
        goto out;
    }
    text = calloc(1, (size_t)size + 1);
    if (!text) {
        code = refuse(a, EXIT_COULD_NOT, "no memory for the layout in \"%s\"", path);
        goto out;
    }
    got = fread(text, 1, (size_t)size, in);
    if (ferror(in))
        code = refuse(a, EXIT_COULD_NOT, "could not read \"%s\": %s", path, strerror(errno));
    else if (strlen(text) != got)
        code = refuse(a, EXIT_MISUSE, "\"%s\" is binary, not a layout", path);
out:
    fclose(in);
    if (code)
        free(text);
    else
        *out = text;
    return code;
}

int source_rules(const args *a, const char *spec, rsd_rules **out)
{
    struct stat st;
    rsd_error   err = { .msg = "" };
    char       *text = NULL;
    bool        is_file;
    rsd_err     rc;

    is_file = stat(spec, &st) == 0 && S_ISREG(st.st_mode);
    if (is_file) {
        int code = read_rules(a, spec, st.st_size, &text);

        if (code)
            return code;
    }
    rc = rsd_rules_parse(text ? text : spec, out, &err);
    free(text);
    if (!rc)
        return EXIT_DONE;
    if (rc == RSD_E_INVALID && !is_file && !strpbrk(spec, " ;\n"))
        return refuse(a, EXIT_MISUSE, "layout \"%s\" is neither a file nor a mesh with rules",
                      spec);
    if (rc == RSD_E_INVALID)
        return refuse(a, EXIT_MISUSE, "layout \"%s\": %s", spec, err.msg);
    return fail(a, &err);
}

int source_object(const args *a, rsd_ckpt *ckpt, size_t i, bool json, const char **name, char **out)
{
    rsd_error        err = { .msg = "" };
    rsd_values      *owner = NULL;
    const rsd_value *value;
    char            *text = NULL;
    size_t           len;
    rsd_err          rc = rsd_values_create(&owner, &err);

    if (!rc)
        rc = rsd_ckpt_object(ckpt, i, name, owner, &value, &err);
    if (rc) {
        rsd_values_free(owner);
        return fail(a, &err);
    }
    len = json ? rsd_value_json(value, NULL, 0) : rsd_value_text(value, NULL, 0);
    text = malloc(len + 1);
    if (text && json)
        rsd_value_json(value, text, len + 1);
    else if (text)
        rsd_value_text(value, text, len + 1);
    rsd_values_free(owner);
    if (!text)
        return refuse(a, EXIT_COULD_NOT, "no memory for the object \"%s\"", *name);
    *out = text;
    return EXIT_DONE;
}
