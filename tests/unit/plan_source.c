/*
 * How model files are read: through the disk's queues where they lie on the disk, the plain way
 * where they are in memory, small, or where the plan has not counted a window for them; the same
 * bytes.
 */
#include "tests/scratch.h"

#include "atom/plan/source.h"
#include "swap/stream.h"
#include "swap/writer.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

enum { BYTES = PLAN_SOURCE_FILE_MIN + 12345 };

static void large_files_on_disk_stream(void **state)
{
    (void)state;
    scratch s;
    plan_files files = {.kind = STORE_THREADS, .most = SWAP_STREAM_BYTES};
    file_source by_kind = plan_file_source(&files), any = plan_file_source(NULL);
    unsigned char *bytes = malloc(BYTES);
    const void *at = NULL;
    void *reader = NULL;
    uint64_t n;
    assert_non_null(bytes);
    for (uint32_t i = 0; i < BYTES; i++)
        bytes[i] = (unsigned char)(i * 2654435761u >> 24);
    const char *path = scratch_write(scratch_open(&s), "model", bytes, BYTES);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(any.open(any.ctx, path, fd, BYTES, &reader), ATOM_OK);
    assert_null(reader); /* just written: in memory */
    assert_int_equal(fsync(fd), 0);
    assert_int_equal(posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED), 0);
    assert_int_equal(any.open(any.ctx, path, fd, PLAN_SOURCE_FILE_MIN - 1, &reader), ATOM_OK);
    assert_null(reader);
    for (int way = 0; way < 2; way++) {
        const file_source *source = way ? &by_kind : &any;
        assert_int_equal(source->open(source->ctx, path, fd, BYTES, &reader), ATOM_OK);
        if (!reader) { /* a file system in memory */
            print_message("this file system has no disk\n");
            break;
        }
        for (uint64_t i = 7; i < BYTES; i += n) {
            assert_int_equal(source->view(reader, i, BYTES - i, &at, &n), ATOM_OK);
            assert_memory_equal(at, bytes + i, n);
        }
        if (way) { /* no second one at once: that file is read the plain way */
            void *second = NULL;
            assert_int_equal(source->open(source->ctx, path, fd, BYTES, &second), ATOM_OK);
            assert_null(second);
            assert_int_equal(files.now, SWAP_STREAM_BYTES);
        }
        source->close(reader);
        assert_int_equal(files.now, 0);
        assert_int_equal(files.peak, way ? SWAP_STREAM_BYTES : 0);
    }
    close(fd);
    free(bytes);
    scratch_close(&s);
}

static void large_files_are_written_past_the_cache(void **state)
{
    (void)state;
    scratch s;
    plan_files files = {.kind = STORE_AUTO, .most = SWAP_WRITER_BYTES};
    file_sink sink = plan_file_sink(&files);
    unsigned char *bytes = malloc(BYTES), *back = malloc(BYTES);
    void *writer = NULL;
    assert_true(bytes && back);
    for (uint32_t i = 0; i < BYTES; i++)
        bytes[i] = (unsigned char)(i * 2654435761u >> 24);
    const char *path = scratch_path(scratch_open(&s), "model");
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(sink.open(sink.ctx, path, fd, PLAN_SOURCE_FILE_MIN - 1, &writer), ATOM_OK);
    assert_null(writer);
    assert_int_equal(sink.open(sink.ctx, path, fd, BYTES, &writer), ATOM_OK);
    if (writer) {
        assert_int_equal(files.now, SWAP_WRITER_BYTES);
        assert_int_equal(sink.write(writer, bytes, 100), ATOM_OK);
        assert_int_equal(sink.write(writer, bytes + 100, BYTES - 100), ATOM_OK);
        assert_int_equal(sink.finish(writer), ATOM_OK);
        sink.close(writer);
        assert_int_equal(files.now, 0);
        assert_int_equal(lseek(fd, 0, SEEK_END), BYTES);
        assert_int_equal(pread(fd, back, BYTES, 0), BYTES);
        assert_memory_equal(back, bytes, BYTES);
    }
    close(fd);
    free(bytes);
    free(back);
    scratch_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(large_files_on_disk_stream),
                                       cmocka_unit_test(large_files_are_written_past_the_cache)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
