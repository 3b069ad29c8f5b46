/* SPDX-License-Identifier: Apache-2.0 */
/* The tool: finds the command, parses its options (args.c), runs it and ends (ending.c). Under
 * mpirun, rank 0 alone runs commands that don't use ranks. */
#include "cli.h"

#include <string.h>
#include <sys/resource.h>

enum { MOST_FILES = 65536 };

const command *const commands[] = {
    &cmd_inspect, &cmd_cat,        &cmd_verify, &cmd_diff,   &cmd_plan,
    &cmd_convert, &cmd_manifest,   &cmd_recipe, &cmd_series, &cmd_demo,
    &cmd_bench,   &cmd_completion, &cmd_help,   NULL,
};

const command *command_find(const char *name)
{
    for (const command *const *c = commands; *c; c++)
        if (strcmp((*c)->name, name) == 0)
            return *c;
    return NULL;
}

static int unknown_command(const char *name)
{
    const char *word[32];
    size_t      n = 0;
    const char *near;

    if (name[0] == '-')
        return misuse(NULL, "unknown option \"%s\" before the command", name);
    for (const command *const *c = commands; *c && n < 31; c++)
        word[n++] = (*c)->name;
    word[n] = NULL;
    near = nearest(name, word);
    if (near)
        return misuse(NULL, "unknown command \"%s\"; did you mean \"%s\"?", name, near);
    return misuse(NULL, "unknown command \"%s\"", name);
}

static int run_command(const command *cmd, int argc, char **argv)
{
    args      a = { 0 };
    rsd_error err = { .msg = "" };
    int       code;

    /* Help works even if MPI does not. */
    if (rsd_comm_create_launched(&a.comm, &err) && cmd != &cmd_help && cmd != &cmd_completion)
        return fail(&a, &err);
    code = args_parse(&a, cmd, argc, (const char *const *)argv);
    if (!code && a.help) {
        if (speaks(&a))
            help_command(stdout, cmd);
    } else if (!code && (cmd->ranks || speaks(&a))) {
        code = cmd->run(&a);
    }
    args_free(&a);
    rsd_comm_set_timeout(a.comm, INT64_MAX, NULL); /* rank 0 may work alone for a long time */
    rsd_comm_free(a.comm);
    return code;
}

/* Checkpoints may have thousands of files, which the library opens and closes as needed; keeping
 * all of them open is faster, and lets an overwritten checkpoint be read to its end. */
static void raise_limit(void)
{
    struct rlimit limit;
    rlim_t        want;

    if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
        return;
    want = limit.rlim_max < MOST_FILES ? limit.rlim_max : MOST_FILES;
    if (limit.rlim_cur >= want)
        return;
    limit.rlim_cur = want;
    setrlimit(RLIMIT_NOFILE, &limit); /* on failure the limit is unchanged */
}

int main(int argc, char **argv)
{
    const command *cmd;

    raise_limit();
    output_begin();
    if (argc < 2)
        return misuse(NULL, "no command given");
    if (strcmp(argv[1], "--version") == 0) {
        printf("reshard %s\n", rsd_version());
        return finish_output(EXIT_DONE);
    }
    if (strcmp(argv[1], "__complete") == 0)
        return finish_output(complete_words(argc - 2, (const char *const *)argv + 2));
    cmd = strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ? &cmd_help
                                                                       : command_find(argv[1]);
    if (!cmd)
        return unknown_command(argv[1]);
    return finish_output(run_command(cmd, argc - 2, argv + 2));
}
