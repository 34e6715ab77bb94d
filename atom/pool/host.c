/*
 * Owns host.yml, what a member decides for its own host. One idea: what was said once holds until
 * something else is said. Refuses keys that it does not know.
 */
#include "atom/pool/host.h"

#include "atom/base/files.h"
#include "atom/base/mem.h"

#include "gossip/gate/net_address.h"

#include <stdio.h>
#include <string.h>

typedef struct kept_values {
    pool_host host;
} kept_values;

static const opt_spec specs[] = {POOL_HOST_NAME_SPEC(kept_values, host, "name"),
                                 POOL_HOST_SPECS(kept_values, host)};
static const opt_command kept_options = {
    .name = "pool join", .summary = "", OPT_TABLE(specs, kept_values)};

static size_t field_bytes(opt_type type)
{
    switch (type) {
    case OPT_FLAG:
        return sizeof(bool);
    case OPT_TEXT:
        return sizeof(char *);
    case OPT_LIST:
        return sizeof(opt_list);
    default:
        return sizeof(double);
    }
}

/* What the row `name` of host.yml is called in a command: pool create has another --name. */
static const char *called(const opt_command *command, const char *name)
{
    static const char IN_CREATE[] = "host_name";
    return strcmp(name, "name") == 0 && opt_find(command, IN_CREATE) >= 0 ? IN_CREATE : name;
}

/* Each row that was not said now: what was kept goes to `now`, and back comes what is freed. */
static void exchange(const opt_command *command, const opt_parsed *said, kept_values *kept,
                     const opt_parsed *found, pool_host *now)
{
    for (uint32_t row = 0; row < kept_options.n_specs; row++) {
        const opt_spec *s = &kept_options.specs[row];
        uint8_t *a = (uint8_t *)kept + s->offset, *b = (uint8_t *)now + s->offset;
        uint8_t spare[sizeof(opt_list)];
        size_t bytes = field_bytes(s->type);
        if (found->origin[row] == OPT_FROM_DEFAULT ||
            opt_given(command, said, called(command, s->name)))
            continue;
        memcpy(spare, a, bytes);
        memcpy(a, b, bytes);
        memcpy(b, spare, bytes);
    }
}

atom_status pool_host_recall(const char *dir, const opt_command *command, const opt_parsed *parsed,
                             pool_host *host)
{
    kept_values kept = {0};
    opt_parsed found = {0};
    char *path = atom_path_join(dir, "host.yml");
    atom_status st;
    if (!path)
        return atom_fail_memory("a path", strlen(dir));
    ATOM_TRY_CLEAN(opt_defaults(&kept_options, &kept, &found));
    if (!atom_path_exists(path))
        goto cleanup;
    ATOM_TRY_CLEAN(opt_read_file(&kept_options, path, &kept, &found));
    exchange(command, parsed, &kept, &found, host);
cleanup:
    opt_free(&kept_options, &kept);
    atom_free(path);
    return st;
}

atom_status pool_host_keep(const char *dir, const pool_host *host)
{
    const kept_values now = {.host = *host};
    char *text = NULL, *path = atom_path_join(dir, "host.yml");
    atom_status st;
    if (!path)
        return atom_fail_memory("a path", strlen(dir));
    ATOM_TRY_CLEAN(opt_print(&kept_options, &now, NULL, false, &text));
    ATOM_TRY_CLEAN(atom_dir_make(dir));
    ATOM_TRY_CLEAN(atom_file_write(path, text, strlen(text)));
cleanup:
    atom_free(text);
    atom_free(path);
    return st;
}

/* Others print it beside other words, in tables and in file names. */
static atom_status check_name(const char *name)
{
    static const char inside[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    size_t n = name ? strlen(name) : 1;
    bool good = !name || (n > 0 && n < POOL_HOST_NAME_BYTES && !strchr("._-", name[0]) &&
                          strspn(name, inside) == n);
    return good ? ATOM_OK
                : atom_fail(ATOM_E_USAGE,
                            "'%.40s' cannot be the name of a member: a name has 1 to %d letters, "
                            "digits and . _ -, and begins with a letter or digit; choose another "
                            "with --name (pool create: --host-name) or as `name` in host.yml",
                            name, POOL_HOST_NAME_BYTES - 1);
}

/* The addresses of one key, which the message names. */
static atom_status parse_listen(const opt_list *listen, gsp_pool_host *out)
{
    char why[512];
    for (uint32_t i = 0; i < listen->n; i++) {
        atom_status st = gsp_address_parse(listen->items[i], &out->listen[out->n_listen]);
        if (st != ATOM_OK) {
            snprintf(why, sizeof why, "%s", atom_fail_message());
            return atom_fail(st, "listen: %s", why);
        }
        out->n_listen++;
    }
    return ATOM_OK;
}

static atom_status take_announced(const pool_host *host, gsp_pool_host *out)
{
    const opt_list *announce = &host->announce;
    if (announce->n && !host->listen.n)
        return atom_fail(ATOM_E_USAGE, "announce has no effect without listen, because nobody can "
                                       "connect to this host; add --listen, such as '*:4400'");
    for (uint32_t i = 0; i < announce->n; i++) {
        const char *address = announce->items[i];
        if (gsp_address_check(address, GSP_TICKET_HOST_BYTES - sizeof "plain+") != ATOM_OK ||
            *address == '*')
            return atom_fail(ATOM_E_USAGE,
                             "announce: '%.80s' is not an address that others can connect to; "
                             "write HOST:PORT, such as box.example:4400",
                             address);
        out->announce[out->n_announce++] = address;
    }
    return ATOM_OK;
}

uint64_t pool_host_limit(double amount, double unit)
{
    double bytes = amount * unit;
    return bytes > 0 && bytes < 1 ? 1 : (uint64_t)bytes;
}

atom_status pool_host_place(const pool_host *host, const char *place, gsp_pool_host *out)
{
    static const pool_host none = {0};
    host = host ? host : &none;
    const opt_list *listen = &host->listen, *announce = &host->announce;
    const opt_list *nodes = &host->directory_nodes;
    *out = (gsp_pool_host){.directory = place,
                           .no_lan = host->no_lan,
                           .no_directory = host->no_directory,
                           .no_router = host->no_router,
                           .up_bytes_per_s = pool_host_limit(host->up_mbit, 1e6 / 8),
                           .down_bytes_per_s = pool_host_limit(host->down_mbit, 1e6 / 8),
                           .up_month_max = pool_host_limit(host->up_month_gb, 1e9),
                           .down_month_max = pool_host_limit(host->down_month_gb, 1e9),
                           .name = host->name};
    ATOM_TRY(check_name(host->name));
    if (listen->n > GSP_POOL_LISTEN_MAX || announce->n > GSP_TICKET_HOSTS_MAX)
        return atom_fail(ATOM_E_USAGE, "at most %d addresses to listen at and %d to announce",
                         GSP_POOL_LISTEN_MAX, GSP_TICKET_HOSTS_MAX);
    if (nodes->n > GSP_POOL_BOOTSTRAPS_MAX)
        return atom_fail(ATOM_E_USAGE, "at most %d nodes of the directory",
                         GSP_POOL_BOOTSTRAPS_MAX);
    if (nodes->n && host->no_directory)
        return atom_fail(ATOM_E_USAGE, "directory_nodes has no effect with no_directory; leave "
                                       "one of them out");
    for (uint32_t i = 0; i < nodes->n; i++) {
        ATOM_TRY(gsp_address_check(nodes->items[i], POOL_HOST_NODE_BYTES));
        out->bootstrap[out->n_bootstraps++] = nodes->items[i];
    }
    ATOM_TRY(parse_listen(listen, out));
    return take_announced(host, out);
}

atom_status pool_host_limits(const pool_host *host, char missing[POOL_LIMITS_WHY_BYTES],
                             pool_limits **out)
{
    const pool_limits_config c = {.hours = host->hours,
                                  .mains_only = host->mains_only,
                                  .celsius_max = host->celsius_max,
                                  .others_max = host->others_max};
    missing[0] = 0;
    *out = NULL;
    if (!c.hours && !c.mains_only && c.celsius_max <= 0 && c.others_max <= 0)
        return ATOM_OK;
    return pool_limits_open(&c, missing, out);
}
