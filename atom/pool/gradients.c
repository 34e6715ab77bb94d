/*
 * Owns gradients mode of a pool (docs/design/pool.md#what-is-averaged, #agreement): the sum of what
 * came, the step when it is whole, and the lease that this member works on. One idea: everything is
 * made in place, so whoever reads weights waits while a version is applied; on disk it is made beside them.
 * Refuses, as batch.c does, what does not count each sample once.
 */
#include "atom/pool/gradients.h"

#include "atom/pool/anchor_inner.h"
#include "atom/pool/batch.h"
#include "atom/pool/sums.h"

#include "atom/base/clock.h"
#include "atom/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { WAIT_NS = 50000000 };

/* A lease of batch number `batch`, and what was computed of it. */
typedef struct share_of_batch {
    float *x; /* NULL: the seam's */
    uint32_t *mine, n_mine;
    uint64_t batch, tokens;
    bool have; /* x is whole */
} share_of_batch;

typedef struct pool_gradients {
    pool_update u;
    pthread_cond_t moved;    /* with the pool's lock: something of the following changed */
    bool applying;           /* the weights are being changed */
    uint64_t changes, taken; /* of the weights; those that the trainer has. Delayed: changes - 1 are
                              * those of a step before */
    bool behind;             /* the trainer has weights of a step before, without their moments */
    pool_batch batch;        /* as the state says */
    pool_batch next;         /* being made: the member's thread alone, as the two after it */
    double next_norm, next_rate;
    float *words;             /* room for those of the batch */
    uint64_t counted_version; /* the newest that was applied, and who counted in it: its thread's */
    uint32_t counted;
    void *space; /* for a step's matrices; NULL: they need none */
    uint64_t space_bytes;
    uint32_t *list;         /* room for a lease */
    share_of_batch work[2]; /* by number of the batch; only delayed updates need the second */
    bool own;               /* the trainer makes steps of its own */
    double grad_norm, rate; /* of the newest step */
    uint64_t taken_steps;   /* and these, as they were when the trainer took its weights */
    double taken_norm, taken_rate;
} pool_gradients;

/* ---- the state ---- */

uint64_t pool_gradients_outer(const pool_anchor *p, uint64_t n)
{
    const pool_update *u = &p->g->u;
    return (u->delayed ? 4 : 3) * n + pool_batch_words(u->micro_batches, u->delayed);
}

static uint64_t n_words(const pool_gradients *g)
{
    return pool_batch_words(g->u.micro_batches, g->u.delayed);
}

static pool_floats part_of(const pool_anchor *p, int fd, pool_sums_part part)
{
    return pool_sums_at(p, p->g->u.delayed, fd, part);
}

/* The batch, into memory or the file fd. */
static atom_status write_batch(const pool_anchor *p, const pool_batch *b, int fd)
{
    const pool_floats words = part_of(p, fd, POOL_SUMS_WORDS);
    pool_batch_write(b, p->g->words);
    return pool_floats_put(&words, 0, n_words(p->g), p->g->words);
}

atom_status pool_gradients_read(pool_anchor *p)
{
    pool_gradients *g = p->g;
    const pool_floats words = part_of(p, p->fragment[0].file, POOL_SUMS_WORDS);
    const float *is;
    ATOM_TRY(pool_floats_look(&words, 0, n_words(g), g->words, &is));
    pthread_mutex_lock(&p->lock);
    bool same = pool_batch_read(&g->batch, is);
    if (same) {
        g->work[0].n_mine = g->work[1].n_mine = 0;
        g->changes += 2; /* the trainer has neither of these weights */
        pthread_cond_broadcast(&g->moved);
    }
    pthread_mutex_unlock(&p->lock);
    if (!same)
        return atom_fail(ATOM_E_FORMAT,
                         "the pool's state is not of a pool that sums gradients of %u "
                         "micro-batches, or was written by another version of atom; use that "
                         "version, or create the pool again",
                         g->u.micro_batches);
    return ATOM_OK;
}

atom_status pool_gradients_begin(pool_anchor *p)
{
    const pool_fragment *f = &p->fragment[0];
    pool_batch_begin(&p->g->batch);
    p->g->changes += 2;
    if (p->g->u.delayed)
        ATOM_TRY(pool_sums_begin(p, f->file));
    return write_batch(p, &p->g->batch, f->file);
}

atom_status pool_gradients_open(pool_anchor *p)
{
    const pool_update *u = p->c.update;
    pthread_condattr_t clock;
    if (u->micro_batches == 0 || u->micro_batches > POOL_MICRO_BATCHES_MAX || u->micro_batch == 0 ||
        p->c.n_fragments != 1 || ((u->delayed || u->robust || p->c.on_disk) && p->c.dense_samples))
        return atom_fail(ATOM_E_USAGE, "gradients: 1 to %d micro-batches a step, and one fragment",
                         POOL_MICRO_BATCHES_MAX);
    pool_gradients *g = atom_alloc(1, sizeof *g);
    if (!g)
        return atom_fail_memory("a pool's gradients", sizeof *g);
    p->g = g;
    g->u = *u;
    g->batch.n = u->micro_batches;
    g->batch.micro_batch = u->micro_batch;
    g->batch.max_samples = p->c.max_samples;
    g->batch.delayed = u->delayed;
    g->batch.robust = u->robust;
    g->batch.returns = u->returns;
    g->batch.passes_on = u->passes_on;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&g->moved, &clock);
    pthread_condattr_destroy(&clock);
    g->list = atom_alloc(u->micro_batches, sizeof *g->list);
    if (!(g->words = atom_alloc(n_words(g), sizeof *g->words)))
        return atom_fail_memory("a batch", n_words(g) * sizeof *g->words);
    for (int k = 0; k < (u->delayed ? 2 : 1); k++)
        if (!(g->work[k].mine = atom_alloc(u->micro_batches, sizeof *g->list)))
            return atom_fail_memory("a lease", u->micro_batches * sizeof *g->list);
    if (u->delayed && !(g->work[1].x = atom_alloc(p->c.n_floats, sizeof(float))))
        return atom_fail_memory("a share of a sum", p->c.n_floats * sizeof(float));
    g->space_bytes = pool_step_space(u);
    if (g->space_bytes && !(g->space = atom_pages_take(g->space_bytes)))
        return atom_fail_memory("Muon's matrices", g->space_bytes);
    return g->list ? ATOM_OK : atom_fail_memory("a lease", u->micro_batches * sizeof *g->list);
}

void pool_gradients_close(pool_anchor *p)
{
    pool_gradients *g = p->g;
    if (!g)
        return;
    pthread_cond_destroy(&g->moved);
    if (g->space)
        atom_pages_give(g->space, g->space_bytes);
    atom_free(g->list);
    atom_free(g->words);
    for (int k = 0; k < 2; k++)
        atom_free(g->work[k].mine);
    atom_free(g->work[1].x);
    atom_free(g);
}

uint64_t pool_gradients_samples(const pool_anchor *p)
{
    return pool_batch_samples(&p->g->batch);
}

float *pool_gradients_momentum(const pool_anchor *p)
{
    return part_of(p, -1, POOL_SUMS_SUM).at;
}

bool pool_gradients_delayed(const pool_anchor *p)
{
    return p->g->u.delayed;
}

bool pool_gradients_own(const pool_anchor *p)
{
    return p->g->own;
}

void pool_gradients_own_again(pool_anchor *p)
{
    p->g->own = true;
}

bool pool_gradients_over(const pool_anchor *p)
{
    return p->g->taken == p->g->changes && !p->g->applying;
}

/* ---- leases ---- */

/* A batch is summed while the next one is computed, so two slots will do. */
static share_of_batch *work_of(const pool_anchor *p, uint64_t batch)
{
    return &p->g->work[p->g->u.delayed ? batch % 2 : 0];
}

static float *x_of(const pool_anchor *p, const share_of_batch *w)
{
    return w->x ? w->x : p->x;
}

/* The lock is held: mine of this batch, now. */
static uint32_t lease_now(const pool_anchor *p, uint64_t batch, uint32_t *list)
{
    const pool_batch *b = &p->g->batch;
    for (uint32_t i = 0; p->ready && pool_anchor_sums(p) && i < p->roster.n; i++)
        if (gsp_key_compare(&p->roster.member[i].key, &p->c.self) != 0)
            continue;
        else if (batch == b->steps)
            return pool_batch_lease(b, &p->roster, i, list);
        else
            return batch == b->steps + 1 ? pool_batch_ahead(b, &p->roster, i, list) : 0;
    return 0;
}

/* The lock is held: x is, or will be, what that batch wants of me; n: of my lease. */
static bool fits(const pool_anchor *p, uint64_t batch, uint32_t *n)
{
    pool_gradients *g = p->g;
    const share_of_batch *w = work_of(p, batch);
    *n = lease_now(p, batch, g->list);
    return *n > 0 && *n == w->n_mine && w->batch == batch &&
           memcmp(g->list, w->mine, *n * sizeof *g->list) == 0;
}

/* ---- the member's thread ---- */

uint64_t pool_gradients_ready(void *context, uint64_t version)
{
    pool_anchor *p = context;
    uint64_t ready = 0;
    uint32_t n;
    pthread_mutex_lock(&p->lock);
    if (p->ready && p->applied + 1 == version) {
        uint64_t batch = p->g->batch.steps;
        bool whole = fits(p, batch, &n) && work_of(p, batch)->have;
        if (whole && p->running)
            ready = 1 + n * p->g->u.micro_batch;
        else if (n == 0 || pool_anchor_rests(p))
            ready = 1;
    }
    pthread_mutex_unlock(&p->lock);
    return ready;
}

uint64_t pool_gradients_lease(void *context, uint64_t version, uint32_t n, uint32_t i)
{
    pool_anchor *p = context;
    uint64_t samples = UINT64_MAX;
    pthread_mutex_lock(&p->lock);
    if (p->ready && pool_anchor_sums(p) && p->applied + 1 == version && p->roster.n == n)
        samples = (uint64_t)pool_batch_leased(&p->g->batch, &p->roster, i) * p->g->u.micro_batch;
    pthread_mutex_unlock(&p->lock);
    return samples;
}

gsp_freeze pool_gradients_freeze(pool_anchor *p, uint64_t version, const float **x,
                                 uint64_t *tokens, uint64_t *samples)
{
    gsp_freeze answer = GSP_FREEZE_NOTHING;
    uint32_t n;
    pthread_mutex_lock(&p->lock);
    const share_of_batch *w = work_of(p, p->g->batch.steps);
    if (p->ready && p->applied + 1 != version) {
        answer = GSP_FREEZE_LATER;
    } else if (p->ready && p->running && fits(p, p->g->batch.steps, &n) && w->have) {
        *x = x_of(p, w);
        *tokens = w->tokens;
        *samples = n * p->g->u.micro_batch;
        answer = GSP_FREEZE_READY;
        p->status.copied++;
    }
    pthread_mutex_unlock(&p->lock);
    return answer;
}

atom_status pool_gradients_part(pool_anchor *p, uint64_t first, const float *x, uint64_t n)
{
    if (x)
        ATOM_TRY(pool_floats_put(p->sent, first, n, x));
    pool_ranges_set(&p->ranges, first, n, x != NULL);
    return ATOM_OK;
}

/* The sum grows; when nothing is open any more it becomes a step. */
static atom_status add(pool_anchor *p, const gsp_proposal *c, const pool_verdict *v)
{
    pool_gradients *g = p->g;
    pool_batch *b = &g->next;
    pool_batch_shares(b, &p->roster, c, v);
    if (v->whole)
        pool_batch_add(b, v);
    pool_sums_next next = {.u = &g->u,
                           .whole = v->whole,
                           .steps = v->whole && !b->n_open,
                           .share = (float)v->tokens,
                           .step = b->steps + 1,
                           .space = g->space};
    if (next.steps)
        next.one = (float)(1.0 / (double)b->tokens);
    ATOM_TRY(pool_sums_make(p, &next));
    if (!next.steps)
        return ATOM_OK;
    pool_batch_begin(b);
    b->steps++;
    g->next_norm = next.norm;
    g->next_rate = next.rate;
    return ATOM_OK;
}

/* No more sums: a batch that void versions left unfinished is no step, and momentum begins at zero. */
static void give_up_rest(pool_anchor *p)
{
    memset(pool_gradients_momentum(p), 0, p->fragment[0].n * sizeof(float));
    pool_batch_begin(&p->g->next);
}

/* What was made is on disk: others may see it. */
static void commit(pool_anchor *p, const gsp_proposal *c, const pool_header *header,
                   const pool_verdict *v)
{
    pool_gradients *g = p->g;
    pool_fragment *f = &p->fragment[0];
    pthread_mutex_lock(&p->lock);
    if (g->next.steps != g->batch.steps) {
        g->changes++;
        g->grad_norm = g->next_norm;
        g->rate = g->next_rate;
    }
    for (uint32_t i = 0; v->whole && i < c->n_contributors; i++)
        if ((v->everywhere >> i & 1) &&
            gsp_key_compare(&p->roster.member[c->contributor[i].member].key, &p->c.self) == 0)
            p->status.included++;
    p->status.void_versions += v->anywhere && !v->whole;
    g->batch = g->next;
    if (p->c.on_disk) {
        pool_anchor_turn(p, f, header);
    } else { /* it was made in place */
        f->version = c->version;
        f->hash = header->anchor;
        f->slot ^= 1;
    }
    f->merged = c->version;
    p->applied = c->version;
    p->certified_samples = c->samples;
    p->lineage = c->lineage;
    p->roster = c->next;
    g->applying = false;
    pthread_cond_broadcast(&g->moved);
    pthread_mutex_unlock(&p->lock);
}

atom_status pool_gradients_apply(pool_anchor *p, const gsp_proposal *c)
{
    const pool_fragment *f = &p->fragment[0];
    pool_header header = {
        .epoch = p->epoch, .version = c->version, .n = f->n, .lineage = c->lineage};
    pool_verdict v;
    pthread_mutex_lock(&p->lock); /* of the list */
    pool_batch_judge(&p->g->batch, c, &p->roster, f->n, pool_ranges_floats(&p->ranges), p->g->list,
                     &v);
    pthread_mutex_unlock(&p->lock);
    pool_gradients_hold(p, true);
    p->g->next = p->g->batch;
    if (p->c.on_disk) {
        pool_anchor_drop_next(p);
        ATOM_TRY(pool_next_open(&p->store, 0, &p->next));
    }
    atom_status st = add(p, c, &v);
    p->ranges.n = 0;
    ATOM_TRY(st);
    if (p->c.dense_samples && c->samples >= p->c.dense_samples)
        give_up_rest(p);
    ATOM_TRY(write_batch(p, &p->g->next, p->next));
    ATOM_TRY(
        p->c.on_disk
            ? pool_next_end(&p->store, 0, f->slot ^ 1, p->next, &header, p->room.at, p->room.floats)
            : pool_file_write(&p->store, 0, f->slot ^ 1, &header, f->anchor, f->momentum));
    commit(p, c, &header, &v);
    p->g->counted_version = c->version;
    p->g->counted = v.whole ? v.everywhere : 0;
    return ATOM_OK;
}

uint32_t pool_gradients_counted(void *context, const gsp_certificate *certificate)
{
    const pool_anchor *p = context;
    const gsp_proposal *c = &certificate->proposal;
    uint32_t anywhere = 0;
    if (p->g->counted_version == c->version)
        return p->g->counted;
    for (uint32_t k = 0; p->c.dense_samples && k < c->n_parts; k++)
        anywhere |= c->part[k].included;
    return anywhere;
}

void pool_gradients_hold(pool_anchor *p, bool hold)
{
    if (!p->g)
        return;
    pthread_mutex_lock(&p->lock);
    p->g->applying = hold;
    pthread_cond_broadcast(&p->g->moved);
    pthread_mutex_unlock(&p->lock);
}

/* ---- the trainer's thread ---- */

/* The lock is held: a lease of that batch that I have not worked on. */
static bool is_new(const pool_anchor *p, uint64_t batch)
{
    uint32_t n;
    return p->running && !fits(p, batch, &n) && n > 0;
}

/* The lock is held: the weights where the trainer's next gradients are taken, as `changes` counts them.
 * Delayed: what is still open of the batch is computed at those before the newest step. */
static uint64_t wanted(const pool_anchor *p)
{
    const pool_gradients *g = p->g;
    bool back = g->u.delayed && g->batch.steps > 0 && is_new(p, g->batch.steps);
    return g->changes - back;
}

/* The lock is held, and given away while a file is read, which stays as it is whatever comes. */
static atom_status put_from_disk(pool_anchor *p, const file_vector state[3])
{
    bool behind = p->g->behind;
    int fd = fcntl(p->fragment[0].file, F_DUPFD_CLOEXEC, 0);
    if (fd < 0)
        return atom_fail_errno(errno, "cannot read the pool's anchor");
    pthread_mutex_unlock(&p->lock);
    atom_status st = pool_sums_put(p, p->g->u.delayed, fd, behind, state);
    close(fd);
    pthread_mutex_lock(&p->lock);
    return st;
}

/* The lock is held: the weights that are wanted, into the trainer's memory or onto its disk. */
static atom_status put_state(pool_anchor *p, const file_vector state[3])
{
    pool_fragment *f = &p->fragment[0];
    uint64_t version = f->version;
    pool_gradients *g = p->g;
    g->taken = wanted(p);
    g->behind = g->taken != g->changes;
    g->taken_steps = g->batch.steps;
    g->taken_norm = g->grad_norm;
    g->taken_rate = g->rate;
    ATOM_TRY(p->c.on_disk ? put_from_disk(p, state)
                          : pool_sums_put(p, g->u.delayed, -1, g->behind, state));
    if (g->behind || f->version != version) /* another one that came meanwhile is taken next */
        return ATOM_OK;
    pool_fragment_forget(f); /* live is the anchor */
    f->merged = f->version;
    p->status.merged++;
    return ATOM_OK;
}

static void wait_a_little(pool_anchor *p)
{
    struct timespec until;
    uint64_t begin = atom_clock_ns();
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += WAIT_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&p->g->moved, &p->lock, &until);
    p->status.wait_seconds += 1e-9 * (double)(atom_clock_ns() - begin);
}

/* The lock is held: a lease that I have not worked on; of the batch, or else of the one after it. */
static bool new_lease(pool_anchor *p, train_lease *out)
{
    const pool_gradients *g = p->g;
    uint64_t batch = g->batch.steps;
    if (g->u.delayed && !is_new(p, batch))
        batch++;
    if (!is_new(p, batch) || g->taken != wanted(p))
        return false;
    share_of_batch *w = work_of(p, batch);
    *w = (share_of_batch){.x = w->x, .mine = w->mine, .batch = batch};
    w->n_mine = lease_now(p, batch, w->mine);
    memset(x_of(p, w), 0, p->fragment[0].n * sizeof *w->x);
    out->n = w->n_mine;
    out->micro_batch = w->mine;
    out->sum = x_of(p, w);
    out->batch = batch;
    return true;
}

/* The lock is held: the trainer needs weights that it does not have. */
static bool is_newer(const pool_anchor *p)
{
    return !p->g->applying && p->g->taken != wanted(p);
}

/* The lock is held, and given away while readers leave what is about to change. */
static void leave(pool_anchor *p, const train_reader *reader)
{
    pthread_mutex_unlock(&p->lock);
    reader->leave(reader->ctx, 0, p->fragment[0].n);
    pthread_mutex_lock(&p->lock);
}

static atom_status take(void *context, const file_vector state[3], const train_reader *reader,
                        train_lease *out)
{
    pool_anchor *p = context;
    pool_gradients *g = p->g;
    atom_status st = ATOM_OK;
    *out = (train_lease){0};
    pthread_mutex_lock(&p->lock);
    for (int k = 0; k < 2; k++)
        if (!g->work[k].have)
            g->work[k].n_mine = 0; /* the one before was given up */
    for (int tries = 0; tries < 2; tries++) {
        if (is_newer(p) && reader)
            leave(p, reader);
        if (is_newer(p)) {
            st = put_state(p, state);
            out->moved = true;
        }
        if (st != ATOM_OK || (!g->applying && (new_lease(p, out) || out->moved)))
            break;
        if (tries == 0)
            wait_a_little(p);
    }
    uint64_t each = g->u.micro_batches * g->u.micro_batch;
    out->steps = g->taken_steps;
    out->behind = g->behind;
    out->samples = g->taken_steps * each;
    out->first_sample = out->batch * each;
    out->grad_norm = g->taken_norm;
    out->rate = g->taken_rate;
    pthread_mutex_unlock(&p->lock);
    return st;
}

static bool current(void *context, const train_lease *lease)
{
    pool_anchor *p = context;
    uint32_t n;
    pthread_mutex_lock(&p->lock);
    bool same = work_of(p, lease->batch)->batch == lease->batch &&
                (p->g->applying || fits(p, lease->batch, &n));
    pthread_mutex_unlock(&p->lock);
    return same;
}

static void bring(void *context, const train_lease *lease, uint64_t tokens)
{
    pool_anchor *p = context;
    uint64_t n = p->fragment[0].n, weight = tokens ? tokens : 1;
    float one = (float)(1.0 / (double)weight);
    for (uint64_t i = 0; i < n; i++)
        lease->sum[i] *= one;
    pthread_mutex_lock(&p->lock);
    share_of_batch *w = work_of(p, lease->batch);
    w->tokens = weight; /* a lease without a target counts as one, lest it stay open */
    w->have = true;
    pthread_mutex_unlock(&p->lock);
}

/* Whoever begins with steps of its own has the anchor and the moments of the last common step first. */
static bool own(void *context, uint64_t samples, uint64_t tokens)
{
    pool_anchor *p = context;
    pool_gradients *g = p->g;
    pthread_mutex_lock(&p->lock);
    bool sums = pool_anchor_sums(p) || !p->ready;
    bool begins = !sums && !g->own && !g->applying && g->taken == g->changes;
    if (begins) {
        p->samples = p->samples_included = samples;
        p->tokens = p->fragment[0].tokens_included = tokens;
    }
    g->own = !sums && (g->own || begins);
    bool is = g->own && !(begins && pool_anchor_agreed(p)); /* then it only stands */
    pthread_mutex_unlock(&p->lock);
    return is;
}

void pool_gradients_seam(const pool_anchor *p, train_seam *seam)
{
    seam->shared = true;
    seam->take = take;
    seam->current = current;
    seam->bring = bring;
    seam->own = p->c.dense_samples ? own : NULL;
}
