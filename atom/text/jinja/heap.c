/*
 * Owns the memory of a rendering. One idea: chunks that only grow, given back together, with a
 * limit on their sum; so a template cannot leak, and cannot take more than it may. Refuses to free
 * single values.
 */
#include "atom/text/jinja/heap.h"

#include "atom/base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { CHUNK_BYTES = 64 << 10, GRAIN = 16 };

struct jinja_chunk {
    jinja_chunk *next;
    size_t used, capacity;
    char bytes[] __attribute__((aligned(16)));
};

atom_status jinja_alloc(jinja_heap *h, size_t count, size_t size_bytes, void *out)
{
    jinja_chunk *c = h->chunks;
    if (size_bytes && count > JINJA_HEAP_MAX / size_bytes)
        return jinja_fail(h, "it needs more than %d MiB of memory", JINJA_HEAP_MAX >> 20);
    size_t need = (count * size_bytes + GRAIN) & ~(size_t)(GRAIN - 1);
    if (!c || c->capacity - c->used < need) {
        size_t room = need > CHUNK_BYTES ? need : CHUNK_BYTES;
        if (h->bytes + room > JINJA_HEAP_MAX)
            return jinja_fail(h, "it needs more than %d MiB of memory", JINJA_HEAP_MAX >> 20);
        c = atom_alloc(1, sizeof *c + room);
        if (!c)
            return atom_fail_memory("a chat", room);
        c->capacity = room;
        c->next = h->chunks;
        h->chunks = c;
        h->bytes += room;
    }
    void *made = c->bytes + c->used;
    memset(made, 0, need);
    c->used += need;
    memcpy(out, &made, sizeof made);
    return ATOM_OK;
}

atom_status jinja_grow(jinja_heap *h, void *items, size_t n, size_t *capacity, size_t more,
                       size_t size_bytes)
{
    void *old, *grown;
    if (n < *capacity)
        return ATOM_OK;
    ATOM_TRY(jinja_alloc(h, n * 2 + more, size_bytes, &grown));
    memcpy(&old, items, sizeof old);
    if (n)
        memcpy(grown, old, n * size_bytes);
    memcpy(items, &grown, sizeof grown);
    *capacity = n * 2 + more;
    return ATOM_OK;
}

jinja_heap_mark jinja_heap_here(const jinja_heap *h)
{
    return (jinja_heap_mark){h->chunks, h->chunks ? h->chunks->used : 0};
}

void jinja_heap_release(jinja_heap *h, jinja_heap_mark mark)
{
    while (h->chunks != mark.chunk && h->chunks->next) {
        jinja_chunk *c = h->chunks;
        h->chunks = c->next;
        h->bytes -= c->capacity;
        atom_free(c);
    }
    if (h->chunks) /* with a mark of no chunk the first one stays, empty */
        h->chunks->used = mark.used;
}

void jinja_heap_fini(jinja_heap *h)
{
    while (h->chunks) {
        jinja_chunk *c = h->chunks;
        h->chunks = c->next;
        atom_free(c);
    }
    h->bytes = 0;
}

atom_status jinja_step(jinja_heap *h, uint64_t n)
{
    h->steps += n;
    return h->steps <= JINJA_STEPS_MAX
               ? ATOM_OK
               : jinja_fail(h, "it takes more than %d steps; is there an endless loop?",
                            JINJA_STEPS_MAX);
}

atom_status jinja_enter(jinja_heap *h)
{
    return ++h->depth <= JINJA_DEPTH_MAX
               ? ATOM_OK
               : jinja_fail(h, "it is nested more than %d deep", JINJA_DEPTH_MAX);
}

void jinja_leave(jinja_heap *h)
{
    h->depth--;
}

atom_status jinja_fail(const jinja_heap *h, const char *format, ...)
{
    char what[600];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return atom_fail(ATOM_E_FORMAT, "%s, line %u: %s", h->name ? h->name : "the chat template",
                     h->line, what);
}

static atom_status make_room(jinja_writer *w, size_t more)
{
    char *at;
    jinja_mark *marks;
    if (w->capacity - w->n >= more)
        return ATOM_OK;
    if (more > JINJA_HEAP_MAX)
        return jinja_fail(w->h, "it makes a text of more than %d MiB", JINJA_HEAP_MAX >> 20);
    size_t want = (w->n + more) * 2 + 32;
    ATOM_TRY(jinja_alloc(w->h, want, 1, &at));
    ATOM_TRY(jinja_alloc(w->h, want, sizeof *marks, &marks));
    if (w->n) {
        memcpy(at, w->at, w->n);
        memcpy(marks, w->marks, w->n * sizeof *marks);
    }
    w->at = at;
    w->marks = marks;
    w->capacity = want;
    return ATOM_OK;
}

atom_status jinja_put(jinja_writer *w, const char *at, size_t n, jinja_mark mark)
{
    ATOM_TRY(make_room(w, n));
    ATOM_TRY(jinja_step(w->h, n / 64));
    if (n)
        memcpy(w->at + w->n, at, n);
    for (size_t i = 0; i < n; i++)
        w->marks[w->n + i] = mark;
    w->n += n;
    return ATOM_OK;
}

atom_status jinja_put_text(jinja_writer *w, jinja_text t)
{
    ATOM_TRY(make_room(w, t.n));
    ATOM_TRY(jinja_step(w->h, t.n / 64));
    if (t.n) {
        memcpy(w->at + w->n, t.at, t.n);
        memcpy(w->marks + w->n, t.marks, t.n * sizeof *t.marks);
    }
    w->n += t.n;
    return ATOM_OK;
}

atom_status jinja_put_word(jinja_writer *w, const char *word)
{
    return jinja_put(w, word, strlen(word), 0);
}

jinja_text jinja_written(const jinja_writer *w)
{
    static const jinja_mark none[1];
    if (!w->n) /* parts of a text are counted from its beginning, so it has one */
        return (jinja_text){"", none, 0};
    return (jinja_text){w->at, w->marks, w->n};
}
