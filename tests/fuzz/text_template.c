/* Any bytes as a chat under a template that atom has by name: the messages' text makes no special
 * token, the answers are marked, and what is marked ends the chat's answers only. The first bytes
 * say which template and where messages end; a second half is a template's own words. */
#include "atom/base/assert.h"
#include "atom/text/template.h"
#include "atom/text/utf8.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MESSAGES = 4, WORDS_MAX = 64 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static text_tokenizer *t;
    static text_encoder *e;
    text_template *tpl = NULL;
    text_marked m = {0};
    text_message messages[MESSAGES];
    char words[WORDS_MAX + 1] = {0};
    size_t n = 0, ends = 0, answers = 0, marked = 0, all = 0;
    if (!t)
        ATOM_ASSERT(text_tokenizer_bytes(&t) == ATOM_OK && text_encoder_open(t, &e) == ATOM_OK);
    if (size < 2)
        return 0;
    size_t words_n = data[1] % WORDS_MAX < size - 2 ? data[1] % WORDS_MAX : size - 2;
    memcpy(words, data + 2, words_n);
    text_template_request request = {.name = data[0] & 1 ? "mistral" : "plain"};
    if (data[0] & 2)
        request.words.prefix[TEXT_USER] = words;
    if (data[0] & 4)
        request.words.answer_end = words;
    for (size_t at = 2 + words_n; n < MESSAGES && at < size; n++) {
        size_t bytes = (size - at) / 2 + 1;
        bytes = text_utf8_check((const char *)data + at, bytes);
        messages[n] = (text_message){.role = n % 2 ? TEXT_ASSISTANT : TEXT_USER,
                                     .text = (const char *)data + at,
                                     .bytes = bytes};
        answers += n % 2 ? bytes : 0;
        all += bytes;
        at += bytes + 1;
    }
    if (text_utf8_check(words, strlen(words)) == strlen(words)) {
        const text_conversation chat = {.messages = messages, .n = n};
        ATOM_ASSERT(text_template_open(t, NULL, &request, &tpl) == ATOM_OK);
        ATOM_ASSERT(text_template_render(tpl, e, &chat, &m) == ATOM_OK);
        for (size_t i = 0; i < m.ids.n; i++) {
            marked += m.marks[i];
            ends += m.ids.ids[i] == text_tokenizer_end(t);
        }
        ATOM_ASSERT(m.ids.n >= all && marked >= answers);
        if (!(data[0] & 6)) /* the template's own words: one end for each answer, and the start */
            ATOM_ASSERT(ends == 1 + n / 2 && marked == answers + n / 2);
    }
    text_marked_fini(&m);
    text_template_close(&tpl);
    return 0;
}
