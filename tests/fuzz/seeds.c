/*
 * Writes seeds into a folder. For gossip_signed (and papers, roots): scripts that hold back each kind of
 * message once and deliver it as it is and changed, in pools of all sizes; longer ones of random
 * operations; and lives of many versions in which members withhold, lie and are banned. For gossip_chain
 * ("chain"): histories of all lengths under all kinds of keys, and what is told after them. They are a
 * function of this file alone.
 */
#include "atom/base/rng.h"
#include "tests/fuzz/forge_operations.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { KINDS = 12, SCRIPTS = 96, LIVES = 32, BYTES = 240 };

/* The head of a script: members, joiners, options; then operations (gossip_signed.c). */
static size_t script(uint32_t i, uint8_t *out)
{
    const atom_rng_key key = {.seed = i, .node = 0x73656564u};
    size_t n = 0, bytes = i % 3 == 0 ? 40 : i % 3 == 1 ? 120 : BYTES;
    out[n++] = (uint8_t)(i % 5);
    out[n++] = (uint8_t)(i / 5 % 2);
    out[n++] = (uint8_t)(i * 37);
    for (uint32_t k = 0; i < 4 * KINDS && k < 1 + i % 4; k++) {
        out[n++] = i % 4 == 3 ? FORGE_INVENT : FORGE_HOLD;
        out[n++] = (uint8_t)(i / 4);
        out[n++] = (uint8_t)k; /* changes */
    }
    for (uint64_t k = 0; n < bytes; k++)
        out[n++] = (uint8_t)(k % 8 == 7             ? FORGE_PASS
                             : i % 2 && k % 13 == 1 ? FORGE_OFFER
                                                    : atom_rng_u32(key, k));
    return n;
}

static size_t put(uint8_t *out, size_t n, uint8_t operation, uint8_t first, uint8_t second)
{
    out[n++] = operation;
    out[n++] = first;
    out[n++] = second;
    return n;
}

/* `who` says that a contribution to the version that is `old` versions old is withheld from it. */
static size_t complain(uint8_t *out, size_t n, uint8_t who, uint8_t old, uint8_t missing)
{
    n = put(out, n, FORGE_INVENT, who, 1);
    n = put(out, n, FORGE_SAYS_WITHHELD, old, who);
    n = put(out, n, missing, 0, 1); /* no changes, over its own link */
    out[n++] = 0;
    return n;
}

/* Two votes of one member, or what proves nothing. */
static size_t evidence(uint8_t *out, size_t n, uint8_t who, uint8_t promise)
{
    n = put(out, n, FORGE_INVENT, who, 1);
    n = put(out, n, FORGE_SAYS_EVIDENCE, promise, 0);
    return put(out, n, 1, 0, FORGE_AGAIN) - 1;
}

/* What one member or more do in a life; between them, versions pass. */
static size_t deed(uint32_t i, uint32_t k, uint8_t liars, uint8_t *out, size_t n)
{
    const uint8_t nobody = 0, who = (uint8_t)(1 + i % 3), last = 5;
    switch (k % 9) {
    case 0:
        return put(out, n, FORGE_FAULT, FORGE_WITHHOLDS, liars);
    case 1: /* what was withheld comes after all */
        n = put(out, n, FORGE_FAULT, FORGE_WITHHOLDS, 0xfe);
        n = complain(out, n, who, 0, (uint8_t)(i + k));
        n = put(out, n, FORGE_FAULT, FORGE_WITHHOLDS, nobody);
        return complain(out, n, (uint8_t)(who + 1), 0, (uint8_t)(i + k));
    case 2: /* the one that withholds loses its memory, and somebody asks for what it made before */
        n = put(out, n, FORGE_PASS, 1, FORGE_RESTART);
        out[n++] = last;
        n = put(out, n, FORGE_PASS, 40, FORGE_PASS);
        out[n++] = 1;
        for (uint8_t old = 1; old < 4; old++)
            n = complain(out, n, (uint8_t)(who + old), old, (uint8_t)(last + 1));
        return n;
    case 3:
        return put(out, n, FORGE_FAULT, FORGE_WITHHOLDS, nobody);
    case 4:
        return put(out, n, FORGE_FAULT, FORGE_LIES, liars);
    case 5:
        n = evidence(out, n, who, i & 1);
        return evidence(out, n, who, i & 1);
    case 6:
        return put(out, n, FORGE_FAULT, FORGE_VERDICT, (uint8_t)(i % 3));
    case 7: /* evidence costs its sender, until that is forgiven */
        n = evidence(out, n, who, 1);
        n = put(out, n, FORGE_JUMP, 20, FORGE_PASS);
        out[n++] = 1;
        return evidence(out, n, who, 1);
    default:
        n = put(out, n, FORGE_LINK, 2, who);
        return put(out, n, FORGE_LINK, 2, who);
    }
}

/* A long life: seven members and one that joins, all audited; some withhold, lie, lose their memory
 * and sign twice, one after another, and several versions pass after each. */
static size_t life_script(uint32_t i, uint8_t *out)
{
    const uint8_t liars = (uint8_t)(i % 4 == 3 ? 0x60 : 0x40), trust = (uint8_t)(i & 1 ? 32 : 0);
    size_t n = 0;
    out[n++] = (uint8_t)(i % 8 == 7 ? 1 : 4);
    out[n++] = 1;
    out[n++] = (uint8_t)(1 | trust | (i & 2 ? 16 : 0) | (i & 8 ? 4 : 0));
    out[n++] = FORGE_PASS;
    out[n++] = 40;
    for (uint32_t k = 0; k < 9 && n + 48 < BYTES; k++) {
        n = deed(i, k + i / 2, liars, out, n);
        out[n++] = FORGE_PASS;
        out[n++] = (uint8_t)(20 + 8 * (i % 5));
    }
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
    for (uint32_t i = 0; i < SCRIPTS + (chain ? 0 : LIVES); i++) {
        uint8_t bytes[BYTES];
        char path[4096];
        size_t n = chain          ? chain_script(i, bytes)
                   : i >= SCRIPTS ? life_script(i - SCRIPTS, bytes)
                                  : script(i, bytes);
        snprintf(path, sizeof path, "%s/%03u", argv[1], i);
        FILE *file = fopen(path, "wb");
        if (!file || fwrite(bytes, 1, n, file) != n || fclose(file) != 0) {
            fprintf(stderr, "fuzz_seeds: %s cannot be written\n", path);
            return 1;
        }
    }
    return 0;
}
