/*
 * Renders chats for jinja_oracle.py: a line of JSON in, a line of JSON out, until the input ends.
 *
 * In: {"template", "messages", "tools", "documents", "names", "add_generation_prompt", "now"}.
 * Out: {"text", "answers": [[from, to], ...] in bytes} or {"error"}.
 */
#include "atom/base/mem.h"
#include "atom/text/jinja/jinja.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static json_t *answers_of(jinja_text t)
{
    json_t *all = json_array();
    for (size_t i = 0, from; i < t.n; i++) {
        if (!(t.marks[i] & JINJA_ANSWER))
            continue;
        for (from = i; i < t.n && (t.marks[i] & JINJA_ANSWER);)
            i++;
        json_array_append_new(all, json_pack("[I, I]", (json_int_t)from, (json_int_t)i));
    }
    return all;
}

static const json_t *present(const json_t *root, const char *key)
{
    const json_t *value = json_object_get(root, key);
    return json_is_null(value) ? NULL : value;
}

static atom_status render(const json_t *root, text_jinja_scratch *scratch, jinja_text *out)
{
    const json_t *messages = json_object_get(root, "messages"),
                 *source = json_object_get(root, "template");
    size_t n = json_array_size(messages);
    text_jinja *t = NULL;
    text_jinja_message *list = atom_alloc(n + 1, sizeof *list);
    if (!list)
        abort();
    for (size_t i = 0; i < n; i++)
        list[i].json = json_array_get(messages, i);
    text_jinja_input in = {.messages = list,
                           .messages_n = n,
                           .tools = present(root, "tools"),
                           .documents = present(root, "documents"),
                           .names = json_object_get(root, "names"),
                           .add_generation_prompt =
                               json_is_true(json_object_get(root, "add_generation_prompt")),
                           .now = json_integer_value(json_object_get(root, "now"))};
    atom_status st =
        text_jinja_open(json_string_value(source), json_string_length(source), "template", &t);
    if (st == ATOM_OK)
        st = text_jinja_render(t, scratch, &in, out);
    text_jinja_close(&t);
    atom_free(list);
    return st;
}

int main(void)
{
    text_jinja_scratch scratch = {0};
    char *line = NULL;
    size_t room = 0;
    while (getline(&line, &room, stdin) > 0) {
        json_t *root = json_loads(line, JSON_ALLOW_NUL, NULL);
        jinja_text text = {0};
        if (!root)
            return 1;
        json_t *said = render(root, &scratch, &text) == ATOM_OK
                           ? json_pack("{s:s%, s:o}", "text", text.n ? text.at : "", text.n,
                                       "answers", answers_of(text))
                           : json_pack("{s:s}", "error", atom_fail_message());
        char *out = json_dumps(said, JSON_COMPACT);
        puts(out ? out : "{}");
        fflush(stdout);
        free(out);
        json_decref(said);
        json_decref(root);
    }
    text_jinja_scratch_fini(&scratch);
    free(line);
    return 0;
}
