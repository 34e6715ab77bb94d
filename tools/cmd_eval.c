/*
 * atom eval: the mean loss of a saved model on a data set. Refuses to change the model.
 */
#include "tools/cli.h"

#include <math.h>
#include <string.h>

static const char *const dtypes[] = {"auto", "fp32", "bf16", NULL};
static const char *const devices[] = {"auto", "cpu", "cuda", NULL};
static const char *const splits[] = {"val", "train", NULL};

typedef struct eval_values {
    char *model, *adapter;
    char *data;
    int64_t sequence_len;
    int32_t split;
    int64_t micro_batch_size;
    int64_t batches;
    int32_t dtype;
    char *device;
    uint64_t device_memory;
    int64_t threads;
    bool json;
} eval_values;

#define AT(member) .offset = offsetof(eval_values, member)

static const opt_spec specs[] = {
    {.name = "model",
     .type = OPT_TEXT,
     AT(model),
     .value = "DIR",
     .flags = OPT_REQUIRED,
     .help = "A checkpoint, or a Hugging Face directory of a family that atom knows."},
    {.name = "adapter",
     .type = OPT_TEXT,
     AT(adapter),
     .value = "DIR",
     .help = "A PEFT directory with a LoRA adapter of the model, to merge into it. An adapter's "
             "directory as --model says the same, where it names its model."},
    {.name = "data",
     .type = OPT_TEXT,
     AT(data),
     .value = "DIR",
     .flags = OPT_REQUIRED,
     .help = "Directory made by 'atom data prepare'."},
    {.name = "sequence_len",
     .type = OPT_INT,
     AT(sequence_len),
     .fallback = "auto",
     .min = 1,
     .max = 1 << 20,
     .flags = OPT_AUTO,
     .help = "Tokens per sequence. auto: the model's longest, at most 2048."},
    {.name = "split",
     .type = OPT_CHOICE,
     AT(split),
     .fallback = "val",
     .choices = splits,
     .help = "Which part of the data."},
    {.name = "micro_batch_size",
     .type = OPT_INT,
     AT(micro_batch_size),
     .fallback = "4",
     .min = 1,
     .max = 65536,
     .help = "Sequences at a time."},
    {.name = "batches",
     .type = OPT_INT,
     AT(batches),
     .fallback = "0",
     .min = 0,
     .max = 1e9,
     .help = "How many micro-batches; 0: all of the split."},
    {.name = "dtype",
     .type = OPT_CHOICE,
     AT(dtype),
     .fallback = "auto",
     .choices = dtypes,
     .help = "auto: bf16 where the device has it natively, else fp32."},
    {.name = "device",
     .type = OPT_TEXT,
     AT(device),
     .fallback = "auto",
     .value = "auto|cpu|cuda[:N]",
     .choices = devices,
     .help = "What computes."},
    {.name = "device_memory",
     .type = OPT_SIZE,
     AT(device_memory),
     .fallback = "auto",
     .min = 1,
     .max = 0x1p62,
     .flags = OPT_AUTO,
     .help = "Cap on all memory used on the device."},
    {.name = "threads",
     .type = OPT_INT,
     AT(threads),
     .fallback = "auto",
     .min = 1,
     .max = 1024,
     .flags = OPT_AUTO,
     .help = "auto: all cores."},
    {.name = "json", .type = OPT_FLAG, AT(json), .help = "One JSON object on stdout."},
};

static const opt_command options = {
    .name = "eval",
    .summary = "measure the loss of a saved model",
    .examples = "atom eval --model run/checkpoint-100 --data data/ --sequence-len 256\n",
    OPT_TABLE(specs, eval_values),
};

static atom_status run(void *values, const opt_parsed *parsed)
{
    (void)parsed;
    const eval_values *v = values;
    train_eval_result result = {0};
    const train_eval_request request = {
        .model = v->model,
        .adapter = v->adapter,
        .data = v->data,
        .split = splits[v->split],
        .micro_batch = v->micro_batch_size,
        .sequence = v->sequence_len,
        .batches = v->batches,
        .dtype = v->dtype,
        .device = v->device,
        .device_memory = v->device_memory,
        .threads = v->threads,
    };
    atom_status st = train_evaluate(&request, &result);
    if (st != ATOM_OK)
        return st;
    if (v->json)
        return cli_print_json(json_pack("{s:o, s:I, s:s, s:o, s:o}", "loss", cli_real(result.loss),
                                        "tokens", (json_int_t)result.tokens, "split",
                                        splits[v->split], "perplexity", cli_real(exp(result.loss)),
                                        "seconds", cli_real(result.seconds)));
    cli_print("loss %.4f over %lld tokens (perplexity %.2f), %s\n", result.loss,
              (long long)result.tokens, exp(result.loss), cli_seconds(result.seconds));
    return ATOM_OK;
}

const cli_command cli_eval = {&options, run};
