/* Exports: what is there stays, what fails leaves nothing behind, want of memory is an error. */
#include "atom/base/files.h"
#include "atom/export/export.h"
#include "atom/file/ggufread.h"
#include "tests/lib/metaspace.h"
#include "tests/lib/model_dir.h"
#include "tests/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

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

/* Exported from one GGUF file to another, a tokenizer is the same, value by value. */
static void a_tokenizer_is_copied(void **state)
{
    (void)state;
    fixture f;
    file_gguf_in *from = NULL, *to = NULL;
    char again[680];
    uint32_t n = 0, copied = 0;
    json_t *root = metaspace_json(METASPACE_REPLACE, "null");
    fixture_open(&f, "x.gguf");
    assert_int_equal(json_dump_file(root, scratch_path(&f.s, "model/tokenizer.json"), 0), 0);
    assert_int_equal(export(&f, "gguf"), ATOM_OK);
    snprintf(again, sizeof again, "%s", scratch_path(&f.s, "again.gguf"));
    assert_int_equal(export_gguf(f.output, NULL, FILE_GGUF_F32, again, false), ATOM_OK);
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
        if (a->type != FILE_GGUF_VALUE_ARRAY)
            assert_int_equal(*a->at, *b->at);
        else if (a->item != FILE_GGUF_VALUE_TEXT)
            assert_memory_equal(a->at, b->at, 4 * a->n);
    }
    assert_true(n >= 6);
    assert_int_equal(copied, n);
    assert_non_null(file_gguf_find(from, "tokenizer.ggml.add_bos_token"));
    file_gguf_in_close(&from);
    file_gguf_in_close(&to);
    json_decref(root);
    fixture_close(&f);
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
