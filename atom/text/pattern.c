/*
 * Owns the table of pre-tokenizer patterns, and the names of sequences of them. One idea: only
 * patterns of this table are run, because for these it is known that they agree between regex
 * engines, take linear time, and where a text may be cut. Refuses others by not finding them.
 */
#include "atom/text/pattern.h"

#include "atom/base/mem.h"

#include <stdbool.h>
#include <string.h>

/* The 25 characters of Unicode's White_Space, which is what \s means where the
 * patterns come from. */
#define SPACE                                                                                      \
    "\\t-\\r\\x{20}\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}"          \
    "\\x{205F}\\x{3000}"

#define SHORT "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define TAIL "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define LEAD "[^\\r\\n\\p{L}\\p{N}]?"

/* The letters with case that DeepSeek's first tokenizers list. */
#define CASED                                                                                      \
    "A-Za-z\u00B5\u00C0-\u00D6\u00D8-\u00F6\u00F8-\u01BA\u01BC-\u01BF\u01C4-\u0293"                \
    "\u0295-\u02AF\u0370-\u0373\u0376\u0377\u037B-\u037D\u037F\u0386\u0388-\u038A\u038C"           \
    "\u038E-\u03A1\u03A3-\u03F5\u03F7-\u0481\u048A-\u052F\u0531-\u0556\u10A0-\u10C5"               \
    "\u13A0-\u13F5\u13F8-\u13FD\u1C90-\u1CBA\u1CBD-\u1CBF\u1D00-\u1D2B\u1D6B-\u1D77"               \
    "\u1D79-\u1D9A\u1E00-\u1F15\u1F18-\u1F1D\u1F20-\u1F45\u1F48-\u1F4D\u1F50-\u1F57\u1F59"         \
    "\u1F5B\u1F5D\u1F5F-\u1F7D\u1F80-\u1FB4\u1FB6-\u1FBC\u1FBE\u1FC2-\u1FC4\u1FC6-\u1FCC"          \
    "\u1FD0-\u1FD3\u1FD6-\u1FDB\u1FE0-\u1FEC\u1FF2-\u1FF4\u1FF6-\u1FFC\u2102\u2107"                \
    "\u210A-\u2113\u2115\u2119-\u211D\u2124\u2126\u2128\u212A-\u212D\u212F-\u2134\u2139"           \
    "\u213C-\u213F\u2145-\u2149\u214E\u2183\u2184\u2C00-\u2C7B\u2C7E-\u2CE4\u2CEB-\u2CEE"          \
    "\u2CF2\u2CF3\uA640-\uA66D\uA680-\uA69B\uA722-\uA76F\uA771-\uA787\uA78B-\uA78E"                \
    "\uAB70-\uABBF\uFB00-\uFB06\uFB13-\uFB17\uFF21-\uFF3A\uFF41-\uFF5A\U00010400-\U0001044F"       \
    "\U000104B0-\U000104D3\U000104D8-\U000104FB\U00010C80-\U00010CB2\U00010CC0-\U00010CF2"         \
    "\U000118A0-\U000118DF\U0001E900-\U0001E943"

#define NEWLINE "[\\r\\n]"
#define DIGIT "\\p{N}"
#define DIGITS "\\p{N}+"
#define THREE_DIGITS "\\p{N}{1,3}"
#define LETTERS "\\s?[" CASED "]+"
#define ANY_LETTERS "\\s?\\p{L}+"
#define WIDE_PUNCTUATION "\\s?[!-/:-~\uFF01-\uFF0F\uFF1A-\uFF5E\u2018-\u201F\u3000-\u3002]+"
#define ANY_PUNCTUATION "\\s?\\p{P}+"
#define LINE_END "\\s+$"
#define CJK "[\u4E00-\u9FA5\u0800-\u4E00\uAC00-\uD7FF]+"
#define CJK_KANA "[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+"
#define DEEPSEEK_V3                                                                                \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|"                                       \
    "[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|" TAIL

const text_pattern text_patterns[] = {
    {"gpt-2", GPT2, .cut = TEXT_CUT_BEFORE_NEWLINE},
    {"llama-bpe", SHORT "|" LEAD "\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" TAIL,
     .cut = TEXT_CUT_AFTER_NEWLINE},
    {NULL, /* llama.cpp has no name for its possessive form */
     "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}{1,3}|"
     " ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+",
     .cut = TEXT_CUT_AFTER_NEWLINE},
    {"qwen2", SHORT "|" LEAD "\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" TAIL,
     .cut = TEXT_CUT_AFTER_NEWLINE},
    {"qwen35", SHORT "|" LEAD "[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" TAIL,
     .cut = TEXT_CUT_AFTER_NEWLINE},
    {"gpt-4o",
     LEAD UPPER "*" LOWER "+" SHORT "?|" LEAD UPPER "+" LOWER "*" SHORT
                "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" TAIL,
     .cut = TEXT_CUT_AFTER_NEWLINE},
    {"tekken",
     LEAD UPPER "*" LOWER "+|" LEAD UPPER "+" LOWER
                "*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" TAIL,
     .cut = TEXT_CUT_AFTER_NEWLINE},
    {.regex = DIGIT, .cut = TEXT_CUT_AS_NEXT, .gaps = true},
    {.regex = DIGITS, .cut = TEXT_CUT_AS_NEXT, .gaps = true},
    {.regex = THREE_DIGITS, .cut = TEXT_CUT_AS_NEXT, .gaps = true},
    {.regex = CJK, .cut = TEXT_CUT_AS_NEXT, .gaps = true},
    {.regex = CJK_KANA, .cut = TEXT_CUT_AS_NEXT, .gaps = true},
    {.regex = NEWLINE, .cut = TEXT_CUT_AFTER_NEWLINE, .gaps = true},
    {.regex = DEEPSEEK_V3, .cut = TEXT_CUT_AFTER_NEWLINE, .gaps = true},
    {.regex = LETTERS, .cut = TEXT_CUT_NONE, .gaps = true},
    {.regex = ANY_LETTERS, .cut = TEXT_CUT_NONE, .gaps = true},
    {.regex = WIDE_PUNCTUATION, .cut = TEXT_CUT_NONE, .gaps = true},
    {.regex = ANY_PUNCTUATION, .cut = TEXT_CUT_NONE, .gaps = true},
    /* $ is the end of any line where the pattern comes from. Only the first place of a run of white
     * space can match: what is left behind a match has no end of a line in it. */
    {.regex = LINE_END, .runs = "(?<!\\s)\\s+(?m:$)", .cut = TEXT_CUT_NONE, .gaps = true},
    {.regex = NULL},
};

/* Sequences that llama.cpp has a name for. Its deepseek-llm takes numbers whole, where the files of
 * these models take digits: their vocabularies have no token of two digits. */
static const struct {
    const char *name, *regex[TEXT_STAGES_MAX];
} sequences[] = {
    {"smollm", {DIGIT, GPT2}},
    {"deepseek-llm", {NEWLINE, LETTERS, WIDE_PUNCTUATION, LINE_END, CJK, DIGIT}},
    {"deepseek-coder", {NEWLINE, ANY_LETTERS, ANY_PUNCTUATION, CJK, DIGIT}},
    {"deepseek-v3", {THREE_DIGITS, CJK_KANA, DEEPSEEK_V3}},
};

const text_pattern *text_pattern_gpt2(void)
{
    return &text_patterns[0];
}

/* The next part of a regex. A newline is the same as itself and as its escape. */
static unsigned next_part(const char **s)
{
    unsigned part = (unsigned char)*(*s)++;
    if (part != '\\' || !**s)
        return part;
    part = (unsigned char)*(*s)++;
    return part == 'n' ? '\n' : part == 'r' ? '\r' : 0x100 | part;
}

static bool same_regex(const char *a, const char *b)
{
    while (*a && *b)
        if (next_part(&a) != next_part(&b))
            return false;
    return !*a && !*b;
}

const text_pattern *text_pattern_find(const char *regex)
{
    for (const text_pattern *p = text_patterns; p->regex; p++)
        if (same_regex(p->regex, regex))
            return p;
    return NULL;
}

const text_pattern *text_pattern_digits(bool single)
{
    return text_pattern_find(single ? DIGIT : DIGITS);
}

const char *text_stages_name(const text_stages *s)
{
    if (s->n == 1)
        return s->at[0]->name;
    for (size_t i = 0; i < sizeof sequences / sizeof *sequences; i++) {
        text_stages named = {0};
        if (text_stages_find(sequences[i].name, &named) && named.n == s->n &&
            memcmp(named.at, s->at, s->n * sizeof *s->at) == 0)
            return sequences[i].name;
    }
    return NULL;
}

bool text_stages_find(const char *name, text_stages *out)
{
    out->n = 0;
    for (const text_pattern *p = text_patterns; p->regex; p++)
        if (p->name && strcmp(p->name, name) == 0)
            out->at[out->n++] = p;
    for (size_t i = 0; i < sizeof sequences / sizeof *sequences; i++)
        for (size_t k = 0; k < TEXT_STAGES_MAX && strcmp(sequences[i].name, name) == 0; k++)
            if (sequences[i].regex[k])
                out->at[out->n++] = text_pattern_find(sequences[i].regex[k]);
    return out->n > 0;
}

text_cut text_stages_cut(const text_stages *s)
{
    for (uint32_t i = 0; i < s->n; i++)
        if (s->at[i]->cut != TEXT_CUT_AS_NEXT)
            return s->at[i]->cut;
    return TEXT_CUT_NONE;
}

char *text_pattern_spell(const text_pattern *p)
{
    const char *regex = p->runs ? p->runs : p->regex;
    size_t n = strlen(regex), at = 0;
    bool class = false;
    char *out = atom_alloc(n * sizeof SPACE + 1, 1);
    for (const char *s = regex; out && *s; s++) {
        const char *word = NULL;
        if (s[0] == '\\' && (s[1] == 's' || s[1] == 'S'))
            word = class ? SPACE : s[1] == 's' ? "[" SPACE "]" : "[^" SPACE "]";
        if (word) {
            memcpy(out + at, word, strlen(word));
            at += strlen(word);
            s++;
            continue;
        }
        class = *s == '[' || (class && *s != ']');
        out[at++] = *s;
        if (*s == '\\' && s[1])
            out[at++] = *++s;
    }
    if (out)
        out[at] = 0;
    return out;
}
