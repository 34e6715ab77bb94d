/* A link's rate from what it carried: only from seconds in which it was wanted all the time. */
#include "gossip/member/meter.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const uint64_t STEP = 20000000; /* 20 ms */

/* Runs for so long at a rate; the time and the count go on. */
static void run(gsp_meter *m, uint64_t *now, uint64_t *bytes, double seconds, double rate,
                bool wanted)
{
    for (double t = 0; t < seconds; t += 0.02) {
        *now += STEP;
        *bytes += (uint64_t)(rate * 0.02);
        gsp_meter_turn(m, *now, *bytes, wanted);
    }
}

static void near(uint64_t got, double want)
{
    assert_true((double)got > 0.97 * want && (double)got < 1.03 * want);
}

static void learns(void **state)
{
    (void)state;
    gsp_meter m = {0};
    uint64_t now = 1000000000, bytes = 77;
    run(&m, &now, &bytes, 1.4, 1e6, true); /* a burst says nothing */
    run(&m, &now, &bytes, 1.2, 0, true);
    assert_int_equal(gsp_meter_rate(&m), 0);
    run(&m, &now, &bytes, 6, 1e6, true);
    near(gsp_meter_rate(&m), 1e6);
    /* Another's slow link is no reason to think little of ours. */
    run(&m, &now, &bytes, 6, 2e5, true);
    assert_true(gsp_meter_rate(&m) > 900000);
    run(&m, &now, &bytes, 6, 5e6, true);
    near(gsp_meter_rate(&m), 5e6);
    /* But after minutes it is. */
    run(&m, &now, &bytes, 1000, 2e5, true);
    assert_true(gsp_meter_rate(&m) < 300000);
}

static void pauses_teach_nothing(void **state)
{
    (void)state;
    gsp_meter m = {0};
    uint64_t now = 1000000000, bytes = 0;
    for (int i = 0; i < 50; i++) { /* heartbeats, small rounds */
        run(&m, &now, &bytes, 0.9, 1e7, true);
        run(&m, &now, &bytes, 1.1, 0, true);
    }
    assert_int_equal(gsp_meter_rate(&m), 0);
    run(&m, &now, &bytes, 5, 1e7, false); /* nobody waited for more: it could have been faster */
    assert_int_equal(gsp_meter_rate(&m), 0);
    for (int i = 0; i < 20; i++) { /* nobody looked for a while */
        run(&m, &now, &bytes, 0.5, 1e7, true);
        now += 2000000000;
        bytes += 1000;
    }
    assert_int_equal(gsp_meter_rate(&m), 0);
    bytes = 0; /* another count */
    run(&m, &now, &bytes, 1.8, 1e7, true);
    assert_int_equal(gsp_meter_rate(&m), 0);
    run(&m, &now, &bytes, 4, 1e7, true);
    near(gsp_meter_rate(&m), 1e7);
}

static void what_is_told(void **state)
{
    (void)state;
    assert_int_equal(gsp_meter_told(0, 0), 0);
    assert_int_equal(gsp_meter_told(100, 0), 100);
    assert_int_equal(gsp_meter_told(0, 70), 70);
    assert_int_equal(gsp_meter_told(100, 50), 100);
    assert_int_equal(gsp_meter_told(100, 1000), 100);
    assert_int_equal(gsp_meter_told(1000, 50), 100); /* twice what was seen, no more */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(learns),
        cmocka_unit_test(pauses_teach_nothing),
        cmocka_unit_test(what_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
