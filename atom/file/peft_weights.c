/*
 * Owns adapter_model.safetensors, both ways. One idea: what is trained of a graph is either a matrix
 * of an adapter, or a parameter of the model that is written as the model's own files have it.
 * Refuses tensors that no target has, and targets without tensors.
 */
#include "atom/file/peft_inner.h"

#include "atom/base/assert.h"
#include "atom/base/files.h"
#include "atom/base/json.h"
#include "atom/base/mem.h"
#include "atom/file/torchfile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char CONFIG[] = "adapter_config.json", WEIGHTS[] = "adapter_model.safetensors",
                  PICKLED[] = "adapter_model.bin";

enum { NO_PARAM = -1 };

static int32_t param_named(const graph *g, const char *name)
{
    for (uint32_t p = 0; p < g->n_params; p++)
        if (strcmp(g->params[p].name, name) == 0)
            return (int32_t)p;
    return NO_PARAM;
}

/* --- writing ---------------------------------------------------------------------------------- */

/* The base as everybody finds it, wherever they stand; a name that is no path stays as it is. Free
 * with free. */
static char *whole_path(const char *base)
{
    char *whole = base ? realpath(base, NULL) : NULL;
    return whole || !base ? whole : strdup(base);
}

/* What chooses modules, as it came; all-linear with layers, which PEFT takes only beside names, as
 * names. */
static atom_status copy_choice(const file_lora *lora, const graph *base, json_t *root)
{
    static const char *const keys[] = {"target_modules", "exclude_modules", "layers_to_transform",
                                       "layers_pattern", "modules_to_save", "rank_pattern",
                                       "alpha_pattern"};
    json_t *names = NULL;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        json_t *value = json_object_get(lora->config, keys[i]);
        if (value)
            json_object_set(root, keys[i], value);
    }
    if (!atom_json_present(root, "layers_to_transform") ||
        !json_is_string(json_object_get(root, "target_modules")))
        return ATOM_OK;
    ATOM_TRY(file_lora_all_names(base, &names));
    json_object_set_new(root, "target_modules", names);
    return ATOM_OK;
}

atom_status file_lora_write_config(const char *dir, const file_lora *lora, const graph *base)
{
    char *path = atom_path_join(dir, CONFIG);
    char *whole = whole_path(lora->base);
    bool gpt2 = file_prefix(base)[0] == 't';
    json_t *root = json_pack(
        "{s:n, s:n, s:n, s:b, s:b, s:b, s:b, s:s, s:s?, s:s, s:s, s:I, s:f, s:f, s:b}",
        "auto_mapping", "modules_to_save", "revision", "use_dora", lora->dora, "inference_mode", 1,
        "fan_in_fan_out", gpt2, "init_lora_weights", 1, "bias", "none", "base_model_name_or_path",
        whole, "peft_type", "LORA", "task_type", "CAUSAL_LM", "r", (json_int_t)lora->rank,
        "lora_alpha", lora->alpha, "lora_dropout", lora->dropout, "use_rslora", lora->rslora);
    free(whole);
    if (root && lora->alpha == (double)(int64_t)lora->alpha) /* whole, as PEFT writes it */
        json_object_set_new(root, "lora_alpha", json_integer((json_int_t)lora->alpha));
    atom_status st = path ? ATOM_OK : atom_fail_memory("a path", 256);
    if (st == ATOM_OK && root)
        st = copy_choice(lora, base, root);
    if (st == ATOM_OK)
        st = atom_json_save(root, JSON_INDENT(2) | JSON_SORT_KEYS | JSON_REAL_PRECISION(17), "",
                            path);
    else
        json_decref(root);
    atom_free(path);
    return st;
}

/* One tensor of the file: all of a parameter of g, or a slice of one that is trained whole. */
typedef struct lora_tensor {
    file_slice slice; /* param: of g */
    char name[FILE_LORA_NAME_MAX];
} lora_tensor;

static void add_own(const graph *base, const graph *g, uint32_t p, lora_tensor *t)
{
    const graph_param *param = &g->params[p];
    t->slice = (file_slice){.param = p,
                            .elements = param->elements,
                            .rank = param->rank,
                            .heads = file_heads_apart(g, p)};
    for (int i = 0; i < param->rank; i++)
        t->slice.dims[i] = (uint64_t)param->dims[i];
    file_lora_tensor_name(base, param->name, t->name);
}

/* In the order of g's parameters. Free with atom_free. */
static atom_status list_tensors(const graph *base, const graph *g, lora_tensor **out, uint32_t *n)
{
    file_slice *slices = NULL;
    uint32_t n_slices = 0;
    ATOM_TRY(file_slices(base, &slices, &n_slices));
    *n = 0;
    *out = atom_alloc(g->n_params + n_slices, sizeof **out);
    for (uint32_t p = 0; p < g->n_params && *out; p++) {
        if (g->params[p].frozen)
            continue;
        int32_t own = param_named(base, g->params[p].name);
        if (own == NO_PARAM)
            add_own(base, g, p, &(*out)[(*n)++]);
        for (uint32_t i = 0; own != NO_PARAM && i < n_slices; i++) {
            if (slices[i].param != (uint32_t)own)
                continue;
            lora_tensor *t = &(*out)[(*n)++];
            t->slice = slices[i];
            t->slice.param = p;
            file_lora_tensor_name(base, slices[i].name, t->name);
        }
    }
    atom_free(slices);
    return *out ? ATOM_OK : atom_fail_memory("an adapter", g->n_params * sizeof **out);
}

static atom_status write_turned(file_st_writer *w, const lora_tensor *t, uint64_t place,
                                file_vector from)
{
    const file_slice *s = &t->slice;
    uint64_t rows = s->dims[0], columns = s->dims[1]; /* as the file has them */
    float *whole = atom_alloc(s->elements, sizeof *whole), *turned = NULL;
    atom_status st;
    turned = whole ? atom_alloc(s->elements, sizeof *turned) : NULL;
    if (!turned)
        ATOM_TRY_CLEAN(atom_fail_memory("a matrix", 2 * s->elements * sizeof *whole));
    ATOM_TRY_CLEAN(from.get(from.ctx, place, s->elements, whole));
    for (uint64_t c = 0; c < columns; c++)
        for (uint64_t r = 0; r < rows; r++)
            turned[r * columns + c] = whole[c * rows + r];
    ATOM_TRY_CLEAN(file_st_write(w, turned, s->elements * sizeof *turned));
cleanup:
    atom_free(whole);
    atom_free(turned);
    return st;
}

static atom_status write_tensor(file_st_writer *w, const graph *g, const lora_tensor *t,
                                file_vector from, float *band)
{
    uint64_t n = t->slice.elements, place = g->params[t->slice.param].offset + t->slice.first;
    if (t->slice.transposed)
        return write_turned(w, t, place, from);
    uint64_t runs = file_slice_runs(&t->slice), run = n / runs;
    for (uint64_t at = 0, some; at < n; at += some) {
        uint64_t in = at % run;
        some = run - in < FILE_BAND_ELEMENTS ? run - in : FILE_BAND_ELEMENTS;
        ATOM_TRY(
            from.get(from.ctx, place + file_slice_run(&t->slice, at / run) * run + in, some, band));
        ATOM_TRY(file_st_write(w, band, some * sizeof *band));
    }
    return ATOM_OK;
}

atom_status file_lora_write(const char *dir, const file_lora *lora, const graph *base,
                            const graph *g, file_vector from)
{
    file_st_writer *w = NULL;
    lora_tensor *tensors = NULL;
    uint32_t i, n = 0;
    atom_status st;
    float *band = atom_alloc(FILE_BAND_ELEMENTS, sizeof *band);
    char *path = atom_path_join(dir, WEIGHTS);
    if (!path || !band)
        ATOM_TRY_CLEAN(atom_fail_memory("an adapter", FILE_BAND_ELEMENTS * sizeof *band));
    ATOM_TRY_CLEAN(file_lora_write_config(dir, lora, base));
    ATOM_TRY_CLEAN(list_tensors(base, g, &tensors, &n));
    ATOM_TRY_CLEAN(file_st_create(path, &w));
    for (i = 0; i < n; i++)
        ATOM_TRY_CLEAN(file_st_declare(w, tensors[i].name, FILE_F32, tensors[i].slice.rank,
                                       tensors[i].slice.dims));
    ATOM_TRY_CLEAN(file_st_begin(w));
    while (file_st_next(w, &i))
        ATOM_TRY_CLEAN(write_tensor(w, g, &tensors[i], from, band));
    ATOM_TRY_CLEAN(file_st_finish(w));
cleanup:
    file_st_writer_close(&w);
    atom_free(tensors);
    atom_free(band);
    atom_free(path);
    return st;
}

/* --- reading ---------------------------------------------------------------------------------- */

/* A whole tensor, its runs of rows as they are here. */
static atom_status read_runs(const file_safetensors *file, const file_tensor *t,
                             const file_slice *slice, float *to)
{
    uint64_t runs = file_slice_runs(slice), n = t->elements / runs;
    for (uint64_t i = 0; i < runs; i++)
        ATOM_TRY(file_st_read_f32(file, t, i * n, n, to + file_slice_run(slice, i) * n));
    return ATOM_OK;
}

static atom_status read_matrix(const file_adapter *a, const graph_target *t, const char *which,
                               uint32_t rank, const uint64_t *dims, float **out)
{
    bool rows = strcmp(which, "lora_A.weight") != 0;
    uint64_t heads = rows ? file_heads_apart(a->base, (uint32_t)t->param) : 0;
    char name[FILE_LORA_NAME_MAX], inner[FILE_NAME_MAX + 64];
    snprintf(inner, sizeof inner, "%s.%s", t->name, which);
    file_lora_tensor_name(a->base, inner, name);
    const file_tensor *tensor = file_st_find(a->file, name);
    if (!tensor)
        return atom_fail(ATOM_E_FORMAT, "%s: tensor %s is missing", a->file->path, name);
    if (tensor->rank != rank || memcmp(tensor->dims, dims, rank * sizeof *dims) != 0)
        return atom_fail(ATOM_E_USAGE,
                         "%s: tensor %s is not [%llu%s%.0lld]; the adapter belongs to another "
                         "model",
                         a->file->path, name, (unsigned long long)dims[0], rank == 2 ? "," : "",
                         rank == 2 ? (long long)dims[1] : 0);
    *out = atom_alloc(tensor->elements, sizeof **out);
    if (!*out)
        return atom_fail_memory("an adapter", tensor->elements * sizeof **out);
    bool warned = false;
    ATOM_TRY(read_runs(a->file, tensor, &(file_slice){.heads = heads}, *out));
    file_vector_look((file_vector){0}, a->file->path, name, *out, tensor->elements, &warned);
    return ATOM_OK;
}

static atom_status read_parts(file_adapter *a)
{
    for (uint32_t i = 0; i < a->n; i++) {
        adapter_part *part = &a->parts[i];
        uint64_t in = (uint64_t)a->base->params[part->target.param].dims[1];
        uint64_t r = (uint64_t)part->target.rank, rows = (uint64_t)part->target.rows;
        ATOM_TRY(read_matrix(a, &part->target, "lora_A.weight", 2, (uint64_t[]){r, in}, &part->A));
        ATOM_TRY(
            read_matrix(a, &part->target, "lora_B.weight", 2, (uint64_t[]){rows, r}, &part->B));
        if (a->lora.dora)
            ATOM_TRY(
                read_matrix(a, &part->target, "lora_magnitude_vector", 1, &rows, &part->magnitude));
    }
    return ATOM_OK;
}

static atom_status read_turned(const file_adapter *a, adapter_saved *s)
{
    uint64_t rows = s->slice.dims[0], columns = s->slice.dims[1]; /* as the file has them */
    float *plain = atom_alloc(s->slice.elements, sizeof *plain);
    s->turned = atom_alloc(s->slice.elements, sizeof *plain);
    atom_status st = plain && s->turned
                         ? file_st_read_f32(a->file, s->tensor, 0, s->slice.elements, plain)
                         : atom_fail_memory("a matrix", 2 * s->slice.elements * sizeof *plain);
    for (uint64_t r = 0; r < rows && st == ATOM_OK; r++)
        for (uint64_t c = 0; c < columns; c++)
            s->turned[c * rows + r] = plain[r * columns + c];
    atom_free(plain);
    return st;
}

static atom_status read_headed(const file_adapter *a, adapter_saved *s)
{
    s->turned = atom_alloc(s->slice.elements, sizeof *s->turned);
    return s->turned ? read_runs(a->file, s->tensor, &s->slice, s->turned)
                     : atom_fail_memory("a matrix", s->slice.elements * sizeof *s->turned);
}

/* The tensors of modules_to_save. */
static atom_status find_saved(file_adapter *a)
{
    char name[FILE_LORA_NAME_MAX];
    file_slice *slices = NULL;
    uint32_t n = 0;
    atom_status st;
    uint8_t *trained = atom_alloc(a->base->n_params, 1);
    if (!trained)
        return atom_fail_memory("an adapter", a->base->n_params);
    ATOM_TRY_CLEAN(file_lora_saved(a->base, &a->lora, trained));
    ATOM_TRY_CLEAN(file_slices(a->base, &slices, &n));
    a->saved = atom_alloc(n, sizeof *a->saved);
    if (!a->saved)
        ATOM_TRY_CLEAN(atom_fail_memory("an adapter", n * sizeof *a->saved));
    for (uint32_t i = 0; i < n; i++) {
        if (!trained[slices[i].param])
            continue;
        adapter_saved *s = &a->saved[a->n_saved];
        file_lora_tensor_name(a->base, slices[i].name, name);
        *s = (adapter_saved){.slice = slices[i], .tensor = file_st_find(a->file, name)};
        if (!s->tensor)
            ATOM_TRY_CLEAN(atom_fail(ATOM_E_FORMAT, "%s: tensor %s is missing (modules_to_save)",
                                     a->file->path, name));
        ATOM_TRY_CLEAN(file_check_shape(a->file, s->tensor, &s->slice));
        a->n_saved++;
        if (s->slice.transposed)
            ATOM_TRY_CLEAN(read_turned(a, s));
        if (s->slice.heads)
            ATOM_TRY_CLEAN(read_headed(a, s));
    }
cleanup:
    atom_free(trained);
    atom_free(slices);
    return st;
}

/* All tensors of the file must be known. model_dir: as file_adapter_open has it. */
static atom_status check_count(const file_adapter *a, const char *model_dir)
{
    uint32_t n = (a->lora.dora ? 3 : 2) * a->n + a->n_saved, copies = 0;
    if (a->file->n_tensors == n)
        return ATOM_OK;
    if (model_dir)
        ATOM_TRY(file_adapter_check_copies(a, model_dir, &copies));
    if (a->file->n_tensors == n + copies)
        return ATOM_OK;
    for (uint32_t i = 0; i < a->file->n_tensors; i++)
        if (strstr(a->file->tensors[i].name, ".base_layer."))
            return atom_fail(ATOM_E_UNSUPPORTED,
                             "%s holds a copy of the model's own weights, as PEFT adds it to "
                             "adapters of embeddings (%.200s); save it without: "
                             "model.save_pretrained(DIR, save_embedding_layers=False)",
                             a->file->path, a->file->tensors[i].name);
    return atom_fail(ATOM_E_FORMAT,
                     "%s has %u tensors, but the modules that adapter_config.json names have %u "
                     "in this model",
                     a->file->path, a->file->n_tensors, n);
}

atom_status file_adapter_targets(file_adapter *a)
{
    graph_target *targets = NULL;
    ATOM_TRY(file_lora_targets(a->base, &a->lora, &targets, &a->n));
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

atom_status file_adapter_open(const char *dir, const graph *base, const char *model_dir,
                              file_adapter **out)
{
    file_adapter *a = atom_alloc(1, sizeof *a);
    atom_status st;
    if (!a)
        return atom_fail_memory("an adapter", sizeof *a);
    a->base = base;
    ATOM_TRY_CLEAN(file_lora_read(dir, &a->lora));
    st = file_adapter_targets(a);
    if (st != ATOM_OK)
        ATOM_TRY_CLEAN(atom_fail_in(st, "%s: ", dir));
    ATOM_TRY_CLEAN(open_weights(dir, &a->file));
    ATOM_TRY_CLEAN(read_parts(a));
    ATOM_TRY_CLEAN(find_saved(a));
    ATOM_TRY_CLEAN(check_count(a, model_dir));
    *out = a;
    a = NULL;
cleanup:
    file_adapter_close(&a);
    return st;
}

atom_status file_adapter_untie(const char *dir, graph_config *config)
{
    file_lora lora = {0};
    if (!dir)
        return ATOM_OK;
    ATOM_TRY(file_lora_read(dir, &lora));
    atom_status st = file_lora_untie(&lora, config);
    file_lora_free(&lora);
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
        atom_free(a->parts[i].magnitude);
        atom_free(a->parts[i].factor);
    }
    for (uint32_t i = 0; a->saved && i < a->n_saved; i++)
        atom_free(a->saved[i].turned);
    atom_free(a->saved);
    atom_free(a->parts);
    file_st_close(&a->file);
    file_lora_free(&a->lora);
    atom_free(a);
    *adapter = NULL;
}

/* --- use -------------------------------------------------------------------------------------- */

atom_status file_adapter_saved_read(const file_adapter *a, const adapter_saved *s, uint64_t at,
                                    uint64_t n, float *to)
{
    if (!s->turned)
        return file_st_read_f32(a->file, s->tensor, at, n, to);
    memcpy(to, s->turned + at, n * sizeof *to);
    return ATOM_OK;
}

/* The parameter of g with this name, which must be trained. */
static atom_status trained_param(const graph *g, const char *name, const graph_param **out)
{
    int32_t p = param_named(g, name);
    if (p == NO_PARAM || g->params[p].frozen)
        return atom_fail(ATOM_E_USAGE, "the adapter has %s, which this run does not train", name);
    *out = &g->params[p];
    return ATOM_OK;
}

static atom_status put_matrix(const graph *g, const graph_target *t, const char *which,
                              int64_t rows, int64_t columns, const float *x, file_vector to)
{
    char name[FILE_NAME_MAX + 64];
    const graph_param *p = NULL;
    snprintf(name, sizeof name, "%s.%s.weight", t->name, which);
    ATOM_TRY(trained_param(g, name, &p));
    if (p->dims[0] != rows || p->dims[1] != columns)
        return atom_fail(ATOM_E_USAGE,
                         "the adapter has %s with rank %lld, but this run trains one with rank "
                         "%lld",
                         name, (long long)t->rank,
                         (long long)(which[5] == 'A' ? p->dims[0] : p->dims[1]));
    return to.put(to.ctx, p->offset, p->elements, x);
}

static atom_status put_magnitude(const file_adapter *a, const graph *g, const graph_target *t,
                                 const float *x, file_vector to)
{
    char name[FILE_NAME_MAX + 64];
    const graph_param *p = NULL;
    if (!a->lora.dora)
        return ATOM_OK;
    snprintf(name, sizeof name, "%s.lora_magnitude_vector", t->name);
    ATOM_TRY(trained_param(g, name, &p));
    ATOM_ASSERT(p->elements == (uint64_t)t->rows);
    return to.put(to.ctx, p->offset, p->elements, x);
}

static atom_status put_saved(const file_adapter *a, const graph *g, const adapter_saved *s,
                             file_vector to)
{
    enum { BAND = 1 << 16 };
    const graph_param *p = NULL;
    ATOM_TRY(trained_param(g, a->base->params[s->slice.param].name, &p));
    atom_status st = ATOM_OK;
    float *band = atom_alloc(BAND, sizeof *band);
    if (!band)
        return atom_fail_memory("a band of weights", BAND * sizeof *band);
    for (uint64_t at = 0, some; at < s->slice.elements && st == ATOM_OK; at += some) {
        some = s->slice.elements - at < BAND ? s->slice.elements - at : BAND;
        st = file_adapter_saved_read(a, s, at, some, band);
        if (st == ATOM_OK)
            st = to.put(to.ctx, p->offset + s->slice.first + at, some, band);
    }
    atom_free(band);
    return st;
}

static atom_status check_trained(const file_adapter *a, const graph *g)
{
    uint32_t own_parts = 0, whole = 0, saved = 0, each = a->lora.dora ? 3 : 2;
    for (uint32_t p = 0; p < g->n_params; p++) {
        bool own = param_named(a->base, g->params[p].name) != NO_PARAM;
        own_parts += !g->params[p].frozen && !own;
        whole += !g->params[p].frozen && own;
    }
    for (uint32_t i = 0; i < a->n_saved; i++)
        saved += i == 0 || a->saved[i].slice.param != a->saved[i - 1].slice.param;
    if (own_parts == each * a->n && whole == saved)
        return ATOM_OK;
    return atom_fail(ATOM_E_USAGE,
                     "the adapter has %u modules (and %u trained whole), but this run trains %u "
                     "(and %u); give the same target_modules and modules_to_save",
                     a->n, saved, own_parts / each, whole);
}

atom_status file_adapter_put(const file_adapter *a, const graph *g, file_vector to)
{
    ATOM_TRY(check_trained(a, g));
    for (uint32_t i = 0; i < a->n; i++) {
        const adapter_part *part = &a->parts[i];
        int64_t in = a->base->params[part->target.param].dims[1], r = part->target.rank;
        ATOM_TRY(put_matrix(g, &part->target, "lora_A", r, in, part->A, to));
        ATOM_TRY(put_matrix(g, &part->target, "lora_B", part->target.rows, r, part->B, to));
        ATOM_TRY(put_magnitude(a, g, &part->target, part->magnitude, to));
    }
    for (uint32_t i = 0; i < a->n_saved; i++)
        ATOM_TRY(put_saved(a, g, &a->saved[i], to));
    return ATOM_OK;
}
