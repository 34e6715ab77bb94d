/*
 * Owns lines on stderr. One idea: a line is put together first and written at once, so lines of
 * several threads never mix. Refuses policy: what to log is decided by the callers.
 */
#include "atom/base/log.h"

#include "atom/base/printable.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static _Atomic int log_level = ATOM_LOG_INFO;

void atom_log_set_level(atom_log_level level)
{
    atomic_store(&log_level, (int)level);
}

void atom_log(atom_log_level level, const char *fmt, ...)
{
    static const char *const words[] = {"atom: error: ", "atom: warning: ", "", "atom: debug: "};
    char line[2048];
    va_list args;
    if ((int)level > atomic_load(&log_level))
        return;
    int n = snprintf(line, sizeof line, "%s", words[level]);
    va_start(args, fmt);
    int m = vsnprintf(line + n, sizeof line - (size_t)n - 1, fmt, args);
    va_end(args);
    if (m < 0)
        return;
    atom_make_printable(line);
    size_t length = strlen(line);
    line[length++] = '\n';
    fwrite(line, 1, length, stderr);
}
