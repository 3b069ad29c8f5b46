/* SPDX-License-Identifier: Apache-2.0 */
/* Writes one JSON document to a stream. The document's members and the items of its lists start on
 * new lines, so that people and grep can read it too; the rest stays on one line. */
#include "cli.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#define LINES_TO_DEPTH 2

/* Escapes characters that a terminal would obey. */
static void quoted(FILE *out, const char *text, bool html)
{
    fputc('"', out);
    while (*text) {
        uint32_t code = 0;
        size_t   n = utf8_code(text, &code);

        if (n == 0)
            fputs("\\ufffd", out);
        else if (code > 0xffff && is_hidden(code))
            fprintf(out, "\\u%04x\\u%04x", 0xd7c0 + (code >> 10), 0xdc00 + (code & 0x3ff));
        else if (is_hidden(code) || (html && (code == '<' || code == '>' || code == '&')))
            fprintf(out, "\\u%04x", code);
        else if (code == '"' || code == '\\')
            fprintf(out, "\\%c", (char)code);
        else
            fwrite(text, 1, n, out);
        text += n ? n : 1;
    }
    fputc('"', out);
}

static void new_line(json_out *j)
{
    fprintf(j->out, "\n%*s", 2 * j->depth, "");
}

static void begin(json_out *j, const char *key)
{
    if (j->depth > 0) {
        bool *any = &j->any[j->depth - 1];

        if (*any)
            fputc(',', j->out);
        if (j->depth <= LINES_TO_DEPTH)
            new_line(j);
        else if (*any)
            fputc(' ', j->out);
        *any = true;
    }
    if (key) {
        quoted(j->out, key, j->html);
        fputs(": ", j->out);
    }
}

static void open_container(json_out *j, const char *key, bool array)
{
    assert(j->depth < JSON_MOST_DEPTH);
    begin(j, key);
    fputc(array ? '[' : '{', j->out);
    j->array[j->depth] = array;
    j->any[j->depth] = false;
    j->depth++;
}

void json_open_object(json_out *j, const char *key)
{
    open_container(j, key, false);
}

void json_open_array(json_out *j, const char *key)
{
    open_container(j, key, true);
}

void json_close(json_out *j)
{
    j->depth--;
    if (j->depth < LINES_TO_DEPTH && j->any[j->depth])
        new_line(j);
    fputc(j->array[j->depth] ? ']' : '}', j->out);
    if (j->depth == 0)
        fputc('\n', j->out);
}

void json_text(json_out *j, const char *key, const char *text)
{
    begin(j, key);
    quoted(j->out, text, j->html);
}

void json_int(json_out *j, const char *key, int64_t value)
{
    begin(j, key);
    fprintf(j->out, "%" PRId64, value);
}

void json_uint(json_out *j, const char *key, uint64_t value)
{
    begin(j, key);
    fprintf(j->out, "%" PRIu64, value);
}

void json_real(json_out *j, const char *key, double value)
{
    begin(j, key);
    if (isfinite(value))
        fprintf(j->out, "%.17g", value);
    else
        fputs("null", j->out);
}

void json_bool(json_out *j, const char *key, bool value)
{
    begin(j, key);
    fputs(value ? "true" : "false", j->out);
}

void json_null(json_out *j, const char *key)
{
    begin(j, key);
    fputs("null", j->out);
}

void json_raw(json_out *j, const char *key, const char *json)
{
    begin(j, key);
    fputs(json, j->out);
}

void json_ints(json_out *j, const char *key, int n, const int64_t *value)
{
    begin(j, key);
    for (int i = 0; i < n; i++)
        fprintf(j->out, "%s%" PRId64, i ? ", " : "[", value[i]);
    fputs(n ? "]" : "[]", j->out);
}
