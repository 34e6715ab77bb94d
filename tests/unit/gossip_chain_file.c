/*
 * A member's chain on disk (trail_file.h) after everything that can happen to a file: cut short at every
 * byte, a bit turned in every byte, steps in another order, a tail of zeros, another pool's file, another
 * lineage's, too large a file. What is read is the beginning of what was written and nothing else, the
 * member says what is wrong, and members with such files get their chains from others and go on.
 */
#include "gossip/member/node_inner.h"
#include "tests/lib/gossip_cell.h"
#include "tests/lib/gossip_chain.h"

#include <sys/stat.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "tests/lib/said.h"

enum { FILE_BYTES_MAX = 16384, SAID_BYTES_MAX = 4096, MAGIC_BYTES = 8, ENTRY_HEAD_BYTES = 20 };

static scratch place;

/* ---- what goes to stderr ---- */

static char said[SAID_BYTES_MAX];
static const char *what_was_said(void)
{
    char *text = said_end(&place);
    snprintf(said, sizeof said, "%s", text);
    atom_free(text);
    return said;
}

/* ---- a file and what is read of it ---- */

/* A chain with a start, changes of the roster, a fork, and what the fork did. */
static void long_history(gsp_trail *t)
{
    begin();
    history(t, 5);
    gsp_roster four = roster_of(0, 4), three = roster_of(0, 3);
    add(t, link_to(t, 30, &four, 70, 31));
    add(t, fork_of(t, &three, 1));
    gsp_roster two = {.n = 2, .member = {t->end.roster.member[0], t->end.roster.member[1]}};
    add(t, link_to(t, 31, &two, 80, 7));
}

static char *file_of(const gsp_trail *t, uint64_t *bytes)
{
    char *data;
    test_must(gsp_trail_save(t, place.dir, 0));
    test_must(atom_file_read(scratch_path(&place, "chain"), FILE_BYTES_MAX, &data, bytes));
    return data;
}

static void put_file(const void *data, size_t bytes)
{
    scratch_write(&place, "chain", data, bytes);
}

/* What is read is the beginning of `whole`; how many steps. The file holds exactly these afterwards. */
static uint32_t read_beginning(const gsp_trail *whole)
{
    gsp_trail t, again;
    gsp_chain end;
    gsp_trail_open(&t, &terms);
    gsp_trail_open(&again, &terms);
    test_must(gsp_trail_load(&t, place.dir));
    assert_true(t.n <= whole->n);
    for (uint32_t i = 0; i < t.n; i++)
        assert_memory_equal(&t.step[i].id, &whole->step[i].id, sizeof t.step[i].id);
    gsp_trail_lead(whole, t.n, &end);
    assert_memory_equal(&t.end, &end, sizeof end);
    struct stat is;
    assert_int_equal(stat(scratch_path(&place, "chain"), &is), 0);
    assert_int_equal(is.st_size, MAGIC_BYTES + t.bytes + t.n * (size_t)ENTRY_HEAD_BYTES);
    test_must(gsp_trail_load(&again, place.dir));
    assert_int_equal(again.n, t.n);
    uint32_t n = t.n;
    gsp_trail_close(&t);
    gsp_trail_close(&again);
    return n;
}

static void a_torn_file_ends_at_its_last_whole_step(void **unused)
{
    (void)unused;
    gsp_trail t;
    uint64_t bytes, ends = MAGIC_BYTES;
    scratch_open(&place);
    long_history(&t);
    char *data = file_of(&t, &bytes);
    assert_int_equal(read_beginning(&t), t.n);
    said_begin(&place);
    uint32_t n = 0;
    for (uint64_t cut = 0; cut < bytes; cut++) {
        if (n < t.n && cut == ends + ENTRY_HEAD_BYTES + t.step[n].bytes)
            ends += ENTRY_HEAD_BYTES + t.step[n++].bytes;
        put_file(data, cut);
        assert_int_equal(read_beginning(&t), n);
    }
    assert_non_null(strstr(what_was_said(), "bytes are whole steps"));
    atom_free(data);
    gsp_trail_close(&t);
    scratch_close(&place);
}

static void no_turned_bit_is_taken(void **unused)
{
    (void)unused;
    gsp_trail t;
    uint64_t bytes;
    scratch_open(&place);
    long_history(&t);
    char *data = file_of(&t, &bytes);
    said_begin(&place);
    for (uint64_t at = 0; at < bytes; at++) {
        data[at] = (char)(data[at] ^ 1 << at % 8);
        put_file(data, bytes);
        assert_true(read_beginning(&t) < t.n);
        data[at] = (char)(data[at] ^ 1 << at % 8);
    }
    what_was_said();
    atom_free(data);
    gsp_trail_close(&t);
    scratch_close(&place);
}

static void what_is_added_is_cut_off(void **unused)
{
    (void)unused;
    gsp_trail t;
    uint64_t bytes;
    uint8_t all[FILE_BYTES_MAX] = {0};
    scratch_open(&place);
    long_history(&t);
    char *data = file_of(&t, &bytes);
    memcpy(all, data, bytes);
    put_file(all, bytes + 3000); /* zeros, as a file system leaves them */
    said_begin(&place);
    assert_int_equal(read_beginning(&t), t.n);
    memcpy(all + bytes, data + MAGIC_BYTES, bytes - MAGIC_BYTES); /* the same once more */
    put_file(all, 2 * bytes - MAGIC_BYTES);
    assert_int_equal(read_beginning(&t), t.n);
    const char *words = what_was_said();
    assert_non_null(strstr(words, "/chain: "));
    assert_non_null(strstr(words, "bytes are whole steps"));
    atom_free(data);
    gsp_trail_close(&t);
    scratch_close(&place);
}

/* Steps are whole, but not where they were. */
static void steps_keep_their_places(void **unused)
{
    (void)unused;
    gsp_trail t;
    uint64_t bytes;
    uint8_t all[FILE_BYTES_MAX];
    scratch_open(&place);
    long_history(&t);
    char *data = file_of(&t, &bytes);
    uint64_t from[16] = {MAGIC_BYTES};
    for (uint32_t i = 0; i < t.n; i++)
        from[i + 1] = from[i] + ENTRY_HEAD_BYTES + t.step[i].bytes;
    said_begin(&place);
    for (uint32_t i = 0; i < t.n; i++) {
        for (uint32_t k = i + 1; k <= t.n; k++) { /* k before i; k == n: i is left out */
            uint64_t at = from[i], size = k < t.n ? from[k + 1] - from[k] : 0;
            memcpy(all, data, at);
            memcpy(all + at, data + from[k], size);
            uint64_t skip = k < t.n ? from[i] : from[i + 1];
            memcpy(all + at + size, data + skip, bytes - skip);
            put_file(all, at + size + bytes - skip);
            assert_int_equal(read_beginning(&t), i);
        }
    }
    what_was_said();
    atom_free(data);
    gsp_trail_close(&t);
    scratch_close(&place);
}

/* ---- whole files that lead elsewhere ---- */

/* Where a member is that applied the newest link of the trail. */
static gsp_saved saved_at(const gsp_trail *t)
{
    gsp_saved s = {.has_certificate = true};
    gsp_step step;
    uint32_t g = t->n;
    do
        gsp_trail_read(t, --g, &step);
    while (!step.is_genesis);
    s.genesis = step.as.genesis;
    gsp_proposal *p = &s.certificate.proposal;
    *p = (gsp_proposal){.lineage = t->end.lineage,
                        .version = t->end.version,
                        .tokens = t->end.tokens,
                        .next = t->end.roster,
                        .made = t->end.made};
    return s;
}

static void a_file_that_leads_elsewhere_is_not_mine(void **unused)
{
    (void)unused;
    gsp_trail mine, other, t;
    scratch_open(&place);
    long_history(&mine);
    gsp_saved here = saved_at(&mine);
    assert_true(gsp_trail_back(&mine, &here));
    uint32_t n = mine.n;
    assert_true(n > 5);

    gsp_trail_open(&other, &terms); /* the same pool, and another fork of it */
    history(&other, 5);
    gsp_roster four = roster_of(1, 4), pair = roster_of(2, 2);
    add(&other, link_to(&other, 30, &four, 70, 31));
    add(&other, fork_of(&other, &pair, 2));
    test_must(gsp_trail_save(&other, place.dir, 0));
    gsp_trail_open(&t, &terms);
    test_must(gsp_trail_load(&t, place.dir));
    assert_int_equal(t.n, other.n);
    assert_false(gsp_trail_back(&t, &here));
    gsp_trail_close(&t);

    gsp_trail_cut(&other, 3); /* my lineage's, and too short */
    gsp_trail_cut(&mine, n - 1);
    assert_false(gsp_trail_back(&other, &here));
    assert_false(gsp_trail_back(&mine, &here));

    terms.first.byte[0] ^= 1; /* another pool's */
    test_must(gsp_trail_save(&mine, place.dir, 0));
    gsp_trail_open(&t, &terms);
    said_begin(&place);
    test_must(gsp_trail_load(&t, place.dir));
    assert_non_null(strstr(what_was_said(), "/chain: "));
    assert_int_equal(t.n, 0);
    gsp_trail_close(&t);
    gsp_trail_close(&mine);
    gsp_trail_close(&other);
    scratch_close(&place);
}

static void too_large_a_file_is_refused(void **unused)
{
    (void)unused;
    gsp_trail t;
    scratch_open(&place);
    begin();
    put_file("atomchn3", 8);
    assert_int_equal(truncate(scratch_path(&place, "chain"), 2 * (off_t)GSP_TRAIL_BYTES_MAX + 1),
                     0);
    gsp_trail_open(&t, &terms);
    assert_int_equal(gsp_trail_load(&t, place.dir), ATOM_E_FORMAT);
    assert_non_null(strstr(atom_fail_message(), "/chain"));
    gsp_trail_close(&t);
    scratch_close(&place);
}

/* ---- members that wake with such files ---- */

enum { MEMBERS = 3, FLOATS = 5000 };
static cell c;

/* Everybody takes turns until all have applied `versions` more and know their chains. */
static void go_on(uint64_t versions)
{
    uint64_t end = atom_clock_ns() + 60 * 1000000000ull, target[MEMBERS];
    for (unsigned i = 0; i < MEMBERS; i++) {
        gsp_node_read_status(c.member[i].node, &c.member[i].status);
        target[i] = c.member[i].status.applied + versions;
    }
    for (unsigned there = 0; there < MEMBERS;) {
        there = 0;
        for (unsigned i = 0; i < MEMBERS; i++) {
            cell_member *m = &c.member[i];
            gsp_node_report(m->node, MEMBERS, 0);
            test_must(gsp_node_turn(m->node, 200000));
            gsp_node_read_status(m->node, &m->status);
            there += m->status.applied >= target[i] && m->node->trail.end.roster.n == MEMBERS;
        }
        if (atom_clock_ns() >= end) {
            for (unsigned i = 0; i < MEMBERS; i++) {
                char text[200];
                print_message("member %u: %s; applied %llu, steps %u\n", i,
                              gsp_node_explain(c.member[i].node, text, sizeof text),
                              (unsigned long long)c.member[i].status.applied,
                              c.member[i].node->trail.n);
            }
            fail_msg("not in time");
        }
    }
}

static void wake(void)
{
    c.port[0] = c.port[1] = c.port[2] = 0;
    for (unsigned i = 0; i < MEMBERS; i++)
        cell_open_net(&c.member[i]);
    for (unsigned i = 0; i < MEMBERS; i++) {
        cell_open_node(&c.member[i]);
        for (unsigned j = 0; j < MEMBERS; j++) {
            gsp_address at = test_loopback(c.port[j]);
            if (j != i)
                test_must(gsp_net_dial(c.member[i].net, c.pool.member[j].public_key, &at, 1));
        }
    }
}

static void sleep_all(void)
{
    for (unsigned i = 0; i < MEMBERS; i++) {
        gsp_node_close(&c.member[i].node);
        gsp_net_close(&c.member[i].net);
    }
}

typedef enum harm { GONE, EMPTY, TORN, TURNED, STRANGE, HARMS } harm;

static void hurt(const char *path, harm how)
{
    char *data;
    uint64_t bytes;
    test_must(atom_file_read(path, FILE_BYTES_MAX, &data, &bytes));
    data[MAGIC_BYTES + ENTRY_HEAD_BYTES + 40] ^= how == TURNED;
    data[0] = how == STRANGE ? 'A' : data[0];
    bytes = how == EMPTY ? 0 : how == TORN ? bytes - 1 : bytes;
    test_must(atom_file_write(path, data, bytes));
    atom_free(data);
    assert_int_equal(how == GONE ? unlink(path) : 0, 0);
}

static void members_get_their_chains_from_others(void **unused)
{
    (void)unused;
    cell_make(&c, MEMBERS, GSP_CODEC_FP32, FLOATS, 2, 0);
    test_must(gsp_sim_hub_open(&c.hub));
    c.rules.heartbeat_ns = 20000000;
    c.rules.round_ns = c.rules.round_min_ns =
        500000000; /* a ballot that was cut off by sleep ends */
    place = c.place;
    wake();
    go_on(2);
    for (harm how = 0; how < HARMS; how++) {
        unsigned victim = 1 + how % 2;
        uint32_t n = c.member[0].node->trail.n;
        uint64_t reached = c.member[victim].status.applied;
        char name[32];
        assert_true(n > 1); /* who joined is in it */
        snprintf(name, sizeof name, "member%u/chain", victim);
        sleep_all();
        hurt(scratch_path(&c.place, name), how);
        said_begin(&place);
        wake();
        assert_non_null(strstr(what_was_said(), "lost or damaged; it will be fetched from others"));
        assert_int_equal(c.member[victim].node->trail.n, 0);
        assert_int_equal(c.member[0].node->trail.n, n);
        go_on(2);
        gsp_node *node = c.member[victim].node;
        assert_true(node->agree.certified >= reached + 2); /* its memory is as it was */
        assert_int_equal(node->trail.n, n);
        assert_memory_equal(&node->trail.end.lineage, &c.member[0].node->trail.end.lineage,
                            sizeof node->trail.end.lineage);
        gsp_trail t; /* and it is on disk */
        gsp_trail_open(&t, &node->chain_terms);
        snprintf(name, sizeof name, "member%u", victim);
        test_must(gsp_trail_load(&t, scratch_path(&c.place, name)));
        assert_int_equal(t.n, n);
        gsp_trail_close(&t);
    }
    sleep_all();
    cell_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_torn_file_ends_at_its_last_whole_step),
        cmocka_unit_test(no_turned_bit_is_taken),
        cmocka_unit_test(what_is_added_is_cut_off),
        cmocka_unit_test(steps_keep_their_places),
        cmocka_unit_test(a_file_that_leads_elsewhere_is_not_mine),
        cmocka_unit_test(too_large_a_file_is_refused),
        cmocka_unit_test(members_get_their_chains_from_others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
