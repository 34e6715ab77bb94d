/*
 * Owns the look-ups of announced names. Its one idea: what each name meant last is kept by name, so one
 * that fails for a while takes nothing away. It refuses to let anybody wait for a resolver: whoever closes
 * it during a look-up leaves the memory to the thread.
 */
#include "gossip/pool/names.h"

#include "atom/base/clock.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { NAME_BYTES = 300 }; /* with its port; no resolver knows a longer one */

struct gsp_names {
    uint32_t n;
    char name[GSP_TICKET_HOSTS_MAX][NAME_BYTES];
    gsp_meant each[GSP_TICKET_HOSTS_MAX]; /* the thread's: what each name meant last */
    uint64_t period_ns;
    pthread_t thread;

    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t moved;
    bool stop, looks; /* looks: it asks the resolver, and must not be waited for */
    bool left;        /* nobody else has it any more */
    gsp_meant newest, told;
};

static bool look_up(const char *name, gsp_meant *out)
{
    size_t n = 0;
    if (gsp_address_resolve(name, out->at, GSP_TICKET_HOSTS_MAX, &n) != ATOM_OK)
        return false;
    out->n = (uint32_t)n;
    return true;
}

void gsp_names_look(const char *const *name, uint32_t n, gsp_meant *each)
{
    gsp_meant one = {0};
    for (uint32_t i = 0; i < n; i++) {
        if (look_up(name[i], &one))
            each[i] = one;
        else
            atom_log(ATOM_LOG_WARN, "announce: %s", atom_fail_message());
    }
}

void gsp_names_all(const gsp_meant *each, uint32_t n, gsp_meant *out)
{
    *out = (gsp_meant){0};
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t k = 0; k < each[i].n && out->n < GSP_TICKET_HOSTS_MAX; k++)
            out->at[out->n++] = each[i].at[k];
}

/* A resolver may give the addresses of a name in another order every time. */
static bool same(const gsp_meant *a, const gsp_meant *b)
{
    for (uint32_t i = 0; i < a->n; i++) {
        bool found = false;
        for (uint32_t k = 0; k < b->n; k++)
            found |= gsp_address_equal(&a->at[i], &b->at[k]);
        if (!found)
            return false;
    }
    return a->n == b->n;
}

/* On the thread, without the lock. What fails now was logged at the beginning, or was known then. */
static void look_again(gsp_names *names, gsp_meant *all)
{
    gsp_meant one = {0};
    for (uint32_t i = 0; i < names->n; i++) {
        if (look_up(names->name[i], &one))
            names->each[i] = one;
        else
            atom_log(ATOM_LOG_DEBUG, "announce: %s", atom_fail_message());
    }
    gsp_names_all(names->each, names->n, all);
}

static void release(gsp_names *names)
{
    pthread_cond_destroy(&names->moved);
    pthread_mutex_destroy(&names->lock);
    atom_free(names);
}

/* With the lock held: until the next look, or the end. */
static void pause_for(gsp_names *names)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until); /* nobody sets it meanwhile */
    const uint64_t at = (uint64_t)until.tv_nsec + names->period_ns;
    until.tv_sec += (time_t)(at / 1000000000u);
    until.tv_nsec = (long)(at % 1000000000u);
    while (!names->stop &&
           pthread_cond_clockwait(&names->moved, &names->lock, CLOCK_MONOTONIC, &until) == 0)
        ;
}

static void *run(void *context)
{
    gsp_names *names = context;
    gsp_meant all;
    pthread_mutex_lock(&names->lock);
    for (pause_for(names); !names->stop; pause_for(names)) {
        names->looks = true;
        pthread_mutex_unlock(&names->lock);
        look_again(names, &all);
        pthread_mutex_lock(&names->lock);
        names->looks = false;
        if (!same(&all, &names->newest))
            names->newest = all;
    }
    const bool left = names->left;
    pthread_mutex_unlock(&names->lock);
    if (left)
        release(names);
    return NULL;
}

static bool are_addresses(const char *const *name, uint32_t n)
{
    gsp_address a;
    for (uint32_t i = 0; i < n; i++)
        if (gsp_address_parse(name[i], &a) != ATOM_OK)
            return false;
    return true;
}

atom_status gsp_names_open(const char *const *name, uint32_t n, const gsp_meant *each,
                           double period_s, gsp_names **out)
{
    *out = NULL;
    if (n > GSP_TICKET_HOSTS_MAX || are_addresses(name, n))
        return ATOM_OK;
    gsp_names *names = atom_alloc(1, sizeof *names);
    if (!names)
        return atom_fail_memory("names that are announced", sizeof *names);
    names->n = n;
    for (uint32_t i = 0; i < n; i++) {
        snprintf(names->name[i], sizeof names->name[i], "%s", name[i]);
        names->each[i] = each[i];
    }
    gsp_names_all(each, n, &names->newest);
    names->told = names->newest;
    names->period_ns = (uint64_t)(1e9 * (period_s > 0 ? period_s : GSP_NAMES_SECONDS));
    pthread_mutex_init(&names->lock, NULL);
    pthread_cond_init(&names->moved, NULL);
    int error = pthread_create(&names->thread, NULL, run, names);
    if (error) {
        release(names);
        return atom_fail_errno(error, "a thread for the names that are announced");
    }
    *out = names;
    return ATOM_OK;
}

void gsp_names_close(gsp_names **all)
{
    gsp_names *names = *all;
    *all = NULL;
    if (!names)
        return;
    pthread_mutex_lock(&names->lock);
    names->stop = true;
    names->left = names->looks;
    const bool left = names->left;
    const pthread_t thread = names->thread;
    pthread_cond_broadcast(&names->moved);
    pthread_mutex_unlock(&names->lock);
    if (left) {
        pthread_detach(thread); /* its memory is its own now */
        return;
    }
    pthread_join(thread, NULL);
    release(names);
}

bool gsp_names_changed(gsp_names *names, gsp_meant *out)
{
    pthread_mutex_lock(&names->lock);
    const bool changed = !same(&names->newest, &names->told);
    if (changed)
        *out = names->told = names->newest;
    pthread_mutex_unlock(&names->lock);
    return changed;
}
