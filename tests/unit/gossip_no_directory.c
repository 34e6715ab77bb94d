/* The directory of a build without OpenDHT (directory_none.c, linked in front of the other): whoever opens it is told
 * why there is none. */
#include "gossip/directory/directory.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void cannot_be_opened(void **state)
{
    gsp_directory_config c = {0};
    gsp_directory *d = (gsp_directory *)&c; /* whatever was there before is not taken for one */
    (void)state;
    assert_int_equal(gsp_directory_open(&c, &d), ATOM_E_UNSUPPORTED);
    assert_null(d);
    assert_non_null(strstr(atom_fail_message(), "built without OpenDHT; members are found by"));
    assert_int_equal(gsp_directory_bootstrap(d, "example.org:4222"), ATOM_E_UNSUPPORTED);
    assert_non_null(strstr(atom_fail_message(), "example.org:4222: "));
    gsp_directory_close(&d);
    assert_null(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(cannot_be_opened)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
