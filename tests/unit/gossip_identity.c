/* Identity files, signatures with a purpose, admissions and the book of invites. */
#include "atom/base/mem.h"
#include "tests/lib/gossip_pool.h"
#include "tests/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static scratch files;

static const char *in_dir(const char *name)
{
    return scratch_path(&files, name);
}

static void is_made_once_and_kept(void **state)
{
    (void)state;
    gsp_identity a, b;
    struct stat info;
    const char *path = in_dir("id");
    test_must(gsp_identity_open(path, &a));
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(info.st_mode & 0777, 0600);
    test_must(gsp_identity_open(path, &b));
    assert_memory_equal(&a, &b, sizeof a);
    test_must(gsp_identity_make(&b));
    assert_memory_not_equal(a.public_key, b.public_key, sizeof a.public_key);
    assert_int_equal(gsp_identity_save(path, &b), ATOM_E_USAGE); /* never replaced */
    test_must(gsp_identity_load(path, &b));
    assert_memory_equal(&a, &b, sizeof a);
}

static void nothing_half_written_is_left(void **state)
{
    (void)state;
    gsp_identity a;
    test_must(gsp_identity_make(&a));
    assert_int_not_equal(gsp_identity_save(in_dir("no/such/dir"), &a), ATOM_OK);
    char command[700];
    snprintf(command, sizeof command, "ls -A %s | grep -c tmp", files.dir);
    FILE *p = popen(command, "r");
    int n = -1;
    assert_int_equal(fscanf(p, "%d", &n), 1);
    pclose(p);
    assert_int_equal(n, 0);
}

static void damaged_or_open_files_are_refused(void **state)
{
    (void)state;
    gsp_identity a, b;
    char *data;
    uint64_t bytes;
    test_must(gsp_identity_make(&a));
    test_must(gsp_identity_save(in_dir("d"), &a));
    test_must(atom_file_read(in_dir("d"), 4096, &data, &bytes));
    for (uint64_t i = 0; i < bytes; i++) {
        data[i] ^= 1;
        FILE *f = fopen(in_dir("d"), "w");
        fwrite(data, 1, bytes, f);
        fclose(f);
        memset(&b, 7, sizeof b);
        assert_int_equal(gsp_identity_load(in_dir("d"), &b), ATOM_E_FORMAT);
        assert_int_equal(b.public_key[0], 7); /* untouched */
        data[i] ^= 1;
    }
    FILE *f = fopen(in_dir("d"), "w");
    fwrite(data, 1, bytes, f);
    fclose(f);
    test_must(gsp_identity_load(in_dir("d"), &b));
    assert_int_equal(symlink("d", in_dir("link")), 0);
    assert_int_equal(gsp_identity_load(in_dir("link"), &b), ATOM_E_FORMAT);
    assert_non_null(strstr(atom_fail_message(), "may not be a link"));
    assert_int_equal(chmod(in_dir("d"), 0640), 0);
    assert_int_equal(gsp_identity_load(in_dir("d"), &b), ATOM_E_FORMAT);
    assert_non_null(strstr(atom_fail_message(), "chmod 600"));
    assert_int_equal(gsp_identity_load(in_dir("none"), &b), ATOM_E_FORMAT);
    atom_free(data);
}

static void keys_have_a_text(void **state)
{
    (void)state;
    gsp_identity a;
    char text[GSP_PUBLIC_TEXT_BYTES];
    uint8_t back[GSP_PUBLIC_BYTES];
    test_must(gsp_identity_make(&a));
    test_must(gsp_public_parse(gsp_public_text(a.public_key, text), back));
    assert_memory_equal(back, a.public_key, sizeof back);
    assert_int_equal(strlen(text), 43);
    text[42] = 0;
    assert_int_equal(gsp_public_parse(text, back), ATOM_E_USAGE);
    assert_int_equal(gsp_public_parse("", back), ATOM_E_USAGE);
}

static void a_signature_has_one_purpose(void **state)
{
    (void)state;
    gsp_identity a, b;
    uint8_t signature[GSP_SIGNATURE_BYTES];
    test_must(gsp_identity_make(&a));
    test_must(gsp_identity_make(&b));
    gsp_sign(&a, GSP_FOR_AGREEMENT, "vote", 4, signature);
    assert_true(gsp_verify(a.public_key, GSP_FOR_AGREEMENT, "vote", 4, signature));
    assert_false(gsp_verify(a.public_key, GSP_FOR_EVIDENCE, "vote", 4, signature));
    assert_false(gsp_verify(b.public_key, GSP_FOR_AGREEMENT, "vote", 4, signature));
    assert_false(gsp_verify(a.public_key, GSP_FOR_AGREEMENT, "vota", 4, signature));
    assert_false(gsp_verify(a.public_key, GSP_FOR_AGREEMENT, "vote", 3, signature));
    for (unsigned bit = 0; bit < 512; bit++) {
        signature[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_false(gsp_verify(a.public_key, GSP_FOR_AGREEMENT, "vote", 4, signature));
        signature[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
}

static gsp_refusal check(const test_pool *p, const uint8_t *credential, size_t bytes,
                         const uint8_t *key, uint64_t now_s, gsp_role *role)
{
    return gsp_credential_check(credential, bytes, p->pool, p->owner.public_key, key, now_s, role);
}

static void an_admission_is_for_one_key_one_pool_one_time(void **state)
{
    (void)state;
    test_pool p, other;
    gsp_role role = GSP_GUEST;
    test_pool_make(&p, 1);
    test_pool_make(&other, 50);
    uint64_t now = test_now_s();
    gsp_handshake_config c = test_member(&p, 3);
    const uint8_t *key = p.member[3].public_key;
    assert_int_equal(check(&p, c.credential, c.credential_bytes, key, now, &role), GSP_WELCOME);
    assert_int_equal(role, GSP_MEMBER);
    assert_int_equal(
        check(&p, c.credential, c.credential_bytes, p.member[4].public_key, now, &role),
        GSP_REFUSED_CREDENTIAL);
    assert_int_equal(check(&other, c.credential, c.credential_bytes, key, now, &role),
                     GSP_REFUSED_CREDENTIAL);
    assert_int_equal(check(&p, c.credential, c.credential_bytes, key, now + 3600 + 299, &role),
                     GSP_WELCOME); /* skew */
    assert_int_equal(check(&p, c.credential, c.credential_bytes, key, now + 3600 + 310, &role),
                     GSP_REFUSED_EXPIRED);
    assert_int_equal(check(&p, c.credential, c.credential_bytes, key, now - 310, &role),
                     GSP_REFUSED_CLOCK);
    assert_int_equal(check(&p, c.credential, 0, key, now, &role), GSP_REFUSED_CREDENTIAL);
    assert_int_equal(check(&p, c.credential, 0, p.owner.public_key, now, &role), GSP_WELCOME);
    assert_int_equal(role, GSP_OWNER);
    for (uint32_t bit = 0; bit < c.credential_bytes * 8; bit++) {
        c.credential[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_not_equal(check(&p, c.credential, c.credential_bytes, key, now, &role),
                             GSP_WELCOME);
        c.credential[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    for (uint32_t n = 1; n < GSP_CREDENTIAL_BYTES_MAX; n++)
        if (n != c.credential_bytes)
            assert_int_not_equal(check(&p, c.credential, n, key, now, &role), GSP_WELCOME);
}

static void a_delegate_admits_while_it_is_one(void **state)
{
    (void)state;
    test_pool p;
    gsp_role role = GSP_GUEST;
    test_pool_make(&p, 1);
    uint64_t now = test_now_s();
    uint8_t bytes[GSP_CREDENTIAL_BYTES_MAX];
    gsp_delegation d = {.issued_s = now, .expires_s = now + 1000};
    gsp_admission a = {.issued_s = now, .expires_s = now + 100000};
    memcpy(d.pool, p.pool, sizeof d.pool);
    memcpy(d.delegate, p.member[0].public_key, sizeof d.delegate);
    memcpy(a.pool, p.pool, sizeof a.pool);
    memcpy(a.member, p.member[1].public_key, sizeof a.member);
    gsp_delegation_sign(&d, &p.owner);
    gsp_admission_sign(&a, &p.member[0]);
    gsp_admission_encode(&a, bytes);
    gsp_delegation_encode(&d, bytes + GSP_ADMISSION_BYTES);
    const size_t both = GSP_ADMISSION_BYTES + GSP_DELEGATION_BYTES;
    const uint8_t *key = p.member[1].public_key;
    assert_int_equal(check(&p, bytes, both, key, now, &role), GSP_WELCOME);
    assert_int_equal(role, GSP_MEMBER);
    assert_int_equal(check(&p, bytes, GSP_ADMISSION_BYTES, key, now, &role),
                     GSP_REFUSED_CREDENTIAL);
    assert_int_equal(check(&p, bytes, both, key, now + 2000, &role), GSP_REFUSED_EXPIRED);
    assert_int_equal(check(&p, bytes + GSP_ADMISSION_BYTES, GSP_DELEGATION_BYTES,
                           p.member[0].public_key, now, &role),
                     GSP_WELCOME);
    assert_int_equal(role, GSP_DELEGATE);
    gsp_delegation_sign(&d, &p.member[0]); /* a delegate cannot make delegates */
    gsp_delegation_encode(&d, bytes + GSP_ADMISSION_BYTES);
    assert_int_equal(check(&p, bytes, both, key, now, &role), GSP_REFUSED_CREDENTIAL);
}

static void an_invite_admits_as_many_as_it_says(void **state)
{
    (void)state;
    test_pool p;
    gsp_role role = GSP_OWNER;
    gsp_ledger *ledger = NULL;
    gsp_admission a;
    test_pool_make(&p, 1);
    uint64_t now = test_now_s();
    gsp_invite invite = {.id = {1}, .count = 3, .issued_s = now, .expires_s = now + 60}, back;
    uint8_t bytes[GSP_INVITE_BYTES], credential[GSP_ADMISSION_BYTES];
    memcpy(invite.pool, p.pool, sizeof invite.pool);
    gsp_invite_sign(&invite, &p.owner);
    gsp_invite_encode(&invite, bytes);
    assert_int_equal(check(&p, bytes, sizeof bytes, p.member[0].public_key, now, &role),
                     GSP_WELCOME);
    assert_int_equal(role, GSP_GUEST);
    assert_true(gsp_credential_invite(bytes, sizeof bytes, &back));
    uint8_t again[GSP_INVITE_BYTES];
    gsp_invite_encode(&back, again);
    assert_memory_equal(again, bytes, sizeof again);
    test_must(gsp_ledger_open(in_dir("invites"), &ledger));
    for (unsigned i = 0; i < 6; i++) {
        unsigned who = i / 2; /* each asks twice */
        test_must(gsp_ledger_admit(ledger, &p.owner, &invite, p.member[who].public_key, 1, now,
                                   now + 60, &a));
        gsp_admission_encode(&a, credential);
        assert_int_equal(
            check(&p, credential, sizeof credential, p.member[who].public_key, now, &role),
            GSP_WELCOME);
        if (i == 3) { /* the book survives */
            gsp_ledger_close(&ledger);
            test_must(gsp_ledger_open(in_dir("invites"), &ledger));
        }
    }
    memset(&a, 9, sizeof a);
    assert_int_equal(
        gsp_ledger_admit(ledger, &p.owner, &invite, p.member[5].public_key, 1, now, now + 60, &a),
        ATOM_E_USAGE);
    assert_int_equal(a.pool[0], 9);
    /* Who came with it is known; once it is ended nobody else comes, nor anybody again. */
    uint8_t id[GSP_INVITE_ID_BYTES], keys[2][GSP_PUBLIC_BYTES];
    gsp_invite other = invite;
    other.id[0] = 2;
    test_must(
        gsp_ledger_admit(ledger, &p.owner, &other, p.member[8].public_key, 1, now, now + 60, &a));
    assert_false(gsp_ledger_invite_of(ledger, p.member[5].public_key, id));
    assert_true(gsp_ledger_invite_of(ledger, p.member[1].public_key, id));
    assert_memory_equal(id, invite.id, sizeof id);
    assert_int_equal(gsp_ledger_members(ledger, id, keys, 2), 3);
    assert_memory_equal(keys[1], p.member[1].public_key, sizeof keys[1]);
    test_must(gsp_ledger_end_invite(ledger, other.id));
    gsp_ledger_close(&ledger);
    test_must(gsp_ledger_open(in_dir("invites"), &ledger));
    assert_int_equal(gsp_ledger_members(ledger, other.id, NULL, 0), 1);
    for (unsigned who = 8; who < 10; who++)
        assert_int_equal(gsp_ledger_admit(ledger, &p.owner, &other, p.member[who].public_key, 1,
                                          now, now + 60, &a),
                         ATOM_E_USAGE);
    test_must(
        gsp_ledger_admit(ledger, &p.owner, &invite, p.member[1].public_key, 1, now, now + 60, &a));
    gsp_ledger_close(&ledger);
    char *data;
    uint64_t size;
    test_must(atom_file_read(in_dir("invites"), 1 << 20, &data, &size));
    for (uint64_t i = 0; i < size; i++) {
        data[i] ^= 4;
        test_must(atom_file_write(in_dir("invites"), data, size));
        assert_int_equal(gsp_ledger_open(in_dir("invites"), &ledger), ATOM_E_FORMAT);
        data[i] ^= 4;
    }
    atom_free(data);
}

/* From when until when a credential holds, whoever gave it. */
static void a_credential_says_how_long(void **state)
{
    const gsp_admission a = {.issued_s = 0x0102030405060708, .expires_s = 0xf1f2f3f4f5f6f7f8};
    uint8_t bytes[GSP_CREDENTIAL_BYTES_MAX] = {0};
    uint64_t from = 1, until = 1;
    (void)state;
    gsp_admission_encode(&a, bytes);
    assert_false(gsp_admission_span(bytes, GSP_ADMISSION_BYTES - 1, &from, &until));
    assert_true(from == 0 && until == 0);
    assert_true(gsp_admission_span(bytes, GSP_ADMISSION_BYTES, &from, &until));
    assert_true(from == a.issued_s && until == a.expires_s);
    assert_true(gsp_admission_span(bytes, sizeof bytes, &from, &until));
    assert_true(from == a.issued_s && until == a.expires_s);
}

/* An invite is not an admission, however long it is with the delegation of a delegate who made it. */
static void an_invite_has_no_admissions_time(void **state)
{
    const gsp_invite i = {.count = 1, .issued_s = 5, .expires_s = 9, .signature = {1, 2, 3}};
    const gsp_delegation d = {.issued_s = 5, .expires_s = 9};
    uint8_t bytes[GSP_CREDENTIAL_BYTES_MAX] = {0};
    uint64_t from = 1, until = 1;
    (void)state;
    gsp_invite_encode(&i, bytes);
    gsp_delegation_encode(&d, bytes + GSP_INVITE_BYTES);
    assert_false(gsp_admission_span(bytes, GSP_INVITE_BYTES + GSP_DELEGATION_BYTES, &from, &until));
    assert_true(from == 0 && until == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_made_once_and_kept),
        cmocka_unit_test(nothing_half_written_is_left),
        cmocka_unit_test(damaged_or_open_files_are_refused),
        cmocka_unit_test(keys_have_a_text),
        cmocka_unit_test(a_credential_says_how_long),
        cmocka_unit_test(an_invite_has_no_admissions_time),
        cmocka_unit_test(a_signature_has_one_purpose),
        cmocka_unit_test(an_admission_is_for_one_key_one_pool_one_time),
        cmocka_unit_test(a_delegate_admits_while_it_is_one),
        cmocka_unit_test(an_invite_admits_as_many_as_it_says),
    };
    scratch_open(&files);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    scratch_close(&files);
    return failed;
}
