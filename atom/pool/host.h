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
        .help = "What others see beside this member's key: up to 31 letters, digits and . _ - "    \
                "(otherwise the name of this machine)."                                            \
    }

/* The other rows of `member`, a pool_host in `values_type`. */
#define POOL_HOST_SPECS(values_type, member)                                                       \
    {.name = "listen",                                                                             \
     .type = OPT_LIST,                                                                             \
     .offset = offsetof(values_type, member.listen),                                               \
     .value = "ADDRESS:PORT",                                                                      \
     .group = "Network (kept in DIR/host.yml)",                                                    \
     .help = "Where others reach this host; *:4400 is every address. Without it pool create "      \
             "listens at *:4400 and puts all addresses of this host into the ticket; pool join "   \
             "only dials, and such a member owns no part of a round."},                            \
        {.name = "announce",                                                                       \
         .type = OPT_LIST,                                                                         \
         .offset = offsetof(values_type, member.announce),                                         \
         .value = "NAME:PORT",                                                                     \
         .help = "What others are told to dial instead, behind a router or a name."},              \
        {.name = "no_lan",                                                                         \
         .type = OPT_FLAG,                                                                         \
         .offset = offsetof(values_type, member.no_lan),                                           \
         .help = "Do not look on the local network."},                                             \
        {.name = "no_directory",                                                                   \
         .type = OPT_FLAG,                                                                         \
         .offset = offsetof(values_type, member.no_directory),                                     \
         .help = "Do not take part in the public directory."},                                     \
        {.name = "directory_nodes",                                                                \
         .type = OPT_LIST,                                                                         \
         .offset = offsetof(values_type, member.directory_nodes),                                  \
         .value = "NAME:PORT",                                                                     \
         .help = "Nodes of the directory (OpenDHT, UDP) to begin with, beside those of members "   \
                 "that this host knows; they find the pool where all addresses are old."},         \
        {.name = "no_router",                                                                      \
         .type = OPT_FLAG,                                                                         \
         .offset = offsetof(values_type, member.no_router),                                        \
         .help = "Do not ask the router (NAT-PMP, UPnP) to forward the port of *."},               \
        {.name = "max_upload",                                                                     \
         .type = OPT_NUMBER,                                                                       \
         .offset = offsetof(values_type, member.up_mbit),                                          \
         .max = 1e6,                                                                               \
         .value = "MBIT",                                                                          \
         .help = "Mbit/s that this host sends at most; others plan its share of the averaging "    \
                 "by it. 0: no limit."},                                                           \
        {.name = "max_download",                                                                   \
         .type = OPT_NUMBER,                                                                       \
         .offset = offsetof(values_type, member.down_mbit),                                        \
         .max = 1e6,                                                                               \
         .value = "MBIT",                                                                          \
         .help = "Mbit/s that it receives at most. 0: no limit."},                                 \
        {.name = "max_upload_month",                                                               \
         .type = OPT_NUMBER,                                                                       \
         .offset = offsetof(values_type, member.up_month_gb),                                      \
         .max = 1e9,                                                                               \
         .value = "GB",                                                                            \
         .help = "GB (10^9 bytes) that this host sends in a calendar month; then it rests until "  \
                 "the next. 0: no limit."},                                                        \
        {.name = "max_download_month",                                                             \
         .type = OPT_NUMBER,                                                                       \
         .offset = offsetof(values_type, member.down_month_gb),                                    \
         .max = 1e9,                                                                               \
         .value = "GB",                                                                            \
         .help = "GB that it receives in a month. 0: no limit."},                                  \
        {.name = "max_disk",                                                                       \
         .type = OPT_NUMBER,                                                                       \
         .offset = offsetof(values_type, member.disk_gb),                                          \
         .max = 1e9,                                                                               \
         .value = "GB",                                                                            \
         .help = "GB of disk that the pool may take in DIR: what it would take is counted before " \
                 "anything is fetched. 0: what is free."},                                         \
        {.name = "hours",                                                                          \
         .type = OPT_TEXT,                                                                         \
         .offset = offsetof(values_type, member.hours),                                            \
         .value = "FROM-TO",                                                                       \
         .group = "When this host computes (kept in DIR/host.yml)",                                \
         .help = "Only then, by its clock: 22:00-07:00; several with commas."},                    \
        {.name = "mains_only",                                                                     \
         .type = OPT_FLAG,                                                                         \
         .offset = offsetof(values_type, member.mains_only),                                       \
         .help = "Not on battery."},                                                               \
        {.name = "max_temperature",                                                                \
         .type = OPT_NUMBER,                                                                       \
         .offset = offsetof(values_type, member.celsius_max),                                      \
         .max = 150,                                                                               \
         .value = "CELSIUS",                                                                       \
         .help = "Rests while processor or card is hotter; 0: no limit."},                         \
    {                                                                                              \
        .name = "others_cores", .type = OPT_NUMBER,                                                \
        .offset = offsetof(values_type, member.others_max), .max = 4096, .value = "N",             \
        .help = "Rests while other programs use more than so many cores; 0: no limit."             \
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
/* NULL: nothing is limited. missing: pool_limits_open. */
ATOM_MUST atom_status pool_host_limits(const pool_host *host, char missing[POOL_LIMITS_WHY_BYTES],
                                       pool_limits **out);

#endif
