/*
 * The network between the hosts that a file describes, as matrices of delays and rates. A line has
 * a class: one of atom's own (plan_pool_classes), home-DOWN-UP in Mbit/s, or one that the file
 * describes. Between two hosts pass the delays of both lines and of their regions; a transfer gets
 * the slower of the sender's way up and the receiver's way down.
 *
 * Units: seconds, bytes per second; matrices are n x n, entry [from * n + to]. Thread: one caller.
 * Ownership: _open has its _close. Errors: ATOM_E_USAGE names the line of the file, the class, the
 * regions or the cell of a matrix; ATOM_E_RESOURCE.
 */
#ifndef ATOM_PLAN_POOL_NET_H
#define ATOM_PLAN_POOL_NET_H

#include "atom/plan/pool_file.h"
#include "partition/place/place.h"

/* What is different from what the file says, for "what would it buy". */
typedef struct plan_pool_change {
    int32_t more;     /* an entry that has one host more; -1: none */
    const char *link; /* the class whose lines are `faster` times as fast; NULL: all */
    double faster;    /* 1: as they are */
} plan_pool_change;

typedef struct plan_pool_net {
    uint32_t n;
    uint32_t *entry; /* n: of the file */
    char (*name)[PLACE_NAME_BYTES];
    double *delay, *rate;
    double *up, *down; /* n each; NULL with matrices */
} plan_pool_net;

ATOM_MUST atom_status plan_pool_net_open(const plan_pool_file *file, const plan_pool_change *change,
                                         plan_pool_net **out);
void plan_pool_net_close(plan_pool_net **net);

/* Names of the built-in classes; NULL-terminated. */
extern const char *const plan_pool_classes[];

/* n x n numbers of a CSV text, times `unit`; cells of the diagonal may be empty. */
ATOM_MUST atom_status plan_pool_matrix_parse(const char *path, const char *text, uint32_t n,
                                             double unit, double *out);

#endif
