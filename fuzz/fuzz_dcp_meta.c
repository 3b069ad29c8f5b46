/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the reader of DCP metadata: what it accepts can be written, that reads back, and writing
 * it again gives the same bytes. Joining a table with itself changes nothing. */
#include "base/mem.h"
#include "format/dcp_meta.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct bytes {
    unsigned char *at;
    size_t         len;
} bytes;

static void require(bool fact)
{
    if (!fact)
        abort();
}

static rsd_err append(void *arg, const void *more, size_t len, rsd_error *err)
{
    bytes *b = arg;
    void  *bigger = realloc(b->at, b->len + len);

    (void)err;
    require(bigger != NULL);
    b->at = bigger;
    memcpy(b->at + b->len, more, len);
    b->len += len;
    return RSD_OK;
}

static void check(const rsi_dcp_meta *meta)
{
    const rsi_dcp_meta *twice[] = { meta, meta };
    rsi_dcp_meta       *again, *joined;
    bytes               first = { 0 }, second = { 0 }, third = { 0 };
    rsi_source          source;

    require(rsi_dcp_meta_write(meta, append, &first, NULL) == RSD_OK);
    source = rsi_memory_source(first.at, first.len, "written");
    require(rsi_dcp_meta_read(&source, &again, NULL) == RSD_OK);
    require(rsi_dcp_meta_write(again, append, &second, NULL) == RSD_OK);
    require(first.len == second.len && memcmp(first.at, second.at, first.len) == 0);
    require(rsi_dcp_meta_merge(2, twice, &joined, NULL) == RSD_OK);
    require(rsi_dcp_meta_write(joined, append, &third, NULL) == RSD_OK);
    require(first.len == third.len && memcmp(first.at, third.at, first.len) == 0);
    rsi_dcp_meta_free(again);
    rsi_dcp_meta_free(joined);
    free(first.at);
    free(second.at);
    free(third.at);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    rsi_source    source = rsi_memory_source(data, size, "fuzz");
    rsi_dcp_meta *meta;
    rsd_err       rc;

    rsi_mem_fail_at(0, 0);
    rc = rsi_dcp_meta_read(&source, &meta, NULL);
    require(rsi_mem_stats_get().peak <= (int64_t)(16 * size + (1 << 20) + (64 << 10)));
    if (!rc) {
        check(meta);
        rsi_dcp_meta_free(meta);
    }
    require(rsi_mem_stats_get().bytes == 0);
    return 0;
}
