/* A member that refuses every guest in its own name instead of asking the owner (test_door.py).
 * Linked with --wrap=gsp_links_tell. */
#include "gossip/pool/links.h"

bool __real_gsp_links_tell(gsp_links *links, const uint8_t *key, const gsp_word *word);
bool __wrap_gsp_links_tell(gsp_links *links, const uint8_t *key, const gsp_word *word);

bool __wrap_gsp_links_tell(gsp_links *links, const uint8_t *key, const gsp_word *word)
{
    gsp_link *guest = gsp_links_find(links, word->key);
    if (word->kind != GSP_WORD_ASK_ADMISSION || !guest || !guest->guest)
        return __real_gsp_links_tell(links, key, word);
    gsp_word no = {.kind = GSP_WORD_ADMISSION, .refusal = GSP_REFUSED_BANNED};
    for (int i = 0; i < GSP_PUBLIC_BYTES; i++)
        no.key[i] = word->key[i];
    return __real_gsp_links_tell(links, guest->key, &no);
}
