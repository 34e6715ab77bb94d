/*
 * Owns how PCRE2 is opened. One idea: it takes its memory where everybody takes it, so that it is counted
 * and can run out in tests. Refuses nothing: what PCRE2 refuses is the caller's to say.
 */
#include "atom/base/regex.h"

#include "atom/base/mem.h"

#include <string.h>

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

atom_status atom_regex_open(const char *what, const char *text, uint32_t flags, atom_regex *out,
                            int *refused)
{
    pcre2_compile_context *options = NULL;
    PCRE2_SIZE at = 0;
    int error = PCRE2_ERROR_HEAP_FAILED;
    atom_regex r = {.memory = pcre2_general_context_create(take, give, NULL)};
    if (r.memory)
        options = pcre2_compile_context_create(r.memory);
    if (options) {
        pcre2_set_newline(options, PCRE2_NEWLINE_LF);
        r.code = pcre2_compile((PCRE2_SPTR)text, strlen(text), flags, &error, &at, options);
        pcre2_compile_context_free(options);
    }
    if (r.code)
        r.match = pcre2_match_data_create_from_pattern(r.code, r.memory);
    *refused = r.code || error == PCRE2_ERROR_HEAP_FAILED ? 0 : error;
    if (!r.match && !*refused) {
        atom_regex_close(&r);
        return atom_fail_memory(what, strlen(text));
    }
    *out = r;
    return ATOM_OK;
}

void atom_regex_close(atom_regex *r)
{
    pcre2_match_data_free(r->match);
    pcre2_code_free(r->code);
    pcre2_general_context_free(r->memory);
    *r = (atom_regex){0};
}
