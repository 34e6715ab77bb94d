/*
 * Owns what a donor keeps of the past: the state of a fragment as it was before the newest version
 * changed it, for as long as somebody is fetching. Its one idea: it is copied to a file right
 * before it changes, with the hashes that are known already, so the joiner's plan stays whole while
 * the pool goes on. It refuses to hold more than one former state of a fragment, or any for nobody.
 */
#include "gossip/member/node_inner.h"

#include "atom/base/clock.h"
#include "atom/base/files.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

enum { COPY_CHUNKS = 16 };                     /* per turn */
static const uint64_t LEASE_NS = 30000000000u; /* after the last chunk that went to anybody */

static char *path_of(const gsp_node *d, uint32_t f)
{
    char name[32];
    snprintf(name, sizeof name, "lease.%u", f);
    return atom_path_join(d->config.directory, name);
}

static void drop(gsp_node *d, uint32_t f)
{
    gsp_lease *l = &d->lease[f];
    if (!l->on && !l->copying)
        return;
    close(l->fd);
    gsp_tree_close(&l->tree);
    *l = (gsp_lease){0};
    char *path = path_of(d, f);
    if (path)
        unlink(path);
    atom_free(path);
}

void gsp_lease_drop_all(gsp_node *d)
{
    for (uint32_t f = 0; f < GSP_FRAGMENTS_MAX; f++)
        drop(d, f);
}

static bool wanted(const gsp_node *d)
{
    return d->state_ns && atom_clock_ns() - d->state_ns < LEASE_NS;
}

void gsp_lease_tick(gsp_node *d)
{
    if (!wanted(d))
        gsp_lease_drop_all(d);
}

static bool begin(gsp_node *d, uint32_t f)
{
    gsp_lease *l = &d->lease[f];
    bool used = l->on && atom_clock_ns() - l->used_ns < LEASE_NS;
    if (!wanted(d) || !d->shelf[f].whole || d->config.work.n_state[f] == 0 || used)
        return false;
    drop(d, f);
    char *path = path_of(d, f);
    int fd = path ? open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600) : -1;
    atom_free(path);
    if (fd < 0)
        return false;
    *l = (gsp_lease){.copying = true, .fd = fd};
    return true;
}

/* Without room on the disk there is no lease, and the joiner fetches this fragment again. */
static void fail(gsp_node *d, uint32_t f)
{
    atom_log(ATOM_LOG_WARN, "a former state of fragment %u cannot be kept for who joins", f);
    drop(d, f);
}

bool gsp_lease_copy(gsp_node *d, uint32_t f)
{
    gsp_lease *l = &d->lease[f];
    gsp_shelf *s = &d->shelf[f];
    if (!l->copying && !begin(d, f))
        return true;
    for (uint32_t k = 0; k < COPY_CHUNKS && l->copied < s->tree.n; k++, l->copied++) {
        uint64_t n = gsp_chunk_floats(d->config.work.n_state[f], l->copied);
        ssize_t bytes = (ssize_t)(n * sizeof(float));
        atom_status st = d->config.work.state_read(
            d->config.work.context, f, (uint64_t)l->copied * GSP_CHUNK_FLOATS, n, d->chunk);
        if (st != ATOM_OK) {
            gsp_node_die(d, st);
            return true;
        }
        if (pwrite(l->fd, d->chunk, (size_t)bytes, (off_t)l->copied * GSP_CHUNK_BYTES) != bytes) {
            fail(d, f);
            return true;
        }
    }
    if (l->copied < s->tree.n)
        return false;
    l->tree = s->tree; /* the shelf's is made anew */
    s->tree = (gsp_tree){0};
    l->copying = false;
    l->on = true;
    l->used_ns = atom_clock_ns();
    return true;
}

const gsp_tree *gsp_lease_find(const gsp_node *d, uint32_t f, const gsp_hash *root)
{
    const gsp_lease *l = &d->lease[f];
    if (!l->on)
        return NULL;
    gsp_hash mine = gsp_tree_root(&l->tree);
    return gsp_hash_equal(&mine, root) ? &l->tree : NULL;
}

bool gsp_lease_read(gsp_node *d, uint32_t f, uint32_t chunk, uint64_t n)
{
    gsp_lease *l = &d->lease[f];
    ssize_t bytes = (ssize_t)(n * sizeof(float));
    l->used_ns = atom_clock_ns();
    if (pread(l->fd, d->chunk, (size_t)bytes, (off_t)chunk * GSP_CHUNK_BYTES) == bytes)
        return true;
    drop(d, f);
    return false;
}
