/*
 * Owns the words about who comes in: questions for admission, their answers, and what delegates are told.
 * Its one idea: the owner answers where it is heard, a delegate where it is not, and any member passes a
 * question on by one hop. It refuses to let a guest ask twice, and to end a join for the word of a single
 * member.
 */
#include "gossip/pool/pool_inner.h"

#include "atom/base/clock.h"
#include "atom/base/log.h"

#include <string.h>

static const uint64_t SECOND_NS = 1000000000u, AWAY_NS = 10000000000u;

bool gsp_pool_is_void(gsp_pool *p, const gsp_link *l)
{
    gsp_role role;
    uint8_t shown[GSP_CREDENTIAL_BYTES_MAX];
    uint8_t invite[GSP_INVITE_ID_BYTES];
    uint32_t bytes = 0;
    if (p->door.plain || (l->guest && !l->old_key) || !p->door.has_manifest ||
        p->door.manifest->n_banned == 0 ||
        !gsp_net_peer_credential(p->net, l->key, &role, shown, &bytes) ||
        !gsp_door_voids(&p->door, shown, bytes))
        return false;
    if (gsp_door_is_owner(&p->door) && p->door.ledger &&
        gsp_ledger_invite_of(p->door.ledger, l->key, invite))
        return false; /* it was admitted again (gsp_door_readmit) */
    const gsp_known *k = gsp_peers_find(p->book.peers, l->key);
    return !k || gsp_door_voids(&p->door, k->contact.credential, k->contact.credential_bytes);
}

/* A guest has one attempt. While the owner is away it has none, and may stay for its time. */
static void has_answer(gsp_link *to, uint8_t refusal)
{
    if (!to->guest || refusal == GSP_WORD_AWAY)
        return;
    to->answered = true;
    gsp_link_doom(to, SECOND_NS);
}

/* When the delegation ends that it showed when its link was made, or that its newest contact has; 0: none. */
static uint64_t delegated_until(gsp_pool *p, const gsp_link *l)
{
    gsp_role role = GSP_GUEST;
    gsp_delegation given;
    uint8_t shown[GSP_CREDENTIAL_BYTES_MAX];
    uint32_t bytes = 0;
    uint64_t until = 0;
    if (p->door.plain || l->guest || !gsp_net_peer_credential(p->net, l->key, &role, shown, &bytes))
        return 0;
    const gsp_known *k = gsp_peers_find(p->book.peers, l->key);
    if (role == GSP_DELEGATE && gsp_delegation_decode(shown, bytes, &given))
        until = given.expires_s;
    if (k && gsp_delegation_decode(k->contact.credential, k->contact.credential_bytes, &given) &&
        given.expires_s > until)
        until = given.expires_s;
    return until;
}

static bool is_delegate(gsp_pool *p, const gsp_link *l)
{
    return (uint64_t)atom_wall_seconds() < delegated_until(p, l);
}

/* To the owner; where it is not heard, and we do not admit ourselves, to a delegate. */
static bool pass_on_question(gsp_pool *p, const gsp_word *m, bool admits)
{
    const gsp_link *owner = gsp_links_find(&p->links, p->door.owner);
    bool here = owner && !owner->guest;
    bool heard =
        here && (p->door.plain || atom_clock_ns() < gsp_net_heard_ns(p->net, owner->key) + AWAY_NS);
    if (heard && gsp_links_tell(&p->links, owner->key, m))
        return true;
    const uint64_t turn = atom_clock_ns() / SECOND_NS; /* each of them in turn */
    for (uint64_t i = 0; !admits && i < GSP_NET_PEERS_MAX; i++) {
        const gsp_link *l = &p->links.link[(turn + i) % GSP_NET_PEERS_MAX];
        if (l->up && !l->doomed_ns && memcmp(l->key, m->key, sizeof l->key) != 0 &&
            is_delegate(p, l) && gsp_links_tell(&p->links, l->key, m))
            return true;
    }
    return !admits && here && gsp_links_tell(&p->links, owner->key, m);
}

bool gsp_pool_tell_delegation(gsp_pool *p, const uint8_t *key)
{
    const gsp_delegation *given =
        gsp_door_is_owner(&p->door)
            ? gsp_door_delegation(&p->door, key, (uint64_t)atom_wall_seconds())
            : NULL;
    gsp_word m = {.kind = GSP_WORD_ADMISSION,
                  .refusal = GSP_WELCOME,
                  .credential_bytes = GSP_DELEGATION_BYTES};
    if (!given)
        return false;
    memcpy(m.key, key, sizeof m.key);
    gsp_delegation_encode(given, m.credential);
    return gsp_links_tell(&p->links, key, &m);
}

void gsp_pool_remind_delegate(gsp_pool *p, const gsp_link *l)
{
    const gsp_delegation *given =
        gsp_door_is_owner(&p->door)
            ? gsp_door_delegation(&p->door, l->key, (uint64_t)atom_wall_seconds())
            : NULL;
    if (given && !l->guest && delegated_until(p, l) < given->expires_s)
        (void)gsp_pool_tell_delegation(p, l->key);
}

void gsp_pool_asked_in(gsp_pool *p, gsp_link *from, const gsp_word *m)
{
    gsp_word answer = {.kind = GSP_WORD_ADMISSION, .refusal = GSP_WORD_AWAY};
    bool own = memcmp(m->key, from->key, sizeof m->key) == 0;
    char who[GSP_PUBLIC_TEXT_BYTES];
    memcpy(answer.key, m->key, sizeof answer.key);
    if ((!own && from->guest) || from->answered)
        return;
    const bool admits = gsp_door_admits(&p->door, (uint64_t)atom_wall_seconds());
    if (own && !gsp_door_is_owner(&p->door) && pass_on_question(p, m, admits))
        return; /* its answer is passed on */
    if (admits) {
        if (gsp_door_admit(&p->door, m, &answer))
            gsp_event_log_add(&p->diary, "\"event\":\"admitted\",\"key\":\"%s\"",
                              gsp_public_text(m->key, who));
    } else if (!own) {
        return; /* one hop only */
    }
    (void)gsp_links_tell(&p->links, from->key, &answer);
    has_answer(from, answer.refusal);
}

static void take_admission(gsp_pool *p, const gsp_word *m)
{
    bool was_guest = p->door.is_guest;
    if (!was_guest && gsp_door_take_delegation(&p->door, m->credential, m->credential_bytes,
                                               (uint64_t)atom_wall_seconds())) {
        gsp_event_log_add(&p->diary, "\"event\":\"delegated\"");
        atom_log(ATOM_LOG_INFO, "this host is a delegate of the pool's owner now: it admits others "
                                "and renews admissions, and atom pool ticket prints its ticket");
        p->ticket_is_old = true;
        gsp_pool_rekey(p);
        gsp_pool_greet_all(p); /* who asks others passes the question on to this host */
        return;
    }
    if (!gsp_door_take_admission(&p->door, m->credential, m->credential_bytes,
                                 (uint64_t)atom_wall_seconds()))
        return;
    p->was_admitted = was_guest;
    gsp_event_log_add(&p->diary, "\"event\":\"admitted\"");
    if (was_guest)
        return;
    gsp_pool_rekey(p);
    gsp_pool_greet_all(p); /* what we showed before may be void */
}

void gsp_pool_refused_in(gsp_pool *p, const uint8_t *by, const gsp_address *at, bool owners,
                         gsp_refusal refusal)
{
    char text[GSP_POOL_WHY_BYTES];
    if (owners) {
        gsp_headline_refuse(&p->headline, GSP_POOL_ASKING,
                            "not admitted; the pool's owner says: %s", gsp_refusal_text(refusal));
        return;
    }
    gsp_denials_add(&p->denials, by, at, refusal, atom_clock_ns());
    gsp_headline_say(&p->headline, GSP_POOL_ASKING, "asking others; %s",
                     gsp_denials_text(&p->denials, text, sizeof text));
}

static bool has_other_delegate(gsp_pool *p, const gsp_link *than)
{
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++) {
        const gsp_link *l = &p->links.link[i];
        if (l->up && l != than && is_delegate(p, l))
            return true;
    }
    return false;
}

/* The refusal of a delegate ends nothing while another one may think otherwise. */
static void pass_on_admission(gsp_pool *p, const gsp_link *from, gsp_link *to, const gsp_word *m)
{
    gsp_word away = {.kind = GSP_WORD_ADMISSION, .refusal = GSP_WORD_AWAY};
    memcpy(away.key, m->key, sizeof away.key);
    if (m->refusal != GSP_WELCOME && memcmp(from->key, p->door.owner, sizeof from->key) != 0 &&
        has_other_delegate(p, from))
        m = &away;
    (void)gsp_links_tell(&p->links, to->key, m);
    has_answer(to, m->refusal);
}

void gsp_pool_answered_in(gsp_pool *p, gsp_link *from, const gsp_word *m)
{
    if (from->guest)
        return;
    if (memcmp(m->key, p->door.identity.public_key, sizeof m->key) != 0) {
        gsp_link *to = gsp_links_find(&p->links, m->key);
        if (to &&
            (memcmp(from->key, p->door.owner, sizeof p->door.owner) == 0 || is_delegate(p, from)))
            pass_on_admission(p, from, to, m);
        return;
    }
    if (m->refusal == GSP_WELCOME) {
        take_admission(p, m);
    } else if (m->refusal == GSP_WORD_AWAY) {
        if (gsp_door_show_earlier(&p->door)) {
            p->was_admitted = true; /* in its way: links are made anew, with what is shown now */
            gsp_headline_say(&p->headline, GSP_POOL_ASKING,
                             "nobody is there who could admit this host with its new ticket; "
                             "showing the admission that it has from before");
        } else if (p->door.is_guest)
            gsp_headline_say(
                &p->headline, GSP_POOL_ASKING,
                "a member answers, but only the pool's owner and its delegates can admit this "
                "host, and none of them is there now: they may be off, or the run may have ended; "
                "waiting");
    } else if (p->door.is_guest) {
        bool owners = memcmp(from->key, p->door.owner, sizeof p->door.owner) == 0 ||
                      gsp_door_is_owners_word(&p->door, m, (uint64_t)atom_wall_seconds());
        gsp_pool_refused_in(p, from->key, &from->address, owners,
                            m->refusal < GSP_REFUSAL_N ? (gsp_refusal)m->refusal
                                                       : GSP_REFUSED_CREDENTIAL);
    }
}
