/*
 * Owns a joiner's side of the transfer of state: it asks everybody it has a link to, chooses what
 * to believe (transfer.h), pulls chunks from all donors at once, and hands the whole to the work.
 * Its one idea: a chunk is known by its fragment's root, so it does not matter who sends it, when,
 * or whether this process began the transfer. It refuses chunks that do not prove themselves, and
 * their senders from then on.
 */
#include "gossip/member/node_inner.h"

#include "atom/base/clock.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"
#include "atom/base/size.h"

#include <stdio.h>
#include <string.h>

enum {
    WINDOW_MIN = 2,
    WINDOW_MAX = GSP_STATE_PULL_MAX, /* chunks asked of one donor */
    RECHECK_CHUNKS = 8,              /* of a former run, per turn */
    FEED_CHUNKS = 8,                 /* to the work, per turn */
    BEHIND_MAX = GSP_REPLAY_MAX - 2, /* versions that the others may be ahead when it is adopted */
};
static const uint64_t SECOND = 1000000000u;
static const uint64_t ASK_NS = 250000000u;        /* between two questions to one peer */
static const uint64_t AGAIN_NS = 5000000000u;     /* if it was behind */
static const uint64_t HEAR_NS = 2000000000u;      /* for others to answer, from the first on */
static const uint64_t SLOW_NS = 8000000000u;      /* without a chunk: others get its work */
static const uint64_t GIVE_UP_NS = 120000000000u; /* without any news */

typedef struct asked {
    uint32_t fragment, chunk;
} asked;

typedef struct donor {
    bool known, barred; /* barred: it lied */
    gsp_key key;
    gsp_witness *witness; /* NULL: has not answered */
    uint64_t asked_ns, chunk_ns;
    uint64_t lacks; /* bits of fragments that it does not have (any more) */
    uint32_t n, window;
    asked out[WINDOW_MAX];
    uint64_t rate; /* bytes per second, of late */
    uint64_t rate_ns, rate_bytes;
} donor;

struct gsp_fetch {
    gsp_hash lineage;  /* zero: any */
    uint64_t news_ns;  /* when something new came */
    uint64_t first_ns; /* when somebody first answered */
    bool stale;        /* the plan is to be made anew */
    bool heard;        /* something that a plan depends on */
    donor donor[GSP_NET_PEERS_MAX];
    gsp_plan plan;
    gsp_stage *stage[GSP_FRAGMENTS_MAX];
    uint8_t *asked[GSP_FRAGMENTS_MAX]; /* bits of chunks that somebody was asked for */
    uint32_t cursor[GSP_FRAGMENTS_MAX];
    bool feeding;
    uint32_t feed_fragment, feed_chunk;
    float *buffer;
};

/* ---- donors ---- */

static donor *donor_of(gsp_fetch *x, const gsp_key *key, bool add)
{
    donor *place = NULL;
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++) {
        donor *o = &x->donor[i];
        if (o->known && gsp_key_compare(&o->key, key) == 0)
            return o;
        if (!o->known && !place)
            place = o;
    }
    if (!add || !place)
        return NULL;
    *place = (donor){.known = true, .key = *key, .window = WINDOW_MIN * 2};
    return place;
}

static void bit_set(uint8_t *bits, uint32_t k, bool on)
{
    bits[k / 8] = (uint8_t)((bits[k / 8] & ~(1u << (k % 8))) | (on ? 1u << (k % 8) : 0u));
}

static bool bit_get(const uint8_t *bits, uint32_t k)
{
    return bits[k / 8] >> (k % 8) & 1;
}

/* What the donor was asked for may be asked of others. */
static void release(gsp_fetch *x, donor *o)
{
    for (uint32_t k = 0; k < o->n; k++) {
        uint32_t f = o->out[k].fragment;
        if (x->asked[f] && o->out[k].chunk < gsp_stage_n(x->stage[f])) {
            bit_set(x->asked[f], o->out[k].chunk, false);
            if (o->out[k].chunk < x->cursor[f])
                x->cursor[f] = o->out[k].chunk;
        }
    }
    o->n = 0;
}

/* Takes one question off the donor's list; false: it was not on it. */
static bool answered(donor *o, uint32_t fragment, uint32_t chunk)
{
    for (uint32_t k = 0; k < o->n; k++)
        if (o->out[k].fragment == fragment && o->out[k].chunk == chunk) {
            o->out[k] = o->out[--o->n];
            return true;
        }
    return false;
}

static void forget_donor(gsp_fetch *x, donor *o)
{
    release(x, o);
    atom_free(o->witness);
    o->witness = NULL;
    x->heard = true;
}

static void liar(gsp_node *d, donor *o, const char *what)
{
    atom_log(ATOM_LOG_WARN, "a donor of the state sent %s; it is not asked again", what);
    d->status.state_wrong++;
    forget_donor(d->fetch, o);
    o->barred = true;
}

void gsp_fetch_down(gsp_node *d, const gsp_key *key)
{
    donor *o = d->fetch ? donor_of(d->fetch, key, false) : NULL;
    if (!o)
        return;
    forget_donor(d->fetch, o);
    o->known = o->barred; /* a liar stays one */
}

/* ---- the plan ---- */

static void drop_stage(gsp_fetch *x, uint32_t f)
{
    gsp_stage_close(&x->stage[f]);
    atom_free(x->asked[f]);
    x->asked[f] = NULL;
}

static atom_status open_stage(gsp_node *d, uint32_t f)
{
    gsp_fetch *x = d->fetch;
    atom_status st = ATOM_OK;
    const gsp_hash *root = &x->plan.fragment[f].root;
    uint64_t version = x->plan.fragment[f].version;
    if (x->stage[f] && gsp_stage_is(x->stage[f], version, root))
        return ATOM_OK;
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++) {
        donor *o = &x->donor[i];
        for (uint32_t k = o->n; k-- > 0;)
            if (o->out[k].fragment == f)
                o->out[k] = o->out[--o->n];
    }
    drop_stage(x, f);
    ATOM_TRY(gsp_stage_open(d->config.directory, f, version, root, d->config.work.n_state[f],
                            &x->stage[f]));
    x->asked[f] = atom_alloc(gsp_stage_n(x->stage[f]) / 8 + 1, 1);
    x->cursor[f] = 0;
    if (!x->asked[f])
        st = atom_fail_memory("a state on its way in", gsp_stage_n(x->stage[f]));
    return st;
}

/* It says in its heartbeats that it has no state yet either. */
static bool has_nothing(const gsp_node *d, const gsp_key *key)
{
    for (uint32_t i = 0; i < GSP_PEERS_KNOWN_MAX; i++) {
        const gsp_peer *p = &d->agree.peer[i];
        if (p->known && p->sequence && gsp_key_compare(&p->who.key, key) == 0)
            return gsp_hash_none(&p->lineage);
    }
    return false;
}

static bool all_answered(const gsp_node *d, const gsp_fetch *x)
{
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++) {
        const gsp_friend *f = &d->friends[i];
        bool here = !f->up || has_nothing(d, &f->key);
        for (uint32_t k = 0; k < GSP_NET_PEERS_MAX && !here; k++)
            here = x->donor[k].known && gsp_key_compare(&x->donor[k].key, &f->key) == 0 &&
                   (x->donor[k].witness || x->donor[k].barred);
        if (!here)
            return false;
    }
    return true;
}

static void make_plan(gsp_node *d)
{
    gsp_fetch *x = d->fetch;
    gsp_witness *witness[GSP_NET_PEERS_MAX];
    static const gsp_hash none;
    if (!x->heard || !x->first_ns ||
        (!all_answered(d, x) && atom_clock_ns() - x->first_ns < HEAR_NS))
        return;
    gsp_plan *plan = atom_alloc(1, sizeof *plan);
    if (!plan)
        return;
    x->heard = false;
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++)
        witness[i] = x->donor[i].known ? x->donor[i].witness : NULL;
    gsp_plan_choose(plan, &d->seals, witness, GSP_NET_PEERS_MAX,
                    gsp_hash_none(&d->agree.lineage) ? &none : &x->lineage, d->config.work.n_state,
                    d->config.n_fragments);
    if (plan->found && (!x->plan.found || plan->version >= x->plan.version ||
                        !gsp_hash_equal(&plan->lineage, &x->plan.lineage))) {
        x->plan = *plan;
        x->stale = false;
        x->news_ns = atom_clock_ns();
        for (uint32_t f = 0; f < d->config.n_fragments && d->dead == ATOM_OK; f++) {
            atom_status st = open_stage(d, f);
            if (st != ATOM_OK)
                gsp_node_die(d, st);
        }
    } else if (!x->plan.found) {
        x->plan.signers = plan->signers;
        x->plan.answers = plan->answers;
    }
    atom_free(plan);
}

/* The newest version that a peer of the lineage says to have certified. */
static uint64_t newest_of(const gsp_node *d)
{
    uint64_t newest = 0;
    for (uint32_t i = 0; i < GSP_PEERS_KNOWN_MAX; i++) {
        const gsp_peer *p = &d->agree.peer[i];
        if (p->known && p->up && gsp_hash_equal(&p->lineage, &d->fetch->plan.lineage) &&
            p->certified > newest)
            newest = p->certified;
    }
    return newest;
}

static void ask(gsp_node *d)
{
    gsp_fetch *x = d->fetch;
    uint64_t now = atom_clock_ns();
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++) {
        gsp_friend *f = &d->friends[i];
        donor *o = f->up ? donor_of(x, &f->key, true) : NULL;
        if (!o || o->barred || (o->asked_ns && now - o->asked_ns < ASK_NS))
            continue;
        bool behind = o->witness && o->witness->newest.has_certificate &&
                      o->witness->newest.certificate.proposal.version < x->plan.version;
        if (o->witness && x->plan.found && !x->stale && !(behind && now - o->asked_ns > AGAIN_NS))
            continue;
        o->asked_ns = now;
        gsp_message *m = &d->scratch_message;
        memset(m, 0, gsp_message_bytes(GSP_STATE_ASK));
        m->kind = GSP_STATE_ASK;
        m->from = d->agree.self;
        m->lineage = x->lineage;
        gsp_node_tell(d, f, m);
    }
}

/* ---- asking for chunks ---- */

/* It said once that it has it, and did not deny it since. */
static bool can_give(const gsp_fetch *x, const donor *o, uint32_t f)
{
    const gsp_hash *root = gsp_witness_said(o->witness, f, x->plan.fragment[f].version);
    return root && !(o->lacks >> f & 1) && gsp_hash_equal(&o->witness->lineage, &x->plan.lineage) &&
           gsp_hash_equal(root, &x->plan.fragment[f].root);
}

/* The next chunk that nobody was asked for; false: none. */
static bool next_chunk(gsp_fetch *x, uint32_t f, uint32_t *chunk)
{
    uint32_t n = gsp_stage_n(x->stage[f]);
    while (x->cursor[f] < n &&
           (gsp_stage_has(x->stage[f], x->cursor[f]) || bit_get(x->asked[f], x->cursor[f])))
        x->cursor[f]++;
    *chunk = x->cursor[f];
    return x->cursor[f] < n;
}

/* The fragment to ask this donor for: the one that stays as it is for longest; GSP_FRAGMENTS_MAX:
 * none. */
static uint32_t pick_fragment(gsp_node *d, const donor *o, uint32_t *chunk)
{
    gsp_fetch *x = d->fetch;
    uint32_t best = GSP_FRAGMENTS_MAX, at;
    for (uint32_t f = 0; f < d->config.n_fragments; f++)
        if (x->stage[f] && gsp_stage_recheck(x->stage[f], 0) && can_give(x, o, f) &&
            (best == GSP_FRAGMENTS_MAX ||
             x->plan.fragment[f].version > x->plan.fragment[best].version) &&
            next_chunk(x, f, &at)) {
            best = f;
            *chunk = at;
        }
    return best;
}

static void pull_one(gsp_node *d, gsp_friend *to, donor *o, uint32_t f, uint32_t chunk)
{
    gsp_fetch *x = d->fetch;
    gsp_message *m = &d->scratch_message;
    memset(m, 0, gsp_message_bytes(GSP_STATE_PULL));
    m->kind = GSP_STATE_PULL;
    m->from = d->agree.self;
    m->lineage = x->plan.lineage;
    m->version = x->plan.version;
    m->as.state_pull = (gsp_state_pull){.fragment = f,
                                        .version = x->plan.fragment[f].version,
                                        .root = x->plan.fragment[f].root,
                                        .first = chunk,
                                        .n = 1};
    gsp_node_tell(d, to, m);
    if (o->n == 0)
        o->chunk_ns = o->rate_ns = atom_clock_ns();
    o->out[o->n++] = (asked){f, chunk};
    bit_set(x->asked[f], chunk, true);
}

static void pull(gsp_node *d)
{
    gsp_fetch *x = d->fetch;
    uint64_t now = atom_clock_ns();
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++) {
        donor *o = &x->donor[i];
        gsp_friend *f = o->known && o->witness ? gsp_friend_find(d, &o->key) : NULL;
        if (!f)
            continue;
        if (o->n && now - o->chunk_ns > SLOW_NS) {
            release(x, o);
            o->window = WINDOW_MIN;
            o->chunk_ns = now;
        }
        uint32_t chunk = 0, fragment;
        while (o->n < o->window && (fragment = pick_fragment(d, o, &chunk)) != GSP_FRAGMENTS_MAX)
            pull_one(d, f, o, fragment, chunk);
    }
}

/* Nobody has a fragment as the plan wants it: the pool has moved on. */
static bool out_of_reach(gsp_node *d)
{
    gsp_fetch *x = d->fetch;
    for (uint32_t f = 0; f < d->config.n_fragments; f++) {
        bool somebody = gsp_stage_here(x->stage[f]) == gsp_stage_n(x->stage[f]);
        for (uint32_t i = 0; i < GSP_NET_PEERS_MAX && !somebody; i++)
            somebody = x->donor[i].known && x->donor[i].witness && can_give(x, &x->donor[i], f);
        if (!somebody)
            return true;
    }
    return false;
}

/* ---- what comes ---- */

/* Of my pool: its first lineage, or one that its founder signed, and the owner where it is a reset
 * or a fork of one. */
static bool of_my_pool(const gsp_node *d, const gsp_genesis *genesis)
{
    gsp_hash id, first;
    gsp_genesis_hash(&d->seals, genesis, &id);
    gsp_genesis_hash(&d->seals, &d->config.genesis, &first);
    if (gsp_hash_equal(&id, &first))
        return true;
    return gsp_hash_equal(&genesis->pool, &d->config.genesis.pool) && genesis->generation != 0 &&
           !gsp_genesis_wrong(&d->seals, &d->config.rules.owner, genesis);
}

static void heard_roots(gsp_node *d, donor *o, const gsp_message *m)
{
    gsp_fetch *x = d->fetch;
    if (!of_my_pool(d, &m->as.roots.genesis)) {
        liar(d, o, "the state of another pool");
        return;
    }
    if (!gsp_roots_check(&m->as.roots, &d->seals, &m->from)) {
        liar(d, o, "roots that it did not sign");
        return;
    }
    if (!o->witness)
        o->witness = atom_alloc(1, sizeof *o->witness);
    if (!o->witness)
        return;
    gsp_witness_hear(o->witness, &d->seals, &m->from, &m->as.roots);
    o->lacks = 0;
    x->heard = true;
    if (!x->first_ns)
        x->first_ns = atom_clock_ns();
    make_plan(d);
}

/* Chunks per second decide how many are asked for at once: about half a second's worth. */
static void learn_rate(donor *o, uint64_t bytes)
{
    uint64_t now = atom_clock_ns(), passed = now - o->rate_ns;
    o->chunk_ns = now;
    o->rate_bytes += bytes;
    if (passed < SECOND / 4)
        return;
    uint64_t rate = (uint64_t)((double)o->rate_bytes * 1e9 / (double)passed);
    o->rate = o->rate ? (o->rate + rate) / 2 : rate;
    o->rate_ns = now;
    o->rate_bytes = 0;
    uint64_t window = o->rate / 2 / GSP_CHUNK_BYTES + WINDOW_MIN;
    o->window = window < WINDOW_MAX ? (uint32_t)window : WINDOW_MAX;
}

static void heard_chunk(gsp_node *d, donor *o, const gsp_message *m, const void *body)
{
    gsp_fetch *x = d->fetch;
    const gsp_state_chunk *c = &m->as.chunk;
    uint32_t f = c->fragment;
    gsp_hash leaf;
    if (f >= d->config.n_fragments || !x->stage[f] || c->chunk >= gsp_stage_n(x->stage[f]) ||
        c->bytes != gsp_chunk_floats(d->config.work.n_state[f], c->chunk) * (uint32_t)sizeof(float))
        return;                     /* of a plan that is over, or nonsense: nobody waits for it */
    (void)answered(o, f, c->chunk); /* where it is not on the list: late, and still good */
    if (!gsp_stage_is(x->stage[f], c->version, &c->root))
        return;
    learn_rate(o, c->bytes);
    if (gsp_stage_has(x->stage[f], c->chunk)) {
        d->status.repeated_bytes += c->bytes;
        return;
    }
    gsp_merkle_leaf(c->chunk, body, c->bytes, &leaf);
    if (!gsp_tree_check(&c->root, gsp_stage_n(x->stage[f]), c->chunk, &leaf, c->path, c->n_path)) {
        bit_set(x->asked[f], c->chunk, false);
        x->cursor[f] = c->chunk < x->cursor[f] ? c->chunk : x->cursor[f];
        liar(d, o, "bytes that are not what was asked for");
        return;
    }
    atom_status st = gsp_stage_put(x->stage[f], c->chunk, &leaf, body);
    if (st != ATOM_OK)
        gsp_node_die(d, st);
    x->news_ns = atom_clock_ns();
}

static void heard_none(gsp_node *d, donor *o, const gsp_message *m)
{
    gsp_fetch *x = d->fetch;
    const gsp_state_pull *p = &m->as.state_pull;
    uint32_t f = p->fragment;
    if (f >= d->config.n_fragments || !x->stage[f] || !answered(o, f, p->first))
        return;
    if (!gsp_stage_is(x->stage[f], p->version, &p->root))
        return;
    bit_set(x->asked[f], p->first, false);
    x->cursor[f] = p->first < x->cursor[f] ? p->first : x->cursor[f];
    o->lacks |= 1ull << f;
}

void gsp_fetch_heard(gsp_node *d, gsp_friend *from, const gsp_message *m, const void *body)
{
    donor *o = d->fetch ? donor_of(d->fetch, &from->key, true) : NULL;
    if (!o || o->barred || (m->kind != GSP_STATE_ROOTS && !d->fetch->plan.found))
        return;
    if (m->kind == GSP_STATE_ROOTS)
        heard_roots(d, o, m);
    else if (m->kind == GSP_STATE_CHUNK)
        heard_chunk(d, o, m, body);
    else
        heard_none(d, o, m);
}

/* ---- the end ---- */

void gsp_fetch_close(gsp_node *d)
{
    gsp_fetch *x = d->fetch;
    d->fetch = NULL;
    d->status.state_bytes = d->status.state_all_bytes = 0;
    if (!x)
        return;
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++)
        atom_free(x->donor[i].witness);
    for (uint32_t f = 0; f < GSP_FRAGMENTS_MAX; f++)
        drop_stage(x, f);
    atom_free(x->buffer);
    atom_free(x);
}

/* The machine hears that it came to nothing, and may ask again. */
static void give_up(gsp_node *d)
{
    gsp_event event = {.kind = GSP_ON_STATE};
    gsp_fetch_close(d);
    gsp_node_step(d, &event);
}

/* Everything is with the work: the machine takes it over, then it becomes durable, before anything
 * else is done (agree.h). */
static void adopt(gsp_node *d)
{
    gsp_fetch *x = d->fetch;
    atom_status st = ATOM_OK;
    gsp_hash before = d->agree.lineage;
    uint64_t applied = d->agree.applied;
    gsp_saved *kept = atom_alloc(1, sizeof *kept);
    if (!kept) {
        gsp_node_die(d, atom_fail_memory("a saved state", sizeof *kept));
        return;
    }
    *kept = x->plan.saved;
    gsp_event event = {.kind = GSP_ON_STATE, .saved = kept};
    d->adopting = true;
    gsp_node_step(d, &event);
    d->adopting = false;
    bool taken = !gsp_hash_equal(&before, &d->agree.lineage) || applied != d->agree.applied;
    if (taken && d->config.work.state_adopt)
        st = d->config.work.state_adopt(d->config.work.context, kept);
    if (taken && st == ATOM_OK) {
        d->saved = *kept;
        d->saved.record = d->agree.record;
        st = gsp_votes_state(d->votes, &d->saved, d->agree.self.incarnation);
        gsp_node_forget_work(d);
        gsp_state_changed_all(d);
        d->status.state_fetched++;
    }
    atom_free(kept);
    if (st != ATOM_OK)
        gsp_node_die(d, st);
    gsp_fetch_close(d);
    if (st == ATOM_OK)
        gsp_stage_remove_all(d->config.directory);
}

/* Hands chunks to the work; true: all were. */
static bool feed(gsp_node *d)
{
    gsp_fetch *x = d->fetch;
    const gsp_work *work = &d->config.work;
    for (uint32_t left = FEED_CHUNKS; x->feed_fragment < d->config.n_fragments; x->feed_chunk++) {
        uint32_t f = x->feed_fragment, k = x->feed_chunk;
        if (k >= gsp_stage_n(x->stage[f])) {
            x->feed_fragment++;
            x->feed_chunk = UINT32_MAX; /* 0 with the next step */
            continue;
        }
        if (left-- == 0)
            return false;
        if (!gsp_stage_read(x->stage[f], k, x->buffer)) { /* the disk lost it */
            bit_set(x->asked[f], k, false);
            x->cursor[f] = 0;
            x->feeding = false;
            return false;
        }
        atom_status st = work->state_write(work->context, f, x->plan.fragment[f].version,
                                           (uint64_t)k * GSP_CHUNK_FLOATS,
                                           gsp_chunk_floats(work->n_state[f], k), x->buffer);
        if (st != ATOM_OK) {
            gsp_node_die(d, st);
            return false;
        }
    }
    return true;
}

/* True: every chunk of the plan is here. */
static bool complete(gsp_node *d)
{
    gsp_fetch *x = d->fetch;
    for (uint32_t f = 0; f < d->config.n_fragments; f++)
        if (!gsp_stage_recheck(x->stage[f], 0) ||
            gsp_stage_here(x->stage[f]) < gsp_stage_n(x->stage[f]))
            return false;
    return true;
}

static void count(gsp_node *d)
{
    gsp_fetch *x = d->fetch;
    d->status.state_bytes = d->status.state_all_bytes = 0;
    for (uint32_t f = 0; f < d->config.n_fragments; f++) {
        uint64_t all = d->config.work.n_state[f] * sizeof(float);
        uint64_t here = (uint64_t)gsp_stage_here(x->stage[f]) * GSP_CHUNK_BYTES;
        d->status.state_all_bytes += all;
        d->status.state_bytes += here < all ? here : all;
    }
}

/* Goes from question to question until everything is here and fresh enough; true: more to do. */
static bool fetch_some(gsp_node *d)
{
    gsp_fetch *x = d->fetch;
    bool recheck = false, full = false;
    ask(d);
    if (!x->plan.found || x->stale)
        make_plan(d);
    if (!x->plan.found || d->dead != ATOM_OK)
        return false;
    for (uint32_t f = 0; f < d->config.n_fragments && !recheck; f++)
        recheck = !gsp_stage_recheck(x->stage[f], RECHECK_CHUNKS);
    count(d);
    full = complete(d);
    if (!full)
        pull(d);
    /* Too old when it is whole: only what moved on is fetched again. */
    x->stale = full ? newest_of(d) > x->plan.version + BEHIND_MAX : out_of_reach(d);
    if (full && !x->stale && !d->applying) {
        x->feeding = true;
        x->feed_fragment = x->feed_chunk = 0;
    }
    return recheck || x->feeding;
}

void gsp_fetch_want(gsp_node *d, const gsp_key *peer, const gsp_hash *lineage)
{
    (void)peer; /* everybody is asked */
    if (d->fetch)
        return;
    gsp_fetch *x = atom_alloc(1, sizeof *x);
    if (!x)
        return;
    x->buffer = atom_alloc(GSP_CHUNK_FLOATS, sizeof(float));
    if (!x->buffer) {
        atom_free(x);
        return;
    }
    x->lineage = *lineage;
    x->news_ns = atom_clock_ns();
    d->fetch = x;
}

bool gsp_fetch_work(gsp_node *d)
{
    gsp_fetch *x = d->fetch;
    if (!x)
        return false;
    if (atom_clock_ns() - x->news_ns > GIVE_UP_NS ||
        (gsp_hash_equal(&d->agree.lineage, &x->plan.lineage) && x->plan.found &&
         d->agree.applied >= x->plan.version && !x->feeding)) {
        give_up(d);
        return false;
    }
    if (!x->feeding)
        return fetch_some(d);
    if (feed(d) && d->dead == ATOM_OK && !d->applying)
        adopt(d);
    return d->fetch != NULL && d->fetch->feeding;
}

const char *gsp_fetch_explain(const gsp_node *d, char *text, size_t bytes)
{
    const gsp_fetch *x = d->fetch;
    char all[24];
    uint64_t total = d->status.state_all_bytes;
    if (!x->plan.found)
        snprintf(text, bytes, "asking for the pool's state: %u of %u agree on it", x->plan.signers,
                 x->plan.answers);
    else
        snprintf(text, bytes, "downloading the state of version %llu: %u %% of %s",
                 (unsigned long long)x->plan.version,
                 total ? (unsigned)(d->status.state_bytes * 100 / total) : 100u,
                 atom_size_text(total, all));
    return text;
}
