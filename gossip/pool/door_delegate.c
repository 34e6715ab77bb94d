/*
 * Owns delegations: who may admit newcomers and renew admissions while the pool's owner is away. Its one
 * idea: one file holds those that matter here, at the owner those it gave, at a delegate its own. It
 * refuses what the owner did not sign, and a delegation that a banned key still holds.
 */
#include "atom/base/clock.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"
#include "gossip/pool/dir.h"
#include "gossip/pool/door.h"

static const char FILE_NAME[] = "delegations";
/* Before its end a delegate goes back to its admission, so that no link ends for it. */
static const uint64_t DAY_S = 24 * 3600, BEFORE_END_S = 600;

static bool holds(const gsp_delegation *g, uint64_t now_s)
{
    return now_s + BEFORE_END_S < g->expires_s;
}

/* The owner signed it for this pool, and its time has begun and not ended. */
static bool is_good(const gsp_door *d, const gsp_delegation *g, uint64_t now_s)
{
    uint8_t bytes[GSP_DELEGATION_BYTES];
    gsp_role role = GSP_GUEST;
    gsp_delegation_encode(g, bytes);
    return gsp_credential_check(bytes, sizeof bytes, d->pool, d->owner, g->delegate, now_s,
                                &role) == GSP_WELCOME &&
           role == GSP_DELEGATE && holds(g, now_s);
}

static bool matters_here(const gsp_door *d, const gsp_delegation *g)
{
    return gsp_door_is_owner(d) ||
           memcmp(g->delegate, d->identity.public_key, sizeof g->delegate) == 0;
}

const gsp_delegation *gsp_door_delegation(const gsp_door *d, const uint8_t *key, uint64_t now_s)
{
    for (uint32_t i = 0; i < d->n_delegations; i++)
        if (memcmp(d->delegation[i].delegate, key, GSP_PUBLIC_BYTES) == 0 &&
            holds(&d->delegation[i], now_s))
            return &d->delegation[i];
    return NULL;
}

uint32_t gsp_door_read_delegations(gsp_door *d, gsp_delegation out[GSP_DELEGATES_MAX])
{
    pthread_mutex_lock(&d->lock);
    uint32_t n = d->n_delegations;
    memcpy(out, d->delegation, n * sizeof *out);
    pthread_mutex_unlock(&d->lock);
    return n;
}

/* ---- on disk ---- */

static atom_status save(const gsp_door *d)
{
    uint8_t bytes[GSP_DELEGATES_MAX][GSP_DELEGATION_BYTES];
    for (uint32_t i = 0; i < d->n_delegations; i++)
        gsp_delegation_encode(&d->delegation[i], bytes[i]);
    return gsp_dir_save(d->directory, FILE_NAME, bytes, d->n_delegations * sizeof bytes[0]);
}

atom_status gsp_door_load_delegations(gsp_door *d)
{
    uint64_t bytes = 0, now_s = (uint64_t)atom_wall_seconds();
    char *data = NULL;
    gsp_delegation g;
    atom_status st;
    d->n_delegations = 0;
    if (!gsp_dir_has(d->directory, FILE_NAME))
        return ATOM_OK;
    ATOM_TRY_CLEAN(gsp_dir_read(d->directory, FILE_NAME, &data, &bytes));
    bool right = bytes % GSP_DELEGATION_BYTES == 0 && bytes <= sizeof d->delegation;
    for (uint64_t at = 0; right && at < bytes; at += GSP_DELEGATION_BYTES) {
        right = gsp_delegation_decode(data + at, GSP_DELEGATION_BYTES, &g);
        /* By a clock that is behind at the start it may not have begun yet: that is no reason to lose it. */
        if (right && matters_here(d, &g) && holds(&g, now_s) && is_good(d, &g, g.issued_s) &&
            !(d->has_manifest && gsp_manifest_bans(d->manifest, g.delegate)))
            d->delegation[d->n_delegations++] = g;
    }
    if (!right)
        ATOM_TRY_CLEAN(atom_fail(
            ATOM_E_FORMAT,
            "%s/%s is damaged. Remove it; the owner then names its delegates again (atom pool "
            "delegate), and a delegate hears from the owner again by itself",
            d->directory, FILE_NAME));
cleanup:
    atom_free(data);
    return st;
}

/* ---- changes ---- */

static void drop(gsp_door *d, uint32_t at)
{
    d->delegation[at] = d->delegation[--d->n_delegations];
}

/* In place of an earlier one for this key, and of those that have ended. */
static void put(gsp_door *d, const gsp_delegation *given, uint64_t now_s)
{
    pthread_mutex_lock(&d->lock);
    for (uint32_t i = d->n_delegations; i-- > 0;)
        if (!holds(&d->delegation[i], now_s) ||
            memcmp(d->delegation[i].delegate, given->delegate, sizeof given->delegate) == 0)
            drop(d, i);
    bool room = d->n_delegations < GSP_DELEGATES_MAX;
    if (room)
        d->delegation[d->n_delegations++] = *given;
    pthread_mutex_unlock(&d->lock);
}

static uint32_t others(const gsp_door *d, const uint8_t *key, uint64_t now_s)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < d->n_delegations; i++)
        n += holds(&d->delegation[i], now_s) &&
             memcmp(d->delegation[i].delegate, key, GSP_PUBLIC_BYTES) != 0;
    return n;
}

atom_status gsp_door_delegate(gsp_door *d, const uint8_t *key, double days, gsp_delegation *out)
{
    uint64_t now_s = (uint64_t)atom_wall_seconds();
    if (!gsp_door_is_owner(d))
        return atom_fail(ATOM_E_USAGE, "only the pool's owner can name delegates");
    if (d->plain)
        return atom_fail(ATOM_E_USAGE, "a pool without encryption (transport: plain) lets anybody "
                                       "in, so it needs no delegates");
    if (memcmp(key, d->owner, GSP_PUBLIC_BYTES) == 0)
        return atom_fail(ATOM_E_USAGE, "the pool's owner needs no delegation");
    if (gsp_manifest_bans(d->manifest, key))
        return atom_fail(ATOM_E_USAGE, "this key is banned from the pool");
    if (!(days >= 1) || days > 3650)
        return atom_fail(ATOM_E_USAGE, "a delegation is for 1 to 3650 days");
    if (others(d, key, now_s) >= GSP_DELEGATES_MAX)
        return atom_fail(ATOM_E_USAGE, "a pool has at most %d delegates at a time",
                         GSP_DELEGATES_MAX);
    const gsp_delegation *now = gsp_door_delegation(d, key, now_s);
    if (now && now->expires_s > now_s + (uint64_t)(days * (double)DAY_S))
        return atom_fail(ATOM_E_USAGE,
                         "it is a delegate for longer already; a delegation cannot be "
                         "shortened, but a ban of the member takes it back");
    gsp_delegation before[GSP_DELEGATES_MAX];
    const uint32_t n_before = gsp_door_read_delegations(d, before);
    gsp_delegation given = {.issued_s = now_s,
                            .expires_s = now_s + (uint64_t)(days * (double)DAY_S)};
    memcpy(given.pool, d->pool, sizeof given.pool);
    memcpy(given.delegate, key, sizeof given.delegate);
    gsp_delegation_sign(&given, &d->identity);
    put(d, &given, now_s);
    *out = given;
    atom_status st = save(d);
    if (st != ATOM_OK) { /* what is not kept is not told */
        pthread_mutex_lock(&d->lock);
        memcpy(d->delegation, before, n_before * sizeof *before);
        d->n_delegations = n_before;
        pthread_mutex_unlock(&d->lock);
    }
    return st;
}

bool gsp_door_take_delegation(gsp_door *d, const void *data, uint32_t bytes, uint64_t now_s)
{
    gsp_delegation given;
    if (!gsp_delegation_decode(data, bytes, &given) || gsp_door_is_owner(d) ||
        !matters_here(d, &given) || !is_good(d, &given, now_s))
        return false;
    const gsp_delegation *mine = gsp_door_delegation(d, d->identity.public_key, now_s);
    if (mine && mine->expires_s >= given.expires_s)
        return false; /* it was told before */
    put(d, &given, now_s);
    if (save(d) != ATOM_OK)
        atom_log(ATOM_LOG_WARN, "%s", atom_fail_message());
    return true;
}

bool gsp_door_end_delegations(gsp_door *d)
{
    bool found = false;
    pthread_mutex_lock(&d->lock);
    for (uint32_t i = d->n_delegations; i-- > 0;)
        if (gsp_manifest_bans(d->manifest, d->delegation[i].delegate)) {
            drop(d, i);
            found = true;
        }
    pthread_mutex_unlock(&d->lock);
    if (found && save(d) != ATOM_OK)
        atom_log(ATOM_LOG_WARN, "%s", atom_fail_message());
    return found;
}

/* ---- what follows from them ---- */

bool gsp_door_admits(const gsp_door *d, uint64_t now_s)
{
    return d->ledger &&
           (gsp_door_is_owner(d) || (gsp_door_delegation(d, d->identity.public_key, now_s) &&
                                     !gsp_manifest_bans(d->manifest, d->identity.public_key)));
}

uint32_t gsp_door_shows(const gsp_door *d, uint64_t now_s, uint8_t out[GSP_CREDENTIAL_BYTES_MAX])
{
    const gsp_delegation *mine =
        gsp_door_is_owner(d) ? NULL : gsp_door_delegation(d, d->identity.public_key, now_s);
    if (mine) {
        gsp_delegation_encode(mine, out);
        return GSP_DELEGATION_BYTES;
    }
    memcpy(out, d->credential, d->credential_bytes);
    return d->credential_bytes;
}

bool gsp_door_voids(const gsp_door *d, const uint8_t *credential, uint32_t bytes)
{
    const uint8_t *issuer = gsp_credential_issuer(credential, bytes);
    return issuer && d->has_manifest && gsp_manifest_bans(d->manifest, issuer);
}
