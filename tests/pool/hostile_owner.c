/*
 * atom_hostile_owner: the program itself, but the pool that it creates asks more of its joiners than
 * a pool may. It is linked with --wrap=pool_run_text and --wrap=gsp_manifest_sign, so that nothing in
 * the product knows of it (test_owner.py).
 *
 *   HOSTILE_RUN           lines that are put behind the published run.yml
 *   HOSTILE_SETTINGS      lines of the manifest's settings, in place of those with the same key
 *   HOSTILE_FILE=A:B:N    the manifest names the file A by the name B (empty: A), N bytes long (0: as
 *                         long as it is)
 */
#include "atom/base/mem.h"
#include "atom/pool/settings.h"
#include "gossip/pool/manifest.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

atom_status __wrap_pool_run_text(const train_config *config, bool local, char **text);
atom_status __real_pool_run_text(const train_config *config, bool local, char **text);
void __wrap_gsp_manifest_sign(gsp_manifest *m, const gsp_identity *owner);
void __real_gsp_manifest_sign(gsp_manifest *m, const gsp_identity *owner);

atom_status __wrap_pool_run_text(const train_config *config, bool local, char **text)
{
    const char *more = getenv("HOSTILE_RUN");
    char *honest = NULL;
    if (local || !more)
        return __real_pool_run_text(config, local, text);
    ATOM_TRY(__real_pool_run_text(config, local, &honest));
    *text = atom_format("%s%s\n", honest, more);
    atom_free(honest);
    return *text ? ATOM_OK : atom_fail_memory("a configuration", 0);
}

static void rename_file(gsp_manifest *m, const char *how)
{
    char name[GSP_MANIFEST_FILE_NAME_BYTES] = "", as[GSP_MANIFEST_FILE_NAME_BYTES] = "";
    unsigned long long bytes = 0;
    if (sscanf(how, "%63[^:]:%63[^:]:%llu", name, as, &bytes) != 3 &&
        sscanf(how, "%63[^:]::%llu", name, &bytes) != 2)
        abort();
    for (uint32_t i = 0; i < m->n_files; i++) {
        gsp_manifest_file *f = &m->file[i];
        if (strcmp(f->name, name) != 0)
            continue;
        if (as[0])
            memcpy(f->name, as, sizeof as);
        if (bytes)
            f->bytes = bytes;
        return;
    }
    abort();
}

/* One line, in place of the one that begins with the same key. */
static void say(char *settings, size_t most, const char *line, size_t bytes)
{
    size_t key = (size_t)((const char *)memchr(line, ':', bytes) - line) + 1;
    for (char *at = settings; *at;) {
        char *end = strchr(at, '\n'), *next = end ? end + 1 : at + strlen(at);
        if (strncmp(at, line, key) == 0)
            memmove(at, next, strlen(next) + 1);
        else
            at = next;
    }
    size_t n = strlen(settings);
    snprintf(settings + n, most - n, "%.*s\n", (int)bytes, line);
}

void __wrap_gsp_manifest_sign(gsp_manifest *m, const gsp_identity *owner)
{
    const char *file = getenv("HOSTILE_FILE"), *line = getenv("HOSTILE_SETTINGS");
    if (file)
        rename_file(m, file);
    while (line && *line) {
        size_t bytes = strcspn(line, "\n");
        say(m->settings, sizeof m->settings, line, bytes);
        line += bytes + (line[bytes] != 0);
    }
    __real_gsp_manifest_sign(m, owner);
}
