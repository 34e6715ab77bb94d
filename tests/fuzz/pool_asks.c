/* A pool's run.yml, settings and file names as a hostile owner may write them: whatever the bytes,
 * nothing of this host's own is set, numbers stay within their limits, and errors are of one kind. */
#include "atom/pool/asks.h"
#include "atom/pool/run_text.h"

#include "atom/base/log.h"
#include "atom/base/mem.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A row of this host's own is as it was. */
static void check_own(const train_config *c, const opt_parsed *parsed)
{
    for (uint32_t row = 0; row < train_command.n_specs; row++)
        if (parsed->origin[row] != OPT_FROM_DEFAULT && !opt_is_shared(&train_command, row))
            abort();
    if (c->data || c->trace || c->plan || c->profile || c->adapter || c->store_dir ||
        c->output_dir || c->overwrite || c->json)
        abort();
}

static void check_run(const char *text)
{
    train_config c;
    opt_parsed parsed;
    if (opt_defaults(&train_command, &c, &parsed) != ATOM_OK)
        abort();
    atom_status st = pool_run_read("run.yml", text, &c, &parsed);
    if (st != ATOM_OK && st != ATOM_E_FORMAT)
        abort();
    check_own(&c, &parsed);
    train_config_free(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = atom_strndup((const char *)data, size);
    gsp_manifest *m = atom_alloc(1, sizeof *m);
    pool_settings s = {0};
    if (!text || !m)
        abort();
    atom_log_set_level(ATOM_LOG_ERROR);
    check_run(text);
    bool dense = strstr(text, "dense_steps") != NULL; /* which takes one piece */
    m->n_fragments = dense ? 1 : 8;
    m->n_files = 1;
    m->file[0].later = size & 1;
    strncpy(m->settings, text, sizeof m->settings - 1);
    strncpy(m->file[0].name, text, sizeof m->file[0].name - 1);
    atom_status st = pool_asks_settings(m, &s);
    if (st == ATOM_OK && (s.batch < 1 || s.steps < 1 || s.steps > INT64_MAX / s.batch ||
                          s.sync_steps < 1 || s.fragments != (int64_t)m->n_fragments))
        abort();
    if (st == ATOM_OK && s.dense_steps &&
        (s.global_batch_size < 1 || pool_settings_dense(&s) % (uint64_t)s.global_batch_size ||
         pool_settings_dense(&s) >= (uint64_t)(s.steps * s.batch)))
        abort();
    if (st != ATOM_OK && st != ATOM_E_FORMAT)
        abort();
    if (pool_asks_files(m) == ATOM_OK && strchr(m->file[0].name, '/'))
        abort();
    opt_free(&pool_options, &s);
    atom_free(m);
    atom_free(text);
    if (atom_mem_read().live_blocks != 0)
        abort();
    return 0;
}
