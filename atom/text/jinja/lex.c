/*
 * Owns the cutting of a template into tokens. One idea: as Jinja2's lexer does it with its regular
 * expressions, in one pass. Refuses characters that no tag may hold, and tags without an end.
 */
#include "atom/text/jinja/lex.h"

#include "atom/text/utf8.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

typedef struct lexer {
    jinja_heap *h;
    const char *source;
    size_t n, at;
    jinja_tokens *out;
    uint32_t brackets;
    char stack[JINJA_DEPTH_MAX]; /* of what closes the open brackets */
} lexer;

static bool looking_at(const lexer *l, size_t at, const char *word)
{
    size_t n = strlen(word);
    return at <= l->n && l->n - at >= n && memcmp(l->source + at, word, n) == 0;
}

static size_t skip_blanks(const lexer *l, size_t at)
{
    for (size_t n; at < l->n && (n = text_utf8_blank(l->source + at, l->n - at));)
        at += n;
    return at;
}

/* Goes on to `at`, counting lines. */
static void move_to(lexer *l, size_t at)
{
    for (; l->at < at; l->at++)
        l->h->line += l->source[l->at] == '\n';
}

static atom_status add(lexer *l, jinja_token token)
{
    jinja_tokens *t = l->out;
    token.line = l->h->line;
    ATOM_TRY(jinja_grow(l->h, &t->items, t->n, &t->capacity, 256, sizeof *t->items));
    t->items[t->n++] = token;
    return ATOM_OK;
}

/* Token `kind` of n bytes at l->at, as a word of its own. */
static atom_status add_word(lexer *l, jinja_token_kind kind, size_t n)
{
    char *word;
    ATOM_TRY(jinja_alloc(l->h, n + 1, 1, &word));
    memcpy(word, l->source + l->at, n);
    ATOM_TRY(add(l, (jinja_token){.kind = kind, .at = word, .n = n}));
    move_to(l, l->at + n);
    return ATOM_OK;
}

/* ---- text ---- */

/* Text [l->at, end) before a tag with a sign; lstrip: the tag is a block or a comment. */
static atom_status add_data(lexer *l, size_t end, char sign, bool lstrip)
{
    size_t from = l->at, to = end;
    if (sign == '-') {
        const char *at = l->source + from;
        size_t n = to - from;
        text_utf8_trim(&at, &n, false, true);
        to = from + n;
    } else if (sign != '+' && lstrip) {
        size_t line = to;
        while (line > from && l->source[line - 1] != '\n')
            line--;
        bool starts = line > from || from == 0 || l->source[from - 1] == '\n';
        if (starts && skip_blanks(l, line) >= to)
            to = line;
    }
    if (to > from)
        ATOM_TRY(
            add(l, (jinja_token){.kind = JINJA_T_DATA, .at = l->source + from, .n = to - from}));
    move_to(l, end);
    return ATOM_OK;
}

static char sign_at(const lexer *l, size_t at)
{
    return at < l->n && (l->source[at] == '-' || l->source[at] == '+') ? l->source[at] : 0;
}

/* Behind the end of a block or comment: a sign stood before it, or the line's end is dropped. */
static void after_block(lexer *l, char sign)
{
    if (sign == '-')
        move_to(l, skip_blanks(l, l->at));
    else if (sign == 0 && looking_at(l, l->at, "\n"))
        move_to(l, l->at + 1);
}

static atom_status lex_comment(lexer *l, size_t from)
{
    const char *end = from <= l->n ? memmem(l->source + from, l->n - from, "#}", 2) : NULL;
    if (!end)
        return jinja_fail(l->h, "a comment has no end");
    size_t at = (size_t)(end - l->source);
    char sign = at > from ? sign_at(l, at - 1) : 0;
    move_to(l, at + 2);
    after_block(l, sign);
    return ATOM_OK;
}

/* Is there {% NAME %} at `at`? *inner: behind it; *sign: the one before its end. */
static bool lone_tag(const lexer *l, size_t at, const char *name, size_t *inner, char *sign)
{
    if (!looking_at(l, at, "{%"))
        return false;
    at += 2;
    at = skip_blanks(l, at + (sign_at(l, at) != 0));
    if (!looking_at(l, at, name))
        return false;
    at = skip_blanks(l, at + strlen(name));
    *sign = sign_at(l, at);
    at += *sign != 0;
    *inner = at + 2;
    return looking_at(l, at, "%}");
}

/* Text up to {% endraw %}, as it is. */
static atom_status lex_raw(lexer *l, size_t inner, char sign)
{
    char end_sign;
    size_t behind;
    move_to(l, sign == '-' ? skip_blanks(l, inner) : inner);
    for (size_t at = l->at; at + 2 <= l->n; at++) {
        const char *next = memmem(l->source + at, l->n - at, "{%", 2);
        if (!next)
            break;
        at = (size_t)(next - l->source);
        if (!lone_tag(l, at, "endraw", &behind, &end_sign))
            continue;
        ATOM_TRY(add_data(l, at, sign_at(l, at + 2), true));
        move_to(l, behind);
        after_block(l, end_sign);
        return ATOM_OK;
    }
    return jinja_fail(l->h, "{%% raw %%} has no {%% endraw %%}");
}

/* ---- inside of tags ---- */

static void put_utf8(char *out, size_t *n, uint32_t c)
{
    if (c < 0x80) {
        out[(*n)++] = (char)c;
    } else if (c < 0x800) {
        out[(*n)++] = (char)(0xc0 | c >> 6);
        out[(*n)++] = (char)(0x80 | (c & 63));
    } else if (c < 0x10000) {
        out[(*n)++] = (char)(0xe0 | c >> 12);
        out[(*n)++] = (char)(0x80 | (c >> 6 & 63));
        out[(*n)++] = (char)(0x80 | (c & 63));
    } else {
        out[(*n)++] = (char)(0xf0 | c >> 18);
        out[(*n)++] = (char)(0x80 | (c >> 12 & 63));
        out[(*n)++] = (char)(0x80 | (c >> 6 & 63));
        out[(*n)++] = (char)(0x80 | (c & 63));
    }
}

/* digits of a base at `at`: their value, and how many of at most `most` there are. */
static uint32_t digits(const char *at, const char *end, int base, size_t most, size_t *n)
{
    char copy[9] = {0};
    for (*n = 0; *n < most && at + *n < end; (*n)++) {
        char c = at[*n];
        if (base == 16 ? !isxdigit((unsigned char)c) : c < '0' || c > '7')
            break;
        copy[*n] = c;
    }
    return (uint32_t)strtoul(copy, NULL, base);
}

/* One escape behind its backslash; as Python's unicode-escape. */
static atom_status unescape(lexer *l, const char **at, const char *end, char *out, size_t *n)
{
    static const char plain[] = "\\\\''\"\"a\ab\bf\fn\nr\rt\tv\v";
    char c = *(*at)++;
    size_t used = 0, want = c == 'x' ? 2 : c == 'u' ? 4 : 8;
    for (const char *p = plain; *p; p += 2)
        if (c == p[0]) {
            out[(*n)++] = p[1];
            return ATOM_OK;
        }
    if (c == '\n')
        return ATOM_OK;
    if (c == 'x' || c == 'u' || c == 'U') {
        uint32_t value = digits(*at, end, 16, want, &used);
        if (used != want || value > 0x10ffff || (value >= 0xd800 && value < 0xe000))
            return jinja_fail(l->h, "\\%c in a text is not followed by the number of a character",
                              c);
        *at += used;
        put_utf8(out, n, value);
        return ATOM_OK;
    }
    if (c >= '0' && c <= '7') {
        put_utf8(out, n, digits(*at - 1, end, 8, 3, &used));
        *at += used - 1;
        return ATOM_OK;
    }
    if (c == 'N')
        return jinja_fail(l->h, "\\N in a text is not supported; write the character itself");
    out[(*n)++] = '\\';
    out[(*n)++] = c;
    return ATOM_OK;
}

static atom_status lex_string(lexer *l)
{
    char quote = l->source[l->at], *made;
    size_t end = l->at + 1, n = 0;
    while (end < l->n && l->source[end] != quote)
        end += l->source[end] == '\\' ? 2 : 1;
    if (end >= l->n)
        return jinja_fail(l->h, "a text has no closing quote");
    const char *at = l->source + l->at + 1, *to = l->source + end;
    ATOM_TRY(jinja_alloc(l->h, end - l->at + 4, 1, &made));
    while (at < to) {
        if (*at == '\\') {
            at++;
            ATOM_TRY(unescape(l, &at, to, made, &n));
        } else {
            made[n++] = *at++;
        }
    }
    ATOM_TRY(add(l, (jinja_token){.kind = JINJA_T_STRING, .at = made, .n = n}));
    move_to(l, end + 1);
    return ATOM_OK;
}

/* Decimal digits from `at` on, with _ between them. */
static size_t skip_digits(const lexer *l, size_t at)
{
    while (at < l->n &&
           (isdigit((unsigned char)l->source[at]) ||
            (l->source[at] == '_' && at + 1 < l->n && isdigit((unsigned char)l->source[at + 1]))))
        at++;
    return at;
}

static bool digit_at(const lexer *l, size_t at)
{
    return at < l->n && isdigit((unsigned char)l->source[at]);
}

static atom_status lex_number(lexer *l)
{
    char copy[64], *end;
    size_t at = skip_digits(l, l->at), n = 0;
    bool real = false;
    if (l->at == 0 || l->source[l->at - 1] != '.') {
        if (at < l->n && l->source[at] == '.' && digit_at(l, at + 1)) {
            at = skip_digits(l, at + 1);
            real = true;
        }
        size_t e = at + 1;
        if (at < l->n && (l->source[at] | 32) == 'e') {
            e += sign_at(l, e) != 0;
            real = real || digit_at(l, e);
            at = digit_at(l, e) ? skip_digits(l, e) : at;
        }
    }
    if (at - l->at >= sizeof copy)
        return jinja_fail(l->h, "a number of more than %zu digits", sizeof copy - 1);
    for (size_t i = l->at; i < at; i++)
        if (l->source[i] != '_')
            copy[n++] = l->source[i];
    copy[n] = 0;
    if (!real && n > 1 && copy[0] == '0' && strspn(copy, "0") != n)
        return jinja_fail(l->h, "a whole number begins with 0");
    jinja_token t = {.kind = real ? JINJA_T_REAL : JINJA_T_INT, .r = strtod(copy, &end)};
    if (!real && (n > 18 || (at < l->n && (isalpha((unsigned char)l->source[at])))))
        return jinja_fail(l->h, "'%s' is not a whole number that atom reads", copy);
    t.i = real ? 0 : strtoll(copy, NULL, 10);
    ATOM_TRY(add(l, t));
    move_to(l, at);
    return ATOM_OK;
}

static atom_status lex_sign(lexer *l)
{
    static const char *const two[] = {"==", "!=", "<=", ">=", "//", "**"};
    char c = l->source[l->at];
    for (size_t i = 0; i < sizeof two / sizeof *two; i++)
        if (looking_at(l, l->at, two[i]))
            return add_word(l, JINJA_T_SIGN, 2);
    if (!c || !strchr("+-/*%~[](){}<>=.:|,;", c))
        return jinja_fail(l->h, "a character that no tag may hold: 0x%02x", (uint8_t)c);
    if (strchr("[({", c)) {
        if (l->brackets == JINJA_DEPTH_MAX)
            return jinja_fail(l->h, "brackets are nested more than %d deep", JINJA_DEPTH_MAX);
        l->stack[l->brackets++] = c == '[' ? ']' : c == '(' ? ')' : '}';
    } else if (strchr("])}", c)) {
        if (l->brackets == 0 || l->stack[--l->brackets] != c)
            return jinja_fail(l->h, "there is a '%c' that closes nothing", c);
    }
    return add_word(l, JINJA_T_SIGN, 1);
}

/* One token, or the tag's end. */
static atom_status lex_inside(lexer *l, bool block, bool *ended)
{
    const char *end = block ? "%}" : "}}";
    char c, sign;
    move_to(l, skip_blanks(l, l->at));
    if (l->at >= l->n)
        return jinja_fail(l->h, "a tag has no end");
    sign = sign_at(l, l->at);
    sign = sign == '+' && !block ? 0 : sign;
    if (l->brackets == 0 && looking_at(l, l->at + (sign != 0), end)) {
        ATOM_TRY(add(l, (jinja_token){.kind = block ? JINJA_T_BLOCK_END : JINJA_T_PRINT_END}));
        move_to(l, l->at + (sign != 0) + 2);
        *ended = true;
        if (block || sign == '-')
            after_block(l, sign);
        return ATOM_OK;
    }
    c = l->source[l->at];
    if (isdigit((unsigned char)c))
        return lex_number(l);
    if (isalpha((unsigned char)c) || c == '_') {
        size_t to = l->at;
        while (to < l->n && (isalnum((unsigned char)l->source[to]) || l->source[to] == '_'))
            to++;
        if (to - l->at > JINJA_NAME_MAX)
            return jinja_fail(l->h, "a name of more than %d letters", JINJA_NAME_MAX);
        return add_word(l, JINJA_T_NAME, to - l->at);
    }
    return c == '"' || c == '\'' ? lex_string(l) : lex_sign(l);
}

static atom_status lex_tag(lexer *l, size_t at)
{
    char kind = l->source[at + 1], sign = sign_at(l, at + 2), raw_sign;
    size_t inner;
    bool ended = false;
    ATOM_TRY(add_data(l, at, sign, kind != '{'));
    if (kind == '#')
        return lex_comment(l, at + 2 + (sign != 0));
    if (kind == '%' && lone_tag(l, at, "raw", &inner, &raw_sign) && raw_sign != '+')
        return lex_raw(l, inner, raw_sign);
    ATOM_TRY(
        add(l, (jinja_token){.kind = kind == '%' ? JINJA_T_BLOCK_BEGIN : JINJA_T_PRINT_BEGIN}));
    move_to(l, at + 2 + (sign != 0));
    while (!ended)
        ATOM_TRY(lex_inside(l, kind == '%', &ended));
    return ATOM_OK;
}

/* The source with line ends of one kind, and without the last of them. */
static atom_status copy_source(lexer *l, const char *source, size_t bytes)
{
    char *copy;
    ATOM_TRY(jinja_alloc(l->h, bytes + 1, 1, &copy));
    for (size_t i = 0; i < bytes; i++) {
        if (source[i] == '\n' && i && source[i - 1] == '\r')
            continue;
        copy[l->n++] = source[i] == '\r' ? '\n' : source[i];
    }
    if (l->n && copy[l->n - 1] == '\n')
        l->n--;
    l->source = copy;
    return ATOM_OK;
}

atom_status jinja_lex(jinja_heap *h, const char *source, size_t bytes, jinja_tokens *out)
{
    lexer l = {.h = h, .out = out};
    h->line = 1;
    ATOM_TRY(copy_source(&l, source, bytes));
    while (l.at < l.n) {
        size_t at = l.at;
        while (at < l.n && !(l.source[at] == '{' && at + 1 < l.n && l.source[at + 1] &&
                             strchr("%{#", l.source[at + 1])))
            at++;
        if (at < l.n)
            ATOM_TRY(lex_tag(&l, at));
        else
            ATOM_TRY(add_data(&l, l.n, '+', false));
    }
    return add(&l, (jinja_token){.kind = JINJA_T_END});
}
