/*
 * Owns virtual time, the network between hosts, and what goes wrong. Its one idea: one seed decides
 * everything, and faults have random numbers of their own, so that a run can be repeated with fewer
 * of them. It refuses to look into machines.
 */
#include "tests/sim/sim.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

uint64_t sim_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

uint64_t sim_below(uint64_t *state, uint64_t n)
{
    return n ? sim_random(state) % n : 0;
}

bool sim_chance(uint64_t *state, double p)
{
    return (double)(sim_random(state) >> 11) * 0x1p-53 < p;
}

void sim_trace(sim_world *w, const char *fmt, ...)
{
    if (!w->options.trace)
        return;
    char *line = w->lines[w->n_lines++ % 80];
    int n = snprintf(line, 160, "%9.3f ", (double)w->now_ns / 1e9);
    va_list args;
    va_start(args, fmt);
    vsnprintf(line + n, 160 - (size_t)n, fmt, args);
    va_end(args);
}

void sim_violate(sim_world *w, const char *invariant, const char *fmt, ...)
{
    if (w->out->violated)
        return;
    w->out->violated = true;
    snprintf(w->out->invariant, sizeof w->out->invariant, "%s", invariant);
    va_list args;
    va_start(args, fmt);
    vsnprintf(w->out->what, sizeof w->out->what, fmt, args);
    va_end(args);
}

/* ---- time ---- */

static bool earlier(const sim_item *a, const sim_item *b)
{
    return a->at_ns != b->at_ns ? a->at_ns < b->at_ns : a->order < b->order;
}

sim_item *sim_push(sim_world *w, sim_kind kind, uint32_t host, uint64_t at_ns)
{
    if (w->n_heap == w->room_heap) {
        w->room_heap = w->room_heap ? 2 * w->room_heap : 1024;
        w->heap = realloc(w->heap, w->room_heap * sizeof *w->heap);
        if (!w->heap)
            abort();
    }
    sim_item *item = calloc(1, sizeof *item);
    if (!item)
        abort();
    item->at_ns = at_ns > w->now_ns ? at_ns : w->now_ns;
    item->order = w->order++;
    item->kind = kind;
    item->host = host;
    item->boot = w->host[host] ? w->host[host]->boot : 0;
    size_t at = w->n_heap++;
    for (; at > 0 && earlier(item, w->heap[(at - 1) / 2]); at = (at - 1) / 2)
        w->heap[at] = w->heap[(at - 1) / 2];
    w->heap[at] = item;
    return item;
}

static sim_item *pop(sim_world *w)
{
    sim_item *first = w->heap[0], *last = w->heap[--w->n_heap];
    size_t at = 0;
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= w->n_heap)
            break;
        if (child + 1 < w->n_heap && earlier(w->heap[child + 1], w->heap[child]))
            child++;
        if (!earlier(w->heap[child], last))
            break;
        w->heap[at] = w->heap[child];
        at = child;
    }
    if (w->n_heap)
        w->heap[at] = last;
    return first;
}

/* ---- network ---- */

bool sim_reaches(const sim_world *w, uint32_t from, uint32_t to)
{
    return w->linked[from][to] && !w->cut[from][to] && w->host[to]->running;
}

uint64_t sim_delay(sim_world *w)
{
    uint64_t delay = w->delay_ns + sim_below(&w->random, w->jitter_ns + 1);
    bool late = sim_chance(&w->random, 0.01);
    w->out->injected[SIM_DELAYED] += late;
    return late ? 10 * delay : delay;
}

void sim_message(sim_world *w, uint32_t from, uint32_t to, const gsp_message *message)
{
    sim_check_heard(w, message);
    if (!w->linked[from][to])
        return;
    uint32_t copies = sim_chance(&w->random, w->doubled) ? 2 : 1;
    for (uint32_t k = 0; k < copies; k++) {
        if (w->cut[from][to])
            continue;
        w->out->injected[SIM_DOUBLED] += k;
        if (sim_chance(&w->random, w->loss)) {
            w->out->injected[SIM_LOST]++;
            continue;
        }
        sim_item *item =
            sim_push(w, SIM_DELIVER, to, w->now_ns + sim_delay(w) + w->host[from]->slow_ns);
        size_t bytes = gsp_message_bytes(message->kind);
        item->from = from;
        item->payload = malloc(bytes);
        if (!item->payload)
            abort();
        memcpy(item->payload, message, bytes);
        w->in_flight[from][to]++;
    }
}

uint32_t sim_host_of(const sim_world *w, const gsp_key *key)
{
    uint32_t i;
    memcpy(&i, key->byte + 8, sizeof i);
    return i < w->n_hosts ? i : 0;
}

static void set_link(sim_world *w, uint32_t a, uint32_t b, bool cut_ab, bool cut_ba)
{
    bool was = w->cut[a][b] || w->cut[b][a];
    w->cut[a][b] = cut_ab;
    w->cut[b][a] = cut_ba;
    if (!was || cut_ab || cut_ba || !w->linked[a][b])
        return;
    for (int k = 0; k < 2; k++) {
        sim_item *item = sim_push(w, SIM_EVENT, k ? a : b, w->now_ns + sim_delay(w));
        item->event.kind = GSP_ON_UP;
        item->event.peer = w->host[k ? b : a]->self.key;
    }
}

/* ---- faults ---- */

/* Somebody honest other than i has the pool's state, is a member by what it knows, and stays.
 * Without that nothing goes on before the owner starts a new lineage, nor is it promised: who is in
 * no roster founds nothing, whatever it has. */
static bool kept_without(const sim_world *w, uint32_t i)
{
    for (uint32_t k = 0; k < w->n_hosts; k++)
        if (k != i && w->host[k]->has_disk && !w->host[k]->gone && !w->host[k]->leaving &&
            w->host[k]->hostility == SIM_HONEST && gsp_agree_is_member(&w->host[k]->agree))
            return true;
    return false;
}

static void stop_and_restart(sim_world *w, uint32_t i, uint64_t *r, bool may_lose)
{
    bool lost = may_lose && kept_without(w, i) && sim_chance(r, 0.3);
    bool seen = sim_chance(r, 0.5);
    uint64_t pause = sim_below(r, 30 * SIM_SECOND);
    sim_trace(w, "fault: host %u stops%s for %.1f s", i, lost ? ", loses its disk," : "",
              (double)pause / 1e9);
    w->out->injected[lost ? SIM_CRASHED_AND_LOST : SIM_CRASHED]++;
    sim_host_stop(w, i);
    for (uint32_t k = 0; seen && k < w->n_hosts; k++) {
        if (k == i || !w->linked[k][i] || !w->host[k]->running)
            continue;
        sim_item *down = sim_push(w, SIM_EVENT, k, w->now_ns + sim_delay(w));
        down->event.kind = GSP_ON_DOWN;
        down->event.peer = w->host[i]->self.key;
    }
    if (lost) {
        w->host[i]->has_disk = false;
        w->host[i]->lost_ns = w->now_ns;
        w->host[i]->n_lost++;
        w->host[i]->n_results = 0;
    }
    sim_push(w, SIM_START, i, w->now_ns + pause);
}

static void partition(sim_world *w, uint64_t *r)
{
    bool side[SIM_HOSTS_MAX], one_way = sim_chance(r, 0.25);
    for (uint32_t i = 0; i < w->n_hosts; i++)
        side[i] = sim_chance(r, 0.4);
    for (uint32_t a = 0; a < w->n_hosts; a++)
        for (uint32_t b = 0; b < a; b++)
            if (side[a] != side[b])
                set_link(w, a, b, true, !one_way);
    w->out->injected[one_way ? SIM_ONE_WAY : SIM_PARTITIONED]++;
    sim_trace(w, "fault: %s partition", one_way ? "one-way" : "two-way");
}

static void heal(sim_world *w)
{
    for (uint32_t a = 0; a < w->n_hosts; a++)
        for (uint32_t b = 0; b < a; b++)
            if (w->cut[a][b] || w->cut[b][a])
                set_link(w, a, b, false, false);
    sim_trace(w, "all links are whole");
}

static void fault(sim_world *w, uint32_t number)
{
    uint64_t r = w->fault_random + 0x1000003u * number;
    uint32_t i = (uint32_t)sim_below(&r, w->n_hosts);
    uint64_t what = sim_below(&r, 100);
    sim_host *h = w->host[i];
    if (w->options.disabled >> number & 1)
        return;
    w->out->fault_bits |= 1ull << number;
    w->out->faults++;
    if (what < 35 && h->running) {
        stop_and_restart(w, i, &r, true);
    } else if (what < 50) {
        partition(w, &r);
    } else if (what < 65) {
        heal(w);
    } else if (what < 75) {
        uint32_t b = (uint32_t)sim_below(&r, w->n_hosts);
        w->out->injected[SIM_CUT_LINK] += b != i;
        if (b != i)
            set_link(w, i, b, true, sim_chance(&r, 0.5));
    } else if (what < 82 && h->running) {
        h->disk_bad = true;
        sim_trace(w, "fault: the disk of host %u fails", i);
    } else if (what < 90) {
        h->slow_ns = sim_below(&r, 3 * SIM_SECOND);
        w->out->injected[SIM_SLOWED]++;
        sim_trace(w, "fault: host %u is slow", i);
    } else if (what < 95 && h->running && w->n_hosts > 3 && i != 0 && !h->leaving &&
               kept_without(w, i)) {
        h->leaving = true;
        gsp_event event = {.kind = GSP_ON_LEAVE};
        w->out->injected[SIM_LEFT]++;
        sim_trace(w, "host %u leaves", i);
        sim_host_step(w, i, &event);
    } else if (what < 97 && w->host[0]->running && w->host[0]->hostility == SIM_HONEST) {
        gsp_event event = {.kind = GSP_ON_RESET};
        w->out->injected[SIM_RESET]++;
        sim_trace(w, "the owner starts a new lineage");
        sim_host_step(w, 0, &event);
    } else {
        w->out->injected[SIM_POWER_CUT]++;
        for (uint32_t k = 0; k < w->n_hosts; k++) /* the power goes */
            if (w->host[k]->running)
                stop_and_restart(w, k, &r, false);
    }
}

static void calm(sim_world *w)
{
    w->calm = true;
    w->loss = w->loss > 0.01 ? 0.01 : w->loss;
    heal(w);
    for (uint32_t i = 0; i < w->n_hosts; i++) {
        sim_host *h = w->host[i];
        h->slow_ns = 0;
        h->disk_bad = false;
        if (h->gone || h->leaving) {
            h->gone = true;
            sim_host_stop(w, i);
        } else if (!h->running) {
            sim_push(w, SIM_START, i, w->now_ns);
        }
        w->goal_version =
            h->agree.certified > w->goal_version ? h->agree.certified : w->goal_version;
    }
    w->goal_version += w->options.audits ? 24 : 2;
    sim_trace(w, "calm; version %llu is the goal", (unsigned long long)w->goal_version);
}

/* ---- a world ---- */

/* Every second one lies about its parts and withholds what shows it. */
static sim_hostility audit_role(uint64_t *r)
{
    static const sim_hostility role[] = {SIM_WITHHOLDS, SIM_WITHHOLDS, SIM_WITHHOLDS,
                                         SIM_FALSIFIES, SIM_WRAPS,     SIM_DEFAMES};
    return role[sim_below(r, sizeof role / sizeof role[0])];
}

static sim_host *host_open(sim_world *w, uint32_t i, bool hostile)
{
    uint64_t *r = &w->random;
    sim_host *h = calloc(1, sizeof *h);
    if (!h)
        abort();
    uint64_t key = sim_random(r);
    memcpy(h->self.key.byte, &key, sizeof key);
    memcpy(h->self.key.byte + 8, &i, sizeof i);
    h->self.incarnation = 1;
    h->index = i;
    h->drift = 0.97 + 0.06 * (double)sim_below(r, 1000) / 1000;
    w->out->injected[SIM_DRIFTED] += h->drift < 0.99 || h->drift > 1.01;
    h->offset_ns = sim_below(r, 1000 * SIM_SECOND);
    h->rates = (gsp_rates){.up_bytes_per_s = 1 + sim_below(r, 1000),
                           .down_bytes_per_s = 1 + sim_below(r, 1000),
                           .accepts = sim_chance(r, 0.8)};
    h->tokens_per_ns = (double)(1 + sim_below(r, 100)) * 1e-7;
    if (sim_chance(r, 0.05))
        h->tokens_per_ns *= 50;
    if (hostile && w->options.role)
        h->hostility = w->options.role;
    else if (hostile && w->options.audits)
        h->hostility = audit_role(r);
    else if (hostile)
        h->hostility = (sim_hostility)(1 + sim_below(r, SIM_HOSTILITY_N - 1));
    return h;
}

/* A version after the other, and who waits needs about a round for each: it hears of it, asks for
 * its results, and writes them. */
static void world_brisk(sim_world *w)
{
    uint64_t *r = &w->random;
    w->delay_ns = 2 * SIM_MS + sim_below(r, 10 * SIM_MS);
    w->jitter_ns = sim_below(r, 20 * SIM_MS);
    w->disk_ns = sim_below(r, 20 * SIM_MS);
    uint64_t behind = 4 * w->delay_ns + 2 * w->jitter_ns + w->disk_ns;
    w->rules.time_due_ns = behind / 2 + sim_below(r, 3 * behind);
}

static void world_rules(sim_world *w)
{
    uint64_t *r = &w->random;
    gsp_agree_defaults(&w->rules);
    w->rules.trust = w->options.seed % 2 ? GSP_FRIENDS : GSP_STRANGERS;
    w->rules.admits = sim_admits;
    w->rules.shows = sim_shows;
    if (w->rules.trust == GSP_STRANGERS)
        w->rules.silent_rounds = 8;
    w->rules.samples_due = UINT64_MAX / 2;
    w->rules.time_due_ns = (2 + sim_below(r, 8)) * SIM_SECOND;
    w->rules.heartbeat_ns = 2 * SIM_SECOND;
    w->rules.dead_ns = 7 * SIM_SECOND;
    w->rules.round_ns = 12 * SIM_SECOND;
    w->rules.round_min_ns = 6 * SIM_SECOND;
    w->rules.round_max_ns = 40 * SIM_SECOND;
    w->rules.fork_ns = 45 * SIM_SECOND;
    w->rules.n_parts = 1 + (uint32_t)sim_below(r, 6);
    w->rules.audit_percent = 75;
    w->rules.tokens_per_sample = 8;
    w->rules.samples_max = 1u << 26;
    w->rules.against_rounds = (uint32_t)(w->options.seed % 5);
    /* Some pools clip sums. Their versions are due by time, since nobody says here what is done. Others average
     * own work and mute whoever falls behind. */
    w->rules.summed = w->options.seed % 7 == 3;
    w->rules.drifts = w->options.seed % 7 == 5;
    w->rules.robust = w->rules.summed || w->rules.drifts;
    w->loss = (double)sim_below(r, 6) * 0.01;
    w->doubled = (double)sim_below(r, 4) * 0.01;
    w->delay_ns = 2 * SIM_MS + sim_below(r, 60 * SIM_MS);
    w->jitter_ns = sim_below(r, 200 * SIM_MS);
    w->disk_ns = sim_below(r, 30 * SIM_MS);
    if (w->options.brisk)
        world_brisk(w);
}

static void world_hosts(sim_world *w)
{
    const sim_options *o = &w->options;
    uint64_t *r = &w->random;
    uint32_t members = o->members ? o->members : 1 + (uint32_t)sim_below(r, 12);
    uint32_t hostile =
        (o->role || sim_chance(r, 0.5)) && !o->brisk ? gsp_liars_max(w->rules.trust, members) : 0;
    if (o->audits) {
        members = o->members ? o->members : 4 + (uint32_t)sim_below(r, 13);
        w->rules.trust = sim_chance(r, 0.5) ? GSP_STRANGERS : GSP_FRIENDS;
        w->rules.silent_rounds = w->rules.trust == GSP_STRANGERS ? 8 : 3;
        hostile = gsp_liars_max(w->rules.trust, members);
        w->rules.time_due_ns += 2 * SIM_SECOND; /* what is withheld has its time (claim.h) */
    }
    w->n_hosts = members + o->waiting;
    for (uint32_t i = 0; i < w->n_hosts; i++)
        w->host[i] = host_open(w, i, i > 0 && i <= hostile);
    w->rules.owner = w->host[0]->self.key;
    for (uint32_t a = 0; a < w->n_hosts; a++)
        for (uint32_t b = 0; b < a; b++)
            if (a < members || (a - members) % 8 == b % 8)
                w->linked[a][b] = w->linked[b][a] = b < members;
    for (uint32_t i = 0; i < w->n_hosts; i++) {
        uint64_t at = i == 0 ? 0 : sim_below(r, o->members ? 20 * SIM_SECOND : 40 * SIM_SECOND);
        w->host[i]->follower = i >= members;
        if (o->brisk && i > 0 && i % 2 == 0)
            at += 120 * SIM_SECOND; /* when it is calm, at the latest */
        sim_push(w, SIM_START, i, at + (i >= members ? 60 * SIM_SECOND : 0));
    }
    sim_host *creator = w->host[0];
    creator->has_disk = true;
    creator->disk.genesis.founder = creator->self;
    creator->disk.genesis.pool.byte[0] = 1;
    w->first = creator->disk.genesis;
}

static void world_faults(sim_world *w)
{
    uint64_t *r = &w->random, at = 15 * SIM_SECOND;
    w->fault_random = sim_random(r);
    w->calm_ns = (40 + sim_below(r, 80)) * SIM_SECOND;
    if (w->options.waiting)
        w->calm_ns = 110 * SIM_SECOND;
    if (w->options.brisk)
        w->calm_ns = 20 * SIM_SECOND + w->calm_ns / 4;
    uint64_t pace = (2 + sim_below(r, 12)) * SIM_SECOND;
    for (;;) {
        at += sim_below(r, 2 * pace);
        if (at >= w->calm_ns || w->n_faults == SIM_FAULTS_MAX)
            break;
        sim_push(w, SIM_FAULT, 0, at)->fault = w->n_faults++;
    }
}

static void item_free(sim_item *item)
{
    if (item->kind == SIM_DEFERRED && item->payload) {
        sim_deferred *d = item->payload;
        free(d->message);
        free(d->begin);
        free(d->certificate);
    }
    free(item->payload);
    free(item);
}

static void world_close(sim_world *w)
{
    while (w->n_heap)
        item_free(pop(w));
    for (uint32_t i = 0; i < w->n_hosts; i++) {
        w->out->forks += w->host[i]->agree.stats.forks;
        w->out->moves += w->host[i]->agree.stats.moves;
        w->out->evidence += w->host[i]->agree.stats.evidence;
        w->out->audits += w->host[i]->agree.stats.audits;
        w->out->lies += w->host[i]->agree.stats.lies;
        for (uint32_t k = 0; k < SIM_REPLAYS; k++)
            free(w->host[i]->old[k]);
        gsp_inquiry_close(&w->host[i]->inquiry);
        gsp_trail_close(&w->host[i]->hope);
        gsp_trail_close(&w->host[i]->trail);
        gsp_trail_close(&w->host[i]->lie);
        free(w->host[i]);
    }
    sim_check_close(w);
    free(w->heap);
    free(w->lines);
    free(w);
}

static void run(sim_world *w)
{
    uint64_t limit = w->calm_ns + 900 * SIM_SECOND;
    uint64_t looked = 0;
    while (w->n_heap && !w->out->violated && !w->out->beyond) {
        if (!w->calm && w->heap[0]->at_ns >= w->calm_ns) {
            w->now_ns = w->calm_ns;
            calm(w);
        }
        sim_item *item = pop(w);
        w->now_ns = item->at_ns;
        if (w->now_ns > limit) {
            item_free(item);
            break;
        }
        w->out->events++;
        if (item->kind == SIM_FAULT)
            fault(w, item->fault);
        else
            sim_host_take(w, item);
        item_free(item);
        if (w->calm && w->now_ns - looked > SIM_SECOND) {
            looked = w->now_ns;
            sim_check_waits(w);
            if (sim_converged(w))
                break;
        }
    }
}

sim_outcome sim_run(const sim_options *options)
{
    sim_outcome out = {0};
    sim_world *w = calloc(1, sizeof *w);
    if (!w)
        abort();
    w->options = *options;
    w->out = &out;
    w->random = options->seed * 0x2545f4914f6cdd1du + 7;
    if (options->trace)
        w->lines = calloc(80, sizeof *w->lines);
    sim_check_open(w);
    world_rules(w);
    world_hosts(w);
    world_faults(w);
    run(w);
    sim_check_end(w);
    out.hosts = w->n_hosts;
    out.strangers = w->rules.trust == GSP_STRANGERS;
    out.virtual_ns = w->now_ns;
    if (options->trace && w->lines)
        for (uint64_t k = w->n_lines > 80 ? w->n_lines - 80 : 0; k < w->n_lines; k++)
            printf("  %s\n", w->lines[k % 80]);
    world_close(w);
    return out;
}
