/* Plans as objects and files, and the checker: every way to be illegal is found. */
#include "partition/json.h"
#include "tests/unit/part_common.h"

#include <unistd.h>

/* Parameter bytes of [first, last), by brute force. */
static uint64_t bytes_of(const graph *g, int32_t first, int32_t last)
{
    uint64_t bytes = 0;
    for (uint32_t p = 0; p < g->n_params; p++) {
        bool used = false;
        for (int32_t i = first; i < last; i++)
            for (int j = 0; j < g->nodes[i].n_params; j++)
                used |= g->nodes[i].params[j] == (int32_t)p;
        if (used)
            bytes += (g->params[p].elements + 127) / 128 * 128 * atom_dtype_bytes(g->dtype);
    }
    return bytes;
}

static int32_t cut_after(const graph *g, int32_t node)
{
    while (!graph_can_cut(g, node))
        node++;
    return node;
}

/* A legal plan of three sub-models. */
static part_plan *three(const graph *g)
{
    part_profile *profile = modelled(g, "rtx-4090");
    part_plan *plan = NULL;
    assert_int_equal(part_plan_open(g, profile, 3, &plan), ATOM_OK);
    int32_t n = (int32_t)g->n_nodes;
    int32_t ends[] = {cut_after(g, n / 3), cut_after(g, 2 * n / 3), n};
    for (int k = 0; k < 3; k++) {
        part_sub_model *s = &plan->sub_models[k];
        s->first_node = k ? ends[k - 1] : 0;
        s->last_node = ends[k];
        s->param_bytes = bytes_of(g, s->first_node, s->last_node);
        if (k)
            plan->cut_bytes += graph_boundary_bytes(g, s->first_node);
    }
    plan->sub_models[1].keep = PART_KEEP_HOST;
    plan->boundaries = PART_ON_HOST;
    plan->micro_batches = 8;
    plan->recommended_micro_batches = 5;
    plan->predicted_step_seconds = 1.0 / 3;
    plan->bound = PART_BOUND_HOST_MEMORY;
    plan->device_budget_bytes = 1000;
    plan->device_peak_bytes = 999;
    part_profile_close(&profile);
    return plan;
}

/* The same, and the first sub-model keeps some of its nodes. */
static part_plan *some(const graph *g)
{
    part_plan *plan = three(g);
    part_sub_model *s = &plan->sub_models[0];
    uint8_t place = PART_HOLD_DEVICE;
    assert_int_equal(part_plan_open_holds(plan), ATOM_OK);
    s->keep = PART_KEEP_SOME;
    for (int32_t i = s->first_node; i < s->last_node; i++)
        if (part_can_hold(g, s, i)) {
            plan->holds[i] = place;
            place = place == PART_HOLD_DEVICE ? PART_HOLD_HOST : PART_HOLD_DEVICE;
        }
    return plan;
}

static int32_t not_held(const part_plan *plan)
{
    int32_t i = 0;
    while (plan->holds[i])
        i++;
    assert_true(i < plan->sub_models[0].last_node);
    return i;
}

/* Nodes that are held come back from a file, and a plan without them has no word of them. */
static void keeps_what_is_held(void **state)
{
    (void)state;
    char *text = NULL, *again = NULL;
    part_plan *back = NULL, *copy = NULL;
    graph *g = tiny_gpt2(3);
    part_plan *plan = some(g), *plain = three(g);
    assert_int_equal(part_plan_check(plan, g), ATOM_OK);
    assert_int_equal(part_plan_json(plan, &text), ATOM_OK);
    assert_non_null(strstr(text, "\"held_on_device\": ["));
    assert_int_equal(part_plan_parse("plan.json", text, strlen(text), &back), ATOM_OK);
    assert_int_equal(part_plan_copy(back, &copy), ATOM_OK);
    assert_memory_equal(copy->holds, plan->holds, g->n_nodes);
    assert_int_equal(part_plan_check(copy, g), ATOM_OK);
    assert_int_equal(part_plan_json(copy, &again), ATOM_OK);
    assert_string_equal(text, again);
    atom_free(again);
    assert_int_equal(part_plan_json(plain, &again), ATOM_OK);
    assert_null(strstr(again, "held"));
    atom_free(again);
    atom_free(text);
    part_plan_close(&copy);
    part_plan_close(&back);
    part_plan_close(&plain);
    part_plan_close(&plan);
    graph_close(&g);
}

static void finds_faults_in_what_is_held(void **state)
{
    (void)state;
    graph *g = tiny_gpt2(3);
    for (int fault = 0; fault < 6; fault++) {
        part_plan *p = some(g);
        switch (fault) {
        case 0:
            p->holds[not_held(p)] = PART_HOLD_HOST; /* of which backward reads nothing */
            break;
        case 1:
            memset(p->holds, 0, g->n_nodes);
            break;
        case 2:
            p->sub_models[0].keep = PART_RECOMPUTE;
            break;
        case 3:
            p->sub_models[2].keep = PART_KEEP_SOME; /* the last one */
            break;
        case 4:
            p->holds[0] = 3;
            break;
        case 5:
            atom_free(p->holds);
            p->holds = NULL;
            break;
        }
        if (part_plan_check(p, g) != ATOM_E_USAGE)
            fail_msg("fault %d was not found", fault);
        part_plan_close(&p);
    }
    graph_close(&g);
}

static void accepts_a_legal_plan(void **state)
{
    (void)state;
    graph *g = tiny_gpt2(3);
    part_plan *plan = three(g);
    assert_int_equal(part_plan_check(plan, g), ATOM_OK);
    part_plan_close(&plan);
    graph_close(&g);
}

static void finds_every_fault(void **state)
{
    (void)state;
    graph *g = tiny_gpt2(3), *other = tiny_gpt2(4);
    for (int fault = 0; fault < 15; fault++) {
        part_plan *p = three(g);
        const graph *against = g;
        switch (fault) {
        case 0:
            p->sub_models[0].first_node = 1;
            break;
        case 1:
            p->sub_models[1].first_node++;
            break;
        case 2:
            p->sub_models[1].first_node--;
            break;
        case 3:
            p->sub_models[2].last_node--;
            break;
        case 4:
            p->sub_models[1].last_node = p->sub_models[1].first_node;
            break;
        case 5:
            p->sub_models[2].last_node = INT32_MAX;
            break;
        case 6:
            p->sub_models[1].param_bytes += 256;
            break;
        case 7:
            p->cut_bytes--;
            break;
        case 8:
            p->micro_batches = 0;
            break;
        case 9:
            p->in_place = true;
            break;
        case 10:
            p->device_peak_bytes = 1001;
            break;
        case 11:
            p->predicted_step_seconds = -1;
            break;
        case 12:
            p->sub_models[0].keep = (part_keep)9;
            break;
        case 13:
            against = other;
            break;
        case 14:
            p->n_sub_models = 2;
            break;
        }
        assert_int_equal(part_plan_check(p, against), ATOM_E_USAGE);
        assert_true(strlen(atom_fail_message()) > 10);
        part_plan_close(&p);
    }
    graph_close(&g);
    graph_close(&other);
}

static void reads_back_the_same_bits(void **state)
{
    (void)state;
    char path[] = "/tmp/atom_part_XXXXXX";
    char *first = NULL, *second = NULL;
    part_plan *back = NULL, *copy = NULL;
    graph *g = tiny_gpt2(3);
    part_plan *plan = three(g);
    close(mkstemp(path));
    assert_int_equal(part_plan_write(plan, path), ATOM_OK);
    assert_int_equal(part_plan_read(path, &back), ATOM_OK);
    unlink(path);
    assert_int_equal(part_plan_copy(back, &copy), ATOM_OK);
    part_plan_close(&back);
    assert_int_equal(part_plan_check(copy, g), ATOM_OK);
    assert_memory_equal(copy->sub_models, plan->sub_models, 3 * sizeof *plan->sub_models);
    assert_int_equal(part_plan_json(plan, &first), ATOM_OK);
    assert_int_equal(part_plan_json(copy, &second), ATOM_OK);
    assert_string_equal(first, second);
    assert_non_null(strstr(first, "\"sub_models\": ["));
    assert_non_null(strstr(first, "\"bound\": \"host memory\""));
    atom_free(first);
    atom_free(second);
    part_plan_close(&copy);
    part_plan_close(&plan);
    graph_close(&g);
}

static void says_where_updates_run(void **state)
{
    (void)state;
    char *text = NULL;
    part_plan *back = NULL;
    graph *g = tiny_gpt2(3);
    part_plan *plan = three(g);
    plan->update_on_device = true;
    assert_int_equal(part_plan_json(plan, &text), ATOM_OK);
    assert_int_equal(part_plan_parse("plan.json", text, strlen(text), &back), ATOM_OK);
    assert_true(back->update_on_device);
    assert_int_equal(part_plan_check(back, g), ATOM_E_USAGE); /* three sub-models */
    assert_non_null(strstr(atom_fail_message(), "updates on the device"));
    atom_free(text);
    part_plan_close(&back);
    plan->update_on_device = false;
    plan->ortho_on_device = true;
    assert_int_equal(part_plan_json(plan, &text), ATOM_OK);
    assert_non_null(strstr(text, "\"muon_products\": \"device\""));
    assert_int_equal(part_plan_parse("plan.json", text, strlen(text), &back), ATOM_OK);
    assert_true(back->ortho_on_device && !back->update_on_device);
    assert_int_equal(part_plan_check(back, g), ATOM_E_USAGE); /* AdamW */
    assert_non_null(strstr(atom_fail_message(), "Muon's products"));
    atom_free(text);
    part_plan_close(&back);
    part_plan_close(&plan);
    graph_close(&g);
}

/* Replaces the first `from` by `to` and expects a refusal that says `message`. */
static void refuses(const char *text, const char *from, const char *to, const char *message)
{
    part_plan *back = NULL;
    const char *at = strstr(text, from);
    assert_non_null(at);
    char *bad = atom_format("%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    assert_int_equal(part_plan_parse("plan.json", bad, strlen(bad), &back), ATOM_E_FORMAT);
    if (!strstr(atom_fail_message(), message))
        fail_msg("%s", atom_fail_message());
    atom_free(bad);
}

static void reads_holds_strictly(void **state)
{
    (void)state;
    char *text = NULL;
    graph *g = tiny_gpt2(3);
    part_plan *plan = some(g);
    assert_int_equal(part_plan_json(plan, &text), ATOM_OK);
    refuses(text, "\"held_on_device\": [", "\"held_on_device\": [-1, ", "item 0: -1 is not in");
    refuses(text, "\"held_on_device\": [", "\"held_on_device\": [\"a\", ", "expected an integer");
    refuses(text, "\"held_on_device\": [", "\"held_on_device\": [3, 3, ", "item 1: 3 is not in");
    refuses(text, "\"held_on_device\": [", "\"held_on_device\": [999, ", "item 0: 999 is not in");
    refuses(text, "\"held_on_host\": [", "\"held_on_host\": 7, \"x\": [", "unknown key");
    refuses(text, "\"held_on_host\": [", "\"hold_on_host\": [",
            "hold_on_host: unknown key; did you mean \"held_on_host\"?");
    refuses(text, "\"keep\": \"some\"", "\"keep\": \"recompute\"", "keeps \"some\"");
    atom_free(text);
    part_plan_close(&plan);
    graph_close(&g);
}

static void reads_plans_strictly(void **state)
{
    (void)state;
    static const char *const wrong[][3] = {
        {"\"atom_plan\": 1", "\"atom_plan\": 9", "make the file again"},
        {"\"bound\": \"host memory\"", "\"bound\": \"magic\"", "one of: compute, link"},
        {"\"first_node\": 0", "\"first_node\": 1", "sub_models[0].first_node"},
        {"\"keep\": \"host\"", "\"keep\": \"moon\"", "sub_models[1].keep"},
        {"\"cut_bytes\": ", "\"cut_bytes\": -", "cut_bytes"},
        {"\"micro_batches\": 8", "\"micro_batches\": 0", "micro_batches: 0 is not in"},
        {"\"micro_batches\": 8", "\"micro_batchs\": 8", "micro_batches: missing"},
        {"\"sub_models\": [", "\"sub_models\": [3, ", "sub_models[0]: expected an object"},
    };
    char *text = NULL;
    part_plan *back = NULL;
    graph *g = tiny_gpt2(3);
    part_plan *plan = three(g);
    assert_int_equal(part_plan_json(plan, &text), ATOM_OK);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const char *at = strstr(text, wrong[i][0]);
        assert_non_null(at);
        char *bad =
            atom_format("%.*s%s%s", (int)(at - text), text, wrong[i][1], at + strlen(wrong[i][0]));
        assert_int_equal(part_plan_parse("plan.json", bad, strlen(bad), &back), ATOM_E_FORMAT);
        if (!strstr(atom_fail_message(), wrong[i][2]) || !strstr(atom_fail_message(), "plan.json"))
            fail_msg("%zu: %s", i, atom_fail_message());
        assert_null(back);
        atom_free(bad);
    }
    for (size_t n = 0; n + 2 < strlen(text); n += 3)
        assert_int_equal(part_plan_parse("plan.json", text, n, &back), ATOM_E_FORMAT);
    atom_free(text);
    part_plan_close(&plan);
    graph_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accepts_a_legal_plan),         cmocka_unit_test(finds_every_fault),
        cmocka_unit_test(reads_back_the_same_bits),     cmocka_unit_test(says_where_updates_run),
        cmocka_unit_test(reads_plans_strictly),         cmocka_unit_test(keeps_what_is_held),
        cmocka_unit_test(finds_faults_in_what_is_held), cmocka_unit_test(reads_holds_strictly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
