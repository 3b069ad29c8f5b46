/* SPDX-License-Identifier: Apache-2.0 */
/* reshard demo: the two-minute tour. Eight ranks, here threads, save a small model; the rest of the
 * tour is the tool's own commands, printed before they run. They work in a folder that is kept, so
 * that they can be tried again. */
#include "cli.h"

#include <reshard/reshard_live.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RANKS = 8, TENSORS = 3, MOST_WORDS = 8, LARGEST = 4096 };

static const char rules_text[] = "mesh dp=2 tp=4\n"
                                 "*norm* replicate\n"
                                 "*mlp* shard(0)@tp\n"
                                 "* shard(0)@dp shard(1)@tp\n";
static const char damaged_file[] = "three/__1_0.distcp";
static const char eight[] = "eight", three[] = "three", one[] = "model.safetensors";
static const char to_three[] = "mesh tp=3; *norm* replicate; * shard(1)@tp";

static const struct model_tensor {
    const char *name;
    int         ndim;
    int64_t     shape[2];
} model[TENSORS] = {
    { "model.embed.weight", 2, { 12, 32 } },
    { "model.mlp.weight", 2, { 24, 16 } },
    { "model.norm.weight", 1, { 16 } },
};

/* ---- eight ranks save ---- */

/* One rank's part of the model. */
typedef struct part {
    rsd_layout *layout[TENSORS];
    float       data[TENSORS][LARGEST / sizeof(float)];
} part;

/* Sets each element to its number in the whole tensor. */
static void fill(const struct model_tensor *m, const rsd_layout *layout, int32_t rank, float *data)
{
    rsd_local at;

    for (size_t i = 0; rsd_layout_local(layout, rank, i, &at, NULL) == RSD_OK; i++)
        for (int64_t k = 0, cols = at.box.len[at.box.ndim - 1]; k < rsd_box_count(&at.box); k++) {
            const int64_t row = m->ndim == 2 ? k / cols : 0, col = k % cols;
            const int64_t to =
                at.offset + (m->ndim == 2 ? row * at.stride[0] : 0) + col * at.stride[m->ndim - 1];
            const int64_t down = m->ndim == 2 ? at.box.off[0] + row : 0;

            data[(size_t)to / sizeof(float)] =
                (float)(down * m->shape[m->ndim - 1] + at.box.off[m->ndim - 1] + col);
        }
}

static rsd_err add_tensor(rsd_state *state, const rsd_rules *rules, int t, int32_t rank, part *mine,
                          rsd_error *err)
{
    const struct model_tensor *m = &model[t];
    rsd_view                   view[4];
    size_t                     n;
    rsd_err                    rc =
        rsd_rules_layout(rules, m->name, RSD_F32, m->ndim, m->shape, &mine->layout[t], err);

    if (rc)
        return rc;
    fill(m, mine->layout[t], rank, mine->data[t]);
    n = rsd_layout_views(mine->layout[t], rank, mine->data[t], view, 4);
    return rsd_state_tensor(state, m->name, mine->layout[t], RSD_F32, m->ndim, m->shape, n, view,
                            err);
}

static rsd_err save_rank(void *arg, rsd_comm *comm, rsd_error *err)
{
    part            *mine = calloc(1, sizeof(*mine));
    rsd_state       *state = NULL;
    rsd_values      *values = NULL;
    const rsd_value *step;
    rsd_err          rc = RSD_E_NOMEM;

    *err = (rsd_error){ .code = RSD_E_NOMEM, .rank = -1, .msg = "no memory for a rank" };
    if (mine)
        rc = rsd_state_create(&state, err);
    if (!rc)
        rc = rsd_values_create(&values, err);
    for (int t = 0; !rc && t < TENSORS; t++)
        rc = add_tensor(state, arg, t, rsd_comm_rank(comm), mine, err);
    if (!rc)
        rc = rsd_value_create_int(values, 1000, &step, err);
    if (!rc)
        rc = rsd_state_value(state, "step", step, err);
    if (!rc)
        rc = rsd_save(eight, comm, state, NULL, err);
    rsd_state_free(state);
    rsd_values_free(values);
    for (int t = 0; mine && t < TENSORS; t++)
        rsd_layout_free(mine->layout[t]);
    free(mine);
    return rc;
}

static int save_model(const args *a)
{
    rsd_error  err = { .msg = "" };
    rsd_rules *rules;

    printf("\n# Eight ranks, a mesh of 2 x 4, save a model of three tensors: each its own part.\n"
           "# In C this is rsd_save(); here the ranks are threads. The layout, as rules:\n\n");
    for (const char *line = rules_text; *line; line = strchr(line, '\n') + 1)
        printf("    %.*s\n", (int)strcspn(line, "\n"), line);
    if (rsd_rules_parse(rules_text, &rules, &err))
        return fail(a, &err);
    if (rsd_comm_run_threads(RANKS, save_rank, rules, &err)) {
        rsd_rules_free(rules);
        return fail(a, &err);
    }
    rsd_rules_free(rules);
    return EXIT_DONE;
}

/* ---- the commands ---- */

static void print_word(const char *word)
{
    printf(strpbrk(word, " ;*") ? " '%s'" : " %s", word);
}

/* Prints the reason and the command and runs it; its exit code must be `wanted`. */
static int show(const args *a, const char *why, int wanted, const char *const *word)
{
    const command *cmd = command_find(word[0]);
    args           its = { 0 };
    int            n = 0, code;

    printf("\n# %s\n%s$ reshard", why, in_colour(stdout) ? "\033[1m" : "");
    for (; word[n]; n++)
        print_word(word[n]);
    printf(in_colour(stdout) ? "\033[0m\n\n" : "\n\n");
    fflush(stdout);
    code = args_parse(&its, cmd, n - 1, word + 1);
    if (code)
        return code;
    its.comm = a->comm;
    code = cmd->run(&its);
    args_free(&its);
    fflush(stdout);
    if (code == wanted)
        return EXIT_DONE;
    return code ? code : refuse(a, EXIT_COULD_NOT, "the exit code should have been %d", wanted);
}

/* Flips one bit in the middle of a file's data; a second call flips it back. */
static int flip_bit(const args *a)
{
    FILE *f = fopen(damaged_file, "r+b");
    long  size = 0;
    int   byte = EOF;

    if (f && fseek(f, 0, SEEK_END) == 0)
        size = ftell(f);
    if (f && fseek(f, size / 2, SEEK_SET) == 0)
        byte = fgetc(f);
    if (byte != EOF && fseek(f, size / 2, SEEK_SET) == 0)
        byte = fputc(byte ^ 16, f);
    if ((f && fclose(f) != 0) || !f || byte == EOF)
        return refuse(a, EXIT_COULD_NOT, "could not change \"%s\": %s", damaged_file,
                      strerror(errno));
    return EXIT_DONE;
}

static int tour(const args *a)
{
    static const struct step {
        const char *why;
        int         wanted;
        const char *word[MOST_WORDS];
    } steps[] = {
        { "List its contents.", 0, { "inspect", eight } },
        { "Which rank holds which part of a tensor?",
          0,
          { "inspect", eight, "--picture", "model.embed.weight" } },
        { "What would three ranks have to read and move? (--html FILE draws it)",
          0,
          { "plan", eight, "--layout", to_three } },
        { "Write it for three ranks.", 0, { "convert", eight, three, "--layout", to_three } },
        { "The same tensor now:", 0, { "inspect", three, "--picture", "model.embed.weight" } },
        { "Write it as one file for Hugging Face's loaders.", 0, { "convert", eight, one } },
        { "Compare every element: nothing changed.", 0, { "diff", eight, three } },
        { "Objects such as `step` don't fit into safetensors; tensors do.",
          0,
          { "diff", three, one, "--exclude", "step" } },
        { "Verify all checksums.", 0, { "verify", three } },
    };
    static const char *const again[] = { "verify", three, NULL };
    static const char *const page[] = { "plan",   eight,       "--layout", to_three,
                                        "--html", "page.html", NULL };
    int                      code = EXIT_DONE;

    for (size_t i = 0; !code && i < sizeof(steps) / sizeof(steps[0]); i++)
        code = show(a, steps[i].why, steps[i].wanted, steps[i].word);
    if (!code)
        code = flip_bit(a);
    if (!code)
        code = show(a, "Flip one bit in the middle of three/__1_0.distcp; verify finds it.",
                    EXIT_NO, again);
    if (!code)
        code = flip_bit(a);
    if (!code)
        code = show(a, "Restore the bit. Last, write a page for the browser:", 0, page);
    return code;
}

/* ---- the command ---- */

static int make_folder(const args *a, const char *dir)
{
    if (mkdir(dir, 0777) == 0)
        return EXIT_DONE;
    return refuse(a, EXIT_COULD_NOT, "could not create \"%s\": %s", dir, strerror(errno));
}

static int run(const args *a)
{
    const char *dir = args_text(a, "dir", NULL), *tmp = getenv("TMPDIR");
    char       *made = NULL, *place = NULL;
    int         code;

    code = dir ? make_folder(a, dir) : scratch_make(a, tmp && *tmp ? tmp : "/tmp", &made);
    if (code)
        return code;
    if (chdir(dir ? dir : made) != 0 || !(place = realpath(".", NULL)))
        code = refuse(a, EXIT_COULD_NOT, "could not change to \"%s\": %s", dir ? dir : made,
                      strerror(errno));
    if (!code) {
        printf("# A tour of reshard. It works in a new folder, which stays:\n");
        printf("$ cd %s\n", place);
        code = save_model(a);
    }
    if (!code)
        code = tour(a);
    if (!code)
        printf("# Open it in a browser: %s/page.html\n"
               "# Try the commands yourself; `rm -r %s` removes the folder.\n",
               place, place);
    free(place);
    free(made);
    return code;
}

static const option_spec options[] = {
    { "dir", 0, OPT_PATH, "DIR",
      "the folder to create and work in; default: a new one below $TMPDIR" },
    { 0 },
};

const command cmd_demo = {
    .name = "demo",
    .line = "show a tour: save, draw, reshard, compare, find damage",
    .operands = "",
    .options = options,
    .text =
        "Saves a small model from eight ranks, draws it, writes it for three ranks and as one "
        "file, compares them, flips a bit and finds it, and writes a page for the browser. "
        "Each command is printed before it runs. The folder stays, so that you can repeat them.",
    .run = run,
};
