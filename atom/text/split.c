/*
 * Owns the cutting of text into the pieces that BPE works on. One idea: the pattern is compiled
 * once per thread with the JIT, matched anchored at the end of the piece before, on text that was
 * checked to be UTF-8, so PCRE2 checks nothing again. Where the JIT is not allowed or lacks stack,
 * the interpreter gives the same pieces. Refuses nothing: the patterns cover every text.
 */
#include "atom/text/split.h"

#include "atom/base/mem.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

struct text_splitter {
    pcre2_general_context *memory;
    pcre2_code *code;
    pcre2_match_data *match;
    bool jit;
    const char *text;
    size_t bytes, at;
};

static void *take(size_t bytes, void *ctx)
{
    (void)ctx;
    return atom_alloc(bytes, 1);
}

static void give(void *block, void *ctx)
{
    (void)ctx;
    atom_free(block);
}

atom_status text_splitter_open(const text_pattern *pattern, text_splitter **out)
{
    atom_status st = ATOM_OK;
    pcre2_compile_context *options = NULL;
    text_splitter *s = atom_alloc(1, sizeof *s);
    int error = 0;
    PCRE2_SIZE where = 0;
    char *spelled = text_pattern_spell(pattern);
    if (!s || !spelled)
        goto fail_memory;
    s->memory = pcre2_general_context_create(take, give, NULL);
    if (!s->memory)
        goto fail_memory;
    options = pcre2_compile_context_create(s->memory);
    if (!options)
        goto fail_memory;
    s->code = pcre2_compile((PCRE2_SPTR)spelled, strlen(spelled),
                            PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &error, &where, options);
    if (!s->code && error != PCRE2_ERROR_HEAP_FAILED)
        ATOM_TRY_CLEAN(atom_fail(ATOM_E_RUNTIME,
                                 "PCRE2 refuses the pre-tokenizer's pattern (error %d)", error));
    if (s->code)
        s->match = pcre2_match_data_create_from_pattern(s->code, s->memory);
    if (!s->match)
        goto fail_memory;
    s->jit = pcre2_jit_compile(s->code, PCRE2_JIT_COMPLETE) == 0;
    pcre2_compile_context_free(options);
    atom_free(spelled);
    *out = s;
    return ATOM_OK;
fail_memory:
    st = atom_fail_memory("the pre-tokenizer", sizeof *s);
cleanup:
    if (options)
        pcre2_compile_context_free(options);
    atom_free(spelled);
    text_splitter_close(&s);
    return st;
}

void text_splitter_close(text_splitter **splitter)
{
    text_splitter *s = *splitter;
    if (!s)
        return;
    if (s->match)
        pcre2_match_data_free(s->match);
    if (s->code)
        pcre2_code_free(s->code);
    if (s->memory)
        pcre2_general_context_free(s->memory);
    atom_free(s);
    *splitter = NULL;
}

void text_splitter_begin(text_splitter *s, const char *text, size_t bytes)
{
    s->text = text;
    s->bytes = bytes;
    s->at = 0;
}

atom_status text_splitter_next(text_splitter *s, size_t *start, size_t *end)
{
    PCRE2_SPTR text = (PCRE2_SPTR)s->text;
    int n = PCRE2_ERROR_JIT_STACKLIMIT;
    *start = s->at;
    *end = s->at;
    if (s->at == s->bytes)
        return ATOM_OK;
    if (s->jit)
        n = pcre2_jit_match(s->code, text, s->bytes, s->at, 0, s->match, NULL);
    if (n == PCRE2_ERROR_JIT_STACKLIMIT)
        n = pcre2_match(s->code, text, s->bytes, s->at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, s->match,
                        NULL);
    if (n == PCRE2_ERROR_NOMEMORY || n == PCRE2_ERROR_HEAPLIMIT)
        return atom_fail_memory("matching a long piece of text", s->bytes - s->at);
    const PCRE2_SIZE *found = pcre2_get_ovector_pointer(s->match);
    if (n < 0 || found[1] <= s->at)
        return atom_fail(ATOM_E_RUNTIME, "PCRE2 cannot split the text at byte %zu (error %d)",
                         s->at, n);
    s->at = found[1];
    *end = s->at;
    return ATOM_OK;
}

/* GPT-2: a newline before a visible ASCII character is always a piece of its own: a run of spaces
 * leaves its last one behind when a character follows, and only U+0020 joins the piece after it.
 * The later patterns: such a newline ends a piece, which may have started earlier. */
static bool is_cut(const char *text, size_t at)
{
    return text[at] == '\n' && text[at + 1] > 0x20 && text[at + 1] < 0x7f;
}

/* Two patterns let "/" follow the newlines that end a piece. */
static bool is_cut_by(text_cut rule, const char *text, size_t at)
{
    return is_cut(text, at) && (rule == TEXT_CUT_BEFORE_NEWLINE || text[at + 1] != '/');
}

size_t text_cut_last(text_cut rule, const char *text, size_t bytes)
{
    if (rule == TEXT_CUT_NONE)
        return 0;
    for (size_t at = bytes > 1 ? bytes - 2 : 0; at > 0; at--)
        if (is_cut_by(rule, text, at))
            return at + (rule == TEXT_CUT_AFTER_NEWLINE);
    return 0;
}

size_t text_cut_next(text_cut rule, const char *text, size_t bytes, size_t from)
{
    if (rule == TEXT_CUT_NONE)
        return bytes;
    for (size_t at = from ? from : 1; at + 1 < bytes; at++)
        if (is_cut_by(rule, text, at))
            return at + (rule == TEXT_CUT_AFTER_NEWLINE);
    return bytes;
}
