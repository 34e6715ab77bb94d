/* Any bytes as a word of life: refused, or a word that comes back as itself, with contacts in it
 * that are read within its bounds. */
#include "atom/base/assert.h"
#include "atom/base/mem.h"
#include "gossip/pool/words.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static gsp_word m, back;
    gsp_contact contact;
    size_t at = 0;
    uint8_t head[GSP_WORD_HEAD_BYTES];
    if (!gsp_word_decode(data, size, &m))
        return 0;
    ATOM_ASSERT(m.body_bytes <= size &&
                (m.body_bytes == 0 || m.body + m.body_bytes == data + size));
    size_t n = gsp_word_encode(&m, head);
    ATOM_ASSERT(n + m.body_bytes == size && memcmp(head, data, n) == 0);
    uint8_t *again = atom_alloc(size, 1);
    ATOM_ASSERT(again);
    memcpy(again, head, n);
    if (m.body_bytes)
        memcpy(again + n, m.body, m.body_bytes);
    ATOM_ASSERT(gsp_word_decode(again, size, &back) && back.kind == m.kind);
    while (m.kind == GSP_WORD_HELLO && gsp_word_next_contact(&m, &at, &contact))
        ATOM_ASSERT(contact.n_addresses <= GSP_CONTACT_ADDRESSES_MAX);
    atom_free(again);
    return 0;
}
