/* SPDX-License-Identifier: Apache-2.0 */
/* What the commands of the tool share. Each command is one file, cmd_NAME.c, with one `command`:
 * its table of options makes the parser (args.c), the help and the man page (help.c) and the
 * completion of the shells (complete.c). Data go to stdout, everything else to stderr. Nothing here
 * is for several threads but progress_step. */
#ifndef CLI_H
#define CLI_H

#include <reshard/reshard.h>

#include <stdio.h>

/* What the tool ends with; scripts rely on it. 128 + the number of the signal if one stopped it. */
enum {
    EXIT_DONE = 0,
    EXIT_NO = 1,        /* the answer is no: damage, a difference, no such tensor */
    EXIT_MISUSE = 2,    /* wrong arguments */
    EXIT_COULD_NOT = 3, /* I/O, memory, ranks */
    EXIT_INVALID = 4,   /* not a valid checkpoint */
    EXIT_UNSURE = 5     /* no difference was found, but not everything could be compared */
};

/* ---- commands and their options ---- */

typedef enum option_kind {
    OPT_FLAG,  /* takes no value */
    OPT_TEXT,  /* anything */
    OPT_PATH,  /* a file or folder; shells complete it */
    OPT_NAME,  /* of a tensor or object, or a pattern; shells complete it */
    OPT_DTYPE, /* of an element, behind "GLOB=" if wanted; shells complete it */
    OPT_SIZE,  /* bytes: "64M", "5G" */
    OPT_COUNT, /* a whole number from 0 to INT32_MAX */
    OPT_REAL,  /* a number that is not negative */
    OPT_CHOICE /* one of `value`, which reads "raw|npy|text" */
} option_kind;

typedef struct option_spec {
    const char *name;   /* "max-memory": without the dashes */
    char        letter; /* 'q'; 0: no short form */
    option_kind kind;
    const char *value; /* "SIZE": what stands for the value in the help; NULL for a flag */
    const char *help;  /* one sentence, lower case, no final dot */
} option_spec;

typedef struct args args;

typedef struct command {
    const char *name;
    const char *line;     /* for the list of commands: one line, lower case, no final dot */
    const char *operands; /* "CKPT [NAME...]" */
    int         min, max; /* operands; max -1: any number */
    /* Until one without a name. --help is always there. */
    const option_spec *options;
    /* Paragraphs with an empty line between them; one whose lines start with two spaces is printed
     * as it is. */
    const char *text;
    const char *examples; /* command lines, a "# ..." line before each; NULL: none */
    bool        ranks;    /* under mpirun every rank runs it; else only rank 0 does */
    int (*run)(const args *a);
} command;

extern const command cmd_inspect, cmd_cat, cmd_verify, cmd_diff, cmd_plan, cmd_convert,
    cmd_manifest, cmd_demo, cmd_bench, cmd_completion, cmd_help;

/* main.c */
/* Every command, in the order of the help; ends with NULL. */
extern const command *const commands[];
const command              *command_find(const char *name);

/* Rows that several tables have. */
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

/* ---- args.c: what stands on the command line ---- */

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
    rsd_comm      *comm;  /* the ranks that a launcher started, or this process alone */
};

/* Parses what follows the command's name. EXIT_DONE, or EXIT_MISUSE with the reason printed. */
int  args_parse(args *a, const command *cmd, int argc, const char *const *argv);
void args_free(args *a);

/* Was it given? `name` must stand in the command's table. */
bool args_has(const args *a, const char *name);
/* How often, and the i-th value. */
size_t      args_count(const args *a, const char *name);
const char *args_at(const args *a, const char *name, size_t i);
/* The last value that was given, or `otherwise`. Values have been checked by kind. */
const char *args_text(const args *a, const char *name, const char *otherwise);
uint64_t    args_size(const args *a, const char *name, uint64_t otherwise);
int32_t     args_number(const args *a, const char *name, int32_t otherwise);
double      args_real(const args *a, const char *name, double otherwise);
/* "64M": K, M, G, T and KiB .. are powers of 1024, KB .. of 1000. */
bool size_parse(const char *text, uint64_t *out);

/* ---- ending.c: how the tool speaks when something is wrong, and what it ends with ---- */

/* The one place where an error becomes an exit code. */
int exit_code(const rsd_error *err);
/* Prints the error as one line, on rank 0 only, and gives its exit code. A signal that was caught
 * gives 130 or 143 and no error. */
int fail(const args *a, const rsd_error *err);
/* One line and a hint; EXIT_MISUSE. `a` may be NULL, before a command is known. */
int misuse(const args *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* One line; `code`. */
int  refuse(const args *a, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
bool speaks(const args *a); /* one rank does */
/* To be called first: a reader that leaves early is no signal. */
void output_begin(void);
/* Nothing more can be printed, so that long output may end; finish_output tells why. */
bool output_over(void);
/* Flushes stdout: EXIT_COULD_NOT with a message if it can't be written, but quiet if its reader has
 * gone. */
int finish_output(int code);
/* The word among `word` (until NULL) that was probably meant; NULL if none is near. */
const char *nearest(const char *wrong, const char *const *word);

/* ---- progress.c: the bar, and signals ---- */

/* From now on SIGINT and SIGTERM only set a flag, for work to stop cleanly. Work that does not look
 * at it in time is ended, and a third signal ends the program as usual. */
void signals_watch(void);
/* The signal that came, 0: none. */
int signals_caught(void);

/* Zeroed and begun is ready to be an rsd_progress' arg. */
typedef struct progress {
    FILE       *out;  /* NULL: stays quiet */
    bool        line; /* out is a terminal: one line that is drawn again and again */
    bool        drawn;
    const char *verb; /* "reading" */
    double      start, last;
    int64_t     done, total;
} progress;

/* Decides by the options and the terminal whether to show anything; watches signals. */
void progress_begin(progress *p, const args *a, const char *verb);
/* An rsd_progress: draws ten times a second at most; 1 if a signal came. */
int progress_step(void *progress, int64_t done, int64_t total);
/* Removes the line. */
void progress_end(progress *p);

/* ---- screen.c: what depends on the terminal, and text made safe for it ---- */

/* Colours are for people: on if `out` is a terminal and NO_COLOR is not set. */
bool in_colour(FILE *out);
/* Columns of the terminal; 0 if `out` is none. */
int screen_width(FILE *out);
/* Cells that the text takes on a screen. */
size_t text_width(const char *text);
/* Cuts behind `most` bytes, at a character, and shows that it did. */
void text_shorten(char *text, size_t most);
/* Prints a line, on a terminal with line ends between words where it is too long. */
void print_wrapped(FILE *out, const char *line);
/* Bytes of the UTF-8 character that `text` starts with, and its code; 0 if it is none. */
size_t utf8_code(const char *text, uint32_t *code);
/* True for what a terminal obeys instead of showing, and what turns or hides the text around it:
 * controls, marks of direction, line ends, characters without width. As rsi_is_hidden. */
bool is_hidden(uint32_t code);
/* The first character of a name from a file as it may be printed: what is hidden or no UTF-8
 * becomes \xNN, \uNNNN or \UNNNNNNNN. Returns the bytes that it has in the name. */
enum { SAFE_CHARACTER = 16 };
size_t safe_character(const char *text, char *out);
/* Prints such a name. */
void print_safe(FILE *out, const char *text);
/* "1.5 GiB", "17 B". */
const char *size_text(uint64_t bytes, char *buf, size_t cap);
/* "6.7B", "124.4M", "9999". */
const char *count_text(uint64_t n, char *buf, size_t cap);
/* "[4, 8]", "[]". */
const char *shape_text(int ndim, const int64_t *shape, char *buf, size_t cap);
/* "dcp", "safetensors", "torch". */
const char *format_name(rsd_format format);
/* "s" unless there is one. */
const char *plural(uint64_t n);
/* Seconds on a clock that never jumps. */
double now(void);

/* ---- columns.c: tables ---- */

#define MOST_COLUMNS 12

/* Zeroed and begun is empty. Cells are added row by row. */
typedef struct columns {
    int         n;
    const char *title[MOST_COLUMNS];
    bool        right[MOST_COLUMNS]; /* numbers */
    bool        spare[MOST_COLUMNS]; /* may be left out where there is no room */
    char       *text;                /* cells one after the other, each with its NUL */
    size_t      len, cap, cells;
    bool        failed; /* no memory: nothing is printed */
} columns;

/* Titles until NULL; "?" before one: a column to leave out on a terminal that is too narrow, the
 * last of them first; ">" before it: one of numbers. */
void columns_begin(columns *c, const char *const *title);
void columns_add(columns *c, const char *cell);
void columns_addf(columns *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Prints and empties the table. On a terminal that is too narrow a long first cell stands on a line
 * of its own. False: there was no memory. */
bool columns_print(columns *c, FILE *out);

/* ---- json_out.c: one JSON document, written as it comes ---- */

#define JSON_MOST_DEPTH 16

/* What lies deeper than two containers is kept on one line. Keys are NULL in arrays. */
typedef struct json_out {
    FILE *out;
    int   depth;
    bool  array[JSON_MOST_DEPTH];
    bool  any[JSON_MOST_DEPTH]; /* something stands in it already */
    bool  html;                 /* no text has a '<', '>' or '&', so that none ends a script */
} json_out;

void json_open_object(json_out *j, const char *key);
void json_open_array(json_out *j, const char *key);
void json_close(json_out *j);
/* Bytes that are no UTF-8 become U+FFFD. */
void json_text(json_out *j, const char *key, const char *text);
void json_int(json_out *j, const char *key, int64_t value);
void json_uint(json_out *j, const char *key, uint64_t value);
void json_real(json_out *j, const char *key, double value); /* null if it is not finite */
void json_bool(json_out *j, const char *key, bool value);
void json_null(json_out *j, const char *key);
void json_raw(json_out *j, const char *key, const char *json); /* is JSON already */
void json_ints(json_out *j, const char *key, int n, const int64_t *value);

/* ---- help.c, complete.c ---- */

void help_overview(FILE *out);
void help_command(FILE *out, const command *cmd);
void man_page(FILE *out, const command *cmd); /* NULL: of the tool */
void complete_bash(FILE *out);
void complete_zsh(FILE *out);
void complete_fish(FILE *out);
/* complete_words.c: for these scripts: what the last of the words may become, a line each. */
int complete_words(int n, const char *const *word);

/* ---- source.c: checkpoints and layouts that the command line names ---- */

/* EXIT_DONE, or the code to end with and the reason printed. */
int source_open(const args *a, const char *path, rsd_ckpt **out);
/* The same of what is left, if files are missing or short. */
int source_salvage(const args *a, const char *path, rsd_ckpt **out);
/* SPEC is rules as text, or a file that holds them. */
int source_rules(const args *a, const char *spec, rsd_rules **out);
/* How many bytes of a tensor to read at once: `usual`, or more if its chunks are compressed, since
 * each read then starts at the beginning of a chunk. */
int64_t source_part(rsd_ckpt *ckpt, size_t t, int64_t usual);
/* One object as text ("{'step': 100}") or JSON; *out is the caller's to free. */
int source_object(const args *a, rsd_ckpt *ckpt, size_t i, bool json, const char **name,
                  char **out);

/* ---- reasons.c: what was not done, and why ---- */

#define REASON_NAMES 5 /* that are told of each */

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
/* "BEFOREa, b and 3 more: why", a line each. */
void reasons_print(FILE *out, const char *before, const reasons *r);
void reasons_free(reasons *r);

/* ---- health.c: what is left of a damaged checkpoint ---- */

/* Tensors and objects that are damaged or gone. */
size_t health_lost(rsd_ckpt *ckpt);
/* A line for each of them, and how many are whole; nothing if all are. */
void health_print(FILE *out, rsd_ckpt *ckpt);
/* The arrays "damaged" and "gone". */
void health_json(json_out *j, rsd_ckpt *ckpt);

/* ---- metas.c: safetensors' __metadata__ ---- */

/* A table; nothing if it says nothing but "format". */
int metas_print(const args *a, const rsd_ckpt *ckpt);
/* The key "metadata", if there are any. */
void metas_json(const rsd_ckpt *ckpt, json_out *j);

/* ---- pieces.c: a box, part by part ---- */

/* Zeroed and begun gives parts of a box that lie one behind the other in row-major order. */
typedef struct pieces {
    rsd_box whole, next; /* next.off[0 .. dim] is where the next part starts */
    int     dim;         /* the parts are cut along it; those before it have length 1 */
    int64_t rows;        /* of each part along `dim` */
    bool    done;
} pieces;

void pieces_begin(pieces *p, const rsd_box *whole, int64_t most_elements);
bool pieces_next(pieces *p, rsd_box *out);

/* ---- element.c: what one element is ---- */

/* Its value; of a complex number the real part, and *imag is set (may be NULL). */
double element_value(rsd_dtype dtype, const void *at, double *imag);
/* As short as it can be so that reading it gives the same element. */
const char *element_text(rsd_dtype dtype, const void *at, char *buf, size_t cap);
bool        element_is_float(rsd_dtype dtype); /* or complex */

/* ---- elide.c ---- */

#define ELIDE_ABOVE 1000 /* elements that are still shown in full, as numpy has it */

/* Prints a part of tensor t, which has elements and dimensions, with dots for all but the edges. */
int elide_print(const args *a, rsd_ckpt *ckpt, size_t t, rsd_dtype dtype, const rsd_box *box);

/* ---- compare.c: the values of many pairs of tensors ---- */

/* Two tensors of the same shape, and what was found. */
typedef struct pair {
    size_t          ta, tb; /* their numbers in the two checkpoints */
    rsd_dtype       from;   /* of the first one, whose values are cast to info.dtype */
    rsd_tensor_info info;   /* the second one's */
    int64_t         count;  /* elements that differ */
    int64_t         first;  /* the number of the first of them, row-major; of no use if none */
    char            a[16], b[16]; /* its bytes */
    double          largest;      /* absolute difference; NaN if only one of two elements is NaN */
} pair;

/* Elements differ if their bits do; with a tolerance, if |a - b| > atol + rtol * |b| too. */
typedef struct tolerance {
    bool   on;
    double rtol, atol;
} tolerance;

/* Reads and compares all pairs with `threads` threads (0: as many as there are processors), each of
 * which holds a few MiB; one at a time holds more, for compressed chunks. */
rsd_err compare_pairs(rsd_ckpt *a, rsd_ckpt *b, pair *p, size_t n, const tolerance *tol,
                      int32_t threads, progress *bar, rsd_error *err);

/* Compares n elements of info.dtype that are in memory. */
void compare_elements(const tolerance *tol, pair *p, const char *a, const char *b, int64_t n);

/* How many this process may run on. */
int32_t processors(void);

/* ---- stats.c: what the elements of many tensors amount to ---- */

/* Elements that are not finite are counted and left out of all else; complex ones count by their
 * modulus. `known` is false if nothing is left, or for two values in a byte. */
typedef struct stats {
    int64_t     count, nans, infs; /* count: of the finite ones */
    long double least, most;       /* holds every integer of 64 bits */
    long double sum, squares;
    double      mean, norm;   /* norm: the root of the sum of squares */
    bool        known, whole; /* whole: of integers */
} stats;

/* Reads n tensors, a few MiB for each of `threads` threads (0: as many as there are processors);
 * the result does not depend on their number. */
rsd_err stats_read(rsd_ckpt *ckpt, const size_t *tensor, size_t n, stats *out, int32_t threads,
                   progress *bar, rsd_error *err);

/* ---- name_order.c ---- */

/* The order for people: layers.2 before layers.10, and what lies below one name together. */
int name_compare(const char *a, const char *b);
/* "a.b" lies below "a". */
bool name_below(const char *name, const char *top);

/* ---- scratch.c ---- */

/* A new folder below `dir`; *out is taken back by scratch_remove, which also removes it with all
 * that is in it and accepts NULL. */
int  scratch_make(const args *a, const char *dir, char **out);
void scratch_remove(char *folder);

/* ---- tree.c ---- */

/* The tensors as a tree by the dots in their names, with sums; neighbours such as layers.0 and
 * layers.1 that hold the same are folded into one. Sorts `t`. False: no memory. */
bool tree_print(FILE *out, rsd_tensor_info *t, size_t n);

/* ---- holders.c: who holds which part of a tensor ---- */

/* A box and the number of its rank or file. */
typedef struct tile {
    int32_t holder;
    rsd_box box;
} tile;

/* The files of a checkpoint as they come up; zeroed is empty, `file` is the owner's to free. The
 * names are the checkpoint's. */
typedef struct holders {
    const char **file; /* [n] */
    size_t       n, cap, last;
} holders;

/* The number of a file, a new one if it has none yet. False: no memory. */
bool holders_number(holders *h, const char *name, size_t *out);
/* "__3_0.distcp" was written by rank 3; -1: the name does not tell. */
int32_t  file_writer(const char *name);
uint64_t tensor_elements(const rsd_tensor_info *info);
/* How many files hold tensor t, and the first of them by name, which is the checkpoint's. */
int tensor_files(const args *a, rsd_ckpt *ckpt, size_t t, const char **first, size_t *n);
/* How a tensor is cut: "whole", "shard(0)/4", "shard(0)/2 shard(1)/4", or "irregular" if the chunks
 * make no grid. */
int tensor_layout(const args *a, rsd_ckpt *ckpt, size_t t, char *buf, size_t cap);
/* The chunks of tensor t, held by files. *out is the caller's to free. */
int tiles_stored(const args *a, rsd_ckpt *ckpt, size_t t, holders *h, tile **out, size_t *n);
/* The boxes of all ranks. *out is the caller's to free. False: no memory. */
bool tiles_of_layout(const rsd_layout *layout, tile **out, size_t *n);

/* ---- draw.c, picture.c: pictures for the terminal ---- */

/* How a picture was drawn, and what it could not show. */
typedef struct drawn {
    int     strip;       /* the axis along which each tile is one cell; -1: it is to scale */
    size_t  here, shown; /* tiles at index 0 of the axes that are not drawn; that have a cell */
    int64_t cell_rows, cell_cols; /* elements that one character stands for, at most */
} drawn;

#define DRAW_MOST_PARTS 64

/* Into how many parts the tiles cut an axis; counts no further than one more than the most. */
int draw_parts(size_t n, const tile *t, int axis);
/* The two axes that are best drawn: cut before whole, then long before short. axes[0] goes down and
 * is -1 if there is only one, axes[1] across. */
void draw_axes(int ndim, const int64_t *shape, size_t n, const tile *t, int axes[2]);
/* A letter or a number for each holder, as wide as the terminal allows. False: no memory. */
bool draw_tiles(FILE *out, const int64_t *shape, size_t n, const tile *t, const int axes[2],
                bool colour, drawn *told);
/* How wide a picture of these tiles has to write their holders: 1, a letter, or as many digits. */
int draw_width(size_t n, const tile *t);
/* A holder as in the pictures, behind a space; '.' for -1. */
void draw_holder(FILE *out, int32_t holder, int width, bool colour);
/* Each tensor whose name is `pattern` or matches it, with --axes; EXIT_NO if there is none. */
int picture_print(const args *a, rsd_ckpt *ckpt, const char *pattern);

#endif
