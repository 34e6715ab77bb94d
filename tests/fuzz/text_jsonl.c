/* Any bytes as a block of JSONL or of a text file: refused with the place, or documents in UTF-8.
 */
#include "atom/base/assert.h"
#include "atom/text/input.h"
#include "atom/text/utf8.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static atom_status check(void *ctx, const char *text, size_t bytes, bool starts)
{
    (void)starts;
    ATOM_ASSERT(bytes > 0 && text_utf8_check(text, bytes) == bytes);
    ++*(size_t *)ctx;
    return ATOM_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    size_t documents = 0;
    text_block block = {
        .name = "fuzz", .data = (char *)(uintptr_t)data, .bytes = size, .first_line = 1};
    for (int lines = 0; size && lines < 2; lines++) {
        block.lines = lines;
        atom_status st = text_block_walk(&block, check, &documents);
        ATOM_ASSERT(st == ATOM_OK || st == ATOM_E_FORMAT);
        ATOM_ASSERT(st == ATOM_OK || strncmp(atom_fail_message(), "fuzz:", 5) == 0);
    }
    return 0;
}
