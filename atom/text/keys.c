/*
 * Owns the comparison of what messages hold with what a template looks at. One idea: a template can
 * show only what it has the name of. Refuses chats that would lose a part of what was said; counts
 * what lies beside it.
 */
#include "atom/text/keys.h"

#include <stdio.h>
#include <string.h>

/* As none, in data whose lines all have the same keys. */
static bool is_empty(const json_t *value)
{
    return !value || json_is_null(value) ||
           (json_is_string(value) && json_string_length(value) == 0) ||
           (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_object(value) && json_object_size(value) == 0);
}

static bool is_one_of(const char *key, const char *const *names)
{
    for (; *names; names++)
        if (strcmp(key, *names) == 0)
            return true;
    return false;
}

static atom_status check_key(const text_jinja *t, const text_message *m, size_t i, const char *key,
                             bool *unseen)
{
    static const char *const read[] = {
        "role",         "content",         "from", "value", "weight", "train", "training",
        "train_detail", "training_detail", "loss", NULL};
    static const char *const said[] = {"reasoning_content", "reasoning",     "thinking",
                                       "tool_calls",        "function_call", NULL};
    if (is_one_of(key, read) || (!m->plain && text_jinja_mentions(t, key)))
        return ATOM_OK;
    *unseen = true;
    if (!is_one_of(key, said))
        return ATOM_OK;
    return atom_fail(ATOM_E_FORMAT,
                     m->plain ? "conversations[%zu] has \"%s\", which is passed to templates "
                                "only from messages; write the line as messages, or remove the "
                                "key"
                              : "messages[%zu] has \"%s\", which the chat template does not "
                                "show; use a template that does, write it into the content, or "
                                "remove the key",
                     i, key);
}

/* Parts have their words under "text"; pictures and sounds would be names of tokens at most. */
static atom_status check_parts(const text_jinja *t, const text_message *m, size_t i)
{
    static const char *const media[] = {"image", "image_url",   "video",
                                        "audio", "input_audio", NULL};
    const json_t *parts = json_object_get(m->json, "content"), *part;
    size_t k;
    if (m->plain || !json_is_array(parts))
        return ATOM_OK;
    if (!text_jinja_mentions(t, "text"))
        return atom_fail(ATOM_E_FORMAT,
                         "messages[%zu] has a \"content\" of parts, but the chat template "
                         "expects a text; join the texts of the parts",
                         i);
    json_array_foreach(parts, k, part)
    {
        const char *type = json_string_value(json_object_get(part, "type"));
        if (type && is_one_of(type, media))
            return atom_fail(ATOM_E_FORMAT,
                             "messages[%zu]: part %zu of its content is of type \"%s\", but atom "
                             "trains only on text; remove the line",
                             i, k, type);
        if (type && strcmp(type, "text") != 0 && !text_jinja_mentions(t, type))
            return atom_fail(ATOM_E_FORMAT,
                             "messages[%zu]: part %zu of its content is of type \"%.40s\", which "
                             "the chat template does not show; make it a text, or remove it",
                             i, k, type);
    }
    return ATOM_OK;
}

static atom_status check_list(const text_jinja *t, const json_t *list, const char *name)
{
    if (!list || text_jinja_mentions(t, name))
        return ATOM_OK;
    return atom_fail(ATOM_E_FORMAT,
                     "the chat has \"%s\", which the chat template does not show; use a template "
                     "that does, write them into a message, or remove the key",
                     name);
}

atom_status text_keys_check(const text_jinja *t, const text_conversation *chat, text_unseen *unseen)
{
    const char *key;
    json_t *value;
    ATOM_TRY(check_list(t, chat->tools, "tools"));
    ATOM_TRY(check_list(t, chat->documents, "documents"));
    for (size_t i = 0; i < chat->n; i++) {
        const text_message *m = &chat->messages[i];
        bool any = false;
        if (!json_is_object(m->json))
            continue;
        ATOM_TRY(check_parts(t, m, i));
        json_object_foreach((json_t *)(uintptr_t)m->json, key, value)
        {
            bool one = false;
            if (is_empty(value))
                continue;
            ATOM_TRY(check_key(t, m, i, key, &one));
            if (one && unseen->messages == 0 && !any)
                snprintf(unseen->key, sizeof unseen->key, "%s", key);
            any = any || one;
        }
        unseen->messages += any;
    }
    return ATOM_OK;
}
