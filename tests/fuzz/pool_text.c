/* pool.json of a checkpoint, and a run.yml with a `pool:` section: any bytes are refused or give
 * numbers within their limits. */
#include "atom/base/mem.h"
#include "atom/pool/pool_json.h"
#include "atom/pool/settings.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
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
    if (opt_read_text(&pool_options, "fuzz", pool, strlen(pool), &settings, &parsed) == ATOM_OK &&
        (settings.sync_steps < 1 || settings.fragments < 1 || settings.fragments > 64 ||
         !(settings.outer_momentum >= 0 && settings.outer_momentum < 1)))
        abort();
    opt_free(&pool_options, &settings);
    atom_free(pool);
    atom_free(rest);
    return 0;
}
