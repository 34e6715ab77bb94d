/*
 * The picture of a step in letters: a row for each stream that the plan uses, as wide as it is asked for,
 * with what happens there and nothing else.
 */
#include "codegen/lower.h"
#include "tests/unit/part_common.h"

/* Of the step of a plan with or without a state on disk. */
static char *drawn(int disk, bool in_place, uint32_t width)
{
    graph *g = tiny_gpt2(4);
    part_device device = spec("rtx-4090");
    part_profile *profile = NULL;
    part_plan *plan = NULL;
    char *text = NULL;
    if (in_place) {
        device.unified = true;
        device.device_bytes = 0;
        device.cores = 2;
    }
    assert_int_equal(part_profile_model(g, &device, &profile), ATOM_OK);
    gen_judge judge = {.g = g, .profile = profile};
    part_request request = {.device_budget_bytes = in_place ? 0 : 300 << 10,
                            .micro_batches = 4,
                            .clip = true,
                            .recompute = -1,
                            .disk = disk,
                            .evaluate = gen_judge_plan,
                            .evaluate_ctx = &judge};
    if (part_search(g, profile, &request, &plan, NULL) != ATOM_OK)
        fail_msg("%s", atom_fail_message());
    assert_int_equal(gen_timeline(g, plan, profile, NULL, width, &text), ATOM_OK);
    part_plan_close(&plan);
    part_profile_close(&profile);
    graph_close(&g);
    return text;
}

/* The row of that name; NULL: there is none. n: its columns. */
static const char *row_of(const char *text, const char *name, size_t *n)
{
    for (const char *line = text; *line; line = strchr(line, '\n') + 1)
        if (strncmp(line, name, strlen(name)) == 0 && strchr(" |", line[strlen(name)])) {
            const char *from = strchr(line, '|') + 1;
            *n = (size_t)(strchr(from, '|') - from);
            return from;
        }
    return NULL;
}

/* Those letters are in the row, each at least once, and no others but dots. */
static void has(const char *text, const char *name, const char *letters, size_t width)
{
    size_t n;
    const char *row = row_of(text, name, &n);
    if (!row)
        fail_msg("no %s: %s", name, text);
    assert_int_equal(n, width);
    for (const char *c = letters; *c; c++)
        if (!memchr(row, *c, n))
            fail_msg("no %c in %s: %s", *c, name, text);
    for (size_t i = 0; i < n; i++)
        if (row[i] != '.' && !strchr("tFfbesurSlcUzhkLDCmxo", row[i]))
            fail_msg("'%c' in %s: %s", row[i], name, text);
}

static void rows(void **state)
{
    size_t n;
    (void)state;
    char *text = drawn(0, false, 100);
    has(text, "compute", "fb", 100);
    has(text, "to device", "F", 100);
    has(text, "to host", "S", 100);
    has(text, "optimizer", "U", 100);
    assert_null(row_of(text, "disk read", &n));
    assert_null(row_of(text, "disk write", &n));
    assert_non_null(strstr(text, "f forward  b backward"));
    assert_null(strstr(text, "L load"));
    assert_null(strstr(text, "h/k sums"));
    atom_free(text);
    text = drawn(1, false, 1); /* no narrower than 16 */
    has(text, "disk read", "", 16);
    has(text, "disk write", "", 16);
    assert_non_null(strstr(text, "L load  D store"));
    atom_free(text);
    text = drawn(1, true, 1000);    /* no wider than 240 */
    has(text, "compute", "b", 240); /* one sub-model turns at once */
    has(text, "disk read", "L", 240);
    has(text, "disk write", "D", 240);
    atom_free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(rows)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
