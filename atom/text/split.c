/*
 * Owns the cutting of text into the pieces that BPE works on. One idea: each pattern of the sequence
 * pulls pieces from the one before and cuts each as a text of its own; it is compiled once per thread
 * with the JIT, and matched on text that was checked to be UTF-8, so PCRE2 checks nothing again. A
 * pattern that covers every text is anchored at the end of the piece before. Where the JIT is not
 * allowed or lacks stack, the interpreter gives the same pieces. Refuses nothing.
 */
#include "atom/text/split.h"

#include "atom/base/mem.h"
#include "atom/base/regex.h"

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef struct stage {
    atom_regex regex;
    bool jit, gaps;
    size_t begin, end; /* the piece that is being cut */
    size_t at;         /* cut so far */
    size_t found;      /* end of a match that begins at `at`; 0: not looked for yet */
} stage;

struct text_splitter {
    stage stages[TEXT_STAGES_MAX];
    uint32_t n;
    const char *text;
    size_t bytes;
    bool taken; /* the text, by the first stage */
};

static atom_status compile(const text_pattern *pattern, stage *out)
{
    int refused = 0;
    char *spelled = text_pattern_spell(pattern);
    if (!spelled)
        return atom_fail_memory("the pre-tokenizer", sizeof *out);
    atom_status st = atom_regex_open("the pre-tokenizer", spelled,
                                     PCRE2_UTF | PCRE2_UCP | (pattern->gaps ? 0 : PCRE2_ANCHORED),
                                     &out->regex, &refused);
    atom_free(spelled);
    ATOM_TRY(st);
    if (refused)
        return atom_fail(ATOM_E_RUNTIME, "PCRE2 refuses the pre-tokenizer's pattern (error %d)",
                         refused);
    out->gaps = pattern->gaps;
    out->jit = pcre2_jit_compile(out->regex.code, PCRE2_JIT_COMPLETE) == 0;
    return ATOM_OK;
}

atom_status text_splitter_open(const text_stages *stages, text_splitter **out)
{
    atom_status st = ATOM_OK;
    text_splitter *s = atom_alloc(1, sizeof *s);
    if (!s)
        ATOM_TRY_CLEAN(atom_fail_memory("the pre-tokenizer", sizeof *s));
    for (; s->n < stages->n; s->n++)
        ATOM_TRY_CLEAN(compile(stages->at[s->n], &s->stages[s->n]));
    *out = s;
    return ATOM_OK;
cleanup:
    text_splitter_close(&s);
    return st;
}

void text_splitter_close(text_splitter **splitter)
{
    text_splitter *s = *splitter;
    if (!s)
        return;
    for (uint32_t i = 0; i < TEXT_STAGES_MAX; i++)
        atom_regex_close(&s->stages[i].regex);
    atom_free(s);
    *splitter = NULL;
}

void text_splitter_begin(text_splitter *s, const char *text, size_t bytes)
{
    s->text = text;
    s->bytes = bytes;
    s->taken = bytes == 0;
    for (uint32_t i = 0; i < s->n; i++)
        s->stages[i].begin = s->stages[i].end = s->stages[i].at = s->stages[i].found = 0;
}

/* Looks in the rest of the stage's piece; *start is the piece's end where nothing is found. */
static atom_status look(const text_splitter *s, const stage *g, size_t *start, size_t *end)
{
    PCRE2_SPTR text = (PCRE2_SPTR)s->text + g->begin;
    size_t bytes = g->end - g->begin, at = g->at - g->begin;
    int n = PCRE2_ERROR_JIT_STACKLIMIT;
    *start = *end = g->end;
    if (g->jit)
        n = pcre2_jit_match(g->regex.code, text, bytes, at, 0, g->regex.match, NULL);
    if (n == PCRE2_ERROR_JIT_STACKLIMIT)
        n = pcre2_match(g->regex.code, text, bytes, at, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                        g->regex.match, NULL);
    if (n == PCRE2_ERROR_NOMEMORY || n == PCRE2_ERROR_HEAPLIMIT)
        return atom_fail_memory("matching a long piece of text", bytes - at);
    if (n == PCRE2_ERROR_NOMATCH && g->gaps)
        return ATOM_OK;
    const PCRE2_SIZE *found = pcre2_get_ovector_pointer(g->regex.match);
    if (n < 0 || found[0] < at || found[1] <= found[0])
        return atom_fail(ATOM_E_RUNTIME, "PCRE2 cannot split the text at byte %zu (error %d)",
                         g->at, n);
    *start = g->begin + found[0];
    *end = g->begin + found[1];
    return ATOM_OK;
}

/* A match, or what stands before it. The stage's piece has a rest. */
static atom_status cut_piece(const text_splitter *s, stage *g, size_t *start, size_t *end)
{
    size_t match_start, match_end = g->found;
    *start = g->at;
    if (!match_end) {
        ATOM_TRY(look(s, g, &match_start, &match_end));
        if (match_start > g->at) {
            g->at = match_start;
            g->found = match_end > match_start ? match_end : 0;
            *end = match_start;
            return ATOM_OK;
        }
    }
    g->found = 0;
    g->at = *end = match_end;
    return ATOM_OK;
}

atom_status text_splitter_next(text_splitter *s, size_t *start, size_t *end)
{
    uint32_t i = s->n;
    while (i > 0 && s->stages[i - 1].at == s->stages[i - 1].end)
        i--;
    if (i == 0 && s->taken) {
        *start = *end = s->bytes;
        return ATOM_OK;
    }
    *start = 0;
    *end = s->bytes;
    if (i == 0)
        s->taken = true;
    else
        ATOM_TRY(cut_piece(s, &s->stages[i - 1], start, end));
    for (; i < s->n; i++) {
        stage *g = &s->stages[i];
        g->begin = g->at = *start;
        g->end = *end;
        ATOM_TRY(cut_piece(s, g, start, end));
    }
    return ATOM_OK;
}

/* GPT-2: a newline before a visible ASCII character is always a piece of its own: a run of spaces
 * leaves its last one behind when a character follows, and only U+0020 joins the piece after it.
 * (Not so before a digit that an earlier pattern has cut off: then nothing follows.)
 * The later patterns: such a newline ends a piece, which may have started earlier. */
static bool is_cut(const char *text, size_t at)
{
    return text[at] == '\n' && text[at + 1] > 0x20 && text[at + 1] < 0x7f;
}

/* Two patterns let "/" follow the newlines that end a piece. */
static bool is_cut_by(text_cut rule, const char *text, size_t at)
{
    bool digit = text[at + 1] >= '0' && text[at + 1] <= '9';
    return is_cut(text, at) && (rule == TEXT_CUT_BEFORE_NEWLINE ? !digit : text[at + 1] != '/');
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
