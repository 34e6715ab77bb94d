/*
 * The simulator's program: seeds in a row, a time box, a replay with trace, a soak that goes on
 * where it stopped. A seed that fails is run again without one fault after the other, until every
 * fault that is left is needed; that run is printed.
 */
#include "tests/sim/sim.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char *const role_names[SIM_HOSTILITY_N] = {
    [SIM_LIES] = "lies",           [SIM_EQUIVOCATES] = "equivocates",
    [SIM_REPLAYS_OLD] = "replays", [SIM_FLOODS] = "floods",
    [SIM_FALSIFIES] = "falsifies", [SIM_ACCUSES] = "accuses",
    [SIM_CLAIMS] = "claims",       [SIM_ORDERS] = "orders",
    [SIM_WITHHOLDS] = "withholds", [SIM_WRAPS] = "wraps",
    [SIM_DEFAMES] = "defames",     [SIM_INVENTS] = "invents",
    [SIM_OMITS] = "omits",         [SIM_PARTIAL] = "partial",
    [SIM_INFLATES] = "inflates",   [SIM_TAKES_OVER] = "takes_over",
};

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static sim_options shrink(sim_options options, const sim_outcome *first)
{
    uint64_t left = first->fault_bits;
    for (uint32_t k = 0; k < SIM_FAULTS_MAX; k++) {
        if (!(left >> k & 1))
            continue;
        sim_options fewer = options;
        fewer.disabled |= 1ull << k;
        sim_outcome out = sim_run(&fewer);
        if (out.violated && strcmp(out.invariant, first->invariant) == 0)
            options = fewer;
    }
    return options;
}

static void report(sim_options options, const sim_outcome *out)
{
    printf("sim: seed %llu: %s: %s\n", (unsigned long long)options.seed, out->invariant, out->what);
    sim_options small = shrink(options, out);
    small.trace = true;
    printf("sim: minimal trace (replay: sim --seed %llu", (unsigned long long)options.seed);
    if (options.members)
        printf(" --members %u --waiting %u", options.members, options.waiting);
    if (options.brisk)
        printf(" --brisk");
    if (options.audits)
        printf(" --audits");
    if (options.role)
        printf(" --role %s", role_names[options.role]);
    printf(" --without 0x%llx --trace):\n", (unsigned long long)small.disabled);
    sim_outcome again = sim_run(&small);
    printf("sim: %s: %s\n", again.invariant, again.what);
    fflush(stdout);
}

/* Prints how often each kind of fault happened; true: none is missing. */
static bool tally(const sim_outcome *sum)
{
    static const char *const name[SIM_INJECTED_N] = {
        [SIM_LOST] = "messages lost",
        [SIM_DOUBLED] = "doubled",
        [SIM_REORDERED] = "reordered",
        [SIM_DELAYED] = "delayed",
        [SIM_PARTITIONED] = "partitions",
        [SIM_ONE_WAY] = "one-way partitions",
        [SIM_CUT_LINK] = "cut links",
        [SIM_CRASHED] = "crashes",
        [SIM_CRASHED_AND_LOST] = "crashes with loss of state",
        [SIM_POWER_CUT] = "power cuts",
        [SIM_SLOWED] = "slow members",
        [SIM_DRIFTED] = "clocks that drift",
        [SIM_DISK_FAILED] = "failed disks",
        [SIM_LEFT] = "leaves",
        [SIM_RESET] = "resets",
        [SIM_LIED] = "lies",
        [SIM_EQUIVOCATED] = "equivocations",
        [SIM_REPLAYED] = "replays",
        [SIM_FLOODED] = "floods",
        [SIM_FALSIFIED] = "false parts",
        [SIM_ACCUSED] = "false accusations",
        [SIM_CLAIMED] = "false votes",
        [SIM_ORDERED] = "false resets",
        [SIM_TAKEN] = "claims of made-up lineages",
        [SIM_WITHHELD] = "withheld contributions",
        [SIM_WRAPPED] = "claims beyond belief",
        [SIM_DEFAMED] = "defamations",
        [SIM_INVENTED] = "inventions",
        [SIM_OMITTED] = "omissions",
        [SIM_PARTIAL_SUM] = "partial sums",
        [SIM_INFLATED] = "inflated contributions",
    };
    bool all = true;
    printf("sim:");
    for (uint32_t k = 0; k < SIM_INJECTED_N; k++) {
        printf("%s %llu %s", k ? "," : "", (unsigned long long)sum->injected[k], name[k]);
        all = all && sum->injected[k] != 0;
    }
    printf("\n");
    return all;
}

static const char *soak_path;
static bool brief;

static uint64_t soak_read(void)
{
    unsigned long long next = 1;
    FILE *f = soak_path ? fopen(soak_path, "r") : NULL;
    if (f && fscanf(f, "%llu", &next) != 1)
        next = 1;
    if (f)
        fclose(f);
    return next;
}

static void soak_write(uint64_t next)
{
    char path[4096];
    snprintf(path, sizeof path, "%s.tmp", soak_path);
    FILE *f = fopen(path, "w");
    if (!f)
        return;
    fprintf(f, "%llu\n", (unsigned long long)next);
    if (fclose(f) == 0 && rename(path, soak_path) != 0)
        fprintf(stderr, "sim: cannot write %s\n", soak_path);
}

typedef struct wish {
    sim_options options;
    uint64_t first, n; /* seeds */
    double box;        /* seconds */
    const char *expect;
} wish;

/* A switch without a value; false: another option. */
static bool read_switch(const char *option, sim_options *options)
{
    bool trace = strcmp(option, "--trace") == 0, brisk = strcmp(option, "--brisk") == 0;
    bool audits = strcmp(option, "--audits") == 0;
    bool brevity = strcmp(option, "--brief") == 0;
    options->trace |= trace;
    options->brisk |= brisk;
    options->audits |= audits;
    brief |= brevity;
    return trace || brisk || audits || brevity;
}

/* HONEST: no such role. */
static sim_hostility role_of(const char *name)
{
    for (int k = 0; k < SIM_HOSTILITY_N; k++)
        if (role_names[k] && strcmp(role_names[k], name) == 0)
            return (sim_hostility)k;
    return SIM_HONEST;
}

/* False: an unknown option, or too many hosts. */
static bool read_options(int argc, char **argv, wish *w)
{
    sim_options *options = &w->options;
    for (int k = 1; k < argc; k++) {
        const char *value = k + 1 < argc ? argv[k + 1] : "";
        if (read_switch(argv[k], options))
            continue;
        if (strcmp(argv[k], "--first") == 0)
            w->first = strtoull(value, NULL, 0);
        else if (strcmp(argv[k], "--seeds") == 0)
            w->n = strtoull(value, NULL, 0);
        else if (strcmp(argv[k], "--seed") == 0)
            w->first = strtoull(value, NULL, 0), w->n = 1;
        else if (strcmp(argv[k], "--seconds") == 0)
            w->box = strtod(value, NULL);
        else if (strcmp(argv[k], "--members") == 0)
            options->members = (uint32_t)strtoul(value, NULL, 0);
        else if (strcmp(argv[k], "--waiting") == 0)
            options->waiting = (uint32_t)strtoul(value, NULL, 0);
        else if (strcmp(argv[k], "--without") == 0)
            options->disabled = strtoull(value, NULL, 0);
        else if (strcmp(argv[k], "--role") == 0 && role_of(value))
            options->role = role_of(value);
        else if (strcmp(argv[k], "--soak") == 0)
            soak_path = value;
        else if (strcmp(argv[k], "--expect") == 0)
            w->expect = value;
        else {
            fprintf(stderr, "sim: unknown option %s\n", argv[k]);
            return false;
        }
        k++;
    }
    if (options->members + options->waiting <= SIM_HOSTS_MAX && options->members <= GSP_MEMBERS_MAX)
        return true;
    fprintf(stderr, "sim: at most 32 members, 200 hosts\n");
    return false;
}

static void add_up(sim_outcome *sum, const sim_outcome *out)
{
    for (uint32_t k = 0; k < SIM_INJECTED_N; k++)
        sum->injected[k] += out->injected[k];
    sum->versions += out->versions, sum->events += out->events, sum->forks += out->forks;
    sum->moves += out->moves, sum->evidence += out->evidence, sum->faults += out->faults;
    sum->audits += out->audits, sum->lies += out->lies;
}

int main(int argc, char **argv)
{
    wish w = {.first = 1, .n = 100, .box = 1e9};
    uint64_t done = 0, failed = 0;
    double start = seconds(), worst = 0;
    sim_outcome sum = {0};
    if (!read_options(argc, argv, &w))
        return 2;
    sim_options options = w.options;
    uint64_t first = soak_path ? soak_read() : w.first;
    for (uint64_t seed = first; done < w.n && seconds() - start < w.box; seed++) {
        double began = seconds();
        options.seed = seed;
        sim_outcome out = sim_run(&options);
        double took = seconds() - began;
        worst = took > worst ? took : worst;
        done++;
        add_up(&sum, &out);
        if (soak_path && done % 100 == 0)
            soak_write(seed + 1);
        if (!out.violated)
            continue;
        failed++;
        if (w.expect && strcmp(out.invariant, w.expect) == 0) {
            printf("sim: seed %llu: %s: %s\n", (unsigned long long)seed, out.invariant, out.what);
            return 0;
        }
        if (brief)
            printf("sim: seed %llu: %s: %s\n", (unsigned long long)seed, out.invariant, out.what);
        else if (!options.trace)
            report(options, &out);
        else
            printf("sim: %s: %s\n", out.invariant, out.what);
        if (failed == 3 && !brief)
            break;
    }
    if (soak_path)
        soak_write(first + done);
    double took = seconds() - start;
    printf("sim: seeds %llu..%llu, %llu failed; %.2f ms a seed (longest %.0f); %llu events, "
           "%llu versions, %llu faults, %llu forks, %llu moves, %llu bans by their own words, %llu "
           "by %llu audits\n",
           (unsigned long long)first, (unsigned long long)(first + done - 1),
           (unsigned long long)failed, 1e3 * took / (double)(done ? done : 1), 1e3 * worst,
           (unsigned long long)sum.events, (unsigned long long)sum.versions,
           (unsigned long long)sum.faults, (unsigned long long)sum.forks,
           (unsigned long long)sum.moves, (unsigned long long)sum.evidence,
           (unsigned long long)sum.lies, (unsigned long long)sum.audits);
    if (!tally(&sum) && done >= 1000 && !options.members && !options.brisk && !options.audits &&
        !options.role)
        return fprintf(stderr, "sim: a kind of fault never happened\n"), 1;
    return w.expect ? 1 : failed != 0;
}
