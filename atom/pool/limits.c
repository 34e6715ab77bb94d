/*
 * Owns the question whether a volunteer's host may compute now. One idea: it only reads what the
 * kernel already says, so it costs nothing and needs no rights. Refuses to guess: a sensor that is
 * not there forbids nothing.
 */
#include "atom/pool/limits.h"

#include "atom/base/clock.h"
#include "atom/base/files.h"
#include "atom/base/mem.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { PATH_BYTES = 512, DAY = 24 * 60 };
static const double COOL_DOWN = 5, LOOK_S = 1, OVER_S = 5;

typedef struct span {
    int from, to; /* minutes; from > to: over midnight */
} span;

struct pool_limits {
    char root[256];
    span spans[POOL_LIMITS_SPANS_MAX];
    uint32_t n_spans;
    bool mains_only;
    double celsius_max, others_max;
    double looked_s; /* < 0: never */
    bool on_battery, hot;
    double celsius;
    /* Processor time: at the last measurement, and what others used between the two. */
    double begun_s, busy_s, own_s, others;
    bool measured;
};

/* ---- hours ---- */

static bool read_clock(const char **text, int *minute)
{
    char *end;
    long hour = strtol(*text, &end, 10), min = 0;
    if (end == *text || hour < 0 || hour > 24)
        return false;
    if (*end == ':') {
        const char *from = end + 1;
        min = strtol(from, &end, 10);
        if (end != from + 2 || min < 0 || min > 59)
            return false;
    }
    *minute = (int)(hour * 60 + min);
    *text = end;
    return *minute <= DAY;
}

static atom_status read_hours(pool_limits *l, const char *hours)
{
    const char *at = hours ? hours : "";
    while (*at) {
        span s;
        bool good = l->n_spans < POOL_LIMITS_SPANS_MAX && read_clock(&at, &s.from) &&
                    *at++ == '-' && read_clock(&at, &s.to) && (*at == ',' || *at == 0);
        if (!good)
            return atom_fail(ATOM_E_USAGE,
                             "hours '%s': give times of the day like 22:00-07:00, at most %d of "
                             "them, separated by commas",
                             hours, POOL_LIMITS_SPANS_MAX);
        if (s.from == s.to)
            return atom_fail(ATOM_E_USAGE,
                             "hours '%s': a time that ends when it begins is empty; the whole "
                             "day is 00:00-24:00",
                             hours);
        l->spans[l->n_spans++] = s;
        at += *at == ',';
    }
    return ATOM_OK;
}

static bool within(const pool_limits *l, int minute)
{
    bool inside = l->n_spans == 0;
    for (uint32_t i = 0; i < l->n_spans; i++) {
        const span *s = &l->spans[i];
        inside |= s->from <= s->to ? minute >= s->from && minute < s->to
                                   : minute >= s->from || minute < s->to;
    }
    return inside;
}

/* Minutes until the next span begins. */
static int wait_for(const pool_limits *l, int minute)
{
    int least = DAY;
    for (uint32_t i = 0; i < l->n_spans; i++) {
        int wait = (l->spans[i].from - minute + DAY) % DAY;
        least = wait < least ? wait : least;
    }
    return least;
}

/* ---- sensors ---- */

/* Calls fn with the path of every entry of root/dir; returns how many. */
typedef void entry_fn(pool_limits *l, const char *path);
static uint32_t each(pool_limits *l, const char *dir, entry_fn *fn)
{
    char path[PATH_BYTES];
    uint32_t n = 0;
    snprintf(path, sizeof path, "%s%s", l->root, dir);
    DIR *list = opendir(path);
    for (struct dirent *e; list && (e = readdir(list));) {
        if (e->d_name[0] == '.' ||
            (size_t)snprintf(path, sizeof path, "%s%s/%s", l->root, dir, e->d_name) >= sizeof path)
            continue;
        fn(l, path);
        n++;
    }
    if (list)
        closedir(list);
    return n;
}

/* A battery that gives current; a mouse's does not count. */
static void look_at_supply(pool_limits *l, const char *dir)
{
    char path[PATH_BYTES + 16], type[32], scope[32] = "", state[32];
    snprintf(path, sizeof path, "%s/type", dir);
    if (!atom_file_line(path, type, sizeof type) || strcmp(type, "Battery") != 0)
        return;
    snprintf(path, sizeof path, "%s/scope", dir);
    if (atom_file_line(path, scope, sizeof scope) && strcmp(scope, "Device") == 0)
        return;
    snprintf(path, sizeof path, "%s/status", dir);
    l->on_battery |= atom_file_line(path, state, sizeof state) && strcmp(state, "Discharging") == 0;
}

/* The hottest of processor and card; disks and the like have limits of their own. */
static void look_at_sensor(pool_limits *l, const char *dir)
{
    static const char *const known[] = {"coretemp", "k10temp", "zenpower", "cpu_thermal",
                                        "nouveau",  "amdgpu",  "i915",     "xe"};
    char path[PATH_BYTES + 32], name[32], value[32];
    bool ours = false;
    snprintf(path, sizeof path, "%s/name", dir);
    if (!atom_file_line(path, name, sizeof name))
        return;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        ours |= strcmp(name, known[i]) == 0;
    for (int i = 1; ours && i <= 32; i++) {
        snprintf(path, sizeof path, "%s/temp%d_input", dir, i);
        if (atom_file_line(path, value, sizeof value))
            l->celsius = fmax(l->celsius, strtod(value, NULL) / 1000);
    }
}

/* Seconds that all processors were busy since the machine started. */
static bool read_busy(const pool_limits *l, double *busy)
{
    char path[PATH_BYTES], line[256];
    double user, nice, system, idle, wait, irq, soft;
    snprintf(path, sizeof path, "%s/proc/stat", l->root);
    if (!atom_file_line(path, line, sizeof line) ||
        sscanf(line, "cpu %lf %lf %lf %lf %lf %lf %lf", &user, &nice, &system, &idle, &wait, &irq,
               &soft) != 7)
        return false;
    *busy = (user + nice + system + irq + soft) / (double)sysconf(_SC_CLK_TCK);
    return true;
}

static void look_at_processors(pool_limits *l, double now_s, double own_s)
{
    double busy;
    if (!read_busy(l, &busy))
        return;
    if (l->begun_s >= 0 && now_s - l->begun_s < OVER_S)
        return;
    if (l->begun_s >= 0) {
        l->others = fmax(0, ((busy - l->busy_s) - (own_s - l->own_s)) / (now_s - l->begun_s));
        l->measured = true;
    }
    l->begun_s = now_s;
    l->busy_s = busy;
    l->own_s = own_s;
}

static void look(pool_limits *l, double now_s, double own_s)
{
    if (l->looked_s >= 0 && now_s - l->looked_s < LOOK_S)
        return;
    l->looked_s = now_s;
    if (l->mains_only) {
        l->on_battery = false;
        each(l, "/sys/class/power_supply", look_at_supply);
    }
    if (l->celsius_max > 0) {
        l->celsius = 0;
        each(l, "/sys/class/hwmon", look_at_sensor);
        l->hot = l->celsius > l->celsius_max - (l->hot ? COOL_DOWN : 0);
    }
    if (l->others_max > 0)
        look_at_processors(l, now_s, own_s);
}

/* ---- life ---- */

atom_status pool_limits_open(const pool_limits_config *config, char missing[POOL_LIMITS_WHY_BYTES],
                             pool_limits **out)
{
    double busy;
    pool_limits *l = atom_alloc(1, sizeof *l);
    if (!l)
        return atom_fail_memory("limits", sizeof *l);
    snprintf(l->root, sizeof l->root, "%s", config->root ? config->root : "");
    l->mains_only = config->mains_only;
    l->celsius_max = config->celsius_max;
    l->others_max = config->others_max;
    l->looked_s = l->begun_s = -1;
    atom_status st = read_hours(l, config->hours);
    if (st != ATOM_OK) {
        pool_limits_close(&l);
        return st;
    }
    if (missing) {
        missing[0] = 0;
        if (l->celsius_max > 0) {
            each(l, "/sys/class/hwmon", look_at_sensor);
            if (!(l->celsius > 0))
                snprintf(missing, POOL_LIMITS_WHY_BYTES,
                         "this host does not report the temperature of its processor or card, so "
                         "that limit has no effect");
        }
        if (l->others_max > 0 && !read_busy(l, &busy))
            snprintf(missing, POOL_LIMITS_WHY_BYTES,
                     "this host does not report what other programs compute, so that limit has "
                     "no effect");
    }
    *out = l;
    return ATOM_OK;
}

void pool_limits_close(pool_limits **limits)
{
    atom_free(*limits);
    *limits = NULL;
}

bool pool_limits_allow(pool_limits *l, int minute, double now_s, double own_cpu_s,
                       char why[POOL_LIMITS_WHY_BYTES])
{
    look(l, now_s, own_cpu_s);
    why[0] = 0;
    if (!within(l, minute)) {
        int wait = wait_for(l, minute);
        snprintf(why, POOL_LIMITS_WHY_BYTES, "waiting for its hours: %d:%02d to go", wait / 60,
                 wait % 60);
    } else if (l->mains_only && l->on_battery) {
        snprintf(why, POOL_LIMITS_WHY_BYTES, "waiting for mains power");
    } else if (l->celsius_max > 0 && l->hot) {
        snprintf(why, POOL_LIMITS_WHY_BYTES,
                 "cooling down: it has %.0f degrees, the limit is "
                 "%.0f",
                 l->celsius, l->celsius_max);
    } else if (l->others_max > 0 && l->measured && l->others > l->others_max) {
        snprintf(why, POOL_LIMITS_WHY_BYTES,
                 "other programs need the machine: they use %.1f cores, the limit is %.1f",
                 l->others, l->others_max);
    }
    return why[0] == 0;
}

bool pool_limits_now(pool_limits *l, char why[POOL_LIMITS_WHY_BYTES])
{
    struct rusage own = {0};
    time_t now = time(NULL);
    struct tm day = {0};
    localtime_r(&now, &day);
    getrusage(RUSAGE_SELF, &own);
    double cpu = (double)(own.ru_utime.tv_sec + own.ru_stime.tv_sec) +
                 1e-6 * (double)(own.ru_utime.tv_usec + own.ru_stime.tv_usec);
    return pool_limits_allow(l, day.tm_hour * 60 + day.tm_min, atom_clock_seconds(), cpu, why);
}
