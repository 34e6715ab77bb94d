/* Exports: what is there stays, what fails leaves nothing behind, want of memory is an error. */
#include "atom/base/files.h"
#include "atom/export/export.h"
#include "atom/file/ggufread.h"
#include "atom/file/peft.h"
#include "tests/lib/metaspace.h"
#include "tests/lib/model_dir.h"
#include "tests/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <math.h>
#include <unistd.h>

#include <cmocka.h>

#include "tests/lib/said.h"

typedef struct fixture {
    scratch s;
    char model[640], output[640], temporary[660];
    model_dir m;
} fixture;

static void fixture_open(fixture *f, const char *output)
{
    scratch_open(&f->s);
    snprintf(f->model, sizeof f->model, "%s", scratch_path(&f->s, "model"));
    snprintf(f->output, sizeof f->output, "%s", scratch_path(&f->s, output));
    snprintf(f->temporary, sizeof f->temporary, "%s.atom-tmp", f->output);
    assert_int_equal(atom_dir_make(f->model), ATOM_OK);
    f->m = model_dir_make(f->model, 16, 3);
    model_dir_save(&f->m);
}

static void fixture_close(fixture *f)
{
    model_dir_close(&f->m);
    scratch_close(&f->s);
}

static atom_status export(const fixture *f, const char *format)
{
    if (strcmp(format, "hf") == 0)
        return export_hf(f->model, NULL, ATOM_BF16, 20000, f->output);
    return export_gguf(f->model, NULL, FILE_GGUF_F16, f->output, false);
}

static void nothing_is_left_behind(void **state)
{
    static const char *const formats[] = {"hf", "gguf"};
    (void)state;
    for (int k = 0; k < 2; k++) {
        fixture f;
        bool done = false;
        fixture_open(&f, formats[k]);
        uint64_t before = atom_mem_read().live_blocks;
        for (uint64_t n = 1; !done; n += 1 + n / 16) {
            atom_mem_fail_after(n);
            atom_status st = export(&f, formats[k]);
            atom_mem_fail_after(0);
            done = st == ATOM_OK;
            assert_int_equal(atom_mem_read().live_blocks, before);
            assert_int_equal(atom_path_exists(f.output), done);
            assert_true(k == 0 || !atom_path_exists(f.temporary));
        }
        fixture_close(&f);
    }
}

static void what_is_there_stays(void **state)
{
    (void)state;
    fixture f;
    char mine[680], *text = NULL;
    uint64_t bytes;
    fixture_open(&f, "hf");
    assert_int_equal(atom_dir_make(f.output), ATOM_OK); /* empty: gives way */
    assert_int_equal(export(&f, "hf"), ATOM_OK);
    snprintf(mine, sizeof mine, "%s/mine", f.output);
    assert_int_equal(atom_file_write(mine, "x", 1), ATOM_OK);
    assert_int_equal(export(&f, "hf"), ATOM_E_USAGE);
    assert_non_null(strstr(atom_fail_message(), "already exists"));
    assert_int_equal(atom_file_read(mine, 9, &text, &bytes), ATOM_OK);
    atom_free(text);
    assert_false(atom_path_exists(f.temporary));
    /* n_inner is not 4 n_embd, which llm.c cannot say */
    assert_int_equal(export_llmc(f.model, NULL, ATOM_F32, mine, true), ATOM_E_UNSUPPORTED);
    assert_non_null(strstr(atom_fail_message(), "n_inner"));
    fixture_close(&f);
    fixture_open(&f, "x.gguf");
    assert_int_equal(atom_file_write(f.output, "mine", 4), ATOM_OK);
    assert_int_equal(export(&f, "gguf"), ATOM_E_USAGE);
    assert_non_null(strstr(atom_fail_message(), "--overwrite"));
    assert_int_equal(export_llmc(f.model, NULL, ATOM_F32, f.output, false), ATOM_E_USAGE);
    assert_int_equal(atom_file_read(f.output, 9, &text, &bytes), ATOM_OK);
    assert_memory_equal(text, "mine", 4);
    atom_free(text);
    assert_int_equal(export_gguf(f.model, NULL, FILE_GGUF_F16, f.output, true), ATOM_OK);
    assert_true(file_gguf_is_file(f.output));
    fixture_close(&f);
}

/* A GGUF file need not say anything of a tokenizer; its weights are read all the same. */
static void without_tokenizer(void **state)
{
    (void)state;
    fixture f;
    char back[680];
    fixture_open(&f, "x.gguf");
    assert_int_equal(remove(scratch_path(&f.s, "model/tokenizer.json")), 0);
    assert_int_equal(export(&f, "gguf"), ATOM_OK);
    snprintf(back, sizeof back, "%s", scratch_path(&f.s, "back"));
    assert_int_equal(export_hf(f.output, NULL, ATOM_F32, 1 << 30, back), ATOM_OK);
    snprintf(back, sizeof back, "%s", scratch_path(&f.s, "back/model.safetensors"));
    assert_true(atom_path_exists(back));
    snprintf(back, sizeof back, "%s", scratch_path(&f.s, "back/tokenizer.json"));
    assert_false(atom_path_exists(back));
    fixture_close(&f);
}

/* The end of an answer is what tokenizer_config.json names, and a template for tools comes back. */
static void what_stands_beside(void **state)
{
    (void)state;
    static const char config[] =
        "{\"model_max_length\": 1000000000000000019884624838656, \"eos_token\": {\"content\": "
        "\"<|endoftext|>\"}, \"chat_template\": [{\"name\": \"default\", \"template\": \"d\"}, "
        "{\"name\": \"tool_use\", \"template\": \"t\"}]}";
    static const char generation[] =
        "{\"eos_token_id\": [3, 4], \"pad_token_id\": 9, \"sep_token_id\": 0}";
    fixture f;
    file_gguf_in *in = NULL;
    char *jinja = NULL;
    fixture_open(&f, "hf");
    assert_int_equal(atom_dir_make(scratch_path(&f.s, "model/additional_chat_templates")), ATOM_OK);
    scratch_write(&f.s, "model/additional_chat_templates/tool_use.jinja", "t", 1);
    assert_int_equal(export(&f, "hf"), ATOM_OK);
    assert_true(
        atom_path_exists(scratch_path(&f.s, "hf/additional_chat_templates/tool_use.jinja")));
    fixture_close(&f);
    fixture_open(&f, "x.gguf");
    scratch_write(&f.s, "model/tokenizer_config.json", config, sizeof config - 1);
    scratch_write(&f.s, "model/generation_config.json", generation, sizeof generation - 1);
    assert_int_equal(export(&f, "gguf"), ATOM_OK);
    assert_int_equal(file_gguf_open(f.output, &in), ATOM_OK);
    assert_int_equal(file_gguf_int(in, "tokenizer.ggml.eos_token_id", -1), 256);
    assert_int_equal(file_gguf_int(in, "tokenizer.ggml.padding_token_id", -1), 9);
    assert_int_equal(file_gguf_int(in, "tokenizer.ggml.seperator_token_id", -1), 0);
    file_gguf_in_close(&in);
    assert_int_equal(import_template(f.output, &jinja), ATOM_OK);
    assert_string_equal(jinja, "{% if tools %}\nt{%+ else %}\nd{%+ endif %}");
    atom_free(jinja);
    fixture_close(&f);
}

/* With "llama" there are no merges in the file: scores say which pair is merged first, and what no
 * merge makes comes after all of them. */
static void scores_are_the_order_of_merges(void **state)
{
    static const struct {
        int id;
        float score;
    } want[] = {{0, 0}, /* no token of a text */
                {3, 0}, /* a byte */
                {METASPACE_AB, 0},
                {METASPACE_ABC, -1},
                {METASPACE_SPACE_ABC, -2},
                {METASPACE_SPACE, -4},
                {METASPACE_C, -4},
                {METASPACE_N, 0}}; /* not in use */
    (void)state;
    fixture f;
    file_gguf_in *in = NULL;
    json_t *root = metaspace_json(METASPACE_REPLACE, "null");
    float score;
    fixture_open(&f, "x.gguf");
    assert_int_equal(json_dump_file(root, scratch_path(&f.s, "model/tokenizer.json"), 0), 0);
    assert_int_equal(export(&f, "gguf"), ATOM_OK);
    assert_int_equal(file_gguf_open(f.output, &in), ATOM_OK);
    const file_gguf_value *scores = file_gguf_find(in, "tokenizer.ggml.scores");
    assert_non_null(scores);
    assert_int_equal(scores->item, FILE_GGUF_VALUE_F32);
    assert_int_equal(scores->n, f.m.config.vocab_size);
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        memcpy(&score, scores->at + sizeof score * (size_t)want[i].id, sizeof score);
        assert_true(score == want[i].score);
    }
    file_gguf_in_close(&in);
    json_decref(root);
    fixture_close(&f);
}

static void same_texts(const file_gguf_in *from, const file_gguf_in *to, const file_gguf_value *a,
                       const file_gguf_value *b)
{
    if (a->type == FILE_GGUF_VALUE_TEXT) {
        char *x = file_gguf_text(from, a->key), *y = file_gguf_text(to, b->key);
        assert_string_equal(x, y);
        atom_free(x);
        atom_free(y);
        return;
    }
    const uint8_t *x = a->at, *y = b->at;
    for (uint64_t i = 0, m, n; i < a->n; i++) {
        const char *s = file_gguf_next_text(&x, &m), *t = file_gguf_next_text(&y, &n);
        assert_int_equal(m, n);
        assert_memory_equal(s, t, m);
    }
}

/* Exported from one GGUF file to another, a tokenizer is the same, value by value. */
static void a_tokenizer_is_copied(void **state)
{
    (void)state;
    fixture f;
    file_gguf_in *from = NULL, *to = NULL;
    char again[680];
    uint32_t n = 0, copied = 0;
    static const char generation[] = "{\"eos_token_id\": [2, 1], \"pad_token_id\": 0}";
    static const char settings[] = "{\"chat_template\": \"{{ messages }}\"}";
    json_t *root = metaspace_json(METASPACE_REPLACE, "null");
    fixture_open(&f, "x.gguf");
    assert_int_equal(json_dump_file(root, scratch_path(&f.s, "model/tokenizer.json"), 0), 0);
    scratch_write(&f.s, "model/generation_config.json", generation, sizeof generation - 1);
    scratch_write(&f.s, "model/tokenizer_config.json", settings, sizeof settings - 1);
    assert_int_equal(export(&f, "gguf"), ATOM_OK);
    snprintf(again, sizeof again, "%s", scratch_path(&f.s, "again.gguf"));
    said_begin(&f.s);
    assert_int_equal(export_gguf(f.output, NULL, FILE_GGUF_F32, again, false), ATOM_OK);
    assert_false(said_times(&f.s, "no tokenizer"));
    assert_int_equal(file_gguf_open(f.output, &from), ATOM_OK);
    assert_int_equal(file_gguf_open(again, &to), ATOM_OK);
    for (uint32_t i = 0; i < to->n_values; i++)
        copied += strncmp(to->values[i].key, "tokenizer.", 10) == 0;
    for (uint32_t i = 0; i < from->n_values; i++) {
        const file_gguf_value *a = &from->values[i], *b = file_gguf_find(to, a->key);
        if (strncmp(a->key, "tokenizer.", 10) != 0)
            continue;
        n++;
        if (!b || a->type != b->type || a->item != b->item || a->n != b->n)
            fail_msg("%s is not copied", a->key);
        if (a->type == FILE_GGUF_VALUE_TEXT || a->item == FILE_GGUF_VALUE_TEXT)
            same_texts(from, to, a, b);
        else if (a->type != FILE_GGUF_VALUE_ARRAY)
            assert_int_equal(file_gguf_int(from, a->key, -1), file_gguf_int(to, b->key, -2));
        else
            assert_memory_equal(a->at, b->at, 4 * a->n);
    }
    assert_true(n >= 6);
    assert_int_equal(copied, n);
    assert_non_null(file_gguf_find(from, "tokenizer.ggml.add_bos_token"));
    assert_non_null(file_gguf_find(from, "tokenizer.chat_template"));
    assert_int_equal(file_gguf_int(from, "tokenizer.ggml.padding_token_id", -1), 0);
    file_gguf_in_close(&from);
    file_gguf_in_close(&to);
    json_decref(root);
    fixture_close(&f);
}

/* llama.cpp would write on behind an end that has no key, and white space beside a token is not in its
 * file, and values that are not finite are not sensible. */
static void what_is_lost_is_said(void **state)
{
    static const char generation[] = "{\"eos_token_id\": [1, 2, 3]}";
    (void)state;
    fixture f;
    fixture_open(&f, "x.gguf");
    said_begin(&f.s);
    assert_int_equal(export(&f, "gguf"), ATOM_OK);
    assert_false(said_times(&f.s, "warning"));
    scratch_write(&f.s, "model/generation_config.json", generation, sizeof generation - 1);
    said_begin(&f.s);
    assert_int_equal(export_gguf(f.model, NULL, FILE_GGUF_F32, f.output, true), ATOM_OK);
    assert_true(said_times(&f.s, "will not stop at 2 of the 4 tokens"));
    json_t *root = json_load_file(scratch_path(&f.s, "model/tokenizer.json"), 0, NULL);
    json_t *token = json_array_get(json_object_get(root, "added_tokens"), 0);
    json_object_set_new(token, "rstrip", json_true());
    assert_int_equal(json_dump_file(root, scratch_path(&f.s, "model/tokenizer.json"), 0), 0);
    json_decref(root);
    said_begin(&f.s);
    assert_int_equal(export_gguf(f.model, NULL, FILE_GGUF_F32, f.output, true), ATOM_OK);
    assert_true(said_times(&f.s, "belongs to it (rstrip)"));
    f.m.params[f.m.g->params[1].offset] = INFINITY;
    assert_int_equal(file_weights_write(f.model, f.m.g, f.m.params), ATOM_OK);
    char words[200];
    snprintf(words, sizeof words, "'%s' has values that are not finite", f.m.g->params[1].name);
    said_begin(&f.s);
    assert_int_equal(export_gguf(f.model, NULL, FILE_GGUF_F32, f.output, true), ATOM_OK);
    assert_true(said_times(&f.s, words));
    fixture_close(&f);
}

/* llama.cpp has no windows of all layers, and computes GPT-NeoX's GELU by its tanh form. */
static void what_llama_cpp_does_otherwise_is_said(void **state)
{
#define SIZES                                                                                      \
    "\"vocab_size\": 320, \"hidden_size\": 48, \"num_hidden_layers\": 1, "                         \
    "\"num_attention_heads\": 3, \"intermediate_size\": 96, \"max_position_embeddings\": 16"
    static const struct {
        const char *config, *words;
        bool said;
    } cases[] = {
        {"{\"model_type\": \"mistral\", \"num_key_value_heads\": 3, \"sliding_window\": 8, " SIZES
         "}",
         "does not use the window of 8 tokens", true},
        {"{\"model_type\": \"mistral\", \"num_key_value_heads\": 3, \"sliding_window\": 16, " SIZES
         "}",
         "does not use the window", false},
        {"{\"model_type\": \"gpt_neox\", \"hidden_act\": \"gelu\", " SIZES "}", "by its tanh form",
         true},
        {"{\"model_type\": \"gpt_neox\", \"hidden_act\": \"gelu_fast\", " SIZES "}",
         "by its tanh form", false}};
#undef SIZES
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        scratch s;
        file_model model;
        scratch_open(&s);
        const char *config =
            scratch_write(&s, "tiny.json", cases[i].config, strlen(cases[i].config));
        if (file_model_resolve(config, &model) != ATOM_OK)
            fail_msg("%s", atom_fail_message());
        char dir[640];
        snprintf(dir, sizeof dir, "%s", scratch_path(&s, "model"));
        assert_int_equal(atom_dir_make(dir), ATOM_OK);
        model_dir m = model_dir_of(dir, &model.config, 3);
        model_dir_save(&m);
        said_begin(&s);
        atom_status st = export_gguf(dir, NULL, FILE_GGUF_F32, scratch_path(&s, "x.gguf"), false);
        if ((said_times(&s, cases[i].words) > 0) != cases[i].said || st != ATOM_OK)
            fail_msg("case %zu: %s", i, st == ATOM_OK ? "another warning" : atom_fail_message());
        model_dir_close(&m);
        file_model_free(&model);
        scratch_close(&s);
    }
}

static const char *type_of(const char *dir, graph *g)
{
    file_weights *w = NULL;
    assert_int_equal(file_weights_open(dir, g, NULL, &w), ATOM_OK);
    atom_dtype dtype = file_weights_dtype(w);
    file_weights_close(&w);
    return dtype == ATOM_F32 ? "float32" : dtype == ATOM_BF16 ? "bfloat16" : "another";
}

/* Types of weights, files' sizes, keys that atom does not know, and a template that a GGUF file had. */
static void what_was_asked_is_written(void **state)
{
    static const atom_dtype asked[] = {ATOM_BF16, ATOM_F32, ATOM_DTYPE_N};
    static const char settings[] = "{\"chat_template\": \"{{ messages }}\"}";
    (void)state;
    for (int k = 0; k < 3; k++) {
        const char *want = asked[k] == ATOM_BF16 ? "bfloat16" : "float32";
        fixture f;
        fixture_open(&f, "hf");
        json_t *config = json_load_file(scratch_path(&f.s, "model/config.json"), 0, NULL);
        json_object_set_new(config, "mine", json_integer(7));
        assert_int_equal(json_dump_file(config, scratch_path(&f.s, "model/config.json"), 0), 0);
        json_decref(config);
        uint64_t bytes = k == 0 ? 20000 : 1 << 30;
        assert_int_equal(export_hf(f.model, NULL, asked[k], bytes, f.output), ATOM_OK);
        assert_string_equal(type_of(f.output, f.m.g), want);
        config = json_load_file(scratch_path(&f.s, "hf/config.json"), 0, NULL);
        assert_int_equal(json_integer_value(json_object_get(config, "mine")), 7);
        const char *said = json_string_value(json_object_get(config, "dtype"));
        said = said ? said : json_string_value(json_object_get(config, "torch_dtype"));
        assert_string_equal(said, want);
        json_decref(config);
        assert_int_equal(atom_path_exists(scratch_path(&f.s, "hf/model.safetensors")), k > 0);
        fixture_close(&f);
    }
    fixture f;
    file_gguf_in *in = NULL;
    fixture_open(&f, "x.gguf");
    scratch_write(&f.s, "model/tokenizer_config.json", settings, sizeof settings - 1);
    assert_int_equal(export_gguf(f.model, NULL, FILE_GGUF_F32, f.output, false), ATOM_OK);
    assert_int_equal(file_gguf_open(f.output, &in), ATOM_OK);
    assert_int_equal(file_gguf_int(in, "general.file_type", -1), 0);
    file_gguf_in_close(&in);
    assert_int_equal(export_hf(f.output, NULL, ATOM_F32, 1 << 30, scratch_path(&f.s, "hf")),
                     ATOM_OK);
    char *text = NULL;
    uint64_t bytes;
    assert_int_equal(
        atom_file_read(scratch_path(&f.s, "hf/chat_template.jinja"), 99, &text, &bytes), ATOM_OK);
    assert_int_equal(bytes, strlen("{{ messages }}"));
    assert_memory_equal(text, "{{ messages }}", bytes);
    atom_free(text);
    fixture_close(&f);
}

/* --- with LoRA adapters ---------------------------------------------------------------------- */

typedef struct adapted {
    scratch s;
    char model[640], adapter[640];
    model_dir m;
} adapted;

/* More tokens than the bytes have, so that the last id is `last`. */
static void write_tokens(const char *from, const char *to, int last)
{
    char name[16];
    json_t *root = json_load_file(from, 0, NULL);
    assert_non_null(root);
    for (int id = 257; id <= last; id++) {
        snprintf(name, sizeof name, "<t%d>", id);
        json_array_append_new(json_object_get(root, "added_tokens"),
                              json_pack("{s:i, s:s, s:b, s:b, s:b, s:b, s:b}", "id", id, "content",
                                        name, "single_word", 0, "lstrip", 0, "rstrip", 0,
                                        "normalized", 0, "special", 1));
    }
    assert_int_equal(json_dump_file(root, to, 0), 0);
    json_decref(root);
}

static void adapted_open(adapted *f)
{
    static const file_lora_keys keys = {.r = 2, .alpha = 4, .targets = "c_fc"};
    graph *g = NULL;
    file_lora lora = {0};
    scratch_open(&f->s);
    snprintf(f->model, sizeof f->model, "%s", scratch_path(&f->s, "model"));
    snprintf(f->adapter, sizeof f->adapter, "%s", scratch_path(&f->s, "adapter"));
    assert_int_equal(atom_dir_make(f->model), ATOM_OK);
    assert_int_equal(atom_dir_make(f->adapter), ATOM_OK);
    f->m = model_dir_make(f->model, 16, 3);
    model_dir_save(&f->m);
    assert_int_equal(file_lora_make(&keys, f->model, &lora), ATOM_OK);
    assert_int_equal(file_lora_graph(f->m.g, &lora, &g), ATOM_OK);
    float *trained = atom_alloc(g->param_extent, sizeof *trained);
    for (uint64_t i = 0; i < g->param_extent; i++)
        trained[i] = (float)(i % 7) / 8;
    assert_int_equal(file_lora_write(f->adapter, &lora, f->m.g, g, file_vector_memory(trained)),
                     ATOM_OK);
    atom_free(trained);
    file_lora_free(&lora);
    graph_close(&g);
}

static void adapted_close(adapted *f)
{
    model_dir_close(&f->m);
    scratch_close(&f->s);
}

/* Does a file or directory hold these weights? */
static void holds(const adapted *f, const char *path, const float *want)
{
    const graph *g = f->m.g;
    float *got = atom_alloc(g->param_extent, sizeof *got);
    assert_int_equal(file_weights_read(path, g, got), ATOM_OK);
    for (uint32_t p = 0; p < g->n_params; p++)
        if (memcmp(got + g->params[p].offset, want + g->params[p].offset,
                   g->params[p].elements * sizeof *got) != 0)
            fail_msg("%s: %s is another", path, g->params[p].name);
    atom_free(got);
}

static void adapters_are_merged(void **state)
{
    (void)state;
    adapted f;
    file_model both;
    adapted_open(&f);
    float *want = atom_alloc(f.m.g->param_extent, sizeof *want);
    assert_int_equal(file_model_resolve(f.adapter, &both), ATOM_OK);
    assert_int_equal(file_merged_read(&both, f.m.g, file_vector_memory(want)), ATOM_OK);
    assert_true(memcmp(want, f.m.params, f.m.g->param_extent * sizeof *want) != 0);
    /* the adapter of an adapter's directory, and one that is named beside its model */
    assert_int_equal(export_hf(f.adapter, NULL, ATOM_F32, 1 << 30, scratch_path(&f.s, "hf")),
                     ATOM_OK);
    holds(&f, scratch_path(&f.s, "hf"), want);
    assert_int_equal(
        export_gguf(f.model, f.adapter, FILE_GGUF_F32, scratch_path(&f.s, "x.gguf"), false),
        ATOM_OK);
    holds(&f, scratch_path(&f.s, "x.gguf"), want);
    assert_int_equal(
        export_gguf(f.model, NULL, FILE_GGUF_F32, scratch_path(&f.s, "base.gguf"), false), ATOM_OK);
    holds(&f, scratch_path(&f.s, "base.gguf"), f.m.params);
    file_model_free(&both);
    atom_free(want);
    adapted_close(&f);
}

/* How many tokens are in use in a GGUF file? */
static uint32_t tokens_of(const char *path)
{
    text_tokenizer *t = NULL;
    assert_int_equal(import_tokenizer(path, &t), ATOM_OK);
    assert_non_null(t);
    uint32_t n = text_tokenizer_vocab(t);
    text_tokenizer_close(&t);
    return n;
}

static void an_adapters_tokenizer_goes_first(void **state)
{
    (void)state;
    adapted f;
    file_model both;
    char base[640], out[640];
    text_tokenizer *t = NULL;
    adapted_open(&f);
    snprintf(base, sizeof base, "%s", scratch_path(&f.s, "base.gguf"));
    snprintf(out, sizeof out, "%s", scratch_path(&f.s, "x.gguf"));
    assert_int_equal(export_gguf(f.model, f.adapter, FILE_GGUF_F32, base, false), ATOM_OK);
    assert_int_equal(tokens_of(base), 257); /* the adapter has none: the model's */
    assert_int_equal(export_hf(base, f.adapter, ATOM_F32, 1 << 30, scratch_path(&f.s, "plain")),
                     ATOM_OK);
    assert_int_equal(text_tokenizer_load(scratch_path(&f.s, "plain/tokenizer.json"), &t), ATOM_OK);
    assert_int_equal(text_tokenizer_vocab(t), 257);
    text_tokenizer_close(&t);
    write_tokens(scratch_path(&f.s, "model/tokenizer.json"),
                 scratch_path(&f.s, "adapter/tokenizer.json"), 260);
    assert_int_equal(export_gguf(f.model, f.adapter, FILE_GGUF_F32, out, false), ATOM_OK);
    assert_int_equal(tokens_of(out), 261);
    assert_int_equal(export_gguf(base, f.adapter, FILE_GGUF_F32, out, true), ATOM_OK);
    assert_int_equal(tokens_of(out), 261);
    assert_int_equal(export_hf(f.model, f.adapter, ATOM_F32, 1 << 30, scratch_path(&f.s, "hf")),
                     ATOM_OK);
    assert_int_equal(text_tokenizer_load(scratch_path(&f.s, "hf/tokenizer.json"), &t), ATOM_OK);
    assert_int_equal(text_tokenizer_vocab(t), 261);
    text_tokenizer_close(&t);
    assert_int_equal(file_model_resolve(f.adapter, &both), ATOM_OK);
    assert_int_equal(import_model_tokenizer(&both, &t), ATOM_OK);
    assert_int_equal(text_tokenizer_vocab(t), 261);
    text_tokenizer_close(&t);
    file_model_free(&both);
    adapted_close(&f);
}

/* A model may have more rows than its tokenizer has tokens (padding), and no fewer. */
static void a_tokenizer_fits_its_model(void **state)
{
    (void)state;
    for (int last = 319; last <= 320; last++) {
        adapted f;
        file_model model;
        text_tokenizer *t = NULL;
        adapted_open(&f);
        write_tokens(scratch_path(&f.s, "model/tokenizer.json"),
                     scratch_path(&f.s, "model/tokenizer.json"), last);
        assert_int_equal(file_model_resolve(f.model, &model), ATOM_OK);
        assert_int_equal(import_model_tokenizer(&model, &t), last < 320 ? ATOM_OK : ATOM_E_FORMAT);
        assert_true(!t == (last == 320));
        text_tokenizer_close(&t);
        file_model_free(&model);
        adapted_close(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_left_behind),
        cmocka_unit_test(what_is_there_stays),
        cmocka_unit_test(without_tokenizer),
        cmocka_unit_test(what_stands_beside),
        cmocka_unit_test(scores_are_the_order_of_merges),
        cmocka_unit_test(a_tokenizer_is_copied),
        cmocka_unit_test(what_is_lost_is_said),
        cmocka_unit_test(what_llama_cpp_does_otherwise_is_said),
        cmocka_unit_test(what_was_asked_is_written),
        cmocka_unit_test(adapters_are_merged),
        cmocka_unit_test(an_adapters_tokenizer_goes_first),
        cmocka_unit_test(a_tokenizer_fits_its_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
