/* Any bytes as tokenizer.json on its way into a GGUF file: refused, or metadata of a vocabulary. */
#include "atom/base/assert.h"
#include "atom/base/files.h"
#include "atom/base/mem.h"
#include "atom/export/export.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char dir[64];

static void leave(void)
{
    ATOM_ASSERT(atom_dir_remove(dir) == ATOM_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[96];
    if (!dir[0]) {
        strcpy(dir, "/tmp/atom-fuzz-XXXXXX");
        ATOM_ASSERT(mkdtemp(dir));
        atexit(leave);
    }
    snprintf(path, sizeof path, "%s/tokenizer.json", dir);
    FILE *f = fopen(path, "wb");
    ATOM_ASSERT(f && (size == 0 || fwrite(data, size, 1, f) == 1) && fclose(f) == 0);
    snprintf(path, sizeof path, "%s/out.gguf", dir);
    file_gguf *w = NULL;
    ATOM_ASSERT(file_gguf_create(path, NULL, &w) == ATOM_OK);
    atom_status st = export_tokens(w, dir, "{\"eos_token_id\":[3]}", 40);
    if (st == ATOM_OK)
        ATOM_ASSERT(file_gguf_begin(w) == ATOM_OK);
    else
        ATOM_ASSERT(strstr(atom_fail_message(), "tokenizer.json"));
    file_gguf_close(&w);
    return 0;
}
