/*
 * Owns statements. One idea: a body is run in a scope, and prints into the writer of the moment, so
 * that macros and blocks are bodies with a writer of their own. Refuses more output than a chat can
 * have.
 */
#include "atom/text/jinja/run.h"

#include "atom/text/jinja/filter.h"
#include "atom/text/jinja/print.h"

#include <string.h>

static atom_status run_body(jinja_run *r, const jinja_nodes *body);

/* A scope inside of `outer`. */
static atom_status open_scope(jinja_run *r, jinja_scope *outer)
{
    jinja_scope *made;
    ATOM_TRY(jinja_alloc(r->h, 1, sizeof *made, &made));
    made->outer = outer;
    r->scope = made;
    return ATOM_OK;
}

/* A body in a scope of its own. */
static atom_status run_inside(jinja_run *r, const jinja_nodes *body)
{
    jinja_scope *outer = r->scope;
    ATOM_TRY(open_scope(r, outer));
    atom_status st = run_body(r, body);
    r->scope = outer;
    return st;
}

/* The same, what it prints as a text. */
static atom_status capture(jinja_run *r, const jinja_nodes *body, jinja_value *out)
{
    jinja_writer own = {.h = r->h}, *writer = r->out;
    r->out = &own;
    atom_status st = run_inside(r, body);
    r->out = writer;
    return st == ATOM_OK ? jinja_from_text(r->h, jinja_written(&own), out) : st;
}

/* ---- setting ---- */

static atom_status assign(jinja_run *r, const jinja_node *target, jinja_value value)
{
    jinja_value space;
    jinja_list *items;
    if (target->kind == JINJA_N_NAME)
        return jinja_define(r, target->name, value);
    if (target->kind == JINJA_N_ATTRIBUTE) {
        ATOM_TRY(jinja_evaluate(r, target->a, &space));
        if (space.kind != JINJA_NAMESPACE)
            return jinja_fail(r->h, "an attribute can be set of a namespace only, not of '%s'",
                              jinja_kind_name(space));
        return jinja_set_name(r->h, space.dict, target->name, value);
    }
    ATOM_TRY(jinja_items(r->h, value, &items));
    if (items->n != target->items.n)
        return jinja_fail(r->h, "%zu values for %zu names", items->n, target->items.n);
    for (size_t i = 0; i < items->n; i++)
        ATOM_TRY(assign(r, target->items.items[i], items->items[i]));
    return ATOM_OK;
}

static atom_status filtered(jinja_run *r, const jinja_node *filters, jinja_value v,
                            jinja_value *out)
{
    jinja_value outer = r->piped;
    *out = v;
    if (!filters)
        return ATOM_OK;
    r->piped = v;
    atom_status st = jinja_evaluate(r, filters, out);
    r->piped = outer;
    return st;
}

static atom_status run_set(jinja_run *r, const jinja_node *node)
{
    jinja_value v;
    if (node->kind == JINJA_N_SET) {
        ATOM_TRY(jinja_evaluate(r, node->b, &v));
    } else {
        ATOM_TRY(capture(r, &node->items, &v));
        ATOM_TRY(filtered(r, node->b, v, &v));
    }
    return assign(r, node->a, v);
}

/* ---- loops ---- */

/* The items that the condition of a for leaves. */
static atom_status filter_items(jinja_run *r, const jinja_node *node, const jinja_list *from,
                                jinja_list **out)
{
    jinja_scope *outer = r->scope;
    jinja_value kept, yes;
    atom_status st = ATOM_OK;
    ATOM_TRY(jinja_new_list(r->h, JINJA_LIST, &kept));
    *out = kept.list;
    for (size_t i = 0; i < from->n && st == ATOM_OK; i++) {
        st = open_scope(r, outer);
        if (st == ATOM_OK)
            st = assign(r, node->a, from->items[i]);
        if (st == ATOM_OK)
            st = jinja_evaluate(r, node->c, &yes);
        if (st == ATOM_OK && jinja_truth(yes))
            st = jinja_append(r->h, kept.list, from->items[i]);
    }
    r->scope = outer;
    return st;
}

/* *whole: a turn came to the end of its body, without break or continue. */
static atom_status run_turns(jinja_run *r, const jinja_node *node, jinja_loop *loop, bool *whole)
{
    jinja_scope *outer = r->scope;
    const jinja_value value = {.kind = JINJA_LOOP, .loop = loop};
    atom_status st = ATOM_OK;
    for (; loop->at < loop->items->n && st == ATOM_OK; loop->at++) {
        st = open_scope(r, outer);
        if (st == ATOM_OK)
            st = jinja_define(r, "loop", value);
        if (st == ATOM_OK)
            st = assign(r, node->a, loop->items->items[loop->at]);
        if (st == ATOM_OK)
            st = run_body(r, &node->items);
        r->scope = outer;
        jinja_jump jump = r->jump;
        r->jump = JINJA_STAY;
        *whole = *whole || jump == JINJA_STAY;
        if (jump == JINJA_BREAK)
            break;
    }
    return st;
}

/* depth: of loops around it by recursion. */
static atom_status run_loop(jinja_run *r, const jinja_node *node, jinja_value over, size_t depth)
{
    jinja_list *items;
    jinja_loop *loop;
    bool whole = false;
    ATOM_TRY(jinja_items(r->h, over, &items));
    if (node->c)
        ATOM_TRY(filter_items(r, node, items, &items));
    ATOM_TRY(jinja_alloc(r->h, 1, sizeof *loop, &loop));
    loop->items = items;
    loop->depth = depth;
    loop->node = node->op ? node : NULL;
    loop->scope = r->scope;
    ATOM_TRY(run_turns(r, node, loop, &whole));
    /* As in Jinja2, {% else %} also follows turns of which break or continue ended each one. */
    return whole ? ATOM_OK : run_inside(r, &node->otherwise);
}

static atom_status run_for(jinja_run *r, const jinja_node *node)
{
    jinja_value over;
    ATOM_TRY(jinja_evaluate(r, node->b, &over));
    return run_loop(r, node, over, 0);
}

/* ---- macros ---- */

static atom_status bind_parameter(jinja_run *r, const jinja_node *macro, size_t i,
                                  const jinja_args *args)
{
    const jinja_node_arg *p = &macro->args[i];
    jinja_value v = jinja_undefined(p->name);
    bool given = i < args->places_n;
    ATOM_TRY(jinja_step(r->h, 1 + args->named_n));
    if (given)
        v = args->places[i];
    for (size_t k = 0; k < args->named_n; k++)
        if (strcmp(args->names[k], p->name) == 0) {
            if (given)
                return jinja_fail(r->h, "macro %s is given '%s' twice", macro->name, p->name);
            given = true;
            v = args->named[k];
        }
    if (!given && p->value)
        ATOM_TRY(jinja_evaluate(r, p->value, &v));
    return jinja_define(r, p->name, v);
}

static bool has_parameter(const jinja_node *macro, const char *name)
{
    for (size_t i = 0; i < macro->args_n; i++)
        if (strcmp(macro->args[i].name, name) == 0)
            return true;
    return false;
}

static atom_status bind_all(jinja_run *r, const jinja_node *macro, const jinja_args *args)
{
    if (args->places_n > macro->args_n)
        return jinja_fail(r->h, "macro %s takes %zu arguments at most, not %zu", macro->name,
                          macro->args_n, args->places_n);
    ATOM_TRY(jinja_step(r->h, (1 + args->named_n) * macro->args_n));
    if (macro->op && !has_parameter(macro, "caller"))
        ATOM_TRY(jinja_define(r, "caller", jinja_undefined("caller")));
    for (size_t i = 0; i < args->named_n; i++) {
        bool caller = strcmp(args->names[i], "caller") == 0 && macro->op;
        if (caller)
            ATOM_TRY(jinja_define(r, "caller", args->named[i]));
        else if (!has_parameter(macro, args->names[i]))
            return jinja_fail(r->h, "macro %s takes no argument '%s'", macro->name, args->names[i]);
    }
    for (size_t i = 0; i < macro->args_n; i++)
        ATOM_TRY(bind_parameter(r, macro, i, args));
    return ATOM_OK;
}

static atom_status call_macro(jinja_run *r, const jinja_callable *callee, const jinja_args *args,
                              jinja_value *out)
{
    jinja_writer own = {.h = r->h};
    ATOM_TRY(open_scope(r, callee->scope));
    ATOM_TRY(bind_all(r, callee->macro, args));
    r->out = &own;
    ATOM_TRY(run_body(r, &callee->macro->items));
    return jinja_from_text(r->h, jinja_written(&own), out);
}

/* loop(items), inside of a recursive loop */
static atom_status call_loop(jinja_run *r, jinja_loop *loop, const jinja_args *args,
                             jinja_value *out)
{
    jinja_writer own = {.h = r->h};
    if (args->places_n != 1 || args->named_n)
        return jinja_fail(r->h, "loop() takes one argument: what to pass through");
    r->scope = loop->scope;
    r->out = &own;
    ATOM_TRY(run_loop(r, loop->node, args->places[0], loop->depth + 1));
    return jinja_from_text(r->h, jinja_written(&own), out);
}

static atom_status call(jinja_run *r, const jinja_callable *callee, const jinja_args *args,
                        jinja_value *out)
{
    jinja_scope *scope = r->scope;
    jinja_writer *writer = r->out;
    atom_status st =
        callee->macro ? call_macro(r, callee, args, out) : call_loop(r, callee->loop, args, out);
    r->scope = scope;
    r->out = writer;
    return st;
}

static atom_status make_macro(jinja_run *r, const jinja_node *node, jinja_value *out)
{
    jinja_callable *made;
    ATOM_TRY(jinja_alloc(r->h, 1, sizeof *made, &made));
    *made = (jinja_callable){.name = node->name, .macro = node, .scope = r->scope};
    *out = (jinja_value){.kind = JINJA_CALLABLE, .callable = made};
    return ATOM_OK;
}

static atom_status run_call_block(jinja_run *r, const jinja_node *node)
{
    jinja_value caller, callee, v;
    jinja_args args;
    ATOM_TRY(make_macro(r, node->b, &caller));
    ATOM_TRY(jinja_evaluate(r, node->a->a, &callee));
    ATOM_TRY(jinja_evaluate_args(r, node->a, "the call", &caller, &args));
    r->h->line = node->line;
    ATOM_TRY(jinja_call(r, callee, &args, &v));
    return jinja_print(r->out, v);
}

/* ---- the others ---- */

static atom_status run_if(jinja_run *r, const jinja_node *node)
{
    for (size_t i = 0; i < node->items.n; i++) {
        const jinja_node *branch = node->items.items[i];
        jinja_value yes = jinja_bool(true);
        if (branch->a)
            ATOM_TRY(jinja_evaluate(r, branch->a, &yes));
        if (jinja_truth(yes))
            return run_body(r, &branch->items);
    }
    return ATOM_OK;
}

static atom_status run_with(jinja_run *r, const jinja_node *node)
{
    jinja_scope *outer = r->scope;
    jinja_value *values;
    ATOM_TRY(jinja_alloc(r->h, node->args_n, sizeof *values, &values));
    for (size_t i = 0; i < node->args_n; i++)
        ATOM_TRY(jinja_evaluate(r, node->args[i].value, &values[i]));
    ATOM_TRY(open_scope(r, outer));
    atom_status st = ATOM_OK;
    for (size_t i = 0; i < node->args_n && st == ATOM_OK; i++)
        st = jinja_define(r, node->args[i].name, values[i]);
    if (st == ATOM_OK)
        st = run_body(r, &node->items);
    r->scope = outer;
    return st;
}

static atom_status run_generation(jinja_run *r, const jinja_node *node)
{
    size_t from = r->out->n;
    ATOM_TRY(run_inside(r, &node->items));
    ATOM_TRY(jinja_step(r->h, (r->out->n - from) / 16));
    for (size_t i = from; i < r->out->n; i++)
        r->out->marks[i] |= JINJA_ANSWER;
    return ATOM_OK;
}

static atom_status run_print(jinja_run *r, const jinja_node *node)
{
    jinja_value v = node->value;
    if (node->kind == JINJA_N_PRINT)
        ATOM_TRY(jinja_evaluate(r, node->a, &v));
    if (node->kind == JINJA_N_FILTERED) {
        ATOM_TRY(capture(r, &node->items, &v));
        ATOM_TRY(filtered(r, node->a, v, &v));
    }
    ATOM_TRY(jinja_print(r->out, v));
    return r->out->n <= JINJA_OUTPUT_MAX
               ? ATOM_OK
               : jinja_fail(r->h, "it prints more than %d MiB", JINJA_OUTPUT_MAX >> 20);
}

static atom_status run_node(jinja_run *r, const jinja_node *node)
{
    jinja_value macro;
    switch (node->kind) {
    case JINJA_N_TEXT:
    case JINJA_N_PRINT:
    case JINJA_N_FILTERED:
        return run_print(r, node);
    case JINJA_N_IF:
        return run_if(r, node);
    case JINJA_N_FOR:
        return run_for(r, node);
    case JINJA_N_SET:
    case JINJA_N_SET_BLOCK:
        return run_set(r, node);
    case JINJA_N_MACRO:
        ATOM_TRY(make_macro(r, node, &macro));
        return jinja_define(r, node->name, macro);
    case JINJA_N_CALL_BLOCK:
        return run_call_block(r, node);
    case JINJA_N_WITH:
        return run_with(r, node);
    case JINJA_N_GENERATION:
        return run_generation(r, node);
    default:
        r->jump = node->kind == JINJA_N_BREAK ? JINJA_BREAK : JINJA_CONTINUE;
        return ATOM_OK;
    }
}

static atom_status run_body(jinja_run *r, const jinja_nodes *body)
{
    atom_status st = jinja_enter(r->h);
    for (size_t i = 0; i < body->n && st == ATOM_OK && r->jump == JINJA_STAY; i++) {
        r->h->line = body->items[i]->line;
        st = jinja_step(r->h, 1);
        if (st == ATOM_OK)
            st = run_node(r, body->items[i]);
    }
    jinja_leave(r->h);
    return st;
}

atom_status jinja_run_template(jinja_heap *h, const jinja_nodes *body, const jinja_dict *globals,
                               int64_t now, jinja_text *out)
{
    jinja_writer writer = {.h = h};
    jinja_scope scope = {0};
    jinja_run r = {.h = h,
                   .globals = globals,
                   .scope = &scope,
                   .out = &writer,
                   .piped = jinja_none(),
                   .now = now,
                   .call = call};
    ATOM_TRY(run_body(&r, body));
    *out = jinja_written(&writer);
    return ATOM_OK;
}
