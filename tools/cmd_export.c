/*
 * atom export: a saved model as what another program reads. Refuses to change the model.
 */
#include "tools/cli.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

typedef enum export_to { TO_GGUF, TO_HF, TO_LLMC } export_to;
static const opt_choice formats[] = {{"gguf", TO_GGUF}, {"hf", TO_HF}, {"llmc", TO_LLMC}, {0}};
static const opt_choice types[] = {{"f32", FILE_GGUF_F32},
                                   {"f16", FILE_GGUF_F16},
                                   {"bf16", FILE_GGUF_BF16},
                                   {"q8_0", FILE_GGUF_Q8_0},
                                   {0}};
static const opt_choice dtypes[] = {
    {"auto", ATOM_DTYPE_N}, {"fp32", ATOM_F32}, {"bf16", ATOM_BF16}, {"fp16", ATOM_F16}, {0}};

typedef struct export_values {
    char *model, *adapter;
    int32_t to, type, dtype;
    uint64_t max_shard_size;
    char *output;
    bool overwrite, json;
} export_values;

#define AT(member) .offset = offsetof(export_values, member)

/* clang-format off */
static const opt_spec specs[] = {
    PLAN_ROW_SAVED_MODEL(.help = "A checkpoint, or any Hugging Face directory or GGUF file of a "
                                 "family that atom supports."),
    PLAN_ROW_ADAPTER,
    {.name = "to", .type = OPT_CHOICE, AT(to), .fallback = "gguf", .choices = formats,
     .help = "gguf: one file for llama.cpp, tokenizer included. hf: a directory for transformers. "
             "llmc: a model file of llm.c (GPT-2)."},
    {.name = "type", .type = OPT_CHOICE, AT(type), .fallback = "f16", .choices = types,
     .help = "gguf: the type of matrices; vectors stay f32. q8_0 works in blocks of 32; matrices "
             "whose rows are not a multiple of that become f16."},
    {.name = "dtype", .type = OPT_CHOICE, AT(dtype), .fallback = "auto", .choices = dtypes,
     .help = "hf, llmc: the type of all weights. auto: unchanged. llmc allows fp32 and bf16."},
    PLAN_ROW_MAX_SHARD_SIZE(.help = "hf: split the model into files of at most this size."),
    {.name = "output", .type = OPT_TEXT, AT(output), .value = "PATH", .letter = 'o',
     .flags = OPT_REQUIRED,
     .help = "The file or directory to write; it is written completely or not at all."},
    {.name = "overwrite", .type = OPT_FLAG, AT(overwrite),
     .help = "gguf, llmc: replace an existing file."},
    PLAN_ROW_JSON(.help = "One JSON object on stdout."),
};
/* clang-format on */

static const opt_command options = {
    .name = "export",
    .summary = "convert a saved model for other programs",
    .examples = "# for llama.cpp\n"
                "atom export --model run/checkpoint-100 --type q8_0 -o model.gguf\n"
                "# for transformers, at half the size\n"
                "atom export --model run/checkpoint-100 --to hf --dtype bf16 -o model/\n",
    OPT_TABLE(specs, export_values),
};

/* Of a file, or of the files in a directory. */
static uint64_t bytes_at(const char *path)
{
    struct stat s;
    uint64_t bytes = 0;
    if (stat(path, &s) != 0)
        return 0;
    DIR *d = S_ISDIR(s.st_mode) ? opendir(path) : NULL;
    if (!d)
        return (uint64_t)s.st_size;
    for (struct dirent *entry; (entry = readdir(d));) {
        if (fstatat(dirfd(d), entry->d_name, &s, 0) == 0 && S_ISREG(s.st_mode))
            bytes += (uint64_t)s.st_size;
    }
    closedir(d);
    return bytes;
}

/* An option for another format than the one that is written would be lost, so it is refused. */
static atom_status check_options(const export_values *v, const opt_parsed *parsed)
{
    const struct {
        const char *name;
        export_to to;
    } of[] = {{"type", TO_GGUF},
              {"dtype", v->to == TO_LLMC ? TO_LLMC : TO_HF},
              {"max-shard-size", TO_HF}};
    for (size_t i = 0; i < sizeof of / sizeof of[0]; i++) {
        if ((int32_t)of[i].to != v->to &&
            parsed->origin[opt_find(&options, of[i].name)] != OPT_FROM_DEFAULT)
            return atom_fail(ATOM_E_USAGE, "--%s does not apply to --to %s, only to --to %s",
                             of[i].name, opt_choice_name(formats, v->to),
                             opt_choice_name(formats, (int32_t)of[i].to));
    }
    if (v->overwrite && v->to == TO_HF)
        return atom_fail(ATOM_E_USAGE, "--overwrite replaces files; --to hf makes a directory: "
                                       "remove the old one first, or name another");
    if (v->to == TO_LLMC && (atom_dtype)v->dtype == ATOM_F16)
        return atom_fail(ATOM_E_USAGE, "--dtype fp16: llm.c's files are fp32 or bf16");
    return ATOM_OK;
}

/* A name that belongs to another format: --to was forgotten, and whoever opens the file is misled. */
static atom_status check_name(const export_values *v)
{
    static const struct {
        const char *end;
        int32_t to; /* -1: nothing that is written here */
    } ends[] = {{".gguf", TO_GGUF}, {".bin", TO_LLMC}, {".safetensors", -1}, {".pt", -1},
                {".pth", -1},       {".pt2", -1},      {".json", -1}};
    static const char *const makes[] = {[TO_GGUF] = "a GGUF file",
                                        [TO_HF] = "a Hugging Face directory",
                                        [TO_LLMC] = "a file of llm.c"};
    size_t n = strlen(v->output);
    if (v->to != TO_HF && v->output[n - 1] == '/')
        return atom_fail(ATOM_E_USAGE,
                         "--output %s names a directory, but --to %s makes %s; add the file's "
                         "name, or use --to hf",
                         v->output, opt_choice_name(formats, v->to), makes[v->to]);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        size_t m = strlen(ends[i].end);
        if (n > m && strcmp(v->output + n - m, ends[i].end) == 0 && ends[i].to != v->to)
            return atom_fail(ATOM_E_USAGE,
                             "--output %s: --to %s makes %s, which should not be named %s; choose "
                             "another name, or another --to",
                             v->output, opt_choice_name(formats, v->to), makes[v->to], ends[i].end);
    }
    return ATOM_OK;
}

static atom_status run(void *values, const opt_parsed *parsed)
{
    const export_values *v = values;
    ATOM_TRY(check_options(v, parsed));
    ATOM_TRY(check_name(v));
    ATOM_TRY(
        v->to == TO_GGUF
            ? export_gguf(v->model, v->adapter, (file_gguf_type)v->type, v->output, v->overwrite)
        : v->to == TO_LLMC
            ? export_llmc(v->model, v->adapter, (atom_dtype)v->dtype, v->output, v->overwrite)
            : export_hf(v->model, v->adapter, (atom_dtype)v->dtype, v->max_shard_size, v->output));
    const char *type =
        v->to == TO_GGUF ? opt_choice_name(types, v->type) : opt_choice_name(dtypes, v->dtype);
    if (v->json)
        return cli_print_json(json_pack("{s:s, s:s, s:s, s:I}", "output", v->output, "to",
                                        opt_choice_name(formats, v->to), "type", type, "bytes",
                                        (json_int_t)bytes_at(v->output)));
    cli_print("%s: %s\n", v->output, cli_size(bytes_at(v->output)));
    return ATOM_OK;
}

const cli_command cli_export = {&options, run};
