/*
 * A member's memory: what was written is there after any stop, a cut at any byte loses at most the
 * entry that was never acted upon, damage is refused, and nobody is remembered as younger than it
 * was.
 */
#include "atom/base/files.h"
#include "gossip/member/votes.h"
#include "tests/scratch.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { RECORDS = 5 };
static gsp_saved saved;
static gsp_record record[RECORDS];

static void make_content(void)
{
    memset(&saved, 0, sizeof saved);
    saved.genesis.version = 3;
    saved.genesis.founder.incarnation = 9;
    saved.has_certificate = true;
    saved.certificate.proposal.version = 6;
    saved.certificate.proposal.n_parts = 2;
    saved.record.version = 7;
    for (uint32_t i = 0; i < RECORDS; i++) {
        memset(&record[i], 0, sizeof record[i]);
        record[i].version = 7;
        record[i].promised = i + 1;
        record[i].voted = i / 2;
        if (record[i].voted) {
            record[i].proposal.n_parts = i;
            record[i].proposal.tokens = 100 + i;
        }
    }
}

static scratch place[2];

static void must(atom_status st)
{
    if (st != ATOM_OK)
        fail_msg("%s", atom_fail_message());
}

static char *join(const char *dir, const char *name)
{
    char *path = atom_path_join(dir, name);
    assert_non_null(path);
    return path;
}

static void copy_file(const char *from, const char *to, const char *name, uint64_t bytes_max)
{
    char *a = join(from, name), *b = join(to, name), *data;
    uint64_t bytes;
    must(atom_file_read(a, 1 << 24, &data, &bytes));
    FILE *f = fopen(b, "wb");
    bytes = bytes < bytes_max ? bytes : bytes_max;
    assert_true(f && fwrite(data, 1, bytes, f) == bytes && fclose(f) == 0);
    atom_free(data);
    atom_free(a);
    atom_free(b);
}

static uint64_t file_bytes(const char *dir, const char *name)
{
    struct stat s;
    char *path = join(dir, name);
    assert_int_equal(stat(path, &s), 0);
    atom_free(path);
    return (uint64_t)s.st_size;
}

/* A directory with the state and all records; ends[i]: the journal's size after record i. */
static void write_all_records(const char *dir, uint64_t ends[RECORDS])
{
    gsp_votes *v = NULL;
    must(gsp_votes_open(dir, &v));
    assert_null(gsp_votes_saved(v));
    assert_int_not_equal(gsp_votes_record(v, &record[0]), ATOM_OK); /* of what? */
    must(gsp_votes_state(v, &saved, 42));
    for (uint32_t i = 0; i < RECORDS; i++) {
        must(gsp_votes_record(v, &record[i]));
        ends[i] = file_bytes(dir, "votes.1");
    }
    gsp_votes_close(&v);
}

static void all_is_remembered(void **unused)
{
    (void)unused;
    const char *dir = scratch_open(&place[0])->dir;
    uint64_t ends[RECORDS];
    gsp_votes *v = NULL, *second = NULL;
    make_content();
    write_all_records(dir, ends);
    must(gsp_votes_open(dir, &v));
    assert_int_equal(gsp_votes_open(dir, &second), ATOM_E_USAGE);
    assert_int_equal(gsp_votes_incarnation(v), 42);
    assert_memory_equal(&gsp_votes_saved(v)->certificate, &saved.certificate,
                        sizeof saved.certificate);
    assert_memory_equal(&gsp_votes_saved(v)->record, &record[RECORDS - 1], sizeof *record);
    /* A new state takes over the newest record and ends the journal. */
    gsp_saved next = *gsp_votes_saved(v);
    next.certificate.proposal.version = 7;
    must(gsp_votes_state(v, &next, 43));
    uint64_t clock = gsp_votes_clock(v);
    gsp_votes_close(&v);
    must(gsp_votes_open(dir, &v));
    assert_memory_equal(&gsp_votes_saved(v)->record, &record[RECORDS - 1], sizeof *record);
    assert_int_equal(gsp_votes_saved(v)->certificate.proposal.version, 7);
    assert_int_equal(gsp_votes_incarnation(v), 43);
    assert_true(gsp_votes_clock(v) >= clock);
    char *old = join(dir, "votes.1");
    assert_false(atom_path_exists(old));
    atom_free(old);
    gsp_votes_close(&v);
    scratch_close(&place[0]);
}

static void a_cut_journal_keeps_what_was_whole(void **unused)
{
    (void)unused;
    const char *dir = scratch_open(&place[0])->dir, *cut = scratch_open(&place[1])->dir;
    uint64_t ends[RECORDS];
    make_content();
    write_all_records(dir, ends);
    for (uint64_t bytes = 0; bytes <= ends[RECORDS - 1]; bytes++) {
        gsp_votes *v = NULL;
        copy_file(dir, cut, "state", UINT64_MAX);
        copy_file(dir, cut, "votes.1", bytes);
        atom_status st = gsp_votes_open(cut, &v);
        if (bytes < 16) { /* fsynced before the state named it: cannot be torn */
            assert_int_equal(st, ATOM_E_FORMAT);
            continue;
        }
        must(st);
        uint32_t whole = 0;
        while (whole < RECORDS && ends[whole] <= bytes)
            whole++;
        const gsp_record *expected = whole ? &record[whole - 1] : &saved.record;
        assert_memory_equal(&gsp_votes_saved(v)->record, expected, sizeof *expected);
        if (bytes % 29) { /* the rest waits for the disk */
            gsp_votes_close(&v);
            continue;
        }
        /* And it goes on from there. */
        gsp_record more = record[RECORDS - 1];
        more.promised = 99;
        must(gsp_votes_record(v, &more));
        gsp_votes_close(&v);
        must(gsp_votes_open(cut, &v));
        assert_memory_equal(&gsp_votes_saved(v)->record, &more, sizeof more);
        gsp_votes_close(&v);
    }
    scratch_close(&place[0]);
    scratch_close(&place[1]);
}

static void damage(const char *dir, const char *name, uint64_t at)
{
    char *path = join(dir, name);
    FILE *f = fopen(path, "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, (long)at, SEEK_SET), 0);
    int c = fgetc(f);
    assert_int_equal(fseek(f, (long)at, SEEK_SET), 0);
    fputc(c ^ 1, f);
    fclose(f);
    atom_free(path);
}

static void a_damaged_state_is_refused(void **unused)
{
    (void)unused;
    const char *dir = scratch_open(&place[0])->dir, *bad = scratch_open(&place[1])->dir;
    uint64_t ends[RECORDS];
    gsp_votes *v = NULL;
    make_content();
    write_all_records(dir, ends);
    uint64_t size = file_bytes(dir, "state");
    copy_file(dir, bad, "votes.1", UINT64_MAX);
    for (uint64_t at = 0; at < size; at++) {
        copy_file(dir, bad, "state", at); /* cut */
        assert_int_equal(gsp_votes_open(bad, &v), ATOM_E_FORMAT);
        copy_file(dir, bad, "state", UINT64_MAX);
        damage(bad, "state", at);
        assert_int_equal(gsp_votes_open(bad, &v), ATOM_E_FORMAT);
    }
    /* It forgets, and is somebody new. */
    must(gsp_votes_forget(bad));
    must(gsp_votes_open(bad, &v));
    assert_null(gsp_votes_saved(v));
    assert_true(gsp_votes_incarnation(v) > 42);
    gsp_votes_close(&v);
    scratch_close(&place[0]);
    scratch_close(&place[1]);
}

/* What an entry before the last said was acted upon: it may not be lost in silence. */
static void damage_in_the_middle_is_not_a_torn_tail(void **unused)
{
    (void)unused;
    const char *dir = scratch_open(&place[0])->dir, *bad = scratch_open(&place[1])->dir;
    gsp_votes *v = NULL;
    uint64_t ends[RECORDS];
    make_content();
    write_all_records(dir, ends);
    copy_file(dir, bad, "state", UINT64_MAX);
    for (uint64_t at = 0; at < ends[RECORDS - 2]; at++) {
        copy_file(dir, bad, "votes.1", UINT64_MAX);
        damage(bad, "votes.1", at);
        assert_int_equal(gsp_votes_open(bad, &v), ATOM_E_FORMAT);
    }
    scratch_close(&place[0]);
    scratch_close(&place[1]);
}

static void a_long_journal_is_written_anew(void **unused)
{
    (void)unused;
    const char *dir = scratch_open(&place[0])->dir;
    gsp_votes *v = NULL;
    make_content();
    must(gsp_votes_open(dir, &v));
    must(gsp_votes_state(v, &saved, 1));
    gsp_record big = record[RECORDS - 1];
    big.proposal.n_parts = GSP_PARTS_MAX;
    for (uint32_t i = 0; i < 700; i++) { /* 12 KiB each */
        big.promised = i + 10;
        must(gsp_votes_record(v, &big));
    }
    gsp_votes_close(&v);
    must(gsp_votes_open(dir, &v));
    assert_memory_equal(&gsp_votes_saved(v)->record, &big, sizeof big);
    gsp_votes_close(&v);
    scratch_close(&place[0]);
}

static double set_s; /* by how much the calendar was set */
double __real_atom_wall_seconds(void);
double __wrap_atom_wall_seconds(void);
double __wrap_atom_wall_seconds(void)
{
    return __real_atom_wall_seconds() + set_s;
}

/* A member whose calendar is set back is not remembered as younger than it was, in this life or in the next. */
static void a_calendar_may_be_set_back(void **unused)
{
    (void)unused;
    const double day_s = 24 * 3600;
    gsp_votes *v = NULL;
    scratch_open(&place[0]);
    set_s = day_s;
    must(gsp_votes_open(place[0].dir, &v));
    const uint64_t first = gsp_votes_incarnation(v);
    must(gsp_votes_state(v, &saved, first));
    must(gsp_votes_record(v, &record[1]));
    const uint64_t clock = gsp_votes_clock(v);
    set_s = 0;
    assert_true(gsp_votes_clock(v) >= clock);
    must(gsp_votes_record(v, &record[2]));
    gsp_votes_close(&v);
    must(gsp_votes_open(place[0].dir, &v));
    assert_true(gsp_votes_clock(v) >= clock && gsp_votes_incarnation(v) == first);
    gsp_votes_close(&v);
    must(gsp_votes_forget(place[0].dir));
    must(gsp_votes_open(place[0].dir, &v));
    assert_null(gsp_votes_saved(v));
    assert_true(gsp_votes_incarnation(v) > first);
    gsp_votes_close(&v);
    scratch_close(&place[0]);
}

/* After a vote that could not be written there is none: what the disk has of it is not known. */
static void what_failed_once_stays_silent(void **unused)
{
    (void)unused;
    gsp_votes *v = NULL;
    struct rlimit was, little;
    scratch_open(&place[0]);
    must(gsp_votes_open(place[0].dir, &v));
    must(gsp_votes_state(v, &saved, 5));
    must(gsp_votes_record(v, &record[0]));
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    little = was;
    little.rlim_cur = 200; /* there is room for a part of it */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
    atom_status st = gsp_votes_record(v, &record[3]);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    assert_int_not_equal(st, ATOM_OK);
    assert_int_equal(gsp_votes_record(v, &record[4]), ATOM_E_DEAD);
    assert_int_equal(gsp_votes_state(v, &saved, 5), ATOM_E_DEAD);
    gsp_votes_close(&v);
    must(gsp_votes_open(place[0].dir, &v)); /* what was whole is there */
    assert_memory_equal(&gsp_votes_saved(v)->record, &record[0], sizeof record[0]);
    gsp_votes_close(&v);
    scratch_close(&place[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_is_remembered),
        cmocka_unit_test(a_cut_journal_keeps_what_was_whole),
        cmocka_unit_test(a_damaged_state_is_refused),
        cmocka_unit_test(damage_in_the_middle_is_not_a_torn_tail),
        cmocka_unit_test(a_long_journal_is_written_anew),
        cmocka_unit_test(a_calendar_may_be_set_back),
        cmocka_unit_test(what_failed_once_stays_silent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
