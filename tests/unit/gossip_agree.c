/*
 * The agreement's key rules, one by one, among members that all answer at once. What happens under
 * faults is tests/sim's.
 */
#include "tests/lib/agree_hosts.h"

static void versions_follow_each_other(void **state)
{
    (void)state;
    open_pool(3);
    run_ms(30000);
    for (uint32_t i = 0; i < 3; i++) {
        assert_true(w.agree[i].applied >= 9);
        assert_memory_equal(&w.agree[i].previous, &w.agree[0].previous, sizeof(gsp_hash));
        assert_int_equal(w.agree[i].stats.refused, 0);
    }
    const gsp_proposal *p = &w.agree[0].certificate.proposal;
    assert_int_equal(p->n_contributors, 3);
    assert_int_equal(p->tokens, 1000 + (p->version - 5) * (10 + 11 + 12));
    close_pool();
}

static void nothing_is_said_before_it_is_on_disk(void **state)
{
    (void)state;
    open_pool(3);
    run_ms(12000);
    uint32_t words = 0;
    for (uint32_t k = 0; k < w.n_log; k++) {
        const line *l = &w.log[k];
        if (l->kind != GSP_DO_SEND ||
            (l->said != GSP_PROMISE && l->said != GSP_ECHO && l->said != GSP_VOTE))
            continue;
        bool written = false;
        for (uint32_t j = 0; j < k; j++)
            written = written || (w.log[j].host == l->host && w.log[j].kind == GSP_DO_PERSIST &&
                                  w.log[j].version == l->version &&
                                  (l->said == GSP_VOTE   ? w.log[j].voted == l->ballot
                                   : l->said == GSP_ECHO ? w.log[j].echoed == l->ballot
                                                         : w.log[j].promised == l->ballot));
        assert_true(written);
        words++;
    }
    assert_true(words >= 8);
    close_pool();
}

static void a_contribution_is_frozen_once(void **state)
{
    (void)state;
    open_pool(3);
    w.dropped = GSP_PROPOSE; /* no ballot ends */
    run_ms(60000);
    uint32_t promises = 0;
    gsp_hash root = {0};
    for (uint32_t k = 0; k < w.n_log; k++) {
        const line *l = &w.log[k];
        if (l->host != 2 || l->kind != GSP_DO_SEND || l->said != GSP_PROMISE || l->version != 6)
            continue;
        if (promises++)
            assert_memory_equal(&root, &l->root, sizeof root);
        root = l->root;
    }
    assert_true(promises >= 2);
    assert_int_equal(count(2, GSP_DO_FREEZE, 0, 6), 1);
    assert_int_equal(w.agree[2].certified, 5);
    w.dropped = 0;
    run_ms(60000);
    assert_true(w.agree[2].certified > 5);
    close_pool();
}

static void a_dead_owners_part_is_reassigned(void **state)
{
    (void)state;
    open_pool(3);
    uint32_t proposer = first_proposer(), dies = (proposer + 1) % 3;
    for (uint32_t k = 0; k < 40 && !count(proposer, GSP_DO_SEND, GSP_BEGIN, 6); k++) {
        w.dropped = GSP_REDUCED; /* the others' words are late */
        w.held_back = true;
        run_ms(STEP_MS);
    }
    assert_true(count(proposer, GSP_DO_SEND, GSP_BEGIN, 6));
    w.off[dies] = true;
    for (uint32_t i = 0; i < 3; i++)
        if (i != dies)
            step(i, (gsp_event){.kind = GSP_ON_DOWN, .peer = member(dies).key});
    w.dropped = 0;
    w.held_back = false;
    pump();
    run_ms(8000);
    uint32_t attempt = 0;
    for (uint32_t k = 0; k < w.n_log; k++)
        if (w.log[k].host == proposer && w.log[k].said == GSP_BEGIN && w.log[k].version == 6 &&
            w.log[k].attempt > attempt) {
            attempt = w.log[k].attempt;
            assert_int_equal(w.log[k].contributors, 7);
        }
    assert_true(attempt >= 1);
    run_ms(30000);
    assert_true(w.agree[proposer].certified >= 6);
    close_pool();
}

/* The newest BEGIN that a host has said in version 6; NULL: none. */
static const line *newest_begin(uint32_t host)
{
    const line *found = NULL;
    for (uint32_t k = 0; k < w.n_log; k++)
        if (w.log[k].host == host && w.log[k].kind == GSP_DO_SEND && w.log[k].said == GSP_BEGIN &&
            w.log[k].version == 6)
            found = &w.log[k];
    return found;
}

/* Owners sign for the contributors that the ballot began with, so no later attempt may have other
 * ones: not one less, not another weight, not another root. */
static void another_attempt_changes_owners_and_nothing_else(void **state)
{
    (void)state;
    open_pool(3);
    uint32_t proposer = first_proposer(), other = (proposer + 1) % 3;
    w.dropped = GSP_REDUCED;
    w.held_back = true;
    for (uint32_t t = 0; t < 40 && !newest_begin(proposer); t++)
        run_ms(STEP_MS);
    const gsp_round *round = &w.agree[other].round;
    assert_int_equal(round->begin.n_contributors, 3);
    gsp_message right = from_host(proposer, GSP_BEGIN, round->ballot), m;
    right.as.begin = round->begin;
    right.as.begin.attempt++;

    uint64_t refused = w.agree[other].stats.refused;
    m = right, m.as.begin.n_contributors = 2; /* by the rules, but not those of this ballot */
    gsp_proposal_weigh(&w.agree[other].rules, &w.agree[other].certificate.proposal,
                       m.as.begin.contributor, 2);
    tell(other, &m);
    m = right, m.as.begin.contributor[proposer].root.byte[5] ^= 1;
    tell(other, &m);
    m = right, m.as.begin.contributor[proposer].samples++;
    tell(other, &m);
    assert_int_equal(w.agree[other].stats.refused, refused + 3);
    assert_int_equal(round->begin.attempt, right.as.begin.attempt - 1);
    assert_int_equal(round->begin.n_contributors, 3);

    memset(right.as.begin.owner, (int)other, right.as.begin.n_parts);
    tell(other, &right);
    assert_int_equal(w.agree[other].stats.refused, refused + 3);
    assert_int_equal(round->begin.attempt, right.as.begin.attempt);
    close_pool();
}

/* A proposer whose first ballot failed begins its second one with those who promised again: nobody
 * contributes on the strength of what it promised before. */
static void a_second_ballot_asks_anew_who_contributes(void **state)
{
    (void)state;
    open_pool(3);
    uint32_t proposer = first_proposer(), next = (proposer + 1) % 3, gone = (proposer + 2) % 3;
    w.dropped = GSP_REDUCED;
    w.held_back = true;
    for (uint32_t t = 0; t < 40 && !newest_begin(proposer); t++)
        run_ms(STEP_MS);
    assert_non_null(newest_begin(proposer));
    assert_int_equal(newest_begin(proposer)->contributors, 7);
    gsp_message m =
        from_host(next, GSP_PREPARE, 2); /* ends the first ballot, and comes to nothing */
    m.as.prepare.previous = w.agree[proposer].previous;
    w.off[gone] = true;
    w.dropped = GSP_PREPARE;
    w.held_back = false;
    tell(proposer, &m);
    assert_int_equal(w.agree[proposer].phase, GSP_IDLE);
    while (w.agree[proposer].phase == GSP_IDLE && w.now_ns < 200000 * MS)
        run_ms(STEP_MS);
    assert_int_equal(w.agree[proposer].ballot, 4); /* its turn again */
    w.dropped = 0;
    run_ms(60000);
    assert_int_equal(newest_begin(proposer)->ballot, 4);
    assert_int_equal(newest_begin(proposer)->contributors, 7 & ~(1u << gone));
    assert_true(w.agree[proposer].certified > 5);
    close_pool();
}

static gsp_saved saved_of(uint32_t i)
{
    return (gsp_saved){.genesis = w.agree[i].genesis,
                       .has_certificate = true,
                       .certificate = w.agree[i].certificate,
                       .record = w.agree[i].record};
}

/* Dead and back before anybody's next tick. */
static void restart(uint32_t who, uint32_t n)
{
    gsp_saved again = saved_of(who);
    open_host(who, &again);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t up = 0; up < 2 && i != who; up++) {
            gsp_event e = {.kind = up ? GSP_ON_UP : GSP_ON_DOWN, .peer = member(who).key};
            step(i, e);
            e.peer = member(i).key;
            if (up)
                step(who, e);
        }
    for (uint32_t i = 0; i < n; i++) { /* a driver sends again what the link may have lost */
        const gsp_round *r = &w.agree[i].round;
        gsp_event e = {.kind = GSP_ON_ARRIVED, .version = r->version, .peer = member(i).key};
        e.root = r->root;
        for (e.part = 0; i != who && e.part < r->begin.n_parts; e.part++)
            if (r->sent[e.part] >> who & 1)
                push(who, &e, NULL);
    }
    pump();
}

static void who_restarts_at_once_does_not_hold_up_the_others(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < 3; k++) { /* the proposer, then another */
        open_pool(3);
        uint32_t proposer = first_proposer(), who = (proposer + k) % 3;
        w.held_back = true;
        w.dropped = GSP_REDUCED;
        for (uint32_t t = 0; t < 40 && !count(proposer, GSP_DO_SEND, GSP_BEGIN, 6); t++)
            run_ms(STEP_MS);
        assert_true(count(proposer, GSP_DO_SEND, GSP_BEGIN, 6));
        uint64_t began_ns = w.now_ns;
        restart(who, 3);
        w.held_back = false;
        w.dropped = 0;
        while (w.agree[(who + 1) % 3].certified == 5 && w.now_ns < began_ns + 60000 * MS)
            run_ms(STEP_MS);
        /* Without waiting for the ballot's time, which is 8 s here. */
        assert_true(w.now_ns - began_ns <= 3000 * MS);
        close_pool();
    }
}

/* A link that breaks and comes back ends no ballot. */
static void a_proposer_whose_link_broke_goes_on(void **state)
{
    (void)state;
    open_pool(3);
    uint32_t proposer = first_proposer();
    w.held_back = true;
    w.dropped = GSP_REDUCED;
    for (uint32_t t = 0; t < 40 && !count(proposer, GSP_DO_SEND, GSP_BEGIN, 6); t++)
        run_ms(STEP_MS);
    for (uint32_t i = 0; i < 3; i++)
        for (uint32_t up = 0; up < 2 && i != proposer; up++)
            step(i,
                 (gsp_event){.kind = up ? GSP_ON_UP : GSP_ON_DOWN, .peer = member(proposer).key});
    run_ms(3500);
    for (uint32_t i = 0; i < 3; i++)
        assert_int_equal(w.agree[i].view, 1);
    close_pool();
}

/* A certificate repeats the seal of a vote, and nothing of it but what all votes have in common. So
 * a vote with more in it counts for nobody: others could not check the certificate. */
static void a_vote_with_more_in_it_does_not_count(void **state)
{
    (void)state;
    for (uint32_t k = 0; k < 4; k++) {
        open_pool(3);
        w.dropped = GSP_VOTE;
        for (uint32_t t = 0; t < 40 && !w.agree[0].record.voted; t++)
            run_ms(STEP_MS);
        assert_true(w.agree[0].record.voted != 0);
        gsp_message m = from_host(1, GSP_VOTE, w.agree[0].record.voted);
        gsp_statement *s = &m.as.vote.statement;
        *s = w.agree[1].vote[1];
        assert_int_equal(s->ballot, w.agree[0].record.voted);
        s->root.byte[7] = k == 0;
        s->item = k == 1;
        s->voted = k == 2;
        gsp_seals seals = seals_of(1);
        gsp_statement_seal(&seals, s);
        uint64_t refused = w.agree[0].stats.refused;
        tell(0, &m);
        assert_int_equal(w.agree[0].certified, k == 3 ? 6 : 5);
        assert_int_equal(w.agree[0].stats.refused, refused + (k == 3 ? 0 : 1));
        close_pool();
    }
}

/* Versions that nobody reaches are not followed: the ones after them would be 0 again. */
static void versions_beyond_belief_are_not_followed(void **state)
{
    (void)state;
    open_pool(3);
    gsp_saved far = saved_of(0);
    far.certificate.proposal.version = UINT64_MAX - 1;
    step(0, (gsp_event){.kind = GSP_ON_STATE, .saved = &far});
    assert_int_equal(w.agree[0].certified, 5);
    gsp_saved fork = {.genesis = far.genesis};
    gsp_seals seals = seals_of(1);
    gsp_hash id;
    fork.genesis.generation++;
    fork.genesis.founder = member(1);
    fork.genesis.tokens = 1u << 30;
    fork.genesis.version = UINT64_MAX - 1;
    gsp_genesis_hash(&seals, &fork.genesis, &id);
    seal(seals.context, id.byte, sizeof id.byte, fork.genesis.seal);
    step(0, (gsp_event){.kind = GSP_ON_STATE, .saved = &fork});
    assert_int_equal(w.agree[0].certified, 5);
    assert_int_equal(w.agree[0].stats.refused, 2);
    close_pool();
}

/* A lineage's id says nothing of the seals that come with its start. Whoever took over wrong ones
 * would hand them on, and nobody would believe it. */
static void a_state_comes_with_the_seals_of_its_lineage(void **state)
{
    (void)state;
    for (uint32_t right = 0; right < 2; right++) {
        open_pool(3);
        gsp_agree *a = &w.agree[0];
        gsp_saved reset = {.genesis = saved_of(0).genesis};
        gsp_genesis *g = &reset.genesis;
        gsp_seals seals = seals_of(1);
        gsp_match match = {.mine = {.chain = {.n = 1}}, .theirs = {.chain = {.n = 2, .reset = 1}}};
        gsp_chain *end = &match.theirs.chain;
        a->rules.owner = member(1).key;
        g->generation++;
        g->reset = 1;
        g->parent = a->lineage;
        g->version = 5;
        g->founder = member(1);
        gsp_order_seal(&seals, g);
        gsp_genesis_hash(&seals, g, &end->lineage);
        seal(seals.context, end->lineage.byte, sizeof end->lineage.byte, g->seal);
        end->newest = end->lineage;
        end->order = g->order;
        end->version = g->version;
        g->seal[0] ^= right ? 0 : 1;
        step(0, (gsp_event){.kind = GSP_ON_STATE, .saved = &reset, .match = &match});
        assert_int_equal(gsp_hash_equal(&a->lineage, &end->lineage), right);
        assert_int_equal(a->stats.refused, 1 - right);
        close_pool();
    }
}

static gsp_key asked[8];
static uint32_t n_asked;

static void pull_sink(void *context, const gsp_action *a)
{
    (void)context;
    assert_int_equal(a->kind, GSP_DO_PULL);
    asked[n_asked++ % 8] = a->peer;
}

static void pull_thrice(gsp_agree *a)
{
    n_asked = 0;
    a->pull_turn = 0;
    a->sink = pull_sink;
    for (uint32_t k = 0; k < 3; k++) {
        a->pull_ns = 0;
        gsp_vote_pull(a);
    }
    a->sink = NULL;
    assert_int_equal(n_asked, 3);
}

/* What is proposed is fetched from who voted for it, and not from who has been silent. */
static void bytes_are_asked_for_where_they_are(void **state)
{
    (void)state;
    open_pool(4);
    run_ms(1500);
    gsp_agree *a = &w.agree[0];
    gsp_propose *p = &a->pending.as.propose;
    assert_int_equal(a->certified, 5);
    a->has_pending = true;
    a->pending.ballot = 2;
    a->record.voted = 0;
    memset(p, 0, sizeof *p);
    p->proposal.version = 6;
    p->proposal.n_parts = 1;
    p->proposal.part[0].hash = (gsp_hash){.byte = {9}};
    p->statement.subject = (gsp_hash){.byte = {5}};
    p->n_promises = 2;
    p->promise[0] = (gsp_statement){.signer = member(1), .kind = GSP_SAYS_PROMISE};
    p->promise[1] = (gsp_statement){
        .signer = member(2), .kind = GSP_SAYS_PROMISE, .voted = 1, .subject = {.byte = {5}}};
    pull_thrice(a);
    for (uint32_t k = 0; k < 3; k++)
        assert_int_equal(asked[k].byte[0], 3);
    p->n_promises = 0; /* nobody is known to have it: all but the silent */
    for (uint32_t i = 1; i < 4; i += 2) {
        gsp_key key = member(i).key;
        gsp_people_find(a, &key)->heard_ns = a->now_ns - a->rules.dead_ns;
    }
    pull_thrice(a);
    for (uint32_t k = 0; k < 3; k++)
        assert_int_equal(asked[k].byte[0], 3);
    close_pool();
}

static void people_come_and_go_at_certificates(void **state)
{
    (void)state;
    open_pool(3);
    w.off[3] = false; /* it holds the anchor, and asks */
    run_ms(2000);
    assert_true(w.agree[0].n_waiting == 1 || w.agree[1].n_waiting == 1);
    assert_int_equal(gsp_agree_roster(&w.agree[0])->n, 3);
    run_ms(10000);
    for (uint32_t i = 0; i < 4; i++) {
        assert_int_equal(gsp_agree_roster(&w.agree[i])->n, 4);
        assert_true(gsp_agree_is_member(&w.agree[i]));
    }
    step(1, (gsp_event){.kind = GSP_ON_LEAVE});
    uint64_t before = w.agree[0].certified;
    run_ms(1000);
    if (w.agree[0].certified == before)
        assert_int_equal(gsp_agree_roster(&w.agree[0])->n, 4);
    run_ms(10000);
    assert_int_equal(gsp_agree_roster(&w.agree[0])->n, 3);
    assert_false(gsp_agree_is_member(&w.agree[1]));
    w.off[2] = true; /* silent for k rounds */
    run_ms(90000);
    assert_int_equal(gsp_agree_roster(&w.agree[0])->n, 2);
    close_pool();
}

static void a_joiner_does_not_wait_for_steps(void **state)
{
    (void)state;
    open_pool(3);
    for (uint32_t i = 0; i < 4; i++) /* nobody computes, and T is far away */
        w.agree[i].rules.time_due_ns = 3600 * 1000 * MS;
    run_ms(60000);
    assert_int_equal(w.agree[0].certified, 5);
    w.off[3] = false;
    run_ms(15000);
    for (uint32_t i = 0; i < 4; i++)
        assert_int_equal(gsp_agree_roster(&w.agree[i])->n, 4);
    run_ms(60000); /* and nothing follows from it */
    assert_true(w.agree[0].certified <= 7);
    close_pool();
}

static void a_restart_keeps_its_word(void **state)
{
    (void)state;
    open_pool(3);
    uint32_t other = (first_proposer() + 1) % 3;
    gsp_saved again = saved;
    again.record = (gsp_record){
        .self = member(other), .lineage = w.agree[0].lineage, .version = 6, .promised = 4};
    open_host(other, &again);
    gsp_message m = from_host(first_proposer(), GSP_PREPARE, 1);
    m.as.prepare.previous = w.agree[0].previous;
    tell(other, &m);
    assert_int_equal(count(other, GSP_DO_SEND, GSP_PROMISE, 6), 0);
    assert_int_equal(count(other, GSP_DO_SEND, GSP_REFUSE, 6), 1);
    assert_int_equal(w.agree[other].record.promised, 4);
    again.record.self.incarnation = 9; /* somebody else's record binds nobody */
    open_host(other, &again);
    assert_int_equal(w.agree[other].record.promised, 0);
    close_pool();
}

static void no_word_before_the_last_version_is_durable(void **state)
{
    (void)state;
    open_pool(3);
    uint32_t proposer = first_proposer(), other = (proposer + 1) % 3;
    w.agree[other].certified = 5, w.agree[other].applied = 4, w.agree[other].applying = true;
    gsp_message m = from_host(proposer, GSP_PREPARE, 1);
    m.as.prepare.previous = w.agree[0].previous;
    tell(other, &m);
    assert_int_equal(w.agree[other].record.promised, 0);
    w.agree[other].applied = 5, w.agree[other].applying = false;
    tell(other, &m);
    assert_int_equal(w.agree[other].record.promised, 1);
    close_pool();
}

static void no_ballot_leaves_no_room_for_later_ones(void **state)
{
    (void)state;
    open_pool(3);
    for (uint32_t ballot = UINT32_MAX - 2; ballot != 0; ballot++) {
        uint32_t proposer = gsp_view_proposer(&w.agree[0], ballot), other = (proposer + 1) % 3;
        gsp_message m = from_host(proposer, GSP_PREPARE, ballot);
        m.as.prepare.previous = w.agree[0].previous;
        tell(other, &m);
        assert_int_equal(w.agree[other].record.promised, 0);
    }
    run_ms(20000);
    assert_true(w.agree[0].certified > 5);
    close_pool();
}

static void one_refusal_ends_no_ballot(void **state)
{
    (void)state;
    open_pool(4);
    w.dropped = GSP_PROMISE;
    run_ms(5000);
    uint32_t proposer = first_proposer();
    gsp_agree *a = &w.agree[proposer];
    assert_int_equal(a->phase, GSP_GATHER);
    uint32_t ballot = a->ballot;
    gsp_message m = from_host((proposer + 1) % 4, GSP_REFUSE, ballot);
    m.as.refuse.promised = ballot + 3;
    tell(proposer, &m);
    assert_int_equal(a->phase, GSP_GATHER);
    m.from = member((proposer + 2) % 4);
    tell(proposer, &m);
    m.from = member((proposer + 3) % 4);
    tell(proposer, &m); /* now no quorum is left */
    assert_int_equal(a->phase, GSP_IDLE);
    assert_int_equal(a->view, ballot + 3);
    close_pool();
}

/* Any bytes in any message: nothing asserts, and no word is given for them. */
static void garbage_changes_nothing(void **state)
{
    (void)state;
    uint64_t x = 88172645463325252u;
    gsp_message *m = malloc(sizeof *m);
    open_pool(3);
    run_ms(2000);
    for (uint32_t round = 0; round < 3000; round++) {
        for (size_t k = 0; k < sizeof *m / 8; k++) {
            x ^= x << 13, x ^= x >> 7, x ^= x << 17;
            memcpy((uint8_t *)m + 8 * k, &x, 8);
        }
        gsp_message head =
            from_host(1 + round % 2, (gsp_message_kind)(1 + round % 17), 1 + round % 3);
        memcpy(m, &head, offsetof(gsp_message, as));
        m->as.promise.has_proposal = round & 1;
        m->as.heartbeat.rates.accepts = 0;
        if (m->kind == GSP_PROMISE)
            m->as.promise.contribution.rates.accepts = 0;
        w.now_ns += 5 * MS;
        step(0, (gsp_event){.kind = GSP_ON_MESSAGE, .message = m});
        pump();
    }
    assert_int_equal(w.agree[0].certified, 5);
    assert_int_equal(w.agree[0].record.voted, 0);
    assert_int_equal(w.agree[0].n_banned, 0);
    free(m);
    close_pool();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(versions_follow_each_other),
        cmocka_unit_test(nothing_is_said_before_it_is_on_disk),
        cmocka_unit_test(a_contribution_is_frozen_once),
        cmocka_unit_test(a_dead_owners_part_is_reassigned),
        cmocka_unit_test(another_attempt_changes_owners_and_nothing_else),
        cmocka_unit_test(a_second_ballot_asks_anew_who_contributes),
        cmocka_unit_test(who_restarts_at_once_does_not_hold_up_the_others),
        cmocka_unit_test(a_proposer_whose_link_broke_goes_on),
        cmocka_unit_test(bytes_are_asked_for_where_they_are),
        cmocka_unit_test(people_come_and_go_at_certificates),
        cmocka_unit_test(a_joiner_does_not_wait_for_steps),
        cmocka_unit_test(a_restart_keeps_its_word),
        cmocka_unit_test(no_word_before_the_last_version_is_durable),
        cmocka_unit_test(no_ballot_leaves_no_room_for_later_ones),
        cmocka_unit_test(a_vote_with_more_in_it_does_not_count),
        cmocka_unit_test(versions_beyond_belief_are_not_followed),
        cmocka_unit_test(a_state_comes_with_the_seals_of_its_lineage),
        cmocka_unit_test(one_refusal_ends_no_ballot),
        cmocka_unit_test(garbage_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
