/*
 * The memory, the limits and the error messages of one rendering. Everything that a rendering makes
 * is taken from a heap and given back all at once, so that no value has an owner to remember.
 *
 * Ownership: the heap owns what it gave out, until jinja_heap_release or jinja_heap_fini. Thread:
 * one. Errors: ATOM_E_FORMAT for what a template does wrong or too much of, with its line;
 * ATOM_E_RESOURCE for want of memory.
 */
#ifndef ATOM_TEXT_JINJA_HEAP_H
#define ATOM_TEXT_JINJA_HEAP_H

#include "atom/base/status.h"

#include <stddef.h>
#include <stdint.h>

enum {
    JINJA_SOURCE_MAX = 1 << 20, /* bytes of a template */
    JINJA_HEAP_MAX = 256 << 20, /* bytes that one rendering may hold */
    JINJA_OUTPUT_MAX = 32 << 20,
    JINJA_STEPS_MAX = 50 << 20, /* nodes evaluated, and items and bytes looked at */
    JINJA_NAME_MAX = 256,       /* bytes of a name, so that comparing names takes no time */
    JINJA_REAL_STEPS = 400,     /* to print a number with a point */
    JINJA_DEPTH_MAX = 400,      /* of nested expressions, statements and macros */
};

typedef struct jinja_chunk jinja_chunk;
typedef struct jinja_heap {
    jinja_chunk *chunks; /* the newest first */
    size_t bytes;        /* of all chunks */
    uint64_t steps;
    uint32_t line, depth;
    const char *name; /* of the template, for messages; borrowed */
} jinja_heap;

/* Zeroed memory. out: the address of a pointer. */
ATOM_MUST atom_status jinja_alloc(jinja_heap *h, size_t count, size_t size_bytes, void *out);
/* Makes room for one more than n items of a list in the heap, which becomes twice as long and `more`.
 * items: the address of the pointer to them. */
ATOM_MUST atom_status jinja_grow(jinja_heap *h, void *items, size_t n, size_t *capacity,
                                 size_t more, size_t size_bytes);
/* Gives back everything, or everything since a mark was taken. */
typedef struct jinja_heap_mark {
    const jinja_chunk *chunk;
    size_t used;
} jinja_heap_mark;
jinja_heap_mark jinja_heap_here(const jinja_heap *h);
void jinja_heap_release(jinja_heap *h, jinja_heap_mark mark);
void jinja_heap_fini(jinja_heap *h);

/* Counts work; fails when it is more than a template may do. A step is some ten nanoseconds: an item,
 * 64 bytes that are copied or compared, 8 that are searched, or 4 that are looked at one by one.
 * Whatever takes longer for larger values counts, also where it makes nothing. */
ATOM_MUST atom_status jinja_step(jinja_heap *h, uint64_t n);
/* A level deeper: leave follows enter, also where enter failed. */
ATOM_MUST atom_status jinja_enter(jinja_heap *h);
void jinja_leave(jinja_heap *h);

/* "NAME, line N: what" */
ATOM_MUST atom_status jinja_fail(const jinja_heap *h, const char *format, ...) ATOM_PRINTF(2, 3);

/* What a byte of text comes from, which decides what may become of it: the names of special tokens
 * become those tokens only where the template wrote them. */
typedef uint16_t jinja_mark;
enum {
    JINJA_ANSWER = 0x8000,  /* inside {% generation %} */
    JINJA_GIVEN = 0x4000,   /* from a message, a tool or a document, not from the template */
    JINJA_MESSAGE = 0x3fff, /* number of the message, from 1; 0: of no message */
};

typedef struct jinja_text {
    const char *at; /* UTF-8, may hold NUL */
    const jinja_mark *marks;
    size_t n;
} jinja_text;

/* Text that grows. Zero it but for the heap. */
typedef struct jinja_writer {
    jinja_heap *h;
    char *at;
    jinja_mark *marks;
    size_t n, capacity;
} jinja_writer;
ATOM_MUST atom_status jinja_put(jinja_writer *w, const char *at, size_t n, jinja_mark mark);
ATOM_MUST atom_status jinja_put_text(jinja_writer *w, jinja_text t);
ATOM_MUST atom_status jinja_put_word(jinja_writer *w, const char *word); /* the template's own */
jinja_text jinja_written(const jinja_writer *w);

#endif
