/* Plans of strangers: a good one is laid out and timed here; one that lies of memory, is for something
 * else or takes too much is refused in a line, and what it says of its speed is not believed. And what tells device classes apart. */
#include "atom/plan/share.h"

#include "atom/base/files.h"
#include "atom/base/mem.h"
#include "atom/plan/device.h"
#include "partition/json.h"
#include "tests/scratch.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static const char MODEL[] =
    "{\"model_type\":\"gpt2\",\"vocab_size\":257,\"n_positions\":48,\"n_embd\":48,\"n_layer\":4,"
    "\"n_head\":3,\"resid_pdrop\":0,\"embd_pdrop\":0,\"attn_pdrop\":0}";

typedef struct place {
    plan_workbench *bench;
    plan_request request;
    part_profile *profile; /* this host's */
    char *text;            /* a plan that this host would make */
    scratch files;
} place;

static void must(atom_status st)
{
    if (st != ATOM_OK)
        fail_msg("%s", atom_fail_message());
}

static uint64_t least_device(place *p, const part_profile *profile)
{
    part_plan *plan = NULL;
    uint64_t bytes = 1 << 20;
    for (p->request.device_memory = bytes;
         plan_search(p->bench->g, profile, p->bench->table, &p->request, &plan, NULL) != ATOM_OK;
         p->request.device_memory = bytes)
        bytes += bytes / 8;
    part_plan_close(&plan);
    return bytes;
}

static int open_place(void **state)
{
    static place p;
    part_profile *profile = NULL;
    part_plan *plan = NULL;
    memset(&p, 0, sizeof p);
    const char *model = scratch_path(scratch_open(&p.files), "config.json");
    must(atom_file_write(model, MODEL, strlen(MODEL)));
    plan_workbench_config config = {.model = model,
                                    .micro_batch = 2,
                                    .sequence = 32,
                                    .dtype = PLAN_DTYPE_FP32,
                                    .dropout = -1,
                                    .threads = 1,
                                    .trains = true};
    must(plan_workbench_open(&config, &p.bench));
    p.bench->config.model = NULL;
    part_device device = plan_device_guess(p.bench);
    must(part_profile_model(p.bench->g, &device, &profile));
    p.request = (plan_request){
        .host_memory = 1ull << 30, .micro_batches = 2, .clip = true, .recompute = -1};
    p.request.device_memory = least_device(&p, profile);
    must(plan_search(p.bench->g, profile, p.bench->table, &p.request, &plan, NULL));
    assert_true(plan->n_sub_models > 1); /* else nothing of this is tried */
    must(part_plan_json(plan, &p.text));
    part_plan_close(&plan);
    p.profile = profile;
    *state = &p;
    return 0;
}

static int close_place(void **state)
{
    place *p = *state;
    plan_workbench_close(&p->bench);
    part_profile_close(&p->profile);
    atom_free(p->text);
    scratch_close(&p->files);
    return 0;
}

/* The text with one piece in place of another; which must be there. */
static char *with(const char *text, const char *from, const char *to)
{
    const char *at = strstr(text, from);
    assert_non_null(at);
    char *out = atom_format("%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    assert_non_null(out);
    return out;
}

static void refused(place *p, const plan_request *request, const char *text, const char *says)
{
    part_plan *plan = NULL;
    assert_int_not_equal(plan_accept(p->bench, request, p->profile, text, strlen(text), &plan),
                         ATOM_OK);
    assert_null(plan);
    if (!strstr(atom_fail_message(), says))
        fail_msg("'%s' is not in: %s", says, atom_fail_message());
    assert_null(strchr(atom_fail_message(), '\n'));
}

static void a_good_one(void **state)
{
    place *p = *state;
    part_plan *plan = NULL, *made = NULL;
    must(plan_accept(p->bench, &p->request, p->profile, p->text, strlen(p->text), &plan));
    must(part_plan_parse("made", p->text, strlen(p->text), &made));
    assert_int_equal(plan->n_sub_models, made->n_sub_models);
    /* The bytes are this host's count, and the same. */
    assert_int_equal(plan->device_peak_bytes, made->device_peak_bytes);
    assert_int_equal(plan->host_peak_bytes, made->host_peak_bytes);
    assert_int_equal(plan->host_budget_bytes, p->request.host_memory);
    /* So are the seconds: by the same profile, those of the maker. */
    assert_true(fabs(plan->predicted_step_seconds - made->predicted_step_seconds) <
                1e-6 * made->predicted_step_seconds);
    part_plan_close(&plan);
    part_plan_close(&made);
}

/* Legal, within the memory, and slow: whatever it says, it is seen to be. */
static void lies_about_speed(void **state)
{
    place *p = *state;
    part_plan *plan = NULL, *own = NULL;
    char *text = NULL;
    plan_request roomy = p->request;
    roomy.device_memory *= 16;
    must(plan_search(p->bench->g, p->profile, p->bench->table, &roomy, &own, NULL));
    must(part_plan_parse("made", p->text, strlen(p->text), &plan)); /* for very little memory */
    double seconds = plan->predicted_step_seconds;
    plan->predicted_step_seconds = plan->predicted_compute_seconds = 1e-9;
    must(part_plan_json(plan, &text));
    part_plan_close(&plan);
    must(plan_accept(p->bench, &roomy, p->profile, text, strlen(text), &plan));
    assert_true(fabs(plan->predicted_step_seconds - seconds) < 1e-6 * seconds);
    assert_true(plan->predicted_compute_seconds > 1e-9);
    assert_true(part_plan_seconds(plan) > 1.01 * part_plan_seconds(own));
    atom_free(text);
    part_plan_close(&plan);
    part_plan_close(&own);
}

static void lies_about_memory(void **state)
{
    place *p = *state;
    part_plan *plan = NULL;
    char *text = NULL;
    must(part_plan_parse("made", p->text, strlen(p->text), &plan));
    /* All in one piece, and it says that this is small. */
    plan->n_sub_models = 1;
    plan->sub_models[0].last_node = (int32_t)p->bench->g->n_nodes;
    plan->sub_models[0].param_bytes = p->bench->g->param_extent * 4;
    plan->cut_bytes = 0;
    must(part_plan_json(plan, &text));
    refused(p, &p->request, text, "of device memory, but this host allows");
    atom_free(text);
    part_plan_close(&plan);
    /* Or more of the host than it has. */
    plan_request little = p->request;
    little.host_memory = 1 << 16;
    refused(p, &little, p->text, "of host memory, but this host allows");
    /* A host with less device memory, to which it came by mistake. */
    little = p->request;
    little.device_memory /= 2;
    refused(p, &little, p->text, "of device memory, but this host allows");
}

static void for_something_else(void **state)
{
    place *p = *state;
    plan_request other = p->request;
    char *text = with(p->text, "\"graph_hash\": \"", "\"graph_hash\": \"f");
    refused(p, &p->request, text, "");
    atom_free(text);
    other.micro_batches = 3;
    refused(p, &other, p->text, "micro-batches per step");
    other = p->request;
    other.clip = false;
    refused(p, &other, p->text, "with clipping");
    other = p->request;
    other.device_memory = 0; /* then weights are used in place */
    refused(p, &other, p->text, "in place");
    text = with(p->text, "\"disk\": false", "\"disk\": true");
    refused(p, &p->request, text, "on disk");
    atom_free(text);
    text = with(p->text, "\"param_bytes\": ", "\"param_bytes\": 1");
    refused(p, &p->request, text, "parameter bytes");
    atom_free(text);
    refused(p, &p->request, "{}", "the plan");
    refused(p, &p->request, "[[[[", "the plan");
}

/* A plan for two devices serves hosts with two, and no others. */
static void for_several_devices(void **state)
{
    place *p = *state;
    part_plan *plan = NULL, *made = NULL;
    plan_request two = p->request;
    char *text = NULL, *class_of_one = NULL, *class_of_two = NULL;
    two.devices = 2;
    two.device_memory *= 2; /* sums on their way take some */
    must(plan_search(p->bench->g, p->profile, p->bench->table, &two, &made, NULL));
    must(part_plan_json(made, &text));
    must(plan_accept(p->bench, &two, p->profile, text, strlen(text), &plan));
    assert_int_equal(plan->devices, 2);
    assert_int_equal(plan->device_peak_bytes, made->device_peak_bytes);
    assert_int_equal(plan->host_peak_bytes, made->host_peak_bytes);
    assert_true(fabs(plan->predicted_step_seconds - made->predicted_step_seconds) <
                1e-6 * made->predicted_step_seconds);
    part_plan_close(&plan);
    refused(p, &two, p->text, "it is for 1 device, not for 2");
    must(plan_class(p->bench, &two, &class_of_two));
    two.devices = 1;
    refused(p, &two, text, "it is for 2 devices, not for 1");
    must(plan_class(p->bench, &two, &class_of_one));
    assert_null(strstr(class_of_one, "devices"));
    assert_non_null(strstr(class_of_two, "\ndevices 2\n"));
    part_plan_close(&made);
    atom_free(text);
    atom_free(class_of_one);
    atom_free(class_of_two);
}

static void wrong_graph(void **state)
{
    place *p = *state;
    part_plan *plan = NULL;
    char *text = NULL;
    must(part_plan_parse("made", p->text, strlen(p->text), &plan));
    plan->graph_hash ^= 1;
    must(part_plan_json(plan, &text));
    refused(p, &p->request, text, "plan again");
    atom_free(text);
    part_plan_close(&plan);
}

static void classes(void **state)
{
    place *p = *state;
    plan_request other = p->request;
    char *a = NULL, *b = NULL;
    must(plan_class(p->bench, &p->request, &a));
    other.host_memory /= 2; /* checked, but no class of its own */
    must(plan_class(p->bench, &other, &b));
    assert_string_equal(a, b);
    atom_free(b);
    other.device_memory++;
    must(plan_class(p->bench, &other, &b));
    assert_string_not_equal(a, b);
    atom_free(b);
    other = p->request;
    other.micro_batches++;
    must(plan_class(p->bench, &other, &b));
    assert_string_not_equal(a, b);
    atom_free(b);
    p->bench->config.link_bandwidth = 1 << 20;
    must(plan_class(p->bench, &p->request, &b));
    assert_string_not_equal(a, b);
    assert_non_null(strstr(b, "link throttled 1048576"));
    atom_free(b);
    p->bench->config.link_bandwidth = 0;
    atom_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_good_one),          cmocka_unit_test(lies_about_memory),
        cmocka_unit_test(lies_about_speed),    cmocka_unit_test(for_something_else),
        cmocka_unit_test(wrong_graph),         cmocka_unit_test(classes),
        cmocka_unit_test(for_several_devices),
    };
    return cmocka_run_group_tests(tests, open_place, close_place);
}
