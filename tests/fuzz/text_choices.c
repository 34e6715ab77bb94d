/* Any bytes as a block of questions: refused with the place, or questions that can be scored. */
#include "atom/base/assert.h"
#include "atom/text/choices.h"
#include "atom/text/input.h"
#include "atom/text/utf8.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_phrase(const text_phrase *p)
{
    ATOM_ASSERT(text_utf8_check(p->text, p->bytes) == p->bytes);
}

static atom_status check(void *ctx, const json_t *value, uint64_t line, bool *stop)
{
    text_question q = {.n = 0};
    (void)ctx;
    (void)stop;
    ATOM_TRY(text_question_read(value, "fuzz", line, &q));
    ATOM_ASSERT(q.n >= TEXT_CHOICES_MIN && q.n <= TEXT_CHOICES_MAX && q.answer < q.n);
    ATOM_ASSERT(q.line == line && line > 0);
    check_phrase(&q.context);
    for (uint32_t i = 0; i < q.n; i++) {
        ATOM_ASSERT(q.choices[i].bytes > 0);
        check_phrase(&q.choices[i]);
    }
    return ATOM_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const text_block block = {.name = "fuzz",
                              .data = (char *)(uintptr_t)data,
                              .bytes = size,
                              .first_line = 1,
                              .lines = true};
    bool stop = false;
    atom_status st = text_block_objects(&block, check, NULL, &stop);
    ATOM_ASSERT(st == ATOM_OK || st == ATOM_E_FORMAT);
    ATOM_ASSERT(st == ATOM_OK || strncmp(atom_fail_message(), "fuzz", 4) == 0);
    return 0;
}
