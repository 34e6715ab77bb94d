/* Any bytes as a GGUF file whose tokenizer is wanted: refused, or a tokenizer.json that is read or
 * refused with the file's name. */
#include "atom/base/assert.h"
#include "atom/base/mem.h"
#include "atom/export/export.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    file_gguf_in *f = NULL;
    text_tokenizer *tokenizer = NULL;
    char *json = NULL;
    bool more;
    if (file_gguf_parse("fuzz", data, size, size, &more, &f) != ATOM_OK)
        return 0;
    if (import_tokens(f, &json) == ATOM_OK && json) {
        if (text_tokenizer_parse(json, strlen(json), "fuzz", &tokenizer) != ATOM_OK)
            ATOM_ASSERT(strstr(atom_fail_message(), "fuzz"));
    } else {
        ATOM_ASSERT(strstr(atom_fail_message(), "fuzz"));
    }
    text_tokenizer_close(&tokenizer);
    atom_free(json);
    file_gguf_in_close(&f);
    return 0;
}
