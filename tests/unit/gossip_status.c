/*
 * What the control socket says of a member: the counts that others ask for by name.
 */
#include "gossip/pool/status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

static void counts_have_their_names(void **state)
{
    (void)state;
    static gsp_pool_status s = {
        .faults = 4,
        .member = {
            .refused = 3, .unanswered = 139, .audits = 11, .audits_open = 2, .false_claims = 1}};
    static const struct {
        const char *name;
        json_int_t value;
    } expected[] = {{"faults", 4},
                    {"unanswered", 139},
                    {"audits", 11},
                    {"audits_open", 2},
                    {"false_accusations", 1}};
    const uint8_t key[GSP_PUBLIC_BYTES] = {1};
    const gsp_pool_head head = {.name = "ours", .settings = "", .key = key};
    json_t *o = gsp_pool_status_json(&s, &head);
    assert_non_null(o);
    for (size_t k = 0; k < sizeof expected / sizeof expected[0]; k++) {
        const json_t *value = json_object_get(o, expected[k].name);
        assert_true(json_is_integer(value));
        assert_int_equal(json_integer_value(value), expected[k].value);
    }
    json_decref(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_have_their_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
