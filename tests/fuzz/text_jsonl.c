/* Any bytes as a block of JSONL or of a text file: refused with the place, or documents in UTF-8. */
#include "atom/base/assert.h"
#include "atom/text/input.h"
#include "atom/text/utf8.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static atom_status check(void *ctx, const text_document *d)
{
    bool answered = d->messages_n == 0;
    ATOM_ASSERT((d->bytes > 0) != (d->messages_n > 0));
    if (d->bytes)
        ATOM_ASSERT(text_utf8_check(d->text, d->bytes) == d->bytes);
    for (size_t i = 0; i < d->messages_n; i++) {
        const text_message *m = &d->messages[i];
        ATOM_ASSERT(m->role < TEXT_ROLES && text_utf8_check(m->text, m->bytes) == m->bytes);
        answered = answered || m->role == TEXT_ASSISTANT;
    }
    ATOM_ASSERT(answered);
    ++*(size_t *)ctx;
    return ATOM_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t documents = 0;
    text_block block = {
        .name = "fuzz", .data = (char *)(uintptr_t)data, .bytes = size, .first_line = 1};
    for (int walk = 0; size && walk <= TEXT_FORMAT_PROMPT + 1; walk++) {
        block.lines = walk > 0;
        atom_status st =
            text_block_walk(&block, (text_format)(walk ? walk - 1 : 0), check, &documents);
        ATOM_ASSERT(st == ATOM_OK || st == ATOM_E_FORMAT);
        ATOM_ASSERT(st == ATOM_OK || strncmp(atom_fail_message(), "fuzz", 4) == 0);
    }
    return 0;
}
