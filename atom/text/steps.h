/*
 * What a tokenizer.json says around its vocabulary, for who writes it in another form: normalizer, pre-tokenizer,
 * post-processor, decoder and the switches of the model. Thread: no shared state.
 */
#ifndef ATOM_TEXT_STEPS_H
#define ATOM_TEXT_STEPS_H

#include "atom/base/status.h"

#include <jansson.h>

/*
 * Refuses what text_tokenizer_parse refuses of them, in the same words. name: of the file.
 * Errors  ATOM_E_UNSUPPORTED  a step that is not read here; ATOM_E_FORMAT  one that is written wrongly
 */
ATOM_MUST atom_status text_steps_check(const json_t *root, const char *name);

#endif
