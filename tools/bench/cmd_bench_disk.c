/*
 * atom bench disk: how fast the disk tier's store moves bytes, beside fio with the same pattern on
 * the same disk in the same run. One idea: one file, one pass to write it, one to read it, one that
 * does both at once, as training does. Refuses to leave the file behind.
 */
#include "tools/bench/bench.h"

#include "swap/store.h"

#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { DISK_RING_BYTES = 32 << 20, DISK_RANGE_BYTES = 4 << 20, DISK_WAYS = 3, DISK_ROUNDS_MAX = 9 };
static const char *const ways[DISK_WAYS] = {"write", "read", "both"};

typedef struct disk_rate {
    double bytes_per_second; /* both: of the two directions together */
    double cores;            /* CPU seconds per second */
} disk_rate;

/* One thread's share of a pass: ranges of a span of the file through its half of the ring. */
typedef struct disk_job {
    store *store;
    char *ring;
    uint64_t from, to;
    bool write;
    atom_status status;
} disk_job;

static atom_status job_run(const disk_job *j)
{
    enum { AHEAD = DISK_RING_BYTES / 2 / DISK_RANGE_BYTES };
    store_lane *lane = NULL;
    atom_status st = store_lane_open(j->store, &lane);
    uint64_t ticket[AHEAD] = {0}, n = 0;
    for (uint64_t at = j->from; at < j->to && st == ATOM_OK; at += DISK_RANGE_BYTES, n++) {
        char *buffer = j->ring + n % AHEAD * DISK_RANGE_BYTES;
        uint64_t bytes = j->to - at < DISK_RANGE_BYTES ? j->to - at : DISK_RANGE_BYTES;
        if (n >= AHEAD)
            st = store_wait(lane, ticket[n % AHEAD]);
        if (st == ATOM_OK)
            st = j->write ? store_write(lane, buffer, at, bytes, &ticket[n % AHEAD])
                          : store_read(lane, buffer, at, bytes, &ticket[n % AHEAD]);
    }
    if (st == ATOM_OK && n > 0)
        st = store_wait(lane, ticket[(n - 1) % AHEAD]);
    store_lane_close(&lane);
    return st;
}

static void *job_thread(void *arg)
{
    disk_job *j = arg;
    j->status = job_run(j);
    return NULL;
}

static double cpu_seconds(void)
{
    struct rusage r;
    (void)getrusage(RUSAGE_SELF, &r);
    return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) +
           1e-6 * (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec);
}

/* Way `both`: the first half is read while the second is written. */
static atom_status pass(store *s, char *ring, uint64_t bytes, int way, uint64_t commit,
                        disk_rate *rate)
{
    uint64_t half = bytes / 2 / STORE_ALIGN * STORE_ALIGN;
    disk_job main_job = {.store = s, .ring = ring, .to = bytes, .write = way == 0};
    disk_job other = {
        .store = s, .ring = ring + DISK_RING_BYTES / 2, .from = half, .to = bytes, .write = true};
    double began = atom_clock_seconds(), cpu = cpu_seconds();
    pthread_t thread;
    bool started = false;
    if (way == 2) {
        main_job.to = half;
        started = pthread_create(&thread, NULL, job_thread, &other) == 0;
    }
    atom_status st = job_run(&main_job);
    if (started) {
        pthread_join(thread, NULL);
        st = st == ATOM_OK && other.status != ATOM_OK
                 ? atom_fail(other.status, "the writing half of the pass failed")
                 : st;
    }
    if (st == ATOM_OK && way != 1)
        st = store_commit(s, commit);
    double seconds = atom_clock_seconds() - began;
    *rate = (disk_rate){(double)bytes / seconds, (cpu_seconds() - cpu) / seconds};
    return st;
}

/* A store per way to the kernel, each with a file of its own. */
typedef struct disk_rig {
    char *ring;
    char path[STORE_KIND_N + 1][4096]; /* by kind; the last is fio's */
    store *store[STORE_KIND_N];
    uint64_t commits;
    double rate[STORE_KIND_N][DISK_WAYS][DISK_ROUNDS_MAX];
    double cores[STORE_KIND_N][DISK_WAYS][DISK_ROUNDS_MAX];
    double fio[DISK_WAYS][DISK_ROUNDS_MAX];
} disk_rig;

static void rig_close(disk_rig *r)
{
    for (int kind = STORE_URING; kind <= STORE_KIND_N; kind++) {
        if (kind == STORE_KIND_N || r->store[kind])
            (void)unlink(r->path[kind]);
        if (kind < STORE_KIND_N)
            store_close(&r->store[kind]);
    }
    free(r->ring);
    atom_free(r);
}

static atom_status rig_open(const bench_values *v, disk_rig **out)
{
    if (!atom_path_is_dir(v->dir))
        return atom_fail(ATOM_E_USAGE, "dir: there is no directory %s", v->dir);
    disk_rig *r = atom_alloc(1, sizeof *r);
    if (!r)
        return atom_fail_memory("the disk bench", sizeof *r);
    atom_status st = ATOM_OK;
    r->ring = aligned_alloc(STORE_ALIGN, DISK_RING_BYTES);
    if (!r->ring)
        st = atom_fail_memory("buffers for the disk", DISK_RING_BYTES);
    for (uint64_t i = 0; i < DISK_RING_BYTES && r->ring; i++) /* nothing that compresses */
        r->ring[i] = (char)(i * 2654435761u >> 13);
    for (int kind = STORE_URING; kind <= STORE_KIND_N; kind++)
        (void)snprintf(r->path[kind], sizeof r->path[kind], "%s/.atom-bench-%d.%d", v->dir,
                       (int)getpid(), kind);
    for (int kind = STORE_URING; kind < STORE_KIND_N && st == ATOM_OK; kind++) {
        if (store_probe((store_kind)kind) != ATOM_OK) {
            atom_log(ATOM_LOG_INFO, "%s", atom_fail_message());
            continue;
        }
        const store_config config = {.path = r->path[kind],
                                     .kind = (store_kind)kind,
                                     .create = true,
                                     .owner = (uint64_t)getpid(),
                                     .bytes = v->bytes,
                                     .ring = r->ring,
                                     .ring_bytes = DISK_RING_BYTES};
        st = store_open(&config, &r->store[kind]);
    }
    if (st == ATOM_OK)
        *out = r;
    else
        rig_close(r);
    return st;
}

/* Runs fio with its words and reads its JSON; NULL where there is no fio or it fails. */
static json_t *fio_run(char *const words[])
{
    int ends[2];
    pid_t pid;
    posix_spawn_file_actions_t actions;
    if (pipe2(ends, O_CLOEXEC))
        return NULL;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    int code = posix_spawnp(&pid, "fio", &actions, NULL, words, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    FILE *out = code == 0 ? fdopen(ends[0], "r") : NULL;
    json_t *report = out ? json_loadf(out, JSON_DISABLE_EOF_CHECK, NULL) : NULL;
    if (out)
        (void)fclose(out);
    else
        close(ends[0]);
    int status = 0;
    if (code == 0)
        (void)waitpid(pid, &status, 0);
    return report;
}

static double fio_rate(const json_t *report)
{
    const json_t *job = json_array_get(json_object_get(report, "jobs"), 0);
    double rate = 0.0;
    for (int i = 0; i < 2; i++)
        rate += json_number_value(json_object_get(json_object_get(job, ways[i]), "bw_bytes"));
    return rate;
}

/* The better of fio's own io_uring and libaio; 0 where there is no fio. */
static double fio_best(const char *path, uint64_t bytes, int way)
{
    static const char *const engines[] = {"io_uring", "libaio"};
    static const char *const rw[DISK_WAYS] = {"write", "read", "rw"};
    double best = 0.0;
    for (int e = 0; e < 2; e++) {
        char file[4200], size[48], engine[32], pattern[32];
        (void)snprintf(file, sizeof file, "--filename=%s", path);
        (void)snprintf(size, sizeof size, "--size=%llu", (unsigned long long)bytes);
        (void)snprintf(engine, sizeof engine, "--ioengine=%s", engines[e]);
        (void)snprintf(pattern, sizeof pattern, "--rw=%s", rw[way]);
        char *words[] = {"fio",
                         "--name=atom",
                         file,
                         size,
                         engine,
                         pattern,
                         "--direct=1",
                         "--bs=1M",
                         "--iodepth=16",
                         "--fallocate=posix",
                         way == 1 ? "--end_fsync=0" : "--end_fsync=1",
                         "--output-format=json",
                         NULL};
        json_t *report = fio_run(words);
        double rate = fio_rate(report);
        json_decref(report);
        best = rate > best ? rate : best;
    }
    return best;
}

/* One way, one round: fio and every store in turn, so that a disk that drifts treats all alike. */
static atom_status round_run(const bench_values *v, disk_rig *r, int way, int64_t round)
{
    r->fio[way][round] = fio_best(r->path[STORE_KIND_N], v->bytes, way);
    for (int kind = STORE_URING; kind < STORE_KIND_N; kind++) {
        disk_rate rate = {0};
        if (!r->store[kind])
            continue;
        ATOM_TRY(pass(r->store[kind], r->ring, store_about(r->store[kind]).bytes, way, ++r->commits,
                      &rate));
        r->rate[kind][way][round] = rate.bytes_per_second;
        r->cores[kind][way][round] = rate.cores;
    }
    return ATOM_OK;
}

static int by_value(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}
static double median(const double *x, int64_t n)
{
    double sorted[DISK_ROUNDS_MAX];
    memcpy(sorted, x, (size_t)n * sizeof *x);
    qsort(sorted, (size_t)n, sizeof *sorted, by_value);
    return sorted[n / 2];
}

/* The median of the rounds' ratios; 0 without fio. */
static double ratio(const disk_rig *r, int kind, int way, int64_t rounds)
{
    double of[DISK_ROUNDS_MAX];
    for (int64_t i = 0; i < rounds; i++)
        of[i] = r->fio[way][i] > 0.0 ? r->rate[kind][way][i] / r->fio[way][i] : 0.0;
    return median(of, rounds);
}

static void print_store(const disk_rig *r, int kind, int64_t rounds)
{
    for (int way = 0; way < DISK_WAYS; way++) {
        double of_fio = ratio(r, kind, way, rounds);
        cli_print("  %-9s %-6s %9sB/s  %.2f cores", store_kind_name((store_kind)kind), ways[way],
                  cli_count(median(r->rate[kind][way], rounds)),
                  median(r->cores[kind][way], rounds));
        if (of_fio > 0.0)
            cli_print("  %.2f of fio's %sB/s", of_fio, cli_count(median(r->fio[way], rounds)));
        cli_print("%s\n", store_about(r->store[kind]).direct
                              ? ""
                              : "  (through the page cache: no O_DIRECT here)");
    }
}

static json_t *store_json(const disk_rig *r, int kind, int64_t rounds)
{
    store_facts facts = store_about(r->store[kind]);
    json_t *o = json_pack("{s:s, s:b, s:b}", "store", facts.engine, "direct", facts.direct,
                          "registered", facts.registered);
    for (int way = 0; way < DISK_WAYS; way++) {
        double of_fio = ratio(r, kind, way, rounds);
        json_object_set_new(o, ways[way],
                            json_pack("{s:o, s:o, s:o}", "bytes_per_second",
                                      cli_real(median(r->rate[kind][way], rounds)), "cores",
                                      cli_real(median(r->cores[kind][way], rounds)), "of_fio",
                                      of_fio > 0.0 ? cli_real(of_fio) : json_null()));
    }
    return o;
}

static atom_status report(const bench_values *v, const disk_rig *r, int64_t rounds)
{
    json_t *list = v->json ? json_array() : NULL;
    if (!v->json)
        cli_print("disk at %s, %s, requests of 1 MiB, %d in flight, medians of %lld%s\n", v->dir,
                  cli_size(v->bytes), STORE_DEPTH, (long long)rounds,
                  r->fio[0][0] > 0.0 ? "" : "; no fio here to compare with (apt-get install fio)");
    for (int kind = STORE_URING; kind < STORE_KIND_N; kind++) {
        if (r->store[kind] && v->json)
            json_array_append_new(list, store_json(r, kind, rounds));
        else if (r->store[kind])
            print_store(r, kind, rounds);
    }
    if (!v->json)
        return ATOM_OK;
    return cli_print_json(json_pack("{s:s, s:I, s:o}", "bench", "disk", "bytes",
                                    (json_int_t)v->bytes, "stores", list));
}

atom_status bench_disk_run(const bench_values *v)
{
    disk_rig *r = NULL;
    int64_t rounds = v->rounds < DISK_ROUNDS_MAX ? v->rounds : DISK_ROUNDS_MAX;
    atom_status st = ATOM_OK;
    ATOM_TRY(rig_open(v, &r));
    for (int64_t round = 0; round < rounds && st == ATOM_OK; round++) {
        for (int way = 0; way < DISK_WAYS && st == ATOM_OK; way++)
            st = round_run(v, r, way, round);
    }
    if (st == ATOM_OK)
        st = report(v, r, rounds);
    rig_close(r);
    return st;
}
