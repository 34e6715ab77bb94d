/*
 * Owns the translation of a model into llama.cpp's keys and names. One idea: the tensors are those
 * of a Hugging Face file (hfnames.c), renamed by a table, a few of them with their rows in another
 * order (GPT-NeoX's q, k and v are there as atom has them). Refuses tensors that the table does not have.
 */
#include "atom/file/ggufmodel.h"

#include "atom/base/mem.h"
#include "atom/file/ggufrope.h"
#include "atom/file/hfweights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *file_gguf_architecture(const graph_config *c)
{
    return graph_family_traits(c->family)->gguf;
}

static bool in_pairs(const graph_config *c)
{
    return graph_family_traits(c->family)->gguf_pairs;
}

/* --- metadata -------------------------------------------------------------------------------- */

enum { KEY_MAX = 96 };

static const char *key(const graph_config *c, const char *rest, char text[KEY_MAX])
{
    snprintf(text, KEY_MAX, "%s.%s", file_gguf_architecture(c), rest);
    return text;
}

static void put_number(file_gguf *w, const graph_config *c, const char *rest, int64_t value)
{
    char text[KEY_MAX];
    file_gguf_put_u32(w, key(c, rest, text), (uint32_t)value);
}

static void put_real(file_gguf *w, const graph_config *c, const char *rest, float value)
{
    char text[KEY_MAX];
    file_gguf_put_f32(w, key(c, rest, text), value);
}

enum { GGUF_NOPE_EVERY = 4 }; /* llama.cpp's constant for smollm3: no key says it */

/* What llama.cpp knows of Gemma by heart: it divides scores by the root of D, but in the largest model
 * of a generation by that of C / H. */
float file_gguf_query_scalar(const graph_config *c)
{
    enum { LARGEST_OF_2 = 46, LARGEST_OF_3 = 62 };
    int64_t largest = c->family == GRAPH_GEMMA2 ? LARGEST_OF_2 : LARGEST_OF_3;
    return (float)(c->layers == largest ? c->width / c->heads : c->head_dim);
}

static const char *find_gemma(const graph_config *c)
{
    const graph_config *usual = &graph_family_traits(c->family)->defaults;
    return c->local_theta != usual->local_theta           ? "rope_local_base_freq"
           : c->query_scalar != file_gguf_query_scalar(c) ? "query_pre_attn_scalar"
           : c->untied                                    ? "an untied head"
           : c->qkv_bias                                  ? "attention_bias"
                                                          : NULL;
}

static atom_status refuse(const graph_config *c, const char *key)
{
    return atom_fail(ATOM_E_UNSUPPORTED,
                     "this model has %s, which llama.cpp does not support for models of type %s; "
                     "GGUF cannot hold it",
                     key, graph_family_name(c->family));
}

/* Its architecture of OLMo 2 and 3 loads fewer tensors than others. */
static atom_status check_olmo(const graph_config *c)
{
    const char *key = !c->untied                              ? "a tied head"
                      : c->qkv_bias || c->o_bias              ? "attention_bias"
                      : c->rope.original > 0 && !c->rope.yarn ? "rope_type 'llama3'"
                                                              : NULL;
    return key ? refuse(c, key) : ATOM_OK;
}

/* Its architecture of GPT-NeoX insists on a head and on biases, and has no factors for frequencies. */
static atom_status check_neox(const graph_config *c)
{
    const char *key = !c->untied                              ? "a tied head"
                      : !c->qkv_bias || !c->o_bias            ? "attention_bias false"
                      : c->rope.original > 0 && !c->rope.yarn ? "rope_type 'llama3'"
                                                              : NULL;
    return key ? refuse(c, key) : ATOM_OK;
}

/* And which layers have windows, and what rope those have. */
static atom_status check_windows(const graph_config *c)
{
    const graph_traits *traits = graph_family_traits(c->family);
    const graph_config *usual = &traits->defaults;
    graph_config pattern = {.full_every = usual->full_every};
    bool gemma = traits->local_rope != GRAPH_LOCAL_ROPE_SAME;
    const char *key = gemma ? find_gemma(c) : NULL;
    if (!key && (c->attn_cap > 0) != (usual->attn_cap > 0))
        key = "attn_logit_softcapping";
    if (!key && (c->final_cap > 0) != (usual->final_cap > 0))
        key = "final_logit_softcapping";
    for (int64_t i = 0; i < c->layers && !key; i++) {
        if (graph_layer_is_full(c, i) != graph_layer_is_full(&pattern, i))
            key = "layer_types";
    }
    return key ? refuse(c, key) : ATOM_OK;
}

static atom_status check_model(const graph_config *c)
{
    if (!file_gguf_architecture(c))
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "llama.cpp has no architecture for models of type %s, so GGUF cannot "
                         "hold this one",
                         graph_family_name(c->family));
    if (c->bottlenecks.n)
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "the model has bottlenecks between blocks (atom_bottlenecks), which "
                         "llama.cpp does not know; GGUF cannot hold this one");
    if (graph_family_traits(c->family)->nope && c->nope_every != GGUF_NOPE_EVERY)
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "llama.cpp leaves every %dth layer of a %s without a rotary embedding, "
                         "but this model does so for other layers (no_rope_layers); GGUF cannot "
                         "hold it",
                         GGUF_NOPE_EVERY, graph_family_name(c->family));
    ATOM_TRY(file_gguf_check_rope(c));
    if (strcmp(file_gguf_architecture(c), "olmo2") == 0)
        ATOM_TRY(check_olmo(c));
    if (graph_family_traits(c->family)->neox)
        ATOM_TRY(check_neox(c));
    if (graph_family_traits(c->family)->windows == GRAPH_WINDOW_MOST)
        ATOM_TRY(check_windows(c));
    if (c->window_layers > 0 && c->window > 0 && c->window < c->positions)
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "only the layers from %lld on have a window of %lld tokens "
                         "(sliding_window), but in llama.cpp all layers have one or none; GGUF "
                         "cannot hold this model",
                         (long long)c->window_layers, (long long)c->window);
    return ATOM_OK;
}

/* Files do not say which GELU: all published models have the exact one but the first, of 20B. */
bool file_gguf_tanh_gelu(const graph_config *c)
{
    enum { LAYERS_20B = 44, WIDTH_20B = 6144 };
    return c->layers == LAYERS_20B && c->width == WIDTH_20B;
}

static void put_neox(file_gguf *w, const graph_config *c)
{
    char text[KEY_MAX];
    file_gguf_put_bool(w, key(c, "use_parallel_residual", text), c->parallel);
    if (c->tanh_gelu != file_gguf_tanh_gelu(c))
        file_gguf_put_text(w, key(c, FILE_GGUF_ACTIVATION, text),
                           c->tanh_gelu ? "gelu_pytorch_tanh" : "gelu");
}

static void put_multipliers(file_gguf *w, const graph_config *c)
{
    put_real(w, c, "embedding_scale", c->embedding_scale);
    put_real(w, c, "residual_scale", c->residual_scale);
    put_real(w, c, "attention.scale", c->attention_scale);
    put_real(w, c, "logit_scale", c->logits_divisor);
}

atom_status file_gguf_put_model(file_gguf *w, const graph_config *c, file_gguf_type type)
{
    /* llama.cpp's numbers for whole files, not those of the tensors */
    uint32_t file_type = type == FILE_GGUF_F32    ? 0
                         : type == FILE_GGUF_F16  ? 1
                         : type == FILE_GGUF_Q8_0 ? 7
                                                  : 32;
    bool gpt2 = c->family == GRAPH_GPT2;
    ATOM_TRY(check_model(c));
    file_gguf_put_text(w, "general.architecture", file_gguf_architecture(c));
    file_gguf_put_text(w, "general.type", "model");
    file_gguf_put_text(w, "general.name", c->name);
    file_gguf_put_u32(w, "general.file_type", file_type);
    file_gguf_put_u32(w, "general.quantization_version", 2);
    put_number(w, c, "context_length", c->positions);
    put_number(w, c, "embedding_length", c->width);
    put_number(w, c, "block_count", c->layers);
    put_number(w, c, "feed_forward_length", c->inner);
    put_number(w, c, "attention.head_count", c->heads);
    if (gpt2) {
        put_real(w, c, "attention.layer_norm_epsilon", c->epsilon);
        return ATOM_OK;
    }
    put_number(w, c, "attention.head_count_kv", c->kv_heads);
    put_number(w, c, "attention.key_length", c->head_dim);
    put_number(w, c, "attention.value_length", c->head_dim);
    put_real(w, c,
             graph_family_traits(c->family)->neox ? "attention.layer_norm_epsilon"
                                                  : "attention.layer_norm_rms_epsilon",
             c->epsilon);
    if (graph_family_traits(c->family)->windows == GRAPH_WINDOW_MOST) /* llama.cpp insists on it */
        put_number(w, c, "attention.sliding_window", c->window ? c->window : c->positions);
    else if (c->window && c->window_layers == 0) /* else it hides nothing: check_model */
        put_number(w, c, "attention.sliding_window", c->window);
    if (c->attn_cap > 0)
        put_real(w, c, "attn_logit_softcapping", c->attn_cap);
    if (c->final_cap > 0)
        put_real(w, c, "final_logit_softcapping", c->final_cap);
    file_gguf_put_rope(w, c);
    if (graph_family_traits(c->family)->multipliers)
        put_multipliers(w, c);
    if (graph_family_traits(c->family)->neox)
        put_neox(w, c);
    if (in_pairs(c))
        put_number(w, c, "vocab_size", c->vocab_size);
    return ATOM_OK;
}

/* --- names ----------------------------------------------------------------------------------- */

/* Stems of names, ours and llama.cpp's: whole model, then blocks. */
static const char *const whole_names[][2] = {
    {"embed_tokens", "token_embd"}, {"wte", "token_embd"},   {"wpe", "position_embd"},
    {"norm", "output_norm"},        {"ln_f", "output_norm"}, {"lm_head", "output"},
    {"embed_in", "token_embd"},     {"embed_out", "output"}, {"final_layer_norm", "output_norm"},
};
static const char *const block_names[][2] = {
    {"input_layernorm", "attn_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"post_attention_layernorm", "ffn_norm"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    {"self_attn.qkv_proj", "attn_qkv"},
    {"mlp.gate_up_proj", "ffn_up"},
    {"attention.query_key_value", "attn_qkv"},
    {"attention.dense", "attn_output"},
    {"mlp.dense_h_to_4h", "ffn_up"},
    {"mlp.dense_4h_to_h", "ffn_down"},
    {"ln_1", "attn_norm"},
    {"attn.c_attn", "attn_qkv"},
    {"attn.c_proj", "attn_output"},
    {"ln_2", "ffn_norm"},
    {"mlp.c_fc", "ffn_up"},
    {"mlp.c_proj", "ffn_down"},
};

/* Before those, of families with norms behind. */
static const char *const post_names[][2] = {
    {"post_attention_layernorm", "post_attention_norm"},
    {"pre_feedforward_layernorm", "ffn_norm"},
    {"post_feedforward_layernorm", "post_ffw_norm"},
};

static const char *look_up(const char *const (*names)[2], size_t n, const char *stem, size_t bytes)
{
    for (size_t i = 0; i < n; i++) {
        if (strlen(names[i][0]) == bytes && memcmp(names[i][0], stem, bytes) == 0)
            return names[i][1];
    }
    return NULL;
}

static const char *block_name(const graph_config *c, const char *stem, size_t bytes)
{
    const char *made = NULL;
    if (graph_family_traits(c->family)->norms != GRAPH_NORMS_BEFORE)
        made = look_up(post_names, sizeof post_names / sizeof post_names[0], stem, bytes);
    if (!made)
        made = look_up(block_names, sizeof block_names / sizeof block_names[0], stem, bytes);
    return made;
}

/* "layers.3.self_attn.q_proj.weight" -> "blk.3.attn_q.weight" */
atom_status file_gguf_name(const graph_config *c, const char *name, char *out, size_t room)
{
    const char *kind = strrchr(name, '.');
    const char *rest = strncmp(name, "layers.", 7) == 0 ? name + 7
                       : strncmp(name, "h.", 2) == 0    ? name + 2
                                                        : NULL;
    const char *made = NULL;
    char *end = NULL;
    unsigned long block = rest ? strtoul(rest, &end, 10) : 0;
    if (kind && rest && end[0] == '.' && kind > end)
        made = block_name(c, end + 1, (size_t)(kind - end - 1));
    else if (kind)
        made = look_up(whole_names, sizeof whole_names / sizeof whole_names[0], name,
                       (size_t)(kind - name));
    if (!made)
        return atom_fail(ATOM_E_UNSUPPORTED, "GGUF has no name for tensor '%.80s'", name);
    if (rest)
        snprintf(out, room, "blk.%lu.%s%s", block, made, kind);
    else
        snprintf(out, room, "%s%s", made, kind);
    return ATOM_OK;
}

/* --- tensors --------------------------------------------------------------------------------- */

typedef struct export_job {
    file_gguf *w;
    const graph_config *c;
    const graph *g;
    file_gguf_type type;
    file_vector vector;
    file_slice *slices;
    float *buffer; /* a band of a tensor, or the rows of a head */
    uint64_t room;
    uint32_t n;
} export_job;

/* The tensor as GGUF has it: [out, in] whatever the file of Hugging Face does. */
static void dims_of(const file_slice *s, uint64_t dims[2])
{
    dims[0] = s->dims[s->transposed];
    dims[1] = s->rank == 2 ? s->dims[!s->transposed] : 0;
}

static file_gguf_type type_of(const export_job *j, const file_slice *s)
{
    uint64_t dims[2];
    dims_of(s, dims);
    if (s->rank == 1 || strcmp(s->name, "wpe.weight") == 0)
        return FILE_GGUF_F32;
    return j->type == FILE_GGUF_Q8_0 && dims[1] % FILE_GGUF_Q8_BLOCK ? FILE_GGUF_F16 : j->type;
}

static atom_status declare_all(const export_job *j)
{
    char name[FILE_NAME_MAX + 16];
    uint64_t dims[2];
    ATOM_TRY(file_gguf_declare_rope(j->w, j->c));
    for (uint32_t i = 0; i < j->n; i++) {
        const file_slice *s = &j->slices[i];
        dims_of(s, dims);
        ATOM_TRY(file_gguf_name(j->c, s->name, name, sizeof name));
        ATOM_TRY(file_gguf_declare(j->w, name, type_of(j, s), s->rank, dims));
    }
    return ATOM_OK;
}

bool file_gguf_turned(const graph_config *c, const char *name)
{
    return in_pairs(c) && (strstr(name, ".q_proj.") || strstr(name, ".k_proj."));
}

/* Rows of q or k, a head at a time: within it, row 2 i + k comes from row k D/2 + i. */
static atom_status write_turned(const export_job *j, const file_slice *s, uint64_t from)
{
    uint64_t D = (uint64_t)j->c->head_dim, width = s->rank == 2 ? s->dims[1] : 1;
    for (uint64_t at = 0; at < s->elements; at += D * width) {
        ATOM_TRY(j->vector.get(j->vector.ctx, from + at, D * width, j->buffer));
        for (uint64_t r = 0; r < D; r++)
            ATOM_TRY(file_gguf_write(j->w, j->buffer + (r % 2 * (D / 2) + r / 2) * width, width));
    }
    return ATOM_OK;
}

float file_gguf_lift(const graph_config *c, const file_slice *s)
{
    return graph_family_traits(c->family)->lifted && s->rank == 1 && strstr(s->name, "norm.") ? 1
                                                                                              : 0;
}

static atom_status write_plain(const export_job *j, const file_slice *s, uint64_t from)
{
    float lift = file_gguf_lift(j->c, s);
    for (uint64_t at = 0, some; at < s->elements; at += some) {
        some = s->elements - at < j->room ? s->elements - at : j->room;
        ATOM_TRY(j->vector.get(j->vector.ctx, from + at, some, j->buffer));
        for (uint64_t i = 0; i < some && lift > 0; i++)
            j->buffer[i] += lift;
        ATOM_TRY(file_gguf_write(j->w, j->buffer, some));
    }
    return ATOM_OK;
}

static atom_status write_all(const export_job *j)
{
    atom_status st = file_gguf_write_rope(j->w, j->c);
    for (uint32_t i = 0; i < j->n && st == ATOM_OK; i++) {
        const file_slice *s = &j->slices[i];
        uint64_t from = j->g->params[s->param].offset + s->first;
        st = file_gguf_turned(j->c, s->name) ? write_turned(j, s, from) : write_plain(j, s, from);
    }
    return st;
}

/* A band is whole rows of every type: a multiple of Q8_0's blocks. */
static atom_status open_buffer(export_job *j)
{
    uint64_t head = (uint64_t)(j->c->head_dim * j->c->width);
    j->room = head > FILE_BAND_ELEMENTS ? head : FILE_BAND_ELEMENTS;
    j->room = (j->room + FILE_GGUF_Q8_BLOCK - 1) / FILE_GGUF_Q8_BLOCK * FILE_GGUF_Q8_BLOCK;
    j->buffer = atom_alloc((size_t)j->room, sizeof *j->buffer);
    return j->buffer ? ATOM_OK : atom_fail_memory("a band of a tensor", j->room * 4);
}

atom_status file_gguf_put_tensors(file_gguf *w, const graph_config *c, const graph *g,
                                  file_gguf_type type, file_vector vector)
{
    export_job j = {.w = w, .c = c, .g = g, .type = type, .vector = vector};
    atom_status st;
    ATOM_TRY_CLEAN(file_slices(g, &j.slices, &j.n));
    ATOM_TRY_CLEAN(open_buffer(&j));
    ATOM_TRY_CLEAN(declare_all(&j));
    ATOM_TRY_CLEAN(file_gguf_begin(w));
    ATOM_TRY_CLEAN(write_all(&j));
cleanup:
    atom_free(j.buffer);
    atom_free(j.slices);
    return st;
}
