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

/* Large ones are linked: whoever writes to them afterwards spoils them, and joiners refuse them. */
static atom_status take_file(gsp_pool *p, const gsp_pool_file *file, gsp_manifest_file *out)
{
    char *to = atom_format("%s/files/%s", p->directory, file->name);
    atom_status st;
    if (!to)
        ATOM_TRY_CLEAN(atom_fail_memory("a path", 0));
    if (strlen(file->name) >= sizeof out->name || strchr(file->name, '/'))
        ATOM_TRY_CLEAN(atom_fail(ATOM_E_USAGE, "'%s' is no name for a pool's file", file->name));
    *out = (gsp_manifest_file){.later = file->later};
    strcpy(out->name, file->name);
    if (file->later) {
        atom_free(to);
        to = life_tree_path(p, file->name);
        if (!to)
            ATOM_TRY_CLEAN(atom_fail_memory("a path", 0));
        ATOM_TRY_CLEAN(gsp_pieces_make(file->path, to, &out->bytes, &out->hash));
        goto cleanup;
    }
    ATOM_TRY_CLEAN(life_file_hash(file->path, &out->bytes, &out->hash));
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
    gsp_manifest *m = p->manifest;
    *m = *draft;
    m->number = 1;
    m->n_files = m->n_banned = 0;
    memset(m->file, 0, sizeof m->file);
    memset(m->banned, 0, sizeof m->banned);
    memcpy(m->pool, p->pool, sizeof m->pool);
    memcpy(m->owner, p->owner, sizeof m->owner);
    memcpy(m->founder, p->identity.public_key, sizeof m->founder);
    m->created_s = (uint64_t)atom_wall_seconds();
    gsp_manifest_key_hash(p->psk[0], &m->key);
    if (n_files > GSP_MANIFEST_FILES_MAX)
        return atom_fail(ATOM_E_USAGE, "a pool has at most %d files", GSP_MANIFEST_FILES_MAX);
    for (uint32_t i = 0; i < n_files; i++) {
        ATOM_TRY(take_file(p, &files[i], &m->file[m->n_files++]));
    }
    ATOM_TRY(gsp_manifest_complete(m));
    gsp_manifest_sign(m, &p->identity);
    return gsp_manifest_text(m, &p->manifest_text);
}

static atom_status make_secrets(gsp_pool *p, const gsp_manifest *draft)
{
    char *book = atom_path_join(p->directory, "invites"),
         *files = atom_path_join(p->directory, "files");
    char *trees = atom_path_join(p->directory, "trees");
    atom_status st;
    if (!book || !files || !trees)
        ATOM_TRY_CLEAN(atom_fail_memory("a path", 0));
    randombytes_buf(p->pool, sizeof p->pool);
    randombytes_buf(p->psk[0], sizeof p->psk[0]);
    p->n_psks = 1;
    p->plain = draft->plain;
    p->rotated_s = (uint64_t)atom_wall_seconds();
    memcpy(p->owner, p->identity.public_key, sizeof p->owner);
    ATOM_TRY_CLEAN(atom_dir_make(files));
    ATOM_TRY_CLEAN(atom_dir_make(trees));
    ATOM_TRY_CLEAN(gsp_ledger_open(book, &p->ledger));
cleanup:
    atom_free(book);
    atom_free(files);
    atom_free(trees);
    return st;
}

atom_status gsp_pool_create(const gsp_pool_host *host, const gsp_manifest *draft,
                            const gsp_pool_file *files, uint32_t n_files, gsp_pool **out)
{
    gsp_pool *p = NULL;
    atom_status st;
    if (gsp_pool_exists(host->directory))
        return atom_fail(ATOM_E_USAGE,
                         "%s: there is a pool already; resume it, or take another "
                         "directory",
                         host->directory);
    ATOM_TRY_CLEAN(life_make(host, &p));
    ATOM_TRY_CLEAN(make_secrets(p, draft));
    ATOM_TRY_CLEAN(make_manifest(p, draft, files, n_files));
    ATOM_TRY_CLEAN(life_open_net(p));
    ATOM_TRY_CLEAN(life_save_keys(p));
    ATOM_TRY_CLEAN(life_save_manifest(p));
    p->has_manifest = true;
    ATOM_TRY_CLEAN(life_new_ticket(p, POOL_INVITE_COUNT, POOL_INVITED_DAYS));
    gsp_diary_add(&p->diary, "\"event\":\"created\",\"manifest\":1");
    gsp_headline_say(&p->headline, GSP_POOL_READY, "ready");
    *out = p;
    return ATOM_OK;
cleanup:
    (void)gsp_pool_close(&p);
    return st;
}
