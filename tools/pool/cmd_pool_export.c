/*
 * atom pool export: the weights that the pool has certified, as another program reads them. One
 * idea: they are read from a member's own disk, whether it runs or not. Refuses to ask the network.
 */
#include "tools/pool/cmd_pool_ask.h"

typedef struct export_values {
    char *output;
    int32_t dtype;
    uint64_t max_shard_size;
    bool json;
} export_values;

#define AT(member) .offset = offsetof(export_values, member)

/* clang-format off */
static const opt_spec specs[] = {
    {.name = "output", .type = OPT_TEXT, AT(output), .value = "PATH", .letter = 'o',
     .flags = OPT_REQUIRED, .help = "The directory to create; it is written completely or not at "
                                    "all."},
    {.name = "dtype", .type = OPT_CHOICE, AT(dtype), .fallback = "fp32",
     .choices = plan_saved_dtypes, .help = "The type of the weights in the files."},
    PLAN_ROW_MAX_SHARD_SIZE(.help = "Split the model into files of at most this size."),
    PLAN_ROW_JSON(.help = "One JSON object on stdout."),
};
/* clang-format on */

static const opt_command options = {
    .name = "pool export",
    .summary = "write the pool's weights as a model directory",
    .description =
        "Writes the newest weights that the pool has certified and this member has, as a Hugging "
        "Face directory with the tokenizer, which atom generate, eval, train and export can read "
        "too. The member may be running. (The checkpoints in DIR contain the member's own "
        "weights instead.)",
    .examples = "atom pool export run -o model/\n"
                "# for llama.cpp\n"
                "atom export --model model/ --type q8_0 -o model.gguf\n",
    .positional = "[DIR]",
    .positional_max = 1,
    OPT_TABLE(specs, export_values),
};

/* dir/pool, or dir where it is that already. */
static char *place_of(const char *dir)
{
    char *inner = atom_path_join(dir, "pool/manifest.json");
    bool is_run = inner && atom_path_exists(inner);
    atom_free(inner);
    return is_run ? atom_path_join(dir, "pool") : atom_strdup(dir);
}

static atom_status run(void *values, const opt_parsed *parsed)
{
    const export_values *v = values;
    pool_exported said = {0};
    pool_run_done done;
    char hex[2 * GSP_HASH_BYTES + 1];
    const char *dir = parsed->n_positional ? parsed->positional[0] : ".";
    char *place = place_of(dir), *inner = atom_path_join(dir, "pool");
    atom_status may = inner ? gsp_pool_check_rights(inner) : ATOM_OK;
    atom_free(inner);
    if (!place || may != ATOM_OK) {
        atom_free(place);
        return may != ATOM_OK ? may : atom_fail_memory("a path", 256);
    }
    atom_status st = pool_export(place, (atom_dtype)v->dtype, v->max_shard_size, v->output, &said);
    atom_free(place);
    ATOM_TRY(st);
    if (pool_run_was_done(dir, &done) && done.alone)
        atom_log(ATOM_LOG_WARN, "%s: " POOL_ALONE, v->output, (unsigned long long)done.alone_from);
    if (v->json)
        return cli_print_json(json_pack("{s:s, s:s, s:I, s:s}", "output", v->output, "dtype",
                                        atom_dtype_name((atom_dtype)v->dtype), "version",
                                        (json_int_t)said.version, "anchor",
                                        atom_hex(said.anchor.byte, GSP_HASH_BYTES, hex)));
    cli_print("%s: the pool's version %llu, %s\n", v->output, (unsigned long long)said.version,
              atom_dtype_name((atom_dtype)v->dtype));
    return ATOM_OK;
}

const cli_command cli_pool_export = {&options, run};
