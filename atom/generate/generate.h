/*
 * Text from a saved model: one answer to one prompt, or a conversation that goes on.
 *
 * Names of this folder begin with generate_ where text is made, and with eval_ where a model is
 * measured. Thread: one caller. Errors: status.h; the message says which file or option and what to do.
 */
#ifndef ATOM_GENERATE_GENERATE_H
#define ATOM_GENERATE_GENERATE_H

#include "atom/base/status.h"
#include "atom/text/plain.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct generate_request {
    const char *model, *prompt;
    const char *adapter;  /* of the model, to merge into it, or NULL */
    bool chat;            /* prompt is a user's message; the model answers by its chat template */
    const char *system;   /* with chat: the system's message; NULL: none */
    const char *template; /* with chat: a template's name; NULL or "auto": the model's own */
    text_special_rule special_tokens; /* without chat: names of special tokens in the prompt */
    const char *template_vars;        /* with chat: a JSON object of its variables; NULL: none */
    int64_t max_tokens;
    double temperature;        /* 0: greedy */
    int64_t top_k;             /* 0: all */
    double top_p;              /* 1: all */
    double min_p;              /* least share of the likeliest token's probability; 0: all */
    double repetition_penalty; /* of tokens that prompt or text have already; 0 or 1: none */
    int64_t seed;
    int32_t dtype;
    uint64_t device_memory; /* 0: weights are used in place; else swapped through this much */
    int64_t threads;
    bool stop_at_end; /* stop at the end-of-text token */
    const char
        *stop_text; /* the text ends in front of this, which is left out; NULL: nothing does */
    /* called with each piece of text as it is made (valid UTF-8); may be NULL */
    void (*emit)(void *ctx, const char *text, size_t bytes);
    void *ctx;
} generate_request;
typedef struct generate_result {
    char *text;     /* what was made, without the prompt; free with atom_free */
    uint64_t bytes; /* of text; a model of bytes may well make a NUL */
    int64_t tokens, prompt_tokens;
    double seconds;
} generate_result;
ATOM_MUST atom_status generate_text(const generate_request *request, generate_result *result);

/*
 * A conversation with a model: each answer sees what was said before. The request is borrowed; its
 * prompt and chat are ignored; max_tokens 0 stands for as many as fit. One thread.
 */
typedef struct generate_chat generate_chat;
typedef struct generate_chat_result {
    generate_result said; /* text belongs to the chat, until the next call */
    size_t forgotten;     /* messages from the beginning that no longer fit, in all */
    bool stopped;         /* because stop said so */
    bool full;            /* because the model sees no more */
} generate_chat_result;
enum { GENERATE_CHAT_POSITIONS = 4096 }; /* what a conversation remembers at most, in tokens */
ATOM_MUST atom_status generate_chat_open(const generate_request *request, generate_chat **out);
/* Answers a message; wrong UTF-8 in it is replaced. stop (may be NULL) is asked before each token.
 * ATOM_E_USAGE: the message is longer than what the model sees; the conversation is as before.
 * Other errors end it. */
ATOM_MUST atom_status generate_chat_say(generate_chat *c, const char *message,
                                        bool (*stop)(void *ctx), generate_chat_result *result);
/* Forgets what was said, but not the system's message. */
void generate_chat_reset(generate_chat *c);
void generate_chat_close(generate_chat **c);

#endif
