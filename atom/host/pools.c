/*
 * Owns pools.yml, what a box takes part in. One idea: what an item may say is an option table, which
 * opt_read_document reads. Refuses items that contradict each other.
 */
#include "atom/host/pools.h"

#include "atom/base/files.h"
#include "atom/base/mem.h"
#include "atom/options/options.h"
#include "atom/pool/limits.h"
#include "gossip/pool/pool.h"
#include "gossip/trust/ticket.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

enum { NAME_BYTES_MAX = 48 };
static const double SHARE_MAX = 1e6, SLICE_MAX = 1e6;

#define AT(member) .offset = offsetof(host_pool, member)
static const opt_spec item_specs[] = {
    {.name = "dir", .type = OPT_TEXT, AT(dir), .value = "DIR", .flags = OPT_REQUIRED},
    {.name = "ticket", .type = OPT_TEXT, AT(ticket), .value = "FILE"},
    {.name = "name", .type = OPT_TEXT, AT(name)},
    {.name = "hours", .type = OPT_TEXT, AT(hours)},
    {.name = "share",
     .type = OPT_NUMBER,
     AT(share),
     .fallback = "1",
     .min = 0,
     .max = SHARE_MAX,
     .flags = OPT_ABOVE_MIN},
    {.name = "devices",
     .type = OPT_INT,
     AT(devices),
     .fallback = "auto",
     .min = 1,
     .max = 8, /* as --devices */
     .flags = OPT_AUTO},
};
#undef AT
static const opt_command item_table = {.name = "pools", OPT_TABLE(item_specs, host_pool)};

#define AT(member) .offset = offsetof(host_pools, member)
static const opt_spec top_specs[] = {
    {.name = "slice_seconds",
     .type = OPT_NUMBER,
     AT(slice_seconds),
     .fallback = "auto",
     .min = 1,
     .max = SLICE_MAX,
     .flags = OPT_AUTO},
    {.name = "hours", .type = OPT_TEXT, AT(hours)},
};
#undef AT
static const opt_command top_table = {.name = "the pools of a box",
                                      OPT_TABLE(top_specs, host_pools)};

static const opt_section sections[] = {{
    .table = &item_table,
    .items = offsetof(host_pools, pool),
    .count = offsetof(host_pools, n),
    .line = offsetof(host_pool, line),
    .most = HOST_POOLS_MAX,
    .too_many = "pools; one box takes at most",
    .begins = ", and begins with `dir:`",
    .needs = ", the directory of its membership",
}};
static const opt_document document = {.top = &top_table,
                                      .sections = sections,
                                      .n_sections = 1,
                                      .what = "a list of pools",
                                      .help = "atom host run --help"};

void host_pools_close(host_pools **pools)
{
    host_pools *f = *pools;
    if (!f)
        return;
    atom_free(f->path);
    opt_document_free(&document, f);
    atom_free(f);
    *pools = NULL;
}

/* ---- what the items say together ---- */

/* A path from where the program runs; *path is replaced. */
static atom_status place(const host_pools *f, char **path)
{
    const char *slash = strrchr(f->path, '/');
    if (!*path || (*path)[0] == '/' || !slash)
        return ATOM_OK;
    char *whole = atom_format("%.*s/%s", (int)(slash - f->path), f->path, *path);
    if (!whole)
        return atom_fail_memory("a path", strlen(*path));
    atom_free(*path);
    *path = whole;
    return ATOM_OK;
}

static atom_status check_hours(const char *hours)
{
    const pool_limits_config config = {.hours = hours};
    pool_limits *limits = NULL;
    if (!hours)
        return ATOM_OK;
    ATOM_TRY(pool_limits_open(&config, NULL, &limits));
    pool_limits_close(&limits);
    return ATOM_OK;
}

static bool is_name(const char *text)
{
    size_t n = strlen(text);
    return n > 0 && n <= NAME_BYTES_MAX && text[0] != '.' &&
           strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == n;
}

/* The last part of dir is the name, if nothing else was said. */
static atom_status name_item(host_pool *p)
{
    if (p->name)
        return ATOM_OK;
    size_t end = strlen(p->dir);
    while (end > 1 && p->dir[end - 1] == '/')
        end--;
    size_t from = end;
    while (from > 0 && p->dir[from - 1] != '/')
        from--;
    p->name = atom_strndup(p->dir + from, end - from);
    return p->name ? ATOM_OK : atom_fail_memory("a name", end);
}

static atom_status check_item(const host_pools *f, uint32_t i)
{
    host_pool *p = &f->pool[i];
    ATOM_TRY(name_item(p));
    if (!is_name(p->name))
        return atom_fail(ATOM_E_USAGE,
                         "'%.64s' cannot be the name of a pool: a name has 1 to %d letters, "
                         "digits and . _ -; choose another with 'name'",
                         p->name, NAME_BYTES_MAX);
    ATOM_TRY(check_hours(p->hours));
    ATOM_TRY(place(f, &p->dir));
    ATOM_TRY(place(f, &p->ticket));
    for (uint32_t k = 0; k < i; k++) {
        if (strcmp(f->pool[k].dir, p->dir) == 0)
            return atom_fail(ATOM_E_USAGE, "%s is also the directory of the pool in line %u",
                             p->dir, f->pool[k].line);
        if (strcmp(f->pool[k].name, p->name) == 0)
            return atom_fail(ATOM_E_USAGE,
                             "the pool in line %u is also called '%s'; choose another name with "
                             "'name'",
                             f->pool[k].line, p->name);
    }
    return ATOM_OK;
}

static atom_status check_together(const host_pools *f)
{
    if (f->n == 0)
        return atom_fail(ATOM_E_USAGE, "%s: there are no pools in it; list them under 'pools'",
                         f->path);
    atom_status st = check_hours(f->hours);
    if (st != ATOM_OK)
        return atom_fail_in(st, "%s: ", f->path);
    for (uint32_t i = 0; st == ATOM_OK && i < f->n; i++) {
        st = check_item(f, i);
        if (st != ATOM_OK)
            st = atom_fail_in(st, "%s:%u: ", f->path, f->pool[i].line);
    }
    return st;
}

atom_status host_pools_parse(const char *path, const char *text, size_t bytes, host_pools **out)
{
    host_pools *f = atom_alloc(1, sizeof *f);
    atom_status st;
    if (!f)
        return atom_fail_memory("the pools of a box", sizeof *f);
    ATOM_TRY_CLEAN(opt_read_document(&document, path, text, bytes, f));
    f->path = atom_strdup(path);
    if (!f->path)
        ATOM_TRY_CLEAN(atom_fail_memory("a path", strlen(path)));
    ATOM_TRY_CLEAN(check_together(f));
    *out = f;
    f = NULL;
cleanup:
    host_pools_close(&f);
    return st;
}

atom_status host_pools_read(const char *path, host_pools **out)
{
    char *text = NULL, missing[512];
    size_t bytes = 0;
    snprintf(missing, sizeof missing,
             "there is no %s; write one that lists the pools of this box (atom host run --help "
             "shows an example)",
             path);
    ATOM_TRY(opt_file_text(path, missing, &text, &bytes));
    atom_status st = host_pools_parse(path, text, bytes, out);
    atom_free(text);
    return st;
}

/* ---- the disk ---- */

bool host_pool_joined(const host_pool *pool)
{
    char *inner = atom_path_join(pool->dir, "pool");
    bool joined = inner && gsp_pool_exists(inner);
    atom_free(inner);
    return joined;
}

bool host_pool_is_paused(const host_pool *pool)
{
    char *inner = atom_path_join(pool->dir, "pool");
    bool paused = inner && gsp_pool_is_paused(inner);
    atom_free(inner);
    return paused;
}

static atom_status check_rights(const host_pool *p)
{
    char *inner = atom_path_join(p->dir, "pool");
    atom_status st =
        inner ? gsp_pool_check_rights(inner) : atom_fail_memory("a path", strlen(p->dir));
    atom_free(inner);
    return st;
}

/* A process that joins with it would be started again and again. */
static atom_status check_ticket(const host_pool *p)
{
    char text[GSP_TICKET_TEXT_BYTES];
    gsp_ticket ticket;
    if (!atom_path_exists(p->ticket))
        return atom_fail(ATOM_E_USAGE, "there is no file %s with a ticket", p->ticket);
    ATOM_TRY(gsp_ticket_read(p->ticket, text));
    atom_status st = gsp_ticket_parse(text, &ticket);
    explicit_bzero(text, sizeof text);
    explicit_bzero(&ticket, sizeof ticket);
    return st == ATOM_OK ? ATOM_OK : atom_fail_in(st, "%s: ", p->ticket);
}

static atom_status check_place(const host_pool *p)
{
    ATOM_TRY(check_rights(p));
    if (host_pool_joined(p))
        return ATOM_OK;
    if (!p->ticket)
        return atom_fail(ATOM_E_USAGE,
                         "%s holds no membership in a pool; join the pool once (atom pool join - "
                         "-o %s), or name the file of a ticket with 'ticket'",
                         p->dir, p->dir);
    return check_ticket(p);
}

atom_status host_pools_check(const host_pools *f)
{
    struct stat seen[HOST_POOLS_MAX];
    bool there[HOST_POOLS_MAX];
    for (uint32_t i = 0; i < f->n; i++) {
        atom_status st = check_place(&f->pool[i]);
        there[i] = stat(f->pool[i].dir, &seen[i]) == 0;
        for (uint32_t k = 0; st == ATOM_OK && there[i] && k < i; k++)
            if (there[k] && seen[k].st_ino == seen[i].st_ino && seen[k].st_dev == seen[i].st_dev)
                st = atom_fail(ATOM_E_USAGE, "%s is also the directory of the pool in line %u",
                               f->pool[i].dir, f->pool[k].line);
        if (st != ATOM_OK)
            return atom_fail_in(st, "%s:%u: ", f->path, f->pool[i].line);
    }
    return ATOM_OK;
}
