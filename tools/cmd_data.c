/*
 * atom data prepare, atom data inspect: text to token shards, and a look at what is in them.
 * Refuses to know formats: that is atom/text.
 */
#include "tools/progress.h"

#include <string.h>

typedef struct prepare_values {
    opt_list input;
    char *tokenizer;
    char *output;
    int32_t format;   /* text_format */
    int32_t template; /* of templates */
    char *system_prefix, *user_prefix, *assistant_prefix, *turn_suffix, *answer_end;
    int32_t loss; /* of losses */
    char *template_vars;
    int32_t special_tokens; /* text_special_rule */
    int64_t sequence_len;
    double val_fraction;
    bool force;
    int64_t threads;
    bool json;
} prepare_values;

#define AT(member) .offset = offsetof(prepare_values, member)

static const opt_choice formats[] = {{"auto", TEXT_FORMAT_AUTO},
                                     {"text", TEXT_FORMAT_TEXT},
                                     {"messages", TEXT_FORMAT_MESSAGES},
                                     {"sharegpt", TEXT_FORMAT_SHAREGPT},
                                     {"alpaca", TEXT_FORMAT_ALPACA},
                                     {"prompt", TEXT_FORMAT_PROMPT},
                                     {0}};
static const opt_choice templates[] = {{"auto", 0},    {"chatml", 1}, {"llama3", 2},
                                       {"mistral", 3}, {"plain", 4},  {0}};
static const opt_choice rules[] = {{"bytes", TEXT_SPECIAL_BYTES}, {"ids", TEXT_SPECIAL_IDS}, {0}};
static const opt_choice losses[] = {{"answers", false}, {"all", true}, {0}};

/* clang-format off */
static const opt_spec prepare_specs[] = {
    {.name = "input", .type = OPT_LIST, AT(input), .value = "FILE...", .letter = 'i',
     .flags = OPT_REQUIRED,
     .help = "Files to read. .txt: one document per file; .jsonl: one text or chat per line; "
             ".json: an array of them; .csv: one per row, with a header; all also as .gz or "
             ".zst. .parquet is read with Python's pyarrow (ATOM_PYTHON names the interpreter)."},
    {.name = "tokenizer", .type = OPT_TEXT, AT(tokenizer), .fallback = "bytes",
     .value = "bytes|bpe:N|FILE",
     .help = "bytes: one token per byte. bpe:N: byte-level BPE with a vocabulary of N, trained on "
             "the input. FILE: a tokenizer.json."},
    {.name = "output", .type = OPT_TEXT, AT(output), .value = "DIR", .letter = 'o',
     .flags = OPT_REQUIRED, .help = "Where train_*.bin, val_*.bin and tokenizer.json are written."},
    {.name = "special_tokens", .type = OPT_CHOICE, AT(special_tokens), .fallback = "bytes",
     .choices = rules,
     .help = "What to do if a text contains the name of a special token, such as <|endoftext|>. "
             "bytes: treat it as ordinary text. ids: make it that token, as transformers does. "
             "In messages of chats it is always text."},
    {.name = "format", .type = OPT_CHOICE, AT(format), .fallback = "auto", .choices = formats,
     .group = "Chats",
     .help = "What a line of .jsonl contains. text: a string 'text'. messages: [{role, "
             "content}]. sharegpt: conversations [{from, value}]. alpaca: instruction, input, "
             "output. prompt: prompt, completion. auto: decided for each line by its keys."},
    {.name = "template", .type = OPT_CHOICE, AT(template), .fallback = "auto", .choices = templates,
     .help = "How a chat becomes tokens. auto: by the model's own template, which is expected "
             "beside its tokenizer. If there is none, name one of the others."},
    {.name = "template_vars", .type = OPT_TEXT, AT(template_vars), .value = "JSON",
     .help = "Variables of the chat template for all chats, such as {\"enable_thinking\": "
             "false}; \"chat_template_kwargs\" in a line take precedence. They become part of "
             "the template that is kept with the data."},
    {.name = "system_prefix", .type = OPT_TEXT, AT(system_prefix), .value = "TEXT",
     .help = "Text before a system message, instead of what the named template has. In this and "
             "the next texts the names of special tokens become those tokens, {start} and {end} "
             "become the tokenizer's own, and \\n"
             " becomes a new line."},
    {.name = "user_prefix", .type = OPT_TEXT, AT(user_prefix), .value = "TEXT",
     .help = "Text before a user message."},
    {.name = "assistant_prefix", .type = OPT_TEXT, AT(assistant_prefix), .value = "TEXT",
     .help = "Text before an answer."},
    {.name = "turn_suffix", .type = OPT_TEXT, AT(turn_suffix), .value = "TEXT",
     .help = "Text after a message that is not an answer."},
    {.name = "answer_end", .type = OPT_TEXT, AT(answer_end), .value = "TEXT",
     .help = "Text after an answer, which is learned with it."},
    {.name = "loss", .type = OPT_CHOICE, AT(loss), .fallback = "answers", .choices = losses,
     .help = "What is learned from a chat: only its answers, each with the token that ends it, "
             "or all of it. An answer with \"weight\": 0 is shown but not learned. Texts are "
             "always learned completely."},
    {.name = "val_fraction", .type = OPT_NUMBER, AT(val_fraction), .fallback = "0.05", .min = 0,
     .max = 0.5, .value = "X", .group = "Result",
     .help = "Share of the data to set aside for validation. 0: none."},
    {.name = "sequence_len", .type = OPT_INT, AT(sequence_len), .fallback = "0", .min = 0,
     .max = TEXT_PACK_MAX, .value = "N",
     .help = "Pack texts and chats into sequences of N tokens, the sequence_len of 'atom train', so "
             "that only what is longer than N is cut; the rest of a sequence is padding, which is not "
             "learned. 0: write them one after the other, and training cuts them every sequence_len "
             "tokens."},
    {.name = "force", .type = OPT_FLAG, AT(force), .letter = 'f',
     .help = "Replace an existing data set."},
    PLAN_ROW_THREADS(.help = "auto: all cores. The result does not depend on it."),
    PLAN_ROW_JSON(.help = "One JSON object on stdout."),
};
/* clang-format on */

static const opt_command prepare_options = {
    .name = "data prepare",
    .summary = "turn text into token shards",
    .description = "Writes token shards in llm.c's format, with a validation split, and the "
                   "tokenizer as tokenizer.json. Every text starts with the end-of-text token. "
                   "Documents and chats are written one after the other; 'atom train --packing' "
                   "decides whether attention sees across them. If only part of a chat is "
                   "learned, train_*.mask marks those tokens.",
    .examples =
        "atom data prepare --input book.txt --tokenizer bpe:4096 --output data/\n"
        "atom data prepare --input *.jsonl --tokenizer bytes --output data/ "
        "--val-fraction 0.01\n"
        "atom data prepare --input chats.jsonl.zst --tokenizer model/tokenizer.json --output "
        "data/\n",
    OPT_TABLE(prepare_specs, prepare_values),
};

static void show_progress(void *ctx, const char *phase, uint64_t done, uint64_t total)
{
    char text[128];
    (void)ctx;
    snprintf(text, sizeof text, "%s: %.0f %%", phase,
             total ? 100.0 * (double)done / (double)total : 100.0);
    cli_progress_draw(text, done == total);
}

static json_t *counts_json(const text_part_counts *c)
{
    return json_pack("{s:I, s:I, s:I}", "tokens", (json_int_t)c->tokens, "documents",
                     (json_int_t)c->documents, "shards", (json_int_t)c->shards);
}

static atom_status prepare_print(const prepare_values *v, const text_prepare_report *r)
{
    if (v->json)
        return cli_print_json(json_pack(
            "{s:s, s:s, s:s*, s:I, s:I, s:i, s:I, s:o, s:o, s:s, s:o, s:o, s:s, s:I, s:I, s:I, "
            "s:I, s:I, s:I, s:I}",
            "output", v->output, "tokenizer", v->tokenizer, "template", r->template, "chats",
            (json_int_t)r->chats, "targets", (json_int_t)r->targets, "vocab", (int)r->vocab,
            "text_bytes", (json_int_t)r->text_bytes, "train", counts_json(&r->train), "val",
            counts_json(&r->val), "val_split", text_val_split_name(r->val_split),
            "train_tokenizer_seconds", cli_real(r->train_tokenizer_seconds), "encode_seconds",
            cli_real(r->encode_seconds), "special_tokens",
            text_special_rule_name((text_special_rule)v->special_tokens), "special_names",
            (json_int_t)r->named.n, "unknown_characters", (json_int_t)r->unknown.n,
            "messages_with_unseen_keys", (json_int_t)r->unseen.messages, "empty_texts",
            (json_int_t)r->empty.n, "sequence_len", (json_int_t)v->sequence_len, "cut_documents",
            (json_int_t)r->cut, "padding", (json_int_t)r->padding));
    cli_print("%s: %s of text, vocabulary %u, %llu tokens to train on, %llu to validate\n",
              v->output, cli_size(r->text_bytes), r->vocab, (unsigned long long)r->train.tokens,
              (unsigned long long)r->val.tokens);
    if (r->chats)
        cli_print("%llu chats, template %s: %llu tokens are learned\n",
                  (unsigned long long)r->chats, r->template, (unsigned long long)r->targets);
    if (v->sequence_len)
        cli_print("packed into sequences of %lld tokens: %.1f %% is padding\n",
                  (long long)v->sequence_len,
                  100 * (double)r->padding / (double)(r->train.tokens + r->val.tokens));
    if (r->vocab < r->vocab_asked)
        atom_log(ATOM_LOG_WARN,
                 "the text has too few pairs to merge, so the vocabulary is %u "
                 "instead of %u",
                 r->vocab, r->vocab_asked);
    return ATOM_OK;
}

/* What somebody who has texts only would wait for in vain. */
static const char *given_for_chats(const opt_parsed *parsed)
{
    static const char *const keys[] = {"template",         "loss",        "system_prefix",
                                       "user_prefix",      "turn_suffix", "answer_end",
                                       "assistant_prefix", NULL};
    size_t i = 0;
    while (keys[i] && !opt_given(&prepare_options, parsed, keys[i]))
        i++;
    return keys[i];
}

static atom_status prepare_run(void *values, const opt_parsed *parsed)
{
    const prepare_values *v = values;
    text_prepare_report report = {0};
    atom_threads *threads = NULL;
    atom_status st = ATOM_OK;
    ATOM_TRY_CLEAN(
        atom_threads_open(v->threads > 0 ? (uint32_t)v->threads : atom_cores(), &threads));
    text_prepare_options options = {
        .inputs = (const char *const *)v->input.items,
        .inputs_n = v->input.n,
        .tokenizer = v->tokenizer,
        .output_dir = v->output,
        .val_fraction = v->val_fraction,
        .force = v->force,
        .format = (text_format)v->format,
        .template = {.name = opt_choice_name(templates, v->template),
                     .words = {.prefix = {[TEXT_SYSTEM] = v->system_prefix,
                                          [TEXT_USER] = v->user_prefix,
                                          [TEXT_ASSISTANT] = v->assistant_prefix},
                               .suffix = v->turn_suffix,
                               .answer_end = v->answer_end},
                     .variables = v->template_vars},
        .special_tokens = (text_special_rule)v->special_tokens,
        .loss_all = v->loss,
        .sequence_len = (uint32_t)v->sequence_len,
        .of_chats = given_for_chats(parsed),
        .threads = threads,
        .progress = show_progress,
    };
    st = text_prepare(&options, &report);
    cli_progress_end();
    if (st == ATOM_OK)
        st = prepare_print(v, &report);
cleanup:
    atom_threads_close(&threads);
    return st;
}

const cli_command cli_data_prepare = {&prepare_options, prepare_run};

static const opt_command inspect_options = {
    .name = "data inspect",
    .summary = "check and summarise a directory of token shards",
    .examples = "atom data inspect data/\n",
    .positional = "DIR",
    .positional_min = 1,
    .positional_max = 1,
    CLI_ONLY_JSON,
};

/* Without a tokenizer and dataset.json nothing says where documents begin. */
static void print_part(const char *name, const text_part_counts *c)
{
    char documents[32] = "unknown number of";
    if (c->documents || c->tokens == 0)
        snprintf(documents, sizeof documents, "%llu", (unsigned long long)c->documents);
    cli_print("%-16s %llu tokens, %s documents, %u shards\n", name, (unsigned long long)c->tokens,
              documents, c->shards);
}

static json_t *part_json(const text_part_counts *c)
{
    json_t *made = counts_json(c);
    if (made && c->documents == 0 && c->tokens)
        json_object_set_new(made, "documents", json_null());
    return made;
}

/* Null where it is not known. */
static json_t *known(bool is, uint32_t value)
{
    return is ? json_integer(value) : json_null();
}

static atom_status inspect_run(void *values, const opt_parsed *parsed)
{
    const cli_json *v = values;
    const char *dir = parsed->positional[0];
    text_summary s;
    ATOM_TRY(text_inspect(dir, &s));
    if (v->json)
        return cli_print_json(json_pack(
            "{s:s, s:s, s:o, s:o, s:i, s:i, s:o, s:o, s:I, s:b, s:o, s:s}", "directory", dir,
            "tokenizer", s.tokenizer, "vocab", known(s.vocab, s.vocab), "end_of_text",
            known(s.vocab, s.end_of_text), "token_bytes", (int)s.token_bytes, "id_max",
            (int)s.id_max, "train", part_json(&s.train), "val", part_json(&s.val), "targets",
            (json_int_t)s.targets, "masked", (int)s.masked, "bytes_per_token",
            s.vocab ? cli_real(s.bytes_per_token) : json_null(), "preview", s.preview));
    cli_print("directory        %s\n", dir);
    if (s.vocab)
        cli_print("tokenizer        %s, vocabulary %u, end of text %u\n", s.tokenizer, s.vocab,
                  s.end_of_text);
    else
        cli_print("tokenizer        unknown: there is no tokenizer.json\n");
    print_part("train", &s.train);
    print_part("validation", &s.val);
    if (s.masked)
        cli_print("learned          %llu of these tokens\n", (unsigned long long)s.targets);
    cli_print("tokens           %u bytes each, largest id %u", s.token_bytes, s.id_max);
    if (s.vocab)
        cli_print(", %.2f bytes of text per token\nstarts with\n%s", s.bytes_per_token, s.preview);
    cli_print("\n");
    return ATOM_OK;
}

const cli_command cli_data_inspect = {&inspect_options, inspect_run};
