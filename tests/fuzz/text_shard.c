/* Any bytes as a token shard: refused with the file's name, or a size that fits the header; without
 * one, as nanoGPT's. */
#include "atom/base/assert.h"
#include "atom/text/shard.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t head[TEXT_SHARD_HEADER_BYTES] = {0};
    text_shard_info info = {0};
    if (size)
        memcpy(head, data, size < sizeof head ? size : sizeof head);
    atom_status st = text_shard_parse(head, size, "fuzz", &info);
    if (st == ATOM_OK)
        ATOM_ASSERT(text_shard_is(data, size) &&
                    info.tokens * info.token_bytes + TEXT_SHARD_HEADER_BYTES == size);
    else
        ATOM_ASSERT(st == ATOM_E_FORMAT && strncmp(atom_fail_message(), "fuzz", 4) == 0);
    st = text_shard_parse_raw(size, "fuzz", &info);
    ATOM_ASSERT(st == ATOM_OK ? info.tokens * 2 == size && info.header_bytes == 0 : size % 2);
    return 0;
}
