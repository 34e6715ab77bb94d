/*
 * Owns the beginning of a pool: keys, manifest, files, the first ticket. Its one idea: everything
 * that others will be told is signed before anything listens. It refuses a directory that holds a
 * pool, and files that cannot be read.
 */
#include "gossip/pool/pool_inner.h"

#include "atom/base/clock.h"
#include "atom/base/files.h"
#include "atom/base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LINK_FROM_BYTES = 64 << 20 };

static atom_status copy_file(const char *from, const char *to)
{
    enum { BUFFER = 1 << 20 };
    atom_status st = ATOM_OK;
    uint8_t *buffer = atom_alloc(BUFFER, 1);
    FILE *in = fopen(from, "rbe"), *out = fopen(to, "wbe");
    size_t n;
    if (!buffer)
        ATOM_TRY_CLEAN(atom_fail_memory("a file", BUFFER));
    if (!in || !out)
        ATOM_TRY_CLEAN(atom_fail_errno(errno, "%s", in ? to : from));
    while ((n = fread(buffer, 1, BUFFER, in)) > 0)
        if (fwrite(buffer, 1, n, out) != n)
            ATOM_TRY_CLEAN(atom_fail_errno(errno, "%s", to));
    if (ferror(in) || fflush(out) != 0 || fsync(fileno(out)) != 0)
        ATOM_TRY_CLEAN(atom_fail_errno(errno, "%s", to));
cleanup:
    if (in)
        fclose(in);
    if (out)
        fclose(out);
    atom_free(buffer);
    return st;
}

/* Large ones are hard links: a program that writes to one later spoils it, and joiners refuse
 * it. */
static atom_status take_file(gsp_pool *p, const gsp_pool_file *file, gsp_manifest_file *out)
{
    char *to = atom_format("%s/files/%s", p->directory, file->name);
    atom_status st;
    if (!to)
        ATOM_TRY_CLEAN(atom_fail_memory("a path", 0));
    if (strlen(file->name) >= sizeof out->name || strchr(file->name, '/'))
        ATOM_TRY_CLEAN(
            atom_fail(ATOM_E_USAGE, "'%s' is not a valid name for a file of a pool", file->name));
    *out = (gsp_manifest_file){.later = file->later};
    strcpy(out->name, file->name);
    if (file->later) {
        atom_free(to);
        to = gsp_data_tree_path(&p->data, file->name);
        if (!to)
            ATOM_TRY_CLEAN(atom_fail_memory("a path", 0));
        ATOM_TRY_CLEAN(gsp_pieces_make(file->path, to, &out->bytes, &out->hash));
        goto cleanup;
    }
    ATOM_TRY_CLEAN(gsp_files_hash(file->path, &out->bytes, &out->hash));
    unlink(to);
    if (out->bytes < LINK_FROM_BYTES || link(file->path, to) != 0)
        ATOM_TRY_CLEAN(copy_file(file->path, to));
cleanup:
    atom_free(to);
    return st;
}

static atom_status make_manifest(gsp_pool *p, const gsp_manifest *draft, const gsp_pool_file *files,
                                 uint32_t n_files)
{
    gsp_manifest *m = p->door.manifest;
    *m = *draft;
    m->number = 1;
    m->n_files = m->n_banned = 0;
    memset(m->file, 0, sizeof m->file);
    memset(m->banned, 0, sizeof m->banned);
    memcpy(m->pool, p->door.pool, sizeof m->pool);
    memcpy(m->owner, p->door.owner, sizeof m->owner);
    memcpy(m->founder, p->door.identity.public_key, sizeof m->founder);
    m->created_s = (uint64_t)atom_wall_seconds();
    gsp_manifest_key_hash(p->door.psk[0], &m->key);
    if (n_files > GSP_MANIFEST_FILES_MAX)
        return atom_fail(ATOM_E_USAGE, "a pool has at most %d files", GSP_MANIFEST_FILES_MAX);
    for (uint32_t i = 0; i < n_files; i++) {
        ATOM_TRY(take_file(p, &files[i], &m->file[m->n_files++]));
    }
    ATOM_TRY(gsp_manifest_complete(m));
    gsp_manifest_sign(m, &p->door.identity);
    return gsp_manifest_text(m, &p->door.manifest_text);
}

static atom_status make_secrets(gsp_pool *p, const gsp_manifest *draft)
{
    gsp_door *d = &p->door;
    randombytes_buf(d->pool, sizeof d->pool);
    randombytes_buf(d->psk[0], sizeof d->psk[0]);
    d->n_psks = 1;
    d->plain = draft->plain;
    d->rotated_s = (uint64_t)atom_wall_seconds();
    memcpy(d->owner, d->identity.public_key, sizeof d->owner);
    ATOM_TRY(gsp_dir_make(p->directory, "files"));
    ATOM_TRY(gsp_dir_make(p->directory, "trees"));
    return gsp_door_load_owner(d);
}

atom_status gsp_pool_create(const gsp_pool_host *host, const gsp_manifest *draft,
                            const gsp_pool_file *files, uint32_t n_files, gsp_pool **out)
{
    gsp_pool *p = NULL;
    atom_status st;
    if (gsp_pool_exists(host->directory))
        return atom_fail(ATOM_E_USAGE,
                         "%s: there is already a pool here; continue it with atom pool join, or "
                         "use another directory",
                         host->directory);
    ATOM_TRY_CLEAN(gsp_pool_make(host, &p));
    ATOM_TRY_CLEAN(make_secrets(p, draft));
    ATOM_TRY_CLEAN(make_manifest(p, draft, files, n_files));
    ATOM_TRY_CLEAN(gsp_pool_open_net(p));
    ATOM_TRY_CLEAN(gsp_door_save_keys(&p->door));
    ATOM_TRY_CLEAN(gsp_door_save_manifest(&p->door));
    p->door.has_manifest = true;
    ATOM_TRY_CLEAN(gsp_pool_usual_ticket(p));
    gsp_event_log_add(&p->diary, "\"event\":\"created\",\"manifest\":1");
    gsp_headline_say(&p->headline, GSP_POOL_READY, "ready");
    *out = p;
    return ATOM_OK;
cleanup:
    (void)gsp_pool_close(&p);
    return st;
}
