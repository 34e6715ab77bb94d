/*
 * The store: every engine moves the same bytes, disks that fail are told apart and nothing is
 * trusted that is not whole. Faults come from an engine of our own behind the vtable.
 */
#include "tests/scratch.h"

#include "atom/base/files.h"
#include "atom/base/mem.h"
#include "atom/base/rng.h"
#include "swap/store_engine.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { BLOCKS = 96, BYTES = BLOCKS * STORE_ALIGN };

/* --- an engine that does what a test tells it --- */

typedef struct faults {
    uint64_t seed, calls;
    uint32_t short_percent, again_percent;
    uint64_t fail_at; /* the n-th request fails with `code`; 0: none does */
    int code;
} faults;
static faults plan;

static const store_engine *inner(void)
{
    return &store_engine_threads;
}
static uint32_t draw(void)
{
    plan.seed = plan.seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(plan.seed >> 33) % 100;
}
static void fault_submit(store_queue *q, store_io *io)
{
    inner()->submit(q, io);
}
static atom_status fault_flush(store_queue *q)
{
    return inner()->flush(q);
}
static atom_status fault_reap(store_queue *q, store_io **done, uint32_t max, uint32_t *n)
{
    atom_status st = inner()->reap(q, done, max, n);
    for (uint32_t i = 0; st == ATOM_OK && i < *n; i++) {
        if (++plan.calls == plan.fail_at)
            done[i]->result = -plan.code;
        else if (draw() < plan.again_percent)
            done[i]->result = -EINTR;
        else if (draw() < plan.short_percent && done[i]->bytes > STORE_ALIGN)
            done[i]->result = STORE_ALIGN + 7; /* the rest is said not to have moved */
    }
    return st;
}
static atom_status fault_open(const store_queue_config *config, store_queue **out)
{
    return inner()->open(config, out);
}
static void fault_close(store_queue *q)
{
    inner()->close(q);
}
static const store_engine faulty = {.name = "faulty",
                                    .open = fault_open,
                                    .submit = fault_submit,
                                    .flush = fault_flush,
                                    .reap = fault_reap,
                                    .close = fault_close};

/* --- the tests --- */

typedef struct rig {
    scratch dir;
    char *path;
    char *ring; /* 2 * BYTES */
} rig;

static int rig_open(void **state)
{
    rig *r = calloc(1, sizeof *r);
    r->path = atom_path_join(scratch_open(&r->dir)->dir, "state.store");
    r->ring = aligned_alloc(STORE_ALIGN, 2 * BYTES);
    memset(r->ring, 0, 2 * BYTES);
    plan = (faults){.seed = 1};
    *state = r;
    return 0;
}
static int rig_close(void **state)
{
    rig *r = *state;
    atom_free(r->path);
    scratch_close(&r->dir);
    free(r->ring);
    free(r);
    return 0;
}

static store_config config_of(const rig *r, store_kind kind)
{
    return (store_config){.path = r->path,
                          .kind = kind,
                          .create = true,
                          .owner = 77,
                          .bytes = BYTES,
                          .depth = 4,
                          .chunk_bytes = 2 * STORE_ALIGN,
                          .ring = r->ring,
                          .ring_bytes = 2 * BYTES};
}

static void fill(char *p, uint64_t bytes, uint64_t seed)
{
    for (uint64_t i = 0; i < bytes; i += 8) {
        uint64_t x = (seed + i) * 0x9e3779b97f4a7c15u;
        memcpy(p + i, &x, 8);
    }
}

/* Random ranges, several in flight, in both directions; what is read must be what was written. */
static void run_random(rig *r, store_config config, uint64_t seed)
{
    store *s = NULL;
    store_lane *lane = NULL;
    char *shadow = calloc(1, BYTES), *wide = aligned_alloc(STORE_ALIGN, BYTES);
    assert_int_equal(store_open(&config, &s), ATOM_OK);
    assert_int_equal(store_lane_open(s, &lane), ATOM_OK);
    uint64_t ticket = 0;
    memset(r->ring, 0, BYTES);
    assert_int_equal(store_write(lane, r->ring, 0, BYTES, &ticket), ATOM_OK);
    assert_int_equal(store_wait(lane, ticket), ATOM_OK);
    for (int round = 0; round < 40; round++) {
        uint64_t at[4], n[4];
        for (int i = 0; i < 4; i++) { /* four ranges that do not overlap */
            uint64_t quarter = BLOCKS / 4, x = (seed += 0x9e3779b97f4a7c15u) >> 20;
            at[i] = ((uint64_t)i * quarter + x % quarter) * STORE_ALIGN;
            n[i] = (1 + x / 64 % (((uint64_t)i + 1) * quarter - at[i] / STORE_ALIGN)) * STORE_ALIGN;
            fill(r->ring + at[i], n[i], seed);
            memcpy(shadow + at[i], r->ring + at[i], n[i]);
            assert_int_equal(store_write(lane, r->ring + at[i], at[i], n[i], &ticket), ATOM_OK);
        }
        assert_int_equal(store_wait(lane, ticket), ATOM_OK);
        char *to = round % 2 ? wide : r->ring + BYTES; /* outside and inside the ring */
        memset(to, 0xee, BYTES);
        for (int i = 0; i < 4; i++)
            assert_int_equal(store_read(lane, to + at[i], at[i], n[i], &ticket), ATOM_OK);
        assert_int_equal(store_wait(lane, ticket), ATOM_OK);
        for (int i = 0; i < 4; i++)
            assert_memory_equal(to + at[i], shadow + at[i], n[i]);
    }
    assert_int_equal(store_read(lane, wide, 0, BYTES, &ticket), ATOM_OK);
    assert_int_equal(store_wait(lane, ticket), ATOM_OK);
    assert_memory_equal(wide, shadow, BYTES);
    store_lane_close(&lane);
    store_close(&s);
    free(shadow);
    free(wide);
}

static void engines_agree(void **state)
{
    rig *r = *state;
    for (int kind = STORE_AUTO; kind < STORE_KIND_N; kind++) {
        if (store_probe((store_kind)kind) != ATOM_OK) {
            print_message("skipped: %s\n", atom_fail_message());
            continue;
        }
        run_random(r, config_of(r, (store_kind)kind), (uint64_t)kind + 5);
    }
}

static void short_and_interrupted_transfers_go_on(void **state)
{
    rig *r = *state;
    store_config config = config_of(r, STORE_AUTO);
    config.engine = &faulty;
    plan.short_percent = 40;
    plan.again_percent = 20;
    run_random(r, config, 11);
    assert_true(plan.calls > 1000);
}

/* Many ranges submitted before any is waited for: more than a lane keeps. */
static void more_ranges_than_room(void **state)
{
    rig *r = *state;
    store *s = NULL;
    store_lane *lane = NULL;
    store_config config = config_of(r, STORE_AUTO);
    uint64_t ticket = 0;
    assert_int_equal(store_open(&config, &s), ATOM_OK);
    assert_int_equal(store_lane_open(s, &lane), ATOM_OK);
    fill(r->ring, BYTES, 3);
    for (uint64_t b = 0; b < BLOCKS; b++)
        assert_int_equal(
            store_write(lane, r->ring + b * STORE_ALIGN, b * STORE_ALIGN, STORE_ALIGN, &ticket),
            ATOM_OK);
    store_lane_close(&lane); /* without waiting: must collect what is in flight */
    assert_int_equal(store_lane_open(s, &lane), ATOM_OK);
    assert_int_equal(store_read(lane, r->ring + BYTES, 0, STORE_ALIGN, &ticket), ATOM_OK);
    assert_int_equal(store_wait(lane, ticket), ATOM_OK);
    assert_memory_equal(r->ring + BYTES, r->ring, STORE_ALIGN);
    store_lane_close(&lane);
    store_close(&s);
}

static void one_failure(rig *r, bool read, int code, atom_status want, const char *word)
{
    store *s = NULL;
    store_lane *lane = NULL;
    store_config config = config_of(r, STORE_AUTO);
    config.engine = &faulty;
    plan = (faults){.seed = 1, .fail_at = 7, .code = code};
    uint64_t ticket = 0;
    assert_int_equal(store_open(&config, &s), ATOM_OK);
    assert_int_equal(store_lane_open(s, &lane), ATOM_OK);
    assert_int_equal(read ? store_read(lane, r->ring, 0, BYTES, &ticket)
                          : store_write(lane, r->ring, 0, BYTES, &ticket),
                     ATOM_OK);
    assert_int_equal(store_wait(lane, ticket), want);
    assert_non_null(strstr(atom_fail_message(), word));
    assert_non_null(strstr(atom_fail_message(), r->path));
    assert_int_equal(store_wait(lane, ticket), ATOM_E_DEAD);
    assert_int_equal(store_read(lane, r->ring, 0, BYTES, &ticket), ATOM_E_DEAD);
    store_lane_close(&lane);
    store_close(&s);
}

static void failures_are_told_apart(void **state)
{
    one_failure(*state, false, EIO, ATOM_E_RUNTIME, "failed to write");
    one_failure(*state, false, ENOSPC, ATOM_E_RESOURCE, "no room to write");
    one_failure(*state, false, EDQUOT, ATOM_E_RESOURCE, "no room to write");
    one_failure(*state, true, EIO, ATOM_E_RUNTIME, "failed to read");
    one_failure(*state, true, ENODATA, ATOM_E_RUNTIME, "failed to read");
}

static void a_cut_file_is_noticed(void **state)
{
    rig *r = *state;
    store *s = NULL;
    store_lane *lane = NULL;
    store_config config = config_of(r, STORE_AUTO);
    uint64_t ticket = 0;
    assert_int_equal(store_open(&config, &s), ATOM_OK);
    assert_int_equal(store_lane_open(s, &lane), ATOM_OK);
    assert_int_equal(truncate(r->path, 70000), 0);
    assert_int_equal(store_read(lane, r->ring, 0, BYTES, &ticket), ATOM_OK);
    assert_int_equal(store_wait(lane, ticket), ATOM_E_RUNTIME);
    assert_non_null(strstr(atom_fail_message(), "ends before"));
    store_lane_close(&lane);
    store_close(&s);
}

static atom_status try_open(const rig *r, bool create, uint64_t owner, uint64_t bytes)
{
    store *s = NULL;
    store_config config = config_of(r, STORE_AUTO);
    config.create = create;
    config.owner = owner;
    config.bytes = bytes;
    atom_status st = store_open(&config, &s);
    store_close(&s);
    return st;
}

static void foreign_files_are_left_alone(void **state)
{
    rig *r = *state;
    char text[8192] = "a diary";
    assert_int_equal(try_open(r, false, 77, BYTES), ATOM_E_FORMAT);
    assert_non_null(strstr(atom_fail_message(), "gone"));
    int fd = open(r->path, O_CREAT | O_WRONLY, 0600);
    assert_int_equal(write(fd, text, sizeof text), sizeof text);
    close(fd);
    assert_int_equal(try_open(r, true, 77, BYTES), ATOM_E_FORMAT);
    assert_non_null(strstr(atom_fail_message(), "store of atom"));
    struct stat info;
    assert_int_equal(stat(r->path, &info), 0);
    assert_int_equal(info.st_size, sizeof text);
    assert_int_equal(truncate(r->path, 100), 0);
    assert_int_equal(try_open(r, true, 77, BYTES), ATOM_E_FORMAT);
    assert_non_null(strstr(atom_fail_message(), "store of atom"));
    assert_int_equal(unlink(r->path), 0);
    assert_int_equal(try_open(r, true, 77, BYTES), ATOM_OK);
    assert_int_equal(try_open(r, true, 78, BYTES), ATOM_E_FORMAT);
    assert_non_null(strstr(atom_fail_message(), "another run"));
    assert_int_equal(try_open(r, false, 77, 2 * BYTES), ATOM_E_FORMAT);
    assert_int_equal(try_open(r, false, 77, 0), ATOM_OK);
    assert_int_equal(unlink(r->path), 0);
    assert_int_equal(symlink("/etc/hostname", r->path), 0);
    assert_int_not_equal(try_open(r, true, 77, BYTES), ATOM_OK);
}

/* What a run left that died while it made its store. */
static void a_half_made_store_is_made_again(void **state)
{
    rig *r = *state;
    char *made = atom_format("%s.new", r->path);
    int fd = open(made, O_CREAT | O_WRONLY, 0600);
    assert_int_equal(ftruncate(fd, 300000), 0);
    close(fd);
    assert_int_equal(try_open(r, true, 77, BYTES), ATOM_OK);
    assert_false(atom_path_exists(made));
    assert_true(atom_path_exists(r->path));
    atom_free(made);
}

/* The name goes, or comes to be another file's, while the store is in use: told at a commit. */
static void a_lost_name_is_noticed(void **state)
{
    rig *r = *state;
    for (int again = 0; again < 2; again++) {
        store *s = NULL;
        store_config config = config_of(r, STORE_AUTO);
        assert_int_equal(store_open(&config, &s), ATOM_OK);
        assert_int_equal(store_commit(s, 1), ATOM_OK);
        assert_false(store_about(s).lost);
        assert_int_equal(unlink(r->path), 0);
        if (again)
            close(open(r->path, O_CREAT | O_WRONLY, 0600));
        assert_int_equal(store_commit(s, 2), ATOM_OK);
        assert_true(store_about(s).lost);
        store_close(&s);
    }
}

static void one_user_at_a_time(void **state)
{
    rig *r = *state;
    store *s = NULL;
    store_config config = config_of(r, STORE_AUTO);
    assert_int_equal(store_open(&config, &s), ATOM_OK);
    assert_int_equal(try_open(r, true, 77, BYTES), ATOM_E_USAGE);
    assert_non_null(strstr(atom_fail_message(), "another run has this store open"));
    store_close(&s);
    assert_int_equal(try_open(r, true, 77, BYTES), ATOM_OK);
}

static void a_disk_that_is_too_small(void **state)
{
    rig *r = *state;
    assert_int_equal(try_open(r, true, 77, (uint64_t)1 << 50), ATOM_E_RESOURCE);
    assert_false(atom_path_exists(r->path));
    char *made = atom_format("%s.new", r->path);
    assert_false(atom_path_exists(made));
    atom_free(made);
}

/* Where a record cannot be written, the disk's own reason is said, and not that the file was cut. */
static void a_commit_that_fails_says_why(void **state)
{
    rig *r = *state;
    store *s = NULL;
    store_config config = config_of(r, STORE_AUTO);
    struct rlimit usual, low;
    assert_int_equal(store_open(&config, &s), ATOM_OK);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &usual), 0);
    low = (struct rlimit){.rlim_cur = STORE_ALIGN, .rlim_max = usual.rlim_max};
    signal(SIGXFSZ, SIG_IGN); /* so that a write beyond the limit fails with EFBIG */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &low), 0);
    atom_status st = store_commit(s, 1);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &usual), 0);
    signal(SIGXFSZ, SIG_DFL);
    assert_int_equal(st, ATOM_E_RESOURCE);
    assert_non_null(strstr(atom_fail_message(), "no room to write at byte"));
    assert_non_null(strstr(atom_fail_message(), r->path));
    store_close(&s);
}

static uint64_t committed(const rig *r)
{
    store *s = NULL;
    store_config config = config_of(r, STORE_AUTO);
    assert_int_equal(store_open(&config, &s), ATOM_OK);
    uint64_t step = store_about(s).committed;
    store_close(&s);
    return step;
}

/* A torn record leaves the one before it. */
static void commits_survive_torn_records(void **state)
{
    rig *r = *state;
    store *s = NULL;
    store_config config = config_of(r, STORE_AUTO);
    assert_int_equal(committed(r), 0);
    assert_int_equal(store_open(&config, &s), ATOM_OK);
    for (uint64_t step = 1; step <= 5; step++)
        assert_int_equal(store_commit(s, step * 10), ATOM_OK);
    store_close(&s);
    assert_int_equal(committed(r), 50);
    int fd = open(r->path, O_WRONLY);
    for (int byte = 0; byte < 48; byte += 5) { /* the fifth record is in the second block */
        char old, other;
        int rd = open(r->path, O_RDONLY);
        assert_int_equal(pread(rd, &old, 1, 2 * STORE_ALIGN + byte), 1);
        close(rd);
        other = (char)(old ^ 0x41);
        assert_int_equal(pwrite(fd, &other, 1, 2 * STORE_ALIGN + byte), 1);
        if (byte < 40)
            assert_int_equal(committed(r), 40);
        assert_int_equal(pwrite(fd, &old, 1, 2 * STORE_ALIGN + byte), 1);
    }
    close(fd);
    assert_int_equal(committed(r), 50);
}

static void out_of_memory_is_an_error(void **state)
{
    rig *r = *state;
    for (uint64_t n = 1; n < 40; n++) {
        store *s = NULL;
        store_lane *lane = NULL;
        store_config config = config_of(r, STORE_THREADS);
        atom_mem_fail_after(n);
        atom_status st = store_open(&config, &s);
        if (st == ATOM_OK)
            st = store_lane_open(s, &lane);
        atom_mem_fail_after(0);
        store_lane_close(&lane);
        store_close(&s);
        if (st == ATOM_OK)
            return;
        assert_int_equal(st, ATOM_E_RESOURCE);
    }
    fail_msg("never succeeded");
}

/* A file system without O_DIRECT. */
static void memory_files_work(void **state)
{
    rig *r = *state;
    char path[64];
    (void)snprintf(path, sizeof path, "/dev/shm/atom-store-%d", (int)getpid());
    store_config config = config_of(r, STORE_AUTO);
    config.path = path;
    store *s = NULL;
    if (store_open(&config, &s) != ATOM_OK) {
        print_message("skipped: %s\n", atom_fail_message());
        return;
    }
    store_close(&s);
    run_random(r, config, 23);
    unlink(path);
}

#define T(name) cmocka_unit_test_setup_teardown(name, rig_open, rig_close)
int main(void)
{
    const struct CMUnitTest tests[] = {T(engines_agree),
                                       T(short_and_interrupted_transfers_go_on),
                                       T(more_ranges_than_room),
                                       T(failures_are_told_apart),
                                       T(a_cut_file_is_noticed),
                                       T(foreign_files_are_left_alone),
                                       T(a_half_made_store_is_made_again),
                                       T(a_lost_name_is_noticed),
                                       T(one_user_at_a_time),
                                       T(a_disk_that_is_too_small),
                                       T(a_commit_that_fails_says_why),
                                       T(commits_survive_torn_records),
                                       T(out_of_memory_is_an_error),
                                       T(memory_files_work)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
