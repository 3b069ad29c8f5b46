/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: any bytes as a torch.save archive, and as the pickle of one tensor. What is accepted
 * must hold what the headers promise, and little memory may be taken for it. */
#include "base/crc32.h"
#include "base/mem.h"
#include "format/tensor_pickle.h"
#include "format/zip.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static void must(bool holds)
{
    if (!holds)
        abort();
}

/* Records lie inside, in order, and don't overlap; each is found by its name. */
static void check_zip(const rsi_zip *zip, size_t len)
{
    uint64_t behind = 0;

    must(zip->n > 0 && zip->version >= 1 && zip->version <= 10);
    for (size_t i = 0; i < zip->n; i++) {
        const rsi_zip_record *record = &zip->record[i];

        must(record->data >= behind && record->data <= len && record->size <= len - record->data);
        must(rsi_zip_find(zip, record->name) == record && record->method == 0);
        behind = record->data + record->size;
    }
}

/* What is read is what would be written. */
static void check_pickle(const uint8_t *data, size_t len)
{
    rsi_tensor_pickle tensor;
    unsigned char     again[RSI_TENSOR_PICKLE_MAX];
    size_t            again_len;

    if (!rsi_tensor_pickle_read(data, len, &tensor))
        return;
    must(rsi_tensor_pickle_write(&tensor, again, &again_len, NULL) == RSD_OK);
    must(again_len == len && memcmp(again, data, len) == 0);
    rsi_tensor_pickle_check(&tensor, len, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    rsi_source source = rsi_memory_source(data, len, "fuzz");
    rsi_arena  mem = { 0 };
    rsi_zip    zip;
    rsd_error  err;

    rsi_mem_fail_at(0, 0);
    if (rsi_zip_read(&source, &mem, &zip, &err) == RSD_OK) {
        check_zip(&zip, len);
        if (zip.pickle)
            check_pickle(zip.pickle, zip.pickle_len);
    } else {
        must(err.msg[0] != 0);
    }
    must(rsi_mem_stats_get().peak <= (int64_t)(16 * len + (1 << 20)));
    rsi_arena_release(&mem);
    must(rsi_mem_stats_get().bytes == 0);
    check_pickle(data, len);
    return 0;
}
