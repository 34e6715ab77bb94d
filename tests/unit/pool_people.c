/* Who came to a pool and who went: said once each, of members alone, and not of those who were there before. */
#include "atom/pool/people.h"

#include <stdio.h>
#include <string.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static char notes[2000];

static void note(void *ctx, const char *text)
{
    size_t used = strlen(notes);
    (void)ctx;
    snprintf(notes + used, sizeof notes - used, "%s\n", text);
}

typedef struct peer {
    uint8_t key;
    const char *name;
    bool self, on_roster;
} peer;

static void look(pool_people *people, const peer *peers, uint32_t n)
{
    static gsp_pool_status status;
    const pool_hooks hooks = {.note = note};
    memset(&status, 0, sizeof status);
    status.n_peers = n;
    for (uint32_t i = 0; i < n; i++) {
        memset(status.peer[i].key, peers[i].key, sizeof status.peer[i].key);
        snprintf(status.peer[i].name, sizeof status.peer[i].name, "%s", peers[i].name);
        status.peer[i].self = peers[i].self;
        status.peer[i].on_roster = peers[i].on_roster;
    }
    notes[0] = 0;
    pool_people_look(people, &status, &hooks);
}

static unsigned said(const char *words)
{
    unsigned n = 0;
    for (const char *at = notes; (at = strstr(at, words)); at++)
        n++;
    return n;
}

static void comings_and_goings(void **state)
{
    static pool_people people;
    (void)state;
    const peer at_first[] = {
        {1, "me", true, true}, {2, "ann", false, true}, {3, "bob", false, false}};
    look(&people, at_first, 3);
    assert_string_equal(notes, ""); /* they were there before */
    look(&people, at_first, 3);
    assert_string_equal(notes, "");
    const peer then[] = {{1, "me", true, false},
                         {2, "ann", false, false},
                         {3, "bob", false, true},
                         {4, "", false, false},
                         {5, "", false, true}};
    look(&people, then, 5);
    assert_int_equal(said("\n"), 3);
    assert_int_equal(said("is a member now"), 2);
    assert_non_null(strstr(notes, "pool: ann ("));
    assert_non_null(strstr(notes, ") is no longer a member\npool: bob ("));
    assert_non_null(strstr(notes, ") is a member now\npool: a member ("));
    look(&people, then, 5);
    assert_string_equal(notes, "");
    look(&people, NULL, 0); /* those who are not spoken of any more are none, either */
    assert_int_equal(said("\n"), 2);
    assert_non_null(strstr(notes, "pool: bob ("));
    assert_null(strstr(notes, "is a member now"));
    look(&people, then, 5); /* a name that was heard once is kept */
    assert_int_equal(said("\n"), 2);
    const peer nameless[] = {{3, "", false, false}};
    look(&people, nameless, 1);
    assert_non_null(strstr(notes, "pool: bob ("));
}

static void more_than_are_shown(void **state)
{
    static pool_people people;
    peer all[GSP_POOL_SHOWN_MAX];
    (void)state;
    look(&people, NULL, 0);
    for (uint32_t i = 0; i < GSP_POOL_SHOWN_MAX; i++)
        all[i] = (peer){(uint8_t)(i + 1), "", false, true};
    look(&people, all, GSP_POOL_SHOWN_MAX);
    const peer one[] = {{255, "", false, true}};
    look(&people, one, 1);
    assert_null(strstr(notes, "is a member now"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(comings_and_goings),
        cmocka_unit_test(more_than_are_shown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
