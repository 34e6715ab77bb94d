/*
 * Owns what the pool's owner does: turn invites into admissions, make tickets, which its delegates do
 * too; ban, rotate the pre-shared key, which they cannot. Its one idea: each change is the next signed
 * manifest, which members pass on; nobody has to be online when it is made. It refuses invites from
 * before the last rotation.
 */
#include "atom/base/clock.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"
#include "gossip/pool/dir.h"
#include "gossip/pool/door.h"

#include <sodium.h>

enum { ADMITTED_DAYS = 30 };
static const uint64_t DAY_S = 24 * 3600;

/* ---- tickets ---- */

/* Text and file of a ticket whose other fields are there; wipes it. */
static atom_status keep_ticket(gsp_door *d, gsp_ticket *t, const gsp_hosts *hosts)
{
    char text[GSP_TICKET_TEXT_BYTES + 1];
    atom_status st;
    t->n_hosts = hosts->n;
    memcpy(t->hosts, hosts->host, sizeof t->hosts);
    ATOM_TRY_CLEAN(gsp_ticket_text(t, text));
    if (strcmp(text, d->ticket) == 0)
        goto cleanup;
    pthread_mutex_lock(&d->lock);
    memcpy(d->ticket, text, sizeof d->ticket);
    pthread_mutex_unlock(&d->lock);
    strcat(text, "\n");
    st = gsp_dir_save(d->directory, "ticket", text, strlen(text));
cleanup:
    sodium_memzero(t, sizeof *t);
    sodium_memzero(text, sizeof text);
    return st;
}

atom_status gsp_door_new_ticket(gsp_door *d, const gsp_hosts *hosts, uint32_t count, double days)
{
    uint64_t now = (uint64_t)atom_wall_seconds();
    gsp_ticket t = {.manifest = d->manifest->number, .has_invite = true};
    const gsp_delegation *mine = gsp_door_delegation(d, d->identity.public_key, now);
    if (!gsp_door_admits(d, now))
        return atom_fail(ATOM_E_USAGE, "only the pool's owner and its delegates can make tickets");
    if (count == 0 || count > GSP_INVITE_COUNT_MAX || !(days > 0) || days > 3650)
        return atom_fail(ATOM_E_USAGE, "an invite is for 1 to %d hosts and at most 3650 days",
                         GSP_INVITE_COUNT_MAX);
    memcpy(t.owner, d->owner, sizeof t.owner);
    memcpy(t.pool, d->pool, sizeof t.pool);
    memcpy(t.psk, d->psk[0], sizeof t.psk);
    if (now < d->rotated_s)
        now = d->rotated_s;
    t.invite = (gsp_invite){
        .count = count, .issued_s = now, .expires_s = now + (uint64_t)(days * (double)DAY_S) + 1};
    randombytes_buf(t.invite.id, sizeof t.invite.id);
    memcpy(t.invite.pool, d->pool, sizeof t.invite.pool);
    gsp_invite_sign(&t.invite, &d->identity);
    if (!gsp_door_is_owner(d)) {
        t.has_delegation = true;
        t.delegation = *mine;
    }
    return keep_ticket(d, &t, hosts);
}

atom_status gsp_door_refresh_ticket(gsp_door *d, const gsp_hosts *hosts)
{
    gsp_ticket t = {0};
    bool good = d->ticket[0] && gsp_ticket_parse(d->ticket, &t) == ATOM_OK;
    /* A delegate learns of a new key from others, and its delegation may have been renewed. */
    if (good && !gsp_door_is_owner(d)) {
        const gsp_delegation *mine =
            gsp_door_delegation(d, d->identity.public_key, (uint64_t)atom_wall_seconds());
        good = mine && t.delegation.expires_s == mine->expires_s &&
               memcmp(t.psk, d->psk[0], sizeof t.psk) == 0;
    }
    if (!good)
        return gsp_door_new_ticket(d, hosts, GSP_INVITE_COUNT, GSP_INVITE_DAYS);
    return keep_ticket(d, &t, hosts);
}

void gsp_door_forget_ticket(gsp_door *d)
{
    pthread_mutex_lock(&d->lock);
    sodium_memzero(d->ticket, sizeof d->ticket);
    pthread_mutex_unlock(&d->lock);
}

void gsp_door_read_ticket(gsp_door *d, char out[GSP_TICKET_TEXT_BYTES])
{
    pthread_mutex_lock(&d->lock);
    memcpy(out, d->ticket, sizeof d->ticket);
    pthread_mutex_unlock(&d->lock);
}

/* ---- admissions ---- */

/* The owner's own book has it. */
static bool knows(const gsp_door *d, const uint8_t *key)
{
    uint8_t invite[GSP_INVITE_ID_BYTES];
    return gsp_door_is_owner(d) && d->ledger && gsp_ledger_invite_of(d->ledger, key, invite);
}

static uint8_t judge(const gsp_door *d, const gsp_word *ask, uint64_t now, gsp_role *role,
                     gsp_invite *invite)
{
    gsp_refusal refusal = gsp_credential_check(ask->credential, ask->credential_bytes, d->pool,
                                               d->owner, ask->key, now, role);
    if (gsp_manifest_bans(d->manifest, ask->key))
        return GSP_REFUSED_BANNED;
    if (refusal == GSP_WELCOME && gsp_door_voids(d, ask->credential, ask->credential_bytes) &&
        !(*role == GSP_MEMBER && knows(d, ask->key)))
        refusal = GSP_REFUSED_CREDENTIAL;
    if (refusal != GSP_WELCOME)
        return (uint8_t)refusal;
    if (*role != GSP_GUEST)
        return GSP_WELCOME;
    if (!gsp_credential_invite(ask->credential, ask->credential_bytes, invite))
        return GSP_REFUSED_CREDENTIAL;
    /* Clocks differ, and a delegate hears of a new key later than it was made, perhaps by days, while tickets
     * are made with it at once. That an old ticket has the old key keeps its guests out at the gate. */
    const bool ours = memcmp(invite->issuer, d->identity.public_key, sizeof invite->issuer) == 0;
    if (!ours && !gsp_door_is_owner(d))
        return GSP_WELCOME;
    const uint64_t apart_s = ours ? 0 : 2 * GSP_SKEW_SECONDS;
    return invite->issued_s + apart_s < d->rotated_s ? GSP_REFUSED_EXPIRED : GSP_WELCOME;
}

/* Whoever passes it on can neither make nor change it. A delegate's refusal is one of many. */
static void sign_refusal(const gsp_door *d, const gsp_word *ask, uint64_t now, gsp_word *answer)
{
    if (!gsp_door_is_owner(d))
        return;
    gsp_refusal_sign(&d->identity, d->pool, ask->key, ask->credential, ask->credential_bytes,
                     (gsp_refusal)answer->refusal, now, answer->credential);
    answer->credential_bytes = GSP_REFUSAL_BYTES;
}

/* An admission as it travels: with our delegation where we are not the owner. */
static void write_admission(const gsp_door *d, const gsp_admission *a, const gsp_delegation *mine,
                            gsp_word *answer)
{
    gsp_admission_encode(a, answer->credential);
    answer->credential_bytes = GSP_ADMISSION_BYTES;
    if (gsp_door_is_owner(d))
        return;
    gsp_delegation_encode(mine, answer->credential + GSP_ADMISSION_BYTES);
    answer->credential_bytes += GSP_DELEGATION_BYTES;
}

static void renew(const gsp_door *d, const uint8_t *key, uint64_t now, uint64_t until,
                  gsp_admission *out)
{
    *out = (gsp_admission){.manifest = d->manifest->number, .issued_s = now, .expires_s = until};
    memcpy(out->pool, d->pool, sizeof out->pool);
    memcpy(out->member, key, sizeof out->member);
    gsp_admission_sign(out, &d->identity);
}

bool gsp_door_readmit(gsp_door *d, const uint8_t *key, gsp_word *answer)
{
    uint64_t now = (uint64_t)atom_wall_seconds();
    gsp_admission a;
    if (!knows(d, key) || gsp_manifest_bans(d->manifest, key))
        return false;
    *answer = (gsp_word){.kind = GSP_WORD_ADMISSION, .refusal = GSP_WELCOME};
    memcpy(answer->key, key, sizeof answer->key);
    renew(d, key, now, now + ADMITTED_DAYS * DAY_S, &a);
    write_admission(d, &a, NULL, answer);
    return true;
}

bool gsp_door_admit(gsp_door *d, const gsp_word *ask, gsp_word *answer)
{
    gsp_role role = GSP_GUEST;
    gsp_invite invite;
    gsp_admission a = {0};
    uint64_t now = (uint64_t)atom_wall_seconds(), until = now + ADMITTED_DAYS * DAY_S;
    const gsp_delegation *mine = gsp_door_delegation(d, d->identity.public_key, now);
    if (mine && until > mine->expires_s)
        until = mine->expires_s;
    *answer = (gsp_word){.kind = GSP_WORD_ADMISSION};
    memcpy(answer->key, ask->key, sizeof answer->key);
    if (!mine && !gsp_door_is_owner(d)) {
        answer->refusal = GSP_WORD_AWAY; /* our delegation has just ended */
        return false;
    }
    answer->refusal = judge(d, ask, now, &role, &invite);
    if (answer->refusal != GSP_WELCOME) {
        sign_refusal(d, ask, now, answer);
        return false;
    }
    if (role == GSP_GUEST) {
        atom_status st = gsp_ledger_admit(d->ledger, &d->identity, &invite, ask->key,
                                          d->manifest->number, now, until, &a);
        if (st != ATOM_OK) {
            atom_log(ATOM_LOG_WARN, "%s", atom_fail_message());
            answer->refusal = st == ATOM_E_USAGE ? GSP_REFUSED_EXPIRED : GSP_WORD_AWAY;
            if (answer->refusal != GSP_WORD_AWAY)
                sign_refusal(d, ask, now, answer);
            return false;
        }
    } else {
        renew(d, ask->key, now, until, &a);
    }
    write_admission(d, &a, mine, answer);
    return role == GSP_GUEST;
}

/* ---- the next manifest ---- */

static atom_status add_ban(const gsp_door *d, gsp_manifest *next, const uint8_t *key)
{
    if (memcmp(key, d->owner, sizeof d->owner) == 0)
        return atom_fail(ATOM_E_USAGE, "the pool's owner cannot ban itself");
    if (gsp_manifest_bans(next, key))
        return ATOM_OK;
    if (next->n_banned == GSP_MANIFEST_BANNED_MAX)
        return atom_fail(ATOM_E_USAGE, "a pool can ban at most %d keys", GSP_MANIFEST_BANNED_MAX);
    memcpy(next->banned[next->n_banned++], key, GSP_PUBLIC_BYTES);
    return ATOM_OK;
}

static atom_status next_manifest(gsp_door *d, const uint8_t ban[][GSP_PUBLIC_BYTES], uint32_t n)
{
    uint8_t psk[GSP_PSK_BYTES];
    char *text = NULL;
    uint64_t now = (uint64_t)atom_wall_seconds();
    gsp_manifest *next = atom_alloc(1, sizeof *next);
    atom_status st;
    if (!next)
        return atom_fail_memory("a manifest", sizeof *next);
    *next = *d->manifest;
    next->number++;
    if (!gsp_door_is_owner(d))
        ATOM_TRY_CLEAN(atom_fail(ATOM_E_USAGE, "only the pool's owner can do this"));
    if (d->plain)
        ATOM_TRY_CLEAN(atom_fail(ATOM_E_USAGE,
                                 "a pool without encryption (transport: plain) cannot keep "
                                 "anybody out, so nothing can be banned or rotated"));
    for (uint32_t i = 0; i < n; i++)
        ATOM_TRY_CLEAN(add_ban(d, next, ban[i]));
    randombytes_buf(psk, sizeof psk);
    gsp_manifest_key_hash(psk, &next->key);
    gsp_manifest_sign(next, &d->identity);
    ATOM_TRY_CLEAN(gsp_manifest_text(next, &text));
    d->rotated_s = now > d->rotated_s ? now : d->rotated_s + 1;
    ATOM_TRY_CLEAN(gsp_door_adopt(d, next, text, psk));
cleanup:
    sodium_memzero(psk, sizeof psk);
    atom_free(text);
    atom_free(next);
    return st;
}

atom_status gsp_door_rotate(gsp_door *d, const uint8_t *ban)
{
    return next_manifest(d, (const uint8_t(*)[GSP_PUBLIC_BYTES])ban, ban ? 1 : 0);
}

static bool all_banned(const gsp_door *d, uint8_t ban[][GSP_PUBLIC_BYTES], uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (!gsp_manifest_bans(d->manifest, ban[i]))
            return false;
    return true;
}

atom_status gsp_door_ban_key(gsp_door *d, const uint8_t *key, bool with_others, gsp_door_ban *out)
{
    uint8_t ban[1 + GSP_MANIFEST_BANNED_MAX][GSP_PUBLIC_BYTES];
    uint32_t n = 1;
    gsp_door_ban found = {0};
    memcpy(ban[0], key, sizeof ban[0]);
    found.has_invite = d->ledger && gsp_ledger_invite_of(d->ledger, key, found.invite);
    if (with_others && !found.has_invite)
        return atom_fail(ATOM_E_USAGE, "it is not known which invite this key came with, so ban "
                                       "the keys one by one");
    if (found.has_invite) {
        uint32_t all =
            gsp_ledger_members(d->ledger, found.invite, ban + 1, GSP_MANIFEST_BANNED_MAX);
        found.n_others = all - 1;
        if (with_others && all > GSP_MANIFEST_BANNED_MAX)
            return atom_fail(ATOM_E_USAGE,
                             "%u keys came with this invite, but a pool can ban at most %d", all,
                             GSP_MANIFEST_BANNED_MAX);
        n += with_others ? all : 0; /* the key itself is among them; nobody is banned twice */
    }
    found.already = gsp_door_is_owner(d) && all_banned(d, ban, n);
    if (!found.already)
        ATOM_TRY(next_manifest(d, (const uint8_t(*)[GSP_PUBLIC_BYTES])ban, n));
    found.delegate = gsp_door_end_delegations(d);
    if (found.has_invite)
        ATOM_TRY(gsp_ledger_end_invite(d->ledger, found.invite));
    *out = found;
    return ATOM_OK;
}
