/*
 * Owns the tables that people read: profile, plan, memory map. One idea: the same facts as the
 * JSON, in the order in which one asks for them. Refuses to compute: every number comes from the
 * object.
 */
#include "tools/show.h"

#include <math.h>
#include <string.h>

static void show_rate(const char *name, double bytes_per_second)
{
    if (bytes_per_second > 0)
        cli_print("  %-22s %sB/s\n", name, cli_count(bytes_per_second));
}

static void show_device(const part_device *d, atom_dtype dtype)
{
    double flops = dtype == ATOM_BF16 ? d->flops_bf16 : d->flops_fp32;
    cli_print("device %s%s%s%s\n", d->name, d->modelled ? " (modelled)" : "", d->isa[0] ? ", " : "",
              d->isa);
    if (d->device_bytes)
        cli_print("  %-22s %s\n", "device memory", cli_size(d->device_bytes));
    cli_print("  %-22s %s\n", "host memory", cli_size(d->host_bytes));
    if (flops > 0)
        cli_print("  %-22s %sFLOP/s in %s\n", "matmul", cli_count(flops), atom_dtype_name(dtype));
    show_rate("device memory rate", d->device_bytes_per_second);
    show_rate("host to device", d->h2d_bytes_per_second);
    show_rate("  with the other way", d->h2d_both_bytes_per_second);
    show_rate("device to host", d->d2h_bytes_per_second);
    show_rate("  with the other way", d->d2h_both_bytes_per_second);
    show_rate("host memory rate", d->host_bytes_per_second);
    if (d->cache_bytes)
        cli_print("  %-22s %s\n", "last-level cache", cli_size(d->cache_bytes));
    cli_print("  %-22s %s parameters/s\n", "AdamW on the host",
              cli_count(d->adamw_params_per_second));
    if (d->muon_flops_per_second > 0)
        cli_print("  %-22s %sFLOP/s\n", "Muon on the host", cli_count(d->muon_flops_per_second));
    if (d->ortho_flops_per_second > 0)
        cli_print("  %-22s %sFLOP/s\n", "  its products on card",
                  cli_count(d->ortho_flops_per_second));
}

/* "h.3.attn.c_proj" and "h.4.attn.c_proj" are one kind: "h.*.attn.c_proj". */
static void kind_of(const char *name, char kind[GRAPH_NAME_MAX])
{
    size_t n = 0;
    for (const char *at = name; *at && n + 1 < GRAPH_NAME_MAX;) {
        size_t digits = strspn(at, "0123456789");
        if (digits && at > name && at[-1] == '.') {
            kind[n++] = '*';
            at += digits;
        } else {
            kind[n++] = *at++;
        }
    }
    kind[n] = 0;
}

const char *show_optimizer(graph_optimizer optimizer, atom_dtype moments)
{
    if (optimizer == GRAPH_MUON)
        return moments == ATOM_BF16 ? " with muon and bf16 moments" : " with muon";
    return moments == ATOM_BF16 ? " with bf16 moments" : "";
}

void show_profile(const part_profile *p)
{
    double fwd = 0, bwd = 0, fwd_warm = 0, bwd_warm = 0;
    char kind[GRAPH_NAME_MAX], other[GRAPH_NAME_MAX];
    cli_print("%s, %s%s, micro-batch %lld x %lld tokens, %u nodes\n", p->model,
              atom_dtype_name(p->dtype),
              show_optimizer(part_profile_optimizer(p), part_profile_moments(p)),
              (long long)p->micro_batch, (long long)p->sequence, p->n_nodes);
    show_device(&p->device, p->dtype);
    cli_print("%-22s %6s %11s %11s %11s %11s\n", "node", "times", "forward", "backward",
              "parameters", "output");
    for (uint32_t i = 0; i < p->n_nodes; i++) {
        const part_node_cost *n = &p->nodes[i];
        uint32_t times = 0, before = 0;
        kind_of(n->name, kind);
        fwd += n->fwd_seconds;
        bwd += n->bwd_seconds;
        fwd_warm += n->fwd_seconds - n->fwd_gain_seconds;
        bwd_warm += n->bwd_seconds - n->bwd_gain_seconds;
        for (uint32_t j = 0; j < p->n_nodes; j++) {
            kind_of(p->nodes[j].name, other);
            bool same = strcmp(kind, other) == 0;
            times += same;
            before += same && j < i;
        }
        if (before == 0)
            cli_print("%-22s %6u %11s %11s %11s %11s\n", kind, times, cli_seconds(n->fwd_seconds),
                      cli_seconds(n->bwd_seconds), cli_size(n->param_bytes),
                      cli_size(n->output_bytes));
    }
    cli_print("all nodes, one micro-batch: %s forward, %s backward\n", cli_seconds(fwd),
              cli_seconds(bwd));
    if (p->device.cache_bytes)
        cli_print("with warm caches: %s forward, %s backward\n", cli_seconds(fwd_warm),
                  cli_seconds(bwd_warm));
}

static const char *keep_text(const part_plan *plan, uint32_t k)
{
    if (k + 1 == plan->n_sub_models)
        return "one micro-batch at a time";
    switch (plan->sub_models[k].keep) {
    case PART_RECOMPUTE:
        return "recomputed";
    case PART_KEEP_DEVICE:
        return "kept on the device";
    case PART_KEEP_HOST:
        return "stashed on the host";
    case PART_KEEP_SOME:
        return "some kept"; /* show_holds() says which */
    }
    return "?";
}

/* How many nodes of each kind are held in one place: "on the host  28 attn, 27 add_1". */
static void show_held(const part_plan *plan, const graph *g, part_hold where, const char *title)
{
    uint32_t n = g->n_nodes, line = 0;
    char kind[GRAPH_NAME_MAX], other[GRAPH_NAME_MAX];
    for (uint32_t i = 0; i < n; i++) {
        uint32_t times = 0, before = 0;
        if (plan->holds[i] != where)
            continue;
        kind_of(g->nodes[i].name, kind);
        for (uint32_t j = 0; j < n; j++) {
            kind_of(g->nodes[j].name, other);
            bool same = plan->holds[j] == where && strcmp(kind, other) == 0;
            times += same;
            before += same && j < i;
        }
        if (before)
            continue;
        bool fresh = line++ % 4 == 0;
        cli_print("%s%-*s%u %s",
                  line == 1 ? ""
                  : fresh   ? ",\n"
                            : ", ",
                  fresh ? 18 : 0, line == 1 ? title : "", times, kind);
    }
    if (line)
        cli_print("\n");
}

static void show_holds(const part_plan *plan, const graph *g)
{
    if (!g || !plan->holds)
        return;
    show_held(plan, g, PART_HOLD_DEVICE, "kept on device");
    show_held(plan, g, PART_HOLD_HOST, "kept on host");
}

static void show_sub_model(const part_plan *plan, const graph *g, uint32_t k)
{
    const part_sub_model *s = &plan->sub_models[k];
    char range[160];
    if (g)
        snprintf(range, sizeof range, "%s .. %s", g->nodes[s->first_node].name,
                 g->nodes[s->last_node - 1].name);
    else
        snprintf(range, sizeof range, "%d .. %d", s->first_node, s->last_node - 1);
    const char *place = plan->in_place                          ? "in place"
                        : s->resident || plan->update_on_device ? "stays"
                                                                : "swapped";
    cli_print("%4u  %-38s %10s  %-8s  %s\n", k, range, cli_size(s->param_bytes), place,
              keep_text(plan, k));
}

enum { ROWS_MAX = 24 };

static void show_sub_models(const part_plan *plan, const graph *g)
{
    uint32_t n = plan->n_sub_models;
    cli_print("%4s  %-38s %10s  %-8s  %s\n", "#", "nodes", "parameters", "slot", "activations");
    for (uint32_t k = 0; k < n; k++) {
        if (n > ROWS_MAX && k == ROWS_MAX / 2) {
            cli_print("      ... %u more ...\n", n - ROWS_MAX);
            k = n - ROWS_MAX / 2;
        }
        show_sub_model(plan, g, k);
    }
}

/* What another number of micro-batches would give. */
static void show_micro_batches(const part_plan *plan)
{
    cli_print("micro-batches     %u", plan->micro_batches);
    if (plan->devices > 1) {
        cli_print(", shared by %u devices; %u or more are recommended\n", plan->devices,
                  plan->recommended_micro_batches);
        return;
    }
    if (plan->most_tokens_per_second <= 0) {
        cli_print(plan->in_place ? "; nothing has to be loaded, so any number is fine\n" : "\n");
        return;
    }
    char nearly[32];
    snprintf(nearly, sizeof nearly, "%s", cli_count(plan->recommended_tokens_per_second));
    cli_print("; %u is the smallest number that reaches %.0f %% of the best speed: about\n"
              "                  %s of %s tokens/s\n",
              plan->recommended_micro_batches, 100 * PART_NEARLY_ALL, nearly,
              cli_count(plan->most_tokens_per_second));
}

static void show_prediction(const part_plan *plan, const graph *g)
{
    double tokens =
        (double)plan->micro_batches * (double)plan->micro_batch * (double)plan->sequence;
    bool ahead = part_plan_seconds(plan) < plan->predicted_step_seconds;
    cli_print("predicted step    %s for %.0f tokens: %s tokens/s%s\n",
              cli_seconds(plan->predicted_step_seconds), tokens,
              cli_count(tokens / plan->predicted_step_seconds),
              ahead ? ", where a gradient is clipped" : "");
    if (ahead)
        cli_print("                  %s while none is clipped, because updates run ahead: %s "
                  "tokens/s\n",
                  cli_seconds(part_plan_seconds(plan)),
                  cli_count(part_plan_tokens_per_second(plan)));
    cli_print("  compute alone   %s (%.0f %% of the step)\n",
              cli_seconds(plan->predicted_compute_seconds),
              100 * plan->predicted_compute_seconds / plan->predicted_step_seconds);
    cli_print("  bound by        %s\n", part_bound_name(plan->bound));
    if (plan->update_on_device)
        cli_print("  AdamW           on the device, with all of its state\n");
    if (plan->optimizer == GRAPH_MUON)
        cli_print("  Muon            %s on the %s, whatever the number of micro-batches\n",
                  cli_seconds(plan->muon_seconds), plan->ortho_on_device ? "device" : "host");
    if (!plan->simulated && plan->least_step_seconds > 0)
        cli_print(
            "  estimated       the step is too long to simulate; no plan can take less than %s, "
            "so\n"
            "                  this one is at most %.1f %% slower than the best\n",
            cli_seconds(plan->least_step_seconds),
            100 * (plan->predicted_step_seconds / plan->least_step_seconds - 1));
    show_micro_batches(plan);
    cli_print("device memory     %s%s%s%s\n", cli_size(plan->device_peak_bytes),
              plan->device_budget_bytes ? " of a budget of " : "",
              plan->device_budget_bytes ? cli_size(plan->device_budget_bytes) : "",
              plan->devices > 1 ? ", on each device" : "");
    cli_print("host memory       %s%s%s\n", cli_size(plan->host_peak_bytes),
              plan->host_budget_bytes ? " of " : "",
              plan->host_budget_bytes ? cli_size(plan->host_budget_bytes) : "");
    if (plan->disk) {
        /* Without the model what a block has at most, were it none of Muon's. */
        uint64_t n, bytes = g ? part_blocks_largest(g, plan->block_elements, &n)
                              : plan->block_elements * atom_state_bytes(plan->moments);
        cli_print("optimizer state   on disk, in blocks of %s%s; %u of them in host memory\n",
                  plan->optimizer == GRAPH_MUON ? "up to " : "", cli_size(bytes),
                  plan->ring_blocks);
    }
    if (plan->n_sub_models > 1)
        cli_print("cuts              %u, %s cross them per micro-batch, kept on the %s\n",
                  plan->n_sub_models - 1, cli_size(plan->cut_bytes),
                  plan->boundaries == PART_ON_HOST ? "host" : "device");
}

void show_plan(const part_plan *plan, const graph *g)
{
    cli_print("%s, %s%s, micro-batch %lld x %lld tokens, on %s\n", plan->model,
              atom_dtype_name(plan->dtype), show_optimizer(plan->optimizer, plan->moments),
              (long long)plan->micro_batch, (long long)plan->sequence, plan->device);
    show_sub_models(plan, g);
    show_holds(plan, g);
    show_prediction(plan, g);
}

static void show_space(const gen_lowered *low, swap_space space, const char *title, uint64_t bytes)
{
    cli_print("%s: %s\n", title, cli_size(bytes));
    for (uint32_t i = 0; i < low->n_regions; i++) {
        const swap_region *r = &low->regions[i];
        if (r->space == space && r->bytes)
            cli_print("  %-26s %10s  %3.0f %%\n", r->name, cli_size(r->bytes),
                      100.0 * (double)r->bytes / (double)bytes);
    }
}

void show_memory(const gen_lowered *low, const part_plan *plan)
{
    cli_print("memory map\n");
    if (!plan->in_place || low->device_bytes)
        show_space(low, SWAP_DEVICE, plan->devices > 1 ? " each device" : " device",
                   low->device_bytes);
    show_space(low, SWAP_HOST, " host", low->host_bytes);
    if (plan->host_peak_bytes >= low->host_bytes + PART_WINDOW_BYTES) /* part_window_bytes() */
        cli_print("  %-26s %10s  in addition, while large files are read and written\n", "window",
                  cli_size(PART_WINDOW_BYTES));
    uint64_t spare = part_spare_bytes(plan, low->layout.trained);
    if (spare)
        cli_print("  %-26s %10s  in addition, while a checkpoint is written\n",
                  "spare for snapshots", cli_size(spare));
}
