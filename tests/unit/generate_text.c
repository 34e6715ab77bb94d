/*
 * Generation from a directory: the same tokens as a plain forward pass per token, sliding included;
 * seeds; budgets; whole characters only, shown by a model that recites; everything it refuses.
 */
#include "atom/base/log.h"
#include "atom/generate/sample.h"
#include "tests/lib/gpt2_forward.h"
#include "tests/lib/metaspace.h"
#include "tests/unit/generate_common.h"

/* What was emitted is the same. Free .text with atom_free. */
static generate_result generate(generate_request r)
{
    generate_result result = {0};
    heard h = {.bytes = 0};
    r.emit = listen;
    r.ctx = &h;
    atom_status st = generate_text(&r, &result);
    if (st != ATOM_OK)
        fail_msg("%s", atom_fail_message());
    assert_int_equal(result.bytes, h.bytes);
    assert_memory_equal(result.text, h.text, h.bytes);
    assert_int_equal(result.text[result.bytes], 0);
    return result;
}

static void same_text(generate_request a, generate_request b, bool same)
{
    generate_result x = generate(a), y = generate(b);
    bool equal = x.bytes == y.bytes && memcmp(x.text, y.text, x.bytes) == 0;
    assert_true(equal == same);
    atom_free(x.text);
    atom_free(y.text);
}

/* --- the same tokens as without a cache --- */

/* One whole forward pass per token, and what the request says of the choice; when `positions` tokens are seen and one
 * more comes, the last half stays. Writes the ids. */
static void write_plainly(const model_dir *m, const generate_request *r, int32_t *out)
{
    int32_t seen[BYTES_MAX];
    uint8_t is_seen[320] = {0}, may[320] = {0};
    generate_candidate kept[320];
    const generate_sampling how = {.temperature = r->temperature,
                                   .top_k = r->top_k,
                                   .top_p = r->top_p,
                                   .min_p = r->min_p,
                                   .penalty = r->repetition_penalty,
                                   .seen = r->repetition_penalty > 0 ? is_seen : NULL};
    int64_t P = m->config.positions, length = (int64_t)strlen(r->prompt), first = 0;
    memset(may, 1, END + 1);
    for (int64_t i = 0; i < length; i++)
        is_seen[seen[i] = (uint8_t)r->prompt[i]] = 1;
    if (length > P)
        first = length - P;
    for (int64_t k = 0; k < r->max_tokens; k++) {
        int64_t T = length - first;
        gpt2_forward f = gpt2_forward_open(&m->config, ATOM_F32, T, m->params);
        const float *logits = gpt2_forward_logits(&f, seen + first);
        double u = generate_sample_uniform((uint64_t)r->seed, (uint64_t)k);
        assert_int_equal(generate_sample(&how, logits + (T - 1) * m->config.vocab_size, may,
                                         m->config.vocab_size, kept, u, &out[k]),
                         ATOM_OK);
        is_seen[seen[length] = out[k]] = 1;
        gpt2_forward_close(&f);
        length++;
        if (T == P)
            first = length - P / 2;
    }
}

static void check_plainly(const model_dir *m, generate_request r)
{
    int32_t ids[256];
    text_tokenizer *bytes = NULL;
    generate_result result;
    char *raw, *want;
    size_t n;
    r.stop_at_end = false;
    result = generate(r);
    write_plainly(m, &r, ids);
    assert_int_equal(text_tokenizer_bytes(&bytes), ATOM_OK);
    assert_int_equal(
        text_decode(bytes, (const uint32_t *)ids, (size_t)r.max_tokens, true, &raw, &n), ATOM_OK);
    assert_int_equal(text_utf8_repair(raw, n, &want, &n), ATOM_OK);
    /* a character that was cut off at the end is left out, not repaired */
    assert_true(result.bytes == n || result.bytes == n - 3);
    assert_memory_equal(result.text, want, result.bytes);
    text_tokenizer_close(&bytes);
    atom_free(result.text);
    atom_free(raw);
    atom_free(want);
}

static void check_greedy(const model_dir *m, const char *prompt, int64_t made)
{
    generate_request r = request_of(m->dir, prompt, made);
    r.temperature = 0;
    check_plainly(m, r);
}

static void test_equals_forward(void **state)
{
    scratch s;
    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        model_dir m = model_dir_make(scratch_open(&s)->dir, POSITIONS, seed);
        model_dir_save(&m);
        check_greedy(&m, "In the beginning", 70);
        check_greedy(&m, "x", 30);
        check_greedy(&m, "a prompt that is much longer than what the model sees", 20);
        model_dir_close(&m);
        scratch_close(&s);
    }
}

/* Whatever the request says of the choice decides it; the prompt's tokens and its own are those that are penalised. */
static void test_choice_as_asked(void **state)
{
    scratch s;
    model_dir m = model_dir_make(scratch_open(&s)->dir, POSITIONS, 6);
    generate_request plain = request_of(m.dir, "eel and etc", 40), r = plain;
    (void)state;
    model_dir_save(&m);
    r.temperature = 1.5;
    r.seed = 3;
    check_plainly(&m, r);
    r.top_p = 0.5;
    check_plainly(&m, r);
    r = plain;
    r.min_p = 0.3;
    check_plainly(&m, r);
    r = plain;
    r.top_k = 5;
    r.repetition_penalty = 0.5;
    check_plainly(&m, r);
    r.temperature = 0;
    r.repetition_penalty = 3;
    check_plainly(&m, r);
    for (const char *one = "aeiou"; *one; one++) { /* the prompt's first token is one of them */
        r.prompt = (char[]){*one, 0};
        check_plainly(&m, r);
    }
    model_dir_close(&m);
    scratch_close(&s);
}

/* One position: nothing but the last token counts. */
static void test_one_position(void **state)
{
    scratch s;
    model_dir m = model_dir_make(scratch_open(&s)->dir, 1, 3);
    (void)state;
    model_dir_save(&m);
    generate_request r = request_of(m.dir, "abc", 9), one = request_of(m.dir, "c", 9);
    r.temperature = one.temperature = 0;
    same_text(r, one, true);
    model_dir_close(&m);
    scratch_close(&s);
}

/* --- what changes the text and what does not --- */

static void test_seeds_and_budgets(void **state)
{
    scratch s;
    model_dir m = model_dir_make(scratch_open(&s)->dir, POSITIONS, 9);
    int opened = 0;
    (void)state;
    model_dir_save(&m);
    generate_request a = request_of(m.dir, "hello", 60), b = a;
    a.stop_at_end = b.stop_at_end = false;
    same_text(a, b, true);
    b.seed = 2;
    same_text(a, b, false);
    b.seed = 1;
    b.top_k = 3;
    same_text(a, b, false);
    b.top_k = 0;
    b.threads = 3;
    same_text(a, b, true);
    for (uint64_t kib = 50; kib < 900; kib += kib / 3) {
        generate_result result;
        b.device_memory = kib << 10;
        atom_status st = generate_text(&b, &result);
        if (st != ATOM_OK) {
            assert_int_equal(st, ATOM_E_RESOURCE);
            continue;
        }
        atom_free(result.text);
        same_text(a, b, true);
        opened++;
    }
    assert_true(opened >= 3);
    b.dtype = PLAN_DTYPE_BF16;
    b.device_memory = 0;
    a = b;
    a.device_memory = 400 << 10;
    same_text(a, b, true);
    model_dir_close(&m);
    scratch_close(&s);
}

/* No prompt is the start of a document; so is the end-of-text token. */
static void test_no_prompt(void **state)
{
    scratch s;
    model_dir m = model_dir_make(scratch_open(&s)->dir, POSITIONS, 4);
    (void)state;
    model_dir_save(&m);
    generate_request r = request_of(m.dir, "", 20), none = request_of(m.dir, NULL, 20);
    generate_result result;
    same_text(r, none, true);
    assert_int_equal(generate_text(&r, &result), ATOM_OK);
    assert_int_equal(result.prompt_tokens, 0);
    assert_true(result.tokens >= 1 && result.seconds >= 0);
    atom_free(result.text);
    model_dir_close(&m);
    scratch_close(&s);
}

/* --- a model that recites --- */

/* Blocks pass their input on, and the position says which token comes next: ids[p + 1] after p. */
static void make_reciter(model_dir *m, const int32_t *ids, int64_t n)
{
    const float *wte = model_dir_param(m, "wte.weight");
    float *wpe = model_dir_param(m, "wpe.weight");
    int64_t C = m->config.width;
    for (int64_t layer = 0; layer < m->config.layers; layer++) {
        static const char *const parts[] = {"attn", "mlp"};
        for (int part = 0; part < 2; part++) {
            char name[64];
            int64_t I = part ? m->config.inner : C;
            snprintf(name, sizeof name, "h.%d.%s.c_proj.weight", (int)layer, parts[part]);
            memset(model_dir_param(m, name), 0, (size_t)(C * I) * sizeof(float));
        }
    }
    for (int64_t p = 0; p + 1 < n; p++) {
        for (int64_t c = 0; c < C; c++)
            wpe[p * C + c] = 50 * wte[ids[p + 1] * C + c];
    }
}

static void recite_until(const char *stop, const char *say, size_t bytes, bool end_after,
                         int64_t max_tokens, bool stop_at_end, const char *want,
                         int64_t want_tokens)
{
    scratch s;
    int32_t ids[POSITIONS] = {'>'};
    int64_t n = 1;
    model_dir m = model_dir_make(scratch_open(&s)->dir, POSITIONS, 8);
    for (size_t i = 0; i < bytes; i++)
        ids[n++] = (uint8_t)say[i];
    if (end_after) {
        ids[n++] = END;
        ids[n++] = 'z';
    }
    make_reciter(&m, ids, n);
    model_dir_save(&m);
    generate_request r = request_of(m.dir, ">", max_tokens);
    r.temperature = 0;
    r.stop_at_end = stop_at_end;
    r.stop_text = stop;
    generate_result result = generate(r);
    assert_string_equal(result.text, want);
    assert_int_equal(result.tokens, want_tokens);
    atom_free(result.text);
    model_dir_close(&m);
    scratch_close(&s);
}

static void recite(const char *say, size_t bytes, bool end_after, int64_t max_tokens,
                   bool stop_at_end, const char *want, int64_t want_tokens)
{
    recite_until(NULL, say, bytes, end_after, max_tokens, stop_at_end, want, want_tokens);
}

#define SAY(text) text, sizeof text - 1

static void test_whole_characters(void **state)
{
    (void)state;
    recite(SAY("a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80!"), false, 11, true,
           "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80!", 11);
    /* cut off by max_tokens: the beginning of the last character is not shown */
    recite(SAY("a\xc3\xa9\xe2\x82\xac"), false, 5, true, "a\xc3\xa9", 5);
    /* wrong bytes: one U+FFFD for each that can begin nothing, one for each broken character */
    recite(SAY("x\xffy\xe2\x82z\x80\xf0\x9f\x98\xc3\xa9"), false, 12, true,
           "x\xef\xbf\xbdy\xef\xbf\xbdz\xef\xbf\xbd\xef\xbf\xbd\xc3\xa9", 12);
}

static void test_end_of_text(void **state)
{
    (void)state;
    recite(SAY("done"), true, 12, true, "done", 5);
    recite(SAY("done"), true, 6, false, "done<|endoftext|>z", 6);
    recite(SAY("done"), true, 4, true, "done", 4);
    recite(SAY("a\xe2\x82"), true, 12, true, "a", 4);
}

/* What generation_config.json names ends a text; where it names nothing, what config.json names. An id without a text
 * may end one, too. */
static void test_ends_that_files_name(void **state)
{
    static const struct {
        const char *generation, *want;
        int64_t tokens;
    } cases[] = {{NULL, "do", 3},
                 {"{\"eos_token_id\": [256, 101]}", "don", 4},
                 {"{\"eos_token_id\": [-1, 320, true]}", "do", 3},
                 {"{\"top_k\": 3}", "do", 3},
                 {"{\"eos_token_id\": 300}", "done", 5}};
    static const int32_t ids[] = {'>', 'd', 'o', 'n', 'e', 300, 'z'};
    scratch s;
    model_dir m = model_dir_make(scratch_open(&s)->dir, POSITIONS, 8);
    (void)state;
    make_reciter(&m, ids, 7);
    model_dir_save(&m);
    assert_int_equal(file_config_write(m.dir, &m.config, NULL, &(file_ends){256, 'n'}), ATOM_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *text = cases[i].generation;
        if (text)
            scratch_write(&s, "generation_config.json", text, strlen(text));
        generate_request r = request_of(m.dir, ">", 6);
        r.temperature = 0;
        generate_result result = generate(r);
        assert_string_equal(result.text, cases[i].want);
        assert_int_equal(result.tokens, cases[i].tokens);
        atom_free(result.text);
    }
    model_dir_close(&m);
    scratch_close(&s);
}

/* The text ends in front of what it is to stop at, which may look as if it began several times; what looks so in
 * the end is part of the text. Emitted is the same (generate() compares). */
static void test_stops_at_a_text(void **state)
{
    (void)state;
    recite_until("##E", SAY("a#b##\xc3\xa9###E!"), false, 12, true, "a#b##\xc3\xa9#", 11);
    recite_until("aab", SAY("aaab!"), false, 5, true, "a", 4);
    recite_until("\xc3\xa9", SAY("x\xff\xc3\xa9y"), false, 5, true, "x\xef\xbf\xbd", 4);
    recite_until("done", SAY("done"), true, 12, true, "", 4);
    recite_until("done!", SAY("done"), true, 12, true, "done", 5);
    recite_until("done!", SAY("done"), false, 4, true, "done", 4);
}

/* A text begins without the space that metaspaces put in front of it; behind a prompt it is one. */
static void test_space_of_metaspaces(void **state)
{
    static const char prepend[] = "{\"type\": \"Sequence\", \"normalizers\": [{\"type\": "
                                  "\"Prepend\", \"prepend\": \"\u2581\"}, " METASPACE_REPLACE "]}";
    const int32_t ids[] = {METASPACE_A, METASPACE_SPACE_ABC, METASPACE_SPACE_ABC, METASPACE_A};
    scratch s;
    model_dir m = model_dir_make(scratch_open(&s)->dir, POSITIONS, 8);
    json_t *root = metaspace_json(prepend, "null");
    (void)state;
    make_reciter(&m, ids, 4);
    model_dir_save(&m);
    assert_int_equal(json_dump_file(root, scratch_path(&s, "tokenizer.json"), 0), 0);
    json_decref(root);
    for (int i = 0; i < 2;
         i++) { /* position 0 holds the start of a document, or the prompt's "<s>" */
        generate_request r = request_of(m.dir, i ? "<s>" : "", 2);
        r.special_tokens = TEXT_SPECIAL_IDS;
        r.temperature = 0;
        generate_result result = generate(r);
        assert_string_equal(result.text, "abc abc");
        atom_free(result.text);
    }
    generate_request r = request_of(m.dir, "abc", 2); /* one token */
    r.temperature = 0;
    generate_result result = generate(r);
    assert_string_equal(result.text, " abc abc");
    atom_free(result.text);
    model_dir_close(&m);
    scratch_close(&s);
}

/* A token in front of every text, which the prompt may name itself; and the token that the chat template ends answers
 * with, of which no file says that it is an end. */
static void test_tokens_of_the_tokenizer(void **state)
{
    static const char template[] = "{% for m in messages %}{{ m.content }}<s>{% endfor %}";
    const int32_t ids[] = {0, 0, METASPACE_A, METASPACE_C, 1, METASPACE_A, METASPACE_A};
    scratch s;
    model_dir m = model_dir_make(scratch_open(&s)->dir, POSITIONS, 8);
    json_t *root = metaspace_json(METASPACE_REPLACE, "null");
    (void)state;
    make_reciter(&m, ids, 7);
    model_dir_save(&m);
    json_object_set_new(root, "post_processor",
                        json_pack("{s:s, s:[{s:{s:s}}, {s:{s:s}}]}", "type", "TemplateProcessing",
                                  "single", "SpecialToken", "id", "<s>", "Sequence", "id", "A"));
    assert_int_equal(json_dump_file(root, scratch_path(&s, "tokenizer.json"), 0), 0);
    json_decref(root);
    scratch_write(&s, "chat_template.jinja", template, sizeof template - 1);
    for (int i = 0; i < 2; i++) {
        generate_request r = request_of(m.dir, i ? "<s>abc" : "abc", 5);
        r.special_tokens = TEXT_SPECIAL_IDS;
        r.temperature = 0;
        generate_result result = generate(r);
        assert_int_equal(result.prompt_tokens, 2);
        assert_memory_equal(result.text, "ac", 2);
        assert_int_equal(result.tokens, 5);
        atom_free(result.text);
    }
    generate_request r = request_of(m.dir, "abc", 5);
    r.temperature = 0;
    r.chat = true;
    generate_result result = generate(r);
    assert_string_equal(result.text, "ac");
    assert_int_equal(result.tokens, 3);
    atom_free(result.text);
    model_dir_close(&m);
    scratch_close(&s);
}

/* --- what it refuses --- */

static void refuse(generate_request r, atom_status want, const char *word)
{
    generate_result result = {.tokens = -5};
    assert_int_equal(generate_text(&r, &result), want);
    if (!strstr(atom_fail_message(), word))
        fail_msg("'%s' does not say '%s'", atom_fail_message(), word);
    assert_int_equal(result.tokens, -5);
}

static void test_refuses_requests(void **state)
{
    scratch s;
    model_dir m = model_dir_make(scratch_open(&s)->dir, POSITIONS, 1);
    generate_request r = request_of(m.dir, "a", 3);
    (void)state;
    model_dir_save(&m);
    r.max_tokens = 0;
    refuse(r, ATOM_E_USAGE, "max_tokens");
    r = request_of(m.dir, "a", 3);
    r.temperature = -1;
    refuse(r, ATOM_E_USAGE, "temperature");
    r = request_of(m.dir, "a", 3);
    r.top_p = 0;
    refuse(r, ATOM_E_USAGE, "top_p");
    r = request_of(m.dir, "a", 3);
    r.top_k = -1;
    refuse(r, ATOM_E_USAGE, "top_k");
    r = request_of(m.dir, "a", 3);
    r.min_p = 1.5;
    refuse(r, ATOM_E_USAGE, "min_p");
    r = request_of(m.dir, "a", 3);
    r.repetition_penalty = -1;
    refuse(r, ATOM_E_USAGE, "repetition_penalty");
    r.repetition_penalty = 101;
    refuse(r, ATOM_E_USAGE, "at most 100");
    r = request_of(m.dir, "a", 3);
    r.stop_text = "";
    refuse(r, ATOM_E_USAGE, "stop at is empty");
    r = request_of(m.dir, "a", 3);
    r.device_memory = 1000;
    refuse(r, ATOM_E_RESOURCE, "bytes more");
    refuse(request_of(m.dir, "a\xff", 3), ATOM_E_FORMAT, "prompt");
    refuse(request_of("gpt2-124m", "a", 3), ATOM_E_USAGE, "no weights");
    refuse(request_of("no such model", "a", 3), ATOM_E_USAGE, "no such model");
    model_dir_close(&m);
    scratch_close(&s);
}

static void test_refuses_files(void **state)
{
    scratch s;
    model_dir m = model_dir_make(scratch_open(&s)->dir, POSITIONS, 1);
    (void)state;
    model_dir_save(&m);
    assert_int_equal(remove(scratch_path(&s, "tokenizer.json")), 0);
    refuse(request_of(m.dir, "a", 3), ATOM_E_FORMAT, "tokenizer.json");
    model_dir_save(&m);
    assert_int_equal(remove(scratch_path(&s, "model.safetensors")), 0);
    refuse(request_of(m.dir, "a", 3), ATOM_E_USAGE, "no weights");
    scratch_write(&s, "model.safetensors", "junk", 4);
    refuse(request_of(m.dir, "a", 3), ATOM_E_FORMAT, "model.safetensors");
    model_dir_param(&m, "wte.weight")[5] = __builtin_nanf("");
    atom_log_set_level(ATOM_LOG_ERROR);
    model_dir_save(&m);
    refuse(request_of(m.dir, "a", 3), ATOM_E_DIVERGED, "finite");
    model_dir_close(&m);
    /* a tokenizer that knows more tokens than the model */
    m = model_dir_make(s.dir, POSITIONS, 1);
    graph_close(&m.g);
    m.config.vocab_size = 200;
    assert_int_equal(graph_gpt2_build(&m.config, ATOM_F32, 1, 1, &m.g), ATOM_OK);
    train_init_weights(m.g, 1, m.params);
    model_dir_save(&m);
    refuse(request_of(m.dir, "a", 3), ATOM_E_FORMAT, "belong together");
    model_dir_close(&m);
    scratch_close(&s);
}

static void test_out_of_memory(void **state)
{
    scratch s;
    model_dir m = model_dir_make(scratch_open(&s)->dir, POSITIONS, 1);
    generate_request r = request_of(m.dir, "ab", 3);
    generate_result result;
    (void)state;
    model_dir_save(&m);
    r.threads = 1;
    r.stop_at_end = false;
    for (int swaps = 0; swaps < 2; swaps++) {
        uint64_t live = atom_mem_read().live_bytes;
        atom_status st = ATOM_E_RESOURCE;
        r.device_memory = swaps ? 400 << 10 : 0;
        for (uint64_t n = 1; st != ATOM_OK; n++) {
            atom_mem_fail_after(n);
            st = generate_text(&r, &result);
            atom_mem_fail_after(0);
            assert_true(st == ATOM_OK || st == ATOM_E_RESOURCE);
            if (st != ATOM_OK)
                assert_int_equal(atom_mem_read().live_bytes, live);
            assert_true(n < 20000);
        }
        atom_free(result.text);
        assert_int_equal(atom_mem_read().live_bytes, live);
    }
    model_dir_close(&m);
    scratch_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equals_forward),          cmocka_unit_test(test_one_position),
        cmocka_unit_test(test_choice_as_asked),         cmocka_unit_test(test_ends_that_files_name),
        cmocka_unit_test(test_seeds_and_budgets),       cmocka_unit_test(test_no_prompt),
        cmocka_unit_test(test_whole_characters),        cmocka_unit_test(test_end_of_text),
        cmocka_unit_test(test_stops_at_a_text),         cmocka_unit_test(test_space_of_metaspaces),
        cmocka_unit_test(test_tokens_of_the_tokenizer), cmocka_unit_test(test_refuses_requests),
        cmocka_unit_test(test_refuses_files),           cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
