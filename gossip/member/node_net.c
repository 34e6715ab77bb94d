/*
 * Owns what the network brings and takes. Its one idea: every message goes to the one part that
 * knows it, and the machine hears of bytes only when they are here and checked. It refuses pieces
 * that no round asks for, and sizes other than those that follow from the terms.
 */
#include "gossip/member/node_inner.h"

#include "atom/base/clock.h"
#include "atom/base/log.h"

#include <string.h>

/* ---- pieces ---- */

static bool wanted_result(const gsp_node *n, const gsp_message *m, uint32_t from)
{
    const gsp_agree *a = &n->agree;
    const gsp_piece *p = &m->as.piece;
    if (m->version == a->certified && a->applied < a->certified)
        return gsp_hash_equal(&a->certificate.proposal.part[p->part].hash, &p->root);
    if (m->version != a->certified + 1)
        return false;
    const gsp_round *r = &a->round;
    return gsp_recent_needs(a, p->part, &p->root) ||
           (r->ballot != 0 && from != GSP_NOBODY && r->begin.owner[p->part] == from &&
            gsp_hash_none(&r->known[p->part].hash) &&
            gsp_recent_wants_unsaid(&n->held, r->ballot, p->part));
}

/* Where the piece belongs; NULL: nobody wants it. */
static gsp_blob **place_of(gsp_node *n, const gsp_message *m, const gsp_key *key)
{
    const gsp_piece *p = &m->as.piece;
    uint32_t from = gsp_roster_find_key(gsp_agree_roster(&n->agree), key);
    if (!p->is_result && m->version <= n->agree.certified) {
        gsp_blob **place = gsp_audit_cases_place(&n->cases, m);
        return place ? place : gsp_questions_place(&n->questions, m);
    }
    if (!p->is_result)
        return gsp_inputs_place(&n->inputs, &n->agree, m, from);
    if (!wanted_result(n, m, from))
        return NULL;
    return gsp_recent_place(&n->held, &n->agree, m->version, p->part, &p->root);
}

static bool well_cut(const gsp_node *n, const gsp_message *m)
{
    const gsp_piece *p = &m->as.piece;
    if (p->part >= n->terms.n_parts || p->codec != n->terms.codec ||
        !gsp_hash_equal(&m->lineage, &n->agree.lineage) || gsp_hash_none(&p->root) ||
        p->part_bytes != gsp_terms_bytes(&n->terms, m->version, p->part) ||
        p->sequence >= GSP_BLOB_PIECES_MAX ||
        p->offset != (uint64_t)p->sequence * GSP_BLOB_PIECE_BYTES)
        return false;
    uint64_t rest = p->part_bytes - p->offset;
    bool last = rest <= GSP_BLOB_PIECE_BYTES;
    return p->bytes == (last ? rest : GSP_BLOB_PIECE_BYTES) &&
           (p->n_path == 0 || (last && !p->is_result));
}

/* The bytes of a result are here: now the machine may hear what its owner said of it. */
static void hear_said(gsp_node *n, uint32_t part, const gsp_hash *hash)
{
    gsp_said *said = &n->said[part];
    gsp_message *m = &n->delayed;
    if (said->ballot == 0 || !gsp_hash_equal(&said->reduced.part.hash, hash))
        return;
    memset(m, 0, gsp_message_bytes(GSP_REDUCED));
    m->kind = GSP_REDUCED;
    m->from = said->from;
    m->lineage = n->agree.lineage;
    m->version = n->agree.certified + 1;
    m->ballot = said->ballot;
    m->as.reduced = said->reduced;
    said->ballot = 0;
    gsp_event event = {.kind = GSP_ON_MESSAGE, .message = m};
    gsp_node_step(n, &event);
}

static void result_arrived(gsp_node *n, const gsp_message *m, const gsp_blob *b,
                           const gsp_key *from)
{
    gsp_event event = {.kind = GSP_ON_HELD,
                       .version = m->version,
                       .part = m->as.piece.part,
                       .peer = *from,
                       .hash = b->root};
    n->status.held_ns = atom_clock_ns() - n->freezing.began_ns;
    if (m->version == n->agree.certified + 1 && !gsp_recent_needs(&n->agree, event.part, &b->root))
        gsp_recent_count_unsaid(&n->held, n->agree.round.ballot, event.part);
    atom_status st = gsp_recent_keep(&n->held, &n->agree, m->version, event.part, b);
    if (st != ATOM_OK) {
        gsp_node_die(n, st);
        return;
    }
    gsp_node_step(n, &event);
    if (event.version == n->agree.certified + 1)
        hear_said(n, event.part, &event.hash);
}

static void part_arrived(gsp_node *n, const gsp_message *m, const gsp_key *from)
{
    gsp_event event = {.kind = GSP_ON_ARRIVED,
                       .version = m->version,
                       .part = m->as.piece.part,
                       .peer = *from,
                       .root = m->as.piece.root};
    n->changed = true; /* perhaps the last one that is waited for, but for members that are gone */
    gsp_node_step(n, &event);
}

/* This peer was asked for the part, or it is its own: of a result, the owner's. */
static bool was_asked(const gsp_node *n, const gsp_message *m, const gsp_key *key)
{
    const gsp_round *r = &n->agree.round;
    const gsp_piece *p = &m->as.piece;
    uint32_t from = gsp_roster_find_key(gsp_agree_roster(&n->agree), key);
    return !p->is_result || gsp_key_compare(gsp_pulls_last(&n->pulls, p->part), key) == 0 ||
           (m->version == r->version && r->ballot != 0 && from != GSP_NOBODY &&
            r->begin.owner[p->part] == from);
}

/* Says who it was, if that is known. */
static void false_arrived(gsp_node *n, const gsp_message *m, const gsp_pieces_of *spoiled)
{
    const gsp_piece *p = &m->as.piece;
    char who[GSP_PUBLIC_TEXT_BYTES];
    const gsp_key *guilty = gsp_blame_false(&n->blame, &p->root, p->part, spoiled, atom_clock_ns());
    n->status.refused++;
    if (guilty)
        atom_log(ATOM_LOG_WARN,
                 "member %.12s sent wrong bytes of part %u of version %llu; it is not asked for it "
                 "again",
                 gsp_public_text(guilty->byte, who), p->part, (unsigned long long)m->version);
}

/* A part is here: those that sent wrong pieces of it before are known now. */
static void right_arrived(gsp_node *n, const gsp_message *m, const gsp_blob *b)
{
    gsp_hash pieces[GSP_BLOB_PIECES_MAX];
    const gsp_piece *p = &m->as.piece;
    if (!gsp_blame_awaits(&n->blame, &p->root, p->part))
        return;
    uint32_t count = gsp_blob_hashes(b, pieces);
    uint32_t struck = gsp_blame_right(&n->blame, &p->root, p->part, pieces, count, atom_clock_ns());
    if (struck)
        atom_log(ATOM_LOG_WARN,
                 "%u of the members that sent part %u of version %llu sent wrong bytes", struck,
                 p->part, (unsigned long long)m->version);
}

/* Where the piece goes: NULL where nobody wants it, or not from this peer. */
static gsp_blob **place_for(gsp_node *n, const gsp_message *m, const gsp_key *key)
{
    const gsp_piece *p = &m->as.piece;
    gsp_blame_word word =
        gsp_blame_piece(&n->blame, &p->root, p->part, key, was_asked(n, m, key), atom_clock_ns());
    gsp_blob **place = word == GSP_BLAME_LEAVE ? NULL : place_of(n, m, key);
    if (place && *place && !(*place)->whole && word == GSP_BLAME_TAKE_ANEW)
        gsp_blob_close(place);
    return place && gsp_blob_lacks(*place, p->sequence) ? place : NULL;
}

/* A PIECE from a peer; true: the message is kept. */
static bool on_piece(gsp_node *n, gsp_friend *from, const gsp_message *m, const void *body,
                     void *message)
{
    const gsp_piece *p = &m->as.piece;
    const gsp_key key = from->key;
    gsp_pieces_of spoiled;
    bool taken = false;
    uint64_t began = gsp_node_cpu_ns();
    if (!well_cut(n, m)) {
        n->status.refused++;
        return false;
    }
    gsp_blob **place = place_for(n, m, &key);
    if (!place) {
        n->status.repeated_bytes += p->bytes;
        return false;
    }
    from->bulk_ns = atom_clock_ns(); /* bytes that somebody wants, and no others, earn patience */
    gsp_blob_news news = gsp_blob_add(place, p, &key, n->terms.n_parts, body, n->config.net,
                                      message, &taken, &spoiled);
    if (news == GSP_BLOB_FALSE)
        false_arrived(n, m, &spoiled);
    else if (news == GSP_BLOB_WHOLE)
        right_arrived(n, m, *place);
    if (news == GSP_BLOB_WHOLE || news == GSP_BLOB_FALSE)
        n->status.compute_ns += gsp_node_cpu_ns() - began;
    if (news != GSP_BLOB_WHOLE)
        return taken;
    if (p->is_result)
        result_arrived(n, m, *place, &key);
    else if (m->version > n->agree.certified)
        part_arrived(n, m, &key);
    return taken; /* a part of a case: it is found when the case is looked into again */
}

/* ---- other messages ---- */

/* A peer lacks a result of a version, or checks a contribution. It gets no answer where the bytes
 * are not here or it has asked for too much, and asks the next one. */
static void on_pull(gsp_node *n, gsp_friend *from, const gsp_message *m)
{
    const gsp_pull *p = &m->as.pull;
    if (p->part >= n->terms.n_parts)
        return;
    uint64_t bytes = gsp_terms_bytes(&n->terms, m->version, p->part);
    if (p->is_result && !gsp_recent_has(&n->held, p->part, &p->root, &bytes))
        return;
    if (!gsp_friends_may_pull(&n->friends, from, bytes))
        n->status.refused++;
    else if (p->is_result ? gsp_friends_send_result(from, m->version, p->part, &p->root)
                          : gsp_friends_send_exhibit(from, m->version, p->part, &p->root))
        gsp_friends_pulls(&n->friends, from, bytes);
}

/* The machine hears of a part's result when its bytes are here: so a dead owner's word never stands
 * for bytes that nobody has, and no proposal names them. */
static bool too_early(gsp_node *n, const gsp_message *m)
{
    const gsp_reduced *r = &m->as.reduced;
    uint32_t part = r->statement.item;
    uint32_t from = gsp_roster_find(gsp_agree_roster(&n->agree), &m->from);
    if (m->kind != GSP_REDUCED || m->version != n->agree.certified + 1 ||
        part >= n->terms.n_parts || m->ballot != n->agree.round.ballot || from == GSP_NOBODY ||
        n->agree.round.begin.owner[part] != from || /* its word, and no other, waits */
        gsp_round_holds(&n->agree.round, part, &r->part.hash))
        return false;
    n->said[part] = (gsp_said){.ballot = m->ballot, .from = m->from, .reduced = *r};
    return true;
}

static void on_state(gsp_node *n, const gsp_friend *from, const gsp_message *m, const void *body)
{
    atom_status st = ATOM_OK;
    if (m->kind == GSP_STATE_ASK)
        gsp_donor_asked(&n->donor, from);
    else if (m->kind == GSP_STATE_PULL)
        n->status.refused += !gsp_donor_pulled(&n->donor, from, m);
    else if (n->fetch)
        st = gsp_fetch_heard(n->fetch, from, m, body);
    if (st != ATOM_OK)
        gsp_node_die(n, st);
}

/* What is not a member's business. True: the message was taken. */
static bool other(gsp_node *n, gsp_net_event *e)
{
    return n->config.other && n->config.other(n->config.other_context, e);
}

/* True: the message is kept. */
static bool on_message(gsp_node *n, gsp_net_event *e)
{
    gsp_key key;
    gsp_message *m = &n->incoming;
    const void *body;
    size_t body_bytes;
    memcpy(key.byte, e->key, sizeof key.byte);
    gsp_friend *from = gsp_friends_find(&n->friends, &key);
    if (!from || e->bytes == 0 || *(const uint8_t *)e->data != GSP_TYPES_VERSION)
        return other(n, e);
    bool decoded = gsp_wire_decode(e->data, e->bytes, &key, m, &body, &body_bytes);
    bool bulk = m->kind == GSP_PIECE || m->kind == GSP_STATE_CHUNK;
    if (!decoded || bulk != (e->channel == GSP_NET_BULK)) {
        n->status.refused++;
        return false;
    }
    if (m->kind == GSP_PIECE)
        return on_piece(n, from, m, body, e->data);
    if (m->kind == GSP_CHAIN_ASK || m->kind == GSP_CHAIN) {
        gsp_node_chain_heard(n, from, m);
    } else if (m->kind >= GSP_STATE_ASK) {
        on_state(n, from, m, body);
    } else if (m->kind == GSP_PULL) {
        on_pull(n, from, m);
    } else if (!too_early(n, m)) {
        gsp_event event = {.kind = GSP_ON_MESSAGE, .message = m};
        gsp_node_step(n, &event);
    }
    return false;
}

/* ---- links ---- */

/* What this peer should have of the round in progress, and what its last link may have lost. */
static void send_again(gsp_node *n, gsp_friend *to)
{
    const gsp_agree *a = &n->agree;
    const gsp_round *r = &a->round;
    uint64_t version = a->certified + 1;
    uint32_t i = gsp_roster_find_key(gsp_agree_roster(a), &to->key);
    if (i == GSP_NOBODY || r->ballot == 0)
        return;
    for (uint32_t p = 0; p < r->begin.n_parts; p++) {
        const gsp_hash *hash = &r->known[p].hash;
        if (r->begin.owner[p] == i && (r->sent[p] >> i & 1) && gsp_hash_none(hash))
            gsp_friends_send_part(to, version, p, &n->freezing.contribution.root);
        if (r->begin.owner[p] == a->self_i && !gsp_hash_none(hash))
            gsp_friends_send_result(to, version, p, hash);
    }
}

static void hang_up(gsp_node *n, const gsp_key *key)
{
    gsp_friend *f = gsp_friends_find(&n->friends, key);
    if (n->fetch)
        gsp_fetch_down(n->fetch, key);
    gsp_node_chain_down(n, key);
    if (!f)
        return;
    gsp_donor_down(&n->donor, f);
    gsp_friends_down(f);
}

void gsp_node_down(gsp_node *n, const gsp_key *key)
{
    gsp_event event = {.kind = GSP_ON_DOWN, .peer = *key};
    hang_up(n, key);
    gsp_node_step(n, &event);
}

void gsp_node_up(gsp_node *n, const gsp_key *key)
{
    gsp_event event = {.kind = GSP_ON_UP, .peer = *key};
    hang_up(n, key);
    gsp_friend *f = gsp_friends_up(&n->friends, key);
    if (f) {
        n->pace.turn_ns = 0;
        send_again(n, f);
    }
    gsp_node_step(n, &event);
}

void gsp_node_hear(gsp_node *n, gsp_net_event *e)
{
    gsp_friend *f = NULL;
    gsp_key key;
    memcpy(key.byte, e->key, sizeof key.byte);
    switch (e->kind) {
    case GSP_NET_UP:
        (void)other(n, e);
        if (!e->guest) /* a guest only asks to be admitted */
            gsp_node_up(n, &key);
        break;
    case GSP_NET_DOWN:
        (void)other(n, e);
        gsp_node_down(n, &key);
        break;
    case GSP_NET_MESSAGE:
        if (!on_message(n, e))
            gsp_net_free(n->config.net, e->data);
        break;
    case GSP_NET_ROOM:
        f = gsp_friends_find(&n->friends, &key);
        if (f)
            f->busy[e->channel] = false;
        break;
    case GSP_NET_REFUSED:
        atom_log(ATOM_LOG_WARN, "a peer refuses: %s", e->why);
        (void)other(n, e);
        break;
    case GSP_NET_NOTHING:
        break;
    }
}

/* ---- what goes out ---- */

static bool find_bytes(void *context, const gsp_outgoing *what, gsp_exhibit *out)
{
    gsp_node *n = context;
    if (!what->is_result)
        return gsp_audit_cases_exhibit(&n->cases, what->version, &what->root, what->part, out) &&
               out->data;
    const gsp_blob *b = gsp_recent_find(&n->held, what->part, &what->root);
    if (b)
        *out = (gsp_exhibit){.data = b->data, .bytes = b->bytes};
    return b && b->data;
}

bool gsp_node_pump(gsp_node *n)
{
    bool chunks;
    gsp_pace_turn(&n->pace, &n->friends, &n->donor, &n->terms);
    bool more = gsp_friends_pump(&n->friends, find_bytes, n);
    n->donor.flux = n->apply.on ? gsp_terms_fragment(&n->terms, n->agree.certified)
                                : (uint32_t)GSP_FRAGMENTS_MAX;
    atom_status st = gsp_donor_pump(&n->donor, &chunks);
    if (st != ATOM_OK)
        gsp_node_die(n, st);
    gsp_pace_learn(&n->pace, &n->friends, &n->donor, &n->agree.rates);
    return more || chunks;
}
