/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the reader of safetensors index files: what is accepted names only files of one directory,
 * and reading what we write of it gives the same. */
#include "base/mem.h"
#include "format/st_index.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool fact)
{
    if (!fact)
        abort();
}

static void write_again(const rsi_st_index *index)
{
    const char **name = rsi_calloc(index->nweights, sizeof(*name));
    uint32_t    *of = rsi_calloc(index->nweights, sizeof(*of));
    rsi_json_out out = { 0 };
    rsi_st_index again;

    require(name && of);
    for (size_t i = 0; i < index->nweights; i++) {
        name[i] = index->weight[i].name.text;
        of[i] = index->weight[i].file;
        require(rsi_one_component(index->file[of[i]], strlen(index->file[of[i]])));
    }
    require(rsi_st_index_write(index->nweights, name, of, index->file, 8 * index->nweights, &out,
                               NULL) == RSD_OK);
    require(rsi_st_index_read(out.buf, out.len, &again, NULL) == RSD_OK);
    require(again.nweights == index->nweights);
    for (size_t i = 0; i < index->nweights; i++) {
        const char *file = rsi_st_index_file(&again, name[i], strlen(name[i]));

        require(file && strcmp(file, index->file[of[i]]) == 0);
    }
    rsi_st_index_release(&again);
    rsi_json_out_release(&out);
    rsi_free(name);
    rsi_free(of);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char        *text = malloc(size ? size : 1);
    rsi_st_index index;
    rsd_error    err = { 0 };
    rsd_err      rc;

    require(text != NULL);
    if (size > 0)
        memcpy(text, data, size);
    rsi_mem_fail_at(0, 0);
    rc = rsi_st_index_read(text, size, &index, &err);
    require(rsi_mem_stats_get().peak <= (int64_t)(16 * size + (1 << 20)));
    require(!rc || err.msg[0] != '\0');
    if (!rc) {
        write_again(&index);
        rsi_st_index_release(&index);
    }
    free(text);
    require(rsi_mem_stats_get().bytes == 0);
    return 0;
}
