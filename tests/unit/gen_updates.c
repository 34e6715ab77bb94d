/*
 * Updates on a tape: what they declare, and the pieces that let fetches and spills overlap them.
 */
#include "tests/lib/inside_regions.h"
#include "tests/lib/random_gpt2.h"
#include "tests/lib/strided_plan.h"

enum { BLOCK = STORE_ALIGN / 4 }; /* the least elements of a block */

static bool covers(const swap_range *declared, uint8_t n, swap_space space, uint64_t offset,
                   uint64_t bytes)
{
    for (uint8_t i = 0; i < n; i++) {
        const swap_range *r = &declared[i];
        if (r->space == space && r->offset <= offset && offset + bytes <= r->offset + r->bytes)
            return true;
    }
    return false;
}

/* What the executor touches when it runs this UPDATE on the host: the hazard check proves the order
 * of what is declared, so what is not declared here nobody would miss. */
static void expect_declared(const gen_lowered *low, const swap_instr *in, bool clip)
{
    const swap_host_layout *h = &low->layout;
    const uint64_t first = in->first_element, n = in->last_element - first;
    const uint64_t wire = atom_dtype_bytes(ATOM_BF16);
    assert_true(n > 0);
    assert_true(covers(in->writes, in->n_writes, SWAP_HOST, h->wire + first * wire, n * wire));
    if (in->src.bytes) {
        assert_true(covers(in->writes, in->n_writes, in->src.space, in->src.offset, in->src.bytes));
    } else {
        const uint64_t moment = atom_dtype_bytes(h->moments);
        assert_true(covers(in->writes, in->n_writes, SWAP_HOST, h->master + first * 4, n * 4));
        assert_true(covers(in->writes, in->n_writes, SWAP_HOST, h->m + first * moment, n * moment));
        assert_true(covers(in->writes, in->n_writes, SWAP_HOST, h->v + first * moment, n * moment));
    }
    for (uint32_t p = 0; p < low->n_params; p++) {
        const swap_param *param = &low->params[p];
        bool used = param->offset < in->last_element && first < param->offset + param->elements;
        uint64_t chunks = krn_norm_chunks(param->elements);
        /* without clipping an update refuses gradients that are not finite, by their norms */
        if (used && !clip)
            assert_true(covers(in->reads, in->n_reads, SWAP_HOST, h->norms + param->norm_chunk * 8,
                               chunks * 8));
    }
}

static void updates_declare_what_they_touch(void **state)
{
    (void)state;
    uint32_t seen[2][2] = {{0}}; /* by clip and disk */
    for (uint64_t seed = 1; seed <= 16; seed++) {
        random_gpt2 r = random_gpt2_make(seed);
        graph *g = fused(&r.config, r.B, r.T);
        part_device device = card(1e12, 1e10);
        part_profile *profile = NULL;
        gen_lowered *low = NULL;
        assert_int_equal(part_profile_model(g, &device, &profile), ATOM_OK);
        part_plan *plan = strided_plan(g, profile, 1 + (int)(seed % 4), 2);
        plan->clip = seed % 2;
        plan->disk = seed % 4 >= 2;
        plan->ring_blocks = plan->disk ? 3 : 0;
        plan->block_elements = plan->disk ? BLOCK : 0;
        assert_int_equal(gen_lower(g, plan, profile, NULL, &low), ATOM_OK);
        for (int t = 0; t < SWAP_TAPE_N; t++) {
            for (uint32_t i = 0; low->tapes[t] && i < low->tapes[t]->n; i++) {
                if (low->tapes[t]->instrs[i].code != SWAP_UPDATE)
                    continue;
                expect_declared(low, &low->tapes[t]->instrs[i], plan->clip);
                seen[plan->clip][plan->disk]++;
            }
        }
        gen_lowered_close(&low);
        part_plan_close(&plan);
        part_profile_close(&profile);
        graph_close(&g);
    }
    assert_true(seen[0][0] && seen[0][1] && seen[1][0] && seen[1][1]);
}

/* Of a step's updates on the host: how many, and for how many sub-models; they leave nothing out and
 * update nothing twice. */
static void expect_all_updated(const gen_lowered *low, const swap_tape *tape, uint32_t *n,
                               uint32_t *sub_models)
{
    uint64_t next = 0;
    int32_t before = -1;
    *n = *sub_models = 0;
    for (uint32_t i = 0; i < tape->n; i++) {
        const swap_instr *in = &tape->instrs[i];
        if (in->code != SWAP_UPDATE)
            continue;
        assert_int_equal(in->first_element, next);
        assert_true(in->last_element > next && in->first_param < in->last_param);
        next = in->last_element;
        ++*n;
        *sub_models += in->sub_model != before;
        before = in->sub_model;
    }
    assert_int_equal(next, low->layout.trained);
}

/* A large sub-model is fetched behind its update piece by piece: a step takes less than the update,
 * the fetch and compute one after the other, by most of the fetch. */
static void a_fetch_begins_before_its_update_ends(void **state)
{
    (void)state;
    graph_config config;
    assert_int_equal(graph_preset_get("gpt2-124m", &config), ATOM_OK);
    graph *g = fused(&config, 4, 256);
    part_device device = card(5e13, 5e8);
    device.adamw_params_per_second = 2e8;
    part_profile *profile = NULL;
    gen_lowered *low = NULL;
    uint32_t n, sub_models;
    assert_int_equal(part_profile_model(g, &device, &profile), ATOM_OK);
    part_plan *plan = strided_plan(g, profile, 1000, 2);
    assert_int_equal(plan->n_sub_models, 1);
    part_verdict v = judge(g, profile, plan, 1);
    double fetch = (double)wire_bytes_of(g, 0, (int32_t)g->n_nodes) / device.h2d_bytes_per_second;
    double spill = fetch; /* both links are alike */
    double sum = v.host_seconds + fetch + v.compute_seconds + spill;
    assert_true(v.step_seconds > v.host_seconds + v.compute_seconds + spill);
    assert_true(v.step_seconds < sum - 0.8 * fetch);
    assert_int_equal(gen_lower(g, plan, profile, NULL, &low), ATOM_OK);
    expect_all_updated(low, low->tapes[SWAP_TAPE_TRAIN], &n, &sub_models);
    assert_true(n >= 7);
    gen_lowered_close(&low);

    plan->clip = false; /* behind backward, as its gradients arrive */
    v = judge(g, profile, plan, 1);
    assert_true(v.step_seconds < sum - 0.8 * spill);

    /* pieces that would take no longer than their copies take to begin */
    profile->device.copy_latency_seconds = 1;
    plan->clip = true;
    assert_int_equal(gen_lower(g, plan, profile, NULL, &low), ATOM_OK);
    expect_all_updated(low, low->tapes[SWAP_TAPE_TRAIN], &n, &sub_models);
    assert_int_equal(n, 1);
    gen_lowered_close(&low);
    part_plan_close(&plan);
    part_profile_close(&profile);
    graph_close(&g);
}

/* Of one sub-model. */
static uint32_t copies(const gen_lowered *low, swap_code code, int32_t sub_model)
{
    const swap_tape *tape = low->tapes[SWAP_TAPE_TRAIN];
    uint32_t n = 0;
    for (uint32_t i = 0; i < tape->n; i++)
        n += tape->instrs[i].code == code && tape->instrs[i].sub_model == sub_model;
    return n;
}

/* Beside micro-batches whose boundaries cross the link parameters cross in pieces, too, one for each; but
 * not in pieces that take no longer than their copies take to begin. */
static void pieces_are_worth_a_copy(void **state)
{
    (void)state;
    enum { C = 12 };
    graph_config config;
    assert_int_equal(graph_preset_get("gpt2-124m", &config), ATOM_OK);
    graph *g = fused(&config, 1, 64);
    part_device device = card(5e13, 5e8);
    device.copy_latency_seconds = 0;
    part_profile *profile = NULL;
    assert_int_equal(part_profile_model(g, &device, &profile), ATOM_OK);
    part_plan *plan = strided_plan(g, profile, 8, C);
    const int32_t last = (int32_t)plan->n_sub_models - 1, k = last / 2;
    plan->boundaries = PART_ON_HOST;
    assert_true(k > 1);
    for (int many = 1; many >= 0; many--) {
        gen_lowered *low = NULL;
        profile->device.copy_latency_seconds = many ? 0 : 1;
        assert_int_equal(gen_lower(g, plan, profile, NULL, &low), ATOM_OK);
        assert_in_range(copies(low, SWAP_FETCH, k), many ? 2 * C : 2, many ? 2 * C : 2);
        assert_int_equal(copies(low, SWAP_SPILL, k), many ? C : 1);
        gen_lowered_close(&low);
    }
    part_plan_close(&plan);
    part_profile_close(&profile);
    graph_close(&g);
}

/* Matrices of Muon too: no piece ends inside of a parameter that is updated as a whole. */
static void pieces_leave_matrices_whole(void **state)
{
    (void)state;
    uint32_t inside = 0;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        random_gpt2 r = random_gpt2_make(seed);
        graph *g = fused(&r.config, r.B, r.T);
        part_device device = card(1e12, 1e10);
        part_profile *profile = NULL;
        gen_lowered *low = NULL;
        uint32_t n, sub_models;
        if (seed % 2)
            graph_set_optimizer(g, GRAPH_MUON);
        assert_int_equal(part_profile_model(g, &device, &profile), ATOM_OK);
        part_plan *plan = strided_plan(g, profile, 1 + (int)(seed % 4), 2);
        assert_int_equal(gen_lower(g, plan, profile, NULL, &low), ATOM_OK);
        expect_all_updated(low, low->tapes[SWAP_TAPE_TRAIN], &n, &sub_models);
        assert_true(n > sub_models);
        const swap_tape *tape = low->tapes[SWAP_TAPE_TRAIN];
        for (uint32_t i = 0; i < tape->n; i++) {
            const swap_instr *in = &tape->instrs[i];
            if (in->code != SWAP_UPDATE)
                continue;
            const swap_param *last = &low->params[in->last_param - 1];
            bool cut = in->last_element < last->offset + last->elements;
            assert_true(!cut || last->n_matrices == 0);
            inside += cut;
        }
        gen_lowered_close(&low);
        part_plan_close(&plan);
        part_profile_close(&profile);
        graph_close(&g);
    }
    assert_true(inside > 0);
}

/* What was done to one matrix, in the order of the tape. */
typedef enum stage { UNTOUCHED, BEGUN, RAISED, MULTIPLIED, LOWERED, ENDED } stage;

static void expect_next(stage *at, stage next)
{
    assert_int_equal(*at, next - 1);
    *at = next;
}

static bool holds(swap_range outer, swap_range inner)
{
    return outer.space == inner.space && outer.offset <= inner.offset &&
           inner.offset + inner.bytes <= outer.offset + outer.bytes;
}

/* Elements [first, past) of one matrix; `place`: where the device has it. */
static void follow(const gen_lowered *low, const swap_instr *in, uint64_t first, uint64_t past,
                   stage *at, swap_range *place)
{
    const swap_host_layout *h = &low->layout;
    const uint64_t each = atom_dtype_bytes(ATOM_BF16), moment = atom_dtype_bytes(h->moments);
    const swap_range wire = {SWAP_HOST, h->wire + first * each, (past - first) * each};
    bool mine = in->first_element <= first && past <= in->last_element;
    switch (in->code) {
    case SWAP_BEGIN:
        if (!mine)
            return;
        expect_next(at, BEGUN);
        assert_true(covers(in->writes, in->n_writes, SWAP_HOST, wire.offset, wire.bytes));
        if (in->src.bytes)
            assert_true(covers(in->writes, in->n_writes, SWAP_HOST, in->src.offset, in->src.bytes));
        else
            assert_true(covers(in->writes, in->n_writes, SWAP_HOST, h->m + first * moment,
                               (past - first) * moment));
        return;
    case SWAP_RAISE:
        if (!holds(in->src, wire))
            return;
        expect_next(at, RAISED);
        *place = in->dst;
        return;
    case SWAP_ORTHO:
        if (in->first_element != first)
            return;
        expect_next(at, MULTIPLIED);
        assert_int_equal(in->src.offset, place->offset);
        assert_true(is_inside(low, "Muon's matrices", in->src));
        assert_true(covers(in->writes, in->n_writes, SWAP_DEVICE, in->src.offset, wire.bytes));
        assert_true(covers(in->writes, in->n_writes, SWAP_DEVICE, in->dst.offset, in->dst.bytes));
        return;
    case SWAP_LOWER:
        if (holds(in->dst, wire))
            expect_next(at, LOWERED);
        return;
    case SWAP_UPDATE:
        if (!mine)
            return;
        assert_true(in->begun);
        expect_next(at, ENDED);
        return;
    default:
        return;
    }
}

static uint32_t count(const swap_tape *tape, swap_code code, swap_code before)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < tape->n && tape->instrs[i].code != before; i++)
        n += tape->instrs[i].code == code;
    return n;
}

/* Each of Muon's matrices passes all stations once, in their order, with the state in memory or on
 * disk; and forward waits for the products of the first sub-models only. */
static void products_are_made_on_the_device(void **state)
{
    (void)state;
    uint32_t matrices = 0, later = 0;
    for (uint64_t seed = 1; seed <= 16; seed++) {
        random_gpt2 r = random_gpt2_make(seed);
        graph *g = fused(&r.config, r.B, r.T);
        part_device device = card(1e12, 1e10);
        part_profile *profile = NULL;
        gen_lowered *low = NULL;
        graph_set_optimizer(g, GRAPH_MUON);
        assert_int_equal(part_profile_model(g, &device, &profile), ATOM_OK);
        part_plan *plan = strided_plan(g, profile, 1 + (int)(seed % 4), 2);
        plan->clip = plan->ortho_on_device = true;
        plan->disk = seed % 4 >= 2;
        plan->ring_blocks = plan->disk ? 2 + (uint32_t)seed % 5 : 0;
        plan->block_elements = plan->disk ? BLOCK : 0;
        assert_int_equal(gen_lower(g, plan, profile, NULL, &low), ATOM_OK);
        assert_int_equal(inside_regions(low), ATOM_OK);
        for (uint32_t p = 0; p < low->n_params; p++) {
            const swap_param *param = &low->params[p];
            uint64_t first = param->offset, past;
            for (uint8_t m = 0; m < param->n_matrices; m++, first = past, matrices++) {
                past = first + (uint64_t)(param->rows[m] * param->cols);
                const swap_tape_kind kinds[] = {SWAP_TAPE_TRAIN, SWAP_TAPE_DRAIN};
                for (int t = 0; t < 2; t++) {
                    const swap_tape *tape = low->tapes[kinds[t]];
                    stage at = UNTOUCHED;
                    swap_range place = {0};
                    for (uint32_t i = 0; i < tape->n; i++)
                        follow(low, &tape->instrs[i], first, past, &at, &place);
                    assert_int_equal(at, ENDED);
                }
            }
        }
        const swap_tape *train = low->tapes[SWAP_TAPE_TRAIN];
        later += count(train, SWAP_ORTHO, SWAP_FWD) < count(train, SWAP_ORTHO, SWAP_CODE_N);
        assert_int_equal(swap_hazard_check(train), ATOM_OK);
        gen_lowered_close(&low);
        part_plan_close(&plan);
        part_profile_close(&profile);
        graph_close(&g);
    }
    assert_true(matrices > 50 && later > 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(updates_declare_what_they_touch),
        cmocka_unit_test(a_fetch_begins_before_its_update_ends),
        cmocka_unit_test(pieces_are_worth_a_copy),
        cmocka_unit_test(pieces_leave_matrices_whole),
        cmocka_unit_test(products_are_made_on_the_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
