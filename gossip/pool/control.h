/*
 * A local socket where a running program answers questions about itself
 * (docs/design/pool.md#what-the-user-sees): one line of JSON in, one line of JSON out, then the
 * connection ends. Only the user's own programs reach it: its mode is 0600, in the pool's
 * directory, and the kernel says which user is at the other end.
 *
 * The path may be longer than a socket's name can be. A socket file that nobody answers at is a
 * dead program's, and is replaced.
 */
#ifndef GOSSIP_POOL_CONTROL_H
#define GOSSIP_POOL_CONTROL_H

#include "atom/base/status.h"

#include <stddef.h>

enum { GSP_CONTROL_REQUEST_MAX = 16 * 1024, GSP_CONTROL_ANSWER_MAX = 4 * 1024 * 1024 };

typedef struct gsp_control gsp_control;

/* Answers one request: the line without its end; returns fresh memory (atom_free), one line of JSON
 * without its end, or NULL (the connection ends without an answer). Called on the control's
 * thread, one at a time. */
typedef char *gsp_control_answer(void *context, const char *request);

/*
 * Makes directory/control.sock and a thread that serves it.
 * Errors  ATOM_E_USAGE  another program answers there; ATOM_E_RUNTIME, ATOM_E_RESOURCE
 */
ATOM_MUST atom_status gsp_control_open(const char *directory, gsp_control_answer *answer,
                                       void *context, gsp_control **out);
/* Ends the thread, removes the socket. NULL is fine; sets NULL. */
void gsp_control_close(gsp_control **control);

/*
 * Asks the program that serves this directory: one line; *answer is fresh memory.
 * Errors  ATOM_E_USAGE  nobody answers there; ATOM_E_RUNTIME  cut off, or too slow (timeout_s)
 */
ATOM_MUST atom_status gsp_control_ask(const char *directory, const char *request, double timeout_s,
                                      char **answer);

#endif
