/*
 * Owns what a donor gives. Its one idea: a root that was told stands for bits, so a chunk goes out
 * only while the tree under that root is still here, as the state is or as it was. It refuses to
 * stand in the way of a round: chunks go when no part or result waits; and to give one key more than
 * a few states in some hours.
 */
#include "gossip/member/donor.h"

#include "atom/base/clock.h"
#include "atom/base/mem.h"

#include <string.h>

enum {
    HASH_CHUNKS = 2, /* per turn: about a millisecond */
    WANTED_MAX = 64, /* chunks that one peer may wait for */
    CHUNKS_PER_PUMP = 4,
    HOLD_VERSIONS = GSP_REPLAY_MAX / 2, /* that a joiner may be behind */
};
static const uint64_t SECOND = 1000000000u;
static const uint64_t GIVEN_LEAST = 64 << 20;    /* bytes, of a state however small */
static const uint64_t HOLD_NS = 5000000000u;     /* after its last chunk */
static const uint64_t ASK_PAUSE_NS = 100000000u; /* between two answers to one peer */

atom_status gsp_donor_open(gsp_donor *o, gsp_friends *friends, const gsp_work *work,
                           uint32_t n_fragments, const char *directory)
{
    o->friends = friends;
    o->work = work;
    o->n_fragments = n_fragments;
    o->flux = GSP_FRAGMENTS_MAX;
    for (uint32_t f = 0; f < n_fragments; f++)
        o->given.each_max += GSP_STATES_GIVEN * work->n_state[f] * sizeof(float);
    o->given.each_max += GIVEN_LEAST;
    o->given.all_max = UINT64_MAX;
    o->given.window_ns = GSP_STATES_SECONDS * SECOND;
    o->held = (gsp_tally){.window_ns = o->given.window_ns,
                          .each_max = o->given.window_ns / 6,
                          .all_max = o->given.window_ns / 3};
    gsp_leases_open(&o->leases, directory, work);
    o->chunk = atom_alloc(GSP_CHUNK_FLOATS, sizeof(float));
    return o->chunk ? ATOM_OK : atom_fail_memory("a chunk", GSP_CHUNK_BYTES);
}

void gsp_donor_close(gsp_donor *o)
{
    for (uint32_t f = 0; f < GSP_FRAGMENTS_MAX; f++)
        gsp_tree_close(&o->shelf[f].tree);
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++)
        atom_free(o->joiner[i].wanted);
    gsp_leases_close(&o->leases);
    atom_free(o->chunk);
}

/* ---- a state that changes ---- */

/* Somebody has fetched lately. */
static bool is_wanted(const gsp_donor *o)
{
    return o->sent_ns && atom_clock_ns() - o->sent_ns < GSP_LEASE_SECONDS * SECOND;
}

void gsp_donor_tick(gsp_donor *o)
{
    if (!is_wanted(o))
        gsp_leases_drop_all(&o->leases);
}

atom_status gsp_donor_changes(gsp_donor *o, uint32_t fragment, bool *done)
{
    gsp_shelf *s = &o->shelf[fragment];
    bool wanted = is_wanted(o) && s->whole && o->work->n_state[fragment];
    return gsp_leases_copy(&o->leases, fragment, &s->tree, wanted, o->chunk, done);
}

void gsp_donor_changed(gsp_donor *o, uint32_t fragment)
{
    o->shelf[fragment].next = 0;
    o->shelf[fragment].whole = false;
}

void gsp_donor_changed_all(gsp_donor *o)
{
    for (uint32_t f = 0; f < o->n_fragments; f++)
        gsp_donor_changed(o, f);
}

static atom_status read_chunk(gsp_donor *o, uint32_t f, uint32_t chunk, uint64_t *n)
{
    const gsp_work *work = o->work;
    *n = gsp_chunk_floats(work->n_state[f], chunk);
    return work->state_read(work->context, f, (uint64_t)chunk * GSP_CHUNK_FLOATS, *n, o->chunk);
}

/* ---- what one key has had ---- */

bool gsp_donor_may_give(gsp_donor *o, const gsp_friend *to)
{
    return gsp_tally_left(&o->given, to->key.byte, atom_clock_ns()) > 0;
}

void gsp_donor_gave(gsp_donor *o, const gsp_friend *to, uint64_t bytes)
{
    uint64_t now = atom_clock_ns(), left = gsp_tally_left(&o->given, to->key.byte, now);
    (void)gsp_tally_take(&o->given, to->key.byte, bytes < left ? bytes : left, now);
}

/* ---- roots ---- */

static gsp_joiner *joiner_of(gsp_donor *o, const gsp_friend *of)
{
    return &o->joiner[gsp_friends_index(o->friends, of)];
}

void gsp_donor_asked(gsp_donor *o, const gsp_friend *from)
{
    if (gsp_donor_may_give(o, from))
        joiner_of(o, from)->wants_roots = true;
}

void gsp_donor_down(gsp_donor *o, const gsp_friend *of)
{
    gsp_joiner *j = joiner_of(o, of);
    atom_free(j->wanted);
    *j = (gsp_joiner){0};
}

/* Hashes up to *left chunks of a fragment. */
static atom_status hash_some(gsp_donor *o, uint32_t f, uint32_t *left)
{
    gsp_shelf *s = &o->shelf[f];
    uint32_t n = (uint32_t)gsp_chunks(o->work->n_state[f]);
    if (!s->tree.node)
        ATOM_TRY(gsp_tree_open(&s->tree, n));
    for (; s->next<n && * left> 0; --*left, s->next++) {
        uint64_t floats;
        ATOM_TRY(read_chunk(o, f, s->next, &floats));
        gsp_merkle_leaf(s->next, o->chunk, floats * sizeof(float), &s->tree.node[s->next]);
    }
    if (s->next < n)
        return ATOM_OK;
    gsp_tree_build(&s->tree);
    s->whole = true;
    return ATOM_OK;
}

static void tell_roots(gsp_donor *o, gsp_friend *to, const gsp_donor_word *word)
{
    gsp_message *m = gsp_friends_draft(o->friends, GSP_STATE_ROOTS);
    gsp_state_roots *r = &m->as.roots;
    r->genesis = word->saved->genesis;
    r->has_certificate = word->saved->has_certificate;
    if (r->has_certificate)
        r->certificate = word->saved->certificate;
    r->n_fragments = o->n_fragments;
    for (uint32_t f = 0; f < r->n_fragments; f++) {
        r->fragment[f].version = gsp_state_version(o->friends->agree->applied, f, r->n_fragments);
        r->fragment[f].n_floats = o->work->n_state[f];
        r->fragment[f].root = gsp_tree_root(&o->shelf[f].tree);
    }
    gsp_roots_seal(r, word->seals, &m->from, word->identity);
    gsp_donor_gave(o, to, gsp_friends_tell(o->friends, to, m));
}

static bool asks(const gsp_donor *o, uint32_t i, uint64_t now)
{
    const gsp_joiner *j = &o->joiner[i];
    return o->friends->friend[i].up && j->wants_roots && now - j->roots_ns >= ASK_PAUSE_NS;
}

atom_status gsp_donor_work(gsp_donor *o, const gsp_donor_word *word, bool *more)
{
    uint32_t left = HASH_CHUNKS;
    uint64_t now = atom_clock_ns();
    bool any = false;
    *more = false;
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++)
        any |= asks(o, i, now);
    if (!any)
        return ATOM_OK;
    for (uint32_t f = 0; f < o->n_fragments && left; f++)
        if (!o->shelf[f].whole)
            ATOM_TRY(hash_some(o, f, &left));
    for (uint32_t f = 0; f < o->n_fragments; f++)
        *more |= !o->shelf[f].whole;
    now = atom_clock_ns();
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX && !*more; i++) {
        if (!asks(o, i, now))
            continue;
        o->joiner[i].wants_roots = false;
        o->joiner[i].roots_ns = now;
        tell_roots(o, &o->friends->friend[i], word);
    }
    return ATOM_OK;
}

/* ---- chunks ---- */

bool gsp_donor_pulled(gsp_donor *o, const gsp_friend *from, const gsp_message *m)
{
    const gsp_state_pull *p = &m->as.state_pull;
    gsp_joiner *j = joiner_of(o, from);
    if (p->n == 0 || p->n > GSP_STATE_PULL_MAX || p->fragment >= o->n_fragments ||
        (uint64_t)p->first + p->n > gsp_chunks(o->work->n_state[p->fragment]))
        return false; /* nothing behind the end of a state is ever read */
    j->fetch_version = m->version;
    if (!j->wanted)
        j->wanted = atom_alloc(WANTED_MAX, sizeof *j->wanted);
    for (uint32_t k = 0; j->wanted && k < p->n && j->n_wanted < WANTED_MAX; k++)
        j->wanted[(j->first_wanted + j->n_wanted++) % WANTED_MAX] = (gsp_wanted){
            .fragment = p->fragment, .chunk = p->first + k, .version = p->version, .root = p->root};
    return true;
}

uint64_t gsp_donor_owes(const gsp_donor *o, uint32_t index)
{
    return (uint64_t)o->joiner[index].n_wanted * GSP_CHUNK_BYTES;
}

/* It is as far as I am: what it fetched has arrived. */
static bool caught_up(const gsp_agree *a, const gsp_key *key)
{
    for (uint32_t i = 0; i < GSP_PEERS_KNOWN_MAX; i++)
        if (a->peer[i].known && gsp_key_compare(&a->peer[i].who.key, key) == 0)
            return a->peer[i].applied + 1 >= a->certified;
    return false;
}

/* Counts how long a version has waited for this key. False: that was enough. */
static bool may_hold(gsp_donor *o, const gsp_key *key, uint64_t now)
{
    uint64_t left = gsp_tally_left(&o->held, key->byte, now);
    if (left == 0)
        return false;
    uint64_t passed = o->held_ns && now - o->held_ns < SECOND ? now - o->held_ns : 0;
    o->held_ns = now;
    (void)gsp_tally_take(&o->held, key->byte, passed < left ? passed : left, now);
    return true;
}

/* A pool that goes faster than its state travels would never be joined. Training goes on meanwhile,
 * only the averaging waits, and never longer than a quarter of T. */
bool gsp_donor_holds(gsp_donor *o, uint64_t now_ns)
{
    const gsp_agree *a = o->friends->agree;
    uint64_t now = atom_clock_ns();
    if (now_ns - a->certified_ns > a->rules.time_due_ns / 4)
        return false;
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++) {
        const gsp_joiner *j = &o->joiner[i];
        if (o->friends->friend[i].up && j->fetch_ns && now - j->fetch_ns < HOLD_NS &&
            a->certified >= j->fetch_version + HOLD_VERSIONS &&
            a->certified < j->fetch_version + 4 * GSP_REPLAY_MAX &&
            !caught_up(a, &o->friends->friend[i].key) &&
            may_hold(o, &o->friends->friend[i].key, now))
            return true;
    }
    return false;
}

/* The tree of a fragment's state with this root, as it is or as it was; NULL: it is not here. */
static const gsp_tree *find(const gsp_donor *o, uint32_t f, const gsp_hash *root)
{
    if (o->shelf[f].whole && o->flux != f) {
        gsp_hash mine = gsp_tree_root(&o->shelf[f].tree);
        if (gsp_hash_equal(&mine, root))
            return &o->shelf[f].tree;
    }
    return gsp_leases_find(&o->leases, f, root);
}

static void wanted_pop(gsp_joiner *j)
{
    j->first_wanted = (j->first_wanted + 1) % WANTED_MAX;
    j->n_wanted--;
}

static void tell_none(gsp_donor *o, gsp_friend *to, const gsp_wanted *w)
{
    gsp_message *m = gsp_friends_draft(o->friends, GSP_STATE_NONE);
    m->as.state_pull = (gsp_state_pull){
        .fragment = w->fragment, .version = w->version, .root = w->root, .first = w->chunk, .n = 1};
    gsp_friends_tell(o->friends, to, m);
}

/* Sends the chunk that is in o->chunk, with its proof. False: the link takes no more. */
static bool chunk_send(gsp_donor *o, gsp_friend *to, const gsp_wanted *w, const gsp_tree *tree,
                       uint64_t n, bool kept)
{
    gsp_message *m = gsp_friends_draft(o->friends, GSP_STATE_CHUNK);
    gsp_state_chunk *c = &m->as.chunk;
    c->fragment = w->fragment;
    c->version = w->version;
    c->root = w->root;
    c->chunk = w->chunk;
    c->bytes = (uint32_t)(n * sizeof(float));
    c->n_path = gsp_tree_path(tree, w->chunk, c->path);
    uint32_t bytes = c->bytes;
    gsp_net_sent sent = gsp_friends_send_bulk(o->friends, to, m, o->chunk, bytes);
    if (sent == GSP_NET_BUSY)
        return false;
    wanted_pop(joiner_of(o, to));
    o->sent_ns = joiner_of(o, to)->fetch_ns = atom_clock_ns();
    gsp_donor_gave(o, to, bytes);
    o->sent_bytes += bytes;
    o->kept_bytes += kept ? bytes : 0;
    return sent == GSP_NET_SENT;
}

/* Sends one chunk to a peer that waits for one, or an answer that it is not here; *sent false: it
 * waits for none, or its link is full. */
static atom_status send_one(gsp_donor *o, gsp_friend *to, bool *sent)
{
    gsp_joiner *j = joiner_of(o, to);
    *sent = false;
    if (!to->up || j->n_wanted == 0 || to->busy[GSP_NET_BULK])
        return ATOM_OK;
    gsp_wanted w = j->wanted[j->first_wanted];
    uint64_t n = gsp_chunk_floats(o->work->n_state[w.fragment], w.chunk);
    const gsp_tree *tree = find(o, w.fragment, &w.root);
    if (!tree && o->flux == w.fragment)
        return ATOM_OK; /* it will be another in a moment, or kept as it was */
    bool kept = tree && tree != &o->shelf[w.fragment].tree;
    bool spent = gsp_tally_left(&o->given, to->key.byte, atom_clock_ns()) < n * sizeof(float);
    if (!tree || spent ||
        (kept && !gsp_leases_read(&o->leases, w.fragment, w.chunk, n, o->chunk))) {
        wanted_pop(j);
        tell_none(o, to, &w);
        *sent = true;
        return ATOM_OK;
    }
    if (!kept)
        ATOM_TRY(read_chunk(o, w.fragment, w.chunk, &n));
    *sent = chunk_send(o, to, &w, tree, n, kept);
    return ATOM_OK;
}

atom_status gsp_donor_pump(gsp_donor *o, bool *more)
{
    uint32_t n = 0;
    *more = false;
    /* Parts and results first; but where they never end a joiner gets a chunk every second. */
    if (gsp_friends_is_busy(o->friends) && atom_clock_ns() - o->sent_ns < SECOND)
        return ATOM_OK;
    for (uint32_t k = 0; k < GSP_NET_PEERS_MAX && n < CHUNKS_PER_PUMP; k++) {
        bool sent;
        ATOM_TRY(
            send_one(o, &o->friends->friend[(o->friends->turn + k) % GSP_NET_PEERS_MAX], &sent));
        n += sent;
    }
    *more = n == CHUNKS_PER_PUMP;
    return ATOM_OK;
}
