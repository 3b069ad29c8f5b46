/* SPDX-License-Identifier: Apache-2.0 */
/* What depends on the terminal, and values as short text. */
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

/* Every byte of UTF-8 but those that continue a character. */
size_t text_width(const char *text)
{
    size_t n = 0;

    for (; *text; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

void text_shorten(char *text, size_t most)
{
    if (strlen(text) <= most + 3)
        return;
    while (most > 0 && ((unsigned char)text[most] & 0xc0) == 0x80)
        most--;
    memcpy(text + most, "...", 4);
}

void print_safe(FILE *out, const char *text)
{
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        const bool c1 = p[0] == 0xc2 && p[1] >= 0x80 && p[1] < 0xa0;

        if (*p < 0x20 || *p == 0x7f)
            fprintf(out, "\\x%02x", *p);
        else if (c1)
            fprintf(out, "\\x%02x", *++p);
        else
            fputc(*p, out);
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
    case RSD_FORMAT_AUTO:
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
