/* Statuses: messages travel beside the number, exit codes are the contract's. */
#include "atom/base/status.h"

#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void messages_are_kept(void **state)
{
    (void)state;
    assert_int_equal(atom_fail(ATOM_E_USAGE, "unknown key '%s'", "x"), ATOM_E_USAGE);
    assert_string_equal(atom_fail_message(), "unknown key 'x'");
    assert_int_equal(atom_fail_in(ATOM_E_FORMAT, "%s:%d: ", "a.yml", 3), ATOM_E_FORMAT);
    assert_string_equal(atom_fail_message(), "a.yml:3: unknown key 'x'");
    /* A message may quote the one before it. */
    assert_int_equal(atom_fail(ATOM_E_USAGE, "<%s>", atom_fail_message()), ATOM_E_USAGE);
    assert_string_equal(atom_fail_message(), "<a.yml:3: unknown key 'x'>");
}

static void long_messages_are_cut(void **state)
{
    (void)state;
    char text[3000];
    memset(text, 'a', sizeof text - 1);
    text[sizeof text - 1] = 0;
    assert_int_equal(atom_fail(ATOM_E_RUNTIME, "%s", text), ATOM_E_RUNTIME);
    assert_int_equal(strlen(atom_fail_message()), 1023);
    assert_int_equal(atom_fail_in(ATOM_E_RUNTIME, "front: "), ATOM_E_RUNTIME);
    assert_int_equal(strlen(atom_fail_message()), 1023);
    assert_memory_equal(atom_fail_message(), "front: aaa", 10);
    assert_int_equal(atom_fail_errno(EIO, "%s", text), ATOM_E_RUNTIME);
    assert_int_equal(strlen(atom_fail_message()), 1023);
}

/* A file's key may stand in a message, and a terminal would obey what is in it. */
static void nothing_is_told_to_a_terminal(void **state)
{
    (void)state;
    assert_int_equal(
        atom_fail(ATOM_E_FORMAT, "key '%s'", "\033]52;c;eA==\007\r\x7f\302\233 \303\244\n\tx"),
        ATOM_E_FORMAT);
    assert_string_equal(atom_fail_message(), "key '?]52;c;eA==????? \303\244\n\tx'");
    assert_int_equal(atom_fail_in(ATOM_E_FORMAT, "%s: ", "a\033b"), ATOM_E_FORMAT);
    assert_memory_equal(atom_fail_message(), "a?b: key '?", 11);
    assert_int_equal(atom_fail_errno(EIO, "%s", "a\033\302"), ATOM_E_RUNTIME);
    assert_memory_equal(atom_fail_message(), "a?\302: ", 5);
}

static void errno_becomes_a_status(void **state)
{
    (void)state;
    assert_int_equal(atom_fail_errno(ENOSPC, "cannot write %s", "f"), ATOM_E_RESOURCE);
    assert_string_equal(atom_fail_message(), "cannot write f: No space left on device");
    assert_int_equal(atom_fail_errno(ENOMEM, "x"), ATOM_E_RESOURCE);
    assert_int_equal(atom_fail_errno(EDQUOT, "x"), ATOM_E_RESOURCE);
    assert_int_equal(atom_fail_errno(EFBIG, "x"), ATOM_E_RESOURCE);
    assert_int_equal(atom_fail_errno(EIO, "x"), ATOM_E_RUNTIME);
    assert_int_equal(atom_fail_errno(EROFS, "run/pool/month"), ATOM_E_RUNTIME);
    assert_non_null(strstr(atom_fail_message(), "run/pool/month: Read-only file system; "));
    assert_non_null(strstr(atom_fail_message(), "make it writable again"));
}

static void *other_thread(void *arg)
{
    *(size_t *)arg = strlen(atom_fail_message());
    return atom_fail(ATOM_E_DEAD, "other") == ATOM_E_DEAD ? arg : NULL;
}

static void each_thread_has_its_own(void **state)
{
    (void)state;
    pthread_t id;
    size_t length = 99;
    assert_int_equal(atom_fail(ATOM_E_USAGE, "mine"), ATOM_E_USAGE);
    assert_int_equal(pthread_create(&id, NULL, other_thread, &length), 0);
    pthread_join(id, NULL);
    assert_int_equal(length, 0);
    assert_string_equal(atom_fail_message(), "mine");
}

static void exit_codes_are_the_contract(void **state)
{
    (void)state;
    static const int codes[] = {0, 1, 2, 3, 4, 5, 1, 2, 130};
    for (int i = 0; i <= ATOM_E_INTERRUPTED; i++) {
        assert_int_equal(atom_status_exit_code((atom_status)i), codes[i]);
        assert_string_not_equal(atom_status_name((atom_status)i), "unknown");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_are_kept),
        cmocka_unit_test(long_messages_are_cut),
        cmocka_unit_test(nothing_is_told_to_a_terminal),
        cmocka_unit_test(errno_becomes_a_status),
        cmocka_unit_test(each_thread_has_its_own),
        cmocka_unit_test(exit_codes_are_the_contract),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
