/*
 * atom bench matmul: every kind of node that multiplies matrices, beside the processor's raw rate.
 * One idea: the profiler times the very kernels that train, so its numbers are the bench. Refuses
 * shapes of its own: they come from a model.
 */
#include "tools/bench/bench.h"
#include "tools/progress.h"

#include <string.h>

static bool multiplies(atom_op op)
{
    return op == ATOM_OP_linear || op == ATOM_OP_linear_gelu || op == ATOM_OP_classifier ||
           op == ATOM_OP_attention;
}

void bench_matmuls_gather(const graph *g, const part_profile *profile, bench_matmuls *out)
{
    uint64_t classes[BENCH_MATMULS_MAX];
    memset(out, 0, sizeof *out);
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const part_node_cost *cost = &profile->nodes[i];
        uint64_t class = graph_node_class(g, (int32_t)i);
        uint32_t at = 0;
        if (!multiplies(g->nodes[i].op))
            continue;
        while (at < out->n && classes[at] != class)
            at++;
        if (at == BENCH_MATMULS_MAX)
            continue;
        bench_matmul *m = &out->item[at];
        if (at == out->n) {
            out->n++;
            classes[at] = class;
            memcpy(m->name, g->nodes[i].name, sizeof m->name);
            m->fwd_flops = graph_node_flops(g, (int32_t)i, false);
            m->bwd_flops = graph_node_flops(g, (int32_t)i, true);
            m->fwd_seconds = cost->fwd_seconds;
            m->bwd_seconds = cost->bwd_seconds;
        }
        m->times++;
        /* A classifier's backward does its forward too, and training runs nothing else of it. */
        bool only_backward = g->nodes[i].op == ATOM_OP_classifier;
        out->flops += m->bwd_flops + (only_backward ? 0 : m->fwd_flops);
        out->seconds += m->bwd_seconds + (only_backward ? 0 : m->fwd_seconds);
    }
}

static json_t *matmul_json(const bench_matmul *m)
{
    return json_pack("{s:s, s:i, s:o, s:o, s:o, s:o}", "node", m->name, "times", (int)m->times,
                     "fwd_seconds", cli_real(m->fwd_seconds), "bwd_seconds",
                     cli_real(m->bwd_seconds), "fwd_flops_per_second",
                     cli_real(m->fwd_flops / m->fwd_seconds), "bwd_flops_per_second",
                     cli_real(m->bwd_flops / m->bwd_seconds));
}

static atom_status show(const bench_values *v, const bench_matmuls *all, atom_dtype dtype,
                        double peak)
{
    double rate = all->flops / all->seconds;
    if (v->json) {
        json_t *list = json_array();
        for (uint32_t i = 0; i < all->n; i++)
            json_array_append_new(list, matmul_json(&all->item[i]));
        return cli_print_json(
            json_pack("{s:s, s:s, s:s, s:o, s:o, s:o, s:o, s:o}", "bench", "matmul", "model",
                      v->model, "dtype", atom_dtype_name(dtype), "nodes", list, "seconds",
                      cli_real(all->seconds), "flops_per_second", cli_real(rate),
                      "ceiling_flops_per_second", peak > 0 ? json_real(peak) : json_null(), "ratio",
                      peak > 0 ? cli_real(rate / peak) : json_null()));
    }
    cli_print("%-22s %6s %11s %16s %11s %16s\n", "node", "times", "forward", "FLOP/s", "backward",
              "FLOP/s");
    for (uint32_t i = 0; i < all->n; i++) {
        const bench_matmul *m = &all->item[i];
        cli_print("%-22s %6u %11s %16s %11s %16s\n", m->name, m->times, cli_seconds(m->fwd_seconds),
                  cli_count(m->fwd_flops / m->fwd_seconds), cli_seconds(m->bwd_seconds),
                  cli_count(m->bwd_flops / m->bwd_seconds));
    }
    cli_print("all of a micro-batch   %s: %sFLOP/s\n", cli_seconds(all->seconds), cli_count(rate));
    if (peak > 0)
        cli_print(
            "ceiling                %sFLOP/s (raw multiply-adds)\nratio                  %.2f\n",
            cli_count(peak), rate / peak);
    return ATOM_OK;
}

atom_status bench_matmul_run(const bench_values *v)
{
    plan_workbench *bench = NULL;
    part_profile *profile = NULL;
    bench_matmuls all;
    const plan_workbench_config config = {
        .model = v->model,
        .micro_batch = v->micro_batch_size,
        .sequence = v->sequence_len,
        .dtype = v->dtype,
        .device = "cpu",
        .dropout = -1,
        .threads = v->threads,
    };
    atom_status st = ATOM_OK;
    ATOM_TRY_CLEAN(plan_workbench_open(&config, &bench));
    double before = bench_peak_flops(bench->threads, bench->g->dtype, (uint32_t)v->rounds);
    ATOM_TRY_CLEAN(plan_profile_measure(bench, cli_progress, NULL, &profile));
    cli_progress_end();
    double after = bench_peak_flops(bench->threads, bench->g->dtype, (uint32_t)v->rounds);
    bench_matmuls_gather(bench->g, profile, &all);
    st = show(v, &all, bench->g->dtype, (before + after) / 2);
cleanup:
    cli_progress_end();
    part_profile_close(&profile);
    plan_workbench_close(&bench);
    return st;
}
