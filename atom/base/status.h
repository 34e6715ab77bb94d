/*
 * What can go wrong outside our own code, and how functions report it.
 *
 * A function that can fail because of a file, a limit or a device returns an atom_status and writes
 * its outputs only on success. The function that decides that something failed calls atom_fail()
 * once, with a message that says what was wrong and what to do; all functions between that place
 * and the user pass the status on. Our own bugs are not statuses but ATOM_ASSERTs (assert.h).
 */
#ifndef ATOM_BASE_STATUS_H
#define ATOM_BASE_STATUS_H

#define ATOM_MUST __attribute__((warn_unused_result))
#define ATOM_PRINTF(fmt_i, args_i) __attribute__((format(printf, fmt_i, args_i)))

typedef enum atom_status {
    ATOM_OK = 0,
    ATOM_E_RUNTIME,     /* exit 1: an operation failed that should have worked */
    ATOM_E_USAGE,       /* exit 2: a command line, key or value we do not accept */
    ATOM_E_FORMAT,      /* exit 3: a file is not what it should be */
    ATOM_E_RESOURCE,    /* exit 4: not enough memory, disk or device */
    ATOM_E_DIVERGED,    /* exit 5: loss or gradients stopped being finite */
    ATOM_E_DEAD,        /* exit 1: the object failed earlier and cannot be used again */
    ATOM_E_UNSUPPORTED, /* exit 2: legal, but this build or device cannot do it */
    ATOM_E_INTERRUPTED, /* exit 130/143: a signal asked us to stop; state was saved */
} atom_status;

/*
 * Records a message for the calling thread and returns `status`, so that one can write
 *     return atom_fail(ATOM_E_FORMAT, "%s: header is truncated; copy the file again", path);
 * The message is cut at 1023 bytes. No trailing newline, no "error:" prefix.
 */
ATOM_MUST atom_status atom_fail(atom_status status, const char *fmt, ...) ATOM_PRINTF(2, 3);

/* Puts text in front of the calling thread's message ("config.yml:3:1: " + message). */
ATOM_MUST atom_status atom_fail_in(atom_status status, const char *fmt, ...) ATOM_PRINTF(2, 3);

/* The calling thread's latest message; "" if there is none. Valid until its next atom_fail(). */
const char *atom_fail_message(void);

/* ATOM_E_RESOURCE for ENOMEM, ENOSPC, EDQUOT, EFBIG; ATOM_E_RUNTIME for the rest. Message: "what:
 * strerror". */
ATOM_MUST atom_status atom_fail_errno(int errnum, const char *fmt, ...) ATOM_PRINTF(2, 3);

int atom_status_exit_code(atom_status status);
const char *atom_status_name(atom_status status);

/* On failure returns the status at once. */
#define ATOM_TRY(expr)                                                                             \
    do {                                                                                           \
        const atom_status try_st_ = (expr);                                                        \
        if (try_st_ != ATOM_OK)                                                                    \
            return try_st_;                                                                        \
    } while (0)

/* On failure jumps to the label `cleanup`, which frees what the function made and returns `st`. */
#define ATOM_TRY_CLEAN(expr)                                                                       \
    do {                                                                                           \
        st = (expr);                                                                               \
        if (st != ATOM_OK)                                                                         \
            goto cleanup;                                                                          \
    } while (0)

#endif
