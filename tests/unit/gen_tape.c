/*
 * Tapes: every derived wait is needed and proven, and what should overlap does, in virtual time.
 */
#include "atom/base/mem.h"
#include "codegen/build.h"
#include "tests/lib/inside_regions.h"
#include "tests/lib/random_gpt2.h"
#include "tests/lib/strided_plan.h"

#include <string.h>

enum { BLOCK = STORE_ALIGN / 4 }; /* the least elements of a block */

/* Without any one of its waits a tape is not safe, and the checker says so: no wait is idle, and
 * the alarm rings. */
static void every_wait_is_needed(void **state)
{
    (void)state;
    uint32_t dropped = 0;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        random_gpt2 r = random_gpt2_make(seed);
        graph *g = fused(&r.config, r.B, r.T);
        part_device device = card(1e12, 1e10);
        part_profile *profile = NULL;
        gen_lowered *low = NULL;
        assert_int_equal(part_profile_model(g, &device, &profile), ATOM_OK);
        part_plan *plan = strided_plan(g, profile, 1 + (int)(seed % 4), 1 + (uint32_t)(seed % 3));
        plan->boundaries = seed % 2 ? PART_ON_HOST : PART_ON_DEVICE;
        plan->sub_models[0].keep = (part_keep)(seed % 3);
        plan->devices = 1 + (uint32_t)(seed / 2) % plan->micro_batches;
        plan->disk = seed % 4 == 0;
        plan->ring_blocks = plan->disk ? 2 + (uint32_t)seed / 2 : 0;
        plan->block_elements = plan->disk ? BLOCK : 0;
        assert_int_equal(gen_lower(g, plan, profile, NULL, &low), ATOM_OK);
        assert_int_equal(inside_regions(low), ATOM_OK);
        for (int t = 0; t < SWAP_TAPE_N; t++) {
            swap_tape *tape = low->tapes[t];
            if (!tape)
                continue;
            assert_int_equal(swap_hazard_check(tape), ATOM_OK);
            for (uint32_t i = 0; i < tape->n; i++) {
                swap_instr *in = &tape->instrs[i];
                for (uint32_t w = 0; w < in->n_waits; w++) {
                    const uint32_t dropped_wait = in->waits[w];
                    in->waits[w] = in->waits[--in->n_waits];
                    assert_int_not_equal(swap_hazard_check(tape), ATOM_OK);
                    in->waits[w] = dropped_wait;
                    in->n_waits++;
                    dropped++;
                }
            }
        }
        gen_lowered_close(&low);
        part_plan_close(&plan);
        part_profile_close(&profile);
        graph_close(&g);
    }
    assert_true(dropped > 300);
}

static uint32_t calls_of_sums(const swap_calls *calls)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < calls->n; i++)
        n += calls->calls[i].op == ATOM_OP_add || calls->calls[i].op == ATOM_OP_dropout_add;
    return n;
}

/* Of the sums of all sub-models: those with a term that an earlier one makes, and the first, one of whose
 * terms is the embedding. */
static uint32_t sums_that_copy(const graph *g, const part_plan *plan)
{
    uint32_t n = 0;
    bool first = true;
    for (uint32_t k = 0; k < plan->n_sub_models; k++) {
        const part_sub_model *s = &plan->sub_models[k];
        for (int32_t i = s->first_node; i < s->last_node; i++) {
            const graph_node *node = &g->nodes[i];
            if (node->op != ATOM_OP_add && node->op != ATOM_OP_dropout_add)
                continue;
            n += first || g->tensors[node->in[0]].producer < s->first_node ||
                 g->tensors[node->in[1]].producer < s->first_node;
            first = false;
        }
    }
    return n;
}

/* In one piece only the first sum copies its gradient, to the embedding; in several also those do whose
 * terms are not both made where they are. */
static void sums_hand_their_gradients_on(void **state)
{
    (void)state;
    random_gpt2 r = random_gpt2_make(3);
    r.config.layers = 3;
    r.config.resid_pdrop = 0;
    graph *g = fused(&r.config, r.B, r.T);
    part_device device = card(1e12, 1e10);
    part_profile *profile = NULL;
    assert_int_equal(part_profile_model(g, &device, &profile), ATOM_OK);
    bool some = false;
    for (int stride = 1; stride <= 1000; stride += stride < 30 ? 1 : 970) {
        gen_lowered *low = NULL;
        uint32_t copies = 0;
        part_plan *plan = strided_plan(g, profile, stride, 2);
        assert_int_equal(gen_lower(g, plan, profile, NULL, &low), ATOM_OK);
        for (uint32_t k = 0; k < low->program->n_sub_models; k++)
            copies += calls_of_sums(&low->program->sub_models[k].list[SWAP_LIST_BWD]);
        assert_int_equal(copies, sums_that_copy(g, plan));
        assert_true(copies == (stride == 1000 ? 1 : stride == 1 ? 6 : copies));
        some = some || (copies > 1 && copies < 6);
        assert_true(low->program->n_sub_models > 1 || copies == 1);
        gen_lowered_close(&low);
        part_plan_close(&plan);
    }
    assert_true(some);
    part_profile_close(&profile);
    graph_close(&g);
}

static bool same_range(swap_range a, swap_range b)
{
    return a.space == b.space && a.offset == b.offset && a.bytes == b.bytes;
}

/* On the host the gradient of a boundary has no place of its own: it goes where the boundary of its
 * micro-batch was, once backward has brought that back. */
static void a_gradient_takes_the_place_of_its_boundary(void **state)
{
    (void)state;
    random_gpt2 r = random_gpt2_make(3);
    graph *g = fused(&r.config, r.B, r.T);
    part_device device = card(1e12, 1e10);
    part_profile *profile = NULL;
    gen_lowered *low = NULL;
    assert_int_equal(part_profile_model(g, &device, &profile), ATOM_OK);
    part_plan *plan = strided_plan(g, profile, 2, 3);
    plan->boundaries = PART_ON_HOST;
    assert_int_equal(gen_lower(g, plan, profile, NULL, &low), ATOM_OK);
    const swap_tape *tape = low->tapes[SWAP_TAPE_TRAIN];
    assert_int_equal(swap_hazard_check(tape), ATOM_OK);
    uint32_t taken = 0;
    for (uint32_t i = 0; i < tape->n; i++) {
        const swap_instr *out = &tape->instrs[i];
        bool back = false; /* what was there came back to the same visit */
        for (uint32_t j = 0; out->code == SWAP_STASH && j < i; j++) {
            const swap_instr *in = &tape->instrs[j];
            back |= in->code == SWAP_UNSTASH && in->sub_model == out->sub_model &&
                    in->micro_batch == out->micro_batch && same_range(in->src, out->dst);
        }
        taken += back;
    }
    assert_true(plan->n_sub_models > 2);
    assert_int_equal(taken, (plan->n_sub_models - 1) * plan->micro_batches);
    gen_lowered_close(&low);
    part_plan_close(&plan);
    part_profile_close(&profile);
    graph_close(&g);
}

/* When compute is the bound, the link hides under it; when the link is, compute hides under the
 * link: the step takes hardly more than the busier of the two, not their sum. */
static void compute_and_copies_overlap(void **state)
{
    (void)state;
    graph_config config;
    assert_int_equal(graph_preset_get("gpt2-124m", &config), ATOM_OK);
    graph *g = fused(&config, 4, 256);
    for (int slow = 0; slow < 2; slow++) {
        part_device device = card(5e12, slow ? 1e8 : 2e10);
        part_profile *profile = NULL;
        assert_int_equal(part_profile_model(g, &device, &profile), ATOM_OK);
        part_plan *plan = strided_plan(g, profile, 14, 8);
        part_verdict v = judge(g, profile, plan, 1);
        double busiest = v.compute_seconds > v.h2d_seconds ? v.compute_seconds : v.h2d_seconds;
        if (slow)
            assert_true(v.h2d_seconds > v.compute_seconds);
        else
            assert_true(v.compute_seconds > 3 * v.h2d_seconds);
        assert_true(v.step_seconds >= busiest * 0.999);
        assert_true(v.step_seconds <= busiest * 1.15 + (slow ? v.d2h_seconds * 0.6 : 0));
        assert_true(v.step_seconds < v.compute_seconds + v.h2d_seconds + v.d2h_seconds);
        part_plan_close(&plan);
        part_profile_close(&profile);
    }
    graph_close(&g);
}

static void each_stall_has_an_owner(void **state)
{
    (void)state;
    graph_config config;
    assert_int_equal(graph_preset_get("gpt2-124m", &config), ATOM_OK);
    graph *g = fused(&config, 4, 256);
    for (int which = 0; which < 3; which++) { /* compute, link, optimizer are the bound */
        part_device device = card(which == 0 ? 1e12 : 5e13, which == 1 ? 1e8 : 2e10);
        if (which == 2)
            device.adamw_params_per_second = 1e8;
        part_profile *profile = NULL;
        assert_int_equal(part_profile_model(g, &device, &profile), ATOM_OK);
        part_plan *plan = strided_plan(g, profile, 14, 4);
        part_verdict v = judge(g, profile, plan, 1);
        const part_bound bounds[3] = {PART_BOUND_COMPUTE, PART_BOUND_LINK, PART_BOUND_OPTIMIZER};
        assert_int_equal(v.bound, bounds[which]);
        part_plan_close(&plan);
        part_profile_close(&profile);
    }
    graph_close(&g);
}

static void lowering_is_reproducible(void **state)
{
    (void)state;
    random_gpt2 r = random_gpt2_make(7);
    graph *g = fused(&r.config, r.B, r.T);
    part_device device = card(1e12, 1e10);
    part_profile *profile = NULL;
    gen_lowered *a = NULL, *b = NULL;
    char *x = NULL, *y = NULL;
    assert_int_equal(part_profile_model(g, &device, &profile), ATOM_OK);
    part_plan *plan = strided_plan(g, profile, 3, 2);
    assert_int_equal(gen_lower(g, plan, profile, NULL, &a), ATOM_OK);
    assert_int_equal(gen_lower(g, plan, profile, NULL, &b), ATOM_OK);
    for (uint32_t k = 0; k < plan->n_sub_models; k++) {
        assert_int_equal(gen_emit(a->program, k, &x), ATOM_OK);
        assert_int_equal(gen_emit(b->program, k, &y), ATOM_OK);
        assert_string_equal(x, y);
        assert_non_null(strstr(x, "table->"));
        assert_null(strstr(x, "for ("));
        atom_free(x);
        atom_free(y);
    }
    assert_int_equal(swap_tape_print(a->tapes[SWAP_TAPE_TRAIN], &x), ATOM_OK);
    assert_int_equal(swap_tape_print(b->tapes[SWAP_TAPE_TRAIN], &y), ATOM_OK);
    assert_string_equal(x, y);
    atom_free(x);
    atom_free(y);
    gen_lowered_close(&a);
    gen_lowered_close(&b);
    part_plan_close(&plan);
    part_profile_close(&profile);
    graph_close(&g);
}

static void survives_want_of_memory(void **state)
{
    (void)state;
    random_gpt2 r = random_gpt2_make(3);
    graph *g = fused(&r.config, r.B, r.T);
    part_device device = card(1e12, 1e10);
    part_profile *profile = NULL;
    assert_int_equal(part_profile_model(g, &device, &profile), ATOM_OK);
    part_plan *plan = strided_plan(g, profile, 2, 2);
    uint64_t before = atom_mem_read().live_blocks;
    for (uint64_t n = 1; n < 4000; n += 1 + n / 16) {
        gen_judge j = {.g = g, .profile = profile};
        part_verdict v;
        atom_mem_fail_after(n);
        atom_status st = gen_judge_plan(&j, plan, &v);
        atom_mem_fail_after(0);
        assert_true(st == ATOM_OK || st == ATOM_E_RESOURCE);
        assert_int_equal(atom_mem_read().live_blocks, before);
    }
    part_plan_close(&plan);
    part_profile_close(&profile);
    graph_close(&g);
}

typedef struct disk_use {
    uint64_t loads, stores, ahead; /* ahead: loads behind the commit */
} disk_use;

static disk_use use_of(const swap_tape *tape)
{
    disk_use use = {0};
    bool committed = false;
    assert_int_equal(swap_hazard_check(tape), ATOM_OK);
    for (uint32_t i = 0; i < tape->n; i++) {
        swap_code code = tape->instrs[i].code;
        committed |= code == SWAP_COMMIT;
        use.loads += code == SWAP_LOAD && !committed;
        use.ahead += code == SWAP_LOAD && committed;
        use.stores += code == SWAP_STORE;
    }
    return use;
}

/* The more blocks memory has room for, the fewer are read, and the shorter is a step that waits for
 * the disk; all are written, always. */
static void held_blocks_are_not_read(void **state)
{
    (void)state;
    graph_config config = random_gpt2_make(1).config;
    graph *g = fused(&config, 2, 16);
    part_device device = card(1e12, 1e12);
    part_profile *profile = NULL;
    double before = 1e9;
    device.disk_read_bytes_per_second = device.disk_write_bytes_per_second = 1e6;
    device.disk_read_both_bytes_per_second = device.disk_write_both_bytes_per_second = 5e5;
    assert_int_equal(part_profile_model(g, &device, &profile), ATOM_OK);
    part_plan *plan = strided_plan(g, profile, 2, 2);
    plan->disk = true;
    plan->block_elements = BLOCK;
    uint64_t n = (g->param_extent + BLOCK - 1) / BLOCK;
    assert_true(n > 12);
    for (plan->ring_blocks = 2; plan->ring_blocks <= n + 1; plan->ring_blocks += 5) {
        gen_lowered *low = NULL;
        uint64_t ring = plan->ring_blocks, held = ring >= n ? n : ring > 4 ? ring - 4 : 0;
        assert_int_equal(gen_lower(g, plan, profile, NULL, &low), ATOM_OK);
        disk_use first = use_of(low->tapes[SWAP_TAPE_FIRST]);
        disk_use train = use_of(low->tapes[SWAP_TAPE_TRAIN]);
        disk_use drain = use_of(low->tapes[SWAP_TAPE_DRAIN]);
        uint64_t ready = ring < n ? ring : n;
        assert_int_equal(first.loads, ready);
        assert_int_equal(train.loads, n - ready);
        assert_int_equal(train.ahead, ready - held);
        assert_int_equal(drain.loads + drain.ahead, n - ready);
        assert_int_equal(train.stores, n);
        assert_int_equal(drain.stores, n);
        gen_lowered_close(&low);
        double seconds = judge(g, profile, plan, 1).step_seconds;
        assert_true(seconds <= before * 1.0001);
        before = seconds;
    }
    part_plan_close(&plan);
    part_profile_close(&profile);
    graph_close(&g);
}

typedef struct block_use {
    uint32_t rest[256], ahead[256]; /* updates of each block */
    uint32_t late;                  /* those ahead that stand before the gradients they need */
} block_use;

static block_use blocks_of(const swap_tape *tape)
{
    block_use use = {0};
    uint64_t round_from = UINT64_MAX; /* where the gradients that have left the device begin */
    for (uint32_t i = 0; i < tape->n; i++) {
        const swap_instr *in = &tape->instrs[i];
        if (in->code == SWAP_SPILL && in->dst.offset < round_from)
            round_from = in->dst.offset;
        if (in->code != SWAP_UPDATE)
            continue;
        (in->ahead ? use.ahead : use.rest)[in->first_element / BLOCK]++;
        use.late += in->ahead && in->writes[1].offset < round_from;
    }
    return use;
}

/* Every block is updated once, ahead or with the rest, behind its gradients; nothing is committed
 * while a step guesses; and the disk has about two thirds of its work behind the commit. */
static void each_block_is_updated_ahead_or_later(void **state)
{
    (void)state;
    graph_config config = random_gpt2_make(1).config;
    graph *g = fused(&config, 2, 16);
    part_device device = card(1e12, 1e12);
    part_profile *profile = NULL;
    assert_int_equal(part_profile_model(g, &device, &profile), ATOM_OK);
    part_plan *plan = strided_plan(g, profile, 1, 2);
    plan->disk = true;
    plan->block_elements = BLOCK;
    uint64_t n = (g->param_extent + BLOCK - 1) / BLOCK;
    assert_true(n > 12 && n < 256);
    for (plan->ring_blocks = 2; plan->ring_blocks <= n + 1; plan->ring_blocks += 3) {
        gen_lowered *low = NULL;
        uint64_t ring = plan->ring_blocks, held = ring >= n ? n : ring > 4 ? ring - 4 : 0, some = 0;
        plan->boundaries = ring % 2 ? PART_ON_HOST : PART_ON_DEVICE;
        assert_int_equal(gen_lower(g, plan, profile, NULL, &low), ATOM_OK);
        const swap_tape *ahead = low->tapes[SWAP_TAPE_AHEAD], *again = low->tapes[SWAP_TAPE_AGAIN];
        assert_true(!ahead == (held == n) && !again == !ahead);
        if (ahead) {
            disk_use one = use_of(ahead), more = use_of(again),
                     rest = use_of(low->tapes[SWAP_TAPE_REST]);
            block_use a = blocks_of(ahead), b = blocks_of(again);
            block_use c = blocks_of(low->tapes[SWAP_TAPE_REST]);
            assert_int_equal(a.late + b.late, 0);
            for (uint64_t i = 0; i < n; i++) {
                assert_int_equal(a.rest[i] + c.ahead[i], 0);
                assert_int_equal(a.ahead[i] + c.rest[i], 1);
                assert_int_equal(a.ahead[i], b.ahead[i]);
                assert_int_equal(c.rest[i], b.rest[i]);
                some += a.ahead[i];
            }
            assert_true(some > 0);
            assert_int_equal(one.loads + one.ahead, held + some);
            assert_int_equal(one.stores, some);
            assert_int_equal(more.loads, n - held - some);
            assert_int_equal(more.ahead, some);
            assert_int_equal(more.stores, n);
            assert_int_equal(rest.stores, n - some);
            assert_true(3 * some <= 2 * n);
            for (uint32_t i = 0; i < ahead->n; i++)
                assert_int_not_equal(ahead->instrs[i].code, SWAP_COMMIT);
        }
        gen_lowered_close(&low);
    }
    part_plan_close(&plan);
    part_profile_close(&profile);
    graph_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_wait_is_needed),
        cmocka_unit_test(sums_hand_their_gradients_on),
        cmocka_unit_test(a_gradient_takes_the_place_of_its_boundary),
        cmocka_unit_test(compute_and_copies_overlap),
        cmocka_unit_test(each_stall_has_an_owner),
        cmocka_unit_test(lowering_is_reproducible),
        cmocka_unit_test(survives_want_of_memory),
        cmocka_unit_test(held_blocks_are_not_read),
        cmocka_unit_test(each_block_is_updated_ahead_or_later),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
