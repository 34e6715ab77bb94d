/*
 * Owns adapter_model.safetensors, and what an adapter adds to its model. One idea: the adapter's
 * matrices are small and stay in memory; scale B A is computed row by row wherever weights pass by,
 * so merging needs no second copy of the model. Refuses tensors that no target has, and targets
 * without tensors.
 */
#include "atom/file/peft.h"

#include "atom/base/assert.h"
#include "atom/base/files.h"
#include "atom/base/json.h"
#include "atom/base/mem.h"
#include "atom/file/hfweights.h"
#include "atom/file/torchfile.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char CONFIG[] = "adapter_config.json", WEIGHTS[] = "adapter_model.safetensors",
                  PICKLED[] = "adapter_model.bin";

enum { PARAM_NAME_MAX = GRAPH_NAME_MAX + 32, TENSOR_NAME_MAX = PARAM_NAME_MAX + 64 };

/* What PEFT calls a parameter of an adapter: name is "layers.0.mlp.up_proj.lora_A.weight". */
static void tensor_name(const graph *g, const char *name, char out[TENSOR_NAME_MAX])
{
    bool head = strncmp(name, "lm_head.", strlen("lm_head.")) == 0;
    snprintf(out, TENSOR_NAME_MAX, "base_model.model.%s%s", head ? "" : file_prefix(g), name);
}

/* --- writing ---------------------------------------------------------------------------------- */

/* The base as everybody finds it, wherever they stand; a name that is no path stays as it is. Free
 * with free. */
static char *whole_path(const char *base)
{
    char *whole = base ? realpath(base, NULL) : NULL;
    return whole || !base ? whole : strdup(base);
}

static atom_status write_config(const char *dir, const file_lora *lora, const graph *base)
{
    char *path = atom_path_join(dir, CONFIG);
    char *whole = whole_path(lora->base);
    json_t *targets = json_array();
    for (const char *at = lora->targets; *at;) {
        size_t n = strcspn(at, ",");
        if (n)
            json_array_append_new(targets, json_stringn(at, n));
        at += n + (at[n] == ',');
    }
    bool all = strcmp(lora->targets, "all-linear") == 0, gpt2 = file_prefix(base)[0] == 't';
    json_t *root = json_pack(
        "{s:n, s:n, s:n, s:b, s:b, s:b, s:b, s:s, s:s?, s:s, s:s, s:I, s:f, s:f, "
        "s:b, s:o}",
        "auto_mapping", "modules_to_save", "revision", "use_dora", 0, "inference_mode", 1,
        "fan_in_fan_out", gpt2, "init_lora_weights", 1, "bias", "none", "base_model_name_or_path",
        whole, "peft_type", "LORA", "task_type", "CAUSAL_LM", "r", (json_int_t)lora->rank,
        "lora_alpha", lora->alpha, "lora_dropout", lora->dropout, "use_rslora", lora->rslora,
        "target_modules", all ? json_string("all-linear") : json_incref(targets));
    json_decref(targets);
    free(whole);
    if (root && lora->alpha == (double)(int64_t)lora->alpha) /* whole, as PEFT writes it */
        json_object_set_new(root, "lora_alpha", json_integer((json_int_t)lora->alpha));
    if (!path) {
        json_decref(root);
        root = NULL;
    }
    atom_status st =
        atom_json_save(root, JSON_INDENT(2) | JSON_SORT_KEYS | JSON_REAL_PRECISION(17), "", path);
    atom_free(path);
    return st;
}

static atom_status declare(file_st_writer *w, const graph *base, const graph *g)
{
    atom_status st = ATOM_OK;
    char name[TENSOR_NAME_MAX];
    for (uint32_t p = 0; p < g->n_params && st == ATOM_OK; p++) {
        const graph_param *param = &g->params[p];
        if (param->frozen)
            continue;
        tensor_name(base, param->name, name);
        st = file_st_declare(w, name, FILE_F32, 2,
                             (uint64_t[]){(uint64_t)param->dims[0], (uint64_t)param->dims[1]});
    }
    return st;
}

/* The i-th trained parameter. */
static const graph_param *trained_param(const graph *g, uint32_t i)
{
    for (uint32_t p = 0; p < g->n_params; p++)
        if (!g->params[p].frozen && i-- == 0)
            return &g->params[p];
    ATOM_UNREACHABLE("no such trained parameter");
}

static atom_status write_param(file_st_writer *w, const graph_param *p, file_vector from,
                               float *band)
{
    for (uint64_t at = 0, some; at < p->elements; at += some) {
        some = p->elements - at < FILE_BAND_ELEMENTS ? p->elements - at : FILE_BAND_ELEMENTS;
        ATOM_TRY(from.get(from.ctx, p->offset + at, some, band));
        ATOM_TRY(file_st_write(w, band, some * sizeof *band));
    }
    return ATOM_OK;
}

atom_status file_lora_write(const char *dir, const file_lora *lora, const graph *base,
                            const graph *g, file_vector from)
{
    file_st_writer *w = NULL;
    uint32_t i;
    atom_status st;
    float *band = atom_alloc(FILE_BAND_ELEMENTS, sizeof *band);
    char *path = atom_path_join(dir, WEIGHTS);
    if (!path || !band)
        ATOM_TRY_CLEAN(atom_fail_memory("an adapter", FILE_BAND_ELEMENTS * sizeof *band));
    ATOM_TRY_CLEAN(write_config(dir, lora, base));
    ATOM_TRY_CLEAN(file_st_create(path, &w));
    ATOM_TRY_CLEAN(declare(w, base, g));
    ATOM_TRY_CLEAN(file_st_begin(w));
    while (file_st_next(w, &i))
        ATOM_TRY_CLEAN(write_param(w, trained_param(g, i), from, band));
    ATOM_TRY_CLEAN(file_st_finish(w));
cleanup:
    file_st_writer_close(&w);
    atom_free(band);
    atom_free(path);
    return st;
}

/* --- reading ---------------------------------------------------------------------------------- */

typedef struct adapter_part {
    graph_target target;
    float *A, *B; /* [rank, in], [rows, rank] */
} adapter_part;

struct file_adapter {
    file_lora lora;
    const graph *base;
    adapter_part *parts; /* ascending (param, first) */
    uint32_t n;
    file_vector under; /* file_adapter_over */
};

static atom_status read_matrix(const file_adapter *a, const file_safetensors *file,
                               const graph_target *t, const char *which, int64_t rows,
                               int64_t columns, float **out)
{
    char name[TENSOR_NAME_MAX], inner[PARAM_NAME_MAX];
    snprintf(inner, sizeof inner, "%s.%s.weight", t->name, which);
    tensor_name(a->base, inner, name);
    const file_tensor *tensor = file_st_find(file, name);
    if (!tensor)
        return atom_fail(ATOM_E_FORMAT, "%s: tensor %s is missing", file->path, name);
    if (tensor->rank != 2 || tensor->dims[0] != (uint64_t)rows ||
        tensor->dims[1] != (uint64_t)columns)
        return atom_fail(ATOM_E_USAGE,
                         "%s: tensor %s is not [%lld,%lld]; the adapter belongs to another model",
                         file->path, name, (long long)rows, (long long)columns);
    *out = atom_alloc(tensor->elements, sizeof **out);
    if (!*out)
        return atom_fail_memory("an adapter", tensor->elements * sizeof **out);
    return file_st_read_f32(file, tensor, 0, tensor->elements, *out);
}

static atom_status read_parts(file_adapter *a, const file_safetensors *file)
{
    atom_status st = ATOM_OK;
    for (uint32_t i = 0; i < a->n && st == ATOM_OK; i++) {
        adapter_part *part = &a->parts[i];
        int64_t in = a->base->params[part->target.param].dims[1], r = a->lora.rank;
        st = read_matrix(a, file, &part->target, "lora_A", r, in, &part->A);
        if (st == ATOM_OK)
            st = read_matrix(a, file, &part->target, "lora_B", part->target.rows, r, &part->B);
    }
    if (st == ATOM_OK && file->n_tensors != 2 * a->n)
        st = atom_fail(ATOM_E_FORMAT,
                       "%s has %u tensors; the modules that adapter_config.json names have %u of "
                       "this model",
                       file->path, file->n_tensors, 2 * a->n);
    return st;
}

static atom_status take_targets(file_adapter *a)
{
    graph_target *targets = NULL;
    ATOM_TRY(file_lora_targets(a->base, a->lora.targets, &targets, &a->n));
    a->parts = atom_alloc(a->n, sizeof *a->parts);
    for (uint32_t i = 0; i < a->n && a->parts; i++)
        a->parts[i].target = targets[i];
    atom_free(targets);
    return a->parts ? ATOM_OK : atom_fail_memory("an adapter", a->n * sizeof *a->parts);
}

/* adapter_model.safetensors, or adapter_model.bin where there is none. */
static atom_status open_weights(const char *dir, file_safetensors **file)
{
    char *path = atom_path_join(dir, WEIGHTS), *pickled = atom_path_join(dir, PICKLED);
    atom_status st;
    if (!path || !pickled)
        st = atom_fail_memory("an adapter", strlen(dir));
    else if (atom_path_exists(path))
        st = file_st_open(path, file);
    else if (atom_path_exists(pickled))
        st = file_torch_open(pickled, file);
    else
        st = atom_fail(ATOM_E_FORMAT, "%s has neither %s nor %s", dir, WEIGHTS, PICKLED);
    atom_free(path);
    atom_free(pickled);
    return st;
}

atom_status file_adapter_open(const char *dir, const graph *base, file_adapter **out)
{
    file_safetensors *file = NULL;
    file_adapter *a = atom_alloc(1, sizeof *a);
    atom_status st;
    if (!a)
        return atom_fail_memory("an adapter", sizeof *a);
    a->base = base;
    ATOM_TRY_CLEAN(file_lora_read(dir, &a->lora));
    st = take_targets(a);
    if (st != ATOM_OK)
        ATOM_TRY_CLEAN(atom_fail_in(st, "%s: ", dir));
    ATOM_TRY_CLEAN(open_weights(dir, &file));
    ATOM_TRY_CLEAN(read_parts(a, file));
    *out = a;
    a = NULL;
cleanup:
    file_st_close(&file);
    file_adapter_close(&a);
    return st;
}

void file_adapter_close(file_adapter **adapter)
{
    file_adapter *a = *adapter;
    if (!a)
        return;
    for (uint32_t i = 0; a->parts && i < a->n; i++) {
        atom_free(a->parts[i].A);
        atom_free(a->parts[i].B);
    }
    atom_free(a->parts);
    file_lora_free(&a->lora);
    atom_free(a);
    *adapter = NULL;
}

/* --- use -------------------------------------------------------------------------------------- */

/* The next trained parameter of g must be this matrix. */
static atom_status put_matrix(const graph *g, uint32_t i, const graph_target *t, const char *which,
                              const float *x, file_vector to)
{
    char name[TENSOR_NAME_MAX];
    const graph_param *p = trained_param(g, i);
    snprintf(name, sizeof name, "%s.%s.weight", t->name, which);
    if (strcmp(p->name, name) != 0)
        return atom_fail(ATOM_E_USAGE, "the adapter has %s, this run trains %s", name, p->name);
    return to.put(to.ctx, p->offset, p->elements, x);
}

atom_status file_adapter_put(const file_adapter *a, const graph *g, file_vector to)
{
    uint32_t trained = 0;
    for (uint32_t p = 0; p < g->n_params; p++)
        trained += !g->params[p].frozen;
    if (trained != 2 * a->n || trained_param(g, 0)->dims[0] != a->lora.rank)
        return atom_fail(ATOM_E_USAGE,
                         "the adapter has %u modules of rank %lld, this run trains %u of rank %lld",
                         a->n, (long long)a->lora.rank, trained / 2,
                         (long long)trained_param(g, 0)->dims[0]);
    atom_status st = ATOM_OK;
    for (uint32_t i = 0; i < a->n && st == ATOM_OK; i++) {
        const adapter_part *part = &a->parts[i];
        st = put_matrix(g, 2 * i, &part->target, "lora_A", part->A, to);
        if (st == ATOM_OK)
            st = put_matrix(g, 2 * i + 1, &part->target, "lora_B", part->B, to);
    }
    return st;
}

enum { CHUNK = 256 };

/* Elements [from, to) of row `row` of the target. */
static void add_row(const file_adapter *a, const adapter_part *part, int64_t row, int64_t from,
                    int64_t to, float *x)
{
    int64_t in = a->base->params[part->target.param].dims[1], r = a->lora.rank;
    double scale = (double)file_lora_settings(&a->lora).scale;
    for (int64_t at = from; at < to; at += CHUNK) {
        double sum[CHUNK] = {0};
        int64_t n = to - at < CHUNK ? to - at : CHUNK;
        for (int64_t k = 0; k < r; k++) {
            double b = (double)part->B[row * r + k];
            for (int64_t i = 0; i < n; i++)
                sum[i] += b * (double)part->A[k * in + at + i];
        }
        for (int64_t i = 0; i < n; i++)
            x[at - from + i] = (float)((double)x[at - from + i] + scale * sum[i]);
    }
}

static void add_adapter(const file_adapter *a, uint64_t first, uint64_t n, float *x)
{
    for (uint32_t i = 0; i < a->n; i++) {
        const adapter_part *part = &a->parts[i];
        const graph_param *p = &a->base->params[part->target.param];
        uint64_t in = (uint64_t)p->dims[1];
        uint64_t begin = p->offset + (uint64_t)part->target.first * in;
        uint64_t end = begin + (uint64_t)part->target.rows * in;
        uint64_t lo = first > begin ? first : begin, hi = first + n < end ? first + n : end;
        while (lo < hi) {
            uint64_t row = (lo - begin) / in, at = begin + row * in;
            uint64_t stop = at + in < hi ? at + in : hi;
            add_row(a, part, (int64_t)row, (int64_t)(lo - at), (int64_t)(stop - at),
                    x + (lo - first));
            lo = stop;
        }
    }
}

static atom_status over_get(void *ctx, uint64_t first, uint64_t n, float *to)
{
    const file_adapter *a = ctx;
    atom_status st = a->under.get(a->under.ctx, first, n, to);
    if (st == ATOM_OK)
        add_adapter(a, first, n, to);
    return st;
}

static atom_status over_put(void *ctx, uint64_t first, uint64_t n, const float *from)
{
    const file_adapter *a = ctx;
    float *sum = atom_alloc(n, sizeof *sum);
    if (!sum)
        return atom_fail_memory("merging an adapter", n * sizeof *sum);
    memcpy(sum, from, n * sizeof *sum);
    add_adapter(a, first, n, sum);
    atom_status st = a->under.put(a->under.ctx, first, n, sum);
    atom_free(sum);
    return st;
}

file_vector file_adapter_over(file_adapter *a, file_vector base)
{
    a->under = base;
    return (file_vector){.ctx = a,
                         .get = base.get ? over_get : NULL,
                         .put = base.put ? over_put : NULL,
                         .source = base.source,
                         .sink = base.sink};
}

atom_status file_merged_read(const file_model *model, const graph *g, file_vector to)
{
    file_adapter *a = NULL;
    atom_status st;
    if (!model->adapter)
        return file_weights_read_to(model->dir, g, to);
    ATOM_TRY_CLEAN(file_adapter_open(model->adapter, g, &a));
    ATOM_TRY_CLEAN(file_weights_read_to(model->dir, g, file_adapter_over(a, to)));
cleanup:
    file_adapter_close(&a);
    return st;
}
