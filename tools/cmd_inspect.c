/*
 * atom inspect: what is in a file. One idea: the first bytes say what a file is, its name does not.
 * Refuses to guess: a file of no known kind is an error that lists the kinds.
 */
#include "tools/show.h"

#include <errno.h>
#include <string.h>

static const opt_command options = {
    .name = "inspect",
    .summary = "describe a file: safetensors, shard, profile, plan, checkpoint, adapter",
    .examples = "atom inspect run/checkpoint-100\n"
                "atom inspect run/checkpoint-100/model.safetensors\n"
                "atom inspect plan.json\n",
    .positional = "FILE",
    .positional_min = 1,
    .positional_max = 1,
    CLI_ONLY_JSON,
};

static json_t *tensor_json(const file_tensor *t)
{
    json_t *shape = json_array();
    for (uint32_t i = 0; i < t->rank; i++)
        json_array_append_new(shape, json_integer((json_int_t)t->dims[i]));
    return json_pack("{s:s, s:s, s:o, s:I, s:I}", "name", t->name, "dtype",
                     file_dtype_name(t->dtype), "shape", shape, "bytes", (json_int_t)t->bytes,
                     "offset", (json_int_t)t->offset);
}

static json_t *safetensors_json(const file_safetensors *file, uint64_t elements)
{
    json_t *tensors = json_array(), *metadata = json_object();
    for (uint32_t i = 0; i < file->n_tensors; i++)
        json_array_append_new(tensors, tensor_json(&file->tensors[i]));
    for (uint32_t i = 0; i < file->n_metadata; i++)
        json_object_set_new(metadata, file->metadata[i].key, json_string(file->metadata[i].value));
    return json_pack("{s:s, s:s, s:I, s:I, s:o, s:o}", "kind", "safetensors", "path", file->path,
                     "file_bytes", (json_int_t)file->file_bytes, "elements", (json_int_t)elements,
                     "metadata", metadata, "tensors", tensors);
}

static atom_status inspect_safetensors(const char *path, bool json)
{
    file_safetensors *file = NULL;
    uint64_t elements = 0;
    atom_status st = ATOM_OK;
    ATOM_TRY(file_st_open(path, &file));
    for (uint32_t i = 0; i < file->n_tensors; i++)
        elements += file->tensors[i].elements;
    if (json) {
        st = cli_print_json(safetensors_json(file, elements));
        file_st_close(&file);
        return st;
    }
    cli_print("%s: safetensors, %s, %u tensors, %s elements\n", path, cli_size(file->file_bytes),
              file->n_tensors, cli_count((double)elements));
    for (uint32_t i = 0; i < file->n_metadata; i++)
        cli_print("  %s: %s\n", file->metadata[i].key, file->metadata[i].value);
    for (uint32_t i = 0; i < file->n_tensors; i++) {
        const file_tensor *t = &file->tensors[i];
        cli_print("  %-4s [", file_dtype_name(t->dtype));
        for (uint32_t d = 0; d < t->rank; d++)
            cli_print("%s%llu", d ? ", " : "", (unsigned long long)t->dims[d]);
        cli_print("]  %s\n", t->name);
    }
    file_st_close(&file);
    return ATOM_OK;
}

static atom_status inspect_shard(const char *path, bool json)
{
    text_shard_info info;
    ATOM_TRY(text_shard_probe(path, &info));
    if (json)
        return cli_print_json(json_pack("{s:s, s:s, s:I, s:i}", "kind", "shard", "path", path,
                                        "tokens", (json_int_t)info.tokens, "token_bytes",
                                        (int)info.token_bytes));
    cli_print("%s: token shard, %llu tokens of %u bytes\n", path, (unsigned long long)info.tokens,
              info.token_bytes);
    return ATOM_OK;
}

static atom_status inspect_profile(const char *path, bool json)
{
    part_profile *profile = NULL;
    char *text = NULL;
    atom_status st = ATOM_OK;
    ATOM_TRY(part_profile_read(path, &profile));
    if (json)
        st = part_profile_json(profile, &text);
    if (st == ATOM_OK && json)
        st = cli_put_text(text, NULL);
    if (st == ATOM_OK && !json)
        show_profile(profile);
    atom_free(text);
    part_profile_close(&profile);
    return st;
}

static atom_status inspect_plan(const char *path, bool json)
{
    part_plan *plan = NULL;
    char *text = NULL;
    atom_status st = ATOM_OK;
    ATOM_TRY(part_plan_read(path, &plan));
    if (part_plan_check_alone(plan) != ATOM_OK) {
        char why[512];
        snprintf(why, sizeof why, "%s", atom_fail_message());
        st = atom_fail(ATOM_E_FORMAT, "%s: no run can follow this plan: %s", path, why);
    }
    if (st == ATOM_OK && json)
        st = part_plan_json(plan, &text);
    if (st == ATOM_OK && json)
        st = cli_put_text(text, NULL);
    if (st == ATOM_OK && !json)
        show_plan(plan, NULL);
    atom_free(text);
    part_plan_close(&plan);
    return st;
}

static json_t *numbers_json(const graph_config *c)
{
    if (c->family == GRAPH_GPT2)
        return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "vocab_size", (json_int_t)c->vocab_size,
                         "n_positions", (json_int_t)c->positions, "n_embd", (json_int_t)c->width,
                         "n_layer", (json_int_t)c->layers, "n_head", (json_int_t)c->heads,
                         "n_inner", (json_int_t)c->inner);
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "model_type",
                     graph_family_name(c->family), "vocab_size", (json_int_t)c->vocab_size,
                     "max_position_embeddings", (json_int_t)c->positions, "hidden_size",
                     (json_int_t)c->width, "num_hidden_layers", (json_int_t)c->layers,
                     "num_attention_heads", (json_int_t)c->heads, "num_key_value_heads",
                     (json_int_t)c->kv_heads, "head_dim", (json_int_t)c->head_dim,
                     "intermediate_size", (json_int_t)c->inner);
}

static json_t *config_json(const graph_config *c)
{
    const graph_bottlenecks *b = &c->bottlenecks;
    json_t *numbers = numbers_json(c), *blocks = json_array();
    for (uint32_t i = 0; i < b->n; i++)
        json_array_append_new(blocks, json_integer(b->after[i]));
    if (b->n)
        json_object_set_new(numbers, "bottlenecks",
                            json_pack("{s:O, s:I, s:s*}", "after_blocks", blocks, "width",
                                      (json_int_t)b->width, "kind", b->maxout ? "maxout" : NULL));
    json_decref(blocks);
    return numbers;
}

static bool has_file(const char *dir, const char *name)
{
    char *path = atom_path_join(dir, name);
    bool has = path && atom_path_exists(path);
    atom_free(path);
    return has;
}

/* Whether a directory is a checkpoint that atom resumes from, and of which step. */
typedef struct resumes {
    bool ours, can, theirs; /* theirs: only another trainer's trainer_state.json is there */
    int64_t step;
} resumes;

static atom_status find_resumes(const char *dir, resumes *out)
{
    train_state state = {0};
    char *path = atom_path_join(dir, "atom_state.json");
    atom_status st = path ? ATOM_OK : atom_fail_memory("a path", strlen(dir));
    *out = (resumes){.ours = has_file(dir, "atom_state.json")};
    if (st == ATOM_OK && out->ours)
        st = train_state_read(path, &state);
    out->step = state.step;
    out->can = out->ours && has_file(dir, "optimizer.safetensors");
    out->theirs = !out->ours && has_file(dir, "trainer_state.json");
    atom_free(path);
    return st;
}

static void show_resumes(const resumes *r, const char *option, const char *dir)
{
    if (r->ours)
        cli_print("  saved after step %lld; training %s\n", (long long)r->step,
                  r->can ? "can resume from here"
                         : "cannot resume from here, because optimizer.safetensors is missing");
    else if (r->theirs)
        cli_print("  a checkpoint of another trainer, which atom cannot resume; 'atom train "
                  "--%s %s' starts a new run from its weights\n",
                  option, dir);
}

/* A model directory: one of ours, or any of Hugging Face. */
static atom_status inspect_model(const char *path, bool json)
{
    file_model model = {0};
    resumes state;
    atom_status st = ATOM_OK;
    ATOM_TRY(find_resumes(path, &state));
    ATOM_TRY(file_model_resolve(path, &model));
    const graph_config *c = &model.config;
    uint64_t params = graph_model_params(c);
    if (json) {
        st = cli_print_json(json_pack(
            "{s:s, s:s, s:o, s:I, s:b, s:b, s:o}", "kind", state.ours ? "checkpoint" : "model",
            "path", path, "config", config_json(c), "parameters", (json_int_t)params, "has_weights",
            (int)model.has_weights, "can_resume", (int)state.can, "step",
            state.ours ? json_integer(state.step) : json_null()));
    } else {
        cli_print("%s: %s, %s parameters%s\n", path,
                  c->family == GRAPH_GPT2 ? "GPT-2" : graph_family_name(c->family),
                  cli_count((double)params), model.has_weights ? "" : ", no weights");
        cli_print("  %lld layers, width %lld, %lld heads, vocabulary %lld, %lld positions\n",
                  (long long)c->layers, (long long)c->width, (long long)c->heads,
                  (long long)c->vocab_size, (long long)c->positions);
        if (c->bottlenecks.n)
            cli_print("  %u bottlenecks of %lld values between blocks%s\n", c->bottlenecks.n,
                      (long long)c->bottlenecks.width, c->bottlenecks.maxout ? " (maxout)" : "");
        show_resumes(&state, "model", path);
    }
    file_model_free(&model);
    return st;
}

/* An adapter of PEFT, and the model that it belongs to where that is here. */
static atom_status inspect_adapter(const char *path, bool json)
{
    file_lora lora = {0};
    file_model model = {0};
    resumes state;
    atom_status st = ATOM_OK;
    ATOM_TRY(find_resumes(path, &state));
    ATOM_TRY(file_lora_read(path, &lora));
    bool here = file_model_resolve(path, &model) == ATOM_OK;
    if (json) {
        st = cli_print_json(json_pack(
            "{s:s, s:s, s:I, s:f, s:f, s:b, s:b, s:s, s:s?, s:o, s:b, s:o}", "kind", "adapter",
            "path", path, "lora_r", (json_int_t)lora.rank, "lora_alpha", lora.alpha, "lora_dropout",
            lora.dropout, "use_rslora", (int)lora.rslora, "use_dora", (int)lora.dora,
            "target_modules", lora.targets, "base_model", lora.base, "config",
            here ? config_json(&model.config) : json_null(), "can_resume", (int)state.can, "step",
            state.ours ? json_integer(state.step) : json_null()));
    } else {
        cli_print("%s: %s adapter, rank %lld, alpha %g%s, on %s\n", path,
                  lora.dora ? "DoRA" : "LoRA", (long long)lora.rank, lora.alpha,
                  lora.rslora ? " (rslora)" : "", lora.targets);
        if (here)
            cli_print("  its model: %s, %s parameters\n", lora.base,
                      cli_count((double)graph_model_params(&model.config)));
        else
            cli_print("  %s\n", atom_fail_message());
        show_resumes(&state, "adapter", path);
    }
    file_model_free(&model);
    file_lora_free(&lora);
    return st;
}

/* "F32 12, F16 40": tensors by type. */
static json_t *count_types(const file_gguf_in *f)
{
    json_t *counts = json_object();
    for (uint32_t i = 0; i < f->n_tensors; i++) {
        const char *name = file_gguf_type_name(f->tensors[i].type);
        json_int_t n = json_integer_value(json_object_get(counts, name));
        json_object_set_new(counts, name, json_integer(n + 1));
    }
    return counts;
}

/* A GGUF file, of any model: what is in it, and whether atom can run it. */
static atom_status inspect_gguf(const char *path, bool json)
{
    file_gguf_in *f = NULL;
    file_model model = {0};
    atom_status st = ATOM_OK;
    ATOM_TRY(file_gguf_open(path, &f));
    char *arch = file_gguf_text(f, "general.architecture");
    json_t *types = count_types(f), *n;
    const char *name;
    bool known = file_model_resolve(path, &model) == ATOM_OK;
    if (json) {
        st = cli_print_json(json_pack(
            "{s:s, s:s, s:s?, s:i, s:i, s:o, s:o}", "kind", "gguf", "path", path, "architecture",
            arch, "tensors", (int)f->n_tensors, "keys", (int)f->n_values, "types",
            json_incref(types), "config", known ? config_json(&model.config) : json_null()));
    } else {
        cli_print("%s: GGUF, architecture %s, %u keys, %u tensors", path, arch ? arch : "unknown",
                  f->n_values, f->n_tensors);
        json_object_foreach(types, name, n)
            cli_print(", %lld %s", (long long)json_integer_value(n), name);
        cli_print("\n");
        if (known)
            cli_print("  %lld layers, width %lld, %lld heads, vocabulary %lld, %lld positions\n",
                      (long long)model.config.layers, (long long)model.config.width,
                      (long long)model.config.heads, (long long)model.config.vocab_size,
                      (long long)model.config.positions);
        else
            cli_print("  %s\n", atom_fail_message());
    }
    json_decref(types);
    atom_free(arch);
    file_model_free(&model);
    file_gguf_in_close(&f);
    return st;
}

/* Does a file begin as a JSON object? One of safetensors begins with a length, whose high bytes are 0. */
static bool is_json(const unsigned char *head, size_t n)
{
    return n > 8 && head[0] == '{' && !memchr(head, 0, 8);
}

/* What a JSON file says it is: the first of the known version keys, or NULL in *found. ATOM_E_FORMAT: it
 * is a JSON object that is cut off or damaged. */
static atom_status json_kind(const char *path, bool object, const char **found_out)
{
    static const char *const kinds[] = {"atom_profile", "atom_plan", "model_type"};
    json_error_t error;
    json_t *root = json_load_file(path, 0, &error);
    const char *found = NULL;
    if (!root && object)
        return atom_fail(ATOM_E_FORMAT, "%s:%d:%d: not JSON, though it begins so (%s); %s", path,
                         error.line, error.column, error.text,
                         json_error_code(&error) == json_error_premature_end_of_input
                             ? "the file is cut off, copy or make it again"
                             : "the file is damaged");
    for (size_t i = 0; !found && i < sizeof kinds / sizeof kinds[0]; i++)
        found = json_object_get(root, kinds[i]) ? kinds[i] : NULL;
    json_decref(root);
    *found_out = found;
    return ATOM_OK;
}

static atom_status inspect_file(const char *path, bool json)
{
    unsigned char head[1024] = {0};
    FILE *f = fopen(path, "rb");
    if (!f)
        return atom_fail(ATOM_E_FORMAT, "cannot open %s: %s", path, strerror(errno));
    size_t n = fread(head, 1, sizeof head, f);
    fclose(f);
    if (text_shard_is(head, n) || text_shard_is_raw_name(path))
        return inspect_shard(path, json);
    if (file_gguf_is(head, n))
        return inspect_gguf(path, json);
    if (file_pt2_is_file(path))
        return inspect_model(path, json);
    size_t dot = strlen(path) > 12 ? strlen(path) - 12 : 0;
    if (n >= 9 && !is_json(head, n) && (head[8] == '{' || strcmp(path + dot, ".safetensors") == 0))
        return inspect_safetensors(path, json);
    const char *kind = NULL;
    ATOM_TRY(json_kind(path, is_json(head, n), &kind));
    if (kind && strcmp(kind, "atom_profile") == 0)
        return inspect_profile(path, json);
    if (kind && strcmp(kind, "atom_plan") == 0)
        return inspect_plan(path, json);
    if (kind)
        return inspect_model(path, json);
    return atom_fail(ATOM_E_FORMAT,
                     "%s is not a safetensors, GGUF or .pt2 file, token shard, profile, plan, "
                     "config.json or checkpoint directory",
                     path);
}

static atom_status run(void *values, const opt_parsed *parsed)
{
    const cli_json *v = values;
    const char *path = parsed->positional[0];
    char *config = atom_path_join(path, "config.json");
    bool adapter = config && !atom_path_exists(config) && file_lora_is_dir(path);
    bool data = config && !atom_path_exists(config) && atom_path_is_dir(path) &&
                text_shards_exist(path, TEXT_TRAIN);
    atom_free(config);
    if (adapter)
        return inspect_adapter(path, v->json);
    if (data)
        return atom_fail(ATOM_E_USAGE, "%s is a data set; atom data inspect %s describes it", path,
                         path);
    if (atom_path_is_dir(path))
        return inspect_model(path, v->json);
    return inspect_file(path, v->json);
}

const cli_command cli_inspect = {&options, run};
