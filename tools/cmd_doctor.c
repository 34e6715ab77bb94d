/*
 * atom doctor: what this machine has and what that means for atom. One idea: every line is looked
 * up now, on this machine, and a line that costs speed or features says what to do about it.
 * Refuses to change anything.
 */
#include "tools/cli.h"

#include "atom/text/parquet.h"
#include "codegen/build.h"
#include "kernels/cuda_load.h"
#include "kernels/kernels.h"
#include "swap/store.h"

#include <dirent.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <oneapi/dnnl/dnnl.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <yaml.h>
#ifdef ATOM_JEMALLOC
#include <jemalloc/jemalloc.h>
#endif

static const opt_command options = {
    .name = "doctor",
    .summary = "report what this machine has and what is missing",
    .description =
        "Checks processor, memory, disk, GPU, compiler, libraries, limits and kernels. Lines "
        "that start with 'note' say what could be improved. The exit code is always 0.",
    .examples = "atom doctor\n",
    CLI_ONLY_JSON,
};

/* The value of "field : value" in a /proc table, trimmed; "" if there is none. */
static void proc_text(const char *path, const char *field, char *out, size_t bytes)
{
    char line[4096];
    FILE *f = fopen(path, "r");
    out[0] = 0;
    while (f && fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, field, strlen(field)) != 0 || !colon)
            continue;
        char *value = colon + 1 + strspn(colon + 1, " \t");
        value[strcspn(value, "\n")] = 0;
        snprintf(out, bytes, "%s", value);
        break;
    }
    if (f)
        fclose(f);
}

/* The words of `wanted` that the processor's flags have, in order. */
static json_t *isa_list(void)
{
    static const char *const wanted[] = {"avx2",        "fma",      "f16c",     "avx512f",
                                         "avx512_bf16", "amx_tile", "amx_bf16", "amx_int8"};
    char flags[4096], word[32];
    json_t *list = json_array();
    proc_text("/proc/cpuinfo", "flags", flags + 1, sizeof flags - 2);
    flags[0] = ' ';
    strcat(flags, " ");
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        snprintf(word, sizeof word, " %s ", wanted[i]);
        if (strstr(flags, word))
            json_array_append_new(list, json_string(wanted[i]));
    }
    return list;
}

static json_t *cpu_report(void)
{
    char model[128];
    proc_text("/proc/cpuinfo", "model name", model, sizeof model);
    return json_pack("{s:s, s:i, s:o}", "model", model[0] ? model : "unknown", "cores",
                     (int)atom_cores(), "isa", isa_list());
}

static uint64_t meminfo_bytes(const char *field)
{
    char text[64];
    unsigned long long kib = 0;
    proc_text("/proc/meminfo", field, text, sizeof text);
    return sscanf(text, "%llu", &kib) == 1 ? (uint64_t)kib * 1024 : 0;
}

static json_t *memory_report(void)
{
    return json_pack("{s:I, s:I, s:I}", "total_bytes", (json_int_t)meminfo_bytes("MemTotal"),
                     "available_bytes", (json_int_t)atom_host_available_bytes(), "swap_bytes",
                     (json_int_t)meminfo_bytes("SwapTotal"));
}

static json_t *disk_entry(const char *path)
{
    uint64_t left;
    if (!atom_dir_free_bytes(path, &left))
        return json_pack("{s:s, s:n}", "path", path, "free_bytes");
    return json_pack("{s:s, s:I}", "path", path, "free_bytes", (json_int_t)left);
}

static json_t *disk_report(void)
{
    char here[4096];
    char *cache = NULL;
    json_t *list = json_array();
    json_array_append_new(list, disk_entry(getcwd(here, sizeof here) ? here : "."));
    if (atom_cache_dir(&cache) == ATOM_OK)
        json_array_append_new(list, disk_entry(cache));
    atom_free(cache);
    return list;
}

/* What the disk tier's store may use here: null, or the reason why not. */
static json_t *store_report(void)
{
    json_t *all = json_object();
    for (int kind = STORE_URING; kind < STORE_KIND_N; kind++)
        json_object_set_new(all, store_kind_name((store_kind)kind),
                            store_probe((store_kind)kind) == ATOM_OK
                                ? json_null()
                                : json_string(atom_fail_message()));
    return all;
}

static json_t *cuda_report(void)
{
    dev_cuda_info info;
    if (dev_cuda_describe(0, &info) != ATOM_OK)
        return json_pack("{s:b, s:b, s:s}", "used", 0, "driver", (int)dev_cuda_driver_there(),
                         "reason", atom_fail_message());
    char line[256], size[24], bf16[64] = "";
    const krn_table *table;
    if (krn_cuda_table(0, ATOM_BF16, &table) != ATOM_OK)
        snprintf(bf16, sizeof bf16, ", no bf16");
    snprintf(line, sizeof line, "%s, %s, compute capability %d.%d%s, driver for CUDA %d.%d",
             info.name, atom_size_text(info.memory_bytes, size), info.major, info.minor, bf16,
             info.driver_version / 1000, info.driver_version % 1000 / 10);
    return json_pack("{s:b, s:b, s:i, s:s, s:s, s:I, s:I, s:I}", "used", 1, "driver", 1, "cards",
                     info.cards, "name", info.name, "reason", line, "memory_bytes",
                     (json_int_t)info.memory_bytes, "runtime_version",
                     (json_int_t)info.runtime_version, "cublaslt_version",
                     (json_int_t)info.blas_version);
}

static json_t *libraries_report(void)
{
    char text[64];
    json_t *all = json_object();
    const dnnl_version_t *dnnl = dnnl_version();
    snprintf(text, sizeof text, "%d.%d.%d", dnnl->major, dnnl->minor, dnnl->patch);
    json_object_set_new(all, "oneDNN", json_string(text));
    json_object_set_new(all, "jansson", json_string(jansson_version_str()));
    json_object_set_new(all, "libyaml", json_string(yaml_get_version_string()));
    if (pcre2_config(PCRE2_CONFIG_VERSION, NULL) < (int)sizeof text &&
        pcre2_config(PCRE2_CONFIG_VERSION, text) > 0) {
        text[strcspn(text, " ")] = 0; /* and its date */
        json_object_set_new(all, "PCRE2", json_string(text));
    }
#ifdef ATOM_JEMALLOC
    const char *version = NULL;
    size_t bytes = sizeof version;
    if (mallctl("version", &version, &bytes, NULL, 0) == 0 && version) {
        snprintf(text, sizeof text, "%.*s", (int)strcspn(version, "-"), version);
        json_object_set_new(all, "jemalloc", json_string(text));
    }
#else
    json_object_set_new(all, "jemalloc", json_null());
#endif
#ifdef ATOM_OPENDHT
    json_object_set_new(all, "OpenDHT", json_string(ATOM_OPENDHT));
#else
    json_object_set_new(all, "OpenDHT", json_null());
#endif
    return all;
}

/* Who reads Parquet: pyarrow's version, or the reason why nobody does. */
static json_t *parquet_report(void)
{
    char version[32];
    if (text_parquet_version(version) == ATOM_OK)
        return json_pack("{s:s, s:n}", "pyarrow", version, "reason");
    return json_pack("{s:n, s:s}", "pyarrow", "reason", atom_fail_message());
}

static json_t *limit(int which)
{
    struct rlimit r;
    if (getrlimit((__rlimit_resource_t)which, &r) != 0 || r.rlim_cur == RLIM_INFINITY)
        return json_null();
    return json_integer((json_int_t)r.rlim_cur);
}

static json_t *limits_report(void)
{
    return json_pack("{s:o, s:o, s:o}", "memlock_bytes", limit(RLIMIT_MEMLOCK), "open_files",
                     limit(RLIMIT_NOFILE), "file_bytes", limit(RLIMIT_FSIZE));
}

static json_t *kernels_entry(const krn_table *table)
{
    char name[64];
    json_t *missing = json_array();
    for (int op = 0; op < ATOM_OP_N; op++) {
        for (int backward = 0; backward < 2; backward++) {
            if (backward ? table->bwd[op] != NULL : table->fwd[op] != NULL)
                continue;
            snprintf(name, sizeof name, "%s.%s", atom_op_get((atom_op)op)->name,
                     backward ? "backward" : "forward");
            json_array_append_new(missing, json_string(name));
        }
    }
    return json_pack("{s:s, s:s, s:s, s:o}", "backend", table->backend, "dtype",
                     atom_dtype_name(table->dtype), "isa", table->isa ? table->isa : "",
                     "unsupported", missing);
}

static json_t *kernels_report(void)
{
    static const atom_dtype dtypes[] = {ATOM_F32, ATOM_BF16};
    json_t *list = json_array();
    for (int i = 0; i < 2; i++) {
        const krn_table *table = krn_cpu_table(dtypes[i]), *card;
        if (krn_cuda_table(0, dtypes[i], &card) == ATOM_OK)
            json_array_append_new(list, kernels_entry(card));
        if (table)
            json_array_append_new(list, kernels_entry(table));
        else
            json_array_append_new(list, json_pack("{s:s, s:s, s:n}", "backend", "cpu", "dtype",
                                                  atom_dtype_name(dtypes[i]), "unsupported"));
    }
    return list;
}

static bool has_word(const json_t *list, const char *word)
{
    size_t i;
    json_t *item;
    json_array_foreach(list, i, item)
    {
        if (strcmp(json_string_value(item), word) == 0)
            return true;
    }
    return false;
}

static void note(json_t *notes, const char *text)
{
    json_array_append_new(notes, json_string(text));
}

/* What could be better, from the facts that were gathered. */
static json_t *notes_report(const json_t *r)
{
    json_t *notes = json_array();
    const json_t *isa = json_object_get(json_object_get(r, "cpu"), "isa");
    const json_t *memory = json_object_get(r, "memory");
    if (!has_word(isa, "avx2"))
        note(notes, "this processor has no AVX2: training works, but slowly");
    else if (!has_word(isa, "amx_bf16"))
        note(notes, "this processor has no AMX: bf16 saves memory but may be no faster than fp32");
    if (json_integer_value(json_object_get(memory, "available_bytes")) < (json_int_t)2 << 30)
        note(notes, "less than 2 GiB of memory is free: close programs or train a smaller model");
    if (!json_is_string(json_object_get(r, "compiler")))
        note(notes, "no C compiler: plans are interpreted (same results); apt-get install gcc "
                    "for generated code");
    const json_t *cuda = json_object_get(r, "cuda");
    if (json_object_get(cuda, "driver") == json_true() &&
        json_object_get(cuda, "used") != json_true())
        note(notes, "there is a GPU, but this build cannot use it");
    size_t i;
    json_t *disk;
    json_array_foreach(json_object_get(r, "disk"), i, disk)
    {
        if (json_integer_value(json_object_get(disk, "free_bytes")) < (json_int_t)1 << 30)
            note(notes, "a disk that is needed for checkpoints or caches has less than 1 GiB free");
    }
    return notes;
}

static json_t *report(void)
{
    const char *compiler = gen_compiler();
    json_t *r = json_pack(
        "{s:s, s:o, s:o, s:o, s:o, s:o?, s:o, s:o, s:o}", "version", ATOM_VERSION, "cpu",
        cpu_report(), "memory", memory_report(), "disk", disk_report(), "cuda", cuda_report(),
        "compiler", compiler ? json_string(compiler) : json_null(), "libraries", libraries_report(),
        "limits", limits_report(), "kernels", kernels_report());
    if (r)
        json_object_set_new(r, "store", store_report());
    if (r)
        json_object_set_new(r, "parquet", parquet_report());
    if (r)
        json_object_set_new(r, "notes", notes_report(r));
    return r;
}

static uint64_t number(const json_t *object, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(object, key));
}

static void print_words(const json_t *list)
{
    size_t i;
    json_t *item;
    json_array_foreach(list, i, item) cli_print(" %s", json_string_value(item));
    cli_print("\n");
}

/* The way that is taken, the others that work, then what is refused and why. */
static void print_store(json_t *ways)
{
    const char *name;
    json_t *reason;
    int n = 0;
    cli_print("disk tier  ");
    json_object_foreach(ways, name, reason)
    {
        if (json_is_null(reason) && n++ < 2)
            cli_print(n == 1 ? " by %s" : "; --store also takes %s", name);
        else if (json_is_null(reason))
            cli_print(", %s", name);
    }
    cli_print("\n");
    json_object_foreach(ways, name, reason)
    {
        if (!json_is_null(reason))
            cli_print("             %s\n", json_string_value(reason));
    }
}

static void print_machine(const json_t *r)
{
    const json_t *cpu = json_object_get(r, "cpu"), *memory = json_object_get(r, "memory"), *disk;
    size_t i;
    cli_print("atom        %s (%s%s%s, %s)\n", ATOM_VERSION, ATOM_BUILD,
              ATOM_SANITIZERS[0] ? ", " : "", ATOM_SANITIZERS, ATOM_COMPILER);
    cli_print("processor   %s, %d cores\n", json_string_value(json_object_get(cpu, "model")),
              (int)number(cpu, "cores"));
    cli_print("vectors    ");
    print_words(json_object_get(cpu, "isa"));
    cli_print("memory      %s, %s available, %s swap\n", cli_size(number(memory, "total_bytes")),
              cli_size(number(memory, "available_bytes")), cli_size(number(memory, "swap_bytes")));
    json_array_foreach(json_object_get(r, "disk"), i, disk)
        cli_print("disk        %s free at %s\n", cli_size(number(disk, "free_bytes")),
                  json_string_value(json_object_get(disk, "path")));
    print_store(json_object_get(r, "store"));
    const json_t *cuda = json_object_get(r, "cuda");
    const char *reason = json_string_value(json_object_get(cuda, "reason")), *why = reason;
    static const char prefix[] = "CUDA is not used: ";
    if (strncmp(reason, prefix, sizeof prefix - 1) == 0)
        why = reason + sizeof prefix - 1;
    cli_print("CUDA        %s%s\n",
              json_object_get(cuda, "used") == json_true() ? "" : "not used: ", why);
}

static void print_parquet(const json_t *parquet)
{
    const char *version = json_string_value(json_object_get(parquet, "pyarrow"));
    const char *reason = json_string_value(json_object_get(parquet, "reason"));
    static const char prefix[] = "parquet: ";
    if (version)
        cli_print("parquet     read by pyarrow %s\n", version);
    else if (reason && strncmp(reason, prefix, sizeof prefix - 1) == 0)
        cli_print("parquet     not read: %s\n", reason + sizeof prefix - 1);
}

static void print_software(const json_t *r)
{
    const json_t *compiler = json_object_get(r, "compiler"), *entry;
    json_t *value;
    const char *key;
    size_t i;
    cli_print("compiler    %s\n", json_is_string(compiler) ? json_string_value(compiler)
                                                           : "none: plans are interpreted");
    cli_print("libraries  ");
    json_object_foreach(json_object_get(r, "libraries"), key, value)
        cli_print(" %s %s", key, json_is_string(value) ? json_string_value(value) : "(off)");
    cli_print("\n");
    print_parquet(json_object_get(r, "parquet"));
    cli_print("limits     ");
    json_object_foreach(json_object_get(r, "limits"), key, value)
    {
        if (json_is_null(value))
            cli_print(" %s unlimited", key);
        else
            cli_print(" %s %lld", key, (long long)json_integer_value(value));
    }
    cli_print("\n");
    json_array_foreach(json_object_get(r, "kernels"), i, entry)
    {
        const json_t *missing = json_object_get(entry, "unsupported");
        cli_print("kernels     %s %s %s: ", json_string_value(json_object_get(entry, "backend")),
                  json_string_value(json_object_get(entry, "dtype")),
                  json_is_array(missing) ? json_string_value(json_object_get(entry, "isa")) : "");
        if (!json_is_array(missing))
            cli_print("not supported\n");
        else if (json_array_size(missing) == 0)
            cli_print("all supported\n");
        else {
            cli_print("unsupported:");
            print_words(missing);
        }
    }
}

static atom_status run(void *values, const opt_parsed *parsed)
{
    const cli_json *v = values;
    (void)parsed;
    json_t *r = report();
    if (!r)
        return atom_fail_memory("the report", 0);
    if (v->json)
        return cli_print_json(r);
    print_machine(r);
    print_software(r);
    size_t i;
    json_t *text;
    json_array_foreach(json_object_get(r, "notes"), i, text)
        cli_print("note        %s\n", json_string_value(text));
    json_decref(r);
    return ATOM_OK;
}

const cli_command cli_doctor = {&options, run};
