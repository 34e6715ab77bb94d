/*
 * One line of JSONL as a document: a text, or a chat of messages, from the shapes that people keep
 * them in (OpenAI's messages, ShareGPT's conversations, Alpaca's instructions).
 */
#ifndef ATOM_TEXT_CHAT_H
#define ATOM_TEXT_CHAT_H

#include "atom/base/status.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 *   text       {"text": "..."}
 *   messages   {"messages": [{"role": "user", "content": "..."}, ...], "tools": [...]}
 *   sharegpt   {"conversations": [{"from": "human", "value": "..."}, ...], "system": "..."}
 *   alpaca     {"instruction": "...", "input": "...", "output": "...", "system": "...",
 *               "history": [["question", "answer"], ...]}
 *   prompt     {"prompt": "...", "completion": "...", "system": "...", "history": [...]}
 *
 * Messages are handed to templates with all their keys (tool_calls, reasoning_content, content as
 * a list of parts), and so are the lists `tools` and `documents` of a line and the variables in its
 * `chat_template_kwargs`. An answer with "weight": 0 (or "train", "training" or "loss": false) is
 * shown and not learnt; other weights than 0 and 1 are refused, and weights of a whole line or of
 * what is no answer. Keys of a line that would change what is learned are refused (line.h); others are
 * passed over, and one of a chat is named. auto: by the keys of each line.
 */
typedef enum text_format {
    TEXT_FORMAT_AUTO,
    TEXT_FORMAT_TEXT,
    TEXT_FORMAT_MESSAGES,
    TEXT_FORMAT_SHAREGPT,
    TEXT_FORMAT_ALPACA,
    TEXT_FORMAT_PROMPT
} text_format;
const char *text_format_name(text_format format);
/* ATOM_E_USAGE for a name that is none of these. */

typedef enum text_role { TEXT_SYSTEM, TEXT_USER, TEXT_ASSISTANT, TEXT_TOOL, TEXT_ROLES } text_role;
const char *text_role_name(text_role role);

typedef struct text_message {
    text_role role;
    const char *text; /* UTF-8, may hold NUL; borrowed from the line, or `joined` */
    size_t bytes;
    bool silent;        /* an answer that is not learnt: its weight is 0 */
    const json_t *json; /* the message as it was written; NULL: it was no object */
    bool plain;         /* templates are given its role and text alone, not the object */
} text_message;

/* A chat as templates take it. */
typedef struct text_conversation {
    const text_message *messages;
    size_t n;
    const json_t *tools, *documents; /* lists; NULL: none */
    const json_t *variables;         /* an object of further variables; NULL: none */
} text_conversation;

/* Scratch for reading lines; zero it first, free with text_chat_fini. */
typedef struct text_chat {
    text_message *messages;
    size_t n, capacity;
    const json_t *tools, *documents; /* of the line; NULL: none */
    const json_t *variables;         /* chat_template_kwargs */
    const char *unused;              /* a key of the line that is not read; NULL: none */
    char *joined;                    /* owned: an instruction with its input */
} text_chat;
void text_chat_fini(text_chat *c);

/*
 * Reads one line's object. A text gives *text and c->n == 0, a chat c->n > 0 messages, at least one
 * of them by the assistant. All of it is borrowed from root. Errors: those of text_fail_line.
 */
ATOM_MUST atom_status text_chat_read(const json_t *root, text_format format, const char *name,
                                     uint64_t line, text_chat *c, const json_t **text);

/* ATOM_E_FORMAT: "name:line: what", for all that reads JSONL. */
ATOM_MUST atom_status text_fail_line(const char *name, uint64_t line, const char *format, ...)
    ATOM_PRINTF(3, 4);

#endif
