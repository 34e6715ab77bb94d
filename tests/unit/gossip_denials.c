/* Who refused: one member's word ends no join, and several end it only when nobody else is left. */
#include "gossip/pool/denials.h"
#include "tests/lib/gossip_contact.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static const uint64_t SECOND = 1000000000u;

static void link_up(gsp_links *links, uint8_t key)
{
    gsp_net_event e = {.kind = GSP_NET_UP, .key = {key}};
    assert_non_null(gsp_links_add(links, &e));
}

static void deny(gsp_denials *d, uint8_t key, uint64_t now)
{
    uint8_t k[GSP_PUBLIC_BYTES] = {key};
    gsp_address at = test_address("192.0.2.7:4400");
    at.port = key;
    gsp_denials_add(d, k, &at, GSP_REFUSED_BANNED, now);
}

static void one_is_none(void **state)
{
    (void)state;
    gsp_links *links = test_calloc(1, sizeof *links);
    gsp_denials *d = test_calloc(1, sizeof *d);
    link_up(links, 1);
    for (int i = 0; i < 100; i++)
        deny(d, 1, 5 * SECOND);
    assert_int_equal(d->n, 1);
    assert_false(gsp_denials_are_all(d, links, 1000 * SECOND));
    test_free(d);
    test_free(links);
}

static void all_are_all(void **state)
{
    (void)state;
    char text[300];
    gsp_links *links = test_calloc(1, sizeof *links);
    gsp_denials *d = test_calloc(1, sizeof *d);
    link_up(links, 1);
    link_up(links, 2);
    link_up(links, 3);
    deny(d, 1, 5 * SECOND);
    deny(d, 2, 6 * SECOND);
    assert_false(gsp_denials_are_all(d, links, 1000 * SECOND)); /* the third was not heard */
    deny(d, 3, 20 * SECOND);
    assert_false(gsp_denials_are_all(d, links, 29 * SECOND)); /* somebody else may come */
    deny(d, 1, 29 * SECOND);                                  /* nothing new */
    assert_true(gsp_denials_are_all(d, links, 31 * SECOND));
    link_up(links, 4);
    assert_false(gsp_denials_are_all(d, links, 31 * SECOND));
    assert_string_equal(
        gsp_denials_text(d, text, sizeof text),
        "192.0.2.7:1 says: this key is banned from the pool; 192.0.2.7:2 says: this key is banned "
        "from the pool; 192.0.2.7:3 says: this key is banned from the pool");
    assert_int_equal(strlen(gsp_denials_text(d, text, 20)), 19);
    test_free(d);
    test_free(links);
}

static void many_are_bounded(void **state)
{
    (void)state;
    gsp_denials *d = test_calloc(1, sizeof *d);
    for (unsigned i = 0; i < 3 * GSP_DENIALS_MAX; i++)
        deny(d, (uint8_t)i, i);
    assert_int_equal(d->n, GSP_DENIALS_MAX);
    assert_int_equal(d->of[GSP_DENIALS_MAX - 1].key[0], (uint8_t)(3 * GSP_DENIALS_MAX - 1));
    static const gsp_address nowhere;
    uint8_t key[GSP_PUBLIC_BYTES] = {77};
    gsp_denials_add(d, key, &nowhere, GSP_REFUSED_EXPIRED, 1);
    assert_int_equal(strlen(d->of[GSP_DENIALS_MAX - 1].who), 8); /* through a relay: its key */
    assert_true(gsp_refusal_is_final(GSP_REFUSED_EXPIRED));
    assert_false(gsp_refusal_is_final(GSP_REFUSED_FULL) || gsp_refusal_is_final(0));
    test_free(d);
}

int main(void)
{
    test_must(gsp_crypto_start());
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_is_none),
        cmocka_unit_test(all_are_all),
        cmocka_unit_test(many_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
