/* Notes of many members that come and go: a newcomer's is kept, and of nobody more than a few. */
#include "gossip/pool/notes.h"
#include "tests/lib/gossip_contact.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { MANY = 300 };

static void forget(gsp_net *net, const uint8_t *key)
{
    (void)net;
    (void)key;
}

static const gsp_net_ops OPS = {.drop = forget};
static gsp_net net = {.ops = &OPS};
static gsp_links links;
static gsp_notes *notes;
static char directory[40];
static const uint8_t self[GSP_PUBLIC_BYTES] = {1};

static void begin(void)
{
    memset(&links, 0, sizeof links);
    links.net = &net;
    snprintf(directory, sizeof directory, "/tmp/atom-notes-XXXXXX");
    assert_non_null(mkdtemp(directory));
    notes = gsp_notes_open(directory, self, &links);
    assert_non_null(notes);
}

static void end(void)
{
    char command[80];
    gsp_notes_close(&notes);
    snprintf(command, sizeof command, "rm -r %s", directory);
    assert_int_equal(system(command), 0);
}

static gsp_link *up(uint32_t i)
{
    gsp_net_event e = {.kind = GSP_NET_UP, .key = {2, (uint8_t)i, (uint8_t)(i >> 8)}};
    gsp_link *l = gsp_links_add(&links, &e);
    assert_non_null(l);
    return l;
}

static void leave(const gsp_link *from, uint32_t key)
{
    gsp_word m = {.kind = GSP_WORD_NOTE, .body = (const uint8_t *)"text", .body_bytes = 4};
    memcpy(m.hash.byte, &key, sizeof key);
    assert_true(gsp_notes_came(notes, from, &m));
}

static bool look(void *context, const char *who, const char *text, size_t bytes)
{
    (void)who;
    assert_memory_equal(text, "text", bytes);
    ++*(uint32_t *)context;
    return true;
}

static bool is_here(uint32_t key)
{
    uint32_t n = 0;
    gsp_hash hash = {{0}};
    memcpy(hash.byte, &key, sizeof key);
    gsp_notes_ask_begin(notes, &hash, look, &n);
    return gsp_notes_ask_end(notes) && n == 1;
}

static void those_that_left_make_room(void **state)
{
    (void)state;
    begin();
    gsp_link *stays = up(MANY);
    leave(stays, MANY);
    for (uint32_t i = 0; i < MANY; i++) {
        gsp_link *l = up(i);
        leave(l, 2 * i + 1000);
        leave(l, 2 * i + 1001);
        assert_true(is_here(2 * i + 1000) && is_here(2 * i + 1001));
        gsp_links_end(&links, l);
    }
    assert_true(is_here(MANY));
    assert_false(is_here(1000));
    end();
}

static void one_that_leaves_many_keeps_its_last(void **state)
{
    (void)state;
    begin();
    gsp_link *greedy = up(1), *other = up(2);
    leave(other, 7);
    for (uint32_t i = 0; i < MANY; i++)
        leave(greedy, 1000 + i);
    assert_true(is_here(7));
    assert_true(is_here(1000 + MANY - 1) && is_here(1000 + MANY - 2));
    assert_false(is_here(1000 + MANY - 3));
    end();
}

static bool is_right(void *context, const char *who, const char *text, size_t bytes)
{
    (void)who;
    ++*(uint32_t *)context;
    return bytes == 5 && memcmp(text, "right", 5) == 0;
}

static void answer(const gsp_link *from, const char *text)
{
    gsp_word m = {.kind = GSP_WORD_NOTE, .hash = {{7}}, .body = (const uint8_t *)text};
    m.body_bytes = strlen(text);
    assert_true(gsp_notes_came(notes, from, &m));
}

/* Only so many notes are looked at for one question; one member that answers with very many does not use them up. */
static void one_that_answers_much_hides_nobody(void **state)
{
    (void)state;
    begin();
    const gsp_hash key = {{7}};
    const gsp_link *greedy = up(1), *other = up(2);
    for (int again = 0; again < 2; again++) {
        char text[16];
        uint32_t n = 0;
        gsp_notes_ask_begin(notes, &key, is_right, &n);
        for (unsigned i = 0; i < MANY; i++) {
            snprintf(text, sizeof text, "wrong %u", i);
            answer(greedy, text);
            answer(other, "wrong 0"); /* as another said: it costs it nothing */
        }
        answer(other, "right");
        assert_in_range(n, 3, 8);
        assert_true(gsp_notes_ask_end(notes));
    }
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(those_that_left_make_room),
        cmocka_unit_test(one_that_leaves_many_keeps_its_last),
        cmocka_unit_test(one_that_answers_much_hides_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
