/*
 * Documents in sequences: when those of one sequence are kept apart, and what is said of documents that
 * are cut by a sequence's end.
 */
#include "atom/text/tokenizer.h"
#include "atom/train/trainer.h"
#include "tests/lib/little_run.h"

#include <stdio.h>
#include <string.h>

enum { START = 256, TOKENS = 6000 };

static scratch place;
static char notes[4000];

static void note(void *ctx, const char *text)
{
    size_t used = strlen(notes);
    (void)ctx;
    snprintf(notes + used, sizeof notes - used, "%s\n", text);
}

/* place/data: documents of so many tokens, with a tokenizer that knows where they begin, or without. */
static void write_data(uint32_t length, bool tokenizer)
{
    static uint32_t ids[TOKENS];
    text_shard_writer *out = NULL;
    text_tokenizer *t = NULL;
    scratch_open(&place);
    static const char model[] = "{\"model_type\":\"gpt2\",\"vocab_size\":257,\"n_positions\":16,"
                                "\"n_embd\":48,\"n_layer\":2,\"n_head\":3}";
    must(atom_file_write(scratch_path(&place, "config.json"), model, sizeof model - 1));
    must(atom_dir_make(scratch_path(&place, "data")));
    for (uint32_t i = 0; i < TOKENS; i++)
        ids[i] = i % length ? i % 251 : START;
    must(text_shard_writer_open(scratch_path(&place, "data"), "train", 257, 0, &out));
    must(text_shard_writer_put(out, ids, TOKENS));
    must(text_shard_writer_end(out));
    text_shard_writer_close(&out);
    if (!tokenizer)
        return;
    must(text_tokenizer_bytes(&t));
    must(text_tokenizer_save(t, scratch_path(&place, "data/tokenizer.json")));
    text_tokenizer_close(&t);
}

static atom_status look(int32_t packing, int32_t preset, int64_t sequence)
{
    const train_hooks hooks = {.note = note};
    train_config c;
    trainer *t = NULL;
    little_config(&c, &place, "run");
    c.packing = packing;
    c.preset = preset;
    c.sequence_len = sequence;
    c.eval_steps = 0;
    c.dry_run = true;
    notes[0] = 0;
    atom_status st = trainer_open(&c, &hooks, &t);
    trainer_close(&t);
    train_config_free(&c);
    return st;
}

static void is_told(const char *words, bool told)
{
    if ((strstr(notes, words) != NULL) != told)
        fail_msg("%s %s: %s", told ? "not" : "it says", words, notes);
}

/* Of all sequences but one in three the beginning is that of no document of 24 tokens. */
static void documents_that_are_cut(void **state)
{
    static const struct {
        uint32_t length;
        int64_t sequence;
        const char *says; /* NULL: nothing is cut */
    } cases[] = {
        {24, 16, "about 99 % of the documents are cut by the end of a sequence of 16 tokens, "},
        {16, 16, NULL},
        {8, 16, NULL},
        {20, 16, "about 100 % of the documents are cut by"},
        {5, 8, "about 50 % of the documents are cut by"},
        {6, 16, "about 25 % of the documents are cut by"}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_data(cases[i].length, true);
        must(look(TRAIN_PACKING_APART, TRAIN_PRETRAIN, cases[i].sequence));
        is_told(cases[i].says ? cases[i].says : "are cut by", cases[i].says != NULL);
        must(look(TRAIN_PACKING_ACROSS, TRAIN_PRETRAIN, cases[i].sequence));
        is_told("are cut by", false);
        scratch_close(&place);
    }
}

static void who_is_kept_apart(void **state)
{
    (void)state;
    write_data(24, true);
    must(look(TRAIN_PACKING_AUTO, TRAIN_PRETRAIN, 16));
    is_told("are cut by", false); /* across */
    must(look(TRAIN_PACKING_AUTO, TRAIN_SFT, 16));
    is_told("are cut by", true); /* apart */
    is_told("packing is 'across'", false);
    is_told("has no tokenizer.json", false);
    scratch_close(&place);
    write_data(24, false);
    assert_int_equal(look(TRAIN_PACKING_APART, TRAIN_PRETRAIN, 16), ATOM_E_USAGE);
    assert_non_null(strstr(atom_fail_message(), "packing: 'apart' needs tokenizer.json in "));
    must(look(TRAIN_PACKING_AUTO, TRAIN_SFT, 16));
    is_told("packing is 'across', because the data has no tokenizer.json\n", true);
    is_told("has no tokenizer.json, so the checkpoints will have none either", true);
    must(look(TRAIN_PACKING_ACROSS, TRAIN_SFT, 16));
    is_told("packing is 'across'", false);
    scratch_close(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(documents_that_are_cut),
        cmocka_unit_test(who_is_kept_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
