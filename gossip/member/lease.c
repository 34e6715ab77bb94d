/*
 * Owns former states. Its one idea: a fragment is copied to a file right before it changes, with
 * the hashes that are known already, so a joiner's plan stays whole while the pool goes on. It
 * refuses to hold more than one former state of a fragment, or any for nobody.
 */
#include "gossip/member/lease.h"

#include "atom/base/clock.h"
#include "atom/base/files.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"

#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

enum { COPY_CHUNKS = 16 }; /* per turn */
static const uint64_t LEASE_NS = GSP_LEASE_SECONDS * 1000000000ull;

void gsp_leases_open(gsp_leases *ls, const char *directory, const gsp_work *work)
{
    *ls = (gsp_leases){.directory = directory, .work = work};
}

static char *path_of(const gsp_leases *ls, uint32_t f)
{
    char name[32];
    snprintf(name, sizeof name, "lease.%u", f);
    return atom_path_join(ls->directory, name);
}

static void drop(gsp_leases *ls, uint32_t f)
{
    gsp_lease *l = &ls->lease[f];
    if (!l->on && !l->copying)
        return;
    close(l->fd);
    gsp_tree_close(&l->tree);
    *l = (gsp_lease){0};
    char *path = path_of(ls, f);
    if (path)
        unlink(path);
    atom_free(path);
}

void gsp_leases_drop_all(gsp_leases *ls)
{
    for (uint32_t f = 0; f < GSP_FRAGMENTS_MAX; f++)
        drop(ls, f);
}

void gsp_leases_close(gsp_leases *ls)
{
    gsp_leases_drop_all(ls);
}

/* False: the former state that is there is still being read, or there is no file to be had. */
static bool begin(gsp_leases *ls, uint32_t f)
{
    gsp_lease *l = &ls->lease[f];
    if (l->on && atom_clock_ns() - l->used_ns < LEASE_NS)
        return false;
    drop(ls, f);
    char *path = path_of(ls, f);
    int fd = path ? open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600) : -1;
    atom_free(path);
    if (fd < 0)
        return false;
    *l = (gsp_lease){.copying = true, .fd = fd};
    return true;
}

atom_status gsp_leases_copy(gsp_leases *ls, uint32_t f, gsp_tree *tree, bool wanted, float *chunk,
                            bool *done)
{
    gsp_lease *l = &ls->lease[f];
    const gsp_work *work = ls->work;
    *done = true;
    if (!l->copying && (!wanted || !begin(ls, f)))
        return ATOM_OK;
    for (uint32_t k = 0; k < COPY_CHUNKS && l->copied < tree->n; k++, l->copied++) {
        uint64_t n = gsp_chunk_floats(work->n_state[f], l->copied);
        ssize_t bytes = (ssize_t)(n * sizeof(float));
        ATOM_TRY(
            work->state_read(work->context, f, (uint64_t)l->copied * GSP_CHUNK_FLOATS, n, chunk));
        if (pwrite(l->fd, chunk, (size_t)bytes, (off_t)l->copied * GSP_CHUNK_BYTES) != bytes) {
            atom_log(ATOM_LOG_WARN,
                     "the previous state of fragment %u cannot be kept for members that join", f);
            drop(ls, f);
            return ATOM_OK;
        }
    }
    *done = l->copied == tree->n;
    if (!*done)
        return ATOM_OK;
    l->tree = *tree;
    *tree = (gsp_tree){0};
    l->copying = false;
    l->on = true;
    l->used_ns = atom_clock_ns();
    return ATOM_OK;
}

const gsp_tree *gsp_leases_find(const gsp_leases *ls, uint32_t f, const gsp_hash *root)
{
    const gsp_lease *l = &ls->lease[f];
    if (!l->on)
        return NULL;
    gsp_hash mine = gsp_tree_root(&l->tree);
    return gsp_hash_equal(&mine, root) ? &l->tree : NULL;
}

bool gsp_leases_read(gsp_leases *ls, uint32_t f, uint32_t chunk, uint64_t n, float *out)
{
    gsp_lease *l = &ls->lease[f];
    ssize_t bytes = (ssize_t)(n * sizeof(float));
    l->used_ns = atom_clock_ns();
    if (pread(l->fd, out, (size_t)bytes, (off_t)chunk * GSP_CHUNK_BYTES) == bytes)
        return true;
    drop(ls, f);
    return false;
}
