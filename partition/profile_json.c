/*
 * Owns the file form of a profile ("atom_profile": 1). One idea: what is written reads back to the
 * same bits. Refuses files that say more or less than a profile does.
 */
#include "partition/json.h"

#include "atom/base/files.h"
#include "atom/base/mem.h"

#include <string.h>

enum { NODES_MAX = 1 << 20, DIM_MAX = 1 << 30 };
static const uint64_t BYTES_MAX = (uint64_t)1 << 62;
static const double RATE_MAX = 1e21, SECONDS_MAX = 1e9;

static void write_device(part_out *o, const part_device *d)
{
    part_out_begin(o, "device", '{', false);
    part_out_text(o, "name", d->name);
    part_out_text(o, "isa", d->isa[0] ? d->isa : "none");
    part_out_bool(o, "unified", d->unified);
    part_out_bool(o, "modelled", d->modelled);
    part_out_u64(o, "cores", d->cores);
    part_out_u64(o, "device_bytes", d->device_bytes);
    part_out_u64(o, "host_bytes", d->host_bytes);
    part_out_f64(o, "flops_fp32", d->flops_fp32);
    part_out_f64(o, "flops_bf16", d->flops_bf16);
    part_out_f64(o, "peak_flops_fp32", d->peak_flops_fp32);
    part_out_f64(o, "peak_flops_bf16", d->peak_flops_bf16);
    part_out_f64(o, "device_bytes_per_second", d->device_bytes_per_second);
    part_out_f64(o, "h2d_bytes_per_second", d->h2d_bytes_per_second);
    part_out_f64(o, "d2h_bytes_per_second", d->d2h_bytes_per_second);
    part_out_f64(o, "h2d_both_bytes_per_second", d->h2d_both_bytes_per_second);
    part_out_f64(o, "d2h_both_bytes_per_second", d->d2h_both_bytes_per_second);
    part_out_f64(o, "copy_latency_seconds", d->copy_latency_seconds);
    part_out_f64(o, "host_bytes_per_second", d->host_bytes_per_second);
    part_out_f64(o, "adamw_params_per_second", d->adamw_params_per_second);
    part_out_f64(o, "launch_seconds", d->launch_seconds);
    part_out_f64(o, "disk_read_bytes_per_second", d->disk_read_bytes_per_second);
    part_out_f64(o, "disk_write_bytes_per_second", d->disk_write_bytes_per_second);
    part_out_f64(o, "disk_read_both_bytes_per_second", d->disk_read_both_bytes_per_second);
    part_out_f64(o, "disk_write_both_bytes_per_second", d->disk_write_both_bytes_per_second);
    part_out_f64(o, "disk_sync_seconds", d->disk_sync_seconds);
    part_out_end(o, '}');
}

/* One string per line: readable, and JSON has no other way to hold lines. */
static void write_graph(part_out *o, const char *text)
{
    part_out_begin(o, "graph", '[', false);
    for (; text && *text; text += *text == '\n') {
        size_t n = strcspn(text, "\n");
        char *line = atom_strndup(text, n);
        o->bad = o->bad || !line;
        if (line)
            part_out_text(o, NULL, line);
        atom_free(line);
        text += n;
    }
    part_out_end(o, ']');
}

atom_status part_profile_json(const part_profile *profile, char **text)
{
    part_out o = {0};
    part_out_begin(&o, NULL, '{', false);
    part_out_i64(&o, "atom_profile", 1);
    part_out_hash(&o, "graph_hash", profile->graph_hash);
    part_out_text(&o, "model", profile->model);
    part_out_text(&o, "dtype", atom_dtype_name(profile->dtype));
    part_out_i64(&o, "micro_batch", profile->micro_batch);
    part_out_i64(&o, "sequence", profile->sequence);
    write_device(&o, &profile->device);
    part_out_begin(&o, "nodes", '[', false);
    for (uint32_t i = 0; i < profile->n_nodes; i++) {
        const part_node_cost *n = &profile->nodes[i];
        part_out_begin(&o, NULL, '{', true);
        part_out_text(&o, "name", n->name);
        part_out_f64(&o, "fwd_seconds", n->fwd_seconds);
        part_out_f64(&o, "bwd_seconds", n->bwd_seconds);
        part_out_u64(&o, "workspace_bytes", n->workspace_bytes);
        part_out_u64(&o, "param_bytes", n->param_bytes);
        part_out_u64(&o, "saved_bytes", n->saved_bytes);
        part_out_u64(&o, "output_bytes", n->output_bytes);
        part_out_end(&o, '}');
    }
    part_out_end(&o, ']');
    if (profile->graph_text)
        write_graph(&o, profile->graph_text);
    part_out_end(&o, '}');
    return part_out_take(&o, text);
}

atom_status part_profile_write(const part_profile *profile, const char *path)
{
    char *text = NULL;
    atom_status st = part_profile_json(profile, &text);
    if (st == ATOM_OK)
        st = atom_file_write(path, text, strlen(text));
    atom_free(text);
    return st;
}

static atom_status read_device(const part_in *top, part_device *d)
{
    static const char *const keys[] = {"name",
                                       "isa",
                                       "unified",
                                       "modelled",
                                       "cores",
                                       "device_bytes",
                                       "host_bytes",
                                       "flops_fp32",
                                       "flops_bf16",
                                       "peak_flops_fp32",
                                       "peak_flops_bf16",
                                       "device_bytes_per_second",
                                       "h2d_bytes_per_second",
                                       "d2h_bytes_per_second",
                                       "h2d_both_bytes_per_second",
                                       "d2h_both_bytes_per_second",
                                       "copy_latency_seconds",
                                       "host_bytes_per_second",
                                       "adamw_params_per_second",
                                       "launch_seconds",
                                       "disk_read_bytes_per_second",
                                       "disk_write_bytes_per_second",
                                       "disk_read_both_bytes_per_second",
                                       "disk_write_both_bytes_per_second",
                                       "disk_sync_seconds",
                                       NULL};
    part_in in;
    const double low = 1e-9;
    ATOM_TRY(part_in_child(top, "device", &in));
    ATOM_TRY(part_in_keys(&in, keys));
    ATOM_TRY(part_in_text(&in, "name", d->name, sizeof d->name));
    ATOM_TRY(part_in_text(&in, "isa", d->isa, sizeof d->isa));
    ATOM_TRY(part_in_bool(&in, "unified", &d->unified));
    ATOM_TRY(part_in_bool(&in, "modelled", &d->modelled));
    ATOM_TRY(part_in_u32(&in, "cores", 1, 1 << 20, &d->cores));
    ATOM_TRY(part_in_u64(&in, "device_bytes", 0, BYTES_MAX, &d->device_bytes));
    ATOM_TRY(part_in_u64(&in, "host_bytes", 1, BYTES_MAX, &d->host_bytes));
    ATOM_TRY(part_in_f64(&in, "flops_fp32", 0, RATE_MAX, &d->flops_fp32));
    ATOM_TRY(part_in_f64(&in, "flops_bf16", 0, RATE_MAX, &d->flops_bf16));
    ATOM_TRY(part_in_f64(&in, "peak_flops_fp32", 0, RATE_MAX, &d->peak_flops_fp32));
    ATOM_TRY(part_in_f64(&in, "peak_flops_bf16", 0, RATE_MAX, &d->peak_flops_bf16));
    ATOM_TRY(part_in_f64(&in, keys[11], low, RATE_MAX, &d->device_bytes_per_second));
    ATOM_TRY(part_in_f64(&in, keys[12], low, RATE_MAX, &d->h2d_bytes_per_second));
    ATOM_TRY(part_in_f64(&in, keys[13], low, RATE_MAX, &d->d2h_bytes_per_second));
    ATOM_TRY(part_in_f64(&in, keys[14], low, RATE_MAX, &d->h2d_both_bytes_per_second));
    ATOM_TRY(part_in_f64(&in, keys[15], low, RATE_MAX, &d->d2h_both_bytes_per_second));
    ATOM_TRY(part_in_f64(&in, "copy_latency_seconds", 0, SECONDS_MAX, &d->copy_latency_seconds));
    ATOM_TRY(part_in_f64(&in, keys[17], low, RATE_MAX, &d->host_bytes_per_second));
    ATOM_TRY(part_in_f64(&in, keys[18], low, RATE_MAX, &d->adamw_params_per_second));
    ATOM_TRY(part_in_f64(&in, "launch_seconds", 0, SECONDS_MAX, &d->launch_seconds));
    ATOM_TRY(part_in_f64(&in, keys[20], 0, RATE_MAX, &d->disk_read_bytes_per_second));
    ATOM_TRY(part_in_f64(&in, keys[21], 0, RATE_MAX, &d->disk_write_bytes_per_second));
    ATOM_TRY(part_in_f64(&in, keys[22], 0, RATE_MAX, &d->disk_read_both_bytes_per_second));
    ATOM_TRY(part_in_f64(&in, keys[23], 0, RATE_MAX, &d->disk_write_both_bytes_per_second));
    return part_in_f64(&in, "disk_sync_seconds", 0, SECONDS_MAX, &d->disk_sync_seconds);
}

static atom_status read_node(const part_in *in, part_node_cost *n)
{
    static const char *const keys[] = {
        "name",        "fwd_seconds", "bwd_seconds",  "workspace_bytes",
        "param_bytes", "saved_bytes", "output_bytes", NULL};
    ATOM_TRY(part_in_keys(in, keys));
    ATOM_TRY(part_in_text(in, "name", n->name, sizeof n->name));
    ATOM_TRY(part_in_f64(in, "fwd_seconds", 0, SECONDS_MAX, &n->fwd_seconds));
    ATOM_TRY(part_in_f64(in, "bwd_seconds", 0, SECONDS_MAX, &n->bwd_seconds));
    ATOM_TRY(part_in_u64(in, "workspace_bytes", 0, BYTES_MAX, &n->workspace_bytes));
    ATOM_TRY(part_in_u64(in, "param_bytes", 0, BYTES_MAX, &n->param_bytes));
    ATOM_TRY(part_in_u64(in, "saved_bytes", 0, BYTES_MAX, &n->saved_bytes));
    return part_in_u64(in, "output_bytes", 0, BYTES_MAX, &n->output_bytes);
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
        ATOM_TRY(read_node(&item, &p->nodes[i]));
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
    static const char *const keys[] = {"atom_profile", "graph_hash", "model",  "dtype",
                                       "micro_batch",  "sequence",   "device", "nodes",
                                       "graph",        NULL};
    static const char *const old_keys[] = {"atom_profile", "graph_hash",  "model",
                                           "dtype",        "micro_batch", "sequence",
                                           "device",       "nodes",       NULL};
    json_t *root = NULL;
    part_profile *p = NULL;
    part_in in = {.file = file};
    atom_status st = ATOM_OK;
    ATOM_TRY_CLEAN(part_in_load(file, text, bytes, &root));
    in.object = root;
    ATOM_TRY_CLEAN(part_in_version(&in, "atom_profile", 1));
    ATOM_TRY_CLEAN(part_in_keys(&in, json_object_get(root, "graph") ? keys : old_keys));
    p = atom_alloc(1, sizeof *p);
    if (!p) {
        st = atom_fail_memory("a profile", sizeof *p);
        goto cleanup;
    }
    ATOM_TRY_CLEAN(part_in_hash(&in, "graph_hash", &p->graph_hash));
    ATOM_TRY_CLEAN(part_in_text(&in, "model", p->model, sizeof p->model));
    ATOM_TRY_CLEAN(part_in_dtype(&in, "dtype", &p->dtype));
    ATOM_TRY_CLEAN(part_in_i64(&in, "micro_batch", 1, DIM_MAX, &p->micro_batch));
    ATOM_TRY_CLEAN(part_in_i64(&in, "sequence", 1, DIM_MAX, &p->sequence));
    ATOM_TRY_CLEAN(read_device(&in, &p->device));
    ATOM_TRY_CLEAN(read_nodes(&in, p));
    ATOM_TRY_CLEAN(read_graph(&in, p));
    json_decref(root);
    *out = p;
    return ATOM_OK;
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
