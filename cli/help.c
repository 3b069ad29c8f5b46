/* SPDX-License-Identifier: Apache-2.0 */
/* The help and the man pages, both from the table of commands. */
#include "cli.h"

#include <string.h>

#define TEXT_WIDTH 78
#define OPTION_COL 26 /* column of the options' explanations */

static const char exit_text[] =
    "  0        done\n"
    "  1        check failed: damage, a difference, no such tensor\n"
    "  2        usage error: invalid argument or value\n"
    "  3        operation failed: I/O, memory, ranks, a target that already exists\n"
    "  4        not a valid checkpoint\n"
    "  5        diff: no difference found, but something could not be compared\n"
    "  130 143  stopped by SIGINT or SIGTERM\n";

/* ---- wrapped text ---- */

/* Prints words from `text` up to a newline or the end, wrapped at TEXT_WIDTH or the width of a
 * narrower terminal; the first line starts at column `at`, the others are indented. Returns where
 * it stopped. */
static const char *fill(FILE *out, const char *text, size_t at, size_t indent)
{
    const int    screen = screen_width(out);
    const size_t most = screen > 0 && screen < TEXT_WIDTH ? (size_t)screen : TEXT_WIDTH;
    bool         first = true;

    while (*text && *text != '\n') {
        size_t len = strcspn(text, " \n");

        if (!first && at + 1 + len > most) {
            fprintf(out, "\n%*s", (int)indent, "");
            at = indent;
            first = true;
        }
        fprintf(out, "%s%.*s", first ? "" : " ", (int)len, text);
        at += len + !first;
        first = false;
        text += len;
        text += strspn(text, " ");
    }
    fputc('\n', out);
    return text;
}

/* Prints paragraphs; lines that start with two spaces are printed verbatim. */
static void paragraphs(FILE *out, const char *text)
{
    while (*text) {
        if (strncmp(text, "  ", 2) == 0) {
            size_t len = strcspn(text, "\n");

            fprintf(out, "%.*s\n", (int)len, text);
            text += len;
        } else {
            text = fill(out, text, 0, 0);
        }
        text += *text == '\n';
    }
}

/* ---- help ---- */

/* "-q, --quiet", "--format raw|npy|text" */
static void option_head(const option_spec *o, char *buf, size_t cap)
{
    const char *space = o->value ? " " : "", *value = o->value ? o->value : "";

    if (o->letter)
        snprintf(buf, cap, "-%c, --%s%s%s", o->letter, o->name, space, value);
    else
        snprintf(buf, cap, "--%s%s%s", o->name, space, value);
}

static void print_option(FILE *out, const option_spec *o)
{
    char head[128];

    option_head(o, head, sizeof(head));
    if (strlen(head) + 4 <= OPTION_COL)
        fprintf(out, "  %-*s", OPTION_COL - 2, head);
    else
        fprintf(out, "  %s\n%*s", head, OPTION_COL, "");
    fill(out, o->help, OPTION_COL, OPTION_COL);
}

static void synopsis(FILE *out, const command *cmd)
{
    fprintf(out, "reshard %s%s%s%s", cmd->name, cmd->options ? " [OPTIONS]" : "",
            *cmd->operands ? " " : "", cmd->operands);
}

void help_command(FILE *out, const command *cmd)
{
    static const option_spec help = { "help", 'h', OPT_FLAG, NULL, "print this text" };

    fprintf(out, "usage: ");
    synopsis(out, cmd);
    fprintf(out, "\n\n");
    paragraphs(out, cmd->text);
    fprintf(out, "\noptions:\n");
    for (const option_spec *o = cmd->options; o && o->name; o++)
        print_option(out, o);
    print_option(out, &help);
    if (cmd->examples) {
        fprintf(out, "\nexamples:\n");
        for (const char *at = cmd->examples; *at;) {
            size_t len = strcspn(at, "\n");

            fprintf(out, "  %.*s\n", (int)len, at);
            at += len + (at[len] == '\n');
        }
    }
}

void help_overview(FILE *out)
{
    fprintf(out, "usage: reshard COMMAND [OPTIONS] ...\n\n"
                 "Saves, loads, converts, verifies and reshards checkpoints of sharded tensors:\n"
                 "PyTorch DCP, safetensors, torch.save and DeepSpeed, detected by content.\n\n"
                 "commands:\n");
    for (const command *const *c = commands; *c; c++) {
        fprintf(out, "  %-10s  ", (*c)->name);
        fill(out, (*c)->line, 14, 14);
    }
    fprintf(out, "\n  --version   print the version\n\nexit codes:\n%s", exit_text);
    fprintf(out,
            "\nRun `reshard help COMMAND` for details, `reshard help formats` for the formats.\n");
}

/* ---- man pages ---- */

/* Text escaped for troff. */
static void plain(FILE *out, const char *text, size_t len)
{
    bool start = true;

    for (size_t i = 0; i < len; i++) {
        if (start && (text[i] == '.' || text[i] == '\''))
            fputs("\\&", out);
        start = text[i] == '\n';
        if (text[i] == '\\')
            fputs("\\e", out);
        else if (text[i] == '-')
            fputs("\\-", out);
        else if (text[i] == '`')
            fputs("\\(ga", out);
        else
            fputc(text[i], out);
    }
}

static void man_paragraphs(FILE *out, const char *text)
{
    while (*text) {
        size_t     len = strcspn(text, "\n");
        const bool as_is = strncmp(text, "  ", 2) == 0;

        if (len == 0)
            fputs(".PP\n", out);
        if (as_is)
            fputs(".nf\n", out);
        plain(out, text, len);
        fputs(len ? "\n" : "", out);
        if (as_is)
            fputs(".fi\n", out);
        text += len + (text[len] == '\n');
    }
}

static void man_options(FILE *out, const command *cmd)
{
    if (!cmd->options)
        return;
    fputs(".SH OPTIONS\n", out);
    for (const option_spec *o = cmd->options; o->name; o++) {
        char head[128];

        option_head(o, head, sizeof(head));
        fputs(".TP\n.B ", out);
        plain(out, head, strlen(head));
        fputc('\n', out);
        plain(out, o->help, strlen(o->help));
        fputc('\n', out);
    }
}

static void man_command(FILE *out, const command *cmd)
{
    fprintf(out, ".SH NAME\nreshard\\-%s \\- ", cmd->name);
    plain(out, cmd->line, strlen(cmd->line));
    fprintf(out, "\n.SH SYNOPSIS\n");
    synopsis(out, cmd);
    fprintf(out, "\n.SH DESCRIPTION\n");
    man_paragraphs(out, cmd->text);
    man_options(out, cmd);
    fprintf(out, ".SH EXIT STATUS\n");
    man_paragraphs(out, exit_text);
    if (cmd->examples) {
        fprintf(out, ".SH EXAMPLES\n.nf\n");
        plain(out, cmd->examples, strlen(cmd->examples));
        fprintf(out, ".fi\n");
    }
    fprintf(out, ".SH SEE ALSO\n.BR reshard (1)\n");
}

static void man_tool(FILE *out)
{
    fprintf(out, ".SH NAME\nreshard \\- checkpoints of sharded tensors\n"
                 ".SH SYNOPSIS\nreshard COMMAND [OPTIONS] ...\n.SH DESCRIPTION\n"
                 "Saves, loads, converts, verifies and reshards checkpoints of sharded tensors: "
                 "PyTorch DCP, safetensors and torch.save, detected by content, never by "
                 "name.\n.SH COMMANDS\n");
    for (const command *const *c = commands; *c; c++) {
        fprintf(out, ".TP\n.BR reshard\\-%s (1)\n", (*c)->name);
        plain(out, (*c)->line, strlen((*c)->line));
        fputc('\n', out);
    }
    fprintf(out, ".SH EXIT STATUS\n");
    man_paragraphs(out, exit_text);
    fprintf(out, ".SH ENVIRONMENT\n.TP\n.B NO_COLOR\nif set, output has no colours\n"
                 ".TP\n.B RESHARD_MPI\nopenmpi, mpich or none: the MPI library to use\n");
}

void man_page(FILE *out, const command *cmd)
{
    fprintf(out, ".TH reshard%s%s 1 \"\" \"reshard %s\"\n", cmd ? "\\-" : "", cmd ? cmd->name : "",
            rsd_version());
    if (cmd)
        man_command(out, cmd);
    else
        man_tool(out);
}

/* ---- reshard help ---- */

/* As shown by inspect. */
static const char formats_text[] =
    "Formats, detected by content:\n\n"
    "  dcp          PyTorch DCP: a folder with .metadata, also Megatron-Core's torch_dist\n"
    "               and fsdp_dtensor, and the folder of a run with\n"
    "               latest_checkpointed_iteration.txt; read and written (convert --to\n"
    "               megatron adds the files that Megatron-Core needs)\n"
    "  safetensors  one file, a Hugging Face folder with or without an index, an index\n"
    "               itself, torch's distributed form, read and written; vLLM's\n"
    "               sharded_state, one rank read and all written; nanotron's folders,\n"
    "               read only\n"
    "  torch        one torch.save file, read and written; its legacy form and folders\n"
    "               with pytorch_model.bin or its index, read only\n"
    "  ranks        a folder of torch.save files of all ranks with DTensors in them, such\n"
    "               as model_world_size_4_rank_0.pt, or nanotron's optimizer; read only\n"
    "  zero         a folder of DeepSpeed's ZeRO, stages 1 to 3, also with tensor-parallel\n"
    "               ranks that say how they cut parameters, or of its universal form:\n"
    "               weights by their names, the optimizer's state below optim.state; written\n"
    "               in the universal form (convert --to universal)\n\n"
    "docs/formats.md says what is read, checked and written of each format.\n";

static int run(const args *a)
{
    const command *cmd = NULL;

    if (a->noperands > 0 && strcmp(a->operand[0], "formats") == 0) {
        printf("%s", formats_text);
        return EXIT_DONE;
    }
    if (a->noperands > 0) {
        cmd = command_find(a->operand[0]);
        if (!cmd)
            return misuse(NULL, "unknown command \"%s\"", a->operand[0]);
    }
    if (args_has(a, "man"))
        man_page(stdout, cmd);
    else if (cmd)
        help_command(stdout, cmd);
    else
        help_overview(stdout);
    return EXIT_DONE;
}

static const option_spec options[] = {
    { "man", 0, OPT_FLAG, NULL, "print the man page's source instead" },
    { 0 },
};

const command cmd_help = {
    .name = "help",
    .line = "print the help of a command",
    .operands = "[COMMAND|formats]",
    .max = 1,
    .options = options,
    .text = "Prints the list of commands, the help of one command, or the list of formats.",
    .run = run,
};
