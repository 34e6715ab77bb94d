/* What goes to stderr meanwhile: whether a warning is given, and to whom it is not. One at a time. Include it behind
 * cmocka.h. */
#ifndef TESTS_LIB_SAID_H
#define TESTS_LIB_SAID_H

#include "tests/scratch.h"

#include <fcntl.h>
#include <unistd.h>

static int said_kept = -1; /* the real one */

static inline void said_begin(scratch *s)
{
    fflush(stderr);
    said_kept = dup(2);
    int fd = open(scratch_path(s, "said"), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(said_kept >= 0 && fd >= 0 && dup2(fd, 2) == 2);
    close(fd);
}

/* All of it; free with atom_free. */
static inline char *said_end(scratch *s)
{
    char *text = NULL;
    uint64_t bytes;
    fflush(stderr);
    assert_int_equal(dup2(said_kept, 2), 2);
    close(said_kept);
    assert_int_equal(atom_file_read(scratch_path(s, "said"), 1 << 20, &text, &bytes), ATOM_OK);
    return text;
}

/* How often these words are in it. */
static inline unsigned said_times(scratch *s, const char *words)
{
    char *text = said_end(s);
    unsigned n = 0;
    for (const char *at = text; (at = strstr(at, words)); at++)
        n++;
    atom_free(text);
    return n;
}

#endif
