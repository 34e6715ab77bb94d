/*
 * A conversation on a terminal: a line is a message, the answer appears as it is made.
 *
 * Ctrl-C stops an answer, Ctrl-D at the beginning of a line leaves; /reset, /help, /exit. Thread:
 * the main thread only. Errors: those of generate_chat_open and, but for messages that are too long,
 * generate_chat_say.
 */
#ifndef TOOLS_CHAT_H
#define TOOLS_CHAT_H

#include "atom/atom.h"

ATOM_MUST atom_status cli_chat(const generate_request *request);

#endif
