/* Small files over a slow line, and a data file that is lost while others are fetched. */
#include "gossip/pool/data.h"
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

/* ---- data that comes ---- */

typedef struct asked {
    gsp_net net;
    uint32_t pieces; /* how often for some */
} asked;

static gsp_net_sent hear_pieces(gsp_net *net, const uint8_t *key, gsp_net_channel channel,
                                const void *head, size_t head_bytes, const void *body,
                                size_t body_bytes)
{
    gsp_word m;
    (void)key;
    (void)channel;
    (void)body;
    (void)body_bytes;
    assert_true(gsp_word_decode(head, head_bytes, &m));
    ((asked *)net)->pieces += m.kind == GSP_WORD_ASK_PIECES;
    return GSP_NET_SENT;
}

/* A file of one piece is fetched; the diary says which, and how large it is. */
static void the_diary_names_what_came(void **state)
{
    (void)state;
    static const gsp_net_ops hears = {.send = hear_pieces};
    static const char text[] = "a short file";
    scratch s;
    asked net = {.net.ops = &hears};
    gsp_links *links = test_calloc(1, sizeof *links);
    gsp_manifest *manifest = test_calloc(1, sizeof *manifest);
    gsp_data *data = test_calloc(1, sizeof *data);
    gsp_event_log diary = {.directory = scratch_open(&s)->dir};
    gsp_net_event e = {.kind = GSP_NET_UP};
    gsp_word piece = {.kind = GSP_WORD_PIECE, .body = (const uint8_t *)text};
    gsp_manifest_file *file = &manifest->file[0];
    bool finished = false;
    uint64_t bytes;
    char *source = atom_strdup(scratch_write(&s, "source", text, sizeof text)), *events = NULL;
    *file = (gsp_manifest_file){.name = "train_0.bin", .later = true};
    test_must(gsp_pieces_make(source, scratch_path(&s, "tree"), &file->bytes, &file->hash));
    manifest->n_files = 1;
    links->net = &net.net;
    gsp_link *link = gsp_links_add(links, &e);
    *data = (gsp_data){.directory = s.dir, .manifest = manifest, .links = links, .diary = &diary};
    test_must(gsp_data_place(data, s.dir));
    test_must(gsp_data_fetch_begin(data, s.dir, file->bytes));
    piece.hash = file->hash;
    piece.body_bytes = (uint32_t)file->bytes;
    for (uint64_t now = SECOND; !finished && now < 20 * SECOND; now += SECOND) {
        test_must(gsp_data_fetch_turn(data, &finished));
        gsp_data_step(data, now);
        if (net.pieces)
            gsp_data_came(data, link, &piece);
    }
    assert_true(finished);
    assert_true(data->whole[0]);
    gsp_data_fetch_end(data);
    gsp_data_close(data);
    gsp_event_log_close(&diary);
    test_must(atom_file_read(scratch_path(&s, "events.jsonl"), 1 << 16, &events, &bytes));
    assert_non_null(strstr(events, "\"event\":\"file\",\"name\":\"train_0.bin\",\"bytes\":13}"));
    atom_free(events);
    atom_free(source);
    scratch_close(&s);
    test_free(data);
    test_free(manifest);
    test_free(links);
}

/* ---- a peer that takes and takes ---- */

typedef struct taker {
    gsp_net net;
    uint32_t files, none; /* that it got */
} taker;

static gsp_net_sent take(gsp_net *net, const uint8_t *key, gsp_net_channel channel,
                         const void *head, size_t head_bytes, const void *body, size_t body_bytes)
{
    taker *t = (taker *)net;
    (void)key;
    (void)channel;
    (void)body;
    (void)head_bytes;
    t->files += ((const uint8_t *)head)[2] == GSP_WORD_FILE && body_bytes > 0;
    t->none += ((const uint8_t *)head)[2] == GSP_WORD_NO_PIECE;
    return GSP_NET_SENT;
}

static void a_key_gets_its_share_and_no_more(void **state)
{
    (void)state;
    static const gsp_net_ops takes = {.send = take};
    char directory[] = "/tmp/atom-files-XXXXXX", command[200];
    taker net = {.net.ops = &takes};
    gsp_links *links = test_calloc(1, sizeof *links);
    gsp_manifest *manifest = test_calloc(1, sizeof *manifest);
    gsp_data *data = test_calloc(1, sizeof *data);
    gsp_event_log diary = {.directory = directory};
    gsp_net_event e = {.kind = GSP_NET_UP};
    assert_non_null(mkdtemp(directory));
    snprintf(command, sizeof command,
             "mkdir %s/files; head -c %llu /dev/zero >%s/files/config.json", directory,
             (unsigned long long)BYTES, directory);
    assert_int_equal(system(command), 0);
    manifest->n_files = 2;
    manifest->file[0].bytes = manifest->file[1].bytes = BYTES;
    manifest->file[1].later = true;
    memset(manifest->file[1].hash.byte, 9, GSP_HASH_BYTES);
    snprintf(manifest->file[0].name, sizeof manifest->file[0].name, "config.json");
    links->net = &net.net;
    gsp_link *link = gsp_links_add(links, &e);
    gsp_files *files = gsp_files_open(directory, manifest, links, &diary);
    gsp_word ask = {.kind = GSP_WORD_ASK_FILE, .bytes = GSP_WORD_CHUNK_BYTES};
    uint64_t most = gsp_manifest_gives(manifest);
    assert_true(most >= 8 * BYTES);
    gsp_links_give(links, link->key, most - GSP_WORD_CHUNK_BYTES, most, atom_clock_ns());
    for (uint64_t now = SECOND; now < 10 * SECOND; now += SECOND) {
        gsp_files_asked(files, link, &ask);
        gsp_files_step(files, now);
    }
    assert_int_equal(net.files, 1);
    *data =
        (gsp_data){.directory = directory, .manifest = manifest, .links = links, .diary = &diary};
    data->whole[1] = true;
    ask = (gsp_word){.kind = GSP_WORD_ASK_PIECES, .hash = manifest->file[1].hash, .n_pieces = 1};
    gsp_data_asked(data, link, &ask);
    gsp_data_give(data, atom_clock_ns());
    assert_int_equal(net.none, 1); /* it asks others */
    assert_true(data->whole[1]);   /* and it is still here for them */
    gsp_files_close(&files);
    gsp_data_close(data);
    gsp_event_log_close(&diary);
    snprintf(command, sizeof command, "rm -r %s", directory);
    assert_int_equal(system(command), 0);
    test_free(data);
    test_free(manifest);
    test_free(links);
}

/* ---- several donors, of which one lies or says nothing ---- */

enum { DONORS = 3 };

typedef struct crowd {
    gsp_net net;
    uint64_t offset[DONORS][QUEUE];
    uint32_t begin[DONORS], end[DONORS];
} crowd;

static gsp_net_sent hear_one(gsp_net *net, const uint8_t *key, gsp_net_channel channel,
                             const void *head, size_t head_bytes, const void *body,
                             size_t body_bytes)
{
    crowd *w = (crowd *)net;
    gsp_word m;
    uint32_t i = key[0] - 1u;
    (void)channel;
    (void)body;
    (void)body_bytes;
    assert_true(gsp_word_decode(head, head_bytes, &m));
    assert_true(i < DONORS && w->end[i] < QUEUE);
    w->offset[i][w->end[i]++] = m.offset;
    return GSP_NET_SENT;
}

static void drop_one(gsp_net *net, const uint8_t *key)
{
    (void)net;
    (void)key;
}

static const gsp_net_ops CROWD = {.send = hear_one, .drop = drop_one};

typedef struct market {
    crowd net;
    char directory[40];
    gsp_links *links;
    gsp_link *link[DONORS];
    gsp_manifest *manifest;
    gsp_event_log diary;
    gsp_files *files;
    uint8_t *data;
    uint64_t now;
    uint32_t false_chunk; /* that the liar sends; CHUNKS: none */
    bool silent;          /* the liar answers nothing any more after it lied */
    uint32_t liar, lies;
} market;

static void link_up(market *k, uint32_t i)
{
    gsp_net_event e = {.kind = GSP_NET_UP};
    memset(e.key, (int)i + 1, sizeof e.key);
    k->link[i] = gsp_links_add(k->links, &e);
    assert_non_null(k->link[i]);
}

static void market_open(market *k)
{
    memset(k, 0, sizeof *k);
    snprintf(k->directory, sizeof k->directory, "/tmp/atom-files-XXXXXX");
    assert_non_null(mkdtemp(k->directory));
    k->net.net.ops = &CROWD;
    k->links = test_calloc(1, sizeof *k->links);
    k->manifest = test_calloc(1, sizeof *k->manifest);
    k->data = test_calloc(1, BYTES);
    k->diary = (gsp_event_log){.directory = k->directory};
    k->links->net = &k->net.net;
    k->now = SECOND;
    for (uint64_t i = 0; i < BYTES; i++)
        k->data[i] = (uint8_t)(i * 2654435761u >> 24);
    k->manifest->n_files = 1;
    k->manifest->file[0].bytes = BYTES;
    snprintf(k->manifest->file[0].name, sizeof k->manifest->file[0].name, "config.json");
    crypto_generichash(k->manifest->file[0].hash.byte, GSP_HASH_BYTES, k->data, BYTES, NULL, 0);
    for (uint32_t i = 0; i < DONORS; i++)
        link_up(k, i);
    k->files = gsp_files_open(k->directory, k->manifest, k->links, &k->diary);
    assert_non_null(k->files);
}

static void market_close(market *k)
{
    char command[80];
    gsp_files_close(&k->files);
    gsp_event_log_close(&k->diary);
    snprintf(command, sizeof command, "rm -r %s", k->directory);
    assert_int_equal(system(command), 0);
    test_free(k->data);
    test_free(k->manifest);
    test_free(k->links);
}

static void answer(market *k, uint32_t i)
{
    static uint8_t body[GSP_WORD_CHUNK_BYTES];
    uint64_t at = k->net.offset[i][k->net.begin[i]++ % QUEUE];
    gsp_word m = {.kind = GSP_WORD_FILE,
                  .hash = k->manifest->file[0].hash,
                  .offset = at,
                  .of_bytes = BYTES,
                  .body = body,
                  .body_bytes = GSP_WORD_CHUNK_BYTES};
    memcpy(body, k->data + at, sizeof body);
    if (i == k->liar && at / GSP_WORD_CHUNK_BYTES == k->false_chunk) {
        body[77] ^= 1;
        k->lies++;
    }
    gsp_files_came(k->files, k->link[i], &m);
}

/* Fetches the file; returns how many seconds it took. The liar answers first. */
static uint64_t get(market *k, uint64_t limit_s)
{
    bool finished = false;
    uint64_t from = k->now;
    test_must(gsp_files_fetch_begin(k->files, &k->manifest->file[0]));
    for (; !finished && k->now < from + limit_s * SECOND; k->now += SECOND) {
        gsp_files_step(k->files, k->now);
        for (uint32_t t = 0; t < DONORS; t++) {
            uint32_t i = (t + k->liar) % DONORS;
            while (k->net.begin[i] < k->net.end[i] && !(i == k->liar && k->silent && k->lies))
                answer(k, i);
            k->net.begin[i] = k->net.end[i] = 0;
        }
        gsp_files_step(k->files, k->now);
        test_must(gsp_files_fetch_turn(k->files, &finished));
    }
    assert_true(finished);
    gsp_files_fetch_end(k->files);
    return (k->now - from) / SECOND;
}

static void remove_file(const market *k)
{
    char path[80];
    snprintf(path, sizeof path, "%s/files/config.json", k->directory);
    assert_int_equal(unlink(path), 0);
}

/* Whichever chunk was false: the file comes right in the end, and its sender gives no more of it, not
 * over a new link either. */
static void a_liar_among_donors_is_found(void **state)
{
    (void)state;
    uint32_t found = 0;
    for (uint32_t chunk = 0; chunk < DONORS * CHUNKS; chunk++) {
        market k;
        market_open(&k);
        k.liar = chunk / CHUNKS;
        for (uint32_t i = 0; i < CHUNKS && !k.lies; i++) { /* until it was asked for that one */
            k.false_chunk = chunk % CHUNKS;
            (void)get(&k, 200);
            remove_file(&k);
        }
        if (k.lies) {
            uint32_t before = k.lies;
            gsp_links_end(k.links, k.link[k.liar]);
            link_up(&k, k.liar);
            for (uint32_t i = 0; i < 3; i++) {
                (void)get(&k, 200);
                remove_file(&k);
            }
            assert_int_equal(k.lies, before);
            found++;
        }
        market_close(&k);
    }
    assert_true(found >= CHUNKS);
}

/* A donor that is asked alone and says nothing holds nobody up for ever. */
static void nobody_is_waited_for_alone(void **state)
{
    (void)state;
    market k;
    market_open(&k);
    k.silent = true;
    k.liar = 1;
    for (k.false_chunk = 0; k.false_chunk < CHUNKS && !k.lies; k.false_chunk++) {
        assert_in_range(get(&k, 1000), 1, 400);
        remove_file(&k);
    }
    assert_true(k.lies > 0);
    market_close(&k);
}

int main(void)
{
    test_must(gsp_crypto_start());
    test_pool_make(&P, 7);
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_slow_line_brings_a_file),
                                       cmocka_unit_test(a_lost_file_is_fetched_again),
                                       cmocka_unit_test(the_diary_names_what_came),
                                       cmocka_unit_test(a_key_gets_its_share_and_no_more),
                                       cmocka_unit_test(a_liar_among_donors_is_found),
                                       cmocka_unit_test(nobody_is_waited_for_alone)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
