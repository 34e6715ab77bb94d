/*
 * Owns the file of what pools have used. One idea: it is small and replaced whole, so a kill at any
 * moment leaves the old one or the new one. Refuses numbers that no box can have used.
 */
#include "atom/host/ledger.h"

#include "atom/base/clock.h"
#include "atom/base/files.h"
#include "atom/base/mem.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_BYTES_MAX = 1 << 16 };
static const double SECONDS_MAX = 1e12;

static bool read_small(const char *path, char *text, size_t bytes)
{
    FILE *f = fopen(path, "re");
    size_t n = f ? fread(text, 1, bytes - 1, f) : 0;
    if (f)
        fclose(f);
    text[n] = 0;
    return n > 0;
}

void host_process_read(pid_t pid, host_process *out)
{
    char path[64], text[1024], state = 'X';
    *out = (host_process){0};
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    const char *behind = pid > 0 && read_small(path, text, sizeof text) ? strrchr(text, ')') : NULL;
    if (!behind || sscanf(behind + 1,
                          " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d "
                          "%*d %*d %" SCNu64,
                          &state, &out->start) != 2)
        return;
    if (state == 'Z' || state == 'X')
        return;
    out->pid = pid;
    if (read_small("/proc/sys/kernel/random/boot_id", out->boot, sizeof out->boot))
        out->boot[strcspn(out->boot, "\n")] = 0;
}

bool host_process_lives(const host_process *process)
{
    host_process now;
    if (process->pid <= 0 || process->pid > INT32_MAX)
        return false;
    host_process_read((pid_t)process->pid, &now);
    return now.pid == process->pid && now.start == process->start &&
           strcmp(now.boot, process->boot) == 0;
}

/* A number of seconds that can be; false: it is there and cannot. Not there: *out stays. */
static bool read_seconds(const json_t *o, const char *key, double *out)
{
    const json_t *value = json_object_get(o, key);
    double x = json_number_value(value);
    if (!value)
        return true;
    if (!json_is_number(value) || !(x >= 0 && x <= SECONDS_MAX))
        return false;
    *out = x;
    return true;
}

static bool read_turn(const json_t *all, const char *name, host_turn *t)
{
    size_t i;
    const json_t *o;
    json_array_foreach(all, i, o)
    {
        const char *is = json_string_value(json_object_get(o, "name"));
        if (is && strcmp(is, name) == 0)
            return read_seconds(o, "level", &t->level) &&
                   read_seconds(o, "computed_s", &t->computed_s) &&
                   read_seconds(o, "switch_s", &t->switch_s) &&
                   read_seconds(o, "first_round_s", &t->first_round_s);
    }
    return true;
}

static bool read_process(const json_t *o, host_process *out)
{
    const json_t *pid = json_object_get(o, "pid"), *start = json_object_get(o, "start");
    const char *boot = json_string_value(json_object_get(o, "boot"));
    *out = (host_process){0};
    if (!o || json_is_null(o))
        return true;
    if (!json_is_integer(pid) || !json_is_integer(start) || !boot ||
        strlen(boot) >= HOST_BOOT_BYTES)
        return false;
    out->pid = json_integer_value(pid);
    out->start = (uint64_t)json_integer_value(start);
    snprintf(out->boot, sizeof out->boot, "%s", boot);
    return out->pid > 0 && out->pid <= INT32_MAX && json_integer_value(start) >= 0;
}

static bool read_all(const json_t *o, const host_pools *pools, host_turn *turns,
                     host_process *process, double *saved_s)
{
    const json_t *all = json_object_get(o, "pools");
    *saved_s = -1;
    if (!json_is_array(all) || !read_seconds(o, "saved_s", saved_s) || *saved_s < 0 ||
        !read_process(json_object_get(o, "process"), process))
        return false;
    for (uint32_t i = 0; i < pools->n; i++)
        if (!read_turn(all, pools->pool[i].name, &turns[i]))
            return false;
    return true;
}

static void begin(const host_pools *pools, host_turn *turns, host_process *process,
                  double *passed_s)
{
    for (uint32_t i = 0; i < pools->n; i++)
        turns[i] = (host_turn){.level = -1, .share = pools->pool[i].share, .allowed = true};
    *process = (host_process){0};
    *passed_s = 0;
}

atom_status host_ledger_parse(const char *path, const char *text, size_t bytes, double now_s,
                              const host_pools *pools, host_turn *turns, host_process *process,
                              double *passed_s)
{
    double saved_s = 0;
    begin(pools, turns, process, passed_s);
    json_t *o = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, NULL);
    bool good = o && read_all(o, pools, turns, process, &saved_s);
    json_decref(o);
    if (!good)
        return atom_fail(ATOM_E_FORMAT,
                         "%s is damaged, so it is not known how much each pool has computed; "
                         "remove it, and all pools of this box start equal",
                         path);
    *passed_s = now_s > saved_s ? now_s - saved_s : 0;
    return ATOM_OK;
}

atom_status host_ledger_read(const char *path, const host_pools *pools, host_turn *turns,
                             host_process *process, double *passed_s)
{
    char *text = NULL;
    uint64_t bytes;
    begin(pools, turns, process, passed_s);
    if (!atom_path_exists(path))
        return ATOM_OK;
    ATOM_TRY(atom_file_read(path, FILE_BYTES_MAX, &text, &bytes));
    atom_status st = host_ledger_parse(path, text, (size_t)bytes, atom_wall_seconds(), pools, turns,
                                       process, passed_s);
    atom_free(text);
    return st;
}

static json_t *ledger_json(const host_pools *pools, const host_turn *turns,
                           const host_process *process)
{
    json_t *all = json_array();
    for (uint32_t i = 0; i < pools->n; i++)
        json_array_append_new(
            all, json_pack("{s:s, s:f, s:f, s:f, s:f}", "name", pools->pool[i].name, "level",
                           turns[i].level, "computed_s", turns[i].computed_s, "switch_s",
                           turns[i].switch_s, "first_round_s", turns[i].first_round_s));
    return json_pack("{s:f, s:o, s:o}", "saved_s", atom_wall_seconds(), "process",
                     process->pid
                         ? json_pack("{s:I, s:I, s:s}", "pid", (json_int_t)process->pid, "start",
                                     (json_int_t)process->start, "boot", process->boot)
                         : json_null(),
                     "pools", all);
}

atom_status host_ledger_save(const char *path, const host_pools *pools, const host_turn *turns,
                             const host_process *process)
{
    json_t *o = ledger_json(pools, turns, process);
    char *text = o ? json_dumps(o, JSON_INDENT(1) | JSON_REAL_PRECISION(17)) : NULL;
    json_decref(o);
    if (!text)
        return atom_fail_memory("what pools have used", 0);
    atom_status st = atom_file_write(path, text, strlen(text));
    free(text);
    return st;
}
