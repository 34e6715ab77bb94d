/* Any bytes as model.safetensors.index.json: refused, or plain file names only. */
#include "atom/file/hfweights.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    return file_index_check("fuzz", (const char *)data, size) == ATOM_E_DEAD;
}
