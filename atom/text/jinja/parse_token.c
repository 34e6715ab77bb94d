/*
 * Owns the parser's place among the tokens, and the making of nodes. One idea: whatever looks at a
 * token sets the line that messages name. Refuses nothing by itself.
 */
#include "atom/text/jinja/parse.h"

#include <string.h>

/* ---- tokens ---- */

const jinja_token *jinja_peek(const jinja_parser *p)
{
    const jinja_token *t = &p->tokens->items[p->at];
    p->h->line = t->line;
    return t;
}

const jinja_token *jinja_next(jinja_parser *p)
{
    const jinja_token *t = jinja_peek(p);
    p->at += p->at + 1 < p->tokens->n;
    return t;
}

static bool token_is(const jinja_token *t, jinja_token_kind kind, const char *word)
{
    return t->kind == kind && strcmp(t->at, word) == 0;
}

bool jinja_at_sign(const jinja_parser *p, const char *sign)
{
    return token_is(jinja_peek(p), JINJA_T_SIGN, sign);
}

bool jinja_at_name(const jinja_parser *p, const char *name)
{
    return token_is(jinja_peek(p), JINJA_T_NAME, name);
}

bool jinja_skip_sign(jinja_parser *p, const char *sign)
{
    bool there = jinja_at_sign(p, sign);
    if (there)
        jinja_next(p);
    return there;
}

bool jinja_skip_name(jinja_parser *p, const char *name)
{
    bool there = jinja_at_name(p, name);
    if (there)
        jinja_next(p);
    return there;
}

atom_status jinja_unexpected(const jinja_parser *p, const char *wanted)
{
    static const char *const names[] = {
        [JINJA_T_END] = "the end",   [JINJA_T_DATA] = "text",      [JINJA_T_BLOCK_BEGIN] = "{%",
        [JINJA_T_BLOCK_END] = "%}",  [JINJA_T_PRINT_BEGIN] = "{{", [JINJA_T_PRINT_END] = "}}",
        [JINJA_T_STRING] = "a text", [JINJA_T_INT] = "a number",   [JINJA_T_REAL] = "a number",
    };
    const jinja_token *t = jinja_peek(p);
    bool word = t->kind == JINJA_T_NAME || t->kind == JINJA_T_SIGN;
    return jinja_fail(p->h, "expected %s, but found %.60s", wanted, word ? t->at : names[t->kind]);
}

atom_status jinja_expect_sign(jinja_parser *p, const char *sign)
{
    return jinja_skip_sign(p, sign) ? ATOM_OK : jinja_unexpected(p, sign);
}

atom_status jinja_expect_name(jinja_parser *p, const char **name)
{
    if (jinja_peek(p)->kind != JINJA_T_NAME)
        return jinja_unexpected(p, "a name");
    *name = jinja_next(p)->at;
    return ATOM_OK;
}

/* ---- nodes ---- */

atom_status jinja_new_node(jinja_parser *p, jinja_node_kind kind, jinja_node **out)
{
    jinja_node *node;
    uint32_t line = jinja_peek(p)->line;
    ATOM_TRY(jinja_alloc(p->h, 1, sizeof *node, &node));
    node->kind = kind;
    node->line = line;
    *out = node;
    return ATOM_OK;
}

atom_status jinja_add_node(jinja_parser *p, jinja_nodes *list, jinja_node *node)
{
    ATOM_TRY(jinja_grow(p->h, &list->items, list->n, &list->capacity, 4, sizeof *list->items));
    list->items[list->n++] = node;
    return ATOM_OK;
}

atom_status jinja_add_arg(jinja_parser *p, jinja_node *node, jinja_node_arg arg)
{
    ATOM_TRY(
        jinja_grow(p->h, &node->args, node->args_n, &node->args_capacity, 4, sizeof *node->args));
    node->args[node->args_n++] = arg;
    return ATOM_OK;
}
