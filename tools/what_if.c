/*
 * Owns the one screen that says what a plan comes to and what one change would buy. One idea: every
 * row is a plan's outcome, so every figure means the same. Refuses to compute: the library plans.
 */
#include "tools/what_if.h"

#include "tools/show.h"

/* Per cent of a step: less than that is no gain. */
static const double NOTICED = 0.5;

static const char *place_text(const plan_outcome *o)
{
    return o->disk ? "on disk" : "in memory";
}

static void print_change(const plan_outcome *o, double now)
{
    char text[32] = "";
    const double gain = now > 0 ? 100 * (o->tokens_per_second / now - 1) : 0;
    const bool helps = now <= 0 || gain >= NOTICED;
    if (o->fits && now > 0 && helps)
        snprintf(text, sizeof text, "%+.1f %%", gain);
    else if (o->fits && now > 0 && gain > -NOTICED)
        snprintf(text, sizeof text, "no gain");
    else if (o->fits && now > 0)
        snprintf(text, sizeof text, "%.1f %% slower", -gain);
    if (o->fits)
        cli_print("  %-32s %8s tokens/s %13s  by %-11s %8s host, state %s\n", o->change,
                  cli_count(o->tokens_per_second), text, part_bound_name(o->bound),
                  cli_size(o->host_bytes), place_text(o));
    else
        cli_print("  %-32s does not fit\n", o->change);
    if (o->fits && o->option[0] && helps)
        cli_print("      %s\n", o->option);
}

/* Where updates run ahead of the clip factor, a step in which gradients are clipped is made again. */
static void print_predicted(const plan_outcome *now)
{
    const bool ahead = now->ahead_seconds > 0 && now->ahead_seconds < now->step_seconds;
    cli_print("predicted         %s tokens/s (%s for a step of %u micro-batches%s)\n",
              cli_count(now->tokens_per_second),
              cli_seconds(ahead ? now->ahead_seconds : now->step_seconds), now->micro_batches,
              ahead ? ", while no gradient is clipped" : "");
}

static void print_text(const graph *g, const part_profile *profile, const part_plan *plan,
                       const char *refused, const plan_what_if *w)
{
    plan_outcome now = {0};
    cli_print("%s, %s%s, micro-batch %lld x %lld tokens, on %s\n", g->name,
              atom_dtype_name(g->dtype), show_optimizer(g->optimizer, g->moments),
              (long long)g->micro_batch, (long long)g->sequence, profile->device.name);
    if (plan) {
        now = plan_outcome_of(plan);
        cli_print("fits              yes, with the optimizer's state %s\n", place_text(&now));
        print_predicted(&now);
        cli_print("bound by          %s\n", part_bound_name(now.bound));
        cli_print("device memory     %s\n", cli_size(now.device_bytes));
        cli_print("host memory       %s\n", cli_size(now.host_bytes));
    } else {
        cli_print("fits              no: %s\n", refused);
    }
    cli_print(w->n ? "with one change and everything else the same:\n"
                   : "there is no change to "
                     "try\n");
    for (uint32_t i = 0; i < w->n; i++)
        print_change(&w->changes[i], now.tokens_per_second);
}

static json_t *outcome_json(const plan_outcome *o)
{
    json_t *row = json_object();
    if (!row)
        return NULL;
    if (o->change[0])
        json_object_set_new(row, "change", json_string(o->change));
    if (o->option[0])
        json_object_set_new(row, "option", json_string(o->option));
    json_object_set_new(row, "fits", json_boolean(o->fits));
    if (!o->fits)
        return row;
    json_object_set_new(row, "micro_batches", json_integer(o->micro_batches));
    json_object_set_new(row, "predicted_step_seconds", cli_real(o->step_seconds));
    if (o->ahead_seconds > 0)
        json_object_set_new(row, "predicted_ahead_seconds", cli_real(o->ahead_seconds));
    json_object_set_new(row, "predicted_tokens_per_second", cli_real(o->tokens_per_second));
    json_object_set_new(row, "bound", json_string(part_bound_name(o->bound)));
    json_object_set_new(row, "disk", json_boolean(o->disk));
    json_object_set_new(row, "device_peak_bytes", json_integer((json_int_t)o->device_bytes));
    json_object_set_new(row, "host_peak_bytes", json_integer((json_int_t)o->host_bytes));
    return row;
}

atom_status what_if_print(const graph *g, const part_profile *profile, const plan_request *asked,
                          const part_plan *plan, const char *refused, bool json)
{
    plan_what_if w;
    ATOM_TRY(plan_what_if_price(g, profile, asked, plan, &w));
    if (!json) {
        print_text(g, profile, plan, refused, &w);
        return ATOM_OK;
    }
    plan_outcome now = plan ? plan_outcome_of(plan) : (plan_outcome){0};
    json_t *rows = json_array(), *top = outcome_json(&now);
    for (uint32_t i = 0; i < w.n; i++)
        json_array_append_new(rows, outcome_json(&w.changes[i]));
    json_object_set_new(top, "model", json_string(g->name));
    json_object_set_new(top, "device", json_string(profile->device.name));
    if (!plan)
        json_object_set_new(top, "refused", json_string(refused));
    json_object_set_new(top, "changes", rows);
    return cli_print_json(top);
}
