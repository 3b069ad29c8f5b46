/* SPDX-License-Identifier: Apache-2.0 */
/* Windows on anonymous files and what is mapped of those of other ranks. processes_memory.c sends
 * descriptors to the others, comm_ucx_memory.c lets them open the files through /proc. */
#include "comm/shared_file.h"

#include <sys/mman.h>
#include <unistd.h>

size_t rsi_whole_pages(size_t bytes)
{
    return (bytes ? bytes + RSI_WINDOW_PAGE - 1 : RSI_WINDOW_PAGE) / RSI_WINDOW_PAGE *
           RSI_WINDOW_PAGE;
}

static char *map(int fd, size_t bytes)
{
    void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    return at == MAP_FAILED ? NULL : at;
}

void rsi_shared_window_close(rsi_window *w)
{
    if (w->fd >= 0)
        close(w->fd);
    w->fd = -1;
}

rsi_window *rsi_shared_window(uint64_t id, size_t bytes, const char *name)
{
    rsi_window *w = bytes < PTRDIFF_MAX - 2 * RSI_WINDOW_PAGE ? rsi_calloc(1, sizeof(*w)) : NULL;
    size_t      whole = rsi_whole_pages(bytes);

    if (!w)
        return NULL;
    *w = (rsi_window){ .id = id, .bytes = bytes, .fd = memfd_create(name, MFD_CLOEXEC) };
    if (w->fd >= 0 && ftruncate(w->fd, (off_t)whole) == 0)
        w->base = map(w->fd, whole);
    w->shared = w->base;
    if (!w->shared) {
        rsi_shared_window_close(w);
        w->base = rsi_alloc_aligned(RSI_WINDOW_PAGE, whole);
    }
    w->data = w->base;
    return w;
}

void rsi_shared_window_free(rsi_window *w)
{
    if (w->shared)
        munmap(w->base, rsi_whole_pages(w->bytes));
    else
        rsi_free(w->base);
    rsi_shared_window_close(w);
    rsi_free(w);
}

const rsi_peer_memory *rsi_peer_memory_add(rsi_shared_memory *m, int32_t owner, uint64_t id, int fd,
                                           size_t bytes)
{
    rsi_peer_memory *s = rsi_calloc(1, sizeof(*s));

    if (!s)
        return NULL;
    *s = (rsi_peer_memory){ .next = m->peers, .owner = owner, .id = id, .bytes = bytes };
    if (fd >= 0)
        s->base = map(fd, bytes);
    m->peers = s;
    return s;
}

const rsi_peer_memory *rsi_peer_memory_find(const rsi_shared_memory *m, int32_t owner, uint64_t id)
{
    const rsi_peer_memory *s = m->peers;

    while (s && (s->owner != owner || s->id != id))
        s = s->next;
    return s;
}

/* Frees those with one number, or all. */
static void free_peers(rsi_shared_memory *m, uint64_t id, bool all)
{
    rsi_peer_memory **at = &m->peers;

    while (*at) {
        rsi_peer_memory *s = *at;

        if (!all && s->id != id) {
            at = &s->next;
            continue;
        }
        *at = s->next;
        if (s->base)
            munmap(s->base, s->bytes);
        rsi_free(s);
    }
}

void rsi_shared_dealloc(rsi_shared_memory *m, const void *data)
{
    rsi_window *w = rsi_window_take(&m->windows, data);

    if (!w)
        return;
    free_peers(m, w->id, false);
    rsi_shared_window_free(w);
}

void rsi_shared_memory_free(rsi_shared_memory *m)
{
    free_peers(m, 0, true);
    while (m->windows.first)
        rsi_shared_window_free(rsi_window_take(&m->windows, m->windows.first->data));
}
