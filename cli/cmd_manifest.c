/* SPDX-License-Identifier: Apache-2.0 */
/* reshard manifest: adds a checksum file to a checkpoint that was made elsewhere. */
#include "cli.h"

#include <string.h>
#include <sys/stat.h>

/* "wrote model.pt.reshard-sums: checksums of 1.5 GiB" */
static void say_end(const args *a, const progress *bar)
{
    const char *path = a->operand[0];
    size_t      len = strlen(path);
    struct stat st;
    char        size[32];

    if (args_has(a, "quiet"))
        return;
    fprintf(stderr, "reshard: wrote ");
    print_safe(stderr, path);
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        fprintf(stderr, len && path[len - 1] == '/' ? "" : "/");
    fprintf(stderr, ".reshard-sums: checksums of %s\n",
            size_text((uint64_t)bar->total, size, sizeof(size)));
}

static int run(const args *a)
{
    rsd_checksum_opts opts = { .size = sizeof(opts),
                               .overwrite = args_has(a, "overwrite"),
                               .threads = args_number(a, "threads", 0),
                               .on_progress = progress_step };
    rsd_error         err = { .msg = "" };
    progress          bar;
    rsd_err           rc;

    progress_begin(&bar, a, "reading");
    opts.arg = &bar;
    rc = rsd_ckpt_add_checksums(NULL, a->operand[0], &opts, &err);
    progress_end(&bar);
    if (rc == RSD_E_EXISTS && !opts.overwrite)
        return refuse(a, EXIT_COULD_NOT, "%s; --overwrite replaces it", err.msg);
    if (rc)
        return fail(a, &err);
    say_end(a, &bar);
    return EXIT_DONE;
}

static const option_spec options[] = {
    { "overwrite", 0, OPT_FLAG, NULL, "replace an existing checksum file" },
    { "threads", 'j', OPT_COUNT, "N", "number of threads; default: all processors" },
    OPTIONS_PROGRESS,
    { 0 },
};

const command cmd_manifest = {
    .name = "manifest",
    .line = "add checksums to a checkpoint made elsewhere",
    .operands = "CKPT",
    .min = 1,
    .max = 1,
    .options = options,
    .text = "Reads all files of a checkpoint and writes their checksums to the checksum file "
            "\".reshard-sums\" in its folder, or \"NAME.reshard-sums\" beside a checkpoint that is "
            "one file. From then on `reshard verify` finds every changed byte and names the tensor "
            "it belongs to. The checkpoint itself is not changed, and other programs ignore the "
            "new file. Checkpoints written by reshard already have one. A DCP checkpoint with more "
            "than 1 MiB of metadata also gets a catalogue, with which it opens faster.",
    .examples = "# before sending it elsewhere\n"
                "reshard manifest step-1000\n",
    .run = run,
};
