/*
 * Owns the way back from GGUF: a model's numbers and weights out of llama.cpp's keys and names. One
 * idea: the tensors that a graph wants are those of a Hugging Face file (hfnames.c) under the names
 * of ggufmodel.c; what is in the file besides is refused. Refuses architectures that atom has not.
 */
#include "atom/file/ggufmodel.h"

#include "atom/base/json.h"
#include "atom/base/mem.h"
#include "atom/file/ggufrope.h"
#include "atom/file/hfdir.h"
#include "atom/file/hfweights.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { KEY_MAX = 96 };

/* --- numbers --------------------------------------------------------------------------------- */

typedef struct taking {
    const file_gguf_in *f;
    graph_config *c;
    const char *arch;
} taking;

static const char *key(const taking *t, const char *rest, char text[KEY_MAX])
{
    snprintf(text, KEY_MAX, "%s.%s", t->arch, rest);
    return text;
}

static int64_t number(const taking *t, const char *rest, int64_t fallback)
{
    char text[KEY_MAX];
    return file_gguf_int(t->f, key(t, rest, text), fallback);
}

static float real(const taking *t, const char *rest, double fallback)
{
    char text[KEY_MAX];
    return (float)file_gguf_real(t->f, key(t, rest, text), fallback);
}

static bool has(const taking *t, const char *tensor)
{
    return file_gguf_find_tensor(t->f, tensor) != NULL;
}

/* The first family of that architecture, or the first that knows windows; GRAPH_FAMILY_N: none. */
static graph_family find_family(const char *arch, bool windows)
{
    for (graph_family f = 0; f < GRAPH_FAMILY_N; f++) {
        const graph_traits *traits = graph_family_traits(f);
        if (traits->gguf && strcmp(traits->gguf, arch) == 0 &&
            !(windows && traits->windows == GRAPH_WINDOW_NEVER))
            return f;
    }
    return GRAPH_FAMILY_N;
}

static atom_status take_family(taking *t, const char *arch)
{
    char known[GRAPH_FAMILY_LIST_MAX];
    graph_family family = arch ? find_family(arch, false) : GRAPH_FAMILY_N;
    graph_family_list(true, known);
    if (family == GRAPH_FAMILY_N)
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "%s: general.architecture: '%.64s' is not supported; %s are", t->f->path,
                         arch ? arch : "(missing)", known);
    graph_family_defaults(family, t->c);
    t->arch = graph_family_traits(family)->gguf;
    return ATOM_OK;
}

/* Does the architecture have layers of two kinds? Then a list may say which is which (take_pattern). */
static bool may_list(const taking *t, const file_gguf_value *v)
{
    char text[KEY_MAX];
    graph_family family = find_family(t->arch, true);
    return family != GRAPH_FAMILY_N && graph_family_traits(family)->windows == GRAPH_WINDOW_MOST &&
           strcmp(v->key, key(t, "attention.sliding_window_pattern", text)) == 0;
}

/* Where layers differ, a key holds a list, of which no number would be right for all of them. */
static atom_status check_lists(const taking *t)
{
    char own[KEY_MAX];
    size_t n = strlen(key(t, "", own));
    for (uint32_t i = 0; i < t->f->n_values; i++) {
        const file_gguf_value *v = &t->f->values[i];
        if (may_list(t, v))
            continue;
        if (v->type == FILE_GGUF_VALUE_ARRAY && strncmp(v->key, own, n) == 0)
            return atom_fail(ATOM_E_UNSUPPORTED,
                             "%s: %.64s is a list with a value for each layer; only one value "
                             "for all layers is supported",
                             t->f->path, v->key);
    }
    return ATOM_OK;
}

/* The values that say nothing new of a key: is it one of them? */
static bool is_neutral(float value, double neutral)
{
    return value == 0 || fabs((double)value / neutral - 1) < 1e-4;
}

/* Keys that change the mathematics, and that this architecture has not got here: what is not read is not
 * passed over. */
static atom_status check_numbers(const taking *t)
{
    const graph_traits *traits = graph_family_traits(t->c->family);
    const struct {
        const char *key;
        double neutral;
        bool ours;
    } keys[] = {{"attention.scale", 1 / sqrt((double)t->c->head_dim), traits->multipliers},
                {"logit_scale", 1, traits->multipliers},
                {"residual_scale", 1, traits->multipliers},
                {"embedding_scale", 1, traits->multipliers},
                {"attn_logit_softcapping", INFINITY, traits->score_caps},
                {"final_logit_softcapping", INFINITY, traits->caps},
                {"attention.clamp_kqv", INFINITY, false},
                {"attention.max_alibi_bias", INFINITY, false}};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        float value = real(t, keys[i].key, 0);
        if (!keys[i].ours && !is_neutral(value, keys[i].neutral))
            return atom_fail(ATOM_E_UNSUPPORTED,
                             "%s: %s.%s is %g, but atom knows no such thing in models of this "
                             "architecture",
                             t->f->path, t->arch, keys[i].key, (double)value);
    }
    return ATOM_OK;
}

/* The same of switches. llama.cpp turns nothing in a Granite whose file says that its rope was not finetuned; of
 * other models that says only how they were made. */
static atom_status check_flags(const taking *t)
{
    const graph_traits *traits = graph_family_traits(t->c->family);
    const struct {
        const char *key;
        bool usual, ours;
    } keys[] = {{"attention.causal", true, false},
                {"rope.scaling.finetuned", true, !traits->multipliers},
                {"use_parallel_residual", false, traits->neox}};
    char text[KEY_MAX];
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const file_gguf_value *v = file_gguf_find(t->f, key(t, keys[i].key, text));
        if (!keys[i].ours && v && v->type == FILE_GGUF_VALUE_BOOL && (*v->at != 0) != keys[i].usual)
            return atom_fail(ATOM_E_UNSUPPORTED,
                             "%s: %s is %s, but atom knows no such thing in models of this "
                             "architecture",
                             t->f->path, text, keys[i].usual ? "false" : "true");
    }
    return ATOM_OK;
}

static atom_status fail_window(const taking *t)
{
    return atom_fail(ATOM_E_UNSUPPORTED,
                     "%s: attention.sliding_window: atom knows no sliding window for models of "
                     "architecture %s",
                     t->f->path, t->arch);
}

/* A window where the architecture has none, and layers without one where all have the same. */
static atom_status check_window(const taking *t)
{
    char text[KEY_MAX];
    const graph_config *c = t->c;
    if (c->window == 0 && number(t, "attention.sliding_window", 0) > 0)
        return fail_window(t);
    if (c->window == 0 || graph_family_traits(c->family)->windows == GRAPH_WINDOW_MOST)
        return ATOM_OK;
    const char *pattern = key(t, "attention.sliding_window_pattern", text);
    return !file_gguf_find(t->f, pattern) || file_gguf_int(t->f, pattern, 1) == 0
               ? ATOM_OK
               : atom_fail(ATOM_E_UNSUPPORTED,
                           "%s: %s: for models of architecture %s only one sliding window for all "
                           "layers is supported",
                           t->f->path, text, t->arch);
}

/* A LoRA or a vision tower is no model. */
static atom_status check_type(const taking *t)
{
    char *type = file_gguf_text(t->f, "general.type");
    atom_status st = ATOM_OK;
    if (type && strcmp(type, "model") != 0)
        st = atom_fail(ATOM_E_UNSUPPORTED,
                       "%s: general.type: this file is not a model, but '%.40s'", t->f->path, type);
    atom_free(type);
    return st;
}

/* Every file that llama.cpp reads has it. */
static atom_status take_epsilon(taking *t, const char *name)
{
    t->c->epsilon = real(t, name, -1);
    if (t->c->epsilon >= 0)
        return ATOM_OK;
    return atom_fail(ATOM_E_FORMAT, "%s: %s.%s is missing or not a number of at least 0",
                     t->f->path, t->arch, name);
}

static void take_multipliers(taking *t)
{
    graph_config *c = t->c;
    c->embedding_scale = real(t, "embedding_scale", 1);
    c->residual_scale = real(t, "residual_scale", 1);
    c->attention_scale = real(t, "attention.scale", 1 / sqrt((double)c->head_dim));
    c->logits_divisor = real(t, "logit_scale", 1);
}

/* Item i of a list of truths or whole numbers: is it something other than 0? */
static bool item_is_set(const file_gguf_value *list, uint64_t i)
{
    uint64_t bytes = list->bytes / list->n, any = 0;
    for (uint64_t b = 0; b < bytes; b++)
        any |= list->at[i * bytes + b];
    return any != 0;
}

/* llama.cpp knows by heart which layers have a window: a number, or a list with a truth for each layer, may only
 * say the same. */
static atom_status take_pattern(taking *t)
{
    char text[KEY_MAX];
    graph_config *c = t->c;
    const char *name = key(t, "attention.sliding_window_pattern", text);
    const file_gguf_value *v = file_gguf_find(t->f, name);
    bool list = v && v->type == FILE_GGUF_VALUE_ARRAY;
    c->full_every = graph_family_traits(c->family)->defaults.full_every;
    bool truths = list && v->item != FILE_GGUF_VALUE_TEXT && v->item != FILE_GGUF_VALUE_ARRAY &&
                  v->item != FILE_GGUF_VALUE_F32 && v->item != FILE_GGUF_VALUE_F64;
    bool same = list ? truths && v->n == (uint64_t)c->layers
                     : !v || file_gguf_int(t->f, name, 0) == c->full_every;
    for (int64_t i = 0; list && same && i < c->layers; i++)
        same = item_is_set(v, (uint64_t)i) == !graph_layer_is_full(c, i);
    return same ? ATOM_OK
                : atom_fail(
                      ATOM_E_UNSUPPORTED,
                      "%s: attention.sliding_window_pattern: for models of architecture %s only "
                      "every %lldth layer without a window is supported",
                      t->f->path, t->arch, (long long)c->full_every);
}

static void take_gemma(taking *t)
{
    graph_config *c = t->c;
    if (c->local_theta > 0)
        c->local_theta = real(t, "rope.freq_base_swa", (double)c->local_theta);
    c->attn_cap = real(t, "attn_logit_softcapping", (double)c->attn_cap);
    c->final_cap = real(t, "final_logit_softcapping", (double)c->final_cap);
    c->query_scalar = file_gguf_query_scalar(c);
}

static atom_status take_rope(taking *t)
{
    graph_config *c = t->c;
    ATOM_TRY(file_gguf_take_rope(t->f, t->arch, c));
    if (graph_family_traits(c->family)->local_rope != GRAPH_LOCAL_ROPE_SAME)
        return ATOM_OK;
    c->local_theta = c->rope.theta;
    return real(t, "rope.freq_base_swa", (double)c->rope.theta) == c->rope.theta
               ? ATOM_OK
               : atom_fail(ATOM_E_UNSUPPORTED,
                           "%s: rope.freq_base_swa: in models of architecture %s only one base for "
                           "all layers is supported",
                           t->f->path, t->arch);
}

/* What only GPT-NeoX has. */
static atom_status take_neox(taking *t)
{
    char text[KEY_MAX];
    const file_gguf_value *v = file_gguf_find(t->f, key(t, "use_parallel_residual", text));
    if (!v || v->type != FILE_GGUF_VALUE_BOOL)
        return atom_fail(ATOM_E_FORMAT, "%s: %s is missing or not a truth value", t->f->path, text);
    t->c->parallel = *v->at != 0;
    t->c->mlp_bias = true;
    t->c->qkv_bias = has(t, "blk.0.attn_qkv.bias");
    char *act = file_gguf_text(t->f, key(t, FILE_GGUF_ACTIVATION, text));
    bool tanh_gelu = act && strcmp(act, "gelu_pytorch_tanh") == 0;
    atom_status st = !act || tanh_gelu || strcmp(act, "gelu") == 0
                         ? ATOM_OK
                         : atom_fail(ATOM_E_UNSUPPORTED,
                                     "%s: %s: '%.40s' is not supported; gelu and "
                                     "gelu_pytorch_tanh are",
                                     t->f->path, text, act);
    t->c->tanh_gelu = act ? tanh_gelu : file_gguf_tanh_gelu(t->c);
    atom_free(act);
    return st;
}

static atom_status take_llama(taking *t)
{
    graph_config *c = t->c;
    bool neox = graph_family_traits(c->family)->neox;
    ATOM_TRY(take_epsilon(t, neox ? "attention.layer_norm_epsilon"
                                  : "attention.layer_norm_rms_epsilon"));
    c->kv_heads = number(t, "attention.head_count_kv", c->heads);
    c->head_dim = number(t, "attention.key_length", c->heads > 0 ? c->width / c->heads : 0);
    if (number(t, "attention.value_length", c->head_dim) != c->head_dim)
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "%s: keys and values of different lengths are not supported", t->f->path);
    if (number(t, "expert_count", 0) > 0)
        return atom_fail(ATOM_E_UNSUPPORTED, "%s: experts are not supported", t->f->path);
    c->window = number(t, "attention.sliding_window", 0);
    if (c->window)
        c->family = find_family(t->arch, true);
    if (c->family == GRAPH_FAMILY_N)
        return fail_window(t);
    if (graph_family_traits(c->family)->multipliers)
        take_multipliers(t);
    if (graph_family_traits(c->family)->windows == GRAPH_WINDOW_MOST)
        ATOM_TRY(take_pattern(t));
    if (graph_family_traits(c->family)->query_scalar && c->heads > 0)
        take_gemma(t);
    c->untied = has(t, "output.weight");
    c->qkv_bias = has(t, "blk.0.attn_q.bias");
    c->o_bias = has(t, "blk.0.attn_output.bias");
    c->mlp_bias = has(t, "blk.0.ffn_gate.bias");
    c->attn_pdrop = 0;
    if (neox)
        ATOM_TRY(take_neox(t));
    return take_rope(t);
}

/* GPT-2's files may have the tied head a second time. */
static atom_status take_gpt2(taking *t)
{
    const file_gguf_in_tensor *a = file_gguf_find_tensor(t->f, "token_embd.weight");
    const file_gguf_in_tensor *b = file_gguf_find_tensor(t->f, "output.weight");
    float *x = NULL, *y = NULL;
    bool same = !b || (a->rank == b->rank && a->elements == b->elements);
    atom_status st = ATOM_OK;
    if (b && same) {
        x = atom_alloc(FILE_BAND_ELEMENTS, sizeof *x);
        y = atom_alloc(FILE_BAND_ELEMENTS, sizeof *y);
        if (!x || !y)
            ATOM_TRY_CLEAN(atom_fail_memory("comparing weights", 2 * FILE_BAND_ELEMENTS * 4));
    }
    for (uint64_t at = 0, some; b && same && at < a->elements; at += some) {
        some = a->elements - at < FILE_BAND_ELEMENTS ? a->elements - at : FILE_BAND_ELEMENTS;
        ATOM_TRY_CLEAN(file_gguf_read_f32(t->f, a, at, some, x));
        ATOM_TRY_CLEAN(file_gguf_read_f32(t->f, b, at, some, y));
        same = memcmp(x, y, some * sizeof *x) == 0;
    }
    t->c->untied = !same;
cleanup:
    atom_free(x);
    atom_free(y);
    return st;
}

static atom_status take_numbers(taking *t)
{
    graph_config *c = t->c;
    const file_gguf_in_tensor *embedding = file_gguf_find_tensor(t->f, "token_embd.weight");
    atom_status st = ATOM_OK;
    if (!embedding || embedding->rank != 2)
        return atom_fail(ATOM_E_FORMAT, "%s: tensor token_embd.weight is missing or not a matrix",
                         t->f->path);
    c->vocab_size = embedding->dims[0] < INT32_MAX ? (int64_t)embedding->dims[0] : -1;
    c->positions = number(t, "context_length", 0);
    c->width = number(t, "embedding_length", 0);
    c->layers = number(t, "block_count", 0);
    c->heads = number(t, "attention.head_count", 0);
    c->inner = number(t, "feed_forward_length", 0);
    c->init_std = 0.02f;
    ATOM_TRY(check_type(t));
    if (c->family == GRAPH_GPT2)
        ATOM_TRY(take_epsilon(t, "attention.layer_norm_epsilon"));
    if (c->family == GRAPH_GPT2)
        ATOM_TRY(take_gpt2(t));
    else
        ATOM_TRY(take_llama(t));
    ATOM_TRY(check_numbers(t));
    ATOM_TRY(check_flags(t));
    ATOM_TRY(check_window(t));
    st = graph_model_check(c);
    if (st != ATOM_OK)
        st = atom_fail_in(st, "%s: ", t->f->path);
    return st;
}

/* The last word of general.name where it is a plain one, else the architecture. */
static void take_name(const taking *t)
{
    char *name = file_gguf_text(t->f, "general.name");
    size_t n = name ? strlen(name) : 0;
    bool plain =
        n && n < GRAPH_NAME_MAX && name[0] != '.' &&
        strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == n;
    snprintf(t->c->name, GRAPH_NAME_MAX, "%s", plain ? name : t->arch);
    atom_free(name);
}

atom_status file_gguf_take_model(const file_gguf_in *f, graph_config *config)
{
    graph_config c = {0};
    taking t = {.f = f, .c = &c};
    ATOM_TRY(file_gguf_check_kinds(f));
    char *arch = file_gguf_text(f, "general.architecture");
    atom_status st = take_family(&t, arch);
    atom_free(arch);
    ATOM_TRY(st);
    take_name(&t);
    st = check_lists(&t);
    if (st == ATOM_OK)
        st = take_numbers(&t);
    if (st == ATOM_OK)
        *config = c;
    return st;
}

/* --- weights --------------------------------------------------------------------------------- */

typedef struct loading {
    const file_gguf_in *f;
    const graph *g;
    file_vector vector;
    float *buffer, *rows; /* a band, or the rows of a head; the same in order */
    uint64_t room;
    const graph_config *c;
} loading;

static atom_status check_tensor(const loading *l, const file_slice *s, const file_gguf_in_tensor *t,
                                const char *name)
{
    uint64_t out = s->dims[s->transposed], in = s->rank == 2 ? s->dims[!s->transposed] : 0;
    if (!t)
        return atom_fail(ATOM_E_FORMAT, "%s: tensor '%s' is missing", l->f->path, name);
    if (t->rank != s->rank || t->dims[0] != out || (s->rank == 2 && t->dims[1] != in))
        return atom_fail(ATOM_E_FORMAT,
                         "%s: tensor '%s' has %llu x %llu numbers, but the keys of the file say "
                         "%llu x %llu",
                         l->f->path, name, (unsigned long long)t->dims[0],
                         (unsigned long long)t->dims[1], (unsigned long long)out,
                         (unsigned long long)in);
    return ATOM_OK;
}

/* Rows of a head in llama.cpp's order: 2 i + k there is k D/2 + i here. */
static atom_status take_turned(const loading *l, const file_slice *s, const file_gguf_in_tensor *t,
                               uint64_t to)
{
    uint64_t D = (uint64_t)l->c->head_dim, width = s->rank == 2 ? t->dims[1] : 1;
    bool warned = false;
    if (t->type == FILE_GGUF_Q8_0 && D * width % FILE_GGUF_Q8_BLOCK)
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "%s: tensor '%s' has blocks across heads, which atom does not read",
                         l->f->path, t->name);
    for (uint64_t at = 0; at < s->elements; at += D * width) {
        ATOM_TRY(file_gguf_read_f32(l->f, t, at, D * width, l->buffer));
        file_vector_look(l->vector, l->f->path, t->name, l->buffer, D * width, &warned);
        for (uint64_t r = 0; r < D; r++)
            memcpy(l->rows + (r % 2 * (D / 2) + r / 2) * width, l->buffer + r * width,
                   width * sizeof *l->rows);
        ATOM_TRY(l->vector.put(l->vector.ctx, to + at, D * width, l->rows));
    }
    return ATOM_OK;
}

static atom_status take_plain(const loading *l, const file_slice *s, const file_gguf_in_tensor *t,
                              uint64_t to)
{
    float lift = file_gguf_lift(l->c, s);
    bool warned = false;
    for (uint64_t at = 0, some; at < s->elements; at += some) {
        some = s->elements - at < l->room ? s->elements - at : l->room;
        ATOM_TRY(file_gguf_read_f32(l->f, t, at, some, l->buffer));
        file_vector_look(l->vector, l->f->path, t->name, l->buffer, some, &warned);
        for (uint64_t i = 0; i < some && lift > 0; i++)
            l->buffer[i] -= lift;
        ATOM_TRY(l->vector.put(l->vector.ctx, to + at, some, l->buffer));
    }
    return ATOM_OK;
}

static atom_status take_slice(const loading *l, const file_slice *s)
{
    char name[FILE_NAME_MAX + 16];
    uint64_t to = l->g->params[s->param].offset + s->first;
    bool copy = l->g->tied_files && file_is_head(l->g, s->name);
    ATOM_TRY(file_gguf_name(l->c, copy ? l->g->params[0].name : s->name, name, sizeof name));
    const file_gguf_in_tensor *t = file_gguf_find_tensor(l->f, name);
    ATOM_TRY(check_tensor(l, s, t, name));
    return file_gguf_turned(l->c, s->name) ? take_turned(l, s, t, to) : take_plain(l, s, t, to);
}

/* Every tensor was asked for, but for those that have another place. */
static atom_status check_rest(const loading *l, const graph_config *c, uint32_t n)
{
    uint32_t ropes = 0;
    for (uint32_t i = 0; i < l->f->n_tensors; i++)
        ropes += file_gguf_is_rope(l->f->tensors[i].name);
    bool head = !c->untied && file_gguf_find_tensor(l->f, "output.weight"); /* a second copy */
    if (l->f->n_tensors != n + ropes + (head ? 1 : 0))
        return atom_fail(ATOM_E_FORMAT, "%s has %u tensors, but such a model has %u", l->f->path,
                         l->f->n_tensors, n);
    return ATOM_OK;
}

atom_status file_gguf_take_tensors(const file_gguf_in *f, const graph_config *c, const graph *g,
                                   file_vector vector)
{
    loading l = {.f = f, .g = g, .vector = vector, .c = c};
    file_slice *slices = NULL;
    uint32_t n = 0;
    uint64_t head = (uint64_t)(c->head_dim * c->width);
    atom_status st;
    ATOM_TRY_CLEAN(file_slices(g, &slices, &n));
    l.room = head > FILE_BAND_ELEMENTS ? head : FILE_BAND_ELEMENTS;
    l.room = (l.room + FILE_GGUF_Q8_BLOCK - 1) / FILE_GGUF_Q8_BLOCK * FILE_GGUF_Q8_BLOCK;
    l.buffer = atom_alloc((size_t)l.room, sizeof *l.buffer);
    l.rows = atom_alloc((size_t)l.room, sizeof *l.rows);
    if (!l.buffer || !l.rows)
        ATOM_TRY_CLEAN(atom_fail_memory("reading weights", 2 * l.room * sizeof *l.buffer));
    for (uint32_t i = 0; i < n; i++)
        ATOM_TRY_CLEAN(take_slice(&l, &slices[i]));
    ATOM_TRY_CLEAN(check_rest(&l, c, n - (g->tied_files ? 1 : 0)));
cleanup:
    atom_free(slices);
    atom_free(l.buffer);
    atom_free(l.rows);
    return st;
}

/* Which tokens begin and end a text, as a config.json says it, so that it is not lost on the way to one. */
static atom_status make_source(const file_gguf_in *f, const graph_config *config, char **source)
{
    char *text = NULL;
    json_t *root = NULL;
    atom_status st;
    ATOM_TRY_CLEAN(file_config_text(config, NULL, NULL, &text));
    ATOM_TRY_CLEAN(atom_json_parse(f->path, text, strlen(text), 0, &root));
    ATOM_TRY_CLEAN(file_gguf_set_ends(f, config->vocab_size, root));
    st = atom_json_text(json_incref(root), JSON_INDENT(2), "", source);
cleanup:
    json_decref(root);
    atom_free(text);
    return st;
}

atom_status file_gguf_read_model(const char *path, graph_config *config, char **source)
{
    file_gguf_in *f = NULL;
    atom_status st = file_gguf_open(path, &f);
    if (st == ATOM_OK)
        st = file_gguf_take_model(f, config);
    if (st == ATOM_OK && source)
        st = make_source(f, config, source);
    file_gguf_in_close(&f);
    return st;
}

atom_status file_gguf_read_weights(const char *path, const graph *g, file_vector vector)
{
    file_gguf_in *f = NULL;
    graph_config config;
    atom_status st = file_gguf_open(path, &f);
    if (st == ATOM_OK)
        st = file_gguf_take_model(f, &config);
    if (st == ATOM_OK)
        st = file_gguf_through(f, vector.source);
    if (st == ATOM_OK)
        st = file_gguf_take_tensors(f, &config, g, vector);
    file_gguf_in_close(&f);
    return st;
}
