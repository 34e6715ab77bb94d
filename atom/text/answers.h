/*
 * Which bytes of a rendered chat are answers: what the assistant says, and the token that ends it.
 *
 * If the template has {% generation %}, that marks them. Otherwise an answer is what its turn adds:
 * from the end of the chat before it, rendered with a generation prompt, to the end of the chat with
 * it, provided that both are beginnings of the whole chat. They may not be, because some templates
 * show earlier turns differently later (for example without thoughts). Then the answer is what the
 * whole chat contains of the message itself, from its first to its last byte, and the control token
 * after it; such answers are counted as rough.
 *
 * Answers with weight 0 (text_message.silent) are left out.
 */
#ifndef ATOM_TEXT_ANSWERS_H
#define ATOM_TEXT_ANSWERS_H

#include "atom/text/chat.h"
#include "atom/text/jinja/jinja.h"
#include "atom/text/special.h"

/* Scratch, one per thread; zero it first. */
typedef struct text_answers {
    text_jinja_scratch scratch;
    char *text;        /* of the whole chat, [n] */
    jinja_mark *marks; /* [n]; JINJA_ANSWER where it is part of an answer */
    size_t n, capacity;
    text_jinja_message *messages; /* [messages_capacity] */
    size_t messages_capacity;
    uint64_t turns, rough; /* answers so far, and how many of them by the last rule */
    uint64_t hidden;       /* messages so far that say something, of which no byte was shown */
    uint8_t *shown;        /* [shown_n] */
    size_t shown_n;
} text_answers;
void text_answers_fini(text_answers *a);

/* What templates are given beside the chat. */
typedef struct text_answers_input {
    const text_jinja *template;
    const text_specials *specials;
    const json_t *names;
    const json_t *variables; /* for all chats; NULL: none */
    int64_t now;
} text_answers_input;

/* The whole chat into a->text; answers: are marks of them wanted? prompt: it ends with a
 * generation prompt. Errors: those of text_jinja_render. */
ATOM_MUST atom_status text_answers_render(text_answers *a, const text_answers_input *in,
                                          const text_conversation *chat, bool answers, bool prompt);

#endif
