/* What the tests of generation share: a request, and who listens to the text. */
#ifndef TESTS_UNIT_GENERATE_COMMON_H
#define TESTS_UNIT_GENERATE_COMMON_H

#include "atom/generate/generate.h"
#include "atom/plan/workbench.h"
#include "atom/text/utf8.h"
#include "tests/lib/model_dir.h"
#include "tests/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { END = 256, POSITIONS = 24, BYTES_MAX = 4096 };

/* What emit was called with. */
typedef struct heard {
    char text[BYTES_MAX];
    size_t bytes;
    int calls;
} heard;

static inline void listen(void *ctx, const char *text, size_t bytes)
{
    heard *h = ctx;
    assert_true(bytes > 0);
    assert_int_equal(text_utf8_check(text, bytes), bytes);
    assert_true(h->bytes + bytes < BYTES_MAX);
    memcpy(h->text + h->bytes, text, bytes);
    h->bytes += bytes;
    h->calls++;
}

static inline generate_request request_of(const char *dir, const char *prompt, int64_t max_tokens)
{
    return (generate_request){.model = dir,
                              .prompt = prompt,
                              .max_tokens = max_tokens,
                              .temperature = 1,
                              .top_p = 1,
                              .seed = 1,
                              .dtype = PLAN_DTYPE_FP32,
                              .threads = 2,
                              .stop_at_end = true};
}

#endif
