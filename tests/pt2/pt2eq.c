/*
 * A recorded model of PyTorch against atom: logits, loss and every gradient, under the names of the
 * user's state_dict; then written as a directory and read back, bit for bit.
 *
 *   pt2eq MODEL.pt2 RECORD.safetensors WORK_DIR [--canary]
 *
 * The record: make_fixtures.py. --canary turns one weight before comparing, and must fail.
 */
#include "atom/base/files.h"
#include "atom/base/mem.h"
#include "atom/file/hfdir.h"
#include "atom/file/safetensors.h"
#include "tests/oracle/walker.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double LIMIT = 1e-5;

typedef struct job {
    const char *work;
    file_model model;
    file_safetensors *record;
    graph *g, *fused;
    atom_threads *threads;
    int32_t *tokens, *targets;
    uint64_t n; /* tokens */
    int bad;
} job;

static float *floats(const file_safetensors *f, const char *name, uint64_t *n)
{
    const file_tensor *t = file_st_find(f, name);
    if (!t) {
        fprintf(stderr, "pt2eq: %s has no '%s'\n", f->path, name);
        exit(1);
    }
    float *out = atom_alloc(t->elements, sizeof *out);
    if (!out || file_st_read_f32(f, t, 0, t->elements, out) != ATOM_OK)
        exit(1);
    *n = t->elements;
    return out;
}

static int32_t *ids(const file_safetensors *f, const char *name, uint64_t *n)
{
    const file_tensor *t = file_st_find(f, name);
    int32_t *out = t ? atom_alloc(t->elements, sizeof *out) : NULL;
    if (!out || file_st_read(f, t, 0, t->bytes, out) != ATOM_OK)
        exit(1);
    *n = t->elements;
    return out;
}

/* ||a - b|| / ||b||, with a floor for what is zero. */
static void compare(job *j, const char *what, const float *a, const float *b, uint64_t n)
{
    double off = 0, all = 0;
    for (uint64_t i = 0; i < n; i++) {
        double d = (double)a[i] - (double)b[i];
        off += d * d;
        all += (double)b[i] * (double)b[i];
    }
    double limit = LIMIT * sqrt(all) + 1e-7;
    if (!(sqrt(off) <= limit)) {
        printf("pt2eq: %s is off by %.3g, limit %.3g\n", what, sqrt(off), limit);
        j->bad++;
    }
}

/* The loss reads the logits. */
static int32_t logits_of(const graph *g)
{
    return g->nodes[g->tensors[g->loss].producer].in[0];
}

static atom_status check_forward(job *j, const krn_table *table, const krn_host_table *host,
                                 const float *master)
{
    krn_step step = {.step = 1, .loss_scale = 1};
    uint64_t n, have = graph_tensor_elements(j->g, logits_of(j->g));
    float *want = floats(j->record, "logits", &n), *got = atom_alloc(have, sizeof *got);
    walker *w = NULL;
    atom_status st;
    ATOM_TRY_CLEAN(walker_open(j->g, table, host, j->threads, 1, &w));
    memcpy(w->master, master, j->g->param_extent * sizeof *master);
    walker_sync_wire(w);
    walker_forward(w, &step, j->tokens, j->targets);
    walker_read(w, logits_of(j->g), got);
    /* A soft cap of logits is the loss's. */
    double cap = (double)j->g->nodes[j->g->tensors[j->g->loss].producer].cap;
    for (uint64_t i = 0; i < have && cap > 0; i++)
        got[i] = (float)(cap * tanh((double)got[i] / cap));
    j->bad += have != n;
    compare(j, "logits", got, want, have < n ? have : n);
cleanup:
    walker_close(&w);
    atom_free(want);
    atom_free(got);
    return st;
}

/* Writes a vector as a directory and opens its tensors. */
static atom_status write_dir(job *j, const char *name, const float *vector, char *dir, size_t room,
                             file_safetensors **out)
{
    char path[4096];
    snprintf(dir, room, "%s/%s", j->work, name);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    ATOM_TRY(atom_dir_make(dir));
    ATOM_TRY(file_config_write(dir, &j->model.config, NULL, NULL));
    ATOM_TRY(file_weights_write(dir, j->g, vector));
    return file_st_open(path, out);
}

static atom_status check_gradients(job *j, const krn_table *table, const krn_host_table *host,
                                   const float *master)
{
    krn_step step = {.step = 1, .loss_scale = 1.0f / (float)j->n};
    float *losses = atom_alloc(j->n, sizeof *losses);
    double sum = 0, want = strtod(file_st_metadata(j->record, "loss"), NULL);
    file_safetensors *grads = NULL;
    char dir[2048];
    walker *w = NULL;
    atom_status st;
    ATOM_TRY_CLEAN(walker_open(j->fused, table, host, j->threads, 1, &w));
    memcpy(w->master, master, j->g->param_extent * sizeof *master);
    walker_sync_wire(w);
    walker_gradients(w, &step, j->tokens, j->targets, losses);
    for (uint64_t i = 0; i < j->n; i++)
        sum += (double)losses[i] / (double)j->n;
    if (!(fabs(sum - want) <= LIMIT * want)) {
        printf("pt2eq: the loss is %.9g, not %.9g\n", sum, want);
        j->bad++;
    }
    ATOM_TRY_CLEAN(write_dir(j, "grad", w->grad, dir, sizeof dir, &grads));
    uint32_t met = 0;
    for (uint32_t i = 0; i < j->record->n_tensors; i++) {
        const char *name = j->record->tensors[i].name;
        uint64_t n, m;
        if (strncmp(name, "grad.", 5) != 0)
            continue;
        float *b = floats(j->record, name, &n), *a = floats(grads, name + 5, &m);
        j->bad += n != m;
        compare(j, name, a, b, n < m ? n : m);
        atom_free(a);
        atom_free(b);
        met++;
    }
    uint32_t buffers = j->g->buffers ? j->g->buffers->n : 0;
    j->bad += met + buffers != grads->n_tensors; /* no name that PyTorch does not know */
cleanup:
    file_st_close(&grads);
    walker_close(&w);
    atom_free(losses);
    return st;
}

/* Written, resolved as a directory, read again: the same graph and bits. */
static atom_status check_again(job *j, const float *master)
{
    file_model again = {0};
    file_safetensors *f = NULL;
    graph *g = NULL;
    float *vector = NULL;
    char dir[2048], *a = NULL, *b = NULL;
    atom_status st;
    ATOM_TRY_CLEAN(write_dir(j, "again", master, dir, sizeof dir, &f));
    ATOM_TRY_CLEAN(file_model_resolve(dir, &again));
    ATOM_TRY_CLEAN(
        graph_model_build(&again.config, ATOM_F32, j->g->micro_batch, j->g->sequence, &g));
    ATOM_TRY_CLEAN(graph_print(j->g, &a));
    ATOM_TRY_CLEAN(graph_print(g, &b));
    vector = atom_alloc(g->param_extent, sizeof *vector);
    ATOM_TRY_CLEAN(file_weights_read(dir, g, vector));
    j->bad += strcmp(a, b) != 0 || again.config.positions != j->model.config.positions;
    for (uint32_t i = 0; i < g->n_params; i++)
        j->bad += memcmp(vector + g->params[i].offset, master + g->params[i].offset,
                         g->params[i].elements * sizeof *vector) != 0;
cleanup:
    file_st_close(&f);
    file_model_free(&again);
    graph_close(&g);
    atom_free(vector);
    atom_free(a);
    atom_free(b);
    return st;
}

static atom_status run(job *j, const char *model, const char *record, bool canary)
{
    const file_tensor *t;
    float *master = NULL;
    atom_status st;
    ATOM_TRY_CLEAN(file_model_resolve(model, &j->model));
    ATOM_TRY_CLEAN(file_st_open(record, &j->record));
    t = file_st_find(j->record, "tokens");
    j->tokens = ids(j->record, "tokens", &j->n);
    j->targets = ids(j->record, "targets", &j->n);
    ATOM_TRY_CLEAN(graph_model_build(&j->model.config, ATOM_F32, (int64_t)t->dims[0],
                                     (int64_t)t->dims[1], &j->g));
    ATOM_TRY_CLEAN(graph_fuse(j->g, &j->fused));
    ATOM_TRY_CLEAN(atom_threads_open(2, &j->threads));
    master = atom_alloc(j->g->param_extent, sizeof *master);
    ATOM_TRY_CLEAN(file_weights_read(j->model.dir, j->g, master));
    ATOM_TRY_CLEAN(check_again(j, master));
    if (canary)
        master[j->g->params[1].offset] += 0.01f;
    ATOM_TRY_CLEAN(check_forward(j, krn_ref_table(ATOM_F32), krn_ref_host_table(), master));
    ATOM_TRY_CLEAN(check_gradients(j, krn_ref_table(ATOM_F32), krn_ref_host_table(), master));
    ATOM_TRY_CLEAN(check_forward(j, krn_cpu_table(ATOM_F32), krn_cpu_host_table(), master));
    ATOM_TRY_CLEAN(check_gradients(j, krn_cpu_table(ATOM_F32), krn_cpu_host_table(), master));
cleanup:
    atom_free(master);
    return st;
}

int main(int argc, char **argv)
{
    if (argc < 4)
        return 2;
    job j = {.work = argv[3]};
    bool canary = argc > 4 && strcmp(argv[4], "--canary") == 0;
    atom_status st = atom_dir_make(argv[3]);
    if (st == ATOM_OK)
        st = run(&j, argv[1], argv[2], canary);
    if (st != ATOM_OK)
        fprintf(stderr, "pt2eq: %s\n", atom_fail_message());
    file_st_close(&j.record);
    file_model_free(&j.model);
    graph_close(&j.g);
    graph_close(&j.fused);
    atom_threads_close(&j.threads);
    atom_free(j.tokens);
    atom_free(j.targets);
    if (st != ATOM_OK)
        return 1;
    return (j.bad != 0) == canary ? 0 : 1;
}
