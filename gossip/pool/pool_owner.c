/*
 * Owns what only the pool's owner may do: turn invites into admissions, ban, rotate the pre-shared
 * key, make tickets. Its one idea: each change is the next signed manifest, which members pass on;
 * nobody has to be online when it is made. It refuses invites from before the last rotation.
 */
#include "gossip/pool/pool_inner.h"

#include "atom/base/clock.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"

#include <sodium.h>
#include <string.h>

static const uint64_t DAY_S = 24 * 3600;

static atom_status fill_hosts(const gsp_pool *p, gsp_ticket *t)
{
    const char *mark = p->plain ? "plain+" : "";
    gsp_address own[GSP_TICKET_HOSTS_MAX];
    char text[GSP_ADDRESS_TEXT_BYTES];
    t->n_hosts = p->host.n_announce;
    for (uint32_t i = 0; i < t->n_hosts; i++) {
        int n = snprintf(t->hosts[i], sizeof t->hosts[i], "%s%s", mark, p->host.announce[i]);
        if (n < 0 || n >= (int)sizeof t->hosts[i])
            return atom_fail(ATOM_E_USAGE, "'%s' is too long for a ticket", p->host.announce[i]);
    }
    if (t->n_hosts)
        return ATOM_OK;
    t->n_hosts = life_own_addresses(p, own, GSP_TICKET_HOSTS_MAX);
    for (uint32_t i = 0; i < t->n_hosts; i++)
        snprintf(t->hosts[i], sizeof t->hosts[i], "%s%s", mark, gsp_address_text(&own[i], text));
    return ATOM_OK;
}

atom_status life_new_ticket(gsp_pool *p, uint32_t count, double days)
{
    char text[GSP_TICKET_TEXT_BYTES + 1];
    uint64_t now = (uint64_t)atom_wall_seconds();
    gsp_ticket t = {.manifest = p->manifest->number, .has_invite = true};
    atom_status st;
    if (!gsp_pool_is_owner(p))
        return atom_fail(ATOM_E_USAGE, "only the pool's owner makes tickets");
    if (count == 0 || count > GSP_INVITE_COUNT_MAX || !(days > 0) || days > 3650)
        return atom_fail(ATOM_E_USAGE, "an invite is for 1 to %d hosts and at most 3650 days",
                         GSP_INVITE_COUNT_MAX);
    memcpy(t.owner, p->owner, sizeof t.owner);
    memcpy(t.pool, p->pool, sizeof t.pool);
    memcpy(t.psk, p->psk[0], sizeof t.psk);
    if (now < p->rotated_s)
        now = p->rotated_s;
    t.invite = (gsp_invite){
        .count = count, .issued_s = now, .expires_s = now + (uint64_t)(days * (double)DAY_S) + 1};
    randombytes_buf(t.invite.id, sizeof t.invite.id);
    memcpy(t.invite.pool, p->pool, sizeof t.invite.pool);
    gsp_invite_sign(&t.invite, &p->identity);
    ATOM_TRY_CLEAN(fill_hosts(p, &t));
    ATOM_TRY_CLEAN(gsp_ticket_text(&t, text));
    pthread_mutex_lock(&p->lock);
    memcpy(p->ticket, text, sizeof p->ticket);
    pthread_mutex_unlock(&p->lock);
    size_t n = strlen(text);
    text[n] = '\n';
    st = gsp_dir_save(p->directory, "ticket", text, n + 1);
cleanup:
    sodium_memzero(&t, sizeof t);
    sodium_memzero(text, sizeof text);
    return st;
}

/* After a restart this host may have other addresses: the same invite, other hosts. */
atom_status life_refresh_ticket(gsp_pool *p)
{
    char text[GSP_TICKET_TEXT_BYTES + 1];
    gsp_ticket t = {0};
    atom_status st = ATOM_OK;
    if (!p->ticket[0] || gsp_ticket_parse(p->ticket, &t) != ATOM_OK)
        return life_new_ticket(p, POOL_INVITE_COUNT, POOL_INVITED_DAYS);
    memset(t.hosts, 0, sizeof t.hosts);
    ATOM_TRY_CLEAN(fill_hosts(p, &t));
    ATOM_TRY_CLEAN(gsp_ticket_text(&t, text));
    if (strcmp(text, p->ticket) == 0)
        goto cleanup;
    memcpy(p->ticket, text, sizeof p->ticket);
    strcat(text, "\n");
    st = gsp_dir_save(p->directory, "ticket", text, strlen(text));
cleanup:
    sodium_memzero(&t, sizeof t);
    sodium_memzero(text, sizeof text);
    return st;
}

/* ---- admissions ---- */

static uint8_t judge(gsp_pool *p, const gsp_word *ask, uint64_t now, gsp_role *role,
                     gsp_invite *invite)
{
    gsp_refusal refusal = gsp_credential_check(ask->credential, ask->credential_bytes, p->pool,
                                               p->owner, ask->key, now, role);
    if (gsp_manifest_bans(p->manifest, ask->key))
        return GSP_REFUSED_BANNED;
    if (refusal != GSP_WELCOME)
        return (uint8_t)refusal;
    if (*role != GSP_GUEST)
        return GSP_WELCOME;
    if (!gsp_credential_invite(ask->credential, ask->credential_bytes, invite))
        return GSP_REFUSED_CREDENTIAL;
    return invite->issued_s < p->rotated_s ? GSP_REFUSED_EXPIRED : GSP_WELCOME;
}

void life_admit(gsp_pool *p, const gsp_word *ask, gsp_word *answer)
{
    gsp_role role = GSP_GUEST;
    gsp_invite invite;
    gsp_admission a = {0};
    uint64_t now = (uint64_t)atom_wall_seconds();
    uint64_t until = now + POOL_ADMITTED_DAYS * DAY_S;
    char who[GSP_PUBLIC_TEXT_BYTES];
    *answer = (gsp_word){.kind = GSP_WORD_ADMISSION};
    memcpy(answer->key, ask->key, sizeof answer->key);
    answer->refusal = judge(p, ask, now, &role, &invite);
    if (answer->refusal != GSP_WELCOME)
        return;
    if (role == GSP_GUEST) {
        atom_status st = gsp_ledger_admit(p->ledger, &p->identity, &invite, ask->key,
                                          p->manifest->number, now, until, &a);
        if (st != ATOM_OK) {
            atom_log(ATOM_LOG_WARN, "%s", atom_fail_message());
            answer->refusal = st == ATOM_E_USAGE ? GSP_REFUSED_EXPIRED : GSP_WORD_AWAY;
            return;
        }
        gsp_diary_add(&p->diary, "\"event\":\"admitted\",\"key\":\"%s\"",
                      gsp_public_text(ask->key, who));
    } else {
        a = (gsp_admission){.manifest = p->manifest->number, .issued_s = now, .expires_s = until};
        memcpy(a.pool, p->pool, sizeof a.pool);
        memcpy(a.member, ask->key, sizeof a.member);
        gsp_admission_sign(&a, &p->identity);
    }
    gsp_admission_encode(&a, answer->credential);
    answer->credential_bytes = GSP_ADMISSION_BYTES;
}

/* ---- the next manifest ---- */

atom_status life_rotate(gsp_pool *p, const uint8_t *ban)
{
    uint8_t psk[GSP_PSK_BYTES];
    char *text = NULL;
    uint64_t now = (uint64_t)atom_wall_seconds();
    gsp_manifest *next = atom_alloc(1, sizeof *next);
    atom_status st;
    if (!next)
        return atom_fail_memory("a manifest", sizeof *next);
    *next = *p->manifest;
    next->number++;
    if (!gsp_pool_is_owner(p))
        ATOM_TRY_CLEAN(atom_fail(ATOM_E_USAGE, "only the pool's owner can do this"));
    if (p->plain)
        ATOM_TRY_CLEAN(atom_fail(ATOM_E_USAGE,
                                 "a pool without a gate (transport: plain) keeps nobody "
                                 "out; there is nothing to ban or rotate"));
    if (ban && memcmp(ban, p->owner, sizeof p->owner) == 0)
        ATOM_TRY_CLEAN(atom_fail(ATOM_E_USAGE, "that is this host itself"));
    if (ban && !gsp_manifest_bans(next, ban)) {
        if (next->n_banned == GSP_MANIFEST_BANNED_MAX)
            ATOM_TRY_CLEAN(
                atom_fail(ATOM_E_USAGE, "a pool bans at most %d keys", GSP_MANIFEST_BANNED_MAX));
        memcpy(next->banned[next->n_banned++], ban, GSP_PUBLIC_BYTES);
    }
    randombytes_buf(psk, sizeof psk);
    gsp_manifest_key_hash(psk, &next->key);
    gsp_manifest_sign(next, &p->identity);
    ATOM_TRY_CLEAN(gsp_manifest_text(next, &text));
    p->rotated_s = now > p->rotated_s ? now : p->rotated_s + 1;
    ATOM_TRY_CLEAN(life_adopt(p, next, text, psk));
    ATOM_TRY_CLEAN(life_new_ticket(p, POOL_INVITE_COUNT, POOL_INVITED_DAYS));
cleanup:
    sodium_memzero(psk, sizeof psk);
    atom_free(text);
    atom_free(next);
    return st;
}

/* ---- orders of the control socket ---- */

static atom_status do_order(gsp_pool *p, const pool_order *o)
{
    switch (o->kind) {
    case POOL_ORDER_INVITE:
        return life_new_ticket(p, o->count, o->days);
    case POOL_ORDER_BAN:
        return life_rotate(p, o->key);
    case POOL_ORDER_ROTATE:
        return life_rotate(p, NULL);
    case POOL_ORDER_NONE:
        break;
    }
    return ATOM_OK;
}

void life_obey(gsp_pool *p)
{
    pthread_mutex_lock(&p->lock);
    pool_order order = p->order;
    pthread_mutex_unlock(&p->lock);
    if (order.kind == POOL_ORDER_NONE || order.done)
        return;
    order.st = do_order(p, &order);
    snprintf(order.text, sizeof order.text, "%s",
             order.st == ATOM_OK ? p->ticket : atom_fail_message());
    order.done = true;
    pthread_mutex_lock(&p->lock);
    p->order = order;
    pthread_cond_broadcast(&p->answered);
    pthread_mutex_unlock(&p->lock);
    sodium_memzero(&order, sizeof order);
}
