/*
 * Owns the tests. One idea: a question about one value, or about it and one other. Refuses names
 * that are not known.
 */
#include "atom/text/jinja/filter.h"

#include "atom/text/jinja/order.h"
#include "atom/text/jinja/print.h"
#include "atom/text/jinja/text.h"

#include <string.h>

typedef enum question {
    DEFINED,
    UNDEFINED,
    NONE,
    STRING,
    MAPPING,
    ITERABLE,
    SEQUENCE,
    NUMBER,
    INTEGER,
    FLOAT,
    BOOLEAN,
    TRUE,
    FALSE,
    CALLABLE,
    ODD,
    EVEN,
    UPPER,
    LOWER,
    /* about another value, too */
    EQ,
    NE,
    LT,
    LE,
    GT,
    GE,
    IN,
    DIVISIBLEBY,
    SAMEAS,
} question;

static const struct {
    const char *name;
    question asks;
} names[] = {
    {"defined", DEFINED},
    {"undefined", UNDEFINED},
    {"none", NONE},
    {"string", STRING},
    {"mapping", MAPPING},
    {"iterable", ITERABLE},
    {"sequence", SEQUENCE},
    {"number", NUMBER},
    {"integer", INTEGER},
    {"float", FLOAT},
    {"boolean", BOOLEAN},
    {"true", TRUE},
    {"false", FALSE},
    {"callable", CALLABLE},
    {"odd", ODD},
    {"even", EVEN},
    {"upper", UPPER},
    {"lower", LOWER},
    {"equalto", EQ},
    {"eq", EQ},
    {"==", EQ},
    {"ne", NE},
    {"!=", NE},
    {"lt", LT},
    {"lessthan", LT},
    {"<", LT},
    {"le", LE},
    {"<=", LE},
    {"gt", GT},
    {"greaterthan", GT},
    {">", GT},
    {"ge", GE},
    {">=", GE},
    {"in", IN},
    {"divisibleby", DIVISIBLEBY},
    {"sameas", SAMEAS},
};

static int find(const char *name)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i].name, name) == 0)
            return (int)names[i].asks;
    return -1;
}

static bool is_kind(question asks, jinja_value v)
{
    bool listed = v.kind == JINJA_TEXT || v.kind == JINJA_LIST || v.kind == JINJA_TUPLE ||
                  v.kind == JINJA_DICT || v.kind == JINJA_UNDEFINED;
    switch (asks) {
    case DEFINED:
        return v.kind != JINJA_UNDEFINED;
    case UNDEFINED:
        return v.kind == JINJA_UNDEFINED;
    case NONE:
        return v.kind == JINJA_NONE;
    case STRING:
        return v.kind == JINJA_TEXT;
    case MAPPING:
        return v.kind == JINJA_DICT;
    case ITERABLE:
        return listed || v.kind == JINJA_VIEW || v.kind == JINJA_ITERATOR || v.kind == JINJA_LOOP;
    case SEQUENCE:
        return listed;
    case NUMBER:
        return jinja_is_number(v);
    case INTEGER:
        return v.kind == JINJA_INT;
    case FLOAT:
        return v.kind == JINJA_REAL;
    case BOOLEAN:
        return v.kind == JINJA_BOOL;
    case TRUE:
        return v.kind == JINJA_BOOL && v.truth;
    case FALSE:
        return v.kind == JINJA_BOOL && !v.truth;
    default: /* an undefined value has __call__, too */
        return v.kind == JINJA_CALLABLE || v.kind == JINJA_UNDEFINED ||
               (v.kind == JINJA_LOOP && v.loop->node);
    }
}

/* Is `rest` what is left of v % of? */
static atom_status leaves(jinja_heap *h, jinja_value v, int64_t of, int64_t rest, bool *out)
{
    jinja_value left;
    ATOM_TRY(jinja_operate(h, JINJA_MOD, v, jinja_int(of), &left));
    return jinja_equal(h, left, jinja_int(rest), out);
}

static atom_status ask_one(jinja_heap *h, question asks, jinja_value v, bool *out)
{
    jinja_text t;
    switch (asks) {
    case ODD:
    case EVEN:
        return leaves(h, v, 2, asks == ODD, out); /* half a number is neither */
    case UPPER:
    case LOWER:
        ATOM_TRY(jinja_to_text(h, v, &t));
        return jinja_is_cased(h, t, asks == UPPER, out);
    default:
        *out = is_kind(asks, v);
        return ATOM_OK;
    }
}

static bool same_object(jinja_value a, jinja_value b)
{
    if (a.kind != b.kind)
        return false;
    switch (a.kind) {
    case JINJA_UNDEFINED:
    case JINJA_TEXT:
    case JINJA_REAL:
    case JINJA_INT:
        return false; /* settled before */
    case JINJA_NONE:
        return true;
    case JINJA_BOOL:
        return a.truth == b.truth;
    default:
        return a.list == b.list;
    }
}

static atom_status ask_two(jinja_heap *h, question asks, jinja_value v, jinja_value other,
                           bool *out)
{
    int order;
    switch (asks) {
    case EQ:
    case NE:
        ATOM_TRY(jinja_equal(h, v, other, out));
        *out = *out == (asks == EQ);
        return ATOM_OK;
    case IN:
        return jinja_contains(h, other, v, out);
    case DIVISIBLEBY:
        if (other.kind != JINJA_INT)
            return jinja_fail(h, "divisibleby needs a whole number");
        return leaves(h, v, other.i, 0, out);
    case SAMEAS:
        if (v.kind == other.kind &&
            (v.kind == JINJA_TEXT || v.kind == JINJA_INT || v.kind == JINJA_REAL))
            return jinja_fail(h, "sameas is not reliable for texts and numbers; use ==");
        *out = same_object(v, other);
        return ATOM_OK;
    default:
        ATOM_TRY(jinja_compare(h, v, other, &order));
        *out = asks == LT   ? order < 0
               : asks == LE ? order <= 0
               : asks == GT ? order > 0
                            : order >= 0;
        return ATOM_OK;
    }
}

atom_status jinja_test(jinja_heap *h, jinja_value v, const jinja_args *args, bool *out)
{
    jinja_value other;
    int asks = find(args->of);
    if (asks < 0)
        return jinja_fail(h, "the test '%.60s' is not one that atom has", args->of);
    ATOM_TRY(jinja_step(h, 1));
    if (asks < EQ) {
        ATOM_TRY(jinja_bind(h, args, "", 0, NULL));
        return ask_one(h, (question)asks, v, out);
    }
    ATOM_TRY(jinja_bind(h, args, "other", 1, &other));
    return ask_two(h, (question)asks, v, other, out);
}
