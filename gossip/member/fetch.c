/*
 * Owns the fetching of a state. Its one idea: a chunk is known by its fragment's root, so it does
 * not matter who sends it, when, or whether this process began the transfer. It refuses chunks that
 * do not prove themselves, and their senders from then on.
 */
#include "gossip/member/fetch.h"

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
    gsp_fetch_config use;
    gsp_chain chain;    /* what it leads to is fetched */
    uint64_t news_ns;   /* when something new came */
    uint64_t first_ns;  /* when somebody first answered */
    uint64_t lagged_ns; /* when a longer chain was last wanted */
    bool stale;         /* the plan is to be made anew */
    bool heard;         /* something that a plan depends on */
    gsp_swarm *swarm;   /* its sets are the fragments; open: what a former run left was looked at */
    struct {
        gsp_witness *witness;   /* NULL: has not answered, or lied */
        uint64_t asked_ns;      /* for its roots */
        uint64_t lagged_ns;     /* when its chain was wanted */
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

static void liar(gsp_fetch *x, uint32_t donor, const char *what)
{
    atom_log(ATOM_LOG_WARN, "a member that gave the state sent %s; it is not asked again", what);
    x->use.counts->wrong++;
    forget_witness(x, donor);
    gsp_swarm_bar(x->swarm, donor);
}

void gsp_fetch_down(gsp_fetch *x, const gsp_key *key)
{
    uint32_t donor = gsp_swarm_find(x->swarm, key->byte);
    if (donor == GSP_SWARM_NOBODY)
        return;
    forget_witness(x, donor);
    x->donor[donor].asked_ns = 0;
    gsp_swarm_down(x->swarm, donor);
}

/* Of the fragments as the plan wants them, a donor is asked for those that it said to have. */
static void offer(gsp_fetch *x, uint32_t donor)
{
    const gsp_plan *plan = &x->plan;
    const gsp_witness *w = x->donor[donor].witness;
    bool same = w && gsp_hash_equal(&w->lineage, &plan->lineage);
    for (uint32_t f = 0; f < x->use.n_fragments; f++) {
        const gsp_hash *root = same ? gsp_witness_said(w, f, plan->fragment[f].version) : NULL;
        gsp_swarm_offer(x->swarm, donor, f, root && gsp_hash_equal(root, &plan->fragment[f].root));
    }
}

/* ---- the plan ---- */

static atom_status open_stage(gsp_fetch *x, uint32_t f)
{
    const gsp_hash *root = &x->plan.fragment[f].root;
    uint64_t version = x->plan.fragment[f].version;
    if (x->stage[f] && gsp_stage_is(x->stage[f], version, root))
        return ATOM_OK;
    gsp_swarm_end(x->swarm, f);
    gsp_stage_close(&x->stage[f]);
    return gsp_stage_open(x->use.directory, f, version, root, x->use.work->n_state[f],
                          &x->stage[f]);
}

/* Its heartbeats tell that it has no state yet either. */
static bool has_nothing(const gsp_agree *agree, const gsp_key *key)
{
    for (uint32_t i = 0; i < GSP_PEERS_KNOWN_MAX; i++) {
        const gsp_peer *p = &agree->peer[i];
        if (p->known && p->sequence && gsp_key_compare(&p->who.key, key) == 0)
            return gsp_hash_none(&p->lineage);
    }
    return false;
}

static bool all_answered(const gsp_fetch *x)
{
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++) {
        const gsp_friend *f = &x->use.friends->friend[i];
        uint32_t donor = gsp_swarm_find(x->swarm, f->key.byte);
        bool here = !f->up || has_nothing(x->use.friends->agree, &f->key) ||
                    (donor != GSP_SWARM_NOBODY &&
                     (x->donor[donor].witness || gsp_swarm_is_barred(x->swarm, donor)));
        if (!here)
            return false;
    }
    return true;
}

static atom_status make_plan(gsp_fetch *x)
{
    atom_status st = ATOM_OK;
    gsp_witness *witness[GSP_NET_PEERS_MAX];
    if (!x->heard || !x->first_ns || (!all_answered(x) && atom_clock_ns() - x->first_ns < HEAR_NS))
        return ATOM_OK;
    gsp_plan *plan = atom_alloc(1, sizeof *plan);
    if (!plan)
        return ATOM_OK; /* later */
    x->heard = false;
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++)
        witness[i] = x->donor[i].witness;
    gsp_plan_choose(plan, x->use.terms, &x->chain, witness, GSP_NET_PEERS_MAX, x->use.work->n_state,
                    x->use.n_fragments);
    if (plan->found && (!x->plan.found || plan->version >= x->plan.version ||
                        !gsp_hash_equal(&plan->lineage, &x->plan.lineage))) {
        x->plan = *plan;
        x->stale = false;
        x->news_ns = atom_clock_ns();
        for (uint32_t f = 0; f < x->use.n_fragments && st == ATOM_OK; f++)
            st = open_stage(x, f);
        for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++)
            offer(x, i);
    } else if (!x->plan.found) {
        x->plan.signers = plan->signers;
        x->plan.answers = plan->answers;
    }
    atom_free(plan);
    return st;
}

/* The newest version that a peer of the lineage claims to have certified. */
static uint64_t newest_of(const gsp_fetch *x)
{
    const gsp_agree *agree = x->use.friends->agree;
    uint64_t newest = 0;
    for (uint32_t i = 0; i < GSP_PEERS_KNOWN_MAX; i++) {
        const gsp_peer *p = &agree->peer[i];
        if (p->known && p->up && gsp_hash_equal(&p->lineage, &x->plan.lineage) &&
            p->certified > newest)
            newest = p->certified;
    }
    return newest;
}

static void ask(gsp_fetch *x)
{
    uint64_t now = atom_clock_ns();
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++) {
        gsp_friend *f = &x->use.friends->friend[i];
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
        gsp_message *m = gsp_friends_draft(x->use.friends, GSP_STATE_ASK);
        m->lineage = x->chain.lineage;
        gsp_friends_tell(x->use.friends, f, m);
    }
}

/* ---- asking for chunks ---- */

static bool pull(void *context, const gsp_swarm_ask *ask)
{
    gsp_fetch *x = context;
    gsp_key key;
    memcpy(key.byte, ask->name, sizeof key.byte);
    gsp_friend *to = gsp_friends_find(x->use.friends, &key);
    if (!to)
        return false;
    gsp_message *m = gsp_friends_draft(x->use.friends, GSP_STATE_PULL);
    m->lineage = x->plan.lineage;
    m->version = x->plan.version;
    m->as.state_pull = (gsp_state_pull){.fragment = ask->set,
                                        .version = x->plan.fragment[ask->set].version,
                                        .root = x->plan.fragment[ask->set].root,
                                        .first = ask->first,
                                        .n = ask->n};
    gsp_friends_tell(x->use.friends, to, m);
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
static bool out_of_reach(const gsp_fetch *x)
{
    for (uint32_t f = 0; f < x->use.n_fragments; f++)
        if (gsp_stage_here(x->stage[f]) < gsp_stage_n(x->stage[f]) &&
            !gsp_swarm_reachable(x->swarm, f))
            return true;
    return false;
}

/* ---- what comes ---- */

static atom_status heard_roots(gsp_fetch *x, uint32_t donor, const gsp_message *m)
{
    gsp_witness **witness = &x->donor[donor].witness;
    if (!gsp_roots_check(&m->as.roots, x->use.terms->seals, &m->from)) {
        liar(x, donor, "roots that it did not sign");
        return ATOM_OK;
    }
    if (!*witness)
        *witness = atom_alloc(1, sizeof **witness);
    if (!*witness)
        return ATOM_OK;
    gsp_witness_hear(*witness, x->use.terms->seals, &m->from, &m->as.roots);
    gsp_witness_judge(*witness, x->use.terms, &x->chain);
    offer(x, donor);
    x->heard = true;
    if (!x->first_ns)
        x->first_ns = atom_clock_ns();
    return make_plan(x);
}

static atom_status heard_chunk(gsp_fetch *x, uint32_t donor, const gsp_message *m, const void *body)
{
    const gsp_state_chunk *c = &m->as.chunk;
    uint64_t now = atom_clock_ns();
    uint32_t f = c->fragment;
    gsp_hash leaf;
    if (f >= x->use.n_fragments || !x->stage[f] || c->chunk >= gsp_stage_n(x->stage[f]) ||
        c->bytes != gsp_chunk_floats(x->use.work->n_state[f], c->chunk) * sizeof(float) ||
        !gsp_stage_is(x->stage[f], c->version, &c->root))
        return ATOM_OK; /* of a plan that is over, or nonsense: nobody waits for it */
    if (gsp_stage_has(x->stage[f], c->chunk)) {
        x->use.counts->repeated_bytes += c->bytes;
        gsp_swarm_came(x->swarm, now, donor, f, c->chunk, c->bytes, GSP_SWARM_GOOD);
        return ATOM_OK;
    }
    gsp_merkle_leaf(c->chunk, body, c->bytes, &leaf);
    if (!gsp_tree_check(&c->root, gsp_stage_n(x->stage[f]), c->chunk, &leaf, c->path, c->n_path)) {
        gsp_swarm_came(x->swarm, now, donor, f, c->chunk, c->bytes, GSP_SWARM_WRONG);
        liar(x, donor, "other bytes than it was asked for");
        return ATOM_OK;
    }
    ATOM_TRY(gsp_stage_put(x->stage[f], c->chunk, &leaf, body));
    gsp_swarm_came(x->swarm, now, donor, f, c->chunk, c->bytes, GSP_SWARM_GOOD);
    if (!gsp_stage_has(x->stage[f], c->chunk))
        gsp_swarm_end(x->swarm, f); /* the whole was not what its root says: it begins anew */
    x->news_ns = now;
    return ATOM_OK;
}

static void heard_none(gsp_fetch *x, uint32_t donor, const gsp_message *m)
{
    const gsp_state_pull *p = &m->as.state_pull;
    uint32_t f = p->fragment;
    if (f < x->use.n_fragments && x->stage[f] && p->first < gsp_stage_n(x->stage[f]) &&
        gsp_stage_is(x->stage[f], p->version, &p->root))
        gsp_swarm_came(x->swarm, atom_clock_ns(), donor, f, p->first, 0, GSP_SWARM_DENIED);
}

atom_status gsp_fetch_heard(gsp_fetch *x, const gsp_friend *from, const gsp_message *m,
                            const void *body)
{
    uint32_t donor = gsp_swarm_up(x->swarm, from->key.byte);
    if (donor == GSP_SWARM_NOBODY || gsp_swarm_is_barred(x->swarm, donor))
        return ATOM_OK;
    if (m->kind == GSP_STATE_ROOTS)
        return heard_roots(x, donor, m);
    if (x->plan.found && m->kind == GSP_STATE_CHUNK)
        return heard_chunk(x, donor, m, body);
    if (x->plan.found)
        heard_none(x, donor, m);
    return ATOM_OK;
}

/* ---- the end ---- */

/* Hands chunks to the work; *all: all were. */
static atom_status feed(gsp_fetch *x, bool *all)
{
    const gsp_work *work = x->use.work;
    *all = false;
    for (uint32_t left = FEED_CHUNKS; x->feed_fragment < x->use.n_fragments; x->feed_chunk++) {
        uint32_t f = x->feed_fragment, k = x->feed_chunk;
        if (k >= gsp_stage_n(x->stage[f])) {
            x->feed_fragment++;
            x->feed_chunk = UINT32_MAX; /* 0 with the next step */
            continue;
        }
        if (left-- == 0)
            return ATOM_OK;
        if (!gsp_stage_read(x->stage[f], k, x->buffer)) { /* the disk lost it */
            gsp_swarm_here(x->swarm, f, k, false);
            x->feeding = false;
            return ATOM_OK;
        }
        ATOM_TRY(work->state_write(work->context, f, x->plan.fragment[f].version,
                                   (uint64_t)k * GSP_CHUNK_FLOATS,
                                   gsp_chunk_floats(work->n_state[f], k), x->buffer));
    }
    *all = true;
    return ATOM_OK;
}

/* True: every chunk of the plan is here. */
static bool complete(const gsp_fetch *x)
{
    for (uint32_t f = 0; f < x->use.n_fragments; f++)
        if (gsp_stage_here(x->stage[f]) < gsp_stage_n(x->stage[f]))
            return false;
    return true;
}

static void count(const gsp_fetch *x)
{
    gsp_fetch_counts *counts = x->use.counts;
    counts->bytes = counts->all_bytes = 0;
    for (uint32_t f = 0; f < x->use.n_fragments; f++) {
        uint64_t all = x->use.work->n_state[f] * sizeof(float);
        uint64_t here = (uint64_t)gsp_stage_here(x->stage[f]) * GSP_CHUNK_BYTES;
        counts->all_bytes += all;
        counts->bytes += here < all ? here : all;
    }
}

/* Goes from question to question until everything is here and fresh enough. */
static atom_status fetch_some(gsp_fetch *x, bool applying, gsp_fetch_news *news)
{
    bool all = true;
    ask(x);
    if (!x->plan.found || x->stale)
        ATOM_TRY(make_plan(x));
    if (!x->plan.found)
        return ATOM_OK;
    for (uint32_t f = 0; f < x->use.n_fragments && all; f++)
        all = recheck(x, f);
    count(x);
    bool full = all && complete(x);
    if (!full)
        gsp_swarm_turn(x->swarm, atom_clock_ns(), pull, x);
    /* Too old when it is whole: only what moved on is fetched again. */
    x->stale = full ? newest_of(x) > x->plan.version + BEHIND_MAX : out_of_reach(x);
    if (full && !x->stale && !applying) {
        x->feeding = true;
        x->feed_fragment = x->feed_chunk = 0;
    }
    if (!all || x->feeding)
        *news = GSP_FETCH_GOES;
    return ATOM_OK;
}

atom_status gsp_fetch_work(gsp_fetch *x, bool applying, gsp_fetch_news *news)
{
    const gsp_agree *agree = x->use.friends->agree;
    bool all;
    *news = GSP_FETCH_WAITS;
    if (atom_clock_ns() - x->news_ns > GIVE_UP_NS ||
        (gsp_hash_equal(&agree->lineage, &x->plan.lineage) && x->plan.found &&
         agree->applied >= x->plan.version && !x->feeding)) {
        *news = GSP_FETCH_ENDS;
        return ATOM_OK;
    }
    if (!x->feeding)
        return fetch_some(x, applying, news);
    ATOM_TRY(feed(x, &all));
    if (all && !applying)
        *news = GSP_FETCH_WHOLE;
    else if (x->feeding)
        *news = GSP_FETCH_GOES;
    return ATOM_OK;
}

const gsp_saved *gsp_fetch_saved(const gsp_fetch *x)
{
    return &x->plan.saved;
}

const char *gsp_fetch_explain(const gsp_fetch *x, char *text, size_t bytes)
{
    char all[24];
    uint64_t total = x->use.counts->all_bytes;
    if (!x->plan.found)
        snprintf(text, bytes,
                 "asking for the pool's state: %u member%s on it, of %u that answer%s",
                 x->plan.signers, x->plan.signers == 1 ? " agrees" : "s agree", x->plan.answers,
                 x->plan.answers == 1 ? "s" : "");
    else
        snprintf(text, bytes, "downloading the state of version %llu: %u %% of %s",
                 (unsigned long long)x->plan.version,
                 total ? (unsigned)(x->use.counts->bytes * 100 / total) : 100u,
                 atom_size_text(total, all));
    return text;
}

/* ---- life ---- */

bool gsp_fetch_follow(gsp_fetch *x, const gsp_chain *chain)
{
    if (!gsp_hash_equal(&chain->lineage, &x->chain.lineage))
        return false;
    x->chain = *chain;
    x->heard |= !x->plan.found || x->stale; /* else what is half here stays what is wanted */
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++)
        if (x->donor[i].witness)
            gsp_witness_judge(x->donor[i].witness, x->use.terms, chain);
    return true;
}

bool gsp_fetch_lags(gsp_fetch *x, gsp_key *whom)
{
    uint64_t now = atom_clock_ns();
    const gsp_witness *newest = NULL; /* of those whose turn is next */
    uint32_t at = 0;
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++) {
        const gsp_witness *w = x->donor[i].witness;
        const gsp_proposal *p = w ? &w->newest.certificate.proposal : NULL;
        if (w && !w->shown && w->newest.has_certificate && p->version > x->chain.version &&
            gsp_hash_equal(&w->lineage, &x->chain.lineage) &&
            (!newest || x->donor[i].lagged_ns < x->donor[at].lagged_ns ||
             (x->donor[i].lagged_ns == x->donor[at].lagged_ns &&
              p->version > newest->newest.certificate.proposal.version))) {
            newest = w;
            at = i;
        }
    }
    bool wanted = !x->plan.found || x->stale; /* what is being fetched stays what is wanted */
    if (!newest || !wanted || now - x->lagged_ns < ASK_NS)
        return false;
    x->lagged_ns = x->donor[at].lagged_ns = now;
    *whom = newest->who.key;
    return true;
}

gsp_fetch *gsp_fetch_open(const gsp_fetch_config *use, const gsp_chain *chain)
{
    uint32_t n_chunks[GSP_FRAGMENTS_MAX];
    gsp_swarm_config config = {
        .n_donors = GSP_NET_PEERS_MAX,
        .n_sets = use->n_fragments,
        .n_pieces = n_chunks,
        .piece_bytes = GSP_CHUNK_BYTES,
        .window_first = 4,
        .window_min = 2,
        .window_max = GSP_STATE_PULL_MAX,
        .run_max = 1,
        .silent_ns = 8000000000u,
    };
    for (uint32_t f = 0; f < use->n_fragments; f++)
        n_chunks[f] = (uint32_t)gsp_chunks(use->work->n_state[f]);
    gsp_fetch *x = atom_alloc(1, sizeof *x);
    float *buffer = atom_alloc(GSP_CHUNK_FLOATS, sizeof *buffer);
    void *memory = atom_alloc(1, gsp_swarm_bytes(&config));
    if (!x || !buffer || !memory) {
        atom_free(x);
        atom_free(buffer);
        atom_free(memory);
        return NULL;
    }
    x->use = *use;
    x->buffer = buffer;
    x->swarm = gsp_swarm_open(&config, memory);
    x->chain = *chain;
    x->news_ns = atom_clock_ns();
    return x;
}

void gsp_fetch_close(gsp_fetch **fetch)
{
    gsp_fetch *x = *fetch;
    *fetch = NULL;
    if (!x)
        return;
    x->use.counts->bytes = x->use.counts->all_bytes = 0;
    for (uint32_t i = 0; i < GSP_NET_PEERS_MAX; i++)
        atom_free(x->donor[i].witness);
    for (uint32_t f = 0; f < GSP_FRAGMENTS_MAX; f++)
        gsp_stage_close(&x->stage[f]);
    atom_free(x->swarm);
    atom_free(x->buffer);
    atom_free(x);
}
