/*
 * Owns the way from a chat to marked tokens. One idea: a template is, for each role, a few parts
 * before and after the text, each a special token or a piece of text; a chat is then a row of
 * special tokens with runs of text between them, and each run is encoded as one, so the ids are
 * those of the whole rendered text. Refuses templates whose tokens the tokenizer does not have;
 * templates in Jinja are only recognised by their words. No library for Jinja takes its place: C
 * has none, and a rendered text would no longer say which of its tokens are answers.
 */
#include "atom/text/template.h"

#include "atom/base/files.h"
#include "atom/base/json.h"
#include "atom/base/mem.h"

#include <jansson.h>
#include <string.h>

/* ---- the known ones ---- */

typedef struct known_template {
    const char *name;
    const char *tokens[3]; /* that the tokenizer must have */
    const char *word;      /* of a chat_template that is this one */
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
     .word = "<|im_start|>",
     .roles = {CHATML("system", "<|im_end|>\n"), CHATML("user", "<|im_end|>\n"),
               CHATML("assistant", "<|im_end|>"), CHATML("tool", "<|im_end|>\n")},
     .after_answer = "\n"},
    {.name = "llama3",
     .tokens = {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"},
     .word = "<|start_header_id|>",
     .roles = {LLAMA3("system"), LLAMA3("user"), LLAMA3("assistant"), LLAMA3("ipython")},
     .trim = true},
    {.name = "mistral",
     .word = "[INST]",
     .roles = {{"", "\n\n"}, {"[INST] ", " [/INST]"}, {" ", "{end}"}, {NULL, NULL}},
     .take_turns = true},
    {.name = "plain",
     .roles = {{"### System:\n", "\n\n"},
               {"### User:\n", "\n\n"},
               {"### Assistant:\n", "{end}"},
               {"### Tool:\n", "\n\n"}}},
};
enum { CHATML_AT, LLAMA3_AT, MISTRAL_AT, PLAIN_AT, KNOWN };

/* ---- parts ---- */

typedef struct part {
    uint32_t id; /* of a special token; NO_ID: text */
    char *text;  /* owned */
    size_t bytes;
} part;
static const uint32_t NO_ID = UINT32_MAX;

typedef struct parts {
    part *items;
    size_t n, capacity;
} parts;

struct text_template {
    const text_tokenizer *tokenizer;
    const known_template *known;
    uint32_t *special; /* ids of special and added tokens */
    size_t special_n, special_capacity;
    parts before[TEXT_ROLES], behind[TEXT_ROLES], after_answer;
};

static void parts_fini(parts *p)
{
    for (size_t i = 0; i < p->n; i++)
        atom_free(p->items[i].text);
    atom_free(p->items);
}

void text_template_close(text_template **template)
{
    text_template *t = *template;
    if (!t)
        return;
    for (int role = 0; role < TEXT_ROLES; role++) {
        parts_fini(&t->before[role]);
        parts_fini(&t->behind[role]);
    }
    parts_fini(&t->after_answer);
    atom_free(t->special);
    atom_free(t);
    *template = NULL;
}

const char *text_template_name(const text_template *t)
{
    return t->known->name;
}

/* The longest special token that text starts with, or NO_ID. */
static uint32_t special_at(const text_template *t, const char *text, size_t bytes, size_t *used)
{
    uint32_t found = NO_ID;
    *used = 0;
    for (size_t i = 0; i < t->special_n; i++) {
        size_t n;
        const char *piece = text_tokenizer_piece(t->tokenizer, t->special[i], &n);
        if (n > *used && n <= bytes && memcmp(piece, text, n) == 0) {
            found = t->special[i];
            *used = n;
        }
    }
    return found;
}

static bool has_token(const text_template *t, const char *name)
{
    size_t used, n = strlen(name);
    return special_at(t, name, n, &used) != NO_ID && used == n;
}

/* What stands at the front of spec: a token, or one byte of text with its escape undone. */
static uint32_t front(const text_template *t, const char *spec, size_t *used, char *byte)
{
    if (strncmp(spec, "{start}", 7) == 0 || strncmp(spec, "{end}", 5) == 0) {
        *used = spec[1] == 's' ? 7 : 5;
        return spec[1] == 's' ? text_tokenizer_start(t->tokenizer)
                              : text_tokenizer_end(t->tokenizer);
    }
    uint32_t id = special_at(t, spec, strlen(spec), used);
    if (id != NO_ID)
        return id;
    bool escaped = spec[0] == '\\' && spec[1] && strchr("nt\\", spec[1]);
    *used = escaped ? 2 : 1;
    *byte = !escaped ? spec[0] : spec[1] == 'n' ? '\n' : spec[1] == 't' ? '\t' : '\\';
    return NO_ID;
}

static atom_status compile(const text_template *t, const char *spec, parts *out)
{
    size_t used, room = strlen(spec);
    part *text = NULL;
    for (; *spec; spec += used) {
        char byte = 0;
        uint32_t id = front(t, spec, &used, &byte);
        if (id != NO_ID || !text) {
            ATOM_TRY(atom_grow((void **)&out->items, out->n, &out->capacity, sizeof *out->items));
            out->items[out->n++] = (part){.id = id};
            text = NULL;
        }
        if (id != NO_ID)
            continue;
        if (!text) {
            text = &out->items[out->n - 1];
            text->text = atom_alloc(room + 1, 1);
            if (!text->text)
                return atom_fail_memory("a template", room);
        }
        text->text[text->bytes++] = byte;
    }
    return ATOM_OK;
}

/* ---- choosing ---- */

/* Which template a chat_template in Jinja is, by its words; PLAIN_AT if by none. */
static size_t recognise(const char *jinja)
{
    for (size_t i = 0; jinja && i < PLAIN_AT; i++)
        if (strstr(jinja, known[i].word))
            return i;
    return PLAIN_AT;
}

static atom_status read_file(const char *dir, const char *name, char **text, uint64_t *bytes)
{
    static const uint64_t MAX = 16 << 20;
    char *path = atom_path_join(dir, name);
    atom_status st = path ? ATOM_OK : atom_fail_memory("a path", strlen(dir));
    if (path && atom_path_exists(path))
        st = atom_file_read(path, MAX, text, bytes);
    atom_free(path);
    return st;
}

/* A template, or a list of {name, template} with one that is the default. */
static const char *default_template(const json_t *value)
{
    const json_t *entry;
    size_t i;
    json_array_foreach(value, i, entry)
    {
        const char *name = json_string_value(json_object_get(entry, "name"));
        if (name && strcmp(name, "default") == 0)
            return json_string_value(json_object_get(entry, "template"));
    }
    return json_string_value(value);
}

static atom_status look_beside(const char *dir, size_t *out)
{
    atom_status st = ATOM_OK;
    char *jinja = NULL, *config = NULL;
    uint64_t bytes = 0;
    json_t *root = NULL;
    json_error_t error;
    ATOM_TRY_CLEAN(read_file(dir, "chat_template.jinja", &jinja, &bytes));
    *out = recognise(jinja);
    if (jinja)
        goto cleanup;
    ATOM_TRY_CLEAN(read_file(dir, "tokenizer_config.json", &config, &bytes));
    /* transformers writes model_max_length as 10^30: an integer for nobody else */
    root = config ? json_loadb(config, (size_t)bytes, JSON_DECODE_INT_AS_REAL, &error) : NULL;
    if (config && !root && atom_json_starved(&error))
        st = atom_fail_memory("tokenizer_config.json", (size_t)bytes);
    else if (config && !root)
        st = atom_fail(ATOM_E_FORMAT,
                       "%s: its tokenizer_config.json is not JSON (line %d: %s); copy the model "
                       "again, or choose a --template",
                       dir, error.line, error.text);
    *out = recognise(default_template(json_object_get(root, "chat_template")));
cleanup:
    json_decref(root);
    atom_free(jinja);
    atom_free(config);
    return st;
}

static size_t choose_by_tokens(const text_template *t)
{
    if (has_token(t, "<|im_start|>") && has_token(t, "<|im_end|>"))
        return CHATML_AT;
    if (has_token(t, "<|start_header_id|>") && has_token(t, "<|eot_id|>"))
        return LLAMA3_AT;
    return has_token(t, "[INST]") ? MISTRAL_AT : PLAIN_AT;
}

static atom_status choose(text_template *t, const char *dir, const char *jinja, const char *name)
{
    size_t at = PLAIN_AT;
    if (name && strcmp(name, "auto") != 0) {
        for (at = 0; at < KNOWN && strcmp(name, known[at].name) != 0;)
            at++;
        if (at == KNOWN)
            return atom_fail(ATOM_E_USAGE,
                             "template '%s': it is auto, chatml, llama3, mistral or plain", name);
    } else {
        if (jinja) {
            at = recognise(jinja);
        } else if (dir) {
            ATOM_TRY(look_beside(dir, &at));
        }
        at = at == PLAIN_AT ? choose_by_tokens(t) : at;
    }
    t->known = &known[at];
    for (int i = 0; i < 3; i++)
        if (known[at].tokens[i] && !has_token(t, known[at].tokens[i]))
            return atom_fail(ATOM_E_FORMAT,
                             "template %s needs the token %s, which the tokenizer does not have; "
                             "take the model's own tokenizer, or --template plain",
                             known[at].name, known[at].tokens[i]);
    return ATOM_OK;
}

static atom_status list_special(text_template *t)
{
    for (uint32_t id = 0; id < text_tokenizer_vocab(t->tokenizer); id++) {
        if (!text_tokenizer_special(t->tokenizer, id))
            continue;
        ATOM_TRY(atom_grow((void **)&t->special, t->special_n, &t->special_capacity,
                           sizeof *t->special));
        t->special[t->special_n++] = id;
    }
    return ATOM_OK;
}

static atom_status compile_role(text_template *t, const text_template_request *r, text_role role)
{
    const char *before = r->prefix[role] ? r->prefix[role] : t->known->roles[role].before;
    const char *own = role == TEXT_ASSISTANT ? r->answer_end : r->suffix;
    const char *behind = own ? own : t->known->roles[role].behind;
    atom_status st = ATOM_OK;
    /* Mistral's later tokenizers have [/INST] as a token, with no space before it. */
    if (!own && t->known == &known[MISTRAL_AT] && role == TEXT_USER && has_token(t, "[/INST]"))
        behind = "[/INST]";
    if (before)
        st = compile(t, before, &t->before[role]);
    if (st == ATOM_OK && behind)
        st = compile(t, behind, &t->behind[role]);
    return st;
}

atom_status text_template_open(const text_tokenizer *tokenizer, const char *tokenizer_dir,
                               const text_template_request *request, text_template **out)
{
    atom_status st = ATOM_OK;
    text_template *t = atom_alloc(1, sizeof *t);
    if (!t)
        return atom_fail_memory("a template", sizeof *t);
    t->tokenizer = tokenizer;
    ATOM_TRY_CLEAN(list_special(t));
    ATOM_TRY_CLEAN(choose(t, tokenizer_dir, request->jinja, request->name));
    for (int role = 0; role < TEXT_ROLES; role++)
        ATOM_TRY_CLEAN(compile_role(t, request, (text_role)role));
    if (t->known->after_answer && !request->answer_end)
        ATOM_TRY_CLEAN(compile(t, t->known->after_answer, &t->after_answer));
    *out = t;
    return ATOM_OK;
cleanup:
    text_template_close(&t);
    return st;
}

/* ---- rendering ---- */

void text_marked_fini(text_marked *m)
{
    text_ids_fini(&m->ids);
    atom_free(m->marks);
    atom_free(m->run);
    *m = (text_marked){0};
}

/* Stretches of the run under way, that count or do not. */
typedef struct stretch {
    size_t end;
    bool counts;
} stretch;

enum { STRETCHES_MAX = 64 };
typedef struct rendering {
    const text_template *t;
    text_encoder *e;
    text_marked *out;
    size_t run_n;
    stretch stretches[STRETCHES_MAX];
    size_t stretches_n;
} rendering;

static atom_status mark(text_marked *m, size_t from, bool counts)
{
    if (m->marks_capacity < m->ids.n) {
        size_t want = m->ids.n + m->ids.n / 2 + 256;
        uint8_t *grown = atom_realloc(m->marks, want, 1);
        if (!grown)
            return atom_fail_memory("the marks of a chat", want);
        m->marks = grown;
        m->marks_capacity = want;
    }
    memset(m->marks + from, counts, m->ids.n - from);
    return ATOM_OK;
}

static size_t pieces_bytes(const rendering *r, size_t from)
{
    size_t all = 0, n;
    for (size_t i = from; i < r->out->ids.n; i++) {
        text_tokenizer_piece(r->t->tokenizer, r->out->ids.ids[i], &n);
        all += n;
    }
    return all;
}

/* Are the pieces from `from` on the run itself, byte for byte? */
static bool pieces_are_run(const rendering *r, size_t from)
{
    size_t at = 0, n;
    for (size_t i = from; i < r->out->ids.n; i++, at += n) {
        const char *piece = text_tokenizer_piece(r->t->tokenizer, r->out->ids.ids[i], &n);
        if (n > r->run_n - at || memcmp(piece, r->out->run + at, n) != 0)
            return false;
    }
    return at == r->run_n;
}

/* How many bytes of pieces the run's first `bytes` become: others than they are where the tokenizer
 * normalises, or puts a space in front. */
static atom_status measure(rendering *r, size_t bytes, size_t *out)
{
    size_t from = r->out->ids.n;
    atom_status st = text_encode_behind(r->e, r->out->run, bytes, &r->out->ids);
    *out = pieces_bytes(r, from);
    r->out->ids.n = from;
    return st;
}

/* Encodes the run. A token counts if it ends inside a stretch that does. */
static atom_status flush(rendering *r)
{
    text_marked *m = r->out;
    size_t from = m->ids.n, at = 0, k = 0, n;
    if (r->run_n == 0)
        return ATOM_OK;
    ATOM_TRY(text_encode_behind(r->e, m->run, r->run_n, &m->ids));
    ATOM_TRY(mark(m, from, false));
    if (!pieces_are_run(r, from))
        for (size_t i = 0; i < r->stretches_n; i++)
            ATOM_TRY(measure(r, r->stretches[i].end, &r->stretches[i].end));
    for (size_t i = from; i < m->ids.n; i++) {
        text_tokenizer_piece(r->t->tokenizer, m->ids.ids[i], &n);
        at += n;
        while (k + 1 < r->stretches_n && at > r->stretches[k].end)
            k++;
        m->marks[i] = r->stretches[k].counts;
    }
    r->run_n = r->stretches_n = 0;
    return ATOM_OK;
}

static atom_status put_text(rendering *r, const char *text, size_t bytes, bool counts)
{
    text_marked *m = r->out;
    size_t want = r->run_n + bytes;
    if (bytes == 0)
        return ATOM_OK;
    if (want > m->run_capacity) {
        want += want / 2;
        char *grown = atom_realloc(m->run, want, 1);
        if (!grown)
            return atom_fail_memory("a chat", want);
        m->run = grown;
        m->run_capacity = want;
    }
    memcpy(m->run + r->run_n, text, bytes);
    r->run_n += bytes;
    if (r->stretches_n && r->stretches[r->stretches_n - 1].counts == counts)
        r->stretches_n--;
    else if (r->stretches_n == STRETCHES_MAX)
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "a chat of many turns with no special token between them; give the "
                         "template a token, such as {end}, after each answer");
    r->stretches[r->stretches_n++] = (stretch){r->run_n, counts};
    return ATOM_OK;
}

static atom_status put_parts(rendering *r, const parts *p, bool counts)
{
    text_ids *ids = &r->out->ids;
    for (size_t i = 0; i < p->n; i++) {
        if (p->items[i].id == NO_ID) {
            ATOM_TRY(put_text(r, p->items[i].text, p->items[i].bytes, counts));
            continue;
        }
        ATOM_TRY(flush(r));
        ATOM_TRY(atom_grow((void **)&ids->ids, ids->n, &ids->capacity, sizeof *ids->ids));
        ids->ids[ids->n++] = p->items[i].id;
        ATOM_TRY(mark(r->out, ids->n - 1, counts));
    }
    return ATOM_OK;
}

/* Bytes of the white space that [at, end) starts with, as Python's str.strip sees it; 0: none. */
static size_t blank_at(const char *at, const char *end)
{
    static const char *const wide[] = {"\xc2\x85", "\xc2\xa0", "\u1680", "\u2028",
                                       "\u2029",   "\u202f",   "\u205f", "\u3000"};
    size_t left = (size_t)(end - at);
    if (left && (*at == ' ' || (*at >= '\t' && *at <= '\r') || (*at >= 0x1c && *at <= 0x1f)))
        return 1;
    for (size_t i = 0; i < sizeof wide / sizeof *wide; i++) {
        size_t n = strlen(wide[i]);
        if (n <= left && memcmp(at, wide[i], n) == 0)
            return n;
    }
    /* U+2000 to U+200A */
    return left >= 3 && memcmp(at, "\xe2\x80", 2) == 0 && (uint8_t)at[2] <= 0x8a ? 3 : 0;
}

static void trim(const char **text, size_t *bytes)
{
    const char *at = *text, *end = at + *bytes;
    for (size_t n; (n = blank_at(at, end));)
        at += n;
    for (bool more = true; more && end > at;) {
        const char *last = end - 1;
        while (last > at && ((uint8_t)*last & 0xc0) == 0x80)
            last--;
        more = blank_at(last, end) > 0;
        end = more ? last : end;
    }
    *text = at;
    *bytes = (size_t)(end - at);
}

static atom_status put_message(rendering *r, const text_message *m, const text_message *system)
{
    const char *text = m->text;
    size_t bytes = m->bytes;
    bool answer = m->role == TEXT_ASSISTANT;
    if (r->t->known->trim)
        trim(&text, &bytes);
    ATOM_TRY(put_parts(r, &r->t->before[m->role], false));
    if (system) {
        ATOM_TRY(put_parts(r, &r->t->before[TEXT_SYSTEM], false));
        ATOM_TRY(put_text(r, system->text, system->bytes, false));
        ATOM_TRY(put_parts(r, &r->t->behind[TEXT_SYSTEM], false));
    }
    ATOM_TRY(put_text(r, text, bytes, answer));
    ATOM_TRY(put_parts(r, &r->t->behind[m->role], answer));
    if (answer)
        ATOM_TRY(put_parts(r, &r->t->after_answer, false));
    return ATOM_OK;
}

atom_status text_template_render(const text_template *t, text_encoder *e,
                                 const text_message *messages, size_t n, text_marked *out)
{
    rendering r = {.t = t, .e = e, .out = out};
    bool turns = t->known->take_turns;
    const text_message *system = NULL;
    if (turns && n && messages[0].role == TEXT_SYSTEM) {
        system = messages++;
        n--;
    }
    for (size_t i = 0; i < n; i++) {
        text_role want = i % 2 ? TEXT_ASSISTANT : TEXT_USER;
        if (turns && messages[i].role != want)
            return atom_fail(
                ATOM_E_FORMAT,
                "message %zu is by the %s, but template %s expects one by the %s there",
                i + 1 + (system != NULL), text_role_name(messages[i].role), t->known->name,
                text_role_name(want));
        ATOM_TRY(put_message(&r, &messages[i], i == 0 ? system : NULL));
    }
    return flush(&r);
}
