/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the reader of safetensors headers and of torch's sharding metadata. The input is a file;
 * data that are missing at its end are pretended to be there. What is accepted must tile the data,
 * and must be the same after it was written by us and read again. */
#include "base/mem.h"
#include "format/st_dcp.h"
#include "format/st_header.h"
#include "format/st_write.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool fact)
{
    if (!fact)
        abort();
}

static void check_tiling(const rsi_st_header *header)
{
    uint64_t end = 0;

    for (size_t i = 0; i < header->ntensors + header->nlisted; i++) {
        const rsi_st_tensor *t = rsi_st_nth(header, i);
        uint64_t             bytes = rsd_dtype_size((rsd_dtype)t->dtype);

        for (int d = 0; d < t->ndim; d++)
            bytes *= (uint64_t)rsi_st_shape(header, t)[d];
        require(t->begin == end && (t->listed || t->end - t->begin == bytes));
        require(strlen(t->name.text) == t->name.len);
        require(rsi_st_find(header, t->name.text, t->name.len) == t);
        end = t->end;
    }
    require(end == header->data_bytes);
}

static void compare(const rsi_st_header *a, const rsi_st_header *b)
{
    require(a->ntensors == b->ntensors && a->nmeta == b->nmeta);
    for (size_t i = 0; i < a->ntensors; i++) {
        const rsi_st_tensor *t = &a->tensor[i];
        const rsi_st_tensor *u = rsi_st_find(b, t->name.text, t->name.len);

        require(u && u->dtype == t->dtype && u->ndim == t->ndim);
        require(memcmp(rsi_st_shape(a, t), rsi_st_shape(b, u), t->ndim * sizeof(int64_t)) == 0);
    }
    for (size_t i = 0; i < a->nmeta; i++) {
        const rsi_st_meta *m = rsi_st_meta_find(b, a->meta[i].key.text);

        require(m && m->value_len == a->meta[i].value_len);
        require(memcmp(m->value, a->meta[i].value, m->value_len) == 0);
    }
}

static void write_again(const rsi_st_header *header)
{
    rsi_st_item  *item = rsi_calloc(header->ntensors, sizeof(*item));
    rsi_st_pair  *meta = rsi_calloc(header->nmeta, sizeof(*meta));
    rsi_st_image  image;
    rsi_st_header again;

    require(item && meta);
    for (size_t i = 0; i < header->ntensors; i++) {
        const rsi_st_tensor *t = &header->tensor[i];

        item[i] =
            (rsi_st_item){ t->name.text, (rsd_dtype)t->dtype, t->ndim, rsi_st_shape(header, t) };
    }
    for (size_t i = 0; i < header->nmeta; i++)
        meta[i] = (rsi_st_pair){ header->meta[i].key.text, header->meta[i].value,
                                 header->meta[i].value_len };
    require(rsi_st_image_make(header->ntensors, item, header->nmeta, meta, &image, NULL) == RSD_OK);
    require(header->nlisted || image.data_bytes == header->data_bytes);
    require(image.head_len % RSI_ST_ALIGN == 0);
    require(rsi_st_parse_cut(image.head + RSI_ST_PREFIX, image.head_len - RSI_ST_PREFIX,
                             image.head_len + image.data_bytes, false, &again, NULL) == RSD_OK);
    compare(header, &again);
    rsi_st_release(&again);
    rsi_st_image_release(&image);
    rsi_free(item);
    rsi_free(meta);
}

static void check_parts(const rsi_st_header *header)
{
    rsi_st_dcp    dcp;
    rsi_st_file   file = { .path = "x", .header = header, .dcp = &dcp };
    rsi_st_joined joined;
    rsd_error     err = { 0 };

    if (rsi_st_dcp_read(header, &dcp, &err)) {
        require(err.msg[0] != '\0');
        return;
    }
    if (!rsi_st_join(1, &file, &joined, &err)) {
        require(joined.nwholes == header->ntensors);
        rsi_st_joined_release(&joined);
    }
    rsi_st_dcp_release(&dcp);
}

/* As many bytes of data as the header claims last, if it has a sensible number there: otherwise
 * hardly any input would get past the check of the file's size. */
static uint64_t pretend(const uint8_t *json, size_t len)
{
    uint64_t most = 0, value = 0;

    for (size_t i = 0; i < len; i++) {
        value = json[i] >= '0' && json[i] <= '9' ? (value * 10 + json[i] - '0') % (1u << 30) : 0;
        if (i + 1 < len && json[i + 1] == ']' && value > most)
            most = value;
    }
    return most;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint64_t      file_bytes = size;
    rsi_st_header header;
    rsd_error     err = { 0 };
    size_t        len;
    char         *json;

    if (size < RSI_ST_PREFIX)
        return 0;
    rsi_mem_fail_at(0, 0);
    if (rsi_st_length(data, size, &len, &err))
        len = size - RSI_ST_PREFIX; /* the JSON is what is worth fuzzing */
    json = malloc(len ? len : 1);
    require(json != NULL);
    memcpy(json, data + RSI_ST_PREFIX, len);
    if (len + RSI_ST_PREFIX == size)
        file_bytes += pretend(data + RSI_ST_PREFIX, len);
    if (rsi_st_parse_cut(json, len, file_bytes, false, &header, &err)) {
        require(err.msg[0] != '\0');
        require(rsi_mem_stats_get().peak <= (int64_t)(16 * size + (1 << 20)));
    } else {
        require(rsi_mem_stats_get().peak <= (int64_t)(16 * size + (1 << 20)));
        check_tiling(&header);
        check_parts(&header);
        write_again(&header);
        rsi_st_release(&header);
    }
    free(json);
    require(rsi_mem_stats_get().bytes == 0);
    return 0;
}
