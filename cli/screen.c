/* SPDX-License-Identifier: Apache-2.0 */
/* Terminal properties, and values as short text. */
#include "cli.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

bool in_colour(FILE *out)
{
    const char *no = getenv("NO_COLOR");
    const char *term = getenv("TERM");

    return isatty(fileno(out)) && !(no && *no) && !(term && strcmp(term, "dumb") == 0);
}

int screen_width(FILE *out)
{
    struct winsize size;

    if (!isatty(fileno(out)))
        return 0;
    if (ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col >= 20)
        return size.ws_col;
    return 80;
}

/* Terminal cells of a character: East Asian characters and pictographs are wide. */
static size_t cells_of(uint32_t c)
{
    static const struct {
        uint32_t first, last, cells;
    } range[] = { { 0x300, 0x36f, 0 },     { 0x1100, 0x115f, 2 },   { 0x200b, 0x200f, 0 },
                  { 0x2e80, 0xa4cf, 2 },   { 0xac00, 0xd7a3, 2 },   { 0xf900, 0xfaff, 2 },
                  { 0xfe00, 0xfe0f, 0 },   { 0xfe30, 0xfe6f, 2 },   { 0xff00, 0xff60, 2 },
                  { 0xffe0, 0xffe6, 2 },   { 0x1f300, 0x1f64f, 2 }, { 0x1f680, 0x1f6ff, 2 },
                  { 0x1f900, 0x1faff, 2 }, { 0x20000, 0x3fffd, 2 } };

    for (size_t i = 0; i < sizeof(range) / sizeof(range[0]); i++)
        if (c >= range[i].first && c <= range[i].last)
            return range[i].cells;
    return 1;
}

size_t utf8_code(const char *text, uint32_t *code)
{
    static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
    const unsigned char   lead = (unsigned char)*text;
    const size_t          n = lead < 0x80 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    uint32_t              c = n == 1 ? lead : lead & (0x7fu >> n);

    if ((n > 1 && lead < 0xc2) || lead > 0xf4)
        return 0;
    for (size_t i = 1; i < n; i++) {
        if (((unsigned char)text[i] & 0xc0) != 0x80)
            return 0;
        c = c << 6 | ((unsigned char)text[i] & 0x3f);
    }
    if (c < least[n] || c > 0x10ffff || (c >= 0xd800 && c < 0xe000))
        return 0;
    *code = c;
    return n;
}

bool is_hidden(uint32_t code)
{
    static const struct {
        uint32_t first, last;
    } range[] = { { 0, 0x1f },         { 0x7f, 0x9f },       { 0xad, 0xad },
                  { 0x61c, 0x61c },    { 0x180e, 0x180e },   { 0x200b, 0x200f },
                  { 0x2028, 0x202e },  { 0x2060, 0x206f },   { 0xfeff, 0xfeff },
                  { 0xfff9, 0xfffb },  { 0x1bca0, 0x1bca3 }, { 0x1d173, 0x1d17a },
                  { 0xe0000, 0xe007f } };

    for (size_t i = 0; i < sizeof(range) / sizeof(range[0]); i++)
        if (code >= range[i].first && code <= range[i].last)
            return true;
    return false;
}

/* Expects UTF-8; an invalid byte counts as one character. */
size_t text_width(const char *text)
{
    size_t cells = 0;

    while (*text) {
        uint32_t code = 0;
        size_t   n = utf8_code(text, &code);

        cells += n ? cells_of(code) : 1;
        text += n ? n : 1;
    }
    return cells;
}

void text_shorten(char *text, size_t most)
{
    if (strlen(text) <= most + 3)
        return;
    while (most > 0 && ((unsigned char)text[most] & 0xc0) == 0x80)
        most--;
    memcpy(text + most, "...", 4);
}

void print_wrapped(FILE *out, const char *line)
{
    const size_t most = (size_t)screen_width(out);
    char         seen[SAFE_CHARACTER];
    size_t       at = 0;

    while (*line) {
        const size_t len = strcspn(line, " ");

        if (most && at > 0 && at + 1 + len > most) {
            fputc('\n', out);
            at = 0;
        }
        if (at > 0)
            fputc(' ', out);
        at += (at > 0) + len;
        for (const char *end = line + len; line < end;) {
            line += safe_character(line, seen);
            fputs(seen, out);
        }
        line += strspn(line, " ");
    }
    fputc('\n', out);
}

size_t safe_character(const char *text, char *out)
{
    uint32_t     code = (unsigned char)*text;
    const size_t n = utf8_code(text, &code);

    if (n && !is_hidden(code)) {
        memcpy(out, text, n);
        out[n] = '\0';
    } else {
        snprintf(out, SAFE_CHARACTER,
                 code < 0x100     ? "\\x%02x"
                 : code < 0x10000 ? "\\u%04x"
                                  : "\\U%08x",
                 code);
    }
    return n ? n : 1;
}

void print_safe(FILE *out, const char *text)
{
    char seen[SAFE_CHARACTER];

    while (*text) {
        text += safe_character(text, seen);
        fputs(seen, out);
    }
}

const char *size_text(uint64_t bytes, char *buf, size_t cap)
{
    static const char *const unit[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB" };
    double                   x = (double)bytes;
    size_t                   u = 0;

    while (x >= 1024 && u + 1 < sizeof(unit) / sizeof(unit[0])) {
        x /= 1024;
        u++;
    }
    snprintf(buf, cap, u ? "%.1f %s" : "%.0f %s", x, unit[u]);
    return buf;
}

const char *count_text(uint64_t n, char *buf, size_t cap)
{
    static const char unit[] = "KMBT";
    double            x = (double)n / 1000;
    size_t            u = 0;

    if (n < 10000) {
        snprintf(buf, cap, "%" PRIu64, n);
        return buf;
    }
    while (x >= 999.95 && unit[u + 1]) {
        x /= 1000;
        u++;
    }
    snprintf(buf, cap, "%.1f%c", x, unit[u]);
    return buf;
}

const char *shape_text(int ndim, const int64_t *shape, char *buf, size_t cap)
{
    size_t at = 1;

    snprintf(buf, cap, "[");
    for (int d = 0; d < ndim && at < cap; d++)
        at += (size_t)snprintf(buf + at, cap - at, "%s%" PRId64, d ? ", " : "", shape[d]);
    if (at < cap)
        snprintf(buf + at, cap - at, "]");
    return buf;
}

const char *format_name(rsd_format format)
{
    switch (format) {
    case RSD_FORMAT_DCP:
        return "dcp";
    case RSD_FORMAT_SAFETENSORS:
        return "safetensors";
    case RSD_FORMAT_TORCH:
        return "torch";
    case RSD_FORMAT_RANKS:
        return "ranks";
    case RSD_FORMAT_ZERO:
        return "zero";
    default:
        break;
    }
    return "unknown";
}

const char *plural(uint64_t n)
{
    return n == 1 ? "" : "s";
}

double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}
