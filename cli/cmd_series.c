/* SPDX-License-Identifier: Apache-2.0 */
/* reshard series: lists the steps in a folder, names the latest complete one, removes old ones. */
#include "cli.h"

#include <errno.h>
#include <inttypes.h>
#include <reshard/reshard_folder.h>
#include <string.h>
#include <sys/stat.h>

static int say_removed(void *arg, const rsd_step *step)
{
    const args *a = arg;

    fprintf(stdout, args_has(a, "dry-run") ? "would remove " : "removed ");
    print_safe(stdout, step->name);
    fputc('\n', stdout);
    return 0;
}

static int prune(const args *a, rsd_series *series)
{
    rsd_prune_opts opts = { .size = sizeof(opts),
                            .last = args_number(a, "keep", 1),
                            .every = args_number(a, "every", 0),
                            .dry_run = args_has(a, "dry-run"),
                            .on_remove = say_removed,
                            .arg = (void *)(uintptr_t)a };
    rsd_error      err = { .msg = "" };

    return rsd_series_prune(series, NULL, &opts, &err) ? fail(a, &err) : EXIT_DONE;
}

/* One line for each: the step, its name, and whether it can be opened. */
static int list(const args *a, const rsd_series *series)
{
    for (size_t i = 0; i < rsd_series_count(series); i++) {
        rsd_step  step = { .size = sizeof(step) };
        rsd_error err = { .msg = "" };
        rsd_ckpt *ckpt = NULL;
        char      path[8192];

        if (rsd_series_step(series, i, &step, &err))
            return fail(a, &err);
        rsd_series_path(series, step.step, path, sizeof(path));
        rsd_ckpt_open(NULL, path, &ckpt, NULL);
        fprintf(stdout, "%" PRId64 "\t%s\t", step.step, ckpt ? "complete" : "incomplete");
        print_safe(stdout, step.name);
        fputc('\n', stdout);
        rsd_ckpt_close(ckpt);
    }
    return EXIT_DONE;
}

static int latest(const args *a, rsd_series *series)
{
    rsd_error err = { .msg = "" };
    char      path[8192];
    int64_t   step;

    if (rsd_series_latest(series, NULL, &step, &err))
        return fail(a, &err);
    rsd_series_path(series, step, path, sizeof(path));
    print_safe(stdout, path);
    fputc('\n', stdout);
    return EXIT_DONE;
}

static bool is_folder(const char *path)
{
    struct stat st;

    if (stat(path, &st) != 0)
        return false;
    errno = ENOTDIR;
    return S_ISDIR(st.st_mode);
}

static int run(const args *a)
{
    rsd_error   err = { .msg = "" };
    rsd_series *series;
    int         code;

    if ((args_has(a, "every") || args_has(a, "dry-run")) && !args_has(a, "keep"))
        return misuse(a, "--every and --dry-run need --keep");
    if (args_has(a, "latest") && args_has(a, "keep"))
        return misuse(a, "--latest only prints, --keep removes: choose one");
    if (args_has(a, "keep") && args_number(a, "keep", 1) < 1)
        return misuse(a, "--keep \"0\": at least one checkpoint has to stay");
    /* The library takes a missing one for a run that has not saved yet. */
    if (!is_folder(a->operand[0]))
        return refuse(a, EXIT_COULD_NOT, "could not open \"%s\": %s", a->operand[0],
                      strerror(errno));
    if (rsd_series_open(NULL, a->operand[0], &series, &err))
        return fail(a, &err);
    code = args_has(a, "keep")     ? prune(a, series)
           : args_has(a, "latest") ? latest(a, series)
                                   : list(a, series);
    rsd_series_close(series);
    return code;
}

static const option_spec options[] = {
    { "latest", 0, OPT_FLAG, NULL, "print the path of the latest complete checkpoint" },
    { "keep", 0, OPT_COUNT, "N", "remove all complete checkpoints but the last N" },
    { "every", 0, OPT_COUNT, "M", "with --keep: also keep steps that are multiples of M" },
    { "dry-run", 0, OPT_FLAG, NULL, "with --keep: only say what would be removed" },
    { 0 },
};

const command cmd_series = {
    .name = "series",
    .line = "list the checkpoints of a run, remove old ones",
    .operands = "FOLDER",
    .min = 1,
    .max = 1,
    .options = options,
    .text =
        "Lists the checkpoints in a folder by step: entries whose names are a number, alone or "
        "behind \"step\", \"checkpoint\", \"ckpt\" (also with \"_\" or \"-\"), \"global_step\" "
        "or \"iter_\". A checkpoint is complete if it can be opened. --keep removes complete "
        "ones, with everything in their folders; each folder is renamed first, so that no "
        "reader finds half of one, and open checkpoints stay readable. Incomplete ones are kept.",
    .examples = "# where to resume\n"
                "reshard series run --latest\n"
                "# keep the last 3 and every 1000th\n"
                "reshard series run --keep 3 --every 1000 --dry-run\n",
    .run = run,
};
