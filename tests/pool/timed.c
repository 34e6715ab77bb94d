/*
 * A host that trains along in a pool, as `atom pool join` does, but for the computing: a step is a
 * pause of so many seconds and a small change to some of the weights. Everything else is real: the
 * seam and its files (atom/pool/anchor.h), the member, gate and disk (gossip/pool/pool.h),
 * checkpoints with marks, coming back from a directory. One idea: who watches asks how many pauses
 * were worth something, and whether all hold the same anchor. Refuses options that it does not
 * know.
 *
 *   pool_timed create DIR LISTEN [KEY=VALUE ...]          prints {"ticket":...}
 *   pool_timed join   DIR LISTEN TICKET [KEY=VALUE ...]   comes back where DIR holds the pool
 *   pool_timed open   DIR LISTEN [KEY=VALUE ...]
 *
 * A line of JSON per version seen (the anchor's hash, samples certified, own steps, how busy); what
 * went wrong is the last. Ends with the exit codes of atom; SIGTERM saves first.
 */
#include "atom/base/clock.h"
#include "atom/base/files.h"
#include "atom/base/mem.h"
#include "atom/pool/anchor.h"
#include "gossip/member/votes.h"
#include "gossip/pool/pool.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { TOKENS = 64 /* of a sample */, BAND = 16 /* a step changes every 16th block */ };

typedef struct timed {
    const char *dir;
    /* What the words say; the pool's own are of meaning for create only. */
    double step_s, heartbeat_s, round_s, fork_s, due_s;
    uint64_t floats, fragments, sync_steps, batch, save_steps, codec, silent, hash, streams;
    uint64_t up, down; /* bytes/s of the link; 0: not known */
    double seconds;    /* to train; 0: until a signal */

    gsp_pool *life;
    pool_anchor *pool;
    train_seam seam;
    gsp_pool_status *status;
    float *live;
    char *marks; /* of the checkpoint */
    uint64_t steps, samples, tokens, noise;
    uint64_t first_steps, first_tokens;
    double scaled, from_s, change_s;
    double outside_s, worst_s; /* of the pauses, in all and at most */
    uint64_t shown;
} timed;

static volatile sig_atomic_t ending;

static void on_term(int signal_number)
{
    ending = signal_number;
}

/* ---- words ---- */

typedef struct word {
    const char *name;
    size_t offset;
    bool real;
} word;

static const word words[] = {
    {"step", offsetof(timed, step_s), true},      {"heartbeat", offsetof(timed, heartbeat_s), true},
    {"round", offsetof(timed, round_s), true},    {"fork", offsetof(timed, fork_s), true},
    {"due", offsetof(timed, due_s), true},        {"seconds", offsetof(timed, seconds), true},
    {"floats", offsetof(timed, floats), false},   {"fragments", offsetof(timed, fragments), false},
    {"sync", offsetof(timed, sync_steps), false}, {"batch", offsetof(timed, batch), false},
    {"save", offsetof(timed, save_steps), false}, {"codec", offsetof(timed, codec), false},
    {"silent", offsetof(timed, silent), false},   {"hash", offsetof(timed, hash), false},
    {"streams", offsetof(timed, streams), false}, {"up", offsetof(timed, up), false},
    {"down", offsetof(timed, down), false},
};

static atom_status read_word(timed *t, const char *text)
{
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t n = strlen(words[i].name);
        if (strncmp(text, words[i].name, n) != 0 || text[n] != '=')
            continue;
        void *at = (char *)t + words[i].offset;
        if (words[i].real)
            *(double *)at = strtod(text + n + 1, NULL);
        else
            *(uint64_t *)at = strtoull(text + n + 1, NULL, 10);
        return ATOM_OK;
    }
    return atom_fail(ATOM_E_USAGE, "%s is no option of this program", text);
}

/* ---- checkpoints: counts, marks, weights, in one file ---- */

typedef struct kept {
    uint64_t steps, samples, tokens, marks;
} kept;

static atom_status save(const timed *t)
{
    char *path = atom_path_join(t->dir, "checkpoint"), *all = NULL;
    char *marks = t->seam.marks(t->seam.ctx);
    atom_status st = ATOM_OK;
    if (!path || !marks)
        ATOM_TRY_CLEAN(atom_fail_memory("a checkpoint", 4096));
    kept k = {t->steps, t->samples, t->tokens, strlen(marks)};
    size_t bytes = sizeof k + k.marks + t->floats * sizeof(float);
    if (!(all = atom_alloc(bytes, 1)))
        ATOM_TRY_CLEAN(atom_fail_memory("a checkpoint", bytes));
    memcpy(all, &k, sizeof k);
    memcpy(all + sizeof k, marks, k.marks);
    memcpy(all + sizeof k + k.marks, t->live, t->floats * sizeof(float));
    st = atom_file_write(path, all, bytes);
cleanup:
    atom_free(all);
    atom_free(marks);
    atom_free(path);
    return st;
}

static atom_status load(timed *t)
{
    char *path = atom_path_join(t->dir, "checkpoint"), *all = NULL;
    uint64_t bytes;
    kept k;
    atom_status st = path ? ATOM_OK : atom_fail_memory("a path", 256);
    if (st != ATOM_OK || !atom_path_exists(path))
        goto cleanup;
    ATOM_TRY_CLEAN(atom_file_read(path, UINT64_C(1) << 40, &all, &bytes));
    if (bytes < sizeof k)
        ATOM_TRY_CLEAN(atom_fail(ATOM_E_FORMAT, "%s: too short", path));
    memcpy(&k, all, sizeof k);
    if (bytes != sizeof k + k.marks + t->floats * sizeof(float))
        ATOM_TRY_CLEAN(atom_fail(ATOM_E_FORMAT, "%s: of another size than the model", path));
    if (!(t->marks = atom_alloc(k.marks + 1, 1)))
        ATOM_TRY_CLEAN(atom_fail_memory("marks", k.marks));
    memcpy(t->marks, all + sizeof k, k.marks);
    memcpy(t->live, all + sizeof k + k.marks, t->floats * sizeof(float));
    t->steps = k.steps;
    t->samples = k.samples;
    t->tokens = k.tokens;
cleanup:
    atom_free(all);
    atom_free(path);
    return st;
}

/* ---- coming in, as tools/pool/cmd_pool_train.c does it ---- */

static bool watch(void *context, const gsp_pool_progress *p)
{
    char *last = context;
    if (strcmp(last, p->text) != 0) {
        printf("{\"progress\":\"%s\"}\n", p->text);
        snprintf(last, 256, "%s", p->text);
    }
    return !ending;
}

static atom_status create(timed *t, const gsp_pool_host *host)
{
    uint32_t fragments = pool_fragments(t->floats, (uint32_t)t->fragments);
    gsp_manifest *m = atom_alloc(1, sizeof *m);
    if (!m)
        return atom_fail_memory("a manifest", sizeof *m);
    *m = (gsp_manifest){.name = "a pool of pauses",
                        .n_fragments = fragments,
                        .codec = (gsp_codec)t->codec,
                        .tokens_per_sample = TOKENS,
                        .samples_due = t->batch * t->sync_steps / fragments,
                        .time_due_s = t->due_s,
                        .fork_s = t->fork_s,
                        .heartbeat_s = t->heartbeat_s,
                        .round_s = t->round_s,
                        .silent_rounds = (uint32_t)t->silent};
    snprintf(m->settings, sizeof m->settings, "batch: %llu\n", (unsigned long long)t->batch);
    for (uint32_t f = 0; f < fragments; f++) {
        uint64_t first;
        m->n_floats[f] = pool_fragment_range(t->floats, fragments, f, &first);
    }
    atom_status st = gsp_pool_create(host, m, NULL, 0, &t->life);
    atom_free(m);
    if (st == ATOM_OK)
        printf("{\"ticket\":\"%s\"}\n", gsp_pool_ticket(t->life));
    return st;
}

static atom_status open_seam(timed *t, const gsp_manifest *m)
{
    char *anchor = atom_path_join(t->dir, "anchor");
    const char *batch = strchr(m->settings, ':');
    atom_status st;
    t->floats = 0;
    for (uint32_t f = 0; f < m->n_fragments; f++)
        t->floats += m->n_floats[f];
    t->batch = batch ? strtoull(batch + 1, NULL, 10) : 1;
    pool_anchor_config c = {.directory = anchor,
                            .n_floats = t->floats,
                            .n_fragments = m->n_fragments,
                            .outer_learning_rate = 0.7,
                            .outer_momentum = 0.9,
                            .batch = t->batch,
                            .tokens_per_sample = TOKENS};
    memcpy(c.self.byte, gsp_pool_key(t->life), sizeof c.self.byte);
    st = anchor ? pool_anchor_open(&c, &t->pool) : atom_fail_memory("a path", 256);
    atom_free(anchor);
    if (st != ATOM_OK)
        return st;
    t->seam = pool_anchor_seam(t->pool);
    t->live = atom_alloc(t->floats, sizeof *t->live);
    if (!t->live)
        return atom_fail_memory("the weights", t->floats * sizeof *t->live);
    for (uint64_t i = 0; i < t->floats; i++)
        t->live[i] = 1e-3f * (float)(i % 257);
    return ATOM_OK;
}

static atom_status recall(timed *t, const gsp_manifest *m, const char *member, gsp_saved *saved,
                          bool *any)
{
    gsp_votes *votes = NULL;
    atom_status st = atom_path_exists(member) ? gsp_votes_open(member, &votes) : ATOM_OK;
    *any = false;
    if (st == ATOM_OK && votes && gsp_votes_saved(votes)) {
        *saved = *gsp_votes_saved(votes);
        *any = true;
    } else if (st == ATOM_OK && gsp_pool_is_founder(t->life)) {
        gsp_manifest_genesis(m, &saved->genesis);
        *any = true;
    }
    gsp_votes_close(&votes);
    return st;
}

static atom_status restore(timed *t, const gsp_manifest *m)
{
    char *member = atom_path_join(t->dir, "member");
    gsp_saved *saved = atom_alloc(1, sizeof *saved);
    bool any = false;
    atom_status st = member && saved ? ATOM_OK : atom_fail_memory("a member's memory", 4096);
    if (st == ATOM_OK)
        st = recall(t, m, member, saved, &any);
    if (st == ATOM_OK && any)
        st = pool_anchor_restore(t->pool, saved);
    if (st == ATOM_E_FORMAT) {
        printf("{\"forgets\":\"%s\"}\n", atom_fail_message());
        st = gsp_votes_forget(member);
    }
    atom_free(member);
    atom_free(saved);
    return st;
}

static atom_status wait_for_anchor(timed *t)
{
    char why[GSP_POOL_WHY_BYTES], last[GSP_POOL_WHY_BYTES] = "";
    atom_status end = ATOM_OK;
    while (!pool_anchor_ready(t->pool)) {
        if (ending)
            return atom_fail(ATOM_E_INTERRUPTED, "stopped before the pool's weights had arrived");
        if (gsp_pool_wishes(t->life, why, &end) == GSP_POOL_STOP)
            return atom_fail(end == ATOM_OK ? ATOM_E_INTERRUPTED : end, "%s", why);
        gsp_pool_read_status(t->life, t->status);
        if (strcmp(last, t->status->text) != 0)
            printf("{\"waits\":\"%s\"}\n", t->status->text);
        snprintf(last, sizeof last, "%s", t->status->text);
        usleep(20000);
    }
    return ATOM_OK;
}

static atom_status start(timed *t, bool genesis)
{
    const gsp_manifest *m = gsp_pool_manifest(t->life);
    gsp_pool_part part = {.rates = {t->up, t->down, true}};
    ATOM_TRY(open_seam(t, m));
    ATOM_TRY(load(t));
    memcpy(&t->noise, gsp_pool_key(t->life), sizeof t->noise);
    if (genesis)
        ATOM_TRY(pool_anchor_begin(t->pool, file_vector_memory(t->live)));
    else
        ATOM_TRY(restore(t, m));
    part.holds_genesis = gsp_pool_is_founder(t->life) && pool_anchor_ready(t->pool);
    pool_anchor_work(t->pool, &part.work);
    ATOM_TRY(gsp_pool_start(t->life, &part));
    printf("{\"started\":%d,\"port\":%u}\n", (int)getpid(), gsp_pool_port(t->life));
    ATOM_TRY(wait_for_anchor(t));
    t->first_steps = t->steps;
    t->first_tokens = t->tokens;
    return pool_anchor_attach(t->pool, file_vector_memory(t->live), t->marks, t->samples,
                              t->tokens);
}

/* ---- training ---- */

static void pause_until(double at_s)
{
    struct timespec at = {.tv_sec = (time_t)at_s,
                          .tv_nsec = (long)((at_s - (double)(time_t)at_s) * 1e9)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR && !ending)
        continue;
}

/* Every BAND-th block moves a little, at random: contributions are never empty, and differ. */
static void change(timed *t)
{
    enum { BLOCK = 128 };
    for (uint64_t at = t->steps % BAND * BLOCK; at < t->floats; at += BAND * BLOCK)
        for (uint64_t i = at; i < at + BLOCK && i < t->floats; i++) {
            t->noise = t->noise * 6364136223846793005u + 1442695040888963407u;
            t->live[i] += 1e-3f * ((float)(t->noise >> 40) * 0x1p-24f - 0.5f);
        }
}

static void show(timed *t, const char *what)
{
    pool_anchor_status s;
    char hex[33] = "";
    pool_anchor_read_status(t->pool, t->hash != 0, &s);
    gsp_pool_read_status(t->life, t->status);
    for (int i = 0; i < 16 && t->hash; i++)
        snprintf(hex + 2 * i, 3, "%02x", s.anchor.byte[i]);
    double wall = atom_clock_seconds() - t->from_s;
    uint64_t n = t->steps - t->first_steps;
    printf("{\"%s\":%llu,\"anchor\":\"%s\",\"certified\":%llu,\"steps\":%llu,\"waiting\":%llu,"
           "\"included\":%llu,\"roster\":%u,\"busy\":%.5f,\"outside\":%.4f,\"worst\":%.4f,"
           "\"seam\":%.4f,\"wall\":%.3f,\"round\":%.3f,\"out\":%llu,\"in\":%llu,\"faults\":%llu}\n",
           what, (unsigned long long)s.applied, hex, (unsigned long long)s.certified_samples,
           (unsigned long long)n, (unsigned long long)s.own_samples, (unsigned long long)s.included,
           t->status->member.n_roster, wall > 0 ? (double)n * t->step_s / wall : 0, t->outside_s,
           t->worst_s, s.seam_seconds, wall, 1e-9 * (double)t->status->member.round_ns,
           (unsigned long long)t->status->bytes_out, (unsigned long long)t->status->bytes_in,
           (unsigned long long)t->status->faults);
    t->shown = s.applied;
}

/* What a trainer does between two computations. */
static atom_status turn(timed *t)
{
    pool_anchor_status s;
    t->seam.before_updates(t->seam.ctx, t->live, NULL);
    double change_s = atom_clock_seconds();
    change(t);
    t->change_s = atom_clock_seconds() - change_s;
    t->seam.after_updates(t->seam.ctx, t->live);
    t->steps++;
    t->samples += t->batch;
    t->tokens += t->batch * TOKENS;
    t->seam.stepped(t->seam.ctx, t->samples, t->tokens);
    gsp_pool_read_status(t->life, t->status);
    uint32_t n = t->status->member.n_roster ? t->status->member.n_roster : 1;
    t->scaled += (double)t->batch / n;
    gsp_pool_report(t->life, (uint64_t)t->scaled, t->tokens - t->first_tokens);
    pool_anchor_read_status(t->pool, false, &s);
    if (s.applied != t->shown)
        show(t, "version");
    return t->save_steps && t->steps % t->save_steps == 0 ? save(t) : ATOM_OK;
}

static atom_status train(timed *t)
{
    char why[GSP_POOL_WHY_BYTES];
    atom_status st = ATOM_OK, end = ATOM_OK;
    double done_s = t->from_s = atom_clock_seconds();
    double until_s = t->seconds > 0 ? done_s + t->seconds : 1e18;
    pool_anchor_running(t->pool, true);
    while (st == ATOM_OK && !ending && done_s < until_s) {
        if (gsp_pool_wishes(t->life, why, &end) == GSP_POOL_STOP) {
            st = atom_fail(end == ATOM_OK ? ATOM_E_INTERRUPTED : end, "%s", why);
            break;
        }
        double computed_s = done_s + t->step_s - t->change_s; /* which was computing, too */
        pause_until(computed_s);
        st = turn(t);
        done_s = atom_clock_seconds();
        double outside = done_s - computed_s - t->change_s;
        t->outside_s += outside;
        t->worst_s = outside > t->worst_s ? outside : t->worst_s;
    }
    pool_anchor_running(t->pool, false);
    show(t, "end");
    return st == ATOM_OK && t->save_steps ? save(t) : st;
}

static atom_status begin(timed *t, const char *verb, const char *ticket, const gsp_pool_host *host)
{
    char last[256] = "";
    if (strcmp(verb, "create") == 0)
        return create(t, host);
    if (ticket && !gsp_pool_exists(t->dir))
        return gsp_pool_join(host, ticket, 120, watch, last, &t->life);
    return gsp_pool_open(host, &t->life);
}

static atom_status run(timed *t, int argc, char **argv)
{
    bool joins = strcmp(argv[1], "join") == 0;
    gsp_pool_host host = {.directory = argv[2],
                          .no_lan = true,
                          .no_directory = true,
                          .no_router = true,
                          .n_listen = 1};
    if (joins && argc < 5)
        return atom_fail(ATOM_E_USAGE, "the ticket is missing");
    for (int i = joins ? 5 : 4; i < argc; i++)
        ATOM_TRY(read_word(t, argv[i]));
    host.streams = (uint32_t)t->streams;
    ATOM_TRY(gsp_address_parse(argv[3], &host.listen[0]));
    t->status = atom_alloc(1, sizeof *t->status);
    if (!t->status)
        ATOM_TRY(atom_fail_memory("a status", sizeof *t->status));
    ATOM_TRY(begin(t, argv[1], joins ? argv[4] : NULL, &host));
    ATOM_TRY(start(t, strcmp(argv[1], "create") == 0));
    return train(t);
}

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc < 4)
        return 2;
    struct sigaction action = {.sa_handler = on_term};
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    timed t = {.dir = argv[2],
               .step_s = 0.5,
               .heartbeat_s = 1,
               .floats = 1 << 20,
               .fragments = 4,
               .sync_steps = 40,
               .batch = 8,
               .save_steps = 40,
               .codec = GSP_CODEC_INT8,
               .hash = 1};
    atom_status st = run(&t, argc, argv);
    if (st != ATOM_OK)
        printf("{\"failed\":\"%s\"}\n", atom_fail_message());
    if (gsp_pool_close(&t.life) != ATOM_OK && st == ATOM_OK) {
        printf("{\"failed\":\"%s\"}\n", atom_fail_message());
        st = ATOM_E_RUNTIME;
    }
    pool_anchor_close(&t.pool);
    atom_free(t.status);
    atom_free(t.marks);
    atom_free(t.live);
    return atom_status_exit_code(st);
}
