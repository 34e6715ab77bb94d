/*
 * What the control socket says of a member: the counts that others ask for by name.
 */
#include "gossip/pool/status.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
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

/* A disk's full path that was cut within a letter, and a directory with a name of an old machine. */
static void no_answer_is_lost_for_a_letter(void **state)
{
    (void)state;
    static gsp_pool_status s = {.text = "the disk that holds /b\xc3\xbc\xc3 is full",
                                .member = {.n_bans = 1}};
    const uint8_t key[GSP_PUBLIC_BYTES] = {1};
    const gsp_pool_head head = {.name = "\xc3\xbc", .settings = "", .key = key};
    snprintf(s.member.ban[0].file, sizeof s.member.ban[0].file, "/b\xfcro/evidence-1");
    snprintf(s.member.ban[0].why, sizeof s.member.ban[0].why, "\xfc wrong sum");
    json_t *o = gsp_pool_status_json(&s, &head);
    assert_non_null(o);
    assert_string_equal(json_string_value(json_object_get(o, "name")), "\xc3\xbc");
    assert_string_equal(json_string_value(json_object_get(o, "text")),
                        "the disk that holds /b??? is full");
    const json_t *ban = json_array_get(json_object_get(o, "banned"), 0);
    assert_string_equal(json_string_value(json_object_get(ban, "evidence")), "/b?ro/evidence-1");
    assert_string_equal(json_string_value(json_object_get(ban, "why")), "? wrong sum");
    json_decref(o);
    o = gsp_pool_text_json("\xe2\x82\xac 7"); /* what is right stays as it is */
    assert_string_equal(json_string_value(o), "\xe2\x82\xac 7");
    json_decref(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_have_their_names),
        cmocka_unit_test(no_answer_is_lost_for_a_letter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
