/*
 * Owns the file of a fragment's state on its way in. Its one idea: beside every chunk lies the hash
 * that it was checked with, so that nothing needs to be synced while it comes: what a crash left is
 * hashed again, and what does not fit its hash never came. It refuses to believe its own file.
 */
#include "gossip/member/transfer.h"

#include "atom/base/assert.h"
#include "atom/base/bytes.h"
#include "atom/base/files.h"
#include "atom/base/mem.h"
#include "gossip/sum/merkle.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FIELDS_BYTES = 8 + 4 + 4 + 8 + 8 + 32, HEAD_BYTES = FIELDS_BYTES + 32 };

struct gsp_stage {
    int fd;
    uint32_t fragment, n, here, unchecked; /* unchecked: the next one that a former run left */
    uint64_t version, n_floats, data_at;
    gsp_hash root;
    gsp_tree tree; /* leaves; zero: not here */
    uint8_t *was;  /* bits: a former run says that it is here */
    float *buffer;
};

static char *path_of(const char *directory, uint32_t fragment)
{
    char name[32];
    snprintf(name, sizeof name, "state.%u", fragment);
    return atom_path_join(directory, name);
}

static void head_of(const gsp_stage *s, uint8_t head[HEAD_BYTES])
{
    atom_writer w = atom_writer_make(head, HEAD_BYTES);
    atom_write_bytes(&w, "atomstg2", 8);
    atom_write_uint(&w, s->fragment, 4);
    atom_write_uint(&w, s->n, 4);
    atom_write_uint(&w, s->version, 8);
    atom_write_uint(&w, s->n_floats, 8);
    atom_write_bytes(&w, s->root.byte, sizeof s->root.byte);
    crypto_generichash(head + FIELDS_BYTES, 32, head, FIELDS_BYTES, NULL, 0);
}

static uint64_t leaf_at(uint32_t chunk)
{
    return HEAD_BYTES + (uint64_t)chunk * sizeof(gsp_hash);
}

static uint64_t chunk_at(const gsp_stage *s, uint32_t chunk)
{
    return s->data_at + (uint64_t)chunk * GSP_CHUNK_BYTES;
}

static atom_status disk_failed(const gsp_stage *s)
{
    int error = errno;
    return atom_fail_errno(error, "the state of fragment %u on its way in", s->fragment);
}

/* Goes on with what is there, if it is of this version and root; else the file is made anew. */
static atom_status take_over(gsp_stage *s)
{
    uint8_t right[HEAD_BYTES], here[HEAD_BYTES];
    head_of(s, right);
    if (atom_fd_read(s->fd, 0, here, sizeof here) == 0 && memcmp(here, right, sizeof here) == 0 &&
        atom_fd_read(s->fd, HEAD_BYTES, s->tree.node, s->n * sizeof(gsp_hash)) == 0) {
        for (uint32_t k = 0; k < s->n; k++)
            if (!gsp_hash_none(&s->tree.node[k]))
                s->was[k / 8] |= (uint8_t)(1u << (k % 8));
        return ATOM_OK;
    }
    memset(s->tree.node, 0, s->n * sizeof(gsp_hash));
    s->unchecked = s->n;
    if (ftruncate(s->fd, 0) != 0 || ftruncate(s->fd, (off_t)s->data_at) != 0 ||
        atom_fd_write(s->fd, 0, right, sizeof right) != 0)
        return disk_failed(s);
    return ATOM_OK;
}

atom_status gsp_stage_open(const char *directory, uint32_t fragment, uint64_t version,
                           const gsp_hash *root, uint64_t n_floats, gsp_stage **out)
{
    atom_status st;
    char *path = NULL;
    gsp_stage *s = atom_alloc(1, sizeof *s);
    if (!s)
        return atom_fail_memory("a state on its way in", sizeof *s);
    *s = (gsp_stage){.fd = -1,
                     .fragment = fragment,
                     .n = (uint32_t)gsp_chunks(n_floats),
                     .version = version,
                     .n_floats = n_floats,
                     .root = *root};
    s->data_at = (leaf_at(s->n) + 4095) / 4096 * 4096;
    s->was = atom_alloc(s->n / 8 + 1, 1);
    s->buffer = atom_alloc(GSP_CHUNK_FLOATS, sizeof(float));
    path = path_of(directory, fragment);
    if (!s->was || !s->buffer || !path)
        ATOM_TRY_CLEAN(atom_fail_memory("a state on its way in", GSP_CHUNK_BYTES));
    ATOM_TRY_CLEAN(gsp_tree_open(&s->tree, s->n));
    s->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (s->fd < 0)
        ATOM_TRY_CLEAN(atom_fail_errno(errno, "%s", path));
    ATOM_TRY_CLEAN(take_over(s));
    *out = s;
    s = NULL;
cleanup:
    atom_free(path);
    gsp_stage_close(&s);
    return st;
}

void gsp_stage_close(gsp_stage **stage)
{
    gsp_stage *s = *stage;
    *stage = NULL;
    if (!s)
        return;
    if (s->fd >= 0)
        close(s->fd);
    gsp_tree_close(&s->tree);
    atom_free(s->was);
    atom_free(s->buffer);
    atom_free(s);
}

void gsp_stage_remove_all(const char *directory)
{
    for (uint32_t f = 0; f < GSP_FRAGMENTS_MAX; f++) {
        char *path = path_of(directory, f);
        if (path)
            unlink(path);
        atom_free(path);
    }
}

/* Reads a chunk whose leaf is known; false: it is another. */
static bool read_right(gsp_stage *s, uint32_t chunk, float *out)
{
    gsp_hash leaf;
    size_t bytes = gsp_chunk_floats(s->n_floats, chunk) * sizeof(float);
    if (atom_fd_read(s->fd, chunk_at(s, chunk), out, bytes) != 0)
        return false;
    gsp_merkle_leaf(chunk, out, bytes, &leaf);
    return gsp_hash_equal(&leaf, &s->tree.node[chunk]);
}

static bool bit(const gsp_stage *s, uint32_t chunk)
{
    return s->was[chunk / 8] >> (chunk % 8) & 1;
}

/* All leaves are here: are they those of the root? What a former run left was checked against its
 * own hash only. */
static void check_whole(gsp_stage *s)
{
    if (s->here < s->n || s->n == 0)
        return;
    gsp_tree_build(&s->tree);
    gsp_hash root = gsp_tree_root(&s->tree);
    if (gsp_hash_equal(&root, &s->root))
        return;
    memset(s->tree.node, 0, s->n * sizeof(gsp_hash));
    s->here = 0;
}

bool gsp_stage_recheck(gsp_stage *s, uint32_t n)
{
    for (; s->unchecked < s->n && n > 0; s->unchecked++) {
        uint32_t chunk = s->unchecked;
        if (!bit(s, chunk))
            continue;
        n--;
        if (read_right(s, chunk, s->buffer))
            s->here++;
        else
            memset(&s->tree.node[chunk], 0, sizeof(gsp_hash));
        s->was[chunk / 8] &= (uint8_t) ~(1u << (chunk % 8));
        if (s->here == s->n)
            check_whole(s);
    }
    return s->unchecked >= s->n;
}

uint32_t gsp_stage_n(const gsp_stage *s)
{
    return s->n;
}

uint32_t gsp_stage_here(const gsp_stage *s)
{
    return s->here;
}

bool gsp_stage_has(const gsp_stage *s, uint32_t chunk)
{
    return chunk < s->n && !gsp_hash_none(&s->tree.node[chunk]) && !bit(s, chunk);
}

bool gsp_stage_is(const gsp_stage *s, uint64_t version, const gsp_hash *root)
{
    return s->version == version && gsp_hash_equal(&s->root, root);
}

atom_status gsp_stage_put(gsp_stage *s, uint32_t chunk, const gsp_hash *leaf, const void *data)
{
    ATOM_ASSERT(chunk < s->n);
    if (gsp_stage_has(s, chunk) || bit(s, chunk))
        return ATOM_OK;
    if (atom_fd_write(s->fd, chunk_at(s, chunk), data,
                      gsp_chunk_floats(s->n_floats, chunk) * sizeof(float)) != 0 ||
        atom_fd_write(s->fd, leaf_at(chunk), leaf, sizeof *leaf) != 0)
        return disk_failed(s);
    s->tree.node[chunk] = *leaf;
    s->here++;
    check_whole(s);
    return ATOM_OK;
}

bool gsp_stage_read(gsp_stage *s, uint32_t chunk, float *out)
{
    if (!gsp_stage_has(s, chunk))
        return false;
    if (read_right(s, chunk, out))
        return true;
    memset(&s->tree.node[chunk], 0, sizeof(gsp_hash));
    s->here--;
    return false;
}
