/*
 * Compares what messages contain besides role and text with what a template reads, so that nothing
 * is left out of the training text without a message.
 */
#ifndef ATOM_TEXT_KEYS_H
#define ATOM_TEXT_KEYS_H

#include "atom/text/chat.h"
#include "atom/text/jinja/jinja.h"

/* Keys of messages that the template does not look at, and that may be done without. */
typedef struct text_unseen {
    uint64_t messages; /* that have such a key */
    char key[40];      /* the first one */
} text_unseen;

/*
 * ATOM_E_FORMAT, with the message and the key, where the chat has what a model would have to see
 * and the template cannot show it: reasoning_content, reasoning, thinking, tool_calls,
 * function_call, a content of parts or a type of one, tools or documents; and where a part is a
 * picture or a sound. Other keys (name, tool_call_id, id) are counted. Keys that are null or empty
 * are as none.
 */
ATOM_MUST atom_status text_keys_check(const text_jinja *t, const text_conversation *chat,
                                      text_unseen *unseen);

#endif
