/*
 * Owns the finding of answers in a rendered chat. One idea: a chat is rendered whole once, and
 * again up to each answer and behind it; where these are beginnings of the whole, the answer is
 * what lies between. Refuses to guess: what else it takes for an answer is the message's own text.
 */
#include "atom/text/answers.h"

#include "atom/base/mem.h"

#include <string.h>

void text_answers_fini(text_answers *a)
{
    text_jinja_scratch_fini(&a->scratch);
    atom_free(a->text);
    atom_free(a->marks);
    atom_free(a->messages);
    atom_free(a->shown);
    *a = (text_answers){0};
}

static atom_status take_messages(text_answers *a, const text_conversation *chat)
{
    while (a->messages_capacity < chat->n) {
        ATOM_TRY(atom_grow(&a->messages, a->messages_capacity, &a->messages_capacity,
                           sizeof *a->messages));
    }
    for (size_t i = 0; i < chat->n; i++) {
        const text_message *m = &chat->messages[i];
        a->messages[i] = (text_jinja_message){m->plain ? NULL : m->json, text_role_name(m->role),
                                              m->text, m->bytes};
    }
    return ATOM_OK;
}

/* The first n messages; out is borrowed from the scratch. */
static atom_status render(text_answers *a, const text_answers_input *in,
                          const text_conversation *chat, size_t n, bool prompt, jinja_text *out)
{
    const text_jinja_input input = {.messages = a->messages,
                                    .messages_n = n,
                                    .tools = chat->tools,
                                    .documents = chat->documents,
                                    .names = in->names,
                                    .variables = {in->variables, chat->variables},
                                    .add_generation_prompt = prompt,
                                    .now = in->now};
    return text_jinja_render(in->template, &a->scratch, &input, out);
}

static atom_status keep(text_answers *a, jinja_text t)
{
    if (a->capacity < t.n) {
        size_t want = t.n + t.n / 2;
        char *text = atom_realloc(a->text, want, 1);
        a->text = text ? text : a->text;
        jinja_mark *marks = text ? atom_realloc(a->marks, want, sizeof *marks) : NULL;
        a->marks = marks ? marks : a->marks;
        if (!marks)
            return atom_fail_memory("a chat", want);
        a->capacity = want;
    }
    if (t.n) {
        memcpy(a->text, t.at, t.n);
        memcpy(a->marks, t.marks, t.n * sizeof *t.marks);
    }
    a->n = t.n;
    return ATOM_OK;
}

/* The length of the chat's first n messages, if they are rendered as the whole begins; else
 * SIZE_MAX. A template may refuse a part of a chat. */
static atom_status beginning(text_answers *a, const text_answers_input *in,
                             const text_conversation *chat, size_t n, bool prompt, size_t *out)
{
    jinja_text t = {0};
    atom_status st = render(a, in, chat, n, prompt, &t);
    *out = SIZE_MAX;
    if (st != ATOM_OK)
        return st == ATOM_E_FORMAT ? ATOM_OK : st;
    if (t.n <= a->n && (t.n == 0 || memcmp(t.at, a->text, t.n) == 0))
        *out = t.n;
    return ATOM_OK;
}

static bool given_in(const text_answers *a, size_t from, size_t to)
{
    for (; from < to; from++)
        if (a->marks[from] & JINJA_GIVEN)
            return true;
    return false;
}

/* The control or added token of the template at `at`; its bytes, 0: none. */
static size_t token_at(const text_answers *a, const text_answers_input *in, size_t at,
                       bool *control)
{
    size_t used;
    if (a->marks[at] & JINJA_GIVEN)
        return 0;
    uint32_t id = text_special_at(in->specials, a->text + at, a->n - at, &used);
    if (id == TEXT_NOT_SPECIAL || given_in(a, at, at + used))
        return 0;
    *control = text_tokenizer_control(in->specials->tokenizer, id);
    return used;
}

static bool blank_between(const text_answers *a, size_t from, size_t to)
{
    for (; from < to; from++)
        if ((a->marks[from] & JINJA_GIVEN) || !memchr(" \t\r\n", a->text[from], 4))
            return false;
    return true;
}

/* Without the white space that the template puts behind the token that ends an answer. */
static size_t cut_end(const text_answers *a, const text_answers_input *in, size_t from, size_t to)
{
    bool control;
    size_t end = to, used;
    for (size_t at = from; at < to; at += used ? used : 1) {
        used = token_at(a, in, at, &control);
        if (used && at + used <= to && blank_between(a, at + used, to)) {
            end = at + used;
            break;
        }
    }
    return end;
}

/* From the message's own first byte to the control token behind its last one. */
static void own_bytes(const text_answers *a, const text_answers_input *in, size_t number,
                      size_t *from, size_t *to)
{
    bool control = false;
    size_t used;
    *from = *to = a->n;
    for (size_t i = 0; i < a->n; i++) {
        if ((a->marks[i] & JINJA_MESSAGE) != number)
            continue;
        *from = *from == a->n ? i : *from;
        *to = i + 1;
    }
    if (*from == a->n)
        return; /* nothing of it is shown */
    for (size_t at = *to; at < a->n && !(a->marks[at] & JINJA_GIVEN); at += used ? used : 1) {
        used = token_at(a, in, at, &control);
        if (used && control) {
            *to = at + used;
            return;
        }
    }
}

static atom_status mark_answer(text_answers *a, const text_answers_input *in,
                               const text_conversation *chat, size_t k)
{
    size_t from = SIZE_MAX, to = a->n;
    ATOM_TRY(beginning(a, in, chat, k, true, &from));
    if (from != SIZE_MAX && k + 1 < chat->n)
        ATOM_TRY(beginning(a, in, chat, k + 1, false, &to));
    a->turns++;
    if (from == SIZE_MAX || to == SIZE_MAX || to < from) {
        a->rough++;
        own_bytes(a, in, k + 1, &from, &to);
    } else {
        to = cut_end(a, in, from, to);
    }
    for (; from < to; from++)
        a->marks[from] |= JINJA_ANSWER;
    return ATOM_OK;
}

static void clear(text_answers *a, size_t from, size_t to)
{
    for (; from < to; from++)
        a->marks[from] &= (jinja_mark)~JINJA_ANSWER;
}

/* Does message `number` say a byte of [from, to), and no other message one? */
static bool says_alone(const text_answers *a, size_t number, size_t from, size_t to)
{
    bool said = false;
    for (; from < to; from++) {
        size_t by = a->marks[from] & JINJA_MESSAGE;
        if (by && by != number)
            return false;
        said = said || by == number;
    }
    return said;
}

/* Takes message k out of what {% generation %} marked: what its turn adds; where that cannot be
 * told, the stretches that it alone speaks in, else its own bytes. */
static atom_status silence(text_answers *a, const text_answers_input *in,
                           const text_conversation *chat, size_t k)
{
    size_t from = SIZE_MAX, to = a->n;
    ATOM_TRY(beginning(a, in, chat, k, false, &from));
    if (from != SIZE_MAX && k + 1 < chat->n)
        ATOM_TRY(beginning(a, in, chat, k + 1, false, &to));
    if (from != SIZE_MAX && to != SIZE_MAX && from <= to) {
        clear(a, from, to);
        return ATOM_OK;
    }
    own_bytes(a, in, k + 1, &from, &to);
    if (from == to)
        return atom_fail(
            ATOM_E_FORMAT,
            "messages[%zu] has weight 0, but the template shows nothing of it, so its place "
            "cannot be found; remove the weight, or the line",
            k);
    for (size_t at = 0, end; at < a->n; at = end) {
        for (end = at + 1; end < a->n && (a->marks[at] & a->marks[end] & JINJA_ANSWER);)
            end++;
        if ((a->marks[at] & JINJA_ANSWER) && says_alone(a, k + 1, at, end))
            clear(a, at, end);
    }
    clear(a, from, to);
    return ATOM_OK;
}

/* Where the template says itself what answers are, less those that are not learnt; else each by its
 * turn. */
static atom_status mark_all(text_answers *a, const text_answers_input *in,
                            const text_conversation *chat)
{
    bool said = text_jinja_has_generation(in->template);
    for (size_t k = 0; k < chat->n; k++) {
        if (chat->messages[k].role != TEXT_ASSISTANT)
            continue;
        if (said && chat->messages[k].silent)
            ATOM_TRY(silence(a, in, chat, k));
        if (!said && !chat->messages[k].silent)
            ATOM_TRY(mark_answer(a, in, chat, k));
    }
    return ATOM_OK;
}

static bool is_blank(const text_message *m)
{
    for (size_t i = 0; i < m->bytes; i++)
        if (!memchr(" \t\r\n", m->text[i], 4))
            return false;
    return true;
}

/* Counts messages that the template leaves out whole, such as those of the system. */
static atom_status count_hidden(text_answers *a, const text_conversation *chat)
{
    if (chat->n == 0)
        return ATOM_OK;
    while (a->shown_n < chat->n)
        ATOM_TRY(atom_grow(&a->shown, a->shown_n, &a->shown_n, sizeof *a->shown));
    memset(a->shown, 0, chat->n);
    for (size_t i = 0; i < a->n; i++) {
        size_t by = a->marks[i] & JINJA_MESSAGE;
        if (by && by <= chat->n)
            a->shown[by - 1] = 1;
    }
    for (size_t k = 0; k < chat->n; k++)
        a->hidden += !a->shown[k] && !is_blank(&chat->messages[k]);
    return ATOM_OK;
}

atom_status text_answers_render(text_answers *a, const text_answers_input *in,
                                const text_conversation *chat, bool answers, bool prompt)
{
    jinja_text whole = {0};
    ATOM_TRY(take_messages(a, chat));
    ATOM_TRY(render(a, in, chat, chat->n, prompt, &whole));
    ATOM_TRY(keep(a, whole));
    ATOM_TRY(count_hidden(a, chat));
    return answers ? mark_all(a, in, chat) : ATOM_OK;
}
