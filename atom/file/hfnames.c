/*
 * Owns what files call the parameters. One idea: a parameter is one or several tensors of the file,
 * each a run of its rows: q, k and v of Llama's kin are one parameter here and three tensors there
 * (in files of some families they are one, too: graph.packed). GPT-NeoX has them head by head in
 * one tensor, so there runs of rows change places.
 * Where the runs end follows from the graph's attention. Refuses nothing.
 */
#include "atom/file/hfweights.h"

#include "atom/base/mem.h"

#include <stdio.h>
#include <string.h>

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

bool file_param_transposed(const graph_param *param)
{
    return param->rank == 2 &&
           (ends_with(param->name, ".attn.c_attn.weight") ||
            ends_with(param->name, ".c_proj.weight") || ends_with(param->name, ".mlp.c_fc.weight"));
}

static bool is_neox(const graph *g)
{
    return !g->n_stored && strcmp(g->params[0].name, "embed_in.weight") == 0;
}

const char *file_prefix(const graph *g)
{
    if (g->n_stored)
        return "";
    if (is_neox(g))
        return "gpt_neox.";
    return strcmp(g->params[0].name, "wte.weight") == 0 ? "transformer." : "model.";
}

const char *file_inner_name(const graph *g, const char *name)
{
    const char *prefix = file_prefix(g);
    if (strncmp(name, prefix, strlen(prefix)) == 0)
        name += strlen(prefix);
    /* what newer transformers call it, though not in files */
    return is_neox(g) && strcmp(name, "lm_head.weight") == 0 ? "embed_out.weight" : name;
}

const char *file_head(const graph *g)
{
    return is_neox(g) ? "embed_out" : "lm_head";
}

bool file_is_head(const graph *g, const char *name)
{
    const char *head = file_head(g);
    size_t n = strlen(head);
    return strncmp(name, head, n) == 0 && (name[n] == 0 || name[n] == '.');
}

/* Is it "START.N" + one of the ends? */
static bool is_of_block(const char *name, const char *start, const char *const ends[2])
{
    size_t n = strlen(start);
    size_t digits = strncmp(name, start, n) == 0 ? strspn(name + n, "0123456789") : 0;
    return digits &&
           (strcmp(name + n + digits, ends[0]) == 0 || strcmp(name + n + digits, ends[1]) == 0);
}

/* Causal masks that old files of GPT-2 and GPT-NeoX carry, and frequencies of rotary embeddings. */
bool file_is_buffer(const char *name)
{
    static const char *const gpt2[] = {".attn.bias", ".attn.masked_bias"};
    static const char *const neox[] = {".attention.bias", ".attention.masked_bias"};
    return is_of_block(name, "h.", gpt2) || is_of_block(name, "layers.", neox) ||
           ends_with(name, "rotary_emb.inv_freq");
}

typedef struct listing {
    const graph *g;
    file_slice *slices;
    uint32_t n;
} listing;

/* Rows first .. first + rows of a parameter, as a tensor of that name. */
static void add(listing *l, uint32_t param, const char *name, uint64_t first, uint64_t rows)
{
    const graph_param *p = &l->g->params[param];
    uint64_t width = p->rank == 2 ? (uint64_t)p->dims[1] : 1;
    file_slice *s = &l->slices[l->n++];
    *s = (file_slice){.param = param,
                      .first = first * width,
                      .elements = rows * width,
                      .rank = p->rank,
                      .transposed = file_param_transposed(p),
                      .heads = file_heads_apart(l->g, param)};
    s->dims[s->transposed] = rows;
    if (p->rank == 2)
        s->dims[!s->transposed] = width;
    snprintf(s->name, sizeof s->name, "%s", name);
}

/* "layers.0.mlp." + part + ".weight", from "layers.0.mlp.gate_up_proj.weight". */
static void part_name(char *out, size_t room, const char *name, const char *whole, const char *part)
{
    const char *at = strstr(name, whole);
    snprintf(out, room, "%.*s%s%s", (int)(at - name), name, part, at + strlen(whole));
}

/* Heads of q and of k in the node that reads what this parameter makes. */
static void heads_of(const graph *g, const graph_param *p, uint64_t *H, uint64_t *K)
{
    int32_t n = p->first_node;
    while ((uint32_t)n + 1 < g->n_nodes && g->nodes[n].op != ATOM_OP_attention)
        n++;
    *H = g->nodes[n].heads > 0 ? (uint64_t)g->nodes[n].heads : 1;
    *K = g->nodes[n].kv_heads ? (uint64_t)g->nodes[n].kv_heads : *H;
}

uint64_t file_heads_apart(const graph *g, uint32_t param)
{
    const graph_param *p = &g->params[param];
    uint64_t H = 0, K;
    if (strstr(p->name, ".query_key_value.") && !strstr(p->name, ".lora_A."))
        heads_of(g, p, &H, &K);
    return H;
}

uint64_t file_slice_runs(const file_slice *s)
{
    return s->heads ? 3 * s->heads : 1;
}

uint64_t file_slice_run(const file_slice *s, uint64_t i)
{
    return s->heads ? i % 3 * s->heads + i / 3 : i;
}

uint64_t file_slice_run_there(const file_slice *s, uint64_t i)
{
    return s->heads ? i % s->heads * 3 + i / s->heads : i;
}

static void add_param(listing *l, uint32_t i)
{
    static const char QKV[] = "qkv_proj", GATE_UP[] = "gate_up_proj";
    const graph_param *p = &l->g->params[i];
    uint64_t rows = (uint64_t)p->dims[0], H, K;
    char name[FILE_NAME_MAX];
    if (l->g->packed) {
        add(l, i, p->name, 0, rows);
    } else if (strstr(p->name, QKV)) {
        heads_of(l->g, p, &H, &K);
        uint64_t q = rows / (H + 2 * K) * H, k = rows / (H + 2 * K) * K;
        part_name(name, sizeof name, p->name, QKV, "q_proj");
        add(l, i, name, 0, q);
        part_name(name, sizeof name, p->name, QKV, "k_proj");
        add(l, i, name, q, k);
        part_name(name, sizeof name, p->name, QKV, "v_proj");
        add(l, i, name, q + k, k);
    } else if (strstr(p->name, GATE_UP)) {
        part_name(name, sizeof name, p->name, GATE_UP, "gate_proj");
        add(l, i, name, 0, rows / 2);
        part_name(name, sizeof name, p->name, GATE_UP, "up_proj");
        add(l, i, name, rows / 2, rows / 2);
    } else {
        add(l, i, p->name, 0, rows);
    }
}

static uint64_t elements_of(const graph_stored *s)
{
    uint64_t n = 1;
    for (int i = 0; i < s->rank; i++)
        n *= (uint64_t)s->dims[i];
    return n;
}

/* Of somebody's own model, one slice for each name: the runs of a name lie side by side in the table. */
static atom_status own_slices(const graph *g, file_slice **out, uint32_t *n)
{
    file_slice *slices = atom_alloc(g->n_stored, sizeof *slices);
    uint32_t used = 0;
    if (!slices)
        return atom_fail_memory("the tensors' names", (uint64_t)g->n_stored * sizeof *slices);
    for (uint32_t i = 0, k; i < g->n_stored; i = k) {
        const graph_stored *s = &g->stored[i];
        file_slice *slice = &slices[used++];
        for (k = i + 1; k < g->n_stored && strcmp(g->stored[k].name, s->name) == 0;)
            k++;
        *slice = (file_slice){.param = (uint32_t)s->param,
                              .elements = elements_of(s),
                              .rank = s->rank,
                              .transposed = s->transposed,
                              .runs = s,
                              .n_runs = k - i};
        memcpy(slice->name, s->name, sizeof slice->name);
        for (int d = 0; d < s->rank; d++)
            slice->dims[d] = (uint64_t)s->dims[d];
    }
    *out = slices;
    *n = used;
    return ATOM_OK;
}

atom_status file_slices(const graph *g, file_slice **out, uint32_t *n)
{
    if (g->n_stored)
        return own_slices(g, out, n);
    listing l = {.g = g, .slices = atom_alloc((size_t)g->n_params * 3, sizeof *l.slices)};
    if (!l.slices)
        return atom_fail_memory("the tensors' names", (uint64_t)g->n_params * 3 * sizeof *l.slices);
    for (uint32_t i = 0; i < g->n_params; i++)
        add_param(&l, i);
    *out = l.slices;
    *n = l.n;
    return ATOM_OK;
}
