/*
 * Streams: every engine gives the bytes of the file, in any order of asking, through windows of any
 * size; what fails, fails where it is asked for.
 */
#include "tests/scratch.h"

#include "atom/base/mem.h"
#include "atom/base/rng.h"
#include "swap/store_engine.h"
#include "swap/stream.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { BYTES = 50 * STORE_ALIGN + 123 };

/* --- an engine whose requests come back short, late and wrong --- */

typedef struct faults {
    uint64_t seed;
    uint32_t short_percent, again_percent;
    uint64_t bad_from, bad_to; /* bytes of the file that cannot be read */
} faults;
static faults plan;

static uint32_t draw(void)
{
    plan.seed = plan.seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(plan.seed >> 33) % 100;
}
static void fault_submit(store_queue *q, store_io *io)
{
    store_engine_threads.submit(q, io);
}
static atom_status fault_flush(store_queue *q)
{
    return store_engine_threads.flush(q);
}
static atom_status fault_reap(store_queue *q, store_io **done, uint32_t max, uint32_t *n)
{
    atom_status st = store_engine_threads.reap(q, done, max, n);
    for (uint32_t i = 0; st == ATOM_OK && i < *n; i++) {
        store_io *io = done[i];
        if (io->offset < plan.bad_to && io->offset + io->bytes > plan.bad_from)
            io->result = -EIO;
        else if (draw() < plan.again_percent)
            io->result = -EINTR;
        else if (draw() < plan.short_percent && io->result > STORE_ALIGN)
            io->result = STORE_ALIGN + 7; /* the rest is said not to have moved */
    }
    return st;
}
static atom_status fault_open(const store_queue_config *config, store_queue **out)
{
    return store_engine_threads.open(config, out);
}
static void fault_close(store_queue *q)
{
    store_engine_threads.close(q);
}
static const store_engine faulty = {.name = "faulty",
                                    .open = fault_open,
                                    .submit = fault_submit,
                                    .flush = fault_flush,
                                    .reap = fault_reap,
                                    .close = fault_close};

/* --- a file --- */

typedef struct sample {
    scratch s;
    const char *path;
    int fd;
    unsigned char bytes[BYTES];
    swap_stream *stream;
} sample;

static void sample_open(sample *f)
{
    scratch_open(&f->s);
    for (size_t i = 0; i < BYTES; i++)
        f->bytes[i] = (unsigned char)(i * 31 + i / 251 + i / 4096 * 7);
    f->path = scratch_path(&f->s, "file");
    f->fd = open(f->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(f->fd >= 0);
    assert_int_equal(write(f->fd, f->bytes, BYTES), BYTES);
    assert_int_equal(fsync(f->fd), 0);
    plan = (faults){.seed = 5};
}

static void sample_close(sample *f)
{
    swap_stream_close(&f->stream);
    close(f->fd);
    scratch_close(&f->s);
}

static void stream_open(sample *f, store_kind kind, uint32_t blocks, uint32_t depth,
                        const store_engine *engine)
{
    swap_file_config c = {.path = f->path,
                          .fd = f->fd,
                          .bytes = BYTES,
                          .kind = kind,
                          .chunk_bytes = blocks * STORE_ALIGN,
                          .depth = depth,
                          .engine = engine};
    swap_stream_close(&f->stream);
    assert_int_equal(swap_stream_open(&c, &f->stream), ATOM_OK);
}

static void check_view(sample *f, uint64_t offset, uint64_t most, uint64_t *n)
{
    const void *at = NULL;
    assert_int_equal(swap_stream_view(f->stream, offset, most, &at, n), ATOM_OK);
    assert_true(*n >= 1 && *n <= most && offset + *n <= BYTES);
    assert_memory_equal(at, f->bytes + offset, *n);
}

static void check_whole(sample *f, uint64_t piece)
{
    uint64_t n;
    for (uint64_t at = 0; at < BYTES; at += n)
        check_view(f, at, piece < BYTES - at ? piece : BYTES - at, &n);
}

static void every_engine_gives_the_bytes(void **state)
{
    (void)state;
    sample f = {0};
    sample_open(&f);
    for (int kind = STORE_AUTO; kind < STORE_KIND_N; kind++) {
        if (store_probe((store_kind)kind) != ATOM_OK)
            continue;
        for (uint32_t depth = 1; depth <= 16; depth = depth * 2 + 1) {
            stream_open(&f, (store_kind)kind, 1 + depth % 3, depth, NULL);
            check_whole(&f, BYTES);
            check_whole(&f, 777);
        }
    }
    sample_close(&f);
}

static void any_order_gives_the_bytes(void **state)
{
    (void)state;
    sample f = {0};
    sample_open(&f);
    for (uint32_t round = 0; round < 60; round++) {
        const store_engine *engine = round % 2 ? &faulty : NULL;
        plan.short_percent = draw();
        plan.again_percent = draw() / 2;
        stream_open(&f, STORE_AUTO, 1 + draw() % 4, 1 + draw() % 9, engine);
        uint64_t at = 0, n;
        for (uint32_t i = 0; i < 60; i++) {
            if (draw() < 30)
                at = (uint64_t)draw() * BYTES / 100;
            check_view(&f, at, 1 + (uint64_t)draw() * 150, &n);
            at = (at + n + (draw() < 20 ? 9000 : 0)) % BYTES;
        }
    }
    sample_close(&f);
}

static void a_bad_place_hurts_nobody_else(void **state)
{
    (void)state;
    sample f = {0};
    const void *at = NULL;
    uint64_t n;
    sample_open(&f);
    plan.bad_from = 20 * STORE_ALIGN;
    plan.bad_to = plan.bad_from + 1;
    stream_open(&f, STORE_AUTO, 2, 16, &faulty);
    for (uint64_t to = 0; to < 20 * STORE_ALIGN; to += n)
        check_view(&f, to, BYTES - to, &n);
    assert_int_equal(swap_stream_view(f.stream, 20 * STORE_ALIGN, 5, &at, &n), ATOM_E_RUNTIME);
    assert_non_null(strstr(atom_fail_message(), f.path));
    check_view(&f, 22 * STORE_ALIGN, 5, &n);
    plan.bad_to = 0; /* it was a moment */
    check_view(&f, 20 * STORE_ALIGN, 5, &n);
    sample_close(&f);
}

static void a_file_that_shrinks_is_told(void **state)
{
    (void)state;
    sample f = {0};
    const void *at = NULL;
    uint64_t n;
    sample_open(&f);
    for (int kind = STORE_AUTO; kind < STORE_KIND_N; kind++) {
        if (store_probe((store_kind)kind) != ATOM_OK)
            continue;
        stream_open(&f, (store_kind)kind, 2, 4, NULL);
        assert_int_equal(ftruncate(f.fd, 10 * STORE_ALIGN + 50), 0);
        assert_int_equal(swap_stream_view(f.stream, 40 * STORE_ALIGN, 5, &at, &n), ATOM_E_FORMAT);
        assert_int_equal(swap_stream_view(f.stream, 10 * STORE_ALIGN, 99, &at, &n), ATOM_E_FORMAT);
        check_view(&f, 0, 5, &n);
        assert_int_equal(pwrite(f.fd, f.bytes, BYTES, 0), BYTES);
        assert_int_equal(fsync(f.fd), 0);
    }
    sample_close(&f);
}

static void another_file_under_the_name_is_not_read(void **state)
{
    (void)state;
    sample f = {0};
    sample_open(&f);
    FILE *other = fopen(scratch_path(&f.s, "other"), "w");
    assert_non_null(other);
    for (int i = 0; i < BYTES; i++)
        fputc('x', other);
    fclose(other);
    f.path = scratch_path(&f.s, "file");
    char *from = atom_strdup(scratch_path(&f.s, "other")),
         *to = atom_strdup(scratch_path(&f.s, "file"));
    assert_int_equal(rename(from, to), 0);
    f.path = to;
    stream_open(&f, STORE_AUTO, 2, 4, NULL);
    assert_false(swap_stream_direct(f.stream));
    check_whole(&f, BYTES);
    sample_close(&f);
    atom_free(from);
    atom_free(to);
}

static void no_memory_is_told(void **state)
{
    (void)state;
    sample f = {0};
    sample_open(&f);
    swap_file_config c = {.path = f.path, .fd = f.fd, .bytes = BYTES};
    for (uint64_t i = 1; i < 40; i++) {
        atom_mem_fail_after(i);
        atom_status st = swap_stream_open(&c, &f.stream);
        atom_mem_fail_after(0);
        assert_true(st == ATOM_OK || st == ATOM_E_RESOURCE || st == ATOM_E_UNSUPPORTED);
        if (st == ATOM_OK)
            check_whole(&f, BYTES);
        swap_stream_close(&f.stream);
    }
    sample_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_engine_gives_the_bytes),
        cmocka_unit_test(any_order_gives_the_bytes),
        cmocka_unit_test(a_bad_place_hurts_nobody_else),
        cmocka_unit_test(a_file_that_shrinks_is_told),
        cmocka_unit_test(another_file_under_the_name_is_not_read),
        cmocka_unit_test(no_memory_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
