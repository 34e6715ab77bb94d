/*
 * Owns the grammar of expressions. One idea: recursive descent, one function for each level of
 * binding, in Jinja2's order. Refuses * and ** before arguments.
 */
#include "atom/text/jinja/order.h"
#include "atom/text/jinja/parse.h"

#include <string.h>

static bool token_is(const jinja_token *t, jinja_token_kind kind, const char *word)
{
    return t->kind == kind && strcmp(t->at, word) == 0;
}

/* kind(a, b); either may be NULL */
static atom_status join(jinja_parser *p, jinja_node_kind kind, jinja_node *a, jinja_node *b,
                        jinja_node **out)
{
    ATOM_TRY(jinja_new_node(p, kind, out));
    (*out)->a = a;
    (*out)->b = b;
    return ATOM_OK;
}

/* ---- what binds most ---- */

static atom_status parse_args(jinja_parser *p, jinja_node *call)
{
    ATOM_TRY(jinja_expect_sign(p, "("));
    while (!jinja_at_sign(p, ")")) {
        jinja_node_arg arg = {0};
        if (call->args_n) {
            ATOM_TRY(jinja_expect_sign(p, ","));
            if (jinja_at_sign(p, ")"))
                break;
        }
        if (jinja_at_sign(p, "*") || jinja_at_sign(p, "**"))
            return jinja_fail(p->h, "* and ** before arguments are not supported");
        const jinja_token *ahead = &p->tokens->items[p->at];
        if (ahead->kind == JINJA_T_NAME && token_is(ahead + 1, JINJA_T_SIGN, "=")) {
            arg.name = jinja_next(p)->at;
            jinja_next(p);
        } else if (call->args_n && call->args[call->args_n - 1].name) {
            return jinja_fail(p->h, "an argument without a name follows one with a name");
        }
        ATOM_TRY(jinja_parse_expression(p, true, &arg.value));
        ATOM_TRY(jinja_add_arg(p, call, arg));
    }
    return jinja_expect_sign(p, ")");
}

static atom_status parse_call(jinja_parser *p, jinja_node *of, jinja_node **out)
{
    ATOM_TRY(join(p, JINJA_N_CALL, of, NULL, out));
    return parse_args(p, *out);
}

static atom_status parse_constant(jinja_parser *p, jinja_node **out)
{
    const jinja_token *t = jinja_peek(p);
    jinja_writer w = {.h = p->h};
    ATOM_TRY(jinja_new_node(p, JINJA_N_VALUE, out));
    if (t->kind == JINJA_T_STRING) {
        for (; jinja_peek(p)->kind == JINJA_T_STRING; jinja_next(p)) {
            t = jinja_peek(p);
            ATOM_TRY(jinja_put(&w, t->at, t->n, 0));
        }
        return jinja_from_text(p->h, jinja_written(&w), &(*out)->value);
    }
    (*out)->value = t->kind == JINJA_T_INT ? jinja_int(t->i) : jinja_real(t->r);
    jinja_next(p);
    return ATOM_OK;
}

static atom_status parse_name(jinja_parser *p, jinja_node **out)
{
    static const struct {
        const char *name;
        jinja_value value;
    } constants[] = {
        {"true", {.kind = JINJA_BOOL, .truth = true}},
        {"True", {.kind = JINJA_BOOL, .truth = true}},
        {"false", {.kind = JINJA_BOOL}},
        {"False", {.kind = JINJA_BOOL}},
        {"none", {.kind = JINJA_NONE}},
        {"None", {.kind = JINJA_NONE}},
    };
    ATOM_TRY(jinja_new_node(p, JINJA_N_NAME, out));
    (*out)->name = jinja_next(p)->at;
    p->caller = p->caller || strcmp((*out)->name, "caller") == 0;
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++)
        if (strcmp((*out)->name, constants[i].name) == 0) {
            (*out)->kind = JINJA_N_VALUE;
            (*out)->value = constants[i].value;
        }
    return ATOM_OK;
}

static atom_status parse_list(jinja_parser *p, jinja_node **out)
{
    jinja_node *item;
    ATOM_TRY(jinja_new_node(p, JINJA_N_LIST, out));
    jinja_next(p);
    while (!jinja_at_sign(p, "]")) {
        if ((*out)->items.n) {
            ATOM_TRY(jinja_expect_sign(p, ","));
            if (jinja_at_sign(p, "]"))
                break;
        }
        ATOM_TRY(jinja_parse_expression(p, true, &item));
        ATOM_TRY(jinja_add_node(p, &(*out)->items, item));
    }
    return jinja_expect_sign(p, "]");
}

static atom_status parse_dict(jinja_parser *p, jinja_node **out)
{
    jinja_node *item;
    ATOM_TRY(jinja_new_node(p, JINJA_N_DICT, out));
    jinja_next(p);
    while (!jinja_at_sign(p, "}")) {
        if ((*out)->items.n) {
            ATOM_TRY(jinja_expect_sign(p, ","));
            if (jinja_at_sign(p, "}"))
                break;
        }
        ATOM_TRY(jinja_parse_expression(p, true, &item));
        ATOM_TRY(jinja_add_node(p, &(*out)->items, item));
        ATOM_TRY(jinja_expect_sign(p, ":"));
        ATOM_TRY(jinja_parse_expression(p, true, &item));
        ATOM_TRY(jinja_add_node(p, &(*out)->items, item));
    }
    return jinja_expect_sign(p, "}");
}

static atom_status parse_primary(jinja_parser *p, jinja_node **out)
{
    const jinja_token *t = jinja_peek(p);
    if (t->kind == JINJA_T_NAME)
        return parse_name(p, out);
    if (t->kind == JINJA_T_STRING || t->kind == JINJA_T_INT || t->kind == JINJA_T_REAL)
        return parse_constant(p, out);
    if (jinja_at_sign(p, "["))
        return parse_list(p, out);
    if (jinja_at_sign(p, "{"))
        return parse_dict(p, out);
    if (!jinja_skip_sign(p, "("))
        return jinja_unexpected(p, "a value");
    if (jinja_at_sign(p, ")"))
        ATOM_TRY(jinja_new_node(p, JINJA_N_TUPLE, out));
    else
        ATOM_TRY(jinja_parse_tuple(p, true, NULL, out));
    return jinja_expect_sign(p, ")");
}

/* [x], [x:y:z] */
static atom_status parse_subscript(jinja_parser *p, jinja_node *of, jinja_node **out)
{
    jinja_node *parts[3] = {NULL, NULL, NULL}, *slice;
    size_t n = 0;
    jinja_next(p);
    ATOM_TRY(join(p, JINJA_N_ITEM, of, NULL, out));
    if (!jinja_at_sign(p, ":"))
        ATOM_TRY(jinja_parse_expression(p, true, &parts[0]));
    while (n < 2 && jinja_skip_sign(p, ":")) {
        n++;
        if (!jinja_at_sign(p, ":") && !jinja_at_sign(p, "]"))
            ATOM_TRY(jinja_parse_expression(p, true, &parts[n]));
    }
    (*out)->b = parts[0];
    if (n) {
        ATOM_TRY(jinja_new_node(p, JINJA_N_SLICE, &slice));
        for (size_t i = 0; i < 3; i++)
            ATOM_TRY(jinja_add_node(p, &slice->items, parts[i]));
        (*out)->b = slice;
    }
    return jinja_expect_sign(p, "]");
}

static atom_status parse_dot(jinja_parser *p, jinja_node *of, jinja_node **out)
{
    jinja_next(p);
    if (jinja_peek(p)->kind == JINJA_T_INT) {
        ATOM_TRY(join(p, JINJA_N_ITEM, of, NULL, out));
        return parse_constant(p, &(*out)->b);
    }
    ATOM_TRY(join(p, JINJA_N_ATTRIBUTE, of, NULL, out));
    return jinja_expect_name(p, &(*out)->name);
}

static atom_status parse_postfix(jinja_parser *p, jinja_node **node)
{
    for (;;) {
        if (jinja_at_sign(p, "."))
            ATOM_TRY(parse_dot(p, *node, node));
        else if (jinja_at_sign(p, "["))
            ATOM_TRY(parse_subscript(p, *node, node));
        else if (jinja_at_sign(p, "("))
            ATOM_TRY(parse_call(p, *node, node));
        else
            return ATOM_OK;
    }
}

/* ---- filters and tests ---- */

static atom_status parse_filter(jinja_parser *p, jinja_node *of, jinja_node **out)
{
    ATOM_TRY(join(p, JINJA_N_FILTER, of, NULL, out));
    ATOM_TRY(jinja_expect_name(p, &(*out)->name));
    return jinja_at_sign(p, "(") ? parse_args(p, *out) : ATOM_OK;
}

atom_status jinja_parse_filters(jinja_parser *p, bool first, jinja_node *of, jinja_node **out)
{
    *out = of;
    while (first || jinja_skip_sign(p, "|")) {
        ATOM_TRY(parse_filter(p, *out, out));
        first = false;
    }
    return ATOM_OK;
}

/* Behind a test's name: an argument without brackets? */
static bool at_argument(const jinja_parser *p)
{
    const jinja_token *t = jinja_peek(p);
    if (t->kind == JINJA_T_NAME)
        return strcmp(t->at, "else") != 0 && strcmp(t->at, "or") != 0 &&
               strcmp(t->at, "and") != 0 && strcmp(t->at, "if") != 0 &&
               strcmp(t->at, "recursive") != 0;
    return t->kind == JINJA_T_STRING || t->kind == JINJA_T_INT || t->kind == JINJA_T_REAL ||
           jinja_at_sign(p, "[") || jinja_at_sign(p, "{");
}

static atom_status parse_test(jinja_parser *p, jinja_node **node)
{
    jinja_node *test, *negated;
    jinja_node_arg arg = {0};
    jinja_next(p);
    bool not = jinja_skip_name(p, "not");
    ATOM_TRY(join(p, JINJA_N_TEST, *node, NULL, &test));
    ATOM_TRY(jinja_expect_name(p, &test->name));
    if (jinja_at_sign(p, "(")) {
        ATOM_TRY(parse_args(p, test));
    } else if (at_argument(p)) {
        if (jinja_at_name(p, "is"))
            return jinja_fail(p->h, "a test of a test; put the first one into brackets");
        ATOM_TRY(parse_primary(p, &arg.value));
        ATOM_TRY(parse_postfix(p, &arg.value));
        ATOM_TRY(jinja_add_arg(p, test, arg));
    }
    *node = test;
    if (not ) {
        ATOM_TRY(join(p, JINJA_N_NOT, test, NULL, &negated));
        *node = negated;
    }
    return ATOM_OK;
}

static atom_status parse_filters_and_tests(jinja_parser *p, jinja_node **node)
{
    for (;;) {
        if (jinja_at_sign(p, "|"))
            ATOM_TRY(jinja_parse_filters(p, false, *node, node));
        else if (jinja_at_name(p, "is"))
            ATOM_TRY(parse_test(p, node));
        else if (jinja_at_sign(p, "("))
            ATOM_TRY(parse_call(p, *node, node));
        else
            return ATOM_OK;
    }
}

/* ---- operators ---- */

static atom_status parse_unary(jinja_parser *p, bool filters, jinja_node **out)
{
    atom_status st = jinja_enter(p->h);
    jinja_node *inner = NULL;
    if (st == ATOM_OK && (jinja_at_sign(p, "-") || jinja_at_sign(p, "+"))) {
        bool minus = jinja_next(p)->at[0] == '-';
        st = parse_unary(p, false, &inner);
        if (st == ATOM_OK)
            st = join(p, minus ? JINJA_N_NEGATE : JINJA_N_PLUS, inner, NULL, out);
    } else if (st == ATOM_OK) {
        st = parse_primary(p, out);
    }
    if (st == ATOM_OK)
        st = parse_postfix(p, out);
    if (st == ATOM_OK && filters)
        st = parse_filters_and_tests(p, out);
    jinja_leave(p->h);
    return st;
}

typedef struct level {
    const char *sign;
    jinja_operator op;
} level;

/* Left to right: lower (sign lower)* */
static atom_status parse_level(jinja_parser *p, const level *levels, size_t n,
                               atom_status (*lower)(jinja_parser *, jinja_node **),
                               jinja_node **out)
{
    jinja_node *right, *made;
    ATOM_TRY(lower(p, out));
    for (size_t i = 0; i < n;) {
        if (!jinja_skip_sign(p, levels[i].sign)) {
            i++;
            continue;
        }
        ATOM_TRY(lower(p, &right));
        ATOM_TRY(join(p, JINJA_N_OPERATE, *out, right, &made));
        made->op = (int)levels[i].op;
        *out = made;
        i = 0;
    }
    return ATOM_OK;
}

static atom_status parse_filtered(jinja_parser *p, jinja_node **out)
{
    return parse_unary(p, true, out);
}

static atom_status parse_power(jinja_parser *p, jinja_node **out)
{
    static const level levels[] = {{"**", JINJA_POW}};
    return parse_level(p, levels, 1, parse_filtered, out);
}

static atom_status parse_product(jinja_parser *p, jinja_node **out)
{
    static const level levels[] = {
        {"*", JINJA_MUL}, {"/", JINJA_DIV}, {"//", JINJA_FLOORDIV}, {"%", JINJA_MOD}};
    return parse_level(p, levels, 4, parse_power, out);
}

static atom_status parse_concat(jinja_parser *p, jinja_node **out)
{
    jinja_node *made = NULL, *item;
    ATOM_TRY(parse_product(p, &item));
    *out = item;
    while (jinja_skip_sign(p, "~")) {
        if (!made) {
            ATOM_TRY(jinja_new_node(p, JINJA_N_CONCAT, &made));
            ATOM_TRY(jinja_add_node(p, &made->items, item));
        }
        ATOM_TRY(parse_product(p, &item));
        ATOM_TRY(jinja_add_node(p, &made->items, item));
        *out = made;
    }
    return ATOM_OK;
}

static atom_status parse_sum(jinja_parser *p, jinja_node **out)
{
    static const level levels[] = {{"+", JINJA_ADD}, {"-", JINJA_SUB}};
    return parse_level(p, levels, 2, parse_concat, out);
}

/* The comparison that comes next, passed over; -1: none. */
static int take_comparison(jinja_parser *p)
{
    static const char *const comparisons[] = {
        [JINJA_EQ] = "==", [JINJA_NE] = "!=", [JINJA_LT] = "<",
        [JINJA_LE] = "<=", [JINJA_GT] = ">",  [JINJA_GE] = ">="};
    for (int i = 0; i <= JINJA_GE; i++)
        if (jinja_skip_sign(p, comparisons[i]))
            return i;
    if (jinja_skip_name(p, "in"))
        return JINJA_IN;
    const jinja_token *t = jinja_peek(p);
    if (t->kind == JINJA_T_NAME && strcmp(t->at, "not") == 0 &&
        token_is(t + 1, JINJA_T_NAME, "in")) {
        jinja_next(p);
        jinja_next(p);
        return JINJA_NOT_IN;
    }
    return -1;
}

static atom_status parse_comparison(jinja_parser *p, jinja_node **out)
{
    jinja_node *all = NULL, *one;
    ATOM_TRY(parse_sum(p, out));
    for (int op; (op = take_comparison(p)) >= 0;) {
        if (!all)
            ATOM_TRY(join(p, JINJA_N_COMPARE, *out, NULL, &all));
        ATOM_TRY(jinja_new_node(p, JINJA_N_COMPARED, &one));
        one->op = op;
        ATOM_TRY(parse_sum(p, &one->a));
        ATOM_TRY(jinja_add_node(p, &all->items, one));
        *out = all;
    }
    return ATOM_OK;
}

static atom_status parse_not(jinja_parser *p, jinja_node **out)
{
    jinja_node *inner = NULL;
    size_t nots = 0;
    while (jinja_skip_name(p, "not"))
        nots++;
    ATOM_TRY(parse_comparison(p, out));
    for (; nots; nots--) {
        inner = *out;
        ATOM_TRY(join(p, JINJA_N_NOT, inner, NULL, out));
    }
    return ATOM_OK;
}

static atom_status parse_and(jinja_parser *p, jinja_node **out)
{
    jinja_node *left, *right;
    ATOM_TRY(parse_not(p, out));
    while (jinja_skip_name(p, "and")) {
        left = *out;
        ATOM_TRY(parse_not(p, &right));
        ATOM_TRY(join(p, JINJA_N_AND, left, right, out));
    }
    return ATOM_OK;
}

static atom_status parse_or(jinja_parser *p, jinja_node **out)
{
    jinja_node *left, *right;
    ATOM_TRY(parse_and(p, out));
    while (jinja_skip_name(p, "or")) {
        left = *out;
        ATOM_TRY(parse_and(p, &right));
        ATOM_TRY(join(p, JINJA_N_OR, left, right, out));
    }
    return ATOM_OK;
}

static atom_status parse_condition(jinja_parser *p, jinja_node **out)
{
    jinja_node *then, *test, *otherwise;
    ATOM_TRY(parse_or(p, out));
    while (jinja_skip_name(p, "if")) {
        then = *out;
        otherwise = NULL;
        ATOM_TRY(parse_or(p, &test));
        if (jinja_skip_name(p, "else"))
            ATOM_TRY(jinja_parse_expression(p, true, &otherwise));
        ATOM_TRY(join(p, JINJA_N_CONDITION, test, then, out));
        (*out)->c = otherwise;
    }
    return ATOM_OK;
}

atom_status jinja_parse_expression(jinja_parser *p, bool conditional, jinja_node **out)
{
    atom_status st = jinja_enter(p->h);
    if (st == ATOM_OK)
        st = conditional ? parse_condition(p, out) : parse_or(p, out);
    jinja_leave(p->h);
    return st;
}

static bool tuple_ends(const jinja_parser *p, const char *end)
{
    jinja_token_kind kind = jinja_peek(p)->kind;
    return kind == JINJA_T_PRINT_END || kind == JINJA_T_BLOCK_END || jinja_at_sign(p, ")") ||
           (end && jinja_at_name(p, end));
}

atom_status jinja_parse_tuple(jinja_parser *p, bool conditional, const char *end, jinja_node **out)
{
    jinja_node *item, *made = NULL;
    ATOM_TRY(jinja_parse_expression(p, conditional, &item));
    *out = item;
    while (jinja_skip_sign(p, ",")) {
        if (!made) {
            ATOM_TRY(jinja_new_node(p, JINJA_N_TUPLE, &made));
            ATOM_TRY(jinja_add_node(p, &made->items, item));
            *out = made;
        }
        if (tuple_ends(p, end))
            break;
        ATOM_TRY(jinja_parse_expression(p, conditional, &item));
        ATOM_TRY(jinja_add_node(p, &made->items, item));
    }
    return ATOM_OK;
}

/* ---- targets ---- */

static atom_status parse_one_target(jinja_parser *p, jinja_node **out)
{
    atom_status st = jinja_enter(p->h);
    jinja_node *name;
    if (st == ATOM_OK && jinja_skip_sign(p, "(")) {
        st = jinja_parse_target(p, NULL, out);
        if (st == ATOM_OK)
            st = jinja_expect_sign(p, ")");
    } else if (st == ATOM_OK) {
        st = jinja_peek(p)->kind == JINJA_T_NAME ? parse_name(p, out)
                                                 : jinja_unexpected(p, "a name");
        if (st == ATOM_OK && (*out)->kind != JINJA_N_NAME)
            st = jinja_fail(p->h, "'%s' cannot be set", (*out)->name);
        if (st == ATOM_OK && jinja_at_sign(p, ".")) {
            name = *out;
            st = parse_dot(p, name, out);
        }
    }
    jinja_leave(p->h);
    return st;
}

atom_status jinja_parse_target(jinja_parser *p, const char *end, jinja_node **out)
{
    jinja_node *item, *made = NULL;
    ATOM_TRY(parse_one_target(p, &item));
    *out = item;
    while (jinja_skip_sign(p, ",")) {
        if (!made) {
            ATOM_TRY(jinja_new_node(p, JINJA_N_TUPLE, &made));
            ATOM_TRY(jinja_add_node(p, &made->items, item));
            *out = made;
        }
        if (tuple_ends(p, end) || jinja_at_sign(p, "="))
            break;
        ATOM_TRY(parse_one_target(p, &item));
        ATOM_TRY(jinja_add_node(p, &made->items, item));
    }
    return ATOM_OK;
}
