/*
 * atom export: a saved model as a file of another program. Refuses to change the model.
 */
#include "tools/cli.h"

#include <string.h>
#include <sys/stat.h>

static const char *const formats[] = {"gguf", NULL};
static const char *const types[] = {"f32", "f16", "bf16", "q8_0", NULL};
static const file_gguf_type type_of[] = {FILE_GGUF_F32, FILE_GGUF_F16, FILE_GGUF_BF16,
                                         FILE_GGUF_Q8_0};

typedef struct export_values {
    char *model;
    int32_t to, type;
    char *output;
    bool json;
} export_values;

#define AT(member) .offset = offsetof(export_values, member)

static const opt_spec specs[] = {
    {.name = "model",
     .type = OPT_TEXT,
     AT(model),
     .value = "DIR",
     .flags = OPT_REQUIRED,
     .help = "A checkpoint, or any Hugging Face directory of a family that atom knows."},
    {.name = "to",
     .type = OPT_CHOICE,
     AT(to),
     .fallback = "gguf",
     .choices = formats,
     .help = "gguf: one file for llama.cpp, tokenizer included."},
    {.name = "type",
     .type = OPT_CHOICE,
     AT(type),
     .fallback = "f16",
     .choices = types,
     .help = "What matrices are made of; vectors stay f32. q8_0: rows in blocks of 32; others are "
             "f16."},
    {.name = "output",
     .type = OPT_TEXT,
     AT(output),
     .value = "FILE",
     .letter = 'o',
     .flags = OPT_REQUIRED,
     .help = "Where the file goes; written whole or not at all."},
    {.name = "json", .type = OPT_FLAG, AT(json), .help = "One JSON object on stdout."},
};

static const opt_command options = {
    .name = "export",
    .summary = "write a saved model as a GGUF file for llama.cpp",
    .examples = "atom export --model run/checkpoint-100 --type q8_0 -o model.gguf\n",
    OPT_TABLE(specs, export_values),
};

static atom_status run(void *values, const opt_parsed *parsed)
{
    const export_values *v = values;
    struct stat s = {0};
    (void)parsed;
    atom_status st = train_export_gguf(v->model, type_of[v->type], v->output);
    if (st != ATOM_OK)
        return st;
    if (stat(v->output, &s) != 0)
        s.st_size = 0;
    if (v->json)
        return cli_print_json(json_pack("{s:s, s:s, s:I}", "output", v->output, "type",
                                        types[v->type], "bytes", (json_int_t)s.st_size));
    cli_print("%s: %s\n", v->output, cli_size((uint64_t)s.st_size));
    return ATOM_OK;
}

const cli_command cli_export = {&options, run};
