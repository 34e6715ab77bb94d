/*
 * Owns what a member does on a disk that fills up while it trains. One idea: whatever can wait for
 * room waits, and says so once; what cannot ends the member, with the command that goes on. Refuses to
 * begin a step when the checkpoint after it would not fit.
 */
#include "atom/pool/run_inner.h"

#include "atom/base/clock.h"
#include "atom/base/files.h"
#include "atom/base/size.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const uint64_t ROOM_BYTES = 16u << 20; /* votes, results of a version, metrics */
static const double LOOK_S = 1;

bool pool_run_has_room(pool_run *r, char text[GSP_POOL_REST_BYTES])
{
    double now = atom_clock_seconds();
    uint64_t need, room;
    char more[24];
    text[0] = 0;
    if (r->looked_s > 0 && now - r->looked_s < LOOK_S && !r->short_of_disk)
        return true;
    r->looked_s = now;
    need = pool_run_checkpoint_bytes(r, r->t, trainer_floats(r->t));
    need = need > ROOM_BYTES ? need : ROOM_BYTES;
    need += r->short_of_disk ? need / 8 : 0; /* once it waits, until there is a little more */
    if (trainer_is_saving(r->t) || !atom_dir_free_bytes(r->dir, &room))
        return true;
    r->short_of_disk = room < need;
    if (r->short_of_disk)
        snprintf(text, GSP_POOL_REST_BYTES,
                 "waiting for disk space for the next checkpoint: %s more in %.60s",
                 atom_size_text(need - room, more), r->dir);
    return !r->short_of_disk;
}

bool pool_run_wait_room(void *ctx, int fd, uint64_t bytes)
{
    pool_run *r = ctx;
    char text[GSP_POOL_REST_BYTES], more[24];
    (void)fd;
    r->wish = gsp_pool_wishes(r->life, r->why, &r->ended);
    if (r->wish == GSP_POOL_STOP || atomic_load(&r->leaving) || r->hooks.stop(r->hooks.ctx))
        return false;
    snprintf(text, sizeof text, "waiting for disk space: %s more in %.60s",
             atom_size_text(bytes, more), r->dir);
    gsp_pool_say_rest(r->life, text);
    if (!r->starved) {
        pool_note(&r->hooks, "%s", text);
        r->hooks.phase(r->hooks.ctx, POOL_PHASE_RESTING);
    }
    r->starved = true;
    usleep(100000);
    return true;
}

atom_status pool_run_say_return(const pool_run *r, atom_status st)
{
    char why[512];
    if (st != ATOM_E_RESOURCE)
        return st;
    snprintf(why, sizeof why, "%s", atom_fail_message());
    return atom_fail(st,
                     "%s. Nothing that the pool has agreed on is lost; once there is room, go on "
                     "with: atom pool join -o %s",
                     why, r->dir);
}
