/*
 * Owns expressions. One idea: one function for each kind of node, found in a table; all of them
 * come through jinja_evaluate, which counts steps and depth. Refuses what values cannot do.
 */
#include "atom/text/jinja/evaluate.h"

#include "atom/text/jinja/filter.h"
#include "atom/text/jinja/lookup.h"
#include "atom/text/jinja/method.h"
#include "atom/text/jinja/order.h"
#include "atom/text/jinja/print.h"

#include <string.h>

typedef atom_status (*node_fn)(jinja_run *r, const jinja_node *node, jinja_value *out);

/* ---- names ---- */

atom_status jinja_define(jinja_run *r, const char *name, jinja_value value)
{
    jinja_binding *b = r->scope->bindings;
    uint64_t steps = 0;
    for (; b && strcmp(b->name, name) != 0; b = b->next)
        steps++;
    ATOM_TRY(jinja_step(r->h, steps));
    if (!b) {
        ATOM_TRY(jinja_alloc(r->h, 1, sizeof *b, &b));
        b->name = name;
        b->next = r->scope->bindings;
        r->scope->bindings = b;
    }
    b->value = value;
    return ATOM_OK;
}

static atom_status function_value(jinja_run *r, const char *name, jinja_value *out)
{
    jinja_callable *made;
    ATOM_TRY(jinja_alloc(r->h, 1, sizeof *made, &made));
    *made = (jinja_callable){.name = name};
    *out = (jinja_value){.kind = JINJA_CALLABLE, .callable = made};
    return ATOM_OK;
}

static atom_status of_name(jinja_run *r, const jinja_node *node, jinja_value *out)
{
    const jinja_value *global;
    uint64_t steps = 0;
    for (const jinja_scope *s = r->scope; s; s = s->outer)
        for (const jinja_binding *b = s->bindings; b; b = b->next, steps++)
            if (strcmp(b->name, node->name) == 0) {
                *out = b->value;
                return jinja_step(r->h, steps);
            }
    ATOM_TRY(jinja_step(r->h, steps));
    ATOM_TRY(jinja_get_name(r->h, r->globals, node->name, &global));
    if (global)
        *out = *global;
    else if (jinja_has_function(node->name))
        return function_value(r, node->name, out);
    else
        *out = jinja_undefined(node->name);
    return ATOM_OK;
}

/* ---- literals ---- */

static atom_status of_value(jinja_run *r, const jinja_node *node, jinja_value *out)
{
    (void)r;
    *out = node->value;
    return ATOM_OK;
}

static atom_status of_list(jinja_run *r, const jinja_node *node, jinja_value *out)
{
    jinja_value item;
    ATOM_TRY(jinja_new_list(r->h, node->kind == JINJA_N_LIST ? JINJA_LIST : JINJA_TUPLE, out));
    for (size_t i = 0; i < node->items.n; i++) {
        ATOM_TRY(jinja_evaluate(r, node->items.items[i], &item));
        ATOM_TRY(jinja_append(r->h, out->list, item));
    }
    return ATOM_OK;
}

static atom_status of_dict(jinja_run *r, const jinja_node *node, jinja_value *out)
{
    jinja_value key, value;
    ATOM_TRY(jinja_new_dict(r->h, JINJA_DICT, out));
    for (size_t i = 0; i + 1 < node->items.n; i += 2) {
        ATOM_TRY(jinja_evaluate(r, node->items.items[i], &key));
        ATOM_TRY(jinja_evaluate(r, node->items.items[i + 1], &value));
        ATOM_TRY(jinja_set(r->h, out->dict, key, value));
    }
    return ATOM_OK;
}

/* ---- operators ---- */

static atom_status of_not(jinja_run *r, const jinja_node *node, jinja_value *out)
{
    ATOM_TRY(jinja_evaluate(r, node->a, out));
    *out = jinja_bool(!jinja_truth(*out));
    return ATOM_OK;
}

static atom_status of_logic(jinja_run *r, const jinja_node *node, jinja_value *out)
{
    ATOM_TRY(jinja_evaluate(r, node->a, out));
    return jinja_truth(*out) == (node->kind == JINJA_N_AND) ? jinja_evaluate(r, node->b, out)
                                                            : ATOM_OK;
}

static atom_status of_sign(jinja_run *r, const jinja_node *node, jinja_value *out)
{
    jinja_value v;
    ATOM_TRY(jinja_evaluate(r, node->a, &v));
    if (!jinja_is_number(v))
        return jinja_fail(r->h, "a sign before '%s'", jinja_kind_name(v));
    if (node->kind != JINJA_N_NEGATE)
        return jinja_operate(r->h, JINJA_ADD, v, jinja_int(0), out);
    if (v.kind != JINJA_REAL)
        return jinja_negate(r->h, v, out);
    *out = jinja_real(-v.r); /* 0 - 0.0 has another sign */
    return ATOM_OK;
}

static atom_status of_operator(jinja_run *r, const jinja_node *node, jinja_value *out)
{
    jinja_value a, b;
    ATOM_TRY(jinja_evaluate(r, node->a, &a));
    ATOM_TRY(jinja_evaluate(r, node->b, &b));
    if (node->op == JINJA_MOD && a.kind == JINJA_TEXT)
        return jinja_percent(r->h, *a.text, b, out);
    return jinja_operate(r->h, (jinja_operator)node->op, a, b, out);
}

static atom_status of_concat(jinja_run *r, const jinja_node *node, jinja_value *out)
{
    jinja_writer w = {.h = r->h};
    jinja_value item;
    for (size_t i = 0; i < node->items.n; i++) {
        ATOM_TRY(jinja_evaluate(r, node->items.items[i], &item));
        ATOM_TRY(jinja_print(&w, item));
    }
    return jinja_from_text(r->h, jinja_written(&w), out);
}

static atom_status compare(jinja_run *r, int op, jinja_value a, jinja_value b, bool *out)
{
    int order;
    switch (op) {
    case JINJA_EQ:
    case JINJA_NE:
        ATOM_TRY(jinja_equal(r->h, a, b, out));
        *out = *out == (op == JINJA_EQ);
        return ATOM_OK;
    case JINJA_IN:
    case JINJA_NOT_IN:
        ATOM_TRY(jinja_contains(r->h, b, a, out));
        *out = *out == (op == JINJA_IN);
        return ATOM_OK;
    default:
        ATOM_TRY(jinja_compare(r->h, a, b, &order));
        *out = op == JINJA_LT   ? order < 0
               : op == JINJA_LE ? order <= 0
               : op == JINJA_GT ? order > 0
                                : order >= 0;
        return ATOM_OK;
    }
}

static atom_status of_comparison(jinja_run *r, const jinja_node *node, jinja_value *out)
{
    jinja_value left, right;
    bool yes = true;
    ATOM_TRY(jinja_evaluate(r, node->a, &left));
    for (size_t i = 0; i < node->items.n && yes; i++, left = right) {
        ATOM_TRY(jinja_evaluate(r, node->items.items[i]->a, &right));
        ATOM_TRY(compare(r, node->items.items[i]->op, left, right, &yes));
    }
    *out = jinja_bool(yes);
    return ATOM_OK;
}

static atom_status of_condition(jinja_run *r, const jinja_node *node, jinja_value *out)
{
    jinja_value test;
    ATOM_TRY(jinja_evaluate(r, node->a, &test));
    if (jinja_truth(test))
        return jinja_evaluate(r, node->b, out);
    *out = jinja_undefined("an if without else");
    return node->c ? jinja_evaluate(r, node->c, out) : ATOM_OK;
}

/* ---- parts ---- */

static atom_status of_attribute(jinja_run *r, const jinja_node *node, jinja_value *out)
{
    jinja_value v;
    ATOM_TRY(jinja_evaluate(r, node->a, &v));
    return jinja_attribute(r->h, v, node->name, out);
}

static atom_status of_item(jinja_run *r, const jinja_node *node, jinja_value *out)
{
    jinja_value v, key, parts[3];
    ATOM_TRY(jinja_evaluate(r, node->a, &v));
    if (node->b->kind != JINJA_N_SLICE) {
        ATOM_TRY(jinja_evaluate(r, node->b, &key));
        return jinja_item(r->h, v, key, out);
    }
    for (size_t i = 0; i < 3; i++) {
        parts[i] = jinja_none();
        if (node->b->items.items[i])
            ATOM_TRY(jinja_evaluate(r, node->b->items.items[i], &parts[i]));
    }
    return jinja_slice(r->h, v, parts, out);
}

/* ---- calls ---- */

atom_status jinja_evaluate_args(jinja_run *r, const jinja_node *node, const char *of,
                                const jinja_value *caller, jinja_args *out)
{
    size_t n = node->args_n + (caller != NULL);
    jinja_value *places, *named;
    const char **names;
    ATOM_TRY(jinja_alloc(r->h, n, sizeof *places, &places));
    ATOM_TRY(jinja_alloc(r->h, n, sizeof *named, &named));
    ATOM_TRY(jinja_alloc(r->h, n, sizeof *names, &names));
    *out = (jinja_args){.of = of, .places = places, .named = named, .names = names};
    for (size_t i = 0; i < node->args_n; i++) {
        const jinja_node_arg *a = &node->args[i];
        if (a->name)
            names[out->named_n] = a->name;
        ATOM_TRY(jinja_evaluate(r, a->value,
                                a->name ? &named[out->named_n++] : &places[out->places_n++]));
    }
    if (caller) {
        names[out->named_n] = "caller";
        named[out->named_n++] = *caller;
    }
    return ATOM_OK;
}

/* loop.cycle and loop.changed */
static atom_status call_loop_method(jinja_run *r, jinja_loop *l, const jinja_args *args,
                                    jinja_value *out)
{
    jinja_value asked;
    bool same = false;
    if (args->named_n || (args->of[1] == 'y' && !args->places_n))
        return jinja_fail(r->h, "loop.%s takes values without names", args->of);
    if (args->of[1] == 'y') {
        *out = args->places[l->at % args->places_n];
        return ATOM_OK;
    }
    ATOM_TRY(jinja_new_list(r->h, JINJA_TUPLE, &asked));
    for (size_t i = 0; i < args->places_n; i++)
        ATOM_TRY(jinja_append(r->h, asked.list, args->places[i]));
    if (l->has_changed)
        ATOM_TRY(jinja_equal(r->h, asked, l->changed, &same));
    l->has_changed = true;
    l->changed = asked;
    *out = jinja_bool(!same);
    return ATOM_OK;
}

atom_status jinja_call(jinja_run *r, jinja_value callee, const jinja_args *args, jinja_value *out)
{
    jinja_args named = *args;
    if (callee.kind == JINJA_LOOP && callee.loop->node) {
        const jinja_callable again = {.loop = callee.loop};
        return r->call(r, &again, args, out);
    }
    if (callee.kind == JINJA_UNDEFINED)
        return jinja_fail(r->h, "'%.80s' is undefined, so it cannot be called", callee.name);
    if (callee.kind != JINJA_CALLABLE)
        return jinja_fail(r->h, "'%s' cannot be called", jinja_kind_name(callee));
    if (callee.callable->macro)
        return r->call(r, callee.callable, args, out);
    named.of = callee.callable->name;
    if (callee.callable->self.kind == JINJA_LOOP)
        return call_loop_method(r, callee.callable->self.loop, &named, out);
    if (callee.callable->self.kind == JINJA_UNDEFINED)
        return jinja_call_function(r->h, r->now, &named, out);
    return jinja_call_method(r->h, callee.callable->self, &named, out);
}

static atom_status of_call(jinja_run *r, const jinja_node *node, jinja_value *out)
{
    jinja_value callee;
    jinja_args args;
    ATOM_TRY(jinja_evaluate(r, node->a, &callee));
    ATOM_TRY(jinja_evaluate_args(r, node, "the call", NULL, &args));
    r->h->line = node->line;
    return jinja_call(r, callee, &args, out);
}

static atom_status of_filter(jinja_run *r, const jinja_node *node, jinja_value *out)
{
    jinja_value v = r->piped;
    jinja_args args;
    if (node->a)
        ATOM_TRY(jinja_evaluate(r, node->a, &v));
    ATOM_TRY(jinja_evaluate_args(r, node, node->name, NULL, &args));
    r->h->line = node->line;
    return jinja_filter(r->h, v, &args, out);
}

static atom_status of_test(jinja_run *r, const jinja_node *node, jinja_value *out)
{
    jinja_value v;
    jinja_args args;
    bool yes = false;
    ATOM_TRY(jinja_evaluate(r, node->a, &v));
    ATOM_TRY(jinja_evaluate_args(r, node, node->name, NULL, &args));
    ATOM_TRY(jinja_test(r->h, v, &args, &yes));
    *out = jinja_bool(yes);
    return ATOM_OK;
}

atom_status jinja_evaluate(jinja_run *r, const jinja_node *node, jinja_value *out)
{
    static const node_fn functions[] = {
        [JINJA_N_VALUE] = of_value,         [JINJA_N_NAME] = of_name,
        [JINJA_N_LIST] = of_list,           [JINJA_N_TUPLE] = of_list,
        [JINJA_N_DICT] = of_dict,           [JINJA_N_NOT] = of_not,
        [JINJA_N_AND] = of_logic,           [JINJA_N_OR] = of_logic,
        [JINJA_N_NEGATE] = of_sign,         [JINJA_N_PLUS] = of_sign,
        [JINJA_N_OPERATE] = of_operator,    [JINJA_N_CONCAT] = of_concat,
        [JINJA_N_COMPARE] = of_comparison,  [JINJA_N_CONDITION] = of_condition,
        [JINJA_N_ATTRIBUTE] = of_attribute, [JINJA_N_ITEM] = of_item,
        [JINJA_N_CALL] = of_call,           [JINJA_N_FILTER] = of_filter,
        [JINJA_N_TEST] = of_test,
    };
    jinja_value made = jinja_none();
    atom_status st = jinja_enter(r->h);
    r->h->line = node->line;
    if (st == ATOM_OK)
        st = jinja_step(r->h, 1);
    if (st == ATOM_OK)
        st = functions[node->kind](r, node, &made);
    jinja_leave(r->h);
    *out = made;
    return st;
}
