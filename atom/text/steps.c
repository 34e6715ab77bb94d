/*
 * Owns what a tokenizer.json says around its vocabulary: normalizer, pre-tokenizer, post-processor,
 * decoder and the model's switches. One idea: there are two kinds of pipeline, bytes under known
 * patterns and metaspace with byte fallback, and every step is checked to belong to the one that was
 * found. Refuses any other step by name, so that a text is never split in another way than the file
 * says.
 */
#include "atom/text/steps.h"

#include "atom/text/charsmap.h"
#include "atom/text/tokenizer_inner.h"

#include <stdio.h>

#define METASPACE "\xe2\x96\x81"

typedef struct steps {
    const char *name; /* of the file */
    text_recipe *r;
    bool bytes; /* a ByteLevel pre-tokenizer was seen */
    const json_t *added;
    const char *begin, *finish;
} steps;

static atom_status unsupported(const steps *s, const char *key, const char *what)
{
    return atom_fail(ATOM_E_UNSUPPORTED,
                     "%s: \"%s\" is %s; atom reads the byte-level BPE of GPT-2, Llama-3, Qwen and "
                     "DeepSeek, "
                     "BPE with metaspaces and byte fallback, and Unigram with metaspaces",
                     s->name, key, what);
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text ? text : "";
}

static const char *type_of(const json_t *object)
{
    const char *type = json_string_value(json_object_get(object, "type"));
    return type ? type : "without a type";
}

static bool is(const json_t *object, const char *type)
{
    return json_is_object(object) && strcmp(type_of(object), type) == 0;
}

static bool absent(const json_t *value)
{
    return !value || json_is_null(value);
}

static bool empty_text(const json_t *value)
{
    return absent(value) || (json_is_string(value) && json_string_length(value) == 0);
}

/* Step number i of a Sequence, or the step itself; NULL after the last. */
static const json_t *step_at(const json_t *step, const char *list, size_t i)
{
    if (is(step, "Sequence"))
        return json_array_get(json_object_get(step, list), i);
    return i == 0 && !absent(step) ? step : NULL;
}

static atom_status add_normal(steps *s, text_normal_kind kind)
{
    if (s->r->normal_n == TEXT_NORMAL_STEPS_MAX)
        return unsupported(s, "normalizer", "a sequence of too many steps");
    s->r->normal[s->r->normal_n++] = (text_normal_step){.kind = kind};
    return ATOM_OK;
}

static atom_status read_charsmap(steps *s, const json_t *step)
{
    const char *map = text_of(step, "precompiled_charsmap");
    if (s->r->charsmap)
        return unsupported(s, "normalizer", "two of Precompiled");
    if (!*map) /* as SentencePiece's identity */
        return ATOM_OK;
    ATOM_TRY(text_charsmap_read(map, s->name, &s->r->charsmap));
    return add_normal(s, TEXT_NORMAL_CHARSMAP);
}

static atom_status read_strip(steps *s, const json_t *step)
{
    if (json_is_true(json_object_get(step, "strip_left")))
        ATOM_TRY(add_normal(s, TEXT_NORMAL_STRIP_LEFT));
    return json_is_true(json_object_get(step, "strip_right"))
               ? add_normal(s, TEXT_NORMAL_STRIP_RIGHT)
               : ATOM_OK;
}

/* One text for another. */
static atom_status read_replace(steps *s, const char *from, const char *as)
{
    ATOM_TRY(add_normal(s, TEXT_NORMAL_REPLACE));
    text_normal_step *step = &s->r->normal[s->r->normal_n - 1];
    if (strlen(from) >= sizeof step->from || strlen(as) > strlen(from)) /* texts do not grow */
        return unsupported(s, "normalizer", "a Replace of more than 15 bytes, or by a longer text");
    memcpy(step->from, from, strlen(from));
    memcpy(step->as, as, strlen(as));
    return ATOM_OK;
}

/* Steps of which nothing more is to be said. */
static const struct {
    const char *type;
    text_normal_kind kind;
} plain[] = {{"NFC", TEXT_NORMAL_NFC},
             {"NFKC", TEXT_NORMAL_NFKC},
             {"NFD", TEXT_NORMAL_NFD},
             {"NFKD", TEXT_NORMAL_NFKD},
             {"StripAccents", TEXT_NORMAL_NO_MARKS},
             {"Lowercase", TEXT_NORMAL_LOWER}};

/* A step of a Unigram tokenizer before spaces are replaced; *known: it is one. */
static atom_status read_unigram_step(steps *s, const json_t *step, bool *known)
{
    const char *content = text_of(step, "content");
    const char *regex = text_of(json_object_get(step, "pattern"), "Regex");
    const char *from = text_of(json_object_get(step, "pattern"), "String");
    bool runs = is(step, "Replace") && strcmp(regex, " {2,}") == 0;
    bool spaces = strcmp(from, " ") == 0 && strcmp(content, METASPACE) == 0;
    *known = true;
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (is(step, plain[i].type))
            return add_normal(s, plain[i].kind);
    if (is(step, "Replace") && *from && !spaces)
        return read_replace(s, from, content);
    if (is(step, "Precompiled"))
        return read_charsmap(s, step);
    if (is(step, "Strip"))
        return read_strip(s, step);
    if (runs && strcmp(content, METASPACE) == 0)
        return add_normal(s, TEXT_NORMAL_RUNS_TO_METASPACE);
    if (runs && strcmp(content, " ") == 0)
        return add_normal(s, TEXT_NORMAL_RUNS_TO_SPACE);
    *known = false;
    return ATOM_OK;
}

static atom_status read_normalizer(steps *s, const json_t *whole)
{
    const json_t *step;
    bool replaced = false;
    for (size_t i = 0; (step = step_at(whole, "normalizers", i)); i++) {
        const json_t *pattern = json_object_get(step, "pattern");
        bool known = false;
        if (s->r->unigram && !replaced && !s->r->prepend)
            ATOM_TRY(read_unigram_step(s, step, &known));
        if (known)
            continue;
        if (is(step, "NFC") && !s->r->unigram && !s->r->metaspace) {
            s->r->nfc = true;
        } else if (is(step, "Prepend") && !replaced && !s->r->nfc && !s->r->prepend &&
                   strcmp(text_of(step, "prepend"), METASPACE) == 0) {
            s->r->prepend = s->r->prepend_every = true;
        } else if (is(step, "Replace") && !s->r->nfc && !replaced &&
                   strcmp(text_of(step, "content"), METASPACE) == 0 &&
                   strcmp(text_of(pattern, "String"), " ") == 0) {
            replaced = s->r->metaspace = s->r->replaces_spaces = true;
        } else {
            return unsupported(s, "normalizer", type_of(step));
        }
    }
    if (s->r->prepend && !replaced)
        return unsupported(s, "normalizer", "a Prepend without a Replace of spaces");
    return ATOM_OK;
}

static atom_status add_stage(steps *s, const text_pattern *pattern)
{
    text_stages *stages = &s->r->stages;
    if (stages->n == TEXT_STAGES_MAX)
        return unsupported(s, "pre_tokenizer", "a sequence of too many steps");
    stages->at[stages->n++] = pattern;
    return ATOM_OK;
}

static atom_status read_byte_level(steps *s, const json_t *step)
{
    const json_t *regex = json_object_get(step, "use_regex");
    if (!json_is_false(json_object_get(step, "add_prefix_space")))
        return unsupported(s, "pre_tokenizer.add_prefix_space", "true or absent");
    if (regex && !json_is_boolean(regex))
        return unsupported(s, "pre_tokenizer.use_regex", "not true or false");
    if (!json_is_false(regex))
        ATOM_TRY(add_stage(s, text_pattern_gpt2()));
    if (!s->r->stages.n)
        return unsupported(s, "pre_tokenizer.use_regex", "false, with no Split before it");
    s->bytes = true;
    return ATOM_OK;
}

static atom_status read_split(steps *s, const json_t *step)
{
    const char *regex =
        json_string_value(json_object_get(json_object_get(step, "pattern"), "Regex"));
    const text_pattern *pattern = regex ? text_pattern_find(regex) : NULL;
    if (strcmp(text_of(step, "behavior"), "Isolated") != 0 ||
        json_is_true(json_object_get(step, "invert")))
        return unsupported(s, "pre_tokenizer", "a Split that is not Isolated, or inverted");
    if (!pattern) {
        char what[120];
        snprintf(what, sizeof what, "a Split by an unknown pattern (%.60s)", regex ? regex : "");
        return unsupported(s, "pre_tokenizer", what);
    }
    return add_stage(s, pattern);
}

static atom_status read_metaspace(steps *s, const json_t *step)
{
    const char *scheme = text_of(step, "prepend_scheme");
    const json_t *split = json_object_get(step, "split");
    if (s->r->metaspace || strcmp(text_of(step, "replacement"), METASPACE) != 0)
        return unsupported(s, "pre_tokenizer",
                           "a Metaspace beside others, or of another character");
    s->r->metaspace = true;
    if (strcmp(scheme, "always") == 0 ||
        (!*scheme && !json_is_false(json_object_get(step, "add_prefix_space"))))
        s->r->prepend = s->r->prepend_every = s->r->prepend_missing = true;
    else if (strcmp(scheme, "first") == 0)
        s->r->prepend = s->r->prepend_missing = true;
    else if (*scheme && strcmp(scheme, "never") != 0)
        return unsupported(s, "pre_tokenizer.prepend_scheme", scheme);
    s->r->hard_split = !json_is_false(split);
    return ATOM_OK;
}

static atom_status read_pre_tokenizer(steps *s, const json_t *whole)
{
    const json_t *step;
    atom_status st = ATOM_OK;
    for (size_t i = 0; st == ATOM_OK && (step = step_at(whole, "pretokenizers", i)); i++) {
        bool first = !s->bytes && !s->r->metaspace;
        if (first && is(step, "ByteLevel")) {
            st = read_byte_level(s, step);
        } else if (first && is(step, "Split")) {
            st = read_split(s, step);
        } else if (first && is(step, "Digits")) {
            bool single = json_is_true(json_object_get(step, "individual_digits"));
            st = add_stage(s, text_pattern_digits(single));
        } else if (s->r->unigram && i == 0 && !s->r->metaspace && is(step, "WhitespaceSplit")) {
            s->r->words = true;
        } else if (i == (s->r->words ? 1 : 0) && !s->r->nfc && is(step, "Metaspace")) {
            st = read_metaspace(s, step);
        } else if (s->r->metaspace && is(step, "Split") &&
                   strcmp(text_of(json_object_get(step, "pattern"), "String"), " ") == 0 &&
                   !json_is_true(json_object_get(step, "invert"))) {
            continue; /* Gemma's: at spaces, of which none is left */
        } else {
            st = unsupported(s, "pre_tokenizer", type_of(step));
        }
    }
    if (st == ATOM_OK && !s->bytes && !s->r->metaspace)
        st = unsupported(s, "pre_tokenizer",
                         absent(whole) ? "absent" : "without a ByteLevel or Metaspace step");
    return st;
}

/* The library takes the ids of a template's token from the template, not from the token of that name: they
 * must be the same, or the model has learned another one. */
static atom_status check_ids(const steps *s, const json_t *step, const char *token)
{
    const json_t *known = json_object_get(json_object_get(step, "special_tokens"), token), *entry;
    const json_t *ids = json_object_get(known, "ids"), *id = json_array_get(ids, 0);
    char what[160];
    size_t i;
    json_array_foreach((json_t *)(uintptr_t)s->added, i, entry)
    {
        const char *content = json_string_value(json_object_get(entry, "content"));
        if (!ids || !content || strcmp(content, token) != 0 ||
            (json_array_size(ids) == 1 && json_equal(id, json_object_get(entry, "id"))))
            continue;
        snprintf(what, sizeof what,
                 "a template whose \"%.40s\" has other ids than the added token of that name",
                 token);
        return unsupported(s, "post_processor", what);
    }
    return ATOM_OK;
}

/* A template of special tokens around one text: names of the first and the last. */
static atom_status read_template(steps *s, const json_t *step)
{
    const json_t *single = json_object_get(step, "single"), *piece;
    size_t i;
    bool text = false;
    json_array_foreach((json_t *)single, i, piece)
    {
        const char *token =
            json_string_value(json_object_get(json_object_get(piece, "SpecialToken"), "id"));
        if (token)
            ATOM_TRY(check_ids(s, step, token));
        if (json_object_get(piece, "Sequence") && !text)
            text = true;
        else if (token && !text && !s->begin)
            s->begin = token;
        else if (token && text && !s->finish)
            s->finish = token;
        else
            return unsupported(s, "post_processor", "a template of more than a token at each end");
    }
    return text ? ATOM_OK : unsupported(s, "post_processor", "a template without a text");
}

static atom_status read_post_processor(steps *s, const json_t *whole)
{
    const json_t *step;
    atom_status st = ATOM_OK;
    for (size_t i = 0; st == ATOM_OK && (step = step_at(whole, "processors", i)); i++) {
        if (is(step, "TemplateProcessing"))
            st = read_template(s, step);
        else if (!is(step, "ByteLevel") || s->r->metaspace)
            st = unsupported(s, "post_processor", type_of(step));
    }
    return st;
}

static atom_status read_decoder(steps *s, const json_t *whole)
{
    const json_t *step = step_at(whole, "decoders", 0);
    if (!step)
        return unsupported(s, "decoder", "absent");
    if (is(step, "Metaspace"))
        s->r->drop_first = strcmp(text_of(step, "prepend_scheme"), "never") != 0 &&
                           !json_is_false(json_object_get(step, "add_prefix_space"));
    for (size_t i = 0; (step = step_at(whole, "decoders", i)); i++) {
        bool known = s->r->metaspace
                         ? is(step, "Metaspace") || is(step, "Replace") ||
                               is(step, "ByteFallback") || is(step, "Fuse") || is(step, "Strip")
                         : is(step, "ByteLevel");
        if (!known)
            return unsupported(s, "decoder", type_of(step));
    }
    return ATOM_OK;
}

static atom_status read_model(steps *s, const json_t *model)
{
    const json_t *dropout = json_object_get(model, "dropout");
    if (!json_is_object(model))
        return atom_fail(ATOM_E_FORMAT,
                         "%s: \"model\" is missing; is it a complete tokenizer.json?", s->name);
    const char *type = json_string_value(json_object_get(model, "type"));
    s->r->fallback = json_is_true(json_object_get(model, "byte_fallback"));
    s->r->unigram = type && strcmp(type, "Unigram") == 0;
    if (s->r->unigram)
        return ATOM_OK;
    if (type && strcmp(type, "BPE") != 0)
        return unsupported(s, "model", type);
    if (!absent(dropout) && (!json_is_number(dropout) || json_number_value(dropout) != 0))
        return unsupported(s, "model.dropout", "not zero");
    if (!empty_text(json_object_get(model, "continuing_subword_prefix")))
        return unsupported(s, "model.continuing_subword_prefix", "not empty");
    if (!empty_text(json_object_get(model, "end_of_word_suffix")))
        return unsupported(s, "model.end_of_word_suffix", "not empty");
    s->r->ignore_merges = json_is_true(json_object_get(model, "ignore_merges"));
    return ATOM_OK;
}

/* Switches are read as "true or not", and texts as "this one or another": what is of another kind would be taken for
 * what is not there. */
static atom_status check_kinds(const steps *s, const char *part, const json_t *of)
{
    static const char *const switches[] = {"special",          "lstrip",        "rstrip",
                                           "single_word",      "normalized",    "strip_left",
                                           "strip_right",      "invert",        "split",
                                           "add_prefix_space", "use_regex",     "individual_digits",
                                           "byte_fallback",    "ignore_merges", "fuse_unk"};
    static const char *const texts[] = {"type",    "replacement", "prepend_scheme", "str_rep",
                                        "prepend", "content",     "behavior",       "unk_token"};
    for (size_t i = 0; i < sizeof switches / sizeof *switches; i++) {
        const json_t *value = json_object_get(of, switches[i]);
        if (!absent(value) && !json_is_boolean(value))
            return atom_fail(ATOM_E_FORMAT, "%s: \"%s\" of \"%s\" must be true or false", s->name,
                             switches[i], part);
    }
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const json_t *value = json_object_get(of, texts[i]);
        if (!absent(value) && !json_is_string(value))
            return atom_fail(ATOM_E_FORMAT, "%s: \"%s\" of \"%s\" must be a text", s->name,
                             texts[i], part);
    }
    return ATOM_OK;
}

static atom_status check_all_kinds(const steps *s, const json_t *root)
{
    static const char *const parts[][2] = {
        {"normalizer", "normalizers"}, {"pre_tokenizer", "pretokenizers"}, {"decoder", "decoders"}};
    const json_t *step, *version = json_object_get(root, "version");
    if (!absent(version) && (!json_is_string(version) || strcmp(json_string_value(version), "1.0")))
        return atom_fail(
            ATOM_E_UNSUPPORTED,
            "%s: \"version\" of the file is not \"1.0\", which is all that atom and the "
            "tokenizers library know",
            s->name);
    ATOM_TRY(check_kinds(s, "model", json_object_get(root, "model")));
    for (size_t i = 0; (step = json_array_get(s->added, i)); i++)
        ATOM_TRY(check_kinds(s, "added_tokens", step));
    for (size_t p = 0; p < sizeof parts / sizeof *parts; p++) {
        const json_t *whole = json_object_get(root, parts[p][0]);
        for (size_t i = 0; (step = step_at(whole, parts[p][1], i)); i++)
            ATOM_TRY(check_kinds(s, parts[p][0], step));
    }
    return ATOM_OK;
}

atom_status text_steps_read(const json_t *root, const char *name, text_recipe *out,
                            const char **begin, const char **finish)
{
    steps s = {.name = name, .r = out, .added = json_object_get(root, "added_tokens")};
    const json_t *model = json_object_get(root, "model");
    ATOM_TRY(check_all_kinds(&s, root));
    ATOM_TRY(read_model(&s, model));
    ATOM_TRY(read_normalizer(&s, json_object_get(root, "normalizer")));
    ATOM_TRY(read_pre_tokenizer(&s, json_object_get(root, "pre_tokenizer")));
    ATOM_TRY(read_post_processor(&s, json_object_get(root, "post_processor")));
    ATOM_TRY(read_decoder(&s, json_object_get(root, "decoder")));
    if (out->unigram && !out->metaspace)
        return unsupported(&s, "pre_tokenizer", "without metaspaces, beside a Unigram model");
    if (!out->unigram && out->fallback != out->metaspace)
        return unsupported(&s, "model.byte_fallback",
                           out->fallback ? "true without metaspaces" : "false with metaspaces");
    /* The library looks whole words up before it merges; atom cuts words into smaller pieces first. */
    if (out->metaspace && out->ignore_merges)
        return unsupported(&s, "model.ignore_merges", "true with metaspaces");
    *begin = s.begin;
    *finish = s.finish;
    return ATOM_OK;
}

atom_status text_steps_check(const json_t *root, const char *name)
{
    text_recipe recipe = {0};
    const char *begin, *finish;
    atom_status st = text_steps_read(root, name, &recipe, &begin, &finish);
    text_charsmap_close(&recipe.charsmap);
    return st;
}
