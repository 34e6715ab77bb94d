/* Any bytes as a mask: refused with its name, or bits that hash as it says. */
#include "atom/base/assert.h"
#include "atom/base/hash.h"
#include "atom/text/mask.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint64_t tokens = size > TEXT_MASK_HEADER_BYTES ? (size - TEXT_MASK_HEADER_BYTES) * 8 : 0;
    for (uint64_t less = 0; less < 9 && less <= tokens; less++) {
        const uint8_t *bits = NULL;
        uint64_t hash = 0;
        atom_status st = text_mask_parse(data, size, tokens - less, "fuzz", &bits, &hash);
        ATOM_ASSERT(st == ATOM_OK || st == ATOM_E_FORMAT);
        if (st != ATOM_OK)
            ATOM_ASSERT(strncmp(atom_fail_message(), "fuzz", 4) == 0);
        else
            ATOM_ASSERT(atom_hash(ATOM_HASH_SEED, bits, (tokens - less + 7) / 8) == hash);
    }
    return 0;
}
