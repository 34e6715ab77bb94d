/*
 * Owns what a manifest means: its bounds, the bytes that its owner signs, and what follows from it
 * (genesis, rules). Its one idea: every field is signed in one fixed order, so a manifest has one
 * hash however it is written. Its text is manifest_text.c's. It refuses bounds that a hostile owner
 * could use against the hosts that join: sizes, times and names.
 */
#include "gossip/pool/manifest.h"

#include "atom/base/assert.h"
#include "atom/base/bytes.h"
#include "gossip/member/pieces.h"
#include "gossip/sum/mix.h"
#include "gossip/trust/sign.h"

#include <math.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

enum { FLOATS_PER_PART = 65536, PARTS_MIN = 32, PART_FLOATS_MAX = 4 << 20 };
/* One member may bring so many times what the whole pool brings between two versions: where rounds
 * are slow and steps are fast, a version is due many times over when it begins. */
enum { SAMPLES_DUE_MAX = 1024, STRANGERS_SILENT = 8 };
static const uint64_t COUNT_MAX = (uint64_t)1 << 53; /* exact in JSON */
static const uint64_t FLOATS_MAX = (uint64_t)1 << 40;

/* ---- bounds ---- */

static bool name_right(const char *name)
{
    size_t n = strnlen(name, GSP_MANIFEST_FILE_NAME_BYTES);
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    return n > 0 && n < GSP_MANIFEST_FILE_NAME_BYTES && name[0] != '.' && name[0] != '-' &&
           strspn(name, letters) == n;
}

static bool text_right(const char *text, size_t bytes, bool lines)
{
    size_t n = strnlen(text, bytes);
    if (n == bytes)
        return false;
    for (size_t i = 0; i < n; i++) {
        uint8_t c = (uint8_t)text[i];
        if ((c < 0x20 && !(lines && c == '\n')) || c == 0x7f || (!lines && c > 0x7e))
            return false;
    }
    return true;
}

static bool between(double value, double low, double high)
{
    return isfinite(value) && value >= low && value <= high;
}

static const char *files_wrong(const gsp_manifest *m)
{
    if (m->n_files > GSP_MANIFEST_FILES_MAX)
        return "too many files";
    for (uint32_t i = 0; i < m->n_files; i++) {
        const gsp_manifest_file *f = &m->file[i];
        if (!name_right(f->name))
            return "a file's name has other characters than letters, digits, '.', '_', '-'";
        if (f->bytes == 0 || f->bytes > COUNT_MAX)
            return "a file is empty or too large";
        if (f->later && gsp_piece_count(f->bytes) - 1 >= GSP_PIECES_MAX)
            return "a file of data is empty or too large";
        for (uint32_t k = 0; k < i; k++)
            if (strcmp(f->name, m->file[k].name) == 0)
                return "two files have one name";
    }
    return NULL;
}

static const char *rules_wrong(const gsp_manifest *m)
{
    if (m->samples_due == 0 || m->samples_due > COUNT_MAX)
        return "samples_due must be at least 1";
    if (!between(m->time_due_s, 0.01, 1e6) || !between(m->fork_s, 0.1, 1e8) ||
        !between(m->heartbeat_s, 0.01, 60) || !between(m->round_s, 0.05, 1e5))
        return "a time is out of bounds (time_due_s, fork_s, heartbeat_s, round_s)";
    if (m->silent_rounds == 0 || m->silent_rounds > 1000)
        return "silent_rounds must be 1 to 1000";
    if (m->n_parts == 0 || m->n_parts > GSP_PARTS_MAX)
        return "n_parts must be 1 to 256";
    return NULL;
}

static const char *wrong(const gsp_manifest *m)
{
    uint64_t floats = 0;
    if (m->number == 0)
        return "its number must be at least 1";
    if (!text_right(m->name, sizeof m->name, false))
        return "name must be printable ASCII";
    if (!text_right(m->settings, sizeof m->settings, true))
        return "settings must be text without control characters";
    if (m->n_fragments == 0 || m->n_fragments > GSP_FRAGMENTS_MAX)
        return "a pool has 1 to 64 fragments";
    for (uint32_t i = 0; i < m->n_fragments; i++) {
        if (m->n_floats[i] == 0 || m->n_floats[i] > FLOATS_MAX)
            return "a fragment is empty or too large";
        floats += m->n_floats[i];
    }
    if (floats > FLOATS_MAX)
        return "the fragments are too large";
    if ((unsigned)m->codec >= GSP_CODEC_N)
        return "no such codec";
    if ((unsigned)m->trust >= GSP_TRUST_N)
        return "trust must be friends or strangers";
    if ((m->clips_sums || m->drifts) && !m->robust)
        return "its format is of robust pools, and it is not robust";
    if (m->tokens_per_sample == 0 || m->tokens_per_sample > COUNT_MAX)
        return "tokens_per_sample must be at least 1";
    if (m->created_s > COUNT_MAX)
        return "its time is not a time";
    if (m->n_banned > GSP_MANIFEST_BANNED_MAX)
        return "too many banned keys";
    const char *bad = rules_wrong(m);
    return bad ? bad : files_wrong(m);
}

/* Used by manifest_text.c too. */
atom_status gsp_manifest_bounds(const gsp_manifest *m, atom_status kind)
{
    const char *bad = wrong(m);
    return bad ? atom_fail(kind, "manifest: %s", bad) : ATOM_OK;
}

static void complete_rules(gsp_manifest *m)
{
    gsp_rules d;
    gsp_agree_defaults(&d);
    m->samples_due = m->samples_due ? m->samples_due : d.samples_due;
    m->time_due_s = m->time_due_s != 0 ? m->time_due_s : 1e-9 * (double)d.time_due_ns;
    m->fork_s = m->fork_s != 0 ? m->fork_s : 1e-9 * (double)d.fork_ns;
    m->heartbeat_s = m->heartbeat_s != 0 ? m->heartbeat_s : 1e-9 * (double)d.heartbeat_ns;
    m->round_s = m->round_s != 0 ? m->round_s : 1e-9 * (double)d.round_ns;
    /* A hostile proposer leaves an honest member out in its own turns, and has several. */
    uint32_t silent = m->trust == GSP_STRANGERS ? STRANGERS_SILENT : d.silent_rounds;
    m->silent_rounds = m->silent_rounds ? m->silent_rounds : silent;
}

/* Are all parts of all fragments in use, cut as a member cuts them (member.h)? */
static bool parts_full(const gsp_manifest *m, uint32_t n_parts)
{
    for (uint32_t i = 0; i < m->n_fragments && i < GSP_FRAGMENTS_MAX; i++) {
        uint64_t n = m->n_floats[i], stride = gsp_part_stride(n, n_parts);
        if (n && (n + stride - 1) / stride < n_parts)
            return false;
    }
    return true;
}

/* Parts of about FLOATS_PER_PART floats, at least PARTS_MIN, but none empty where that can be. */
static uint32_t choose_parts(const gsp_manifest *m, uint64_t largest)
{
    uint64_t wish = largest / FLOATS_PER_PART + 1, least = largest / PART_FLOATS_MAX + 1;
    wish = wish < PARTS_MIN ? PARTS_MIN : wish > GSP_PARTS_MAX ? GSP_PARTS_MAX : wish;
    for (uint64_t n = wish; n >= least; n--)
        if (parts_full(m, (uint32_t)n))
            return (uint32_t)n;
    return (uint32_t)wish;
}

atom_status gsp_manifest_complete(gsp_manifest *m)
{
    uint64_t largest = 0;
    m->number = m->number ? m->number : 1;
    m->tokens_per_sample = m->tokens_per_sample ? m->tokens_per_sample : 1;
    complete_rules(m);
    for (uint32_t i = 0; i < m->n_fragments && i < GSP_FRAGMENTS_MAX; i++)
        largest = m->n_floats[i] > largest ? m->n_floats[i] : largest;
    if (!m->n_parts)
        m->n_parts = choose_parts(m, largest);
    return gsp_manifest_bounds(m, ATOM_E_USAGE);
}

/* ---- what is signed ---- */

typedef struct canon {
    crypto_generichash_state state;
} canon;

static void put(canon *c, const void *data, size_t bytes)
{
    crypto_generichash_update(&c->state, data, bytes);
}

static void put_uint(canon *c, uint64_t v)
{
    uint8_t b[8];
    for (unsigned i = 0; i < 8; i++)
        b[i] = (uint8_t)(v >> (8 * i));
    put(c, b, sizeof b);
}

static void put_text(canon *c, const char *text)
{
    size_t n = strlen(text);
    put_uint(c, n);
    put(c, text, n);
}

static void put_real(canon *c, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_uint(c, bits);
}

/* What all manifests of a pool share. */
static void put_matter(canon *c, const gsp_manifest *m)
{
    put(c, m->pool, sizeof m->pool);
    put(c, m->owner, sizeof m->owner);
    put(c, m->founder, sizeof m->founder);
    put_uint(c, m->created_s);
    put_uint(c, m->plain);
    put_text(c, m->name);
    put_uint(c, m->n_fragments);
    for (uint32_t i = 0; i < m->n_fragments; i++)
        put_uint(c, m->n_floats[i]);
    put_uint(c, (uint64_t)m->codec);
    put(c, m->anchor.byte, sizeof m->anchor.byte);
    put_uint(c, m->tokens_per_sample);
    put_text(c, m->settings);
    put_uint(c, m->n_files);
    for (uint32_t i = 0; i < m->n_files; i++) {
        put_text(c, m->file[i].name);
        put_uint(c, m->file[i].bytes);
        put(c, m->file[i].hash.byte, sizeof m->file[i].hash.byte);
        put_uint(c, m->file[i].later);
    }
    put_uint(c, m->samples_due);
    put_real(c, m->time_due_s);
    put_real(c, m->fork_s);
    put_real(c, m->heartbeat_s);
    put_real(c, m->round_s);
    put_uint(c, m->silent_rounds);
    put_uint(c, (uint64_t)m->trust);
    put_uint(c, m->robust);
    put_uint(c, m->n_parts);
}

static void hash_matter(const gsp_manifest *m, gsp_hash *out)
{
    canon c;
    crypto_generichash_init(&c.state, NULL, 0, sizeof out->byte);
    put_text(&c, m->clips_sums ? "atom manifest 2, sums are clipped" : "atom manifest 2");
    if (m->shares_return)
        put_text(&c, "shares return");
    if (m->passes_on)
        put_text(&c, "leases pass on");
    if (m->drifts)
        put_text(&c, "drifts count");
    put_matter(&c, m);
    crypto_generichash_final(&c.state, out->byte, sizeof out->byte);
}

static void hash_all(const gsp_manifest *m, gsp_hash *out)
{
    canon c;
    gsp_hash matter;
    hash_matter(m, &matter);
    crypto_generichash_init(&c.state, NULL, 0, sizeof out->byte);
    put(&c, matter.byte, sizeof matter.byte);
    put_uint(&c, m->number);
    put(&c, m->key.byte, sizeof m->key.byte);
    put_uint(&c, m->n_banned);
    for (uint32_t i = 0; i < m->n_banned; i++)
        put(&c, m->banned[i], GSP_PUBLIC_BYTES);
    crypto_generichash_final(&c.state, out->byte, sizeof out->byte);
}

void gsp_manifest_sign(gsp_manifest *m, const gsp_identity *owner)
{
    gsp_hash hash;
    ATOM_ASSERT(memcmp(m->owner, owner->public_key, sizeof m->owner) == 0);
    ATOM_ASSERT(wrong(m) == NULL);
    hash_all(m, &hash);
    gsp_sign(owner, GSP_FOR_MANIFEST, hash.byte, sizeof hash.byte, m->signature);
}

bool gsp_manifest_verify(const gsp_manifest *m)
{
    gsp_hash hash;
    if (wrong(m))
        return false;
    hash_all(m, &hash);
    return gsp_verify(m->owner, GSP_FOR_MANIFEST, hash.byte, sizeof hash.byte, m->signature);
}

const char *gsp_manifest_follows(const gsp_manifest *now, const gsp_manifest *next)
{
    gsp_hash a, b;
    if (memcmp(now->pool, next->pool, sizeof now->pool) != 0)
        return "it is of another pool";
    if (memcmp(now->owner, next->owner, sizeof now->owner) != 0)
        return "it has another owner";
    if (next->number <= now->number)
        return "it is not newer";
    hash_matter(now, &a);
    hash_matter(next, &b);
    if (memcmp(a.byte, b.byte, sizeof a.byte) != 0)
        return "it changes what is trained";
    return NULL;
}

/* ---- what follows from it ---- */

void gsp_manifest_genesis(const gsp_manifest *m, gsp_genesis *out)
{
    memset(out, 0, sizeof *out);
    memcpy(out->pool.byte, m->pool, sizeof out->pool.byte);
    out->anchor = m->anchor;
    memcpy(out->founder.key.byte, m->founder, sizeof out->founder.key.byte);
    out->founder.incarnation = 1;
}

static uint64_t ns(double seconds)
{
    return (uint64_t)(seconds * 1e9);
}

void gsp_manifest_rules(const gsp_manifest *m, gsp_rules *out)
{
    gsp_agree_defaults(out);
    out->samples_due = m->samples_due;
    out->time_due_ns = ns(m->time_due_s);
    out->fork_ns = ns(m->fork_s);
    out->heartbeat_ns = ns(m->heartbeat_s);
    out->dead_ns = 4 * out->heartbeat_ns; /* the defaults' proportions */
    out->round_min_ns = 4 * out->heartbeat_ns;
    out->round_ns = ns(m->round_s);
    out->silent_rounds = m->silent_rounds;
    out->trust = m->trust;
    out->samples_max = m->samples_due < GSP_TOKENS_MAX / SAMPLES_DUE_MAX
                           ? m->samples_due * SAMPLES_DUE_MAX
                           : GSP_TOKENS_MAX;
    out->tokens_per_sample = m->tokens_per_sample * m->n_fragments;
    out->n_parts = m->n_parts;
    memcpy(out->owner.byte, m->owner, sizeof out->owner.byte);
}

void gsp_manifest_key_hash(const uint8_t psk[GSP_PSK_BYTES], gsp_hash *out)
{
    static const char what[] = "atom pre-shared key";
    crypto_generichash(out->byte, sizeof out->byte, psk, GSP_PSK_BYTES, (const uint8_t *)what,
                       sizeof what - 1);
}

bool gsp_manifest_bans(const gsp_manifest *m, const uint8_t key[GSP_PUBLIC_BYTES])
{
    for (uint32_t i = 0; i < m->n_banned; i++)
        if (memcmp(m->banned[i], key, GSP_PUBLIC_BYTES) == 0)
            return true;
    return false;
}

uint64_t gsp_manifest_gives(const gsp_manifest *m)
{
    enum { TIMES = 4 };
    uint64_t bytes = 64 << 20;
    for (uint32_t i = 0; i < m->n_files; i++)
        bytes += TIMES * m->file[i].bytes;
    return bytes;
}

const gsp_manifest_file *gsp_manifest_find(const gsp_manifest *m, const char *name)
{
    for (uint32_t i = 0; i < m->n_files; i++)
        if (strcmp(m->file[i].name, name) == 0)
            return &m->file[i];
    return NULL;
}
