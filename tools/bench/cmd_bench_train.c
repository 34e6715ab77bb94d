/*
 * atom bench train: whole training steps on random tokens, beside the time of their matmuls alone,
 * and swapped beside resident. One idea: run what users run, the trainer, in a directory that is
 * removed afterwards. Refuses shortcuts of the step.
 */
#include "tools/bench/bench.h"
#include "tools/progress.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A data set of random tokens, enough for every step without repeating. */
static atom_status write_tokens(const bench_values *v, const char *dir, uint32_t vocab)
{
    text_shard_writer *writer = NULL;
    int64_t per_step = v->micro_batch_size * v->gradient_accumulation_steps;
    uint64_t n = (uint64_t)(per_step * (v->steps + 1) * v->sequence_len + v->sequence_len + 1);
    uint32_t ids[1024];
    atom_status st = ATOM_OK;
    ATOM_TRY_CLEAN(text_shard_writer_open(dir, "train", vocab, 0, &writer));
    for (uint64_t i = 0; i < n; i += 1024) {
        for (uint32_t j = 0; j < 1024; j++)
            ids[j] = atom_rng_u32((atom_rng_key){.seed = 1}, i + j) % vocab;
        ATOM_TRY_CLEAN(text_shard_writer_put(writer, ids, n - i < 1024 ? n - i : 1024));
    }
    st = text_shard_writer_end(writer);
cleanup:
    text_shard_writer_close(&writer);
    return st;
}

static void note(void *ctx, const char *text)
{
    (void)ctx;
    atom_log(ATOM_LOG_DEBUG, "%s", text);
}

static void show_step(void *ctx, const train_report *r)
{
    char text[128];
    snprintf(text, sizeof text, "%s: step %lld of %lld", (const char *)ctx, (long long)r->step,
             (long long)r->max_steps);
    if (cli_progress_live())
        cli_progress_draw(text, false);
    else /* what a run that is cut off leaves behind */
        fprintf(stderr, "%s: %.4f s\n", text, r->seconds);
}

static atom_status set(train_config *config, const char *key, const char *value)
{
    return opt_set(&train_command, (uint32_t)opt_find(&train_command, key), value, config);
}

typedef struct bench_run {
    train_summary summary;
    bench_matmuls matmuls;
    uint64_t planned_device_bytes;
    double predicted_compute_seconds; /* of a step */
    uint32_t recomputed;              /* sub-models */
    double muon_seconds;
    bool disk, update_on_device, ortho_on_device;
} bench_run;

static void note_plan(const part_plan *plan, bench_run *out)
{
    out->planned_device_bytes = plan->device_peak_bytes;
    out->predicted_compute_seconds = plan->predicted_compute_seconds;
    out->disk = plan->disk;
    out->update_on_device = plan->update_on_device;
    out->ortho_on_device = plan->ortho_on_device;
    out->muon_seconds = plan->muon_seconds;
    for (uint32_t i = 0; i + 1 < plan->n_sub_models; i++) /* the last never is */
        out->recomputed += plan->sub_models[i].keep == PART_RECOMPUTE ||
                           plan->sub_models[i].keep == PART_KEEP_SOME;
}

/* One run of the trainer in dir/name; fills in the summary, the plan's facts, and the matmuls from
 * its profile. */
static atom_status train_once(const bench_values *v, const char *dir, const char *name,
                              uint64_t device_memory, bench_run *out)
{
    train_config config = {0};
    trainer *t = NULL;
    char *run_dir = atom_path_join(dir, name), title[16];
    const train_hooks hooks = {.report = show_step,
                               .progress = cli_progress,
                               .note = note,
                               .save_nothing = true,
                               .ctx = title};
    atom_status st = ATOM_OK;
    snprintf(title, sizeof title, "%s", name);
    if (!run_dir)
        return atom_fail_memory("a path", 0);
    ATOM_TRY_CLEAN(train_config_defaults(&config));
    ATOM_TRY_CLEAN(set(&config, "model", v->model));
    ATOM_TRY_CLEAN(set(&config, "data", dir));
    ATOM_TRY_CLEAN(set(&config, "output_dir", run_dir));
    ATOM_TRY_CLEAN(set(&config, "device", v->device));
    if (v->trace && (v->only != BENCH_BOTH || !v->device_memory || device_memory))
        ATOM_TRY_CLEAN(set(&config, "trace", v->trace));
    config.micro_batch_size = v->micro_batch_size;
    config.sequence_len = v->sequence_len;
    config.gradient_accumulation_steps = v->gradient_accumulation_steps;
    config.max_steps = v->steps;
    config.threads = v->threads;
    config.dtype = v->dtype;
    config.moments_dtype = v->moments_dtype;
    config.device_memory = device_memory;
    config.link_bandwidth = v->link_bandwidth;
    config.recompute = v->recompute;
    config.optimizer_state = v->optimizer_state;
    config.updates = v->updates;
    config.optimizer = v->optimizer;
    config.eval_steps = 0;
    config.save_steps = 0;
    ATOM_TRY_CLEAN(trainer_open(&config, &hooks, &t));
    note_plan(trainer_plan(t), out);
    ATOM_TRY_CLEAN(trainer_run(t, &out->summary));
    out->summary.checkpoint = NULL; /* the trainer's, and its directory goes */
    graph *g = NULL;
    ATOM_TRY_CLEAN(part_profile_graph(trainer_profile(t), &g));
    bench_matmuls_gather(g, trainer_profile(t), &out->matmuls);
    graph_close(&g);
cleanup:
    cli_progress_end();
    trainer_close(&t);
    train_config_free(&config);
    atom_free(run_dir);
    return st;
}

static double busy_share(const train_summary *s)
{
    return s->seconds > 0 ? s->busy_seconds[DEV_COMPUTE] / s->seconds : 0;
}

/* While a copy ran; 0: there was none. */
static double copy_rate(const train_summary *s, dev_stream_kind stream)
{
    double busy = s->busy_seconds[stream];
    return busy > 0 ? (double)s->bytes_copied[stream] / busy : 0;
}

/* What compute waited for, all steps. */
static json_t *waited_json(const train_summary *s)
{
    static const char *const names[DEV_STREAM_N] = {
        [DEV_COMPUTE] = "launch", [DEV_H2D] = "h2d",   [DEV_D2H] = "d2h",
        [DEV_HOST] = "host",      [DEV_LOAD] = "load", [DEV_STORE] = "store"};
    json_t *o = json_object();
    for (int i = 0; i < DEV_STREAM_N; i++)
        json_object_set_new(o, names[i], cli_real(s->waited_seconds[i]));
    return o;
}

/* Null where nothing is trained by it. */
static json_t *muon_json(const bench_values *v, const bench_run *r)
{
    if (v->optimizer != GRAPH_MUON)
        return json_null();
    return json_pack("{s:s, s:o}", "products", r->ortho_on_device ? "device" : "host",
                     "predicted_seconds", cli_real(r->muon_seconds));
}

static json_t *run_json(const bench_values *v, const bench_run *r)
{
    double C = (double)v->gradient_accumulation_steps;
    double tokens = C * (double)(v->micro_batch_size * v->sequence_len);
    return json_pack(
        "{s:o, s:o, s:o, s:o, s:I, s:i, s:I, s:I, s:s?, s:o, s:o, s:o, s:o, s:I, s:I, s:o, s:o, "
        "s:I, s:i, s:s, s:s, s:o, s:o}",
        "tokens_per_second", cli_real(tokens / r->summary.median_step_seconds),
        "median_step_seconds", cli_real(r->summary.median_step_seconds), "predicted_step_seconds",
        cli_real(r->summary.predicted_step_seconds), "matmul_seconds",
        cli_real(C * r->matmuls.seconds), "device_peak_bytes",
        (json_int_t)r->summary.device_peak_bytes, "sub_models", (int)r->summary.sub_models,
        "largest_visit_bytes", (json_int_t)r->summary.largest_visit_bytes, "model_state_bytes",
        (json_int_t)r->summary.model_state_bytes, "execute", r->summary.execute, "compute_busy",
        cli_real(busy_share(&r->summary)), "waited_seconds", waited_json(&r->summary),
        "h2d_bytes_per_second", cli_real(copy_rate(&r->summary, DEV_H2D)), "d2h_bytes_per_second",
        cli_real(copy_rate(&r->summary, DEV_D2H)), "host_peak_bytes",
        (json_int_t)r->summary.host_peak_bytes, "planned_host_bytes",
        (json_int_t)r->summary.host_plan_bytes, "issue_seconds", cli_real(r->summary.issue_seconds),
        "launch_seconds", cli_real(r->summary.launch_seconds), "planned_device_bytes",
        (json_int_t)r->planned_device_bytes, "recomputed_sub_models", (int)r->recomputed,
        "optimizer_state", r->disk ? "disk" : "memory", "updates",
        r->update_on_device ? "device" : "host", "predicted_compute_seconds",
        cli_real(r->predicted_compute_seconds), "muon", muon_json(v, r));
}

static void run_print(const bench_values *v, const char *name, const bench_run *r)
{
    double C = (double)v->gradient_accumulation_steps;
    double tokens = C * (double)(v->micro_batch_size * v->sequence_len);
    cli_print("%-9s %s tokens/s, step %s (predicted %s), %u sub-models, device %s", name,
              cli_count(tokens / r->summary.median_step_seconds),
              cli_seconds(r->summary.median_step_seconds),
              cli_seconds(r->summary.predicted_step_seconds), r->summary.sub_models,
              cli_size(r->summary.device_peak_bytes));
    if (v->optimizer == GRAPH_MUON)
        cli_print(", Muon %s on the %s", cli_seconds(r->muon_seconds),
                  r->ortho_on_device ? "device" : "host");
    cli_print("\n");
}

static atom_status show_one(const bench_values *v, const char *name, const bench_run *run)
{
    if (v->json)
        return cli_print_json(json_pack("{s:s, s:s, s:o}", "bench", "train", "model", v->model,
                                        name, run_json(v, run)));
    run_print(v, name, run);
    return ATOM_OK;
}

static atom_status show(const bench_values *v, const bench_run *resident, const bench_run *capped)
{
    if (v->only != BENCH_BOTH)
        return v->only == BENCH_CAPPED ? show_one(v, "capped", capped)
                                       : show_one(v, "resident", resident);
    double C = (double)v->gradient_accumulation_steps;
    double tokens = C * (double)(v->micro_batch_size * v->sequence_len);
    double ceiling = tokens / (C * resident->matmuls.seconds);
    double ratio = C * resident->matmuls.seconds / resident->summary.median_step_seconds;
    double kept = resident->summary.median_step_seconds / capped->summary.median_step_seconds;
    if (v->json)
        return cli_print_json(json_pack(
            "{s:s, s:s, s:o, s:o, s:o, s:o, s:o}", "bench", "train", "model", v->model, "resident",
            run_json(v, resident), "ceiling_tokens_per_second", cli_real(ceiling), "ratio",
            cli_real(ratio), "capped", v->device_memory ? run_json(v, capped) : json_null(), "kept",
            v->device_memory ? cli_real(kept) : json_null()));
    run_print(v, "resident", resident);
    cli_print("ceiling   %s tokens/s (its matmuls and attention alone)\nratio     %.2f\n",
              cli_count(ceiling), ratio);
    if (v->device_memory) {
        run_print(v, "capped", capped);
        cli_print(
            "kept      %.3f of the resident rate, with at most %.0f %% of the parameters on the "
            "device\n",
            kept,
            100.0 * (double)capped->summary.largest_visit_bytes /
                (double)capped->summary.param_bytes);
    }
    return ATOM_OK;
}

atom_status bench_train_run(const bench_values *v)
{
    char dir[] = "/tmp/atom-bench-XXXXXX";
    bench_run resident = {0}, capped = {0};
    file_model model = {0};
    atom_status st = ATOM_OK;
    if (v->only == BENCH_CAPPED && !v->device_memory)
        return atom_fail(ATOM_E_USAGE, "--only capped needs --device-memory");
    if (!mkdtemp(dir))
        return atom_fail(ATOM_E_RUNTIME, "cannot make a directory in /tmp");
    ATOM_TRY_CLEAN(file_model_resolve(v->model, &model));
    ATOM_TRY_CLEAN(write_tokens(v, dir, (uint32_t)model.config.vocab_size));
    if (v->only != BENCH_CAPPED)
        ATOM_TRY_CLEAN(train_once(v, dir, "resident", 0, &resident));
    if (v->device_memory && v->only != BENCH_RESIDENT)
        ATOM_TRY_CLEAN(train_once(v, dir, "capped", v->device_memory, &capped));
    st = show(v, &resident, &capped);
cleanup:
    file_model_free(&model);
    if (atom_dir_remove(dir) != ATOM_OK)
        atom_log(ATOM_LOG_WARN, "cannot remove %s", dir);
    return st;
}
