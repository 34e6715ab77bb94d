/*
 * Owns the module's way back to the program. One idea: the module has its own copy of atom/base,
 * but errors, log lines and the thread pool are the program's; so this file stands in for
 * atom/base/status.c and threads.c when the module is linked, and hands everything over.
 */
#include "kernels/cuda/host.h"

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum { MESSAGE_MAX = 1024 };

static const krn_cuda_host *host;

void krn_cuda_host_set(const krn_cuda_host *given)
{
    host = given;
}

void krn_cuda_log(int level, const char *text)
{
    if (host)
        host->log(level, text);
}

atom_status atom_fail(atom_status status, const char *fmt, ...)
{
    char text[MESSAGE_MAX];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return host ? host->fail(status, text) : status;
}

const char *atom_fail_message(void)
{
    return host ? host->fail_message() : "";
}

atom_status atom_fail_in(atom_status status, const char *fmt, ...)
{
    char text[MESSAGE_MAX];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (n >= 0 && n < MESSAGE_MAX)
        snprintf(text + n, sizeof text - (size_t)n, "%s", atom_fail_message());
    return host ? host->fail(status, text) : status;
}

atom_status atom_fail_errno(int errnum, const char *fmt, ...)
{
    char text[MESSAGE_MAX];
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (n >= 0 && n < MESSAGE_MAX)
        snprintf(text + n, sizeof text - (size_t)n, ": %s", strerror(errnum));
    bool full = errnum == ENOMEM || errnum == ENOSPC || errnum == EDQUOT || errnum == EFBIG;
    atom_status status = full ? ATOM_E_RESOURCE : ATOM_E_RUNTIME;
    return host ? host->fail(status, text) : status;
}

void atom_parallel(atom_threads *pool, uint32_t count, atom_task task, void *ctx)
{
    host->parallel(pool, count, task, ctx);
}
