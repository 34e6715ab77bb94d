/* Tickets: one text each, clear errors, nothing guessed. */
#include "gossip/trust/ticket.h"
#include "tests/lib/gossip_pool.h"
#include "tests/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

static void make(const test_pool *p, bool delegated, gsp_ticket *t)
{
    uint64_t now = test_now_s();
    *t = (gsp_ticket){.manifest = 5, .n_hosts = 2, .has_invite = true};
    memcpy(t->owner, p->owner.public_key, sizeof t->owner);
    memcpy(t->pool, p->pool, sizeof t->pool);
    memcpy(t->psk, p->psk, sizeof t->psk);
    strcpy(t->hosts[0], "192.0.2.7:4400");
    strcpy(t->hosts[1], "train.example.org:4401");
    t->invite = (gsp_invite){.id = {3}, .count = 10, .issued_s = now, .expires_s = now + 3600};
    memcpy(t->invite.pool, p->pool, sizeof t->pool);
    gsp_invite_sign(&t->invite, delegated ? &p->member[0] : &p->owner);
    if (!delegated)
        return;
    t->has_delegation = true;
    t->delegation = (gsp_delegation){.issued_s = now, .expires_s = now + 7200};
    memcpy(t->delegation.pool, p->pool, sizeof t->pool);
    memcpy(t->delegation.delegate, p->member[0].public_key, GSP_PUBLIC_BYTES);
    gsp_delegation_sign(&t->delegation, &p->owner);
}

static void text_and_back(void **state)
{
    (void)state;
    test_pool p;
    char text[GSP_TICKET_TEXT_BYTES], again[GSP_TICKET_TEXT_BYTES];
    test_pool_make(&p, 1);
    for (int kind = 0; kind < 4; kind++) {
        gsp_ticket t, back;
        make(&p, kind == 1, &t);
        if (kind == 2) {
            t.has_invite = false;
            memset(&t.invite, 0, sizeof t.invite);
        }
        if (kind == 3) {
            t.n_hosts = GSP_TICKET_HOSTS_MAX;
            for (uint32_t i = 0; i < t.n_hosts; i++)
                memset(t.hosts[i], 'a', GSP_TICKET_HOST_BYTES - 1);
        }
        test_must(gsp_ticket_text(&t, text));
        test_must(gsp_ticket_parse(text, &back));
        assert_memory_equal(t.psk, back.psk, sizeof t.psk);
        test_must(gsp_ticket_text(&back, again));
        assert_string_equal(text, again);
        test_must(gsp_ticket_check(&back, test_now_s()));
        uint8_t credential[GSP_CREDENTIAL_BYTES_MAX];
        gsp_role role = GSP_OWNER;
        size_t bytes = gsp_ticket_credential(&back, credential);
        assert_int_equal(bytes > 0, kind != 2);
        if (bytes)
            assert_int_equal(gsp_credential_check(credential, bytes, p.pool, p.owner.public_key,
                                                  p.member[9].public_key, test_now_s(), &role),
                             GSP_WELCOME);
    }
}

static void blanks_are_forgiven(void **state)
{
    (void)state;
    test_pool p;
    gsp_ticket t, back;
    char text[GSP_TICKET_TEXT_BYTES], folded[2 * GSP_TICKET_TEXT_BYTES] = "  ";
    test_pool_make(&p, 1);
    make(&p, false, &t);
    test_must(gsp_ticket_text(&t, text));
    for (size_t i = 0; text[i]; i++)
        snprintf(folded + strlen(folded), 4, i % 60 == 59 ? "%c\r\n" : "%c", text[i]);
    test_must(gsp_ticket_parse(folded, &back));
    char again[GSP_TICKET_TEXT_BYTES];
    test_must(gsp_ticket_text(&back, again));
    assert_string_equal(text, again);
}

static void says_what_is_wrong(void **state)
{
    (void)state;
    test_pool p;
    gsp_ticket t, back;
    char text[GSP_TICKET_TEXT_BYTES];
    test_pool_make(&p, 1);
    make(&p, false, &t);
    test_must(gsp_ticket_text(&t, text));
    static const char *const junk[] = {"",          "atom",    "atom1-",
                                       "atom1-A",   "hello",   "atom1-AAAAAAAAAAAAAAAAAA",
                                       "atom1-!!!", "atom1-=="};
    for (size_t i = 0; i < sizeof junk / sizeof *junk; i++)
        assert_int_equal(gsp_ticket_parse(junk[i], &back), ATOM_E_USAGE);
    assert_int_equal(gsp_ticket_parse("atom2-AAAA", &back), ATOM_E_USAGE);
    assert_non_null(strstr(atom_fail_message(), "newer"));
    size_t n = strlen(text);
    for (size_t cut = 6; cut < n; cut++) {
        char shorter[GSP_TICKET_TEXT_BYTES];
        memcpy(shorter, text, cut);
        shorter[cut] = 0;
        assert_int_equal(gsp_ticket_parse(shorter, &back), ATOM_E_USAGE);
    }
    for (size_t i = 0; i < n; i++) { /* each single mistyped character is found */
        char old = text[i];
        text[i] = old == 'Q' ? 'R' : 'Q';
        assert_int_equal(gsp_ticket_parse(text, &back), ATOM_E_USAGE);
        text[i] = old;
    }
    assert_int_equal(gsp_ticket_check(&t, test_now_s() + 7200), ATOM_E_USAGE);
    assert_non_null(strstr(atom_fail_message(), "this host's clock says"));
    t.invite.count = 99; /* forged */
    assert_int_equal(gsp_ticket_check(&t, test_now_s()), ATOM_E_USAGE);
    strcpy(t.hosts[0], "with blank");
    assert_int_equal(gsp_ticket_text(&t, text), ATOM_E_USAGE);
    t.n_hosts = 99;
    assert_int_equal(gsp_ticket_text(&t, text), ATOM_E_USAGE);
}

static void addresses_have_one_text(void **state)
{
    (void)state;
    static const char *const good[][2] = {
        {"192.0.2.7:4400", "192.0.2.7:4400"},     {"192.0.2.7", "192.0.2.7:4400"},
        {"[2001:db8::7]:80", "[2001:db8::7]:80"}, {"2001:db8::7", "[2001:db8::7]:4400"},
        {"[::ffff:192.0.2.7]:1", "192.0.2.7:1"},  {"*:0", "[::]:0"},
    };
    static const char *const bad[] = {"",
                                      ":4400",
                                      "192.0.2.7:",
                                      "192.0.2.7:65536",
                                      "1.2.3",
                                      "[::1",
                                      "[::1]x",
                                      "host.example:1",
                                      "1:2:3",
                                      "[]:4400",
                                      "192.0.2.7:44000000000000000000000",
                                      "::1%nosuchdevice0"};
    gsp_address a, b;
    char text[GSP_ADDRESS_TEXT_BYTES];
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        test_must(gsp_address_parse(good[i][0], &a));
        assert_string_equal(gsp_address_text(&a, text), good[i][1]);
        struct sockaddr_storage s;
        assert_true(gsp_address_to_socket(&a, &s) > 0);
        assert_true(gsp_address_from_socket(&s, &b));
        assert_true(gsp_address_equal(&a, &b));
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(gsp_address_parse(bad[i], &a), ATOM_E_USAGE);
    size_t n = 0;
    test_must(gsp_address_resolve("127.0.0.1:5", &a, 1, &n));
    assert_int_equal(n, 1);
    assert_int_equal(a.port, 5);
}

/* ---- where a ticket comes from ---- */

static void read_from_file_or_itself(void **state)
{
    (void)state;
    test_pool p;
    gsp_ticket t;
    scratch s;
    char text[GSP_TICKET_TEXT_BYTES], got[GSP_TICKET_TEXT_BYTES], lines[3 * GSP_TICKET_TEXT_BYTES];
    test_pool_make(&p, 1);
    make(&p, false, &t);
    test_must(gsp_ticket_text(&t, text));
    test_must(gsp_ticket_read(text, got));
    assert_string_equal(got, text);
    char *path = atom_format("%s/atom-ticket", scratch_open(&s)->dir);
    size_t n = 0;
    for (size_t i = 0; text[i]; i++) { /* as a mail program breaks it */
        lines[n++] = text[i];
        if (i % 60 == 59)
            lines[n++] = '\n';
    }
    lines[n++] = '\n';
    test_must(atom_file_write(path, lines, n));
    test_must(gsp_ticket_read(path, got));
    assert_string_equal(got, text);
    char *marked = atom_format("\xef\xbb\xbf%s\r\n", text); /* as some editors keep it */
    test_must(atom_file_write(path, marked, strlen(marked)));
    test_must(gsp_ticket_read(path, got));
    assert_string_equal(got, text);
    atom_free(marked);
    for (size_t big = 0; big < 2; big++) { /* as PowerShell's > writes it, and in the other order */
        uint8_t wide[2 * GSP_TICKET_TEXT_BYTES] = {0};
        wide[big] = 0xff;
        wide[!big] = 0xfe;
        for (size_t i = 0; text[i]; i++)
            wide[2 * i + 2 + big] = (uint8_t)text[i];
        test_must(atom_file_write(path, wide, 2 + 2 * strlen(text)));
        test_must(gsp_ticket_read(path, got));
        assert_string_equal(got, text);
    }
    char *said =
        atom_format("to join, others run x-atom1- and paste this ticket:\n\n  %s\n\nsaved\n", text);
    test_must(
        atom_file_write(path, said, strlen(said))); /* what pool create prints, kept in a file */
    test_must(gsp_ticket_read(path, got));
    assert_string_equal(got, text);
    atom_free(said);
    test_must(atom_file_write(path, "no ticket at all\n", 17));
    assert_int_equal(gsp_ticket_read(path, got), ATOM_E_USAGE);
    assert_non_null(strstr(atom_fail_message(), "there is no ticket in it"));
    test_must(atom_file_write(path, " \n", 2));
    assert_int_equal(gsp_ticket_read(path, got), ATOM_E_USAGE);
    memset(lines, 'a', sizeof lines);
    test_must(atom_file_write(path, lines, sizeof lines));
    assert_int_equal(gsp_ticket_read(path, got), ATOM_E_USAGE);
    assert_int_equal(got[0], 0);
    assert_int_equal(gsp_ticket_read("no-such-file", got), ATOM_E_USAGE);
    assert_non_null(strstr(atom_fail_message(), "atom1-"));
    assert_int_not_equal(gsp_ticket_read(s.dir, got), ATOM_OK); /* a directory */
    atom_free(path);
    scratch_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_and_back),
        cmocka_unit_test(blanks_are_forgiven),
        cmocka_unit_test(says_what_is_wrong),
        cmocka_unit_test(addresses_have_one_text),
        cmocka_unit_test(read_from_file_or_itself),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
