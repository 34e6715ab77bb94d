/*
 * Owns gradients mode of a pool (docs/design/pool.md#what-is-averaged, #agreement): which
 * member computes what, the sum of what came, the step when it is whole. One idea: leases follow from the
 * agreed state and the roster, which every member has, so nobody hands them out and a dead member's
 * are somebody else's in the next version. Refuses a version whose parts are sums over different
 * members: each sample counts once or not at all.
 */
#include "atom/pool/anchor_inner.h"
#include "atom/pool/step.h"

#include "atom/base/assert.h"
#include "atom/base/clock.h"
#include "atom/base/mem.h"

#include <string.h>
#include <time.h>

enum { HEAD_WORDS = 8, MAGIC = 0x31736d67 /* gms1 */, WAIT_NS = 50000000 };

/* ---- the state ---- */

static uint64_t tail_words(uint32_t micro_batches)
{
    return HEAD_WORDS + (micro_batches + 31) / 32;
}

uint64_t pool_gradients_outer(const pool_gradients *g, uint64_t n)
{
    return 3 * n + tail_words(g->u.micro_batches);
}

static float *sum_of(const pool_anchor *p)
{
    return p->fragment[0].momentum + 2 * p->fragment[0].n;
}

static void write_tail(pool_anchor *p, const pool_batch *b)
{
    uint32_t head[HEAD_WORDS] = {MAGIC,
                                 p->g->u.micro_batches,
                                 (uint32_t)b->steps,
                                 (uint32_t)(b->steps >> 32),
                                 (uint32_t)b->tokens,
                                 (uint32_t)(b->tokens >> 32),
                                 b->brought,
                                 b->n_open};
    float *to = sum_of(p) + p->fragment[0].n;
    memcpy(to, head, sizeof head);
    memcpy(to + HEAD_WORDS, b->open,
           (tail_words(p->g->u.micro_batches) - HEAD_WORDS) * sizeof(uint32_t));
}

static bool is_open(const pool_batch *b, uint32_t i)
{
    return b->open[i / 32] >> i % 32 & 1;
}

static void open_all(pool_batch *b, uint32_t n)
{
    memset(b->open, 0, sizeof b->open);
    for (uint32_t i = 0; i < n; i++)
        b->open[i / 32] |= 1u << i % 32;
    b->n_open = n;
    b->tokens = 0;
    b->brought = 0;
}

atom_status pool_gradients_read(pool_anchor *p)
{
    pool_gradients *g = p->g;
    uint32_t head[HEAD_WORDS], n_open = 0;
    const float *from = sum_of(p) + p->fragment[0].n;
    memcpy(head, from, sizeof head);
    if (head[0] != MAGIC || head[1] != g->u.micro_batches)
        return atom_fail(ATOM_E_FORMAT, "the pool's state is not of gradients of %u micro-batches",
                         g->u.micro_batches);
    pthread_mutex_lock(&p->lock);
    pool_batch *b = &g->batch;
    b->steps = head[2] | (uint64_t)head[3] << 32;
    b->tokens = head[4] | (uint64_t)head[5] << 32;
    b->brought = head[6];
    memcpy(b->open, from + HEAD_WORDS,
           (tail_words(g->u.micro_batches) - HEAD_WORDS) * sizeof(uint32_t));
    for (uint32_t i = 0; i < g->u.micro_batches; i++)
        n_open += is_open(b, i);
    b->n_open = n_open;
    g->have = false;
    g->n_mine = 0;
    g->changes++;
    pthread_cond_broadcast(&g->moved);
    pthread_mutex_unlock(&p->lock);
    return ATOM_OK;
}

void pool_gradients_begin(pool_anchor *p)
{
    open_all(&p->g->batch, p->g->u.micro_batches);
    p->g->changes++;
    write_tail(p, &p->g->batch);
}

atom_status pool_gradients_open(pool_anchor *p)
{
    const pool_update *u = p->c.update;
    pthread_condattr_t clock;
    if (u->micro_batches == 0 || u->micro_batches > POOL_MICRO_BATCHES_MAX || u->micro_batch == 0 ||
        p->c.n_fragments != 1)
        return atom_fail(ATOM_E_USAGE, "gradients: 1 to %d micro-batches a step, and one fragment",
                         POOL_MICRO_BATCHES_MAX);
    pool_gradients *g = atom_alloc(1, sizeof *g);
    if (!g)
        return atom_fail_memory("a pool's gradients", sizeof *g);
    p->g = g;
    g->u = *u;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&g->moved, &clock);
    pthread_condattr_destroy(&clock);
    g->list = atom_alloc(u->micro_batches, sizeof *g->list);
    g->mine = atom_alloc(u->micro_batches, sizeof *g->mine);
    return g->list && g->mine ? ATOM_OK
                              : atom_fail_memory("a lease", u->micro_batches * sizeof *g->list);
}

void pool_gradients_close(pool_anchor *p)
{
    pool_gradients *g = p->g;
    if (!g)
        return;
    pthread_cond_destroy(&g->moved);
    atom_free(g->list);
    atom_free(g->mine);
    atom_free(g);
}

uint64_t pool_gradients_samples(const pool_anchor *p)
{
    const pool_gradients *g = p->g;
    uint64_t done = g->u.micro_batches - g->batch.n_open;
    return (g->batch.steps * g->u.micro_batches + done) * g->u.micro_batch;
}

bool pool_gradients_over(const pool_anchor *p)
{
    return p->g->taken == p->g->changes && !p->g->applying;
}

/* ---- leases ---- */

/* The micro-batches that member `index` of n computes for the next version. */
static uint32_t lease_of(const pool_anchor *p, uint32_t n, uint32_t index, uint32_t *list)
{
    const pool_gradients *g = p->g;
    const pool_batch *b = &g->batch;
    uint32_t all = n >= 32 ? UINT32_MAX : (1u << n) - 1;
    uint32_t may = b->brought & all ? b->brought & all : all;
    uint32_t k = (uint32_t)__builtin_popcount(may), at = 0, found = 0;
    bool over =
        p->c.max_samples && b->steps * g->u.micro_batches * g->u.micro_batch >= p->c.max_samples;
    if (over || index >= n || !(may >> index & 1))
        return 0;
    uint64_t rank = (uint64_t)__builtin_popcount(may & ((1u << index) - 1));
    uint64_t from = b->n_open * rank / k, to = b->n_open * (rank + 1) / k;
    for (uint32_t i = 0; i < g->u.micro_batches; i++) {
        if (!is_open(b, i))
            continue;
        if (at >= from && at < to)
            list[found++] = i;
        at++;
    }
    return found;
}

/* The lock is held: mine, now. */
static uint32_t lease_now(const pool_anchor *p, uint32_t *list)
{
    for (uint32_t i = 0; p->ready && i < p->roster.n; i++)
        if (gsp_key_compare(&p->roster.member[i].key, &p->c.self) == 0)
            return lease_of(p, p->roster.n, i, list);
    return 0;
}

/* The lock is held: x is, or will be, what the next version wants of me; n: of my lease. */
static bool fits(const pool_anchor *p, uint32_t *n)
{
    pool_gradients *g = p->g;
    *n = lease_now(p, g->list);
    return *n > 0 && *n == g->n_mine && g->steps == g->batch.steps &&
           memcmp(g->list, g->mine, *n * sizeof *g->list) == 0;
}

/* ---- the member's thread ---- */

uint64_t pool_gradients_ready(void *context, uint64_t version)
{
    pool_anchor *p = context;
    uint64_t ready = 0;
    uint32_t n;
    pthread_mutex_lock(&p->lock);
    if (p->ready && p->applied + 1 == version) {
        bool whole = fits(p, &n) && p->g->have;
        if (whole && p->running)
            ready = 1 + n * p->g->u.micro_batch;
        else if (n == 0 || !p->running)
            ready = 1;
    }
    pthread_mutex_unlock(&p->lock);
    return ready;
}

gsp_freeze pool_gradients_freeze(pool_anchor *p, uint64_t version, const float **x,
                                 uint64_t *tokens, uint64_t *samples)
{
    gsp_freeze answer = GSP_FREEZE_NOTHING;
    uint32_t n;
    pthread_mutex_lock(&p->lock);
    if (p->ready && p->applied + 1 != version) {
        answer = GSP_FREEZE_LATER;
    } else if (p->ready && p->running && fits(p, &n) && p->g->have) {
        *x = p->x;
        *tokens = p->g->x_tokens;
        *samples = n * p->g->u.micro_batch;
        answer = GSP_FREEZE_READY;
        p->status.copied++;
    }
    pthread_mutex_unlock(&p->lock);
    return answer;
}

void pool_gradients_part(pool_anchor *p, uint64_t first, const float *x, uint64_t n)
{
    if (x)
        memcpy(p->sent + first, x, n * sizeof *x);
    pool_ranges_set(&p->ranges, first, n, x != NULL);
}

/* What a version is, by its certificate. */
typedef struct verdict {
    uint32_t everywhere, anywhere; /* bits of contributors: in all parts, in some */
    uint32_t n;                    /* R(version) */
    uint64_t tokens;
    uint32_t n_done; /* micro-batches, marked in g->done */
    bool whole;      /* the same contributors everywhere, each with its lease */
} verdict;

static void look_parts(const pool_anchor *p, const gsp_proposal *c, verdict *v)
{
    uint64_t n = p->fragment[0].n, stride = pool_part_stride(c, n);
    v->everywhere = UINT32_MAX;
    for (uint32_t k = 0; k < c->n_parts && k * stride < n; k++) {
        v->everywhere &= c->part[k].included;
        v->anywhere |= c->part[k].included;
    }
    v->everywhere &= v->anywhere;
    v->tokens = c->part[0].weight;
    v->whole =
        v->anywhere != 0 && v->everywhere == v->anywhere && pool_ranges_floats(&p->ranges) == n;
}

/* A member that did not bring its whole lease has brought nothing. What they brought is marked. */
static void look_people(pool_anchor *p, const gsp_proposal *c, verdict *v)
{
    pool_gradients *g = p->g;
    memset(g->done, 0, sizeof g->done);
    pthread_mutex_lock(&p->lock); /* of g->list */
    for (uint32_t i = 0; i < c->n_contributors; i++) {
        if (!(v->anywhere >> i & 1))
            continue;
        uint32_t n = lease_of(p, v->n, c->contributor[i].member, g->list);
        if (n == 0 || c->contributor[i].samples != n * g->u.micro_batch) {
            v->everywhere &= ~(1u << i);
            v->whole = false;
        }
        for (uint32_t k = 0; k < n; k++)
            g->done[g->list[k] / 32] |= 1u << g->list[k] % 32;
        v->n_done += n;
    }
    pthread_mutex_unlock(&p->lock);
}

/* Bits of R(version + 1) of those that are in all parts. */
static uint32_t brought_bits(const pool_anchor *p, const gsp_proposal *c, const verdict *v)
{
    uint32_t bits = 0;
    for (uint32_t i = 0; i < c->n_contributors && v->n == p->roster.n; i++) {
        if (!(v->everywhere >> i & 1))
            continue;
        const gsp_key *key = &p->roster.member[c->contributor[i].member].key;
        for (uint32_t k = 0; k < c->next.n; k++)
            if (gsp_key_compare(&c->next.member[k].key, key) == 0)
                bits |= 1u << k;
    }
    return bits;
}

static atom_status step(pool_anchor *p)
{
    pool_gradients *g = p->g;
    const pool_fragment *f = &p->fragment[0];
    pool_batch *b = &g->next;
    float *sum = sum_of(p), one = (float)(1.0 / (double)b->tokens);
    for (uint64_t i = 0; i < f->n; i++)
        sum[i] *= one;
    atom_status st = pool_step_make(&g->u, b->steps + 1, f->n, sum, f->anchor, f->momentum,
                                    f->momentum + f->n, &g->next_norm, &g->next_rate);
    memset(sum, 0, f->n * sizeof *sum);
    open_all(b, g->u.micro_batches);
    b->steps++;
    return st;
}

/* The sum grows; when nothing is open any more it becomes a step. */
static atom_status add(pool_anchor *p, const gsp_proposal *c, const verdict *v)
{
    pool_gradients *g = p->g;
    pool_batch *b = &g->next;
    float *sum = sum_of(p), share = (float)v->tokens;
    b->brought = brought_bits(p, c, v);
    if (!v->whole)
        return ATOM_OK;
    for (uint64_t i = 0; i < p->fragment[0].n; i++)
        sum[i] += share * p->sent[i];
    b->tokens += v->tokens;
    b->n_open -= v->n_done;
    for (uint32_t i = 0; i < sizeof b->open / sizeof *b->open; i++)
        b->open[i] &= ~g->done[i];
    return b->n_open ? ATOM_OK : step(p);
}

/* What was made is on disk: others may see it. */
static void commit(pool_anchor *p, const gsp_proposal *c, const pool_header *header,
                   const verdict *v)
{
    pool_gradients *g = p->g;
    pool_fragment *f = &p->fragment[0];
    pthread_mutex_lock(&p->lock);
    if (g->next.steps != g->batch.steps) {
        g->changes++;
        g->grad_norm = g->next_norm;
        g->rate = g->next_rate;
    }
    for (uint32_t i = 0; v->whole && i < c->n_contributors && v->n == p->roster.n; i++)
        if ((v->everywhere >> i & 1) &&
            gsp_key_compare(&p->roster.member[c->contributor[i].member].key, &p->c.self) == 0)
            p->status.included++;
    p->status.void_versions += v->anywhere && !v->whole;
    g->batch = g->next;
    f->version = c->version;
    f->merged = c->version;
    f->hash = header->anchor;
    f->slot ^= 1;
    p->applied = c->version;
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
    /* A lineage that I did not fetch is one that I founded: I am its roster. */
    verdict v = {.n = gsp_hash_equal(&p->lineage, &c->lineage) ? p->roster.n : 1};
    look_parts(p, c, &v);
    look_people(p, c, &v);
    pool_gradients_hold(p, true);
    p->g->next = p->g->batch;
    atom_status st = add(p, c, &v);
    p->ranges.n = 0;
    ATOM_TRY(st);
    write_tail(p, &p->g->next);
    ATOM_TRY(pool_file_write(&p->store, 0, f->slot ^ 1, &header, f->anchor, f->momentum));
    commit(p, c, &header, &v);
    return ATOM_OK;
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

/* The lock is held: weights and moments of the newest step, into the trainer's memory. */
static atom_status put_state(pool_anchor *p, const file_vector state[3])
{
    const pool_fragment *f = &p->fragment[0];
    const float *from[3] = {f->anchor, f->momentum, f->momentum + f->n};
    for (int k = 0; k < 3; k++)
        ATOM_TRY(state[k].put(state[k].ctx, 0, f->n, from[k]));
    p->g->taken = p->g->changes;
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

/* The lock is held: a lease that I have not worked on. */
static bool new_lease(pool_anchor *p, train_lease *out)
{
    pool_gradients *g = p->g;
    uint32_t n;
    if (!p->running || fits(p, &n) || n == 0)
        return false;
    memcpy(g->mine, g->list, n * sizeof *g->mine);
    g->n_mine = n;
    g->steps = g->batch.steps;
    g->have = false;
    memset(p->x, 0, p->fragment[0].n * sizeof *p->x);
    out->n = n;
    out->micro_batch = g->mine;
    out->sum = p->x;
    return true;
}

/* The lock is held: there are weights and moments that the trainer does not have. */
static bool is_newer(const pool_gradients *g)
{
    return !g->applying && g->taken != g->changes;
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
    if (!g->have)
        g->n_mine = 0; /* the one before was given up */
    for (int tries = 0; tries < 2; tries++) {
        if (is_newer(g) && reader)
            leave(p, reader);
        if (is_newer(g)) {
            st = put_state(p, state);
            out->moved = true;
        }
        if (st != ATOM_OK || (!g->applying && (new_lease(p, out) || out->moved)))
            break;
        if (tries == 0)
            wait_a_little(p);
    }
    uint64_t each = g->u.micro_batches * g->u.micro_batch;
    out->steps = g->batch.steps;
    out->samples = out->first_sample = g->batch.steps * each;
    out->grad_norm = g->grad_norm;
    out->rate = g->rate;
    pthread_mutex_unlock(&p->lock);
    return st;
}

static bool current(void *context, const train_lease *lease)
{
    pool_anchor *p = context;
    uint32_t n;
    pthread_mutex_lock(&p->lock);
    bool same = p->g->steps == lease->steps && (p->g->applying || fits(p, &n));
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
    p->g->x_tokens = weight; /* a lease without a target counts as one, lest it stay open */
    p->g->have = true;
    pthread_mutex_unlock(&p->lock);
}

void pool_gradients_seam(train_seam *seam)
{
    seam->shared = true;
    seam->take = take;
    seam->current = current;
    seam->bring = bring;
}
