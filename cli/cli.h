/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by all commands of the tool. Each command is one file, cmd_NAME.c, with one `command`: its
 * table of options drives the parser (args.c), the help and the man page (help.c) and shell
 * completion (complete.c). Data go to stdout, everything else to stderr. Only progress_step is
 * thread-safe. */
#ifndef CLI_H
#define CLI_H

#include <reshard/reshard.h>

#include <stdio.h>

/* Exit codes; scripts rely on them. 128 + the signal's number if a signal stopped the tool. */
enum {
    EXIT_DONE = 0,
    EXIT_NO = 1,        /* check failed: damage, a difference, no such tensor */
    EXIT_MISUSE = 2,    /* usage error */
    EXIT_COULD_NOT = 3, /* I/O, memory, ranks */
    EXIT_INVALID = 4,   /* not a valid checkpoint */
    EXIT_UNSURE = 5     /* no difference found, but not everything could be compared */
};

/* ---- commands and their options ---- */

typedef enum option_kind {
    OPT_FLAG,  /* takes no value */
    OPT_TEXT,  /* any text */
    OPT_PATH,  /* a file or folder; shells complete it */
    OPT_NAME,  /* tensor or object name, or a pattern; shells complete it */
    OPT_DTYPE, /* element dtype, optionally after "GLOB="; shells complete it */
    OPT_SIZE,  /* bytes: "64M", "5G" */
    OPT_COUNT, /* a whole number from 0 to INT32_MAX */
    OPT_REAL,  /* a non-negative number */
    OPT_CHOICE /* one of `value`, which reads "raw|npy|text" */
} option_kind;

typedef struct option_spec {
    const char *name;   /* "max-memory": without the dashes */
    char        letter; /* 'q'; 0: no short form */
    option_kind kind;
    const char *value; /* "SIZE": placeholder in the help; NULL for a flag */
    const char *help;  /* one sentence, lower case, no final dot */
} option_spec;

typedef struct args args;

typedef struct command {
    const char *name;
    const char *line;     /* for the list of commands: one line, lower case, no final dot */
    const char *operands; /* "CKPT [NAME...]" */
    int         min, max; /* number of operands; max -1: any number */
    /* Ends with an entry without a name. --help is implied. */
    const option_spec *options;
    /* Paragraphs separated by empty lines; one whose lines start with two spaces is printed
     * verbatim. */
    const char *text;
    const char *examples; /* command lines, each after a "# ..." line; NULL: none */
    bool        ranks;    /* under mpirun every rank runs it; else only rank 0 */
    int (*run)(const args *a);
} command;

extern const command cmd_inspect, cmd_cat, cmd_verify, cmd_diff, cmd_plan, cmd_convert,
    cmd_manifest, cmd_recipe, cmd_series, cmd_demo, cmd_bench, cmd_completion, cmd_help;

/* main.c */
/* Every command, in the order of the help; ends with NULL. */
extern const command *const commands[];
const command              *command_find(const char *name);

/* Table rows shared by several commands. */
#define OPTION_JSON                                                                                \
    {                                                                                              \
        "json", 0, OPT_FLAG, NULL, "print one JSON document to stdout",                            \
    }
#define OPTIONS_PROGRESS                                                                           \
    { "progress", 0, OPT_FLAG, NULL, "show progress even if stderr is not a terminal" },           \
        { "no-progress", 0, OPT_FLAG, NULL, "show no progress" },                                  \
    {                                                                                              \
        "quiet", 'q', OPT_FLAG, NULL, "print only errors and the requested output"                 \
    }

/* ---- args.c: the parsed command line ---- */

typedef struct given_option {
    const option_spec *spec;
    const char        *value; /* NULL for a flag */
} given_option;

struct args {
    const command *cmd;
    size_t         noperands;
    const char   **operand; /* [noperands] */
    size_t         ngiven;
    given_option  *given; /* [ngiven] in their order on the command line */
    bool           help;  /* --help */
    rsd_comm      *comm;  /* the launcher's ranks, or this process alone */
};

/* Parses what follows the command's name. EXIT_DONE, or EXIT_MISUSE with the reason printed. */
int  args_parse(args *a, const command *cmd, int argc, const char *const *argv);
void args_free(args *a);

/* True if the option was given. `name` must be in the command's table. */
bool args_has(const args *a, const char *name);
/* How often it was given, and the i-th value. */
size_t      args_count(const args *a, const char *name);
const char *args_at(const args *a, const char *name, size_t i);
/* The last value given, or `otherwise`. Values have been checked by kind. */
const char *args_text(const args *a, const char *name, const char *otherwise);
uint64_t    args_size(const args *a, const char *name, uint64_t otherwise);
int32_t     args_number(const args *a, const char *name, int32_t otherwise);
double      args_real(const args *a, const char *name, double otherwise);
/* "64M": K, M, G, T and KiB .. are powers of 1024, KB .. of 1000. */
bool size_parse(const char *text, uint64_t *out);

/* ---- ending.c: error messages and exit codes ---- */

/* The only place that maps an error to an exit code. */
int exit_code(const rsd_error *err);
/* Prints the error as one line, on rank 0 only, and returns its exit code. After a caught signal,
 * returns 130 or 143 and prints no error. */
int fail(const args *a, const rsd_error *err);
/* Prints one line and a hint; returns EXIT_MISUSE. `a` may be NULL, before a command is known. */
int misuse(const args *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Prints one line; returns `code`. */
int  refuse(const args *a, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
bool speaks(const args *a); /* true on the one rank that prints */
/* Must be called first: ignores SIGPIPE, so that stdout may close early. */
void output_begin(void);
/* True if nothing more can be printed, so that long output may stop; finish_output reports why. */
bool output_over(void);
/* Flushes stdout: EXIT_COULD_NOT with a message if writing fails, but silent if the reader has
 * closed it. */
int finish_output(int code);
/* The word among `word` (NULL-terminated) that was probably meant; NULL if none is close. */
const char *nearest(const char *wrong, const char *const *word);

/* ---- progress.c: the bar, and signals ---- */

/* True if a program reads stderr: RESHARD_REPORT is set. Progress comes as lines "progress DONE
 * TOTAL", an error of the library also as "error CODE ERRNO MESSAGE". */
bool reporting(void);

/* From now on SIGINT and SIGTERM only set a flag, so that work can stop cleanly. Work that does not
 * check it in time is ended, and a third signal ends the program as usual. */
void signals_watch(void);
/* The signal received; 0: none. */
int signals_caught(void);

/* Once zeroed and begun, it can be the arg of an rsd_progress. */
typedef struct progress {
    FILE       *out;  /* NULL: prints nothing */
    bool        line; /* out is a terminal: one line that is redrawn */
    bool        drawn;
    const char *verb; /* "reading" */
    double      start, last;
    int64_t     done, total;
} progress;

/* Decides from the options and the terminal whether to show anything; watches signals. */
void progress_begin(progress *p, const args *a, const char *verb);
/* An rsd_progress: draws at most ten times a second; returns 1 after a signal. */
int progress_step(void *progress, int64_t done, int64_t total);
/* Erases the line. */
void progress_end(progress *p);

/* ---- screen.c: terminal properties, and text made safe to print ---- */

/* True if `out` is a terminal and NO_COLOR is not set. */
bool in_colour(FILE *out);
/* Columns of the terminal; 0 if `out` is not one. */
int screen_width(FILE *out);
/* Terminal cells that the text occupies. */
size_t text_width(const char *text);
/* Truncates to `most` bytes at a character boundary, and marks the cut. */
void text_shorten(char *text, size_t most);
/* Prints a line; on a terminal, wraps it between words if it is too long. */
void print_wrapped(FILE *out, const char *line);
/* Bytes of the UTF-8 character at the start of `text`, and its code; 0 if it is not valid UTF-8. */
size_t utf8_code(const char *text, uint32_t *code);
/* True for characters that a terminal obeys instead of showing, and those that reorder or hide the
 * text around them: controls, direction marks, line ends, zero-width characters. Same as
 * rsi_is_hidden. */
bool is_hidden(uint32_t code);
/* The first character of a name from a file in printable form: hidden characters and invalid UTF-8
 * become \xNN, \uNNNN or \UNNNNNNNN. Returns its bytes in the name. */
enum { SAFE_CHARACTER = 16 };
size_t safe_character(const char *text, char *out);
/* Prints a name in that form. */
void print_safe(FILE *out, const char *text);
/* "1.5 GiB", "17 B". */
const char *size_text(uint64_t bytes, char *buf, size_t cap);
/* "6.7B", "124.4M", "9999". */
const char *count_text(uint64_t n, char *buf, size_t cap);
/* "[4, 8]", "[]". */
const char *shape_text(int ndim, const int64_t *shape, char *buf, size_t cap);
/* "dcp", "safetensors", "torch". */
const char *format_name(rsd_format format);
/* "s" unless n is 1. */
const char *plural(uint64_t n);
/* Seconds of a monotonic clock. */
double now(void);

/* ---- columns.c: tables ---- */

#define MOST_COLUMNS 12

/* Once zeroed and begun, it is empty. Cells are added row by row. */
typedef struct columns {
    int         n;
    const char *title[MOST_COLUMNS];
    bool        right[MOST_COLUMNS]; /* numbers */
    bool        spare[MOST_COLUMNS]; /* may be left out if there is no room */
    char       *text;                /* cells one after the other, each NUL-terminated */
    size_t      len, cap, cells;
    bool        failed; /* no memory: nothing is printed */
} columns;

/* NULL-terminated titles. A leading "?" marks a column that a too narrow terminal drops, the last
 * one first; a leading ">" marks a numeric column. */
void columns_begin(columns *c, const char *const *title);
void columns_add(columns *c, const char *cell);
void columns_addf(columns *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Prints and empties the table. On a terminal that is too narrow, a long first cell gets its own
 * line. False: there was no memory. */
bool columns_print(columns *c, FILE *out);

/* ---- json_out.c: one JSON document, streamed ---- */

#define JSON_MOST_DEPTH 16

/* Contents nested deeper than two containers stay on one line. Keys are NULL in arrays. */
typedef struct json_out {
    FILE *out;
    int   depth;
    bool  array[JSON_MOST_DEPTH];
    bool  any[JSON_MOST_DEPTH]; /* not empty */
    bool  html;                 /* escapes '<', '>' and '&', so that no text ends a script */
} json_out;

void json_open_object(json_out *j, const char *key);
void json_open_array(json_out *j, const char *key);
void json_close(json_out *j);
/* Bytes that are not UTF-8 become U+FFFD. */
void json_text(json_out *j, const char *key, const char *text);
void json_int(json_out *j, const char *key, int64_t value);
void json_uint(json_out *j, const char *key, uint64_t value);
void json_real(json_out *j, const char *key, double value); /* null if not finite */
void json_bool(json_out *j, const char *key, bool value);
void json_null(json_out *j, const char *key);
void json_raw(json_out *j, const char *key, const char *json); /* already JSON */
void json_ints(json_out *j, const char *key, int n, const int64_t *value);

/* ---- help.c, complete.c ---- */

void help_overview(FILE *out);
void help_command(FILE *out, const command *cmd);
void man_page(FILE *out, const command *cmd); /* NULL: for the tool */
void complete_bash(FILE *out);
void complete_zsh(FILE *out);
void complete_fish(FILE *out);
/* complete_words.c: for these scripts: prints the completions of the last word, one per line. */
int complete_words(int n, const char *const *word);

/* ---- source.c: checkpoints and layouts named on the command line ---- */

/* EXIT_DONE, or the exit code with the reason printed. */
int source_open(const args *a, const char *path, rsd_ckpt **out);
/* The same, but opens what is left if files are missing or short. */
int source_salvage(const args *a, const char *path, rsd_ckpt **out);
/* SPEC is rules as text, or a file that contains them. */
int source_rules(const args *a, const char *spec, rsd_rules **out);
/* One object as text ("{'step': 100}") or JSON; the caller frees *out. */
int source_object(const args *a, rsd_ckpt *ckpt, size_t i, bool json, const char **name,
                  char **out);

/* ---- reasons.c: what was skipped, and why ---- */

#define REASON_NAMES 5 /* listed for each reason */

typedef struct reason {
    char   why[160];
    size_t n;
    char  *name[REASON_NAMES];
} reason;

typedef struct reasons {
    reason *at;
    size_t  n, cap;
} reasons; /* zeroed: none */

/* False: no memory. */
bool reasons_add(reasons *r, const char *name, const char *why);
/* Prints "BEFOREa, b and 3 more: why", one line per reason. */
void reasons_print(FILE *out, const char *before, const reasons *r);
void reasons_free(reasons *r);
/* Prints what opening noted about a checkpoint (rsd_ckpt_note). */
void notes_print(FILE *out, const rsd_ckpt *ckpt);
void notes_json(json_out *j, const rsd_ckpt *ckpt);

/* ---- health.c: what is left of a damaged checkpoint ---- */

/* The number of damaged or missing tensors and objects. */
size_t health_lost(rsd_ckpt *ckpt);
/* Prints a line for each of them and the number of intact ones; nothing if all are intact. */
void health_print(FILE *out, rsd_ckpt *ckpt);
/* The arrays "damaged" and "gone". */
void health_json(json_out *j, rsd_ckpt *ckpt);

/* ---- metas.c: safetensors' __metadata__ ---- */

/* Prints a table; nothing if "format" is the only entry. */
int metas_print(const args *a, const rsd_ckpt *ckpt);
/* The key "metadata", if there is any. */
void metas_json(const rsd_ckpt *ckpt, json_out *j);

/* ---- pieces.c: splits a box into parts ---- */

/* Once zeroed and begun, yields consecutive parts of a box in row-major order. */
typedef struct pieces {
    rsd_box whole, next; /* next.off[0 .. dim] is where the next part starts */
    int     dim;         /* the parts are cut along it; earlier dimensions have length 1 */
    int64_t rows;        /* of each part along `dim` */
    bool    done;
} pieces;

void pieces_begin(pieces *p, const rsd_box *whole, int64_t most_elements);
bool pieces_next(pieces *p, rsd_box *out);

/* ---- element.c: single elements ---- */

/* The element's value; for a complex number, the real part, and sets *imag (may be NULL). */
double element_value(rsd_dtype dtype, const void *at, double *imag);
/* The modulus of a complex number. */
double element_modulus(double real, double imag);
/* The shortest text that reads back as the same element. */
const char *element_text(rsd_dtype dtype, const void *at, char *buf, size_t cap);
bool        element_is_float(rsd_dtype dtype); /* or complex */

/* ---- elide.c ---- */

#define ELIDE_ABOVE 1000 /* up to this many elements are shown in full, as in numpy */

/* Prints part of tensor t, which must have elements and dimensions, with dots for all but the
 * edges. */
int elide_print(const args *a, rsd_ckpt *ckpt, size_t t, rsd_dtype dtype, const rsd_box *box);

/* ---- compare.c: the values of many pairs of tensors ---- */

/* Two tensors of the same shape, and the result of their comparison. */
typedef struct pair {
    size_t          ta, tb; /* their numbers in the two checkpoints */
    rsd_dtype       from;   /* dtype of the first one, whose values are cast to info.dtype */
    rsd_tensor_info info;   /* the second one's */
    int64_t         count;  /* elements that differ */
    int64_t         first;  /* row-major number of the first of them; undefined if there are none */
    char            a[16], b[16]; /* its bytes */
    double          largest;      /* absolute difference; NaN if only one element is NaN */
} pair;

/* Elements differ if their bits differ; with a tolerance, only if also |a - b| > atol + rtol *
 * |b|. */
typedef struct tolerance {
    bool   on;
    double rtol, atol;
} tolerance;

/* Reads and compares all pairs with `threads` threads (0: one per processor), each using a few MiB;
 * one thread at a time uses more, for compressed chunks. */
rsd_err compare_pairs(rsd_ckpt *a, rsd_ckpt *b, pair *p, size_t n, const tolerance *tol,
                      int32_t threads, progress *bar, rsd_error *err);

/* Compares n elements of info.dtype in memory. */
void compare_elements(const tolerance *tol, pair *p, const char *a, const char *b, int64_t n);

/* The number of processors this process may use. */
int32_t processors(void);

/* ---- stats.c: statistics of many tensors ---- */

/* Non-finite elements are counted and otherwise ignored; complex ones count by their modulus.
 * `known` is false if no elements remain, or if the dtype packs two values in a byte. */
typedef struct stats {
    int64_t     count, nans, infs; /* count: finite ones */
    long double least, most;       /* holds every integer of 64 bits */
    long double sum, squares;
    double      mean, norm;   /* norm: the square root of the sum of squares */
    bool        known, whole; /* whole: integers */
} stats;

/* Reads n tensors, using a few MiB for each of `threads` threads (0: one per processor); the result
 * does not depend on their number. */
rsd_err stats_read(rsd_ckpt *ckpt, const size_t *tensor, size_t n, stats *out, int32_t threads,
                   progress *bar, rsd_error *err);

/* ---- name_order.c ---- */

/* Human order: layers.2 before layers.10, and everything below one name together. */
int name_compare(const char *a, const char *b);
/* True if `name` is below `top`: "a.b" is below "a". */
bool name_below(const char *name, const char *top);

/* ---- scratch.c ---- */

/* Creates a folder below `dir`; scratch_remove deletes it with its contents, frees *out and accepts
 * NULL. */
int  scratch_make(const args *a, const char *dir, char **out);
void scratch_remove(char *folder);

/* ---- tree.c ---- */

/* Prints the tensors as a tree by the dots in their names, with sums; neighbours with equal
 * contents, such as layers.0 and layers.1, are folded into one. Sorts `t`. False: no memory. */
bool tree_print(FILE *out, rsd_tensor_info *t, size_t n);

/* ---- holders.c: which rank or file holds which part of a tensor ---- */

/* A box and the number of its rank or file. */
typedef struct tile {
    int32_t holder;
    rsd_box box;
} tile;

/* The files of a checkpoint in order of appearance; zeroed is empty, the owner frees `file`. The
 * checkpoint owns the names. */
typedef struct holders {
    const char **file; /* [n] */
    size_t       n, cap, last;
} holders;

/* The number of a file; assigns a new one if it has none. False: no memory. */
bool holders_number(holders *h, const char *name, size_t *out);
/* "__3_0.distcp" was written by rank 3; -1: the name does not say. */
int32_t  file_writer(const char *name);
uint64_t tensor_elements(const rsd_tensor_info *info);
/* How many files hold tensor t, and the first by name; the checkpoint owns that name. */
int tensor_files(const args *a, rsd_ckpt *ckpt, size_t t, const char **first, size_t *n);
/* How a tensor is cut: "whole", "shard(0)/4", "shard(0)/2 shard(1)/4", or "irregular" if the chunks
 * don't form a grid. */
int tensor_layout(const args *a, rsd_ckpt *ckpt, size_t t, char *buf, size_t cap);
/* The chunks of tensor t, held by files. The caller frees *out. */
int tiles_stored(const args *a, rsd_ckpt *ckpt, size_t t, holders *h, tile **out, size_t *n);
/* The boxes of all ranks. The caller frees *out. False: no memory. */
bool tiles_of_layout(const rsd_layout *layout, tile **out, size_t *n);

/* ---- draw.c, picture.c: pictures for the terminal ---- */

/* How a picture was drawn, and what it could not show. */
typedef struct drawn {
    int     strip;       /* the axis along which each tile is one cell; -1: drawn to scale */
    size_t  here, shown; /* tiles at index 0 of the axes not drawn; of these, tiles with a cell */
    int64_t cell_rows, cell_cols; /* most elements per character */
} drawn;

#define DRAW_MOST_PARTS 64

/* Into how many parts the tiles cut an axis; counts at most DRAW_MOST_PARTS + 1. */
int draw_parts(size_t n, const tile *t, int axis);
/* The two best axes to draw: cut before whole, then long before short. axes[0] goes down and is -1
 * if there is only one; axes[1] goes across. */
void draw_axes(int ndim, const int64_t *shape, size_t n, const tile *t, int axes[2]);
/* Draws a letter or number for each holder, as wide as the terminal allows. False: no memory. */
bool draw_tiles(FILE *out, const int64_t *shape, size_t n, const tile *t, const int axes[2],
                bool colour, drawn *told);
/* The width of a holder in a picture of these tiles: 1 for a letter, or the number of digits. */
int draw_width(size_t n, const tile *t);
/* Prints a holder as in the pictures, after a space; '.' for -1. */
void draw_holder(FILE *out, int32_t holder, int width, bool colour);
/* Draws each tensor whose name is or matches `pattern`, using --axes; EXIT_NO if there is none. */
int picture_print(const args *a, rsd_ckpt *ckpt, const char *pattern);

#endif
