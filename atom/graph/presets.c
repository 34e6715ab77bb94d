/*
 * Owns the named model sizes: OpenAI's four GPT-2 (as on Hugging Face; 350m is "gpt2-medium") and
 * the eight GPT-3 of ATOM's Table II (= Table 2.1 of the GPT-3 paper, XL with 16 heads of 128, for
 * 24 do not divide 2048). One idea: four numbers per size, the rest is common. Refuses unknown
 * names with the nearest known one.
 */
#include "atom/graph/models.h"

#include "atom/base/env.h"

#include <stdio.h>
#include <string.h>

typedef struct preset {
    int64_t layers, width, heads, positions;
} preset;

enum { PRESETS = 12 };

static const char *const names[PRESETS + 1] = {
    "gpt2-124m", "gpt2-350m", "gpt2-774m", "gpt2-1558m", "gpt3-125m", "gpt3-350m", "gpt3-760m",
    "gpt3-1.3b", "gpt3-2.7b", "gpt3-6.7b", "gpt3-13b",   "gpt3-175b", NULL,
};

static const preset sizes[PRESETS] = {
    {12, 768, 12, 1024},  {24, 1024, 16, 1024}, {36, 1280, 20, 1024}, {48, 1600, 25, 1024},
    {12, 768, 12, 2048},  {24, 1024, 16, 2048}, {24, 1536, 16, 2048}, {24, 2048, 16, 2048},
    {32, 2560, 32, 2048}, {32, 4096, 32, 2048}, {40, 5120, 40, 2048}, {96, 12288, 96, 2048},
};

const char *const *graph_preset_names(void)
{
    return names;
}

atom_status graph_preset_get(const char *name, graph_config *config)
{
    for (size_t i = 0; i < PRESETS; i++) {
        if (strcmp(name, names[i]) != 0)
            continue;
        *config = (graph_config){.vocab_size = 50257,
                                 .positions = sizes[i].positions,
                                 .width = sizes[i].width,
                                 .layers = sizes[i].layers,
                                 .heads = sizes[i].heads,
                                 .inner = 4 * sizes[i].width,
                                 .epsilon = 1e-5f,
                                 .init_std = 0.02f};
        snprintf(config->name, sizeof config->name, "%s", names[i]);
        return ATOM_OK;
    }
    const char *near = atom_did_you_mean(name, names, PRESETS);
    return atom_fail(ATOM_E_USAGE, "no model preset is named \"%.63s\"%s%s%s", name,
                     near ? "; did you mean " : "; the smallest is ", near ? near : names[0],
                     near ? "?" : "");
}
