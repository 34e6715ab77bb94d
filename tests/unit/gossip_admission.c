/* What a credential is not good for: another pool of the same owner, another issuer, another moment, another form. */
#include "atom/base/mem.h"
#include "tests/lib/gossip_pool.h"
#include "tests/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { NOW = 1000000, LIFE = 1000 };

static test_pool pool;
static const uint8_t ANOTHER[GSP_POOL_BYTES] = {77};

static gsp_refusal check_in(const uint8_t *in, const uint8_t *credential, size_t bytes,
                            const uint8_t *key, uint64_t now_s)
{
    gsp_role role = GSP_DELEGATE;
    gsp_refusal refusal =
        gsp_credential_check(credential, bytes, in, pool.owner.public_key, key, now_s, &role);
    if (refusal != GSP_WELCOME)
        assert_int_equal(role, GSP_DELEGATE); /* written only if it is welcome */
    return refusal;
}

static gsp_refusal check(const uint8_t *credential, size_t bytes, const uint8_t *key)
{
    return check_in(pool.pool, credential, bytes, key, NOW);
}

static size_t write_admission(const uint8_t *in, unsigned member, const gsp_identity *issuer,
                              uint8_t *out)
{
    gsp_admission a = {.issued_s = NOW, .expires_s = NOW + LIFE};
    memcpy(a.pool, in, sizeof a.pool);
    memcpy(a.member, pool.member[member].public_key, sizeof a.member);
    gsp_admission_sign(&a, issuer);
    gsp_admission_encode(&a, out);
    return GSP_ADMISSION_BYTES;
}

static size_t write_delegation(const uint8_t *in, unsigned delegate, uint8_t *out)
{
    gsp_delegation d = {.issued_s = NOW, .expires_s = NOW + LIFE};
    memcpy(d.pool, in, sizeof d.pool);
    memcpy(d.delegate, pool.member[delegate].public_key, sizeof d.delegate);
    gsp_delegation_sign(&d, &pool.owner);
    gsp_delegation_encode(&d, out);
    return GSP_DELEGATION_BYTES;
}

static size_t write_invite(const uint8_t *in, uint32_t count, uint8_t *out)
{
    gsp_invite i = {.id = {1}, .count = count, .issued_s = NOW, .expires_s = NOW + LIFE};
    memcpy(i.pool, in, sizeof i.pool);
    gsp_invite_sign(&i, &pool.owner);
    gsp_invite_encode(&i, out);
    return GSP_INVITE_BYTES;
}

/* One owner, two pools: nothing that it signed for one of them opens the other. */
static void a_signature_is_for_one_pool(void **state)
{
    (void)state;
    const uint8_t *in[2] = {pool.pool, ANOTHER};
    for (int for_ = 0; for_ < 2; for_++)
        for (int at = 0; at < 2; at++) {
            const gsp_refusal right = for_ == at ? GSP_WELCOME : GSP_REFUSED_CREDENTIAL;
            uint8_t bytes[GSP_CREDENTIAL_BYTES_MAX];
            const uint8_t *key = pool.member[1].public_key;
            size_t n = write_admission(in[for_], 1, &pool.owner, bytes);
            assert_int_equal(check_in(in[at], bytes, n, key, NOW), right);
            n = write_invite(in[for_], 1, bytes);
            assert_int_equal(check_in(in[at], bytes, n, key, NOW), right);
            n = write_delegation(in[for_], 1, bytes);
            assert_int_equal(check_in(in[at], bytes, n, key, NOW), right);
            n = write_admission(in[at], 1, &pool.member[0], bytes); /* by the other's delegate */
            n += write_delegation(in[for_], 0, bytes + n);
            assert_int_equal(check_in(in[at], bytes, n, key, NOW), right);
        }
}

/* Who is not a delegate does not become one by showing the delegation of somebody else. */
static void a_delegation_is_for_one_delegate(void **state)
{
    (void)state;
    uint8_t bytes[GSP_CREDENTIAL_BYTES_MAX];
    for (unsigned issuer = 2; issuer < 4; issuer++) {
        size_t n = write_admission(pool.pool, 1, &pool.member[issuer], bytes);
        n += write_delegation(pool.pool, 2, bytes + n);
        assert_int_equal(check(bytes, n, pool.member[1].public_key),
                         issuer == 2 ? GSP_WELCOME : GSP_REFUSED_CREDENTIAL);
    }
    size_t n = write_delegation(pool.pool, 2, bytes);
    assert_int_equal(check(bytes, n, pool.member[2].public_key), GSP_WELCOME);
    assert_int_equal(check(bytes, n, pool.member[3].public_key), GSP_REFUSED_CREDENTIAL);
}

static void the_owner_shows_nothing(void **state)
{
    (void)state;
    uint8_t bytes[GSP_CREDENTIAL_BYTES_MAX];
    size_t n = write_admission(pool.pool, 1, &pool.owner, bytes);
    assert_int_equal(check(bytes, 0, pool.owner.public_key), GSP_WELCOME);
    assert_int_equal(check(bytes, n, pool.owner.public_key), GSP_REFUSED_CREDENTIAL);
    n += write_delegation(pool.pool, 2, bytes + n); /* nor has what it signed an issuer beside it */
    assert_int_equal(check(bytes, n, pool.member[1].public_key), GSP_REFUSED_CREDENTIAL);
}

/* Clocks may differ by five minutes, and by no second more. */
static void time_has_five_minutes_at_each_end(void **state)
{
    (void)state;
    static const struct {
        uint64_t now_s;
        gsp_refusal refusal;
    } cases[] = {{NOW - 301, GSP_REFUSED_CLOCK},
                 {NOW - 300, GSP_WELCOME},
                 {NOW + LIFE + 300, GSP_WELCOME},
                 {NOW + LIFE + 301, GSP_REFUSED_EXPIRED}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint8_t bytes[GSP_CREDENTIAL_BYTES_MAX];
        const uint8_t *key = pool.member[1].public_key;
        size_t n = write_admission(pool.pool, 1, &pool.owner, bytes);
        assert_int_equal(check_in(pool.pool, bytes, n, key, cases[i].now_s), cases[i].refusal);
        n = write_invite(pool.pool, 1, bytes);
        assert_int_equal(check_in(pool.pool, bytes, n, key, cases[i].now_s), cases[i].refusal);
        n = write_delegation(pool.pool, 1, bytes);
        assert_int_equal(check_in(pool.pool, bytes, n, key, cases[i].now_s), cases[i].refusal);
    }
}

/* What the owner signed in a form that this version does not know is refused all the same. */
static void only_one_form_is_known(void **state)
{
    (void)state;
    for (unsigned at = 0; at < 5; at++) {
        uint8_t bytes[GSP_ADMISSION_BYTES];
        write_admission(pool.pool, 1, &pool.owner, bytes);
        bytes[at] ^= at == 4 ? 0 : 4; /* kind, version, and two bytes that are 0 */
        gsp_sign(&pool.owner, GSP_FOR_ADMISSION, bytes, sizeof bytes - GSP_SIGNATURE_BYTES,
                 bytes + sizeof bytes - GSP_SIGNATURE_BYTES);
        assert_int_equal(check(bytes, sizeof bytes, pool.member[1].public_key),
                         at == 4 ? GSP_WELCOME : GSP_REFUSED_CREDENTIAL);
    }
}

static void an_invite_is_for_somebody_and_not_for_everybody(void **state)
{
    (void)state;
    static const uint32_t counts[] = {0, 1, GSP_INVITE_COUNT_MAX, GSP_INVITE_COUNT_MAX + 1};
    for (unsigned i = 0; i < 4; i++) {
        uint8_t bytes[GSP_CREDENTIAL_BYTES_MAX];
        gsp_invite back;
        const size_t n = write_invite(pool.pool, counts[i], bytes);
        const bool right = i == 1 || i == 2;
        assert_int_equal(check(bytes, n, pool.member[1].public_key),
                         right ? GSP_WELCOME : GSP_REFUSED_CREDENTIAL);
        assert_int_equal(gsp_credential_invite(bytes, n, &back), right);
    }
}

/* The owner's word is believed for ten minutes before and after its time. */
static void a_refusal_is_of_the_last_minutes(void **state)
{
    (void)state;
    uint8_t word[GSP_REFUSAL_BYTES];
    const uint8_t *owner = pool.owner.public_key, *key = pool.member[1].public_key;
    gsp_refusal_sign(&pool.owner, pool.pool, key, "shown", 5, GSP_REFUSED_BANNED, NOW, word);
    for (int late = -601; late <= 601; late++) {
        const bool right = late >= -600 && late <= 600;
        const uint64_t now_s = (uint64_t)(NOW + late);
        if (late < -598 || late == 0 || late > 598)
            assert_int_equal(gsp_refusal_verify(owner, pool.pool, key, "shown", 5,
                                                GSP_REFUSED_BANNED, now_s, word, sizeof word),
                             right);
    }
    assert_false(gsp_refusal_verify(owner, pool.pool, key, "shown", 5, GSP_REFUSED_FULL, NOW, word,
                                    sizeof word));
    assert_false(gsp_refusal_verify(owner, pool.pool, key, "shows", 5, GSP_REFUSED_BANNED, NOW,
                                    word, sizeof word));
    assert_false(gsp_refusal_verify(owner, ANOTHER, key, "shown", 5, GSP_REFUSED_BANNED, NOW, word,
                                    sizeof word));
    assert_false(gsp_refusal_verify(owner, pool.pool, owner, "shown", 5, GSP_REFUSED_BANNED, NOW,
                                    word, sizeof word));
    word[0] ^= 1; /* a time that was not signed */
    assert_false(gsp_refusal_verify(owner, pool.pool, key, "shown", 5, GSP_REFUSED_BANNED, NOW,
                                    word, sizeof word));
}

static void says_what_time_it_is(void **state)
{
    (void)state;
    char text[240];
    gsp_validity_text(0, 86400, 1800000000, text, sizeof text);
    assert_string_equal(text, "valid from 1970-01-01 00:00 to 1970-01-02 00:00, but this host's "
                              "clock says 2027-01-15 08:00 (all in UTC). If that is not the time, "
                              "set the clock and try again (timedatectl set-ntp true)");
    for (unsigned i = 0; i < GSP_REFUSAL_N; i++)
        assert_null(strstr(gsp_refusal_text((gsp_refusal)i), "unknown"));
    assert_non_null(strstr(gsp_refusal_text(GSP_REFUSAL_N), "unknown"));
}

static gsp_invite invite_of(uint8_t id, uint32_t count)
{
    gsp_invite i = {.id = {id}, .count = count, .issued_s = NOW, .expires_s = NOW + LIFE};
    memcpy(i.pool, pool.pool, sizeof i.pool);
    gsp_invite_sign(&i, &pool.owner);
    return i;
}

static atom_status admit(gsp_ledger *book, const gsp_invite *invite, unsigned member,
                         gsp_admission *out)
{
    return gsp_ledger_admit(book, &pool.owner, invite, pool.member[member].public_key, 7, NOW,
                            NOW + LIFE, out);
}

/* Who came with two invites is known by the last; an admission has what it was given for. */
static void the_book_knows_the_last_invite(void **state)
{
    scratch files;
    gsp_ledger *book = NULL;
    gsp_admission a;
    uint8_t id[GSP_INVITE_ID_BYTES], keys[2][GSP_PUBLIC_BYTES];
    const gsp_invite first = invite_of(1, 2), second = invite_of(2, 2);
    (void)state;
    scratch_open(&files);
    test_must(gsp_ledger_open(scratch_path(&files, "invites"), &book));
    test_must(admit(book, &first, 1, &a));
    assert_int_equal(a.manifest, 7);
    assert_true(a.issued_s == NOW && a.expires_s == NOW + LIFE);
    assert_memory_equal(a.member, pool.member[1].public_key, sizeof a.member);
    assert_memory_equal(a.issuer, pool.owner.public_key, sizeof a.issuer);
    test_must(admit(book, &second, 1, &a));
    assert_true(gsp_ledger_invite_of(book, pool.member[1].public_key, id));
    assert_memory_equal(id, second.id, sizeof id);
    test_must(admit(book, &first, 2, &a));
    memset(keys, 0, sizeof keys);
    assert_int_equal(gsp_ledger_members(book, first.id, keys, 1), 2);
    assert_memory_equal(keys[0], pool.member[1].public_key, sizeof keys[0]);
    assert_int_equal(keys[1][0] | keys[1][1] | keys[1][2], 0); /* one was asked for */
    gsp_ledger_close(&book);
    scratch_close(&files);
}

/* Nobody is admitted before that is on disk: not either when he asks again. */
static void nobody_is_admitted_by_memory_alone(void **state)
{
    scratch files;
    gsp_ledger *book = NULL;
    gsp_admission a;
    const gsp_invite invite = invite_of(1, 1);
    (void)state;
    scratch_open(&files);
    const char *place = scratch_path(&files, "place");
    test_must(gsp_ledger_open(scratch_path(&files, "place/invites"), &book));
    for (int i = 0; i < 3; i++) {
        assert_int_not_equal(admit(book, &invite, 1, &a), ATOM_OK);
        assert_int_not_equal(gsp_ledger_end_invite(book, invite.id), ATOM_OK);
    }
    assert_int_equal(gsp_ledger_members(book, invite.id, NULL, 0), 0);
    test_must(atom_dir_make(place));
    test_must(admit(book, &invite, 1, &a));
    gsp_ledger_close(&book);
    scratch_close(&files);
}

static int begin(void **state)
{
    (void)state;
    test_pool_make(&pool, 1);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_signature_is_for_one_pool),
        cmocka_unit_test(a_delegation_is_for_one_delegate),
        cmocka_unit_test(the_owner_shows_nothing),
        cmocka_unit_test(time_has_five_minutes_at_each_end),
        cmocka_unit_test(only_one_form_is_known),
        cmocka_unit_test(an_invite_is_for_somebody_and_not_for_everybody),
        cmocka_unit_test(a_refusal_is_of_the_last_minutes),
        cmocka_unit_test(says_what_time_it_is),
        cmocka_unit_test(the_book_knows_the_last_invite),
        cmocka_unit_test(nobody_is_admitted_by_memory_alone),
    };
    return cmocka_run_group_tests(tests, begin, NULL);
}
