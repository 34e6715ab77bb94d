/*
 * The data set of a pool: the manifest's files that are `later`, which lie in a directory of the
 * user's, each with the root over its pieces (pieces.h). What is there is given to others; what is
 * missing is fetched from all members that have it.
 *
 * Thread: one at a time (the pool's).
 */
#ifndef GOSSIP_POOL_DATA_H
#define GOSSIP_POOL_DATA_H

#include "gossip/member/pieces.h"
#include "gossip/pool/event_log.h"
#include "gossip/pool/links.h"
#include "gossip/pool/status.h"

enum {
    GSP_DATA_ASKED_MAX = 96, /* pieces that one peer waits for */
    GSP_DATA_OPEN_MAX = 8,   /* files that are open to be given */
};

/* What is known of a link. */
typedef struct gsp_data_side {
    uint64_t born; /* of the link that this is about */
    bool full;     /* its bulk: until there is room again */
    uint32_t n;    /* pieces that it waits for */
    struct {
        uint32_t file, piece;
    } asked[GSP_DATA_ASKED_MAX];
} gsp_data_side;

typedef struct gsp_haul gsp_haul; /* what is on its way in */

typedef struct gsp_data {
    /* Borrowed: the pool's directory; empty before there is a manifest. */
    const char *directory;
    const gsp_manifest *manifest;
    gsp_links *links;
    gsp_event_log *diary;
    gsp_node *node; /* whose rounds go first; NULL: there is none */

    char *place;                        /* where data lies; NULL: this host has none to give */
    bool whole[GSP_MANIFEST_FILES_MAX]; /* of the manifest's files: in place, checked */
    gsp_haul *haul;                     /* NULL: nothing is fetched */
    struct {
        gsp_pieces *pieces; /* NULL: free */
        uint32_t file;
        uint64_t used_ns;
    } open[GSP_DATA_OPEN_MAX];
    gsp_data_side side[GSP_NET_PEERS_MAX];
    uint64_t given_ns; /* when a piece was given last */
    uint32_t turn;
} gsp_data;

void gsp_data_close(gsp_data *data);

/* Where data lies from now on, of which nothing was looked at; it need not exist. */
ATOM_MUST atom_status gsp_data_place(gsp_data *data, const char *directory);
/* Looks at one file of data there, and adds it to `out`. ATOM_E_FORMAT: it cannot be read. */
ATOM_MUST atom_status gsp_data_look(gsp_data *data, uint32_t file, gsp_pool_data *out);

/* ---- giving (data_give.c) ---- */

void gsp_data_asked(gsp_data *data, const gsp_link *from, const gsp_word *word);
/* The link's bulk has room again. */
void gsp_data_room(gsp_data *data, const gsp_link *link);
/* Gives what was asked for, unless a round needs the line. Call often. */
void gsp_data_give(gsp_data *data, uint64_t now_ns);
/* Closes the files that are open to be given. */
void gsp_data_close_open(gsp_data *data);
/* The tree of a file; fresh, NULL: no memory. */
char *gsp_data_tree_path(const gsp_data *data, const char *name);

/* ---- getting (data.c) ---- */

void gsp_data_came(gsp_data *data, const gsp_link *from, const gsp_word *word);
/* Asks for what is missing. Call often. */
void gsp_data_step(gsp_data *data, uint64_t now_ns);
/* Begins to fetch what is missing, `bytes` in all with what is here. Then turn until it is finished
 * (the net must be turned between), and end in any case. */
ATOM_MUST atom_status gsp_data_fetch_begin(gsp_data *data, const char *directory, uint64_t bytes);
ATOM_MUST atom_status gsp_data_fetch_turn(gsp_data *data, bool *finished);
void gsp_data_fetch_end(gsp_data *data);
/* While it is fetched: since when nothing came; how far it is; the same as a sentence. */
double gsp_data_silent_s(const gsp_data *data);
void gsp_data_progress(const gsp_data *data, uint64_t *bytes, uint64_t *bytes_here, double *left_s);
const char *gsp_data_text(const gsp_data *data, char *text, size_t bytes);

#endif
