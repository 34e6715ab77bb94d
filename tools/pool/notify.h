/*
 * A word to the service manager that started this program (sd_notify(3), without its library): a
 * datagram to $NOTIFY_SOCKET. Nothing happens where there is none.
 *
 * Thread: any. Errors: none; a manager that does not listen is no reason to stop.
 */
#ifndef TOOLS_POOL_NOTIFY_H
#define TOOLS_POOL_NOTIFY_H

#include <stdbool.h>

/* "READY=1", "STATUS=waiting for a member", "STOPPING=1", "WATCHDOG=1"; several lines at once are
 * fine. False: nobody was told. */
bool notify_manager(const char *words);

#endif
