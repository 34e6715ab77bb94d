/*
 * What a pool's member decides for its own host: where it listens, where it looks for others, when
 * it may compute (docs/design/pool.md#what-the-user-sees). Options of atom pool create and join
 * alike; kept in DIR/host.yml, so that a host that comes back by itself comes back as it was.
 *
 * Ownership: texts and lists as in options.h. Thread: one at a time.
 */
#ifndef ATOM_POOL_HOST_H
#define ATOM_POOL_HOST_H

#include "atom/options/options.h"
#include "atom/pool/limits.h"
#include "gossip/pool/pool.h"

enum { POOL_HOST_NAME_BYTES = 32, POOL_HOST_NODE_BYTES = 80 /* with the NUL */ };

typedef struct pool_host {
    char *name; /* what others see beside the key; NULL: the machine's host name */
    opt_list listen, announce, directory_nodes;
    bool no_lan, no_directory, no_router, mains_only;
    char *hours;
    double celsius_max, others_max;
    double up_mbit, down_mbit;         /* per second; 0: no caps */
    double up_month_gb, down_month_gb; /* per calendar month, 10^9 bytes; 0: no caps */
    double disk_gb;                    /* that DIR may take, 10^9 bytes; 0: what is free */
} pool_host;

/* The row of the name, which is `name` in host.yml and for pool join; pool create, whose --name is the
 * pool's, calls it `host_name`. */
#define POOL_HOST_NAME_SPEC(values_type, member, key)                                              \
    {                                                                                              \
        .name = key, .type = OPT_TEXT, .offset = offsetof(values_type, member.name),               \
        .value = "NAME", .group = "This member (kept in DIR/host.yml)",                            \
        .help = "The name that others see beside this member's key: up to 31 letters, "            \
                "digits and . _ - Default: the name of this machine."                              \
    }

/* The other rows of `member`, a pool_host in `values_type`. */
#define POOL_HOST_SPECS(values_type, member)                                                       \
    {.name = "listen",                                                                             \
     .type = OPT_LIST,                                                                             \
     .offset = offsetof(values_type, member.listen),                                               \
     .value = "ADDRESS:PORT",                                                                      \
     .group = "Network (kept in DIR/host.yml)",                                                    \
     .help = "The address at which this host accepts connections; *:4400 means all "               \
             "its addresses. Without this option, pool create listens at *:4400 and "              \
             "puts all addresses of this host into the ticket, while pool join only "              \
             "opens connections itself; such a member sums no part for the others."},              \
        {.name = "announce",                                                                       \
         .type = OPT_LIST,                                                                         \
         .offset = offsetof(values_type, member.announce),                                         \
         .value = "NAME:PORT",                                                                     \
         .help = "The address that others should connect to, for example if this host is "         \
                 "behind a router or has a name. Tickets contain it instead of the addresses of " \
                 "this host, and members try it first. What a name means is looked up again every " \
                 "five minutes, so a dynamic DNS serves. Needs --listen."},                        \
        {.name = "no_lan",                                                                         \
         .type = OPT_FLAG,                                                                         \
         .offset = offsetof(values_type, member.no_lan),                                           \
         .help = "Do not look for members on the local network."},                                 \
        {.name = "no_directory",                                                                   \
         .type = OPT_FLAG,                                                                         \
         .offset = offsetof(values_type, member.no_directory),                                     \
         .help = "Do not take part in the public directory."},                                     \
        {.name = "directory_nodes",                                                                \
         .type = OPT_LIST,                                                                         \
         .offset = offsetof(values_type, member.directory_nodes),                                  \
         .value = "NAME:PORT",                                                                     \
         .help = "Nodes of the directory (OpenDHT, UDP) to ask first, in addition to "             \
                 "members that this host knows. They help to find the pool if all known "          \
                 "addresses are out of date."},                                                    \
        {.name = "no_router",                                                                      \
         .type = OPT_FLAG,                                                                         \
         .offset = offsetof(values_type, member.no_router),                                        \
         .help = "Do not ask the router (NAT-PMP, UPnP) to forward the port when "                 \
                 "listening at all addresses."},                                                   \
        {.name = "max_upload",                                                                     \
         .type = OPT_NUMBER,                                                                       \
         .offset = offsetof(values_type, member.up_mbit),                                          \
         .max = 1e6,                                                                               \
         .value = "MBIT",                                                                          \
         .help = "The most that this host sends, in Mbit/s; its share of the averaging is "        \
                 "planned accordingly. 0: no limit."},                                             \
        {.name = "max_download",                                                                   \
         .type = OPT_NUMBER,                                                                       \
         .offset = offsetof(values_type, member.down_mbit),                                        \
         .max = 1e6,                                                                               \
         .value = "MBIT",                                                                          \
         .help = "The most that this host receives, in Mbit/s. 0: no limit."},                     \
        {.name = "max_upload_month",                                                               \
         .type = OPT_NUMBER,                                                                       \
         .offset = offsetof(values_type, member.up_month_gb),                                      \
         .max = 1e9,                                                                               \
         .value = "GB",                                                                            \
         .help = "The most that this host sends in a calendar month, in GB (10^9 bytes); "         \
                 "after that it rests until the next month. 0: no limit."},                        \
        {.name = "max_download_month",                                                             \
         .type = OPT_NUMBER,                                                                       \
         .offset = offsetof(values_type, member.down_month_gb),                                    \
         .max = 1e9,                                                                               \
         .value = "GB",                                                                            \
         .help = "The most that this host receives in a calendar month, in GB. 0: no "             \
                 "limit."},                                                                        \
        {.name = "max_disk",                                                                       \
         .type = OPT_NUMBER,                                                                       \
         .offset = offsetof(values_type, member.disk_gb),                                          \
         .max = 1e9,                                                                               \
         .value = "GB",                                                                            \
         .help = "The most disk space that the pool may use in DIR, in GB; this is "               \
                 "checked before anything is downloaded. 0: all that is free."},                   \
        {.name = "hours",                                                                          \
         .type = OPT_TEXT,                                                                         \
         .offset = offsetof(values_type, member.hours),                                            \
         .value = "FROM-TO",                                                                       \
         .group = "When this host computes (kept in DIR/host.yml)",                                \
         .help = "Compute only at these times, by this host's clock: 22:00-07:00; "                \
                 "separate several by commas."},                                                   \
        {.name = "mains_only",                                                                     \
         .type = OPT_FLAG,                                                                         \
         .offset = offsetof(values_type, member.mains_only),                                       \
         .help = "Do not compute on battery."},                                                    \
        {.name = "max_temperature",                                                                \
         .type = OPT_NUMBER,                                                                       \
         .offset = offsetof(values_type, member.celsius_max),                                      \
         .max = 150,                                                                               \
         .value = "CELSIUS",                                                                       \
         .help = "Rest while the processor or card is hotter than this. 0: no limit."},            \
    {                                                                                              \
        .name = "others_cores", .type = OPT_NUMBER,                                                \
        .offset = offsetof(values_type, member.others_max), .max = 4096, .value = "N",             \
        .help = "Rest while other programs use more than this many cores. 0: no limit."            \
    }

/*
 * Rows that were not given on the command line become what dir/host.yml says, where it is there.
 * command, parsed: of the values that `host` is a member of.
 * Errors  ATOM_E_USAGE  host.yml is not what pool_host_keep writes; those of the disk
 */
ATOM_MUST atom_status pool_host_recall(const char *dir, const opt_command *command,
                                       const opt_parsed *parsed, pool_host *host);
/* Writes dir/host.yml; makes dir. */
ATOM_MUST atom_status pool_host_keep(const char *dir, const pool_host *host);
/* For gossip/pool/pool.h; borrows texts. host NULL: it only dials. place: the pool's directory.
 * ATOM_E_USAGE  not an address, or too many; a name with other characters or too long */
ATOM_MUST atom_status pool_host_place(const pool_host *host, const char *place, gsp_pool_host *out);
/* What a limit is in bytes; 0: there is none. One above zero is at least a byte. */
uint64_t pool_host_limit(double amount, double unit);
/* NULL: nothing is limited. missing: pool_limits_open. */
ATOM_MUST atom_status pool_host_limits(const pool_host *host, char missing[POOL_LIMITS_WHY_BYTES],
                                       pool_limits **out);

#endif
