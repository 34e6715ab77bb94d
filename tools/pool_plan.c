/*
 * Owns the screen that says what a group of hosts would make of a model. One idea: all ways stand in
 * one table with the same columns, and below it one way is told in full. Refuses to recommend what
 * atom cannot train.
 */
#include "tools/pool_plan.h"

#include "tools/pool_picture.h"

#include <math.h>
#include <string.h>

enum { ROWS_MAX = 24, FRAGMENTS = 8 /* as `atom pool create` has them */ };

static void way_text(const place_candidate *c, char *text, size_t bytes)
{
    if (c->mode == PLACE_GRADIENTS)
        snprintf(text, bytes, "gradients summed");
    else if (c->mode == PLACE_PARAMETERS && c->possible)
        snprintf(text, bytes, "weights averaged every %u", c->sync_steps);
    else if (c->mode == PLACE_PARAMETERS)
        snprintf(text, bytes, "weights averaged");
    else if (c->possible)
        snprintf(text, bytes, "%u stages x %u, predicted", c->n_stages, c->n_groups);
    else
        snprintf(text, bytes, "stages, predicted");
}

static const char *host_name(const plan_pool *p, uint32_t host)
{
    return host == PLACE_UNUSED ? "" : p->hosts[host].name;
}

/* "the line of box", "filling and draining the pipeline" */
static void bound_text(const plan_pool *p, const place_candidate *c, char *text, size_t bytes)
{
    const char *who = host_name(p, c->binds);
    switch (c->bound) {
    case PLACE_BOUND_COMPUTE:
        snprintf(text, bytes, "compute (%s)", who);
        break;
    case PLACE_BOUND_SYNC:
        snprintf(text, bytes, "all-reduce (line of %s)", who);
        break;
    case PLACE_BOUND_BOUNDARY:
        snprintf(text, bytes, "link %s to %s", who, host_name(p, c->binds_to));
        break;
    case PLACE_BOUND_OPTIMIZER:
        snprintf(text, bytes, "optimizer (%s)", who);
        break;
    default:
        snprintf(text, bytes, "filling the pipeline");
    }
}

static void print_ways(const plan_pool *p)
{
    char way[64], bound[2 * PLACE_NAME_BYTES + 32];
    cli_print("%-26s %5s %9s %9s %9s %9s %9s %8s  %s\n", "way", "hosts", "tokens/s", "step",
              "compute", "link", "optimizer", "bubble", "binds");
    for (int mode = 0; mode < PLACE_MODES; mode++) {
        const place_candidate *c = &p->way[mode];
        way_text(c, way, sizeof way);
        if (!c->possible) {
            cli_print("%-26s not possible: %s\n", way, c->why);
            continue;
        }
        bound_text(p, c, bound, sizeof bound);
        cli_print("%-26s %5u %9s %9s", way, c->n_used, cli_count(c->tokens_per_second),
                  cli_seconds(c->step_seconds));
        cli_print(" %9s %9s %9s %8s  %s\n", cli_seconds(c->compute_seconds),
                  cli_seconds(c->link_seconds), cli_seconds(c->optimizer_seconds),
                  cli_seconds(c->bubble_seconds), bound);
    }
}

static bool alike(const plan_pool *p, const place_candidate *c, uint32_t a, uint32_t b)
{
    return p->net->entry[a] == p->net->entry[b] && c->stage[a] == c->stage[b] &&
           c->memory_bytes[a] == c->memory_bytes[b] && fabs(c->busy[a] - c->busy[b]) < 0.005;
}

static const char *why_idle(const plan_pool *p, const place_candidate *c, uint32_t host)
{
    const place_kind *kind =
        &p->kinds[c->mode == PLACE_GRADIENTS ? PLAN_POOL_GRADIENTS : PLAN_POOL_PARAMETERS]
                 [p->hosts[host].kind];
    if (c->mode == PLACE_STAGES)
        return "the stages divide the hosts evenly, and this one is left over";
    return kind->whole ? "the others are faster without it" : kind->whole_why;
}

/* The hosts of one way; those that are alike share a row. */
static void print_hosts(const plan_pool *p, const place_candidate *c)
{
    bool done[PLACE_HOSTS_MAX] = {false};
    uint32_t rows = 0, left = 0;
    char who[2 * PLACE_NAME_BYTES];
    for (uint32_t i = 0; i < p->net->n; i++) {
        uint32_t n = 0;
        if (done[i])
            continue;
        for (uint32_t j = i; j < p->net->n; j++)
            if (!done[j] && alike(p, c, i, j)) {
                done[j] = true;
                n++;
            }
        if (rows++ >= ROWS_MAX) {
            left += n;
            continue;
        }
        if (n > 1)
            snprintf(who, sizeof who, "%u x %s", n, p->file->entries[p->net->entry[i]].name);
        else
            snprintf(who, sizeof who, "%s", p->hosts[i].name);
        if (c->stage[i] == PLACE_UNUSED)
            cli_print("  %-34s takes no part: %s\n", who, why_idle(p, c, i));
        else if (c->mode == PLACE_STAGES)
            cli_print("  %-34s %3.0f %% busy, stage %u, layers %u to %u, %s of host memory\n", who,
                      100 * c->busy[i], c->stage[i] + 1u, c->first_layer[c->stage[i]] + 1,
                      c->first_layer[c->stage[i] + 1], cli_size(c->memory_bytes[i]));
        else
            cli_print("  %-34s %3.0f %% busy, %s of host memory\n", who, 100 * c->busy[i],
                      cli_size(c->memory_bytes[i]));
    }
    if (left)
        cli_print("  and %u more hosts; --json lists them all\n", left);
}

static bool delay_pays(const plan_pool *p)
{
    const place_candidate *sums = &p->way[PLACE_GRADIENTS];
    double now = sums->possible ? sums->tokens_per_second : 0;
    return p->delayed.possible && p->delayed.n_used > 1 &&
           p->delayed.tokens_per_second >= PLACE_DELAY_PAYS * now;
}

static void print_delay(const plan_pool *p)
{
    const place_candidate *c = &p->delayed;
    if (delay_pays(p))
        cli_print(
            "delayed_updates   true, with sync: gradients: %u hosts, %s tokens/s, a step in %s; "
            "gradients are sent\n"
            "                  while the next step is computed; it learns less at high learning "
            "rates\n",
            c->n_used, cli_count(c->tokens_per_second), cli_seconds(c->step_seconds));
}

static void print_advice(const plan_pool *p)
{
    const place_candidate *w = &p->way[PLACE_PARAMETERS], *s = &p->way[PLACE_STAGES];
    const place_candidate *best = p->recommended >= 0 ? &p->way[p->recommended] : NULL;
    uint32_t first = 0;
    while (best && first + 1 < p->net->n && best->stage[first] == PLACE_UNUSED)
        first++;
    if (!best)
        cli_print("recommended       nothing; atom cannot train this model with these hosts\n");
    else if (best->n_used == 1)
        cli_print("recommended       no pool; %s should train it alone\n", p->hosts[first].name);
    else if (p->recommended == PLACE_GRADIENTS)
        cli_print("recommended       sync: gradients, which learns as well as one trainer%s\n",
                  best->n_used < p->net->n ? "; not all hosts take part" : "");
    else
        cli_print("recommended       sync: parameters, sync_steps: %u; averaging takes %s and "
                  "%s;\n"
                  "                  it learns less from the same tokens than summed gradients\n",
                  w->sync_steps, cli_seconds(w->sync_seconds),
                  w->hidden ? "is hidden behind the steps"
                            : "is not hidden: faster connections "
                              "would help");
    print_delay(p);
    if (s->possible)
        cli_print("stages            atom cannot train in stages yet; this row is a prediction%s\n",
                  p->layers->tied
                      ? "\n                  in which two stages hold the tied embedding"
                      : "");
}

static void print_changes(const plan_pool *p)
{
    if (p->changes_of < 0 || !p->n_changes)
        return;
    double now = p->way[p->changes_of].tokens_per_second;
    char way[64];
    way_text(&p->way[p->changes_of], way, sizeof way);
    cli_print("with one change and everything else the same, for %s:\n", way);
    for (uint32_t i = 0; i < p->n_changes; i++) {
        const plan_pool_outcome *o = &p->changes[i];
        if (o->possible)
            cli_print("  %-34s %10s tokens/s %+7.1f %%\n", o->change,
                      cli_count(o->tokens_per_second), 100 * (o->tokens_per_second / now - 1));
        else
            cli_print("  %-34s not possible\n", o->change);
    }
}

static void print_text(const plan_pool *p)
{
    const graph *g = p->g;
    const plan_pool_file *f = p->file;
    int32_t told = p->recommended >= 0 ? p->recommended : p->changes_of;
    char way[64];
    cli_print("%s, %s, steps of %s tokens in %u micro-batches of %lld x %lld, sent as %s\n",
              g->name, atom_dtype_name(g->dtype), cli_count((double)f->step_tokens),
              p->problem.micro_batches, (long long)g->micro_batch, (long long)g->sequence,
              plan_pool_codec_name(f->codec));
    cli_print("%u hosts:", p->net->n);
    for (uint32_t i = 0; i < f->n_entries && i < 8; i++)
        cli_print("%s %lld x %s (%s%s%s)", i ? "," : "", (long long)f->entries[i].count,
                  f->entries[i].name, f->entries[i].link ? f->entries[i].link : "matrix",
                  f->entries[i].region ? ", " : "",
                  f->entries[i].region ? f->entries[i].region : "");
    cli_print("%s\n\n", f->n_entries > 8 ? ", ..." : "");
    print_ways(p);
    cli_print("\n");
    print_advice(p);
    if (told >= 0) {
        way_text(&p->way[told], way, sizeof way);
        cli_print("hosts, for %s:\n", way);
        print_hosts(p, &p->way[told]);
    }
    print_changes(p);
}

/* --- JSON --- */

static json_t *hosts_json(const plan_pool *p, const place_candidate *c)
{
    json_t *rows = json_array();
    for (uint32_t i = 0; i < p->net->n; i++) {
        bool used = c->stage[i] != PLACE_UNUSED;
        json_t *row = json_object();
        json_object_set_new(row, "name", json_string(p->hosts[i].name));
        json_object_set_new(row, "takes_part", json_boolean(used));
        if (used) {
            json_object_set_new(row, "stage", json_integer(c->stage[i]));
            json_object_set_new(row, "pipeline", json_integer(c->pipeline[i]));
            json_object_set_new(row, "busy", cli_real(c->busy[i]));
            json_object_set_new(row, "memory_bytes", json_integer((json_int_t)c->memory_bytes[i]));
        }
        json_array_append_new(rows, row);
    }
    return rows;
}

static void set_name(json_t *to, const char *key, const plan_pool *p, uint32_t host)
{
    if (host != PLACE_UNUSED)
        json_object_set_new(to, key, json_string(p->hosts[host].name));
}

static json_t *way_json(const plan_pool *p, const place_candidate *c)
{
    const struct {
        const char *key;
        double value;
    } figures[] = {{"tokens_per_second", c->tokens_per_second},
                   {"step_seconds", c->step_seconds},
                   {"compute_seconds", c->compute_seconds},
                   {"link_seconds", c->link_seconds},
                   {"optimizer_seconds", c->optimizer_seconds},
                   {"bubble_seconds", c->bubble_seconds},
                   {"sync_seconds", c->sync_seconds}};
    json_t *row = json_object(), *cuts = json_array();
    json_object_set_new(row, "mode", json_string(place_mode_names[c->mode]));
    json_object_set_new(row, "atom_trains_it", json_boolean(c->mode != PLACE_STAGES));
    json_object_set_new(row, "possible", json_boolean(c->possible));
    for (uint32_t s = 0; c->possible && s <= c->n_stages; s++)
        json_array_append_new(cuts, json_integer(c->first_layer[s]));
    json_object_set_new(row, "first_layers", cuts);
    if (!c->possible) {
        json_object_set_new(row, "why", json_string(c->why));
        return row;
    }
    json_object_set_new(row, "stages", json_integer(c->n_stages));
    json_object_set_new(row, "groups", json_integer(c->n_groups));
    json_object_set_new(row, "sync_steps", json_integer(c->sync_steps));
    if (c->mode == PLACE_PARAMETERS)
        json_object_set_new(row, "hidden", json_boolean(c->hidden));
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++)
        json_object_set_new(row, figures[i].key, cli_real(figures[i].value));
    json_object_set_new(row, "bound", json_string(place_bound_names[c->bound]));
    set_name(row, "binds", p, c->binds);
    set_name(row, "binds_to", p, c->binds_to);
    json_object_set_new(row, "hosts", hosts_json(p, c));
    return row;
}

static json_t *plan_json(const plan_pool *p)
{
    json_t *top = json_object(), *ways = json_array(), *changes = json_array();
    json_object_set_new(top, "model", json_string(p->g->name));
    json_object_set_new(top, "dtype", json_string(atom_dtype_name(p->g->dtype)));
    json_object_set_new(top, "hosts", json_integer(p->net->n));
    json_object_set_new(top, "layers", json_integer(p->layers->n));
    json_object_set_new(top, "tied_across_stages", json_boolean(p->layers->tied));
    json_object_set_new(top, "step_tokens", json_integer((json_int_t)p->file->step_tokens));
    json_object_set_new(top, "micro_batches", json_integer(p->problem.micro_batches));
    json_object_set_new(top, "codec", json_string(plan_pool_codec_name(p->file->codec)));
    json_object_set_new(top, "recommended",
                        p->recommended >= 0 ? json_string(place_mode_names[p->recommended])
                                            : json_null());
    for (int mode = 0; mode < PLACE_MODES; mode++)
        json_array_append_new(ways, way_json(p, &p->way[mode]));
    json_object_set_new(top, "ways", ways);
    json_object_set_new(top, "delayed_gradients", way_json(p, &p->delayed));
    for (uint32_t i = 0; i < p->n_changes; i++) {
        json_t *row = json_object();
        json_object_set_new(row, "change", json_string(p->changes[i].change));
        json_object_set_new(row, "possible", json_boolean(p->changes[i].possible));
        if (p->changes[i].possible)
            json_object_set_new(row, "tokens_per_second",
                                cli_real(p->changes[i].tokens_per_second));
        json_array_append_new(changes, row);
    }
    json_object_set_new(top, "changes", changes);
    return top;
}

atom_status pool_plan_print(const graph *g, const plan_pool_file *file, const char *picture,
                            bool json)
{
    plan_pool_request request = {.g = g, .file = file};
    plan_pool *p = NULL;
    atom_status st = ATOM_OK;
    static const struct {
        pool_sync sync;
        uint32_t fragments;
    } copies[PLAN_POOL_COPIES] = {[PLAN_POOL_GRADIENTS] = {POOL_SYNC_GRADIENTS, 1},
                                  [PLAN_POOL_PARAMETERS] = {POOL_SYNC_PARAMETERS, FRAGMENTS},
                                  [PLAN_POOL_DELAYED] = {POOL_SYNC_DELAYED, 1}};
    for (int i = 0; i < PLAN_POOL_COPIES; i++) {
        const pool_host_facts facts = {.floats = g->trained_extent,
                                       .fragments = copies[i].fragments,
                                       .codec = file->codec,
                                       .sync = copies[i].sync,
                                       .audits = true};
        request.beside[i] = pool_host_bytes(&facts, false);
        request.least_beside[i] = pool_host_bytes(&facts, true);
    }
    if (picture)
        ATOM_TRY(pool_picture_check(picture));
    ATOM_TRY(plan_pool_open(&request, &p));
    if (picture)
        ATOM_TRY_CLEAN(pool_picture_write(p, picture));
    if (json)
        ATOM_TRY_CLEAN(cli_print_json(plan_json(p)));
    else
        print_text(p);
    if (p->recommended < 0)
        ATOM_TRY_CLEAN(atom_fail(ATOM_E_RESOURCE, "atom cannot train it with these hosts: %s",
                                 p->way[PLACE_PARAMETERS].why));
cleanup:
    plan_pool_close(&p);
    return st;
}
