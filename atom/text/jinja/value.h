/*
 * The values of a template: those of Python that published chat templates use.
 *
 * A value is passed by value; what it points at is the heap's and does not change once made, but
 * for the entries of a namespace and the place of an iterator. Thread: one. Errors: heap.h.
 */
#ifndef ATOM_TEXT_JINJA_VALUE_H
#define ATOM_TEXT_JINJA_VALUE_H

#include "atom/text/jinja/heap.h"

#include <jansson.h>
#include <stdbool.h>

typedef enum jinja_kind {
    JINJA_UNDEFINED, /* .name: of what is not there */
    JINJA_NONE,
    JINJA_BOOL,
    JINJA_INT, /* 64 bits; more is refused */
    JINJA_REAL,
    JINJA_TEXT,
    JINJA_LIST,
    JINJA_TUPLE,
    JINJA_VIEW,     /* dict_items and the like, a range: counted, but not indexed or printed */
    JINJA_ITERATOR, /* can be passed through once, and has no length: map, selectattr ... */
    JINJA_DICT,
    JINJA_NAMESPACE,
    JINJA_LOOP,     /* the variable loop */
    JINJA_CALLABLE, /* a macro, a global function, a method with its object */
} jinja_kind;

typedef struct jinja_value jinja_value;
typedef struct jinja_list {
    jinja_value *items;
    size_t n, capacity;
    size_t at; /* of an iterator: what was taken */
} jinja_list;

/* In the order of insertion. Keys are compared as values. */
typedef struct jinja_dict {
    jinja_value *keys, *values;
    size_t n, capacity;
} jinja_dict;

struct jinja_loop;
struct jinja_callable;
struct jinja_value {
    jinja_kind kind;
    bool safe; /* text of the filter safe: what is added to it is escaped as HTML */
    union {
        const char *name;
        bool truth;
        int64_t i;
        double r;
        const jinja_text *text;
        jinja_list *list;
        jinja_dict *dict;
        struct jinja_loop *loop;
        const struct jinja_callable *callable;
    };
};

/* The variable loop of a for. */
typedef struct jinja_loop {
    const jinja_list *items;
    size_t at, depth;              /* depth from 0 */
    bool has_changed;              /* was loop.changed asked before? */
    jinja_value changed;           /* a tuple of what it was asked with */
    const struct jinja_node *node; /* with `recursive`: the statement, to be run again */
    struct jinja_scope *scope;     /* in which it stands */
} jinja_loop;

/* Exactly one of these is set. */
typedef struct jinja_callable {
    const char *name;               /* of a global function, or of a method of `self` */
    jinja_value self;               /* undefined: a function */
    const struct jinja_node *macro; /* a macro, or the body of a call block */
    struct jinja_scope *scope;      /* in which the macro was made */
    jinja_loop *loop;               /* a recursive loop */
} jinja_callable;

static inline jinja_value jinja_none(void)
{
    return (jinja_value){.kind = JINJA_NONE};
}
static inline jinja_value jinja_undefined(const char *name)
{
    return (jinja_value){.kind = JINJA_UNDEFINED, .name = name};
}
static inline jinja_value jinja_bool(bool truth)
{
    return (jinja_value){.kind = JINJA_BOOL, .truth = truth};
}
static inline jinja_value jinja_int(int64_t i)
{
    return (jinja_value){.kind = JINJA_INT, .i = i};
}
static inline jinja_value jinja_real(double r)
{
    return (jinja_value){.kind = JINJA_REAL, .r = r};
}

/* A part of a text that is there, shared. */
ATOM_MUST atom_status jinja_from_text(jinja_heap *h, jinja_text t, jinja_value *out);
/* A copy; mark: of each byte. */
ATOM_MUST atom_status jinja_from_bytes(jinja_heap *h, const char *at, size_t n, jinja_mark mark,
                                       jinja_value *out);
/* mark: of all texts in it. Numbers that are too large are refused by jansson itself. */
ATOM_MUST atom_status jinja_from_json(jinja_heap *h, const json_t *json, jinja_mark mark,
                                      jinja_value *out);

/* kind: one that has a list, or a dict or namespace. */
ATOM_MUST atom_status jinja_new_list(jinja_heap *h, jinja_kind kind, jinja_value *out);
ATOM_MUST atom_status jinja_new_dict(jinja_heap *h, jinja_kind kind, jinja_value *out);
ATOM_MUST atom_status jinja_append(jinja_heap *h, jinja_list *list, jinja_value item);
/* Sets, or replaces in its place. */
ATOM_MUST atom_status jinja_set(jinja_heap *h, jinja_dict *d, jinja_value key, jinja_value value);
ATOM_MUST atom_status jinja_set_name(jinja_heap *h, jinja_dict *d, const char *name,
                                     jinja_value value);
/* NULL: no such key. */
ATOM_MUST atom_status jinja_get(jinja_heap *h, const jinja_dict *d, jinja_value key,
                                const jinja_value **out);
ATOM_MUST atom_status jinja_get_name(jinja_heap *h, const jinja_dict *d, const char *name,
                                     const jinja_value **out);

bool jinja_is_number(jinja_value v);   /* int, real or bool, as in Python */
bool jinja_is_sequence(jinja_value v); /* has a list */
bool jinja_text_is(jinja_text t, const char *word);
bool jinja_truth(jinja_value v);
const char *jinja_kind_name(jinja_value v); /* as Python calls it, for messages */
double jinja_number(jinja_value v);         /* of what is a number */

/* The items of anything that can be iterated over: characters, keys, items; an iterator is then
 * used up. Fails for the others. */
ATOM_MUST atom_status jinja_items(jinja_heap *h, jinja_value v, jinja_list **out);
/* The length, as len() has it. */
ATOM_MUST atom_status jinja_length(jinja_heap *h, jinja_value v, int64_t *out);

/* Python's ==. */
ATOM_MUST atom_status jinja_equal(jinja_heap *h, jinja_value a, jinja_value b, bool *out);

#endif
