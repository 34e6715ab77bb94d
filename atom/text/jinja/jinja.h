/*
 * Chat templates in Jinja, executed as transformers does: Jinja2's sandbox with trim_blocks,
 * lstrip_blocks and loop controls, its filter tojson, the functions raise_exception and
 * strftime_now, and {% generation %} around what the assistant says.
 *
 * What a template needs and this has not is refused by its name and the template's line. Steps,
 * depth, memory and output are bounded (heap.h): no template hangs or grows without end. Each byte
 * of the text has a mark that says where it comes from, so that what a message says never becomes a
 * special token, and so that answers can be told from the rest.
 */
#ifndef ATOM_TEXT_JINJA_JINJA_H
#define ATOM_TEXT_JINJA_JINJA_H

#include "atom/text/jinja/heap.h"

#include <jansson.h>
#include <stdbool.h>

/* Immutable; any thread may render. */
typedef struct text_jinja text_jinja;
/* name: for messages, copied. ATOM_E_FORMAT: "NAME, line N: what". */
ATOM_MUST atom_status text_jinja_open(const char *source, size_t bytes, const char *name,
                                      text_jinja **out);
void text_jinja_close(text_jinja **t);
bool text_jinja_has_generation(const text_jinja *t);
/* Is this word in it, as a name or as a whole text in quotes? Where it is not, the template cannot
 * look at what has that name. */
bool text_jinja_mentions(const text_jinja *t, const char *word);

/* One thing said: a message as an object, or a role with a text. */
typedef struct text_jinja_message {
    const json_t *json; /* NULL: role and text */
    const char *role, *text;
    size_t bytes;
} text_jinja_message;

typedef struct text_jinja_input {
    const text_jinja_message *messages;
    size_t messages_n;
    const json_t *tools, *documents; /* NULL: none */
    const json_t
        *names; /* an object of further names: bos_token ...; its texts are the template's */
    const json_t *variables[2]; /* objects of more of them, the second before the first; NULL: none.
                                   Their texts are no more the template's than those of messages */
    bool add_generation_prompt;
    int64_t now; /* for strftime_now: seconds since 1970 */
} text_jinja_input;

/* Scratch for rendering, one per thread; zero it first. */
typedef struct text_jinja_scratch {
    jinja_heap heap;
} text_jinja_scratch;
void text_jinja_scratch_fini(text_jinja_scratch *s);

/* out: borrowed from the scratch until its next use. Marks: heap.h. */
ATOM_MUST atom_status text_jinja_render(const text_jinja *t, text_jinja_scratch *s,
                                        const text_jinja_input *in, jinja_text *out);

#endif
