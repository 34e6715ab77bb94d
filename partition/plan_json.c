/*
 * Owns the file form of a plan ("atom_plan": 1). One idea: in a file the last node of a sub-model
 * is the last one that belongs to it, as people say it; in memory ranges are half open. Refuses
 * files whose ranges do not follow each other; whether they fit a graph is check.c's question.
 */
#include "partition/json.h"

#include "atom/base/files.h"
#include "atom/base/mem.h"

#include <string.h>

enum { SUB_MODELS_MAX = 1 << 20, DIM_MAX = 1 << 30 };
static const uint64_t BYTES_MAX = (uint64_t)1 << 62;
static const double SECONDS_MAX = 1e12;

static const char *const keep_names[] = {
    [PART_RECOMPUTE] = "recompute", [PART_KEEP_DEVICE] = "device", [PART_KEEP_HOST] = "host"};
static const char *const place_names[] = {[PART_ON_DEVICE] = "device", [PART_ON_HOST] = "host"};

static void write_sub_models(part_out *o, const part_plan *plan)
{
    part_out_begin(o, "sub_models", '[', false);
    for (uint32_t k = 0; k < plan->n_sub_models; k++) {
        const part_sub_model *s = &plan->sub_models[k];
        part_out_begin(o, NULL, '{', true);
        part_out_i64(o, "first_node", s->first_node);
        part_out_i64(o, "last_node", s->last_node - 1);
        part_out_u64(o, "param_bytes", s->param_bytes);
        part_out_text(o, "keep", keep_names[s->keep]);
        part_out_bool(o, "resident", s->resident);
        part_out_end(o, '}');
    }
    part_out_end(o, ']');
}

atom_status part_plan_json(const part_plan *plan, char **text)
{
    part_out o = {0};
    part_out_begin(&o, NULL, '{', false);
    part_out_i64(&o, "atom_plan", 1);
    part_out_hash(&o, "graph_hash", plan->graph_hash);
    part_out_text(&o, "model", plan->model);
    part_out_text(&o, "device", plan->device);
    part_out_text(&o, "dtype", atom_dtype_name(plan->dtype));
    if (plan->moments != ATOM_F32)
        part_out_text(&o, "moments_dtype", atom_dtype_name(plan->moments));
    part_out_i64(&o, "micro_batch", plan->micro_batch);
    part_out_i64(&o, "sequence", plan->sequence);
    part_out_u64(&o, "micro_batches", plan->micro_batches);
    part_out_u64(&o, "recommended_micro_batches", plan->recommended_micro_batches);
    part_out_bool(&o, "in_place", plan->in_place);
    part_out_bool(&o, "clip", plan->clip);
    part_out_text(&o, "boundaries", place_names[plan->boundaries]);
    if (plan->update_on_device)
        part_out_text(&o, "updates", place_names[PART_ON_DEVICE]);
    part_out_bool(&o, "disk", plan->disk);
    part_out_u64(&o, "ring_blocks", plan->ring_blocks);
    part_out_u64(&o, "block_elements", plan->block_elements);
    part_out_u64(&o, "device_budget_bytes", plan->device_budget_bytes);
    part_out_u64(&o, "host_budget_bytes", plan->host_budget_bytes);
    part_out_f64(&o, "predicted_step_seconds", plan->predicted_step_seconds);
    part_out_f64(&o, "predicted_compute_seconds", plan->predicted_compute_seconds);
    part_out_text(&o, "bound", part_bound_name(plan->bound));
    part_out_u64(&o, "device_peak_bytes", plan->device_peak_bytes);
    part_out_u64(&o, "host_peak_bytes", plan->host_peak_bytes);
    part_out_u64(&o, "cut_bytes", plan->cut_bytes);
    write_sub_models(&o, plan);
    part_out_end(&o, '}');
    return part_out_take(&o, text);
}

atom_status part_plan_write(const part_plan *plan, const char *path)
{
    char *text = NULL;
    atom_status st = part_plan_json(plan, &text);
    if (st == ATOM_OK)
        st = atom_file_write(path, text, strlen(text));
    atom_free(text);
    return st;
}

static atom_status read_sub_model(const part_in *in, int32_t first, part_sub_model *s)
{
    static const char *const keys[] = {"first_node", "last_node", "param_bytes",
                                       "keep",       "resident",  NULL};
    int64_t from = 0, to = 0;
    int keep = 0;
    ATOM_TRY(part_in_keys(in, keys));
    /* Each begins where the one before it ended. */
    ATOM_TRY(part_in_i64(in, "first_node", first, first, &from));
    ATOM_TRY(part_in_i64(in, "last_node", first, INT32_MAX - 1, &to));
    ATOM_TRY(part_in_u64(in, "param_bytes", 0, BYTES_MAX, &s->param_bytes));
    ATOM_TRY(part_in_choice(in, "keep", keep_names, 3, &keep));
    ATOM_TRY(part_in_bool(in, "resident", &s->resident));
    s->first_node = (int32_t)from;
    s->last_node = (int32_t)to + 1;
    s->keep = (part_keep)keep;
    return ATOM_OK;
}

static atom_status read_sub_models(const part_in *in, part_plan *plan)
{
    json_t *rows = NULL;
    int32_t first = 0;
    ATOM_TRY(part_in_array(in, "sub_models", 1, SUB_MODELS_MAX, &rows));
    plan->n_sub_models = (uint32_t)json_array_size(rows);
    plan->sub_models = atom_alloc(plan->n_sub_models, sizeof *plan->sub_models);
    if (!plan->sub_models)
        return atom_fail_memory("a plan", (uint64_t)plan->n_sub_models * sizeof *plan->sub_models);
    for (uint32_t k = 0; k < plan->n_sub_models; k++) {
        part_in item;
        ATOM_TRY(part_in_item(in, "sub_models", rows, k, &item));
        ATOM_TRY(read_sub_model(&item, first, &plan->sub_models[k]));
        first = plan->sub_models[k].last_node;
    }
    return ATOM_OK;
}

static atom_status read_numbers(const part_in *in, part_plan *p)
{
    const char *bounds[PART_BOUND_N];
    int place = 0, bound = 0, updates = PART_ON_HOST;
    for (int i = 0; i < PART_BOUND_N; i++)
        bounds[i] = part_bound_name((part_bound)i);
    ATOM_TRY(part_in_u32(in, "micro_batches", 1, UINT32_MAX, &p->micro_batches));
    ATOM_TRY(
        part_in_u32(in, "recommended_micro_batches", 0, UINT32_MAX, &p->recommended_micro_batches));
    ATOM_TRY(part_in_bool(in, "in_place", &p->in_place));
    ATOM_TRY(part_in_bool(in, "clip", &p->clip));
    ATOM_TRY(part_in_choice(in, "boundaries", place_names, 2, &place));
    if (json_object_get(in->object, "updates"))
        ATOM_TRY(part_in_choice(in, "updates", place_names, 2, &updates));
    ATOM_TRY(part_in_bool(in, "disk", &p->disk));
    ATOM_TRY(part_in_u32(in, "ring_blocks", 0, 1 << 16, &p->ring_blocks));
    ATOM_TRY(part_in_u64(in, "block_elements", 0, 1 << 30, &p->block_elements));
    ATOM_TRY(part_in_u64(in, "device_budget_bytes", 0, BYTES_MAX, &p->device_budget_bytes));
    ATOM_TRY(part_in_u64(in, "host_budget_bytes", 0, BYTES_MAX, &p->host_budget_bytes));
    ATOM_TRY(part_in_f64(in, "predicted_step_seconds", 0, SECONDS_MAX, &p->predicted_step_seconds));
    ATOM_TRY(part_in_f64(in, "predicted_compute_seconds", 0, SECONDS_MAX,
                         &p->predicted_compute_seconds));
    ATOM_TRY(part_in_choice(in, "bound", bounds, PART_BOUND_N, &bound));
    ATOM_TRY(part_in_u64(in, "device_peak_bytes", 0, BYTES_MAX, &p->device_peak_bytes));
    ATOM_TRY(part_in_u64(in, "host_peak_bytes", 0, BYTES_MAX, &p->host_peak_bytes));
    ATOM_TRY(part_in_u64(in, "cut_bytes", 0, BYTES_MAX, &p->cut_bytes));
    p->boundaries = (part_place)place;
    p->update_on_device = updates == PART_ON_DEVICE;
    p->bound = (part_bound)bound;
    return ATOM_OK;
}

atom_status part_plan_parse(const char *file, const char *text, size_t bytes, part_plan **out)
{
    const char *keys[] = {"atom_plan",
                          "graph_hash",
                          "model",
                          "device",
                          "dtype",
                          "micro_batch",
                          "sequence",
                          "micro_batches",
                          "recommended_micro_batches",
                          "in_place",
                          "clip",
                          "boundaries",
                          "disk",
                          "ring_blocks",
                          "block_elements",
                          "device_budget_bytes",
                          "host_budget_bytes",
                          "predicted_step_seconds",
                          "predicted_compute_seconds",
                          "bound",
                          "device_peak_bytes",
                          "host_peak_bytes",
                          "cut_bytes",
                          "sub_models",
                          NULL, /* places of the optional ones that are there */
                          NULL,
                          NULL};
    static const char *const optional[] = {"updates", "moments_dtype"};
    json_t *root = NULL;
    part_plan *p = NULL;
    part_in in = {.file = file};
    atom_status st = ATOM_OK;
    ATOM_TRY_CLEAN(part_in_load(file, text, bytes, &root));
    in.object = root;
    for (size_t i = 0, to = sizeof keys / sizeof keys[0] - 3; i < 2; i++) {
        if (json_object_get(root, optional[i]))
            keys[to++] = optional[i];
    }
    ATOM_TRY_CLEAN(part_in_version(&in, "atom_plan", 1));
    ATOM_TRY_CLEAN(part_in_keys(&in, keys));
    p = atom_alloc(1, sizeof *p);
    if (!p) {
        st = atom_fail_memory("a plan", sizeof *p);
        goto cleanup;
    }
    ATOM_TRY_CLEAN(part_in_hash(&in, "graph_hash", &p->graph_hash));
    ATOM_TRY_CLEAN(part_in_text(&in, "model", p->model, sizeof p->model));
    ATOM_TRY_CLEAN(part_in_text(&in, "device", p->device, sizeof p->device));
    ATOM_TRY_CLEAN(part_in_dtype(&in, "dtype", &p->dtype));
    if (json_object_get(root, "moments_dtype"))
        ATOM_TRY_CLEAN(part_in_dtype(&in, "moments_dtype", &p->moments));
    ATOM_TRY_CLEAN(part_in_i64(&in, "micro_batch", 1, DIM_MAX, &p->micro_batch));
    ATOM_TRY_CLEAN(part_in_i64(&in, "sequence", 1, DIM_MAX, &p->sequence));
    ATOM_TRY_CLEAN(read_numbers(&in, p));
    ATOM_TRY_CLEAN(read_sub_models(&in, p));
    json_decref(root);
    *out = p;
    return ATOM_OK;
cleanup:
    json_decref(root);
    part_plan_close(&p);
    return st;
}

atom_status part_plan_read(const char *path, part_plan **out)
{
    char *text = NULL;
    uint64_t bytes = 0;
    atom_status st = atom_file_read(path, PART_FILE_BYTES_MAX, &text, &bytes);
    if (st == ATOM_OK)
        st = part_plan_parse(path, text, bytes, out);
    atom_free(text);
    return st;
}
