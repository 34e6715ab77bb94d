/*
 * Owns regular expressions over names of modules. One idea: a pattern comes from a file that nobody
 * trusts, so what it may cost is limited. Refuses patterns that PCRE2 does not read.
 */
#include "atom/file/pattern.h"

#include "atom/base/mem.h"
#include "atom/base/regex.h"

#include <stdlib.h>
#include <string.h>

enum { STEPS_MAX = 100000, DEPTH_MAX = 1000, TEXT_MAX = 65536 };

struct file_pattern {
    char *where, *text;
    atom_regex regex;
    pcre2_match_context *limits;
};

static atom_status compile(file_pattern *p)
{
    int refused = 0;
    PCRE2_UCHAR said[128] = "";
    ATOM_TRY(
        atom_regex_open("a pattern", p->text, PCRE2_UTF | PCRE2_ANCHORED, &p->regex, &refused));
    if (refused) {
        pcre2_get_error_message(refused, said, sizeof said);
        return atom_fail(ATOM_E_FORMAT, "%s: \"%.64s\" is not a regular expression: %s", p->where,
                         p->text, (const char *)said);
    }
    p->limits = pcre2_match_context_create(p->regex.memory);
    if (!p->limits)
        return atom_fail_memory("a pattern", strlen(p->text));
    pcre2_set_match_limit(p->limits, STEPS_MAX);
    pcre2_set_depth_limit(p->limits, DEPTH_MAX);
    return ATOM_OK;
}

atom_status file_pattern_open(const char *where, const char *text, file_pattern **out)
{
    atom_status st;
    if (strlen(text) > TEXT_MAX)
        return atom_fail(ATOM_E_FORMAT, "%s: a pattern is longer than %d characters", where,
                         TEXT_MAX);
    file_pattern *p = atom_alloc(1, sizeof *p);
    if (p) {
        p->where = atom_strdup(where);
        p->text = atom_strdup(text);
    }
    if (!p || !p->where || !p->text)
        ATOM_TRY_CLEAN(atom_fail_memory("a pattern", strlen(text)));
    ATOM_TRY_CLEAN(compile(p));
    *out = p;
    p = NULL;
cleanup:
    file_pattern_close(&p);
    return st;
}

void file_pattern_close(file_pattern **pattern)
{
    file_pattern *p = *pattern;
    if (!p)
        return;
    pcre2_match_context_free(p->limits);
    atom_regex_close(&p->regex);
    atom_free(p->where);
    atom_free(p->text);
    atom_free(p);
    *pattern = NULL;
}

static atom_status run(file_pattern *p, const char *name, uint32_t options, bool *matches)
{
    int n = pcre2_match(p->regex.code, (PCRE2_SPTR)name, strlen(name), 0, options, p->regex.match,
                        p->limits);
    if (n < 0 && n != PCRE2_ERROR_NOMATCH)
        return atom_fail(ATOM_E_FORMAT,
                         "%s: \"%.64s\" takes too long to match \"%.64s\"; write a simpler "
                         "pattern",
                         p->where, p->text, name);
    *matches = n >= 0;
    return ATOM_OK;
}

atom_status file_pattern_whole(file_pattern *p, const char *name, bool *matches)
{
    return run(p, name, PCRE2_ENDANCHORED, matches);
}

atom_status file_pattern_number(file_pattern *p, const char *name, int64_t *number)
{
    bool matches = false;
    *number = -1;
    ATOM_TRY(run(p, name, 0, &matches));
    const PCRE2_SIZE *at = pcre2_get_ovector_pointer(p->regex.match);
    if (matches && pcre2_get_ovector_count(p->regex.match) > 1 && at[2] < at[3])
        *number = strtoll(name + at[2], NULL, 10);
    return ATOM_OK;
}
