/*
 * Owns events.jsonl. Its one idea: the file is opened with the first line and flushed after each,
 * so others can follow it. It refuses to fail: a pool goes on without its diary.
 */
#include "gossip/pool/event_log.h"

#include "atom/base/clock.h"
#include "atom/base/files.h"
#include "atom/base/mem.h"

#include <stdarg.h>
#include <stdbool.h>
#include <sys/stat.h>

enum { BYTES_MAX = 32 << 20 };

static bool ready(gsp_event_log *d)
{
    struct stat s;
    if (d->file && d->bytes < BYTES_MAX)
        return true;
    char *path = atom_path_join(d->directory, "events.jsonl");
    char *old = atom_path_join(d->directory, "events.jsonl.1");
    gsp_event_log_close(d);
    if (path && old) {
        if (stat(path, &s) == 0 && s.st_size >= BYTES_MAX)
            rename(path, old);
        d->file = fopen(path, "ae");
    }
    d->bytes = d->file && fstat(fileno(d->file), &s) == 0 ? (uint64_t)s.st_size : 0;
    atom_free(path);
    atom_free(old);
    return d->file != NULL;
}

void gsp_event_log_add(gsp_event_log *d, const char *fmt, ...)
{
    va_list args;
    if (!ready(d))
        return;
    int n = fprintf(d->file, "{\"time\":%.3f,", atom_wall_seconds());
    va_start(args, fmt);
    int m = vfprintf(d->file, fmt, args);
    va_end(args);
    fputs("}\n", d->file);
    fflush(d->file);
    d->bytes += (uint64_t)(n > 0 ? n : 0) + (uint64_t)(m > 0 ? m : 0) + 2;
}

void gsp_event_log_close(gsp_event_log *d)
{
    if (d->file)
        fclose(d->file);
    d->file = NULL;
}
