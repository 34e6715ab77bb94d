/*
 * Owns the making of profiles: a table with one row per node. One idea: alike nodes are timed once
 * (or modelled by the same formula), so 96 equal blocks cost as much as one and a plan sees no
 * noise between them. Refuses to time anything itself: that comes in as a callback.
 */
#include "partition/json.h"

#include "atom/base/classifier.h"
#include "atom/base/mem.h"

#include <math.h>
#include <string.h>

static atom_status check_rate(const part_device *device, const char *figure, double value,
                              double low)
{
    if (value >= low && value <= 1e21)
        return ATOM_OK;
    return atom_fail(ATOM_E_USAGE, "device \"%s\": %s is %g; expected a number %s", device->name,
                     figure, value, low > 0 ? "above zero" : "that is not negative");
}

atom_status part_device_check(const part_device *device)
{
    const double tiny = 1e-30;
    const struct {
        const char *name;
        double value, low;
    } figures[] = {
        {"flops_fp32", device->flops_fp32, 0},
        {"flops_bf16", device->flops_bf16, 0},
        {"peak_flops_fp32", device->peak_flops_fp32, 0},
        {"peak_flops_bf16", device->peak_flops_bf16, 0},
        {"device_bytes_per_second", device->device_bytes_per_second, tiny},
        {"h2d_bytes_per_second", device->h2d_bytes_per_second, tiny},
        {"d2h_bytes_per_second", device->d2h_bytes_per_second, tiny},
        {"h2d_both_bytes_per_second", device->h2d_both_bytes_per_second, tiny},
        {"d2h_both_bytes_per_second", device->d2h_both_bytes_per_second, tiny},
        {"copy_latency_seconds", device->copy_latency_seconds, 0},
        {"host_bytes_per_second", device->host_bytes_per_second, tiny},
        {"adamw_params_per_second", device->adamw_params_per_second, 0},
        {"muon_flops_per_second", device->muon_flops_per_second, 0},
        {"ortho_flops_per_second", device->ortho_flops_per_second, 0},
        {"launch_seconds", device->launch_seconds, 0},
    };
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        ATOM_TRY(check_rate(device, figures[i].name, figures[i].value, figures[i].low));
    if (device->cores < 1 || device->host_bytes == 0)
        return atom_fail(ATOM_E_USAGE, "device \"%s\": cores and host_bytes must be above zero",
                         device->name);
    return ATOM_OK;
}

/* What is known about a node without timing it. */
static void fill_facts(const graph *g, int32_t node, part_node_cost *cost)
{
    const graph_node *n = &g->nodes[node];
    const atom_op_info *info = atom_op_get(n->op);
    memcpy(cost->name, n->name, sizeof cost->name);
    cost->param_bytes = graph_node_param_bytes(g, node);
    cost->saved_bytes = cost->output_bytes = 0;
    for (int i = 0; i < info->outs; i++)
        cost->output_bytes += graph_tensor_bytes(g, n->out[i]);
    for (int i = 0; i < info->saved; i++)
        cost->saved_bytes += graph_tensor_bytes(g, n->saved[i]);
}

/* 28 bytes per parameter and step in bf16 with fp32 moments: master and moments are read and
 * written, and so is the wire copy, which holds the gradient before and the parameter after
 * (kernels.h). */
static double adamw_rate(const part_device *device, const graph *g)
{
    uint32_t each = atom_state_bytes(g->moments) + atom_dtype_bytes(g->dtype);
    return device->host_bytes_per_second / (2.0 * each);
}

/* Operations of five steps on one matrix. */
static double muon_flops(int64_t rows, int64_t cols)
{
    double s = (double)(rows < cols ? rows : cols), l = (double)(rows < cols ? cols : rows);
    return 5 * (3 * s * s * l + s * s * s);
}

double part_muon_seconds(const part_device *d, int64_t rows, int64_t cols)
{
    double guess = 5e10 * d->cores;
    double rate = d->muon_flops_per_second > 0 ? d->muon_flops_per_second : guess;
    return muon_flops(rows, cols) / rate;
}

double part_ortho_seconds(const part_device *d, int64_t rows, int64_t cols)
{
    enum { KERNELS = 3 * 5 + 1 }; /* three products in each step, and X to bf16 before them */
    return KERNELS * d->launch_seconds + muon_flops(rows, cols) / d->ortho_flops_per_second;
}

/* The gradient and the momentum are read twice, X and the momentum written once. */
double part_muon_begin_seconds(const part_device *d, uint64_t elements, uint32_t wire,
                               uint32_t moment)
{
    return 3.0 * (double)elements * (wire + moment) / d->host_bytes_per_second;
}

double part_muon_end_seconds(const part_device *d, uint64_t elements, uint32_t wire)
{
    return 2.0 * (double)elements * (wire + 4) / d->host_bytes_per_second;
}

uint32_t part_warm_share(const part_device *d, uint64_t touched_bytes)
{
    const uint64_t cache = d->cache_bytes, all = cache / 2, none = all + cache;
    if (touched_bytes >= none)
        return 0;
    if (touched_bytes <= all)
        return PART_WARM_ALL;
    return (uint32_t)((double)(none - touched_bytes) / (double)cache * PART_WARM_ALL);
}

/* Pieces of which each takes that many times as long as its copy takes to begin. */
static uint64_t pieces_of(const part_device *d, uint64_t bytes, double latencies)
{
    double least = latencies * d->copy_latency_seconds * d->h2d_bytes_per_second;
    double pieces = (double)bytes / (least > ATOM_ALIGN_BYTES ? least : ATOM_ALIGN_BYTES);
    return pieces < 1 ? 1 : pieces < 1e9 ? (uint64_t)pieces : (uint64_t)1e9;
}

uint32_t part_pieces(const part_device *d, uint64_t bytes)
{
    static const double LATENCIES = 16;
    uint64_t pieces = pieces_of(d, bytes, LATENCIES);
    return pieces < PART_PIECES_MAX ? (uint32_t)pieces : PART_PIECES_MAX;
}

uint32_t part_pieces_beside(const part_device *d, uint64_t bytes, uint32_t n)
{
    static const double LATENCIES = 8;
    uint64_t pieces = pieces_of(d, bytes, LATENCIES);
    return pieces < n ? (uint32_t)pieces : n;
}

part_disk part_device_disk(const part_device *d)
{
    if (d->disk_read_bytes_per_second <= 0 || d->disk_write_bytes_per_second <= 0)
        return (part_disk){3e9, 2e9, 2e9, 1.5e9, 5e-3, true};
    return (part_disk){d->disk_read_bytes_per_second,
                       d->disk_write_bytes_per_second,
                       d->disk_read_both_bytes_per_second,
                       d->disk_write_both_bytes_per_second,
                       d->disk_sync_seconds,
                       false};
}

atom_status part_profile_open(const graph *g, const part_device *device, part_profile **out)
{
    part_profile *p = NULL;
    atom_status st = ATOM_OK;
    ATOM_TRY(part_device_check(device));
    p = atom_alloc(1, sizeof *p);
    if (!p)
        return atom_fail_memory("a profile", sizeof *p);
    p->graph_hash = graph_hash(g);
    memcpy(p->model, g->name, sizeof p->model);
    p->dtype = g->dtype;
    p->micro_batch = g->micro_batch;
    p->sequence = g->sequence;
    p->device = *device;
    if (p->device.adamw_params_per_second <= 0)
        p->device.adamw_params_per_second = adamw_rate(device, g);
    p->n_nodes = g->n_nodes;
    p->nodes = atom_alloc(g->n_nodes, sizeof *p->nodes);
    if (!p->nodes)
        ATOM_TRY_CLEAN(atom_fail_memory("a profile", (uint64_t)g->n_nodes * sizeof *p->nodes));
    for (uint32_t i = 0; i < g->n_nodes; i++)
        fill_facts(g, (int32_t)i, &p->nodes[i]);
    ATOM_TRY_CLEAN(graph_print(g, &p->graph_text));
    *out = p;
    return ATOM_OK;
cleanup:
    part_profile_close(&p);
    return st;
}

void part_profile_close(part_profile **profile)
{
    if (!*profile)
        return;
    atom_free((*profile)->nodes);
    atom_free((*profile)->graph_text);
    atom_free(*profile);
    *profile = NULL;
}

/* The first node before `node` that is alike, or `node` itself. classes[i] is node i's class. */
static uint32_t first_alike(const uint64_t *classes, uint32_t node)
{
    uint32_t i = 0;
    while (classes[i] != classes[node])
        i++;
    return i;
}

static bool makes_sense(double seconds, double gain)
{
    return isfinite(seconds) && gain >= 0 && gain <= seconds;
}

static atom_status check_cost(const part_node_cost *cost, const char *name)
{
    if (makes_sense(cost->fwd_seconds, cost->fwd_gain_seconds) &&
        makes_sense(cost->bwd_seconds, cost->bwd_gain_seconds))
        return ATOM_OK;
    return atom_fail(
        ATOM_E_RUNTIME,
        "node %s was timed at %g s forward (%g less when warm), %g s backward (%g less "
        "when warm)",
        name, cost->fwd_seconds, cost->fwd_gain_seconds, cost->bwd_seconds, cost->bwd_gain_seconds);
}

atom_status part_profile_measure(const graph *g, const part_device *device, part_time_fn time,
                                 void *ctx, part_profile **out)
{
    part_profile *p = NULL;
    uint64_t *classes = NULL;
    atom_status st = ATOM_OK;
    ATOM_TRY_CLEAN(part_profile_open(g, device, &p));
    classes = atom_alloc(g->n_nodes, sizeof *classes);
    if (!classes)
        ATOM_TRY_CLEAN(atom_fail_memory("a profile", (uint64_t)g->n_nodes * sizeof *classes));
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        classes[i] = graph_node_class(g, (int32_t)i);
        uint32_t first = first_alike(classes, i);
        if (first == i) {
            ATOM_TRY_CLEAN(time(ctx, g, (int32_t)i, &p->nodes[i]));
            ATOM_TRY_CLEAN(check_cost(&p->nodes[i], g->nodes[i].name));
        } else {
            p->nodes[i] = p->nodes[first];
        }
        fill_facts(g, (int32_t)i, &p->nodes[i]);
    }
    atom_free(classes);
    *out = p;
    return ATOM_OK;
cleanup:
    atom_free(classes);
    part_profile_close(&p);
    return st;
}

/* Bytes a node moves through device memory. Backward reads what forward read, and the outputs'
 * gradients; it writes the inputs' gradients and adds to fp32 accumulators (read and written). */
static double bytes_moved(const graph *g, int32_t node, bool backward)
{
    const graph_node *n = &g->nodes[node];
    const atom_op_info *info = atom_op_get(n->op);
    double acts = 0, bytes = (double)graph_node_param_bytes(g, node);
    for (int i = 0; i < info->ins; i++)
        acts += (double)graph_tensor_bytes(g, n->in[i]);
    for (int i = 0; i < info->outs; i++)
        acts += (double)graph_tensor_bytes(g, n->out[i]);
    for (int i = 0; i < info->saved; i++)
        bytes += (double)graph_tensor_bytes(g, n->saved[i]);
    if (!backward)
        return bytes + acts;
    for (int i = 0; i < n->n_params; i++)
        bytes +=
            g->params[n->params[i]].frozen ? 0 : 8.0 * (double)g->params[n->params[i]].elements;
    return bytes + 2 * acts;
}

/* Lookups touch one row per token, whatever the table's size. */
static double bytes_touched(const graph *g, int32_t node, bool backward)
{
    const graph_node *n = &g->nodes[node];
    double out = (double)graph_tensor_bytes(g, n->out[0]);
    if (n->op != ATOM_OP_embed)
        return bytes_moved(g, node, backward);
    return (backward ? 5.0 : 3.0) * out; /* rows in, x out; or dX in, fp32 rows read and written */
}

static bool is_matmul(atom_op op)
{
    return op == ATOM_OP_linear || op == ATOM_OP_linear_gelu || op == ATOM_OP_classifier ||
           op == ATOM_OP_attention;
}

/* Scratch of a node; what other devices than cards need is known only where their kernels are
 * (swap_program.workspace_bytes). Not the 33 MiB that the matrix library asks for beside it. */
static uint64_t model_workspace(const graph *g, int32_t node)
{
    const graph_node *n = &g->nodes[node];
    if (n->op != ATOM_OP_classifier)
        return 0;
    return atom_classifier_of(g->micro_batch * g->sequence, g->params[n->params[0]].dims[0],
                              (int64_t)atom_dtype_bytes(g->dtype), ATOM_CLASSIFIER_LOGIT_ROWS_MAX,
                              ATOM_CLASSIFIER_D_ROWS_MAX)
        .bytes;
}

/* Bytes of what a node's kernels do one after the other: passes over the logits and their gradient, and
 * over what GELU has made, behind the products. */
static double pass_bytes(const graph *g, int32_t node, bool backward)
{
    const graph_node *n = &g->nodes[node];
    double each = (double)atom_dtype_bytes(g->dtype);
    if (n->op == ATOM_OP_linear_gelu && backward)
        return 3.0 * (double)graph_tensor_bytes(g, n->out[0]);
    if (n->op != ATOM_OP_classifier)
        return 0;
    double logits =
        (double)(g->micro_batch * g->sequence) * (double)g->params[n->params[0]].dims[0];
    return logits * (backward ? 8 + each : 4);
}

static double model_seconds(const graph *g, const part_device *device, int32_t node, bool backward)
{
    const graph_node *n = &g->nodes[node];
    double matmul = g->dtype == ATOM_BF16 ? device->flops_bf16 : device->flops_fp32;
    double rate = is_matmul(n->op) || device->flops_fp32 <= 0 ? matmul : device->flops_fp32;
    if (n->op == ATOM_OP_attention && device->attention_fraction > 0 && g->dtype == ATOM_BF16)
        rate *= device->attention_fraction;
    double compute = graph_node_flops(g, node, backward) / rate;
    double passes = pass_bytes(g, node, backward) / device->device_bytes_per_second;
    double memory = bytes_touched(g, node, backward) / device->device_bytes_per_second;
    bool trains = false;
    for (int i = 0; i < n->n_params; i++)
        trains |= !g->params[n->params[i]].frozen;
    double launches = backward && trains ? 2 : 1; /* dX and dW are kernels of their own */
    if (backward && !graph_node_backward(g, node))
        return 0;
    return (compute > memory ? compute : memory) + passes + launches * device->launch_seconds;
}

/* Of a device's matrix products in fp32, what sums in one fixed order are assumed to reach: the
 * kernel is our own (krn_ortho_fn), and no card has timed it yet. */
static const double ORTHO_FRACTION = 0.6;

atom_status part_profile_model(const graph *g, const part_device *device, part_profile **out)
{
    part_profile *p = NULL;
    double rate = g->dtype == ATOM_BF16 ? device->flops_bf16 : device->flops_fp32;
    if (!(rate > 0))
        return atom_fail(ATOM_E_UNSUPPORTED, "%s has no %s arithmetic; use --dtype %s",
                         device->name, atom_dtype_name(g->dtype),
                         g->dtype == ATOM_BF16 ? "fp32" : "bf16");
    ATOM_TRY(part_profile_open(g, device, &p));
    p->device.modelled = true;
    if (!device->unified && device->ortho_flops_per_second <= 0)
        p->device.ortho_flops_per_second = ORTHO_FRACTION * device->flops_fp32;
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        p->nodes[i].fwd_seconds = model_seconds(g, device, (int32_t)i, false);
        p->nodes[i].bwd_seconds = model_seconds(g, device, (int32_t)i, true);
        p->nodes[i].workspace_bytes = model_workspace(g, (int32_t)i);
    }
    *out = p;
    return ATOM_OK;
}

/* Is it said in the first lines of the graph's text? `word` is a whole one. */
static bool graph_says(const part_profile *profile, const char *word)
{
    const char *text = profile->graph_text, *found = text ? strstr(text, word) : NULL;
    char next = 0;
    if (found)
        next = found[strlen(word)];
    return next == ' ' || next == '\n';
}

atom_dtype part_profile_moments(const part_profile *profile)
{
    return graph_says(profile, " moments=bf16") ? ATOM_BF16 : ATOM_F32;
}

graph_optimizer part_profile_optimizer(const part_profile *profile)
{
    return graph_says(profile, " optimizer=muon") ? GRAPH_MUON : GRAPH_ADAMW;
}

atom_status part_profile_graph(const part_profile *profile, graph **out)
{
    graph *g = NULL;
    if (!profile->graph_text)
        return atom_fail(ATOM_E_USAGE, "the profile does not contain its graph; say which model "
                                       "it is for, or profile again");
    atom_status st = graph_parse(profile->graph_text, strlen(profile->graph_text), &g);
    if (st != ATOM_OK)
        return atom_fail_in(st, "the profile's graph: ");
    st = part_profile_matches(profile, g);
    if (st != ATOM_OK) {
        graph_close(&g);
        return atom_fail_in(ATOM_E_FORMAT, "the profile's graph is not the one that was "
                                           "measured: ");
    }
    *out = g;
    return ATOM_OK;
}

atom_status part_profile_matches(const part_profile *profile, const graph *g)
{
    if (strcmp(profile->model, g->name) != 0)
        return atom_fail(ATOM_E_USAGE, "the profile is of model %s, not of %s; profile again",
                         profile->model, g->name);
    if (profile->dtype != g->dtype)
        return atom_fail(ATOM_E_USAGE, "the profile is for %s, not for %s; profile again",
                         atom_dtype_name(profile->dtype), atom_dtype_name(g->dtype));
    if (profile->micro_batch != g->micro_batch || profile->sequence != g->sequence)
        return atom_fail(
            ATOM_E_USAGE,
            "the profile is for micro-batches of %lld x %lld tokens, not of %lld x %lld; "
            "profile again",
            (long long)profile->micro_batch, (long long)profile->sequence,
            (long long)g->micro_batch, (long long)g->sequence);
    atom_dtype moments = part_profile_moments(profile);
    if (profile->graph_text && moments != g->moments)
        return atom_fail(ATOM_E_USAGE, "the profile is for moments in %s, not in %s; profile again",
                         atom_dtype_name(moments), atom_dtype_name(g->moments));
    graph_optimizer optimizer = part_profile_optimizer(profile);
    if (profile->graph_text && optimizer != g->optimizer)
        return atom_fail(ATOM_E_USAGE,
                         "the profile is for optimizer: %s, not for %s; profile again, or use "
                         "--optimizer %s",
                         part_optimizer_names[optimizer], part_optimizer_names[g->optimizer],
                         part_optimizer_names[optimizer]);
    if (profile->graph_hash != graph_hash(g) || profile->n_nodes != g->n_nodes)
        return atom_fail(
            ATOM_E_USAGE,
            "the profile is of another graph (%u nodes, hash %016llx; here %u, %016llx); "
            "profile again, or leave the profile out (dropout needs that)",
            profile->n_nodes, (unsigned long long)profile->graph_hash, g->n_nodes,
            (unsigned long long)graph_hash(g));
    return ATOM_OK;
}
