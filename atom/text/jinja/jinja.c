/*
 * Owns a template from its source to a rendered chat. One idea: the tree is made once in a heap of
 * its own and only read afterwards; each rendering has another heap, which is emptied before the
 * next one. Refuses sources that are too long or not UTF-8.
 */
#include "atom/text/jinja/jinja.h"

#include "atom/base/mem.h"
#include "atom/text/jinja/parse.h"
#include "atom/text/jinja/run.h"
#include "atom/text/utf8.h"

#include <string.h>

struct text_jinja {
    jinja_heap heap; /* of the tree */
    jinja_tokens tokens;
    jinja_nodes body;
    bool generation;
    char *name;
};

void text_jinja_close(text_jinja **template)
{
    text_jinja *t = *template;
    if (!t)
        return;
    jinja_heap_fini(&t->heap);
    atom_free(t->name);
    atom_free(t);
    *template = NULL;
}

static atom_status parse(text_jinja *t, const char *source, size_t bytes)
{
    jinja_parser p = {.h = &t->heap, .tokens = &t->tokens};
    ATOM_TRY(jinja_lex(&t->heap, source, bytes, &t->tokens));
    ATOM_TRY(jinja_parse(&p, &t->body));
    t->generation = p.generation;
    return ATOM_OK;
}

atom_status text_jinja_open(const char *source, size_t bytes, const char *name, text_jinja **out)
{
    atom_status st = ATOM_OK;
    text_jinja *t = atom_alloc(1, sizeof *t);
    if (t)
        t->name = atom_strdup(name);
    if (!t || !t->name)
        ATOM_TRY_CLEAN(atom_fail_memory("a chat template", sizeof *t));
    t->heap.name = t->name;
    t->heap.line = 1;
    if (bytes > JINJA_SOURCE_MAX)
        ATOM_TRY_CLEAN(
            jinja_fail(&t->heap, "%zu bytes; a template has at most %d", bytes, JINJA_SOURCE_MAX));
    if (text_utf8_check(source, bytes) != bytes)
        ATOM_TRY_CLEAN(jinja_fail(&t->heap, "it is not UTF-8"));
    ATOM_TRY_CLEAN(parse(t, source, bytes));
    *out = t;
    return ATOM_OK;
cleanup:
    text_jinja_close(&t);
    return st;
}

bool text_jinja_has_generation(const text_jinja *t)
{
    return t->generation;
}

bool text_jinja_mentions(const text_jinja *t, const char *word)
{
    size_t n = strlen(word);
    for (size_t i = 0; i < t->tokens.n; i++) {
        const jinja_token *k = &t->tokens.items[i];
        bool is_word = k->kind == JINJA_T_NAME || k->kind == JINJA_T_STRING;
        if (is_word && k->n == n && memcmp(k->at, word, n) == 0)
            return true;
    }
    return false;
}

void text_jinja_scratch_fini(text_jinja_scratch *s)
{
    jinja_heap_fini(&s->heap);
}

/* A role is nothing that the message says. Letters alone cannot forge a token, so such a role is as
 * the template's own: some make tokens of it. */
static jinja_mark role_mark(const char *role)
{
    size_t n = role ? strlen(role) : 0;
    return n && strspn(role, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_") == n
               ? 0
               : JINJA_GIVEN;
}

static atom_status message_value(jinja_heap *h, const text_jinja_message *m, size_t number,
                                 jinja_value *out)
{
    jinja_value item;
    const jinja_mark mark = (jinja_mark)(JINJA_GIVEN | number);
    const char *key;
    json_t *value;
    if (m->json && !json_is_object(m->json))
        return jinja_from_json(h, m->json, mark, out);
    ATOM_TRY(jinja_new_dict(h, JINJA_DICT, out));
    if (!m->json) {
        ATOM_TRY(jinja_from_bytes(h, m->role, strlen(m->role), role_mark(m->role), &item));
        ATOM_TRY(jinja_set_name(h, out->dict, "role", item));
        ATOM_TRY(jinja_from_bytes(h, m->text, m->bytes, mark, &item));
        return jinja_set_name(h, out->dict, "content", item);
    }
    json_object_foreach((json_t *)(uintptr_t)m->json, key, value)
    {
        bool role = strcmp(key, "role") == 0;
        jinja_value name;
        ATOM_TRY(jinja_from_bytes(h, key, strlen(key), mark, &name));
        ATOM_TRY(
            jinja_from_json(h, value, role ? role_mark(json_string_value(value)) : mark, &item));
        ATOM_TRY(jinja_set(h, out->dict, name, item));
    }
    return ATOM_OK;
}

static atom_status add_json(jinja_heap *h, jinja_dict *globals, const char *name,
                            const json_t *json, jinja_mark mark)
{
    jinja_value v = jinja_none();
    if (json)
        ATOM_TRY(jinja_from_json(h, json, mark, &v));
    return jinja_set_name(h, globals, name, v);
}

static atom_status make_globals(jinja_heap *h, const text_jinja_input *in, jinja_dict *globals)
{
    jinja_value messages, one;
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)in->names, name, value)
        ATOM_TRY(add_json(h, globals, name, value, 0));
    for (int i = 0; i < 2; i++)
        json_object_foreach((json_t *)(uintptr_t)in->variables[i], name, value)
            ATOM_TRY(add_json(h, globals, name, value, JINJA_GIVEN));
    if (in->messages_n > JINJA_MESSAGE)
        return jinja_fail(h, "a chat of more than %d messages", JINJA_MESSAGE);
    ATOM_TRY(jinja_new_list(h, JINJA_LIST, &messages));
    for (size_t i = 0; i < in->messages_n; i++) {
        ATOM_TRY(message_value(h, &in->messages[i], i + 1, &one));
        ATOM_TRY(jinja_append(h, messages.list, one));
    }
    ATOM_TRY(jinja_set_name(h, globals, "messages", messages));
    ATOM_TRY(add_json(h, globals, "tools", in->tools, JINJA_GIVEN));
    ATOM_TRY(add_json(h, globals, "documents", in->documents, JINJA_GIVEN));
    return jinja_set_name(h, globals, "add_generation_prompt",
                          jinja_bool(in->add_generation_prompt));
}

atom_status text_jinja_render(const text_jinja *t, text_jinja_scratch *s,
                              const text_jinja_input *in, jinja_text *out)
{
    jinja_dict globals = {0};
    jinja_heap *h = &s->heap;
    jinja_heap_release(h, (jinja_heap_mark){0});
    h->steps = h->depth = h->line = 0;
    h->name = t->name;
    ATOM_TRY(make_globals(h, in, &globals));
    return jinja_run_template(h, &t->body, &globals, in->now, out);
}
