/*
 * Owns the question what a described group of hosts would do with a model. One idea: every kind of
 * host is planned as if it trained alone, and placement adds what is between them; a change is the
 * same question asked again. Refuses hosts that hold no part of the model.
 */
#include "atom/plan/pool_plan.h"

#include "atom/base/log.h"
#include "atom/base/mem.h"
#include "atom/base/size.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { TRIES_OF_A_CHANGE = 600, LIKE_MAX = 3, LINKS_MAX = 3 };

void plan_pool_close(plan_pool **plan)
{
    plan_pool *p = *plan;
    if (!p)
        return;
    for (int way = 0; way < PLAN_POOL_COPIES; way++) {
        for (uint32_t i = 0; p->costs[way] && i < p->problem.n_kinds; i++)
            plan_host_free(&p->costs[way][i]);
        atom_free(p->costs[way]);
        atom_free(p->kinds[way]);
    }
    plan_layers_close(&p->layers);
    plan_pool_net_close(&p->net);
    atom_free(p->hosts);
    atom_free(p);
    *plan = NULL;
}

atom_status plan_pool_native_bf16(const plan_pool_file *file, bool *out)
{
    *out = true;
    for (uint32_t i = 0; i < file->n_entries; i++) {
        const plan_pool_entry *e = &file->entries[i];
        part_profile *profile = NULL;
        part_device device;
        if (e->profile) {
            ATOM_TRY(part_profile_read(e->profile, &profile));
            *out = *out && profile->dtype == ATOM_BF16;
            part_profile_close(&profile);
        } else {
            atom_status st = part_device_spec(e->device, &device);
            if (st != ATOM_OK)
                return atom_fail_in(st, "%s:%u: ", file->path, e->line);
            *out = *out && device.flops_bf16 > 0;
        }
    }
    return ATOM_OK;
}

/* --- kinds of hosts --- */

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

static bool same_kind(const plan_pool_entry *a, const plan_pool_entry *b)
{
    return same_text(a->device, b->device) && same_text(a->profile, b->profile) &&
           a->device_memory == b->device_memory && a->host_memory == b->host_memory &&
           a->disk == b->disk && a->devices == b->devices;
}

static atom_status profile_of(const plan_pool *p, const plan_pool_entry *e, part_profile **out)
{
    part_device device;
    if (e->profile)
        return part_profile_read(e->profile, out);
    ATOM_TRY(part_device_spec(e->device, &device));
    return part_profile_model(p->g, &device, out);
}

static atom_status check_devices(const plan_pool_entry *e, uint32_t share)
{
    if (e->devices <= share)
        return ATOM_OK;
    return atom_fail(ATOM_E_USAGE,
                     "devices: %lld devices share the micro-batches of a host's step, but there "
                     "%s only %u; raise step_tokens, or lower devices",
                     (long long)e->devices, share == 1 ? "is" : "are", share);
}

/* A limit is a cap, and this one caps nothing. */
static void warn_of_limit(const plan_pool *p, const plan_pool_entry *e, const part_device *d)
{
    char asked[32], has[32];
    if (e->device_memory <= d->device_bytes || d->device_bytes == 0)
        return;
    atom_log(ATOM_LOG_WARN,
             "%s:%u: device_memory %s is more than the %s of %s that a plan can use; %s is taken "
             "for a host whose device has that much memory",
             p->file->path, e->line, atom_size_text(e->device_memory, asked),
             atom_size_text(d->device_bytes, has), d->name, e->name);
}

/* The costs of the kind that entry e is the first of, for all ways of whole copies. */
static atom_status price_kind(plan_pool *p, const plan_pool_request *r, const plan_pool_entry *e,
                              uint32_t kind)
{
    part_profile *profile = NULL;
    uint32_t each = p->problem.micro_batches / p->net->n, share = each ? each : 1;
    plan_host_limits limits = {.device_memory = e->device_memory,
                               .host_memory = e->host_memory,
                               .disk = e->disk,
                               .micro_batches = share,
                               .devices = (uint32_t)e->devices};
    atom_status st = ATOM_OK;
    ATOM_TRY_CLEAN(check_devices(e, share));
    ATOM_TRY_CLEAN(profile_of(p, e, &profile));
    warn_of_limit(p, e, &profile->device);
    for (int way = 0; way < PLAN_POOL_COPIES; way++) {
        limits.host_beside = r->beside[way];
        limits.least_beside = r->least_beside[way];
        ATOM_TRY_CLEAN(
            plan_host_price(p->g, profile, p->layers, &limits, e->name, &p->costs[way][kind]));
        p->kinds[way][kind] = p->costs[way][kind].kind;
    }
cleanup:
    part_profile_close(&profile);
    return st == ATOM_OK ? st : atom_fail_in(st, "%s:%u: ", p->file->path, e->line);
}

/* A host that holds not one layer is of no use, whatever the others do. */
static atom_status check_holds(const plan_pool *p, const plan_pool_entry *e, uint32_t kind)
{
    char has[32];
    const place_kind *k = &p->kinds[PLAN_POOL_PARAMETERS][kind];
    if (p->kinds[PLAN_POOL_GRADIENTS][kind].whole || k->whole)
        return ATOM_OK;
    for (uint32_t i = 0; i < p->layers->n; i++)
        if (place_holds(&p->problem, kind, i, i + 1))
            return ATOM_OK;
    snprintf(has, sizeof has, "%.2f GB", 1e-9 * (double)k->host_bytes);
    return atom_fail(ATOM_E_RESOURCE,
                     "%s:%u: %s is too small for any part of the model: not even one layer can "
                     "be trained in %s of host memory and %.2f GB on the device; leave it out",
                     p->file->path, e->line, e->name, has, 1e-9 * (double)k->device_bytes);
}

static atom_status price_kinds(plan_pool *p, const plan_pool_request *r)
{
    const plan_pool_file *f = p->file;
    for (int way = 0; way < PLAN_POOL_COPIES; way++) {
        p->costs[way] = atom_alloc(f->n_entries, sizeof *p->costs[way]);
        p->kinds[way] = atom_alloc(f->n_entries, sizeof *p->kinds[way]);
        if (!p->costs[way] || !p->kinds[way])
            return atom_fail_memory("kinds of hosts", f->n_entries * sizeof *p->costs[way]);
    }
    for (uint32_t i = 0; i < f->n_entries; i++) {
        uint32_t like = 0;
        while (!same_kind(&f->entries[like], &f->entries[i]))
            like++;
        if (like < i) {
            p->kind[i] = p->kind[like];
            continue;
        }
        if (p->problem.n_kinds == PLACE_KINDS_MAX)
            return atom_fail(ATOM_E_USAGE, "%s:%u: more than %d kinds of hosts", f->path,
                             f->entries[i].line, PLACE_KINDS_MAX);
        p->kind[i] = p->problem.n_kinds++;
        ATOM_TRY(price_kind(p, r, &f->entries[i], p->kind[i]));
    }
    p->problem.kinds = p->kinds[PLAN_POOL_PARAMETERS];
    for (uint32_t i = 0; i < f->n_entries; i++)
        ATOM_TRY(check_holds(p, &f->entries[i], p->kind[i]));
    return ATOM_OK;
}

/* --- the problem --- */

static atom_status name_hosts(const plan_pool *p, const plan_pool_net *net, place_host **out)
{
    place_host *hosts = atom_alloc(net->n, sizeof *hosts);
    if (!hosts)
        return atom_fail_memory("hosts", net->n * sizeof *hosts);
    for (uint32_t i = 0; i < net->n; i++) {
        memcpy(hosts[i].name, net->name[i], sizeof hosts[i].name);
        hosts[i].kind = p->kind[net->entry[i]];
    }
    *out = hosts;
    return ATOM_OK;
}

static void connect(place_problem *p, const plan_pool_net *net, const place_host *hosts)
{
    p->hosts = hosts;
    p->n_hosts = net->n;
    p->delay = net->delay;
    p->rate = net->rate;
    p->up = net->up;
    p->down = net->down;
}

static void describe_step(plan_pool *p)
{
    const graph *g = p->g;
    double tokens = (double)(g->micro_batch * g->sequence);
    double batches = ceil((double)p->file->step_tokens / tokens);
    p->problem.layers = p->layers->layers;
    p->problem.n_layers = p->layers->n;
    p->problem.micro_tokens = tokens;
    p->problem.micro_batches = (uint32_t)fmin(batches, 1 << 24);
    p->problem.sync_bytes = plan_pool_codec_bytes(p->file->codec);
    p->problem.state_bytes = atom_state_bytes(g->moments);
    p->problem.wire_bytes = (double)atom_dtype_bytes(g->dtype);
}

/* With summed gradients the pool takes other memory than with averaged weights. */
static place_problem problem_of(const plan_pool *p, const place_problem *base, place_mode mode)
{
    place_problem out = *base;
    out.kinds = p->kinds[mode == PLACE_GRADIENTS ? PLAN_POOL_GRADIENTS : PLAN_POOL_PARAMETERS];
    return out;
}

static atom_status price_ways(plan_pool *p, const place_search *search)
{
    for (int mode = PLACE_GRADIENTS; mode <= PLACE_PARAMETERS; mode++) {
        place_problem problem = problem_of(p, &p->problem, (place_mode)mode);
        ATOM_TRY(place_whole(&problem, (place_mode)mode, &p->way[mode]));
    }
    place_problem delayed = p->problem;
    delayed.kinds = p->kinds[PLAN_POOL_DELAYED];
    delayed.delayed = true;
    ATOM_TRY(place_whole(&delayed, PLACE_GRADIENTS, &p->delayed));
    ATOM_TRY(place_most(&p->problem, search, &p->way[PLACE_STAGES]));
    p->recommended = place_recommend(&p->way[PLACE_GRADIENTS], &p->way[PLACE_PARAMETERS]);
    return ATOM_OK;
}

/* --- what one change would buy --- */

static atom_status price_again(const plan_pool *p, const place_problem *base,
                               const place_search *search, place_candidate *out)
{
    place_mode mode = (place_mode)p->changes_of;
    place_problem problem = problem_of(p, base, mode);
    place_candidate more;
    if (mode != PLACE_STAGES)
        return place_whole(&problem, mode, out);
    uint32_t stages = p->way[PLACE_STAGES].n_stages;
    ATOM_TRY(place_stages(&problem, stages, search, out));
    if (stages >= problem.n_hosts || stages >= problem.n_layers || stages >= PLACE_STAGES_MAX)
        return ATOM_OK;
    ATOM_TRY(place_stages(&problem, stages + 1, search, &more));
    if (more.possible && (!out->possible || more.tokens_per_second > out->tokens_per_second))
        *out = more;
    return ATOM_OK;
}

static atom_status add(plan_pool *p, const place_problem *problem, const place_search *search,
                       const char *change)
{
    place_candidate c;
    if (p->n_changes == PLAN_POOL_CHANGES_MAX)
        return ATOM_OK;
    ATOM_TRY(price_again(p, problem, search, &c));
    plan_pool_outcome *o = &p->changes[p->n_changes++];
    snprintf(o->change, sizeof o->change, "%s", change);
    o->possible = c.possible;
    o->tokens_per_second = c.tokens_per_second;
    return ATOM_OK;
}

/* Another network with the same kinds of hosts. */
static atom_status add_network(plan_pool *p, const plan_pool_change *change,
                               const place_search *search, const char *words)
{
    place_problem problem = p->problem;
    plan_pool_net *net = NULL;
    place_host *hosts = NULL;
    atom_status st = ATOM_OK;
    if (p->problem.n_hosts == PLACE_HOSTS_MAX && change->more >= 0)
        return ATOM_OK;
    ATOM_TRY_CLEAN(plan_pool_net_open(p->file, change, &net));
    ATOM_TRY_CLEAN(name_hosts(p, net, &hosts));
    connect(&problem, net, hosts);
    ATOM_TRY_CLEAN(add(p, &problem, search, words));
cleanup:
    atom_free(hosts);
    plan_pool_net_close(&net);
    return st;
}

/* A class of lines that no entry before i has. */
static bool new_link(const plan_pool_file *f, uint32_t i)
{
    for (uint32_t j = 0; j < i; j++)
        if (same_text(f->entries[j].link, f->entries[i].link))
            return false;
    return true;
}

static atom_status price_changes(plan_pool *p, const place_search *search)
{
    const plan_pool_file *f = p->file;
    char words[PLAN_POOL_WORDS];
    uint32_t links = 0;
    p->changes_of = p->recommended >= 0             ? p->recommended
                    : p->way[PLACE_STAGES].possible ? PLACE_STAGES
                                                    : -1;
    if (p->changes_of < 0)
        return ATOM_OK;
    for (uint32_t i = 0; i < f->n_entries && i < LIKE_MAX && !f->mbit_csv; i++) {
        const plan_pool_change change = {.more = (int32_t)i, .faster = 1};
        snprintf(words, sizeof words, "one more host like %s", f->entries[i].name);
        ATOM_TRY(add_network(p, &change, search, words));
    }
    for (uint32_t i = 0; i < f->n_entries && links < LINKS_MAX && p->net->n > 1; i++) {
        const plan_pool_change change = {.more = -1, .link = f->entries[i].link, .faster = 2};
        if (!new_link(f, i))
            continue;
        links++;
        if (change.link)
            snprintf(words, sizeof words, "%s lines twice as fast", change.link);
        else
            snprintf(words, sizeof words, "every link twice as fast");
        ATOM_TRY(add_network(p, &change, search, words));
    }
    place_problem larger = p->problem;
    if (p->changes_of == PLACE_PARAMETERS || larger.micro_batches > 1 << 23)
        return ATOM_OK;
    larger.micro_batches *= 2;
    snprintf(words, sizeof words, "steps of twice as many tokens");
    return add(p, &larger, search, words);
}

atom_status plan_pool_open(const plan_pool_request *r, plan_pool **out)
{
    const place_search whole = {.seed = r->seed},
                       brief = {.seed = r->seed, .tries = TRIES_OF_A_CHANGE};
    const plan_pool_change none = {.more = -1, .faster = 1};
    plan_pool *p = atom_alloc(1, sizeof *p);
    atom_status st = ATOM_OK;
    if (!p)
        return atom_fail_memory("a plan for a pool", sizeof *p);
    p->g = r->g;
    p->file = r->file;
    ATOM_TRY_CLEAN(plan_pool_net_open(r->file, &none, &p->net));
    ATOM_TRY_CLEAN(plan_layers_open(r->g, &p->layers));
    describe_step(p);
    ATOM_TRY_CLEAN(price_kinds(p, r));
    ATOM_TRY_CLEAN(name_hosts(p, p->net, &p->hosts));
    connect(&p->problem, p->net, p->hosts);
    ATOM_TRY_CLEAN(price_ways(p, &whole));
    ATOM_TRY_CLEAN(price_changes(p, &brief));
    *out = p;
    p = NULL;
cleanup:
    plan_pool_close(&p);
    return st;
}
