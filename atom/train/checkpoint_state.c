/*
 * Owns atom_state.json: the step, and how it was trained. One idea: what a run can change when it goes
 * on stands in it, so that it can be told what it changes. Refuses another version, and to guess what
 * an older atom did not write.
 */
#include "atom/train/checkpoint.h"

#include "atom/base/files.h"
#include "atom/base/json.h"
#include "atom/base/mem.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How it was trained; NaN where a checkpoint of an older atom does not say. */
static const struct {
    const char *key;
    size_t at;
} numbers[] = {{"learning_rate", offsetof(train_state, learning_rate)},
               {"weight_decay", offsetof(train_state, weight_decay)},
               {"max_grad_norm", offsetof(train_state, max_grad_norm)},
               {"adam_beta1", offsetof(train_state, adam_beta1)},
               {"adam_beta2", offsetof(train_state, adam_beta2)},
               {"adam_epsilon", offsetof(train_state, adam_epsilon)},
               {"muon_momentum", offsetof(train_state, muon_momentum)},
               {"warmup_steps", offsetof(train_state, warmup_steps)},
               {"min_lr_ratio", offsetof(train_state, min_lr_ratio)},
               {"decay_ratio", offsetof(train_state, decay_ratio)},
               {"embd_pdrop", offsetof(train_state, embd_pdrop)},
               {"attn_pdrop", offsetof(train_state, attn_pdrop)},
               {"resid_pdrop", offsetof(train_state, resid_pdrop)}};
enum { NUMBERS = sizeof numbers / sizeof *numbers };

static atom_status write_json(const char *dir, const char *name, json_t *root)
{
    char *path = atom_path_join(dir, name);
    if (!path) {
        json_decref(root);
        return atom_fail_memory("a path", strlen(dir));
    }
    atom_status st = atom_json_save(root, JSON_INDENT(2) | JSON_REAL_PRECISION(17), "", path);
    atom_free(path);
    return st;
}

static json_t *number_or_null(double x)
{
    return isfinite(x) ? json_real(x) : json_null();
}

/* "weights_sum": "NUMBERS SUM", both of 16 hex digits. */
static int put_sum(json_t *root, const char *what, train_sum s)
{
    char key[32], text[40];
    snprintf(key, sizeof key, "%s_sum", what);
    snprintf(text, sizeof text, "%016" PRIx64 " %016" PRIx64, s.n, s.sum);
    return s.n ? json_object_set_new(root, key, json_string(text)) : 0;
}

atom_status train_state_write(const char *dir, const char *name, const train_state *s)
{
    char seed[24], hash[24], contents[24], weights[24], moments[24];
    snprintf(seed, sizeof seed, "%016" PRIx64, s->seed);
    snprintf(hash, sizeof hash, "%016" PRIx64, s->data_hash);
    snprintf(contents, sizeof contents, "%016" PRIx64, s->data_contents);
    snprintf(weights, sizeof weights, "%016" PRIx64, s->weights_mark);
    snprintf(moments, sizeof moments, "%016" PRIx64, s->moments_mark);
    json_t *root = json_pack(
        "{s:i, s:I, s:I, s:I, s:s, s:s, s:I, s:I, s:I, s:I, s:o, s:s, s:s, s:s, s:s, s:s*, s:s*, "
        "s:s*, s:s*, s:s*, s:s*}",
        "atom_state", TRAIN_STATE_VERSION, "step", (json_int_t)s->step, "samples",
        (json_int_t)s->samples, "tokens_seen", (json_int_t)s->tokens_seen, "seed", seed,
        "data_hash", hash, "micro_batch_size", (json_int_t)s->micro_batch, "sequence_len",
        (json_int_t)s->sequence, "gradient_accumulation_steps", (json_int_t)s->micro_batches,
        "max_steps", (json_int_t)s->max_steps, "loss", number_or_null(s->loss), "lr_scheduler",
        s->lr_scheduler, "dtype", s->dtype, "optimizer", s->optimizer, "packing", s->packing,
        "compress_boundaries", s->compress_boundaries[0] ? s->compress_boundaries : NULL, "at",
        s->at[0] ? s->at : NULL, "data_contents", s->data_contents ? contents : NULL, "weights",
        s->weights_mark ? weights : NULL, "moments", s->moments_mark ? moments : NULL, "base",
        s->base[0] ? s->base : NULL);
    int failed = !root || put_sum(root, "weights", s->weights_sum) < 0 ||
                 put_sum(root, "moments", s->moments_sum) < 0;
    for (int i = 0; i < NUMBERS && !failed; i++) {
        double number;
        memcpy(&number, (const char *)s + numbers[i].at, sizeof number);
        failed = json_object_set_new(root, numbers[i].key, number_or_null(number));
    }
    if (failed) {
        json_decref(root);
        return atom_fail_memory("a checkpoint", 0);
    }
    return write_json(dir, name, root);
}

atom_status train_trainer_state_write(const char *dir, const train_state *s)
{
    return write_json(dir, "trainer_state.json",
                      json_pack("{s:I, s:I, s:I, s:[{s:I, s:o}]}", "global_step",
                                (json_int_t)s->step, "max_steps", (json_int_t)s->max_steps,
                                "num_input_tokens_seen", (json_int_t)s->tokens_seen, "log_history",
                                "step", (json_int_t)s->step, "loss", number_or_null(s->loss)));
}

/* What older checkpoints do not have. */
static double get_real(const json_t *root, const char *key)
{
    const json_t *value = json_object_get(root, key);
    return json_is_number(value) ? json_number_value(value) : (double)NAN;
}

static void get_word(const json_t *root, const char *key, char *word, size_t bytes)
{
    const char *text = json_string_value(json_object_get(root, key));
    snprintf(word, bytes, "%s", text && strlen(text) < bytes ? text : "");
}

static atom_status get_hex(const char *path, const json_t *root, const char *key, uint64_t *out)
{
    const char *text = json_string_value(json_object_get(root, key));
    char *end = NULL;
    if (!text || strlen(text) != 16)
        return atom_fail(ATOM_E_FORMAT, "%s: '%s' is missing or not 16 hex digits", path, key);
    *out = strtoull(text, &end, 16);
    return *end ? atom_fail(ATOM_E_FORMAT, "%s: '%s' is not 16 hex digits", path, key) : ATOM_OK;
}

static atom_status get_sum(const char *path, const json_t *root, const char *key, train_sum *out)
{
    const json_t *value = json_object_get(root, key);
    const char *text = json_string_value(value);
    if (!value)
        return ATOM_OK;
    if (!text || strlen(text) != 33 || strspn(text, "0123456789abcdef") != 16 || text[16] != ' ' ||
        strspn(text + 17, "0123456789abcdef") != 16)
        return atom_fail(ATOM_E_FORMAT, "%s: '%s' is not two words of 16 hex digits", path, key);
    *out = (train_sum){strtoull(text, NULL, 16), strtoull(text + 17, NULL, 16)};
    return ATOM_OK;
}

static atom_status parse_fields(const char *path, const json_t *root, train_state *s)
{
    int64_t version = 0;
    ATOM_TRY(atom_json_int(path, root, "atom_state", 0, INT64_MAX, &version));
    if (version != TRAIN_STATE_VERSION)
        return atom_fail(ATOM_E_FORMAT,
                         "%s: it is of version %lld, but this atom reads version %d; use the "
                         "atom that wrote it",
                         path, (long long)version, TRAIN_STATE_VERSION);
    ATOM_TRY(atom_json_int(path, root, "step", 0, INT64_MAX, &s->step));
    ATOM_TRY(atom_json_int(path, root, "samples", 0, INT64_MAX, &s->samples));
    ATOM_TRY(atom_json_int(path, root, "tokens_seen", 0, INT64_MAX, &s->tokens_seen));
    ATOM_TRY(atom_json_int(path, root, "micro_batch_size", 0, INT64_MAX, &s->micro_batch));
    ATOM_TRY(atom_json_int(path, root, "sequence_len", 0, INT64_MAX, &s->sequence));
    ATOM_TRY(
        atom_json_int(path, root, "gradient_accumulation_steps", 0, INT64_MAX, &s->micro_batches));
    ATOM_TRY(atom_json_int(path, root, "max_steps", 0, INT64_MAX, &s->max_steps));
    ATOM_TRY(get_hex(path, root, "seed", &s->seed));
    ATOM_TRY(get_hex(path, root, "data_hash", &s->data_hash));
    if (json_object_get(root, "data_contents"))
        ATOM_TRY(get_hex(path, root, "data_contents", &s->data_contents));
    if (json_object_get(root, "weights"))
        ATOM_TRY(get_hex(path, root, "weights", &s->weights_mark));
    if (json_object_get(root, "moments"))
        ATOM_TRY(get_hex(path, root, "moments", &s->moments_mark));
    ATOM_TRY(get_sum(path, root, "weights_sum", &s->weights_sum));
    ATOM_TRY(get_sum(path, root, "moments_sum", &s->moments_sum));
    s->loss = get_real(root, "loss");
    for (int i = 0; i < NUMBERS; i++) {
        double number = get_real(root, numbers[i].key);
        memcpy((char *)s + numbers[i].at, &number, sizeof number);
    }
    get_word(root, "lr_scheduler", s->lr_scheduler, sizeof s->lr_scheduler);
    get_word(root, "dtype", s->dtype, sizeof s->dtype);
    get_word(root, "optimizer", s->optimizer, sizeof s->optimizer);
    get_word(root, "packing", s->packing, sizeof s->packing);
    get_word(root, "compress_boundaries", s->compress_boundaries, sizeof s->compress_boundaries);
    get_word(root, "at", s->at, sizeof s->at);
    get_word(root, "base", s->base, sizeof s->base);
    return ATOM_OK;
}

atom_status train_state_parse(const char *path, const char *text, size_t bytes, train_state *state)
{
    train_state parsed = {0};
    json_t *root = NULL;
    ATOM_TRY(atom_json_parse(path, text, bytes, 0, &root));
    atom_status st = parse_fields(path, root, &parsed);
    json_decref(root);
    if (st == ATOM_OK)
        *state = parsed;
    return st;
}

atom_status train_state_read(const char *path, train_state *state)
{
    char *text = NULL;
    uint64_t bytes;
    ATOM_TRY(atom_file_read(path, 1 << 20, &text, &bytes));
    atom_status st = train_state_parse(path, text, bytes, state);
    atom_free(text);
    return st;
}

static char *disk_state_name(uint32_t generation)
{
    return atom_format("optimizer-%u.json", generation);
}

atom_status train_disk_state_write(const char *output_dir, uint32_t generation,
                                   const train_state *state)
{
    char *name = disk_state_name(generation);
    if (!name)
        return atom_fail_memory("a file name", 32);
    atom_status st = train_state_write(output_dir, name, state);
    atom_free(name);
    return st;
}

atom_status train_disk_state_find(const char *output_dir, uint32_t generation, train_state *state)
{
    char *name = disk_state_name(generation);
    char *path = name ? atom_path_join(output_dir, name) : NULL;
    atom_status st = path ? train_state_read(path, state) : atom_fail_memory("a file name", 32);
    atom_free(name);
    atom_free(path);
    return st;
}

atom_status train_disk_state_read(const char *output_dir, uint32_t generation, int64_t step,
                                  train_state *state)
{
    ATOM_TRY(train_disk_state_find(output_dir, generation, state));
    if (state->step != step)
        return atom_fail(ATOM_E_FORMAT,
                         "%s/optimizer-%u.json says step %lld, but the store is at step %lld",
                         output_dir, generation, (long long)state->step, (long long)step);
    return ATOM_OK;
}
