/* Any bytes as a manifest: refused, or signed by its owner and a text that comes back as itself. */
#include "atom/base/assert.h"
#include "atom/base/mem.h"
#include "gossip/pool/manifest.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static gsp_manifest m, back;
    char *text = NULL;
    if (gsp_manifest_parse((const char *)data, size, &m) != ATOM_OK)
        return 0;
    ATOM_ASSERT(gsp_manifest_verify(&m));
    ATOM_ASSERT(gsp_manifest_text(&m, &text) == ATOM_OK);
    ATOM_ASSERT(gsp_manifest_parse(text, strlen(text), &back) == ATOM_OK);
    ATOM_ASSERT(memcmp(m.signature, back.signature, sizeof m.signature) == 0);
    ATOM_ASSERT(!gsp_manifest_follows(&m, &back) == (m.number < back.number));
    atom_free(text);
    return 0;
}
