/*
 * A checkpoint survives a power cut: when its directory gets its name, every file in it and the
 * directory itself are on disk, and the name is on disk before save returns or an old one goes.
 * fsync, rename and unlink are wrapped and note the order in which they are called. One that is saved again
 * is never gone.
 */
#include "atom/base/files.h"
#include "atom/base/mem.h"
#include "atom/train/checkpoint.h"
#include "atom/train/init.h"
#include "tests/lib/random_gpt2.h"
#include "tests/scratch.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <unistd.h>

#include <cmocka.h>

/* What lies at a path now, and when it was last synced; 0: never. */
typedef struct entry {
    char path[1024];
    uint32_t synced, changed; /* changed: a directory, by a rename into it */
} entry;

enum { ENTRIES_MAX = 256 };
static entry entries[ENTRIES_MAX];
static uint32_t n_entries, now;
static uint32_t checked, gone_before_sync; /* directories that got their name; early removals */
static char kept[1024];                    /* a checkpoint of which nothing may go under its name */
static uint32_t torn;
static char parent[1024]; /* of the newest such directory */

static entry *entry_of(const char *path)
{
    for (uint32_t i = 0; i < n_entries; i++)
        if (strcmp(entries[i].path, path) == 0)
            return &entries[i];
    assert_true(n_entries < ENTRIES_MAX);
    snprintf(entries[n_entries].path, sizeof entries[0].path, "%s", path);
    return &entries[n_entries++];
}

static void note_sync(int fd)
{
    char link[64], path[600];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    assert_true(n > 0);
    path[n] = 0;
    entry_of(path)->synced = ++now;
}

/* All that is in a directory, before it gets its name. */
static void check_directory(const char *dir)
{
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));) {
        char path[1024];
        if (e->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
        if (entry_of(path)->synced == 0)
            fail_msg("%s was not synced before the checkpoint got its name", path);
    }
    closedir(d);
    entry *self = entry_of(dir);
    if (self->synced <= self->changed)
        fail_msg("%s was not synced after the last file came into it", dir);
    checked++;
}

static void parent_of(const char *path, char out[1024])
{
    snprintf(out, 1024, "%s", path);
    *strrchr(out, '/') = 0;
}

int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __wrap_fsync(int fd)
{
    note_sync(fd);
    return __real_fsync(fd);
}

int __real_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to);
int __wrap_rename(const char *from, const char *to)
{
    char dir[1024];
    bool is_dir = strstr(from, ".tmp") && !strstr(strrchr(to, '/'), ".");
    if (is_dir)
        check_directory(from);
    uint32_t synced = entry_of(from)->synced;
    entry_of(to)->synced = synced;
    entry_of(from)->synced = 0;
    parent_of(to, dir);
    entry_of(dir)->changed = ++now;
    if (is_dir)
        strcpy(parent, dir);
    return __real_rename(from, to);
}

int __real_renameat2(int at, const char *from, int to_at, const char *to, unsigned flags);
int __wrap_renameat2(int at, const char *from, int to_at, const char *to, unsigned flags);
int __wrap_renameat2(int at, const char *from, int to_at, const char *to, unsigned flags)
{
    if (access(to, F_OK) == 0)
        check_directory(from);
    int done = __real_renameat2(at, from, to_at, to, flags);
    if (done == 0) {
        parent_of(to, parent);
        entry_of(parent)->changed = ++now;
    }
    return done;
}

int __real_unlink(const char *path);
int __wrap_unlink(const char *path);
int __wrap_unlink(const char *path)
{
    torn += kept[0] && strncmp(path, kept, strlen(kept)) == 0 && path[strlen(kept)] == '/';
    if (parent[0]) {
        entry *p = entry_of(parent);
        gone_before_sync += p->synced <= p->changed;
    }
    return __real_unlink(path);
}

static void all_is_on_disk_before_it_has_a_name(void **state)
{
    scratch s;
    graph *g = NULL;
    (void)state;
    scratch_open(&s);
    random_gpt2 model = random_gpt2_make(5);
    assert_int_equal(graph_gpt2_build(&model.config, ATOM_F32, model.B, model.T, &g), ATOM_OK);
    uint64_t n = g->param_extent;
    float *vectors = atom_alloc(3 * n, sizeof(float));
    assert_non_null(vectors);
    train_init_weights(g, 7, vectors);
    train_checkpoint c = {.g = g,
                          .config = &model.config,
                          .ends = {2, 3},
                          .master = file_vector_memory(vectors),
                          .m = file_vector_memory(vectors + n),
                          .v = file_vector_memory(vectors + 2 * n),
                          .pool = "{}"};
    for (int64_t step = 1; step <= 3; step++) {
        char *path = NULL;
        c.state.step = step;
        assert_int_equal(train_checkpoint_save(s.dir, &c, 1, &path), ATOM_OK);
        entry *dir = entry_of(s.dir);
        assert_int_equal(checked, step);
        assert_true(dir->synced > dir->changed); /* the name itself */
        snprintf(kept, sizeof kept, "%s", step == 3 ? path : "");
        atom_free(path);
    }
    char *again = NULL;
    assert_int_equal(train_checkpoint_save(s.dir, &c, 1, &again), ATOM_OK);
    assert_string_equal(again, kept);
    assert_true(atom_path_exists(again) && torn == 0 && checked == 4);
    atom_free(again);
    assert_int_equal(gone_before_sync, 0); /* the old ones stayed that long */
    atom_free(vectors);
    graph_close(&g);
    scratch_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(all_is_on_disk_before_it_has_a_name)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
