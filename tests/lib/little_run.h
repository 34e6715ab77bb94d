/*
 * A model of two layers, data and a configuration with which a trainer opens and steps in
 * milliseconds on the CPU. Aborts the test when something fails.
 */
#ifndef TESTS_LIB_LITTLE_RUN_H
#define TESTS_LIB_LITTLE_RUN_H

#include "atom/text/shard.h"
#include "atom/train/trainer.h"
#include "tests/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static inline void must(atom_status st)
{
    if (st != ATOM_OK)
        fail_msg("%s", atom_fail_message());
}

static inline void set(char **text, const char *to)
{
    atom_free(*text);
    *text = atom_strdup(to);
}

/* Opens the scratch directory: config.json, and both splits of a data set in data. */
static inline void little_world(scratch *place)
{
    enum { TOKENS = 6000 };
    static const char model[] =
        "{\"model_type\":\"gpt2\",\"vocab_size\":257,\"n_positions\":16,\"n_embd\":48,\"n_layer\":"
        "2,"
        "\"n_head\":3,\"resid_pdrop\":0.1,\"embd_pdrop\":0.1,\"attn_pdrop\":0.1}";
    static uint32_t ids[TOKENS];
    uint32_t x = 7;
    scratch_open(place);
    must(atom_file_write(scratch_path(place, "config.json"), model, sizeof model - 1));
    must(atom_dir_make(scratch_path(place, "data")));
    for (uint32_t i = 0; i < TOKENS; i++) {
        x = x * 1664525u + 1013904223u;
        ids[i] = i % 3 ? x >> 24 : i % 251;
    }
    for (int val = 0; val < 2; val++) {
        text_shard_writer *out;
        must(text_shard_writer_open(scratch_path(place, "data"), val ? "val" : "train", 257, 0,
                                    &out));
        must(text_shard_writer_put(out, ids, TOKENS));
        must(text_shard_writer_end(out));
        text_shard_writer_close(&out);
    }
}

/* What it trains goes to place/out; train_config_free. */
static inline void little_config(train_config *c, scratch *place, const char *out)
{
    must(train_config_defaults(c));
    set(&c->model, scratch_path(place, "config.json"));
    set(&c->data, scratch_path(place, "data"));
    set(&c->output_dir, scratch_path(place, out));
    set(&c->device, "cpu");
    c->micro_batch_size = 2;
    c->gradient_accumulation_steps = 2;
    c->sequence_len = 16;
    c->warmup_steps = 0;
    c->lr_scheduler = TRAIN_CONSTANT;
    c->dtype = PLAN_DTYPE_FP32;
    c->execute = TRAIN_EXECUTE_INTERPRETED;
    c->threads = 1;
}

#endif
