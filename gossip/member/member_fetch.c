/*
 * Owns a joiner's side of the transfer of state: it asks everybody it has a link to, chooses what
 * to believe (transfer.h), fetches chunks from all donors at once (swarm.h decides of whom), and
 * hands the whole to the work. Its one idea: a chunk is known by its fragment's root, so it does not
 * matter who sends it, when, or whether this process began the transfer. It refuses chunks that do
 * not prove themselves, and their senders from then on.
 */
#include "gossip/member/node_inner.h"

#include "atom/base/clock.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"
#include "atom/base/size.h"
#include "gossip/swarm/swarm.h"

#include <stdio.h>
#include <string.h>

enum {
    RECHECK_CHUNKS = 8,              /* of a former run, per turn */
    FEED_CHUNKS = 8,                 /* to the work, per turn */
    BEHIND_MAX = GSP_REPLAY_MAX - 2, /* versions that the others may be ahead when it is adopted */
};
static const uint64_t ASK_NS = 250000000u;        /* between two questions to one peer */
static const uint64_t AGAIN_NS = 5000000000u;     /* if it was behind */
static const uint64_t HEAR_NS = 2000000000u;      /* for others to answer, from the first on */
static const uint64_t GIVE_UP_NS = 120000000000u; /* without any news */

struct gsp_fetch {
    gsp_hash lineage;  /* zero: any */
    uint64_t news_ns;  /* when something new came */
    uint64_t first_ns; /* when somebody first answered */
    bool stale;        /* the plan is to be made anew */
    bool heard;        /* something that a plan depends on */
    gsp_swarm *swarm;  /* its sets are the fragments; open: what a former run left was looked at */
    struct {
        gsp_witness *witness;   /* NULL: has not answered, or lied */
        uint64_t asked_ns;      /* for its roots */
    } donor[GSP_NET_PEERS_MAX]; /* by their numbers in the swarm */
    gsp_plan plan;
    gsp_stage *stage[GSP_FRAGMENTS_MAX];
    bool feeding;
    uint32_t feed_fragment, feed_chunk;
    float *buffer;
};

/* ---- donors ---- */

static void forget_witness(gsp_fetch *x, uint32_t donor)
{
    atom_free(x->donor[donor].witness);
    x->donor[donor].witness = NULL;
    x->heard = true;
}

static void liar(gsp_node *d, uint32_t donor, const char *what)
{
    atom_log(ATOM_LOG_WARN, "a donor of the state sent %s; it is not asked again", what);
    d->status.state_wrong++;
    forget_witness(d->fetch, donor);
    gsp_swarm_bar(d->fetch->swarm, donor);
}

void gsp_fetch_down(gsp_node *d, const gsp_key *key)
{
    gsp_fetch *x = d->fetch;
    uint32_t donor = x ? gsp_swarm_find(x->swarm, key->byte) : GSP_SWARM_NOBODY;
    if (donor == GSP_SWARM_NOBODY)
        return;
    forget_witness(x, donor);
    x->donor[donor].asked_ns = 0;
    gsp_swarm_down(x->swarm, donor);
}

/* Of the fragments as the plan wants them, a donor is asked for those that it said to have. */
static void offer(gsp_node *d, uint32_t donor)
{
    const gsp_fetch *x = d->fetch;
    const gsp_plan *plan = &x->plan;
    const gsp_witness *w = x->donor[donor].witness;
    bool same = w && gsp_hash_equal(&w->lineage, &plan->lineage);
    for (uint32_t f = 0; f < d->config.n_fragments; f++) {
        const gsp_hash *root = same ? gsp_witness_said(w, f, plan->fragment[f].version) : NULL;
        gsp_swarm_offer(x->swarm, donor, f, root && gsp_hash_equal(root, &plan->fragment[f].root));
    }
}

/* ---- the plan ---- */

static atom_status open_stage(gsp_node *d, uint32_t f)
{
    gsp_fetch *x = d->fetch;
    const gsp_hash *root = &x->plan.fragment[f].root;
    uint64_t version = x->plan.fragment[f].version;
    if (x->stage[f] && gsp_stage_is(x->stage[f], version, root))
        return ATOM_OK;
    gsp_swarm_end(x->swarm, f);
    gsp_stage_close(&x->stage[f]);
    return gsp_stage_open(d->config.directory, f, version, root, d->config.work.n_state[f],
                          &x->stage[f]);
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
        const gsp_friend *f = &d->friends.friend[i];
        uint32_t donor = gsp_swarm_find(x->swarm, f->key.byte);
        bool here = !f->up || has_nothing(d, &f->key) ||
                    (donor != GSP_SWARM_NOBODY &&
                     (x->donor[donor].witness || gsp_swarm_is_barred(x->swarm, donor)));
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
        witness[i] = x->donor[i].witness;
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
        for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++)
            offer(d, i);
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
        gsp_friend *f = &d->friends.friend[i];
        uint32_t donor = f->up ? gsp_swarm_up(x->swarm, f->key.byte) : GSP_SWARM_NOBODY;
        if (donor == GSP_SWARM_NOBODY || gsp_swarm_is_barred(x->swarm, donor))
            continue;
        const gsp_witness *w = x->donor[donor].witness;
        uint64_t *asked_ns = &x->donor[donor].asked_ns;
        bool behind = w && w->newest.has_certificate &&
                      w->newest.certificate.proposal.version < x->plan.version;
        if ((*asked_ns && now - *asked_ns < ASK_NS) ||
            (w && x->plan.found && !x->stale && !(behind && now - *asked_ns > AGAIN_NS)))
            continue;
        *asked_ns = now;
        gsp_message *m = gsp_friends_draft(&d->friends, GSP_STATE_ASK);
        m->lineage = x->lineage;
        gsp_friends_tell(&d->friends, f, m);
    }
}

/* ---- asking for chunks ---- */

static bool pull(void *context, const gsp_swarm_ask *ask)
{
    gsp_node *d = context;
    gsp_fetch *x = d->fetch;
    gsp_key key;
    memcpy(key.byte, ask->name, sizeof key.byte);
    gsp_friend *to = gsp_friends_find(&d->friends, &key);
    if (!to)
        return false;
    gsp_message *m = gsp_friends_draft(&d->friends, GSP_STATE_PULL);
    m->lineage = x->plan.lineage;
    m->version = x->plan.version;
    m->as.state_pull = (gsp_state_pull){.fragment = ask->set,
                                        .version = x->plan.fragment[ask->set].version,
                                        .root = x->plan.fragment[ask->set].root,
                                        .first = ask->first,
                                        .n = ask->n};
    gsp_friends_tell(&d->friends, to, m);
    return true;
}

/* Looks at some of what a former run left; what is not here may be asked for then. The fragment
 * that stays as it is for longest comes first. True: all of it was looked at. */
static bool recheck(gsp_fetch *x, uint32_t f)
{
    if (!gsp_stage_recheck(x->stage[f], RECHECK_CHUNKS))
        return false;
    if (gsp_swarm_is_open(x->swarm, f))
        return true;
    gsp_swarm_begin(x->swarm, f, x->plan.fragment[f].version);
    for (uint32_t k = 0; k < gsp_stage_n(x->stage[f]); k++)
        gsp_swarm_here(x->swarm, f, k, gsp_stage_has(x->stage[f], k));
    return true;
}

/* Nobody has a fragment as the plan wants it: the pool has moved on. */
static bool out_of_reach(const gsp_node *d)
{
    const gsp_fetch *x = d->fetch;
    for (uint32_t f = 0; f < d->config.n_fragments; f++)
        if (gsp_stage_here(x->stage[f]) < gsp_stage_n(x->stage[f]) &&
            !gsp_swarm_reachable(x->swarm, f))
            return true;
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

static void heard_roots(gsp_node *d, uint32_t donor, const gsp_message *m)
{
    gsp_fetch *x = d->fetch;
    gsp_witness **witness = &x->donor[donor].witness;
    if (!of_my_pool(d, &m->as.roots.genesis)) {
        liar(d, donor, "the state of another pool");
        return;
    }
    if (!gsp_roots_check(&m->as.roots, &d->seals, &m->from)) {
        liar(d, donor, "roots that it did not sign");
        return;
    }
    if (!*witness)
        *witness = atom_alloc(1, sizeof **witness);
    if (!*witness)
        return;
    gsp_witness_hear(*witness, &d->seals, &m->from, &m->as.roots);
    offer(d, donor);
    x->heard = true;
    if (!x->first_ns)
        x->first_ns = atom_clock_ns();
    make_plan(d);
}

static void heard_chunk(gsp_node *d, uint32_t donor, const gsp_message *m, const void *body)
{
    gsp_fetch *x = d->fetch;
    const gsp_state_chunk *c = &m->as.chunk;
    uint64_t now = atom_clock_ns();
    uint32_t f = c->fragment;
    gsp_hash leaf;
    if (f >= d->config.n_fragments || !x->stage[f] || c->chunk >= gsp_stage_n(x->stage[f]) ||
        c->bytes != gsp_chunk_floats(d->config.work.n_state[f], c->chunk) * sizeof(float) ||
        !gsp_stage_is(x->stage[f], c->version, &c->root))
        return; /* of a plan that is over, or nonsense: nobody waits for it */
    if (gsp_stage_has(x->stage[f], c->chunk)) {
        d->status.repeated_bytes += c->bytes;
        gsp_swarm_came(x->swarm, now, donor, f, c->chunk, c->bytes, GSP_SWARM_GOOD);
        return;
    }
    gsp_merkle_leaf(c->chunk, body, c->bytes, &leaf);
    if (!gsp_tree_check(&c->root, gsp_stage_n(x->stage[f]), c->chunk, &leaf, c->path, c->n_path)) {
        gsp_swarm_came(x->swarm, now, donor, f, c->chunk, c->bytes, GSP_SWARM_WRONG);
        liar(d, donor, "bytes that are not what was asked for");
        return;
    }
    atom_status st = gsp_stage_put(x->stage[f], c->chunk, &leaf, body);
    if (st != ATOM_OK)
        gsp_node_die(d, st);
    gsp_swarm_came(x->swarm, now, donor, f, c->chunk, c->bytes, GSP_SWARM_GOOD);
    x->news_ns = now;
}

static void heard_none(gsp_node *d, uint32_t donor, const gsp_message *m)
{
    gsp_fetch *x = d->fetch;
    const gsp_state_pull *p = &m->as.state_pull;
    uint32_t f = p->fragment;
    if (f < d->config.n_fragments && x->stage[f] && p->first < gsp_stage_n(x->stage[f]) &&
        gsp_stage_is(x->stage[f], p->version, &p->root))
        gsp_swarm_came(x->swarm, atom_clock_ns(), donor, f, p->first, 0, GSP_SWARM_DENIED);
}

void gsp_fetch_heard(gsp_node *d, gsp_friend *from, const gsp_message *m, const void *body)
{
    gsp_fetch *x = d->fetch;
    uint32_t donor = x ? gsp_swarm_up(x->swarm, from->key.byte) : GSP_SWARM_NOBODY;
    if (donor == GSP_SWARM_NOBODY || gsp_swarm_is_barred(x->swarm, donor))
        return;
    if (m->kind == GSP_STATE_ROOTS)
        heard_roots(d, donor, m);
    else if (x->plan.found && m->kind == GSP_STATE_CHUNK)
        heard_chunk(d, donor, m, body);
    else if (x->plan.found)
        heard_none(d, donor, m);
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
        gsp_stage_close(&x->stage[f]);
    atom_free(x->swarm);
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
        gsp_donor_changed_all(&d->donor);
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
            gsp_swarm_here(x->swarm, f, k, false);
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
        if (gsp_stage_here(x->stage[f]) < gsp_stage_n(x->stage[f]))
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
    bool all = true;
    ask(d);
    if (!x->plan.found || x->stale)
        make_plan(d);
    if (!x->plan.found || d->dead != ATOM_OK)
        return false;
    for (uint32_t f = 0; f < d->config.n_fragments && all; f++)
        all = recheck(x, f);
    count(d);
    bool full = all && complete(d);
    if (!full)
        gsp_swarm_turn(x->swarm, atom_clock_ns(), pull, d);
    /* Too old when it is whole: only what moved on is fetched again. */
    x->stale = full ? newest_of(d) > x->plan.version + BEHIND_MAX : out_of_reach(d);
    if (full && !x->stale && !d->apply.on) {
        x->feeding = true;
        x->feed_fragment = x->feed_chunk = 0;
    }
    return !all || x->feeding;
}

void gsp_fetch_want(gsp_node *d, const gsp_hash *lineage)
{
    uint32_t n_chunks[GSP_FRAGMENTS_MAX];
    gsp_swarm_config config = {
        .n_donors = GSP_NET_PEERS_MAX,
        .n_sets = d->config.n_fragments,
        .n_pieces = n_chunks,
        .piece_bytes = GSP_CHUNK_BYTES,
        .window_first = 4,
        .window_min = 2,
        .window_max = GSP_STATE_PULL_MAX,
        .run_max = 1,
        .silent_ns = 8000000000u,
    };
    if (d->fetch)
        return;
    for (uint32_t f = 0; f < d->config.n_fragments; f++)
        n_chunks[f] = (uint32_t)gsp_chunks(d->config.work.n_state[f]);
    gsp_fetch *x = atom_alloc(1, sizeof *x);
    float *buffer = atom_alloc(GSP_CHUNK_FLOATS, sizeof *buffer);
    void *memory = atom_alloc(1, gsp_swarm_bytes(&config));
    if (!x || !buffer || !memory) {
        atom_free(x);
        atom_free(buffer);
        atom_free(memory);
        return;
    }
    x->buffer = buffer;
    x->swarm = gsp_swarm_open(&config, memory);
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
    if (feed(d) && d->dead == ATOM_OK && !d->apply.on)
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
