/*
 * Owns writing of JSON. One idea: the text is a function of the values alone (fixed order, shortest
 * numbers that read back exactly), so files can be compared byte for byte. Refuses numbers that
 * JSON does not have: those are our bugs.
 *
 * Not jansson's printer: its numbers depend on its version (17 digits before 2.15, the shortest
 * since) and it cannot keep a row on one line, so the bytes of every plan would change.
 */
#include "partition/json.h"

#include "atom/base/assert.h"
#include "atom/base/files.h"
#include "atom/base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void new_line(part_out *o)
{
    fprintf(o->file, "\n%*s", (int)o->depth * 2, "");
}

/* Comma, line break and key: everything in front of a value. */
static void lead(part_out *o, const char *key)
{
    if (o->comma)
        fputs(o->flat ? ", " : ",", o->file);
    if (o->depth && !o->flat)
        new_line(o);
    if (key)
        fprintf(o->file, "\"%s\": ", key);
    o->comma = true;
}

atom_status part_out_open(part_out *o)
{
    *o = (part_out){0};
    o->file = open_memstream(&o->text, &o->bytes);
    return o->file ? ATOM_OK : atom_fail_memory("a JSON text", 0);
}

void part_out_begin(part_out *o, const char *key, char bracket, bool flat)
{
    lead(o, key);
    fputc(bracket, o->file);
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
        new_line(o);
    fputc(bracket, o->file);
    o->flat = false; /* flat objects hold no others */
    o->comma = true;
}

void part_out_i64(part_out *o, const char *key, int64_t value)
{
    lead(o, key);
    fprintf(o->file, "%lld", (long long)value);
}

static void put_f64(part_out *o, const char *key, double value)
{
    char buf[40];
    ATOM_ASSERT(isfinite(value));
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(buf, sizeof buf, "%.*g", digits, value);
        if (strtod(buf, NULL) == value)
            break;
    }
    lead(o, key);
    fputs(buf, o->file);
}

void part_out_text(part_out *o, const char *key, const char *text, size_t n)
{
    lead(o, key);
    fputc('"', o->file);
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        if (c < 0x20 || c == 0x7f)
            fprintf(o->file, "\\u%04x", c);
        else
            fprintf(o->file, c == '"' || c == '\\' ? "\\%c" : "%c", c);
    }
    fputc('"', o->file);
}

static uint64_t integer_of(const part_field *f, const void *at)
{
    return f->size == sizeof(uint32_t) ? *(const uint32_t *)at : *(const uint64_t *)at;
}

/* The word that a field is written as. */
static const char *word_of(const part_field *f, const void *at, char buf[24])
{
    if (f->kind == PART_FIELD_TEXT)
        return at;
    if (f->kind == PART_FIELD_DTYPE)
        return atom_dtype_name(*(const atom_dtype *)at);
    if (f->kind == PART_FIELD_CHOICE) {
        int value = f->size == sizeof(bool) ? *(const bool *)at : *(const int *)at;
        ATOM_ASSERT(value >= 0 && value < f->n_names);
        return f->names[value];
    }
    snprintf(buf, 24, "0x%016llx", (unsigned long long)*(const uint64_t *)at);
    return buf;
}

static void put_field(part_out *o, const part_field *f, const void *at)
{
    char buf[24];
    switch (f->kind) {
    case PART_FIELD_INTEGER:
        ATOM_ASSERT(integer_of(f, at) <= INT64_MAX); /* what readers of JSON agree on */
        part_out_i64(o, f->key, (int64_t)integer_of(f, at));
        break;
    case PART_FIELD_F64:
        put_f64(o, f->key, *(const double *)at);
        break;
    case PART_FIELD_BOOL:
        lead(o, f->key);
        fputs(*(const bool *)at ? "true" : "false", o->file);
        break;
    case PART_FIELD_TEXT:
    case PART_FIELD_HASH:
    case PART_FIELD_DTYPE:
    case PART_FIELD_CHOICE:
        part_out_text(o, f->key, word_of(f, at, buf), strlen(word_of(f, at, buf)));
        break;
    case PART_FIELD_INSIDE:
        break;
    }
}

static bool is_zero(const unsigned char *at, size_t size)
{
    for (size_t i = 0; i < size; i++)
        if (at[i])
            return false;
    return true;
}

void part_out_fields(part_out *o, const part_field *fields, size_t n, const void *object)
{
    for (size_t i = 0; i < n; i++) {
        const void *at = (const char *)object + fields[i].at;
        if (!fields[i].optional || !is_zero(at, fields[i].size))
            put_field(o, &fields[i], at);
    }
}

atom_status part_out_take(part_out *o, char **text)
{
    ATOM_ASSERT(o->depth == 0);
    fputc('\n', o->file);
    bool bad = fclose(o->file) != 0;
    char *copy = bad ? NULL : atom_strndup(o->text, o->bytes);
    free(o->text);
    if (!copy)
        return atom_fail_memory("a JSON text", o->bytes);
    *text = copy;
    return ATOM_OK;
}

atom_status part_out_file(char *text, const char *path)
{
    atom_status st = atom_file_write(path, text, strlen(text));
    atom_free(text);
    return st;
}
