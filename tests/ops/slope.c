/*
 * Owns finite differences. With L = sum(d_out y) (terminal ops: loss_scale sum(loss)) of the naive
 * forward, the gradient that backward gives for an element must equal (L(x + h) - L(x - h)) / 2h;
 * random single elements of every tensor, and one random direction through all of it.
 */
#include "tests/ops/checkop.h"

#include <math.h>
#include <string.h>

enum { ELEMENTS_MAX = 24, WORK_SMALL = 20000 };
static const double step_h = 5e-4;

/* The scalar L; `weights` is d_out, or NULL for terminal ops. */
static double objective(const op_case *c, const tensors *given, const double *weights)
{
    const char *broken = NULL;
    place places[KRN_BUF_MAX];
    op_places(c, false, places);
    tensors y = run_kernel(naive_table(), c, false, given, 0, 0, &broken);
    double sum = 0;
    for (int i = 0; i < KRN_BUF_MAX; i++) {
        if (places[i].group != GROUP_OUT || !y.at[i])
            continue;
        for (int64_t e = 0; e < places[i].n; e++)
            sum += ((double *)y.at[i])[e] * (weights ? weights[e] : (double)op_step(c).loss_scale);
    }
    tensors_free(&y);
    return sum;
}

/* dL along `way` at the tensor in place i of `given`. */
static double slope_along(const op_case *c, const tensors *given, int i, const double *way,
                          int64_t n, const double *weights)
{
    static const double places[4] = {-2, -1, 1, 2}, weight[4] = {1, -8, 8, -1};
    double sum = 0;
    for (int side = 0; side < 4; side++) {
        tensors copy = tensors_convert(c, false, given, ATOM_F64, ATOM_F64);
        for (int64_t e = 0; e < n; e++)
            ((double *)copy.at[i])[e] += places[side] * step_h * way[e];
        sum += weight[side] * objective(c, &copy, weights);
        tensors_free(&copy);
    }
    return sum / (12 * step_h);
}

static void check_tensor(report *r, const op_case *c, const tensors *given, int i, const place *p,
                         const double *gradient, const double *weights)
{
    tensors ways = tensors_convert(c, false, given, ATOM_F64, ATOM_F64);
    double *way = ways.at[i];
    int64_t stride = p->n / ELEMENTS_MAX + 1, end = op_work(c->dim) <= WORK_SMALL ? p->n : 0;
    for (int64_t first = -1; first < end; first += first < 0 ? 1 : stride) {
        double want = 0, size = 0;
        for (int64_t e = 0; e < p->n; e++) {
            way[e] = first < 0 ? cos(1.0 + 3.7 * (double)e) / sqrt((double)p->n) : e == first;
            want += way[e] * gradient[e];
            size += fabs(way[e] * gradient[e]);
        }
        double got = slope_along(c, given, i, way, p->n, weights);
        double error = fabs(got - want) / fmax(size, 1.0);
        if (!(error <= r->worst[c->op][1][GROUP_GIVEN]))
            r->worst[c->op][1][GROUP_GIVEN] = error;
        if (!(error <= SLOPE_LIMIT)) {
            report_fail(r, c, true, "slope of %s[%lld] is %.9g by differences, %.9g by backward",
                        p->name, (long long)first, got, want);
            break;
        }
    }
    tensors_free(&ways);
}

/* compress has steps and holes instead of slopes: its backward is its forward on dy. */
static void check_straight_through(report *r, const krn_table *table, const op_case *c)
{
    const char *broken = NULL;
    tensors given = tensors_fill(c, false, ATOM_F64, NULL);
    tensors d_given = tensors_fill(c, true, ATOM_F64, &given);
    tensors d = run_kernel(table, c, true, &d_given, 1, 0, &broken);
    memcpy(given.at[0], d_given.at[2], given.bytes[0]);
    tensors y = run_kernel(naive_table(), c, false, &given, 0, 0, &broken);
    bool adds = op_args(c).flags & KRN_ADD_D_IN0;
    for (int64_t e = 0; e < c->dim[0] * c->dim[1]; e++) {
        double want = ((double *)y.at[1])[e] + (adds ? ((double *)d_given.at[3])[e] : 0);
        if (((double *)d.at[3])[e] != want) {
            report_fail(r, c, true, "dx[%lld] is %.9g, not %.9g, which dy is at the other end",
                        (long long)e, ((double *)d.at[3])[e], want);
            break;
        }
    }
    tensors_free(&given);
    tensors_free(&d_given);
    tensors_free(&d);
    tensors_free(&y);
}

void check_slopes(report *r, const krn_table *table, const op_case *c)
{
    const atom_op_info *row = atom_op_get(c->op);
    place fwd[KRN_BUF_MAX], bwd[KRN_BUF_MAX];
    op_places(c, false, fwd);
    op_places(c, true, bwd);
    const char *broken = NULL;
    if (c->op == ATOM_OP_compress) {
        check_straight_through(r, table, c);
        return;
    }
    tensors given = tensors_fill(c, false, ATOM_F64, NULL);
    tensors y = run_kernel(table, c, false, &given, 1, 0, &broken);
    tensors d_given = tensors_fill(c, true, ATOM_F64, &y);
    tensors d = run_kernel(table, c, true, &d_given, 1, 0, &broken);
    int d_out = row->ins + row->params_max + row->outs + row->saved;
    for (int i = 0; i < row->ins + row->params_max; i++) {
        int at = d_out + 1 + i;
        if (bwd[at].kind == KIND_NONE)
            continue;
        double *gradient = d.at[at];
        for (int64_t e = 0; e < bwd[at].n && bwd[at].use == USE_ADD; e++)
            gradient[e] -= ((double *)d_given.at[at])[e];
        check_tensor(r, c, &given, i, &fwd[i], gradient, d.at[d_out]);
    }
    tensors_free(&given);
    tensors_free(&y);
    tensors_free(&d_given);
    tensors_free(&d);
}
