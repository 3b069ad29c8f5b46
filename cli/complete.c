/* SPDX-License-Identifier: Apache-2.0 */
/* Completion for bash, zsh and fish, from the table of commands. The scripts call the tool itself
 * for names and dtypes (complete_words.c). Names come from untrusted files, so shells never expand
 * them. */
#include "cli.h"

#include <string.h>

/* "raw|npy|text" with other separators */
static void choices(FILE *out, const char *value, const char *between)
{
    for (; *value; value++)
        if (*value == '|')
            fputs(between, out);
        else
            fputc(*value, out);
}

/* ---- bash ---- */

/* The possible values of an option; none are offered for a number. */
static void bash_values(FILE *out, const command *cmd)
{
    for (const option_spec *o = cmd->options; o && o->name; o++) {
        if (o->kind == OPT_FLAG || o->kind == OPT_PATH || o->kind == OPT_NAME ||
            o->kind == OPT_DTYPE)
            continue;
        fprintf(out, "    %s,--%s", cmd->name, o->name);
        if (o->letter)
            fprintf(out, "|%s,-%c", cmd->name, o->letter);
        fprintf(out, ")\n        ");
        if (o->kind == OPT_CHOICE) {
            fprintf(out, "COMPREPLY=($(compgen -W '");
            choices(out, o->value, " ");
            fprintf(out, "' -- \"$cur\"))\n        ");
        } else {
            fprintf(out, "compopt +o default\n        ");
        }
        fprintf(out, "return ;;\n");
    }
}

static void bash_options(FILE *out, const command *cmd)
{
    fprintf(out, "    %s) words='", cmd->name);
    for (const option_spec *o = cmd->options; o && o->name; o++)
        fprintf(out, "--%s ", o->name);
    fprintf(out, "--help' ;;\n");
}

/* bash splits words at = and :, so they are joined again; completions cover only what follows the
 * last split. */
static const char bash_words[] =
    "_reshard_words()\n"
    "{\n"
    "    local cur=$1 i word name dots=1 tool=${COMP_WORDS[0]/#\\~\\//$HOME/}\n"
    "    local -a w=()\n"
    "    for ((i = 1; i <= COMP_CWORD; i++)); do\n"
    "        word=${COMP_WORDS[i]}\n"
    "        if ((i > 2)) && [[ $word == [=:] || ${COMP_WORDS[i-1]} == [=:] ]]; then\n"
    "            w[${#w[@]}-1]+=$word\n"
    "        else\n"
    "            w+=(\"$word\")\n"
    "        fi\n"
    "    done\n"
    "    local start=${w[${#w[@]}-1]%\"$cur\"} quote=\n"
    "    [[ $cur == [\\'\\\"]* ]] && quote=${cur:0:1}\n"
    "    for ((i = 0; i < ${#w[@]}; i++)); do\n"
    "        w[i]=${w[i]//[\\\\\\'\\\"]/} w[i]=${w[i]/#\\~\\//$HOME/}\n"
    "    done\n"
    "    while IFS= read -r name; do\n"
    "        [[ $name == *. ]] || dots=\n"
    "        name=${name#\"$start\"}\n"
    "        [[ $quote ]] || printf -v name %q \"$name\"\n"
    "        [[ $quote && $name == *[\\'\\\"\\\\\\$\\`]* ]] || COMPREPLY+=(\"$name\")\n"
    "    done < <(\"$tool\" __complete \"${w[@]}\" 2>/dev/null)\n"
    "    [[ $dots && ${#COMPREPLY[@]} -gt 0 ]] && compopt -o nospace 2>/dev/null\n"
    "}\n";

void complete_bash(FILE *out)
{
    fprintf(out, "# bash completion for reshard\n%s", bash_words);
    fprintf(out, "_reshard()\n"
                 "{\n"
                 "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
                 "    local cmd=${COMP_WORDS[1]} words= all='");
    for (const command *const *c = commands; *c; c++)
        fprintf(out, "%s ", (*c)->name);
    fprintf(out, "--version --help'\n"
                 "    [[ $cur == = ]] && cur=\n"
                 "    [[ $prev == = ]] && prev=${COMP_WORDS[COMP_CWORD-2]}\n"
                 "    COMPREPLY=()\n"
                 "    if ((COMP_CWORD == 1)); then\n"
                 "        COMPREPLY=($(compgen -W \"$all\" -- \"$cur\"))\n"
                 "        return\n"
                 "    fi\n"
                 "    case $cmd,$prev in\n");
    for (const command *const *c = commands; *c; c++)
        bash_values(out, *c);
    fprintf(out, "    esac\n    case $cmd in\n");
    for (const command *const *c = commands; *c; c++)
        bash_options(out, *c);
    fprintf(out, "    esac\n"
                 "    if [[ $cmd == help && $cur != -* ]]; then\n"
                 "        words=$all\n"
                 "    elif [[ $cmd == completion && $cur != -* ]]; then\n"
                 "        words='bash zsh fish'\n"
                 "    elif [[ $cur != -* ]]; then\n"
                 "        _reshard_words \"$cur\"\n"
                 "        return\n"
                 "    fi\n"
                 "    COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
                 "}\n"
                 "complete -o default -F _reshard reshard\n");
}

/* ---- zsh ---- */

/* Inside '...': quotes end it; brackets and colons are special to _arguments. */
static void zsh_text(FILE *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '\'')
            fputs("'\\''", out);
        else if (strchr("[]:\\", *text))
            fprintf(out, "\\%c", *text);
        else
            fputc(*text, out);
    }
}

static void zsh_option(FILE *out, const option_spec *o)
{
    fprintf(out, " \\\n            ");
    if (o->letter)
        fprintf(out, "'(-%c --%s)'{-%c,--%s%s}'[", o->letter, o->name, o->letter, o->name,
                o->kind == OPT_FLAG ? "" : "=");
    else
        fprintf(out, "'*--%s%s[", o->name, o->kind == OPT_FLAG ? "" : "=");
    zsh_text(out, o->help);
    fprintf(out, "]");
    if (o->kind == OPT_PATH)
        fprintf(out, ":%s:_files", o->value);
    else if (o->kind == OPT_CHOICE) {
        fprintf(out, ":value:(");
        choices(out, o->value, " ");
        fprintf(out, ")");
    } else if (o->kind == OPT_NAME || o->kind == OPT_DTYPE) {
        fprintf(out, ":name:_reshard_words");
    } else if (o->kind != OPT_FLAG) {
        fprintf(out, ":%s: ", o->value);
    }
    fprintf(out, "'");
}

static const char *zsh_operands(const command *cmd)
{
    if (cmd == &cmd_help)
        return "'1:command:_reshard_commands'";
    if (cmd == &cmd_completion)
        return "'1:shell:(bash zsh fish)'";
    if (strstr(cmd->operands, "NAME"))
        return "'1:checkpoint:_files' '*:name:_reshard_words'";
    return cmd->max == 0 ? "" : "'*:file:_files'";
}

void complete_zsh(FILE *out)
{
    fprintf(out, "#compdef reshard\n"
                 "_reshard_commands()\n"
                 "{\n"
                 "    local -a all\n"
                 "    all=(\n");
    for (const command *const *c = commands; *c; c++) {
        fprintf(out, "        '%s:", (*c)->name);
        zsh_text(out, (*c)->line);
        fprintf(out, "'\n");
    }
    fprintf(out, "    )\n"
                 "    _describe command all\n"
                 "}\n"
                 "_reshard_words()\n"
                 "{\n"
                 "    local -a all\n"
                 "    all=(\"${(@f)$(reshard __complete \"${(@Q)words[1,CURRENT]/#\\~\\//$HOME/}\" "
                 "2>/dev/null)}\")\n"
                 "    all=(\"${(@)${(@)all:#}#$IPREFIX}\")\n"
                 "    compadd -S '' -- \"${(@M)all:#*.}\"\n"
                 "    compadd -- \"${(@)all:#*.}\"\n"
                 "}\n"
                 "_reshard()\n"
                 "{\n"
                 "    local context state line\n"
                 "    _arguments -C '(- *)--version[print the version]' "
                 "'1:command:_reshard_commands' '*::argument:->arguments'\n"
                 "    [[ $state == arguments ]] || return\n"
                 "    case $line[1] in\n");
    for (const command *const *c = commands; *c; c++) {
        fprintf(out, "    %s)\n        _arguments '(- *)'{-h,--help}'[print the help]'",
                (*c)->name);
        for (const option_spec *o = (*c)->options; o && o->name; o++)
            zsh_option(out, o);
        fprintf(out, " %s ;;\n", zsh_operands(*c));
    }
    /* The same text works as an autoloaded completion file and when sourced by ~/.zshrc. */
    fprintf(out, "    esac\n"
                 "}\n"
                 "if [[ $funcstack[1] == _reshard ]]; then\n"
                 "    _reshard \"$@\"\n"
                 "else\n"
                 "    compdef _reshard reshard\n"
                 "fi\n");
}

/* ---- fish ---- */

static void fish_text(FILE *out, const char *text)
{
    fputc('\'', out);
    for (; *text; text++) {
        if (*text == '\'' || *text == '\\')
            fputc('\\', out);
        fputc(*text, out);
    }
    fputc('\'', out);
}

static void fish_option(FILE *out, const command *cmd, const option_spec *o)
{
    fprintf(out, "complete -c reshard -n '__fish_seen_subcommand_from %s' -l %s", cmd->name,
            o->name);
    if (o->letter)
        fprintf(out, " -s %c", o->letter);
    if (o->kind == OPT_CHOICE) {
        fprintf(out, " -x -a '");
        choices(out, o->value, " ");
        fprintf(out, "'");
    } else if (o->kind == OPT_PATH) {
        fprintf(out, " -r -F");
    } else if (o->kind == OPT_NAME || o->kind == OPT_DTYPE) {
        fprintf(out, " -x -a '(__reshard_words)'");
    } else if (o->kind != OPT_FLAG) {
        fprintf(out, " -x");
    }
    fprintf(out, " -d ");
    fish_text(out, o->help);
    fputc('\n', out);
}

void complete_fish(FILE *out)
{
    fprintf(out,
            "# fish completion for reshard\n"
            "function __reshard_words\n"
            "    set -l w (commandline -opc)\n"
            "    reshard __complete $w[2..-1] (commandline -ct | string unescape) 2>/dev/null | "
            "string replace -r -- '^--[a-z-]+=' ''\n"
            "end\n");
    for (const command *const *c = commands; *c; c++) {
        fprintf(out, "complete -c reshard -n __fish_use_subcommand -f -a %s -d ", (*c)->name);
        fish_text(out, (*c)->line);
        fputc('\n', out);
        for (const option_spec *o = (*c)->options; o && o->name; o++)
            fish_option(out, *c, o);
        if (strstr((*c)->operands, "NAME"))
            fprintf(out,
                    "complete -c reshard -n '__fish_seen_subcommand_from %s' -a "
                    "'(__reshard_words)'\n",
                    (*c)->name);
        fprintf(out, "complete -c reshard -n '__fish_seen_subcommand_from help' -f -a %s -d ",
                (*c)->name);
        fish_text(out, (*c)->line);
        fputc('\n', out);
    }
    fprintf(out, "complete -c reshard -n __fish_use_subcommand -l version -d 'print the version'\n"
                 "complete -c reshard -l help -s h -d 'print the help'\n"
                 "complete -c reshard -n '__fish_seen_subcommand_from completion' -f -a "
                 "'bash zsh fish'\n");
}

/* ---- reshard completion ---- */

static int run(const args *a)
{
    const char *shell = a->operand[0];

    if (strcmp(shell, "bash") == 0)
        complete_bash(stdout);
    else if (strcmp(shell, "zsh") == 0)
        complete_zsh(stdout);
    else if (strcmp(shell, "fish") == 0)
        complete_fish(stdout);
    else
        return misuse(a, "SHELL is bash, zsh or fish, not \"%s\"", shell);
    return EXIT_DONE;
}

const command cmd_completion = {
    .name = "completion",
    .line = "print a shell completion script",
    .operands = "SHELL",
    .min = 1,
    .max = 1,
    .text = "Prints the completion script for bash, zsh or fish. `make install` installs them "
            "where these shells look.",
    .examples = "# in ~/.bashrc\n"
                "source <(reshard completion bash)\n"
                "# in ~/.zshrc, after compinit\n"
                "source <(reshard completion zsh)\n"
                "# in ~/.config/fish/config.fish\n"
                "reshard completion fish | source\n",
    .run = run,
};
