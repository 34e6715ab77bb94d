/*
 * Owns the table of pre-tokenizer patterns. One idea: only patterns of this table are run, because
 * for these it is known that they cover every text, agree between regex engines, take linear time,
 * and where a text may be cut. Refuses others by not finding them.
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
#define LEAD "[^\\r\\n\\p{L}\\p{N}]?"

const text_pattern text_patterns[] = {
    {"gpt-2", "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
     TEXT_CUT_BEFORE_NEWLINE},
    {"llama-bpe", SHORT "|" LEAD "\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" TAIL,
     TEXT_CUT_AFTER_NEWLINE},
    {"", /* llama.cpp has no name for its possessive form */
     "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}{1,3}|"
     " ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+",
     TEXT_CUT_AFTER_NEWLINE},
    {"qwen2", SHORT "|" LEAD "\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" TAIL,
     TEXT_CUT_AFTER_NEWLINE},
    {"qwen35", SHORT "|" LEAD "[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" TAIL,
     TEXT_CUT_AFTER_NEWLINE},
    {"gpt-4o",
     LEAD UPPER "*" LOWER "+" SHORT "?|" LEAD UPPER "+" LOWER "*" SHORT
                "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" TAIL,
     TEXT_CUT_AFTER_NEWLINE},
    {"tekken",
     LEAD UPPER "*" LOWER "+|" LEAD UPPER "+" LOWER
                "*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" TAIL,
     TEXT_CUT_AFTER_NEWLINE},
    {NULL, NULL, TEXT_CUT_NONE},
};

const text_pattern *text_pattern_gpt2(void)
{
    return &text_patterns[0];
}

const text_pattern *text_pattern_find(const char *regex)
{
    for (const text_pattern *p = text_patterns; p->name; p++)
        if (strcmp(p->regex, regex) == 0)
            return p;
    return NULL;
}

char *text_pattern_spell(const text_pattern *p)
{
    size_t n = strlen(p->regex), at = 0;
    bool class = false;
    char *out = atom_alloc(n * sizeof SPACE + 1, 1);
    for (const char *s = p->regex; out && *s; s++) {
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
