/*
 * Conversations: what they say is what the whole chat, as one prompt, is continued with; where answers stop, what is
 * forgotten, and that a fresh start is one.
 */
#include "tests/unit/generate_common.h"

/* Asked before each token: yes when `left` were made. */
typedef struct patience {
    heard heard;
    int left;
} patience;

static void listen_patiently(void *ctx, const char *text, size_t bytes)
{
    listen(&((patience *)ctx)->heard, text, bytes);
}

static bool lose_patience(void *ctx)
{
    return ((patience *)ctx)->left-- == 0;
}

static atom_status say(generate_chat *c, patience *p, const char *what, int left,
                       generate_chat_result *r)
{
    *p = (patience){.left = left};
    return generate_chat_say(c, what, lose_patience, r);
}

/* What a conversation says is what the whole chat, as one prompt, is continued with. */
static void test_conversation(void **state)
{
    scratch s;
    model_dir m = model_dir_make(scratch_open(&s)->dir, 200, 3);
    generate_request r = request_of(m.dir, NULL, 12);
    patience p, alone;
    generate_chat *c = NULL, *fresh = NULL;
    generate_chat_result a, b;
    (void)state;
    model_dir_save(&m);
    r.temperature = 0;
    r.stop_at_end = false;
    r.emit = listen_patiently;
    r.ctx = &p;
    assert_int_equal(generate_chat_open(&r, &c), ATOM_OK);
    assert_int_equal(say(c, &p, "x", 0, &a), ATOM_E_FORMAT); /* the model has no template */
    generate_chat_close(&c);
    r.template = "plain";
    assert_int_equal(generate_chat_open(&r, &c), ATOM_OK);
    assert_int_equal(say(c, &p, "one", -1, &a), ATOM_OK);
    assert_int_equal(a.said.tokens, 12);
    assert_false(a.stopped || a.full || a.forgotten);
    assert_int_equal(a.said.bytes, p.heard.bytes);
    assert_memory_equal(a.said.text, p.heard.text, p.heard.bytes);
    /* stopped after five */
    assert_int_equal(say(c, &p, "two", 5, &a), ATOM_OK);
    assert_true(a.stopped && a.said.tokens == 5);
    /* too long: refused, nothing is remembered of it */
    char far[400];
    memset(far, 'x', sizeof far);
    far[sizeof far - 1] = 0;
    assert_int_equal(say(c, &p, far, -1, &a), ATOM_E_USAGE);
    assert_non_null(strstr(atom_fail_message(), "sees 200 at a time"));
    assert_int_equal(say(c, &p, "three", -1, &a), ATOM_OK);
    assert_int_equal(a.forgotten, 0);
    /* anew: as the first time; wrong UTF-8 is no obstacle */
    generate_chat_reset(c);
    assert_int_equal(say(c, &p, "thr\xff", -1, &a), ATOM_OK);
    r.ctx = &alone;
    assert_int_equal(generate_chat_open(&r, &fresh), ATOM_OK);
    assert_int_equal(say(fresh, &alone, "thr\xef\xbf\xbd", -1, &b), ATOM_OK);
    assert_int_equal(b.said.bytes, a.said.bytes);
    assert_memory_equal(a.said.text, b.said.text, b.said.bytes);
    assert_int_equal(a.said.prompt_tokens, b.said.prompt_tokens);
    /* the oldest are forgotten when no more fits */
    int64_t most = 0;
    for (int i = 0; i < 6; i++) {
        assert_int_equal(say(c, &p, "and again, and again", -1, &a), ATOM_OK);
        most = a.said.prompt_tokens > most ? a.said.prompt_tokens : most;
    }
    assert_true(most > 200 - 200 / 4); /* no more than what 12 tokens need is kept free */
    assert_true(a.forgotten > 0 && a.forgotten % 2 == 0 && a.forgotten < 14);
    assert_true(a.said.prompt_tokens + 12 <= 200);
    generate_chat_close(&c);
    generate_chat_close(&fresh);
    model_dir_close(&m);
    scratch_close(&s);
    assert_int_equal(atom_mem_read().live_blocks, 0);
}

static void same_text(const generate_result *a, const generate_result *b)
{
    assert_int_equal(a->tokens, b->tokens);
    assert_int_equal(a->prompt_tokens, b->prompt_tokens);
    assert_int_equal(a->bytes, b->bytes);
    assert_memory_equal(a->text, b->text, b->bytes);
}

/* The first answer is that to one prompt, with the system's message and the same choice; random numbers go on, so
 * asked anew the model says something else. Without a number of tokens it says as many as there is room for. */
static void test_first_answer(void **state)
{
    scratch s;
    model_dir m = model_dir_make(scratch_open(&s)->dir, 120, 3);
    generate_request r = request_of(m.dir, "what?", 20);
    generate_result alone = {0};
    generate_chat *c = NULL;
    generate_chat_result a;
    (void)state;
    model_dir_save(&m);
    r.template = "plain";
    r.system = "be brief";
    r.stop_at_end = false;
    r.min_p = 0.05;
    r.repetition_penalty = 1.5;
    r.chat = true;
    assert_int_equal(generate_text(&r, &alone), ATOM_OK);
    r.chat = false;
    assert_int_equal(generate_chat_open(&r, &c), ATOM_OK);
    assert_int_equal(generate_chat_say(c, "what?", NULL, &a), ATOM_OK);
    same_text(&a.said, &alone);
    assert_false(a.full);
    generate_chat_reset(c);
    assert_int_equal(generate_chat_say(c, "what?", NULL, &a), ATOM_OK);
    assert_int_equal(a.said.prompt_tokens, alone.prompt_tokens);
    assert_true(a.said.bytes != alone.bytes || memcmp(a.said.text, alone.text, alone.bytes) != 0);
    generate_chat_close(&c);
    r.max_tokens = 0;
    r.system = NULL;
    assert_int_equal(generate_chat_open(&r, &c), ATOM_OK);
    assert_int_equal(generate_chat_say(c, "what?", NULL, &a), ATOM_OK);
    assert_true(a.full && a.said.prompt_tokens < alone.prompt_tokens);
    assert_int_equal(a.said.prompt_tokens + a.said.tokens, 120 + 1); /* the last is not fed */
    generate_chat_close(&c);
    atom_free(alone.text);
    model_dir_close(&m);
    scratch_close(&s);
}

/* After a reset nothing is left of what was said: neither messages that were forgotten nor tokens to penalise. */
static void test_reset_is_a_fresh_start(void **state)
{
    scratch s;
    model_dir m = model_dir_make(scratch_open(&s)->dir, 120, 3);
    generate_request r = request_of(m.dir, NULL, 12);
    generate_chat *old = NULL, *fresh = NULL;
    generate_chat_result a, b;
    (void)state;
    model_dir_save(&m);
    r.temperature = 0;
    r.template = "plain";
    r.stop_at_end = false;
    r.repetition_penalty = 2;
    assert_int_equal(generate_chat_open(&r, &old), ATOM_OK);
    for (int i = 0; i < 5; i++)
        assert_int_equal(generate_chat_say(old, "and again, and again", NULL, &a), ATOM_OK);
    assert_true(a.forgotten > 0);
    generate_chat_reset(old);
    assert_int_equal(generate_chat_say(old, "new", NULL, &a), ATOM_OK);
    assert_int_equal(generate_chat_open(&r, &fresh), ATOM_OK);
    assert_int_equal(generate_chat_say(fresh, "new", NULL, &b), ATOM_OK);
    assert_int_equal(a.forgotten, 0);
    same_text(&a.said, &b.said);
    generate_chat_close(&old);
    generate_chat_close(&fresh);
    model_dir_close(&m);
    scratch_close(&s);
}

/* A model that says one letter after the other, so that what it said is the same tokens again. */
static void speak_letters(model_dir *m)
{
    const float *wte = model_dir_param(m, "wte.weight");
    float *wpe = model_dir_param(m, "wpe.weight");
    const int64_t C = m->config.width;
    for (int64_t layer = 0; layer < m->config.layers; layer++) {
        char name[64];
        snprintf(name, sizeof name, "h.%d.attn.c_proj.weight", (int)layer);
        memset(model_dir_param(m, name), 0, (size_t)(C * C) * sizeof(float));
        snprintf(name, sizeof name, "h.%d.mlp.c_proj.weight", (int)layer);
        memset(model_dir_param(m, name), 0, (size_t)(C * m->config.inner) * sizeof(float));
    }
    for (int64_t p = 0; p < m->config.positions; p++)
        for (int64_t c = 0; c < C; c++)
            wpe[p * C + c] = 50 * wte[('a' + p % 26) * C + c];
}

/* What the decoder holds is what it was fed last, although the same was said before and more of it. */
static void test_the_same_again(void **state)
{
    scratch s;
    model_dir m = model_dir_make(scratch_open(&s)->dir, 120, 3);
    generate_request r = request_of(m.dir, NULL, 8);
    generate_chat *c = NULL;
    generate_chat_result a;
    char first[BYTES_MAX], second[BYTES_MAX];
    (void)state;
    speak_letters(&m);
    model_dir_save(&m);
    r.temperature = 0;
    r.template = "plain";
    r.stop_at_end = false;
    assert_int_equal(generate_chat_open(&r, &c), ATOM_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(generate_chat_say(c, "one", NULL, &a), ATOM_OK);
        assert_true(i == 0 || strcmp(a.said.text, first) == 0);
        snprintf(first, sizeof first, "%s", a.said.text);
        assert_int_equal(generate_chat_say(c, "two", NULL, &a), ATOM_OK);
        assert_true(i == 0 || strcmp(a.said.text, second) == 0);
        snprintf(second, sizeof second, "%s", a.said.text);
        generate_chat_reset(c);
    }
    generate_chat_close(&c);
    model_dir_close(&m);
    scratch_close(&s);
}

/* Each answer ends in front of the text to stop at, and the conversation goes on. */
static void test_conversation_stops(void **state)
{
    scratch s;
    model_dir m = model_dir_make(scratch_open(&s)->dir, 200, 3);
    generate_request r = request_of(m.dir, NULL, 12);
    patience p;
    generate_chat *c = NULL;
    generate_chat_result a;
    char whole[BYTES_MAX], *middle = whole;
    (void)state;
    model_dir_save(&m);
    r.temperature = 0;
    r.stop_at_end = false;
    r.emit = listen_patiently;
    r.ctx = &p;
    r.template = "plain";
    assert_int_equal(generate_chat_open(&r, &c), ATOM_OK);
    assert_int_equal(say(c, &p, "one", -1, &a), ATOM_OK);
    assert_in_range(a.said.bytes, 6, BYTES_MAX - 1);
    memcpy(whole, a.said.text, a.said.bytes + 1);
    generate_chat_close(&c);
    for (middle += a.said.bytes / 2; ((uint8_t)*middle & 0xc0) == 0x80;)
        middle++;
    r.stop_text = middle;
    assert_int_equal(generate_chat_open(&r, &c), ATOM_OK);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(say(c, &p, "one", -1, &a), ATOM_OK);
        assert_int_equal(a.said.bytes, strstr(whole, middle) - whole);
        assert_memory_equal(a.said.text, whole, a.said.bytes);
        assert_int_equal(a.said.bytes, p.heard.bytes);
        generate_chat_reset(c);
    }
    generate_chat_close(&c);
    model_dir_close(&m);
    scratch_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_conversation),           cmocka_unit_test(test_first_answer),
        cmocka_unit_test(test_reset_is_a_fresh_start), cmocka_unit_test(test_the_same_again),
        cmocka_unit_test(test_conversation_stops),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
