/* Checkpoints: round trip to the bit, the newest whole one wins, a failed save leaves the old
 * ones. */
#include "atom/base/files.h"
#include "atom/base/mem.h"
#include "atom/train/checkpoint.h"
#include "atom/train/init.h"
#include "tests/lib/random_gpt2.h"

#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

typedef struct fixture {
    char dir[64];
    random_gpt2 model;
    graph *g;
    float *vectors; /* master, m, v */
    train_checkpoint c;
} fixture;

static void fixture_open(fixture *f)
{
    memset(f, 0, sizeof *f);
    strcpy(f->dir, "/tmp/atom-checkpoint-XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    f->model = random_gpt2_make(5);
    assert_int_equal(graph_gpt2_build(&f->model.config, ATOM_F32, f->model.B, f->model.T, &f->g),
                     ATOM_OK);
    uint64_t n = f->g->param_extent;
    f->vectors = atom_alloc(3 * n, sizeof(float));
    assert_non_null(f->vectors);
    for (uint64_t i = 0; i < 3; i++)
        train_init_weights(f->g, 7 + i, f->vectors + i * n);
    for (uint64_t i = 2 * n; i < 3 * n; i++)
        f->vectors[i] = fabsf(f->vectors[i]); /* second moments are means of squares */
    f->c = (train_checkpoint){.g = f->g,
                              .config = &f->model.config,
                              .ends = {2, 3},
                              .master = file_vector_memory(f->vectors),
                              .m = file_vector_memory(f->vectors + n),
                              .v = file_vector_memory(f->vectors + 2 * n),
                              .state = {.step = 12,
                                        .samples = 34,
                                        .seed = ~0ull,
                                        .data_contents = 0xfedcba9876543210u,
                                        .loss = 2.5,
                                        .learning_rate = 0.1,
                                        .weight_decay = NAN,
                                        .lr_scheduler = "wsd"}};
}

static void fixture_close(fixture *f)
{
    assert_int_equal(atom_dir_remove(f->dir), ATOM_OK);
    atom_free(f->vectors);
    graph_close(&f->g);
}

static char *save(fixture *f, int64_t step, int64_t limit)
{
    char *path = NULL;
    f->c.state.step = step;
    assert_int_equal(train_checkpoint_save(f->dir, &f->c, limit, &path), ATOM_OK);
    return path;
}

static void round_trip(void **state)
{
    (void)state;
    fixture f;
    fixture_open(&f);
    uint64_t n = f.g->param_extent;
    char *path = save(&f, 12, 0);
    float *back = atom_alloc(3 * n, sizeof(float));
    assert_non_null(back);
    train_checkpoint c = f.c;
    c.master = file_vector_memory(back);
    c.m = file_vector_memory(back + n);
    c.v = file_vector_memory(back + 2 * n);
    memset(&c.state, 0, sizeof c.state);
    assert_int_equal(train_checkpoint_load(path, &c), ATOM_OK);
    assert_memory_equal(back, f.vectors, 3 * n * sizeof(float));
    assert_int_equal(c.state.step, 12);
    assert_int_equal(c.state.samples, 34);
    assert_true(c.state.seed == ~0ull && c.state.data_contents == 0xfedcba9876543210u);
    assert_true(c.state.loss == 2.5 && c.state.learning_rate == 0.1 && isnan(c.state.weight_decay));
    assert_string_equal(c.state.lr_scheduler, "wsd");
    atom_free(back);
    atom_free(path);
    fixture_close(&f);
}

/* model.safetensors holds what transformers should load; what is resumed from is exact. */
static void rounded_weights_resume_exactly(void **state)
{
    (void)state;
    fixture f;
    fixture_open(&f);
    uint64_t n = f.g->param_extent, changed = 0;
    f.c.dtype = ATOM_BF16;
    char *path = save(&f, 12, 0), *config = atom_path_join(path, "config.json"), *text = NULL;
    float *back = atom_alloc(3 * n, sizeof(float));
    assert_non_null(back);
    assert_int_equal(file_weights_read(path, f.g, back), ATOM_OK);
    for (uint64_t i = 0; i < n; i++) {
        assert_true(back[i] == atom_bf16_to_f32(atom_f32_to_bf16(f.vectors[i])));
        changed += back[i] < f.vectors[i] || back[i] > f.vectors[i];
    }
    assert_true(changed > n / 2);
    train_checkpoint c = f.c;
    c.dtype = ATOM_F32; /* what it was saved as is seen from the file */
    c.master = file_vector_memory(back);
    c.m = file_vector_memory(back + n);
    c.v = file_vector_memory(back + 2 * n);
    assert_int_equal(train_checkpoint_load(path, &c), ATOM_OK);
    assert_memory_equal(back, f.vectors, 3 * n * sizeof(float));
    assert_int_equal(atom_file_read(config, 1 << 20, &text, &n), ATOM_OK);
    assert_non_null(strstr(text, "\"torch_dtype\": \"bfloat16\""));
    atom_free(text);
    atom_free(config);
    atom_free(back);
    atom_free(path);
    fixture_close(&f);
}

/* Flips the lowest bit of byte `at` from the end of a file. */
static void flip(const char *dir, const char *name, long at)
{
    char *path = atom_path_join(dir, name);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, -at, SEEK_END), 0);
    int byte = fgetc(f);
    assert_true(byte != EOF && fseek(f, -at, SEEK_END) == 0);
    assert_true(fputc(byte ^ 1, f) != EOF && fclose(f) == 0);
    atom_free(path);
}

static void one_damaged_bit_is_found(void **state)
{
    (void)state;
    static const struct {
        atom_dtype dtype, moments;
        const char *file, *says;
    } cases[] = {{ATOM_F32, ATOM_F32, "model.safetensors", "the model's weights"},
                 {ATOM_F32, ATOM_F32, "optimizer.safetensors", "optimizer.safetensors"},
                 {ATOM_BF16, ATOM_F32, "optimizer.safetensors", "optimizer.safetensors"},
                 {ATOM_F32, ATOM_BF16, "optimizer.safetensors", "optimizer.safetensors"},
                 {ATOM_BF16, ATOM_F32, "model.safetensors", NULL}}; /* nothing is resumed from it */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fixture f;
        fixture_open(&f);
        f.g->moments = cases[i].moments;
        f.c.dtype = cases[i].dtype;
        for (uint64_t k = f.g->param_extent; k < 3 * f.g->param_extent; k++)
            f.vectors[k] = atom_bf16_to_f32(atom_f32_to_bf16(f.vectors[k]));
        char *path = save(&f, 12, 0);
        train_checkpoint c = f.c;
        for (long at = 21; at < 6000; at += 997) {
            flip(path, cases[i].file, at);
            atom_status st = train_checkpoint_load(path, &c);
            assert_int_equal(st, cases[i].says ? ATOM_E_FORMAT : ATOM_OK);
            assert_true(!cases[i].says || (strstr(atom_fail_message(), cases[i].says) &&
                                           strstr(atom_fail_message(), "changed since")));
            flip(path, cases[i].file, at);
            assert_int_equal(train_checkpoint_load(path, &c), ATOM_OK);
        }
        atom_free(path);
        fixture_close(&f);
    }
}

static void newest_whole_one_wins(void **state)
{
    (void)state;
    fixture f;
    char *path = NULL;
    fixture_open(&f);
    assert_int_equal(train_checkpoint_newest(f.dir, &path), ATOM_OK);
    assert_null(path);
    for (int64_t step = 8; step <= 11; step++)
        atom_free(save(&f, step, 2));
    assert_int_equal(train_checkpoint_newest(f.dir, &path), ATOM_OK);
    assert_non_null(strstr(path, "checkpoint-11"));
    /* without our state it is not a checkpoint */
    char *half = atom_path_join(path, "atom_state.json");
    assert_int_equal(unlink(half), 0);
    atom_free(half);
    atom_free(path);
    assert_int_equal(train_checkpoint_newest(f.dir, &path), ATOM_OK);
    assert_non_null(strstr(path, "checkpoint-10"));
    char *gone = atom_path_join(f.dir, "checkpoint-9");
    assert_false(atom_path_exists(gone));
    atom_free(gone);
    atom_free(path);
    fixture_close(&f);
}

static void make_state(const char *dir, const char *name)
{
    char *path = atom_path_join(dir, name), *file = atom_path_join(path, "atom_state.json");
    assert_int_equal(atom_dir_make(path), ATOM_OK);
    assert_int_equal(atom_file_write(file, "{}", 2), ATOM_OK);
    atom_free(file);
    atom_free(path);
}

static bool has_state(const char *dir, const char *name)
{
    char *path = atom_path_join(dir, name), *file = atom_path_join(path, "atom_state.json");
    bool has = atom_path_exists(file);
    atom_free(file);
    atom_free(path);
    return has;
}

/* Copies under other names, and a checkpoint that was moved to another disk and linked. */
static void only_its_own_make_room(void **state)
{
    (void)state;
    static const char *const stay[] = {"checkpoint-08", "checkpoint-99999999999999999999",
                                       "checkpoint-3.old", "moved", "checkpoint-3"};
    fixture f;
    char *path = NULL;
    fixture_open(&f);
    for (int i = 0; i < 4; i++)
        make_state(f.dir, stay[i]);
    char *link = atom_path_join(f.dir, "checkpoint-3");
    assert_int_equal(symlink("moved", link), 0);
    for (int64_t step = 8; step <= 11; step++)
        atom_free(save(&f, step, 2));
    for (int i = 0; i < 5; i++)
        assert_true(has_state(f.dir, stay[i]));
    assert_false(has_state(f.dir, "checkpoint-8"));
    assert_false(has_state(f.dir, "checkpoint-9"));
    assert_true(has_state(f.dir, "checkpoint-10"));
    assert_int_equal(train_checkpoint_count(f.dir), 3);
    assert_int_equal(train_checkpoint_newest(f.dir, &path), ATOM_OK);
    assert_non_null(strstr(path, "checkpoint-11"));
    assert_int_equal(unlink(link), 0);
    atom_free(link);
    atom_free(path);
    fixture_close(&f);
}

/* What a process that was killed has left under temporary names, of whatever step. */
static void an_unfinished_one_goes(void **state)
{
    (void)state;
    static const char *const names[] = {"checkpoint-7.tmp", "checkpoint-12.tmp", "checkpoint-x.tmp",
                                        "mine.tmp"};
    fixture f;
    fixture_open(&f);
    for (int i = 0; i < 4; i++)
        make_state(f.dir, names[i]);
    atom_free(save(&f, 9, 0));
    for (int i = 0; i < 4; i++)
        assert_int_equal(has_state(f.dir, names[i]), i >= 2);
    assert_true(has_state(f.dir, "checkpoint-9"));
    fixture_close(&f);
}

static void full_disk_loses_nothing(void **state)
{
    (void)state;
    fixture f;
    fixture_open(&f);
    char *first = save(&f, 1, 1), *path = NULL;
    struct rlimit old, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small = old;
    small.rlim_cur = 2048;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    f.c.state.step = 2;
    atom_status st = train_checkpoint_save(f.dir, &f.c, 1, &path);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_not_equal(st, ATOM_OK);
    assert_non_null(strstr(atom_fail_message(), "step 2 was not saved"));
    assert_int_equal(train_checkpoint_newest(f.dir, &path), ATOM_OK);
    assert_string_equal(path, first);
    atom_free(path);
    atom_free(first);
    fixture_close(&f);
}

static void survives_want_of_memory(void **state)
{
    (void)state;
    fixture f;
    fixture_open(&f);
    uint64_t before = atom_mem_read().live_blocks;
    for (uint64_t n = 1; n < 400; n += 1 + n / 8) {
        char *path = NULL;
        atom_mem_fail_after(n);
        atom_status st = train_checkpoint_save(f.dir, &f.c, 1, &path);
        atom_mem_fail_after(0);
        assert_true(st == ATOM_OK || path == NULL);
        atom_free(path);
        assert_int_equal(atom_mem_read().live_blocks, before);
    }
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip),
        cmocka_unit_test(rounded_weights_resume_exactly),
        cmocka_unit_test(one_damaged_bit_is_found),
        cmocka_unit_test(newest_whole_one_wins),
        cmocka_unit_test(only_its_own_make_room),
        cmocka_unit_test(an_unfinished_one_goes),
        cmocka_unit_test(full_disk_loses_nothing),
        cmocka_unit_test(survives_want_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
