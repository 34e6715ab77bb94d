/*
 * Owns writing of JSON. One idea: the text is a function of the values alone (fixed order, shortest
 * numbers that read back exactly), so files can be compared byte for byte. Refuses numbers that
 * JSON does not have: those are our bugs.
 */
#include "partition/json.h"

#include "atom/base/assert.h"
#include "atom/base/mem.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void put(part_out *o, const char *text, size_t n)
{
    if (o->bad)
        return;
    if (o->n + n + 1 > o->room) {
        size_t room = (o->n + n + 1) * 2 + 256;
        char *grown = atom_realloc(o->text, room, 1);
        if (!grown) {
            o->bad = true;
            return;
        }
        o->text = grown;
        o->room = room;
    }
    memcpy(o->text + o->n, text, n);
    o->n += n;
    o->text[o->n] = 0;
}

static void put_text(part_out *o, const char *text)
{
    put(o, text, strlen(text));
}

static void put_line(part_out *o)
{
    put_text(o, "\n");
    for (uint32_t i = 0; i < o->depth; i++)
        put_text(o, "  ");
}

static void put_quoted(part_out *o, const char *text)
{
    put_text(o, "\"");
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        char buf[8];
        if (c == '"' || c == '\\')
            snprintf(buf, sizeof buf, "\\%c", c);
        else if (c < 0x20 || c == 0x7f)
            snprintf(buf, sizeof buf, "\\u%04x", c);
        else
            snprintf(buf, sizeof buf, "%c", c);
        put_text(o, buf);
    }
    put_text(o, "\"");
}

/* Comma, line break and key: everything in front of a value. */
static void lead(part_out *o, const char *key)
{
    if (o->comma)
        put_text(o, o->flat ? ", " : ",");
    if (o->depth && !o->flat)
        put_line(o);
    if (key) {
        put_quoted(o, key);
        put_text(o, ": ");
    }
    o->comma = true;
}

void part_out_begin(part_out *o, const char *key, char bracket, bool flat)
{
    lead(o, key);
    put(o, &bracket, 1);
    o->depth++;
    o->flat = flat;
    o->comma = false;
}

void part_out_end(part_out *o, char bracket)
{
    bool empty = !o->comma;
    ATOM_ASSERT(o->depth > 0);
    o->depth--;
    if (!o->flat && !empty)
        put_line(o);
    put(o, &bracket, 1);
    o->flat = false; /* flat objects hold no others */
    o->comma = true;
}

void part_out_i64(part_out *o, const char *key, int64_t value)
{
    char buf[32];
    snprintf(buf, sizeof buf, "%lld", (long long)value);
    lead(o, key);
    put_text(o, buf);
}

void part_out_u64(part_out *o, const char *key, uint64_t value)
{
    ATOM_ASSERT(value <= INT64_MAX); /* what readers of JSON agree on */
    part_out_i64(o, key, (int64_t)value);
}

void part_out_f64(part_out *o, const char *key, double value)
{
    char buf[40];
    ATOM_ASSERT(isfinite(value));
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(buf, sizeof buf, "%.*g", digits, value);
        if (strtod(buf, NULL) == value)
            break;
    }
    lead(o, key);
    put_text(o, buf);
}

void part_out_bool(part_out *o, const char *key, bool value)
{
    lead(o, key);
    put_text(o, value ? "true" : "false");
}

void part_out_text(part_out *o, const char *key, const char *value)
{
    lead(o, key);
    put_quoted(o, value);
}

void part_out_hash(part_out *o, const char *key, uint64_t value)
{
    char buf[24];
    snprintf(buf, sizeof buf, "0x%016llx", (unsigned long long)value);
    part_out_text(o, key, buf);
}

atom_status part_out_take(part_out *o, char **text)
{
    put_text(o, "\n");
    if (o->bad) {
        atom_free(o->text);
        *o = (part_out){0};
        return atom_fail_memory("a JSON text", 0);
    }
    ATOM_ASSERT(o->depth == 0);
    *text = o->text;
    *o = (part_out){0};
    return ATOM_OK;
}
