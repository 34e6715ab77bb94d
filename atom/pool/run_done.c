/*
 * Owns the end of a run: how long a member stays for the last average, whether one that is alone has to
 * wait, what it says when nobody is there, and what its directory says of a run that has reached its
 * last step. One idea: nobody of a pool that is done is there any more to ask, so it is kept on disk when
 * this member sees it. Refuses to guess: without the file the others are asked, as ever.
 */
#include "atom/pool/run_inner.h"

#include "atom/base/clock.h"
#include "atom/base/files.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* After its newest version the last average goes on for so long, and so many rounds; a pool of two goes
 * on without the other one before that. */
static const double LAST_SECONDS = 180, LAST_ROUNDS = 8;
/* So long after it came back a member has reached whoever it can reach. */
static const double NOBODY_SECONDS = 10;

/* Seconds until it has waited long enough for another version. */
static double left_seconds(pool_run *r, const pool_anchor_status *s, double *patience_s)
{
    double now = atom_clock_seconds();
    double round_s = r->status->n_rounds ? r->status->round[0].round_s : 0;
    if (r->last_s == 0 || s->applied != r->last_version)
        r->last_s = now;
    r->last_version = s->applied;
    *patience_s = LAST_SECONDS + LAST_ROUNDS * round_s;
    return r->last_s + *patience_s - now;
}

/* The member stays for the versions that are left. */
static bool waits_for_last(pool_run *r, const pool_anchor_status *s, bool alone,
                           char text[GSP_POOL_REST_BYTES])
{
    double patience_s, left_s = left_seconds(r, s, &patience_s);
    const gsp_node_status *m = &r->status->member;
    bool nobody = alone || (m->is_member && m->n_roster == 1 && m->n_links == 0);
    bool comes_back = nobody && !s->lacking && !s->copied; /* to a run that is over */
    if (s->agreed && !r->last_said && !comes_back)
        pool_note(&r->hooks,
                  "all steps of the pool are made; now everybody's weights are averaged once more "
                  "(%llu versions), and then the run ends",
                  (unsigned long long)s->left_versions);
    r->last_said |= s->agreed;
    if (left_s <= 0)
        pool_note(&r->hooks,
                  "warning: the run ends before the last average was complete, because no version "
                  "was made for %.0f s; the last steps may be missing in the pool's model",
                  patience_s);
    if (left_s <= 0 || comes_back) {
        pool_anchor_give_up(r->anchor);
        return false;
    }
    if (alone)
        snprintf(text, GSP_POOL_REST_BYTES,
                 "all steps are made; the last average waits for other members, at most %.0f s",
                 left_s);
    return alone;
}

/* A member cannot tell others that are away from others that have ended with the run, so it says both. */
static void say_nobody(pool_run *r)
{
    double now = atom_clock_seconds();
    if (!r->came_back || (r->met && !r->nobody) || now < r->met_s)
        return;
    r->met_s = now + 1;
    r->back_s = r->back_s > 0 ? r->back_s : now;
    gsp_pool_read_status(r->life, r->status);
    r->nobody = r->nobody && r->status->member.lacks_quorum && r->status->member.n_links == 0;
    r->met = r->met || r->status->member.n_links > 0;
    if (r->met || !r->status->member.lacks_quorum || now < r->back_s + NOBODY_SECONDS)
        return;
    r->met = r->nobody = true;
    pool_note(&r->hooks,
              "nobody of the pool has answered since this member came back; it goes on looking for "
              "them, and Ctrl-C saves and ends. If the others have ended with the run meanwhile, "
              "they have its model: ask one of them for what atom pool export writes there");
}

void pool_run_say_unbegun(pool_run *r)
{
    char ticket[600];
    if (!r->came_back || r->unbegun_said)
        return;
    r->unbegun_said = true;
    if (gsp_pool_is_founder(r->life))
        snprintf(ticket, sizeof ticket, "atom pool ticket %.400s prints", r->dir);
    else
        snprintf(ticket, sizeof ticket, "the pool's owner has (atom pool ticket)");
    pool_note(&r->hooks,
              "no version of this pool is made yet: it begins once %lld members run at the same "
              "time. Members come back with atom pool join -o and their own directory, and others "
              "join with the ticket that %s. Ctrl-C saves and ends",
              (long long)r->settings.min_peers, ticket);
}

/* Too few of the roster are here; or it is on none, and nobody is there who could take it in. */
static bool is_alone(pool_run *r)
{
    double now = atom_clock_seconds();
    gsp_pool_read_status(r->life, r->status);
    const gsp_node_status *s = &r->status->member;
    if (s->is_member || s->n_links > 0 || r->linked_s <= 0)
        r->linked_s = now;
    return s->lacks_quorum || now >= r->linked_s + NOBODY_SECONDS;
}

bool pool_run_ends(pool_run *r, char text[GSP_POOL_REST_BYTES])
{
    pool_anchor_status s;
    say_nobody(r);
    pool_anchor_read_status(r->anchor, false, &s);
    if (!s.stands) {
        r->last_s = r->linked_s = 0;
        if (s.sums && r->nobody)
            snprintf(text, GSP_POOL_REST_BYTES,
                     "nobody answers, and no member makes a sum alone; if the others have ended "
                     "with the run, they have its model");
        return s.sums && r->nobody;
    }
    bool alone = is_alone(r);
    pool_anchor_alone(r->anchor, alone);
    if (s.agreed || !alone)
        return waits_for_last(r, &s, alone, text);
    r->last_s = 0;
    if (s.own_samples == 0)
        return false;
    snprintf(text, GSP_POOL_REST_BYTES,
             "all steps are made, but the last %llu only here, in no version; who ended before may "
             "have the pool's model",
             (unsigned long long)(s.own_samples / (uint64_t)r->settings.batch));
    return true;
}

void pool_run_wait_for_others(pool_run *r, double seconds)
{
    double end = atom_clock_seconds() + seconds;
    bool behind = true;
    while (behind && atom_clock_seconds() < end && !r->hooks.stop(r->hooks.ctx)) {
        usleep(50000);
        gsp_pool_read_status(r->life, r->status);
        behind = false;
        for (uint32_t i = 0; i < r->status->n_peers; i++) {
            const gsp_pool_peer *p = &r->status->peer[i];
            behind |= p->up && p->on_roster && p->applied < r->status->member.applied;
        }
    }
}

static char *done_path(const char *dir)
{
    return atom_format("%s/pool/done", dir);
}

/* The name of a checkpoint in DIR, which may have been moved since. */
static const char *name_of(const char *checkpoint)
{
    const char *slash = checkpoint ? strrchr(checkpoint, '/') : NULL;
    return slash ? slash + 1 : checkpoint ? checkpoint : "";
}

void pool_run_keep_done(const pool_run *r, const pool_anchor_status *s, const char *checkpoint)
{
    char *path = done_path(r->dir);
    const gsp_node_status *m = &r->status->member;
    json_t *o = json_pack("{s:i, s:I, s:I, s:I, s:s}", "format", 1, "version",
                          (json_int_t)s->applied, "step", (json_int_t)s->certified_step, "steps",
                          (json_int_t)s->max_steps, "checkpoint", name_of(checkpoint));
    if (o && m->alone)
        json_object_set_new(o, "alone_from", json_integer((json_int_t)m->alone_from));
    char *text = o ? json_dumps(o, JSON_INDENT(1)) : NULL;
    if (!path || !text || atom_file_write(path, text, strlen(text)) != ATOM_OK)
        atom_log(ATOM_LOG_WARN, "that the run has ended could not be kept in %s", r->dir);
    json_decref(o);
    free(text);
    atom_free(path);
}

void pool_run_forget_done(const pool_run *r)
{
    char *path = done_path(r->dir);
    if (path)
        (void)unlink(path);
    atom_free(path);
}

static uint64_t number_of(const json_t *o, const char *key)
{
    json_int_t n = json_integer_value(json_object_get(o, key));
    return n > 0 ? (uint64_t)n : 0;
}

bool pool_run_was_done(const char *dir, pool_run_done *out)
{
    char *path = done_path(dir), *text = NULL;
    uint64_t bytes;
    json_t *o = NULL;
    *out = (pool_run_done){0};
    if (path && atom_path_exists(path) && atom_file_read(path, 4096, &text, &bytes) == ATOM_OK)
        o = json_loadb(text, (size_t)bytes, JSON_REJECT_DUPLICATES, NULL);
    bool done = number_of(o, "format") == 1 && number_of(o, "steps") > 0;
    if (done) {
        const char *name = json_string_value(json_object_get(o, "checkpoint"));
        out->version = number_of(o, "version");
        out->step = number_of(o, "step");
        out->steps = number_of(o, "steps");
        out->alone = json_object_get(o, "alone_from") != NULL;
        out->alone_from = number_of(o, "alone_from");
        if (name && *name && !strchr(name, '/'))
            snprintf(out->checkpoint, sizeof out->checkpoint, "%s/%s", dir, name);
        if (!atom_path_exists(out->checkpoint))
            out->checkpoint[0] = 0;
    }
    json_decref(o);
    atom_free(text);
    atom_free(path);
    return done;
}
