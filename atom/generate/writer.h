/*
 * A text while it is being written: what generation (generate.c) and conversation (chat.c) share.
 * Inner header of atom/generate.
 *
 * Owner: whoever opened it; close accepts half-opened ones. Thread: one. Errors: trainer.h.
 */
#ifndef ATOM_GENERATE_WRITER_H
#define ATOM_GENERATE_WRITER_H

#include "atom/generate/decode.h"
#include "atom/generate/generate.h"
#include "atom/generate/sample.h"
#include "atom/plan/workbench.h"
#include "atom/text/chat.h"
#include "atom/text/tokenizer.h"

typedef struct generate_writer {
    const generate_request *request;
    plan_workbench *bench;
    text_tokenizer *tokenizer;
    dev *device;
    void *params; /* canonical vector in the run's dtype, pinned */
    uint64_t params_bytes;
    file_odd odd; /* of the weights */
    generate_decoder *decoder;
    text_ids seen; /* prompt, then what was made */
    uint32_t stop; /* ends an answer; else the end-of-text token */
    int32_t *feed; /* i32[positions] */
    uint8_t *may;  /* u8[V]: ids that the tokenizer knows */
    uint8_t *ends; /* u8[V]: ids after which the model's own settings say that nothing follows */
    uint8_t *repeated; /* u8[V]: is the id in seen? NULL where nothing is asked of that */
    generate_candidate *candidates;
    int64_t V, positions;
    char *text; /* what was made; bytes [0, whole) were emitted */
    size_t bytes, whole, capacity;
    bool endless; /* that no token ends an answer was said */
    bool begins;  /* the next token is the first of a text: no prompt precedes it */
    bool stopped; /* stop_text came */
} generate_writer;

/* Opens everything; encode is called when the tokenizer is there: it sets stop, and seen if it
 * likes. room: positions of the decoder; 0: what seen and max_tokens need. */
ATOM_MUST atom_status generate_writer_open(generate_writer *w,
                                           atom_status (*encode)(generate_writer *w), int64_t room);
void generate_writer_close(generate_writer *w);

/* seen becomes a chat up to where its next message, an answer, has its text; stop is the token that
 * ends it. */
ATOM_MUST atom_status generate_writer_encode_chat(generate_writer *w, text_encoder *encoder,
                                                  const text_message *messages, size_t n);
ATOM_MUST atom_status generate_writer_remember(generate_writer *w,
                                               uint32_t token); /* appends to seen */
/* How to choose the next token, when what was seen is complete. */
generate_sampling generate_writer_sampling(generate_writer *w);
/* Is a text over with this token? Not if the request says that it should go on. */
bool generate_writer_ends(const generate_writer *w, uint32_t token);
/* Appends a token's text, and emits what is whole characters and can't be the beginning of stop_text. */
ATOM_MUST atom_status generate_writer_put(generate_writer *w, uint32_t token);
/* Emits what was held back. */
void generate_writer_finish(generate_writer *w);
/* There is room for that many bytes more, and a 0. */
ATOM_MUST atom_status generate_writer_room(generate_writer *w, size_t more);

#endif
