/*
 * atom generate: text from a saved model, as it is made. Refuses to pretend: what is printed after
 * the prompt is what was sampled, and nothing else; and what comes through a pipe is the prompt, not
 * nothing.
 */
#include "tools/chat.h"
#include "tools/cli.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct generate_values {
    char *model, *adapter;
    char *prompt, *system;
    int32_t template; /* of templates */
    char *template_vars;
    int32_t special_tokens; /* text_special_rule */
    bool chat;
    int64_t max_tokens;
    double temperature;
    int64_t top_k;
    double top_p, min_p, repetition_penalty;
    int64_t seed;
    bool ignore_end;
    char *stop;
    int32_t dtype;
    uint64_t device_memory;
    int64_t threads;
    bool json;
} generate_values;

#define AT(member) .offset = offsetof(generate_values, member)

static const opt_choice templates[] = {{"auto", 0},    {"chatml", 1}, {"llama3", 2},
                                       {"mistral", 3}, {"plain", 4},  {0}};
static const opt_choice rules[] = {{"bytes", TEXT_SPECIAL_BYTES}, {"ids", TEXT_SPECIAL_IDS}, {0}};
static const char *const length_names[] = {"max_new_tokens", NULL};

/* clang-format off */
static const opt_spec specs[] = {
    PLAN_ROW_SAVED_MODEL(.help = "A checkpoint, or a Hugging Face directory or GGUF file of a "
                                 "family that atom supports, with its tokenizer."),
    PLAN_ROW_ADAPTER,
    {.name = "prompt", .type = OPT_TEXT, AT(prompt), .fallback = "", .value = "TEXT", .letter = 'p',
     .help = "The text to continue. Empty: start a new document. Without it (and without --chat) the "
             "text is read from standard input if that is a pipe or a file; one line end at its end "
             "is left out. The token that the tokenizer puts in front of every text (as Llama's "
             "does) stands in front of it."},
    {.name = "special_tokens", .type = OPT_CHOICE, AT(special_tokens), .fallback = "bytes",
     .choices = rules,
     .help = "What to do if the prompt contains the name of a special token, such as <|im_start|>. "
             "bytes: treat it as ordinary text. ids: make it that token. With --chat it is always "
             "text."},
    {.name = "chat", .type = OPT_FLAG, AT(chat),
     .help = "Treat the prompt as a message, which the model answers, formatted with its own "
             "chat template. Without a prompt: a conversation in which each line of standard "
             "input (terminal, pipe or file) is a message, and answers may be as long as the "
             "context allows."},
    {.name = "system", .type = OPT_TEXT, AT(system), .value = "TEXT",
     .help = "With --chat: the system's message."},
    {.name = "template", .type = OPT_CHOICE, AT(template), .fallback = "auto", .choices = templates,
     .help = "With --chat: how messages become tokens. auto: by the model's own chat template. "
             "If it has none, name one of the others."},
    {.name = "template_vars", .type = OPT_TEXT, AT(template_vars), .value = "JSON",
     .help = "With --chat: variables of the chat template, such as {\"enable_thinking\": false}."},
    {.name = "max_tokens", .type = OPT_INT, AT(max_tokens), .fallback = "100", .min = 1,
     .max = 1 << 20, .value = "N", .aliases = length_names, .letter = 'n',
     .help = "The largest number of tokens to generate."},
    {.name = "temperature", .type = OPT_NUMBER, AT(temperature), .fallback = "0.8", .min = 0,
     .max = 100, .group = "Sampling",
     .help = "0: always take the most likely token; 1: use the model's own probabilities."},
    {.name = "top_k", .type = OPT_INT, AT(top_k), .fallback = "0", .min = 0, .max = 1 << 24,
     .help = "Choose only among the K most likely tokens. 0: all."},
    {.name = "top_p", .type = OPT_NUMBER, AT(top_p), .fallback = "0.95", .min = 0, .max = 1,
     .flags = OPT_ABOVE_MIN,
     .help = "Choose only among the most likely tokens that together have probability P. 1: all."},
    {.name = "min_p", .type = OPT_NUMBER, AT(min_p), .fallback = "0", .min = 0, .max = 1,
     .help = "Choose only among tokens that are at least P times as likely as the most likely one. "
             "0: all."},
    {.name = "repetition_penalty", .type = OPT_NUMBER, AT(repetition_penalty), .fallback = "1",
     .min = 0.01, .max = 100,
     .help = "Above 1: tokens that the prompt or the text has already become less likely (1.1 is "
             "usual); the model's scores are divided by it. 1: none."},
    PLAN_ROW_SEED(.help = "The same seed gives the same text."),
    {.name = "ignore_end", .type = OPT_FLAG, AT(ignore_end),
     .help = "Do not stop at the end-of-text token."},
    {.name = "stop", .type = OPT_TEXT, AT(stop), .value = "TEXT",
     .help = "Stop in front of this text, which is left out; also within a token."},
    PLAN_ROW_DTYPE(.group = "Machine",
        .help = "auto: bf16 if the device supports it natively, else fp32."),
    PLAN_ROW_DEVICE_MEMORY(.help = "Limit for all memory used on the device. If it is less than "
                                   "the model needs, the model is swapped."),
    PLAN_ROW_THREADS(.help = "auto: all cores."),
    PLAN_ROW_JSON(.help = "One JSON object on stdout, at the end."),
};
/* clang-format on */

static const opt_command options = {
    .name = "generate",
    .summary = "generate text with a saved model",
    .description = "Computes on the processor, also on a machine with a card.",
    .examples = "atom generate --model run/checkpoint-100 --prompt 'In the beginning' --max-tokens "
                "200\n"
                "atom generate --model run/checkpoint-100 < beginning.txt\n"
                "atom generate --model run/checkpoint-100 --chat --prompt 'Name three fruits.'\n"
                "atom generate --model run/checkpoint-100 --chat\n"
                "atom generate --model run/checkpoint-100 --chat < questions.txt\n",
    OPT_TABLE(specs, generate_values),
};

/* What comes before the model's first word: the prompt, once it is known that a model answers. */
static void emit_prompt(const char **prompt)
{
    if (*prompt)
        fputs(*prompt, stdout);
    *prompt = NULL;
}

static void emit(void *ctx, const char *text, size_t bytes)
{
    emit_prompt(ctx);
    fwrite(text, 1, bytes, stdout);
    fflush(stdout);
}

static bool is_given(const opt_parsed *parsed, const char *name)
{
    return parsed->origin[opt_find(&options, name)] != OPT_FROM_DEFAULT;
}

/* Options that nothing would read. */
static atom_status check(const generate_values *v, const opt_parsed *parsed)
{
    const char *chats = v->system                      ? "--system"
                        : v->template_vars             ? "--template-vars"
                        : is_given(parsed, "template") ? "--template"
                                                       : NULL;
    const char *samples = is_given(parsed, "top_k")   ? "--top-k"
                          : is_given(parsed, "top_p") ? "--top-p"
                          : is_given(parsed, "min_p") ? "--min-p"
                          : is_given(parsed, "seed")  ? "--seed"
                                                      : NULL;
    if (!v->chat && chats)
        return atom_fail(ATOM_E_USAGE,
                         "%s works only with --chat, because without it there are "
                         "no messages",
                         chats);
    if (v->chat && is_given(parsed, "special_tokens"))
        return atom_fail(ATOM_E_USAGE, "--special-tokens has no effect with --chat, where only the "
                                       "template writes special tokens; leave it out");
    if (v->temperature == 0 && samples)
        return atom_fail(ATOM_E_USAGE,
                         "%s would have no effect, because with --temperature 0 the most likely "
                         "token is always taken; leave one of them out",
                         samples);
    if (v->chat && v->json && !is_given(parsed, "prompt"))
        return atom_fail(ATOM_E_USAGE, "--json prints only one answer, so with --chat it needs "
                                       "--prompt");
    return ATOM_OK;
}

/* --- a prompt from standard input ------------------------------------------------------------- */

enum { PROMPT_BYTES_MAX = 16 << 20, PATIENCE_MS = 2000 };

/* A terminal or /dev/null brings no prompt. */
static bool is_piped(void)
{
    struct stat s;
    return fstat(STDIN_FILENO, &s) == 0 &&
           (S_ISFIFO(s.st_mode) || S_ISREG(s.st_mode) || S_ISSOCK(s.st_mode));
}

/* All of it, in text[*bytes], with room for a 0. */
static atom_status read_all(char **text, size_t *bytes)
{
    size_t room = 0;
    ssize_t n;
    struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
    if (poll(&in, 1, PATIENCE_MS) == 0)
        atom_log(ATOM_LOG_INFO, "waiting for the prompt on standard input; give --prompt to start "
                                "without it");
    for (;;) {
        if (*bytes + 1 >= room)
            ATOM_TRY(atom_grow(text, *bytes + 1, &room, 1));
        n = read(STDIN_FILENO, *text + *bytes, room - *bytes - 1);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return atom_fail_errno(errno, "cannot read the prompt from standard input");
        if (n == 0)
            return ATOM_OK;
        *bytes += (size_t)n;
        if (*bytes > PROMPT_BYTES_MAX)
            return atom_fail(ATOM_E_FORMAT,
                             "standard input: the prompt has more than %d MiB; give "
                             "its end, which is all that the model sees",
                             PROMPT_BYTES_MAX >> 20);
    }
}

/* *text: free it, also after a failure. */
static atom_status read_prompt(char **text)
{
    size_t bytes = 0;
    ATOM_TRY(read_all(text, &bytes));
    if (bytes == 0)
        atom_log(ATOM_LOG_WARN, "standard input, where the prompt would be, is empty, so a new "
                                "document is started");
    bytes -= bytes > 0 && (*text)[bytes - 1] == '\n';
    bytes -= bytes > 0 && (*text)[bytes - 1] == '\r';
    (*text)[bytes] = 0;
    return cli_take_text(*text, bytes, true, "standard input");
}

/* --- the command ------------------------------------------------------------------------------ */

static atom_status print_json(const char *prompt, const generate_result *result)
{
    double rate = result->seconds > 0 ? (double)result->tokens / result->seconds : 0;
    return cli_print_json(
        json_pack("{s:s, s:s#, s:I, s:I, s:o, s:o}", "prompt", prompt, "text", result->text,
                  (int)result->bytes, "tokens", (json_int_t)result->tokens, "prompt_tokens",
                  (json_int_t)result->prompt_tokens, "seconds", cli_real(result->seconds),
                  "tokens_per_second", cli_real(rate)));
}

static atom_status run(void *values, const opt_parsed *parsed)
{
    const generate_values *v = values;
    const char *prompt = NULL;
    char *piped = NULL;
    bool talk = v->chat && !is_given(parsed, "prompt");
    generate_result result = {0};
    generate_request request = {
        .model = v->model,
        .adapter = v->adapter,
        .prompt = v->prompt,
        .chat = v->chat,
        .system = v->system,
        .template = opt_choice_name(templates, v->template),
        .template_vars = v->template_vars,
        .special_tokens = (text_special_rule)v->special_tokens,
        .max_tokens = talk && !is_given(parsed, "max_tokens") ? 0 : v->max_tokens,
        .temperature = v->temperature,
        .top_k = v->top_k,
        .top_p = v->top_p,
        .min_p = v->min_p,
        .repetition_penalty = v->repetition_penalty,
        .seed = v->seed,
        .dtype = v->dtype,
        .device_memory = v->device_memory,
        .threads = v->threads,
        .stop_at_end = !v->ignore_end,
        .stop_text = v->stop,
        .emit = v->json ? NULL : emit,
        .ctx = &prompt,
    };
    atom_status st = ATOM_OK;
    ATOM_TRY(check(v, parsed));
    if (talk)
        return cli_chat(&request);
    if (!is_given(parsed, "prompt") && is_piped()) {
        ATOM_TRY_CLEAN(read_prompt(&piped));
        request.prompt = piped;
    }
    prompt = v->json || v->chat ? NULL : request.prompt;
    ATOM_TRY_CLEAN(generate_text(&request, &result));
    if (v->json) {
        st = print_json(request.prompt, &result);
    } else {
        emit_prompt(&prompt);
        cli_print("\n");
    }
cleanup:
    atom_free(piped);
    atom_free(result.text);
    return st;
}

const cli_command cli_generate = {&options, run};
