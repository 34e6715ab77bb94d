/*
 * Owns what takes long. Its one idea: all of it is cut into slices between two looks at the
 * network, and what a round waits for goes first. It refuses to judge a case while a round wants
 * the time.
 */
#include "gossip/member/node_inner.h"

#include "atom/base/clock.h"
#include "atom/base/mem.h"

#include <string.h>
#include <time.h>

uint64_t gsp_node_cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* ---- my contribution ---- */

/* It is kept before anybody hears of it: a member that is killed and comes back shows what it promised. */
static atom_status freeze_some(gsp_node *n)
{
    gsp_freezing *f = &n->freezing;
    bool done = false, more = false;
    if (f->on)
        ATOM_TRY(gsp_freezing_some(f, n->agree.certified + 1, &n->agree.rates, &done));
    n->untold = f->done && (done || n->untold);
    if (n->untold)
        ATOM_TRY(gsp_own_inputs_some(&n->kept, f, &more));
    if (!n->untold || more)
        return ATOM_OK;
    n->untold = false;
    gsp_event event = {
        .kind = GSP_ON_FROZEN, .version = f->version, .contribution = f->contribution};
    gsp_node_step(n, &event);
    return ATOM_OK;
}

/* ---- reducing ---- */

static const void *input(const gsp_node *n, uint32_t part, const gsp_contributor *c)
{
    if (c->member == n->agree.self_i)
        return gsp_freezing_part(&n->freezing, n->agree.certified + 1, &c->root, part);
    return gsp_inputs_find(&n->inputs, c, part);
}

/* Sums the part into a new blob; NULL: nothing can be made of it. */
static gsp_blob *sum_up(gsp_node *n, uint32_t part, uint32_t included, gsp_part *made,
                        atom_status *st)
{
    const gsp_begin *b = &n->agree.round.begin;
    const void *in[GSP_MEMBERS_MAX] = {0};
    const gsp_hash none = {{0}};
    uint64_t first, floats = gsp_terms_floats(&n->terms, n->agree.certified + 1, part, &first);
    for (uint32_t i = 0; i < b->n_contributors; i++)
        in[i] = included >> i & 1 ? input(n, part, &b->contributor[i]) : NULL;
    gsp_blob *out = gsp_blob_open(gsp_codec_bytes(n->terms.codec, floats), &none);
    if (out && !gsp_mix_part(&n->mix, part, b->contributor, b->n_contributors, in, included, floats,
                             out->memory, made, st))
        gsp_blob_close(&out);
    if (out) {
        out->root = made->hash;
        out->whole = true;
    }
    return out;
}

static atom_status reduce_one(gsp_node *n, uint32_t part)
{
    const gsp_round *r = &n->agree.round;
    uint32_t included = n->reduce[part].included, ballot = n->reduce[part].ballot;
    uint64_t version = n->agree.certified + 1;
    gsp_part made;
    atom_status st = ATOM_OK;
    n->reduce[part].ballot = 0;
    n->n_reduce--;
    if (ballot != r->ballot || r->begin.owner[part] != n->agree.self_i)
        return ATOM_OK;
    gsp_blob *b = sum_up(n, part, included, &made, &st);
    if (!b)
        return st;
    n->status.refused += (uint64_t)__builtin_popcount(included & ~made.included);
    n->status.reduced_ns = atom_clock_ns() - n->freezing.began_ns;
    bool known = gsp_recent_fresh(&n->held, part, &made.hash) != NULL;
    gsp_blob **place =
        known ? NULL : gsp_recent_place(&n->held, &n->agree, version, part, &made.hash);
    if (!place)
        gsp_blob_close(&b);
    if (!place && !known)
        return ATOM_OK; /* all that are there are needed */
    if (place) {
        *place = b;
        ATOM_TRY(gsp_recent_keep(&n->held, &n->agree, version, part, b));
    }
    gsp_event event = {.kind = GSP_ON_REDUCED,
                       .version = version,
                       .ballot = ballot,
                       .part = part,
                       .included = made.included,
                       .hash = made.hash,
                       .norm = made.norm};
    memcpy(event.lean, made.lean, sizeof event.lean);
    gsp_node_step(n, &event);
    return ATOM_OK;
}

static atom_status reduce_next(gsp_node *n)
{
    uint32_t part = 0;
    while (n->reduce[part].ballot == 0)
        part++;
    return reduce_one(n, part);
}

/* ---- applying ---- */

static uint32_t counted_of(const gsp_node *n, const gsp_certificate *c)
{
    uint32_t anywhere = 0;
    if (n->config.work.counted)
        return n->config.work.counted(n->config.work.context, c);
    for (uint32_t k = 0; k < c->proposal.n_parts; k++)
        anywhere |= c->proposal.part[k].included;
    return anywhere;
}

/* What an encoding lost of gradients is none of a change of weights. */
static void look_kind(gsp_node *n)
{
    bool sums = gsp_agree_sums(&n->agree);
    if (sums != n->sums)
        gsp_freezing_drop_lost(&n->freezing);
    n->sums = sums;
}

/* All parts are given: the version is the work's. */
static atom_status apply_end(gsp_node *n)
{
    const gsp_certificate *c = &n->agree.certificate;
    uint64_t version = c->proposal.version;
    gsp_hash leaf[GSP_PARTS_MAX], root;
    gsp_certificate **kept = &n->certificate[version % GSP_REPLAY_MAX];
    for (uint32_t k = 0; k < c->proposal.n_parts; k++)
        leaf[k] = c->proposal.part[k].hash;
    gsp_merkle_root(leaf, c->proposal.n_parts, &root);
    gsp_freezing_keep(&n->freezing, version, n->config.rules.audit_percent != 0);
    ATOM_TRY(gsp_node_chain_certify(n, c));
    ATOM_TRY(n->config.work.apply(n->config.work.context, c, &root));
    n->saved.genesis = n->agree.genesis;
    n->saved.has_certificate = true;
    n->saved.certificate = *c;
    n->saved.record = n->agree.record;
    gsp_donor_changed(&n->donor, gsp_terms_fragment(&n->terms, version));
    ATOM_TRY(gsp_votes_state(n->votes, &n->saved, n->agree.self.incarnation));
    if (!*kept)
        *kept = atom_alloc(1, sizeof **kept);
    if (*kept)
        **kept = *c;
    n->counted[version % GSP_REPLAY_MAX] = counted_of(n, c);
    look_kind(n);
    return ATOM_OK;
}

static atom_status apply_some(gsp_node *n)
{
    const gsp_proposal *p = &n->agree.certificate.proposal;
    bool done = true;
    if (n->apply.next == 0)
        ATOM_TRY(gsp_donor_changes(&n->donor, gsp_terms_fragment(&n->terms, p->version), &done));
    if (!done)
        return ATOM_OK;
    ATOM_TRY(gsp_apply_some(&n->apply, p, &n->held, &n->freezing, &done));
    if (!done)
        return ATOM_OK;
    ATOM_TRY(apply_end(n));
    if (n->freezing.version == p->version)
        n->status.round_ns = atom_clock_ns() - n->freezing.began_ns;
    gsp_event event = {.kind = GSP_ON_APPLIED, .version = p->version};
    gsp_node_step(n, &event);
    return ATOM_OK;
}

bool gsp_node_work(gsp_node *n)
{
    uint64_t began = gsp_node_cpu_ns();
    atom_status st = ATOM_OK;
    if (n->dead != ATOM_OK)
        return false;
    if (n->apply.on)
        st = apply_some(n);
    else if (n->n_reduce)
        st = reduce_next(n);
    else if (n->freezing.on || n->untold)
        st = freeze_some(n);
    else if (!gsp_apply_early(&n->apply, &n->agree, &n->held))
        return false;
    if (st != ATOM_OK)
        gsp_node_die(n, st);
    n->status.compute_ns += gsp_node_cpu_ns() - began;
    return n->apply.on || n->n_reduce || !n->freezing.on || !n->freezing.later;
}

/* ---- audits ---- */

bool gsp_node_audit(gsp_node *n)
{
    const gsp_claim *claim = &n->cases.open.claim;
    bool freezes = gsp_freezing_is_busy(&n->freezing) || n->untold;
    bool idle = !n->apply.on && !n->n_reduce && !freezes;
    gsp_event event;
    while (n->dead == ATOM_OK && gsp_questions_work(&n->questions, &event))
        gsp_node_step(n, &event);
    if (n->dead != ATOM_OK || !gsp_audit_cases_work(&n->cases, idle, &event))
        return false;
    if (event.kind == GSP_ON_AUDITED) {
        if (event.verdict == GSP_VERDICT_LIE) {
            gsp_exhibit exhibit[GSP_MEMBERS_MAX];
            gsp_audit_cases_exhibits(&n->cases, exhibit);
            gsp_ban_files_claim(&n->bans, &n->agree.genesis, claim, exhibit);
        }
        gsp_audit_cases_end(&n->cases, event.verdict);
    }
    gsp_node_step(n, &event);
    return n->cases.open.on;
}

/* ---- a state of others ---- */

/* What I contributed, and what it left, is worth nothing for another state. */
static void forget_work(gsp_node *n)
{
    for (uint32_t k = 0; k < GSP_REPLAY_MAX; k++) {
        atom_free(n->certificate[k]);
        n->certificate[k] = NULL;
    }
    gsp_apply_take_back(&n->apply);
    gsp_freezing_forget(&n->freezing);
    gsp_donor_changed_all(&n->donor);
}

/* Everything is with the work: the machine takes it over, then it becomes durable, before anything
 * else is done (agree.h). */
static atom_status adopt(gsp_node *n, const gsp_saved *saved)
{
    const gsp_work *work = &n->config.work;
    gsp_hash before = n->agree.lineage;
    uint64_t applied = n->agree.applied;
    gsp_match match;
    gsp_node_chain_reach(n, saved);
    gsp_trail_match(&n->trail, gsp_hash_none(&before) ? NULL : &n->saved, &n->hope, &match);
    gsp_event event = {.kind = GSP_ON_STATE, .saved = saved, .match = &match};
    n->adopting = true;
    gsp_node_step(n, &event);
    n->adopting = false;
    if (gsp_hash_equal(&before, &n->agree.lineage) && applied == n->agree.applied)
        return ATOM_OK; /* it was not taken */
    if (work->state_adopt)
        ATOM_TRY(work->state_adopt(work->context, saved));
    n->saved = *saved;
    n->saved.record = n->agree.record;
    ATOM_TRY(gsp_node_chain_adopt(n));
    ATOM_TRY(gsp_votes_state(n->votes, &n->saved, n->agree.self.incarnation));
    ATOM_TRY(gsp_node_chain_turned(n));
    forget_work(n);
    n->status.state_fetched++;
    return ATOM_OK;
}

bool gsp_node_fetch(gsp_node *n)
{
    gsp_fetch_news news;
    gsp_event came_to_nothing = {.kind = GSP_ON_STATE};
    if (!n->fetch)
        return false;
    atom_status st = gsp_fetch_work(n->fetch, n->apply.on, &news);
    if (st == ATOM_OK && news == GSP_FETCH_WHOLE) {
        st = adopt(n, gsp_fetch_saved(n->fetch));
        gsp_fetch_close(&n->fetch);
        if (st == ATOM_OK)
            gsp_stage_remove_all(n->config.directory);
    } else if (st == ATOM_OK && news == GSP_FETCH_ENDS) {
        gsp_fetch_close(&n->fetch);
        gsp_node_step(n, &came_to_nothing); /* and may ask again */
    }
    if (st != ATOM_OK)
        gsp_node_die(n, st);
    return st == ATOM_OK && news == GSP_FETCH_GOES;
}
