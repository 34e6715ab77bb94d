/* Small files over a slow line, and a data file that is lost while others are fetched. */
#include "gossip/pool/data.h"
#include "gossip/pool/files.h"
#include "tests/lib/gossip_contact.h"

#include <setjmp.h>
#include <sodium.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

enum { CHUNKS = 6, QUEUE = 256 };
static const uint64_t SECOND = 1000000000u;
static const uint64_t BYTES = (uint64_t)CHUNKS * GSP_WORD_CHUNK_BYTES;
static test_pool P;

/* ---- a line that answers one question every few seconds, in the order in which they came ---- */

typedef struct line {
    gsp_net net;
    uint64_t offset[QUEUE];
    uint32_t begin, end;
} line;

static gsp_net_sent hear(gsp_net *net, const uint8_t *key, gsp_net_channel channel,
                         const void *head, size_t head_bytes, const void *body, size_t body_bytes)
{
    line *l = (line *)net;
    gsp_word m;
    (void)key;
    (void)channel;
    (void)body;
    assert_int_equal(body_bytes, 0);
    assert_true(gsp_word_decode(head, head_bytes, &m));
    assert_int_equal(m.kind, GSP_WORD_ASK_FILE);
    assert_true(l->end < QUEUE);
    l->offset[l->end++] = m.offset;
    return GSP_NET_SENT;
}

static const gsp_net_ops OPS = {.send = hear};

static void a_slow_line_brings_a_file(void **state)
{
    (void)state;
    char directory[] = "/tmp/atom-files-XXXXXX";
    line net = {.net.ops = &OPS};
    gsp_links *links = test_calloc(1, sizeof *links);
    gsp_manifest *manifest = test_calloc(1, sizeof *manifest);
    uint8_t *data = test_calloc(1, BYTES);
    gsp_event_log diary = {.directory = directory};
    gsp_net_event e = {.kind = GSP_NET_UP};
    bool finished = false;
    assert_non_null(mkdtemp(directory));
    for (uint64_t i = 0; i < BYTES; i++)
        data[i] = (uint8_t)(i * 2654435761u >> 24);
    manifest->n_files = 1;
    manifest->file[0].bytes = BYTES;
    snprintf(manifest->file[0].name, sizeof manifest->file[0].name, "config.json");
    crypto_generichash(manifest->file[0].hash.byte, GSP_HASH_BYTES, data, BYTES, NULL, 0);
    links->net = &net.net;
    memset(e.key, 7, sizeof e.key);
    gsp_link *link = gsp_links_add(links, &e);
    gsp_files *files = gsp_files_open(directory, manifest, links, &diary);
    assert_non_null(files);
    test_must(gsp_files_fetch_begin(files, &manifest->file[0]));
    uint64_t now = SECOND;
    uint32_t answers = 0;
    for (; !finished && now < 1000 * SECOND; now += SECOND) {
        gsp_files_step(files, now);
        test_must(gsp_files_fetch_turn(files, &finished));
        /* A chunk takes twenty seconds: longer than a donor may be silent. */
        if (finished || now / SECOND % 20 || net.begin == net.end)
            continue;
        uint64_t at = net.offset[net.begin++];
        gsp_word m = {.kind = GSP_WORD_FILE,
                      .hash = manifest->file[0].hash,
                      .offset = at,
                      .of_bytes = BYTES,
                      .body = data + at,
                      .body_bytes = GSP_WORD_CHUNK_BYTES};
        gsp_files_came(files, link, &m);
        answers++;
    }
    assert_true(finished);
    assert_in_range(answers, CHUNKS, 4 * CHUNKS);
    gsp_files_fetch_end(files);
    gsp_files_close(&files);
    gsp_event_log_close(&diary);
    char command[80];
    snprintf(command, sizeof command, "rm -r %s", directory);
    assert_int_equal(system(command), 0);
    test_free(data);
    test_free(manifest);
    test_free(links);
}

/* A file that was whole when the fetch began is not any more: it is one more to fetch. */
static void a_lost_file_is_fetched_again(void **state)
{
    (void)state;
    char directory[] = "/tmp/atom-files-XXXXXX";
    line net = {.net.ops = &OPS};
    gsp_links *links = test_calloc(1, sizeof *links);
    gsp_manifest *manifest = test_calloc(1, sizeof *manifest);
    gsp_data *data = test_calloc(1, sizeof *data);
    gsp_event_log diary = {.directory = directory};
    bool finished = true;
    assert_non_null(mkdtemp(directory));
    manifest->n_files = 2;
    for (uint32_t i = 0; i < 2; i++) {
        manifest->file[i].bytes = 3 * GSP_PIECE_BYTES;
        manifest->file[i].later = true;
        snprintf(manifest->file[i].name, sizeof manifest->file[i].name, "train_%u.bin", i);
        memset(manifest->file[i].hash.byte, (int)i + 1, GSP_HASH_BYTES);
    }
    links->net = &net.net;
    *data =
        (gsp_data){.directory = directory, .manifest = manifest, .links = links, .diary = &diary};
    test_must(gsp_data_place(data, directory));
    data->whole[1] = true;
    test_must(gsp_data_fetch_begin(data, directory, 6 * GSP_PIECE_BYTES));
    data->whole[1] = false;
    for (uint64_t now = SECOND; now < 10 * SECOND; now += SECOND) {
        test_must(gsp_data_fetch_turn(data, &finished));
        gsp_data_step(data, now);
        assert_false(finished);
    }
    gsp_data_fetch_end(data);
    gsp_data_close(data);
    gsp_event_log_close(&diary);
    char command[80];
    snprintf(command, sizeof command, "rm -r %s", directory);
    assert_int_equal(system(command), 0);
    test_free(data);
    test_free(manifest);
    test_free(links);
}

int main(void)
{
    test_must(gsp_crypto_start());
    test_pool_make(&P, 7);
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_slow_line_brings_a_file),
                                       cmocka_unit_test(a_lost_file_is_fetched_again)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
