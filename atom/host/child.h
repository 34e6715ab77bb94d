/*
 * The process that computes for one pool, `atom pool join -o DIR`: starting it, listening to it and
 * ending it. It says by datagrams, as to a service manager, when it computes and when it rests. Its
 * log comes line by line; the last output is the summary of `--json`.
 *
 * It ends with us: the kernel sends it SIGTERM when the thread that started it ends, however that
 * ends, and it does not begin before we have recorded its process id.
 *
 * Thread: one, which must be the program's main thread. Errors: status.h.
 */
#ifndef ATOM_HOST_CHILD_H
#define ATOM_HOST_CHILD_H

#include "atom/host/ledger.h"

enum { HOST_LINE_BYTES = 600, HOST_SUMMARY_BYTES = 8192, HOST_WHY_BYTES = 240 };

/* One line of its log, without its end. */
typedef void host_log_fn(void *ctx, const char *line);

typedef enum host_said { HOST_SAID_NOTHING, HOST_SAID_COMPUTES, HOST_SAID_RESTS } host_said;

typedef struct host_child {
    host_process process; /* pid 0: there is none */
    int hear, out, err, go;
    host_log_fn *log;
    void *ctx;
    char line[HOST_LINE_BYTES], summary[HOST_SUMMARY_BYTES];
    size_t line_bytes, summary_bytes;
    char why[HOST_WHY_BYTES]; /* its last error, else its last line */
    bool why_is_error;
} host_child;

typedef struct host_child_news {
    host_said said;
    bool exited;
    int code, signal; /* how; signal 0: by itself */
    bool done;        /* the summary says that the pool has made all of its steps */
} host_child_news;

/* Starts argv (NULL-terminated, argv[0] a path) as a process that waits for host_child_go. */
ATOM_MUST atom_status host_child_start(host_child *c, char *const *argv, host_log_fn *log,
                                       void *ctx);
/* Who it is has been noted: it may begin. */
void host_child_go(host_child *c);
/* Waits up to timeout_ms for something to hear. */
void host_child_hear(host_child *c, int timeout_ms, host_child_news *news);
void host_child_signal(const host_child *c, int number);

#endif
