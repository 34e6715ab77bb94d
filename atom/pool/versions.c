/*
 * Owns what the member asks of the pool's seam (gsp_work): contributions, the outer step, durable
 * versions, states for and from others. One idea: a version is made beside the current one, written
 * to disk, and only then becomes current by swapping pointers, so the trainer never waits for more
 * than that. Refuses to lose steps: what was not included stays in live and is brought again.
 */
#include "atom/pool/anchor_inner.h"
#include "atom/pool/gradients.h"

#include "atom/base/assert.h"
#include "atom/base/mem.h"
#include "gossip/trust/seals.h"

#include <math.h>
#include <string.h>
#include <unistd.h>

static uint32_t fragment_of(const pool_anchor *p, uint64_t version)
{
    return (uint32_t)(version % p->c.n_fragments);
}

/* What happened to the disk here or on the trainer's side; the member ends with it. */
static atom_status broken(pool_anchor *p, atom_status st)
{
    pthread_mutex_lock(&p->lock);
    if (st != ATOM_OK)
        pool_anchor_break(p, st);
    st = p->broken;
    pthread_mutex_unlock(&p->lock);
    return st == ATOM_OK ? st : atom_fail(st, "%s", p->why);
}

/* ---- contributions ---- */

/* The lock is held, and given away while x is made of what was copied out. */
static void make_delta(pool_anchor *p)
{
    bool whole = false;
    pthread_mutex_unlock(&p->lock);
    atom_status st = pool_outer_subtract(p, &whole);
    pthread_mutex_lock(&p->lock);
    if (st != ATOM_OK)
        pool_anchor_break(p, st);
    if (st != ATOM_OK || !whole)
        return;
    p->ask = p->x_tokens && isfinite(p->square) ? POOL_ASK_READY : POOL_ASK_EMPTY;
    p->status.delta_norm = sqrt(p->square);
    p->status.copied++;
}

static gsp_freeze freeze(void *context, uint64_t version, const float **x, uint64_t *tokens,
                         uint64_t *samples)
{
    pool_anchor *p = context;
    gsp_freeze answer = GSP_FREEZE_LATER;
    if (pool_anchor_sums(p))
        return pool_gradients_freeze(p, version, x, tokens, samples);
    pthread_mutex_lock(&p->lock);
    if (p->ask == POOL_ASK_COPIED && p->ask_version == version && p->applied + 1 == version)
        make_delta(p);
    if (!p->running || !p->ready || p->broken != ATOM_OK) {
        answer = GSP_FREEZE_NOTHING;
        p->ask = POOL_ASK_NONE;
    } else if (p->applied + 1 != version) {
        p->ask = POOL_ASK_NONE; /* the anchor is not that of version - 1 yet */
    } else if (p->ask == POOL_ASK_NONE || p->ask_version != version) {
        p->ask = POOL_ASKED;
        p->asked++;
        p->ask_version = version;
    } else if (p->ask == POOL_ASK_READY) {
        *x = p->x;
        *tokens = p->x_tokens;
        *samples = p->x_samples;
        answer = GSP_FREEZE_READY;
    } else if (p->ask == POOL_ASK_EMPTY) {
        answer = GSP_FREEZE_NOTHING;
    }
    pthread_mutex_unlock(&p->lock);
    return answer;
}

/* ---- the outer step ---- */

/* A version begins to be made. Only this thread changes anchors. */
static atom_status stage(pool_anchor *p, uint64_t version)
{
    if (p->staged == version)
        return ATOM_OK;
    p->ranges.n = 0;
    p->staged = 0;
    if (p->c.on_disk) {
        pool_anchor_drop_next(p);
        ATOM_TRY(pool_next_open(&p->store, fragment_of(p, version), &p->next));
    }
    p->staged = version;
    return ATOM_OK;
}

static void part(void *context, uint64_t version, uint64_t first, const float *x, uint64_t n)
{
    pool_anchor *p = context;
    const pool_fragment *f = &p->fragment[fragment_of(p, version)];
    if (pool_anchor_sums(p)) {
        atom_status put = pool_gradients_part(p, first, x, n);
        if (put != ATOM_OK)
            (void)broken(p, put); /* `apply` tells it */
        return;
    }
    if (!x && p->staged == version)
        pool_ranges_set(&p->ranges, first, n, false);
    if (!x)
        return;
    atom_status st = stage(p, version);
    if (st == ATOM_OK)
        st = pool_outer_part(p, f, first, n, x);
    if (st == ATOM_OK)
        pool_ranges_set(&p->ranges, first, n, true);
    else
        (void)broken(p, st); /* `apply` tells it */
}

/* My place among the contributors of a version that R(version) = p->roster made; -1: none. */
static int my_place(const pool_anchor *p, const gsp_proposal *c)
{
    const gsp_roster *roster = &p->roster;
    for (uint32_t i = 0; i < c->n_contributors; i++) {
        uint32_t who = c->contributor[i].member;
        if (who < roster->n && gsp_key_compare(&roster->member[who].key, &p->c.self) == 0)
            return (int)i;
    }
    return -1;
}

static bool part_of_mine(const gsp_proposal *c, uint32_t mine)
{
    uint32_t anywhere = 0;
    for (uint32_t k = 0; k < c->n_parts; k++)
        anywhere |= c->part[k].included;
    return anywhere & mine;
}

/* The version is on disk: it becomes the current one. */
static void commit(pool_anchor *p, const gsp_proposal *c, const pool_header *header, uint32_t mine,
                   bool known, pool_floats **merge)
{
    bool included = part_of_mine(c, mine);
    atom_status st = ATOM_OK;
    pool_fragment *f = &p->fragment[fragment_of(p, c->version)];
    pthread_mutex_lock(&p->lock);
    pool_anchor_turn(p, f, header);
    if (included) {
        f->tokens_included = known ? p->sent_tokens : p->tokens;
        uint64_t samples = known ? p->sent_samples : p->samples;
        p->samples_included = samples > p->samples_included ? samples : p->samples_included;
        p->status.included++;
    }
    if (included && !known)
        f->replace = true; /* frozen before a restart: whatever live has since is not known */
    else if (*merge)
        st = pool_fragment_owe(f, merge, p->room);
    if (st != ATOM_OK)
        pool_anchor_break(p, st);
    if (known && p->c.slices)
        pool_slices_note(&f->slices, c, f->n, mine, p->sent_samples);
    p->applied = c->version;
    p->lineage = c->lineage;
    p->certified_samples = c->samples;
    pool_end_certified(p);
    if (p->ask_version <= c->version)
        p->ask = POOL_ASK_NONE;
    pthread_mutex_unlock(&p->lock);
}

/* Durably, beside the one that is. */
static atom_status write_version(const pool_anchor *p, uint32_t number, pool_header *header)
{
    uint32_t slot = p->fragment[number].slot ^ 1;
    if (p->c.on_disk)
        return pool_next_end(&p->store, number, slot, p->next, header, p->room.at, p->room.floats);
    if (!p->g)
        return pool_file_write(&p->store, number, slot, header, p->new_anchor, p->new_momentum);
    memcpy(pool_gradients_momentum(p), p->new_momentum, header->n * sizeof(float));
    return pool_file_write(&p->store, number, slot, header, p->new_anchor,
                           p->fragment[number].momentum);
}

static atom_status apply(void *context, const gsp_certificate *certificate, const gsp_hash *result)
{
    pool_anchor *p = context;
    const gsp_proposal *c = &certificate->proposal;
    uint32_t number = fragment_of(p, c->version);
    const pool_fragment *f = &p->fragment[number];
    pool_header header = {
        .epoch = p->epoch, .version = c->version, .n = f->n, .lineage = c->lineage};
    pool_floats *merge = NULL;
    (void)result;
    if (pool_anchor_sums(p)) {
        ATOM_TRY(broken(p, ATOM_OK));
        return pool_gradients_apply(p, c);
    }
    ATOM_TRY(broken(p, stage(p, c->version)));
    ATOM_TRY(pool_outer_gaps(p, f));
    ATOM_TRY(write_version(p, number, &header));
    int place = my_place(p, c);
    uint32_t mine = place < 0 ? 0 : 1u << place;
    bool included = part_of_mine(c, mine);
    pthread_mutex_lock(&p->lock);
    bool known = included && p->ask == POOL_ASK_READY && p->ask_version == c->version;
    pthread_mutex_unlock(&p->lock);
    ATOM_TRY(pool_outer_merge(p, c, known ? mine : 0, &merge));
    commit(p, c, &header, mine, known, &merge);
    p->staged = 0;
    p->roster = c->next;
    pool_floats_close(&merge);
    return broken(p, ATOM_OK);
}

/* ---- whole states ---- */

/* Fragment as its file and as a joiner sees it: anchor, then momentum. */
static atom_status state_read(void *context, uint32_t fragment, uint64_t first, uint64_t n,
                              float *out)
{
    const pool_anchor *p = context;
    const pool_fragment *f = &p->fragment[fragment];
    const pool_floats file = pool_file_anchor(f->file); /* and what lies behind it */
    const float *unused;
    for (uint64_t i = 0, some; i < n; i += some) {
        uint64_t at = first + i;
        bool second = at >= f->n;
        uint64_t end = second ? f->n + p->store.outer[fragment] : f->n;
        some = end - at < n - i ? end - at : n - i;
        if (f->anchor)
            memcpy(out + i, second ? f->momentum + (at - f->n) : f->anchor + at,
                   some * sizeof *out);
        else
            ATOM_TRY(pool_floats_look(&file, at, some, out + i, &unused));
    }
    return ATOM_OK;
}

static atom_status state_write(void *context, uint32_t fragment, uint64_t version, uint64_t first,
                               uint64_t n, const float *x)
{
    pool_anchor *p = context;
    return pool_incoming_put(&p->incoming, &p->store, fragment, p->fragment[fragment].slot ^ 1,
                             version, first, n, x);
}

uint64_t pool_applied_of(const gsp_saved *saved)
{
    return saved->has_certificate ? saved->certificate.proposal.version : saved->genesis.version;
}

void pool_lineage_of(const gsp_saved *saved, gsp_hash *out)
{
    gsp_seals seals = gsp_seals_real(NULL);
    gsp_genesis_hash(&seals, &saved->genesis, out);
}

void pool_anchor_remember(pool_anchor *p, const gsp_saved *saved)
{
    const gsp_proposal *c = saved->has_certificate ? &saved->certificate.proposal : NULL;
    gsp_genesis_roster(&saved->genesis, &p->roster);
    if (c)
        p->roster = c->next;
    pool_lineage_of(saved, &p->lineage);
    p->applied = pool_applied_of(saved);
    p->certified_samples = c ? c->samples : saved->genesis.samples;
    p->last = 0; /* how far the others are in their last versions is not known */
    pool_end_certified(p);
    p->ready = true;
}

/* The anchor stays. Who contributes is told by places in the roster of those who begin. */
static void begins(void *context, const gsp_genesis *genesis)
{
    pool_anchor *p = context;
    const gsp_saved saved = {.genesis = *genesis};
    pthread_mutex_lock(&p->lock);
    gsp_genesis_roster(genesis, &p->roster);
    pool_lineage_of(&saved, &p->lineage);
    pthread_mutex_unlock(&p->lock);
}

static atom_status seal(pool_anchor *p, uint32_t i, pool_header *header)
{
    uint32_t slot = p->fragment[i].slot ^ 1;
    if (!p->c.on_disk)
        return pool_file_seal(&p->store, i, slot, header, p->new_anchor,
                              p->g ? p->fragment[i].momentum : p->new_momentum);
    pool_anchor_drop_next(p);
    return pool_slot_seal(&p->store, i, slot, header, p->room.at, p->room.floats, &p->next);
}

/* Files are sealed one after the other; until the member remembers the new certificate, a restart
 * finds the old epoch in the other slots. */
static atom_status state_adopt(void *context, const gsp_saved *saved)
{
    pool_anchor *p = context;
    gsp_hash lineage;
    pool_lineage_of(saved, &lineage);
    uint64_t epoch = p->epoch_highest + 1;
    pool_incoming_close(&p->incoming);
    pool_gradients_hold(p, true);
    for (uint32_t i = 0; i < p->c.n_fragments; i++) {
        pool_fragment *f = &p->fragment[i];
        pool_header header = {
            .epoch = epoch, .version = p->incoming.version[i], .n = f->n, .lineage = lineage};
        ATOM_TRY(seal(p, i, &header));
        pthread_mutex_lock(&p->lock);
        pool_anchor_turn(p, f, &header);
        pool_fragment_forget(f);
        f->replace = true;
        f->tokens_included = p->tokens;
        pthread_mutex_unlock(&p->lock);
    }
    if (p->g)
        ATOM_TRY(pool_gradients_read(p));
    p->epoch = p->epoch_highest = epoch;
    p->staged = 0;
    pthread_mutex_lock(&p->lock);
    pool_anchor_remember(p, saved);
    p->samples_included = p->samples;
    p->ask = POOL_ASK_NONE;
    pthread_mutex_unlock(&p->lock);
    pool_gradients_hold(p, false);
    return ATOM_OK;
}

static bool rests(void *context)
{
    pool_anchor *p = context;
    pthread_mutex_lock(&p->lock);
    bool is = pool_anchor_rests(p);
    pthread_mutex_unlock(&p->lock);
    return is;
}

void pool_anchor_work(pool_anchor *p, gsp_work *work)
{
    *work = (gsp_work){.context = p,
                       .on_disk = p->c.on_disk,
                       .freeze = freeze,
                       .part = part,
                       .early = true,
                       .apply = apply,
                       .state_read = state_read,
                       .state_write = state_write,
                       .state_adopt = state_adopt,
                       .begins = begins,
                       .rests = rests,
                       .hastens = pool_end_hastens};
    if (p->g) {
        work->ready = pool_gradients_ready;
        work->lease = pool_gradients_lease;
        work->counted = pool_gradients_counted;
        work->summed_samples = p->c.dense_samples;
    }
    for (uint32_t f = 0; f < p->c.n_fragments; f++)
        work->n_state[f] = p->store.n[f] + p->store.outer[f];
}
