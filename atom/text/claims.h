/*
 * What the tokenizer_config.json beside a tokenizer.json says of the ids of texts, for those who load both, as
 * transformers does. Thread: no shared state. Errors: ATOM_E_RESOURCE; ATOM_E_FORMAT for a file of impossible size.
 */
#ifndef ATOM_TEXT_CLAIMS_H
#define ATOM_TEXT_CLAIMS_H

#include "atom/text/tokenizer.h"

/* Warns where dir/tokenizer_config.json asks for a start token that the tokenizer does not put in front of texts, or the
 * other way round, of a space in front of them in the same way, and of added tokens that the tokenizer has not, or looks
 * for in another way. Where it lists none, added_tokens.json does. Nothing where there is no such file. */
ATOM_MUST atom_status text_claims_check(const text_tokenizer *t, const char *dir);

#endif
