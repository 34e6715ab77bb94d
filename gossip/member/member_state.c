/*
 * Owns a donor's side of the transfer of state: the hashes of its own state, the signed answer to
 * who asks for them, and the chunks on their way out. Its one idea: nothing is kept but hashes; a
 * chunk is read from the work (or from what member_lease.c kept) when the link has room, and only
 * while it is what the asker was told. It refuses to stand in the way of a round: chunks go when no
 * part or result waits.
 */
#include "gossip/member/node_inner.h"

#include "atom/base/clock.h"
#include "atom/base/mem.h"

#include <string.h>

enum { HASH_CHUNKS = 2 };                        /* per turn: about a millisecond */
enum { HOLD_VERSIONS = GSP_REPLAY_MAX / 2 };     /* that who fetches may be behind */
static const uint64_t HOLD_NS = 5000000000u;     /* after its last question */
static const uint64_t ASK_PAUSE_NS = 100000000u; /* between two answers to one peer */

bool gsp_node_has_state(const gsp_node *d)
{
    for (uint32_t f = 0; f < d->config.n_fragments; f++)
        if (d->config.work.n_state[f])
            return true;
    return false;
}

void gsp_state_changed(gsp_node *d, uint64_t version)
{
    gsp_shelf *s = &d->shelf[version % d->config.n_fragments];
    s->next = 0;
    s->whole = false;
}

void gsp_state_changed_all(gsp_node *d)
{
    for (uint32_t f = 0; f < d->config.n_fragments; f++)
        gsp_state_changed(d, f);
}

static atom_status read_chunk(gsp_node *d, uint32_t f, uint32_t chunk, uint64_t *n)
{
    const gsp_work *work = &d->config.work;
    *n = gsp_chunk_floats(work->n_state[f], chunk);
    return work->state_read(work->context, f, (uint64_t)chunk * GSP_CHUNK_FLOATS, *n, d->chunk);
}

/* What is applied now is in the middle of becoming something else. */
static bool in_flux(const gsp_node *d, uint32_t f)
{
    return d->applying && d->agree.certified % d->config.n_fragments == f;
}

/* ---- roots ---- */

void gsp_state_asked(gsp_friend *from)
{
    from->wants_roots = true;
}

/* Hashes up to *left chunks of a fragment. */
static atom_status hash_some(gsp_node *d, uint32_t f, uint32_t *left)
{
    gsp_shelf *s = &d->shelf[f];
    uint32_t n = (uint32_t)gsp_chunks(d->config.work.n_state[f]);
    atom_status st = ATOM_OK;
    if (!s->tree.node)
        st = gsp_tree_open(&s->tree, n);
    for (; st == ATOM_OK && s->next<n && * left> 0; --*left) {
        uint64_t floats;
        st = read_chunk(d, f, s->next, &floats);
        if (st == ATOM_OK)
            gsp_merkle_leaf(s->next, d->chunk, floats * sizeof(float), &s->tree.node[s->next]);
        s->next++;
    }
    if (st != ATOM_OK || s->next < n)
        return st;
    gsp_tree_build(&s->tree);
    s->whole = true;
    return ATOM_OK;
}

static void say_roots(gsp_node *d, gsp_friend *to)
{
    gsp_message *m = &d->scratch_message;
    gsp_state_roots *r = &m->as.roots;
    memset(m, 0, gsp_message_bytes(GSP_STATE_ROOTS));
    m->kind = GSP_STATE_ROOTS;
    m->from = d->agree.self;
    m->lineage = d->agree.lineage;
    r->genesis = d->saved.genesis;
    r->has_certificate = d->saved.has_certificate;
    if (r->has_certificate)
        r->certificate = d->saved.certificate;
    r->n_fragments = d->config.n_fragments;
    for (uint32_t f = 0; f < r->n_fragments; f++) {
        r->fragment[f].version = gsp_state_version(d->agree.applied, f, r->n_fragments);
        r->fragment[f].n_floats = d->config.work.n_state[f];
        r->fragment[f].root = gsp_tree_root(&d->shelf[f].tree);
    }
    gsp_roots_seal(r, &d->seals, &m->from, d->config.identity);
    gsp_node_tell(d, to, m);
}

static bool somebody_asks(gsp_node *d)
{
    uint64_t now = atom_clock_ns();
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++) {
        const gsp_friend *f = &d->friends[i];
        if (f->up && f->wants_roots && now - f->roots_ns >= ASK_PAUSE_NS)
            return true;
    }
    return false;
}

bool gsp_state_work(gsp_node *d)
{
    uint32_t left = HASH_CHUNKS;
    gsp_lease_tick(d);
    /* Who fetches a state knows that its own is not the pool's, and is no witness. */
    if (gsp_hash_none(&d->agree.lineage) || d->applying || d->fetch || !somebody_asks(d))
        return false;
    for (uint32_t f = 0; f < d->config.n_fragments && left; f++) {
        atom_status st = d->shelf[f].whole ? ATOM_OK : hash_some(d, f, &left);
        if (st != ATOM_OK) {
            gsp_node_die(d, st);
            return false;
        }
    }
    for (uint32_t f = 0; f < d->config.n_fragments; f++)
        if (!d->shelf[f].whole)
            return true;
    uint64_t now = atom_clock_ns();
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++) {
        gsp_friend *f = &d->friends[i];
        if (!f->up || !f->wants_roots || now - f->roots_ns < ASK_PAUSE_NS)
            continue;
        f->wants_roots = false;
        f->roots_ns = now;
        say_roots(d, f);
    }
    return false;
}

/* ---- chunks ---- */

/* The tree of a fragment's state with this root, as it is or as it was; NULL: it is not here. */
static const gsp_tree *find(const gsp_node *d, uint32_t f, const gsp_hash *root)
{
    if (d->shelf[f].whole && !in_flux(d, f)) {
        gsp_hash mine = gsp_tree_root(&d->shelf[f].tree);
        if (gsp_hash_equal(&mine, root))
            return &d->shelf[f].tree;
    }
    return gsp_lease_find(d, f, root);
}

static void say_none(gsp_node *d, gsp_friend *to, const gsp_wanted *w)
{
    gsp_message *m = &d->scratch_message;
    memset(m, 0, gsp_message_bytes(GSP_STATE_NONE));
    m->kind = GSP_STATE_NONE;
    m->from = d->agree.self;
    m->lineage = d->agree.lineage;
    m->as.state_pull = (gsp_state_pull){
        .fragment = w->fragment, .version = w->version, .root = w->root, .first = w->chunk, .n = 1};
    gsp_node_tell(d, to, m);
}

void gsp_state_pulled(gsp_node *d, gsp_friend *from, const gsp_message *m)
{
    const gsp_state_pull *p = &m->as.state_pull;
    if (p->n == 0 || p->n > GSP_STATE_PULL_MAX || p->fragment >= d->config.n_fragments ||
        p->first >= gsp_chunks(d->config.work.n_state[p->fragment])) {
        d->status.refused++;
        return;
    }
    from->fetch_version = m->version;
    from->fetch_ns = atom_clock_ns();
    if (!from->wanted)
        from->wanted = atom_alloc(MEMBER_STATE_MAX, sizeof *from->wanted);
    for (uint32_t k = 0; from->wanted && k < p->n && from->n_wanted < MEMBER_STATE_MAX; k++) {
        uint32_t at = (from->first_wanted + from->n_wanted++) % MEMBER_STATE_MAX;
        from->wanted[at] = (gsp_wanted){
            .fragment = p->fragment, .chunk = p->first + k, .version = p->version, .root = p->root};
    }
}

/* It is as far as I am: what it fetched once it has. */
static bool caught_up(const gsp_agree *a, const gsp_key *key)
{
    for (uint32_t i = 0; i < GSP_PEERS_KNOWN_MAX; i++)
        if (a->peer[i].known && gsp_key_compare(&a->peer[i].who.key, key) == 0)
            return a->peer[i].applied + 1 >= a->certified;
    return false;
}

/* A pool that goes faster than its state travels would never be joined. Training goes on meanwhile,
 * only the averaging waits, and never longer than a quarter of T. */
bool gsp_state_holds(const gsp_node *d)
{
    const gsp_agree *a = &d->agree;
    uint64_t now = atom_clock_ns();
    if (gsp_node_now(d) - a->certified_ns > a->rules.time_due_ns / 4)
        return false;
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++) {
        const gsp_friend *f = &d->friends[i];
        if (f->up && f->fetch_ns && now - f->fetch_ns < HOLD_NS &&
            a->certified >= f->fetch_version + HOLD_VERSIONS &&
            a->certified < f->fetch_version + 4 * GSP_REPLAY_MAX && !caught_up(a, &f->key))
            return true;
    }
    return false;
}

static void wanted_pop(gsp_friend *f)
{
    f->first_wanted = (f->first_wanted + 1) % MEMBER_STATE_MAX;
    f->n_wanted--;
}

bool gsp_state_send(gsp_node *d, gsp_friend *to)
{
    if (!to->up || to->n_wanted == 0 || to->busy[GSP_NET_BULK])
        return false;
    gsp_wanted w = to->wanted[to->first_wanted];
    uint64_t n = gsp_chunk_floats(d->config.work.n_state[w.fragment], w.chunk);
    const gsp_tree *tree = find(d, w.fragment, &w.root);
    if (!tree && in_flux(d, w.fragment))
        return false; /* it will be another in a moment, or kept as it was */
    bool kept = tree && tree != &d->shelf[w.fragment].tree;
    if (!tree || (kept && !gsp_lease_read(d, w.fragment, w.chunk, n))) {
        wanted_pop(to);
        say_none(d, to, &w);
        return true;
    }
    atom_status st = kept ? ATOM_OK : read_chunk(d, w.fragment, w.chunk, &n);
    if (st != ATOM_OK) {
        gsp_node_die(d, st);
        return false;
    }
    gsp_message *m = &d->scratch_message;
    memset(m, 0, gsp_message_bytes(GSP_STATE_CHUNK));
    m->kind = GSP_STATE_CHUNK;
    m->from = d->agree.self;
    m->lineage = d->agree.lineage;
    gsp_state_chunk *c = &m->as.chunk;
    *c = (gsp_state_chunk){.fragment = w.fragment,
                           .version = w.version,
                           .root = w.root,
                           .chunk = w.chunk,
                           .bytes = (uint32_t)(n * sizeof(float))};
    c->n_path = gsp_tree_path(tree, w.chunk, c->path);
    size_t head = gsp_wire_encode(m, d->scratch_wire, sizeof d->scratch_wire);
    gsp_net_sent sent = gsp_net_send(d->config.net, to->key.byte, GSP_NET_BULK, d->scratch_wire,
                                     head, d->chunk, c->bytes);
    if (sent == GSP_NET_BUSY) {
        to->busy[GSP_NET_BULK] = true;
        return false;
    }
    wanted_pop(to);
    d->state_ns = atom_clock_ns();
    d->status.state_sent_bytes += c->bytes;
    d->status.state_kept_bytes += kept ? c->bytes : 0;
    return sent == GSP_NET_SENT;
}

void gsp_state_close(gsp_node *d)
{
    for (uint32_t f = 0; f < GSP_FRAGMENTS_MAX; f++)
        gsp_tree_close(&d->shelf[f].tree);
    gsp_lease_drop_all(d);
    atom_free(d->chunk);
}
