/* The state as it stood while updates go on: whoever reads slowly, however little spare memory
 * there is, what is read is of the moment the snapshot began, and updates go on when it is over. */
#include "swap/cow.h"

#include "atom/base/mem.h"
#include "tests/lib/rss.h"
#include "tests/lib/sanitized.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include <cmocka.h>

enum { EXTENT = 40 * 64 + 17, EACH = 64, RANGES = 41, ROUNDS = 60 };

typedef struct world {
    void *parts[SWAP_STATE_N];
    atom_dtype moments;
    swap_cow *cow;
    uint64_t seed;         /* of who reads */
    float expected;        /* what element 0 of the master was */
    bool gives_up, faulty; /* reads half; found something wrong */
    bool releases;
    bool holes; /* every other parameter has no second moments */
} world;

/* With holes: parameters of 50, 51, ... elements, the odd ones matrices. */
enum { PARAMS = 35, SHORTEST = 50 };
static swap_param params[PARAMS];

/* Before there are threads. */
static void fill_params(void)
{
    for (uint32_t p = 1; p < PARAMS; p++) {
        const swap_param *before = &params[p - 1];
        params[p].offset = before->offset + SHORTEST + p - 1;
        params[p].second = before->second + (before->n_matrices ? 0 : SHORTEST + p - 1);
        params[p].n_matrices = p % 2;
    }
}

static const swap_param *params_of(const world *w)
{
    return w->holes ? params : NULL;
}

static uint32_t draw(uint64_t *seed, uint32_t n)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33) % n;
}

static void nap(uint64_t *seed)
{
    uint32_t kind = draw(seed, 8);
    struct timespec t = {0, kind == 0 ? 200000 : 0};
    if (kind < 3)
        nanosleep(&t, NULL);
}

/* Element i of a part after `step` updates: a number that its dtype holds. */
static float value(const world *w, uint32_t part, uint64_t i, float step)
{
    if (swap_state_dtype((swap_state)part, w->moments) == ATOM_BF16)
        return (float)(((uint64_t)step * 3 + part * 17 + i) % 251);
    return step * 3 + (float)part * 1000000 + (float)i;
}

static uint32_t count_of(const world *w)
{
    return w->holes ? PARAMS : 0;
}

static bool in_hole(const world *w, uint64_t i)
{
    return w->holes && params[swap_param_at(params, PARAMS, i)].n_matrices;
}

static void fill(world *w, uint64_t first, uint64_t n, float step)
{
    for (uint32_t part = 0; part < SWAP_STATE_N; part++) {
        for (uint64_t i = first; i < first + n; i++) {
            float x = value(w, part, i, step);
            atom_dtype dtype = swap_state_dtype((swap_state)part, w->moments);
            uint64_t at = part == SWAP_STATE_V ? swap_second_at(params_of(w), count_of(w), i) : i;
            if (part == SWAP_STATE_V && in_hole(w, i))
                continue;
            swap_state_write(dtype, (char *)w->parts[part] + at * atom_dtype_bytes(dtype), &x, 1);
        }
    }
}

static void world_open(world *w, uint64_t spare_bytes)
{
    fill_params();
    swap_cow_config config = {.moments = w->moments,
                              .extent = EXTENT,
                              .params = params_of(w),
                              .n_params = count_of(w),
                              .each = EACH,
                              .spare_bytes = spare_bytes};
    for (uint32_t part = 0; part < SWAP_STATE_N; part++) {
        atom_dtype dtype = swap_state_dtype((swap_state)part, w->moments);
        config.parts[part] = w->parts[part] = malloc(EXTENT * atom_dtype_bytes(dtype));
    }
    assert_int_equal(swap_cow_open(&config, &w->cow), ATOM_OK);
}

static void world_close(world *w)
{
    swap_cow_close(&w->cow);
    for (int part = 0; part < SWAP_STATE_N; part++)
        free(w->parts[part]);
}

static void read_piece(world *w, uint32_t part, uint64_t at, uint64_t n)
{
    float x[EXTENT];
    nap(&w->seed);
    swap_cow_get(w->cow, (swap_state)part, at, n, x);
    for (uint64_t i = 0; i < n; i++)
        w->faulty |= x[i] != value(w, part, at + i, w->expected);
    if (w->releases)
        swap_cow_release(w->cow, (swap_state)part, at, n);
}

/* What of them is not in a hole, which is never asked for; it is released with all. */
static void read_seconds(world *w, uint64_t at, uint64_t n)
{
    for (uint64_t some; n > 0; at += some, n -= some) {
        for (some = 1; some < n && in_hole(w, at + some) == in_hole(w, at); some++)
            ;
        if (!in_hole(w, at))
            read_piece(w, SWAP_STATE_V, at, some);
        else if (w->releases)
            swap_cow_release(w->cow, SWAP_STATE_V, at, some);
    }
}

/* As a checkpoint does: all masters, then both moments side by side. */
static void *reader(void *arg)
{
    world *w = arg;
    uint64_t end = w->gives_up ? EXTENT / 2 : EXTENT;
    for (uint64_t at = 0, n; at < end; at += n) {
        n = 1 + draw(&w->seed, 150);
        n = n < EXTENT - at ? n : EXTENT - at;
        read_piece(w, SWAP_STATE_MASTER, at, n);
    }
    if (!w->releases)
        swap_cow_release_all(w->cow, SWAP_STATE_MASTER);
    for (uint64_t at = 0, n; at < end; at += n) {
        n = 1 + draw(&w->seed, 150);
        n = n < EXTENT - at ? n : EXTENT - at;
        read_piece(w, SWAP_STATE_M, at, n);
        read_seconds(w, at, n);
    }
    swap_cow_end(w->cow);
    return NULL;
}

static void update(world *w, float step, uint64_t *seed)
{
    for (uint64_t at = 0, n; at < EXTENT; at += n) {
        n = 1 + draw(seed, 300);
        n = n < EXTENT - at ? n : EXTENT - at;
        n = swap_cow_before_write(w->cow, at, n);
        fill(w, at, n, step);
    }
}

static void a_snapshot_is_of_its_moment(void **state)
{
    (void)state;
    for (uint32_t round = 0; round < ROUNDS; round++) {
        static const uint32_t slots[] = {0, 1, 5, 30, 3 * RANGES}; /* of floats */
        uint64_t seed = round;
        world w = {.seed = round * 77 + 1,
                   .moments = round % 2 ? ATOM_BF16 : ATOM_F32,
                   .holes = round % 3 == 0};
        world_open(&w, slots[round % 5] * EACH * sizeof(float));
        fill(&w, 0, EXTENT, 0);
        for (uint32_t snapshot = 0; snapshot < 3; snapshot++) {
            pthread_t thread;
            float step = (float)snapshot * 4;
            w.expected = step;
            w.gives_up = draw(&seed, 8) == 0;
            w.releases = draw(&seed, 4) != 0;
            swap_cow_begin(w.cow);
            assert_int_equal(pthread_create(&thread, NULL, reader, &w), 0);
            for (int i = 1; i <= 4; i++)
                update(&w, step + (float)i, &seed);
            pthread_join(thread, NULL);
            assert_false(w.faulty);
            swap_cow_facts facts = swap_cow_about(w.cow);
            assert_true(facts.spare_peak_bytes <= slots[round % 5] * EACH * sizeof(float));
            if (slots[round % 5] == 0)
                assert_int_equal(facts.copied_bytes, 0);
        }
        world_close(&w);
    }
}

/* With room for the state and not a byte more nobody waits: here nobody reads until the updates
 * are over. */
static void nobody_waits(atom_dtype moments)
{
    world w = {.seed = 1, .releases = true, .moments = moments};
    uint64_t seed = 3, bytes = EXTENT * atom_state_bytes(moments);
    world_open(&w, bytes);
    fill(&w, 0, EXTENT, 0);
    swap_cow_begin(w.cow);
    for (int i = 1; i <= 3; i++)
        update(&w, (float)i, &seed);
    swap_cow_facts facts = swap_cow_about(w.cow);
    assert_true(facts.waited_seconds == 0);
    assert_int_equal(facts.copied_bytes, bytes); /* each once */
    assert_int_equal(facts.spare_peak_bytes, bytes);
    reader(&w);
    assert_false(w.faulty);
    assert_int_equal(swap_cow_before_write(w.cow, 5, 1000), 1000); /* no snapshot: all at once */
    world_close(&w);
}

static void enough_spare_memory_waits_for_nobody(void **state)
{
    (void)state;
    nobody_waits(ATOM_F32);
    nobody_waits(ATOM_BF16);
}

static void change(world *w, uint64_t at, uint64_t end)
{
    swap_cow_leave(w->cow, at, end - at);
}

/* What was read and released is not copied, and what was copied gives its memory back: there is
 * room for two ranges of each part, and not a byte more. */
static void nobody_copies(atom_dtype moments)
{
    float x[EXTENT];
    world w = {.seed = 1, .moments = moments};
    const uint64_t two = 2 * EACH * atom_state_bytes(moments);
    world_open(&w, two);
    fill(&w, 0, EXTENT, 0);
    swap_cow_begin(w.cow);
    for (int part = 0; part < SWAP_STATE_N; part++) {
        swap_cow_get(w.cow, (swap_state)part, 0, 10 * EACH, x);
        swap_cow_release(w.cow, (swap_state)part, 0, 10 * EACH);
    }
    change(&w, 0, 12 * EACH);
    assert_int_equal(swap_cow_about(w.cow).copied_bytes, two);
    assert_int_equal(swap_cow_about(w.cow).spare_peak_bytes, two);
    for (int part = 0; part < SWAP_STATE_N; part++)
        swap_cow_release(w.cow, (swap_state)part, 10 * EACH, 2 * EACH);
    change(&w, 12 * EACH, 14 * EACH); /* else this would wait for ever */
    assert_int_equal(swap_cow_about(w.cow).copied_bytes, 2 * two);
    for (int part = 0; part < SWAP_STATE_N; part++)
        swap_cow_release_all(w.cow, (swap_state)part);
    change(&w, 0, EXTENT);
    assert_int_equal(swap_cow_about(w.cow).copied_bytes, 2 * two);
    swap_cow_end(w.cow);
    world_close(&w);
}

static void nobody_copies_what_nobody_needs(void **state)
{
    (void)state;
    nobody_copies(ATOM_F32);
    nobody_copies(ATOM_BF16);
}

/* Copies touch the memory that they are said to take, and no more: the kernel gives it in pages of
 * 2 MiB. */
static void copies_touch_what_they_take(void **state)
{
    (void)state;
    enum { LONG = 1 << 23 };
    const atom_dtype kinds[] = {ATOM_F32, ATOM_BF16};
    for (int k = 0; k < 2 && !SANITIZED; k++) {
        const uint64_t bytes = LONG * atom_state_bytes(kinds[k]);
        char *parts = calloc(SWAP_STATE_N, LONG * sizeof(float));
        assert_non_null(parts);
        swap_cow_config config = {.parts = {parts, parts, parts},
                                  .moments = kinds[k],
                                  .extent = LONG,
                                  .spare_bytes = bytes};
        swap_cow *cow = NULL;
        for (uint64_t i = 0; i < SWAP_STATE_N * LONG * sizeof(float); i += 4096)
            parts[i] = 1; /* the parts are there before */
        assert_int_equal(swap_cow_open(&config, &cow), ATOM_OK);
        uint64_t before = rss_bytes();
        swap_cow_begin(cow);
        swap_cow_leave(cow, 0, LONG);
        uint64_t touched = rss_bytes() - before;
        assert_int_equal(swap_cow_about(cow).spare_peak_bytes, bytes);
        assert_in_range(touched, bytes - (4 << 20), bytes + (4 << 20));
        swap_cow_end(cow);
        swap_cow_close(&cow);
        free(parts);
    }
}

/* --- a reader that is held inside its copy ---------------------------------------------------- */

enum { PAGE = 4096 };

/* The reader's destination is a page that cannot be written: its copy stops at the first byte, in
 * the handler of the fault, until we let it go on. */
static struct {
    char *page;
    _Atomic bool inside, go;
} hold;

static void on_fault(int signal_number, siginfo_t *info, void *context)
{
    (void)context;
    char *at = info->si_addr;
    if (at < hold.page || at >= hold.page + PAGE) {
        signal(signal_number, SIG_DFL); /* a real one */
        return;
    }
    hold.inside = true;
    while (!hold.go)
        nanosleep(&(struct timespec){0, 100000}, NULL);
    mprotect(hold.page, PAGE, PROT_READ | PROT_WRITE);
}

static void *read_into_the_page(void *arg)
{
    world *w = arg;
    swap_cow_get(w->cow, SWAP_STATE_MASTER, 0, EACH, (float *)hold.page);
    return NULL;
}

typedef struct leaver {
    world *w;
    _Atomic bool gone;
} leaver;

static void *leave_and_write(void *arg)
{
    leaver *l = arg;
    swap_cow_leave(l->w->cow, 0, EACH);
    l->gone = true;
    fill(l->w, 0, EACH, 1);
    return NULL;
}

/* There is spare memory, so the update need not wait to copy; it must wait for a copy that a reader
 * began before. */
static void a_reader_inside_its_copy_is_waited_for(void **state)
{
    (void)state;
    pthread_t reads, leaves;
    world w = {.seed = 1, .moments = ATOM_F32};
    leaver l = {.w = &w};
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO}, old;
    hold.inside = hold.go = false;
    hold.page = mmap(NULL, PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(hold.page != MAP_FAILED);
    assert_int_equal(sigaction(SIGSEGV, &action, &old), 0);
    world_open(&w, EXTENT * atom_state_bytes(ATOM_F32));
    fill(&w, 0, EXTENT, 0);
    swap_cow_begin(w.cow);
    assert_int_equal(pthread_create(&reads, NULL, read_into_the_page, &w), 0);
    while (!hold.inside)
        sched_yield();
    assert_int_equal(pthread_create(&leaves, NULL, leave_and_write, &l), 0);
    while (swap_cow_about(w.cow).copied_bytes == 0)
        sched_yield();
    /* An update that does not wait is through at once; one that waits stays for ever. */
    nanosleep(&(struct timespec){0, 50000000}, NULL);
    assert_false(l.gone);
    hold.go = true;
    pthread_join(reads, NULL);
    pthread_join(leaves, NULL);
    assert_true(l.gone);
    for (uint64_t i = 0; i < EACH; i++)
        assert_true(((float *)hold.page)[i] == value(&w, SWAP_STATE_MASTER, i, 0));
    swap_cow_end(w.cow);
    world_close(&w);
    sigaction(SIGSEGV, &old, NULL);
    munmap(hold.page, PAGE);
}

static void memory_that_is_not_there(void **state)
{
    (void)state;
    float x = 0;
    swap_cow_config config = {.parts = {&x, &x, &x}, .extent = 1, .spare_bytes = 4096};
    swap_cow *cow = NULL;
    for (uint64_t n = 1; n < 6; n++) {
        atom_mem_fail_after(n);
        atom_status st = swap_cow_open(&config, &cow);
        atom_mem_fail_after(0);
        if (st == ATOM_OK)
            swap_cow_close(&cow);
        else
            assert_int_equal(st, ATOM_E_RESOURCE);
        assert_null(cow);
    }
    assert_int_equal(swap_cow_each(1), 128); /* where AdamW may begin: KRN_DRAW_ALIGN */
    assert_int_equal(swap_cow_each((uint64_t)1 << 40), 1 << 18);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_snapshot_is_of_its_moment),
        cmocka_unit_test(enough_spare_memory_waits_for_nobody),
        cmocka_unit_test(nobody_copies_what_nobody_needs),
        cmocka_unit_test(copies_touch_what_they_take),
        cmocka_unit_test(a_reader_inside_its_copy_is_waited_for),
        cmocka_unit_test(memory_that_is_not_there),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
