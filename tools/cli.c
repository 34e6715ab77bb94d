/*
 * Owns the program's stdout, and the check of what comes from stdin. One idea: what was printed only counts
 * once it is written, so failures of stdout (a full disk, a closed pipe) surface as the command's own
 * failure. Refuses to log: that is atom_log, on stderr.
 */
#include "tools/cli.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void cli_print(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    (void)vfprintf(stdout, fmt, args); /* cli_flush looks at ferror */
    va_end(args);
}

atom_status cli_print_json(json_t *object)
{
    char *text = object ? json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(object);
    if (!text)
        return atom_fail_memory("the result as JSON", 0);
    cli_print("%s\n", text);
    free(text);
    return ATOM_OK;
}

atom_status cli_flush(void)
{
    errno = 0;
    bool bad = ferror(stdout) != 0;
    bad = fflush(stdout) != 0 || bad;
    if (!bad)
        return ATOM_OK;
    if (errno == EPIPE)
        return atom_fail(ATOM_E_RUNTIME, "%s", "");
    return atom_fail_errno(errno ? errno : EIO, "cannot write to stdout");
}

atom_status cli_put_text(const char *text, const char *path)
{
    if (path)
        return atom_file_write(path, text, strlen(text));
    size_t n = strlen(text);
    cli_print("%s%s", text, n && text[n - 1] == '\n' ? "" : "\n");
    return ATOM_OK;
}

#define AT(member) .offset = offsetof(cli_json, member)
const opt_spec cli_json_row = PLAN_ROW_JSON(.help = "One JSON object on stdout.");

atom_status cli_graph(const char *model, atom_dtype dtype, int64_t micro_batch, int64_t sequence,
                      const file_lora_keys *lora, graph **out)
{
    file_model resolved = {0};
    graph *plain = NULL;
    file_lora settings = {0};
    atom_status st = ATOM_OK;
    ATOM_TRY(plan_lora_check(NULL, lora));
    ATOM_TRY(file_model_resolve(model, &resolved));
    if (sequence < 0)
        sequence = graph_model_usual(&resolved.config);
    if (lora->r > 0) {
        ATOM_TRY_CLEAN(file_lora_make(lora, NULL, &settings));
        ATOM_TRY_CLEAN(file_lora_untie(&settings, &resolved.config));
    }
    ATOM_TRY_CLEAN(graph_model_build(&resolved.config, dtype, micro_batch, sequence, &plain));
    if (lora->r > 0) {
        ATOM_TRY_CLEAN(file_lora_graph(plain, &settings, out));
    } else {
        ATOM_TRY_CLEAN(graph_fuse(plain, out));
    }
cleanup:
    file_lora_free(&settings);
    graph_close(&plain);
    file_model_free(&resolved);
    return st;
}

enum { BUFFERS = 16, BUFFER_BYTES = 32 };

/* The next of a few buffers, so that one printf can hold several texts. */
static char *buffer_next(void)
{
    static char buffers[BUFFERS][BUFFER_BYTES];
    static unsigned next;
    return buffers[next++ % BUFFERS];
}

const char *cli_size(uint64_t bytes)
{
    return atom_size_text(bytes, buffer_next());
}

const char *cli_seconds(double seconds)
{
    char *text = buffer_next();
    if (!isfinite(seconds))
        snprintf(text, BUFFER_BYTES, "?");
    else if (seconds >= 100)
        snprintf(text, BUFFER_BYTES, "%.0f s", seconds);
    else if (seconds >= 0.9995) /* else three digits of it were 1e+03 */
        snprintf(text, BUFFER_BYTES, "%.2f s", seconds);
    else if (seconds >= 0.9995e-3)
        snprintf(text, BUFFER_BYTES, "%.3g ms", seconds * 1e3);
    else
        snprintf(text, BUFFER_BYTES, "%.3g us", seconds * 1e6);
    return text;
}

const char *cli_duration(double seconds)
{
    char *text = buffer_next();
    if (!isfinite(seconds) || seconds < 0)
        snprintf(text, BUFFER_BYTES, "?");
    else if (seconds < 99.5)
        snprintf(text, BUFFER_BYTES, "%.0f s", seconds);
    else if (seconds < 99.5 * 60)
        snprintf(text, BUFFER_BYTES, "%.0f min", seconds / 60);
    else if (seconds < 2 * 86400)
        snprintf(text, BUFFER_BYTES, "%.0f h %.0f min", floor(seconds / 3600),
                 floor(fmod(seconds, 3600) / 60));
    else
        snprintf(text, BUFFER_BYTES, "%.0f days", seconds / 86400);
    return text;
}

const char *cli_count(double count)
{
    static const char *const units[] = {"", " k", " M", " G", " T", " P"};
    char *text = buffer_next();
    int unit = 0;
    while (fabs(count) >= (unit ? 999.5 : 1000) && unit < 5) {
        count /= 1000;
        unit++;
    }
    if (!unit)
        snprintf(text, BUFFER_BYTES, "%.4g", count);
    else
        snprintf(text, BUFFER_BYTES, "%.*f%s",
                 count < 10    ? 2
                 : count < 100 ? 1
                               : 0,
                 count, units[unit]);
    return text;
}

json_t *cli_real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

bool cli_is_warning(const char *text)
{
    static const char *const starts[] = {"resume: ", "warning: ", "note: "};
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++)
        if (strncmp(text, starts[i], strlen(starts[i])) == 0)
            return true;
    return false;
}

atom_status cli_take_text(char *text, size_t bytes, bool first, const char *where)
{
    static const char mark[] = "\xef\xbb\xbf";
    size_t good = text_utf8_check(text, bytes);
    if (good == bytes && strlen(text) == bytes) {
        if (first && strncmp(text, mark, sizeof mark - 1) == 0)
            memmove(text, text + sizeof mark - 1, bytes + 1 - (sizeof mark - 1));
        return ATOM_OK;
    }
    if (good == bytes)
        good = strlen(text);
    bool wide = memchr(text, 0, bytes) || strncmp(text, "\xff\xfe", 2) == 0;
    return atom_fail(ATOM_E_FORMAT,
                     "%s: not text in UTF-8 at byte %zu (0x%02x); convert it, for example with "
                     "iconv -f %s -t UTF-8",
                     where, good, (unsigned char)text[good], wide ? "UTF-16" : "LATIN1");
}
