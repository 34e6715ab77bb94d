/*
 * Why a roster changes: whoever is new asked to be let in now and shows an admission, and whoever is
 * gone was silent, said goodbye, or is convicted. And what two proposals in one ballot come to.
 */
#include "tests/lib/agree_hosts.h"

/* A key below 8 has an admission, which is its first byte. */
static bool admits(void *context, const gsp_key *key, const gsp_shown *shown, uint64_t now_ns)
{
    (void)context, (void)now_ns;
    return !shown || (key->byte[0] < 8 && shown->bytes == 1 && shown->data[0] == key->byte[0]);
}

static gsp_statement wish_of(const gsp_agree *a, const gsp_member *who)
{
    gsp_statement s = {.kind = GSP_SAYS_JOIN,
                       .lineage = a->lineage,
                       .version = a->certified,
                       .subject = a->previous,
                       .signer = *who};
    gsp_agree signer = {.self = *who};
    gsp_seals seals = {.context = &signer, .hash = hash, .seal = seal, .verify = verify};
    gsp_statement_seal(&seals, &s);
    return s;
}

static gsp_entry entry_of(const gsp_agree *a, const gsp_member *who)
{
    return (gsp_entry){.wish = wish_of(a, who), .shown = {.bytes = 1, .data = {who->key.byte[0]}}};
}

/* Nothing is brought; the roster as the rules make it, and one more at its end. */
static gsp_proposal with(const gsp_agree *a, const gsp_member *joiner)
{
    gsp_proposal p = {.lineage = a->lineage,
                      .version = 6,
                      .previous = a->previous,
                      .tokens = 1000,
                      .n_parts = 3,
                      .since = a->certificate.proposal.made,
                      .made = a->certificate.proposal.made,
                      .next = *gsp_agree_roster(a)};
    if (joiner) {
        p.next.member[p.next.n++] = *joiner;
        p.made = p.version;
    }
    return p;
}

static void open_with_admissions(void)
{
    open_pool(3);
    for (uint32_t i = 0; i < HOSTS; i++)
        w.agree[i].rules.admits = admits;
}

/* ---- who is new ---- */

static void nobody_enters_without_an_admission(void **state)
{
    (void)state;
    open_with_admissions();
    const gsp_agree *a = &w.agree[1];
    gsp_member real = member(4), invented = member(20);
    gsp_proposal p = with(a, &real);
    gsp_changes right = {.n_entries = 1, .entry = {entry_of(a, &real)}}, c;
    assert_null(gsp_proposal_wrong(a, &p, &right, 7, 0));
    c = right, c.n_entries = 0; /* no reason at all */
    assert_non_null(gsp_proposal_wrong(a, &p, &c, 7, 0));
    c = right, c.entry[0].shown.data[0] = 3; /* another's admission */
    assert_non_null(gsp_proposal_wrong(a, &p, &c, 7, 0));
    c = right, c.entry[0].shown.bytes = 0;
    assert_non_null(gsp_proposal_wrong(a, &p, &c, 7, 0));
    c = right, c.entry[1] = c.entry[0], c.n_entries = 2; /* for nobody */
    assert_non_null(gsp_proposal_wrong(a, &p, &c, 7, 0));
    p = with(a, &invented); /* it signs for itself, and was never admitted */
    c = right, c.entry[0] = entry_of(a, &invented);
    assert_non_null(gsp_proposal_wrong(a, &p, &c, 7, 0));
    c = right; /* nor does another's entry help */
    assert_non_null(gsp_proposal_wrong(a, &p, &c, 7, 0));
    close_pool();
}

/* A host that was admitted once, and is away now, is as good as an invented one. */
static void nobody_enters_without_asking_now(void **state)
{
    (void)state;
    open_with_admissions();
    gsp_agree *a = &w.agree[1];
    gsp_member real = member(4), other = member(5);
    gsp_proposal p = with(a, &real);
    gsp_changes right = {.n_entries = 1, .entry = {entry_of(a, &real)}}, c;
    c = right, c.entry[0].wish.version--;
    assert_non_null(gsp_proposal_wrong(a, &p, &c, 7, 0));
    c = right, c.entry[0].wish.seal[3] ^= 1;
    assert_non_null(gsp_proposal_wrong(a, &p, &c, 7, 0));
    c = right, c.entry[0].wish = wish_of(a, &other);
    assert_non_null(gsp_proposal_wrong(a, &p, &c, 7, 0));
    gsp_hash previous = a->previous; /* it asked after another version 5 */
    a->previous.byte[0] ^= 1;
    c = right, c.entry[0] = entry_of(a, &real);
    a->previous = previous;
    assert_non_null(gsp_proposal_wrong(a, &p, &c, 7, 0));
    gsp_people_ban(a, &real.key);
    assert_non_null(gsp_proposal_wrong(a, &p, &right, 7, 0));
    close_pool();
}

/* Else a proposer would put anybody off the roster, as an incarnation that does not exist. */
static void nobody_is_made_a_larger_incarnation(void **state)
{
    (void)state;
    open_with_admissions();
    const gsp_agree *a = &w.agree[1];
    gsp_proposal p = with(a, NULL);
    gsp_member back = member(2);
    static const gsp_changes nothing;
    back.incarnation = 5;
    p.next.member[2] = back;
    p.made = p.version;
    assert_non_null(gsp_proposal_wrong(a, &p, &nothing, 7, 0));
    gsp_changes c = {.n_entries = 1, .entry = {{.wish = wish_of(a, &back)}}};
    assert_null(gsp_proposal_wrong(a, &p, &c, 7, 0)); /* it was admitted before */
    close_pool();
}

static void a_joiner_shows_what_it_has_to_all_voters(void **state)
{
    (void)state;
    open_with_admissions();
    w.off[3] = false; /* it shows nothing */
    run_ms(20000);
    assert_int_equal(gsp_agree_roster(&w.agree[0])->n, 3);
    close_pool();
}

/* ---- who is gone ---- */

static gsp_statement leave_of(const gsp_agree *a, uint32_t i)
{
    gsp_seals seals = seals_of(i);
    gsp_statement s = {.kind = GSP_SAYS_LEAVE, .lineage = a->lineage, .signer = member(i)};
    gsp_statement_seal(&seals, &s);
    return s;
}

/* What an audit has proven cannot be shown in a message. Who knows it names the member in its
 * promise, and the roster is without that member once more do than can lie: for all voters alike. */
static void a_ban_that_cannot_be_shown_waits_for_others(void **state)
{
    (void)state;
    static gsp_changes c;
    open_with_admissions();
    gsp_agree *a = &w.agree[1];
    gsp_member liar = member(2);
    gsp_people_ban(a, &liar.key);
    assert_int_equal(gsp_withheld_bits(a), 4);
    for (uint32_t out = 0; out <= 4; out += 4) {
        gsp_proposal p = with(a, NULL);
        gsp_rules_next(a, 7, out, &p);
        gsp_changes_make(a, &p, &c);
        assert_int_equal(p.next.n, out ? 2 : 3);
        assert_null(gsp_proposal_wrong(&w.agree[0], &p, &c, 7, out));
        assert_null(gsp_proposal_wrong(a, &p, &c, 7, out));
    }
    close_pool();
}

static gsp_statement echo_of(const gsp_agree *a, uint32_t i, uint8_t subject)
{
    gsp_seals seals = seals_of(i);
    gsp_statement s = {.kind = GSP_SAYS_ECHO,
                       .lineage = a->lineage,
                       .version = 6,
                       .ballot = 1,
                       .subject = {{subject}},
                       .signer = member(i)};
    gsp_statement_seal(&seals, &s);
    return s;
}

static void nobody_is_dropped_without_a_reason(void **state)
{
    (void)state;
    open_with_admissions();
    const gsp_agree *a = &w.agree[0];
    gsp_proposal p = with(a, NULL);
    static const gsp_changes nothing;
    gsp_changes c;
    p.next.n = 2;
    p.made = p.version;
    memset(&p.next.member[2], 0, sizeof p.next.member[2]);
    assert_non_null(gsp_proposal_wrong(a, &p, &nothing, 7, 0));
    c = (gsp_changes){.n_exits = 1, .exit = {{.first = leave_of(a, 2)}}};
    assert_null(gsp_proposal_wrong(a, &p, &c, 7, 0));
    c.exit[0].first.seal[0] ^= 1;
    assert_non_null(gsp_proposal_wrong(a, &p, &c, 7, 0));
    c.exit[0].first = leave_of(a, 1); /* another's goodbye */
    assert_non_null(gsp_proposal_wrong(a, &p, &c, 7, 0));
    c.exit[0] = (gsp_exit){.first = echo_of(a, 2, 1), .second = echo_of(a, 2, 2)};
    assert_null(gsp_proposal_wrong(a, &p, &c, 7, 0));
    c.exit[0].second = echo_of(a, 2, 1); /* twice the same is no crime */
    assert_non_null(gsp_proposal_wrong(a, &p, &c, 7, 0));
    close_pool();
}

/* The goodbye reaches one member only, which proposes next. */
static void a_goodbye_travels_with_the_proposal(void **state)
{
    (void)state;
    open_with_admissions();
    uint32_t proposer = first_proposer(), leaver = (proposer + 1) % 3, other = (proposer + 2) % 3;
    gsp_message m = from_host(leaver, GSP_LEAVE, 0);
    m.version = 0;
    m.as.leave.statement = leave_of(&w.agree[0], leaver);
    w.dropped = GSP_LEAVE;
    tell(proposer, &m);
    w.off[leaver] = true;
    run_ms(6000);
    assert_true(w.agree[other].certified >= 6);
    assert_int_equal(gsp_agree_roster(&w.agree[other])->n, 2);
    close_pool();
}

/* ---- two proposals in one ballot ---- */

/* A proposer that says two things in one ballot gets votes for none, or for one of them. */
static void propose_twice(bool twice)
{
    static gsp_message right, twin;
    open_pool(4);
    for (uint32_t i = 0; i < 4; i++)
        w.agree[i].rules.trust = GSP_STRANGERS;
    uint32_t liar = first_proposer();
    w.dropped = GSP_PROPOSE;
    while (w.agree[liar].phase != GSP_DECIDE && w.now_ns < 60000 * MS)
        run_ms(STEP_MS);
    assert_int_equal(w.agree[liar].phase, GSP_DECIDE);
    memcpy(&right, &w.agree[liar].pending, sizeof right);
    memcpy(&twin, &right, sizeof twin);
    gsp_propose *p = &twin.as.propose;
    gsp_seals seals = seals_of(liar);
    memset(&p->proposal.part[0], 0, sizeof p->proposal.part[0]); /* unchanged, which is allowed */
    gsp_proposal_hash(&seals, &p->proposal, &p->statement.subject);
    gsp_statement_seal(&seals, &p->statement);
    uint32_t one = (liar + 1) % 4, two = (liar + 2) % 4, three = (liar + 3) % 4;
    assert_null(gsp_proof_ballot_wrong(&w.agree[one], &twin.as.propose, twin.ballot));
    tell(one, &right);
    tell(two, &twin);
    assert_true(w.agree[one].record.echoed && w.agree[two].record.echoed);
    assert_int_equal(w.agree[two].record.voted, 0);
    if (twice) { /* the liar echoes both, and is convicted by that */
        gsp_message m = from_host(liar, GSP_ECHO, twin.ballot);
        m.as.vote.statement = p->statement;
        m.as.vote.statement.kind = GSP_SAYS_ECHO;
        gsp_statement_seal(&seals, &m.as.vote.statement);
        tell(two, &m);
        assert_int_equal(w.agree[three].n_banned, 1);
    } else { /* a quorum was proposed the one */
        tell(three, &right);
        assert_int_equal(w.agree[one].certified, 6);
    }
    assert_int_equal(w.agree[two].record.voted, 0);
    w.dropped = 0;
    run_ms(20000);
    for (uint32_t i = 0; i < 4; i++)
        if (i != liar)
            assert_true(w.agree[i].certified >= 7);
    assert_memory_equal(&w.agree[one].lineage, &w.agree[two].lineage, sizeof(gsp_hash));
    close_pool();
}

static void two_proposals_are_not_both_voted_for(void **state)
{
    (void)state;
    propose_twice(false);
    propose_twice(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ban_that_cannot_be_shown_waits_for_others),
        cmocka_unit_test(nobody_enters_without_an_admission),
        cmocka_unit_test(nobody_enters_without_asking_now),
        cmocka_unit_test(nobody_is_made_a_larger_incarnation),
        cmocka_unit_test(a_joiner_shows_what_it_has_to_all_voters),
        cmocka_unit_test(nobody_is_dropped_without_a_reason),
        cmocka_unit_test(a_goodbye_travels_with_the_proposal),
        cmocka_unit_test(two_proposals_are_not_both_voted_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
