/*
 * What a member brought is on disk for those who check, also after a restart, and no older than it
 * must be; how long others had to give what they brought; and that they are asked when they come back.
 */
#include "atom/base/clock.h"
#include "atom/base/mem.h"
#include "gossip/agree/agree.h"
#include "gossip/member/audit_cases.h"
#include "gossip/member/own_inputs.h"
#include "gossip/member/patience.h"
#include "gossip/member/questions.h"
#include "tests/lib/gossip_pool.h"
#include "tests/scratch.h"

#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { PARTS = 6, FLOATS = 5 * GSP_INT8_BLOCK + 100 };

static uint64_t n_floats = FLOATS;
static const gsp_terms TERMS = {.n_parts = PARTS, .n_fragments = 1, .n_floats = &n_floats};

/* My contribution to a version, whole; exact floats are sent as they are. */
static void freeze(gsp_freezing *f, float *x, uint64_t version)
{
    *f = (gsp_freezing){.terms = &TERMS, .done = true, .version = version, .x = x};
    for (uint32_t k = 0; k < FLOATS; k++)
        x[k] = (float)(k % 1000) + (float)version;
    for (uint32_t p = 0; p < PARTS; p++)
        gsp_merkle_leaf(p, (const uint8_t *)x + gsp_terms_offset(&TERMS, version, p),
                        gsp_terms_bytes(&TERMS, version, p), &f->leaf[p]);
    gsp_merkle_root(f->leaf, PARTS, &f->contribution.root);
}

static void write_all(gsp_own_inputs *kept, const gsp_freezing *f)
{
    bool more = true;
    for (uint32_t n = 0; more; n++) {
        test_must(gsp_own_inputs_some(kept, f, &more));
        assert_true(n < PARTS);
    }
}

static bool shows(gsp_own_inputs *kept, const gsp_freezing *f, uint32_t part)
{
    gsp_exhibit e;
    gsp_hash leaf;
    const gsp_hash *root = &f->contribution.root;
    if (!gsp_own_inputs_exhibit(kept, f->version, root, part, &e))
        return false;
    assert_int_equal(e.bytes, gsp_terms_bytes(&TERMS, f->version, part));
    gsp_merkle_leaf(part, e.data, e.bytes, &leaf);
    assert_true(gsp_merkle_check(root, PARTS, part, &leaf, e.path, e.n_path));
    return true;
}

static void a_restart_keeps_what_i_brought(void **state)
{
    (void)state;
    static float x[12][FLOATS];
    static gsp_freezing f[12];
    static gsp_own_inputs kept;
    scratch place;
    scratch_open(&place);
    test_must(gsp_own_inputs_open(&kept, &TERMS, scratch_path(&place, "")));
    for (uint64_t v = 0; v < 12; v++) {
        freeze(&f[v], x[v], v + 1);
        write_all(&kept, &f[v]);
        for (uint32_t p = 0; p < PARTS; p++)
            assert_true(shows(&kept, &f[v], p));
    }
    for (int again = 0; again < 2; again++) {
        for (uint64_t v = 0; v < 12; v++) { /* those that others may still ask for, and no others */
            kept.rests_until_ns = 0;        /* time passes */
            assert_int_equal(shows(&kept, &f[v], (uint32_t)(v % PARTS)), v + GSP_REPLAY_MAX >= 12);
        }
        gsp_hash other = f[11].contribution.root;
        gsp_exhibit e;
        other.byte[0] ^= 1;
        assert_false(gsp_own_inputs_exhibit(&kept, 12, &other, 1, &e));
        assert_false(gsp_own_inputs_exhibit(&kept, 12, &f[11].contribution.root, PARTS, &e));
        gsp_own_inputs_close(&kept);
        test_must(gsp_own_inputs_open(&kept, &TERMS, scratch_path(&place, "")));
    }
    /* What a crash left half written proves nothing; the one after the restart does. */
    bool more;
    static gsp_freezing half;
    freeze(&half, x[0], 13);
    test_must(gsp_own_inputs_some(&kept, &half, &more));
    assert_true(more);
    assert_false(shows(&kept, &half, 0));
    gsp_own_inputs_close(&kept);
    scratch_close(&place);
}

/* ---- how often somebody who asks costs time ---- */

__typeof__(atom_clock_ns) __real_atom_clock_ns, __wrap_atom_clock_ns;
static uint64_t look_ns, clock_ns; /* 0: real; how much passes from one look to the next */

uint64_t __wrap_atom_clock_ns(void)
{
    return look_ns ? (clock_ns += look_ns) : __real_atom_clock_ns();
}

/* How long whoever asks for four versions after a restart, one after the other, waits for the last one. */
static uint64_t waits_for_four(gsp_own_inputs *kept, const gsp_freezing *f)
{
    uint64_t began = clock_ns;
    kept->rests_until_ns = 0;
    memset(kept->tree, 0, sizeof kept->tree);
    for (uint32_t v = 0; v < 4; v++)
        for (uint32_t n = 0; !shows(kept, &f[v], 0); n++)
            assert_true(n < 5000);
    return clock_ns - began;
}

static void four_versions_are_soon_there_after_a_restart(void **state)
{
    (void)state;
    static float x[4][FLOATS];
    static gsp_freezing f[4];
    static gsp_own_inputs kept;
    const uint64_t ms = 1000000;
    scratch place;
    scratch_open(&place);
    test_must(gsp_own_inputs_open(&kept, &TERMS, scratch_path(&place, "")));
    for (uint64_t v = 0; v < 4; v++) {
        freeze(&f[v], x[v], v + 1);
        write_all(&kept, &f[v]);
    }
    look_ns = ms; /* that is how long it takes to make one */
    uint64_t waits = waits_for_four(&kept, f);
    assert_in_range(waits, 3 * 8 * ms, 50 * ms);
    look_ns = 1000 * ms;
    waits = waits_for_four(&kept, f);
    assert_in_range(waits, 3 * 2000 * ms, 16000 * ms);
    look_ns = 0;
    gsp_own_inputs_close(&kept);
    scratch_close(&place);
}

/* A look at which those of the bits have a link, the same all the time. */
static void sees(gsp_patience *p, uint32_t linked, uint64_t now)
{
    uint64_t link[GSP_MEMBERS_MAX] = {0};
    for (uint32_t i = 0; i < GSP_MEMBERS_MAX; i++)
        link[i] = linked >> i & 1 ? i + 1 : 0;
    gsp_patience_look(p, link, now);
}

/* Whoever looks asks those that were not asked yet. */
static void look(gsp_patience *p, uint32_t linked, uint64_t now)
{
    sees(p, linked, now);
    for (uint32_t i = 0; i < GSP_MEMBERS_MAX; i++)
        if (gsp_patience_unasked(p) >> i & 1)
            gsp_patience_asked(p, i);
    assert_int_equal(gsp_patience_unasked(p), 0);
}

static void time_before_a_question_is_nobodys_fault(void **state)
{
    (void)state;
    const uint64_t second = 1000000000u;
    gsp_patience p = {0};
    uint64_t now = 5 * second;
    gsp_patience_asked(&p, 0); /* it has no link: that is lost */
    for (uint32_t k = 0; k < 4; k++)
        sees(&p, 3, now += second);
    assert_int_equal(gsp_patience_unasked(&p), 3);
    assert_int_equal(gsp_patience_late(&p, 1), 0);
    gsp_patience_asked(&p, 0);
    assert_int_equal(gsp_patience_unasked(&p), 2);
    sees(&p, 3, now += second);
    assert_int_equal(gsp_patience_late(&p, second), 1);
    sees(&p, 2, now += second);
    sees(&p, 3, now += second);
    sees(&p, 3, now += second); /* nobody has asked it since it is back */
    assert_int_equal(gsp_patience_unasked(&p), 3);
    assert_int_equal(gsp_patience_late(&p, second), 1); /* the time before counts as ever */
    assert_int_equal(gsp_patience_late(&p, second + 1), 0);
}

static void time_without_a_link_is_nobodys_fault(void **state)
{
    (void)state;
    const uint64_t second = 1000000000u;
    gsp_patience p = {0};
    uint64_t now = 5 * second;
    look(&p, 3, now);
    for (uint32_t k = 0; k < 4; k++)
        look(&p, k % 2 ? 3 : 1, now += second);
    assert_int_equal(gsp_patience_late(&p, 4 * second), 1); /* the other one came and went */
    look(&p, 3, now += second);
    assert_int_equal(gsp_patience_late(&p, second), 3);
    look(&p, 2, now += second); /* who is away now is not late now */
    assert_int_equal(gsp_patience_late(&p, second), 2);
    look(&p, 3, now += 3600 * second); /* this member slept */
    assert_int_equal(gsp_patience_late(&p, 10 * second), 0);
}

/* A link that ended and came back between two looks: its question is lost, so it is asked again, and the time
 * until then does not count. */
static void a_new_link_is_known_by_its_number(void **state)
{
    (void)state;
    const uint64_t second = 1000000000u;
    gsp_patience p = {0};
    uint64_t link[GSP_MEMBERS_MAX] = {7, 8}, now = 5 * second;
    gsp_patience_look(&p, link, now);
    gsp_patience_asked(&p, 0);
    gsp_patience_asked(&p, 1);
    gsp_patience_look(&p, link, now += second);
    link[1] = 9;
    gsp_patience_look(&p, link, now += second);
    assert_int_equal(gsp_patience_unasked(&p), 2);
    gsp_patience_look(&p, link, now += second);
    assert_int_equal(gsp_patience_unasked(&p), 2);
    assert_int_equal(gsp_patience_late(&p, 3 * second), 1);
    assert_int_equal(gsp_patience_late(&p, second), 3); /* the time over the old link stays */
    assert_int_equal(gsp_patience_late(&p, second + 1), 1);
    gsp_patience_asked(&p, 1);
    gsp_patience_look(&p, link, now += second);
    assert_int_equal(gsp_patience_late(&p, 2 * second), 3);
}

/* Slow is not silent: each piece begins its maker's time anew, and none does so twice. */
static void a_piece_is_an_answer(void **state)
{
    (void)state;
    const uint64_t second = 1000000000u;
    gsp_patience p = {0};
    uint64_t now = 5 * second;
    look(&p, 3, now);
    for (uint32_t k = 0; k < 20; k++) {
        look(&p, 3, now += second);
        if (k % 3 == 2)
            assert_true(gsp_patience_piece(&p, 1, k / 3));
        assert_int_equal(gsp_patience_late(&p, 4 * second), k >= 3 ? 1 : 0);
    }
    for (uint32_t k = 0; k < 3; k++) {
        look(&p, 3, now += second);
        assert_false(gsp_patience_piece(&p, 1, k)); /* it gave that one before */
    }
    assert_int_equal(gsp_patience_late(&p, 4 * second), 3);
    gsp_named named = {.roster = {.n = 2}, .n_contributors = 2};
    named.contributor[1].member = 1;
    named.roster.member[1].key.byte[0] = 7;
    gsp_message m = {.kind = GSP_PIECE, .as.piece.sequence = 60};
    assert_false(gsp_questions_answered(&p, &named, 1, &m)); /* somebody else's piece */
    m.from.key.byte[0] = 7;
    assert_true(gsp_questions_answered(&p, &named, 1, &m));
    assert_int_equal(gsp_patience_late(&p, 4 * second), 1);
}

/* ---- whom those ask who lack something ---- */

__typeof__(gsp_friends_find) __wrap_gsp_friends_find;
__typeof__(gsp_friends_draft) __wrap_gsp_friends_draft;
__typeof__(gsp_friends_tell) __wrap_gsp_friends_tell;
__typeof__(gsp_withheld_find) __wrap_gsp_withheld_find;

/* Member i made contribution i. */
static struct {
    gsp_named named;
    gsp_friend friend[2];
    bool linked[2];
    uint32_t n_asked[2];
} others;

gsp_friend *__wrap_gsp_friends_find(gsp_friends *friends, const gsp_key *key)
{
    (void)friends;
    return others.linked[key->byte[0]] ? &others.friend[key->byte[0]] : NULL;
}

gsp_message *__wrap_gsp_friends_draft(gsp_friends *friends, gsp_message_kind kind)
{
    static gsp_message message;
    (void)friends;
    message.kind = kind;
    return &message;
}

size_t __wrap_gsp_friends_tell(gsp_friends *friends, gsp_friend *to, const gsp_message *message)
{
    (void)friends;
    others.n_asked[to - others.friend] += message->kind == GSP_PULL;
    return 1;
}

const gsp_named *__wrap_gsp_withheld_find(const gsp_agree *agree, uint64_t version)
{
    (void)agree;
    return version == others.named.version ? &others.named : NULL;
}

static void open_others(void)
{
    memset(&others, 0, sizeof others);
    others.named.version = 7;
    others.named.n_contributors = others.named.roster.n = 2;
    for (uint32_t i = 0; i < 2; i++) {
        others.named.contributor[i].member = (uint8_t)i;
        others.named.contributor[i].root.byte[0] = (uint8_t)(i + 1);
        others.named.roster.member[i].key.byte[0] = others.friend[i].key.byte[0] = (uint8_t)i;
        others.friend[i].link = i + 1;
    }
}

static gsp_friends friends;
static gsp_agree agree;
static gsp_questions lacked;

/* Member i has not been silent, or has been for long. */
static void hear(uint32_t i, bool heard)
{
    agree.now_ns = 9000000000u;
    agree.rules.dead_ns = 4000000000u;
    agree.peer[i] = (gsp_peer){.known = true,
                               .up = true,
                               .who.key.byte[0] = (uint8_t)i,
                               .heard_ns = heard ? agree.now_ns : 1};
}
static gsp_audit_cases cases;

/* A look at what is lacked, `ms` after the last one: who is late. */
static uint32_t look_at_question(uint64_t ms)
{
    gsp_event event = {0};
    clock_ns += ms * 1000000;
    return gsp_questions_work(&lacked, &event) ? event.withheld : 0;
}

static uint32_t look_at_case(uint64_t ms)
{
    gsp_event event = {0};
    clock_ns += ms * 1000000;
    return gsp_audit_cases_work(&cases, true, &event) ? event.withheld : 0;
}

/* One is there all the time. The other one's process ended just before, and it is back soon: it is asked then,
 * before anybody calls it late. */
static void comes_back(uint32_t (*look_at)(uint64_t ms))
{
    others.linked[0] = true;
    hear(0, true);
    hear(1, true);
    assert_int_equal(look_at(100), 0);
    assert_int_equal(others.n_asked[0], 1);
    assert_int_equal(look_at(300), 0);
    others.linked[1] = true;
    assert_int_equal(look_at(100), 0);
    assert_int_equal(others.n_asked[1], 1);
    assert_int_equal(look_at(100), 0);
    assert_int_equal(others.n_asked[0] + others.n_asked[1], 2); /* once */
    others.linked[1] = false;
    assert_int_equal(look_at(100), 0);
    others.linked[1] = true;
    assert_int_equal(look_at(100), 0);
    assert_int_equal(others.n_asked[1], 2);
    others.friend[1].link++; /* it ended and came back between two looks */
    assert_int_equal(look_at(100), 0);
    assert_int_equal(others.n_asked[1], 3);
    assert_int_equal(look_at(100), 0);
    assert_int_equal(others.n_asked[0] + others.n_asked[1], 4); /* once */
    uint32_t late = 0;
    for (uint32_t k = 0; k < 40; k++)
        late |= look_at(100);
    assert_int_equal(late, 3); /* who is asked and gives nothing is late, as ever */
}

/* The links of a process that has come back are there before its member, which reads its data first. */
static void begins_late(uint32_t (*look_at)(uint64_t ms))
{
    others.linked[0] = others.linked[1] = true;
    hear(0, true);
    hear(1, false);
    uint32_t late = 0;
    for (uint32_t k = 0; k < 7; k++)
        late |= look_at(100);
    assert_int_equal(late & 2, 0);
    hear(1, true);
    const uint32_t before = others.n_asked[1];
    assert_int_equal(look_at(100) & 2, 0);
    assert_int_equal(others.n_asked[1], before + 1);
}

static void whoever_comes_back_is_asked_at_once(void **state)
{
    (void)state;
    static const gsp_key nobody;
    static gsp_freezing mine;
    static gsp_own_inputs none;
    const uint64_t within = 200000000;
    gsp_claim *claim = atom_alloc(1, sizeof *claim);
    look_ns = 1;
    friends.agree = &agree;
    open_others();
    gsp_questions_open(&lacked, &TERMS, &friends);
    gsp_questions_begin(&lacked,
                        &(gsp_action){.version = 7, .included = 3, .within_ns = 2 * within});
    comes_back(look_at_question);
    gsp_questions_close(&lacked);
    open_others();
    gsp_questions_begin(&lacked,
                        &(gsp_action){.version = 7, .included = 3, .within_ns = 2 * within});
    begins_late(look_at_question);
    gsp_questions_close(&lacked);
    open_others();
    gsp_audit_cases_open(&cases, &TERMS, &mine, &none, &lacked, &friends, NULL);
    claim->version = 7;
    claim->n_contributors = 2;
    claim->part.included = 3;
    memcpy(claim->contributor, others.named.contributor, sizeof claim->contributor);
    gsp_audit_cases_begin(&cases, claim, &nobody, within);
    comes_back(look_at_case);
    open_others();
    gsp_audit_cases_begin(&cases, claim, &nobody, within);
    begins_late(look_at_case);
    gsp_audit_cases_close(&cases);
    look_ns = 0;
    atom_free(claim);
}

static uint32_t asked_for(uint64_t floats, uint32_t included)
{
    static gsp_questions questions;
    const gsp_terms terms = {.n_parts = 1, .n_fragments = 1, .n_floats = &floats};
    const gsp_action action = {.version = 7, .part = 0, .included = included};
    gsp_questions_open(&questions, &terms, NULL);
    gsp_questions_begin(&questions, &action);
    uint32_t wanted = questions.of[0].wanted;
    assert_true(questions.of[0].on && questions.of[0].version == 7);
    gsp_questions_close(&questions);
    return wanted;
}

/* All that are lacked are asked for, but no more than 32 MiB, and one however large it is. */
static void a_question_is_for_all_that_fit(void **state)
{
    (void)state;
    assert_int_equal(asked_for(1000, 0x2d), 0x2d);
    assert_int_equal(asked_for(4 << 20, 0x2d), 0x05); /* 16 MiB each */
    assert_int_equal(asked_for(3 << 20, 0x2d), 0x05);
    assert_int_equal(asked_for(10 << 20, 0x2c), 0x04);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_question_is_for_all_that_fit),
        cmocka_unit_test(a_restart_keeps_what_i_brought),
        cmocka_unit_test(four_versions_are_soon_there_after_a_restart),
        cmocka_unit_test(time_without_a_link_is_nobodys_fault),
        cmocka_unit_test(time_before_a_question_is_nobodys_fault),
        cmocka_unit_test(whoever_comes_back_is_asked_at_once),
        cmocka_unit_test(a_new_link_is_known_by_its_number),
        cmocka_unit_test(a_piece_is_an_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
