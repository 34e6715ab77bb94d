/*
 * Owns my older contributions. Its one idea: they lie in the same files as results do, and the
 * proof of a part is made again from the parts when somebody asks. It refuses to show what is not
 * under the root that is asked for.
 */
#include "gossip/member/own_inputs.h"

#include "atom/base/clock.h"
#include "atom/base/files.h"
#include "atom/base/mem.h"

#include <string.h>

enum { WRITE_PARTS = 4 };

atom_status gsp_own_inputs_open(gsp_own_inputs *k, const gsp_terms *terms, const char *directory)
{
    atom_status st = ATOM_OK;
    uint64_t most = gsp_codec_bytes(terms->codec, gsp_terms_floats_max(terms));
    *k = (gsp_own_inputs){.terms = terms, .next = terms->n_parts};
    char *path = atom_path_join(directory, "brought");
    k->shown = atom_alloc(1, most ? most : 1);
    if (!path || !k->shown)
        ATOM_TRY_CLEAN(atom_fail_memory("kept contributions", most));
    ATOM_TRY_CLEAN(atom_dir_make(path));
    ATOM_TRY_CLEAN(gsp_results_open(path, GSP_REPLAY_MAX, &k->files));
cleanup:
    atom_free(path);
    if (st != ATOM_OK)
        gsp_own_inputs_close(k);
    return st;
}

void gsp_own_inputs_close(gsp_own_inputs *k)
{
    gsp_results_close(&k->files);
    atom_free(k->shown);
    *k = (gsp_own_inputs){0};
}

atom_status gsp_own_inputs_some(gsp_own_inputs *k, const gsp_freezing *f, bool *more)
{
    uint64_t version = f->version;
    const gsp_hash *root = &f->contribution.root;
    *more = false;
    if (!k->files || !f->done || !f->x)
        return ATOM_OK;
    if (version != k->version || !gsp_hash_equal(root, &k->root)) {
        k->version = version;
        k->root = *root;
        k->next = 0;
    }
    for (uint32_t n = 0; n < WRITE_PARTS && k->next < k->terms->n_parts; n++, k->next++)
        ATOM_TRY(gsp_results_put(k->files, version, k->next, root,
                                 gsp_freezing_part(f, version, root, k->next),
                                 gsp_terms_bytes(k->terms, version, k->next)));
    *more = k->next < k->terms->n_parts;
    if (*more)
        return ATOM_OK;
    gsp_own_inputs_tree *t = &k->tree[version % GSP_REPLAY_MAX];
    t->version = version;
    t->root = *root;
    memcpy(t->leaf, f->leaf, sizeof t->leaf);
    return ATOM_OK;
}

/* Reads a part into k->shown. */
static bool read_part(gsp_own_inputs *k, uint64_t version, const gsp_hash *root, uint32_t part)
{
    uint64_t bytes;
    return gsp_results_find(k->files, part, root, &bytes) &&
           bytes == gsp_terms_bytes(k->terms, version, part) &&
           gsp_results_read(k->files, part, root, k->shown) == ATOM_OK;
}

/* The hashes of all parts from the disk; false: not all of it is there. */
static bool make_tree(gsp_own_inputs *k, uint64_t version, const gsp_hash *root,
                      gsp_own_inputs_tree *t)
{
    gsp_hash made;
    t->version = 0;
    for (uint32_t p = 0; p < k->terms->n_parts; p++) {
        if (!read_part(k, version, root, p))
            return false;
        gsp_merkle_leaf(p, k->shown, gsp_terms_bytes(k->terms, version, p), &t->leaf[p]);
    }
    gsp_merkle_root(t->leaf, k->terms->n_parts, &made);
    if (!gsp_hash_equal(&made, root))
        return false;
    t->version = version;
    t->root = *root;
    return true;
}

/* The hashes of all parts, which prove each; NULL: not to be had, or not now. Making them takes a while, and
 * nobody who asks may take up much of my time; but whoever asks for several versions soon has them. */
static const gsp_own_inputs_tree *tree_of(gsp_own_inputs *k, uint64_t version, const gsp_hash *root)
{
    static const uint64_t REST_TIMES = 8, REST_MOST_NS = 2000000000u;
    gsp_own_inputs_tree *t = &k->tree[version % GSP_REPLAY_MAX];
    uint64_t began = atom_clock_ns();
    if (t->version == version && gsp_hash_equal(&t->root, root))
        return t;
    if (began < k->rests_until_ns)
        return NULL;
    bool made = make_tree(k, version, root, t);
    uint64_t now = atom_clock_ns(), rest = REST_TIMES * (now - began);
    k->rests_until_ns = now + (rest < REST_MOST_NS ? rest : REST_MOST_NS);
    return made ? t : NULL;
}

bool gsp_own_inputs_exhibit(gsp_own_inputs *k, uint64_t version, const gsp_hash *root,
                            uint32_t part, gsp_exhibit *out)
{
    uint64_t bytes;
    /* Of another version it is not what I brought: whoever asks so costs nobody any time. */
    if (!k->files || part >= k->terms->n_parts || !gsp_results_has(k->files, version, part, root) ||
        !gsp_results_find(k->files, part, root, &bytes))
        return false;
    const gsp_own_inputs_tree *t = tree_of(k, version, root);
    if (!t || !read_part(k, version, root, part))
        return false;
    *out = (gsp_exhibit){.data = k->shown, .bytes = bytes};
    out->n_path = gsp_merkle_path(t->leaf, k->terms->n_parts, part, out->path);
    return true;
}
