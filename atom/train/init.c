/* Owns initial weights. One idea: a weight is a pure function of (seed, parameter, element), and the
 * same with bottlenecks in the model as without. */
#include "atom/train/init.h"

#include "atom/base/rng.h"

#include <math.h>
#include <string.h>

/* Elements [from, to) of a parameter. */
static void init_param(const graph_param *p, uint32_t index, uint64_t seed, uint64_t from,
                       uint64_t to, float *at)
{
    atom_rng_key key = {.seed = seed, .step = 0, .micro_batch = 0, .node = index};
    for (uint64_t e = from; e < to; e++) {
        if (p->init == GRAPH_INIT_NORMAL)
            at[e - from] = (float)(atom_rng_normal(key, e) * (double)p->init_std);
        else if (p->init == GRAPH_INIT_UNIFORM) /* on [-1, 1) times sqrt(3) std */
            at[e - from] = (float)(((double)atom_rng_u32(key, e) * 0x1p-31 - 1.0) * sqrt(3.0) *
                                   (double)p->init_std);
        else
            at[e - from] = p->init == GRAPH_INIT_ONE ? 1.0f : 0.0f;
    }
}

enum { BOTTLENECKS = 1 << 20 }; /* from here on they draw; graphs have fewer parameters */

static void init_elements(const graph *g, uint64_t seed, uint64_t first, uint64_t n, float *out)
{
    uint32_t bottlenecks = 0;
    memset(out, 0, n * sizeof *out);
    for (uint32_t i = 0; i < g->n_params; i++) {
        const graph_param *p = &g->params[i];
        bool narrow = graph_is_bottleneck(p);
        uint32_t index = narrow ? BOTTLENECKS + bottlenecks : i - bottlenecks;
        bottlenecks += narrow;
        uint64_t from = p->offset > first ? p->offset : first;
        uint64_t to = p->offset + p->elements < first + n ? p->offset + p->elements : first + n;
        if (from < to)
            init_param(p, index, seed, from - p->offset, to - p->offset, out + (from - first));
    }
}

enum { SLICE = 1 << 13 };

typedef struct init_job {
    const graph *g;
    uint64_t seed, first, n;
    float *out;
} init_job;

static void init_slice(void *ctx, uint32_t i, uint32_t worker)
{
    const init_job *job = ctx;
    uint64_t at = (uint64_t)i * SLICE, left = job->n - at;
    (void)worker;
    init_elements(job->g, job->seed, job->first + at, left < SLICE ? left : SLICE, job->out + at);
}

void train_init_range(const graph *g, uint64_t seed, uint64_t first, uint64_t n,
                      atom_threads *threads, float *out)
{
    init_job job = {g, seed, first, n, out};
    atom_parallel(threads, (uint32_t)((n + SLICE - 1) / SLICE), init_slice, &job);
}

void train_init_weights(const graph *g, uint64_t seed, float *master)
{
    init_elements(g, seed, 0, g->param_extent, master);
}
