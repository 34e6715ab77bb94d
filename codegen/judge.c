/*
 * Owns the evaluation of plans by simulation. One idea: lower the plan and run its own tapes on the
 * null device; prediction and execution then cannot disagree about what happens, only about how
 * long it takes. Refuses steps that are too long to be run for a prediction.
 */
#include "codegen/lower.h"

#include "atom/base/mem.h"
#include "swap/stall.h"

#include <string.h>

enum { GEN_JUDGE_RING = 6 }; /* blocks that pass through, in any plan */

typedef struct simulation {
    gen_lowered *low;
    dev *devices[SWAP_DEVICES_MAX];
    swap_exec *exec;
    swap_tape_kind steady;             /* the tape of */
    double seconds;                    /* one steady step */
    double busy_seconds[DEV_STREAM_N]; /* of several devices the mean */
} simulation;

static void close_simulation(simulation *s)
{
    swap_exec_close(&s->exec);
    for (uint32_t d = 0; d < SWAP_DEVICES_MAX; d++)
        dev_close(&s->devices[d]);
    gen_lowered_close(&s->low);
}

static uint64_t blocks_of(const graph *g, const part_plan *plan)
{
    return (g->trained_extent + plan->block_elements - 1) / plan->block_elements;
}

/*
 * The plan as it is run here. What a disk takes depends on bytes, hardly on how many blocks they
 * are cut into, and a tape of one entry for each of 100,000 blocks takes gigabytes: where there are
 * too many, several are one.
 */
static part_plan coarse(const graph *g, const part_plan *plan)
{
    part_plan p = *plan;
    uint64_t times = 1, ring = plan->ring_blocks;
    if (!plan->disk || plan->block_elements == 0)
        return p;
    while (blocks_of(g, plan) > times * GEN_JUDGE_BLOCKS_MAX)
        times *= 2;
    p.block_elements *= times;
    /* Those that the plan holds in memory are as many bytes as before; those of its ring as many
     * blocks. */
    if (times > 1 && ring > GEN_JUDGE_RING)
        p.ring_blocks = (uint32_t)(GEN_JUDGE_RING + (ring - GEN_JUDGE_RING) / times);
    return p;
}

bool gen_judge_runs(const graph *g, const part_plan *plan)
{
    const part_plan p = coarse(g, plan);
    /* Of a micro-batch in a sub-model: forward and backward, what they stash and bring back. Of a
     * sub-model on a device: fetches, sums, rounding, and pieces of fetches and updates. */
    enum { EACH_VISIT = 6, EACH_SUB_MODEL = 28, EACH_BLOCK = 4 };
    uint64_t n = (uint64_t)p.n_sub_models *
                 ((uint64_t)EACH_VISIT * p.micro_batches + (uint64_t)EACH_SUB_MODEL * p.devices);
    return n + (p.disk ? EACH_BLOCK * blocks_of(g, &p) : 0) <= GEN_INSTRS_MAX;
}

static atom_status open_simulation(const graph *g, const part_plan *plan,
                                   const part_profile *profile, const krn_table *table,
                                   simulation *s)
{
    const part_plan p = coarse(g, plan);
    ATOM_TRY(gen_lower_steps(g, &p, profile, table, &s->low));
    ATOM_TRY(dev_null_open(0, &s->devices[0]));
    for (uint32_t d = 1; d < plan->devices; d++)
        ATOM_TRY(dev_null_open_beside(s->devices[0], 0, &s->devices[d]));
    swap_exec_config config = gen_exec_config(s->low);
    memcpy(config.devices, s->devices, sizeof s->devices);
    return swap_exec_open(&config, &s->exec);
}

/* What only one device has is counted as it is. */
static double busy_seconds(const simulation *s, dev_stream_kind stream)
{
    uint32_t n = dev_stream_is_own(stream) ? s->low->n_devices : 1;
    double seconds = 0;
    for (uint32_t d = 0; d < n; d++)
        seconds += swap_exec_stats(s->exec, d, stream).busy_seconds;
    return seconds / n;
}

/* Runs that tape once: a step begins when the one before it has ended on all streams, so every other one
 * takes as long. */
static atom_status run(simulation *s, swap_tape_kind kind)
{
    const swap_step step = {.step = 1, .max_grad_norm = 1};
    swap_result result = {0};
    double before[DEV_STREAM_N];
    for (int i = 0; i < DEV_STREAM_N; i++)
        before[i] = busy_seconds(s, (dev_stream_kind)i);
    ATOM_TRY(swap_exec_run(s->exec, s->low->tapes[kind], &step, &result));
    s->seconds = result.seconds;
    for (int i = 0; i < DEV_STREAM_N; i++)
        s->busy_seconds[i] = busy_seconds(s, (dev_stream_kind)i) - before[i];
    return ATOM_OK;
}

static atom_status simulate(const graph *g, const part_plan *plan, const part_profile *profile,
                            const krn_table *table, simulation *s)
{
    ATOM_TRY(open_simulation(g, plan, profile, table, s));
    s->steady = graph_trains(g) ? SWAP_TAPE_TRAIN : SWAP_TAPE_EVAL_NEXT;
    return run(s, s->steady);
}

/* 0: this plan has no such tape. */
static atom_status run_ahead(simulation *s, double *seconds)
{
    *seconds = 0;
    if (!s->low->tapes[SWAP_TAPE_AGAIN])
        return ATOM_OK;
    atom_status st = run(s, SWAP_TAPE_AGAIN);
    *seconds = s->seconds;
    return st;
}

/* What compute waited for most, if it waited for more than a twentieth of the step. */
static part_bound bound_of(const simulation *s)
{
    uint32_t n;
    swap_stalls stalls = swap_stalls_of(s->low->tapes[s->steady], swap_exec_spans(s->exec, &n));
    double link = stalls.waited_seconds[DEV_H2D] + stalls.waited_seconds[DEV_D2H];
    double host = stalls.waited_seconds[DEV_HOST];
    double disk = stalls.waited_seconds[DEV_LOAD] + stalls.waited_seconds[DEV_STORE];
    if (stalls.busy_seconds >= 0.95 * stalls.step_seconds)
        return PART_BOUND_COMPUTE;
    if (disk > host && disk > link)
        return PART_BOUND_DISK;
    return host > link ? PART_BOUND_OPTIMIZER : PART_BOUND_LINK;
}

part_plan gen_judge_whole(const gen_judge *judge, const part_plan *share)
{
    part_plan whole = *share;
    if (judge->devices > 1) {
        whole.devices = judge->devices;
        whole.micro_batches =
            judge->micro_batches ? judge->micro_batches : share->micro_batches * judge->devices;
    }
    return whole;
}

/* The plan's own memory, of which a coarse simulation knows nothing. */
atom_status gen_weigh_plan(void *ctx, const part_plan *plan, part_verdict *verdict)
{
    const gen_judge *judge = ctx;
    gen_lowered *low = NULL;
    const part_plan whole = gen_judge_whole(judge, plan);
    ATOM_TRY(gen_lower_memory(judge->g, &whole, judge->profile, judge->table, &low));
    *verdict = (part_verdict){.device_peak_bytes = low->device_bytes,
                              .host_peak_bytes = low->host_bytes + part_window_bytes(judge->g)};
    gen_lowered_close(&low);
    return ATOM_OK;
}

atom_status gen_judge_plan(void *ctx, const part_plan *plan, part_verdict *verdict)
{
    const gen_judge *judge = ctx;
    simulation s = {0};
    part_verdict v = {0};
    ATOM_TRY(gen_weigh_plan(ctx, plan, &v));
    atom_status st = ATOM_OK;
    const part_plan whole = gen_judge_whole(judge, plan);
    if (gen_judge_runs(judge->g, &whole)) {
        st = simulate(judge->g, &whole, judge->profile, judge->table, &s);
        if (st == ATOM_OK) {
            v.step_seconds = s.seconds;
            v.compute_seconds = s.busy_seconds[DEV_COMPUTE];
            v.h2d_seconds = s.busy_seconds[DEV_H2D];
            v.d2h_seconds = s.busy_seconds[DEV_D2H];
            v.host_seconds = s.busy_seconds[DEV_HOST];
            v.bound = bound_of(&s);
            st = run_ahead(&s, &v.ahead_seconds);
        }
    }
    close_simulation(&s);
    if (st == ATOM_OK)
        *verdict = v;
    return st;
}

atom_status gen_judge_ahead(const gen_judge *judge, const part_plan *plan, double *seconds)
{
    simulation s = {0};
    atom_status st = open_simulation(judge->g, plan, judge->profile, judge->table, &s);
    if (st == ATOM_OK)
        st = run_ahead(&s, seconds);
    close_simulation(&s);
    return st;
}

/* --- timeline -------------------------------------------------------------------------------- */

static char mark_of(const swap_instr *in)
{
    static const char marks[SWAP_CODE_N] = {
        [SWAP_UPLOAD] = 't', [SWAP_FETCH] = 'F',  [SWAP_FWD] = 'f',     [SWAP_BWD] = 'b',
        [SWAP_LATE] = 'e',   [SWAP_STASH] = 's',  [SWAP_UNSTASH] = 'u', [SWAP_ROUND] = 'r',
        [SWAP_SPILL] = 'S',  [SWAP_LOSS] = 'l',   [SWAP_CLIP] = 'c',    [SWAP_UPDATE] = 'U',
        [SWAP_CLEAR] = 'z',  [SWAP_HAND] = 'h',   [SWAP_TAKE] = 'k',    [SWAP_LOAD] = 'L',
        [SWAP_STORE] = 'D',  [SWAP_COMMIT] = 'C', [SWAP_BEGIN] = 'm',   [SWAP_RAISE] = 'x',
        [SWAP_ORTHO] = 'o',  [SWAP_LOWER] = 'x'};
    return marks[in->code];
}

/* rows: one for each lane. */
static void draw(const simulation *s, uint32_t width, char rows[SWAP_LANES_MAX][256])
{
    const swap_tape *tape = s->low->tapes[s->steady];
    uint32_t n;
    const swap_span *spans = swap_exec_spans(s->exec, &n);
    double scale = s->seconds > 0 ? width / (s->seconds * 1e9) : 0;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t lane = swap_lane(tape->instrs[i].device, tape->instrs[i].stream);
        uint32_t from = (uint32_t)((double)spans[i].start_ns * scale);
        uint32_t to = (uint32_t)((double)spans[i].end_ns * scale);
        for (uint32_t x = from; x < to && x < width; x++)
            rows[lane][x] = mark_of(&tape->instrs[i]);
    }
}

/* Adds the row of a lane to the text. */
static void add_row(char **all, uint32_t lane, const char *row)
{
    static const char *const names[DEV_STREAM_N] = {"compute",   "to device", "to host",
                                                    "optimizer", "disk read", "disk write"};
    bool other = lane >= DEV_STREAM_N;
    const char *name = names[other ? (lane - DEV_STREAM_N) % DEV_OWN_STREAMS : lane];
    char *more = other ? atom_format("%s%-10s |%s|  device %u\n", *all ? *all : "", name, row,
                                     (lane - DEV_STREAM_N) / DEV_OWN_STREAMS + 1)
                       : atom_format("%s%-10s |%s|\n", *all ? *all : "", name, row);
    atom_free(*all);
    *all = more;
}

atom_status gen_timeline(const graph *g, const part_plan *plan, const part_profile *profile,
                         const krn_table *table, uint32_t width, char **text)
{
    char rows[SWAP_LANES_MAX][256], *all = NULL;
    simulation s = {0};
    width = width < 16 ? 16 : width > 240 ? 240 : width;
    atom_status st = simulate(g, plan, profile, table, &s);
    if (st != ATOM_OK)
        goto cleanup;
    for (uint32_t i = 0; i < SWAP_LANES_MAX; i++) {
        memset(rows[i], '.', width);
        rows[i][width] = 0;
    }
    draw(&s, width, rows);
    for (uint32_t i = 0; i < swap_lanes(plan->devices); i++) {
        if ((i != DEV_LOAD && i != DEV_STORE) || plan->disk)
            add_row(&all, i, rows[i]);
    }
    *text = atom_format("%s%-10s  f forward  b backward  F fetch  S spill  u/s boundaries  "
                        "U update  %s%s. idle   (%.3f s)\n",
                        all ? all : "", "", plan->disk ? "L load  D store  " : "",
                        plan->devices > 1 ? "h/k sums  " : "", s.seconds);
    atom_free(all);
    if (!*text)
        st = atom_fail_memory("a timeline", width * DEV_STREAM_N);
cleanup:
    close_simulation(&s);
    return st;
}
