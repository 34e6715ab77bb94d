/*
 * Owns a host's right to be in a pool, and its manifest. Its one idea: keys, credential and
 * manifest change together and are on disk before anybody hears of it. It refuses manifests that do
 * not follow the one it has, and admissions that the owner did not sign.
 */
#include "gossip/pool/door.h"

#include "atom/base/clock.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"
#include "gossip/pool/dir.h"

#include <sodium.h>
#include <stdio.h>
#include <time.h>

enum {
    DAY_S = 24 * 3600,
    OLD_KEY_SECONDS = DAY_S
}; /* a rotated key still opens the door for members */

atom_status gsp_door_open(gsp_door *d, const char *directory)
{
    d->directory = directory;
    (void)pthread_mutex_init(&d->lock, NULL);
    d->manifest = atom_alloc(1, sizeof *d->manifest);
    char *path = atom_format("%s/identity", directory);
    atom_status st = d->manifest && path ? gsp_identity_open(path, &d->identity)
                                         : atom_fail_memory("a pool", sizeof *d->manifest);
    atom_free(path);
    return st;
}

void gsp_door_close(gsp_door *d)
{
    if (d->directory)
        pthread_mutex_destroy(&d->lock);
    gsp_ledger_close(&d->ledger);
    gsp_identity_wipe(&d->identity);
    atom_free(d->manifest_text);
    atom_free(d->manifest);
    sodium_memzero(d, sizeof *d);
}

/* ---- who may come in ---- */

/* On the gate's thread, and the directory's. */
/* Under the lock. */
static bool has_twin(const gsp_door *d, const uint8_t *key, uint64_t boot)
{
    uint64_t now = atom_clock_ns();
    for (uint32_t i = 0; i < d->n_present; i++) {
        const gsp_present *p = &d->present[i];
        if (p->boot != boot && now < p->until_ns && memcmp(p->key, key, sizeof p->key) == 0)
            return true;
    }
    return false;
}

static gsp_refusal may_enter(void *context, const uint8_t key[GSP_PUBLIC_BYTES],
                             const uint8_t *issuer, const gsp_hello *hello)
{
    gsp_door *d = context;
    pthread_mutex_lock(&d->lock);
    bool banned = d->has_manifest && gsp_manifest_bans(d->manifest, key);
    bool is_void = issuer && d->has_manifest && gsp_manifest_bans(d->manifest, issuer);
    bool twin = hello->boot && has_twin(d, key, hello->boot);
    pthread_mutex_unlock(&d->lock);
    if (banned)
        return GSP_REFUSED_BANNED;
    if (is_void)
        return GSP_REFUSED_CREDENTIAL;
    if (atomic_load(&d->shut))
        return GSP_REFUSED_FULL;
    return twin ? GSP_REFUSED_TWIN : GSP_WELCOME;
}

void gsp_door_show_present(gsp_door *d, const gsp_present *present, uint32_t n)
{
    pthread_mutex_lock(&d->lock);
    d->n_present = n < GSP_PRESENT_MAX ? n : GSP_PRESENT_MAX;
    memcpy(d->present, present, d->n_present * sizeof *present);
    pthread_mutex_unlock(&d->lock);
}

void gsp_door_who(gsp_door *d, gsp_handshake_config *out)
{
    memset(out, 0, sizeof *out);
    out->self = &d->identity;
    memcpy(out->pool, d->pool, sizeof out->pool);
    memcpy(out->owner, d->owner, sizeof out->owner);
    memcpy(out->psk, d->psk, sizeof out->psk);
    out->n_psks = d->n_psks;
    out->credential_bytes = gsp_door_shows(d, (uint64_t)atom_wall_seconds(), out->credential);
    out->may_enter = may_enter;
    out->ctx = d;
}

/* ---- the ticket ---- */

static void take(gsp_door *d, const gsp_ticket *t)
{
    static const char mark[] = "plain+";
    memcpy(d->pool, t->pool, sizeof d->pool);
    memcpy(d->owner, t->owner, sizeof d->owner);
    memcpy(d->psk[0], t->psk, sizeof t->psk);
    d->n_psks = 1;
    d->hosts.n = t->n_hosts;
    memcpy(d->hosts.host, t->hosts, sizeof d->hosts.host);
    d->plain = t->n_hosts > 0 && strncmp(t->hosts[0], mark, sizeof mark - 1) == 0;
}

/* What an earlier membership left here. */
static atom_status take_earlier(gsp_door *d, const gsp_ticket *t)
{
    uint8_t psk[GSP_PSK_BYTES];
    if (!gsp_dir_has(d->directory, "keys"))
        return ATOM_OK;
    ATOM_TRY(gsp_door_load_keys(d));
    if (memcmp(d->pool, t->pool, sizeof d->pool) != 0)
        return atom_fail(ATOM_E_USAGE, "%s belongs to another pool; use another directory",
                         d->directory);
    if (gsp_dir_has(d->directory, "manifest.json"))
        ATOM_TRY(gsp_door_load_manifest(d));
    memcpy(psk, d->psk[0], sizeof psk);
    bool keep = d->has_manifest && d->manifest->number >= t->manifest && gsp_door_knows_key(d);
    take(d, t);
    if (keep)
        memcpy(d->psk[0], psk, sizeof psk);
    sodium_memzero(psk, sizeof psk);
    return ATOM_OK;
}

static bool is_owners(const gsp_door *d, const uint8_t *credential, uint32_t bytes)
{
    const uint8_t *issuer = gsp_credential_issuer(credential, bytes);
    return issuer && memcmp(issuer, d->owner, sizeof d->owner) == 0;
}

bool gsp_door_leans_on_delegate(const gsp_door *d)
{
    uint8_t shown[GSP_CREDENTIAL_BYTES_MAX];
    const uint32_t bytes = gsp_door_shows(d, (uint64_t)atom_wall_seconds(), shown);
    return !d->is_guest && gsp_credential_issuer(shown, bytes) && !is_owners(d, shown, bytes);
}

atom_status gsp_door_take_ticket(gsp_door *d, const gsp_ticket *t)
{
    take(d, t);
    ATOM_TRY(take_earlier(d, t));
    if (gsp_door_is_owner(d))
        return atom_fail(ATOM_E_USAGE, "this is the directory of the pool's owner; to continue "
                                       "there, run atom pool join without a ticket");
    ATOM_TRY(gsp_door_load_delegations(d));
    const bool admitted = gsp_door_load_admission(d);
    /* What a delegate signed may be void by a manifest that has not come here yet. */
    const bool doubtful =
        gsp_door_leans_on_delegate(d) && t->has_invite && t->manifest > gsp_door_number(d);
    d->awaited = 0;
    d->ticket_number = t->manifest;
    d->spare_bytes = doubtful ? d->credential_bytes : 0;
    memcpy(d->spare, d->credential, d->spare_bytes);
    if (!admitted || doubtful) {
        d->credential_bytes = (uint32_t)gsp_ticket_credential(t, d->credential);
        d->is_guest = true;
        if (d->credential_bytes == 0)
            return atom_fail(ATOM_E_USAGE,
                             "the ticket has no invite; ask the pool's owner for a ticket with "
                             "one");
    }
    return gsp_door_save_keys(d);
}

static void swap_spare(gsp_door *d)
{
    uint8_t shown[GSP_CREDENTIAL_BYTES_MAX];
    const uint32_t bytes = d->credential_bytes;
    memcpy(shown, d->credential, bytes);
    memcpy(d->credential, d->spare, d->spare_bytes);
    d->credential_bytes = d->spare_bytes;
    memcpy(d->spare, shown, bytes);
    d->spare_bytes = bytes;
    d->is_guest = !d->is_guest;
}

bool gsp_door_show_earlier(gsp_door *d)
{
    if (!d->is_guest || !d->spare_bytes)
        return false;
    swap_spare(d);
    d->awaited = d->ticket_number;
    return true;
}

void gsp_door_show_invite(gsp_door *d)
{
    swap_spare(d);
    d->spare_bytes = d->awaited = 0;
}

/* ---- our admission ---- */

bool gsp_door_wants_admission(const gsp_door *d, uint64_t now_s)
{
    uint64_t from, until;
    if (!gsp_admission_span(d->credential, d->credential_bytes, &from,
                            &until)) /* a delegate that lost it */
        return !d->is_guest && !gsp_door_is_owner(d) && !d->plain;
    if (gsp_door_voids(d, d->credential, d->credential_bytes))
        return true;
    const bool owners = is_owners(d, d->credential, d->credential_bytes);
    return now_s > from + (until - from) / 2 || (!owners && now_s > from + DAY_S);
}

bool gsp_door_lacks_admission(const gsp_door *d, uint64_t now_s, char *text, size_t bytes)
{
    const uint64_t before_s = 10 * 24 * 3600;
    uint8_t shown[GSP_CREDENTIAL_BYTES_MAX];
    const uint32_t shown_bytes = gsp_door_shows(d, now_s, shown);
    const uint64_t until = gsp_credential_ends(shown, shown_bytes);
    const bool delegate = shown_bytes == GSP_DELEGATION_BYTES;
    char when[24] = "";
    struct tm t;
    if (!until || now_s + before_s < until)
        return false;
    const time_t at = (time_t)until;
    if (gmtime_r(&at, &t))
        (void)strftime(when, sizeof when, "%Y-%m-%d %H:%M", &t);
    if (delegate)
        snprintf(
            text, bytes,
            "this host's delegation ends on %s (UTC). After that it admits nobody and renews no "
            "admissions. Only the pool's owner can renew it (atom pool delegate): ask for that",
            when);
    else
        snprintf(
            text, bytes,
            "this host's admission to the pool %s on %s (UTC), and without one the others let "
            "nobody in. Only the pool's owner and its delegates can renew it, which happens by "
            "itself while one of them takes part: ask for that",
            now_s > until ? "ended" : "ends", when);
    return true;
}

bool gsp_door_is_owners_word(const gsp_door *d, const gsp_word *m, uint64_t now_s)
{
    return gsp_refusal_verify(d->owner, d->pool, d->identity.public_key, d->credential,
                              d->credential_bytes, (gsp_refusal)m->refusal, now_s, m->credential,
                              m->credential_bytes);
}

/*
 * Than the admission that we have. The owner's counts more, because a ban makes those of a delegate void;
 * in its last week a delegate's is better than none. Everybody that saw our contact has our admissions: one
 * that we have had, or an earlier one, is no news and takes no time from us.
 */
static bool is_better(const gsp_door *d, const uint8_t *credential, uint32_t bytes, uint64_t now_s)
{
    const uint64_t week_s = 7 * DAY_S, until = gsp_credential_ends(credential, bytes),
                   ours_until = gsp_credential_ends(d->credential, d->credential_bytes);
    gsp_role role;
    if (d->is_guest || gsp_door_voids(d, d->credential, d->credential_bytes) ||
        gsp_credential_check(d->credential, d->credential_bytes, d->pool, d->owner,
                             d->identity.public_key, now_s, &role) != GSP_WELCOME)
        return true;
    const bool owners = is_owners(d, credential, bytes);
    if (owners == is_owners(d, d->credential, d->credential_bytes))
        return until > ours_until;
    return owners ? until > ours_until || until > now_s + week_s
                  : until > ours_until && ours_until < now_s + week_s;
}

bool gsp_door_take_admission(gsp_door *d, const void *credential, uint32_t bytes, uint64_t now_s)
{
    gsp_role role = GSP_GUEST;
    if (gsp_credential_check(credential, bytes, d->pool, d->owner, d->identity.public_key, now_s,
                             &role) != GSP_WELCOME ||
        role != GSP_MEMBER || gsp_door_voids(d, credential, bytes) ||
        !is_better(d, credential, bytes, now_s))
        return false;
    memcpy(d->credential, credential, bytes);
    d->credential_bytes = bytes;
    d->is_guest = false;
    if (gsp_door_save_admission(d) != ATOM_OK)
        atom_log(ATOM_LOG_WARN, "%s", atom_fail_message());
    return true;
}

/* ---- the next manifest ---- */

/* The newest key in front; the one before is still good for a while. */
static void take_key(gsp_door *d, const uint8_t *psk)
{
    if (memcmp(d->psk[0], psk, GSP_PSK_BYTES) == 0)
        return;
    memcpy(d->psk[1], d->psk[0], GSP_PSK_BYTES);
    memcpy(d->psk[0], psk, GSP_PSK_BYTES);
    d->n_psks = 2;
    if (!gsp_door_is_owner(d))
        d->rotated_s = (uint64_t)atom_wall_seconds();
}

atom_status gsp_door_adopt(gsp_door *d, const gsp_manifest *next, const char *text,
                           const uint8_t *psk)
{
    gsp_hash hash;
    const char *bad = d->has_manifest ? gsp_manifest_follows(d->manifest, next) : NULL;
    if (bad)
        return atom_fail(ATOM_E_FORMAT, "a manifest was refused: %s", bad);
    gsp_manifest_key_hash(psk, &hash);
    bool key_fits = gsp_hash_equal(&hash, &next->key);
    uint8_t shown[GSP_CREDENTIAL_BYTES_MAX];
    const uint8_t *issuer =
        gsp_credential_issuer(shown, gsp_door_shows(d, (uint64_t)atom_wall_seconds(), shown));
    bool shut_out = gsp_manifest_bans(next, d->identity.public_key) ||
                    (issuer && gsp_manifest_bans(next, issuer));
    if (!key_fits && !shut_out)
        return atom_fail(ATOM_E_FORMAT, "a manifest came without its key");
    char *copy = atom_strdup(text);
    if (!copy)
        return atom_fail_memory("a manifest", strlen(text));
    pthread_mutex_lock(&d->lock);
    *d->manifest = *next;
    d->has_manifest = true;
    pthread_mutex_unlock(&d->lock);
    atom_free(d->manifest_text);
    d->manifest_text = copy;
    if (key_fits)
        take_key(d, psk);
    ATOM_TRY(gsp_door_save_keys(d));
    return gsp_door_save_manifest(d);
}

bool gsp_door_knows_key(const gsp_door *d)
{
    gsp_hash hash;
    gsp_manifest_key_hash(d->psk[0], &hash);
    return d->has_manifest && gsp_hash_equal(&hash, &d->manifest->key);
}

bool gsp_door_bans_us(const gsp_door *d)
{
    return d->has_manifest && gsp_manifest_bans(d->manifest, d->identity.public_key);
}

bool gsp_door_forget_old_key(gsp_door *d, uint64_t now_s)
{
    if (d->n_psks < 2 || now_s < d->rotated_s + OLD_KEY_SECONDS)
        return false;
    sodium_memzero(d->psk[1], GSP_PSK_BYTES);
    d->n_psks = 1;
    if (gsp_door_save_keys(d) != ATOM_OK)
        atom_log(ATOM_LOG_WARN, "%s", atom_fail_message());
    return true;
}
