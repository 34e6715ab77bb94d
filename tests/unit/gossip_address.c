/* Whose address is whose, and which bytes may pass to nanomsg: byte by byte as in one piece. */
#include "gossip/gate/gate_frame.h"
#include "tests/lib/gossip_pool.h"

#include <net/if.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void one_customer_has_one_address_or_a_network(void **state)
{
    (void)state;
    static const struct {
        const char *a, *b;
        bool host, customer;
    } cases[] = {{"192.0.2.7:1", "192.0.2.7:2", true, true},
                 {"192.0.2.7:1", "192.0.2.8:1", false, false},
                 {"[2001:db8:0:1::7]:1", "[2001:db8:0:1::7]:2", true, true},
                 {"[2001:db8:0:1::7]:1", "[2001:db8:0:1:ffff::8]:1", false, true},
                 {"[2001:db8:0:1::7]:1", "[2001:db8:0:2::7]:1", false, false},
                 {"[::1]:1", "192.0.2.7:1", false, false}, /* both begin with zeros */
                 {"192.0.2.7:1", "[::1]:1", false, false},
                 {"[fe80::7%lo]:1", "[fe80::7]:1", false, false}}; /* on another link */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const gsp_address a = test_address(cases[i].a), b = test_address(cases[i].b);
        assert_int_equal(gsp_address_same_host(&a, &b), cases[i].host);
        assert_int_equal(gsp_address_same_customer(&a, &b), cases[i].customer);
        assert_false(gsp_address_equal(&a, &b));
        assert_true(gsp_address_equal(&a, &a));
    }
}

static void an_interface_belongs_to_an_address(void **state)
{
    (void)state;
    char text[GSP_ADDRESS_TEXT_BYTES];
    struct sockaddr_storage s;
    gsp_address a = test_address("[fe80::7%lo]:80"), b;
    assert_int_equal(a.scope, if_nametoindex("lo"));
    assert_string_equal(gsp_address_text(&a, text), "[fe80::7%lo]:80");
    gsp_address_to_socket(&a, &s);
    assert_true(gsp_address_from_socket(&s, &b));
    assert_true(gsp_address_equal(&a, &b));
    b.scope = 0;
    assert_string_equal(gsp_address_text(&b, text), "[fe80::7]:80");
    s.ss_family = AF_UNIX;
    assert_false(gsp_address_from_socket(&s, &b));
}

static void any_is_of_both_families(void **state)
{
    (void)state;
    static const char *const any[] = {"*:1", "[::]:1", "0.0.0.0:1"};
    static const char *const one[] = {"127.0.0.1:1", "[::1]:1", "1.0.0.0:1", "[1::]:1"};
    gsp_address a;
    for (size_t i = 0; i < 3; i++) {
        a = test_address(any[i]);
        assert_true(gsp_address_is_any(&a));
    }
    for (size_t i = 0; i < 4; i++) {
        a = test_address(one[i]);
        assert_false(gsp_address_is_any(&a));
    }
    assert_int_equal(gsp_address_parse("1.2.3.4:4294971696", &a), ATOM_E_USAGE); /* 4400 and 2^32 */
}

static bool passes(const uint8_t *data, size_t n, size_t step)
{
    gsp_frames f = {.bytes_max = 300};
    bool right = true;
    for (size_t at = 0; right && at < n; at += step)
        right = gsp_frames_pass(&f, data + at, n - at < step ? n - at : step);
    return right;
}

/* The greeting, then whole frames of kind 1 with 1 to bytes_max bytes each. */
static void only_what_nanomsg_sends_passes(void **state)
{
    (void)state;
    static const uint8_t greeting[] = {0, 'S', 'P', 0, 0, 16, 0, 0};
    static const struct {
        uint8_t kind, high;
        uint16_t length;
        bool right;
    } cases[] = {{1, 0, 1, true},    {1, 0, 300, true}, {1, 0, 301, false}, {1, 0, 0, false},
                 {0, 0, 300, false}, {2, 0, 5, false},  {1, 1, 5, false}};
    static const size_t steps[] = {1, 2, 7, 8, 9, 17, 1000};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (size_t k = 0; k < sizeof steps / sizeof *steps; k++) {
            uint8_t data[1000];
            size_t n = sizeof greeting;
            memcpy(data, greeting, n);
            for (int frame = 0; frame < 2; frame++) { /* a good one before it */
                const uint16_t length = frame ? cases[i].length : 3;
                const uint8_t head[GSP_FRAME_HEAD_BYTES] = {
                    frame ? cases[i].kind : 1,
                    frame ? cases[i].high : 0, [7] = (uint8_t)(length >> 8), [8] = (uint8_t)length};
                memcpy(data + n, head, sizeof head);
                memset(data + n + sizeof head, 0xee, length);
                n += sizeof head + (frame && !cases[i].right ? 0 : length);
            }
            assert_int_equal(passes(data, n, steps[k]), cases[i].right);
            data[2] ^= 1;
            assert_false(passes(data, n, steps[k]));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_customer_has_one_address_or_a_network),
        cmocka_unit_test(an_interface_belongs_to_an_address),
        cmocka_unit_test(any_is_of_both_families),
        cmocka_unit_test(only_what_nanomsg_sends_passes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
