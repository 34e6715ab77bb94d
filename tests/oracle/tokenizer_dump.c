/*
 * Speaks for atom in tokenizer_oracle.py:
 *   tokenizer_dump encode TOKENIZER.json DOCS   one line of ids per document
 *   tokenizer_dump ids TOKENIZER.json DOCS      the same, of tokenizers that normalise
 *   tokenizer_dump special TOKENIZER.json DOCS  the same, names of special tokens as those tokens
 *   tokenizer_dump decode TOKENIZER.json DOCS   what the ids decode to, in hexadecimal
 *   tokenizer_dump speed TOKENIZER.json DOCS    MB/s of three passes on one core, to stderr
 *   tokenizer_dump train N DOCS OUT.json        trains on the documents
 *   tokenizer_dump bytes OUT.json               the bytes tokenizer
 *   tokenizer_dump resave IN.json OUT.json
 *   tokenizer_dump repair DOCS                  each document as valid UTF-8, in hexadecimal
 * DOCS holds, per document, a little-endian uint32 length and that many bytes. encode checks on the
 * way that every document decodes to itself.
 */
#include "atom/base/bytes.h"
#include "atom/base/clock.h"
#include "atom/base/files.h"
#include "atom/base/mem.h"
#include "atom/text/bpe_train.h"
#include "atom/text/plain.h"
#include "atom/text/tokenizer.h"
#include "atom/text/utf8.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct documents {
    char *data;
    atom_reader r;
} documents;

static atom_status open_documents(const char *path, documents *d)
{
    uint64_t bytes = 0;
    atom_status st = atom_file_read(path, (uint64_t)1 << 32, &d->data, &bytes);
    d->r = atom_reader_make(d->data, bytes);
    return st;
}

/* The next document, inside d->data; NULL at the end. */
static const char *next_document(documents *d, size_t *bytes)
{
    if (atom_reader_left(&d->r) == 0)
        return NULL;
    *bytes = atom_read_u32(&d->r);
    const char *text = (const char *)d->r.at;
    if (atom_reader_left(&d->r) < *bytes)
        return NULL;
    d->r.at += *bytes;
    return text;
}

static atom_status check_round_trip(const text_tokenizer *t, const char *text, size_t bytes,
                                    const text_ids *ids)
{
    char *back = NULL;
    size_t back_bytes = 0;
    atom_status st = text_decode(t, ids->ids, ids->n, false, &back, &back_bytes);
    if (st == ATOM_OK && (back_bytes != bytes || memcmp(back, text, bytes) != 0))
        st = atom_fail(ATOM_E_RUNTIME, "a document does not decode to itself");
    atom_free(back);
    return st;
}

static void print_ids(const text_ids *ids)
{
    for (size_t i = 0; i < ids->n; i++)
        printf("%s%u", i ? " " : "", ids->ids[i]);
    putchar('\n');
}

static atom_status print_text(const text_tokenizer *t, const text_ids *ids)
{
    char *back = NULL;
    size_t bytes = 0;
    atom_status st = text_decode(t, ids->ids, ids->n, false, &back, &bytes);
    for (size_t i = 0; st == ATOM_OK && i < bytes; i++)
        printf("%02x", (unsigned char)back[i]);
    putchar('\n');
    atom_free(back);
    return st;
}

/* what: 'e' ids and the way back, 'i' ids, 's' ids with special tokens, 'd' decoded text. */
static atom_status encode(char what, const char *tokenizer, const char *path)
{
    atom_status st = ATOM_OK;
    documents d = {0};
    text_tokenizer *t = NULL;
    text_encoder *e = NULL;
    text_ids ids = {0};
    text_specials specials = {0};
    text_named named = {0};
    size_t bytes;
    ATOM_TRY_CLEAN(text_tokenizer_load(tokenizer, &t));
    ATOM_TRY_CLEAN(text_specials_init(&specials, t));
    ATOM_TRY_CLEAN(text_encoder_open(t, &e));
    ATOM_TRY_CLEAN(open_documents(path, &d));
    for (const char *text; (text = next_document(&d, &bytes));) {
        ids.n = 0;
        if (what == 's')
            ATOM_TRY_CLEAN(
                text_plain_encode(&specials, TEXT_SPECIAL_IDS, e, text, bytes, &ids, &named));
        else
            ATOM_TRY_CLEAN(text_encode(e, text, bytes, &ids, NULL));
        if (what == 'e')
            ATOM_TRY_CLEAN(check_round_trip(t, text, bytes, &ids));
        if (what == 'd')
            ATOM_TRY_CLEAN(print_text(t, &ids));
        else
            print_ids(&ids);
    }
cleanup:
    text_encoder_close(&e);
    text_specials_fini(&specials);
    text_tokenizer_close(&t);
    text_ids_fini(&ids);
    atom_free(d.data);
    return st;
}

static atom_status speed(const char *tokenizer, const char *path)
{
    struct stat info;
    if (stat(path, &info) < 0)
        return atom_fail_errno(errno, "cannot read %s", path);
    atom_status st = ATOM_OK;
    documents d = {0};
    text_tokenizer *t = NULL;
    text_encoder *e = NULL;
    text_ids ids = {0};
    size_t bytes;
    ATOM_TRY_CLEAN(text_tokenizer_load(tokenizer, &t));
    for (int pass = 0; pass < 3; pass++) {
        atom_free(d.data);
        ATOM_TRY_CLEAN(open_documents(path, &d));
        double started = atom_clock_seconds();
        ATOM_TRY_CLEAN(text_encoder_open(t, &e)); /* nothing is known from the pass before */
        for (const char *text; (text = next_document(&d, &bytes)); ids.n = 0)
            ATOM_TRY_CLEAN(text_encode(e, text, bytes, &ids, NULL));
        fprintf(stderr, "%.1f MB/s\n",
                (double)info.st_size / 1e6 / (atom_clock_seconds() - started));
        text_encoder_close(&e);
    }
cleanup:
    text_encoder_close(&e);
    text_tokenizer_close(&t);
    text_ids_fini(&ids);
    atom_free(d.data);
    return st;
}

static atom_status train(const char *n, const char *path, const char *out)
{
    atom_status st = ATOM_OK;
    documents d = {0};
    text_words *words = NULL;
    text_tokenizer *t = NULL;
    size_t bytes;
    double started = atom_clock_seconds();
    ATOM_TRY_CLEAN(text_words_open(&words));
    ATOM_TRY_CLEAN(open_documents(path, &d));
    for (const char *text; (text = next_document(&d, &bytes));)
        ATOM_TRY_CLEAN(text_words_add(words, text, bytes, NULL));
    double counted = atom_clock_seconds();
    ATOM_TRY_CLEAN(text_bpe_train(words, (uint32_t)strtoul(n, NULL, 10), NULL, NULL, &t));
    fprintf(stderr, "words counted in %.2f s, trained in %.2f s\n", counted - started,
            atom_clock_seconds() - counted);
    ATOM_TRY_CLEAN(text_tokenizer_save(t, out));
cleanup:
    text_tokenizer_close(&t);
    text_words_close(&words);
    atom_free(d.data);
    return st;
}

static atom_status save(const char *in, const char *out)
{
    text_tokenizer *t = NULL;
    atom_status st = in ? text_tokenizer_load(in, &t) : text_tokenizer_bytes(&t);
    if (st == ATOM_OK)
        st = text_tokenizer_save(t, out);
    text_tokenizer_close(&t);
    return st;
}

static atom_status repair(const char *path)
{
    atom_status st = ATOM_OK;
    documents d = {0};
    size_t bytes;
    ATOM_TRY_CLEAN(open_documents(path, &d));
    for (const char *text; (text = next_document(&d, &bytes));) {
        char *good = NULL;
        size_t good_bytes = 0;
        ATOM_TRY_CLEAN(text_utf8_repair(text, bytes, &good, &good_bytes));
        for (size_t i = 0; i < good_bytes; i++)
            printf("%02x", (unsigned char)good[i]);
        putchar('\n');
        atom_free(good);
    }
cleanup:
    atom_free(d.data);
    return st;
}

int main(int argc, char **argv)
{
    atom_status st = ATOM_E_USAGE;
    const char *verb = argc > 1 ? argv[1] : "";
    if (strcmp(verb, "encode") == 0 && argc == 4)
        st = encode('e', argv[2], argv[3]);
    else if (strcmp(verb, "ids") == 0 && argc == 4)
        st = encode('i', argv[2], argv[3]);
    else if (strcmp(verb, "special") == 0 && argc == 4)
        st = encode('s', argv[2], argv[3]);
    else if (strcmp(verb, "decode") == 0 && argc == 4)
        st = encode('d', argv[2], argv[3]);
    else if (strcmp(verb, "speed") == 0 && argc == 4)
        st = speed(argv[2], argv[3]);
    else if (strcmp(verb, "train") == 0 && argc == 5)
        st = train(argv[2], argv[3], argv[4]);
    else if (strcmp(verb, "bytes") == 0 && argc == 3)
        st = save(NULL, argv[2]);
    else if (strcmp(verb, "resave") == 0 && argc == 4)
        st = save(argv[2], argv[3]);
    else if (strcmp(verb, "repair") == 0 && argc == 3)
        st = repair(argv[2]);
    else
        st = atom_fail(ATOM_E_USAGE, "usage: see the comment at the top of tokenizer_dump.c");
    if (st != ATOM_OK)
        fprintf(stderr, "tokenizer_dump: %s\n", atom_fail_message());
    return atom_status_exit_code(st);
}
