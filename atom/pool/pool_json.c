/*
 * Owns pool.json of a checkpoint: which version of each fragment is in its live weights, and what
 * of them the pool has not had yet. One idea: the anchor's hash says whether a fragment moved on
 * since, whatever lineage it is of. Refuses texts that it did not write.
 */
#include "atom/pool/pool_json.h"

#include "atom/base/hex.h"
#include "atom/base/json.h"
#include "atom/base/mem.h"

enum { MARKS_VERSION = 1, HEX = 2 * GSP_HASH_BYTES };

static const char *hex(const gsp_hash *hash, char text[HEX + 1])
{
    return atom_hex(hash->byte, sizeof hash->byte, text);
}

static bool unhex(const json_t *object, const char *key, gsp_hash *out)
{
    return atom_unhex(json_string_value(json_object_get(object, key)), out->byte, sizeof out->byte);
}

char *pool_json_text(const pool_mark *m)
{
    char text[HEX + 1], *out = NULL;
    json_t *fragments = json_array();
    for (uint32_t i = 0; i < m->n_fragments; i++)
        json_array_append_new(fragments,
                              json_pack("{s:I, s:s, s:I}", "version", (json_int_t)m->version[i],
                                        "anchor", hex(&m->anchor[i], text), "tokens_included",
                                        (json_int_t)m->tokens_included[i]));
    json_t *root =
        json_pack("{s:i, s:s, s:I, s:I, s:o}", "pool_state", MARKS_VERSION, "lineage",
                  hex(&m->lineage, text), "applied", (json_int_t)m->applied, "samples_included",
                  (json_int_t)m->samples_included, "fragments", fragments);
    if (m->own_steps)
        json_object_set_new(root, "own_steps", json_true());
    return atom_json_text(root, JSON_INDENT(2), "", &out) == ATOM_OK ? out : NULL;
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
        !unhex(root, "lineage", &m->lineage) || !get_count(root, "applied", &m->applied) ||
        !get_count(root, "samples_included", &m->samples_included) || n == 0 ||
        n > GSP_FRAGMENTS_MAX)
        return false;
    m->n_fragments = (uint32_t)n;
    m->own_steps = json_is_true(json_object_get(root, "own_steps"));
    for (size_t i = 0; i < n; i++) {
        const json_t *f = json_array_get(fragments, i);
        if (!get_count(f, "version", &m->version[i]) ||
            !get_count(f, "tokens_included", &m->tokens_included[i]) ||
            !unhex(f, "anchor", &m->anchor[i]))
            return false;
    }
    return true;
}

atom_status pool_json_parse(const char *path, const char *text, size_t bytes, pool_mark *out)
{
    json_t *root = NULL;
    pool_mark *m = NULL;
    atom_status st;
    ATOM_TRY_CLEAN(atom_json_parse(path, text, bytes, 0, &root));
    m = atom_alloc(1, sizeof *m);
    if (!m)
        ATOM_TRY_CLEAN(atom_fail_memory("a pool's state", sizeof *m));
    if (!parse(root, m))
        ATOM_TRY_CLEAN(atom_fail(ATOM_E_FORMAT,
                                 "%s: it is not the state of a pool, or is of "
                                 "another version of atom",
                                 path));
    *out = *m;
cleanup:
    json_decref(root);
    atom_free(m);
    return st;
}
