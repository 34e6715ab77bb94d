/*
 * Whose chain a member asks for: whoever claims much gets no more of its questions than others, and
 * ever fewer while nothing comes of them; whoever is not asked waits no longer for it.
 */
#include "tests/lib/agree_hosts.h"

/* Of host 0, which is a pool by itself and certifies nothing; the others only say who they are. */
static gsp_agree *me;
static uint32_t n_asked[HOSTS], n_beats;

static void asks(void *context, const gsp_action *a)
{
    (void)context;
    if (a->kind == GSP_DO_CHAIN)
        n_asked[a->peer.byte[0] - 1]++;
}

static void tells(gsp_event e)
{
    e.now_ns = w.now_ns;
    gsp_agree_step(me, &e, asks, NULL);
}

static void alone(void)
{
    open_pool(1);
    me = &w.agree[0];
    me->rules.time_due_ns = UINT64_MAX / 4;
    memset(n_asked, 0, sizeof n_asked);
    n_beats = 0;
}

/* Host i says that it is in a lineage of this number. */
static void beats(uint32_t i, uint32_t lineage)
{
    gsp_message m = from_host(i, GSP_HEARTBEAT, 0);
    m.lineage = (gsp_hash){.byte = {77, (uint8_t)lineage, (uint8_t)(lineage >> 8), 1}};
    m.as.heartbeat.sequence = ++n_beats;
    tells((gsp_event){.kind = GSP_ON_MESSAGE, .message = &m});
}

static void second_passes(void)
{
    w.now_ns += 1000 * MS;
    tells((gsp_event){.kind = GSP_ON_TICK});
}

/* It was asked, and nothing came of it. */
static void nothing_comes(uint32_t i)
{
    tells((gsp_event){.kind = GSP_ON_CHAIN, .peer = member(i).key});
}

static void ever_new_claims_are_asked_about_ever_less(void **unused)
{
    (void)unused;
    alone();
    for (uint32_t s = 0; s < 3600; s++) {
        second_passes();
        uint32_t before = n_asked[1];
        beats(1, s);
        if (n_asked[1] > before)
            nothing_comes(1);
    }
    assert_true(n_asked[1] > 4);
    assert_true(n_asked[1] < 40);
    close_pool();
}

/* The liar speaks first in each second, and holds each question until its time is over. */
static void claims_take_nobodys_turn(void **unused)
{
    (void)unused;
    alone();
    for (uint32_t s = 0; s < 60; s++) {
        w.now_ns += 1000 * MS;
        beats(1, s);
        beats(2, 5000);
        beats(3, 5000);
        tells((gsp_event){.kind = GSP_ON_TICK});
        if (s == 15) {
            assert_int_equal(n_asked[2], 1);
            assert_int_equal(n_asked[3], 1);
        }
    }
    assert_true(n_asked[2] > 1 && n_asked[3] > 1);
    close_pool();
}

/* Nor does it matter to others that a liar claims what they are in. */
static void claims_delay_nobody(void **unused)
{
    (void)unused;
    alone();
    for (uint32_t s = 0; s < 1200; s++) {
        second_passes();
        uint32_t before = n_asked[1];
        beats(1, 5000);
        if (n_asked[1] > before)
            nothing_comes(1);
    }
    assert_int_equal(n_asked[2], 0);
    beats(2, 5000);
    assert_int_equal(n_asked[2], 1);
    close_pool();
}

/* Whoever was asked in vain for long is asked soon when it moved, or when the quorum is lost. */
static void need_makes_waits_short(void **unused)
{
    (void)unused;
    for (uint32_t lost = 0; lost < 2; lost++) {
        alone();
        for (uint32_t s = 0; s < 3000; s++) {
            second_passes();
            uint32_t before = n_asked[1];
            beats(1, 6000);
            if (n_asked[1] > before)
                nothing_comes(1);
        }
        uint32_t before = n_asked[1];
        if (lost) /* two of three are gone */
            me->certificate.proposal.next.n = 3;
        for (uint32_t s = 0; s < (lost ? 2000 : 10); s++) {
            second_passes();
            beats(1, lost ? 6000 : 6001);
        }
        assert_true(n_asked[1] > before);
        close_pool();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ever_new_claims_are_asked_about_ever_less),
        cmocka_unit_test(claims_take_nobodys_turn),
        cmocka_unit_test(claims_delay_nobody),
        cmocka_unit_test(need_makes_waits_short),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
