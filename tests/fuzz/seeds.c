/*
 * Writes seeds into a folder. For gossip_signed (and papers, roots): scripts that hold back each kind of
 * message once and deliver it as it is and changed, in pools of all sizes, and longer ones of random
 * operations. For gossip_chain ("chain"): histories of all lengths under all kinds of keys, and what is
 * told after them. They are a function of this file alone.
 */
#include "atom/base/rng.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { KINDS = 12, SCRIPTS = 96, BYTES = 240, HOLD = 10, INVENT = 7, OFFER = 6, TICK = 0 };

/* The head of a script: members, joiners, options; then operations (gossip_signed.c). */
static size_t script(uint32_t i, uint8_t *out)
{
    const atom_rng_key key = {.seed = i, .node = 0x73656564u};
    size_t n = 0, bytes = i % 3 == 0 ? 40 : i % 3 == 1 ? 120 : BYTES;
    out[n++] = (uint8_t)(i % 5);
    out[n++] = (uint8_t)(i / 5 % 2);
    out[n++] = (uint8_t)(i * 37);
    for (uint32_t k = 0; i < 4 * KINDS && k < 1 + i % 4; k++) {
        out[n++] = i % 4 == 3 ? INVENT : HOLD;
        out[n++] = (uint8_t)(i / 4);
        out[n++] = (uint8_t)k; /* changes */
    }
    for (uint64_t k = 0; n < bytes; k++)
        out[n++] = (uint8_t)(k % 8 == 7             ? TICK
                             : i % 2 && k % 13 == 1 ? OFFER
                                                    : atom_rng_u32(key, k));
    return n;
}

/* The options (trust, which keys, any bytes), then a history, then what is told (gossip_chain.c). */
static size_t chain_script(uint32_t i, uint8_t *out)
{
    const atom_rng_key key = {.seed = i, .node = 0x63686e73u};
    size_t n = 0;
    out[n++] = (uint8_t)(i % 16);
    for (uint64_t k = 0; n < (i % 2 ? BYTES : 100); k++)
        out[n++] = (uint8_t)atom_rng_u32(key, k);
    return n;
}

int main(int argc, char **argv)
{
    bool chain = argc == 3 && strcmp(argv[2], "chain") == 0;
    if (argc != 2 && !chain) {
        fprintf(stderr, "usage: fuzz_seeds FOLDER [chain]\n");
        return 2;
    }
    mkdir(argv[1], 0777);
    for (uint32_t i = 0; i < SCRIPTS; i++) {
        uint8_t bytes[BYTES];
        char path[4096];
        size_t n = chain ? chain_script(i, bytes) : script(i, bytes);
        snprintf(path, sizeof path, "%s/%03u", argv[1], i);
        FILE *file = fopen(path, "wb");
        if (!file || fwrite(bytes, 1, n, file) != n || fclose(file) != 0) {
            fprintf(stderr, "fuzz_seeds: %s cannot be written\n", path);
            return 1;
        }
    }
    return 0;
}
