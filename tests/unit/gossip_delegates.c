/* Delegates: what they may do for an owner that is away, and what is left of it when one is banned. */
#include "atom/base/clock.h"
#include "atom/base/files.h"
#include "tests/lib/gossip_owner.h"

static const uint64_t DAY = 86400;

/* An owner, and a member that it has named and told. */
typedef struct world {
    owner o;
    scratch place;
    gsp_door delegate;
} world;

static void tell(owner *o, gsp_door *d)
{
    uint8_t bytes[GSP_DELEGATION_BYTES];
    gsp_delegation_encode(gsp_door_delegation(&o->door, d->identity.public_key, test_now_s()),
                          bytes);
    assert_true(gsp_door_take_delegation(d, bytes, sizeof bytes, test_now_s()));
}

/* Members have the manifest. */
static void read_manifest(owner *o, gsp_door *d)
{
    test_must(gsp_door_adopt(d, o->door.manifest, o->door.manifest_text, o->door.psk[0]));
}

static void world_open(world *w, double days)
{
    gsp_word answer;
    gsp_delegation given;
    owner_open(&w->o, 9);
    guest_open(&w->delegate, &w->place, w->o.door.ticket);
    assert_int_equal(ask(&w->o, &w->delegate, &answer), GSP_WELCOME);
    assert_true(take(&w->delegate, &answer));
    read_manifest(&w->o, &w->delegate);
    test_must(gsp_door_delegate(&w->o.door, w->delegate.identity.public_key, days, &given));
    tell(&w->o, &w->delegate);
    test_must(gsp_door_load_owner(&w->delegate));
    test_must(gsp_door_new_ticket(&w->delegate, &HOSTS, 2, 1));
}

static void world_close(world *w)
{
    guest_close(&w->delegate, &w->place);
    owner_close(&w->o);
}

/* An admission that the delegate signed, until a moment of our choice; returns its bytes. */
static uint32_t by_the_delegate(const world *w, const gsp_door *d, uint64_t until, uint8_t *out)
{
    gsp_admission a = {.manifest = 1, .issued_s = test_now_s() - 1, .expires_s = until};
    memcpy(a.pool, d->pool, sizeof a.pool);
    memcpy(a.member, d->identity.public_key, sizeof a.member);
    gsp_admission_sign(&a, &w->delegate.identity);
    gsp_admission_encode(&a, out);
    gsp_delegation_encode(&w->delegate.delegation[0], out + GSP_ADMISSION_BYTES);
    return GSP_ADMISSION_BYTES + GSP_DELEGATION_BYTES;
}

static void a_delegate_admits_and_renews(void **state)
{
    (void)state;
    world w;
    scratch places[3];
    gsp_door by_owner, by_delegate, third;
    gsp_word answer;
    gsp_ticket t;
    world_open(&w, 365);
    assert_true(gsp_door_admits(&w.o.door, test_now_s()));
    assert_true(gsp_door_admits(&w.delegate, test_now_s()));
    /* Its ticket is good, and so is the owner's. */
    test_must(gsp_ticket_parse(w.delegate.ticket, &t));
    test_must(gsp_ticket_check(&t, test_now_s()));
    guest_open(&by_owner, &places[0], w.o.door.ticket);
    guest_open(&by_delegate, &places[1], w.delegate.ticket);
    guest_open(&third, &places[2], w.delegate.ticket);
    assert_false(gsp_door_admits(&third, test_now_s()));
    assert_int_equal(ask_door(&w.delegate, &by_owner, &answer), GSP_WELCOME);
    assert_true(take(&by_owner, &answer));
    assert_int_equal(ask_door(&w.delegate, &by_delegate, &answer), GSP_WELCOME);
    assert_true(take(&by_delegate, &answer));
    /* The owner knows nothing of it, and takes the delegate's invite and its admission as they are. */
    assert_int_equal(ask(&w.o, &third, &answer), GSP_WELCOME);
    gsp_word renewed;
    assert_int_equal(ask(&w.o, &by_delegate, &renewed), GSP_WELCOME);
    /* The owner's is better than a delegate's, which is asked to be replaced within a day; not the other way. */
    assert_false(gsp_door_wants_admission(&by_delegate, test_now_s()));
    assert_true(gsp_door_wants_admission(&by_delegate, test_now_s() + DAY + 1));
    assert_true(take(&by_delegate, &renewed));
    assert_false(gsp_door_wants_admission(&by_delegate, test_now_s() + DAY + 1));
    uint8_t later[GSP_CREDENTIAL_BYTES_MAX];
    const uint64_t ends = gsp_credential_ends(by_delegate.credential, by_delegate.credential_bytes);
    const uint32_t bytes = by_the_delegate(&w, &by_delegate, ends + 1, later);
    assert_false(gsp_door_take_admission(&by_delegate, later, bytes, test_now_s()));
    assert_memory_equal(by_delegate.credential, renewed.credential, GSP_ADMISSION_BYTES);
    assert_false(gsp_door_take_admission(&by_delegate, later, bytes, test_now_s() + 22 * DAY));
    assert_true(gsp_door_take_admission(&by_delegate, later, bytes, test_now_s() + 24 * DAY));
    /* The owner's with little time left, which somebody kept, takes nothing from it. */
    assert_false(gsp_door_take_admission(&by_delegate, renewed.credential, renewed.credential_bytes,
                                         test_now_s() + 24 * DAY));
    /* It comes back from disk with both signatures. */
    assert_int_equal(by_delegate.credential_bytes, GSP_ADMISSION_BYTES + GSP_DELEGATION_BYTES);
    by_delegate.credential_bytes = 0;
    assert_true(gsp_door_load_admission(&by_delegate));
    assert_int_equal(by_delegate.credential_bytes, GSP_ADMISSION_BYTES + GSP_DELEGATION_BYTES);
    /* A delegate makes no delegates, bans nobody, and speaks for nobody. */
    gsp_delegation given;
    gsp_door_ban done;
    assert_int_equal(gsp_door_delegate(&w.delegate, third.identity.public_key, 9, &given),
                     ATOM_E_USAGE);
    assert_int_equal(gsp_door_rotate(&w.delegate, NULL), ATOM_E_USAGE);
    assert_int_equal(gsp_door_ban_key(&w.delegate, third.identity.public_key, false, &done),
                     ATOM_E_USAGE);
    third.credential[40] ^= 1;
    assert_int_equal(ask_door(&w.delegate, &third, &answer), GSP_REFUSED_CREDENTIAL);
    assert_int_equal(answer.credential_bytes, 0);
    assert_false(gsp_door_is_owners_word(&third, &answer, test_now_s()));
    guest_close(&by_owner, &places[0]);
    guest_close(&by_delegate, &places[1]);
    guest_close(&third, &places[2]);
    world_close(&w);
}

static void a_delegation_ends(void **state)
{
    (void)state;
    world w;
    scratch place;
    gsp_door member;
    gsp_word answer;
    uint8_t shown[GSP_CREDENTIAL_BYTES_MAX];
    char lacks[300];
    world_open(&w, 5);
    guest_open(&member, &place, w.delegate.ticket);
    assert_int_equal(ask_door(&w.delegate, &member, &answer), GSP_WELCOME);
    assert_true(take(&member, &answer));
    /* What it signed ends with it, and so does what it shows; after that it is a member like the others. */
    const uint64_t ends = w.delegate.delegation[0].expires_s;
    assert_int_equal(gsp_credential_ends(member.credential, member.credential_bytes), ends);
    assert_int_equal(gsp_door_shows(&w.delegate, test_now_s(), shown), GSP_DELEGATION_BYTES);
    assert_int_equal(gsp_credential_ends(shown, GSP_DELEGATION_BYTES), ends);
    assert_int_equal(gsp_door_shows(&w.delegate, ends - 500, shown), GSP_ADMISSION_BYTES);
    assert_false(gsp_door_admits(&w.delegate, ends - 500));
    assert_true(gsp_door_lacks_admission(&w.delegate, test_now_s(), lacks, sizeof lacks));
    assert_non_null(strstr(lacks, "delegation ends"));
    assert_true(gsp_door_lacks_admission(&member, test_now_s(), lacks, sizeof lacks));
    assert_non_null(strstr(lacks, "its delegates can renew it"));
    /* Named again, for longer; an earlier end does not replace a later one. */
    gsp_delegation given;
    uint8_t before[GSP_DELEGATION_BYTES];
    gsp_delegation_encode(&w.delegate.delegation[0], before);
    test_must(gsp_door_delegate(&w.o.door, w.delegate.identity.public_key, 50, &given));
    assert_int_equal(w.o.door.n_delegations, 1);
    tell(&w.o, &w.delegate);
    assert_int_equal(w.delegate.n_delegations, 1);
    assert_int_equal(gsp_door_delegate(&w.o.door, w.delegate.identity.public_key, 40, &given),
                     ATOM_E_USAGE); /* it would keep the longer one */
    assert_false(gsp_door_take_delegation(&w.delegate, before, sizeof before, test_now_s()));
    assert_int_equal(w.delegate.delegation[0].expires_s, given.expires_s);
    /* Its ticket is made anew then, and kept where nothing has changed. */
    gsp_ticket was, now;
    test_must(gsp_ticket_parse(w.delegate.ticket, &was));
    test_must(gsp_door_refresh_ticket(&w.delegate, &HOSTS));
    test_must(gsp_ticket_parse(w.delegate.ticket, &now));
    assert_memory_not_equal(was.invite.id, now.invite.id, sizeof was.invite.id);
    assert_int_equal(now.delegation.expires_s, given.expires_s);
    test_must(gsp_door_refresh_ticket(&w.delegate, &HOSTS));
    test_must(gsp_ticket_parse(w.delegate.ticket, &was));
    assert_memory_equal(was.invite.id, now.invite.id, sizeof was.invite.id);
    /* One that lost its admission asks for one, so that it has one when its delegation ends. */
    w.delegate.credential_bytes = 0;
    assert_true(gsp_door_wants_admission(&w.delegate, test_now_s()));
    assert_false(gsp_door_wants_admission(&w.o.door, test_now_s()));
    guest_close(&member, &place);
    world_close(&w);
}

/* The owner's list and a delegate's own survive a restart; another's does not become ours. */
static void delegations_are_kept(void **state)
{
    (void)state;
    world w;
    gsp_door back = {0};
    scratch place;
    gsp_door other;
    uint8_t bytes[GSP_DELEGATION_BYTES];
    world_open(&w, 365);
    w.delegate.n_delegations = w.o.door.n_delegations = 0;
    test_must(gsp_door_load_delegations(&w.o.door));
    assert_int_equal(w.o.door.n_delegations, 1);
    test_must(gsp_door_open(&back, w.place.dir));
    test_must(gsp_door_load_keys(&back));
    test_must(gsp_door_load_manifest(&back));
    test_must(gsp_door_load_delegations(&back));
    assert_int_equal(back.n_delegations, 1);
    assert_true(gsp_door_load_admission(&back));
    test_must(gsp_door_load_owner(&back));
    assert_true(gsp_door_admits(&back, test_now_s()));
    assert_string_equal(back.ticket, w.delegate.ticket);
    gsp_door_close(&back);
    guest_open(&other, &place, w.o.door.ticket);
    gsp_delegation_encode(&w.o.door.delegation[0], bytes);
    assert_false(gsp_door_take_delegation(&other, bytes, sizeof bytes, test_now_s()));
    bytes[GSP_DELEGATION_BYTES - 1] ^= 1;
    w.delegate.n_delegations = 0;
    assert_false(gsp_door_take_delegation(&w.delegate, bytes, sizeof bytes, test_now_s()));
    char *copy = atom_path_join(w.place.dir, "delegations"),
         *own = atom_path_join(place.dir, "delegations");
    char *data = NULL;
    uint64_t n = 0;
    test_must(atom_file_read(copy, 1 << 20, &data, &n));
    assert_int_equal(n, GSP_DELEGATION_BYTES);
    test_must(atom_file_write(own, data, n));
    test_must(gsp_door_load_delegations(&other));
    assert_int_equal(other.n_delegations, 0);
    test_must(atom_file_write(own, data, n - 1));
    assert_int_equal(gsp_door_load_delegations(&other), ATOM_E_FORMAT);
    atom_free(data);
    atom_free(copy);
    atom_free(own);
    guest_close(&other, &place);
    world_close(&w);
}

static void who_may_be_one(void **state)
{
    (void)state;
    owner o;
    gsp_delegation given;
    owner_open(&o, 9);
    uint8_t key[GSP_PUBLIC_BYTES] = {1};
    assert_int_equal(gsp_door_delegate(&o.door, o.door.owner, 9, &given), ATOM_E_USAGE);
    assert_int_equal(gsp_door_delegate(&o.door, key, 0.5, &given), ATOM_E_USAGE);
    assert_int_equal(gsp_door_delegate(&o.door, key, 3651, &given), ATOM_E_USAGE);
    for (int i = 0; i < GSP_DELEGATES_MAX; i++, key[1]++)
        test_must(gsp_door_delegate(&o.door, key, 9, &given));
    assert_int_equal(gsp_door_delegate(&o.door, key, 9, &given), ATOM_E_USAGE);
    key[1]--;
    test_must(gsp_door_delegate(&o.door, key, 10, &given)); /* again is not one more */
    o.door.delegation[3].expires_s = test_now_s();
    key[1]++;
    test_must(gsp_door_delegate(&o.door, key, 9, &given)); /* in the place of one that has ended */
    assert_int_equal(o.door.n_delegations, GSP_DELEGATES_MAX);
    test_must(gsp_door_rotate(&o.door, (uint8_t[GSP_PUBLIC_BYTES]){1, 99}));
    assert_int_equal(gsp_door_delegate(&o.door, (uint8_t[GSP_PUBLIC_BYTES]){1, 99}, 9, &given),
                     ATOM_E_USAGE);
    o.door.plain = true;
    assert_int_equal(gsp_door_delegate(&o.door, (uint8_t[GSP_PUBLIC_BYTES]){1, 1}, 9, &given),
                     ATOM_E_USAGE);
    owner_close(&o);
}

static gsp_refusal enters(gsp_door *at, const gsp_door *d)
{
    gsp_handshake_config who;
    const gsp_hello hello = {0};
    gsp_door_who(at, &who);
    return who.may_enter(who.ctx, d->identity.public_key,
                         gsp_credential_issuer(d->credential, d->credential_bytes), &hello);
}

/* All that a banned delegate signed is void; whom the owner knows is admitted by the owner before that. */
static void a_ban_makes_it_void(void **state)
{
    (void)state;
    static const uint8_t none[GSP_PSK_BYTES];
    world w;
    scratch places[3];
    gsp_door known, unknown, guest;
    gsp_word answer;
    gsp_door_ban done;
    world_open(&w, 365);
    guest_open(&known, &places[0], w.o.door.ticket);
    guest_open(&unknown, &places[1], w.delegate.ticket);
    guest_open(&guest, &places[2], w.delegate.ticket);
    assert_int_equal(ask(&w.o, &known, &answer), GSP_WELCOME);
    assert_int_equal(ask_door(&w.delegate, &known, &answer), GSP_WELCOME);
    assert_true(take(&known, &answer)); /* the owner's was lost on the way */
    assert_int_equal(ask_door(&w.delegate, &unknown, &answer), GSP_WELCOME);
    assert_true(take(&unknown, &answer));
    read_manifest(&w.o, &known);
    read_manifest(&w.o, &unknown);
    assert_int_equal(enters(&w.o.door, &unknown), GSP_WELCOME);
    assert_int_equal(enters(&w.o.door, &guest), GSP_WELCOME);

    gsp_word again;
    assert_true(gsp_door_readmit(&w.o.door, known.identity.public_key, &again));
    assert_false(gsp_door_readmit(&w.o.door, unknown.identity.public_key, &answer));
    assert_false(gsp_door_readmit(&w.delegate, known.identity.public_key, &answer));
    w.o.door.rotated_s = test_now_s() + 5;
    test_must(gsp_door_ban_key(&w.o.door, w.delegate.identity.public_key, false, &done));
    assert_true(done.delegate);
    assert_int_equal(w.o.door.n_delegations, 0);
    assert_false(gsp_door_end_delegations(&w.o.door));
    assert_int_equal(enters(&w.o.door, &w.delegate), GSP_REFUSED_BANNED);
    assert_int_equal(enters(&w.o.door, &known), GSP_REFUSED_CREDENTIAL);
    assert_int_equal(enters(&w.o.door, &unknown), GSP_REFUSED_CREDENTIAL);
    assert_int_equal(enters(&w.o.door, &guest), GSP_REFUSED_CREDENTIAL);
    assert_int_equal(ask(&w.o, &unknown, &answer), GSP_REFUSED_CREDENTIAL);
    /* Whom the owner knows it admits again also where that word was lost, on the link that is still there. */
    test_must(gsp_door_adopt(&known, w.o.door.manifest, w.o.door.manifest_text, w.o.door.psk[0]));
    assert_true(gsp_door_voids(&known, known.credential, known.credential_bytes));
    assert_true(gsp_door_wants_admission(&known, test_now_s()));
    assert_int_equal(ask(&w.o, &known, &answer), GSP_WELCOME);
    assert_true(take(&known, &again));
    assert_int_equal(enters(&w.o.door, &known), GSP_WELCOME);
    assert_false(gsp_door_voids(&known, known.credential, known.credential_bytes));

    /* Whoever was away meanwhile joins again with a new ticket, though nothing here says that its admission is void. */
    gsp_ticket t;
    test_must(gsp_door_new_ticket(&w.o.door, &HOSTS, 2, 1));
    test_must(gsp_ticket_parse(w.o.door.ticket, &t));
    test_must(gsp_door_take_ticket(&unknown, &t));
    assert_true(unknown.is_guest);
    /* Where nobody is there to admit it, it shows what it has; that is refused here, and so it waits. */
    assert_false(gsp_door_awaits_manifest(&unknown));
    assert_true(gsp_door_show_earlier(&unknown));
    assert_true(!unknown.is_guest && gsp_door_awaits_manifest(&unknown));
    assert_false(gsp_door_show_earlier(&unknown));
    assert_int_equal(enters(&w.o.door, &unknown), GSP_REFUSED_CREDENTIAL);
    gsp_door_show_invite(&unknown);
    assert_true(unknown.is_guest && !gsp_door_awaits_manifest(&unknown));
    assert_false(gsp_door_show_earlier(&unknown)); /* that came to nothing */
    assert_int_equal(enters(&w.o.door, &unknown), GSP_WELCOME);
    assert_true(gsp_door_load_admission(&unknown));

    /* Whoever is shut out learns that without the new key, and is told what to do, also after a restart. */
    test_must(gsp_door_adopt(&unknown, w.o.door.manifest, w.o.door.manifest_text, none));
    assert_true(gsp_door_voids(&unknown, unknown.credential, unknown.credential_bytes));
    assert_false(gsp_door_load_admission(&unknown));
    assert_int_equal(gsp_door_fail_admission(&unknown, test_now_s()), ATOM_E_FORMAT);
    assert_non_null(strstr(atom_fail_message(), "has been banned"));
    /* With a new ticket of the owner it comes in, into the same directory and with the new key. */
    test_must(gsp_door_take_ticket(&unknown, &t));
    assert_true(unknown.is_guest);
    assert_memory_equal(unknown.psk[0], w.o.door.psk[0], sizeof unknown.psk[0]);
    assert_int_equal(ask(&w.o, &unknown, &answer), GSP_WELCOME);
    assert_true(take(&unknown, &answer));
    guest_close(&known, &places[0]);
    guest_close(&unknown, &places[1]);
    guest_close(&guest, &places[2]);
    world_close(&w);
}

/* A delegate hears of a new key after it was made, perhaps days later; tickets are made with it at once, by either. */
static void tickets_of_a_new_key(void **state)
{
    (void)state;
    world w;
    scratch places[3];
    gsp_door early, late, of_delegate;
    gsp_word answer;
    gsp_ticket t;
    world_open(&w, 365);
    guest_open(&early, &places[0], w.delegate.ticket);
    w.o.door.rotated_s = test_now_s() + 60; /* the owner's clock is ahead by a minute */
    test_must(gsp_door_rotate(&w.o.door, NULL));
    test_must(gsp_door_new_ticket(&w.o.door, &HOSTS, 2, 1));
    guest_open(&late, &places[1], w.o.door.ticket);
    read_manifest(&w.o, &w.delegate);
    test_must(gsp_door_refresh_ticket(&w.delegate, &HOSTS)); /* its own had the old key */
    test_must(gsp_ticket_parse(w.delegate.ticket, &t));
    assert_memory_equal(t.psk, w.o.door.psk[0], sizeof t.psk);
    guest_open(&of_delegate, &places[2], w.delegate.ticket);
    assert_int_equal(ask(&w.o, &of_delegate, &answer), GSP_WELCOME);
    w.delegate.rotated_s = test_now_s() + DAY; /* it heard of the key a day later */
    assert_int_equal(ask_door(&w.delegate, &late, &answer), GSP_WELCOME);
    assert_int_equal(ask_door(&w.delegate, &early, &answer),
                     GSP_REFUSED_EXPIRED); /* its own, of before */
    w.o.door.rotated_s = test_now_s() + DAY;
    assert_int_equal(ask(&w.o, &early, &answer), GSP_REFUSED_EXPIRED);
    guest_close(&early, &places[0]);
    guest_close(&late, &places[1]);
    guest_close(&of_delegate, &places[2]);
    world_close(&w);
}

/* A delegate that another one admitted stays, whatever becomes of that one: its own right is the owner's word. */
static void delegates_do_not_fall_with_each_other(void **state)
{
    (void)state;
    world w;
    scratch place;
    gsp_door other;
    gsp_word answer;
    gsp_delegation given;
    gsp_door_ban done;
    uint8_t shown[GSP_CREDENTIAL_BYTES_MAX];
    world_open(&w, 365);
    guest_open(&other, &place, w.delegate.ticket);
    assert_int_equal(ask_door(&w.delegate, &other, &answer), GSP_WELCOME);
    assert_true(take(&other, &answer));
    read_manifest(&w.o, &other);
    test_must(gsp_door_delegate(&w.o.door, other.identity.public_key, 90, &given));
    tell(&w.o, &other);
    test_must(gsp_door_ban_key(&w.o.door, w.delegate.identity.public_key, false, &done));
    assert_int_equal(w.o.door.n_delegations, 1);
    assert_int_equal(gsp_door_adopt(&other, w.o.door.manifest, w.o.door.manifest_text,
                                    (uint8_t[GSP_PSK_BYTES]){0}),
                     ATOM_E_FORMAT); /* it is owed the key */
    test_must(gsp_door_adopt(&other, w.o.door.manifest, w.o.door.manifest_text, w.o.door.psk[0]));
    const uint32_t bytes = gsp_door_shows(&other, test_now_s(), shown);
    assert_false(gsp_door_voids(&other, shown, bytes));
    assert_true(gsp_door_knows_key(&other));
    assert_true(
        gsp_door_wants_admission(&other, test_now_s())); /* the void one is to be replaced */
    assert_true(gsp_door_load_admission(&other));
    guest_close(&other, &place);
    world_close(&w);
}

int main(void)
{
    test_must(gsp_crypto_start());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_delegate_admits_and_renews),
        cmocka_unit_test(a_delegation_ends),
        cmocka_unit_test(delegations_are_kept),
        cmocka_unit_test(who_may_be_one),
        cmocka_unit_test(a_ban_makes_it_void),
        cmocka_unit_test(tickets_of_a_new_key),
        cmocka_unit_test(delegates_do_not_fall_with_each_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
