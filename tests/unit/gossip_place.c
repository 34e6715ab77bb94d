/* A download stays in its place: it follows no link, replaces no file that was never the pool's, and
 * is refused before its first byte where it is too large. */
#include "gossip/pool/data.h"
#include "gossip/pool/dir.h"
#include "gossip/pool/files.h"
#include "tests/lib/gossip_contact.h"
#include "tests/scratch.h"

#include <setjmp.h>
#include <sodium.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

static const char PRECIOUS[] = "ssh-ed25519 AAAA volunteer@home\n";

typedef struct place {
    scratch files;
    char *precious; /* a file of somebody else's */
    gsp_manifest *manifest;
    gsp_links *links;
    gsp_event_log diary;
} place;

static void open_place(place *p, const char *name, uint64_t bytes, bool later)
{
    *p = (place){.manifest = test_calloc(1, sizeof *p->manifest),
                 .links = test_calloc(1, sizeof *p->links)};
    scratch_open(&p->files);
    p->precious =
        atom_strdup(scratch_write(&p->files, "authorized_keys", PRECIOUS, sizeof PRECIOUS - 1));
    p->diary.directory = p->files.dir;
    p->manifest->n_files = 1;
    gsp_manifest_file *f = &p->manifest->file[0];
    *f = (gsp_manifest_file){.bytes = bytes, .later = later};
    snprintf(f->name, sizeof f->name, "%s", name);
    memset(f->hash.byte, 7, sizeof f->hash.byte);
}

static void close_place(place *p)
{
    char *text = NULL;
    uint64_t bytes = 0;
    test_must(atom_file_read(p->precious, 1 << 20, &text, &bytes));
    assert_int_equal(bytes, sizeof PRECIOUS - 1);
    assert_memory_equal(text, PRECIOUS, bytes);
    atom_free(text);
    atom_free(p->precious);
    gsp_event_log_close(&p->diary);
    scratch_close(&p->files);
    test_free(p->manifest);
    test_free(p->links);
}

static bool is_there(place *p, const char *name)
{
    return access(scratch_path(&p->files, name), F_OK) == 0;
}

static void no_room(void **state)
{
    (void)state;
    place p;
    open_place(&p, "config.json", (uint64_t)GSP_FILE_BYTES_MAX + 1, false);
    gsp_files *files = gsp_files_open(p.files.dir, p.manifest, p.links, &p.diary);
    assert_non_null(files);
    assert_int_equal(gsp_files_fetch_begin(files, &p.manifest->file[0]), ATOM_E_FORMAT);
    assert_non_null(strstr(atom_fail_message(), "config.json"));
    assert_false(is_there(&p, "files"));
    p.manifest->file[0].bytes = (uint64_t)1 << 53;
    assert_int_equal(gsp_files_fetch_begin(files, &p.manifest->file[0]), ATOM_E_FORMAT);
    assert_int_equal(gsp_dir_room(p.files.dir, (uint64_t)1 << 61, "it"), ATOM_E_RESOURCE);
    test_must(gsp_dir_room(p.files.dir, 1, "it"));
    gsp_files_close(&files);
    close_place(&p);
}

static void a_small_file_follows_no_link(void **state)
{
    (void)state;
    place p;
    open_place(&p, "config.json", 100, false);
    gsp_files *files = gsp_files_open(p.files.dir, p.manifest, p.links, &p.diary);
    assert_non_null(files);
    test_must(gsp_dir_make(p.files.dir, "files"));
    assert_int_equal(symlink(p.precious, scratch_path(&p.files, "files/.config.json.part")), 0);
    assert_int_not_equal(gsp_files_fetch_begin(files, &p.manifest->file[0]), ATOM_OK);
    gsp_files_fetch_end(files);
    gsp_files_close(&files);
    close_place(&p);
}

static void pieces_follow_no_link(void **state)
{
    static const char *const links[] = {".train_0.bin.part", "trees/train_0.bin"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        place p;
        gsp_pieces *pieces = NULL;
        open_place(&p, "train_0.bin", 100, true);
        test_must(gsp_dir_make(p.files.dir, "trees"));
        assert_int_equal(symlink(p.precious, scratch_path(&p.files, links[i])), 0);
        assert_int_not_equal(gsp_pieces_begin(scratch_path(&p.files, links[0]),
                                              scratch_path(&p.files, links[1]), 100,
                                              &p.manifest->file[0].hash, &pieces),
                             ATOM_OK);
        assert_null(pieces);
        close_place(&p);
    }
    /* A tree that is made anew. */
    place p;
    gsp_hash root;
    uint64_t bytes;
    open_place(&p, "train_0.bin", 100, true);
    assert_int_equal(symlink(p.precious, scratch_path(&p.files, "tree.new")), 0);
    assert_int_not_equal(gsp_pieces_make(p.precious, scratch_path(&p.files, "tree"), &bytes, &root),
                         ATOM_OK);
    close_place(&p);
}

/* What lies where a data file would go is replaced only if it is what is left of the pool's. */
static void a_file_in_the_way(void **state)
{
    (void)state;
    place p;
    gsp_pool_data seen = {0};
    open_place(&p, "train_0.bin", 100, true);
    gsp_data *data = test_calloc(1, sizeof *data);
    *data = (gsp_data){
        .directory = p.files.dir, .manifest = p.manifest, .links = p.links, .diary = &p.diary};
    test_must(gsp_data_place(data, p.files.dir));
    test_must(gsp_data_look(data, 0, &seen));
    assert_string_equal(seen.missing, "train_0.bin");
    assert_string_equal(seen.in_the_way, "");
    scratch_write(&p.files, "train_0.bin", PRECIOUS, sizeof PRECIOUS);
    seen = (gsp_pool_data){0};
    test_must(gsp_data_look(data, 0, &seen));
    assert_string_equal(seen.wrong, "train_0.bin");
    assert_string_equal(seen.in_the_way, "train_0.bin");
    /* It came from the pool, and was spoiled since. */
    scratch_write(&p.files, "trees/train_0.bin", "", 0);
    seen = (gsp_pool_data){0};
    test_must(gsp_data_look(data, 0, &seen));
    assert_string_equal(seen.wrong, "train_0.bin");
    assert_string_equal(seen.in_the_way, "");
    gsp_data_close(data);
    test_free(data);
    close_place(&p);
}

int main(void)
{
    test_must(gsp_crypto_start());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_room),
        cmocka_unit_test(a_small_file_follows_no_link),
        cmocka_unit_test(pieces_follow_no_link),
        cmocka_unit_test(a_file_in_the_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
