/*
 * Owns the comparison of a table with its specification. Per case and direction: the numbers agree
 * within limits.c, per tensor and per element; thread counts, a second run and other garbage in
 * what must not be read give the same bits. Refuses to stop at the first failure.
 */
#include "tests/ops/checkop.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { WORK_BRIEF = 20000 };

void report_fail(report *r, const op_case *c, bool backward, const char *fmt, ...)
{
    r->failed++;
    if (r->quiet)
        return;
    char name[96];
    printf("FAIL %s %s ", r->backend, atom_dtype_name(r->dtype));
    if (c)
        printf("%s %s: ", op_case_name(c, name, sizeof name), backward ? "bwd" : "fwd");
    va_list args;
    va_start(args, fmt);
    vprintf(fmt, args);
    va_end(args);
    printf("\n");
}

static void compare_tensor(report *r, const op_case *c, bool backward, const place *p,
                           atom_dtype act, const void *before, const void *got, const void *want)
{
    atom_dtype dtype = place_dtype(p->kind, act);
    double limit = op_limit(c->op, p->group, act), away = 0, norm = 0, largest = 0;
    if (limit >= 0 && r->card)
        limit = op_limit_on_card(c, p->group, act, p->use == USE_ADD);
    if (limit < 0) {
        report_fail(r, c, backward, "%s has no row in limits.c", p->name);
        return;
    }
    for (int64_t e = 0; e < p->n; e++) {
        double g = tensor_get(dtype, got, e), w = tensor_get(dtype, want, e);
        away += (g - w) * (g - w);
        /* Where something was added: the larger of sum and term,
         * so that cancellation counts less. */
        double term = p->use == USE_ADD ? w - tensor_get(dtype, before, e) : 0;
        norm += fmax(w * w, term * term);
        largest = fmax(largest, fabs(w));
    }
    double rms = sqrt(norm / (double)p->n);
    /* A value that lies near the middle of two bf16 may fall to either side: one free last bit. */
    double free_bit = dtype == ATOM_BF16 ? 0x1p-7 * largest : 0;
    double error = fmax(sqrt(away) - free_bit, 0) / fmax(sqrt(norm), 1e-5 * sqrt((double)p->n));
    if (!(error <= r->worst[c->op][backward][p->group]))
        r->worst[c->op][backward][p->group] = error;
    if (!(error <= limit))
        report_fail(r, c, backward, "%s is off by %.3g, more than %.3g", p->name, error, limit);
    /* One wrong element hides in a large norm: bound each by 30 limits, or one last bit of bf16. */
    double each = 30 * limit, last_bit = dtype == ATOM_BF16 ? 0x1p-7 : 0x1p-23;
    for (int64_t e = 0; e < p->n; e++) {
        double g = tensor_get(dtype, got, e), w = tensor_get(dtype, want, e);
        if (!(fabs(g - w) <= each * (fabs(w) + rms) + last_bit * fabs(w) + each * 1e-5)) {
            report_fail(r, c, backward, "%s[%lld] is %.9g, not %.9g", p->name, (long long)e, g, w);
            return;
        }
    }
}

/* The specification's result, in the table's dtypes. */
static tensors run_spec(report *r, const krn_table *table, const krn_table *spec, const op_case *c,
                        bool backward, const tensors *given)
{
    const char *broken = NULL;
    tensors wide = tensors_convert(c, backward, given, table->dtype, spec->dtype);
    tensors result = run_kernel(spec, c, backward, &wide, 0, 0x5a, &broken);
    tensors want = tensors_convert(c, backward, &result, spec->dtype, table->dtype);
    if (broken)
        report_fail(r, c, backward, "%s itself %s", spec->backend, broken);
    tensors_free(&wide);
    tensors_free(&result);
    return want;
}

static void compare_bits(report *r, const op_case *c, bool backward, const tensors *first,
                         const tensors *other, const char *what)
{
    place places[KRN_BUF_MAX];
    op_places(c, backward, places);
    for (int i = 0; i < KRN_BUF_MAX; i++) {
        if (first->at[i] && memcmp(first->at[i], other->at[i], first->bytes[i]) != 0) {
            report_fail(r, c, backward, "%s has other bits with %s", places[i].name, what);
            return;
        }
    }
}

static void check_direction(report *r, const krn_table *table, const op_case *c, bool backward,
                            const tensors *given, const tensors *want)
{
    static const struct {
        uint32_t threads;
        uint8_t garbage;
        const char *what;
    } again[] = {{1, 0xff, "a second run and NaN where it must not read"},
                 {2, 0x3f, "2 threads"},
                 {3, 0x00, "3 threads"}};
    size_t n_again = sizeof again / sizeof again[0];
    place places[KRN_BUF_MAX];
    op_places(c, backward, places);
    const char *broken = NULL;
    tensors first = run_kernel(table, c, backward, given, 1, 0x7f, &broken);
    for (int i = 0; i < KRN_BUF_MAX; i++) {
        if (given->at[i] && places[i].use != USE_READ)
            compare_tensor(r, c, backward, &places[i], table->dtype, given->at[i], first.at[i],
                           want->at[i]);
    }
    size_t last = r->no_pool ? 1 : n_again;
    for (size_t i = 0; i < last; i += r->brief ? 2 : 1) {
        tensors other =
            run_kernel(table, c, backward, given, again[i].threads, again[i].garbage, &broken);
        compare_bits(r, c, backward, &first, &other, again[i].what);
        tensors_free(&other);
    }
    if (broken)
        report_fail(r, c, backward, "%s", broken);
    tensors_free(&first);
}

/* An input without a gradient: its d_in is NULL, and all else has the same bits. */
static void check_without_d_in(report *r, const krn_table *table, const op_case *c,
                               const tensors *given)
{
    place places[KRN_BUF_MAX];
    op_places(c, true, places);
    const char *broken = NULL;
    tensors all = run_kernel(table, c, true, given, 1, 0x7f, &broken);
    for (int i = 0; i < KRN_BUF_MAX; i++) {
        if (!given->at[i] || places[i].group != GROUP_D_IN)
            continue;
        tensors fewer = *given, rest = all;
        fewer.at[i] = rest.at[i] = NULL;
        tensors other = run_kernel(table, c, true, &fewer, 2, 0x7f, &broken);
        compare_bits(r, c, true, &rest, &other, "no d_in");
        tensors_free(&other);
    }
    if (broken)
        report_fail(r, c, true, "%s", broken);
    tensors_free(&all);
}

void check_case(report *r, const krn_table *table, const krn_table *spec, const op_case *c)
{
    tensors given = tensors_fill(c, false, table->dtype, NULL);
    tensors want = run_spec(r, table, spec, c, false, &given);
    if (table->fwd[c->op])
        check_direction(r, table, c, false, &given, &want);
    bool constant = atom_op_get(c->op)->flags & ATOM_OP_CONSTANT; /* nobody calls its backward */
    if (table->bwd[c->op] && spec->bwd[c->op] && !constant) {
        tensors d_given = tensors_fill(c, true, table->dtype, &want);
        tensors d_want = run_spec(r, table, spec, c, true, &d_given);
        check_direction(r, table, c, true, &d_given, &d_want);
        check_without_d_in(r, table, c, &d_given);
        tensors_free(&d_given);
        tensors_free(&d_want);
    }
    tensors_free(&given);
    tensors_free(&want);
    r->checked++;
}

/* What the table says it cannot (krn_table.can) is not asked of it. */
static bool beyond(const krn_table *table, const op_shape *shape)
{
    uint32_t more = (shape->dim[KRN_DIM_MAX] ? KRN_CAN_APART : 0) |
                    (shape->op == ATOM_OP_attention && shape->dim[5] ? KRN_CAN_WINDOW : 0);
    uint32_t need = shape->dim[4] == 0               ? 0
                    : shape->op == ATOM_OP_attention ? KRN_CAN_GROUPED
                    : shape->op == ATOM_OP_embed     ? KRN_CAN_NO_PLACES
                                                     : 0;
    return (need | more) & ~table->can;
}

void check_op(report *r, const krn_table *table, const krn_table *spec, atom_op op)
{
    size_t n, cases = 0;
    const op_shape *shapes = r->real ? op_shapes_real(&n) : op_shapes(&n);
    for (int backward = 0; backward < 2; backward++) {
        if ((backward ? table->bwd : table->fwd)[op])
            continue;
        r->missing++;
        if (!r->quiet)
            printf("MISSING %s %s %s %s: no kernel\n", r->backend, atom_dtype_name(r->dtype),
                   atom_op_get(op)->name, backward ? "bwd" : "fwd");
    }
    for (size_t i = 0; i < n; i++) {
        if (shapes[i].op != op || (r->shapes_max && cases >= r->shapes_max * VARIANT_N))
            continue;
        if (beyond(table, &shapes[i]))
            continue;
        if (r->work_max && op_work(shapes[i].dim) > r->work_max)
            continue;
        bool one = r->real || (r->brief && op_work(shapes[i].dim) > WORK_BRIEF);
        uint32_t usual =
            (uint32_t)i % (r->real ? VARIANT_N - 1 : VARIANT_N); /* the last: no targets */
        for (uint32_t variant = one ? usual : 0; variant < VARIANT_N;
             variant += one ? VARIANT_N : 1) {
            op_case c = {.op = op, .variant = variant, .apart = shapes[i].dim[KRN_DIM_MAX]};
            memcpy(c.dim, shapes[i].dim, sizeof c.dim);
            check_case(r, table, spec, &c);
            if (table->dtype == ATOM_F64 && !(atom_op_get(op)->flags & ATOM_OP_CONSTANT))
                check_slopes(r, table, &c);
            cases++;
        }
    }
    if (cases == 0 && !r->real) {
        op_case c = {.op = op};
        report_fail(r, &c, false, "no shape in cases.c; add some");
    }
}
