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

/* What was sent: to whom (the second byte of a key), and the text; "": there are no more. */
static struct {
    uint8_t to;
    gsp_word_kind kind;
    char text[16];
} sent[64];
static uint32_t n_sent;
static bool full;

static gsp_net_sent hear(gsp_net *net, const uint8_t *key, gsp_net_channel channel,
                         const void *head, size_t head_bytes, const void *body, size_t body_bytes)
{
    (void)net, (void)channel, (void)head_bytes;
    if (full)
        return GSP_NET_BUSY;
    assert_true(n_sent < 64 && body_bytes < sizeof sent->text);
    memset(&sent[n_sent], 0, sizeof *sent);
    sent[n_sent].to = key[1];
    sent[n_sent].kind = (gsp_word_kind)((const uint8_t *)head)[2];
    if (body_bytes)
        memcpy(sent[n_sent].text, body, body_bytes);
    n_sent++;
    return GSP_NET_SENT;
}

static const gsp_net_ops OPS = {.drop = forget, .send = hear};
static gsp_net net = {.ops = &OPS};
static gsp_links links;
static gsp_notes *notes;
static char directory[40];
static const uint8_t self[GSP_PUBLIC_BYTES] = {1};

static void begin(void)
{
    memset(&links, 0, sizeof links);
    n_sent = 0;
    full = false;
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

static void ask(const gsp_link *from, uint8_t key)
{
    const gsp_word m = {.kind = GSP_WORD_ASK_NOTE, .hash = {{key}}};
    gsp_notes_asked(notes, from, &m);
}

/* Ours first, then what others left, but not what the asker left itself; then that there are no more. A second question
 * at once gets no answer. */
static void whoever_asks_is_told_what_is_here(void **state)
{
    (void)state;
    const gsp_hash key = {{7}};
    begin();
    const gsp_link *asker = up(1), *other = up(2);
    answer(other, "theirs");
    answer(asker, "own");
    assert_int_equal(gsp_notes_leave(notes, &key, "ours"), ATOM_OK);
    assert_int_equal(gsp_notes_leave(notes, &key, "newer"), ATOM_OK); /* in its place */
    ask(asker, 7);
    assert_int_equal(n_sent, 3);
    assert_string_equal(sent[0].text, "newer");
    assert_string_equal(sent[1].text, "theirs");
    assert_string_equal(sent[2].text, "");
    assert_true(sent[2].kind == GSP_WORD_NOTE && sent[2].to == 1);
    ask(asker, 7);
    assert_int_equal(n_sent, 3);
    ask(other, 8); /* another key */
    assert_int_equal(n_sent, 4);
    const gsp_word bad = {
        .kind = GSP_WORD_NOTE, .hash = key, .body = (const uint8_t *)"a\0b", .body_bytes = 3};
    assert_false(gsp_notes_came(notes, other, &bad));
    /* Many that come and go take nothing of ours. */
    for (uint32_t i = 0; i < MANY; i++) {
        gsp_link *l = up(10 + i);
        leave(l, 2 * i + 1000);
        leave(l, 2 * i + 1001);
        gsp_links_end(&links, l);
    }
    n_sent = 0;
    ask(up(9), 7);
    assert_string_equal(sent[0].text, "newer");
    end();
}

/* Each of ours is given to each link once, in their order, also where the link was full, and again to a new link. */
static void ours_are_handed_to_all(void **state)
{
    (void)state;
    const gsp_hash one = {{1}}, two = {{2}};
    begin();
    gsp_link *first = up(1), *second = up(2);
    answer(second, "theirs");
    first->greeted = true;
    assert_int_equal(gsp_notes_leave(notes, &one, "one"), ATOM_OK);
    assert_int_equal(gsp_notes_leave(notes, &two, "two"), ATOM_OK);
    full = true;
    gsp_notes_step(notes);
    full = false;
    for (int i = 0; i < 4; i++)
        gsp_notes_step(notes);
    assert_int_equal(n_sent, 2); /* and nothing to whom we have not heard of */
    assert_string_equal(sent[0].text, "one");
    assert_string_equal(sent[1].text, "two");
    gsp_links_end(&links, first);
    first = up(1);
    first->greeted = true;
    gsp_notes_step(notes);
    gsp_notes_step(notes);
    assert_int_equal(n_sent, 4);
    end();
}

/* A question is over when all have answered it, and not before there is anybody; nobody is asked for ever. */
static void a_question_ends(void **state)
{
    (void)state;
    const gsp_hash key = {{7}};
    const uint64_t second = 1000000000u;
    uint32_t n = 0;
    begin();
    gsp_notes_ask_begin(notes, &key, is_right, &n);
    assert_false(gsp_notes_ask_step(notes, second));
    const gsp_link *a = up(1), *b = up(2);
    assert_false(gsp_notes_ask_step(notes, second));
    assert_int_equal(n_sent, 2);
    assert_false(gsp_notes_ask_step(notes, second + 1)); /* not again at once */
    assert_int_equal(n_sent, 2);
    gsp_word none = {.kind = GSP_WORD_NOTE, .hash = {{8}}};
    assert_true(gsp_notes_came(notes, a, &none)); /* of another question */
    none.hash = key;
    assert_true(gsp_notes_came(notes, b, &none));
    for (uint64_t i = 0; i < 7; i++) {
        assert_false(gsp_notes_ask_step(notes, (3 + 2 * i) * second));
        assert_int_equal(sent[n_sent - 1].to, 1);
    }
    assert_int_equal(n_sent, 9);
    assert_true(gsp_notes_ask_step(notes, 100 * second)); /* it was asked often enough */
    assert_false(gsp_notes_ask_end(notes));
    end();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(those_that_left_make_room),
        cmocka_unit_test(one_that_leaves_many_keeps_its_last),
        cmocka_unit_test(one_that_answers_much_hides_nobody),
        cmocka_unit_test(whoever_asks_is_told_what_is_here),
        cmocka_unit_test(ours_are_handed_to_all),
        cmocka_unit_test(a_question_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
