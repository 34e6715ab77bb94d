/* What `atom pool status` prints of what a member answers, to the letter; blanks that only align are left out. */
#include "tools/pool/cmd_pool_ask.h"
#include "tools/progress.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static const char *answer; /* of the member */
static char asked[20];     /* where it runs */

atom_status pool_ask(const char *dir, json_t *request, json_t **out)
{
    snprintf(asked, sizeof asked, "%s", dir);
    assert_string_equal(json_string_value(json_object_get(request, "do")), "status");
    json_decref(request);
    *out = json_loads(answer, 0, NULL);
    assert_non_null(*out);
    return ATOM_OK;
}

void cli_signals_catch(void) {}

int cli_signal(void)
{
    return 0;
}

/* Without blanks that repeat, begin or end a line. */
static void squeeze(char *at)
{
    char *to = at;
    for (char before = '\n'; *at; at++) {
        if (*at == ' ' && (before == ' ' || before == '\n'))
            continue;
        if (*at == '\n' && before == ' ')
            to--;
        before = *to++ = *at;
    }
    *to = 0;
}

static atom_status run(const char *more, const char *value)
{
    const opt_command *c = cli_pool_status.options;
    void *values = calloc(1, c->values_bytes);
    char words[3][20] = {"run"};
    char *argv[] = {words[0], words[1], words[2]};
    opt_parsed parsed = {0};
    int argc = 1;
    if (more)
        strcpy(words[argc++], more);
    if (value)
        strcpy(words[argc++], value);
    atom_status st = opt_parse(c, argc, argv, values, &parsed);
    if (st == ATOM_OK)
        st = cli_pool_status.run(values, &parsed);
    opt_free(c, values);
    free(values);
    return st;
}

static char *printed(const char *said, bool json)
{
    FILE *out = stdout;
    char *text = NULL;
    size_t bytes = 0;
    answer = said;
    stdout = open_memstream(&text, &bytes);
    atom_status st = run(json ? "--json" : NULL, NULL);
    fclose(stdout);
    stdout = out;
    assert_int_equal(st, ATOM_OK);
    assert_string_equal(asked, "run");
    squeeze(text);
    return text;
}

static void prints(const char *said, const char *wanted)
{
    char *text = printed(said, false);
    assert_string_equal(text, wanted);
    free(text);
}

#define HEAD "\nkey name state version tokens share heard address\n"

static void a_pool_of_many(void **state)
{
    (void)state;
    prints("{\"name\": \"mine\", \"version\": 7, \"certified_tokens\": 1230000, \"roster\": 5,"
           "\"state\": \"training\", \"text\": \"all is well\", \"wish\": \"\", \"members\": ["
           "{\"key\": \"selfselfself\", \"name\": \"a\", \"up\": true, \"self\": true,"
           " \"on_roster\": true, \"version\": 7, \"tokens\": 100, \"share\": 0.25,"
           " \"address\": \"1.2.3.4:0\"},"
           "{\"key\": \"bbbbbbbbb\", \"name\": \"b\", \"up\": true, \"on_roster\": true,"
           " \"rests\": true, \"version\": 6, \"tokens\": 50, \"share\": 0.125, \"heard_s\": 5,"
           " \"address\": \"1.2.3.4:0\"},"
           "{\"key\": \"c\", \"up\": true, \"on_roster\": true, \"muted\": true, \"heard_s\": 0,"
           " \"relayed\": true, \"address\": \"1.2.3.4:4400\"},"
           "{\"key\": \"d\", \"up\": true, \"on_roster\": true, \"address\": \"1.2.3.4:4400\"},"
           "{\"key\": \"e\", \"up\": true, \"waiting\": true, \"heard_s\": null,"
           " \"address\": \"1.2.3.4:10\"},"
           "{\"key\": \"f\", \"up\": true, \"on_roster\": false, \"address\": \"1.2.3.4:4400\"},"
           "{\"key\": \"g\", \"up\": false, \"on_roster\": true, \"address\": \"1.2.3.4:4400\"}],"
           "\"rounds\": [{\"version\": 7, \"time\": 3661, \"contributors\": 3, \"roster\": 5,"
           " \"round_s\": 9}, {\"round_s\": 1}, {\"round_s\": 0}, {\"round_s\": 2}],"
           "\"banned\": [{\"key\": \"kkkkkkkkkkkk\", \"why\": \"it lied\", \"evidence\": \"f.x\"},"
           " {\"key\": \"l\", \"why\": \"by the owner\"}],"
           "\"bytes_out\": 2048, \"bytes_in\": 1024, \"up_s\": 42, \"faults\": 3,"
           "\"month\": {\"text\": \"1 of 2 GB\"}, \"unanswered\": 1}",
           "mine: version 7, 1.23 M tokens certified, 5 members\n"
           "training: all is well\n" HEAD "* selfself a member 7 100 25.0% this host\n"
           "bbbbbbbb b resting 6 50 12.5% 5 s 1.2.3.4:0 (only dials)\n"
           "c muted 0 0 0.0% 0 s relayed\n"
           "d member 0 0 0.0% never 1.2.3.4:4400\n"
           "e waiting 0 0 0.0% never 1.2.3.4:10\n"
           "f linked 0 0 0.0% never 1.2.3.4:4400\n"
           "g away 0 0 0.0% never 1.2.3.4:4400\n"
           "\nlast round: version 7 at 01:01:01, 3 of 5 contributed; rounds take 2.00 s (median of "
           "3)\n"
           "banned: kkkkkkkk: it lied; evidence: f.x\n"
           "banned: l: by the owner\n"
           "2.0 KiB out, 1.0 KiB in; 1 of 2 GB; up for 42 s; 3 messages and connections of "
           "strangers refused; 1 question left unanswered because members ask too often\n");
}

/* A host that its user paused says so, whatever state it is in; the others are as they are. */
static void a_paused_host(void **state)
{
    (void)state;
    char said[900];
    snprintf(said, sizeof said,
             "{\"version\": 0, \"roster\": 1, \"wish\": \"pause\", \"state\": \"training\","
             "\"text\": \"as you wished\", \"members\": [{\"key\": \"a\", \"self\": true,"
             "\"up\": true, \"on_roster\": true}, {\"key\": \"b\", \"up\": true,"
             "\"on_roster\": true}], \"rounds\": [{\"version\": 1, \"time\": 0,"
             "\"round_s\": 0}], \"directory\": {\"text\": \"5 members\", \"time\": %lld}, "
             "\"unanswered\": 2}",
             (long long)time(NULL) - (5 * 3600 + 20 * 60 + 30));
    prints(said, "version 0, 0 tokens certified, 1 member\n"
                 "paused: as you wished\n"
                 "5 members, 5 h 20 min ago\n" HEAD "* a paused 0 0 0.0% this host\n"
                 "b member 0 0 0.0% never\n"
                 "\nlast round: version 1 at 00:00:00, 0 of 0 contributed\n"
                 "0 B out, 0 B in; up for 0 s; 0 messages and connections of strangers refused; 2 "
                 "questions left unanswered because members ask too often\n");
}

/* How the pool trains together is read from its settings; what are none is passed on as it is. */
static void says_how_it_trains(void **state)
{
    (void)state;
    char *text = printed("{\"settings\": \"sync_steps: 20\\n\"}", true);
    assert_non_null(strstr(text, "\"mode\":\"parameters\",\"mode_text\":\""));
    assert_non_null(strstr(text, "each every 20 steps"));
    free(text);
    text = printed("{\"settings\": \"sync_steps: 20\\n\"}", false);
    assert_non_null(strstr(text, "\nparameters: "));
    free(text);
    text = printed("{\"settings\": \"of_tomorrow: 1\\n\"}", true);
    assert_string_equal(text, "{\"settings\":\"of_tomorrow: 1\\n\"}\n");
    free(text);
}

static void asks_for_what_makes_sense(void **state)
{
    (void)state;
    assert_int_equal(run("--seconds", "5"), ATOM_E_USAGE);
    assert_non_null(strstr(atom_fail_message(), "--watch"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pool_of_many),
        cmocka_unit_test(a_paused_host),
        cmocka_unit_test(says_how_it_trains),
        cmocka_unit_test(asks_for_what_makes_sense),
    };
    setenv("TZ", "UTC", 1);
    tzset();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
