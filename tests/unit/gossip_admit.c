/*
 * Words about who comes in (pool_admit.c), where delegates take part: who is asked, whose refusal counts, who is told
 * to be a delegate, and what becomes of those that a banned delegate let in.
 */
#include "tests/lib/talk_net.h"

/* Who let others in. */
static gsp_identity delegate;

static int begin(void **state)
{
    int failed = setup(state);
    uint8_t seed[32] = {66};
    p->door.plain = false; /* the net has no gate, but its words are those of a pool that has */
    test_must(gsp_identity_from_seed(seed, &delegate));
    return failed;
}

static gsp_delegation delegation_of(const uint8_t *key, uint64_t until)
{
    gsp_delegation d = {.issued_s = test_now_s() - 1, .expires_s = until};
    memcpy(d.pool, o.door.pool, sizeof d.pool);
    memcpy(d.delegate, key, sizeof d.delegate);
    gsp_delegation_sign(&d, &o.door.identity);
    return d;
}

/* The host of this byte shows a delegation until then. */
static void shows_delegation(uint8_t first, uint64_t until)
{
    uint8_t key[GSP_PUBLIC_BYTES];
    set_key(key, first);
    const gsp_delegation d = delegation_of(key, until);
    gsp_delegation_encode(&d, shown_by[first].data);
    shown_by[first].bytes = GSP_DELEGATION_BYTES;
    shown_by[first].role = GSP_DELEGATE;
}

/* An admission of a key that the delegate signed; returns its bytes. */
static uint32_t by_delegate(const uint8_t *key, uint8_t *out)
{
    gsp_admission a = {
        .manifest = 1, .issued_s = test_now_s() - 1, .expires_s = test_now_s() + 86400};
    const gsp_delegation d = delegation_of(delegate.public_key, test_now_s() + 86400);
    memcpy(a.pool, o.door.pool, sizeof a.pool);
    memcpy(a.member, key, sizeof a.member);
    gsp_admission_sign(&a, &delegate);
    gsp_admission_encode(&a, out);
    gsp_delegation_encode(&d, out + GSP_ADMISSION_BYTES);
    return GSP_ADMISSION_BYTES + GSP_DELEGATION_BYTES;
}

static void shows_admission_of_delegate(uint8_t first)
{
    uint8_t key[GSP_PUBLIC_BYTES];
    set_key(key, first);
    shown_by[first].bytes = by_delegate(key, shown_by[first].data);
    shown_by[first].role = GSP_MEMBER;
}

static void ban_the_delegate(gsp_door *d)
{
    memcpy(d->manifest->banned[d->manifest->n_banned++], delegate.public_key, GSP_PUBLIC_BYTES);
}

/* Where the owner is not here a delegate is asked; if there are two, the refusal of one is no answer yet. */
static void delegates_are_asked_in_turn(void **state)
{
    (void)state;
    gsp_word ask = {.kind = GSP_WORD_ASK_ADMISSION}, answer = {.kind = GSP_WORD_ADMISSION};
    gsp_link *guest = link_up(1, (gsp_net_event){.guest = true, .inbound = true});
    shows_delegation(2, test_now_s() + 86400);
    shows_delegation(4, test_now_s() - 1); /* one whose time is over */
    link_up(2, (gsp_net_event){.inbound = true});
    link_up(3, (gsp_net_event){.inbound = true});
    link_up(4, (gsp_net_event){.inbound = true});
    set_key(ask.key, 1);
    set_key(answer.key, 1);
    net.n = 0;
    say(1, &ask);
    assert_int_equal(told(2, GSP_WORD_ASK_ADMISSION), 1);
    assert_int_equal(net.n, 1);
    answer.refusal = GSP_REFUSED_EXPIRED;
    shows_delegation(4, test_now_s() + 86400);
    say(2, &answer);
    assert_int_equal(told(1, GSP_WORD_ADMISSION), 1);
    assert_false(guest->answered); /* the other one may admit it */
    say(3, &answer);               /* a member like others */
    say(4, &(gsp_word){.kind = GSP_WORD_ADMISSION, .refusal = GSP_WORD_AWAY});
    assert_int_equal(told(1, GSP_WORD_ADMISSION), 1);
    shows_delegation(4, test_now_s() - 1);
    say(2, &answer); /* the only one there is */
    assert_int_equal(told(1, GSP_WORD_ADMISSION), 2);
    assert_true(guest->answered && guest->doomed_ns);
}

/* A newer ticket makes a guest of a host that a delegate let in, because that may be void by now; where only members
 * are there, they know. */
static void a_newer_ticket_keeps_nobody_out(void **state)
{
    (void)state;
    gsp_word away = {.kind = GSP_WORD_ADMISSION, .refusal = GSP_WORD_AWAY};
    gsp_net_event refused = {.kind = GSP_NET_REFUSED, .refusal = GSP_REFUSED_CREDENTIAL};
    gsp_manifest *next = atom_alloc(1, sizeof *next);
    uint32_t number = p->door.manifest->number;
    gsp_ticket t;
    p->seek.hosts = &p->door.hosts;
    memcpy(away.key, p->door.identity.public_key, sizeof away.key);
    test_must(gsp_ticket_parse(o.door.ticket, &t));
    t.manifest = number + 1;
    for (int again = 0; again < 2; again++) {
        uint8_t mine[GSP_CREDENTIAL_BYTES_MAX];
        const uint32_t bytes = by_delegate(p->door.identity.public_key, mine);
        p->door.credential_bytes = bytes;
        memcpy(p->door.credential, mine, bytes);
        test_must(gsp_door_save_admission(&p->door));
        test_must(gsp_door_take_ticket(&p->door, &t));
        p->door.plain = p->was_admitted = false;
        assert_true(p->door.is_guest);
        link_up(3, (gsp_net_event){0});
        say(3, &away);
        assert_true(!p->door.is_guest && p->was_admitted);
        assert_memory_equal(p->door.credential, mine, bytes);
        assert_true(gsp_door_awaits_manifest(&p->door));
        if (again)
            continue;
        (void)gsp_pool_take(p, &refused); /* it was void: the invite is good all the same */
        assert_true(p->door.is_guest && !gsp_door_awaits_manifest(&p->door));
        say(3, &away);
        assert_true(p->door.is_guest); /* it is not tried twice */
    }
    *next = *p->door.manifest; /* the manifest of the ticket comes: it is in */
    next->number = number + 1;
    *p->door.manifest = *next;
    assert_false(gsp_door_awaits_manifest(&p->door));
    (void)gsp_pool_take(p, &refused);
    assert_false(p->door.is_guest);
    atom_free(next);
}

/* Orders over the control socket are obeyed before it is in, too. */
static void who_is_asked_to_end_does_not_wait(void **state)
{
    (void)state;
    for (int leave = 0; leave < 2; leave++) {
        atomic_store(leave ? &p->leave : &p->asked_stop, true);
        assert_int_equal(gsp_pool_wait(p, 0, NULL, NULL), ATOM_E_INTERRUPTED);
        p->leave = p->asked_stop = false;
    }
}

/* A delegate lets a question go on to the owner, and answers it where the owner is not here. */
static void a_delegate_answers_for_an_owner_that_is_away(void **state)
{
    (void)state;
    gsp_ticket t;
    gsp_word ask = {.kind = GSP_WORD_ASK_ADMISSION},
             told_us = {.kind = GSP_WORD_ADMISSION, .credential_bytes = GSP_DELEGATION_BYTES};
    const gsp_delegation d = delegation_of(p->door.identity.public_key, test_now_s() + 86400);
    memcpy(told_us.key, p->door.identity.public_key, sizeof told_us.key);
    gsp_delegation_encode(&d, told_us.credential);
    link_up(2, (gsp_net_event){.inbound = true});
    say(2, &told_us); /* whoever passes it on */
    assert_true(p->ticket_is_old && p->door.n_delegations == 1);
    test_must(gsp_pool_load_owner(p));
    link_up(1, (gsp_net_event){.guest = true, .inbound = true});
    test_must(gsp_ticket_parse(o.door.ticket, &t));
    set_key(ask.key, 1);
    ask.credential_bytes = (uint32_t)gsp_ticket_credential(&t, ask.credential);
    link_up(OWNER, (gsp_net_event){.inbound = true});
    net.n = 0;
    say(1, &ask);
    assert_int_equal(told(OWNER, GSP_WORD_ASK_ADMISSION), 1);
    assert_int_equal(net.n, 1);
    gsp_links_find(&p->links, p->door.owner)->up = false;
    say(1, &ask);
    assert_int_equal(told(1, GSP_WORD_ADMISSION), 1);
}

/* Whoever a banned delegate let in gets no key from the owner, and nothing at all from others. */
static void what_a_banned_delegate_signed_is_void(void **state)
{
    (void)state;
    const gsp_word ask = {.kind = GSP_WORD_ASK_MANIFEST};
    link_up(1, (gsp_net_event){.inbound = true});
    shows_admission_of_delegate(1);
    net.n = 0;
    say(1, &ask);
    assert_true(net.n == 1 && net.sent[0].has_psk);
    ban_the_delegate(&p->door);
    say(1, &ask);
    assert_int_equal(net.n, 1);
    /* The same with the key of before, which makes it a guest at the gate. */
    shows_admission_of_delegate(2);
    gsp_link *old = link_up(2, (gsp_net_event){.inbound = true, .guest = true, .old_key = true});
    assert_int_equal(net.n, 1);
    assert_true(old->doomed_ns);
    shows_admission_of_delegate(3);
    assert_true(link_up(3, (gsp_net_event){.inbound = true})->doomed_ns);
    assert_int_equal(net.n, 1);
    /* As the owner. */
    memcpy(p->door.owner, p->door.identity.public_key, sizeof p->door.owner);
    say(1, &ask);
    assert_true(net.n == 2 && net.sent[1].kind == GSP_WORD_MANIFEST && !net.sent[1].has_psk);
    memcpy(p->door.owner, o.door.owner, sizeof p->door.owner);
    /* One that nobody else let in is served as ever. */
    link_up(5, (gsp_net_event){.inbound = true});
    net.n = 0;
    say(5, &ask);
    assert_true(net.n == 1 && net.sent[0].has_psk);
}

/* We were let in by it ourselves: with the new key we ask to be admitted again, without it we are out. */
static void our_own_admission_becomes_void(void **state)
{
    (void)state;
    for (int with_key = 1; with_key >= 0; with_key--) {
        p->door.credential_bytes = by_delegate(p->door.identity.public_key, p->door.credential);
        p->door.is_guest = false;
        test_must(gsp_door_rotate(&o.door, delegate.public_key));
        gsp_word m = manifest_of(&o.door);
        if (!with_key)
            memset(m.psk, 0, sizeof m.psk);
        link_up(OWNER, (gsp_net_event){.inbound = true});
        p->renew_ns = 1;
        say(OWNER, &m);
        assert_int_equal(gsp_door_number(&p->door), gsp_door_number(&o.door));
        assert_int_equal(p->renew_ns, 0);
        assert_int_equal(gsp_headline_check(&p->headline) == ATOM_OK, with_key);
        assert_true(gsp_door_wants_admission(&p->door, test_now_s()));
    }
    assert_non_null(strstr(atom_fail_message(), "its admissions are void"));
}

/* The owner's gate turns us away, and what we show is a delegate's: that is the end, and not a reason to try for ever. */
static void the_owner_refuses_what_a_delegate_signed(void **state)
{
    (void)state;
    gsp_net_event e = {.kind = GSP_NET_REFUSED, .refusal = GSP_REFUSED_CREDENTIAL, .why = ""};
    p->seek = (gsp_seek){.net = &net.net, .hosts = &p->door.hosts};
    set_key(e.key, OWNER);
    assert_false(gsp_pool_take(p, &e)); /* ours is the owner's: it cannot be void */
    assert_true(gsp_headline_check(&p->headline) == ATOM_OK);
    p->door.credential_bytes = by_delegate(p->door.identity.public_key, p->door.credential);
    set_key(e.key, 1);
    assert_false(gsp_pool_take(p, &e)); /* anybody's word */
    assert_true(gsp_headline_check(&p->headline) == ATOM_OK);
    set_key(e.key, OWNER);
    assert_false(gsp_pool_take(p, &e));
    assert_true(gsp_headline_check(&p->headline) != ATOM_OK);
}

int main(void)
{
    test_must(gsp_crypto_start());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(delegates_are_asked_in_turn, begin, teardown),
        cmocka_unit_test_setup_teardown(a_delegate_answers_for_an_owner_that_is_away, begin,
                                        teardown),
        cmocka_unit_test_setup_teardown(what_a_banned_delegate_signed_is_void, begin, teardown),
        cmocka_unit_test_setup_teardown(our_own_admission_becomes_void, begin, teardown),
        cmocka_unit_test_setup_teardown(a_newer_ticket_keeps_nobody_out, begin, teardown),
        cmocka_unit_test_setup_teardown(who_is_asked_to_end_does_not_wait, begin, teardown),
        cmocka_unit_test_setup_teardown(the_owner_refuses_what_a_delegate_signed, begin, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
