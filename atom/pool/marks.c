/*
 * Owns pool.json of a checkpoint: which version of each fragment is in its live weights, and what
 * of them the pool has not had yet. One idea: the anchor's hash says whether a fragment moved on
 * since, whatever lineage it is of. Refuses texts that it did not write.
 */
#include "atom/pool/anchor_inner.h"

#include "atom/base/mem.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MARKS_VERSION = 1, HEX = 2 * GSP_HASH_BYTES };

static char *hex(const gsp_hash *hash, char text[HEX + 1])
{
    for (int i = 0; i < GSP_HASH_BYTES; i++)
        snprintf(text + 2 * i, 3, "%02x", hash->byte[i]);
    return text;
}

static bool unhex(const json_t *value, gsp_hash *out)
{
    const char *text = json_string_value(value);
    static const char digits[] = "0123456789abcdef";
    if (!text || strlen(text) != HEX)
        return false;
    for (int i = 0; i < HEX; i++) {
        const char *at = strchr(digits, text[i]);
        if (!at)
            return false;
        unsigned nibble = (unsigned)(at - digits);
        out->byte[i / 2] = (uint8_t)(i % 2 ? out->byte[i / 2] | nibble : nibble << 4);
    }
    return true;
}

/* Of what live has: a version that was applied but not merged yet is not in it. */
char *pool_marks_text(const pool_anchor *p)
{
    char text[HEX + 1];
    json_t *fragments = json_array();
    for (uint32_t i = 0; i < p->c.n_fragments; i++) {
        const pool_fragment *f = &p->fragment[i];
        bool current = !f->merge && !f->replace && !f->over_stride;
        json_array_append_new(
            fragments, json_pack("{s:I, s:s, s:I}", "version", (json_int_t)f->merged, "anchor",
                                 current ? hex(&f->hash, text) : hex(&(gsp_hash){{0}}, text),
                                 "tokens_included", (json_int_t)f->tokens_included));
    }
    json_t *root =
        json_pack("{s:i, s:s, s:I, s:I, s:o}", "pool_state", MARKS_VERSION, "lineage",
                  hex(&p->lineage, text), "applied", (json_int_t)p->applied, "samples_included",
                  (json_int_t)p->samples_included, "fragments", fragments);
    char *dumped = root ? json_dumps(root, JSON_INDENT(2)) : NULL;
    char *out = dumped ? atom_strdup(dumped) : NULL;
    free(dumped);
    json_decref(root);
    return out;
}

char *pool_anchor_marks(pool_anchor *p)
{
    pthread_mutex_lock(&p->lock);
    char *text = pool_marks_text(p);
    pthread_mutex_unlock(&p->lock);
    return text;
}

static bool get_count(const json_t *object, const char *key, uint64_t *out)
{
    const json_t *value = json_object_get(object, key);
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return false;
    *out = (uint64_t)json_integer_value(value);
    return true;
}

static bool parse(const json_t *root, pool_mark *m)
{
    uint64_t version;
    const json_t *fragments = json_object_get(root, "fragments");
    size_t n = json_array_size(fragments);
    if (!get_count(root, "pool_state", &version) || version != MARKS_VERSION ||
        !unhex(json_object_get(root, "lineage"), &m->lineage) ||
        !get_count(root, "applied", &m->applied) ||
        !get_count(root, "samples_included", &m->samples_included) || n == 0 ||
        n > GSP_FRAGMENTS_MAX)
        return false;
    m->n_fragments = (uint32_t)n;
    for (size_t i = 0; i < n; i++) {
        const json_t *f = json_array_get(fragments, i);
        if (!get_count(f, "version", &m->version[i]) ||
            !get_count(f, "tokens_included", &m->tokens_included[i]) ||
            !unhex(json_object_get(f, "anchor"), &m->anchor[i]))
            return false;
    }
    return true;
}

atom_status pool_marks_parse(const char *path, const char *text, size_t bytes, pool_mark *out)
{
    json_error_t error;
    pool_mark *m = atom_alloc(1, sizeof *m);
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    atom_status st = ATOM_OK;
    if (!m)
        st = atom_fail_memory("a pool's state", sizeof *m);
    else if (!root)
        st = atom_fail(ATOM_E_FORMAT, "%s:%d:%d: %s", path, error.line, error.column, error.text);
    else if (!parse(root, m))
        st = atom_fail(ATOM_E_FORMAT, "%s: not a pool's state of this atom", path);
    else
        *out = *m;
    json_decref(root);
    atom_free(m);
    return st;
}
