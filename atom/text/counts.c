/*
 * Owns the description of a data set that was prepared. One idea: whatever was decided on the way,
 * by an option or by a default, is written down or said. Refuses to judge it.
 */
#include "atom/text/counts.h"

#include "atom/base/files.h"
#include "atom/base/json.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"
#include "atom/text/dataset.h"
#include "atom/text/variables.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

const char *text_val_split_name(text_val_split split)
{
    static const char *const names[] = {
        [TEXT_VAL_NONE] = "none", [TEXT_VAL_DOCUMENTS] = "documents", [TEXT_VAL_TAIL] = "tail"};
    return names[split];
}

/* How many files of a split end so. */
static json_int_t count_files(const text_file_list *files, const char *split, const char *end)
{
    json_int_t found = 0;
    size_t n = strlen(split), m = strlen(end);
    for (uint32_t i = 0; i < files->n; i++) {
        size_t all = strlen(files->name[i]);
        found += strncmp(files->name[i], split, n) == 0 && files->name[i][n] == '_' && all > m &&
                 strcmp(files->name[i] + all - m, end) == 0;
    }
    return found;
}

static json_t *counts_json(const text_part_counts *c, const text_file_list *files,
                           const char *split)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I}", "shards", (json_int_t)c->shards, "tokens",
                     (json_int_t)c->tokens, "documents", (json_int_t)c->documents, "mask",
                     count_files(files, split, ".mask"), "begins",
                     count_files(files, split, ".begins"));
}

atom_status text_counts_write(const text_prepare_report *r, const text_prepare_options *o,
                              const text_tokenizer *t, const char *dir)
{
    json_t *variables = NULL;
    text_file_list files = {0};
    atom_status st = ATOM_OK;
    char *path = atom_path_join(dir, "dataset.json");
    if (!path)
        ATOM_TRY_CLEAN(atom_fail_memory("a path", strlen(dir)));
    if (r->chats && o->template.variables)
        ATOM_TRY_CLEAN(text_variables_parse(o->template.variables, &variables));
    ATOM_TRY_CLEAN(text_dataset_files(dir, &files));
    json_t *root = json_pack(
        "{s:s, s:i, s:s, s:i, s:i, s:I, s:o, s:o, s:s, s:I, s:I, s:s*, s:O*, s:s}", "format",
        "atom-dataset", "version", 1, "tokenizer", text_tokenizer_kind(t), "vocab_size",
        (int)r->vocab, "end_of_text", (int)text_tokenizer_end(t), "text_bytes",
        (json_int_t)r->text_bytes, "train", counts_json(&r->train, &files, "train"), "val",
        counts_json(&r->val, &files, "val"), "val_split", text_val_split_name(r->val_split),
        "chats", (json_int_t)r->chats, "targets", (json_int_t)r->targets, "template", r->template,
        "template_vars", variables, "special_tokens", text_special_rule_name(o->special_tokens));
    if (root && o->sequence_len &&
        (json_object_set_new(root, "sequence_len", json_integer(o->sequence_len)) < 0 ||
         json_object_set_new(root, "padding", json_integer((json_int_t)r->padding)) < 0))
        ATOM_TRY_CLEAN(atom_fail_memory("dataset.json", 64));
    st = atom_json_save(root, JSON_INDENT(2), "\n", path);
cleanup:
    text_file_list_free(&files);
    json_decref(variables);
    atom_free(path);
    return st;
}

void text_counts_unseen(text_unseen *sum, const text_unseen *more)
{
    if (sum->messages == 0)
        memcpy(sum->key, more->key, sizeof sum->key);
    sum->messages += more->messages;
}

void text_counts_hidden(text_empty *e, uint64_t n, const char *name, uint64_t line)
{
    if (e->n == 0 && n)
        snprintf(e->first, sizeof e->first, "%s:%llu", name, (unsigned long long)line);
    e->n += n;
}

void text_counts_empty(text_empty *e, const text_block *b)
{
    if (e->n == 0 && b->empty_n)
        snprintf(e->first, sizeof e->first, "%s:%llu", b->name, (unsigned long long)b->empty_line);
    e->n += b->empty_n;
}

void text_counts_empty_files(text_empty *e, const text_input *in)
{
    const char *first;
    e->n = text_input_empty(in, &first);
    if (e->n)
        snprintf(e->first, sizeof e->first, "%s", first);
}

/* Is the line at *at a JSON object? Blank lines before it are passed over; *at goes behind it. */
static bool is_object_line(const char *text, size_t bytes, size_t *at)
{
    while (*at < bytes && strchr(" \t\r\n", text[*at]) && text[*at])
        ++*at;
    const char *line = text + *at, *end = memchr(line, '\n', bytes - *at);
    size_t n = end ? (size_t)(end - line) : bytes - *at;
    if (n == 0 || line[0] != '{')
        return false;
    json_t *root = json_loadb(line, n, JSON_ALLOW_NUL, NULL);
    bool object = json_is_object(root);
    json_decref(root);
    *at += n;
    return object;
}

void text_counts_objects(text_empty *e, const text_block *b)
{
    size_t at = b->bytes >= 3 && memcmp(b->data, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    if (b->lines || !b->starts || !is_object_line(b->data, b->bytes, &at) ||
        !is_object_line(b->data, b->bytes, &at))
        return;
    if (e->n++ == 0)
        snprintf(e->first, sizeof e->first, "%s", b->name);
}

/* Answers whose place in the chat had to be taken from their own text are said. */
static void say_answers(const text_prepare_report *r)
{
    atom_log(ATOM_LOG_WARN,
             "the template shows %llu of %llu answers differently once the chat goes on; of "
             "these only the message's own text and the token that ends it are learned",
             (unsigned long long)r->rough_answers, (unsigned long long)r->answers);
}

void text_counts_say(const text_prepare_report *r, const text_prepare_options *o)
{
    if (r->rough_answers && !o->loss_all)
        say_answers(r);
    if (r->unseen.messages)
        atom_log(ATOM_LOG_WARN,
                 "%llu messages have keys that the chat template does not show (such as \"%s\"), "
                 "so the model does not see their contents",
                 (unsigned long long)r->unseen.messages, r->unseen.key);
    if (r->cut)
        atom_log(
            ATOM_LOG_WARN,
            "%llu of %llu documents are longer than a sequence of %u tokens and are cut; what is "
            "behind a cut is learned without what stands before it",
            (unsigned long long)r->cut, (unsigned long long)(r->train.documents + r->val.documents),
            o->sequence_len);
    if (r->empty.n)
        atom_log(ATOM_LOG_WARN, "%llu empty text%s left out (the first is %s)",
                 (unsigned long long)r->empty.n, r->empty.n == 1 ? " was" : "s were",
                 r->empty.first);
    if (r->objects.n)
        atom_log(
            ATOM_LOG_WARN,
            "the lines of %llu .txt file%s are JSON objects (the first is %s), but a .txt is one "
            "text, so their braces and keys are learned as they stand; if each line is a text or "
            "a chat, rename the file to .jsonl",
            (unsigned long long)r->objects.n, r->objects.n == 1 ? "" : "s", r->objects.first);
    if (r->hidden.n)
        atom_log(
            ATOM_LOG_WARN,
            "the chat template shows nothing of %llu messages (such as one in %s), so the model "
            "does not see them",
            (unsigned long long)r->hidden.n, r->hidden.first);
    if (r->unused.messages)
        atom_log(ATOM_LOG_INFO,
                 "%llu chats have keys beside them that are not read (such as \"%s\")",
                 (unsigned long long)r->unused.messages, r->unused.key);
    if (r->unknown.n)
        atom_log(ATOM_LOG_WARN,
                 "%llu of %llu characters (%.3g%%) have no token and became the unknown token "
                 "(the first is U+%04X), so the model cannot see which characters they were",
                 (unsigned long long)r->unknown.n, (unsigned long long)r->unknown.characters,
                 100.0 * (double)r->unknown.n / (double)r->unknown.characters, r->unknown.first);
    if (r->named.n && o->special_tokens == TEXT_SPECIAL_BYTES)
        atom_log(ATOM_LOG_WARN,
                 "the texts contain names of special tokens %llu times (the first is %s), which "
                 "were treated as ordinary text; with --special-tokens ids they become the tokens",
                 (unsigned long long)r->named.n, r->named.first);
    else if (r->named.n)
        atom_log(ATOM_LOG_INFO,
                 "names of special tokens in the texts became %llu tokens (the first is %s)",
                 (unsigned long long)r->named.n, r->named.first);
}

void text_counts_say_split(const text_prepare_report *r, const text_prepare_options *o)
{
    double share = (double)r->val.tokens / (double)(r->val.tokens + r->train.tokens);
    if (r->val_split == TEXT_VAL_DOCUMENTS &&
        (share > 2 * o->val_fraction || share < o->val_fraction / 3))
        atom_log(
            ATOM_LOG_WARN,
            "%.3g %% of the tokens are for validation, not %.3g %%, because whole documents are "
            "set aside and their sizes differ; change --val-fraction, or bring the largest "
            "documents in parts",
            100 * share, 100 * o->val_fraction);
}
