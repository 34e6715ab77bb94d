/* Tickets: one text each, clear errors, nothing guessed. */
#include "gossip/trust/ticket.h"
#include "tests/lib/gossip_pool.h"
#include "tests/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <fcntl.h>
#include <sodium.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

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
    assert_int_equal(gsp_ticket_check(&t, test_now_s() - 7200), ATOM_E_USAGE);
    assert_non_null(strstr(atom_fail_message(), "this host's clock says"));
    /* Of a delegate's the time that ends first is named: the delegation's. */
    char ends[24];
    make(&p, true, &t);
    t.delegation.expires_s = test_now_s() - 400;
    gsp_delegation_sign(&t.delegation, &p.owner);
    const time_t at = (time_t)t.delegation.expires_s;
    struct tm utc;
    strftime(ends, sizeof ends, "to %Y-%m-%d %H:%M", gmtime_r(&at, &utc));
    assert_int_equal(gsp_ticket_check(&t, test_now_s()), ATOM_E_USAGE);
    assert_non_null(strstr(atom_fail_message(), ends));
    make(&p, false, &t);
    t.invite.count = 99; /* forged */
    assert_int_equal(gsp_ticket_check(&t, test_now_s()), ATOM_E_USAGE);
    strcpy(t.hosts[0], "with blank");
    assert_int_equal(gsp_ticket_text(&t, text), ATOM_E_USAGE);
    t.n_hosts = 99;
    assert_int_equal(gsp_ticket_text(&t, text), ATOM_E_USAGE);
}

/* What does not belong together is not written; nor a host that nobody could dial. */
static void writes_only_what_belongs_together(void **state)
{
    (void)state;
    test_pool p;
    char text[GSP_TICKET_TEXT_BYTES];
    test_pool_make(&p, 1);
    for (int wrong = 0; wrong < 10; wrong++) {
        gsp_ticket t;
        make(&p, true, &t);
        switch (wrong) {
        case 1:
            strcpy(t.hosts[1], "");
            break;
        case 2:
            strcpy(t.hosts[1], "h\x7fte:1");
            break;
        case 3:
            t.has_invite = false;
            break;
        case 4:
            t.invite.pool[3] ^= 1;
            break;
        case 5:
            t.invite.issuer[3] ^= 1;
            break;
        case 6:
            t.invite.count = 0;
            break;
        case 7:
            t.invite.count = GSP_INVITE_COUNT_MAX + 1;
            break;
        case 8:
            t.delegation.pool[3] ^= 1;
            break;
        case 9:
            memset(t.hosts[1], 'a', sizeof t.hosts[1]);
            break;
        default:
            break;
        }
        assert_int_equal(gsp_ticket_text(&t, text), wrong ? ATOM_E_USAGE : ATOM_OK);
    }
}

/* Reads a ticket's bytes, without the checksum. */
static size_t body_of(const char *text, uint8_t body[GSP_TICKET_TEXT_BYTES])
{
    size_t n = 0;
    assert_int_equal(sodium_base642bin(body, GSP_TICKET_TEXT_BYTES, text + 6, strlen(text + 6),
                                       NULL, &n, NULL, sodium_base64_VARIANT_URLSAFE_NO_PADDING),
                     0);
    return n - 4;
}

/* Parses a ticket of these bytes, with a checksum that fits. */
static atom_status parse_body(uint8_t *body, size_t n)
{
    uint8_t hash[crypto_generichash_BYTES];
    char text[GSP_TICKET_TEXT_BYTES] = "atom1-";
    gsp_ticket t;
    crypto_generichash(hash, sizeof hash, body, n, (const uint8_t *)"atom ticket checksum", 20);
    memcpy(body + n, hash, 4);
    sodium_bin2base64(text + 6, sizeof text - 6, body, n + 4,
                      sodium_base64_VARIANT_URLSAFE_NO_PADDING);
    return gsp_ticket_parse(text, &t);
}

/* What is whole, but not of this version, is refused: a flag or bytes that it does not know, a host with a zero or
 * a blank in it, an invite for nobody. */
static void reads_only_what_it_knows(void **state)
{
    (void)state;
    test_pool p;
    gsp_ticket t;
    char text[GSP_TICKET_TEXT_BYTES];
    uint8_t body[GSP_TICKET_TEXT_BYTES];
    test_pool_make(&p, 1);
    make(&p, false, &t);
    test_must(gsp_ticket_text(&t, text));
    for (int wrong = 0; wrong < 7; wrong++) {
        size_t n = body_of(text, body);
        if (wrong == 1)
            body[0] |= 4;
        else if (wrong == 2)
            body[n++] = 0;
        else if (wrong == 3)
            body[n - 1] = 0; /* of the last host */
        else if (wrong == 4)
            body[n - 1] = ' ';
        else if (wrong == 5)
            memset(body + 1 + 3 * 32 + 4 + GSP_INVITE_ID_BYTES, 0, 4); /* its count */
        else if (wrong == 6)
            body[n - 2 - 14 - 22] = 9; /* how many hosts */
        assert_int_equal(parse_body(body, n), wrong ? ATOM_E_USAGE : ATOM_OK);
        assert_true(!wrong || strstr(atom_fail_message(), "upgrade"));
    }
    assert_int_equal(gsp_ticket_parse("toms1-AAAA", &t), ATOM_E_USAGE);
    assert_null(strstr(atom_fail_message(), "newer"));
    assert_int_equal(t.manifest, 5); /* untouched */
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
                                      "[::1]:",
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
    uint8_t words[2 * GSP_TICKET_TEXT_BYTES] = {0xff, 0xfe, 'j',
                                                0,    ' ',  0}; /* and the last of such words */
    for (size_t i = 0; text[i]; i++)
        words[2 * i + 6] = (uint8_t)text[i];
    test_must(atom_file_write(path, words, 6 + 2 * strlen(text)));
    test_must(gsp_ticket_read(path, got));
    assert_string_equal(got, text);
    char *long_ =
        atom_format("%s%9000s", text, "x"); /* a ticket, and far behind it something else */
    test_must(atom_file_write(path, long_, strlen(long_)));
    assert_int_equal(gsp_ticket_read(path, got), ATOM_E_USAGE);
    assert_int_equal(got[0] | got[1] | got[99], 0); /* it is a secret */
    atom_free(long_);
    test_must(atom_file_write(path, text, strlen(text)));
    char *here = getcwd(NULL, 0); /* a file is one though it is named like a ticket */
    assert_int_equal(chdir(s.dir), 0);
    test_must(gsp_ticket_read("atom-ticket", got));
    assert_string_equal(got, text);
    assert_int_equal(chdir(here), 0);
    free(here);
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

/* At a terminal: a pasted ticket may be broken into lines; what comes after it is not taken. */
static void read_where_somebody_types(void **state)
{
    (void)state;
    test_pool p;
    gsp_ticket t;
    char text[GSP_TICKET_TEXT_BYTES], got[GSP_TICKET_TEXT_BYTES];
    test_pool_make(&p, 1);
    make(&p, false, &t);
    test_must(gsp_ticket_text(&t, text));
    int kept = dup(STDIN_FILENO), ours = posix_openpt(O_RDWR | O_NOCTTY);
    assert_true(kept >= 0 && ours >= 0 && grantpt(ours) == 0 && unlockpt(ours) == 0);
    int theirs = open(ptsname(ours), O_RDWR | O_NOCTTY);
    assert_true(theirs >= 0 && dup2(theirs, STDIN_FILENO) == STDIN_FILENO);
    char *said = atom_format("\n \t%.60s\n%.60s \t\n%s\nls -l\n", text, text + 60, text + 120);
    assert_int_equal(write(ours, said, strlen(said)), strlen(said));
    test_must(gsp_ticket_read("-", got));
    assert_string_equal(got, text);
    assert_non_null(fgets(got, sizeof got, stdin));
    assert_string_equal(got, "ls -l\n"); /* is left to others */
    assert_int_equal(dup2(kept, STDIN_FILENO), STDIN_FILENO);
    atom_free(said);
    close(theirs);
    close(ours);
    close(kept);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_and_back),
        cmocka_unit_test(blanks_are_forgiven),
        cmocka_unit_test(says_what_is_wrong),
        cmocka_unit_test(writes_only_what_belongs_together),
        cmocka_unit_test(reads_only_what_it_knows),
        cmocka_unit_test(addresses_have_one_text),
        cmocka_unit_test(read_from_file_or_itself),
        cmocka_unit_test(read_where_somebody_types),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
