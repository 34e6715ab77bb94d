/*
 * Writers: every engine leaves the bytes that were put, in a file of exactly that length, whatever
 * the pieces and the window; a disk that fails is told, and stays so.
 */
#include "tests/scratch.h"

#include "atom/base/mem.h"
#include "swap/store_engine.h"
#include "swap/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { BYTES_MAX = 40 * STORE_ALIGN + 99 };

static struct {
    uint64_t seed;
    uint32_t short_percent, again_percent;
    uint64_t bad_from; /* byte of the file that cannot be written; 0: all can */
    int code;
} plan;

static uint32_t draw(void)
{
    plan.seed = plan.seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(plan.seed >> 33) % 100;
}
static atom_status fault_reap(store_queue *q, store_io **done, uint32_t max, uint32_t *n)
{
    atom_status st = store_engine_threads.reap(q, done, max, n);
    for (uint32_t i = 0; st == ATOM_OK && i < *n; i++) {
        store_io *io = done[i];
        if (plan.bad_from && io->offset + io->bytes > plan.bad_from)
            io->result = plan.code ? -plan.code : 100; /* of a block, a part */
        else if (draw() < plan.again_percent)
            io->result = -EINTR;
        else if (draw() < plan.short_percent && io->result > STORE_ALIGN)
            io->result = STORE_ALIGN + 7;
    }
    return st;
}

typedef struct sample {
    scratch s;
    const char *path;
    int fd;
    swap_writer *writer;
    unsigned char bytes[BYTES_MAX], back[BYTES_MAX];
} sample;

/* False: this file system has no direct writes. */
static bool sample_open(sample *f, uint64_t bytes, store_kind kind, uint32_t blocks, uint32_t depth,
                        const store_engine *engine)
{
    f->path = scratch_path(&f->s, "file");
    (void)unlink(f->path);
    f->fd = open(f->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    assert_true(f->fd >= 0);
    swap_file_config c = {.path = f->path,
                          .fd = f->fd,
                          .bytes = bytes,
                          .kind = kind,
                          .chunk_bytes = blocks * STORE_ALIGN,
                          .depth = depth,
                          .engine = engine};
    atom_status st = swap_writer_open(&c, &f->writer);
    assert_true(st == ATOM_OK || st == ATOM_E_UNSUPPORTED);
    if (st != ATOM_OK)
        close(f->fd);
    return st == ATOM_OK;
}

static void sample_close(sample *f)
{
    swap_writer_close(&f->writer);
    close(f->fd);
}

static atom_status put_all(sample *f, uint64_t bytes)
{
    atom_status st = ATOM_OK;
    for (uint64_t at = 0, n; at < bytes && st == ATOM_OK; at += n) {
        n = 1 + (uint64_t)draw() * draw() * 3;
        n = n < bytes - at ? n : bytes - at;
        st = swap_writer_put(f->writer, f->bytes + at, n);
    }
    return st == ATOM_OK ? swap_writer_finish(f->writer) : st;
}

static void check(sample *f, uint64_t bytes)
{
    struct stat info;
    assert_int_equal(fstat(f->fd, &info), 0);
    assert_int_equal(info.st_size, bytes);
    assert_int_equal(pread(f->fd, f->back, BYTES_MAX, 0), bytes);
    assert_memory_equal(f->back, f->bytes, bytes);
}

static int prepare(void **state)
{
    static sample f;
    scratch_open(&f.s);
    for (size_t i = 0; i < BYTES_MAX; i++)
        f.bytes[i] = (unsigned char)(i * 31 + i / 251 + i / 4096 * 7);
    memset(&plan, 0, sizeof plan);
    plan.seed = 5;
    *state = &f;
    return 0;
}

static int clean(void **state)
{
    sample *f = *state;
    scratch_close(&f->s);
    return 0;
}

static void every_engine_leaves_the_bytes(void **state)
{
    sample *f = *state;
    static const uint64_t lengths[] = {0, 1, STORE_ALIGN, 8 * STORE_ALIGN, BYTES_MAX};
    for (int kind = STORE_AUTO; kind < STORE_KIND_N; kind++) {
        if (store_probe((store_kind)kind) != ATOM_OK)
            continue;
        for (uint32_t i = 0; i < 15; i++) {
            uint64_t bytes = lengths[i % 5];
            if (!sample_open(f, bytes, (store_kind)kind, 1 + i % 4, 1 + i % 3, NULL))
                skip();
            assert_int_equal(put_all(f, bytes), ATOM_OK);
            check(f, bytes);
            sample_close(f);
        }
    }
}

static void short_writes_are_continued(void **state)
{
    sample *f = *state;
    store_engine faulty = store_engine_threads;
    faulty.reap = fault_reap;
    for (uint32_t round = 0; round < 60; round++) {
        uint64_t bytes = 1 + (uint64_t)draw() * (BYTES_MAX - 1) / 100;
        plan.short_percent = draw();
        plan.again_percent = draw() / 2;
        if (!sample_open(f, bytes, STORE_AUTO, 1 + draw() % 5, 1 + draw() % 5, &faulty))
            skip();
        assert_int_equal(put_all(f, bytes), ATOM_OK);
        check(f, bytes);
        sample_close(f);
    }
}

static void a_failing_disk_is_told(void **state)
{
    sample *f = *state;
    store_engine faulty = store_engine_threads;
    faulty.reap = fault_reap;
    static const struct {
        int code;
        atom_status expected;
    } cases[] = {{ENOSPC, ATOM_E_RESOURCE}, {EIO, ATOM_E_RUNTIME}, {0, ATOM_E_RESOURCE}};
    for (uint32_t i = 0; i < 9; i++) {
        plan.bad_from = 1 + i % 3 * 13 * STORE_ALIGN;
        plan.code = cases[i / 3].code;
        if (!sample_open(f, BYTES_MAX, STORE_AUTO, 2, 1 + i, &faulty))
            skip();
        assert_int_equal(put_all(f, BYTES_MAX), cases[i / 3].expected);
        assert_non_null(strstr(atom_fail_message(), f->path));
        assert_int_equal(swap_writer_put(f->writer, f->bytes, 0), cases[i / 3].expected);
        sample_close(f);
    }
}

static void no_memory_is_told(void **state)
{
    sample *f = *state;
    for (uint64_t i = 1; i < 30; i++) {
        atom_mem_fail_after(i);
        bool opened = false;
        f->path = scratch_path(&f->s, "file");
        int fd = open(f->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        swap_file_config c = {.path = f->path, .fd = fd, .bytes = 10, .chunk_bytes = STORE_ALIGN};
        atom_status st = swap_writer_open(&c, &f->writer);
        opened = st == ATOM_OK;
        atom_mem_fail_after(0);
        assert_true(opened || st == ATOM_E_RESOURCE || st == ATOM_E_UNSUPPORTED);
        swap_writer_close(&f->writer);
        close(fd);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_engine_leaves_the_bytes, prepare, clean),
        cmocka_unit_test_setup_teardown(short_writes_are_continued, prepare, clean),
        cmocka_unit_test_setup_teardown(a_failing_disk_is_told, prepare, clean),
        cmocka_unit_test_setup_teardown(no_memory_is_told, prepare, clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
