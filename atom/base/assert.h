/*
 * ATOM_ASSERT and ATOM_UNREACHABLE: for our own bugs, always on. Never for files, peers, memory or
 * devices (status.h).
 */
#ifndef ATOM_BASE_ASSERT_H
#define ATOM_BASE_ASSERT_H

/* Prints "file:line: assertion failed: text" to stderr and aborts. */
__attribute__((noreturn)) void atom_assert_failed(const char *file, int line, const char *text);

#define ATOM_ASSERT(cond)                                                                          \
    do {                                                                                           \
        if (__builtin_expect(!(cond), 0))                                                          \
            atom_assert_failed(__FILE__, __LINE__, #cond);                                         \
    } while (0)

/* A place that only a bug of ours can reach; says why. */
#define ATOM_UNREACHABLE(why) atom_assert_failed(__FILE__, __LINE__, why)

#endif
