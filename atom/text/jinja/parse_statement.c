/*
 * Owns the grammar of statements. One idea: one function for each tag, found by its name in a
 * table; a body ends at the names that its tag says. Refuses the tags that would need other files,
 * and those that transformers does not have, by name.
 */
#include "atom/text/jinja/parse.h"

#include <string.h>

static atom_status parse_body(jinja_parser *p, const char *const *ends, jinja_nodes *out);

static atom_status expect_block_end(jinja_parser *p)
{
    if (jinja_peek(p)->kind != JINJA_T_BLOCK_END)
        return jinja_unexpected(p, "%}");
    jinja_next(p);
    return ATOM_OK;
}

/* The rest of an opening tag, a body, and its closing tag. */
static atom_status parse_whole_body(jinja_parser *p, const char *end, jinja_nodes *out)
{
    const char *const ends[] = {end, NULL};
    ATOM_TRY(expect_block_end(p));
    ATOM_TRY(parse_body(p, ends, out));
    jinja_next(p); /* the end's name */
    return expect_block_end(p);
}

static atom_status parse_if(jinja_parser *p, jinja_node **out)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    static const char *const last[] = {"endif", NULL};
    jinja_node *branch;
    ATOM_TRY(jinja_new_node(p, JINJA_N_IF, out));
    for (const char *tag = "if"; strcmp(tag, "endif") != 0; tag = jinja_next(p)->at) {
        bool otherwise = strcmp(tag, "else") == 0;
        ATOM_TRY(jinja_new_node(p, JINJA_N_BRANCH, &branch));
        if (!otherwise)
            ATOM_TRY(jinja_parse_tuple(p, false, NULL, &branch->a));
        ATOM_TRY(expect_block_end(p));
        ATOM_TRY(parse_body(p, otherwise ? last : ends, &branch->items));
        ATOM_TRY(jinja_add_node(p, &(*out)->items, branch));
    }
    return expect_block_end(p);
}

static atom_status parse_for(jinja_parser *p, jinja_node **out)
{
    static const char *const ends[] = {"endfor", "else", NULL};
    ATOM_TRY(jinja_new_node(p, JINJA_N_FOR, out));
    jinja_node *node = *out;
    ATOM_TRY(jinja_parse_target(p, "in", &node->a));
    if (!jinja_skip_name(p, "in"))
        return jinja_unexpected(p, "in");
    ATOM_TRY(jinja_parse_tuple(p, false, "recursive", &node->b));
    if (jinja_skip_name(p, "if"))
        ATOM_TRY(jinja_parse_expression(p, true, &node->c));
    node->op = jinja_skip_name(p, "recursive");
    ATOM_TRY(expect_block_end(p));
    p->loops++;
    ATOM_TRY(parse_body(p, ends, &node->items));
    p->loops--;
    if (strcmp(jinja_next(p)->at, "else") == 0)
        return parse_whole_body(p, "endfor", &node->otherwise);
    return expect_block_end(p);
}

static atom_status parse_set(jinja_parser *p, jinja_node **out)
{
    ATOM_TRY(jinja_new_node(p, JINJA_N_SET, out));
    ATOM_TRY(jinja_parse_target(p, NULL, &(*out)->a));
    if (jinja_skip_sign(p, "=")) {
        ATOM_TRY(jinja_parse_tuple(p, true, NULL, &(*out)->b));
        return expect_block_end(p);
    }
    (*out)->kind = JINJA_N_SET_BLOCK;
    if (jinja_at_sign(p, "|"))
        ATOM_TRY(jinja_parse_filters(p, false, NULL, &(*out)->b));
    return parse_whole_body(p, "endset", &(*out)->items);
}

static atom_status parse_parameters(jinja_parser *p, jinja_node *macro)
{
    ATOM_TRY(jinja_expect_sign(p, "("));
    while (!jinja_at_sign(p, ")")) {
        jinja_node_arg arg = {0};
        if (macro->args_n)
            ATOM_TRY(jinja_expect_sign(p, ","));
        if (macro->args_n && jinja_at_sign(p, ")"))
            break;
        ATOM_TRY(jinja_expect_name(p, &arg.name));
        if (jinja_skip_sign(p, "="))
            ATOM_TRY(jinja_parse_expression(p, true, &arg.value));
        else if (macro->args_n && macro->args[macro->args_n - 1].value)
            return jinja_fail(p->h, "parameter '%s' without a default follows one with a default",
                              arg.name);
        ATOM_TRY(jinja_add_arg(p, macro, arg));
    }
    return jinja_expect_sign(p, ")");
}

/* A macro's body is no part of the loop that it stands in. */
static atom_status parse_macro_body(jinja_parser *p, const char *end, jinja_node *macro)
{
    uint32_t loops = p->loops;
    bool caller = p->caller;
    p->loops = 0;
    p->caller = false;
    ATOM_TRY(parse_whole_body(p, end, &macro->items));
    macro->op = p->caller;
    p->caller = p->caller || caller;
    p->loops = loops;
    return ATOM_OK;
}

static atom_status parse_macro(jinja_parser *p, jinja_node **out)
{
    ATOM_TRY(jinja_new_node(p, JINJA_N_MACRO, out));
    ATOM_TRY(jinja_expect_name(p, &(*out)->name));
    ATOM_TRY(parse_parameters(p, *out));
    return parse_macro_body(p, "endmacro", *out);
}

static atom_status parse_call_block(jinja_parser *p, jinja_node **out)
{
    jinja_node *macro;
    ATOM_TRY(jinja_new_node(p, JINJA_N_CALL_BLOCK, out));
    ATOM_TRY(jinja_new_node(p, JINJA_N_MACRO, &macro));
    macro->name = "caller";
    if (jinja_at_sign(p, "("))
        ATOM_TRY(parse_parameters(p, macro));
    ATOM_TRY(jinja_parse_expression(p, true, &(*out)->a));
    if ((*out)->a->kind != JINJA_N_CALL)
        return jinja_fail(p->h, "{%% call %%} needs a call of a macro");
    (*out)->b = macro;
    return parse_macro_body(p, "endcall", macro);
}

static atom_status parse_filtered(jinja_parser *p, jinja_node **out)
{
    ATOM_TRY(jinja_new_node(p, JINJA_N_FILTERED, out));
    ATOM_TRY(jinja_parse_filters(p, true, NULL, &(*out)->a));
    return parse_whole_body(p, "endfilter", &(*out)->items);
}

static atom_status parse_with(jinja_parser *p, jinja_node **out)
{
    ATOM_TRY(jinja_new_node(p, JINJA_N_WITH, out));
    while (jinja_peek(p)->kind != JINJA_T_BLOCK_END) {
        jinja_node_arg arg = {0};
        if ((*out)->args_n)
            ATOM_TRY(jinja_expect_sign(p, ","));
        ATOM_TRY(jinja_expect_name(p, &arg.name));
        ATOM_TRY(jinja_expect_sign(p, "="));
        ATOM_TRY(jinja_parse_expression(p, true, &arg.value));
        ATOM_TRY(jinja_add_arg(p, *out, arg));
    }
    return parse_whole_body(p, "endwith", &(*out)->items);
}

static atom_status parse_generation(jinja_parser *p, jinja_node **out)
{
    p->generation = true;
    ATOM_TRY(jinja_new_node(p, JINJA_N_GENERATION, out));
    return parse_whole_body(p, "endgeneration", &(*out)->items);
}

static atom_status parse_jump(jinja_parser *p, jinja_node **out)
{
    bool leaves = strcmp(p->tokens->items[p->at - 1].at, "break") == 0;
    ATOM_TRY(jinja_new_node(p, leaves ? JINJA_N_BREAK : JINJA_N_CONTINUE, out));
    return p->loops
               ? expect_block_end(p)
               : jinja_fail(p->h, "{%% %s %%} is not in a loop", leaves ? "break" : "continue");
}

static const struct {
    const char *name;
    atom_status (*parse)(jinja_parser *p, jinja_node **out);
} tags[] = {
    {"if", parse_if},           {"for", parse_for},
    {"set", parse_set},         {"macro", parse_macro},
    {"call", parse_call_block}, {"filter", parse_filtered},
    {"with", parse_with},       {"generation", parse_generation},
    {"break", parse_jump},      {"continue", parse_jump},
};

static atom_status parse_tag(jinja_parser *p, jinja_node **out)
{
    const char *name;
    ATOM_TRY(jinja_expect_name(p, &name));
    for (size_t i = 0; i < sizeof tags / sizeof *tags; i++)
        if (strcmp(name, tags[i].name) == 0)
            return tags[i].parse(p, out);
    return jinja_fail(p->h, "the tag '%.60s' is not one of those that chat templates may have",
                      name);
}

static atom_status parse_print(jinja_parser *p, jinja_node **out)
{
    ATOM_TRY(jinja_new_node(p, JINJA_N_PRINT, out));
    ATOM_TRY(jinja_parse_tuple(p, true, NULL, &(*out)->a));
    if (jinja_peek(p)->kind != JINJA_T_PRINT_END)
        return jinja_unexpected(p, "}}");
    jinja_next(p);
    return ATOM_OK;
}

static atom_status parse_text(jinja_parser *p, jinja_node **out)
{
    const jinja_token *t = jinja_peek(p);
    ATOM_TRY(jinja_new_node(p, JINJA_N_TEXT, out));
    jinja_next(p);
    return jinja_from_bytes(p->h, t->at, t->n, 0, &(*out)->value);
}

/* Is the tag that begins here one of these? The place is then at its name. */
static bool at_end(jinja_parser *p, const char *const *ends)
{
    const jinja_token *name = &p->tokens->items[p->at + 1];
    for (; ends && *ends; ends++)
        if (name->kind == JINJA_T_NAME && strcmp(name->at, *ends) == 0) {
            jinja_next(p);
            return true;
        }
    return false;
}

static atom_status parse_statements(jinja_parser *p, const char *const *ends, jinja_nodes *out)
{
    for (;;) {
        jinja_node *node = NULL;
        switch (jinja_peek(p)->kind) {
        case JINJA_T_DATA:
            ATOM_TRY(parse_text(p, &node));
            break;
        case JINJA_T_PRINT_BEGIN:
            jinja_next(p);
            ATOM_TRY(parse_print(p, &node));
            break;
        case JINJA_T_BLOCK_BEGIN:
            if (at_end(p, ends))
                return ATOM_OK;
            jinja_next(p);
            ATOM_TRY(parse_tag(p, &node));
            break;
        default:
            return ends ? jinja_fail(p->h, "the template ends, but {%% %s %%} is missing", *ends)
                        : ATOM_OK;
        }
        ATOM_TRY(jinja_add_node(p, out, node));
    }
}

static atom_status parse_body(jinja_parser *p, const char *const *ends, jinja_nodes *out)
{
    atom_status st = jinja_enter(p->h);
    if (st == ATOM_OK)
        st = parse_statements(p, ends, out);
    jinja_leave(p->h);
    return st;
}

atom_status jinja_parse(jinja_parser *p, jinja_nodes *out)
{
    return parse_body(p, NULL, out);
}
