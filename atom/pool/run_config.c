/*
 * Owns the configuration of a member's run. One idea: it is made of layers, the pool's run.yml
 * first, then what this host chose before, then what is said now. Refuses a run without data, and of
 * a pool's run.yml what is not a pool's to decide.
 */
#include "atom/pool/run_inner.h"
#include "atom/pool/run_text.h"

#include "atom/base/files.h"
#include "atom/base/mem.h"
#include "atom/train/epochs.h"

#include <stdlib.h>
#include <string.h>

const char *pool_option_of(const pool_option *options, uint32_t n, const char *key)
{
    const char *value = NULL;
    for (uint32_t i = 0; i < n; i++)
        if (strcmp(options[i].key, key) == 0 && options[i].value)
            value = options[i].value;
    return value;
}

atom_status pool_options_set(const opt_command *command, const pool_option *options, uint32_t n,
                             void *values, opt_parsed *parsed)
{
    for (uint32_t i = 0; i < n; i++) {
        const pool_option *o = &options[i];
        int32_t row = opt_find(command, o->key);
        if (!o->value)
            continue;
        if (row < 0)
            return atom_fail(ATOM_E_USAGE, "there is no option %s", o->key);
        ATOM_TRY(opt_set(command, (uint32_t)row, o->value, values));
        parsed->origin[row] = OPT_FROM_COMMAND_LINE;
    }
    return ATOM_OK;
}

static atom_status add_text(pool_run *r, const char *path, const char *text, opt_parsed *parsed)
{
    return opt_read_text(&train_command, path, text, strlen(text), &r->config, parsed);
}

static atom_status add_local(pool_run *r, opt_parsed *parsed)
{
    char *path = atom_path_join(r->dir, "local.yml"), *text = NULL;
    uint64_t bytes;
    atom_status st = ATOM_OK;
    if (!path)
        ATOM_TRY_CLEAN(atom_fail_memory("a path", 256));
    if (!atom_path_exists(path))
        goto cleanup;
    ATOM_TRY_CLEAN(atom_file_read(path, 1 << 20, &text, &bytes));
    ATOM_TRY_CLEAN(pool_run_check_local(path, text, r->config.lora.r > 0));
    ATOM_TRY_CLEAN(add_text(r, path, text, parsed));
cleanup:
    atom_free(path);
    atom_free(text);
    return st;
}

/* How many micro-batches a step has is the pool's to say, so a joiner can only have fewer devices. */
static atom_status check_devices(const train_config *c)
{
    long long C = c->gradient_accumulation_steps;
    if (c->devices <= C)
        return ATOM_OK;
    return atom_fail(ATOM_E_USAGE,
                     "devices: %lld devices share the micro-batches of a step, but in this pool "
                     "there %s only %lld (its gradient_accumulation_steps, the same for all "
                     "members); use --devices %lld",
                     (long long)c->devices, C == 1 ? "is" : "are", C, C);
}

atom_status pool_run_configure(pool_run *r, const char *run_path, const char *run_text,
                               const pool_option *options, uint32_t n)
{
    opt_parsed parsed;
    ATOM_TRY(opt_defaults(&train_command, &r->config, &parsed));
    if (r->genesis)
        ATOM_TRY(add_text(r, run_path, run_text, &parsed));
    else
        ATOM_TRY(pool_run_read(run_path, run_text, &r->config, &parsed));
    if (!r->genesis)
        ATOM_TRY(add_local(r, &parsed));
    ATOM_TRY(pool_options_set(&train_command, options, n, &r->config, &parsed));
    if (r->genesis)
        ATOM_TRY(pool_run_withheld(&parsed, &r->withheld));
    atom_free(r->config.output_dir);
    r->config.output_dir = atom_strdup(r->dir);
    if (!r->config.output_dir)
        return atom_fail_memory("a path", 256);
    if (!r->genesis)
        ATOM_TRY(check_devices(&r->config));
    ATOM_TRY(train_config_settle(&r->config, &parsed));
    if (!r->config.data && r->data.named && !(r->config.data = atom_strdup(r->data.dir)))
        return atom_fail_memory("a path", 256);
    if (!r->config.data)
        return atom_fail(ATOM_E_USAGE, "data is missing; name a directory made by `atom data "
                                       "prepare` with --data");
    return train_epochs_resolve(&r->config);
}

/* As it is found from wherever this member is started next time. */
static char *whole(const char *path, char **made)
{
    *made = path ? realpath(path, NULL) : NULL;
    return *made ? *made : (char *)(uintptr_t)path;
}

atom_status pool_run_save_local(const pool_run *r)
{
    char *path = atom_path_join(r->dir, "local.yml"), *text = NULL, *made[4];
    train_config c = r->config;
    atom_status st;
    c.data = whole(c.data, &made[0]);
    c.model = whole(c.model, &made[1]);
    c.store_dir = whole(c.store_dir, &made[2]);
    c.profile = whole(c.profile, &made[3]);
    if (!path)
        ATOM_TRY_CLEAN(atom_fail_memory("a path", 256));
    if (r->data.dir && strcmp(r->config.data, r->data.dir) == 0)
        c.data = NULL; /* where it is looked for anyway, whatever DIR is called then */
    ATOM_TRY_CLEAN(pool_run_text(&c, true, &text));
    ATOM_TRY_CLEAN(atom_file_write(path, text, strlen(text)));
cleanup:
    for (size_t i = 0; i < sizeof made / sizeof *made; i++)
        free(made[i]);
    atom_free(text);
    atom_free(path);
    return st;
}
