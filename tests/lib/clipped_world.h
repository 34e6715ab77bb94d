/*
 * Gradients mode among strangers in one thread, without messages: one trainer computes the leases of all
 * members in turn, some of them lie about the sum (as tests/pool/liar.c does), and everything between
 * leases and weights is the product's own: leases, weights, the mix of each part, who is muted, what a
 * version counts for, the step. So a study of many liars is exact and takes seconds. Thread: the trainer's.
 */
#ifndef ATOM_TESTS_CLIPPED_WORLD_H
#define ATOM_TESTS_CLIPPED_WORLD_H

#include "atom/base/mem.h"
#include "atom/pool/anchor.h"
#include "atom/pool/step.h"
#include "gossip/agree/proposal.h"
#include "gossip/sum/mix.h"
#include "gossip/sum/reduce.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CLIPPED_PARTS = 4 };

typedef enum clipped_lie { HONEST, FLIP, TIMES_100, NOT_A_NUMBER, STALE, NOISE } clipped_lie;

typedef struct clipped_world {
    uint32_t n; /* members */
    bool robust;
    clipped_lie lie[GSP_MEMBERS_MAX];
    train_seam seam;
    pool_update u;
    gsp_rules rules;
    gsp_roster roster;
    pool_batch b;
    gsp_proposal before, now;
    gsp_mix mix;
    uint64_t floats, last, random;
    uint32_t turn; /* whose lease is computed */
    bool computed, moved;
    float *x[GSP_MEMBERS_MAX], *first[GSP_MEMBERS_MAX], *weights, *m, *v, *sum;
    void *space;
    uint32_t *list;
} clipped_world;

static float *clipped_floats(uint64_t n)
{
    float *x = atom_alloc(n, sizeof *x);
    if (!x)
        abort();
    return x;
}

static float clipped_noise(clipped_world *w)
{
    w->random ^= w->random << 13;
    w->random ^= w->random >> 7;
    w->random ^= w->random << 17;
    return (float)((double)(w->random >> 11) * 0x1p-52 - 1);
}

/* Of uniform noise as long as x. */
static float clipped_scale(const float *x, uint64_t n)
{
    double square = 0;
    for (uint64_t i = 0; i < n; i++)
        square += (double)x[i] * (double)x[i];
    return (float)sqrt(3 * square / (double)n);
}

static void clipped_tell(clipped_world *w, uint32_t i)
{
    float *x = w->x[i], scale = clipped_scale(x, w->floats);
    if (w->lie[i] == STALE && !w->first[i]) {
        w->first[i] = clipped_floats(w->floats);
        memcpy(w->first[i], x, w->floats * sizeof *x);
    }
    for (uint64_t k = 0; k < w->floats; k++) {
        switch (w->lie[i]) {
        case HONEST:
            break;
        case FLIP:
            x[k] = -x[k];
            break;
        case TIMES_100:
            x[k] *= 100;
            break;
        case NOT_A_NUMBER:
            x[k] = k % 8 ? x[k] : NAN;
            break;
        case STALE:
            x[k] = w->first[i][k];
            break;
        case NOISE:
            x[k] = scale * clipped_noise(w);
            break;
        }
    }
}

/* The version as owners, voters and members make it of what was brought; w->sum gets its average. */
static void clipped_average(clipped_world *w, pool_verdict *verdict)
{
    gsp_proposal *p = &w->now;
    atom_status st;
    memset(p, 0, sizeof *p);
    p->n_parts = CLIPPED_PARTS;
    p->next = w->roster;
    for (uint32_t i = 0; i < w->n; i++) {
        gsp_contribution c = {.root = {{1, (uint8_t)i}}};
        c.samples = pool_batch_leased(&w->b, &w->roster, i) * w->b.micro_batch;
        c.tokens = c.samples * w->rules.tokens_per_sample;
        gsp_contribution_clip(&w->rules, &w->before, &c);
        if (gsp_hash_none(&c.root))
            continue;
        p->contributor[p->n_contributors++] = (gsp_contributor){
            .member = (uint8_t)i, .root = c.root, .tokens = c.tokens, .samples = c.samples};
    }
    gsp_proposal_weigh(&w->rules, &w->before, p->contributor, p->n_contributors);
    uint64_t came = 0;
    for (uint32_t k = 0; k < CLIPPED_PARTS; k++) {
        const void *input[GSP_MEMBERS_MAX];
        uint64_t first, n = gsp_part_cut(w->floats, CLIPPED_PARTS, k, &first);
        for (uint32_t i = 0; i < p->n_contributors; i++)
            input[i] = w->x[p->contributor[i].member] + first;
        bool made =
            gsp_mix_part(&w->mix, k, p->contributor, p->n_contributors, input,
                         (1u << p->n_contributors) - 1, n, w->sum + first, &p->part[k], &st);
        came += made && gsp_included_enough(GSP_STRANGERS, p->n_contributors, p->part[k].included)
                    ? n
                    : 0;
    }
    for (uint32_t i = 0; i < w->n; i++)
        p->against[i] = gsp_proposal_against(&w->rules, &w->before, p, &w->roster.member[i].key);
    pool_batch_judge(&w->b, p, &w->roster, w->floats, came, w->list, verdict);
    pool_batch_shares(&w->b, &w->roster, p, verdict);
    w->before = *p;
}

static void clipped_step(clipped_world *w)
{
    static pool_verdict verdict;
    const pool_floats sum = {.at = w->sum};
    const pool_step_vectors state = {{.at = w->weights}, {.at = w->m}, {.at = w->v}};
    const pool_room room = {0};
    double rate;
    for (uint32_t i = 0; i < w->n; i++)
        clipped_tell(w, i);
    clipped_average(w, &verdict);
    w->turn = 0;
    if (!verdict.whole)
        return;
    pool_batch_add(&w->b, &verdict);
    if (w->b.n_open > 0)
        abort();
    if (pool_step_make(&w->u, w->b.steps + 1, gsp_norm(w->sum, w->floats), w->floats, &sum, &state,
                       &state, NULL, room, w->space, &rate) != ATOM_OK)
        abort();
    pool_batch_begin(&w->b);
    w->b.steps++;
    w->moved = true;
}

static atom_status clipped_take(void *context, const file_vector state[3],
                                const train_reader *reader, train_lease *out)
{
    clipped_world *w = context;
    if (!w->weights) {
        w->weights = clipped_floats(w->floats);
        w->m = clipped_floats(w->floats);
        w->v = clipped_floats(w->floats);
        w->sum = clipped_floats(w->floats);
        for (uint32_t i = 0; i < w->n; i++)
            w->x[i] = clipped_floats(w->floats);
        ATOM_TRY(state[0].get(state[0].ctx, 0, w->floats, w->weights));
    }
    w->turn += w->computed;
    w->computed = false;
    if (w->turn == w->n)
        clipped_step(w);
    bool over = w->b.steps == w->last;
    *out = (train_lease){.steps = w->b.steps,
                         .batch = w->b.steps,
                         .moved = w->moved,
                         .samples = w->b.steps * w->b.n * w->b.micro_batch,
                         .first_sample = w->b.steps * w->b.n * w->b.micro_batch,
                         .micro_batch = w->list,
                         .sum = w->x[w->turn]};
    if (w->moved && reader)
        reader->leave(reader->ctx, 0, w->floats);
    if (w->moved)
        ATOM_TRY(state[0].put(state[0].ctx, 0, w->floats, w->weights));
    w->moved = false;
    if (!over)
        out->n = pool_batch_lease(&w->b, &w->roster, w->turn, w->list);
    memset(out->sum, 0, w->floats * sizeof(float));
    return ATOM_OK;
}

static bool clipped_current(void *context, const train_lease *lease)
{
    (void)context, (void)lease;
    return true;
}

static void clipped_bring(void *context, const train_lease *lease, uint64_t tokens)
{
    clipped_world *w = context;
    float one = (float)(1.0 / (double)(tokens ? tokens : 1));
    for (uint64_t i = 0; i < w->floats; i++)
        lease->sum[i] *= one;
    w->computed = true;
}

static bool clipped_done(void *context)
{
    const clipped_world *w = context;
    return w->b.steps == w->last;
}

/* `last` steps of n members; the seam is what the trainer is opened with, clipped_follow what is said
 * afterwards. */
static void clipped_open(clipped_world *w, uint32_t n, bool robust, uint64_t last)
{
    memset(w, 0, sizeof *w);
    w->n = n;
    w->robust = robust;
    w->last = last;
    w->random = 88172645463325252ull;
    w->seam = (train_seam){.ctx = w,
                           .shared = true,
                           .host_bytes_per_float = 24,
                           .take = clipped_take,
                           .current = clipped_current,
                           .bring = clipped_bring,
                           .done = clipped_done};
    gsp_agree_defaults(&w->rules);
    w->rules.summed = true;
    w->rules.robust = robust;
    w->rules.trust = GSP_STRANGERS;
    w->roster.n = n;
    for (uint32_t i = 0; i < n; i++)
        w->roster.member[i] = (gsp_member){{{(uint8_t)(i + 1)}}, 1};
    w->before.next = w->roster;
}

static void clipped_follow(clipped_world *w, const trainer *t, uint32_t micro_batches,
                           uint64_t tokens_per_sample)
{
    pool_update_of(t, micro_batches, &w->u);
    w->floats = trainer_floats(t);
    w->rules.n_parts = CLIPPED_PARTS;
    w->rules.tokens_per_sample = tokens_per_sample;
    w->b = (pool_batch){.n = micro_batches, .micro_batch = w->u.micro_batch, .robust = w->robust};
    pool_batch_begin(&w->b);
    w->list = atom_alloc(micro_batches, sizeof *w->list);
    uint64_t bytes = pool_step_space(&w->u);
    w->space = bytes ? aligned_alloc(4096, (bytes + 4095) / 4096 * 4096) : NULL;
    if (!w->list || gsp_mix_open(&w->mix, GSP_CODEC_FP32, w->robust,
                                 gsp_part_stride(w->floats, CLIPPED_PARTS)) != ATOM_OK)
        abort();
}

static void clipped_close(clipped_world *w)
{
    for (uint32_t i = 0; i < w->n; i++) {
        atom_free(w->x[i]);
        atom_free(w->first[i]);
    }
    atom_free(w->weights);
    atom_free(w->m);
    atom_free(w->v);
    atom_free(w->sum);
    atom_free(w->list);
    free(w->space);
    gsp_mix_close(&w->mix);
}

#endif
