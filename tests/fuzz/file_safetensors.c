/* Any bytes as a safetensors file: refused, or its tensors tile the file and are found by name. */
#include "atom/base/assert.h"
#include "atom/file/safetensors.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint64_t header_bytes = 0;
    file_safetensors *f = NULL;
    if (size < 8)
        return 0;
    memcpy(&header_bytes, data, 8);
    if (header_bytes > size - 8)
        header_bytes = size - 8;
    if (file_st_parse("fuzz", (const char *)data + 8, header_bytes, size, &f) != ATOM_OK) {
        ATOM_ASSERT(!f);
        return 0;
    }
    uint64_t at = 8 + header_bytes;
    for (uint32_t i = 0; i < f->n_tensors; i++) {
        const file_tensor *t = &f->tensors[i];
        ATOM_ASSERT(t->offset == at && t->rank <= FILE_RANK_MAX);
        ATOM_ASSERT(file_st_find(f, t->name) == t);
        at += t->bytes;
    }
    ATOM_ASSERT(at == size);
    file_st_close(&f);
    return 0;
}
