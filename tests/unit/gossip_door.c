/* The door: who is admitted, what the owner's changes do, and what comes back from disk. */
#include "atom/base/clock.h"
#include "tests/lib/gossip_owner.h"

#include <time.h>

/* Others saw our admissions in contacts: one that we show now or showed before changes nothing when it comes again, but
 * where ours has ended. */
static void only_a_later_one_counts(const owner *o, gsp_door *d, const gsp_word *now)
{
    gsp_admission a = {.manifest = 1, .issued_s = test_now_s() - 1};
    uint8_t other[GSP_CREDENTIAL_BYTES_MAX];
    const uint64_t ends = gsp_credential_ends(d->credential, d->credential_bytes);
    memcpy(a.pool, d->pool, sizeof a.pool);
    memcpy(a.member, d->identity.public_key, sizeof a.member);
    assert_false(take(d, now));
    for (int i = -1; i <= 1; i++) {
        a.expires_s = ends + (uint64_t)i;
        gsp_admission_sign(&a, &o->door.identity);
        gsp_admission_encode(&a, other);
        assert_int_equal(gsp_door_take_admission(d, other, GSP_ADMISSION_BYTES, test_now_s()),
                         i == 1);
        assert_true(gsp_credential_ends(d->credential, d->credential_bytes) == ends + (i == 1));
    }
    memset(d->credential + 40, 0, 8); /* ours is of no use: any that is good is better */
    assert_true(take(d, now));
    assert_memory_equal(d->credential, now->credential, GSP_ADMISSION_BYTES);
}

static void invite_becomes_admission(void **state)
{
    (void)state;
    owner o;
    scratch places[2];
    gsp_door first, second;
    gsp_word answer;
    owner_open(&o, 1);
    guest_open(&first, &places[0], o.door.ticket);
    guest_open(&second, &places[1], o.door.ticket);
    assert_true(first.is_guest);
    assert_false(gsp_door_wants_admission(&first, test_now_s()));
    assert_false(gsp_door_take_admission(&first, first.credential, first.credential_bytes,
                                         test_now_s())); /* an invite is not an admission */
    assert_int_equal(ask(&o, &first, &answer), GSP_WELCOME);
    assert_false(take(&second, &answer)); /* another's admission is of no use */
    assert_true(second.is_guest);
    assert_true(take(&first, &answer));
    assert_false(first.is_guest);
    only_a_later_one_counts(&o, &first, &answer);
    /* The invite was for one; the same host again costs nothing. */
    gsp_word again;
    assert_int_equal(ask(&o, &second, &again), GSP_REFUSED_EXPIRED);
    assert_int_equal(ask(&o, &first, &again), GSP_WELCOME);
    /* Half of its thirty days over, it is renewed; an admission renews itself without an invite. */
    assert_false(gsp_door_wants_admission(&first, test_now_s() + 14 * 86400));
    assert_true(gsp_door_wants_admission(&first, test_now_s() + 16 * 86400));
    uint64_t ends = gsp_credential_ends(first.credential, first.credential_bytes);
    assert_in_range(ends, test_now_s() + 29 * 86400, test_now_s() + 30 * 86400);
    assert_int_equal(gsp_credential_ends(first.credential, 20), 0);
    /* Where nobody renews it, that is said in time. */
    char lacks[300] = "", end[24];
    const time_t last = (time_t)ends;
    struct tm utc;
    strftime(end, sizeof end, "%Y-%m-%d %H:%M", gmtime_r(&last, &utc));
    assert_false(gsp_door_lacks_admission(&first, ends - 11 * 86400, lacks, sizeof lacks));
    assert_false(
        gsp_door_lacks_admission(&second, ends, lacks, sizeof lacks)); /* it has none yet */
    assert_true(gsp_door_lacks_admission(&first, ends - 9 * 86400, lacks, sizeof lacks));
    assert_non_null(strstr(lacks, "ends on"));
    assert_non_null(strstr(lacks, end));
    assert_non_null(strstr(lacks, "ask for that"));
    assert_true(gsp_door_lacks_admission(&first, ends + 1, lacks, sizeof lacks));
    assert_non_null(strstr(lacks, "ended on"));
    /* It is on disk. */
    memset(first.credential, 0, sizeof first.credential);
    first.is_guest = true;
    assert_true(gsp_door_load_admission(&first));
    /* Where the clock says that it is over, or not yet given, both times are named, and so is the clock. */
    const uint64_t clocks[] = {ends + 86400, test_now_s() - 86400};
    for (int i = 0; i < 2; i++) {
        char says[24];
        time_t at = (time_t)clocks[i];
        struct tm t;
        strftime(says, sizeof says, "%Y-%m-%d %H:%M", gmtime_r(&at, &t));
        assert_int_equal(gsp_door_fail_admission(&first, clocks[i]), ATOM_E_FORMAT);
        assert_non_null(strstr(atom_fail_message(), says));
        assert_non_null(strstr(atom_fail_message(), "set the clock"));
        at = (time_t)ends;
        strftime(says, sizeof says, "%Y-%m-%d %H:%M", gmtime_r(&at, &t));
        assert_non_null(strstr(atom_fail_message(), says));
    }
    assert_false(first.is_guest);
    assert_memory_equal(first.credential, answer.credential, GSP_ADMISSION_BYTES);
    guest_close(&first, &places[0]);
    guest_close(&second, &places[1]);
    owner_close(&o);
}

static gsp_refusal enters_as(gsp_door *d, const uint8_t *key, uint64_t boot)
{
    gsp_handshake_config who;
    const gsp_hello hello = {.boot = boot};
    gsp_door_who(d, &who);
    return who.may_enter(who.ctx, key, NULL, &hello);
}

static gsp_refusal enters(gsp_door *d, const uint8_t *key)
{
    return enters_as(d, key, 0);
}

/* While a process of a member is heard, no other one with its key comes in. */
static void one_process_of_a_key(void **state)
{
    (void)state;
    owner o;
    gsp_present here = {.boot = 7, .until_ns = UINT64_MAX};
    const uint8_t other[GSP_PUBLIC_BYTES] = {2};
    owner_open(&o, 9);
    here.key[0] = 1;
    assert_int_equal(enters_as(&o.door, here.key, 8), GSP_WELCOME);
    gsp_door_show_present(&o.door, &here, 1);
    assert_int_equal(enters_as(&o.door, here.key, 8), GSP_REFUSED_TWIN);
    assert_int_equal(enters_as(&o.door, here.key, 7), GSP_WELCOME);
    assert_int_equal(enters_as(&o.door, other, 8), GSP_WELCOME);
    here.until_ns = atom_clock_ns(); /* silent for too long */
    gsp_door_show_present(&o.door, &here, 1);
    assert_int_equal(enters_as(&o.door, here.key, 8), GSP_WELCOME);
    owner_close(&o);
}

static void bans_and_new_keys(void **state)
{
    (void)state;
    owner o;
    scratch places[3];
    gsp_door good, bad, late;
    gsp_word answer;
    owner_open(&o, 9);
    guest_open(&good, &places[0], o.door.ticket);
    guest_open(&bad, &places[1], o.door.ticket);
    guest_open(&late, &places[2], o.door.ticket);
    assert_int_equal(ask(&o, &good, &answer), GSP_WELCOME);
    assert_true(take(&good, &answer));
    assert_int_equal(ask(&o, &bad, &answer), GSP_WELCOME);
    assert_true(take(&bad, &answer));
    uint8_t old[GSP_PSK_BYTES];
    memcpy(old, o.door.psk[0], sizeof old);

    assert_int_equal(enters(&o.door, bad.identity.public_key), GSP_WELCOME);
    o.door.rotated_s = test_now_s() + 5; /* the next key begins later than any invite so far */
    test_must(gsp_door_rotate(&o.door, bad.identity.public_key));
    assert_int_equal(gsp_door_number(&o.door), 2);
    assert_int_equal(enters(&o.door, bad.identity.public_key), GSP_REFUSED_BANNED);
    assert_int_equal(enters(&o.door, good.identity.public_key), GSP_WELCOME);
    o.door.shut = true;
    assert_int_equal(enters(&o.door, good.identity.public_key), GSP_REFUSED_FULL);
    assert_int_equal(ask(&o, &bad, &answer), GSP_REFUSED_BANNED);
    assert_int_equal(ask(&o, &good, &answer), GSP_WELCOME);
    assert_int_equal(ask(&o, &late, &answer), GSP_REFUSED_EXPIRED); /* an invite of before */

    /* The key before still opens the door for a day. */
    assert_int_equal(o.door.n_psks, 2);
    assert_memory_equal(o.door.psk[1], old, sizeof old);
    assert_memory_not_equal(o.door.psk[0], old, sizeof old);
    assert_false(gsp_door_forget_old_key(&o.door, o.door.rotated_s + 86399));
    assert_true(gsp_door_forget_old_key(&o.door, o.door.rotated_s + 86400));
    assert_int_equal(o.door.n_psks, 1);

    assert_int_equal(gsp_door_rotate(&o.door, o.door.identity.public_key), ATOM_E_USAGE);
    assert_int_equal(gsp_door_rotate(&good, NULL), ATOM_E_USAGE);
    guest_close(&good, &places[0]);
    guest_close(&bad, &places[1]);
    guest_close(&late, &places[2]);
    owner_close(&o);
}

static void manifests_are_followed(void **state)
{
    (void)state;
    owner o;
    scratch places[2];
    gsp_door member, banned;
    static const uint8_t none[GSP_PSK_BYTES];
    owner_open(&o, 9);
    guest_open(&member, &places[0], o.door.ticket);
    guest_open(&banned, &places[1], o.door.ticket);
    gsp_manifest *first = test_calloc(1, sizeof *first);
    *first = *o.door.manifest;
    char *text = NULL;
    test_must(gsp_manifest_text(first, &text));
    test_must(gsp_door_adopt(&member, first, text, member.psk[0]));
    assert_int_equal(member.n_psks, 1); /* the ticket's key is this manifest's */
    test_must(gsp_door_rotate(&o.door, banned.identity.public_key));
    const gsp_manifest *next = o.door.manifest;

    assert_int_equal(gsp_door_adopt(&member, next, o.door.manifest_text, none), ATOM_E_FORMAT);
    assert_int_equal(gsp_door_number(&member), 1);
    test_must(gsp_door_adopt(&member, next, o.door.manifest_text, o.door.psk[0]));
    assert_int_equal(gsp_door_number(&member), 2);
    assert_memory_equal(member.psk[0], o.door.psk[0], sizeof member.psk[0]);
    assert_int_equal(member.n_psks, 2);
    assert_int_equal(gsp_door_adopt(&member, first, text, member.psk[1]), ATOM_E_FORMAT);

    /* A host that is banned is told so, without the key. */
    test_must(gsp_door_adopt(&banned, next, o.door.manifest_text, none));
    assert_true(gsp_door_bans_us(&banned));
    assert_int_equal(banned.n_psks, 1);
    assert_false(gsp_door_bans_us(&member));

    /* An older ticket brings no older key, and another pool's is refused. */
    gsp_ticket t;
    test_must(gsp_ticket_parse(o.door.ticket, &t));
    t.manifest = 1;
    memset(t.psk, 4, sizeof t.psk);
    test_must(gsp_door_take_ticket(&member, &t));
    assert_memory_equal(member.psk[0], o.door.psk[0], sizeof member.psk[0]);
    t.pool[0]++;
    assert_int_equal(gsp_door_take_ticket(&member, &t), ATOM_E_USAGE);
    atom_free(text);
    test_free(first);
    guest_close(&member, &places[0]);
    guest_close(&banned, &places[1]);
    owner_close(&o);
}

static void owner_comes_back(void **state)
{
    (void)state;
    owner o;
    gsp_door back = {0};
    gsp_ticket was, now;
    owner_open(&o, 9);
    test_must(gsp_door_open(&back, o.place.dir));
    test_must(gsp_door_load_keys(&back));
    test_must(gsp_door_load_manifest(&back));
    assert_true(gsp_door_load_admission(&back)); /* the owner shows nothing */
    test_must(gsp_door_load_owner(&back));
    assert_true(gsp_door_is_owner(&back));
    assert_string_equal(back.ticket, o.door.ticket);
    /* Elsewhere now: the same invite, other hosts. */
    const gsp_hosts moved = {.n = 1, .host = {"192.0.2.8:4400"}};
    test_must(gsp_ticket_parse(back.ticket, &was));
    test_must(gsp_door_refresh_ticket(&back, &moved));
    test_must(gsp_ticket_parse(back.ticket, &now));
    assert_string_equal(now.hosts[0], "192.0.2.8:4400");
    assert_memory_equal(now.invite.id, was.invite.id, sizeof was.invite.id);
    assert_int_equal(gsp_door_new_ticket(&back, &moved, 0, 1), ATOM_E_USAGE);
    assert_int_equal(gsp_door_new_ticket(&back, &moved, 1, 0), ATOM_E_USAGE);
    gsp_door_close(&back);
    owner_close(&o);
}

/* Whoever has a ticket can make several keys; a ban ends the ticket, and can take them all. */
static void a_ban_ends_the_invite(void **state)
{
    (void)state;
    owner o;
    scratch places[4];
    gsp_door d[4];
    gsp_word answer;
    gsp_door_ban done;
    for (int all = 0; all < 2; all++) {
        owner_open(&o, 9);
        for (int i = 0; i < 4; i++)
            guest_open(&d[i], &places[i], o.door.ticket);
        for (int i = 0; i < 3; i++)
            assert_int_equal(ask(&o, &d[i], &answer), GSP_WELCOME);
        test_must(gsp_door_ban_key(&o.door, d[0].identity.public_key, all, &done));
        assert_true(done.has_invite);
        assert_int_equal(done.n_others, 2);
        assert_int_equal(o.door.manifest->n_banned, all ? 3 : 1);
        assert_int_equal(ask(&o, &d[1], &answer), all ? GSP_REFUSED_BANNED : GSP_REFUSED_EXPIRED);
        assert_int_equal(ask(&o, &d[3], &answer), GSP_REFUSED_EXPIRED); /* the next key */
        o.door.rotated_s = 0; /* whatever the clock says of the ticket */
        assert_int_equal(ask(&o, &d[3], &answer), GSP_REFUSED_EXPIRED);
        for (int i = 0; i < 4; i++)
            guest_close(&d[i], &places[i]);
        owner_close(&o);
    }
    owner_open(&o, 9);
    uint8_t unknown[GSP_PUBLIC_BYTES] = {7};
    assert_int_equal(gsp_door_ban_key(&o.door, unknown, true, &done), ATOM_E_USAGE);
    test_must(gsp_door_ban_key(&o.door, unknown, false, &done));
    assert_false(done.has_invite || done.already);
    /* Once more changes nothing: the ticket that was made meanwhile stays good. */
    uint32_t number = o.door.manifest->number;
    uint64_t rotated_s = o.door.rotated_s;
    test_must(gsp_door_ban_key(&o.door, unknown, false, &done));
    assert_true(done.already);
    assert_int_equal(o.door.manifest->number, number);
    assert_int_equal(o.door.rotated_s, rotated_s);
    assert_int_equal(gsp_door_ban_key(&o.door, o.door.owner, false, &done), ATOM_E_USAGE);
    owner_close(&o);
}

/* A refusal that somebody passes on is the owner's own, about this key and what it showed, or
 * worth nothing. */
static void refusals_are_signed(void **state)
{
    (void)state;
    owner o;
    scratch places[3];
    gsp_door d[3];
    gsp_word answer;
    owner_open(&o, 1);
    for (int i = 0; i < 3; i++)
        guest_open(&d[i], &places[i], o.door.ticket);
    uint64_t now = test_now_s();
    assert_int_equal(ask(&o, &d[0], &answer), GSP_WELCOME);
    assert_int_equal(ask(&o, &d[1], &answer), GSP_REFUSED_EXPIRED);
    assert_true(gsp_door_is_owners_word(&d[1], &answer, now));
    assert_false(gsp_door_is_owners_word(&d[2], &answer, now)); /* it was about another */
    assert_false(gsp_door_is_owners_word(&d[1], &answer, now + 3 * GSP_SKEW_SECONDS));
    answer.refusal = GSP_REFUSED_BANNED; /* the owner said something else */
    assert_false(gsp_door_is_owners_word(&d[1], &answer, now));
    answer.refusal = GSP_REFUSED_EXPIRED;
    for (uint32_t i = 0; i < answer.credential_bytes; i++) {
        answer.credential[i] ^= 1;
        assert_false(gsp_door_is_owners_word(&d[1], &answer, now));
        answer.credential[i] ^= 1;
    }
    answer.credential_bytes--;
    assert_false(gsp_door_is_owners_word(&d[1], &answer, now));
    answer.credential_bytes++;
    d[1].credential[9] ^= 1; /* it shows another invite now */
    assert_false(gsp_door_is_owners_word(&d[1], &answer, now));
    for (int i = 0; i < 3; i++)
        guest_close(&d[i], &places[i]);
    owner_close(&o);
}

int main(void)
{
    test_must(gsp_crypto_start());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(invite_becomes_admission), cmocka_unit_test(bans_and_new_keys),
        cmocka_unit_test(one_process_of_a_key),     cmocka_unit_test(manifests_are_followed),
        cmocka_unit_test(owner_comes_back),         cmocka_unit_test(a_ban_ends_the_invite),
        cmocka_unit_test(refusals_are_signed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
