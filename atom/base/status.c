/*
 * Owns the calling thread's error message. One idea: a status is a number, the words travel beside
 * it in thread-local storage, as errno does. Refuses to print: whoever decides what a failure means
 * to the user prints it, once.
 */
#include "atom/base/status.h"

#include "atom/base/printable.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { MESSAGE_MAX = 1024 };
static _Thread_local char message[MESSAGE_MAX];

static void keep(char text[MESSAGE_MAX])
{
    atom_make_printable(text); /* some of it may be a file's or a member's word */
    memcpy(message, text, MESSAGE_MAX);
}

atom_status atom_fail(atom_status status, const char *fmt, ...)
{
    char text[MESSAGE_MAX];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    keep(text);
    return status;
}

atom_status atom_fail_in(atom_status status, const char *fmt, ...)
{
    char text[MESSAGE_MAX];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (n >= 0 && n < MESSAGE_MAX)
        snprintf(text + n, sizeof text - (size_t)n, "%s", message);
    keep(text);
    return status;
}

atom_status atom_fail_errno(int errnum, const char *fmt, ...)
{
    char text[MESSAGE_MAX];
    char reason[192];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    snprintf(reason, sizeof reason, "%s%s", strerror(errnum),
             errnum == EMFILE  ? " in this process; raise the limit (ulimit -n)"
             : errnum == EROFS ? "; after errors of a disk the kernel does this (dmesg says so): "
                                 "make it writable again"
                               : "");
    if (n >= 0 && n < MESSAGE_MAX)
        snprintf(text + n, sizeof text - (size_t)n, ": %s", reason);
    keep(text);
    bool full = errnum == ENOMEM || errnum == ENOSPC || errnum == EDQUOT || errnum == EFBIG;
    return full ? ATOM_E_RESOURCE : ATOM_E_RUNTIME;
}

const char *atom_fail_message(void)
{
    return message;
}

int atom_status_exit_code(atom_status status)
{
    switch (status) {
    case ATOM_OK:
        return 0;
    case ATOM_E_USAGE:
    case ATOM_E_UNSUPPORTED:
        return 2;
    case ATOM_E_FORMAT:
        return 3;
    case ATOM_E_RESOURCE:
        return 4;
    case ATOM_E_DIVERGED:
        return 5;
    case ATOM_E_INTERRUPTED:
        return 130;
    case ATOM_E_RUNTIME:
    case ATOM_E_DEAD:
        return 1;
    }
    return 1;
}

const char *atom_status_name(atom_status status)
{
    switch (status) {
    case ATOM_OK:
        return "ok";
    case ATOM_E_RUNTIME:
        return "runtime";
    case ATOM_E_USAGE:
        return "usage";
    case ATOM_E_FORMAT:
        return "format";
    case ATOM_E_RESOURCE:
        return "resource";
    case ATOM_E_DIVERGED:
        return "diverged";
    case ATOM_E_DEAD:
        return "dead";
    case ATOM_E_UNSUPPORTED:
        return "unsupported";
    case ATOM_E_INTERRUPTED:
        return "interrupted";
    }
    return "unknown";
}
