/*
 * Speaks for atom in gpt2_oracle.py and llama_oracle.py: reads a Hugging Face directory, trains it
 * on given batches with the walker, and writes all there is to compare.
 *
 *   oracle MODEL_DIR WORK_DIR DTYPE BACKEND B T C STEPS LR DECAY MAX_GRAD_NORM PLAIN
 *
 * WORK_DIR/batches.bin  i32[STEPS][tokens, targets][C][B*T]
 * writes there: logits.bin f32[B*T*V] (first micro-batch, before training), losses.bin
 * f32[STEPS][C][B*T], norms.bin f64[STEPS], grad/model.safetensors (first step), final/ (a
 * directory that transformers loads), final_logits.bin. PLAIN 1: the graph is not fused. AdamW:
 * betas 0.9 and 0.95, epsilon 1e-4.
 */
#include "atom/base/files.h"
#include "atom/base/mem.h"
#include "atom/file/hfdir.h"
#include "tests/oracle/walker.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct job {
    const char *model, *work;
    atom_dtype dtype;
    bool cpu, plain;
    int64_t B, T;
    uint32_t C, steps;
    double lr, decay;
    float max_grad_norm;
    graph_config config;
    graph *g, *unfused;
    walker *w;      /* over g */
    walker *reader; /* over unfused: it has logits */
    atom_threads *threads;
    int32_t *batches;
} job;

static atom_status write_file(const job *j, const char *name, const void *data, uint64_t bytes)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", j->work, name);
    return atom_file_write(path, data, bytes);
}

static atom_status open_job(job *j)
{
    char path[4096], *batches = NULL;
    uint64_t bytes = 0, want = (uint64_t)(j->steps * 2 * j->C) * (uint64_t)(j->B * j->T) * 4;
    const krn_table *table = j->cpu ? krn_cpu_table(j->dtype) : krn_ref_table(j->dtype);
    const krn_host_table *host = j->cpu ? krn_cpu_host_table() : krn_ref_host_table();
    atom_status st = ATOM_OK;
    snprintf(path, sizeof path, "%s/config.json", j->model);
    ATOM_TRY(file_config_read(path, &j->config, NULL));
    ATOM_TRY(graph_model_build(&j->config, j->dtype, j->B, j->T, &j->unfused));
    ATOM_TRY(j->plain ? graph_model_build(&j->config, j->dtype, j->B, j->T, &j->g)
                      : graph_fuse(j->unfused, &j->g));
    ATOM_TRY(atom_threads_open(2, &j->threads));
    ATOM_TRY(walker_open(j->g, table, host, j->threads, j->C, &j->w));
    ATOM_TRY(walker_open(j->unfused, table, host, j->threads, 1, &j->reader));
    ATOM_TRY(file_weights_read(j->model, j->g, j->w->master));
    snprintf(path, sizeof path, "%s/batches.bin", j->work);
    ATOM_TRY(atom_file_read(path, want, &batches, &bytes));
    j->batches = (int32_t *)(void *)batches;
    if (bytes != want)
        st = atom_fail(ATOM_E_FORMAT, "%s: %llu bytes, not %llu", path, (unsigned long long)bytes,
                       (unsigned long long)want);
    return st;
}

static void close_job(job *j)
{
    walker_close(&j->w);
    walker_close(&j->reader);
    atom_threads_close(&j->threads);
    graph_close(&j->g);
    graph_close(&j->unfused);
    atom_free(j->batches);
}

/* Logits of the first micro-batch with the weights as they are now. */
static atom_status write_logits(job *j, const char *name)
{
    const graph *g = j->unfused;
    krn_step step = {.step = 1, .loss_scale = 1};
    memcpy(j->reader->master, j->w->master, g->param_extent * sizeof(float));
    walker_sync_wire(j->reader);
    walker_forward(j->reader, &step, j->batches, j->batches + j->C * j->B * j->T);
    for (uint32_t n = 0; n < g->n_nodes; n++) {
        if (strcmp(g->nodes[n].name, "lm_head") != 0)
            continue;
        uint64_t elements = graph_tensor_elements(g, g->nodes[n].out[0]);
        float *logits = atom_alloc(elements, sizeof *logits);
        if (!logits)
            return atom_fail_memory("logits", elements * sizeof *logits);
        walker_read(j->reader, g->nodes[n].out[0], logits);
        float cap = g->nodes[g->tensors[g->loss].producer].cap; /* the loss bends them */
        for (uint64_t i = 0; i < elements && cap > 0; i++)
            logits[i] = cap * tanhf(logits[i] / cap);
        atom_status st = write_file(j, name, logits, elements * sizeof *logits);
        atom_free(logits);
        return st;
    }
    return atom_fail(ATOM_E_RUNTIME, "the graph has no lm_head");
}

static atom_status write_weights(const job *j, const char *name, const float *vector)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", j->work, name);
    ATOM_TRY(atom_dir_make(path));
    ATOM_TRY(file_config_write(path, &j->config, NULL, NULL));
    return file_weights_write(path, j->g, vector);
}

static atom_status train(job *j, float *losses, double *norms)
{
    size_t n = (size_t)(j->C * j->B * j->T);
    walker_sync_wire(j->w);
    for (uint32_t s = 1; s <= j->steps; s++) {
        int32_t *tokens = j->batches + (s - 1) * 2 * n, *targets = tokens + n;
        uint32_t count = 0;
        for (size_t i = 0; i < n; i++)
            count += targets[i] >= 0;
        krn_step step = {.step = s, .loss_scale = 1.0f / (float)count, .train = 1};
        krn_adamw_step update = walker_adamw_step(s, j->lr, 0.9, 0.95, 1e-4, j->decay);
        walker_gradients(j->w, &step, tokens, targets, losses + (s - 1) * n);
        if (s == 1)
            ATOM_TRY(write_weights(j, "grad", j->w->grad));
        norms[s - 1] = walker_update(j->w, &update, NULL, j->max_grad_norm);
    }
    return ATOM_OK;
}

static atom_status run(job *j)
{
    float *losses = NULL;
    double *norms = NULL;
    atom_status st;
    ATOM_TRY_CLEAN(open_job(j));
    ATOM_TRY_CLEAN(write_logits(j, "logits.bin"));
    uint64_t n = (uint64_t)(j->steps * j->C) * (uint64_t)(j->B * j->T);
    losses = atom_alloc(n, sizeof *losses);
    norms = atom_alloc(j->steps, sizeof *norms);
    if (!losses || !norms) {
        st = atom_fail_memory("losses", n * sizeof *losses);
        goto cleanup;
    }
    ATOM_TRY_CLEAN(train(j, losses, norms));
    ATOM_TRY_CLEAN(write_file(j, "losses.bin", losses, n * sizeof *losses));
    ATOM_TRY_CLEAN(write_file(j, "norms.bin", norms, j->steps * sizeof *norms));
    ATOM_TRY_CLEAN(write_weights(j, "final", j->w->master));
    ATOM_TRY_CLEAN(write_logits(j, "final_logits.bin"));
cleanup:
    atom_free(losses);
    atom_free(norms);
    return st;
}

int main(int argc, char **argv)
{
    if (argc != 13) {
        fprintf(stderr, "oracle: 12 arguments, see oracle.c\n");
        return 2;
    }
    job j = {.model = argv[1],
             .work = argv[2],
             .cpu = strcmp(argv[4], "cpu") == 0,
             .B = atoll(argv[5]),
             .T = atoll(argv[6]),
             .C = (uint32_t)atoi(argv[7]),
             .steps = (uint32_t)atoi(argv[8]),
             .lr = atof(argv[9]),
             .decay = atof(argv[10]),
             .max_grad_norm = (float)atof(argv[11]),
             .plain = atoi(argv[12]) != 0};
    atom_status st = ATOM_E_USAGE;
    if (atom_dtype_parse(argv[3], &j.dtype) == 0)
        st = run(&j);
    if (st != ATOM_OK)
        fprintf(stderr, "oracle: %s\n", atom_fail_message());
    close_job(&j);
    return atom_status_exit_code(st);
}
