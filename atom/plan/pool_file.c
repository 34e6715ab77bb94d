/*
 * Owns a pool's description. One idea: what a section may say is an option table, which
 * opt_read_document reads. Refuses items that contradict each other.
 */
#include "atom/plan/pool_file.h"

#include "atom/base/mem.h"
#include "partition/place/place.h"
#include "partition/plan.h"

#include <stdio.h>
#include <string.h>

enum { NAME_MAX_BYTES = 48 };

#define AT(member) .offset = offsetof(plan_pool_entry, member)
static const opt_spec entry_specs[] = {
    {.name = "name", .type = OPT_TEXT, AT(name)},
    {.name = "device", .type = OPT_TEXT, AT(device), .value = "NAME|FILE"},
    {.name = "profile", .type = OPT_TEXT, AT(profile), .value = "FILE"},
    {.name = "device_memory", .type = OPT_SIZE, AT(device_memory), .min = 1, .max = 1e15},
    {.name = "host_memory", .type = OPT_SIZE, AT(host_memory), .min = 1, .max = 1e15},
    {.name = "disk", .type = OPT_SIZE, AT(disk), .min = 1, .max = 1e18},
    {.name = "link", .type = OPT_TEXT, AT(link)},
    {.name = "region", .type = OPT_TEXT, AT(region)},
    {.name = "devices",
     .type = OPT_INT,
     AT(devices),
     .fallback = "1",
     .min = 1,
     .max = PART_DEVICES_MAX},
    {.name = "count",
     .type = OPT_INT,
     AT(count),
     .fallback = "1",
     .min = 1,
     .max = PLACE_HOSTS_MAX},
};
#undef AT
static const opt_command entry_table = {.name = "hosts", OPT_TABLE(entry_specs, plan_pool_entry)};

#define AT(member) .offset = offsetof(plan_pool_line, member)
static const opt_spec line_specs[] = {
    {.name = "name", .type = OPT_TEXT, AT(name), .flags = OPT_REQUIRED},
    {.name = "down_mbit",
     .type = OPT_NUMBER,
     AT(down_mbit),
     .min = 0.001,
     .max = 1e7,
     .flags = OPT_REQUIRED},
    {.name = "up_mbit",
     .type = OPT_NUMBER,
     AT(up_mbit),
     .min = 0.001,
     .max = 1e7,
     .flags = OPT_REQUIRED},
    {.name = "delay_ms",
     .type = OPT_NUMBER,
     AT(delay_ms),
     .min = 0,
     .max = 100000,
     .flags = OPT_REQUIRED},
};
#undef AT
static const opt_command line_table = {.name = "links", OPT_TABLE(line_specs, plan_pool_line)};

#define AT(member) .offset = offsetof(plan_pool_between, member)
static const opt_spec region_specs[] = {
    {.name = "between", .type = OPT_LIST, AT(between), .flags = OPT_REQUIRED},
    {.name = "delay_ms",
     .type = OPT_NUMBER,
     AT(delay_ms),
     .min = 0,
     .max = 100000,
     .flags = OPT_REQUIRED},
};
#undef AT
static const opt_command region_table = {.name = "regions",
                                         OPT_TABLE(region_specs, plan_pool_between)};

static const opt_choice codecs[] = {
    {"fp32", PLAN_POOL_FP32}, {"bf16", PLAN_POOL_BF16}, {"int8", PLAN_POOL_INT8}, {NULL, 0}};
#define AT(member) .offset = offsetof(plan_pool_file, member)
static const opt_spec top_specs[] = {
    {.name = "step_tokens",
     .type = OPT_INT,
     AT(step_tokens),
     .fallback = "524288",
     .min = 1,
     .max = 1e12},
    {.name = "delays_csv", .type = OPT_TEXT, AT(delays_csv), .value = "FILE"},
    {.name = "codec", .type = OPT_CHOICE, AT(codec), .fallback = "int8", .choices = codecs},
    {.name = "mbit_csv", .type = OPT_TEXT, AT(mbit_csv), .value = "FILE"},
};
#undef AT
static const opt_command top_table = {.name = "the description of a pool",
                                      OPT_TABLE(top_specs, plan_pool_file)};

#define SECTION(items_table, array, n)                                                             \
    .table = &(items_table), .items = offsetof(plan_pool_file, array),                             \
    .count = offsetof(plan_pool_file, n), .most = PLACE_HOSTS_MAX
static const opt_section sections[] = {
    {SECTION(entry_table, entries, n_entries), .line = offsetof(plan_pool_entry, line),
     .too_many = "items of hosts; there may be"},
    {SECTION(line_table, lines, n_lines), .too_many = "items of links; there may be"},
    {SECTION(region_table, regions, n_regions), .line = offsetof(plan_pool_between, line),
     .too_many = "items of regions; there may be"},
};
#undef SECTION
static const opt_document document = {
    .top = &top_table, .sections = sections, .n_sections = 3, .what = "the description of a pool"};

double plan_pool_codec_bytes(int32_t codec)
{
    return codec == PLAN_POOL_FP32 ? 4 : codec == PLAN_POOL_BF16 ? 2 : 1 + 4.0 / 4096;
}

const char *plan_pool_codec_name(int32_t codec)
{
    return opt_choice_name(codecs, codec);
}

uint32_t plan_pool_hosts(const plan_pool_file *file)
{
    int64_t n = 0;
    for (uint32_t i = 0; i < file->n_entries; i++)
        n += file->entries[i].count;
    return (uint32_t)n;
}

void plan_pool_file_close(plan_pool_file **file)
{
    plan_pool_file *f = *file;
    if (!f)
        return;
    atom_free(f->path);
    opt_document_free(&document, f);
    atom_free(f);
    *file = NULL;
}

/* --- what the items say together --- */

static bool is_name(const char *text)
{
    size_t n = strlen(text);
    return n > 0 && n <= NAME_MAX_BYTES &&
           strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == n;
}

static atom_status check_name(const plan_pool_file *f, uint32_t line, const char *name)
{
    if (name && !is_name(name))
        return atom_fail(ATOM_E_USAGE,
                         "%s:%u: the name '%.64s' must have 1 to %d letters, digits, '.', '_' or "
                         "'-'",
                         f->path, line, name, NAME_MAX_BYTES);
    return ATOM_OK;
}

/* A host without a name is called after its device. */
static atom_status name_entry(plan_pool_file *f, plan_pool_entry *e)
{
    char name[NAME_MAX_BYTES + 1];
    const char *from = e->device ? e->device : e->profile, *slash = strrchr(from, '/');
    snprintf(name, sizeof name, "%s", slash ? slash + 1 : from);
    char *dot = strrchr(name, '.');
    if (dot && strcmp(dot, ".json") == 0)
        *dot = 0;
    for (uint32_t k = 2; k < PLACE_HOSTS_MAX; k++) {
        bool taken = false;
        for (uint32_t i = 0; i < f->n_entries; i++)
            taken = taken || (f->entries[i].name && strcmp(f->entries[i].name, name) == 0);
        if (!taken)
            break;
        snprintf(name + strcspn(name, "@"), sizeof name - strcspn(name, "@"), "@%u", k);
    }
    for (char *c = name; *c; c++)
        *c = *c == '@' ? '.' : *c;
    e->name = atom_strdup(is_name(name) ? name : "host");
    return e->name ? ATOM_OK : atom_fail_memory("a name", sizeof name);
}

static atom_status check_entry(plan_pool_file *f, plan_pool_entry *e)
{
    ATOM_TRY(check_name(f, e->line, e->name));
    ATOM_TRY(check_name(f, e->line, e->region));
    if (!e->device == !e->profile)
        return atom_fail(ATOM_E_USAGE,
                         e->device ? "%s:%u: a device and a profile both say what this host is; "
                                     "leave one of them out"
                                   : "%s:%u: this host needs 'device' (a described one, such as "
                                     "rtx-4090) or 'profile' (a file written by 'atom profile')",
                         f->path, e->line);
    if (e->link && f->mbit_csv)
        return atom_fail(ATOM_E_USAGE,
                         "%s:%u: mbit_csv already says how fast every link is; leave 'link' out",
                         f->path, e->line);
    if (!e->link && !f->mbit_csv)
        return atom_fail(ATOM_E_USAGE,
                         "%s:%u: this host needs 'link', such as home-100-20 (100 Mbit/s down, 20 "
                         "up), fibre or lan",
                         f->path, e->line);
    return e->name ? ATOM_OK : name_entry(f, e);
}

/* Does the host called `name` have a number behind the name of entry e, as e's own hosts do? */
static bool reads_like_one_of(const char *name, const plan_pool_entry *e)
{
    size_t n = strlen(e->name);
    return e->count > 1 && strncmp(name, e->name, n) == 0 && name[n] == '-' && name[n + 1] &&
           strspn(name + n + 1, "0123456789") == strlen(name + n + 1);
}

static atom_status check_names_differ(const plan_pool_file *f)
{
    for (uint32_t i = 0; i < f->n_entries; i++)
        for (uint32_t j = 0; j < f->n_entries; j++)
            if (i != j && ((i > j && strcmp(f->entries[i].name, f->entries[j].name) == 0) ||
                           reads_like_one_of(f->entries[i].name, &f->entries[j])))
                return atom_fail(ATOM_E_USAGE, "%s:%u: '%s' is also the name of a host in line %u",
                                 f->path, f->entries[i].line, f->entries[i].name,
                                 f->entries[j].line);
    for (uint32_t i = 0; i < f->n_lines; i++)
        for (uint32_t j = 0; j < i; j++)
            if (strcmp(f->lines[i].name, f->lines[j].name) == 0)
                return atom_fail(ATOM_E_USAGE, "%s: two links are called '%s'", f->path,
                                 f->lines[i].name);
    return ATOM_OK;
}

static atom_status check_together(plan_pool_file *f)
{
    int64_t n = 0;
    if (f->n_entries == 0)
        return atom_fail(ATOM_E_USAGE, "%s: there are no hosts in it; list them under 'hosts'",
                         f->path);
    if (!f->delays_csv != !f->mbit_csv)
        return atom_fail(ATOM_E_USAGE, "%s: delays_csv and mbit_csv must be given together",
                         f->path);
    if (f->mbit_csv && (f->n_lines || f->n_regions))
        return atom_fail(ATOM_E_USAGE,
                         "%s: delays_csv and mbit_csv say everything about the links; leave "
                         "'links' and 'regions' out",
                         f->path);
    for (uint32_t i = 0; i < f->n_lines; i++)
        ATOM_TRY(check_name(f, 1, f->lines[i].name));
    for (uint32_t i = 0; i < f->n_entries; i++) {
        ATOM_TRY(check_entry(f, &f->entries[i]));
        n += f->entries[i].count;
    }
    if (n > PLACE_HOSTS_MAX)
        return atom_fail(ATOM_E_USAGE, "%s: %lld hosts are too many; there may be at most %d",
                         f->path, (long long)n, PLACE_HOSTS_MAX);
    return check_names_differ(f);
}

/* --- */

atom_status plan_pool_file_parse(const char *path, const char *text, size_t bytes,
                                 plan_pool_file **out)
{
    plan_pool_file *f = atom_alloc(1, sizeof *f);
    atom_status st;
    if (!f)
        return atom_fail_memory("the description of a pool", sizeof *f);
    ATOM_TRY_CLEAN(opt_read_document(&document, path, text, bytes, f));
    f->path = atom_strdup(path);
    if (!f->path)
        ATOM_TRY_CLEAN(atom_fail_memory("a path", strlen(path)));
    ATOM_TRY_CLEAN(check_together(f));
    *out = f;
    f = NULL;
cleanup:
    plan_pool_file_close(&f);
    return st;
}

atom_status plan_pool_file_read(const char *path, plan_pool_file **out)
{
    char *text = NULL, missing[512];
    size_t bytes = 0;
    snprintf(missing, sizeof missing, "there is no file %s with the description of a pool", path);
    ATOM_TRY(opt_file_text(path, missing, &text, &bytes));
    atom_status st = plan_pool_file_parse(path, text, bytes, out);
    atom_free(text);
    return st;
}
