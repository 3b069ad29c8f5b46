/* SPDX-License-Identifier: Apache-2.0 */
/* Meshes: ranks on an n-dimensional grid, and slices of it. placement.c has the effect of a mesh
 * axis on a tensor. */
#include "shape/mesh.h"
#include "shape/box.h"
#include "base/checked.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char *const numbered[RSD_MAX_NDIM] = { "0", "1", "2", "3", "4", "5", "6", "7" };

rsd_mesh *rsi_mesh_ref(const rsd_mesh *mesh)
{
    rsd_mesh *shared = (rsd_mesh *)(uintptr_t)mesh; /* only the count changes, atomically */

    atomic_fetch_add(&shared->refs, 1);
    return shared;
}

void rsd_mesh_free(rsd_mesh *mesh)
{
    if (!mesh || atomic_fetch_sub(&mesh->refs, 1) > 1)
        return;
    rsi_arena_release(&mesh->mem);
    rsi_free(mesh);
}

/* Names appear in the text form, so they must be words there. */
static bool is_word(const char *name)
{
    size_t len = strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-");

    return len > 0 && name[len] == '\0';
}

static rsd_err check_axes(int ndim, const int64_t *shape, const char *const *axis, rsd_error *err)
{
    for (int a = 0; a < ndim; a++) {
        if (!axis[a] || !is_word(axis[a]) || strcmp(axis[a], "ranks") == 0)
            return rsi_fail(err, RSD_E_INVALID, "mesh axis %d can't be named \"%s\"", a,
                            axis[a] ? axis[a] : "");
        if (shape[a] < 1)
            return rsi_fail(err, RSD_E_INVALID, "mesh axis \"%s\" has the size %" PRId64, axis[a],
                            shape[a]);
        for (int b = 0; b < a; b++)
            if (strcmp(axis[a], axis[b]) == 0)
                return rsi_fail(err, RSD_E_INVALID, "mesh axis \"%s\" is named twice", axis[a]);
    }
    return RSD_OK;
}

static int by_rank(const void *a, const void *b)
{
    const rsi_placed *x = a, *y = b;

    return (x->rank > y->rank) - (x->rank < y->rank);
}

static rsd_err keep_ranks(rsd_mesh *mesh, const int32_t *ranks, rsd_error *err)
{
    size_t n = (size_t)mesh->size;

    mesh->ranks = rsi_arena_array(&mesh->mem, n, sizeof(mesh->ranks[0]));
    mesh->by_rank = rsi_arena_array(&mesh->mem, n, sizeof(mesh->by_rank[0]));
    if (!mesh->ranks || !mesh->by_rank)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a mesh of %zu ranks", n);
    for (size_t i = 0; i < n; i++) {
        if (ranks[i] < 0 || ranks[i] == INT32_MAX)
            return rsi_fail(err, RSD_E_INVALID, "a mesh can't contain rank %" PRId32, ranks[i]);
        mesh->ranks[i] = ranks[i];
        mesh->by_rank[i] = (rsi_placed){ .rank = ranks[i], .place = (int32_t)i };
    }
    qsort(mesh->by_rank, n, sizeof(mesh->by_rank[0]), by_rank);
    for (size_t i = 1; i < n; i++)
        if (mesh->by_rank[i].rank == mesh->by_rank[i - 1].rank)
            return rsi_fail(err, RSD_E_INVALID, "rank %" PRId32 " is in the mesh twice",
                            mesh->by_rank[i].rank);
    mesh->world = mesh->by_rank[n - 1].rank + 1;
    return RSD_OK;
}

static rsd_err keep_axes(rsd_mesh *mesh, int ndim, const int64_t *shape, const char *const *axis,
                         rsd_error *err)
{
    mesh->ndim = ndim;
    for (int a = 0; a < ndim; a++) {
        mesh->shape[a] = shape[a];
        mesh->axis[a] = rsi_arena_text(&mesh->mem, axis[a], strlen(axis[a]));
        if (!mesh->axis[a])
            return rsi_fail(err, RSD_E_NOMEM, "no memory for a mesh");
    }
    return RSD_OK;
}

/* Ranks 0, 1, 2 ... need no list. */
static bool is_counting(const int32_t *ranks, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (ranks[i] != i)
            return false;
    return true;
}

rsd_err rsd_mesh_create(int ndim, const int64_t *shape, const char *const *axis,
                        const int32_t *ranks, rsd_mesh **out, rsd_error *err)
{
    rsd_mesh *mesh;
    int64_t   size = 1;
    rsd_err   rc;

    if (!out)
        return rsi_fail(err, RSD_E_INVALID, "missing argument: output pointer for the mesh");
    if (ndim < 0 || ndim > RSD_MAX_NDIM || (ndim > 0 && !shape))
        return rsi_fail(err, RSD_E_INVALID, "a mesh can't have %d axes: give 0 to %d and a shape",
                        ndim, RSD_MAX_NDIM);
    rc = check_axes(ndim, shape, axis ? axis : numbered, err);
    if (rc)
        return rc;
    if (!rsi_product(ndim, shape, 1, &size) || size >= INT32_MAX)
        return rsi_fail(err, RSD_E_INVALID, "a mesh can't have more than %d ranks", INT32_MAX - 1);
    mesh = rsi_calloc(1, sizeof(*mesh));
    if (!mesh)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a mesh");
    atomic_init(&mesh->refs, 1);
    mesh->size = size;
    mesh->world = (int32_t)size;
    rsi_strides(ndim, shape, 1, mesh->stride);
    rc = keep_axes(mesh, ndim, shape, axis ? axis : numbered, err);
    if (!rc && ranks && !is_counting(ranks, size))
        rc = keep_ranks(mesh, ranks, err);
    if (rc) {
        rsd_mesh_free(mesh);
        return rc;
    }
    *out = mesh;
    return RSD_OK;
}

/* Writes the listed ranks of a slice, in its own row-major order, to ranks[slice->size]. */
static void list_slice(const rsd_mesh *mesh, int64_t base, const rsd_mesh *slice, int32_t *ranks)
{
    for (int64_t i = 0; i < slice->size; i++) {
        int64_t place = base, left = i;

        for (int a = slice->ndim - 1; a >= 0; a--) {
            place += left % slice->shape[a] * slice->stride[a];
            left /= slice->shape[a];
        }
        ranks[i] = rsi_mesh_at(mesh, place);
    }
}

/* Gives a slice of a mesh with listed ranks its own list. */
static rsd_err keep_slice_ranks(const rsd_mesh *mesh, int64_t base, rsd_mesh *slice, rsd_error *err)
{
    int32_t *ranks = rsi_calloc((size_t)slice->size, sizeof(ranks[0]));
    rsd_err  rc;

    if (!ranks)
        return rsi_fail(err, RSD_E_NOMEM, "no memory for a mesh of %" PRId64 " ranks", slice->size);
    list_slice(mesh, base, slice, ranks);
    slice->base = 0;
    rsi_strides(slice->ndim, slice->shape, 1, slice->stride);
    rc = keep_ranks(slice, ranks, err);
    rsi_free(ranks);
    return rc;
}

rsd_err rsd_mesh_slice(const rsd_mesh *mesh, const char *axis, int64_t index, rsd_mesh **out,
                       rsd_error *err)
{
    rsd_mesh   *slice;
    int64_t     shape[RSD_MAX_NDIM] = { 0 }, base;
    const char *names[RSD_MAX_NDIM] = { 0 };
    int         cut, n = 0;
    rsd_err     rc;

    if (!mesh || !axis || !out)
        return rsi_fail(err, RSD_E_INVALID, "missing argument: mesh, axis or output pointer");
    cut = rsi_mesh_axis_index(mesh, axis);
    if (cut < 0)
        return rsi_fail(err, RSD_E_INVALID, "the mesh has no axis \"%s\"", axis);
    if (index < 0 || index >= mesh->shape[cut])
        return rsi_fail(err, RSD_E_INVALID,
                        "mesh axis \"%s\" has no index %" PRId64 ", its size is %" PRId64, axis,
                        index, mesh->shape[cut]);
    for (int a = 0; a < mesh->ndim; a++)
        if (a != cut) {
            shape[n] = mesh->shape[a];
            names[n++] = mesh->axis[a];
        }
    rc = rsd_mesh_create(n, shape, names, NULL, &slice, err);
    if (rc)
        return rc;
    base = mesh->base + index * mesh->stride[cut];
    for (int a = 0; a < n; a++)
        slice->stride[a] = mesh->stride[a < cut ? a : a + 1];
    slice->base = base;
    slice->world = (int32_t)base + 1;
    for (int a = 0; a < n; a++)
        slice->world += (int32_t)((slice->shape[a] - 1) * slice->stride[a]);
    if (mesh->ranks)
        rc = keep_slice_ranks(mesh, base, slice, err);
    if (rc) {
        rsd_mesh_free(slice);
        return rc;
    }
    *out = slice;
    return RSD_OK;
}

int rsd_mesh_ndim(const rsd_mesh *mesh)
{
    return mesh->ndim;
}

int64_t rsd_mesh_size(const rsd_mesh *mesh, int axis)
{
    return axis >= 0 && axis < mesh->ndim ? mesh->shape[axis] : mesh->size;
}

const char *rsd_mesh_axis(const rsd_mesh *mesh, int axis)
{
    return axis >= 0 && axis < mesh->ndim ? mesh->axis[axis] : NULL;
}

int rsi_mesh_axis_index(const rsd_mesh *mesh, const char *name)
{
    for (int a = 0; a < mesh->ndim; a++)
        if (strcmp(mesh->axis[a], name) == 0)
            return a;
    return -1;
}

int32_t rsd_mesh_rank(const rsd_mesh *mesh, const int64_t *coord)
{
    int64_t place = mesh->base;

    for (int a = 0; a < mesh->ndim; a++)
        place += coord[a] * mesh->stride[a];
    return rsi_mesh_at(mesh, place);
}

bool rsd_mesh_coord(const rsd_mesh *mesh, int32_t rank, int64_t *coord)
{
    int64_t at[RSD_MAX_NDIM];
    int64_t left = rank;

    if (mesh->by_rank) {
        rsi_placed  key = { .rank = rank };
        rsi_placed *hit = bsearch(&key, mesh->by_rank, (size_t)mesh->size, sizeof(key), by_rank);

        if (!hit)
            return false;
        left = hit->place;
    }
    left -= mesh->base;
    if (left < 0)
        return false;
    /* Each stride exceeds the sum that all later axes can reach. */
    for (int a = 0; a < mesh->ndim; a++) {
        at[a] = left / mesh->stride[a];
        if (at[a] >= mesh->shape[a])
            return false;
        left -= at[a] * mesh->stride[a];
    }
    if (left != 0)
        return false;
    if (coord)
        memcpy(coord, at, (size_t)mesh->ndim * sizeof(at[0]));
    return true;
}

/* Compares two meshes without rank lists by their strides; the stride of an axis of one rank is
 * never used. */
static bool same_strides(const rsd_mesh *a, const rsd_mesh *b)
{
    for (int i = 0; i < a->ndim; i++)
        if (a->shape[i] > 1 && a->stride[i] != b->stride[i])
            return false;
    return a->base == b->base;
}

static bool same_ranks(const rsd_mesh *a, const rsd_mesh *b)
{
    int64_t coord[RSD_MAX_NDIM] = { 0 };

    for (int64_t i = 0; i < a->size; i++) {
        if (rsd_mesh_rank(a, coord) != rsd_mesh_rank(b, coord))
            return false;
        for (int d = a->ndim - 1; d >= 0 && ++coord[d] == a->shape[d]; d--)
            coord[d] = 0;
    }
    return true;
}

bool rsi_mesh_equal(const rsd_mesh *a, const rsd_mesh *b)
{
    if (a == b)
        return true;
    if (a->ndim != b->ndim || a->size != b->size || a->world != b->world)
        return false;
    for (int i = 0; i < a->ndim; i++)
        if (a->shape[i] != b->shape[i] || strcmp(a->axis[i], b->axis[i]) != 0)
            return false;
    return !a->ranks && !b->ranks ? same_strides(a, b) : same_ranks(a, b);
}
