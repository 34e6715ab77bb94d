/*
 * Owns the printed form of a graph, and its hash. One idea: lines go one by one to a sink, so that
 * hashing needs no memory and cannot fail. A line is a kind, a name and key=value fields; tensors
 * and parameters are referred to by name; what seal derives is not printed:
 *
 *   atom_graph 1
 *   graph gpt2-124m dtype=bf16 B=4 T=256
 *   param wte.weight dims=50257,768 init=normal std=0x147ae1p-26
 *   input tokens kind=i32 dims=4,256
 *   node embed op=embed in=tokens params=wte.weight,wpe.weight
 *   node h.0.attn op=attention in=h.0.attn.c_attn heads=12 p=0xcccccdp-27
 *
 * Inputs and nodes stand in the order of their tensor ids. A float is its exact value, an odd
 * integer times a power of two. rng is printed where it is not the node's index. Refuses unsealed
 * graphs.
 */
#include "atom/graph/build.h"

#include "atom/base/assert.h"
#include "atom/base/hash.h"
#include "atom/base/mem.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { LINE_MAX_BYTES = 2048 }; /* seven names of 63, fields, and divisors of a rope */

typedef struct line {
    char text[LINE_MAX_BYTES];
    size_t n;
} line;

typedef atom_status (*sink_fn)(void *ctx, const char *text, size_t bytes);

__attribute__((format(printf, 2, 3))) static void put(line *l, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(l->text + l->n, sizeof l->text - l->n, fmt, args);
    va_end(args);
    ATOM_ASSERT(n >= 0 && (size_t)n < sizeof l->text - l->n);
    l->n += (size_t)n;
}

/* Exact, and independent of the locale. x is finite and not negative. */
static void put_number(line *l, float x)
{
    int exponent;
    uint32_t m = (uint32_t)(frexpf(x, &exponent) * 0x1p24f);
    for (exponent -= 24; m != 0 && m % 2 == 0; m /= 2)
        exponent++;
    if (m == 0)
        put(l, "0");
    else
        put(l, "0x%xp%d", m, exponent);
}

static void put_float(line *l, const char *key, float x)
{
    put(l, " %s=", key);
    put_number(l, x);
}

static void put_dims(line *l, int rank, const int64_t *dims)
{
    for (int i = 0; i < rank; i++)
        put(l, "%s%lld", i ? "," : " dims=", (long long)dims[i]);
}

static void put_param(line *l, const graph_param *p)
{
    put(l, "param %s", p->name);
    put_dims(l, p->rank, p->dims);
    put(l, " init=%s", graph_init_names[p->init]);
    if (p->init == GRAPH_INIT_NORMAL || p->init == GRAPH_INIT_UNIFORM)
        put_float(l, "std", p->init_std);
    if (p->frozen)
        put(l, " frozen=1");
    put(l, "\n");
}

static void put_rope(line *l, const atom_rope *r)
{
    if (r->theta == 0)
        return;
    put_float(l, "theta", r->theta);
    put_float(l, "factor", r->factor);
    if (r->gain != 0)
        put_float(l, "gain", r->gain);
    if (r->width != 0)
        put(l, " width=%d", r->width);
    if (r->yarn != 0)
        put(l, " yarn=%d", r->yarn);
    for (int i = 0; i < ATOM_ROPE_DIVISORS_MAX && r->divisors[i] > 0; i++) {
        put(l, i ? "," : " divisors=");
        put_number(l, r->divisors[i]);
    }
    if (r->original == 0)
        return;
    put_float(l, "low", r->low);
    put_float(l, "high", r->high);
    put_float(l, "original", r->original);
}

static void put_node(line *l, const graph *g, uint32_t index)
{
    const graph_node *n = &g->nodes[index];
    const atom_op_info *op = atom_op_get(n->op);
    put(l, "node %s op=%s", n->name, op->name);
    for (int i = 0; i < op->ins; i++)
        put(l, "%s%s", i ? "," : " in=", g->tensors[n->in[i]].name);
    for (int i = 0; i < n->n_params; i++)
        put(l, "%s%s", i ? "," : " params=", g->params[n->params[i]].name);
    if (n->eps != 0)
        put_float(l, "eps", n->eps);
    if (n->heads != 0)
        put(l, " heads=%d", n->heads);
    if (n->kv_heads != 0)
        put(l, " kv_heads=%d", n->kv_heads);
    if (n->window != 0)
        put(l, " window=%lld", (long long)n->window);
    put_rope(l, &n->rope);
    if (n->p != 0)
        put_float(l, "p", n->p);
    if (n->scale != 0)
        put_float(l, "scale", n->scale);
    if (n->lift != 0)
        put_float(l, "lift", n->lift);
    if (n->cap != 0)
        put_float(l, "cap", n->cap);
    if (n->codec != 0)
        put(l, " codec=%s", atom_codec_names[n->codec]);
    if (n->first != 0)
        put(l, " first=%d", n->first);
    if (n->rng != index)
        put(l, " rng=%u", n->rng);
    put(l, "\n");
}

/* The line of tensor i: an input, a node whose output it is, or nothing (saved tensors). */
static void put_tensor(line *l, const graph *g, int32_t i)
{
    const graph_tensor *t = &g->tensors[i];
    if (t->producer == GRAPH_NONE) {
        put(l, "input %s kind=%s", t->name, graph_kind_names[t->kind]);
        put_dims(l, t->rank, t->dims);
        put(l, "\n");
    } else if (g->nodes[t->producer].out[0] == i) {
        put_node(l, g, (uint32_t)t->producer);
    }
}

static atom_status walk(const graph *g, sink_fn sink, void *ctx)
{
    ATOM_ASSERT(g->sealed);
    line l = {.n = 0};
    put(&l, "atom_graph 1\ngraph %s dtype=%s B=%lld T=%lld%s%s%s\n", g->name,
        atom_dtype_name(g->dtype), (long long)g->micro_batch, (long long)g->sequence,
        g->optimizer == GRAPH_MUON ? " optimizer=muon" : "",
        g->moments == ATOM_BF16 ? " moments=bf16" : "", g->packed ? " packed=1" : "");
    atom_status st = sink(ctx, l.text, l.n);
    for (uint32_t i = 0; i < g->n_params && st == ATOM_OK; i++) {
        l.n = 0;
        put_param(&l, &g->params[i]);
        st = sink(ctx, l.text, l.n);
    }
    for (uint32_t i = 0; i < g->n_tensors && st == ATOM_OK; i++) {
        l.n = 0;
        put_tensor(&l, g, (int32_t)i);
        st = sink(ctx, l.text, l.n);
    }
    return st;
}

typedef struct growing {
    char *text;
    size_t n, room;
} growing;

/* Keeps one byte free for the NUL. */
static atom_status append(void *ctx, const char *text, size_t bytes)
{
    growing *to = ctx;
    if (to->room - to->n <= bytes) {
        size_t room = 2 * to->room + bytes + LINE_MAX_BYTES;
        char *grown = atom_realloc(to->text, room, 1);
        if (!grown)
            return atom_fail_memory("a graph's text", room);
        to->text = grown;
        to->room = room;
    }
    memcpy(to->text + to->n, text, bytes);
    to->n += bytes;
    to->text[to->n] = '\0';
    return ATOM_OK;
}

static atom_status add_hash(void *ctx, const char *text, size_t bytes)
{
    uint64_t *hash = ctx;
    *hash = atom_hash(*hash, text, bytes);
    return ATOM_OK;
}

atom_status graph_print(const graph *g, char **text)
{
    growing to = {0};
    atom_status st = walk(g, append, &to);
    if (st != ATOM_OK) {
        atom_free(to.text);
        return st;
    }
    *text = to.text;
    return ATOM_OK;
}

uint64_t graph_hash(const graph *g)
{
    uint64_t hash = ATOM_HASH_SEED;
    atom_status st = walk(g, add_hash, &hash);
    ATOM_ASSERT(st == ATOM_OK);
    return hash;
}
