/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps one image per state, with everything that it depends on. Tensors are found through the
 * state, so only their bytes may change between saves; any other change raises the state's
 * version. */
#include "save/image_cache.h"
#include "base/mem.h"

#include <string.h>

typedef struct kept_plan {
    uint64_t       version; /* of the state: names, dtypes, shapes, layouts, values */
    rsi_image_spec spec;
    char          *transform; /* own copy of the transform in `spec`; NULL: none */
    int32_t        ranks;
    rsi_image      image;
} kept_plan;

static atomic_uint_fast64_t reused;

uint64_t rsi_image_cache_reused(void)
{
    return atomic_load(&reused);
}

static void drop(void *arg)
{
    kept_plan *kept = arg;

    if (!kept)
        return;
    rsi_image_release(&kept->image);
    rsi_free(kept->transform);
    rsi_free(kept);
}

static bool same_transform(const char *a, const char *b)
{
    return a && b ? strcmp(a, b) == 0 : a == b;
}

static bool fits(const kept_plan *kept, const rsd_state *state, const rsi_image_spec *spec,
                 int32_t ranks)
{
    const rsi_image_spec *was = &kept->spec;

    return kept->version == state->version && kept->ranks == ranks && was->format == spec->format &&
           was->shard_size == spec->shard_size && was->distributed == spec->distributed &&
           was->one_file == spec->one_file && was->own_only == spec->own_only &&
           was->rank == spec->rank && same_transform(kept->transform, spec->transform);
}

bool rsi_image_cache_take(const rsd_state *state, const rsi_image_spec *spec, int32_t ranks,
                          rsi_image *image)
{
    kept_plan *kept = atomic_exchange(&state->cache->kept, NULL);

    if (!kept || !fits(kept, state, spec, ranks)) {
        drop(kept);
        return false;
    }
    *image = kept->image;
    for (size_t i = 0; i < image->nfiles && image->transform; i++)
        image->file[i].bytes = 0; /* set by the last save */
    for (size_t i = 0; image->meta && image->transform && i < image->meta->nchunks; i++)
        image->meta->row[i].offset = image->meta->row[i].length = 0;
    for (size_t i = 0; image->meta && image->transform && i < image->meta->nitems; i++)
        image->meta->item[i].row.offset = image->meta->item[i].row.length = 0;
    kept->image = (rsi_image){ 0 };
    drop(kept);
    atomic_fetch_add(&reused, 1);
    return true;
}

void rsi_image_cache_keep(const rsd_state *state, const rsi_image_spec *spec, int32_t ranks,
                          rsi_image *image)
{
    kept_plan *kept = rsi_calloc(1, sizeof(*kept));

    if (kept && spec->transform)
        kept->transform = rsi_strdup(spec->transform);
    if (!kept || (spec->transform && !kept->transform)) {
        rsi_free(kept);
        rsi_image_release(image);
        return;
    }
    kept->version = state->version;
    kept->spec = *spec;
    kept->ranks = ranks;
    kept->image = *image;
    *image = (rsi_image){ 0 };
    state->cache->drop = drop;
    drop(atomic_exchange(&state->cache->kept, kept));
}

void rsi_image_cache_forget(const rsd_state *state)
{
    drop(atomic_exchange(&state->cache->kept, NULL));
}
