/* Small files and directories: whole or not at all, links and devices left in peace. */
#include "atom/base/files.h"
#include "atom/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char root[] = "/tmp/atom-base-files-XXXXXX";

static int enter(void **state)
{
    (void)state;
    return mkdtemp(root) && chdir(root) == 0 ? 0 : -1;
}

static int leave(void **state)
{
    (void)state;
    return chdir("/") == 0 && atom_dir_remove(root) == ATOM_OK ? 0 : -1;
}

static void writes_and_reads_back(void **state)
{
    (void)state;
    char *data = NULL;
    uint64_t bytes = 0;
    assert_int_equal(atom_file_write("a", "hello", 5), ATOM_OK);
    assert_int_equal(atom_file_write("a", "hi\0!", 4), ATOM_OK);
    assert_false(atom_path_exists("a.tmp"));
    assert_int_equal(atom_file_read("a", 100, &data, &bytes), ATOM_OK);
    assert_int_equal(bytes, 4);
    assert_memory_equal(data, "hi\0!", 5);
    atom_free(data);
    assert_int_equal(atom_file_write("empty", "", 0), ATOM_OK);
    assert_int_equal(atom_file_read("empty", 0, &data, &bytes), ATOM_OK);
    assert_int_equal(bytes, 0);
    atom_free(data);
}

static void open_files_are_moved_whole_or_say_why(void **state)
{
    (void)state;
    char back[8] = {0};
    int fd = open("range", O_RDWR | O_CREAT | O_TRUNC, 0600), full = open("/dev/full", O_WRONLY);
    assert_true(fd >= 0 && full >= 0);
    assert_int_equal(atom_fd_write(fd, 3, "hello", 5), 0);
    assert_int_equal(atom_fd_read(fd, 4, back, 4), 0);
    assert_string_equal(back, "ello");
    assert_int_equal(atom_fd_read(fd, 0, back, 0), 0);
    errno = 0;
    assert_int_equal(atom_fd_read(fd, 4, back, 5), ENODATA);
    assert_int_equal(errno, ENODATA);
    assert_int_equal(atom_fd_write(full, 0, "x", 1), ENOSPC);
    assert_int_equal(atom_fd_read(full, 0, back, 1), EBADF);
    close(full);
    close(fd);
}

/* Somebody makes room in the disk that `fd` is on, the third time that it is asked for. */
typedef struct maker {
    int fd, into;
    uint64_t bytes;
    uint32_t asked;
    bool gives_up;
} maker;

static bool make_room(void *ctx, int fd, uint64_t bytes)
{
    maker *m = ctx;
    assert_int_equal(fd, m->fd);
    m->bytes = bytes;
    if (++m->asked == 3)
        assert_int_equal(dup2(m->into, m->fd), m->fd);
    return !m->gives_up;
}

static bool give_up(void *ctx, int fd, uint64_t bytes)
{
    (void)ctx;
    (void)fd;
    (void)bytes;
    errno = EPERM; /* of something that it did meanwhile */
    return false;
}

static void a_write_waits_for_room_where_somebody_can(void **state)
{
    (void)state;
    char back[8] = {0};
    int full = open("/dev/full", O_WRONLY);
    int good = open("waited", O_RDWR | O_CREAT | O_TRUNC, 0600);
    maker m = {.fd = full, .into = good};
    assert_true(good >= 0 && full >= 0);
    atom_room_wait_by(make_room, &m);
    assert_int_equal(atom_fd_write(full, 0, "hello", 5), 0);
    assert_int_equal(m.asked, 3);
    assert_int_equal(m.bytes, 5);
    assert_int_equal(atom_fd_read(good, 0, back, 5), 0);
    assert_string_equal(back, "hello");
    /* Who is told to stop fails as if nobody had waited; so does every other error. */
    full = open("/dev/full", O_WRONLY);
    m = (maker){.fd = full, .gives_up = true};
    assert_int_equal(atom_fd_write(full, 0, "x", 1), ENOSPC);
    assert_int_equal(m.asked, 1);
    assert_false(atom_room_waited(EIO, full, 1));
    assert_false(atom_room_waited(EFBIG, full, 1));
    assert_int_equal(m.asked, 1);
    atom_room_wait_by(give_up, NULL);
    assert_int_equal(atom_file_write("/dev/full", "x", 1), ATOM_E_RESOURCE);
    atom_room_wait_by(NULL, NULL);
    assert_int_equal(atom_fd_write(full, 0, "x", 1), ENOSPC);
    assert_int_equal(m.asked, 1);
    close(full);
    close(good);
}

static void room_is_taken_before_anything_is_written(void **state)
{
    (void)state;
    struct rlimit old, small = {4096, 0};
    int fd = open("roomy", O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small.rlim_max = old.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    atom_status fits = atom_fd_room(fd, "out.bin", 4096), st = atom_fd_room(fd, "out.bin", 3 << 20);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(fits, ATOM_OK);
    assert_int_equal(st, ATOM_E_RESOURCE);
    assert_non_null(strstr(atom_fail_message(), "cannot write out.bin"));
    assert_non_null(strstr(atom_fail_message(), "it needs 3.0 MiB"));
    assert_int_equal(atom_fail_write(EIO, "out.bin", 1), ATOM_E_RUNTIME);
    close(fd);
}

static void bad_files_are_format_errors(void **state)
{
    (void)state;
    char *data = (char *)1;
    uint64_t bytes = 7;
    assert_int_equal(atom_file_write("four", "1234", 4), ATOM_OK);
    assert_int_equal(atom_file_read("four", 3, &data, &bytes), ATOM_E_FORMAT);
    assert_int_equal(atom_file_read("missing", 100, &data, &bytes), ATOM_E_FORMAT);
    assert_non_null(strstr(atom_fail_message(), "missing"));
    assert_int_equal(atom_file_read(".", 100, &data, &bytes), ATOM_E_FORMAT);
    assert_ptr_equal(data, (char *)1);
    assert_int_equal(bytes, 7);
}

static void failed_writes_leave_the_old_file(void **state)
{
    (void)state;
    static char big[100000];
    char *data = NULL;
    uint64_t bytes = 0;
    struct rlimit old, small = {4096, 0};
    assert_int_equal(atom_file_write("keep", "old", 3), ATOM_OK);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    small.rlim_max = old.rlim_max;
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    atom_status st = atom_file_write("keep", big, sizeof big);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    assert_int_equal(st, ATOM_E_RESOURCE);
    assert_false(atom_path_exists("keep.tmp"));
    assert_int_equal(atom_file_read("keep", 100, &data, &bytes), ATOM_OK);
    assert_string_equal(data, "old");
    atom_free(data);
    assert_int_equal(atom_file_write("no/such/dir", "x", 1), ATOM_E_RUNTIME);
    assert_int_equal(atom_file_write(root, "x", 1), ATOM_E_USAGE);
}

static void devices_and_links_stay(void **state)
{
    (void)state;
    struct stat info;
    assert_int_equal(atom_file_write("/dev/null", "x", 1), ATOM_OK);
    assert_int_equal(stat("/dev/null", &info), 0);
    assert_true(S_ISCHR(info.st_mode));
    assert_int_equal(atom_file_write("/dev/full", "x", 1), ATOM_E_RESOURCE);
    assert_int_equal(atom_file_write("target", "1", 1), ATOM_OK);
    assert_int_equal(symlink("target", "link"), 0);
    assert_int_equal(atom_file_write("link", "22", 2), ATOM_OK);
    assert_int_equal(lstat("link", &info), 0);
    assert_true(S_ISLNK(info.st_mode));
    assert_int_equal(stat("target", &info), 0);
    assert_int_equal(info.st_size, 2);
}

static void directories(void **state)
{
    (void)state;
    assert_int_equal(atom_dir_make("x/y/z"), ATOM_OK);
    assert_int_equal(atom_dir_make("x/y/z/"), ATOM_OK);
    assert_int_equal(atom_dir_make("/"), ATOM_OK);
    assert_true(atom_path_is_dir("x/y/z"));
    assert_int_equal(atom_dir_make(""), ATOM_E_USAGE);
    assert_int_equal(atom_file_write("x/file", "1", 1), ATOM_OK);
    assert_int_not_equal(atom_dir_make("x/file"), ATOM_OK);
    assert_int_not_equal(atom_dir_make("x/file/deeper"), ATOM_OK);
    assert_int_equal(atom_dir_remove("x"), ATOM_OK);
    assert_false(atom_path_exists("x"));
    assert_int_equal(atom_dir_remove("x"), ATOM_OK);
}

static void removing_does_not_follow_links(void **state)
{
    (void)state;
    assert_int_equal(atom_dir_make("precious"), ATOM_OK);
    assert_int_equal(atom_file_write("precious/file", "1", 1), ATOM_OK);
    assert_int_equal(atom_dir_make("dead"), ATOM_OK);
    assert_int_equal(symlink("../precious", "dead/link"), 0);
    assert_int_equal(symlink("precious", "top"), 0);
    assert_int_equal(atom_dir_remove("dead"), ATOM_OK);
    assert_int_not_equal(atom_dir_remove("top"), ATOM_OK);
    assert_true(atom_path_exists("precious/file"));
}

static void the_cache_is_ours(void **state)
{
    (void)state;
    char *path = NULL;
    char *xdg = atom_path_join(root, "cache/"), *file = atom_path_join(root, "not-a-directory");
    assert_int_equal(atom_file_write("not-a-directory", "", 0), ATOM_OK);
    assert_int_equal(setenv("XDG_CACHE_HOME", file, 1), 0);
    assert_int_not_equal(atom_cache_dir(&path), ATOM_OK);
    assert_non_null(strstr(atom_fail_message(), "XDG_CACHE_HOME"));
    assert_int_equal(setenv("XDG_CACHE_HOME", xdg, 1), 0);
    assert_int_equal(atom_cache_dir(&path), ATOM_OK);
    assert_true(atom_path_is_dir(path));
    assert_int_equal(chmod(path, 0777), 0); /* anybody could plant code there */
    char *again = NULL;
    assert_int_not_equal(atom_cache_dir(&again), ATOM_OK);
    assert_null(again);
    atom_free(path);
    atom_free(file);
    atom_free(xdg);
}

/*
 * A process that holds the lock until the pipe is closed at the other end; then, if `ending`, it is
 * a zombie, and a child that it left behind keeps the lock for two seconds more. Returns its number.
 */
static pid_t hold(const char *dir, bool ending, int *until)
{
    int ready[2], end[2];
    char byte;
    assert_int_equal(pipe(ready), 0);
    assert_int_equal(pipe(end), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int fd = open(dir, O_RDONLY | O_DIRECTORY);
        if (fd < 0 || flock(fd, LOCK_EX | LOCK_NB) < 0)
            _exit(1);
        close(end[1]);
        if (ending && fork() == 0) {
            close(ready[1]);
            sleep(2);
            _exit(0);
        }
        if (write(ready[1], "x", 1) != 1)
            _exit(1);
        _exit(ending || read(end[0], &byte, 1) == 0 ? 0 : 1);
    }
    close(ready[1]);
    close(end[0]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    *until = end[1];
    return pid;
}

static void a_lock_is_waited_for_while_its_holder_ends(void **state)
{
    (void)state;
    int fd, until;
    int64_t holder;
    assert_int_equal(atom_dir_make("locked"), ATOM_OK);
    pid_t pid = hold("locked", false, &until);
    assert_int_equal(atom_dir_lock("locked", &fd, &holder), ATOM_OK);
    assert_int_equal(fd, -1);
    assert_int_equal(holder, pid);
    close(until);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    pid = hold("locked", true, &until);
    assert_int_equal(atom_dir_lock("locked", &fd, &holder), ATOM_OK);
    assert_true(fd >= 0);
    close(fd);
    close(until);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

static void survives_want_of_memory(void **state)
{
    (void)state;
    char *data = NULL;
    uint64_t bytes = 0, before = atom_mem_read().live_blocks;
    for (uint64_t n = 1; n < 8; n++) {
        atom_mem_fail_after(n);
        atom_status write = atom_file_write("oom", "x", 1);
        atom_status read = atom_file_read("oom", 10, &data, &bytes);
        atom_status make = atom_dir_make("oomdir/a");
        atom_status remove = atom_dir_remove("oomdir");
        atom_mem_fail_after(0);
        if (read == ATOM_OK)
            atom_free(data);
        assert_true(write == ATOM_OK || write == ATOM_E_RESOURCE);
        assert_true(make == ATOM_OK || make == ATOM_E_RESOURCE);
        assert_true(remove == ATOM_OK || remove == ATOM_E_RESOURCE);
        assert_int_equal(atom_mem_read().live_blocks, before);
    }
}

/* A temporary is written by one process at a time, and never into a file that it has become. */
static void temporaries_have_one_writer(void **state)
{
    (void)state;
    char *now = NULL;
    int first = -1, second = -1;
    uint64_t bytes;
    assert_int_equal(atom_file_write("t.tmp", "left by a process that was killed", 33), ATOM_OK);
    assert_int_equal(atom_temporary_open("t.tmp", 0, &first), ATOM_OK);
    assert_int_equal(write(first, "one", 3), 3);
    assert_int_equal(atom_temporary_open("t.tmp", 0, &second), ATOM_E_USAGE);
    assert_non_null(strstr(atom_fail_message(), "is being written by another process"));
    assert_int_equal(rename("t.tmp", "t"), 0);
    assert_int_equal(atom_temporary_open("t.tmp", 0, &second), ATOM_OK); /* a file of its own */
    assert_int_equal(write(second, "second", 6), 6);
    close(first);
    close(second);
    assert_int_equal(atom_file_read("t", 99, &now, &bytes), ATOM_OK);
    assert_string_equal(now, "one");
    atom_free(now);
    assert_int_equal(atom_file_write("t", "3", 1), ATOM_OK); /* over what is left */
    assert_int_equal(atom_file_read("t", 99, &now, &bytes), ATOM_OK);
    assert_string_equal(now, "3");
    atom_free(now);
    assert_false(atom_path_exists("t.tmp"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_and_reads_back),
        cmocka_unit_test(bad_files_are_format_errors),
        cmocka_unit_test(failed_writes_leave_the_old_file),
        cmocka_unit_test(devices_and_links_stay),
        cmocka_unit_test(temporaries_have_one_writer),
        cmocka_unit_test(directories),
        cmocka_unit_test(open_files_are_moved_whole_or_say_why),
        cmocka_unit_test(a_write_waits_for_room_where_somebody_can),
        cmocka_unit_test(room_is_taken_before_anything_is_written),
        cmocka_unit_test(removing_does_not_follow_links),
        cmocka_unit_test(the_cache_is_ours),
        cmocka_unit_test(a_lock_is_waited_for_while_its_holder_ends),
        cmocka_unit_test(survives_want_of_memory),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
