/*
 * Runs a fuzz target without a fuzzer: over each file of a seed folder as it is, then over fixed
 * mutations of them, until a count or about two seconds are reached. The same seeds give the same
 * inputs in the same order; a crash prints the number of the input, and `fuzz_<name> DIR NUMBER`
 * runs that one alone. `fuzz_<name> DIR --inputs N` runs N, however long that takes. A missing
 * folder means one empty seed.
 */
#include "atom/base/clock.h"
#include "atom/base/rng.h"

#include <dirent.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { SEEDS_MAX = 256, SEED_BYTES_MAX = 1 << 20, GROWTH_MAX = 4096 };
static const uint64_t INPUTS = 5000;
static const double SECONDS = 2.0;

typedef struct seed_file {
    uint8_t *data;
    size_t bytes;
} seed_file;

typedef struct corpus {
    seed_file seeds[SEEDS_MAX];
    size_t n;
} corpus;

/* What the signal handler prints. */
static volatile sig_atomic_t current_input;

static void on_crash(int signal_number)
{
    char text[64];
    int n = snprintf(text, sizeof text, "fuzz: crashed on input %d\n", (int)current_input);
    if (n > 0 && write(STDERR_FILENO, text, (size_t)n) < 0)
        _exit(1);
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static void corpus_read_file(corpus *c, const char *dir, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *file = name[0] == '.' ? NULL : fopen(path, "rb");
    if (!file)
        return;
    uint8_t *data = malloc(SEED_BYTES_MAX);
    if (!data)
        exit(1);
    c->seeds[c->n++] = (seed_file){data, fread(data, 1, SEED_BYTES_MAX, file)};
    fclose(file);
}

static void corpus_read(corpus *c, const char *dir)
{
    struct dirent **entries = NULL;
    int n = dir ? scandir(dir, &entries, NULL, by_name) : -1;
    for (int i = 0; i < n; i++) {
        if (c->n < SEEDS_MAX)
            corpus_read_file(c, dir, entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
    if (c->n == 0)
        c->seeds[c->n++] = (seed_file){calloc(1, 1), 0};
}

typedef struct draws {
    atom_rng_key key;
    uint64_t at;
} draws;

static size_t draw(draws *d, size_t below)
{
    return below ? atom_rng_u32(d->key, d->at++) % below : 0;
}

/* Opens a gap of `len` at `at`, filled by the caller. Returns the new size. */
static size_t make_room(uint8_t *data, size_t size, size_t at, size_t len)
{
    memmove(data + at + len, data + at, size - at);
    return size + len;
}

/* One change of data[size]; the buffer has room for `len_max` more. Returns the new size. */
static size_t change(draws *d, uint8_t *data, size_t size, size_t len_max, const seed_file *other)
{
    static const uint8_t sharp[] = {0x00, 0xff, 0x7f, 0x80, '0', '9',
                                    '-',  '"',  '{',  '[',  ',', '\n'};
    size_t at = draw(d, size + 1), len = 1 + draw(d, draw(d, 4) ? 8 : len_max - 1);
    switch (draw(d, 8)) {
    case 0: /* one bit */
        if (at < size)
            data[at] ^= (uint8_t)(1u << draw(d, 8));
        return size;
    case 1: /* one byte */
        if (at < size)
            data[at] = (uint8_t)draw(d, 256);
        return size;
    case 2: /* one byte that parsers care about */
        if (at < size)
            data[at] = sharp[draw(d, sizeof sharp)];
        return size;
    case 3: /* cut out */
        len = len < size - at ? len : size - at;
        memmove(data + at, data + at + len, size - at - len);
        return size - len;
    case 4: /* cut short */
        return draw(d, 4) ? size : at;
    case 5: /* repeat a piece */
        len = len < size - at ? len : size - at;
        size = make_room(data, size, at, len);
        memcpy(data + at, data + at + len, len);
        return size;
    case 6: { /* a piece of another seed */
        size_t from = draw(d, other->bytes);
        len = len < other->bytes - from ? len : other->bytes - from;
        size = make_room(data, size, at, len);
        memcpy(data + at, other->data + from, len);
        return size;
    }
    default: /* a number, larger or smaller by a little, as bytes in place */
        if (at + 8 <= size) {
            uint64_t v;
            size_t width = (size_t)1 << draw(d, 4);
            memcpy(&v, data + at, 8);
            v = draw(d, 2) ? v + draw(d, 16) - 8 : (uint64_t)0 - draw(d, 4);
            memcpy(data + at, &v, width);
        }
        return size;
    }
}

/* Runs input i: seed i, or for later numbers a mutation that depends on i alone. */
static void run(const corpus *c, uint64_t i)
{
    draws d = {.key = {.seed = i, .node = 0x66757a7au}};
    const seed_file *seed = i < c->n ? &c->seeds[i] : &c->seeds[draw(&d, c->n)];
    size_t room = seed->bytes + GROWTH_MAX, size = seed->bytes;
    uint8_t *data = malloc(room);
    if (!data)
        exit(1);
    memcpy(data, seed->data, size);
    for (size_t k = i < c->n ? 0 : 1 + draw(&d, 6); k > 0; k--)
        if (size + GROWTH_MAX / 8 <= room)
            size = change(&d, data, size, GROWTH_MAX / 8, &c->seeds[draw(&d, c->n)]);
    /* exactly as long as it says, so that a sanitizer sees one byte too many */
    uint8_t *exact = realloc(data, size ? size : 1);
    if (!exact)
        exit(1);
    current_input = (sig_atomic_t)i;
    LLVMFuzzerTestOneInput(exact, size);
    free(exact);
}

int main(int argc, char **argv)
{
    corpus *c = calloc(1, sizeof *c);
    if (!c)
        return 1;
    signal(SIGSEGV, on_crash);
    signal(SIGABRT, on_crash);
    corpus_read(c, argc > 1 ? argv[1] : NULL);
    uint64_t i = 0;
    if (argc == 3) {
        run(c, strtoull(argv[2], NULL, 10));
    } else {
        bool all = argc > 3 && strcmp(argv[2], "--inputs") == 0;
        uint64_t inputs = all ? strtoull(argv[3], NULL, 10) : INPUTS;
        double stop = atom_clock_seconds() + SECONDS;
        for (; i < c->n || (i < inputs && (all || atom_clock_seconds() < stop)); i++)
            run(c, i);
        printf("%zu seeds, %llu inputs\n", c->n, (unsigned long long)i);
    }
    for (size_t k = 0; k < c->n; k++)
        free(c->seeds[k].data);
    free(c);
    return 0;
}
