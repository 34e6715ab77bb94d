/*
 * Owns what of a run's configuration travels. One idea: each row of train_command says by itself
 * whether a pool may decide it, so a new key stays at home until somebody says otherwise. Refuses
 * to share what is of one host alone, and to be told it by others.
 */
#include "atom/pool/run_text.h"

#include "atom/base/mem.h"

#include <string.h>

/* Each member's own, but where all make one sum; then run_create.c says it. */
static const char PRECISION[] = "dtype";

static bool travels(uint32_t row)
{
    return opt_is_shared(&train_command, row) &&
           strcmp(train_command.specs[row].name, PRECISION) != 0;
}

/* What a host that comes back by itself needs to know of last time. */
static bool stays(const char *name, bool adapters)
{
    static const char *const own[] = {"data",
                                      "device",
                                      "devices",
                                      "device_memory",
                                      "host_memory",
                                      "link_bandwidth",
                                      "threads",
                                      "dtype",
                                      "moments_dtype",
                                      "eval_steps",
                                      "logging_steps",
                                      "eval_batches",
                                      "save_total_limit",
                                      "save_steps",
                                      "save_rate",
                                      "save_dtype",
                                      "profile",
                                      "recompute",
                                      "updates",
                                      "execute",
                                      "report_to",
                                      "optimizer_state",
                                      "store_dir",
                                      "store"};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (strcmp(own[i], name) == 0)
            return true;
    return adapters && strcmp(name, "model") == 0; /* where the others' is nobody knows */
}

atom_status pool_run_text(const train_config *config, bool local, char **text)
{
    char *all = NULL, name[64];
    ATOM_TRY(opt_print(&train_command, config, NULL, false, &all));
    size_t n = 0;
    for (char *line = all; *line;) { /* kept lines move to the front */
        char *end = strchr(line, '\n');
        size_t bytes = end ? (size_t)(end - line) + 1 : strlen(line), key = strcspn(line, ":\n");
        bool named = key < sizeof name && line[key] == ':';
        memcpy(name, line, named ? key : 0);
        name[named ? key : 0] = 0;
        int32_t row = opt_find(&train_command, name);
        if (row >= 0 && (local ? stays(name, config->lora.r > 0) : travels((uint32_t)row))) {
            memmove(all + n, line, bytes);
            n += bytes;
        }
        line += bytes;
    }
    all[n] = 0;
    *text = all;
    return ATOM_OK;
}

atom_status pool_run_check_local(const char *path, const char *text, bool adapters)
{
    train_config config;
    opt_parsed parsed;
    atom_status st;
    ATOM_TRY(opt_defaults(&train_command, &config, &parsed));
    ATOM_TRY_CLEAN(opt_read_text(&train_command, path, text, strlen(text), &config, &parsed));
    for (uint32_t row = 0; row < train_command.n_specs; row++) {
        const char *name = train_command.specs[row].name;
        if (parsed.origin[row] == OPT_FROM_FILE && !stays(name, adapters))
            ATOM_TRY_CLEAN(atom_fail(ATOM_E_USAGE,
                                     "%s: %s is not for this host to decide; remove the line. "
                                     "What the pool trains, and how, is the same for all members",
                                     path, name));
    }
cleanup:
    opt_free(&train_command, &config);
    return st;
}

atom_status pool_run_withheld(const opt_parsed *parsed, char **keys)
{
    char *all = atom_strdup("");
    for (uint32_t row = 0; all && row < train_command.n_specs; row++) {
        const opt_spec *spec = &train_command.specs[row];
        bool said =
            parsed->origin[row] == OPT_FROM_FILE || parsed->origin[row] == OPT_FROM_COMMAND_LINE;
        /* Passes over the data are published as the steps that they are. */
        if (!said || opt_is_shared(&train_command, row) ||
            strcmp(spec->name, "num_train_epochs") == 0)
            continue;
        char *more = atom_format("%s%s%s", all, *all ? ", " : "", spec->name);
        atom_free(all);
        all = more;
    }
    *keys = all;
    return all ? ATOM_OK : atom_fail_memory("names of keys", 256);
}

atom_status pool_run_read(const char *path, const char *text, train_config *config,
                          opt_parsed *parsed)
{
    atom_status st = opt_read_foreign(&train_command, path, text, strlen(text), config, parsed);
    if (st != ATOM_E_FORMAT)
        return st;
    return atom_fail(st, "%s; only the pool's owner can correct the pool's run.yml",
                     atom_fail_message());
}
