/*
 * Owns the printed form of call lists. One idea: what is printed is what the interpreter would do,
 * call by call, with every size and offset a constant and every parameter a name. Refuses
 * arithmetic of its own, and anything that could differ between two runs (no dates, no paths).
 */
#include "codegen/build.h"

#include "atom/base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void emit_declarations(FILE *f)
{
    fprintf(f,
            "#ifndef ATOM_CALLS\n#define ATOM_CALLS\n"
            "#include <stdint.h>\n\n"
            "/* The calling convention of kernels/kernels.h, version %d. */\n"
            "typedef struct krn_ctx krn_ctx;\n"
            "typedef struct krn_args {\n"
            "    void *buf[%d];\n"
            "    int64_t dim[%d];\n"
            "    float eps, p;\n"
            "    uint32_t flags, rng;\n"
            "    struct {\n"
            "        float theta, factor, low, high, original, gain;\n"
            "        int32_t width, yarn;\n"
            "        float divisors[%d];\n"
            "    } rope;\n"
            "    float scale, lift, cap;\n"
            "} krn_args;\n"
            "typedef void (*krn_fn)(krn_ctx *, const krn_args *);\n"
            "typedef struct krn_table {\n"
            "    const char *backend;\n"
            "    int dtype;\n"
            "    const char *isa;\n"
            "    void (*copy)(krn_ctx *, void *, const void *, uint64_t);\n"
            "    krn_fn fwd[%d], bwd[%d];\n"
            "} krn_table;\n\n",
            GEN_ABI, KRN_BUF_MAX, KRN_DIM_MAX, ATOM_ROPE_DIVISORS_MAX, ATOM_OP_N, ATOM_OP_N);
    fprintf(f, "enum {");
    for (int op = 0; op < ATOM_OP_N; op++)
        fprintf(f, "%s OP_%s", op ? "," : "", atom_op_get((atom_op)op)->name);
    fprintf(f, " };\nenum {");
    for (int b = 0; b < SWAP_BASE_N; b++)
        fprintf(f, "%s %s", b ? "," : "", swap_base_name((swap_base)b));
    fprintf(f, " };\n#define AT(base, offset) ((char *)at[base] + (offset))\n#endif\n\n");
}

/* "h.0.ln_1.weight" -> "h_0_ln_1_weight". Behind w_ or d_ it is a name of C, whatever it was, and none of those above. */
static void identifier(const char *name, char out[64])
{
    size_t i = 0;
    for (; name[i] && i < 63; i++) {
        char c = name[i];
        bool word = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        out[i] = word ? c : '_';
    }
    out[i] = 0;
}

/* Each function has these names of its own: what several sub-models use lies elsewhere in each. */
static void emit_symbols(FILE *f, const swap_sub_model *s)
{
    char id[64];
    fprintf(f, "/* Parameters: byte offset in the slot, byte offset of the f32 gradient. */\n"
               "#define PARAMETERS enum { \\\n");
    for (uint32_t i = 0; i < s->n_symbols; i++) {
        const swap_symbol *y = &s->symbols[i];
        identifier(y->name, id);
        fprintf(f, "    w_%s = %llu, ", id, (unsigned long long)y->slot_bytes);
        if (y->grad_bytes != SWAP_NO_GRAD)
            fprintf(f, "d_%s = %llu, ", id, (unsigned long long)y->grad_bytes);
        fprintf(f, "/* [%lld", (long long)y->dims[0]);
        if (y->dims[1])
            fprintf(f, ", %lld", (long long)y->dims[1]);
        fprintf(f, "]%s */ \\\n", y->shared ? ", shared: gradient in SHARED" : "");
    }
    fprintf(f, "}\n\n");
}

static const swap_symbol *symbol_at(const swap_sub_model *s, swap_ref ref)
{
    for (uint32_t i = 0; i < s->n_symbols; i++) {
        const swap_symbol *y = &s->symbols[i];
        if (ref.base == SWAP_BASE_PARAM && y->slot_bytes == ref.offset)
            return y;
        if (ref.base == (y->shared ? SWAP_BASE_SHARED : SWAP_BASE_GRAD) &&
            y->grad_bytes == ref.offset)
            return y;
    }
    return NULL;
}

static void emit_ref(FILE *f, const swap_sub_model *s, swap_ref ref)
{
    char id[64];
    const swap_symbol *y = symbol_at(s, ref);
    if (ref.base == SWAP_BASE_NONE) {
        fprintf(f, "0");
    } else if (y) {
        identifier(y->name, id);
        fprintf(f, "AT(%s, %s%s)", swap_base_name(ref.base),
                ref.base == SWAP_BASE_PARAM ? "w_" : "d_", id);
    } else {
        fprintf(f, "AT(%s, %llu)", swap_base_name(ref.base), (unsigned long long)ref.offset);
    }
}

static void emit_rope(FILE *f, const atom_rope *r)
{
    fprintf(f, ", .rope = {%af, %af, %af, %af, %af", (double)r->theta, (double)r->factor,
            (double)r->low, (double)r->high, (double)r->original);
    if (r->gain != 0)
        fprintf(f, ", .gain = %af", (double)r->gain);
    if (r->width != 0)
        fprintf(f, ", .width = %d", r->width);
    if (r->yarn != 0)
        fprintf(f, ", .yarn = %d", r->yarn);
    for (int i = 0; i < ATOM_ROPE_DIVISORS_MAX && r->divisors[i] > 0; i++)
        fprintf(f, "%s%af", i ? ", " : ", .divisors = {", (double)r->divisors[i]);
    fprintf(f, r->divisors[0] > 0 ? "}}" : "}");
}

static void emit_call(FILE *f, const swap_sub_model *s, const swap_call *c)
{
    fprintf(f, "    /* %s */\n", c->name);
    if (c->op == ATOM_OP_N) {
        fprintf(f, "    table->copy(cx, ");
        emit_ref(f, s, c->buf[0]);
        fprintf(f, ", ");
        emit_ref(f, s, c->buf[1]);
        fprintf(f, ", %lld);\n", (long long)c->dim[0]);
        return;
    }
    fprintf(f, "    table->%s[OP_%s](cx, &(krn_args){\n        .buf = {",
            c->backward ? "bwd" : "fwd", atom_op_get(c->op)->name);
    for (int b = 0; b < c->n_buf; b++) {
        fprintf(f, "%s", b == 0 ? "" : b % 4 ? ", " : ",\n                ");
        emit_ref(f, s, c->buf[b]);
    }
    fprintf(f, "},\n        .dim = {");
    for (int d = 0; d < KRN_DIM_MAX; d++)
        fprintf(f, "%s%lld", d ? ", " : "", (long long)c->dim[d]);
    fprintf(f, "}");
    if (c->eps != 0)
        fprintf(f, ", .eps = %af", (double)c->eps);
    if (c->p != 0)
        fprintf(f, ", .p = %af", (double)c->p);
    if (c->flags)
        fprintf(f, ", .flags = %u", c->flags);
    if (c->rope.theta != 0)
        emit_rope(f, &c->rope);
    if (c->scale != 0)
        fprintf(f, ", .scale = %af", (double)c->scale);
    if (c->lift != 0)
        fprintf(f, ", .lift = %af", (double)c->lift);
    if (c->cap != 0)
        fprintf(f, ", .cap = %af", (double)c->cap);
    fprintf(f, ", .rng = %u});\n", c->rng);
}

static void emit_list(FILE *f, const swap_sub_model *s, uint32_t k, swap_list list)
{
    static const char *const says[SWAP_LIST_N] = {
        "Forward; keeps nothing.", "Forward; fills KEPT with what backward reads.",
        "Backward from KEPT.", "Backward of what comes last."};
    if (s->list[list].n == 0)
        return;
    fprintf(
        f,
        "/* %s */\nvoid sub_model_%u_%s(krn_ctx *cx, const krn_table *table, void *const *at)\n{\n",
        says[list], k, swap_list_name(list));
    if (s->n_symbols)
        fprintf(f, "    PARAMETERS;\n");
    for (uint32_t c = 0; c < s->list[list].n; c++)
        emit_call(f, s, &s->list[list].calls[c]);
    fprintf(f, "}\n\n");
}

atom_status gen_emit(const swap_program *program, uint32_t sub_model, char **text)
{
    const swap_sub_model *s = &program->sub_models[sub_model];
    char *buffer = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&buffer, &bytes);
    if (!f)
        return atom_fail_memory("generated code", 0);
    fprintf(f,
            "/*\n * Generated by atom: sub-model %u of %u of %s (%s), nodes [%d, %d).\n"
            " * Straight-line calls; buffers are (base, offset). Do not edit: it is made anew from "
            "the plan.\n"
            " */\n",
            sub_model, program->n_sub_models, program->model, atom_dtype_name(program->dtype),
            s->first_node, s->last_node);
    emit_declarations(f);
    if (s->n_symbols)
        emit_symbols(f, s);
    for (int list = 0; list < SWAP_LIST_N; list++)
        emit_list(f, s, sub_model, (swap_list)list);
    if (s->n_symbols)
        fprintf(f, "#undef PARAMETERS\n");
    int bad = fclose(f);
    char *copy = bad ? NULL : atom_strndup(buffer, bytes);
    free(buffer);
    if (!copy)
        return atom_fail_memory("generated code", bytes);
    *text = copy;
    return ATOM_OK;
}
