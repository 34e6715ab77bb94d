/*
 * atom eval: the mean loss of a saved model on a data set, or how often it finds the right answer
 * of several the likeliest. Refuses to change the model.
 */
#include "tools/progress.h"

#include <math.h>
#include <string.h>

static const opt_choice splits[] = {{"val", TEXT_VAL}, {"train", TEXT_TRAIN}, {0}};

static const opt_choice packings[] = {{"auto", TRAIN_PACKING_AUTO},
                                      {"across", TRAIN_PACKING_ACROSS},
                                      {"apart", TRAIN_PACKING_APART},
                                      {0}};

typedef struct eval_values {
    char *model, *adapter;
    char *data, *choices;
    int64_t limit;
    int64_t sequence_len;
    int32_t split, packing;
    int64_t micro_batch_size;
    int64_t batches;
    int32_t dtype;
    char *device;
    uint64_t device_memory, link_bandwidth;
    int64_t threads;
    bool json;
} eval_values;

#define AT(member) .offset = offsetof(eval_values, member)

/* clang-format off */
static const opt_spec specs[] = {
    PLAN_ROW_SAVED_MODEL(.help = "A checkpoint, or a Hugging Face directory or GGUF file of a "
                                 "family that atom supports."),
    PLAN_ROW_ADAPTER,
    {.name = "data", .type = OPT_TEXT, AT(data), .value = "DIR",
     .help = "Measure the loss on this data: a directory made by 'atom data prepare'."},
    {.name = "choices", .type = OPT_TEXT, AT(choices), .value = "FILE",
     .help = "Measure the accuracy on questions: a .jsonl (also as .gz or .zst) or .parquet. "
             "Formats: HellaSwag (ctx, endings, label); question or prompt, choices, answer "
             "(counted from 0, or \"A\"); ARC (question, choices with text and label, "
             "answerKey); PIQA (goal, sol1, sol2, label). acc: how often the right answer has "
             "the largest sum of log-probabilities of its tokens; acc_norm: the same with that "
             "sum divided by the answer's length in characters, as in lm-evaluation-harness. "
             "Question and answer are used as they are, with a space between them, behind the token "
             "that the tokenizer puts in front of every text, if it does (as Llama's)."},
    {.name = "limit", .type = OPT_INT, AT(limit), .fallback = "0", .min = 0, .max = 1e9,
     .help = "With --choices: only the first N questions; 0: all."},
    PLAN_ROW_SEQUENCE_LEN(.fallback = "auto", .flags = OPT_AUTO,
        .help = "Tokens per sequence. auto: the most that the model supports, but at most 2048; "
                "with --choices as long as the longest question. If a question is longer, the "
                "beginning of its context is cut off."),
    {.name = "split", .type = OPT_CHOICE, AT(split), .fallback = "val", .choices = splits,
     .help = "With --data: which part of it."},
    {.name = "packing", .type = OPT_CHOICE, AT(packing), .fallback = "auto", .choices = packings,
     .help = "With --data: whether documents that share a sequence see each other (across) or not "
             "(apart). auto: as the run that made the checkpoint had it, and across for any other "
             "model."},
    PLAN_ROW_MICRO_BATCH_SIZE(.help = "Sequences at a time."),
    {.name = "batches", .type = OPT_INT, AT(batches), .fallback = "0", .min = 0, .max = 1e9,
     .help = "With --data: how many micro-batches to use. 0: the whole split."},
    PLAN_ROW_DTYPE(.help = "auto: bf16 if the device supports it natively, else fp32."),
    PLAN_ROW_DEVICE(.help = "What computes."),
    PLAN_ROW_DEVICE_MEMORY(.help = "Limit for all memory used on the device."),
    PLAN_ROW_LINK_BANDWIDTH(.help = "Slow copies between host and device down to this rate in "
                                    "each direction, to imitate a slower link. "
                                    "On the CPU it has an effect only with --device-memory. auto: full "
                                    "speed."),
    PLAN_ROW_THREADS(.help = "auto: all cores."),
    PLAN_ROW_JSON(.help = "One JSON object on stdout."),
};
/* clang-format on */

static const opt_command options = {
    .name = "eval",
    .summary = "measure the loss or the accuracy of a saved model",
    .description =
        "Needs the weights in host memory: 2 bytes for each parameter in bf16, 4 in fp32. "
        "Where the model is swapped, what crosses between its parts may be there, too (at most "
        "32,768 tokens of it), and on the CPU the device's memory.",
    .examples = "atom eval --model run/checkpoint-100 --data data/ --sequence-len 256\n"
                "atom eval --model run/checkpoint-100 --choices hellaswag_val.jsonl "
                "--micro-batch-size 16\n",
    OPT_TABLE(specs, eval_values),
};

static bool is_given(const opt_parsed *parsed, const char *name)
{
    return parsed->origin[opt_find(&options, name)] != OPT_FROM_DEFAULT;
}

/* One measure, and only options that it has. */
static atom_status check(const eval_values *v, const opt_parsed *parsed)
{
    static const char *const data_only[] = {"split", "batches", "packing"};
    if (v->data && v->choices)
        return atom_fail(ATOM_E_USAGE,
                         "--data measures the loss and --choices the accuracy; give only one of "
                         "them");
    if (!v->data && !v->choices)
        return atom_fail(ATOM_E_USAGE,
                         "there is nothing to measure on; give --data DIR (loss) or --choices "
                         "FILE (accuracy on questions)");
    if (v->data && is_given(parsed, "limit"))
        return atom_fail(ATOM_E_USAGE, "--limit works only with --choices; with --data use "
                                       "--batches");
    for (size_t i = 0; v->choices && i < sizeof data_only / sizeof *data_only; i++)
        if (is_given(parsed, data_only[i]))
            return atom_fail(ATOM_E_USAGE, "--%s works only with --data%s", data_only[i],
                             strcmp(data_only[i], "batches") == 0 ? "; with --choices use --limit"
                                                                  : "");
    return ATOM_OK;
}

/* --- accuracy --------------------------------------------------------------------------------- */

static double token_rate(const eval_choices_result *r)
{
    return r->seconds > 0 ? (double)r->tokens / r->seconds : 0;
}

static void show_progress(void *ctx, const eval_choices_result *r, int64_t of)
{
    char text[256];
    double each = r->seconds / (double)r->questions;
    (void)ctx;
    if (r->questions == 0)
        return;
    snprintf(text, sizeof text, "question %lld of %lld: acc %.3f, %s tokens/s, %s left",
             (long long)r->questions, (long long)of, r->acc, cli_count(token_rate(r)),
             cli_duration(each * (double)(of - r->questions)));
    cli_progress_draw(text, r->questions == of);
}

/* 10042 as "10,042". */
static const char *grouped(int64_t n, char text[32])
{
    char digits[24];
    int count = snprintf(digits, sizeof digits, "%lld", (long long)n), at = 0;
    for (int i = 0; i < count; i++) {
        if (i && (count - i) % 3 == 0)
            text[at++] = ',';
        text[at++] = digits[i];
    }
    text[at] = 0;
    return text;
}

static void print_mean(const char *name, double mean, double error)
{
    cli_print("%s %.4f", name, mean);
    if (isfinite(error))
        cli_print(" +- %.4f", error);
}

static atom_status print_choices(const eval_values *v, const eval_choices_result *r)
{
    char text[32];
    if (v->json)
        return cli_print_json(json_pack(
            "{s:o, s:o, s:o, s:o, s:I, s:I, s:s, s:I, s:I, s:o, s:o}", "acc", cli_real(r->acc),
            "acc_norm", cli_real(r->acc_norm), "acc_stderr", cli_real(r->acc_stderr),
            "acc_norm_stderr", cli_real(r->acc_norm_stderr), "questions", (json_int_t)r->questions,
            "cut_contexts", (json_int_t)r->cut_contexts, "choices", v->choices, "sequence_len",
            (json_int_t)r->sequence, "tokens", (json_int_t)r->tokens, "tokens_per_second",
            cli_real(token_rate(r)), "seconds", cli_real(r->seconds)));
    print_mean("acc", r->acc, r->acc_stderr);
    print_mean(", acc_norm", r->acc_norm, r->acc_norm_stderr);
    cli_print(" (%s question%s)\n", grouped(r->questions, text), r->questions == 1 ? "" : "s");
    cli_print("%s, %s tokens/s in sequences of %lld", cli_seconds(r->seconds),
              cli_count(token_rate(r)), (long long)r->sequence);
    if (r->cut_contexts > 0)
        cli_print("; %s context%s did not fit and lost %s beginning",
                  grouped(r->cut_contexts, text), r->cut_contexts == 1 ? "" : "s",
                  r->cut_contexts == 1 ? "its" : "their");
    cli_print("\n");
    return ATOM_OK;
}

static atom_status run_choices(const eval_values *v)
{
    eval_choices_result result = {0};
    const eval_choices_request request = {
        .model = v->model,
        .file = v->choices,
        .adapter = v->adapter,
        .limit = v->limit,
        .micro_batch = v->micro_batch_size,
        .sequence = v->sequence_len,
        .dtype = v->dtype,
        .device = v->device,
        .device_memory = v->device_memory,
        .link_bandwidth = v->link_bandwidth,
        .threads = v->threads,
        .progress = show_progress,
    };
    atom_status st = eval_choices(&request, &result);
    cli_progress_end();
    return st == ATOM_OK ? print_choices(v, &result) : st;
}

/* --- loss ------------------------------------------------------------------------------------- */

static atom_status run_data(const eval_values *v)
{
    eval_result result = {0};
    const eval_request request = {
        .model = v->model,
        .adapter = v->adapter,
        .data = v->data,
        .split = opt_choice_name(splits, v->split),
        .micro_batch = v->micro_batch_size,
        .sequence = v->sequence_len,
        .batches = v->batches,
        .dtype = v->dtype,
        .device = v->device,
        .device_memory = v->device_memory,
        .link_bandwidth = v->link_bandwidth,
        .threads = v->threads,
        .packing = (train_packing)v->packing,
        .progress = cli_progress,
    };
    atom_status st = eval_loss(&request, &result);
    cli_progress_end();
    if (st != ATOM_OK)
        return st;
    if (v->json)
        return cli_print_json(
            json_pack("{s:o, s:I, s:s, s:s, s:o, s:o}", "loss", cli_real(result.loss), "tokens",
                      (json_int_t)result.tokens, "split", opt_choice_name(splits, v->split),
                      "packing", result.apart ? "apart" : "across", "perplexity",
                      cli_real(exp(result.loss)), "seconds", cli_real(result.seconds)));
    cli_print("loss %.4f over %lld tokens (perplexity %.2f%s), %s\n", result.loss,
              (long long)result.tokens, exp(result.loss),
              result.apart ? ", each document sees only itself" : "", cli_seconds(result.seconds));
    return ATOM_OK;
}

static atom_status run(void *values, const opt_parsed *parsed)
{
    const eval_values *v = values;
    ATOM_TRY(check(v, parsed));
    return v->choices ? run_choices(v) : run_data(v);
}

const cli_command cli_eval = {&options, run};
