/*
 * Owns the way from a chat to marked tokens. One idea: the template's text is a row of special
 * tokens, where the template wrote their names, with runs of text between them, and each run is
 * encoded as one, so the ids are those of the whole rendered text. Refuses chats where the model
 * has no template and none was named.
 */
#include "atom/text/template.h"

#include "atom/base/files.h"
#include "atom/base/mem.h"
#include "atom/text/template_files.h"
#include "atom/text/variables.h"

#include <string.h>
#include <time.h>

struct text_template {
    const char *name;
    char *source;
    text_specials specials;
    text_jinja *jinja;
    json_t *names, *variables; /* variables NULL: none */
    int64_t now;
};

void text_template_close(text_template **template)
{
    text_template *t = *template;
    if (!t)
        return;
    text_jinja_close(&t->jinja);
    text_specials_fini(&t->specials);
    json_decref(t->names);
    json_decref(t->variables);
    atom_free(t->source);
    atom_free(t);
    *template = NULL;
}

const char *text_template_name(const text_template *t)
{
    return t->name;
}

const char *text_template_source(const text_template *t)
{
    return t->source;
}

/* ---- choosing ---- */

/* bos_token and eos_token by the tokenizer itself, where no file says them. */
static atom_status own_names(text_template *t)
{
    size_t begin_n, end_n;
    const text_tokenizer *k = t->specials.tokenizer;
    const char *begin = text_tokenizer_piece(k, text_tokenizer_start(k), &begin_n);
    const char *end = text_tokenizer_piece(k, text_tokenizer_end(k), &end_n);
    t->names = json_pack("{s:s%, s:s%}", "bos_token", begin, begin_n, "eos_token", end, end_n);
    return t->names ? ATOM_OK : atom_fail_memory("names of tokens", 0);
}

static atom_status compile(const char *source, const char *where, text_jinja **out)
{
    atom_status st = text_jinja_open(source, strlen(source), where, out);
    if (st != ATOM_E_FORMAT)
        return st;
    char *why = atom_strdup(atom_fail_message());
    st = why ? atom_fail(st,
                         "%s; atom cannot run this chat template; name another one with "
                         "--template, or correct it",
                         why)
             : atom_fail_memory("a message", 0);
    atom_free(why);
    return st;
}

static atom_status choose_own(text_template *t, const char *dir, const char *jinja)
{
    text_template_files b = {0};
    const char *where = "the model's chat template";
    atom_status st = ATOM_OK;
    if (dir)
        ATOM_TRY_CLEAN(text_template_files_read(dir, &b));
    if (jinja) {
        atom_free(b.source);
        atom_free(b.with_tools);
        b.with_tools = NULL;
        b.source = atom_strdup(jinja);
        if (!b.source)
            ATOM_TRY_CLEAN(atom_fail_memory("a chat template", strlen(jinja)));
    } else if (b.where) {
        where = b.where;
        ATOM_TRY_CLEAN(text_template_files_join(&b));
    }
    t->name = b.source ? "own" : "none";
    t->names = b.names;
    b.names = NULL;
    if (b.source)
        ATOM_TRY_CLEAN(compile(b.source, where, &t->jinja));
    t->source = b.source;
    b.source = NULL;
cleanup:
    text_template_files_fini(&b);
    return st;
}

/* What a template calls bos_token and so on is a token, not the letters of its name. */
static atom_status check_names(const text_template *t)
{
    const char *key;
    json_t *value;
    json_object_foreach(t->names, key, value)
    {
        const char *text = json_string_value(value);
        size_t n = json_string_length(value), used = 0;
        if (!n || !text_jinja_mentions(t->jinja, key) ||
            (text_special_at(&t->specials, text, n, &used) != TEXT_NOT_SPECIAL && used == n))
            continue;
        return atom_fail(ATOM_E_FORMAT,
                         "the chat template writes the %s, which is \"%.40s\" in "
                         "tokenizer_config.json, but tokenizer.json has no such added token, so it "
                         "would become ordinary text; correct the one or the other",
                         key, text);
    }
    return ATOM_OK;
}

static atom_status choose(text_template *t, const char *dir, const text_template_request *r)
{
    if (r->name && strcmp(r->name, "auto") != 0) {
        t->name = r->name;
        ATOM_TRY(text_builtin_source(r->name, &t->specials, &r->words, &t->source));
        return compile(t->source, r->name, &t->jinja);
    }
    if (text_builtin_changed(&r->words))
        return atom_fail(
            ATOM_E_USAGE,
            "options for prefixes, suffixes and ends change one of atom's own templates; name "
            "one with --template (chatml, llama3, mistral, plain)");
    return choose_own(t, dir, r->jinja);
}

atom_status text_template_open(const text_tokenizer *tokenizer, const char *tokenizer_dir,
                               const text_template_request *request, text_template **out)
{
    atom_status st = ATOM_OK;
    text_template *t = atom_alloc(1, sizeof *t);
    if (!t)
        return atom_fail_memory("a template", sizeof *t);
    t->now = (int64_t)time(NULL);
    ATOM_TRY_CLEAN(text_specials_init(&t->specials, tokenizer));
    ATOM_TRY_CLEAN(choose(t, tokenizer_dir, request));
    if (t->names && t->jinja)
        ATOM_TRY_CLEAN(check_names(t));
    if (!t->names)
        ATOM_TRY_CLEAN(own_names(t));
    if (request->variables)
        ATOM_TRY_CLEAN(text_variables_parse(request->variables, &t->variables));
    if (t->jinja)
        ATOM_TRY_CLEAN(text_variables_check(t->variables, t->jinja, ATOM_E_USAGE));
    *out = t;
    return ATOM_OK;
cleanup:
    text_template_close(&t);
    return st;
}

atom_status text_template_save(const text_template *t, const char *dir)
{
    char *path = atom_path_join(dir, "chat_template.jinja"), *text = NULL;
    atom_status st = ATOM_OK;
    if (!path)
        ATOM_TRY_CLEAN(atom_fail_memory("a path", strlen(dir)));
    ATOM_TRY_CLEAN(text_variables_settle(t->variables, t->source, &text));
    ATOM_TRY_CLEAN(atom_file_write(path, text, strlen(text)));
cleanup:
    atom_free(text);
    atom_free(path);
    return st;
}

/* ---- tokens ---- */

void text_marked_fini(text_marked *m)
{
    text_ids_fini(&m->ids);
    atom_free(m->marks);
    text_answers_fini(&m->answers);
    *m = (text_marked){0};
}

atom_status text_marked_set(text_marked *m, size_t from, bool counts)
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

typedef struct rendering {
    const text_template *t;
    text_encoder *e;
    text_marked *out;
} rendering;

/* Are the pieces from `from` on the text itself, byte for byte? */
static bool pieces_are_text(const rendering *r, size_t from, const char *text, size_t bytes)
{
    size_t at = 0, n;
    for (size_t i = from; i < r->out->ids.n; i++, at += n) {
        const char *piece = text_tokenizer_piece(r->t->specials.tokenizer, r->out->ids.ids[i], &n);
        if (n > bytes - at || memcmp(piece, text + at, n) != 0)
            return false;
    }
    return at == bytes;
}

/* Text behind a special token, or at the very beginning. */
static atom_status encode(rendering *r, size_t from, size_t bytes)
{
    const char *text = r->out->answers.text + from;
    return from ? text_encode_behind(r->e, text, bytes, &r->out->ids)
                : text_encode(r->e, text, bytes, &r->out->ids, NULL);
}

/* How many bytes of pieces the run's first `bytes` become: others than they are where the tokenizer
 * normalises, or puts a space in front. */
static atom_status measure(rendering *r, size_t from, size_t bytes, size_t *out)
{
    size_t before = r->out->ids.n, all = 0, n;
    atom_status st = encode(r, from, bytes);
    for (size_t i = before; i < r->out->ids.n; i++, all += n)
        text_tokenizer_piece(r->t->specials.tokenizer, r->out->ids.ids[i], &n);
    r->out->ids.n = before;
    *out = all;
    return st;
}

static bool is_answer(const rendering *r, size_t at)
{
    return (r->out->answers.marks[at] & JINJA_ANSWER) != 0;
}

/* The end of the stretch of bytes from `at` on that are all answer, or all not. */
static size_t stretch_end(const rendering *r, size_t at, size_t to)
{
    size_t end = at + 1;
    while (end < to && is_answer(r, end) == is_answer(r, at))
        end++;
    return end;
}

/* Encodes bytes [from, to). A token counts if it ends inside a stretch that does. */
static atom_status put_run(rendering *r, size_t from, size_t to)
{
    text_marked *m = r->out;
    size_t first = m->ids.n, at = 0, n;
    if (from == to)
        return ATOM_OK;
    ATOM_TRY(encode(r, from, to - from));
    ATOM_TRY(text_marked_set(m, first, false));
    bool same = pieces_are_text(r, first, m->answers.text + from, to - from);
    size_t stretch = from, end = stretch_end(r, from, to), limit = end - from;
    if (!same && end < to)
        ATOM_TRY(measure(r, from, end - from, &limit));
    for (size_t i = first; i < m->ids.n; i++) {
        text_tokenizer_piece(r->t->specials.tokenizer, m->ids.ids[i], &n);
        at += n;
        while (end < to && at > limit) {
            stretch = end;
            end = stretch_end(r, stretch, to);
            limit = end - from;
            if (!same && end < to)
                ATOM_TRY(measure(r, from, end - from, &limit));
        }
        m->marks[i] = is_answer(r, stretch);
    }
    return ATOM_OK;
}

/* The special token that the template itself wrote at `at`. Ordinary ones that are looked for in
 * normalised text are left to the run. */
static uint32_t special_here(const rendering *r, size_t at, size_t *used)
{
    const text_answers *a = &r->out->answers;
    if (a->marks[at] & JINJA_GIVEN)
        return TEXT_NOT_SPECIAL;
    uint32_t id = text_special_at(&r->t->specials, a->text + at, a->n - at, used);
    if (id != TEXT_NOT_SPECIAL && !text_tokenizer_control(r->t->specials.tokenizer, id) &&
        (text_tokenizer_manner(r->t->specials.tokenizer, id) & TEXT_LATE))
        return TEXT_NOT_SPECIAL;
    for (size_t i = 0; id != TEXT_NOT_SPECIAL && i < *used; i++)
        if (a->marks[at + i] & JINJA_GIVEN)
            id = TEXT_NOT_SPECIAL;
    return id;
}

static atom_status put_text(rendering *r)
{
    text_ids *ids = &r->out->ids;
    size_t run = 0, used = 0, n = r->out->answers.n;
    for (size_t at = 0; at < n;) {
        uint32_t id = special_here(r, at, &used);
        if (id == TEXT_NOT_SPECIAL) {
            at++;
            continue;
        }
        size_t from = at, to = at + used;
        ATOM_TRY(text_special_take(&r->t->specials, id, r->out->answers.text, n, run, &from, &to));
        ATOM_TRY(put_run(r, run, from));
        ATOM_TRY(atom_grow(&ids->ids, ids->n, &ids->capacity, sizeof *ids->ids));
        ids->ids[ids->n++] = id;
        ATOM_TRY(text_marked_set(r->out, ids->n - 1, is_answer(r, at)));
        run = at = to;
    }
    return put_run(r, run, n);
}

/* ---- chats ---- */

/* A list of the chat, or the one that variables bring: the chat's own, then everybody's. */
static const json_t *list_of(const text_template *t, const text_conversation *chat,
                             const json_t *own, const char *name)
{
    const json_t *set = json_object_get(chat->variables, name);
    set = set ? set : json_object_get(t->variables, name);
    return own ? own : json_array_size(set) ? set : NULL;
}

/* The named templates know the word as a role's, which says nothing of calls in messages. */
static atom_status check_calls(const text_template *t, const text_conversation *chat)
{
    bool named = strcmp(t->name, "own") != 0;
    for (size_t i = 0; named && i < chat->n; i++) {
        const json_t *call = json_object_get(chat->messages[i].json, "function_call");
        if (call && !json_is_null(call))
            return atom_fail(
                ATOM_E_FORMAT,
                "messages[%zu] has \"function_call\", which template %s does not show; "
                "write it into the content, or remove the key",
                i, t->name);
    }
    return ATOM_OK;
}

static atom_status render(const text_template *t, text_encoder *e, const text_conversation *given,
                          bool answers, bool prompt, text_marked *out)
{
    rendering r = {.t = t, .e = e, .out = out};
    text_conversation chat = *given;
    const text_answers_input in = {.template = t->jinja,
                                   .specials = &t->specials,
                                   .names = t->names,
                                   .variables = t->variables,
                                   .now = t->now};
    if (!in.template)
        return atom_fail(ATOM_E_FORMAT,
                         "the model has no chat template of its own; name one with --template: "
                         "chatml, llama3, mistral or plain");
    chat.tools = list_of(t, given, given->tools, "tools");
    chat.documents = list_of(t, given, given->documents, "documents");
    ATOM_TRY(text_variables_check(chat.variables, t->jinja, ATOM_E_FORMAT));
    ATOM_TRY(check_calls(t, &chat));
    ATOM_TRY(text_keys_check(t->jinja, &chat, &out->unseen));
    ATOM_TRY(text_answers_render(&out->answers, &in, &chat, answers, prompt));
    return put_text(&r);
}

atom_status text_template_render(const text_template *t, text_encoder *e,
                                 const text_conversation *chat, text_marked *out)
{
    return render(t, e, chat, true, false, out);
}

atom_status text_template_prompt(const text_template *t, text_encoder *e,
                                 const text_conversation *chat, text_marked *out)
{
    return render(t, e, chat, false, true, out);
}

atom_status text_template_stop(const text_template *t, text_encoder *e,
                               const text_conversation *chat, uint32_t *stop, bool *ends)
{
    text_marked m = {0};
    text_conversation answered = *chat;
    atom_status st = ATOM_OK;
    *stop = text_tokenizer_end(t->specials.tokenizer);
    *ends = false;
    text_message *messages = atom_alloc(chat->n + 1, sizeof *messages);
    if (!messages)
        return atom_fail_memory("messages", chat->n * sizeof *messages);
    if (chat->n)
        memcpy(messages, chat->messages, chat->n * sizeof *messages);
    messages[chat->n] = (text_message){.role = TEXT_ASSISTANT, .text = "x", .bytes = 1};
    answered.messages = messages;
    answered.n++;
    st = text_template_render(t, e, &answered, &m);
    for (size_t i = 0; i < m.ids.n && st == ATOM_OK; i++) /* the last token that is learnt */
        if (m.marks[i] && text_tokenizer_special(t->specials.tokenizer, m.ids.ids[i])) {
            *stop = m.ids.ids[i];
            *ends = true;
        }
    text_marked_fini(&m);
    atom_free(messages);
    return st;
}
