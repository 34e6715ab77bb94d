/* pool.json of a checkpoint, and a run.yml with a `pool:` section, as far as `atom pool create` goes
 * before it opens a model: any bytes are refused or give numbers within their limits. */
#include "atom/base/mem.h"
#include "atom/pool/pool_json.h"
#include "atom/pool/settings.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
/* What the creator makes of both parts together. */
static void check_together(pool_settings *s, const opt_parsed *said, const char *pool,
                           const char *rest)
{
    train_config c;
    opt_parsed parsed;
    if (opt_defaults(&train_command, &c, &parsed) != ATOM_OK)
        abort();
    pool_settings_fill(s, said);
    if (pool_settings_check(s, said, "fuzz", pool) == ATOM_OK &&
        opt_read_text(&train_command, "fuzz", rest, strlen(rest), &c, &parsed) == ATOM_OK &&
        pool_settings_settle(s, &c, "fuzz", pool) == ATOM_OK) {
        uint64_t dense = pool_settings_dense(s);
        if (s->batch < 1 || s->steps < 1 || !s->dense_steps != !dense)
            abort();
        if (dense && (s->global_batch_size % c.micro_batch_size || s->fragments != 1 ||
                      dense % (uint64_t)s->global_batch_size ||
                      dense >= (uint64_t)s->batch * (uint64_t)s->steps))
            abort();
    }
    train_config_free(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pool_mark marks;
    pool_settings settings;
    opt_parsed parsed;
    char *pool = NULL, *rest = NULL;
    if (pool_json_parse("fuzz", (const char *)data, size, &marks) == ATOM_OK &&
        (marks.n_fragments == 0 || marks.n_fragments > GSP_FRAGMENTS_MAX))
        abort();
    if (pool_settings_split("fuzz", (const char *)data, size, &pool, &rest) != ATOM_OK)
        return 0;
    if (strlen(pool) + strlen(rest) > 2 * size ||
        opt_defaults(&pool_options, &settings, &parsed) != ATOM_OK)
        abort();
    if (opt_read_text(&pool_options, "fuzz", pool, strlen(pool), &settings, &parsed) == ATOM_OK) {
        if (settings.sync_steps < 1 || settings.fragments < 1 || settings.fragments > 64 ||
            !(settings.outer_momentum >= 0 && settings.outer_momentum < 1))
            abort();
        check_together(&settings, &parsed, pool, rest);
    }
    opt_free(&pool_options, &settings);
    atom_free(pool);
    atom_free(rest);
    if (atom_mem_read().live_blocks != 0)
        abort();
    return 0;
}
