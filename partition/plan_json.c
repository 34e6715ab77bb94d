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
#define BYTES_MAX ((double)((uint64_t)1 << 62))
#define SECONDS_MAX 1e12

static const char *const keep_names[] = {[PART_RECOMPUTE] = "recompute",
                                         [PART_KEEP_DEVICE] = "device",
                                         [PART_KEEP_HOST] = "host",
                                         [PART_KEEP_SOME] = "some"};
/* Of a sub-model that keeps some: the nodes that it holds, in a list for each place. */
static const char *const hold_names[] = {
    [PART_HOLD_DEVICE] = "held_on_device", [PART_HOLD_HOST] = "held_on_host"};
static const char *const place_names[] = {[PART_ON_DEVICE] = "device", [PART_ON_HOST] = "host"};
static const char *const update_names[] = {[false] = "host", [true] = "device"};

#define PLAN(member, kind, ...) PART_FIELD(part_plan, member, kind, __VA_ARGS__)
static const part_field plan_fields[] = {
    {.key = "atom_plan", .kind = PART_FIELD_INSIDE},
    PLAN(graph_hash, HASH),
    PLAN(model, TEXT),
    PLAN(device, TEXT),
    PLAN(dtype, DTYPE),
    PART_FIELD_AS(part_plan, moments, "moments_dtype", DTYPE, .optional = true),
    PLAN(optimizer, CHOICE, .names = part_optimizer_names, .n_names = 2, .optional = true),
    PLAN(micro_batch, INTEGER, .low = 1, .high = DIM_MAX),
    PLAN(sequence, INTEGER, .low = 1, .high = DIM_MAX),
    PLAN(micro_batches, INTEGER, .low = 1, .high = UINT32_MAX),
    PLAN(devices, INTEGER, .low = 1, .high = PART_DEVICES_MAX, .optional = true),
    PLAN(recommended_micro_batches, INTEGER, .high = UINT32_MAX),
    PLAN(recommended_tokens_per_second, F64, .high = 1e15, .optional = true),
    PLAN(most_tokens_per_second, F64, .high = 1e15, .optional = true),
    PLAN(in_place, BOOL),
    PLAN(clip, BOOL),
    PLAN(boundaries, CHOICE, .names = place_names, .n_names = 2),
    PART_FIELD_AS(part_plan, update_on_device, "updates", CHOICE, .optional = true,
                  .names = update_names, .n_names = 2),
    PART_FIELD_AS(part_plan, ortho_on_device, "muon_products", CHOICE, .optional = true,
                  .names = update_names, .n_names = 2),
    PLAN(disk, BOOL),
    PLAN(over_boundaries, BOOL, .optional = true),
    PLAN(ring_blocks, INTEGER, .high = 1 << 16),
    PLAN(block_elements, INTEGER, .high = 1 << 30),
    PLAN(device_budget_bytes, INTEGER, .high = BYTES_MAX),
    PLAN(host_budget_bytes, INTEGER, .high = BYTES_MAX),
    PLAN(predicted_step_seconds, F64, .high = SECONDS_MAX),
    PLAN(predicted_ahead_seconds, F64, .high = SECONDS_MAX, .optional = true),
    PLAN(predicted_compute_seconds, F64, .high = SECONDS_MAX),
    PLAN(least_step_seconds, F64, .high = SECONDS_MAX, .optional = true),
    PLAN(muon_seconds, F64, .high = SECONDS_MAX, .optional = true),
    PLAN(simulated, BOOL, .optional = true),
    PLAN(bound, CHOICE, .names = part_bound_names, .n_names = PART_BOUND_N),
    PLAN(device_peak_bytes, INTEGER, .high = BYTES_MAX),
    PLAN(host_peak_bytes, INTEGER, .high = BYTES_MAX),
    PLAN(cut_bytes, INTEGER, .high = BYTES_MAX),
    {.key = "sub_models", .kind = PART_FIELD_INSIDE},
};
#define ROW(member, kind, ...) PART_FIELD(part_sub_model, member, kind, __VA_ARGS__)
static const part_field row_fields[] = {
    ROW(first_node, INTEGER, .high = INT32_MAX - 1),
    ROW(last_node, INTEGER, .high = INT32_MAX - 1),
    ROW(param_bytes, INTEGER, .high = BYTES_MAX),
    ROW(keep, CHOICE, .names = keep_names, .n_names = 4),
    ROW(resident, BOOL),
    {.key = "held_on_device", .kind = PART_FIELD_INSIDE, .optional = true},
    {.key = "held_on_host", .kind = PART_FIELD_INSIDE, .optional = true},
};
enum {
    PLAN_FIELDS = sizeof plan_fields / sizeof plan_fields[0],
    ROW_FIELDS = sizeof row_fields / sizeof row_fields[0]
};

static void put_holds(part_out *o, const part_plan *plan, const part_sub_model *s)
{
    for (int place = PART_HOLD_DEVICE; plan->holds && place <= PART_HOLD_HOST; place++) {
        bool any = false;
        for (int32_t i = s->first_node; i < s->last_node; i++) {
            if (plan->holds[i] != place)
                continue;
            if (!any)
                part_out_begin(o, hold_names[place], '[', true);
            part_out_i64(o, NULL, i);
            any = true;
        }
        if (any) {
            part_out_end(o, ']');
            o->flat = true; /* the row goes on */
        }
    }
}

atom_status part_plan_json(const part_plan *plan, char **text)
{
    part_out o;
    ATOM_TRY(part_out_open(&o));
    part_out_begin(&o, NULL, '{', false);
    part_out_i64(&o, "atom_plan", 1);
    part_plan fields = *plan;
    fields.devices = plan->devices > 1 ? plan->devices : 0; /* left out */
    part_out_fields(&o, plan_fields, PLAN_FIELDS, &fields);
    part_out_begin(&o, "sub_models", '[', false);
    for (uint32_t k = 0; k < plan->n_sub_models; k++) {
        part_sub_model row = plan->sub_models[k];
        row.last_node--;
        part_out_begin(&o, NULL, '{', true);
        part_out_fields(&o, row_fields, ROW_FIELDS, &row);
        put_holds(&o, plan, &plan->sub_models[k]);
        part_out_end(&o, '}');
    }
    part_out_end(&o, ']');
    part_out_end(&o, '}');
    return part_out_take(&o, text);
}

atom_status part_plan_check_place(const char *path)
{
    return atom_file_check_place(path, "\"atom_plan\"", "a plan");
}

atom_status part_plan_write(const part_plan *plan, const char *path)
{
    char *text = NULL;
    ATOM_TRY(part_plan_json(plan, &text));
    return part_out_file(text, path);
}

static atom_status read_sub_model(const part_in *in, int32_t first, part_sub_model *s)
{
    int64_t node = 0;
    ATOM_TRY(part_in_fields(in, row_fields, ROW_FIELDS, s));
    /* Each begins where the one before it ended. */
    ATOM_TRY(part_in_i64(in, "first_node", first, first, &node));
    ATOM_TRY(part_in_i64(in, "last_node", first, INT32_MAX - 1, &node));
    s->last_node++;
    return ATOM_OK;
}

/* The nodes that a sub-model holds in one place: of its own range, ascending, each once. */
static atom_status read_holds(const part_in *in, part_plan *plan, const part_sub_model *s,
                              part_hold place)
{
    json_t *list = NULL;
    const char *key = hold_names[place];
    int32_t next = s->first_node;
    if (!json_object_get(in->object, key))
        return ATOM_OK;
    if (s->keep != PART_KEEP_SOME)
        return part_in_wrong(in, key, "only for a sub-model that keeps \"some\"");
    ATOM_TRY(part_in_array(in, key, 1, (size_t)(s->last_node - s->first_node), &list));
    for (size_t i = 0; i < json_array_size(list); i++) {
        int64_t node = 0;
        ATOM_TRY(part_in_i64_at(in, key, i, next, s->last_node - 1, &node));
        if (plan->holds[node])
            return part_in_wrong(in, key, "a node is held in one place, not in both");
        plan->holds[node] = (uint8_t)place;
        next = (int32_t)node + 1;
    }
    return ATOM_OK;
}

static atom_status read_all_holds(const part_in *in, json_t *rows, part_plan *plan)
{
    bool some = false;
    for (uint32_t k = 0; k < plan->n_sub_models; k++)
        some |= plan->sub_models[k].keep == PART_KEEP_SOME;
    if (some)
        ATOM_TRY(part_plan_open_holds(plan));
    for (uint32_t k = 0; k < plan->n_sub_models; k++) {
        part_in item;
        ATOM_TRY(part_in_item(in, "sub_models", rows, k, &item));
        ATOM_TRY(read_holds(&item, plan, &plan->sub_models[k], PART_HOLD_DEVICE));
        ATOM_TRY(read_holds(&item, plan, &plan->sub_models[k], PART_HOLD_HOST));
    }
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
    return read_all_holds(in, rows, plan);
}

atom_status part_plan_parse(const char *file, const char *text, size_t bytes, part_plan **out)
{
    json_t *root = NULL;
    part_plan *p = NULL;
    part_in in = {.file = file};
    atom_status st = ATOM_OK;
    ATOM_TRY_CLEAN(atom_json_parse(file, text, bytes, 0, &root));
    in.object = root;
    ATOM_TRY_CLEAN(part_in_version(&in, "atom_plan", 1));
    p = atom_alloc(1, sizeof *p);
    if (!p)
        ATOM_TRY_CLEAN(atom_fail_memory("a plan", sizeof *p));
    p->devices = 1;
    ATOM_TRY_CLEAN(part_in_fields(&in, plan_fields, PLAN_FIELDS, p));
    ATOM_TRY_CLEAN(read_sub_models(&in, p));
    *out = p;
    p = NULL;
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
