/*
 * Owns the manifest's text: JSON that people can read. Its one idea: a table of fields, each with
 * its name, written and read by the same row. It refuses unknown and missing keys, numbers that are
 * not exact, and what the owner did not sign. Values are read here and not by atom/base/json.h: rows
 * hold keys in hexadecimal and texts of a fixed size.
 */
#include "gossip/pool/manifest.h"

#include "atom/base/json.h"
#include "atom/base/mem.h"

#include <sodium.h>
#include <string.h>

/* manifest.c */
atom_status gsp_manifest_bounds(const gsp_manifest *m, atom_status kind);

enum { HEX_BYTES_MAX = 2 * 64 + 1 };

typedef enum field_kind { U32, U64, REAL, FLAG, TEXT, BYTES } field_kind;
typedef struct field {
    const char *name;
    field_kind kind;
    size_t at, bytes;
} field;
#define ROW(k, member)                                                                             \
    {                                                                                              \
#member, k, offsetof(gsp_manifest, member), sizeof((gsp_manifest *)0)->member              \
    }
static const field fields[] = {
    ROW(U32, number),        ROW(BYTES, pool),
    ROW(BYTES, owner),       ROW(BYTES, founder),
    ROW(U64, created_s),     ROW(BYTES, key),
    ROW(FLAG, plain),        ROW(TEXT, name),
    ROW(BYTES, anchor),      ROW(U64, tokens_per_sample),
    ROW(TEXT, settings),     ROW(U64, samples_due),
    ROW(REAL, time_due_s),   ROW(REAL, fork_s),
    ROW(REAL, heartbeat_s),  ROW(REAL, round_s),
    ROW(U32, silent_rounds), ROW(U32, n_parts),
    ROW(FLAG, robust),       ROW(BYTES, signature),
};
static const field file_fields[] = {
    {"name", TEXT, offsetof(gsp_manifest_file, name), GSP_MANIFEST_FILE_NAME_BYTES},
    {"bytes", U64, offsetof(gsp_manifest_file, bytes), 8},
    {"hash", BYTES, offsetof(gsp_manifest_file, hash), GSP_HASH_BYTES},
    {"later", FLAG, offsetof(gsp_manifest_file, later), sizeof(bool)},
};
enum {
    N_FIELDS = sizeof fields / sizeof *fields,
    N_FILE_FIELDS = sizeof file_fields / sizeof *file_fields,
    N_OTHERS = 6, /* format, codec, trust, fragments, files, banned */
};

/* ---- writing ---- */

static json_t *hex_json(const void *bytes, size_t n)
{
    char hex[HEX_BYTES_MAX];
    sodium_bin2hex(hex, sizeof hex, bytes, n);
    return json_string(hex);
}

static json_t *field_json(const field *f, const void *base)
{
    const char *at = (const char *)base + f->at;
    uint32_t u32;
    uint64_t u64;
    double real;
    switch (f->kind) {
    case U32:
        memcpy(&u32, at, sizeof u32);
        return json_integer(u32);
    case U64:
        memcpy(&u64, at, sizeof u64);
        return json_integer((json_int_t)u64);
    case REAL:
        memcpy(&real, at, sizeof real);
        return json_real(real);
    case FLAG:
        return json_boolean(*(const bool *)at);
    case TEXT:
        return json_string(at);
    case BYTES:
        return hex_json(at, f->bytes);
    }
    return NULL;
}

/* All json_*_set_new calls fail together with a NULL value, so one check at the end is enough. */
static bool object_fill(json_t *object, const field *table, size_t n, const void *base)
{
    bool ok = true;
    for (size_t i = 0; i < n; i++)
        ok &= json_object_set_new(object, table[i].name, field_json(&table[i], base)) == 0;
    return ok;
}

static bool fill(json_t *o, const gsp_manifest *m)
{
    json_t *fragments = json_array(), *files = json_array(), *banned = json_array();
    int format = GSP_MANIFEST_FORMAT + (m->clips_sums ? GSP_MANIFEST_FORMAT_CLIPS : 0) +
                 (m->shares_return ? GSP_MANIFEST_FORMAT_RETURNS : 0) +
                 (m->passes_on ? GSP_MANIFEST_FORMAT_PASSES : 0) +
                 (m->drifts ? GSP_MANIFEST_FORMAT_DRIFTS : 0);
    bool ok = json_object_set_new(o, "format", json_integer(format)) == 0;
    ok &= object_fill(o, fields, N_FIELDS, m);
    ok &= json_object_set_new(o, "codec", json_string(gsp_codec_name(m->codec))) == 0;
    ok &= json_object_set_new(o, "trust", json_string(gsp_trust_name(m->trust))) == 0;
    for (uint32_t i = 0; i < m->n_fragments; i++)
        ok &= json_array_append_new(fragments, json_integer((json_int_t)m->n_floats[i])) == 0;
    for (uint32_t i = 0; i < m->n_files; i++) {
        json_t *file = json_object();
        ok &= object_fill(file, file_fields, N_FILE_FIELDS, &m->file[i]);
        ok &= json_array_append_new(files, file) == 0;
    }
    for (uint32_t i = 0; i < m->n_banned; i++)
        ok &= json_array_append_new(banned, hex_json(m->banned[i], GSP_PUBLIC_BYTES)) == 0;
    ok &= json_object_set_new(o, "fragments", fragments) == 0;
    ok &= json_object_set_new(o, "files", files) == 0;
    ok &= json_object_set_new(o, "banned", banned) == 0;
    return ok;
}

atom_status gsp_manifest_text(const gsp_manifest *m, char **text)
{
    json_t *object = json_object();
    char *made = NULL;
    if (object && !fill(object, m)) {
        json_decref(object);
        object = NULL;
    }
    ATOM_TRY(atom_json_text(object, JSON_INDENT(1) | JSON_REAL_PRECISION(17), "\n", &made));
    if (strlen(made) > GSP_MANIFEST_TEXT_BYTES_MAX) {
        atom_status st =
            atom_fail(ATOM_E_USAGE,
                      "the manifest would take %zu bytes, and at most %d are allowed; use fewer "
                      "files or settings",
                      strlen(made), GSP_MANIFEST_TEXT_BYTES_MAX);
        atom_free(made);
        return st;
    }
    *text = made;
    return ATOM_OK;
}

/* ---- reading ---- */

static bool hex_read(const json_t *value, void *out, size_t bytes)
{
    size_t n = 0;
    const char *hex = json_string_value(value), *end = NULL;
    if (!hex || json_string_length(value) != 2 * bytes)
        return false;
    return sodium_hex2bin(out, bytes, hex, 2 * bytes, NULL, &n, &end) == 0 && n == bytes;
}

static bool number_read(const json_t *value, uint64_t max, uint64_t *out)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        (uint64_t)json_integer_value(value) > max)
        return false;
    *out = (uint64_t)json_integer_value(value);
    return true;
}

static bool text_read(const json_t *value, char *out, size_t bytes)
{
    size_t n = json_string_length(value);
    const char *text = json_string_value(value);
    if (!text || n >= bytes || strlen(text) != n)
        return false;
    memcpy(out, text, n + 1);
    return true;
}

static bool field_read(const field *f, const json_t *object, void *base)
{
    const json_t *value = json_object_get(object, f->name);
    char *at = (char *)base + f->at;
    uint64_t n = 0;
    double real = json_number_value(value);
    switch (f->kind) {
    case U32:
        if (!number_read(value, UINT32_MAX, &n))
            return false;
        memcpy(at, &(uint32_t){(uint32_t)n}, sizeof(uint32_t));
        return true;
    case U64:
        if (!number_read(value, INT64_MAX, &n))
            return false;
        memcpy(at, &n, sizeof n);
        return true;
    case REAL:
        memcpy(at, &real, sizeof real);
        return json_is_number(value);
    case FLAG:
        *(bool *)at = json_is_true(value);
        return json_is_boolean(value);
    case TEXT:
        return text_read(value, at, f->bytes);
    case BYTES:
        return hex_read(value, at, f->bytes);
    }
    return false;
}

static atom_status object_read(const json_t *object, const field *table, size_t n, size_t others,
                               void *base)
{
    for (size_t i = 0; i < n; i++)
        if (!field_read(&table[i], object, base))
            return atom_fail(ATOM_E_FORMAT, "manifest: '%s' is missing or malformed",
                             table[i].name);
    if (json_object_size(object) != n + others)
        return atom_fail(ATOM_E_FORMAT, "manifest: it has keys that this version of atom does "
                                        "not know; it may be from a newer version");
    return ATOM_OK;
}

static atom_status lists_read(const json_t *o, gsp_manifest *m)
{
    const json_t *fragments = json_object_get(o, "fragments"), *files = json_object_get(o, "files"),
                 *banned = json_object_get(o, "banned");
    if (!json_is_array(fragments) || json_array_size(fragments) > GSP_FRAGMENTS_MAX ||
        !json_is_array(files) || json_array_size(files) > GSP_MANIFEST_FILES_MAX ||
        !json_is_array(banned) || json_array_size(banned) > GSP_MANIFEST_BANNED_MAX)
        return atom_fail(ATOM_E_FORMAT,
                         "manifest: fragments, files or banned is not a list, or is too long");
    m->n_fragments = (uint32_t)json_array_size(fragments);
    m->n_files = (uint32_t)json_array_size(files);
    m->n_banned = (uint32_t)json_array_size(banned);
    for (uint32_t i = 0; i < m->n_fragments; i++)
        if (!number_read(json_array_get(fragments, i), INT64_MAX, &m->n_floats[i]))
            return atom_fail(ATOM_E_FORMAT, "manifest: fragment %u is not a count of floats", i);
    for (uint32_t i = 0; i < m->n_banned; i++)
        if (!hex_read(json_array_get(banned, i), m->banned[i], GSP_PUBLIC_BYTES))
            return atom_fail(ATOM_E_FORMAT, "manifest: banned key %u is not a key", i);
    for (uint32_t i = 0; i < m->n_files; i++)
        ATOM_TRY(object_read(json_array_get(files, i), file_fields, N_FILE_FIELDS, 0, &m->file[i]));
    return ATOM_OK;
}

static atom_status read_object(const json_t *o, gsp_manifest *m)
{
    uint64_t format = 0;
    const char *codec = json_string_value(json_object_get(o, "codec"));
    const char *trust = json_string_value(json_object_get(o, "trust"));
    if (!number_read(json_object_get(o, "format"), INT64_MAX, &format))
        return atom_fail(ATOM_E_FORMAT, "manifest: it has no 'format', so it is not a manifest");
    if (format < GSP_MANIFEST_FORMAT || format > GSP_MANIFEST_FORMAT_LAST)
        return atom_fail(ATOM_E_FORMAT,
                         "manifest: its format is %llu, but this version of atom reads only %d "
                         "to %d; use the version that the pool's owner uses",
                         (unsigned long long)format, GSP_MANIFEST_FORMAT, GSP_MANIFEST_FORMAT_LAST);
    m->clips_sums = (format - GSP_MANIFEST_FORMAT) & GSP_MANIFEST_FORMAT_CLIPS;
    m->shares_return = (format - GSP_MANIFEST_FORMAT) & GSP_MANIFEST_FORMAT_RETURNS;
    m->passes_on = (format - GSP_MANIFEST_FORMAT) & GSP_MANIFEST_FORMAT_PASSES;
    m->drifts = (format - GSP_MANIFEST_FORMAT) & GSP_MANIFEST_FORMAT_DRIFTS;
    ATOM_TRY(object_read(o, fields, N_FIELDS, N_OTHERS, m));
    ATOM_TRY(lists_read(o, m));
    if (!codec || !gsp_codec_parse(codec, &m->codec))
        return atom_fail(ATOM_E_FORMAT, "manifest: it names a codec that this atom lacks");
    if (!trust || !gsp_trust_parse(trust, &m->trust))
        return atom_fail(ATOM_E_FORMAT, "manifest: trust is neither friends nor strangers");
    return ATOM_OK;
}

atom_status gsp_manifest_parse(const char *text, size_t bytes, gsp_manifest *out)
{
    json_t *object = NULL;
    gsp_manifest *m = NULL;
    atom_status st;
    ATOM_TRY_CLEAN(gsp_crypto_start());
    if (bytes > GSP_MANIFEST_TEXT_BYTES_MAX)
        ATOM_TRY_CLEAN(atom_fail(ATOM_E_FORMAT, "manifest: %zu bytes are too many", bytes));
    ATOM_TRY_CLEAN(atom_json_parse("manifest", text, bytes, 0, &object));
    m = atom_alloc(1, sizeof *m);
    if (!m)
        ATOM_TRY_CLEAN(atom_fail_memory("a manifest", sizeof *m));
    ATOM_TRY_CLEAN(read_object(object, m));
    ATOM_TRY_CLEAN(gsp_manifest_bounds(m, ATOM_E_FORMAT));
    if (!gsp_manifest_verify(m))
        ATOM_TRY_CLEAN(atom_fail(ATOM_E_FORMAT,
                                 "manifest: it does not carry its owner's signature; get it "
                                 "again"));
    *out = *m;
cleanup:
    json_decref(object);
    atom_free(m);
    return st;
}
