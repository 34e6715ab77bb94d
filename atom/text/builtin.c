/*
 * Owns the templates that atom has by name. One idea: each is, for every role, words before and
 * behind the text, and from these its source in Jinja is written, so that there is one way only from
 * a chat to tokens, and what was trained with can be saved beside the model. Refuses tokenizers
 * that lack a template's tokens.
 */
#include "atom/text/builtin.h"

#include "atom/base/mem.h"

#include <string.h>

typedef struct known_template {
    const char *name;
    const char *tokens[3]; /* that the tokenizer must have */
    struct {
        const char *before, *behind;
    } roles[TEXT_ROLES]; /* behind an answer: what counts as its part */
    const char *after_answer;
    bool trim;       /* white space around each message */
    bool take_turns; /* user, assistant, user ...; a system message goes into the first one */
} known_template;

#define LLAMA3(role)                                                                               \
    {                                                                                              \
        "<|start_header_id|>" role "<|end_header_id|>\n\n", "<|eot_id|>"                           \
    }
#define CHATML(role, behind)                                                                       \
    {                                                                                              \
        "<|im_start|>" role "\n", behind                                                           \
    }
static const known_template known[] = {
    {.name = "chatml",
     .tokens = {"<|im_start|>", "<|im_end|>"},
     .roles = {CHATML("system", "<|im_end|>\n"), CHATML("user", "<|im_end|>\n"),
               CHATML("assistant", "<|im_end|>"), CHATML("tool", "<|im_end|>\n")},
     .after_answer = "\n"},
    {.name = "llama3",
     .tokens = {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"},
     .roles = {LLAMA3("system"), LLAMA3("user"), LLAMA3("assistant"), LLAMA3("ipython")},
     .trim = true},
    {.name = "mistral",
     .roles = {{"", "\n\n"}, {"[INST] ", " [/INST]"}, {" ", "{end}"}, {"", ""}},
     .take_turns = true},
    {.name = "plain",
     .roles = {{"### System:\n", "\n\n"},
               {"### User:\n", "\n\n"},
               {"### Assistant:\n", "{end}"},
               {"### Tool:\n", "\n\n"}}},
};

static const char head[] =
    "{%- macro role_of(m) -%}{{- 'system' if m.role in ['system', 'developer'] else 'user' if "
    "m.role in ['user', 'human'] else 'assistant' if m.role in ['assistant', 'gpt', 'model', "
    "'bot', 'chatgpt', 'bing', 'function_call'] else 'tool' -}}{%- endmacro -%}{%- if tools "
    "-%}{{- raise_exception('the chat has tools, which this template cannot show; name another "
    "template, or put them into a system message') -}}{%- endif -%}{%- for m in messages if "
    "m.content is not string or m.tool_calls -%}{{- raise_exception('a message has tool_calls, "
    "or a content that is not text, which this template cannot show; write them as text') -}}{%- "
    "endfor -%}";

/* ---- writing ---- */

typedef struct writing {
    const text_specials *specials;
    char *at;
    size_t n, capacity;
} writing;

static atom_status put(writing *w, const char *text, size_t n)
{
    if (w->capacity - w->n <= n) {
        size_t want = (w->n + n) * 2 + 256;
        char *grown = atom_realloc(w->at, want, 1);
        if (!grown)
            return atom_fail_memory("a template", want);
        w->at = grown;
        w->capacity = want;
    }
    memcpy(w->at + w->n, text, n);
    w->n += n;
    w->at[w->n] = 0;
    return ATOM_OK;
}

static atom_status put_word(writing *w, const char *word)
{
    return put(w, word, strlen(word));
}

/* One byte inside of quotes. */
static atom_status put_quoted(writing *w, char c)
{
    if (c == '\n')
        return put(w, "\\n", 2);
    if (c == '\'' || c == '\\')
        ATOM_TRY(put(w, "\\", 1));
    return put(w, &c, 1);
}

/* Words of a template, its escapes and {start}, {end} undone, as a text of Jinja. */
static atom_status put_text(writing *w, const char *spec)
{
    const text_tokenizer *t = w->specials->tokenizer;
    size_t used, n;
    ATOM_TRY(put(w, "'", 1));
    for (; *spec; spec += used) {
        bool start = strncmp(spec, "{start}", 7) == 0, end = strncmp(spec, "{end}", 5) == 0;
        bool escaped = spec[0] == '\\' && spec[1] && strchr("nt\\", spec[1]);
        if (start || end) {
            const char *piece = text_tokenizer_piece(
                t, start ? text_tokenizer_start(t) : text_tokenizer_end(t), &n);
            for (size_t i = 0; i < n; i++)
                ATOM_TRY(put_quoted(w, piece[i]));
            used = start ? 7 : 5;
        } else {
            char c = !escaped ? spec[0] : spec[1] == 'n' ? '\n' : spec[1] == 't' ? '\t' : '\\';
            ATOM_TRY(put_quoted(w, c));
            used = escaped ? 2 : 1;
        }
    }
    return put(w, "'", 1);
}

/* ---- a template ---- */

static const char *behind_of(const known_template *k, const text_specials *s,
                             const text_builtin_words *words, text_role role)
{
    const char *own = role == TEXT_ASSISTANT ? words->answer_end : words->suffix;
    if (own)
        return own;
    /* Mistral's later tokenizers have [/INST] as a token, with no space before it. */
    if (k->take_turns && role == TEXT_USER && text_special_named(s, "[/INST]"))
        return "[/INST]";
    return k->roles[role].behind;
}

static const char *before_of(const known_template *k, const text_builtin_words *words,
                             text_role role)
{
    return words->prefix[role] ? words->prefix[role] : k->roles[role].before;
}

static atom_status put_role(writing *w, const known_template *k, const text_builtin_words *words,
                            text_role role)
{
    bool answer = role == TEXT_ASSISTANT;
    const char *content = k->trim ? "{{- m.content | trim -}}" : "{{- m.content -}}";
    ATOM_TRY(put_word(w, "{%- if role_of(m) == '"));
    ATOM_TRY(put_word(w, text_role_name(role)));
    ATOM_TRY(put_word(w, "' -%}{{- "));
    ATOM_TRY(put_text(w, before_of(k, words, role)));
    ATOM_TRY(put_word(w, " -}}"));
    if (k->take_turns && role == TEXT_USER)
        ATOM_TRY(put_word(w, "{{- system if loop.first -}}"));
    if (answer)
        ATOM_TRY(put_word(w, "{%- generation -%}"));
    ATOM_TRY(put_word(w, content));
    ATOM_TRY(put_word(w, "{{- "));
    ATOM_TRY(put_text(w, behind_of(k, w->specials, words, role)));
    ATOM_TRY(put_word(w, " -}}"));
    if (answer)
        ATOM_TRY(put_word(w, "{%- endgeneration -%}"));
    if (answer && k->after_answer && !words->answer_end) {
        ATOM_TRY(put_word(w, "{{- "));
        ATOM_TRY(put_text(w, k->after_answer));
        ATOM_TRY(put_word(w, " -}}"));
    }
    return put_word(w, "{%- endif -%}");
}

/* The system's message goes into the first one; the others take turns. */
static atom_status put_turns(writing *w, const known_template *k, const text_builtin_words *words)
{
    ATOM_TRY(put_word(w, "{%- set system = '' -%}{%- if messages and role_of(messages[0]) == "
                         "'system' -%}{%- set system = "));
    ATOM_TRY(put_text(w, before_of(k, words, TEXT_SYSTEM)));
    ATOM_TRY(put_word(w, " ~ messages[0].content ~ "));
    ATOM_TRY(put_text(w, behind_of(k, w->specials, words, TEXT_SYSTEM)));
    ATOM_TRY(put_word(w, " -%}{%- set skipped = 1 -%}{%- set messages = messages[1:] -%}"
                         "{%- endif -%}"
                         "{%- for m in messages -%}{%- set want = 'assistant' if loop.index0 % 2 "
                         "else 'user' -%}{%- if role_of(m) != want -%}{{- raise_exception("
                         "'message ' ~ (loop.index + (skipped or 0)) ~ ' is by the ' ~ "
                         "role_of(m) ~ ', but template "));
    ATOM_TRY(put_word(w, k->name));
    return put_word(w, " expects one by the ' ~ want ~ ' there') -}}{%- endif -%}{%- endfor -%}");
}

static atom_status write_source(writing *w, const known_template *k,
                                const text_builtin_words *words)
{
    ATOM_TRY(put_word(w, head));
    ATOM_TRY(put_word(w, "{{- "));
    ATOM_TRY(put_text(w, "{start}"));
    ATOM_TRY(put_word(w, " -}}"));
    if (k->take_turns)
        ATOM_TRY(put_turns(w, k, words));
    ATOM_TRY(put_word(w, "{%- for m in messages -%}"));
    for (int role = 0; role < TEXT_ROLES; role++)
        ATOM_TRY(put_role(w, k, words, (text_role)role));
    ATOM_TRY(put_word(w, "{%- endfor -%}{%- if add_generation_prompt -%}{{- "));
    ATOM_TRY(put_text(w, before_of(k, words, TEXT_ASSISTANT)));
    return put_word(w, " -}}{%- endif -%}\n");
}

bool text_builtin_changed(const text_builtin_words *w)
{
    bool changed = w->suffix || w->answer_end;
    for (int role = 0; role < TEXT_ROLES; role++)
        changed = changed || w->prefix[role];
    return changed;
}

atom_status text_builtin_source(const char *name, const text_specials *specials,
                                const text_builtin_words *words, char **source)
{
    enum { KNOWN = sizeof known / sizeof *known };
    writing w = {.specials = specials};
    size_t at = 0;
    while (at < KNOWN && strcmp(name, known[at].name) != 0)
        at++;
    if (at == KNOWN)
        return atom_fail(ATOM_E_USAGE,
                         "template '%s' is unknown; use auto (the model's own), chatml, llama3, "
                         "mistral or plain",
                         name);
    for (int i = 0; i < 3; i++)
        if (known[at].tokens[i] && !text_special_named(specials, known[at].tokens[i]))
            return atom_fail(ATOM_E_FORMAT,
                             "template %s needs the token %s, which the tokenizer does not have; "
                             "use the model's own tokenizer, or --template plain",
                             name, known[at].tokens[i]);
    atom_status st = write_source(&w, &known[at], words);
    if (st == ATOM_OK)
        *source = w.at;
    else
        atom_free(w.at);
    return st;
}
