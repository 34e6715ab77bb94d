/* Any bytes as a template and, behind the first zero byte, as the messages in JSON: a text or a
 * message, within the limits; every byte of the text is the template's or a message's that exists. */
#include "atom/base/assert.h"
#include "atom/text/jinja/jinja.h"
#include "atom/text/utf8.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MESSAGES = 8 };

static const text_jinja_message chat[] = {{.role = "system", .text = "Be kind.", .bytes = 8},
                                          {.role = "user", .text = "a <b> \"c\"", .bytes = 9},
                                          {.role = "assistant", .text = "\xc3\xa4 ", .bytes = 3}};

static void check(jinja_text t, size_t messages)
{
    for (size_t i = 0; i < t.n; i++) {
        ATOM_ASSERT((t.marks[i] & JINJA_MESSAGE) <= messages);
        ATOM_ASSERT((t.marks[i] & JINJA_GIVEN) || !(t.marks[i] & JINJA_MESSAGE));
    }
    ATOM_ASSERT(text_utf8_check(t.at, t.n) == t.n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static text_jinja_scratch scratch;
    text_jinja_message messages[MESSAGES] = {{0}};
    const uint8_t *end = size ? memchr(data, 0, size) : NULL;
    size_t bytes = end ? (size_t)(end - data) : size, n = 0;
    text_jinja *t = NULL;
    jinja_text out = {0};
    json_t *given = end ? json_loadb((const char *)end + 1, size - bytes - 1, JSON_ALLOW_NUL, NULL)
                        : NULL,
           *names = json_pack("{s:s, s:s}", "bos_token", "<s>", "eos_token", "</s>");
    for (; n < MESSAGES && n < json_array_size(given); n++)
        messages[n].json = json_array_get(given, n);
    if (!n) {
        memcpy(messages, chat, sizeof chat);
        n = sizeof chat / sizeof *chat;
    }
    if (text_jinja_open((const char *)data, bytes, "a template", &t) == ATOM_OK) {
        text_jinja_input in = {.messages = messages,
                               .messages_n = n,
                               .tools = given,
                               .names = names,
                               .add_generation_prompt = size % 2};
        if (text_jinja_render(t, &scratch, &in, &out) == ATOM_OK)
            check(out, n);
        ATOM_ASSERT(scratch.heap.bytes <= JINJA_HEAP_MAX);
    }
    text_jinja_close(&t);
    text_jinja_scratch_fini(&scratch);
    json_decref(given);
    json_decref(names);
    return 0;
}
