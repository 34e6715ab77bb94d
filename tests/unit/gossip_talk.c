/*
 * What a member does with the words of others (pool_talk.c): guests are heard only when they ask to come in, what is
 * passed on is passed on once, and no single member's word ends, moves or empties a host. The net only remembers.
 */
#include "tests/lib/talk_net.h"

static void guests_only_ask_to_come_in(void **state)
{
    (void)state;
    const gsp_word words[] = {
        {.kind = GSP_WORD_HELLO, .number = 9},
        {.kind = GSP_WORD_ADMISSION, .refusal = GSP_REFUSED_BANNED},
        manifest_of(&o.door),
        {.kind = GSP_WORD_ASK_FILE, .bytes = 1},
        {.kind = GSP_WORD_NOTE, .hash = {{7}}, .body = (const uint8_t *)"x", .body_bytes = 1},
        {.kind = GSP_WORD_ASK_NOTE, .hash = {{7}}}};
    const uint32_t n = sizeof words / sizeof *words;
    gsp_link *guest = link_up(1, (gsp_net_event){.guest = true, .inbound = true});
    assert_non_null(guest);
    for (uint32_t i = 0; i < n; i++) {
        guest->said = 0;
        say(1, &words[i]);
        assert_int_equal(p->refusals, i + 1);
    }
    guest->said = 0;
    say(1,
        &(gsp_word){
            .kind = GSP_WORD_ASK_MANIFEST}); /* as one asks that does not know which key it has */
    assert_int_equal(p->refusals, n);
    assert_int_equal(net.n, 0);
    assert_int_equal(guest->doomed_ns, 0);
    /* One that knows only the key before is told the new one and nothing else, and then goes. */
    gsp_link *late = link_up(2, (gsp_net_event){.guest = true, .old_key = true, .inbound = true});
    assert_int_equal(told(2, GSP_WORD_MANIFEST), 1);
    assert_true(net.sent[0].has_psk && late->doomed_ns);
    say(2, &(gsp_word){.kind = GSP_WORD_ASK_MANIFEST});
    assert_int_equal(told(2, GSP_WORD_MANIFEST), 2);
    say(2, &(gsp_word){.kind = GSP_WORD_ASK_ADMISSION});
    say(2, &words[0]);
    assert_int_equal(p->refusals, n + 2);
    assert_int_equal(net.n, 2);
}

/* What belongs on one channel is not taken on the other, and what is not a word is somebody else's. */
static void words_have_their_channel(void **state)
{
    (void)state;
    link_up(1, (gsp_net_event){.inbound = true});
    say_on(1, &(gsp_word){.kind = GSP_WORD_ASK_MANIFEST}, GSP_NET_BULK);
    assert_int_equal(p->refusals, 1);
    assert_int_equal(told(1, GSP_WORD_MANIFEST), 0);
    say(3, &(gsp_word){.kind = GSP_WORD_ASK_MANIFEST}); /* nobody has this link */
    assert_int_equal(p->refusals, 2);
    uint8_t other[4] = {GSP_WORD_MARK ^ 1};
    gsp_net_event e = {.kind = GSP_NET_MESSAGE, .data = other, .bytes = sizeof other};
    set_key(e.key, 1);
    assert_false(gsp_pool_take(p, &e));
    e.bytes = 0;
    assert_false(gsp_pool_take(p, &e));
}

static void the_newer_manifest_goes_round(void **state)
{
    (void)state;
    link_up(1, (gsp_net_event){.inbound = true});
    link_up(2, (gsp_net_event){.inbound = true});
    assert_int_equal(told(1, GSP_WORD_HELLO), 1);
    say(1, &(gsp_word){.kind = GSP_WORD_HELLO, .number = 1});
    assert_int_equal(net.n, 2);
    say(1, &(gsp_word){.kind = GSP_WORD_HELLO, .number = 2});
    assert_int_equal(told(1, GSP_WORD_ASK_MANIFEST), 1);
    say(1, &(gsp_word){.kind = GSP_WORD_HELLO});
    assert_int_equal(told(1, GSP_WORD_MANIFEST), 1);
    const gsp_link *guest = link_up(3, (gsp_net_event){.inbound = true, .guest = true});
    uint8_t banned[GSP_PUBLIC_BYTES];
    gsp_contact known = {.sequence = 1};
    set_key(known.key, 2);
    assert_int_equal(gsp_peers_add(p->book.peers, &known, NULL, test_now_s()), GSP_PEERS_NEW);
    p->book.renewed_ns = 1;
    const gsp_word before = manifest_of(&p->door);
    char *text = atom_strdup(p->door.manifest_text);
    set_key(banned, 2);
    test_must(gsp_door_rotate(&o.door, banned));
    gsp_word next = manifest_of(&o.door), cut = next, first = before;
    first.body = (const uint8_t *)text;
    memset(cut.psk, 0, sizeof cut.psk);
    say(1, &cut); /* without its key */
    assert_int_equal(gsp_door_number(&p->door), 1);
    net.n = 0;
    say(1, &next);
    assert_int_equal(gsp_door_number(&p->door), 2);
    assert_memory_equal(p->door.psk[0], o.door.psk[0], GSP_PSK_BYTES);
    /* All hear of it; the banned one hears why, without the new key, and goes. */
    assert_int_equal(told(1, GSP_WORD_HELLO), 1);
    assert_int_equal(told(2, GSP_WORD_MANIFEST), 1);
    assert_int_equal(net.sent[0].to, 2);
    assert_false(net.sent[0].has_psk);
    assert_true(gsp_links_find(&p->links, banned)->doomed_ns);
    assert_true(guest->doomed_ns); /* its ticket has the key before */
    assert_null(gsp_peers_find(p->book.peers, banned));
    assert_true(p->book.renewed_ns > 1); /* sealed with the new key from now on */
    uint8_t stays[GSP_PUBLIC_BYTES];
    set_key(stays, 1);
    assert_int_equal(gsp_links_find(&p->links, stays)->doomed_ns, 0);
    say(1, &first); /* an older one again */
    assert_int_equal(gsp_door_number(&p->door), 2);
    assert_true(gsp_headline_check(&p->headline) == ATOM_OK);
    /* Nor is one told it for ever. */
    const uint64_t most = gsp_manifest_gives(p->door.manifest), now = atom_clock_ns();
    say(1, &(gsp_word){.kind = GSP_WORD_ASK_MANIFEST});
    const uint64_t left = gsp_tally_left(&p->links.given, stays, now);
    assert_true(told(1, GSP_WORD_MANIFEST) == 1 && left < most);
    gsp_links_give(&p->links, stays, left, most, now);
    say(1, &(gsp_word){.kind = GSP_WORD_ASK_MANIFEST});
    assert_int_equal(told(1, GSP_WORD_MANIFEST), 1);
    /* A member that sends manifest after manifest costs little. */
    net.n = 0;
    for (uint32_t i = 0; i < 60; i++)
        say(1, &next);
    assert_in_range(p->refusals, 20, 43); /* a minute may have ended meanwhile */
    assert_int_equal(net.n, 0);
    atom_free(text);
}

static void admissions_are_passed_on_once(void **state)
{
    (void)state;
    gsp_word ask = {.kind = GSP_WORD_ASK_ADMISSION}, answer = {.kind = GSP_WORD_ADMISSION};
    gsp_link *guest = link_up(1, (gsp_net_event){.guest = true, .inbound = true});
    link_up(2, (gsp_net_event){.inbound = true});
    set_key(ask.key, 1);
    say(1, &ask); /* the owner is not here: it says so, and the guest may stay for its time */
    assert_int_equal(told(1, GSP_WORD_ADMISSION), 1);
    assert_int_equal(guest->doomed_ns, 0);
    link_up(OWNER, (gsp_net_event){.inbound = true});
    net.n = 0;
    say(1, &ask);
    assert_int_equal(told(OWNER, GSP_WORD_ASK_ADMISSION), 1);
    say(2, &ask); /* for another: it has come one hop already */
    set_key(ask.key, 9);
    say(1, &ask); /* a guest asks for itself */
    assert_int_equal(net.n, 1);
    set_key(answer.key, 1);
    say(2, &answer); /* not the owner's word */
    assert_int_equal(told(1, GSP_WORD_ADMISSION), 0);
    say(OWNER, &answer);
    assert_int_equal(told(1, GSP_WORD_ADMISSION), 1);
    assert_true(guest->answered && guest->doomed_ns);
    set_key(ask.key, 1);
    net.n = 0;
    say(1, &ask); /* it had its answer */
    assert_int_equal(net.n, 0);
}

/* Anybody has seen our admission, and may send it to us as often as it likes: nothing is written or said for it. */
static void our_own_admission_is_no_news(void **state)
{
    (void)state;
    gsp_word own = {.kind = GSP_WORD_ADMISSION, .credential_bytes = p->door.credential_bytes};
    memcpy(own.key, p->door.identity.public_key, sizeof own.key);
    memcpy(own.credential, p->door.credential, p->door.credential_bytes);
    link_up(1, (gsp_net_event){.inbound = true});
    p->book.renewed_ns = 1;
    say(1, &own);
    assert_int_equal(p->book.renewed_ns, 1);
    assert_false(p->was_admitted || p->door.is_guest);
    own.credential_bytes = 0;
    own.refusal = GSP_REFUSED_BANNED; /* a member is not put out by a word */
    say(1, &own);
    assert_true(gsp_headline_check(&p->headline) == ATOM_OK);
    assert_false(p->door.is_guest);
}

static void only_those_that_we_dialled_see_us(void **state)
{
    (void)state;
    gsp_word hello = {.kind = GSP_WORD_HELLO, .number = 1, .seen = test_address("203.0.113.9:1")};
    const gsp_address here = hello.seen;
    link_up(1, (gsp_net_event){.inbound = true});
    link_up(2, (gsp_net_event){0});
    assert_int_equal(net.n_dials, 1); /* from now on it is that one that is wanted */
    p->book.own_changed = false;
    say(1, &hello);
    assert_true(gsp_address_is_any(&p->reach.seen) && !p->book.own_changed);
    say(2, &hello);
    assert_true(gsp_address_same_host(&p->reach.seen, &here) && p->book.own_changed);
    /* A neighbour that sees the local address changes nothing to and fro. */
    link_up(3, (gsp_net_event){0});
    p->book.own_changed = false;
    for (int i = 0; i < 4; i++) {
        hello.seen = i % 2 ? here : test_address("192.168.1.5:1");
        say(i % 2 ? 2 : 3, &hello);
        assert_true(gsp_address_same_host(&p->reach.seen, &here) && !p->book.own_changed);
    }
}

static void refuse(uint8_t by, int refusal)
{
    gsp_net_event e = {.kind = GSP_NET_REFUSED, .refusal = refusal};
    if (by)
        set_key(e.key, by);
    e.address = test_address("192.0.2.7:4400");
    assert_false(gsp_pool_take(p, &e));
}

static void a_refusal_ends_little(void **state)
{
    (void)state;
    p->seek.hosts = &p->door.hosts;
    refuse(0, GSP_REFUSED_TWIN); /* nobody proved to have said it */
    assert_int_equal(p->twin_ns, 0);
    refuse(1, GSP_REFUSED_TWIN);
    assert_true(p->twin_ns != 0);
    p->twin_ns = atom_clock_ns() - 9 * SECOND;
    refuse(1, GSP_REFUSED_TWIN);
    assert_true(gsp_headline_check(&p->headline) == ATOM_OK);
    p->twin_ns = atom_clock_ns() - 11 * SECOND;
    uint8_t key[GSP_PUBLIC_BYTES];
    link_up(2, (gsp_net_event){.inbound = true}); /* somebody lets us in */
    assert_int_equal(p->twin_ns, 0);
    p->twin_ns = atom_clock_ns() - 11 * SECOND;
    refuse(1, GSP_REFUSED_TWIN);
    assert_true(gsp_headline_check(&p->headline) == ATOM_OK);
    refuse(1, GSP_REFUSED_BANNED); /* not the owner */
    assert_true(gsp_headline_check(&p->headline) == ATOM_OK);
    set_key(key, 2);
    gsp_net_event down = {.kind = GSP_NET_DOWN};
    memcpy(down.key, key, sizeof key);
    assert_false(gsp_pool_take(p, &down));
    assert_null(gsp_links_find(&p->links, key));
    refuse(1, GSP_REFUSED_TWIN);
    assert_true(gsp_headline_check(&p->headline) != ATOM_OK);
    p->headline.refused = false;
    refuse(OWNER, GSP_REFUSED_BANNED);
    assert_true(gsp_headline_check(&p->headline) != ATOM_OK);
    assert_non_null(strstr(atom_fail_message(), "banned"));
}

/* Everything that is due is done at once, whenever it was done last. */
static void step(void)
{
    p->step_ns = 0;
    gsp_pool_step(p);
}

/* An admission of the pool's member that began so long ago, for thirty days. */
static void admitted_days_ago(unsigned days)
{
    gsp_admission a = {.manifest = 1, .issued_s = test_now_s() - days * 86400};
    a.expires_s = a.issued_s + 30 * 86400;
    memcpy(a.pool, p->door.pool, sizeof a.pool);
    memcpy(a.member, p->door.identity.public_key, sizeof a.member);
    gsp_admission_sign(&a, &o.door.identity);
    gsp_admission_encode(&a, p->door.credential);
    p->door.credential_bytes = GSP_ADMISSION_BYTES;
}

/* While it is a guest itself it hears of nothing but its admission, and the owner alone can refuse it. */
static void a_guest_hears_of_its_admission_alone(void **state)
{
    (void)state;
    gsp_word no = {.kind = GSP_WORD_ADMISSION, .refusal = GSP_REFUSED_EXPIRED};
    memcpy(no.key, p->door.identity.public_key, sizeof no.key);
    p->door.is_guest = true;
    link_up(1, (gsp_net_event){0});
    link_up(OWNER, (gsp_net_event){0});
    say(1, &(gsp_word){.kind = GSP_WORD_HELLO, .number = 9, .seen = test_address("203.0.113.9:1")});
    say(1, &(gsp_word){.kind = GSP_WORD_ASK_MANIFEST});
    assert_int_equal(p->refusals, 2);
    assert_int_equal(net.n, 0);
    assert_true(gsp_address_is_any(&p->reach.seen));
    say(1, &no);
    assert_true(gsp_headline_check(&p->headline) == ATOM_OK);
    assert_int_equal(p->denials.n, 1);
    refuse(1, GSP_REFUSED_EXPIRED);
    assert_true(gsp_headline_check(&p->headline) == ATOM_OK);
    say(OWNER, &no);
    assert_true(gsp_headline_check(&p->headline) != ATOM_OK);
    assert_non_null(strstr(atom_fail_message(), "owner says"));
}

/* A manifest that bans this host ends it; who was sent away is not greeted when it comes back. */
/* The gate looked at the manifest of before: a key that the new one bans is told so and goes. */
static void whoever_slipped_in_goes(void **state)
{
    (void)state;
    set_key(p->door.manifest->banned[0], 1);
    p->door.manifest->n_banned = 1;
    const gsp_link *l = link_up(1, (gsp_net_event){.inbound = true});
    assert_true(l->doomed_ns);
    assert_int_equal(told(1, GSP_WORD_MANIFEST), 1);
    assert_false(net.sent[0].has_psk);
    assert_int_equal(told(1, GSP_WORD_HELLO), 0);
    l = link_up(2, (gsp_net_event){.inbound = true});
    assert_false(l->doomed_ns);
}

static void who_is_sent_away(void **state)
{
    (void)state;
    gsp_link *l = link_up(1, (gsp_net_event){.inbound = true});
    gsp_net_event down = {.kind = GSP_NET_DOWN};
    set_key(down.key, 1);
    gsp_links_shun(&p->links, l, atom_clock_ns());
    assert_false(gsp_pool_take(p, &down));
    net.n = 0;
    l = link_up(1, (gsp_net_event){.inbound = true});
    assert_true(l->doomed_ns && net.n == 0);
    test_must(gsp_door_rotate(&o.door, p->door.identity.public_key));
    gsp_word m = manifest_of(&o.door);
    memset(m.psk, 0, sizeof m.psk);
    link_up(2, (gsp_net_event){.inbound = true});
    say(2, &m);
    assert_true(gsp_headline_check(&p->headline) != ATOM_OK);
    assert_non_null(strstr(atom_fail_message(), "banned this host"));
}

static void does_what_is_due(void **state)
{
    (void)state;
    gsp_control_orders_open(&p->errands);
    p->data = (gsp_data){.directory = place.dir, .manifest = p->door.manifest, .links = &p->links};
    p->status = atom_alloc(1, sizeof *p->status);
    p->seek = (gsp_seek){.net = &net.net, .hosts = &p->door.hosts};
    assert_non_null(p->status);
    gsp_link *ours = link_up(1, (gsp_net_event){0}),
             *theirs = link_up(2, (gsp_net_event){.inbound = true});
    gsp_link *guest = link_up(3, (gsp_net_event){.inbound = true, .guest = true});
    step();
    assert_true(ours->up && theirs->up && guest->up);
    assert_int_equal(told(1, GSP_WORD_ASK_ADMISSION), 0); /* it is new */
    /* Who is to go goes when it is time, and not before. */
    theirs->doomed_ns = atom_clock_ns() + 60 * SECOND;
    step();
    assert_true(theirs->up);
    theirs->doomed_ns = 1;
    step();
    assert_true(!theirs->up && ours->up);
    assert_int_equal(net.n_drops, 1);
    /* HELLO again in its time; nothing more often than ten times a second. */
    net.n = 0;
    step();
    assert_int_equal(told(1, GSP_WORD_HELLO), 0);
    ours->hello_ns = 0;
    gsp_pool_step(p);
    assert_int_equal(told(1, GSP_WORD_HELLO), 0);
    step();
    assert_int_equal(told(1, GSP_WORD_HELLO), 1);
    assert_int_equal(told(3, GSP_WORD_HELLO), 0);
    /* From the middle of its admission on it asks for the next one, once a minute. */
    admitted_days_ago(16);
    p->renew_ns = 0;
    step();
    step();
    assert_int_equal(told(1, GSP_WORD_ASK_ADMISSION), 1);
    assert_int_equal(told(3, GSP_WORD_ASK_ADMISSION), 0); /* not of a guest */
    assert_int_equal(p->warn_ns, 0);
    admitted_days_ago(25); /* and warns, once the owner had time to answer */
    for (int i = 0; i < 3; i++) {
        p->renew_ns = 0;
        step();
        assert_true(p->warn_ns > atom_clock_ns() + 500 * SECOND &&
                    p->warn_ns < atom_clock_ns() + 700 * SECOND);
    }
    admitted_days_ago(1);
    p->renew_ns = 0;
    step();
    assert_int_equal(p->warn_ns, 0);
    /* Who was a guest asks every two seconds, and makes its links anew once it is admitted: those that it dialled. */
    gsp_link *back = link_up(2, (gsp_net_event){.inbound = true});
    p->door.is_guest = true;
    net.n = 0;
    step();
    step();
    assert_int_equal(told(1, GSP_WORD_ASK_ADMISSION), 1);
    p->ask_ns = 0;
    step();
    assert_int_equal(told(1, GSP_WORD_ASK_ADMISSION), 2);
    p->door.is_guest = false;
    p->was_admitted = true;
    net.n_dials = 0;
    step();
    assert_false(ours->up || back->up || p->was_admitted);
    assert_int_equal(net.n_dials, 1);
    gsp_control_orders_close(&p->errands);
    atom_free(p->status);
    p->status = NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(guests_only_ask_to_come_in, setup, teardown),
        cmocka_unit_test_setup_teardown(words_have_their_channel, setup, teardown),
        cmocka_unit_test_setup_teardown(the_newer_manifest_goes_round, setup, teardown),
        cmocka_unit_test_setup_teardown(admissions_are_passed_on_once, setup, teardown),
        cmocka_unit_test_setup_teardown(our_own_admission_is_no_news, setup, teardown),
        cmocka_unit_test_setup_teardown(only_those_that_we_dialled_see_us, setup, teardown),
        cmocka_unit_test_setup_teardown(a_refusal_ends_little, setup, teardown),
        cmocka_unit_test_setup_teardown(a_guest_hears_of_its_admission_alone, setup, teardown),
        cmocka_unit_test_setup_teardown(whoever_slipped_in_goes, setup, teardown),
        cmocka_unit_test_setup_teardown(who_is_sent_away, setup, teardown),
        cmocka_unit_test_setup_teardown(does_what_is_due, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
