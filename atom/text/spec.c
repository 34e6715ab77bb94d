/*
 * Owns the reading of --tokenizer. One idea: what cannot be a tokenizer.json is said before any text is
 * read. Refuses other kinds of tokenizers by their files' names.
 */
#include "atom/text/spec.h"

#include "atom/base/files.h"
#include "atom/text/tokenizer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

atom_status text_spec_parse(const char *spec, uint32_t *n)
{
    *n = 0;
    if (strcmp(spec, "bytes") == 0)
        return ATOM_OK;
    if (strncmp(spec, "bpe:", 4) == 0) {
        char *end;
        errno = 0;
        unsigned long value = strtoul(spec + 4, &end, 10);
        if (spec[4] < '0' || spec[4] > '9' || *end || errno || value < TEXT_BYTES_VOCAB ||
            value > TEXT_VOCAB_MAX)
            return atom_fail(ATOM_E_USAGE,
                             "tokenizer '%s': N must be a number from %d to %d (256 bytes and the "
                             "end-of-text token are part of it)",
                             spec, TEXT_BYTES_VOCAB, TEXT_VOCAB_MAX);
        *n = (uint32_t)value;
        return ATOM_OK;
    }
    if (!atom_path_exists(spec) && !strchr(spec, '/') && !strstr(spec, ".json"))
        return atom_fail(ATOM_E_USAGE,
                         "tokenizer '%s' is unknown; use bytes, bpe:N, or the path of a "
                         "tokenizer.json",
                         spec);
    if (!atom_path_exists(spec))
        return atom_fail(ATOM_E_FORMAT, "%s: no such file", spec);
    struct stat info;
    if (stat(spec, &info) == 0 && S_ISDIR(info.st_mode))
        return atom_fail(ATOM_E_USAGE, "tokenizer '%s' is a directory; name its tokenizer.json",
                         spec);
    if (strlen(spec) > 6 && strcmp(spec + strlen(spec) - 6, ".model") == 0)
        return atom_fail(
            ATOM_E_UNSUPPORTED,
            "%s is a file of SentencePiece or tiktoken, but atom reads tokenizer.json; this "
            "command writes one: python3 -c \"from transformers import AutoTokenizer as T; "
            "T.from_pretrained('DIR').save_pretrained('DIR')\"",
            spec);
    *n = 1;
    return ATOM_OK;
}
