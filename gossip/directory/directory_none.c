/*
 * The directory of a build without OpenDHT: it cannot be opened, so nothing else is ever called. One idea: a pool does
 * without a directory already, where its port or its threads cannot be had, and this is one more such case.
 */
#include "gossip/directory/directory.h"

atom_status gsp_directory_open(const gsp_directory_config *config, gsp_directory **out)
{
    (void)config;
    *out = NULL;
    return atom_fail(
        ATOM_E_UNSUPPORTED,
        "this atom was built without OpenDHT; members are found by a ticket's addresses, by "
        "other members and on the local network");
}

void gsp_directory_close(gsp_directory **directory)
{
    *directory = NULL;
}

atom_status gsp_directory_bootstrap(gsp_directory *directory, const char *host)
{
    (void)directory;
    return atom_fail(ATOM_E_UNSUPPORTED, "%s: this atom was built without OpenDHT", host);
}

void gsp_directory_publish(gsp_directory *directory, const gsp_contact *contact)
{
    (void)directory;
    (void)contact;
}

void gsp_directory_look(gsp_directory *directory)
{
    (void)directory;
}

bool gsp_directory_next(gsp_directory *directory, gsp_contact *out)
{
    (void)directory;
    (void)out;
    return false;
}

void gsp_directory_rekey(gsp_directory *directory, const uint8_t psk[][GSP_PSK_BYTES],
                         uint32_t n_psks)
{
    (void)directory;
    (void)psk;
    (void)n_psks;
}

void gsp_directory_read_stats(gsp_directory *directory, gsp_directory_stats *stats)
{
    (void)directory;
    *stats = (gsp_directory_stats){0};
}

uint16_t gsp_directory_port(const gsp_directory *directory)
{
    (void)directory;
    return 0;
}
