/*
 * Owns a shard's pieces on disk: hashing a file into a tree, checking a file against its root, and
 * putting one together from pieces that come in any order. Its one idea: the tree lies beside the
 * file and says of which writing of it it was made, so a data set is hashed once and not with every
 * start. It refuses a piece without its proof, and a file that was written to since it was hashed.
 */
#include "gossip/member/pieces.h"

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

enum { FIELDS_BYTES = 8 + 4 + 4 + 8 + 8 + 32 + 32, HEAD_BYTES = FIELDS_BYTES + 32 };

struct gsp_pieces {
    int fd, tree_fd;
    char *path;
    uint32_t n, here, unchecked; /* unchecked: the next one that a former run left */
    uint64_t bytes, modified_ns;
    bool whole;
    gsp_hash root;
    gsp_tree tree; /* leaves; zero: not here */
    uint8_t *was;  /* bits: a former run says that it is here; NULL: none does */
    uint8_t *buffer;
};

/* ---- bytes ---- */

static uint64_t modified(const struct stat *s)
{
    return (uint64_t)s->st_mtim.tv_sec * 1000000000u + (uint64_t)s->st_mtim.tv_nsec;
}

static uint64_t nodes_bytes(const gsp_pieces *p)
{
    return gsp_tree_nodes(p->n) * sizeof(gsp_hash);
}

static void head_of(const gsp_pieces *p, uint8_t head[HEAD_BYTES])
{
    gsp_hash nodes = {{0}};
    if (p->whole)
        crypto_generichash(nodes.byte, sizeof nodes.byte, (const uint8_t *)p->tree.node,
                           nodes_bytes(p), NULL, 0);
    atom_writer w = atom_writer_make(head, HEAD_BYTES);
    atom_write_bytes(&w, "atomtre2", 8);
    atom_write_uint(&w, p->n, 4);
    atom_write_uint(&w, p->whole, 4);
    atom_write_uint(&w, p->bytes, 8);
    atom_write_uint(&w, p->whole ? p->modified_ns : 0, 8);
    atom_write_bytes(&w, p->root.byte, sizeof p->root.byte);
    atom_write_bytes(&w, nodes.byte, sizeof nodes.byte);
    crypto_generichash(head + FIELDS_BYTES, 32, head, FIELDS_BYTES, NULL, 0);
}

/* ---- opening ---- */

static atom_status make(const char *path, uint64_t bytes, const gsp_hash *root, gsp_pieces **out)
{
    atom_status st = ATOM_OK;
    gsp_pieces *p = atom_alloc(1, sizeof *p);
    if (!p)
        return atom_fail_memory("a file in pieces", sizeof *p);
    *p = (gsp_pieces){.fd = -1, .tree_fd = -1, .bytes = bytes};
    if (root)
        p->root = *root;
    if (bytes == 0 || gsp_piece_count(bytes) > GSP_PIECES_MAX)
        ATOM_TRY_CLEAN(atom_fail(ATOM_E_FORMAT, "%s: %s", path,
                                 bytes ? "it is too large to be sent; split it into several "
                                         "shards"
                                       : "it is empty"));
    p->n = (uint32_t)gsp_piece_count(bytes);
    p->unchecked = p->n;
    p->path = atom_strdup(path);
    p->buffer = atom_alloc(GSP_PIECE_BYTES, 1);
    if (!p->path || !p->buffer)
        ATOM_TRY_CLEAN(atom_fail_memory("a file in pieces", GSP_PIECE_BYTES));
    ATOM_TRY_CLEAN(gsp_tree_open(&p->tree, p->n));
    *out = p;
    return ATOM_OK;
cleanup:
    gsp_pieces_close(&p);
    return st;
}

void gsp_pieces_close(gsp_pieces **pieces)
{
    gsp_pieces *p = *pieces;
    *pieces = NULL;
    if (!p)
        return;
    if (p->fd >= 0)
        close(p->fd);
    if (p->tree_fd >= 0)
        close(p->tree_fd);
    gsp_tree_close(&p->tree);
    atom_free(p->path);
    atom_free(p->was);
    atom_free(p->buffer);
    atom_free(p);
}

/* The tree's file, where it is of this file, whole, as the file was last written to. */
static bool tree_fits(gsp_pieces *p, const char *tree, const struct stat *s)
{
    uint8_t right[HEAD_BYTES], here[HEAD_BYTES];
    int fd = open(tree, O_RDONLY | O_CLOEXEC);
    bool fits = fd >= 0 && atom_fd_read(fd, 0, here, sizeof here) == 0 &&
                atom_fd_read(fd, HEAD_BYTES, p->tree.node, nodes_bytes(p)) == 0;
    if (fd >= 0)
        close(fd);
    p->whole = true;
    p->modified_ns = modified(s);
    if (!fits)
        return false;
    head_of(p, right);
    gsp_hash root = gsp_tree_root(&p->tree);
    return memcmp(right, here, sizeof right) == 0 && gsp_hash_equal(&root, &p->root);
}

static atom_status write_tree(gsp_pieces *p, const char *tree)
{
    uint8_t head[HEAD_BYTES];
    atom_status st = ATOM_OK;
    char *aside = atom_format("%s.new", tree);
    int fd = aside ? open(aside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600) : -1;
    if (!aside)
        return atom_fail_memory("a path", 256);
    head_of(p, head);
    if (fd < 0 || atom_fd_write(fd, 0, head, sizeof head) != 0 ||
        atom_fd_write(fd, HEAD_BYTES, p->tree.node, nodes_bytes(p)) != 0 || fsync(fd) != 0 ||
        rename(aside, tree) != 0)
        st = atom_fail_errno(errno, "%s", tree);
    if (fd >= 0)
        close(fd);
    atom_free(aside);
    return st;
}

/* All of the file into the tree; root is set from it. */
static atom_status hash_all(gsp_pieces *p)
{
    struct stat s;
    for (uint32_t k = 0; k < p->n; k++) {
        uint32_t length = gsp_piece_length(p->bytes, k);
        if (atom_fd_read(p->fd, (uint64_t)k * GSP_PIECE_BYTES, p->buffer, length) != 0)
            return atom_fail(ATOM_E_FORMAT, "%s: it cannot be read", p->path);
        gsp_merkle_leaf(k, p->buffer, length, &p->tree.node[k]);
    }
    gsp_tree_build(&p->tree);
    p->root = gsp_tree_root(&p->tree);
    p->here = p->n;
    p->whole = true;
    if (fstat(p->fd, &s) != 0)
        return atom_fail_errno(errno, "%s", p->path);
    if (modified(&s) != p->modified_ns)
        return atom_fail(ATOM_E_FORMAT, "%s: it is being written; try again when it is complete",
                         p->path);
    return ATOM_OK;
}

static atom_status open_file(const char *path, int *fd, struct stat *s)
{
    *fd = open(path, O_RDONLY | O_CLOEXEC);
    if (*fd < 0 || fstat(*fd, s) != 0)
        return atom_fail(ATOM_E_FORMAT, "%s: %s", path, strerror(errno));
    return S_ISREG(s->st_mode) ? ATOM_OK : atom_fail(ATOM_E_FORMAT, "%s: it is not a file", path);
}

atom_status gsp_pieces_make(const char *path, const char *tree, uint64_t *bytes, gsp_hash *root)
{
    gsp_pieces *p = NULL;
    struct stat s;
    int fd = -1;
    atom_status st;
    ATOM_TRY_CLEAN(open_file(path, &fd, &s));
    ATOM_TRY_CLEAN(make(path, (uint64_t)s.st_size, NULL, &p));
    p->fd = fd;
    fd = -1;
    p->modified_ns = modified(&s);
    ATOM_TRY_CLEAN(hash_all(p));
    ATOM_TRY_CLEAN(write_tree(p, tree));
    *bytes = p->bytes;
    *root = p->root;
cleanup:
    if (fd >= 0)
        close(fd);
    gsp_pieces_close(&p);
    return st;
}

atom_status gsp_pieces_check(const char *path, const char *tree, uint64_t bytes,
                             const gsp_hash *root, bool *there, bool *same)
{
    gsp_pieces *p = NULL;
    struct stat s;
    int fd = -1;
    atom_status st = ATOM_OK;
    *there = *same = false;
    if (stat(path, &s) != 0 && (errno == ENOENT || errno == ENOTDIR))
        return ATOM_OK;
    *there = true;
    ATOM_TRY_CLEAN(open_file(path, &fd, &s));
    if ((uint64_t)s.st_size != bytes)
        goto cleanup;
    ATOM_TRY_CLEAN(make(path, bytes, root, &p));
    if (tree_fits(p, tree, &s)) {
        *same = true;
        goto cleanup;
    }
    p->fd = fd;
    fd = -1;
    ATOM_TRY_CLEAN(hash_all(p));
    *same = gsp_hash_equal(&p->root, root);
    if (*same)
        ATOM_TRY_CLEAN(write_tree(p, tree));
cleanup:
    if (fd >= 0)
        close(fd);
    gsp_pieces_close(&p);
    return st;
}

atom_status gsp_pieces_open(const char *path, const char *tree, uint64_t bytes,
                            const gsp_hash *root, gsp_pieces **out)
{
    gsp_pieces *p = NULL;
    struct stat s;
    atom_status st;
    ATOM_TRY_CLEAN(make(path, bytes, root, &p));
    ATOM_TRY_CLEAN(open_file(path, &p->fd, &s));
    if ((uint64_t)s.st_size != bytes || !tree_fits(p, tree, &s))
        ATOM_TRY_CLEAN(atom_fail(ATOM_E_FORMAT, "%s has changed since it was hashed", path));
    p->here = p->n;
    *out = p;
    return ATOM_OK;
cleanup:
    gsp_pieces_close(&p);
    return st;
}

/* ---- on its way in ---- */

/* Goes on with what is there, if it is of this file; else both files are made anew. */
static atom_status take_over(gsp_pieces *p)
{
    uint8_t right[HEAD_BYTES], here[HEAD_BYTES];
    head_of(p, right);
    p->was = atom_alloc(p->n / 8 + 1, 1);
    if (!p->was)
        return atom_fail_memory("a file in pieces", p->n / 8 + 1);
    if (atom_fd_read(p->tree_fd, 0, here, sizeof here) == 0 &&
        memcmp(here, right, sizeof here) == 0 &&
        atom_fd_read(p->tree_fd, HEAD_BYTES, p->tree.node, p->n * sizeof(gsp_hash)) == 0) {
        for (uint32_t k = 0; k < p->n; k++)
            if (!gsp_hash_none(&p->tree.node[k]))
                p->was[k / 8] |= (uint8_t)(1u << (k % 8));
        p->unchecked = 0;
        return ATOM_OK;
    }
    memset(p->tree.node, 0, p->n * sizeof(gsp_hash));
    if (ftruncate(p->fd, 0) != 0 || ftruncate(p->tree_fd, 0) != 0 ||
        ftruncate(p->tree_fd, (off_t)(HEAD_BYTES + nodes_bytes(p))) != 0 ||
        atom_fd_write(p->tree_fd, 0, right, sizeof right) != 0)
        return atom_fail_errno(errno, "%s", p->path);
    return ATOM_OK;
}

atom_status gsp_pieces_begin(const char *path, const char *tree, uint64_t bytes,
                             const gsp_hash *root, gsp_pieces **out)
{
    gsp_pieces *p = NULL;
    atom_status st;
    ATOM_TRY_CLEAN(make(path, bytes, root, &p));
    p->fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    p->tree_fd = open(tree, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (p->fd < 0 || p->tree_fd < 0)
        ATOM_TRY_CLEAN(atom_fail_errno(errno, "%s", p->fd < 0 ? path : tree));
    ATOM_TRY_CLEAN(take_over(p));
    *out = p;
    return ATOM_OK;
cleanup:
    gsp_pieces_close(&p);
    return st;
}

uint32_t gsp_pieces_n(const gsp_pieces *p)
{
    return p->n;
}

uint32_t gsp_pieces_here(const gsp_pieces *p)
{
    return p->here;
}

static bool was_here(const gsp_pieces *p, uint32_t k)
{
    return p->was && k >= p->unchecked && (p->was[k / 8] >> (k % 8) & 1);
}

bool gsp_pieces_has(const gsp_pieces *p, uint32_t k)
{
    return k < p->n && !gsp_hash_none(&p->tree.node[k]) && !was_here(p, k);
}

/* Is what lies on the disk what the leaf says? */
static bool right(gsp_pieces *p, uint32_t k, void *out)
{
    gsp_hash leaf;
    uint32_t length = gsp_piece_length(p->bytes, k);
    if (atom_fd_read(p->fd, (uint64_t)k * GSP_PIECE_BYTES, out, length) != 0)
        return false;
    gsp_merkle_leaf(k, out, length, &leaf);
    return gsp_hash_equal(&leaf, &p->tree.node[k]);
}

bool gsp_pieces_recheck(gsp_pieces *p, uint32_t n)
{
    for (; p->unchecked < p->n; p->unchecked++) {
        uint32_t k = p->unchecked;
        if (!was_here(p, k))
            continue;
        if (n-- == 0)
            return false;
        if (right(p, k, p->buffer))
            p->here++;
        else
            p->tree.node[k] = (gsp_hash){{0}};
    }
    return true;
}

bool gsp_pieces_read(gsp_pieces *p, uint32_t k, void *out, gsp_hash path[GSP_STATE_PATH_MAX],
                     uint32_t *n_path)
{
    if (k >= p->n || !p->whole || !right(p, k, out))
        return false;
    *n_path = gsp_tree_path(&p->tree, k, path);
    return true;
}

atom_status gsp_pieces_put(gsp_pieces *p, uint32_t k, const void *data, size_t bytes,
                           const gsp_hash *path, uint32_t n_path, bool *good)
{
    gsp_hash leaf;
    *good = k < p->n && bytes == gsp_piece_length(p->bytes, k);
    if (!*good)
        return ATOM_OK;
    gsp_merkle_leaf(k, data, bytes, &leaf);
    *good = gsp_tree_check(&p->root, p->n, k, &leaf, path, n_path);
    if (!*good || gsp_pieces_has(p, k))
        return ATOM_OK;
    if (atom_fd_write(p->fd, (uint64_t)k * GSP_PIECE_BYTES, data, bytes) != 0 ||
        atom_fd_write(p->tree_fd, HEAD_BYTES + k * sizeof leaf, leaf.byte, sizeof leaf.byte) != 0)
        return atom_fail_errno(errno, "%s", p->path);
    p->tree.node[k] = leaf;
    if (p->was)
        p->was[k / 8] &= (uint8_t) ~(1u << (k % 8));
    p->here++;
    return ATOM_OK;
}

/* Nothing of it can be believed. */
static atom_status begin_anew(gsp_pieces *p)
{
    memset(p->tree.node, 0, nodes_bytes(p));
    p->here = 0;
    p->whole = false;
    if (ftruncate(p->fd, 0) != 0 ||
        atom_fd_write(p->tree_fd, HEAD_BYTES, p->tree.node, p->n * sizeof(gsp_hash)) != 0)
        return atom_fail_errno(errno, "%s", p->path);
    return atom_fail(ATOM_E_FORMAT, "%s: its pieces do not make up the file; it is fetched again",
                     p->path);
}

atom_status gsp_pieces_finish(gsp_pieces *p, const char *path)
{
    struct stat s;
    uint8_t head[HEAD_BYTES];
    ATOM_ASSERT(p->here == p->n && p->tree_fd >= 0);
    gsp_tree_build(&p->tree);
    gsp_hash root = gsp_tree_root(&p->tree);
    if (!gsp_hash_equal(&root, &p->root))
        return begin_anew(p);
    if (ftruncate(p->fd, (off_t)p->bytes) != 0 || fsync(p->fd) != 0 || fstat(p->fd, &s) != 0)
        return atom_fail_errno(errno, "%s", p->path);
    p->whole = true;
    p->modified_ns = modified(&s);
    head_of(p, head);
    if (atom_fd_write(p->tree_fd, HEAD_BYTES, p->tree.node, nodes_bytes(p)) != 0 ||
        atom_fd_write(p->tree_fd, 0, head, sizeof head) != 0 || fsync(p->tree_fd) != 0 ||
        rename(p->path, path) != 0)
        return atom_fail_errno(errno, "%s", path);
    return ATOM_OK;
}
