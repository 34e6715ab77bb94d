/*
 * Owns metrics.jsonl. One idea: every line is one write, so a crash can cut at most the last one,
 * and resuming removes what lies behind the resumed step; a line that found no room leaves nothing.
 * Refuses NaN in JSON: it is null and named.
 */
#include "atom/train/metrics.h"

#include "atom/base/clock.h"
#include "atom/base/files.h"
#include "atom/base/mem.h"
#include "atom/train/append.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct train_metrics {
    train_append file;
    int64_t validated; /* the last step whose validation was kept; -1: none */
    double validation_loss;
};

char *train_number_text(double value, char buf[32])
{
    if (!isfinite(value)) {
        snprintf(buf, 32, "null");
        return buf;
    }
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(buf, 32, "%.*g", digits, value);
        if (strtod(buf, NULL) == value)
            break;
    }
    return buf;
}

/* The step of a line, or -1 if it is not one of ours. A validation is noted. */
static int64_t line_step(train_metrics *m, const char *line, size_t bytes, int64_t keep_step)
{
    json_t *root = json_loadb(line, bytes, JSON_REJECT_DUPLICATES, NULL);
    const json_t *step = json_object_get(root, "step");
    const char *split = json_string_value(json_object_get(root, "split"));
    int64_t value = json_is_integer(step) ? json_integer_value(step) : -1;
    if (value >= 0 && value <= keep_step && split && strcmp(split, "val") == 0) {
        const json_t *loss = json_object_get(root, "loss");
        m->validated = value;
        m->validation_loss = json_is_number(loss) ? json_number_value(loss) : (double)NAN;
    }
    json_decref(root);
    return value;
}

/* Where the last line to keep ends. */
static atom_status kept_bytes(train_metrics *m, const char *path, int64_t keep_step, off_t *out)
{
    char *line = NULL;
    size_t room = 0;
    off_t kept = 0;
    ssize_t n;
    FILE *f = fopen(path, "re");
    if (!f && errno != ENOENT)
        return atom_fail_errno(errno, "cannot open %s", path);
    while (f && keep_step > 0 && (n = getline(&line, &room, f)) > 0) {
        int64_t step = line[n - 1] == '\n' ? line_step(m, line, (size_t)n, keep_step) : -1;
        if (step < 0 || step > keep_step)
            break;
        kept += n;
    }
    free(line);
    if (f)
        fclose(f);
    *out = kept;
    return ATOM_OK;
}

int64_t train_metrics_first(const char *path)
{
    char line[1024];
    json_t *root = atom_file_line(path, line, sizeof line) ? json_loads(line, 0, NULL) : NULL;
    int64_t step = json_integer_value(json_object_get(root, "step"));
    json_decref(root);
    return step;
}

atom_status train_metrics_open(const char *path, int64_t keep_step, train_metrics **out)
{
    off_t kept = 0;
    atom_status st = ATOM_OK;
    train_metrics *m = atom_alloc(1, sizeof *m);
    if (!m)
        return atom_fail_memory(path, sizeof *m);
    m->file.fd = -1;
    m->validated = -1;
    ATOM_TRY_CLEAN(kept_bytes(m, path, keep_step, &kept));
    ATOM_TRY_CLEAN(train_append_open(&m->file, path, (uint64_t)kept));
    *out = m;
    return ATOM_OK;
cleanup:
    train_metrics_close(&m);
    return st;
}

bool train_metrics_validated(const train_metrics *m, int64_t step, double *loss)
{
    if (m->validated != step)
        return false;
    *loss = m->validation_loss;
    return true;
}

/* A line under construction. */
typedef struct json_line {
    char text[1024];
    size_t used;
    const char *bad_key, *bad_value;
} json_line;

static void add_text(json_line *l, const char *key, const char *value)
{
    int n = snprintf(l->text + l->used, sizeof l->text - l->used, "%c\"%s\":%s",
                     l->used ? ',' : '{', key, value);
    l->used += n > 0 ? (size_t)n : 0;
}

static void add_number(json_line *l, const char *key, double value)
{
    char buf[32];
    add_text(l, key, train_number_text(value, buf));
    if (!isfinite(value) && !l->bad_key) {
        l->bad_key = key;
        l->bad_value = isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
    }
}

static void add_integer(json_line *l, const char *key, int64_t value)
{
    char buf[32];
    snprintf(buf, sizeof buf, "%lld", (long long)value);
    add_text(l, key, buf);
}

static atom_status finish_line(train_metrics *m, json_line *l, const char *split)
{
    char buf[96];
    snprintf(buf, sizeof buf, "%.3f", atom_wall_seconds());
    add_text(l, "time", buf);
    snprintf(buf, sizeof buf, "\"%s\"", split);
    add_text(l, "split", buf);
    if (l->bad_key) {
        snprintf(buf, sizeof buf, "\"%s %s\"", l->bad_key, l->bad_value);
        add_text(l, "nonfinite", buf);
    }
    l->used += (size_t)snprintf(l->text + l->used, sizeof l->text - l->used, "}\n");
    return train_append_write(&m->file, l->text, l->used);
}

atom_status train_metrics_step(train_metrics *m, const train_step_metrics *s)
{
    json_line l = {.used = 0};
    add_integer(&l, "step", s->step);
    add_number(&l, "loss", s->loss);
    add_number(&l, "grad_norm", s->grad_norm);
    add_number(&l, "learning_rate", s->learning_rate);
    add_number(&l, "tokens_per_second", s->seconds > 0 ? (double)s->step_tokens / s->seconds : 0);
    add_number(&l, "seconds", s->seconds);
    add_integer(&l, "tokens", (int64_t)s->tokens);
    if (s->mfu >= 0)
        add_number(&l, "mfu", s->mfu);
    add_integer(&l, "device_bytes", (int64_t)s->device_bytes);
    add_integer(&l, "host_bytes", (int64_t)s->host_bytes);
    return finish_line(m, &l, "train");
}

atom_status train_metrics_eval(train_metrics *m, const train_eval_metrics *e)
{
    json_line l = {.used = 0};
    add_integer(&l, "step", e->step);
    add_number(&l, "loss", e->loss);
    add_integer(&l, "tokens", (int64_t)e->tokens);
    add_number(&l, "seconds", e->seconds);
    return finish_line(m, &l, "val");
}

atom_status train_metrics_sync(train_metrics *m)
{
    return train_append_sync(&m->file);
}

void train_metrics_close(train_metrics **metrics)
{
    train_metrics *m = *metrics;
    if (!m)
        return;
    train_append_close(&m->file);
    atom_free(m);
    *metrics = NULL;
}

double train_flops_per_token(const graph_config *c, int64_t sequence_len)
{
    /* a lookup is not a product: positions, and an embedding that is not the head */
    bool gpt2 = c->family == GRAPH_GPT2;
    double rows = (gpt2 ? (double)c->positions : 0) + (c->untied ? (double)c->vocab_size : 0);
    double looked_up = rows * (double)c->width;
    double heads = gpt2 ? (double)c->width : (double)(c->heads * c->head_dim);
    return 6 * ((double)graph_model_params(c) - looked_up) +
           12 * (double)c->layers * heads * (double)sequence_len;
}

double train_mfu(double flops_per_token, double tokens_per_second, double peak_flops)
{
    return peak_flops > 0 ? flops_per_token * tokens_per_second / peak_flops : -1;
}
