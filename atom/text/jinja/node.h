/*
 * A template as a tree. Made by the parser, immutable afterwards; any thread may walk it.
 *
 * One struct for all kinds; which of its members a kind uses stands beside it. Lists in `items`
 * are in the order of the source.
 */
#ifndef ATOM_TEXT_JINJA_NODE_H
#define ATOM_TEXT_JINJA_NODE_H

#include "atom/text/jinja/value.h"

typedef enum jinja_node_kind {
    /* expressions */
    JINJA_N_VALUE,     /* value */
    JINJA_N_NAME,      /* name */
    JINJA_N_LIST,      /* items */
    JINJA_N_TUPLE,     /* items; also as a target */
    JINJA_N_DICT,      /* items: key, value, key, value ... */
    JINJA_N_NOT,       /* a */
    JINJA_N_AND,       /* a, b */
    JINJA_N_OR,        /* a, b */
    JINJA_N_NEGATE,    /* a */
    JINJA_N_PLUS,      /* a; the sign before a number */
    JINJA_N_OPERATE,   /* a, b; op: jinja_operator */
    JINJA_N_CONCAT,    /* items: a ~ b ~ ... */
    JINJA_N_COMPARE,   /* a; items: JINJA_N_COMPARED, each against the one before */
    JINJA_N_COMPARED,  /* a; op: jinja_comparison */
    JINJA_N_CONDITION, /* b if a else c; c NULL: undefined */
    JINJA_N_ATTRIBUTE, /* a.name; also as a target, of a namespace */
    JINJA_N_ITEM,      /* a[b] */
    JINJA_N_SLICE,     /* items: from, to, step; NULL: not given. Only as b of an ITEM */
    JINJA_N_CALL,      /* a(args) */
    JINJA_N_FILTER,    /* a | name(args); a NULL: the text of a block */
    JINJA_N_TEST,      /* a is name(args) */
    /* statements */
    JINJA_N_TEXT,       /* value */
    JINJA_N_PRINT,      /* a */
    JINJA_N_IF,         /* items: JINJA_N_BRANCH */
    JINJA_N_BRANCH,     /* a: condition, NULL: else; items: body */
    JINJA_N_FOR,        /* a in b, if c (or NULL); items: body; otherwise; op: recursive? */
    JINJA_N_SET,        /* a: target, b: value */
    JINJA_N_SET_BLOCK,  /* a: target, b: filters or NULL; items: body */
    JINJA_N_MACRO,      /* name, args: parameters; items: body; op: uses caller? */
    JINJA_N_CALL_BLOCK, /* a: a JINJA_N_CALL; b: a JINJA_N_MACRO that becomes `caller` */
    JINJA_N_FILTERED,   /* a: filters; items: body */
    JINJA_N_WITH,       /* args: names and values; items: body */
    JINJA_N_GENERATION, /* items: body */
    JINJA_N_BREAK,
    JINJA_N_CONTINUE,
} jinja_node_kind;

typedef enum jinja_comparison {
    JINJA_EQ,
    JINJA_NE,
    JINJA_LT,
    JINJA_LE,
    JINJA_GT,
    JINJA_GE,
    JINJA_IN,
    JINJA_NOT_IN
} jinja_comparison;

/* An argument, or a parameter with its default (NULL: none). */
typedef struct jinja_node_arg {
    const char *name; /* NULL: by place */
    struct jinja_node *value;
} jinja_node_arg;

typedef struct jinja_nodes {
    struct jinja_node **items;
    size_t n, capacity;
} jinja_nodes;

typedef struct jinja_node {
    jinja_node_kind kind;
    uint32_t line;
    int op;
    const char *name;
    jinja_value value;
    struct jinja_node *a, *b, *c;
    jinja_nodes items, otherwise;
    jinja_node_arg *args;
    size_t args_n, args_capacity;
} jinja_node;

#endif
