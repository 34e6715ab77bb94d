/*
 * Owns the shapes of chats in JSONL. One idea: each shape is a list of messages with one of four
 * roles, and whatever reads chats sees only that. Refuses what it does not understand, with the
 * file, the line and the place inside it; nothing is guessed and nothing dropped.
 */
#include "atom/text/chat.h"

#include "atom/base/mem.h"
#include "atom/text/line.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const format_names[] = {
    [TEXT_FORMAT_AUTO] = "auto",         [TEXT_FORMAT_TEXT] = "text",
    [TEXT_FORMAT_MESSAGES] = "messages", [TEXT_FORMAT_SHAREGPT] = "sharegpt",
    [TEXT_FORMAT_ALPACA] = "alpaca",     [TEXT_FORMAT_PROMPT] = "prompt"};
static const char *const role_names[] = {[TEXT_SYSTEM] = "system",
                                         [TEXT_USER] = "user",
                                         [TEXT_ASSISTANT] = "assistant",
                                         [TEXT_TOOL] = "tool"};

const char *text_format_name(text_format format)
{
    return format_names[format];
}

const char *text_role_name(text_role role)
{
    return role_names[role];
}

void text_chat_fini(text_chat *c)
{
    atom_free(c->messages);
    atom_free(c->joined);
    *c = (text_chat){0};
}

/* The line that is read, for messages. */
typedef struct reading {
    const json_t *root;
    const char *name;
    uint64_t line;
    text_chat *c;
} reading;

static atom_status add(const reading *r, text_role role, const char *text, size_t bytes)
{
    text_chat *c = r->c;
    atom_status st = atom_grow(&c->messages, c->n, &c->capacity, sizeof *c->messages);
    if (st == ATOM_OK)
        c->messages[c->n++] = (text_message){.role = role, .text = text, .bytes = bytes};
    return st;
}

/* The string root[key], which must be there unless optional; then an empty one is as none. */
static atom_status add_key(const reading *r, const char *key, text_role role, bool optional)
{
    const json_t *value = json_object_get(r->root, key);
    if (optional && (!value || json_is_null(value)))
        return ATOM_OK;
    if (!json_is_string(value))
        return text_fail_line(r->name, r->line,
                              value ? "the \"%s\" is not a string" : "there is no \"%s\"", key);
    if (optional && json_string_length(value) == 0)
        return ATOM_OK;
    return add(r, role, json_string_value(value), json_string_length(value));
}

/* Names of the roles in all shapes. */
static bool find_role(const char *name, text_role *out)
{
    static const struct {
        const char *name;
        text_role role;
    } names[] = {
        {"system", TEXT_SYSTEM},       {"developer", TEXT_SYSTEM},
        {"user", TEXT_USER},           {"human", TEXT_USER},
        {"assistant", TEXT_ASSISTANT}, {"gpt", TEXT_ASSISTANT},
        {"model", TEXT_ASSISTANT},     {"bot", TEXT_ASSISTANT},
        {"chatgpt", TEXT_ASSISTANT},   {"bing", TEXT_ASSISTANT},
        {"tool", TEXT_TOOL},           {"function", TEXT_TOOL},
        {"observation", TEXT_TOOL},    {"function_call", TEXT_ASSISTANT},
        {"ipython", TEXT_TOOL},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(name, names[i].name) == 0) {
            *out = names[i].role;
            return true;
        }
    }
    return false;
}

/* One word says whether the message is learnt; another before it (*said) must not have said otherwise. */
static atom_status say(const reading *r, const char *list, size_t i, const char *word, bool learnt,
                       const char **said, bool *out)
{
    if (*said && *out != learnt)
        return text_fail_line(
            r->name, r->line,
            "%s[%zu]: its \"%s\" says that it is learned and its \"%s\" that it is "
            "not; leave out one of them",
            list, i, learnt ? word : *said, learnt ? *said : word);
    *said = word;
    *out = learnt;
    return ATOM_OK;
}

/* What the words of a weight say: is the message learnt? *out stays where they say nothing. */
static atom_status take_weight(const reading *r, const char *list, size_t i, const json_t *message,
                               bool *out)
{
    static const char *const flags[] = {"train", "training", "loss"};
    static const char *const details[] = {"train_detail", "training_detail"};
    const json_t *weight = json_object_get(message, "weight");
    const char *said = NULL;
    double value = json_number_value(weight);
    if (weight && !json_is_null(weight)) {
        if (!json_is_number(weight) || (value != 0 && value != 1))
            return text_fail_line(r->name, r->line, "%s[%zu]: its \"weight\" is neither 0 nor 1",
                                  list, i);
        ATOM_TRY(say(r, list, i, "weight", value != 0, &said, out));
    }
    for (size_t k = 0; k < sizeof details / sizeof *details; k++)
        if (text_line_has(message, details[k]))
            return text_fail_line(r->name, r->line,
                                  "%s[%zu]: \"%s\" gives weights to parts of a message, which "
                                  "atom does not support; give the whole message a \"weight\" of "
                                  "0 or 1",
                                  list, i, details[k]);
    for (size_t k = 0; k < sizeof flags / sizeof *flags; k++) {
        const json_t *flag = json_object_get(message, flags[k]);
        if (!text_line_has(message, flags[k]))
            continue;
        if (!json_is_boolean(flag))
            return text_fail_line(r->name, r->line, "%s[%zu]: its \"%s\" is neither true nor false",
                                  list, i, flags[k]);
        ATOM_TRY(say(r, list, i, flags[k], json_is_true(flag), &said, out));
    }
    return ATOM_OK;
}

/* An answer is learnt unless its weight says otherwise; nothing else is, whatever its weight. */
static atom_status weigh(const reading *r, const char *list, size_t i, const json_t *json,
                         text_message *message)
{
    bool answer = message->role == TEXT_ASSISTANT, learnt = answer;
    ATOM_TRY(take_weight(r, list, i, json, &learnt));
    if (learnt && !answer)
        return text_fail_line(r->name, r->line,
                              "%s[%zu] is by the %s and has a weight above 0, but only answers "
                              "are learned; remove its weight",
                              list, i, text_role_name(message->role));
    message->silent = answer && !learnt;
    return ATOM_OK;
}

static atom_status add_message(const reading *r, const char *list, size_t i, const json_t *message,
                               const char *role_key, const char *text_key)
{
    text_role role;
    const char *name = json_string_value(json_object_get(message, role_key));
    const json_t *text = json_object_get(message, text_key);
    if (!json_is_object(message))
        return text_fail_line(r->name, r->line, "%s[%zu] is not an object", list, i);
    if (!name)
        return text_fail_line(r->name, r->line, "%s[%zu] has no string \"%s\"", list, i, role_key);
    if (!find_role(name, &role))
        return text_fail_line(r->name, r->line,
                              "%s[%zu]: the role \"%.40s\" is not system, user, assistant or tool",
                              list, i, name);
    bool object = strcmp(list, "messages") == 0; /* what templates can take as it is */
    bool calls = object && json_array_size(json_object_get(message, "tool_calls"));
    if (!json_is_string(text) && !(object && json_is_array(text)) && !calls)
        return text_fail_line(r->name, r->line, "%s[%zu] has no string \"%s\"", list, i, text_key);
    ATOM_TRY(add(r, role, json_is_string(text) ? json_string_value(text) : "",
                 json_string_length(text)));
    r->c->messages[r->c->n - 1].json = message;
    r->c->messages[r->c->n - 1].plain = !object;
    return weigh(r, list, i, message, &r->c->messages[r->c->n - 1]);
}

static atom_status read_list(const reading *r, const char *list, const char *role_key,
                             const char *text_key)
{
    const json_t *messages = json_object_get(r->root, list), *message;
    size_t i;
    if (!json_is_array(messages))
        return text_fail_line(r->name, r->line, "%s",
                              messages ? "its messages are not a list"
                                       : "it has no list of messages");
    json_array_foreach(messages, i, message)
    {
        ATOM_TRY(add_message(r, list, i, message, role_key, text_key));
    }
    return ATOM_OK;
}

static atom_status read_history(const reading *r)
{
    const json_t *history = json_object_get(r->root, "history"), *pair;
    size_t i;
    if (!history || json_is_null(history))
        return ATOM_OK;
    if (!json_is_array(history))
        return text_fail_line(r->name, r->line, "the \"history\" is not a list");
    json_array_foreach(history, i, pair)
    {
        const json_t *question = json_array_get(pair, 0), *answer = json_array_get(pair, 1);
        if (json_array_size(pair) != 2 || !json_is_string(question) || !json_is_string(answer))
            return text_fail_line(r->name, r->line,
                                  "history[%zu] is not [\"question\", \"answer\"]", i);
        ATOM_TRY(add(r, TEXT_USER, json_string_value(question), json_string_length(question)));
        ATOM_TRY(add(r, TEXT_ASSISTANT, json_string_value(answer), json_string_length(answer)));
    }
    return ATOM_OK;
}

/* The question just added, with root["input"] on the lines below it. */
static atom_status join_input(const reading *r)
{
    const json_t *input = json_object_get(r->root, "input");
    size_t more = json_string_length(input);
    text_message *m = &r->c->messages[r->c->n - 1];
    if (!input || json_is_null(input) || (json_is_string(input) && more == 0))
        return ATOM_OK;
    if (!json_is_string(input))
        return text_fail_line(r->name, r->line, "the \"input\" is not a string");
    char *joined = atom_alloc(m->bytes + more + 2, 1);
    if (!joined)
        return atom_fail_memory("an instruction", m->bytes + more);
    memcpy(joined, m->text, m->bytes);
    joined[m->bytes] = '\n';
    memcpy(joined + m->bytes + 1, json_string_value(input), more);
    atom_free(r->c->joined);
    r->c->joined = joined;
    m->text = joined;
    m->bytes += more + 1;
    return ATOM_OK;
}

static atom_status read_alpaca(const reading *r)
{
    ATOM_TRY(add_key(r, "system", TEXT_SYSTEM, true));
    ATOM_TRY(read_history(r));
    ATOM_TRY(add_key(r, "instruction", TEXT_USER, false));
    ATOM_TRY(join_input(r));
    return add_key(r, "output", TEXT_ASSISTANT, false);
}

/* By the keys; a line that has both a text and a chat could mean either. */
static atom_status detect(const reading *r, text_format *out)
{
    static const struct {
        const char *key;
        text_format format;
    } keys[] = {{"messages", TEXT_FORMAT_MESSAGES},
                {"conversations", TEXT_FORMAT_SHAREGPT},
                {"instruction", TEXT_FORMAT_ALPACA},
                {"completion", TEXT_FORMAT_PROMPT}};
    const char *first = text_line_has(r->root, "text") ? "text" : NULL;
    *out = TEXT_FORMAT_TEXT;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (!text_line_has(r->root, keys[i].key))
            continue;
        if (first)
            return text_fail_line(
                r->name, r->line,
                "the line has both \"%s\" and \"%s\"; choose one with --format %s or "
                "--format %s",
                first, keys[i].key, text_format_name(*out), text_format_name(keys[i].format));
        first = keys[i].key;
        *out = keys[i].format;
    }
    return ATOM_OK;
}

/* A list of the line that templates are given; NULL where it is not there, or empty. */
static atom_status take_list(const reading *r, const char *key, const json_t **out)
{
    const json_t *value = json_object_get(r->root, key);
    *out = NULL;
    if (!value || json_is_null(value))
        return ATOM_OK;
    if (!json_is_array(value))
        return text_fail_line(r->name, r->line, "the \"%s\" are not a list", key);
    *out = json_array_size(value) ? value : NULL;
    return ATOM_OK;
}

/* The number that the line has as its weight, in tables as a text. Other texts ("2 kg") are none. */
static bool has_weight(const reading *r, double *out)
{
    const json_t *weight = json_object_get(r->root, "weight");
    const char *text = json_string_value(weight);
    char *end;
    *out = text ? strtod(text, &end) : json_number_value(weight);
    return text ? end != text && end[strspn(end, " \t")] == 0 : json_is_number(weight);
}

static atom_status take_line(const reading *r, text_format format)
{
    json_t *root = (json_t *)(uintptr_t)r->root;
    const json_t *variables = json_object_get(r->root, "chat_template_kwargs"),
                 *weight = json_object_get(r->root, "weight");
    const char *text = json_string_value(weight);
    bool none = !weight || json_is_null(weight) || (text && !*text);
    double value;
    ATOM_TRY(take_list(r, "tools", &r->c->tools));
    ATOM_TRY(take_list(r, "documents", &r->c->documents));
    if (!none && !(has_weight(r, &value) && value == 1))
        return text_fail_line(r->name, r->line,
                              "the whole line has a \"weight\", which atom does not support; "
                              "give its messages weights of 0 or 1, or remove the line");
    if (variables && !json_is_null(variables) && !json_is_object(variables))
        return text_fail_line(r->name, r->line, "the \"chat_template_kwargs\" are not an object");
    r->c->variables = json_object_size(variables) ? variables : NULL;
    for (void *at = json_object_iter(root); at && !r->c->unused;
         at = json_object_iter_next(root, at))
        if (!text_line_reads(json_object_iter_key(at), format) &&
            !json_is_null(json_object_iter_value(at)))
            r->c->unused = json_object_iter_key(at);
    return ATOM_OK;
}

/* Something of a chat must be learnt. */
static atom_status check_answers(const reading *r)
{
    size_t answers = 0, learnt = 0;
    for (size_t i = 0; i < r->c->n; i++) {
        const text_message *m = &r->c->messages[i];
        answers += m->role == TEXT_ASSISTANT;
        learnt += m->role == TEXT_ASSISTANT && !m->silent;
    }
    if (answers == 0)
        return text_fail_line(r->name, r->line,
                              "the assistant says nothing in this chat; remove the line");
    if (learnt == 0)
        return text_fail_line(r->name, r->line,
                              "all answers of this chat have weight 0, so nothing of it would be "
                              "learned; remove the line");
    return ATOM_OK;
}

static atom_status read_chat(const reading *r, text_format format)
{
    ATOM_TRY(take_line(r, format));
    ATOM_TRY(text_line_check_chat(r->root, format, r->name, r->line));
    switch (format) {
    case TEXT_FORMAT_MESSAGES:
        ATOM_TRY(read_list(r, "messages", "role", "content"));
        break;
    case TEXT_FORMAT_SHAREGPT:
        ATOM_TRY(add_key(r, "system", TEXT_SYSTEM, true));
        ATOM_TRY(read_list(r, "conversations", "from", "value"));
        break;
    case TEXT_FORMAT_ALPACA:
        ATOM_TRY(read_alpaca(r));
        break;
    default:
        ATOM_TRY(add_key(r, "system", TEXT_SYSTEM, true));
        ATOM_TRY(read_history(r));
        ATOM_TRY(add_key(r, "prompt", TEXT_USER, false));
        ATOM_TRY(add_key(r, "completion", TEXT_ASSISTANT, false));
    }
    return check_answers(r);
}

static const char *kind_of(const json_t *value)
{
    return json_is_null(value)     ? "null"
           : json_is_number(value) ? "a number"
           : json_is_array(value)  ? "a list"
           : json_is_object(value) ? "an object"
                                   : "true or false";
}

/* Names the keys that are there: a column under another name, a table with other separators. */
static atom_status fail_text(const reading *r)
{
    char keys[200] = "";
    size_t n = 0;
    void *root = (json_t *)r->root, *at = json_object_iter(root);
    for (; at && n < 120; at = json_object_iter_next(root, at))
        n += (size_t)snprintf(keys + n, sizeof keys - n, "%s\"%.40s\"", n ? ", " : "",
                              json_object_iter_key(at));
    const json_t *text = json_object_get(r->root, "text");
    bool none = json_is_object(r->root) && n == 0, told = n && !text;
    return text_fail_line(
        r->name, r->line,
        "there is no string \"text\"%s%s; %s%s%s%sa line must be like {\"text\": \"...\"}, or have "
        "messages, conversations, an instruction or a completion",
        text ? ", but it is " : "", text ? kind_of(text) : "",
        none   ? "it has no keys; "
        : told ? "its keys are "
               : "",
        told ? keys : "", told && at ? ", ..." : "", told ? "; " : "");
}

/* All of a text is learned alike. */
static atom_status check_text(const reading *r)
{
    double weight;
    if (!has_weight(r, &weight) || weight == 1)
        return ATOM_OK;
    return text_fail_line(r->name, r->line,
                          "the text has a \"weight\" of %.9g, but texts are learned completely; "
                          "remove the weight, or the line",
                          weight);
}

atom_status text_chat_read(const json_t *root, text_format format, const char *name, uint64_t line,
                           text_chat *c, const json_t **text)
{
    const reading r = {root, name, line, c};
    c->n = 0;
    c->tools = c->documents = c->variables = NULL;
    c->unused = NULL;
    *text = NULL;
    ATOM_TRY(text_line_check(root, name, line));
    if (format == TEXT_FORMAT_AUTO) {
        ATOM_TRY(detect(&r, &format));
    }
    if (format != TEXT_FORMAT_TEXT)
        return read_chat(&r, format);
    *text = json_object_get(root, "text");
    if (!json_is_string(*text))
        return fail_text(&r);
    return check_text(&r);
}
