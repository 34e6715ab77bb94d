/*
 * What --tokenizer of `atom data prepare` names: bytes, bpe:N, or a file. Inner header of atom/text.
 */
#ifndef ATOM_TEXT_SPEC_H
#define ATOM_TEXT_SPEC_H

#include "atom/base/status.h"

#include <stdint.h>

/* *n: N of bpe:N, 0 of "bytes", 1 of a path. Anything else is refused, and so is a path where no
 * tokenizer.json can be. */
ATOM_MUST atom_status text_spec_parse(const char *spec, uint32_t *n);

#endif
