/*
 * Owns the named model sizes: OpenAI's four GPT-2 (as on Hugging Face; 350m is "gpt2-medium"), the
 * eight GPT-3 of ATOM's Table II (= Table 2.1 of the GPT-3 paper, XL with 16 heads of 128, for 24
 * do not divide 2048), and the published sizes of Llama's kin that people train at home, as their
 * config.json on Hugging Face says. One idea: a row of numbers per size, the rest is common to its
 * family. Refuses unknown names with the nearest known one.
 */
#include "atom/graph/models.h"

#include "atom/base/nearest.h"

#include <stdio.h>
#include <string.h>

typedef struct preset {
    int64_t layers, width, heads, positions;
} preset;

/* kv_heads, head_dim, inner; the scaling of places, Llama 3's or Gemma 3's linear one: 0 for none. */
typedef struct kin {
    graph_family family;
    int64_t layers, width, heads, kv_heads, head_dim, inner, vocab_size, positions;
    bool untied;
    float theta, scaling;
    int64_t window;
} kin;

enum { PRESETS = 12, KIN = 24 };

static const char *const names[PRESETS + KIN + 1] = {
    "gpt2-124m",    "gpt2-350m",    "gpt2-774m",    "gpt2-1558m",   "gpt3-125m",    "gpt3-350m",
    "gpt3-760m",    "gpt3-1.3b",    "gpt3-2.7b",    "gpt3-6.7b",    "gpt3-13b",     "gpt3-175b",
    "smollm2-135m", "smollm2-360m", "smollm2-1.7b", "llama-2-7b",   "llama-3.2-1b", "llama-3.2-3b",
    "llama-3.1-8b", "mistral-7b",   "qwen2.5-0.5b", "qwen2.5-1.5b", "qwen2.5-3b",   "qwen2.5-7b",
    "qwen3-0.6b",   "qwen3-1.7b",   "qwen3-8b",     "gemma-3-270m", "gemma-3-1b",   "gemma-3-4b",
    "gemma-2-2b",   "gemma-2-9b",   "pythia-70m",   "pythia-160m",  "pythia-410m",  "pythia-1.4b",
    NULL,
};

static const preset sizes[PRESETS] = {
    {12, 768, 12, 1024},  {24, 1024, 16, 1024}, {36, 1280, 20, 1024}, {48, 1600, 25, 1024},
    {12, 768, 12, 2048},  {24, 1024, 16, 2048}, {24, 1536, 16, 2048}, {24, 2048, 16, 2048},
    {32, 2560, 32, 2048}, {32, 4096, 32, 2048}, {40, 5120, 40, 2048}, {96, 12288, 96, 2048},
};

static const kin kins[KIN] = {
    {GRAPH_LLAMA, 30, 576, 9, 3, 64, 1536, 49152, 8192, false, 1e5f, 0, 0},
    {GRAPH_LLAMA, 32, 960, 15, 5, 64, 2560, 49152, 8192, false, 1e5f, 0, 0},
    {GRAPH_LLAMA, 24, 2048, 32, 32, 64, 8192, 49152, 8192, false, 1.3e5f, 0, 0},
    {GRAPH_LLAMA, 32, 4096, 32, 32, 128, 11008, 32000, 4096, true, 1e4f, 0, 0},
    {GRAPH_LLAMA, 16, 2048, 32, 8, 64, 8192, 128256, 131072, false, 5e5f, 32, 0},
    {GRAPH_LLAMA, 28, 3072, 24, 8, 128, 8192, 128256, 131072, false, 5e5f, 32, 0},
    {GRAPH_LLAMA, 32, 4096, 32, 8, 128, 14336, 128256, 131072, true, 5e5f, 8, 0},
    {GRAPH_MISTRAL, 32, 4096, 32, 8, 128, 14336, 32768, 32768, true, 1e6f, 0, 0}, /* v0.3 */
    {GRAPH_QWEN2, 24, 896, 14, 2, 64, 4864, 151936, 32768, false, 1e6f, 0, 0},
    {GRAPH_QWEN2, 28, 1536, 12, 2, 128, 8960, 151936, 32768, false, 1e6f, 0, 0},
    {GRAPH_QWEN2, 36, 2048, 16, 2, 128, 11008, 151936, 32768, false, 1e6f, 0, 0},
    {GRAPH_QWEN2, 28, 3584, 28, 4, 128, 18944, 152064, 32768, true, 1e6f, 0, 0},
    {GRAPH_QWEN3, 28, 1024, 16, 8, 128, 3072, 151936, 40960, false, 1e6f, 0, 0},
    {GRAPH_QWEN3, 28, 2048, 16, 8, 128, 6144, 151936, 40960, false, 1e6f, 0, 0},
    {GRAPH_QWEN3, 36, 4096, 32, 8, 128, 12288, 151936, 40960, true, 1e6f, 0, 0},
    {GRAPH_GEMMA3, 18, 640, 4, 1, 256, 2048, 262144, 32768, false, 1e6f, 0, 512},
    {GRAPH_GEMMA3, 26, 1152, 4, 1, 256, 6912, 262144, 32768, false, 1e6f, 0, 512},
    {GRAPH_GEMMA3, 34, 2560, 8, 4, 256, 10240, 262208, 131072, false, 1e6f, 8, 1024}, /* its text */
    {GRAPH_GEMMA2, 26, 2304, 8, 4, 256, 9216, 256000, 8192, false, 1e4f, 0, 4096},
    {GRAPH_GEMMA2, 42, 3584, 16, 8, 256, 14336, 256000, 8192, false, 1e4f, 0, 4096},
    {GRAPH_NEOX, 6, 512, 8, 8, 64, 2048, 50304, 2048, true, 1e4f, 0, 0},
    {GRAPH_NEOX, 12, 768, 12, 12, 64, 3072, 50304, 2048, true, 1e4f, 0, 0},
    {GRAPH_NEOX, 24, 1024, 16, 16, 64, 4096, 50304, 2048, true, 1e4f, 0, 0},
    {GRAPH_NEOX, 24, 2048, 16, 16, 128, 8192, 50304, 2048, true, 1e4f, 0, 0},
};

const char *const *graph_preset_names(void)
{
    return names;
}

static void fill_gpt2(const preset *p, graph_config *config)
{
    *config = (graph_config){.vocab_size = 50257,
                             .positions = p->positions,
                             .width = p->width,
                             .layers = p->layers,
                             .heads = p->heads,
                             .inner = 4 * p->width,
                             .epsilon = 1e-5f,
                             .init_std = 0.02f};
}

static void fill_kin(const kin *k, graph_config *config)
{
    graph_family_defaults(k->family, config);
    config->layers = k->layers;
    config->width = k->width;
    config->heads = k->heads;
    config->kv_heads = k->kv_heads;
    config->head_dim = k->head_dim;
    config->inner = k->inner;
    config->vocab_size = k->vocab_size;
    config->positions = k->positions;
    config->window = k->window;
    config->untied = k->untied;
    bool gemma = graph_family_traits(k->family)->windows == GRAPH_WINDOW_MOST,
         qwen = k->family == GRAPH_QWEN2 || k->family == GRAPH_QWEN3;
    config->epsilon = gemma || qwen ? 1e-6f : 1e-5f;
    config->init_std = 0.02f;
    config->rope = (atom_rope){.theta = k->theta, .factor = 1};
    if (graph_family_traits(k->family)->neox)
        config->rope.width = (int32_t)(k->head_dim / 4); /* rotary_pct 0.25 */
    if (gemma && k->scaling > 0)
        config->rope.factor = k->scaling;
    else if (k->scaling > 0)
        config->rope = (atom_rope){
            .theta = k->theta, .factor = k->scaling, .low = 1, .high = 4, .original = 8192};
}

atom_status graph_preset_get(const char *name, graph_config *config)
{
    for (size_t i = 0; names[i]; i++) {
        if (strcmp(name, names[i]) != 0)
            continue;
        if (i < PRESETS)
            fill_gpt2(&sizes[i], config);
        else
            fill_kin(&kins[i - PRESETS], config);
        snprintf(config->name, sizeof config->name, "%s", names[i]);
        return ATOM_OK;
    }
    const char *near = atom_did_you_mean(name, names, PRESETS + KIN);
    return atom_fail(ATOM_E_USAGE, "there is no model preset \"%.63s\"%s%s%s", name,
                     near ? "; did you mean " : "; the smallest is ", near ? near : names[0],
                     near ? "?" : "");
}
