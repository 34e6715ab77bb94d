/*
 * Owns JSON arrays as lines. One idea: between two elements of the outermost array stands a comma
 * that no string and no bracket holds, and nothing else of the syntax need be known here. Refuses
 * what stands beside the array, and elements that are missing.
 */
#include "atom/text/chat.h"
#include "atom/text/records.h"

#include <string.h>

/* A place in JSON: inside a string, and how many brackets deep. */
typedef struct scan {
    uint64_t depth;
    bool text, escaped;
} scan;

/* Is this byte the comma between two elements? */
static bool step(scan *s, char c)
{
    if (s->text) {
        s->text = s->escaped || c != '"';
        s->escaped = !s->escaped && c == '\\';
        return false;
    }
    s->text = c == '"';
    s->depth += c == '[' || c == '{';
    s->depth -= (c == ']' || c == '}') && s->depth > 0;
    return c == ',' && s->depth == 1;
}

size_t text_array_cut(const char *data, size_t bytes, bool first)
{
    scan s = {.depth = !first};
    size_t cut = 0;
    for (size_t i = 0; i < bytes; i++)
        if (step(&s, data[i]))
            cut = i + 1;
    return cut;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* The bracket that opens the array, behind a byte order mark. */
static atom_status open_array(const text_records_place *at, char *data, size_t bytes, size_t *from)
{
    size_t i = bytes >= 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
    while (i < bytes && is_blank(data[i]))
        i++;
    if (i == bytes || data[i] != '[')
        return text_fail_line(at->name, at->record, "the file is not a JSON array");
    memset(data, ' ', i + 1);
    *from = i + 1;
    return ATOM_OK;
}

static atom_status close_array(const text_records_place *at, const char *data, size_t bytes,
                               uint64_t record)
{
    for (size_t i = 0; i < bytes; i++)
        if (!is_blank(data[i]))
            return text_fail_line(at->name, record, "the file goes on after its JSON array");
    return ATOM_OK;
}

atom_status text_array_lines(const text_records_place *at, char *data, size_t bytes)
{
    scan s = {.depth = 1};
    size_t i = 0;
    uint64_t record = at->record;
    bool empty = true; /* nothing of the element has come yet */
    if (at->first)
        ATOM_TRY(open_array(at, data, bytes, &i));
    for (; i < bytes; i++) {
        bool comma = step(&s, data[i]), closed = s.depth == 0;
        if (empty && (comma || (closed && record > 1)))
            return text_fail_line(
                at->name, comma ? record : record - 1,
                comma ? "there is nothing before its comma; remove the comma"
                      : "after it there is a comma before the end of the array; remove the comma");
        if (closed) {
            data[i] = ' ';
            return close_array(at, data + i + 1, bytes - i - 1, record);
        }
        empty = comma || (empty && is_blank(data[i]));
        record += comma;
        if (comma)
            data[i] = '\n';
        else if (!s.text && is_blank(data[i]))
            data[i] = ' ';
    }
    return at->last ? text_fail_line(at->name, record,
                                     "the JSON array has no end; the file is incomplete")
                    : ATOM_OK;
}
