/* SPDX-License-Identifier: Apache-2.0 */
/* test_golden.c - checkpoints that PyTorch wrote are read bit for bit. tests/data/make_golden.py
 * makes them, and beside each a listing with one line for each tensor and object, sorted; this
 * prints the same lines from what the library reads. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "rot13.h"

#include <ftw.h>
#include <glob.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef RESHARD_TEST_DATA
#define RESHARD_TEST_DATA "tests/data" /* from the top of the project */
#endif

/* ---- lines ---- */

typedef struct lines {
    char **at;
    size_t n;
} lines;

static void keep(lines *l, char *line)
{
    l->at = realloc(l->at, (l->n + 1) * sizeof(l->at[0]));
    assert_non_null(l->at);
    l->at[l->n++] = line;
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void drop(lines *l)
{
    for (size_t i = 0; i < l->n; i++)
        free(l->at[i]);
    free(l->at);
}

static void path_of(const char *name, const char *end, char *path)
{
    const char *folder = getenv("RESHARD_TEST_DATA");

    snprintf(path, PATH_MAX, "%s/golden/%s%s", folder ? folder : RESHARD_TEST_DATA, name, end);
}

static lines expected_lines(const char *name)
{
    lines   l = { 0 };
    char    path[PATH_MAX];
    char   *line = NULL;
    size_t  cap = 0;
    ssize_t len;
    FILE   *f;

    path_of(name, ".json", path);
    f = fopen(path, "r");
    if (!f)
        fail_msg("no listing \"%s\"", path);
    while ((len = getline(&line, &cap, f)) > 0) {
        line[len - 1] = '\0';
        keep(&l, strdup(line));
    }
    free(line);
    fclose(f);
    return l;
}

/* ---- what the library reads ---- */

static void put_name(FILE *to, const char *name)
{
    rsd_values      *owner;
    const rsd_value *text;
    char             json[256];

    assert_int_equal(rsd_values_create(&owner, NULL), RSD_OK);
    assert_int_equal(rsd_value_create_bytes(owner, RSD_VALUE_STR, name, strlen(name), &text, NULL),
                     RSD_OK);
    assert_in_range(rsd_value_json(text, json, sizeof(json)), 2, sizeof(json) - 1);
    fprintf(to, "{\"name\": %s, ", json);
    rsd_values_free(owner);
}

static char *tensor_line(rsd_ckpt *ckpt, size_t t)
{
    rsd_tensor_info info = { .size = sizeof(info) };
    rsd_view        view = { 0 };
    rsd_error       err = { 0 };
    unsigned char  *bytes;
    char           *line = NULL;
    size_t          len;
    FILE           *to = open_memstream(&line, &len);

    assert_non_null(to);
    assert_int_equal(rsd_ckpt_tensor(ckpt, t, &info, NULL), RSD_OK);
    bytes = malloc((size_t)info.bytes + 1);
    view.data = bytes;
    view.box.ndim = info.ndim;
    memcpy(view.box.len, info.shape, sizeof(view.box.len));
    if (rsd_ckpt_read(ckpt, t, &view, NULL, &err) != RSD_OK)
        fail_msg("tensor \"%s\": %s", info.name, err.msg);
    put_name(to, info.name);
    fprintf(to, "\"dtype\": \"%s\", \"shape\": [", rsd_dtype_name(info.dtype));
    for (int d = 0; d < info.ndim; d++)
        fprintf(to, "%s%" PRId64, d ? ", " : "", info.shape[d]);
    fputs("], \"bytes\": \"", to);
    for (int64_t i = 0; i < info.bytes; i++)
        fprintf(to, "%02x", bytes[i]);
    fputs("\"}", to);
    fclose(to);
    free(bytes);
    return line;
}

static char *object_line(rsd_ckpt *ckpt, size_t i)
{
    const rsd_value *value;
    const char      *name;
    rsd_values      *owner;
    rsd_error        err = { 0 };
    char            *line = NULL, *json;
    size_t           len;
    FILE            *to = open_memstream(&line, &len);

    assert_non_null(to);
    assert_int_equal(rsd_values_create(&owner, NULL), RSD_OK);
    if (rsd_ckpt_object(ckpt, i, &name, owner, &value, &err) != RSD_OK)
        fail_msg("object %zu: %s", i, err.msg);
    json = calloc(rsd_value_json(value, NULL, 0) + 1, 1);
    rsd_value_json(value, json, rsd_value_json(value, NULL, 0) + 1);
    put_name(to, name);
    fprintf(to, "\"value\": %s}", json);
    fclose(to);
    free(json);
    rsd_values_free(owner);
    return line;
}

static void report_damage(void *arg, const rsd_error *what)
{
    (void)arg;
    fail_msg("damage: %s", what->msg);
}

static lines read_lines(const char *name, rsd_format format)
{
    lines     l = { 0 };
    rsd_error err = { 0 };
    char      path[PATH_MAX];
    rsd_ckpt *ckpt;

    path_of(name, "", path);
    if (rsd_ckpt_open(NULL, path, &ckpt, &err) != RSD_OK)
        fail_msg("%s", err.msg);
    if (format != RSD_FORMAT_AUTO)
        assert_int_equal(rsd_ckpt_format(ckpt), format);
    for (size_t t = 0; t < rsd_ckpt_tensors(ckpt); t++)
        keep(&l, tensor_line(ckpt, t));
    for (size_t i = 0; i < rsd_ckpt_objects(ckpt); i++)
        keep(&l, object_line(ckpt, i));
    if (rsd_ckpt_verify(ckpt, NULL, report_damage, NULL, NULL, &err) != RSD_OK)
        fail_msg("%s", err.msg);
    rsd_ckpt_close(ckpt);
    if (l.n)
        qsort(l.at, l.n, sizeof(l.at[0]), by_bytes);
    return l;
}

static void compare(const char *name, rsd_format format)
{
    lines want = expected_lines(name), got = read_lines(name, format);

    for (size_t i = 0; i < want.n && i < got.n; i++)
        assert_string_equal(got.at[i], want.at[i]);
    assert_int_equal(got.n, want.n);
    assert_true(got.n > 0);
    drop(&want);
    drop(&got);
}

static int add_rot13(void **state)
{
    (void)state;
    return (int)rsd_transform_register(rot13(), NULL);
}

/* ---- DCP ---- */

#define READS_AS_TORCH_WROTE_IT(fact, name, format)                                                \
    static void fact(void **state)                                                                 \
    {                                                                                              \
        (void)state;                                                                               \
        compare(name, format);                                                                     \
    }

READS_AS_TORCH_WROTE_IT(dcp_has_ints_and_floats, "dcp_dtypes", RSD_FORMAT_DCP)
READS_AS_TORCH_WROTE_IT(dcp_has_complex_and_tiny_floats, "dcp_more_dtypes", RSD_FORMAT_DCP)
READS_AS_TORCH_WROTE_IT(dcp_has_scalars_and_empty_tensors, "dcp_scalars", RSD_FORMAT_DCP)
READS_AS_TORCH_WROTE_IT(dcp_has_rows_and_columns, "dcp_rows", RSD_FORMAT_DCP)
READS_AS_TORCH_WROTE_IT(dcp_has_blocks_and_nested_shards, "dcp_blocks", RSD_FORMAT_DCP)
READS_AS_TORCH_WROTE_IT(dcp_has_replicas_once, "dcp_replicas", RSD_FORMAT_DCP)
READS_AS_TORCH_WROTE_IT(dcp_has_empty_shards, "dcp_empty_shards", RSD_FORMAT_DCP)
READS_AS_TORCH_WROTE_IT(dcp_has_several_boxes_of_a_rank, "dcp_boxes", RSD_FORMAT_DCP)
READS_AS_TORCH_WROTE_IT(dcp_has_strided_items, "dcp_noncontiguous", RSD_FORMAT_DCP)
READS_AS_TORCH_WROTE_IT(dcp_has_zstd_items, "dcp_zstd", RSD_FORMAT_DCP)
READS_AS_TORCH_WROTE_IT(dcp_has_items_of_a_registered_transform, "dcp_rot13", RSD_FORMAT_DCP)
READS_AS_TORCH_WROTE_IT(dcp_has_a_file_for_each_item, "dcp_items", RSD_FORMAT_DCP)
READS_AS_TORCH_WROTE_IT(dcp_has_a_file_for_each_thread, "dcp_threads", RSD_FORMAT_DCP)
READS_AS_TORCH_WROTE_IT(dcp_has_metadata_of_each_rank, "dcp_own_metadata", RSD_FORMAT_DCP)
READS_AS_TORCH_WROTE_IT(dcp_has_objects, "dcp_objects", RSD_FORMAT_DCP)
READS_AS_TORCH_WROTE_IT(dcp_has_nested_objects, "dcp_nested_objects", RSD_FORMAT_DCP)
READS_AS_TORCH_WROTE_IT(dcp_names_unknown_classes, "dcp_unknown_objects", RSD_FORMAT_DCP)

/* ---- safetensors and torch.save ---- */

READS_AS_TORCH_WROTE_IT(safetensors_file_has_every_dtype, "plain.safetensors",
                        RSD_FORMAT_SAFETENSORS)
READS_AS_TORCH_WROTE_IT(safetensors_folder_has_an_index, "hf_index", RSD_FORMAT_SAFETENSORS)
READS_AS_TORCH_WROTE_IT(safetensors_of_ranks_are_joined, "hf_parts", RSD_FORMAT_SAFETENSORS)
READS_AS_TORCH_WROTE_IT(consolidated_safetensors_may_be_unaligned, "hf_consolidated",
                        RSD_FORMAT_SAFETENSORS)
READS_AS_TORCH_WROTE_IT(torch_save_has_every_dtype, "dtypes.pt", RSD_FORMAT_TORCH)
READS_AS_TORCH_WROTE_IT(torch_save_has_views_of_shared_storages, "shared.pt", RSD_FORMAT_TORCH)
READS_AS_TORCH_WROTE_IT(torch_save_has_elements_at_the_same_place, "overlapping.pt",
                        RSD_FORMAT_TORCH)
READS_AS_TORCH_WROTE_IT(torch_save_has_objects, "objects.pt", RSD_FORMAT_TORCH)
READS_AS_TORCH_WROTE_IT(torch_save_has_nested_dicts_and_lists, "training.pt", RSD_FORMAT_TORCH)
READS_AS_TORCH_WROTE_IT(torch_save_has_a_state_dict, "model.bin", RSD_FORMAT_TORCH)

/* ---- every version of torch ---- */

static void reads_as_this_version_wrote_it(void **state)
{
    compare(*state, RSD_FORMAT_AUTO);
}

/* A test for each listing below golden/matrix, golden/folders and golden/megatron, which
 * make_matrix.py, make_folders.py, make_nanotron.py and make_megatron.py of tests/data made. Their
 * names lie in `found`. */
static size_t every_version(glob_t *found, struct CMUnitTest *out, size_t cap)
{
    char   pattern[PATH_MAX];
    size_t n = 0;

    path_of("matrix/torch-*/*", ".json", pattern);
    if (glob(pattern, 0, NULL, found) != 0)
        return 0;
    path_of("folders/*", ".json", pattern);
    glob(pattern, GLOB_APPEND, NULL, found);
    path_of("megatron/*", ".json", pattern);
    glob(pattern, GLOB_APPEND, NULL, found);
    for (size_t i = 0; i < found->gl_pathc && n < cap; i++) {
        char *name = strstr(found->gl_pathv[i], "/golden/") + strlen("/golden/");

        name[strlen(name) - strlen(".json")] = '\0';
        out[n++] = (struct CMUnitTest){ .name = name,
                                        .test_func = reads_as_this_version_wrote_it,
                                        .initial_state = name };
    }
    return n;
}

static int64_t all_bytes, most_bytes;

static int add_size(const char *path, const struct stat *st, int kind, struct FTW *where)
{
    (void)path;
    (void)where;
    if (kind == FTW_F) {
        all_bytes += st->st_size;
        most_bytes = st->st_size > most_bytes ? st->st_size : most_bytes;
    }
    return 0;
}

static void files_stay_small_enough_for_a_repository(void **state)
{
    char path[PATH_MAX];

    (void)state;
    path_of("", "", path);
    assert_int_equal(nftw(path, add_size, 16, FTW_PHYS), 0);
    assert_in_range(all_bytes, 1, 3000000);
    assert_in_range(most_bytes, 1, 30000);
}

int main(void)
{
    const struct CMUnitTest fixed[] = {
        cmocka_unit_test(files_stay_small_enough_for_a_repository),
        cmocka_unit_test(dcp_has_ints_and_floats),
        cmocka_unit_test(dcp_has_complex_and_tiny_floats),
        cmocka_unit_test(dcp_has_scalars_and_empty_tensors),
        cmocka_unit_test(dcp_has_rows_and_columns),
        cmocka_unit_test(dcp_has_blocks_and_nested_shards),
        cmocka_unit_test(dcp_has_replicas_once),
        cmocka_unit_test(dcp_has_empty_shards),
        cmocka_unit_test(dcp_has_several_boxes_of_a_rank),
        cmocka_unit_test(dcp_has_strided_items),
        cmocka_unit_test(dcp_has_zstd_items),
        cmocka_unit_test(dcp_has_items_of_a_registered_transform),
        cmocka_unit_test(dcp_has_a_file_for_each_item),
        cmocka_unit_test(dcp_has_a_file_for_each_thread),
        cmocka_unit_test(dcp_has_metadata_of_each_rank),
        cmocka_unit_test(dcp_has_objects),
        cmocka_unit_test(dcp_has_nested_objects),
        cmocka_unit_test(dcp_names_unknown_classes),
        cmocka_unit_test(safetensors_file_has_every_dtype),
        cmocka_unit_test(safetensors_folder_has_an_index),
        cmocka_unit_test(safetensors_of_ranks_are_joined),
        cmocka_unit_test(consolidated_safetensors_may_be_unaligned),
        cmocka_unit_test(torch_save_has_every_dtype),
        cmocka_unit_test(torch_save_has_views_of_shared_storages),
        cmocka_unit_test(torch_save_has_objects),
        cmocka_unit_test(torch_save_has_nested_dicts_and_lists),
        cmocka_unit_test(torch_save_has_a_state_dict),
        cmocka_unit_test(torch_save_has_elements_at_the_same_place),
    };

    enum { FIXED = sizeof(fixed) / sizeof(fixed[0]), MOST = 256 };
    static struct CMUnitTest tests[MOST];
    glob_t                   found = { 0 };
    size_t                   versions;
    int                      failed;

    memcpy(tests, fixed, sizeof(fixed));
    versions = every_version(&found, tests + FIXED, MOST - FIXED);
    if (versions == 0)
        return fprintf(stderr, "there are no checkpoints of older versions\n"), 1;
    failed = _cmocka_run_group_tests("golden", tests, FIXED + versions, add_rot13, NULL);
    globfree(&found);
    return failed;
}
