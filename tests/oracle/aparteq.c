/*
 * Documents packed apart (krn_step.starts) are the documents alone: two texts behind each other in
 * one sample give, token for token, the losses of the two as samples of their own, and the sum of
 * their gradients; for models of all families, windows included, on ref and cpu. And packed across
 * they do not: without that the test would prove nothing.
 *
 *   aparteq [SEEDS]
 */
#include "atom/base/mem.h"
#include "atom/train/init.h"
#include "tests/lib/random_model.h"
#include "tests/oracle/walker.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { T_MAX = 200 };

typedef struct model {
    graph_config config;
    const krn_table *table;
    const krn_host_table *host;
    uint64_t seed;
} model;

/* One sample of T tokens. Adds its gradients to grad, f32[extent], which is made when it is NULL. */
static atom_status run(const model *m, int32_t *text, int64_t T, const int32_t *starts,
                       float *losses, float **grad, uint64_t *extent)
{
    graph *g = NULL;
    walker *w = NULL;
    krn_step step = {.seed = 1, .step = 1, .loss_scale = 1.0f / 64, .starts = starts};
    atom_status st;
    ATOM_TRY_CLEAN(graph_model_build(&m->config, ATOM_F32, 1, T, &g));
    ATOM_TRY_CLEAN(walker_open(g, m->table, m->host, NULL, 1, &w));
    train_init_weights(g, m->seed, w->master);
    walker_sync_wire(w);
    walker_gradients(w, &step, text, text + 1, losses);
    *extent = g->param_extent;
    if (!*grad)
        *grad = atom_alloc(*extent, sizeof **grad);
    if (!*grad) {
        st = atom_fail_memory("gradients", *extent * 4);
        goto cleanup;
    }
    for (uint64_t e = 0; e < *extent; e++)
        (*grad)[e] += w->grad[e];
cleanup:
    walker_close(&w);
    graph_close(&g);
    return st;
}

static double distance(const float *a, const float *b, uint64_t n)
{
    double away = 0, size = 0;
    for (uint64_t i = 0; i < n; i++) {
        away += pow((double)a[i] - (double)b[i], 2);
        size += pow((double)b[i], 2);
    }
    return sqrt(away / size);
}

static model model_of(uint64_t seed)
{
    random_gpt2 r = seed % 4 == 0 ? random_gpt2_make(seed) : random_llama_make(seed);
    bool cpu = seed % 2;
    model m = {.config = r.config,
               .seed = seed,
               .table = cpu ? krn_cpu_table(ATOM_F32) : krn_ref_table(ATOM_F32),
               .host = cpu ? krn_cpu_host_table() : krn_ref_host_table()};
    m.config.positions = T_MAX;
    m.config.init_std = 0.1f;
    if (m.config.window > 0 && seed % 3 == 0)
        m.config.window = 64 + 1;
    return m;
}

static int trial(uint64_t seed, double *worst)
{
    model m = model_of(seed);
    int64_t first = random_gpt2_draw(seed, 300, 1, 120),
            T = first + random_gpt2_draw(seed, 301, 1, 79);
    int32_t text[T_MAX + 1], starts[T_MAX] = {0};
    float alone[T_MAX], apart[T_MAX], across[T_MAX], *grads[3] = {NULL};
    uint64_t extent = 0;
    double off[2] = {0}, plain = 0;
    atom_status st;
    for (int64_t t = 0; t <= T; t++)
        text[t] = (int32_t)random_gpt2_draw(seed, (uint64_t)(400 + t), 0, m.config.vocab_size - 1);
    for (int64_t t = first; t < T; t++)
        starts[t] = (int32_t)first;
    ATOM_TRY_CLEAN(run(&m, text, first, NULL, alone, &grads[0], &extent));
    ATOM_TRY_CLEAN(run(&m, text + first, T - first, NULL, alone + first, &grads[0], &extent));
    ATOM_TRY_CLEAN(run(&m, text, T, starts, apart, &grads[1], &extent));
    ATOM_TRY_CLEAN(run(&m, text, T, NULL, across, &grads[2], &extent));
    off[0] = distance(apart, alone, (uint64_t)T);
    off[1] = distance(grads[1], grads[0], extent);
    plain = distance(across, alone, (uint64_t)T);
cleanup:
    for (int i = 0; i < 3; i++)
        atom_free(grads[i]);
    *worst = fmax(*worst, fmax(off[0], off[1]));
    if (st == ATOM_OK && off[0] < 1e-6 && off[1] < 1e-6 && plain > 1e-4)
        return 0;
    fprintf(stderr,
            "seed %llu (%s, %lld + %lld tokens): losses %.1e, gradients %.1e, across %.1e %s\n",
            (unsigned long long)seed, m.table->backend, (long long)first, (long long)(T - first),
            off[0], off[1], plain, st == ATOM_OK ? "" : atom_fail_message());
    return 1;
}

int main(int argc, char **argv)
{
    uint64_t seeds = argc > 1 ? strtoull(argv[1], NULL, 10) : 12, bad = 0;
    double worst = 0;
    for (uint64_t seed = 1; seed <= seeds; seed++)
        bad += (uint64_t)trial(seed, &worst);
    printf("%llu pairs of documents, %llu differ, %.1e at most\n", (unsigned long long)seeds,
           (unsigned long long)bad, worst);
    return bad != 0;
}
