/* SPDX-License-Identifier: Apache-2.0 */
/* The tool: finds the command and calls it. Help goes to stdout, misuse to stderr. */
#include "cli.h"

#include <string.h>

static const struct command {
    const char *name, *line;
    int (*run)(int argc, char **argv);
} commands[] = {
    { "demo", "draw two layouts of a tensor and the plan between them", cmd_demo },
};
#define NCOMMANDS (sizeof(commands) / sizeof(commands[0]))

static const struct command *find(const char *name)
{
    for (size_t i = 0; i < NCOMMANDS; i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    return NULL;
}

static int help(void)
{
    printf("usage: reshard COMMAND [ARGUMENTS]\n\n");
    for (size_t i = 0; i < NCOMMANDS; i++)
        printf("  %-10s %s\n", commands[i].name, commands[i].line);
    printf("  %-10s %s\n", "help", "this text, or `reshard help COMMAND`");
    printf("\n  --version  which version this is\n");
    return EXIT_DONE;
}

static int help_for(const char *name)
{
    const struct command *command = find(name);

    if (!command) {
        fprintf(stderr, "reshard: there is no command \"%s\"; see `reshard help`\n", name);
        return EXIT_MISUSE;
    }
    printf("usage: reshard %s\n\n  %s\n", command->name, command->line);
    return EXIT_DONE;
}

int main(int argc, char **argv)
{
    const struct command *command;

    if (argc < 2) {
        fprintf(stderr, "reshard: a command is needed; see `reshard help`\n");
        return EXIT_MISUSE;
    }
    if (strcmp(argv[1], "--version") == 0) {
        printf("reshard %s\n", rsd_version());
        return EXIT_DONE;
    }
    if (strcmp(argv[1], "help") == 0 || strcmp(argv[1], "--help") == 0 ||
        strcmp(argv[1], "-h") == 0)
        return argc > 2 ? help_for(argv[2]) : help();
    command = find(argv[1]);
    if (!command) {
        fprintf(stderr, "reshard: there is no command \"%s\"; see `reshard help`\n", argv[1]);
        return EXIT_MISUSE;
    }
    return command->run(argc - 1, argv + 1);
}
