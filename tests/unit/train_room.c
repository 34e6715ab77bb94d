/*
 * The warning that checkpoints will not fit: how many a run writes beside those that are there, and from
 * which byte on there is room for them. What is free is said by the test.
 */
#include "atom/base/files.h"
#include "tests/lib/little_run.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static uint64_t free_bytes = UINT64_MAX;
static char warned[1000];

bool __wrap_atom_dir_free_bytes(const char *dir, uint64_t *bytes);
bool __wrap_atom_dir_free_bytes(const char *dir, uint64_t *bytes)
{
    (void)dir;
    *bytes = free_bytes;
    return true;
}

static void note(void *ctx, const char *text)
{
    (void)ctx;
    if (strstr(text, "has room for"))
        snprintf(warned, sizeof warned, "%s", text);
}

/* Opens a run and closes it again; what one of its checkpoints takes. */
static uint64_t look(train_config *c, bool save_nothing)
{
    const train_hooks hooks = {.note = note, .save_nothing = save_nothing};
    trainer *t = NULL;
    warned[0] = 0;
    must(trainer_open(c, &hooks, &t));
    uint64_t each = trainer_checkpoint_bytes(t);
    trainer_close(&t);
    return each;
}

/* So many checkpoints of a run that goes on. */
static void save(train_config *c, int there)
{
    trainer *t = NULL;
    train_summary summary;
    c->max_steps = there;
    c->save_steps = 1;
    c->save_total_limit = 0;
    if (!there)
        return;
    must(trainer_open(c, &(train_hooks){.ctx = NULL}, &t));
    must(trainer_run(t, &summary));
    trainer_close(&t);
}

/* Steps to come, every how many of them are saved, the limit, checkpoints that are there; and how many
 * more there will be at once. */
static void room_for_all_of_them(void **state)
{
    static const struct {
        int64_t steps, every, limit;
        int there;
        uint64_t n;
    } cases[] = {{10, 2, 0, 0, 5}, {10, 3, 0, 0, 4}, {10, 0, 0, 0, 1}, {10, 20, 0, 0, 1},
                 {10, 2, 3, 0, 4}, {4, 2, 3, 0, 2},  {10, 2, 4, 0, 5}, {10, 2, 10, 0, 5},
                 {10, 2, 3, 2, 2}, {10, 2, 3, 3, 1}, {10, 2, 3, 4, 1}, {10, 2, 3, 5, 1}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        scratch place;
        train_config c;
        char words[200];
        little_world(&place);
        little_config(&c, &place, "run");
        set(&c.resume_from_checkpoint, "auto");
        c.eval_steps = 0;
        save(&c, cases[i].there);
        c.max_steps = cases[i].there + cases[i].steps;
        c.save_steps = cases[i].every;
        c.save_total_limit = cases[i].limit;
        free_bytes = UINT64_MAX;
        uint64_t each = look(&c, false);
        assert_string_equal(warned, "");
        free_bytes = cases[i].n * each;
        look(&c, false);
        assert_string_equal(warned, "");
        free_bytes--;
        look(&c, true);
        assert_string_equal(warned, ""); /* nothing is saved */
        look(&c, false);
        snprintf(words, sizeof words, "has room for %" PRIu64 " more checkpoints of ",
                 cases[i].n - 1);
        if (!strstr(warned, words))
            fail_msg("%zu: not %s: %s", i, words, warned);
        snprintf(words, sizeof words, "writes up to %" PRIu64 ": 1 B (1 bytes) are missing; ",
                 cases[i].n);
        if (!strstr(warned, words))
            fail_msg("%zu: not %s: %s", i, words, warned);
        assert_int_equal(strstr(warned, ": all are kept") != NULL, cases[i].limit == 0);
        free_bytes = UINT64_MAX;
        train_config_free(&c);
        scratch_close(&place);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(room_for_all_of_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
