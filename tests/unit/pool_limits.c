/*
 * A volunteer's limits against a machine of files: hours over midnight, batteries, heat with its
 * way back, other programs; and that what is not there forbids nothing.
 */
#include "atom/pool/host.h"
#include "atom/pool/limits.h"

#include "tests/scratch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static scratch s;
static char why[POOL_LIMITS_WHY_BYTES];
static double now_s;

static void put(const char *path, const char *text)
{
    char command[3000];
    snprintf(command, sizeof command,
             "mkdir -p \"$(dirname '%s/%s')\" && printf '%%s\\n' '%s' > '%s/%s'", s.dir, path, text,
             s.dir, path);
    assert_int_equal(system(command), 0);
}

static pool_limits *open_limits(pool_limits_config c)
{
    pool_limits *l = NULL;
    c.root = s.dir;
    now_s = 100;
    assert_int_equal(pool_limits_open(&c, NULL, &l), ATOM_OK);
    return l;
}

/* At noon, a second and a half later than last time. */
static bool allow(pool_limits *l)
{
    now_s += 1.5;
    return pool_limits_allow(l, 12 * 60, now_s, 0, why);
}

static bool at(pool_limits *l, int hour, int minute)
{
    return pool_limits_allow(l, hour * 60 + minute, now_s += 2, 0, why);
}

static void hours(void **state)
{
    (void)state;
    scratch_open(&s);
    pool_limits *l = open_limits((pool_limits_config){.hours = "22:00-07:00,12-13:30"});
    assert_true(at(l, 22, 0));
    assert_true(at(l, 3, 0));
    assert_true(at(l, 6, 59));
    assert_false(at(l, 7, 0));
    assert_string_equal(why, "waiting for its hours: 5:00 to go");
    assert_true(at(l, 12, 0));
    assert_true(at(l, 13, 29));
    assert_false(at(l, 13, 30));
    assert_false(at(l, 21, 59));
    assert_string_equal(why, "waiting for its hours: 0:01 to go");
    pool_limits_close(&l);
    static const char *const wrong[] = {
        "22",      "22-",        "25-3",        "1:7-2",
        "1-2;3-4", "1-2,x-3",    "1:60-2:00",   "-1-2",
        "1-2-3",   "24:01-1:00", "22:00-22:00", "1-2,1-2,1-2,1-2,1-2,1-2,1-2,1-2,1-2"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        pool_limits_config c = {.hours = wrong[i]};
        assert_int_equal(pool_limits_open(&c, NULL, &l), ATOM_E_USAGE);
        assert_non_null(strstr(atom_fail_message(), wrong[i]));
    }
    scratch_close(&s);
}

static void a_battery(void **state)
{
    (void)state;
    scratch_open(&s);
    pool_limits *l = open_limits((pool_limits_config){.mains_only = true});
    assert_true(allow(l));
    put("sys/class/power_supply/AC/type", "Mains");
    put("sys/class/power_supply/hid/type", "Battery");
    put("sys/class/power_supply/hid/scope", "Device");
    put("sys/class/power_supply/hid/status", "Discharging");
    assert_true(allow(l)); /* the mouse's */
    put("sys/class/power_supply/BAT0/type", "Battery");
    put("sys/class/power_supply/BAT0/status", "Discharging");
    assert_false(allow(l));
    assert_string_equal(why, "waiting for mains power");
    put("sys/class/power_supply/BAT0/status", "Charging");
    assert_true(allow(l));
    pool_limits_close(&l);
    l = open_limits((pool_limits_config){0});
    put("sys/class/power_supply/BAT0/status", "Discharging");
    assert_true(allow(l)); /* nobody asked */
    pool_limits_close(&l);
    scratch_close(&s);
}

static void heat(void **state)
{
    (void)state;
    scratch_open(&s);
    char missing[POOL_LIMITS_WHY_BYTES];
    pool_limits_config c = {.celsius_max = 80, .root = s.dir};
    const pool_limits_config none = {.root = s.dir};
    pool_limits *l = NULL;
    assert_int_equal(pool_limits_open(&none, missing, &l), ATOM_OK);
    assert_string_equal(missing, ""); /* nobody asked for a limit */
    pool_limits_close(&l);
    assert_int_equal(pool_limits_open(&c, missing, &l), ATOM_OK);
    assert_non_null(strstr(missing, "does not report the temperature"));
    pool_limits_close(&l);
    l = open_limits(c);
    assert_true(allow(l));
    put("sys/class/hwmon/hwmon0/name", "nvme");
    put("sys/class/hwmon/hwmon0/temp1_input", "99000");
    assert_true(allow(l)); /* a disk's */
    put("sys/class/hwmon/hwmon1/name", "k10temp");
    put("sys/class/hwmon/hwmon1/temp1_input", "60000");
    put("sys/class/hwmon/hwmon1/temp3_input", "81500");
    assert_false(allow(l));
    assert_string_equal(why, "cooling down: it has 82 degrees, the limit is 80");
    put("sys/class/hwmon/hwmon1/temp3_input", "77000");
    assert_false(allow(l)); /* not yet */
    put("sys/class/hwmon/hwmon1/temp3_input", "74000");
    assert_true(allow(l));
    put("sys/class/hwmon/hwmon1/temp3_input", "79000");
    assert_true(allow(l)); /* and it may get warmer again */
    pool_limits_close(&l);
    scratch_close(&s);
}

static void others(void **state)
{
    (void)state;
    scratch_open(&s);
    char line[128];
    double tick = (double)sysconf(_SC_CLK_TCK);
    pool_limits *l = open_limits((pool_limits_config){.others_max = 1.0});
    assert_true(allow(l)); /* no /proc/stat */
    /* seconds of all, of ours, and whether we may go on */
    static const struct {
        double at, all, own;
        bool allowed;
    } steps[] = {
        {200, 1000, 0, true},   {210, 1020, 19, true}, /* 2 cores, 1.9 are ours */
        {220, 1040, 20, false},                        /* 2 cores, 0.1 is ours */
        {222, 1044, 24, false},                        /* too soon to say */
        {230, 1060, 38, true},
    };
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        snprintf(line, sizeof line, "cpu  %.0f 0 %.0f 5000 10 0 0 0 0 0", steps[i].all * tick - 100,
                 100.0);
        put("proc/stat", line);
        assert_int_equal(pool_limits_allow(l, 0, steps[i].at, steps[i].own, why), steps[i].allowed);
    }
    pool_limits_close(&l);
    scratch_close(&s);
    l = open_limits((pool_limits_config){.hours = ""});
    assert_true(pool_limits_now(l, why));
    pool_limits_close(&l);
}

/* What somebody set is never taken for the 0 that means no limit. */
static void a_small_limit_is_one(void **state)
{
    (void)state;
    const pool_host little = {.up_mbit = 1e-7, .down_mbit = 1, .up_month_gb = 1e-10};
    gsp_pool_host out;
    assert_int_equal(pool_host_place(&little, "pool", &out), ATOM_OK);
    assert_int_equal(out.up_bytes_per_s, 1);
    assert_int_equal(out.down_bytes_per_s, 125000);
    assert_int_equal(out.up_month_max, 1);
    assert_int_equal(out.down_month_max, 0);
    assert_int_equal(pool_host_limit(0, 1e9), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hours),
        cmocka_unit_test(a_battery),
        cmocka_unit_test(heat),
        cmocka_unit_test(others),
        cmocka_unit_test(a_small_limit_is_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
