/*
 * Owns the packing of documents into sequences. One idea: a few sequences are open at a time, and a
 * document goes to the fullest that has room for it (best fit); where none has, the fullest is padded and
 * written. So memory is small, and the result depends on the documents alone. Refuses nothing: what is
 * longer than a sequence is cut, and counted.
 */
#include "atom/text/packer.h"

#include "atom/base/mem.h"
#include "atom/text/shard.h"

#include <string.h>

enum { OPEN_MAX = 64 };
enum { COUNTS = 1, BEGINS = 2 }; /* of a token */

/* Tokens that will be one sequence. */
typedef struct sequence {
    uint32_t *ids;  /* [length] */
    uint8_t *flags; /* [length] */
    uint32_t n;
    bool text; /* the last document is one */
} sequence;

struct text_packer {
    text_shard_writer *w;
    uint32_t length, start;
    bool start_ends;
    sequence document; /* the one under way; of one that is cut what is not yet written */
    bool cut;
    sequence open[OPEN_MAX];
    uint32_t n;
    bool padded; /* the last token written is padding */
    bool text;   /* or belongs to a text */
    text_packed counts;
};

static atom_status make(sequence *s, uint32_t length)
{
    s->ids = atom_alloc(length, sizeof *s->ids);
    s->flags = atom_alloc(length, 1);
    return s->ids && s->flags ? ATOM_OK
                              : atom_fail_memory("a sequence", length * (sizeof *s->ids + 1));
}

static void unmake(sequence *s)
{
    atom_free(s->ids);
    atom_free(s->flags);
}

atom_status text_packer_open(const text_packer_config *config, text_packer **out)
{
    text_packer *p = atom_alloc(1, sizeof *p);
    atom_status st = ATOM_OK;
    if (!p)
        return atom_fail_memory("a packer", sizeof *p);
    p->length = config->length;
    p->start = config->start;
    p->start_ends = config->start_ends;
    ATOM_TRY_CLEAN(text_shard_writer_open(config->dir, config->split, config->vocab, 0, &p->w));
    if (p->length)
        ATOM_TRY_CLEAN(make(&p->document, p->length));
    *out = p;
    return ATOM_OK;
cleanup:
    text_packer_close(&p);
    return st;
}

void text_packer_close(text_packer **packer)
{
    text_packer *p = *packer;
    if (!p)
        return;
    text_shard_writer_close(&p->w);
    unmake(&p->document);
    for (uint32_t i = 0; i < OPEN_MAX; i++)
        unmake(&p->open[i]);
    atom_free(p);
    *packer = NULL;
}

static atom_status put_one(text_packer *p, uint32_t id, uint8_t flags)
{
    uint8_t mark = flags & COUNTS;
    if (flags & BEGINS)
        text_shard_writer_begin(p->w, p->start);
    p->counts.targets += mark;
    return text_shard_writer_put_marked(p->w, &id, &mark, 1);
}

/* What follows padding is nobody's target. */
static atom_status write_tokens(text_packer *p, const sequence *s)
{
    for (uint32_t i = 0; i < s->n; i++) {
        uint8_t flags = s->flags[i];
        ATOM_TRY(put_one(p, s->ids[i], p->padded ? flags & BEGINS : flags));
        p->padded = false;
        p->text = s->text;
    }
    return ATOM_OK;
}

/* n tokens, of which the first may say that a text has ended. */
static atom_status write_padding(text_packer *p, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        bool ends = p->text && p->start_ends && !p->padded;
        ATOM_TRY(put_one(p, p->start, (uint8_t)((ends ? COUNTS : 0) | (i == 0 ? BEGINS : 0))));
        p->padded = true;
    }
    p->counts.padding += n;
    return ATOM_OK;
}

static atom_status write_sequence(text_packer *p, sequence *s)
{
    ATOM_TRY(write_tokens(p, s));
    ATOM_TRY(write_padding(p, p->length - s->n));
    s->n = 0;
    return ATOM_OK;
}

/* The fullest of those open with at most `most` tokens, the first of equals; NULL: there is none. */
static sequence *fullest(text_packer *p, uint32_t most)
{
    sequence *best = NULL;
    for (uint32_t i = 0; i < p->n; i++) {
        sequence *s = &p->open[i];
        if (s->n && s->n <= most && (!best || s->n > best->n))
            best = s;
    }
    return best;
}

static void append(sequence *to, const sequence *s)
{
    memcpy(to->ids + to->n, s->ids, s->n * sizeof *s->ids);
    memcpy(to->flags + to->n, s->flags, s->n);
    to->n += s->n;
    to->text = s->text;
}

/* The last part of a document that was cut comes at once, behind the others. */
static atom_status place_rest(text_packer *p)
{
    sequence *s;
    while ((s = fullest(p, p->length - p->document.n))) {
        append(&p->document, s);
        s->n = 0;
    }
    return write_sequence(p, &p->document);
}

/* An empty one of those open, which there is as long as there may be more of them. */
static atom_status take_empty(text_packer *p, sequence **out)
{
    for (uint32_t i = 0; i < p->n; i++) {
        if (p->open[i].n == 0) {
            *out = &p->open[i];
            return ATOM_OK;
        }
    }
    if (p->n == OPEN_MAX) {
        *out = fullest(p, p->length);
        return write_sequence(p, *out);
    }
    ATOM_TRY(make(&p->open[p->n], p->length));
    *out = &p->open[p->n++];
    return ATOM_OK;
}

/* The document under way is complete. */
static atom_status place(text_packer *p)
{
    sequence *to;
    if (p->document.n == 0)
        return ATOM_OK;
    if (p->cut)
        return place_rest(p);
    if (p->document.n == p->length)
        return write_sequence(p, &p->document);
    to = fullest(p, p->length - p->document.n);
    if (!to)
        ATOM_TRY(take_empty(p, &to));
    append(to, &p->document);
    p->document.n = 0;
    return to->n == p->length ? write_sequence(p, to) : ATOM_OK;
}

atom_status text_packer_begin(text_packer *p, bool chat)
{
    if (!p->length) {
        text_shard_writer_begin(p->w, p->start);
        return ATOM_OK;
    }
    ATOM_TRY(place(p));
    p->cut = false;
    p->document.text = !chat;
    return ATOM_OK;
}

atom_status text_packer_put(text_packer *p, const uint32_t *ids, const uint8_t *marks, size_t n)
{
    sequence *d = &p->document;
    for (size_t i = 0; !p->length && i < n; i++)
        p->counts.targets += !marks || marks[i];
    if (!p->length)
        return text_shard_writer_put_marked(p->w, ids, marks, n);
    for (size_t i = 0; i < n; i++) {
        if (d->n == p->length) {
            p->counts.cut += !p->cut;
            ATOM_TRY(write_sequence(p, d));
            p->cut = true;
        }
        bool begins = d->n == 0 && !p->cut;
        d->ids[d->n] = ids[i];
        d->flags[d->n++] = (uint8_t)((!marks || marks[i] ? COUNTS : 0) | (begins ? BEGINS : 0));
    }
    return ATOM_OK;
}

atom_status text_packer_end(text_packer *p)
{
    sequence *s;
    ATOM_TRY(place(p));
    while ((s = fullest(p, p->length)))
        ATOM_TRY(write_sequence(p, s));
    if (p->length && text_shard_writer_tokens(p->w))
        ATOM_TRY(write_padding(p, 1));
    ATOM_TRY(text_shard_writer_end(p->w));
    p->counts.tokens = text_shard_writer_tokens(p->w);
    p->counts.shards = text_shard_writer_shards(p->w);
    return ATOM_OK;
}

text_packed text_packer_counts(const text_packer *p)
{
    return p->counts;
}
