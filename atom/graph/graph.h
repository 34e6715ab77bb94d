/*
 * The operator graph of one training micro-batch: tensors, parameters and nodes in topological
 * order. Built once by a model builder, sealed, then never changed; everybody downstream reads it
 * freely from any thread.
 *
 * A node is the unit that is profiled and cut (ATOM, III-D). A sub-model is a range [first, last)
 * of node indices. Parameters are listed in canonical order, the order of first use; a parameter
 * used by two nodes (tied wte) is one parameter.
 *
 * A sealed graph has: the inputs `tokens` (read by embed) and `targets` (read by the loss), both
 * i32[B,T], and no others; one loss, at its last node; no output that nobody uses; parameters in
 * the order of their first use; names that are unique among tensors and among parameters.
 *
 * Source: ATOM paper III-B, III-D; op semantics in atom/base/ops.def. Owner: whoever builds, parses
 * or fuses a graph closes it. Thread: one while building; any once sealed.
 */
#ifndef ATOM_GRAPH_GRAPH_H
#define ATOM_GRAPH_GRAPH_H

#include "atom/base/codec.h"
#include "atom/base/dtype.h"
#include "atom/base/ops.h"
#include "atom/base/status.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum {
    GRAPH_IN_MAX = 2,
    GRAPH_PARAM_MAX = 3,
    GRAPH_OUT_MAX = 1,
    GRAPH_SAVED_MAX = 2,
    GRAPH_RANK_MAX = 4
};
enum { GRAPH_NAME_MAX = 64, GRAPH_NONE = -1 };

/* What a tensor is made of: ACT follows the graph's dtype, the others are fixed. */
typedef enum graph_kind { GRAPH_ACT, GRAPH_F32, GRAPH_I32 } graph_kind;

typedef struct graph_tensor {
    char name[GRAPH_NAME_MAX];
    graph_kind kind;
    uint8_t rank;
    bool needs_grad; /* set when sealed: an ACT output with some trained parameter upstream (saved:
                        never) */
    bool kept;       /* set when sealed: some backward reads it (graph_node_keeps, or saved) */
    int64_t dims[GRAPH_RANK_MAX];
    int32_t producer; /* node index, or GRAPH_NONE for a graph input (tokens, targets) */
    int32_t last_use; /* highest consuming node index, or GRAPH_NONE */
} graph_tensor;

/* NORMAL and UNIFORM have mean 0 and the std that is given. */
typedef enum graph_init {
    GRAPH_INIT_ZERO,
    GRAPH_INIT_ONE,
    GRAPH_INIT_NORMAL,
    GRAPH_INIT_UNIFORM
} graph_init;

typedef struct graph_param {
    char name[GRAPH_NAME_MAX]; /* file name without prefix: "h.0.attn.c_attn.weight" */
    uint8_t rank;
    bool decay;  /* weight decay applies: rank >= 2 */
    bool frozen; /* never trained: no gradient, no optimizer state; a wire copy is all there is */
    bool shared; /* set when sealed: used by more than one node that is no constant */
    graph_init init;
    float init_std;
    int64_t dims[GRAPH_RANK_MAX];
    uint64_t elements;
    uint64_t offset;               /* set when sealed: element offset in the canonical vector,
                                      a multiple of GRAPH_PARAM_ALIGN elements; all trained
                                      parameters lie in front of all frozen ones */
    int32_t first_node, last_node; /* set when sealed: first and last user */
} graph_param;

/*
 * What the files of somebody's own model call the numbers of a parameter: rows from, from +
 * step, ... of the tensor `name`, whose shape there is `dims` (all but the first taken together are
 * a row's width), are rows [first, first + rows) here; where `transposed`, `name` is [in, out]
 * there and whole. One tensor may be several such runs, and several names may hold the same (tied
 * weights).
 */
enum { GRAPH_STORED_NAME_MAX = 256 };
typedef struct graph_stored {
    char name[GRAPH_STORED_NAME_MAX];
    uint8_t rank;
    bool transposed;
    int32_t param;
    int64_t dims[GRAPH_RANK_MAX];
    int64_t from, step, first, rows;
} graph_stored;

/*
 * What the files of somebody's own model hold beside its parameters and training leaves as it is: the
 * buffers of PyTorch's state_dict (masks, tables), under their names there.
 */
enum { GRAPH_BUFFER_RANK_MAX = 8 };
typedef struct graph_buffer {
    char name[GRAPH_STORED_NAME_MAX];
    uint8_t rank, dtype; /* dtype: a file_dtype of atom/file/safetensors.h */
    uint64_t dims[GRAPH_BUFFER_RANK_MAX];
    uint64_t bytes;
    void *data; /* as stored; NULL: only described so far, as a config.json does */
} graph_buffer;
/* One table for all graphs of a model: the last that closes frees it, on whatever thread. */
typedef struct graph_buffers {
    atomic_uint holders;
    uint32_t n;
    graph_buffer all[]; /* in order of name */
} graph_buffers;

enum { GRAPH_PARAM_ALIGN = 128 }; /* elements: 256 bytes in bf16, 512 in fp32 */

typedef struct graph_node {
    char name[GRAPH_NAME_MAX]; /* "h.0.attn" */
    atom_op op;
    uint8_t n_params;
    int32_t in[GRAPH_IN_MAX];
    int32_t params[GRAPH_PARAM_MAX];
    int32_t out[GRAPH_OUT_MAX];
    int32_t saved[GRAPH_SAVED_MAX];
    float eps;        /* layernorm, rmsnorm, headnorm */
    float p;          /* dropout probability; 0 = none */
    int32_t heads;    /* attention, headnorm, rope: H */
    int32_t kv_heads; /* as heads: K; 0 stands for H */
    int64_t window;   /* attention: a row sees that many up to itself; 0: all. maxout: K */
    atom_rope rope;   /* rope */
    float scale;      /* lora, rownorm: above 0; scale: not 0; attention: of the scores, 0 stands
                         for 1/sqrt(D); compress: the codec's share */
    float lift;       /* rmsnorm, headnorm: added to their weights; 0 or 1 */
    float cap;        /* attention, cross_entropy, classifier: of scores, of logits; 0: none */
    int32_t codec;    /* compress: atom_codec_kind; others 0 */
    int32_t first;    /* lora, rownorm, dora: first column */
    uint32_t rng;     /* canonical id for random numbers; survives fusion */
} graph_node;

/* What the hidden matrices are trained by; everything else is always AdamW's (graph_matrices). */
typedef enum graph_optimizer { GRAPH_ADAMW, GRAPH_MUON } graph_optimizer;

typedef struct graph {
    char name[GRAPH_NAME_MAX]; /* "gpt2-124m" */
    atom_dtype dtype;   /* ATOM_F32 or ATOM_BF16: what ACT tensors and wire copies are made of */
    atom_dtype moments; /* ATOM_F32 or ATOM_BF16: what moments are kept in */
    graph_optimizer optimizer;
    bool packed;         /* files, too, keep q, k and v in one tensor, and gate and up */
    bool tied_files;     /* the head is a parameter of its own, but files have it in the embedding
                            (graph_config.tied_files); not in the text form */
    int64_t micro_batch; /* B */
    int64_t sequence;    /* T */
    uint32_t n_tensors, n_params, n_nodes;
    graph_tensor *tensors;
    graph_param *params;
    graph_node *nodes;
    uint64_t param_elements; /* set when sealed: sum of elements, without alignment */
    uint64_t param_extent;   /* set when sealed: canonical vector length, with alignment */
    uint64_t trained_elements, trained_extent; /* set when sealed: the same of what is trained; the
                                                  optimizer's state has that extent */
    int32_t tokens, targets;                   /* tensor ids of the inputs */
    int32_t loss;                              /* tensor id of the terminal output f32[B,T] */
    bool sealed;
    uint32_t n_stored; /* 0: files call parameters as atom/file/hfnames.c says */
    graph_stored *stored;
    graph_buffers *buffers; /* NULL: none */
    size_t tensors_room, params_room, nodes_room;
} graph;

/*
 * Building. Ids are indices. All of it fails only for want of memory (ATOM_E_RESOURCE) or because
 * what is asked for is not a legal graph (ATOM_E_FORMAT, with a message that names node and
 * operand). Names have letters, digits and . _ - / : + (other characters in the graph's own name
 * become _), at most 63, nodes 58. A failed call leaves the graph as it was. Dims are below 2^31,
 * elements at most 2^42.
 */
ATOM_MUST atom_status graph_open(const char *name, atom_dtype dtype, int64_t B, int64_t T,
                                 graph **out);
void graph_close(graph **g);
ATOM_MUST atom_status graph_add_input(graph *g, const char *name, graph_kind kind, int rank,
                                      const int64_t *dims, int32_t *id);
ATOM_MUST atom_status graph_add_param(graph *g, const char *name, int rank, const int64_t *dims,
                                      graph_init init, float std, int32_t *id);
/* The parameter is frozen (before sealing). */
void graph_freeze(graph *g, int32_t param);
/*
 * Adds a node; infers and creates its outputs and saved tensors (shape.c) and returns the id of its
 * first output. `node` carries op, name, in, params, n_params, eps, p, heads; rng is the node's own
 * index unless node->rng is nonzero.
 */
ATOM_MUST atom_status graph_add_node(graph *g, const graph_node *node, int32_t *out);
/* The graph keeps a copy of this table, in graph_stored_order; not in its text form. */
ATOM_MUST atom_status graph_set_stored(graph *g, const graph_stored *stored, uint32_t n);
/* A table of n empty rows with one holder, who releases it (buffers.c). */
ATOM_MUST atom_status graph_buffers_make(uint32_t n, graph_buffers **out);
void graph_buffers_release(graph_buffers **b);
/* The graph holds them, too (NULL: none), in order of name. Not in its text form. */
void graph_set_buffers(graph *g, graph_buffers *b);
/* Of all its buffers. */
uint64_t graph_buffers_bytes(const graph *g);
/* NULL: it has none of that name. */
const graph_buffer *graph_find_buffer(const graph *g, const char *name);
/* For qsort: by name, then by `from`. */
int graph_stored_order(const void *a, const void *b);
/* Computes the fields marked "set when sealed", checks topological order and the single loss. */
ATOM_MUST atom_status graph_seal(graph *g);

/* A sealed graph that is only measured from now on: nothing of it is trained, so no node has a backward,
 * and of its parameters there is a wire copy alone. Before anybody has planned with it; no rewrite takes
 * it. */
void graph_set_forward(graph *g);
/* Is anything of the sealed graph trained? */
static inline bool graph_trains(const graph *g)
{
    return g->trained_extent > 0;
}

/* Before anybody has planned with it; rewrites keep it. A new graph has ATOM_F32. */
void graph_set_moments(graph *g, atom_dtype moments);
/* The same; a new graph has GRAPH_ADAMW. */
void graph_set_optimizer(graph *g, graph_optimizer optimizer);
/* The same; a new graph is not. */
void graph_set_packed(graph *g, bool packed);
/* The same. */
void graph_set_tied_files(graph *g, bool tied_files);

/*
 * Rewrites to a new sealed graph (fuse.c): linear+gelu -> linear_gelu, dropout+add or add ->
 * dropout_add, linear(no bias)+cross_entropy -> classifier, where the tensor between has one
 * consumer. Same parameters in the same canonical order; rng ids are kept, so fused and unfused
 * draw the same bits.
 */
ATOM_MUST atom_status graph_fuse(const graph *g, graph **out);

/*
 * Low-rank adaptation (Hu et al. 2021, LoRA; section 4.1), as a rewrite to a new sealed graph
 * (lora.c): everything of g is frozen but for what `trained` names; each target, rows
 * [first, first + rows) of a linear's weight, gets its own A[rank, in] and B[rows, rank], trained:
 * y + (scale) B A dropout(x) in its columns. Nodes and parameters of a target: its name and ".lora_A", ".lora_B" (parameters:
 * ".weight" behind that). Targets of one linear share the dropped x. With dora (Liu et al. 2024,
 * DoRA; sections 4.1 and 4.3) each of those columns is then given the length that a third parameter,
 * ".lora_magnitude_vector" [rows], says: y + (m / n) (W x' + (scale) B A x') - W x', with
 * x' = dropout(x), and n the norm of its row of W + scale B A, which counts as a constant. A starts
 * uniform as PyTorch's linear does, B zero; m must be set to the norms of W's rows. Targets in
 * ascending (param, first), without overlap; of an
 * unfused graph. ATOM_E_USAGE names a target that no linear multiplies by, or too large a rank.
 * Random numbers of the others stay as they are; with no target g is only frozen, and refused.
 */
typedef struct graph_target {
    char name[GRAPH_NAME_MAX]; /* "layers.0.self_attn.q_proj" */
    int32_t param;             /* of g: a linear's weight */
    int64_t first, rows;
    int64_t rank; /* 0: the config's rank and scale */
    float scale;
} graph_target;
typedef struct graph_lora_config {
    int64_t rank;
    float scale;   /* alpha / rank */
    float dropout; /* 0: none */
    bool dora;
    const uint8_t *trained; /* by parameter of g: is it trained whole? NULL: none is */
} graph_lora_config;
ATOM_MUST atom_status graph_lora(const graph *g, const graph_lora_config *config,
                                 const graph_target *targets, uint32_t n, graph **out);

/*
 * The graph as if the model were cut into stages on hosts of their own (compress.c), as a rewrite to
 * a new sealed graph: behind each of after[n] blocks, ascending, one node "boundary.BLOCKS" of op
 * compress stands on the one tensor that crosses there, the residual stream. A block has one
 * attention, and its end is the last such place before the next one's. Same parameters, places and
 * random numbers as g. ATOM_E_USAGE says how many blocks there are, or that nothing single crosses.
 */
ATOM_MUST atom_status graph_compress(const graph *g, atom_codec codec, const int32_t *after,
                                     uint32_t n, graph **out);

/*
 * Bottlenecks at the same places (compress.c): what crosses is narrowed to `width` values and widened
 * again by two linear layers without a bias, "boundary.BLOCKS.down" and "boundary.BLOCKS.up", whose
 * weights (".weight" behind that) are parameters like all others and learn with them. With maxout
 * (Ryabinin et al. 2023, SWARM, section I.1) a layer norm, the op maxout and a second layer norm,
 * "boundary.BLOCKS.ln_1", ".maxout" and ".ln_2", stand in place of down. Their parameters lie where
 * they are used first; the others' names and all random numbers stay. Errors as above; also a width
 * that is not below that of what crosses, or with maxout does not divide it. n at least 1.
 */
enum { GRAPH_BOTTLENECKS_MAX = 32 };
typedef struct graph_bottlenecks {
    uint32_t n;                           /* 0: a model without them */
    int64_t width;                        /* of each; below C */
    bool maxout;                          /* narrowed by maxout instead of a linear layer */
    int32_t after[GRAPH_BOTTLENECKS_MAX]; /* blocks, ascending */
} graph_bottlenecks;
ATOM_MUST atom_status graph_bottleneck(const graph *g, const graph_bottlenecks *b, graph **out);
/* Is it a parameter that graph_bottleneck made? */
bool graph_is_bottleneck(const graph_param *p);

/* Text form (text.c shows it), one line per parameter, input and node; round-trips bit for bit.
 * Free text with atom_free. Parsing takes any bytes; ATOM_E_FORMAT names the line. */
ATOM_MUST atom_status graph_print(const graph *g, char **text);
ATOM_MUST atom_status graph_parse(const char *text, size_t bytes, graph **out);
/* Hash of the text form. */
uint64_t graph_hash(const graph *g);

/* Derived facts (shape.c, grad.c). */
atom_dtype graph_tensor_dtype(const graph *g, int32_t tensor);
uint64_t graph_tensor_elements(const graph *g, int32_t tensor);
uint64_t graph_tensor_bytes(const graph *g, int32_t tensor);
/* Multiply-adds count as two. backward includes dX and dW. classifier backward includes its
 * forward. */
double graph_node_flops(const graph *g, int32_t node, bool backward);
/* Bytes of wire parameters this node reads (shared ones too). */
uint64_t graph_node_param_bytes(const graph *g, int32_t node);

/*
 * How many matrices Muon makes of a parameter, each rows[i] whole rows of it in their order; 0: AdamW
 * trains it (always with GRAPH_ADAMW). With GRAPH_MUON these are weights of linear layers that are
 * trained, used once, and not the head; weights of q, k and v, or of gate and up, that are stored
 * together are taken apart; and both factors of an adapter, one matrix each (matrix.c).
 */
enum { GRAPH_MATRICES_MAX = 3 };
uint32_t graph_matrices(const graph *g, int32_t param, int64_t rows[GRAPH_MATRICES_MAX]);
/* Elements of all such parameters: Muon keeps one number of each beside its weight, AdamW two. */
uint64_t graph_matrix_elements(const graph *g);
/* Bytes that the optimizer keeps of all that is trained: master weights and its moments. */
uint64_t graph_state_bytes(const graph *g);

/* Does backward of `node` run at all? Yes where it ends in the loss, or something trained is at it
 * or upstream. No where nothing is trained. */
bool graph_node_backward(const graph *g, int32_t node);
/* What that reads of inputs and output: ATOM_KEEP_*; less than ops.def says where products have
 * frozen weights. */
unsigned graph_node_keeps(const graph *g, int32_t node);

/* How backward of `node` treats the gradient of its input `i` (0 ..): the consumer that comes last
 * in forward order writes, earlier ones add; tensors without gradient get none. Independent of any
 * cut. */
typedef enum graph_grad { GRAPH_GRAD_NONE, GRAPH_GRAD_WRITE, GRAPH_GRAD_ADD } graph_grad;
graph_grad graph_grad_mode(const graph *g, int32_t node, int i);

/*
 * Can backward of `node` be left out of a sub-model that makes both inputs, as its gradient is that of
 * both? True for a sum where the gradient of one input (*owner, 0 or 1) can take over the place, and the
 * other reads it there before anything is added.
 */
bool graph_hands_on(const graph *g, int32_t node, int *owner);

/* Two nodes are alike when op, shapes, dtypes, attributes and grad modes agree: profiled once. Key
 * is a hash. */
uint64_t graph_node_class(const graph *g, int32_t node);

/*
 * Tensors that cross from [.., cut) to [cut, ..): produced before `cut` and used by a node >= cut.
 * Graph inputs never count. Writes at most max ids in ascending order, returns how many there are.
 */
uint32_t graph_boundary(const graph *g, int32_t cut, int32_t *ids, uint32_t max);
/* May one cut in front of node `cut`? Yes where 1 <= boundary count <= GRAPH_BOUNDARY_MAX. */
enum { GRAPH_BOUNDARY_MAX = 4 };
bool graph_can_cut(const graph *g, int32_t cut);
/* Sum of aligned bytes (ATOM_ALIGN_BYTES each) of the tensors that cross at `cut`. */
uint64_t graph_boundary_bytes(const graph *g, int32_t cut);

#endif
