/*
 * Owns the forms of admission, delegation and invite, and the rule by which they let somebody in.
 * Its one idea: a chain of at most two signatures that ends at the owner's key, each for this pool
 * and this moment. It refuses anything whose size, kind or version is not exactly right.
 */
#include "gossip/trust/admission.h"

#include "atom/base/assert.h"
#include "atom/base/bytes.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { KIND_ADMISSION = 1, KIND_DELEGATION = 2, KIND_INVITE = 3, VERSION = 1 };

_Static_assert(GSP_ADMISSION_BYTES + GSP_DELEGATION_BYTES <= GSP_CREDENTIAL_BYTES_MAX, "fits");
_Static_assert(GSP_INVITE_BYTES + GSP_DELEGATION_BYTES <= GSP_CREDENTIAL_BYTES_MAX, "fits");

static void write_head(atom_writer *w, unsigned kind)
{
    atom_write_uint(w, kind, 1);
    atom_write_uint(w, VERSION, 1);
    atom_write_uint(w, 0, 2);
}

static bool read_head(atom_reader *r, unsigned kind)
{
    bool right = atom_read_u8(r) == kind;
    right = atom_read_u8(r) == VERSION && right;
    return atom_read_u16(r) == 0 && right;
}

void gsp_admission_encode(const gsp_admission *a, uint8_t out[GSP_ADMISSION_BYTES])
{
    atom_writer w = atom_writer_make(out, GSP_ADMISSION_BYTES);
    write_head(&w, KIND_ADMISSION);
    atom_write_bytes(&w, a->pool, sizeof a->pool);
    atom_write_bytes(&w, a->member, sizeof a->member);
    atom_write_bytes(&w, a->issuer, sizeof a->issuer);
    atom_write_uint(&w, a->manifest, 4);
    atom_write_uint(&w, a->issued_s, 8);
    atom_write_uint(&w, a->expires_s, 8);
    atom_write_bytes(&w, a->signature, sizeof a->signature);
    ATOM_ASSERT(!w.bad && w.at == w.end);
}

static bool admission_decode(const uint8_t *bytes, gsp_admission *a)
{
    atom_reader r = atom_reader_make(bytes, GSP_ADMISSION_BYTES);
    bool right = read_head(&r, KIND_ADMISSION);
    atom_read_bytes(&r, a->pool, sizeof a->pool);
    atom_read_bytes(&r, a->member, sizeof a->member);
    atom_read_bytes(&r, a->issuer, sizeof a->issuer);
    a->manifest = atom_read_u32(&r);
    a->issued_s = atom_read_u64(&r);
    a->expires_s = atom_read_u64(&r);
    atom_read_bytes(&r, a->signature, sizeof a->signature);
    return right && atom_reader_ok(&r);
}

void gsp_delegation_encode(const gsp_delegation *d, uint8_t out[GSP_DELEGATION_BYTES])
{
    atom_writer w = atom_writer_make(out, GSP_DELEGATION_BYTES);
    write_head(&w, KIND_DELEGATION);
    atom_write_bytes(&w, d->pool, sizeof d->pool);
    atom_write_bytes(&w, d->delegate, sizeof d->delegate);
    atom_write_uint(&w, d->issued_s, 8);
    atom_write_uint(&w, d->expires_s, 8);
    atom_write_bytes(&w, d->signature, sizeof d->signature);
    ATOM_ASSERT(!w.bad && w.at == w.end);
}

bool gsp_delegation_decode(const void *data, size_t bytes, gsp_delegation *out)
{
    gsp_delegation d;
    if (bytes != GSP_DELEGATION_BYTES)
        return false;
    atom_reader r = atom_reader_make(data, bytes);
    bool right = read_head(&r, KIND_DELEGATION);
    atom_read_bytes(&r, d.pool, sizeof d.pool);
    atom_read_bytes(&r, d.delegate, sizeof d.delegate);
    d.issued_s = atom_read_u64(&r);
    d.expires_s = atom_read_u64(&r);
    atom_read_bytes(&r, d.signature, sizeof d.signature);
    if (!right || !atom_reader_ok(&r))
        return false;
    *out = d;
    return true;
}

void gsp_invite_encode(const gsp_invite *i, uint8_t out[GSP_INVITE_BYTES])
{
    atom_writer w = atom_writer_make(out, GSP_INVITE_BYTES);
    write_head(&w, KIND_INVITE);
    atom_write_bytes(&w, i->pool, sizeof i->pool);
    atom_write_bytes(&w, i->issuer, sizeof i->issuer);
    atom_write_bytes(&w, i->id, sizeof i->id);
    atom_write_uint(&w, i->count, 4);
    atom_write_uint(&w, i->issued_s, 8);
    atom_write_uint(&w, i->expires_s, 8);
    atom_write_bytes(&w, i->signature, sizeof i->signature);
    ATOM_ASSERT(!w.bad && w.at == w.end);
}

static bool invite_decode(const uint8_t *bytes, gsp_invite *i)
{
    atom_reader r = atom_reader_make(bytes, GSP_INVITE_BYTES);
    bool right = read_head(&r, KIND_INVITE);
    atom_read_bytes(&r, i->pool, sizeof i->pool);
    atom_read_bytes(&r, i->issuer, sizeof i->issuer);
    atom_read_bytes(&r, i->id, sizeof i->id);
    i->count = atom_read_u32(&r);
    i->issued_s = atom_read_u64(&r);
    i->expires_s = atom_read_u64(&r);
    atom_read_bytes(&r, i->signature, sizeof i->signature);
    return right && atom_reader_ok(&r) && i->count > 0 && i->count <= GSP_INVITE_COUNT_MAX;
}

void gsp_admission_sign(gsp_admission *admission, const gsp_identity *issuer)
{
    uint8_t bytes[GSP_ADMISSION_BYTES];
    memcpy(admission->issuer, issuer->public_key, sizeof admission->issuer);
    gsp_admission_encode(admission, bytes);
    gsp_sign(issuer, GSP_FOR_ADMISSION, bytes, sizeof bytes - GSP_SIGNATURE_BYTES,
             admission->signature);
}

void gsp_delegation_sign(gsp_delegation *delegation, const gsp_identity *owner)
{
    uint8_t bytes[GSP_DELEGATION_BYTES];
    gsp_delegation_encode(delegation, bytes);
    gsp_sign(owner, GSP_FOR_DELEGATION, bytes, sizeof bytes - GSP_SIGNATURE_BYTES,
             delegation->signature);
}

void gsp_invite_sign(gsp_invite *invite, const gsp_identity *issuer)
{
    uint8_t bytes[GSP_INVITE_BYTES];
    memcpy(invite->issuer, issuer->public_key, sizeof invite->issuer);
    gsp_invite_encode(invite, bytes);
    gsp_sign(issuer, GSP_FOR_INVITE, bytes, sizeof bytes - GSP_SIGNATURE_BYTES, invite->signature);
}

static gsp_refusal check_time(uint64_t now_s, uint64_t issued_s, uint64_t expires_s)
{
    if (issued_s > now_s && issued_s - now_s > GSP_SKEW_SECONDS)
        return GSP_REFUSED_CLOCK;
    if (now_s > expires_s && now_s - expires_s > GSP_SKEW_SECONDS)
        return GSP_REFUSED_EXPIRED;
    return GSP_WELCOME;
}

static bool same(const uint8_t *a, const uint8_t *b)
{
    return memcmp(a, b, 32) == 0;
}

/* Is issuer the owner, or does the delegation (n bytes, may be 0) make it one for now? */
static gsp_refusal check_issuer(const uint8_t *issuer, const uint8_t *bytes, size_t n,
                                const uint8_t *pool, const uint8_t *owner, uint64_t now_s)
{
    gsp_delegation d;
    if (same(issuer, owner))
        return n == 0 ? GSP_WELCOME : GSP_REFUSED_CREDENTIAL;
    if (!gsp_delegation_decode(bytes, n, &d) || !same(d.pool, pool) || !same(d.delegate, issuer) ||
        !gsp_verify(owner, GSP_FOR_DELEGATION, bytes, n - GSP_SIGNATURE_BYTES, d.signature))
        return GSP_REFUSED_CREDENTIAL;
    return check_time(now_s, d.issued_s, d.expires_s);
}

static gsp_refusal check_admission(const uint8_t *bytes, size_t n, const uint8_t *pool,
                                   const uint8_t *owner, const uint8_t *key, uint64_t now_s)
{
    gsp_admission a;
    if (n < GSP_ADMISSION_BYTES || !admission_decode(bytes, &a) || !same(a.pool, pool) ||
        !same(a.member, key))
        return GSP_REFUSED_CREDENTIAL;
    gsp_refusal refusal = check_issuer(a.issuer, bytes + GSP_ADMISSION_BYTES,
                                       n - GSP_ADMISSION_BYTES, pool, owner, now_s);
    if (refusal == GSP_WELCOME &&
        !gsp_verify(a.issuer, GSP_FOR_ADMISSION, bytes, GSP_ADMISSION_BYTES - GSP_SIGNATURE_BYTES,
                    a.signature))
        refusal = GSP_REFUSED_CREDENTIAL;
    return refusal == GSP_WELCOME ? check_time(now_s, a.issued_s, a.expires_s) : refusal;
}

static gsp_refusal check_invite(const uint8_t *bytes, size_t n, const uint8_t *pool,
                                const uint8_t *owner, uint64_t now_s)
{
    gsp_invite i;
    if (n < GSP_INVITE_BYTES || !invite_decode(bytes, &i) || !same(i.pool, pool))
        return GSP_REFUSED_CREDENTIAL;
    gsp_refusal refusal =
        check_issuer(i.issuer, bytes + GSP_INVITE_BYTES, n - GSP_INVITE_BYTES, pool, owner, now_s);
    if (refusal == GSP_WELCOME && !gsp_verify(i.issuer, GSP_FOR_INVITE, bytes,
                                              GSP_INVITE_BYTES - GSP_SIGNATURE_BYTES, i.signature))
        refusal = GSP_REFUSED_CREDENTIAL;
    return refusal == GSP_WELCOME ? check_time(now_s, i.issued_s, i.expires_s) : refusal;
}

gsp_refusal gsp_credential_check(const void *credential, size_t bytes,
                                 const uint8_t pool[GSP_POOL_BYTES],
                                 const uint8_t owner[GSP_PUBLIC_BYTES],
                                 const uint8_t key[GSP_PUBLIC_BYTES], uint64_t now_s,
                                 gsp_role *role)
{
    const uint8_t *at = credential;
    gsp_role found = GSP_MEMBER;
    gsp_refusal refusal = GSP_REFUSED_CREDENTIAL;
    if (bytes == 0 && same(key, owner)) {
        found = GSP_OWNER;
        refusal = GSP_WELCOME;
    } else if (bytes == GSP_DELEGATION_BYTES && at[0] == KIND_DELEGATION) {
        found = GSP_DELEGATE;
        refusal = check_issuer(key, at, bytes, pool, owner, now_s);
    } else if (bytes > 0 && at[0] == KIND_ADMISSION) {
        refusal = check_admission(at, bytes, pool, owner, key, now_s);
    } else if (bytes > 0 && at[0] == KIND_INVITE) {
        found = GSP_GUEST;
        refusal = check_invite(at, bytes, pool, owner, now_s);
    }
    if (refusal == GSP_WELCOME)
        *role = found;
    return refusal;
}

bool gsp_credential_invite(const void *credential, size_t bytes, gsp_invite *out)
{
    gsp_invite invite;
    const uint8_t *at = credential;
    if (bytes < GSP_INVITE_BYTES || at[0] != KIND_INVITE || !invite_decode(at, &invite))
        return false;
    *out = invite;
    return true;
}

enum { REFUSAL_SIGNED_BYTES = 2 * 32 + 1 + 8 + 2 + GSP_CREDENTIAL_BYTES_MAX };

/* What is signed; the credential comes last, so nothing can be moved between the fields. */
static size_t refusal_statement(const uint8_t *pool, const uint8_t *key, const void *shown,
                                size_t shown_bytes, gsp_refusal refusal, uint64_t now_s,
                                uint8_t out[REFUSAL_SIGNED_BYTES])
{
    atom_writer w = atom_writer_make(out, REFUSAL_SIGNED_BYTES);
    atom_write_bytes(&w, pool, GSP_POOL_BYTES);
    atom_write_bytes(&w, key, GSP_PUBLIC_BYTES);
    atom_write_uint(&w, (uint64_t)refusal, 1);
    atom_write_uint(&w, now_s, 8);
    atom_write_uint(&w, shown_bytes, 2);
    atom_write_bytes(&w, shown, shown_bytes);
    ATOM_ASSERT(!w.bad);
    return (size_t)(w.at - out);
}

void gsp_refusal_sign(const gsp_identity *owner, const uint8_t pool[GSP_POOL_BYTES],
                      const uint8_t key[GSP_PUBLIC_BYTES], const void *shown, size_t shown_bytes,
                      gsp_refusal refusal, uint64_t now_s, uint8_t out[GSP_REFUSAL_BYTES])
{
    uint8_t said[REFUSAL_SIGNED_BYTES];
    size_t n = refusal_statement(pool, key, shown, shown_bytes, refusal, now_s, said);
    atom_writer w = atom_writer_make(out, 8);
    atom_write_uint(&w, now_s, 8);
    gsp_sign(owner, GSP_FOR_REFUSAL, said, n, out + 8);
}

bool gsp_refusal_verify(const uint8_t owner[GSP_PUBLIC_BYTES], const uint8_t pool[GSP_POOL_BYTES],
                        const uint8_t key[GSP_PUBLIC_BYTES], const void *shown, size_t shown_bytes,
                        gsp_refusal refusal, uint64_t now_s, const void *word, size_t bytes)
{
    uint8_t said[REFUSAL_SIGNED_BYTES];
    if (bytes != GSP_REFUSAL_BYTES || shown_bytes > GSP_CREDENTIAL_BYTES_MAX)
        return false;
    atom_reader r = atom_reader_make(word, 8);
    uint64_t when_s = atom_read_u64(&r);
    uint64_t apart = when_s > now_s ? when_s - now_s : now_s - when_s;
    size_t n = refusal_statement(pool, key, shown, shown_bytes, refusal, when_s, said);
    return apart <= 2 * GSP_SKEW_SECONDS &&
           gsp_verify(owner, GSP_FOR_REFUSAL, said, n, (const uint8_t *)word + 8);
}

const char *gsp_refusal_text(gsp_refusal refusal)
{
    static const char *const text[GSP_REFUSAL_N] = {
        [GSP_WELCOME] = "welcome",
        [GSP_REFUSED_VERSION] = "it uses another version of the protocol; upgrade the older side",
        [GSP_REFUSED_CLOCK] = "the clocks differ by more than five minutes; set this host's clock",
        [GSP_REFUSED_CREDENTIAL] = "no valid admission; ask the pool's owner for a new ticket",
        [GSP_REFUSED_EXPIRED] =
            "the ticket or admission has expired, is used up or was ended; ask for a new ticket",
        [GSP_REFUSED_BANNED] = "this key is banned from the pool",
        [GSP_REFUSED_FULL] = "the member has no room for more links; try another one",
        [GSP_REFUSED_SELF] = "that address is this host's own",
        [GSP_REFUSED_KEY] = "another member answered than the one that was dialled",
        [GSP_REFUSED_TWIN] = "another process with this host's key takes part there now",
        [GSP_REFUSED_HANDSHAKE] = "no answer to our handshake; is its ticket another one?",
    };
    return (unsigned)refusal < GSP_REFUSAL_N ? text[refusal] : "refused for an unknown reason";
}

bool gsp_admission_span(const uint8_t *credential, uint32_t bytes, uint64_t *from, uint64_t *until)
{
    enum { AT = GSP_ADMISSION_BYTES - GSP_SIGNATURE_BYTES - 16 };
    *from = *until = 0;
    if (bytes < GSP_ADMISSION_BYTES || credential[0] != KIND_ADMISSION)
        return false; /* an invite with the delegation of its issuer is longer than an admission */
    for (unsigned i = 0; i < 8; i++) {
        *from |= (uint64_t)credential[AT + i] << 8 * i;
        *until |= (uint64_t)credential[AT + 8 + i] << 8 * i;
    }
    return true;
}

uint64_t gsp_credential_ends(const uint8_t *credential, uint32_t bytes)
{
    uint64_t from, until;
    gsp_delegation d;
    if (gsp_delegation_decode(credential, bytes, &d))
        return d.expires_s;
    if (!gsp_admission_span(credential, bytes, &from, &until))
        return 0;
    bool own =
        !gsp_delegation_decode(credential + GSP_ADMISSION_BYTES, bytes - GSP_ADMISSION_BYTES, &d);
    return own || until < d.expires_s ? until : d.expires_s;
}

const uint8_t *gsp_credential_issuer(const uint8_t *credential, size_t bytes)
{
    enum { HEAD = 4, ADMISSION_AT = HEAD + 2 * 32, INVITE_AT = HEAD + 32 };
    if (bytes >= GSP_ADMISSION_BYTES && credential[0] == KIND_ADMISSION)
        return credential + ADMISSION_AT;
    return bytes >= GSP_INVITE_BYTES && credential[0] == KIND_INVITE ? credential + INVITE_AT
                                                                     : NULL;
}

static const char *time_text(uint64_t s, char text[24])
{
    time_t at = (time_t)s;
    struct tm t;
    text[0] = 0;
    if (gmtime_r(&at, &t))
        (void)strftime(text, 24, "%Y-%m-%d %H:%M", &t);
    return text;
}

const char *gsp_validity_text(uint64_t issued_s, uint64_t expires_s, uint64_t now_s, char *text,
                              size_t bytes)
{
    char from[24], until[24], now[24];
    snprintf(text, bytes,
             "valid from %s to %s, but this host's clock says %s (all in UTC). If that is not the "
             "time, set the clock and try again (timedatectl set-ntp true)",
             time_text(issued_s, from), time_text(expires_s, until), time_text(now_s, now));
    return text;
}
