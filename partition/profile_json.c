/*
 * Owns the file forms of a profile ("atom_profile": 1) and of the rates in it ("atom_rates": 1). One idea:
 * what is written reads back to the same bits. Refuses files that say more or less than a profile does.
 */
#include "partition/json.h"

#include "atom/base/files.h"
#include "atom/base/mem.h"

#include <string.h>

enum { NODES_MAX = 1 << 20, DIM_MAX = 1 << 30 };
#define BYTES_MAX ((double)((uint64_t)1 << 62))
#define RATE_MIN 1e-9
#define RATE_MAX 1e21
#define SECONDS_MAX 1e9

#define TOP(member, kind, ...) PART_FIELD(part_profile, member, kind, __VA_ARGS__)
static const part_field top_fields[] = {
    {.key = "atom_profile", .kind = PART_FIELD_INSIDE},
    TOP(graph_hash, HASH),
    TOP(model, TEXT),
    TOP(dtype, DTYPE),
    TOP(micro_batch, INTEGER, .low = 1, .high = DIM_MAX),
    TOP(sequence, INTEGER, .low = 1, .high = DIM_MAX),
    TOP(doubt, F64, .high = SECONDS_MAX, .optional = true),
    TOP(measured_again, INTEGER, .high = DIM_MAX, .optional = true),
    {.key = "device", .kind = PART_FIELD_INSIDE},
    {.key = "nodes", .kind = PART_FIELD_INSIDE},
    {.key = "graph", .kind = PART_FIELD_INSIDE, .optional = true},
};
#define DEVICE(member, kind, ...) PART_FIELD(part_device, member, kind, __VA_ARGS__)
static const part_field device_fields[] = {
    DEVICE(name, TEXT),
    DEVICE(isa, TEXT),
    DEVICE(unified, BOOL),
    DEVICE(modelled, BOOL),
    DEVICE(cores, INTEGER, .low = 1, .high = 1 << 20),
    DEVICE(device_bytes, INTEGER, .high = BYTES_MAX),
    DEVICE(host_bytes, INTEGER, .low = 1, .high = BYTES_MAX),
    DEVICE(flops_fp32, F64, .high = RATE_MAX),
    DEVICE(flops_bf16, F64, .high = RATE_MAX),
    DEVICE(peak_flops_fp32, F64, .high = RATE_MAX),
    DEVICE(peak_flops_bf16, F64, .high = RATE_MAX),
    DEVICE(device_bytes_per_second, F64, .low = RATE_MIN, .high = RATE_MAX),
    DEVICE(h2d_bytes_per_second, F64, .low = RATE_MIN, .high = RATE_MAX),
    DEVICE(d2h_bytes_per_second, F64, .low = RATE_MIN, .high = RATE_MAX),
    DEVICE(h2d_both_bytes_per_second, F64, .low = RATE_MIN, .high = RATE_MAX),
    DEVICE(d2h_both_bytes_per_second, F64, .low = RATE_MIN, .high = RATE_MAX),
    DEVICE(copy_latency_seconds, F64, .high = SECONDS_MAX),
    DEVICE(host_bytes_per_second, F64, .low = RATE_MIN, .high = RATE_MAX),
    DEVICE(adamw_params_per_second, F64, .low = RATE_MIN, .high = RATE_MAX),
    DEVICE(muon_flops_per_second, F64, .high = RATE_MAX, .optional = true),
    DEVICE(attention_fraction, F64, .high = 1, .optional = true),
    DEVICE(ortho_flops_per_second, F64, .high = RATE_MAX, .optional = true),
    DEVICE(launch_seconds, F64, .high = SECONDS_MAX),
    DEVICE(cache_bytes, INTEGER, .high = BYTES_MAX, .optional = true),
    DEVICE(disk_read_bytes_per_second, F64, .high = RATE_MAX),
    DEVICE(disk_write_bytes_per_second, F64, .high = RATE_MAX),
    DEVICE(disk_read_both_bytes_per_second, F64, .high = RATE_MAX),
    DEVICE(disk_write_both_bytes_per_second, F64, .high = RATE_MAX),
    DEVICE(disk_sync_seconds, F64, .high = SECONDS_MAX),
};
#define NODE(member, kind, ...) PART_FIELD(part_node_cost, member, kind, __VA_ARGS__)
static const part_field node_fields[] = {
    NODE(name, TEXT),
    NODE(fwd_seconds, F64, .high = SECONDS_MAX),
    NODE(bwd_seconds, F64, .high = SECONDS_MAX),
    NODE(fwd_gain_seconds, F64, .high = SECONDS_MAX, .optional = true),
    NODE(bwd_gain_seconds, F64, .high = SECONDS_MAX, .optional = true),
    NODE(workspace_bytes, INTEGER, .high = BYTES_MAX),
    NODE(param_bytes, INTEGER, .high = BYTES_MAX),
    NODE(saved_bytes, INTEGER, .high = BYTES_MAX),
    NODE(output_bytes, INTEGER, .high = BYTES_MAX),
};
enum {
    TOP_FIELDS = sizeof top_fields / sizeof top_fields[0],
    DEVICE_FIELDS = sizeof device_fields / sizeof device_fields[0],
    NODE_FIELDS = sizeof node_fields / sizeof node_fields[0]
};

static void write_device(part_out *o, part_device d)
{
    if (!d.isa[0])
        memcpy(d.isa, "none", sizeof "none");
    part_out_begin(o, "device", '{', false);
    part_out_fields(o, device_fields, DEVICE_FIELDS, &d);
    part_out_end(o, '}');
}

static atom_status rates_json(const part_device *rates, char **text)
{
    part_out o;
    ATOM_TRY(part_out_open(&o));
    part_out_begin(&o, NULL, '{', false);
    part_out_i64(&o, "atom_rates", 1);
    write_device(&o, *rates);
    part_out_end(&o, '}');
    return part_out_take(&o, text);
}

atom_status part_rates_write(const part_device *rates, const char *path)
{
    char *text = NULL;
    ATOM_TRY(rates_json(rates, &text));
    return part_out_file(text, path);
}

atom_status part_rates_parse(const char *file, const char *text, size_t bytes, part_device *rates)
{
    static const char *const keys[] = {"atom_rates", "device", NULL};
    json_t *root = NULL;
    part_in in = {.file = file}, device;
    part_device read = {0};
    atom_status st;
    ATOM_TRY_CLEAN(atom_json_parse(file, text, bytes, 0, &root));
    in.object = root;
    ATOM_TRY_CLEAN(part_in_keys(&in, keys, NULL));
    ATOM_TRY_CLEAN(part_in_version(&in, "atom_rates", 1));
    ATOM_TRY_CLEAN(part_in_child(&in, "device", &device));
    ATOM_TRY_CLEAN(part_in_fields(&device, device_fields, DEVICE_FIELDS, &read));
    *rates = read;
cleanup:
    json_decref(root);
    return st;
}

atom_status part_rates_read(const char *path, part_device *rates)
{
    char *text = NULL;
    uint64_t bytes = 0;
    atom_status st = atom_file_read(path, PART_FILE_BYTES_MAX, &text, &bytes);
    if (st == ATOM_OK)
        st = part_rates_parse(path, text, bytes, rates);
    atom_free(text);
    return st;
}

/* One string per line: readable, and JSON has no other way to hold lines. */
static void write_graph(part_out *o, const char *text)
{
    part_out_begin(o, "graph", '[', false);
    for (; *text; text += *text == '\n') {
        size_t n = strcspn(text, "\n");
        part_out_text(o, NULL, text, n);
        text += n;
    }
    part_out_end(o, ']');
}

atom_status part_profile_json(const part_profile *profile, char **text)
{
    part_out o;
    ATOM_TRY(part_out_open(&o));
    part_out_begin(&o, NULL, '{', false);
    part_out_i64(&o, "atom_profile", 1);
    part_out_fields(&o, top_fields, TOP_FIELDS, profile);
    write_device(&o, profile->device);
    part_out_begin(&o, "nodes", '[', false);
    for (uint32_t i = 0; i < profile->n_nodes; i++) {
        part_out_begin(&o, NULL, '{', true);
        part_out_fields(&o, node_fields, NODE_FIELDS, &profile->nodes[i]);
        part_out_end(&o, '}');
    }
    part_out_end(&o, ']');
    if (profile->graph_text)
        write_graph(&o, profile->graph_text);
    part_out_end(&o, '}');
    return part_out_take(&o, text);
}

atom_status part_profile_check_place(const char *path)
{
    return atom_file_check_place(path, "\"atom_profile\"", "a profile");
}

atom_status part_profile_write(const part_profile *profile, const char *path)
{
    char *text = NULL;
    ATOM_TRY(part_profile_json(profile, &text));
    return part_out_file(text, path);
}

/* Profiles from before there were gains have none, and every micro-batch is cold. */
static atom_status check_gains(const part_in *item, const part_node_cost *cost)
{
    if (cost->fwd_gain_seconds > cost->fwd_seconds)
        return part_in_wrong(item, "fwd_gain_seconds", "expected at most fwd_seconds");
    if (cost->bwd_gain_seconds > cost->bwd_seconds)
        return part_in_wrong(item, "bwd_gain_seconds", "expected at most bwd_seconds");
    return ATOM_OK;
}

static atom_status read_nodes(const part_in *in, part_profile *p)
{
    json_t *nodes = NULL;
    ATOM_TRY(part_in_array(in, "nodes", 1, NODES_MAX, &nodes));
    p->n_nodes = (uint32_t)json_array_size(nodes);
    p->nodes = atom_alloc(p->n_nodes, sizeof *p->nodes);
    if (!p->nodes)
        return atom_fail_memory("a profile", (uint64_t)p->n_nodes * sizeof *p->nodes);
    for (uint32_t i = 0; i < p->n_nodes; i++) {
        part_in item;
        ATOM_TRY(part_in_item(in, "nodes", nodes, i, &item));
        ATOM_TRY(part_in_fields(&item, node_fields, NODE_FIELDS, &p->nodes[i]));
        ATOM_TRY(check_gains(&item, &p->nodes[i]));
    }
    return ATOM_OK;
}

enum { GRAPH_LINES_MAX = 1 << 20 };

/* The lines joined again; optional, as old profiles have none. */
static atom_status read_graph(const part_in *in, part_profile *p)
{
    json_t *lines = NULL;
    size_t bytes = 1, used = 0;
    if (!json_object_get(in->object, "graph"))
        return ATOM_OK;
    ATOM_TRY(part_in_array(in, "graph", 1, GRAPH_LINES_MAX, &lines));
    for (size_t i = 0; i < json_array_size(lines); i++) {
        const json_t *line = json_array_get(lines, i);
        if (!json_is_string(line))
            return atom_fail(ATOM_E_FORMAT, "%s: graph[%zu]: expected a string", in->file, i);
        bytes += json_string_length(line) + 1;
    }
    p->graph_text = atom_alloc(bytes, 1);
    if (!p->graph_text)
        return atom_fail_memory("a profile's graph", bytes);
    for (size_t i = 0; i < json_array_size(lines); i++) {
        const json_t *line = json_array_get(lines, i);
        memcpy(p->graph_text + used, json_string_value(line), json_string_length(line));
        used += json_string_length(line);
        p->graph_text[used++] = '\n';
    }
    return ATOM_OK;
}

atom_status part_profile_parse(const char *file, const char *text, size_t bytes, part_profile **out)
{
    json_t *root = NULL;
    part_profile *p = NULL;
    part_in in = {.file = file}, device;
    atom_status st = ATOM_OK;
    ATOM_TRY_CLEAN(atom_json_parse(file, text, bytes, 0, &root));
    in.object = root;
    ATOM_TRY_CLEAN(part_in_version(&in, "atom_profile", 1));
    p = atom_alloc(1, sizeof *p);
    if (!p)
        ATOM_TRY_CLEAN(atom_fail_memory("a profile", sizeof *p));
    ATOM_TRY_CLEAN(part_in_fields(&in, top_fields, TOP_FIELDS, p));
    ATOM_TRY_CLEAN(part_in_child(&in, "device", &device));
    ATOM_TRY_CLEAN(part_in_fields(&device, device_fields, DEVICE_FIELDS, &p->device));
    ATOM_TRY_CLEAN(read_nodes(&in, p));
    ATOM_TRY_CLEAN(read_graph(&in, p));
    *out = p;
    p = NULL;
cleanup:
    json_decref(root);
    part_profile_close(&p);
    return st;
}

atom_status part_profile_read(const char *path, part_profile **out)
{
    char *text = NULL;
    uint64_t bytes = 0;
    atom_status st = atom_file_read(path, PART_FILE_BYTES_MAX, &text, &bytes);
    if (st == ATOM_OK)
        st = part_profile_parse(path, text, bytes, out);
    atom_free(text);
    return st;
}
