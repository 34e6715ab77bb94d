/*
 * Owns the settings of a pool as text. One idea: option tables are the only place where a key has a
 * name, a range and a help, for pools too. Refuses to share what is of one host alone: paths,
 * devices, memory.
 */
#include "atom/pool/settings.h"

#include "atom/pool/dense.h"

#include "atom/base/hash.h"
#include "atom/base/mem.h"
#include "atom/train/config.h"
#include "gossip/agree/types.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#define AT(member) .offset = offsetof(pool_settings, member)

enum { SLICES = 16 };
static const opt_choice syncs[] = {{"parameters", POOL_SYNC_PARAMETERS},
                                   {"gradients", POOL_SYNC_GRADIENTS},
                                   {"slices", POOL_SYNC_SLICES},
                                   {0}};
static const char *const sync_aliases[] = {"mode", NULL};
static const opt_choice datas[] = {
    {"shared", POOL_DATA_SHARED}, {"own", POOL_DATA_OWN}, {"either", POOL_DATA_EITHER}, {0}};
static const opt_choice trusts[] = {{"friends", GSP_FRIENDS}, {"strangers", GSP_STRANGERS}, {0}};
static const opt_choice codecs[] = {
    {"fp32", GSP_CODEC_FP32}, {"bf16", GSP_CODEC_BF16}, {"int8", GSP_CODEC_INT8}, {0}};

/* clang-format off */
static const opt_spec specs[] = {
    {.name = "sync", .type = OPT_CHOICE, AT(sync), .fallback = "parameters", .choices = syncs,
     .aliases = sync_aliases,
     .help = "What is averaged. parameters: the weights, every sync_steps (streaming DiLoCo). "
             "slices: the same without an outer step; slice by slice, as fast as rounds go, "
             "averages replace the weights that are being trained (Swarm Training). gradients: "
             "all members together make the steps that one trainer would make."},
    {.name = "data", .type = OPT_CHOICE, AT(data), .fallback = "shared", .choices = datas,
     .help = "What members train on. shared: the creator's data set, which newcomers download "
             "from the members. own: every member brings its own data set; with gradients that has "
             "to be a copy of the same data. either: shared, but `pool join --own-data` is "
             "allowed."},
    {.name = "global_batch_size", .type = OPT_INT, AT(global_batch_size), .fallback = "0", .min = 0,
     .max = 1e9,
     .help = "With gradients: samples per step of all members together, a multiple of "
             "micro_batch_size; gradient_accumulation_steps then says how many micro-batches a "
             "member computes at a time. 0: micro_batch_size x gradient_accumulation_steps, one "
             "micro-batch at a time; with dense_steps that times min_peers."},
    {.name = "delayed_updates", .type = OPT_FLAG, AT(delayed_updates), .fallback = "false",
     .help = "With gradients: members compute the next step while the gradients of this one are "
             "summed, so every gradient is computed with weights that are one step old. A step "
             "then takes as long as the longer of the two instead of their sum, but the pool "
             "learns less at high learning rates."},
    {.name = "dense_steps", .type = OPT_TEXT, AT(dense_steps), .value = "SHARE",
     .help = "With parameters: make the first steps with summed gradients, as one trainer would; "
             "after that every member trains by itself, and the weights are averaged in one "
             "piece. A share of max_steps (10%) or a number of steps."},
    {.name = "sync_steps", .type = OPT_INT, AT(sync_steps), .fallback = "20", .min = 1,
     .max = 100000,
     .help = "H: steps that a member makes before the same weights are averaged again. Default "
             "with slices: the number of fragments."},
    {.name = "fragments", .type = OPT_INT, AT(fragments), .fallback = "8", .min = 1, .max = 64,
     .help = "F: the weights are divided into this many pieces, which are averaged in turn. "
             "Default with slices: 16. With gradients always one."},
    {.name = "codec", .type = OPT_CHOICE, AT(codec), .fallback = "int8", .choices = codecs,
     .help = "How what members send is encoded. With int8, what is rounded away is added the "
             "next time. Default with gradients: fp32."},
    {.name = "min_peers", .type = OPT_INT, AT(min_peers), .fallback = "1", .min = 1,
     .max = GSP_MEMBERS_MAX,
     .help = "Training begins when the pool has this many members; after that it may have fewer."},
    {.name = "trust", .type = OPT_CHOICE, AT(trust), .fallback = "friends", .choices = trusts,
     .help = "How far members trust each other. friends: more than half of the members decide, "
             "and hosts may crash or leave at any time. strangers: more than two thirds decide, "
             "so that fewer than a third may be hostile. Contributions are then clipped to the "
             "median and around the center, and a member that repeatedly pulls against the "
             "others loses its weight. With gradients, a contribution counts for as much as its "
             "member was asked to compute, and a step goes on without what is late. For pools of "
             "four or more members."},
    {.name = "audit_percent", .type = OPT_INT, AT(audit_percent), .fallback = "25", .min = 0,
     .max = 100,
     .help = "Percentage of the averaged parts that another member sums again, to check whether "
             "the first one lied. 0: no checks."},
    {.name = "outer_learning_rate", .type = OPT_NUMBER, AT(outer_learning_rate), .fallback = "0.7",
     .min = 0, .max = 10, .flags = OPT_ABOVE_MIN,
     .help = "Learning rate of the outer Nesterov step, which applies the averaged change. "
             "With slices always 1, and 1 where sync_steps is below 20 and neither this nor "
             "outer_momentum is given."},
    {.name = "outer_momentum", .type = OPT_NUMBER, AT(outer_momentum), .fallback = "0.8", .min = 0,
     .max = 1, .flags = OPT_BELOW_MAX,
     .help = "Momentum of the outer step. With slices always 0, and 0 where sync_steps is below 20 "
             "and neither this nor outer_learning_rate is given."},
    {.name = "mix", .type = OPT_NUMBER, AT(mix), .fallback = "0", .min = 0, .max = 1,
     .flags = OPT_BELOW_MAX, .help = "How much of its own weights a member keeps when an average "
                                     "is merged."},
    {.name = "due_seconds", .type = OPT_NUMBER, AT(due_seconds), .fallback = "600", .min = 1,
     .max = 86400,
     .help = "T: after this many seconds, weights are averaged even if no member has made "
             "sync_steps."},
    {.name = "fork_seconds", .type = OPT_NUMBER, AT(fork_seconds), .fallback = "3600", .min = 1,
     .max = 1e7,
     .help = "T_fork: members that have not reached a quorum for this many seconds go on by "
             "themselves. When the sides meet again, the weights of one side are kept: of the one "
             "with more members, or with as many of the one that trained more."},
    {.name = "heartbeat_seconds", .type = OPT_NUMBER, AT(heartbeat_seconds), .fallback = "1",
     .min = 0.05, .max = 60, .help = "How often members report their progress to each other."},
    {.name = "rewarm_steps", .type = OPT_INT, AT(rewarm_steps), .fallback = "10", .min = 0,
     .max = 100000,
     .help = "Number of steps over which the learning rate of a new member rises to the pool's."},
    {.name = "batch", .type = OPT_INT, AT(batch), .fallback = "0", .min = 0, .max = 1e9,
     .flags = OPT_FILLED,
     .help = "Samples per step in the pool's schedule, as the creator has set it."},
    {.name = "steps", .type = OPT_INT, AT(steps), .fallback = "0", .min = 0, .max = 1e12,
     .flags = OPT_FILLED,
     .help = "Steps in the pool's schedule, made by all members together: the creator's "
             "max_steps."},
    {.name = "data_hash", .type = OPT_INT, AT(data_hash), .fallback = "0", .min = 0, .max = 1e12,
     .flags = OPT_FILLED,
     .help = "With gradients: hash of the creator's training data, which every member must have."},
    {.name = "base_hash", .type = OPT_TEXT, AT(base_hash),
     .flags = OPT_FILLED,
     .help = "With lora_r: hash of the creator's model, which every member must have; adapters are "
             "what is averaged."},
};
/* clang-format on */

const opt_command pool_options = {
    .name = "pool create", /* whose help lists them */
    .summary = "how members of a pool average",
    .shared = true,
    OPT_TABLE(specs, pool_settings),
};

static bool said(const opt_parsed *parsed, const char *name)
{
    int32_t row = opt_find(&pool_options, name);
    return row >= 0 && parsed->origin[row] != OPT_FROM_DEFAULT;
}

/* Changes of few steps point the same way again and again, and a momentum goes too far with them. Where
 * one of the two was said, the other stays what it is otherwise. */
static void fill_frequent(pool_settings *s, const opt_parsed *parsed)
{
    if (said(parsed, "outer_learning_rate") || said(parsed, "outer_momentum"))
        return;
    s->outer_learning_rate = 1;
    s->outer_momentum = 0;
}

static void fill_slices(pool_settings *s, const opt_parsed *parsed)
{
    if (!said(parsed, "fragments"))
        s->fragments = SLICES;
    if (!said(parsed, "sync_steps"))
        s->sync_steps = s->fragments;
    if (!said(parsed, "outer_learning_rate"))
        s->outer_learning_rate = 1;
    if (!said(parsed, "outer_momentum"))
        s->outer_momentum = 0;
}

void pool_settings_fill(pool_settings *s, const opt_parsed *parsed)
{
    if (s->sync == POOL_SYNC_SLICES)
        fill_slices(s, parsed);
    if (s->sync == POOL_SYNC_PARAMETERS && s->sync_steps < POOL_MOMENTUM_STEPS)
        fill_frequent(s, parsed);
    if (s->dense_steps && !said(parsed, "fragments"))
        s->fragments = 1;
    if (s->sync != POOL_SYNC_GRADIENTS)
        return;
    if (!said(parsed, "fragments"))
        s->fragments = 1;
    if (!said(parsed, "codec"))
        s->codec = GSP_CODEC_FP32;
}

/* The line of a key, from 1; 0: it is not there. */
static int line_of(const char *text, const char *key)
{
    size_t n = strlen(key);
    for (int line = 1; text; line++) {
        text += strspn(text, " \t");
        if (strncmp(text, key, n) == 0 && text[n + strspn(text + n, " \t")] == ':')
            return line;
        text = strchr(text, '\n');
        text = text ? text + 1 : NULL;
    }
    return 0;
}

/* "run.yml:12: key: why". */
static atom_status refuse(const char *path, const char *text, const char *key, const char *fmt, ...)
    ATOM_PRINTF(4, 5);
static atom_status refuse(const char *path, const char *text, const char *key, const char *fmt, ...)
{
    char why[300];
    va_list args;
    va_start(args, fmt);
    vsnprintf(why, sizeof why, fmt, args);
    va_end(args);
    int line = line_of(text, key);
    if (line)
        return atom_fail(ATOM_E_USAGE, "%s:%d: %s: %s", path, line, key, why);
    return atom_fail(ATOM_E_USAGE, "%s: %s", key, why);
}

/* One sum makes a step: there is no outer step, no H, and nothing of one's own to keep. */
static atom_status check_sums(const pool_settings *s, const opt_parsed *parsed, const char *path,
                              const char *text)
{
    static const char *const none[] = {"sync_steps", "outer_learning_rate", "outer_momentum", "mix",
                                       "rewarm_steps"};
    if (s->fragments != 1)
        return refuse(path, text, "fragments",
                      "with sync gradients there is always one, because its sum makes a step; "
                      "leave out the key");
    for (size_t i = 0; parsed && i < sizeof none / sizeof *none; i++)
        if (said(parsed, none[i]))
            return refuse(path, text, none[i],
                          "it has no effect with sync gradients, because all members together "
                          "make every step; leave out the key, or average parameters");
    return ATOM_OK;
}

/* One sum makes a dense step, of samples that all members know; liars are clipped only where there are
 * such steps to the end. */
static atom_status check_dense(const pool_settings *s, const char *path, const char *text)
{
    int64_t unused;
    if (s->sync != POOL_SYNC_PARAMETERS)
        return refuse(path, text, "dense_steps",
                      "dense steps come before averaging of parameters, so they do not work with "
                      "sync %s; leave out the key",
                      pool_settings_mode(s));
    if (pool_dense_read(s->dense_steps, s->steps, &unused) != ATOM_OK)
        return refuse(path, text, "dense_steps", "\"%.40s\" is not %s", s->dense_steps,
                      atom_fail_message());
    if (s->fragments != 1)
        return refuse(path, text, "fragments",
                      "with dense_steps there is always one, because its sum makes a step; leave "
                      "out the key");
    if (s->trust == GSP_STRANGERS)
        return refuse(
            path, text, "dense_steps",
            "among strangers, gradients are summed to the end or not at all; leave out the key, "
            "sum gradients (sync: gradients), or set trust: friends");
    if (s->data != POOL_DATA_SHARED)
        return refuse(path, text, "dense_steps",
                      "gradients of one batch are summed, so all members need the same data; "
                      "leave out the key, or set data: shared");
    if (!s->global_batch_size && s->min_peers == 1)
        return refuse(path, text, "dense_steps",
                      "it is not clear how many samples such a step should have; set "
                      "global_batch_size (the samples of all members together) or min_peers");
    return ATOM_OK;
}

/* Keys that pool create fills in: what somebody writes there would be overwritten. */
static atom_status check_filled(const opt_parsed *parsed, const char *path, const char *text)
{
    static const char *const filled[][2] = {
        {"batch", "it follows from micro_batch_size and gradient_accumulation_steps"},
        {"steps", "it is max_steps, which stands outside of `pool:`"},
        {"data_hash", "atom pool create works it out"},
        {"base_hash", "atom pool create works it out"}};
    for (size_t i = 0; i < sizeof filled / sizeof *filled; i++)
        if (said(parsed, filled[i][0]))
            return refuse(path, text, filled[i][0], "%s; leave out the key", filled[i][1]);
    return ATOM_OK;
}

atom_status pool_settings_check(const pool_settings *s, const opt_parsed *parsed, const char *path,
                                const char *text)
{
    if (parsed)
        ATOM_TRY(check_filled(parsed, path, text));
    if (s->dense_steps)
        ATOM_TRY(check_dense(s, path, text));
    if (s->delayed_updates && s->dense_steps)
        return refuse(path, text, "delayed_updates",
                      "the gradients of dense_steps are not delayed; leave out one of the two "
                      "keys");
    if (s->delayed_updates && s->sync != POOL_SYNC_GRADIENTS)
        return refuse(path, text, "delayed_updates",
                      "with sync %s members do not wait for gradients; leave out the key, or sum "
                      "gradients",
                      pool_settings_mode(s));
    if (s->sync != POOL_SYNC_GRADIENTS && !s->dense_steps && s->global_batch_size)
        return refuse(path, text, "global_batch_size",
                      "with sync %s every member makes its own steps; leave out the key, or sum "
                      "gradients",
                      pool_settings_mode(s));
    if (s->sync == POOL_SYNC_SLICES && s->outer_learning_rate != 1)
        return refuse(path, text, "outer_learning_rate",
                      "with sync slices there is no outer step; leave out the key, or average "
                      "parameters");
    if (s->sync == POOL_SYNC_SLICES && s->outer_momentum != 0)
        return refuse(path, text, "outer_momentum",
                      "with sync slices there is no outer step and so no momentum; leave out the "
                      "key, or average parameters");
    if (s->trust == GSP_STRANGERS && s->audit_percent == 0)
        return refuse(path, text, "audit_percent",
                      "among strangers some sums must be checked, or a member that lies about "
                      "them is never found; leave out the key, or set trust: friends");
    return s->sync == POOL_SYNC_GRADIENTS ? check_sums(s, parsed, path, text) : ATOM_OK;
}

int64_t pool_settings_together(const pool_settings *s)
{
    return s->dense_steps ? s->global_batch_size : s->batch;
}

uint64_t pool_settings_dense(const pool_settings *s)
{
    int64_t steps;
    if (!s->dense_steps || s->global_batch_size < 1 ||
        pool_dense_read(s->dense_steps, s->steps, &steps) != ATOM_OK)
        return 0;
    return pool_dense_samples((uint64_t)steps, (uint64_t)s->batch, (uint64_t)s->global_batch_size);
}

bool pool_settings_sums(const pool_settings *s)
{
    return s->sync == POOL_SYNC_GRADIENTS || s->dense_steps;
}

pool_sync pool_settings_sync(const pool_settings *s)
{
    if (s->delayed_updates)
        return POOL_SYNC_DELAYED;
    return s->dense_steps ? POOL_SYNC_DENSE_FIRST : (pool_sync)s->sync;
}

/* A dense step has as many samples as all members make in one of their own, where nobody says more. */
static atom_status settle_dense(pool_settings *s, const train_config *c, const char *path,
                                const char *text)
{
    int64_t steps;
    if (!s->global_batch_size)
        s->global_batch_size = s->batch * s->min_peers;
    int64_t most = s->global_batch_size / c->micro_batch_size;
    if (s->global_batch_size % c->micro_batch_size || most > POOL_MICRO_BATCHES_MAX)
        return refuse(path, text, "global_batch_size",
                      "%lld is not a multiple of micro_batch_size %lld, or more than %d times as "
                      "much",
                      (long long)s->global_batch_size, (long long)c->micro_batch_size,
                      POOL_MICRO_BATCHES_MAX);
    if (pool_dense_read(s->dense_steps, s->steps, &steps) != ATOM_OK)
        return refuse(path, text, "dense_steps", "\"%.40s\" is not %s", s->dense_steps,
                      atom_fail_message());
    if (pool_settings_dense(s) >= (uint64_t)(s->batch * s->steps))
        return refuse(path, text, "dense_steps",
                      "rounded to whole steps of %lld samples, they would be all %lld samples of "
                      "the run; use sync: gradients, or a smaller global_batch_size",
                      (long long)s->global_batch_size, (long long)(s->batch * s->steps));
    return ATOM_OK;
}

/* Devices share what a member computes at a time, which here is not what the run's file says. */
static atom_status check_devices(const pool_settings *s, const train_config *c, const char *path,
                                 const char *text)
{
    if (c->devices <= c->gradient_accumulation_steps)
        return ATOM_OK;
    if (s->global_batch_size)
        return refuse(path, text, "global_batch_size",
                      "%lld has fewer micro-batches than there are devices (%lld) to share them; "
                      "set at least %lld, or lower devices",
                      (long long)s->batch, (long long)c->devices,
                      (long long)(c->devices * c->micro_batch_size));
    return refuse(path, text, "devices",
                  "without global_batch_size a member computes one micro-batch at a time, which "
                  "%lld devices cannot share; add global_batch_size: %lld under pool:, so that "
                  "gradient_accumulation_steps says how many they share",
                  (long long)c->devices, (long long)s->batch);
}

atom_status pool_settings_settle(pool_settings *s, train_config *c, const char *path,
                                 const char *text)
{
    s->batch = c->micro_batch_size * c->gradient_accumulation_steps;
    s->steps = c->max_steps;
    if (s->dense_steps)
        return settle_dense(s, c, path, text);
    if (s->sync != POOL_SYNC_GRADIENTS)
        return ATOM_OK;
    if (s->global_batch_size % c->micro_batch_size)
        return refuse(path, text, "global_batch_size",
                      "%lld is not a multiple of micro_batch_size %lld",
                      (long long)s->global_batch_size, (long long)c->micro_batch_size);
    if (s->global_batch_size)
        s->batch = s->global_batch_size;
    else
        c->gradient_accumulation_steps = 1;
    int64_t most = s->batch / c->micro_batch_size;
    if (most > POOL_MICRO_BATCHES_MAX)
        return refuse(path, text, "global_batch_size",
                      "%lld micro-batches are too many; there "
                      "may be at most %d",
                      (long long)most, POOL_MICRO_BATCHES_MAX);
    if (s->trust == GSP_STRANGERS && most < GSP_MEMBERS_MAX)
        return refuse(
            path, text, line_of(text, "global_batch_size") ? "global_batch_size" : "trust",
            "among strangers each of up to %d members gets a micro-batch of every step, so that "
            "no few of them decide it, but global_batch_size %lld has only %lld of "
            "micro_batch_size %lld; set at least %lld, or trust: friends",
            GSP_MEMBERS_MAX, (long long)s->batch, (long long)most, (long long)c->micro_batch_size,
            (long long)(GSP_MEMBERS_MAX * c->micro_batch_size));
    if (c->gradient_accumulation_steps > most)
        c->gradient_accumulation_steps = most;
    return check_devices(s, c, path, text);
}

const char *pool_settings_trust(const pool_settings *s)
{
    return s->trust == GSP_STRANGERS
               ? "trust strangers: withstands 1 liar among 4 members, 2 among 7, 5 among 16; "
                 "pauses while a third are away; with fewer than 4 members nobody is protected"
               : "trust friends: goes on while fewer than half are away; with 3 or more members "
                 "a single liar cannot take the pool over, but several together can";
}

const char *pool_settings_mode(const pool_settings *s)
{
    return opt_choice_name(syncs, s->sync);
}

void pool_settings_say(const pool_settings *s, char out[POOL_SAID_BYTES])
{
    const char *codec = opt_choice_name(codecs, s->codec);
    if (s->sync == POOL_SYNC_GRADIENTS)
        snprintf(out, POOL_SAID_BYTES,
                 "all members together make steps of %lld samples; sums are sent as %s%s",
                 (long long)s->batch, codec,
                 s->delayed_updates ? " while the next step is computed" : "");
    else if (s->sync == POOL_SYNC_SLICES)
        snprintf(out, POOL_SAID_BYTES,
                 "%lld slices are averaged in turn, each every %lld steps, and replace the "
                 "weights being trained; changes are sent as %s",
                 (long long)s->fragments, (long long)s->sync_steps, codec);
    else if (s->dense_steps)
        snprintf(out, POOL_SAID_BYTES,
                 "%llu samples in common steps of %lld, then averages every %lld steps, outer "
                 "rate %g, momentum %g; all is sent as %s",
                 (unsigned long long)pool_settings_dense(s), (long long)s->global_batch_size,
                 (long long)s->sync_steps, s->outer_learning_rate, s->outer_momentum, codec);
    else
        snprintf(out, POOL_SAID_BYTES,
                 "%lld pieces averaged in turn, each every %lld steps, outer rate %g, momentum "
                 "%g; changes are sent as %s",
                 (long long)s->fragments, (long long)s->sync_steps, s->outer_learning_rate,
                 s->outer_momentum, codec);
}

int64_t pool_data_hash(uint64_t hash, uint64_t contents)
{
    if (contents)
        hash = atom_hash(hash, &contents, sizeof contents);
    return (int64_t)(hash % 1000000000000u);
}

static bool starts_pool(const char *line, size_t n)
{
    if (n < 5 || strncmp(line, "pool:", 5) != 0)
        return false;
    for (size_t i = 5; i < n && line[i] != '#'; i++)
        if (line[i] != ' ' && line[i] != '\t' && line[i] != '\r')
            return false;
    return true;
}

static bool is_inside(const char *line, size_t n)
{
    size_t i = 0;
    while (i < n && line[i] == ' ')
        i++;
    return i > 0 || n == 0 || line[0] == '#' || line[0] == '\r';
}

/* A key at the left margin that only the section has. */
static atom_status check_margin(const char *path, const char *line, size_t n, size_t number)
{
    char key[64] = "";
    size_t length = 0;
    while (length < n && length < sizeof key - 1 && strchr(":# \t\r", line[length]) == NULL)
        length++;
    memcpy(key, line, length);
    if (opt_find(&pool_options, key) < 0 || opt_find(&train_command, key) >= 0)
        return ATOM_OK;
    return atom_fail(ATOM_E_USAGE,
                     "%s:%zu: '%s' belongs to the section pool: write it below the line 'pool:', "
                     "indented with spaces",
                     path, number, key);
}

/* What line `number` may not be; `first` is the line where the section began, or 0. */
static atom_status check_head(const char *path, const char *line, size_t n, size_t number,
                              size_t first)
{
    if (n < 5 || strncmp(line, "pool:", 5) != 0)
        return check_margin(path, line, n, number);
    if (!starts_pool(line, n))
        return atom_fail(ATOM_E_USAGE,
                         "%s:%zu: pool: put its keys on the lines below it, one per line and "
                         "indented with spaces",
                         path, number);
    return first ? atom_fail(
                       ATOM_E_USAGE,
                       "%s:%zu: 'pool' was already set in line %zu; put all of its keys into one "
                       "section",
                       path, number, first)
                 : ATOM_OK;
}

atom_status pool_settings_split(const char *path, const char *text, size_t bytes, char **pool,
                                char **rest)
{
    char *a = atom_alloc(bytes + 2, 1), *b = atom_alloc(bytes + 2, 1);
    bool inside = false;
    size_t na = 0, nb = 0, number = 0, first = 0;
    size_t mark = bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0; /* of some editors */
    atom_status st = a && b ? ATOM_OK : atom_fail_memory("a configuration", bytes);
    for (size_t at = mark; at < bytes && st == ATOM_OK;) {
        const char *line = text + at, *end = memchr(line, '\n', bytes - at);
        size_t n = end ? (size_t)(end - line) : bytes - at;
        bool head = starts_pool(line, n);
        ATOM_TRY_CLEAN(check_head(path, line, n, ++number, first));
        first = head ? number : first;
        inside = head || (inside && is_inside(line, n));
        if (inside && !head) {
            memcpy(a + na, line, n);
            na += n;
        } else if (!inside) {
            memcpy(b + nb, line, n);
            nb += n;
        }
        if (end)
            a[na++] = b[nb++] = '\n';
        at += n + (end != NULL);
    }
cleanup:
    *pool = st == ATOM_OK ? a : NULL;
    *rest = st == ATOM_OK ? b : NULL;
    if (st != ATOM_OK) {
        atom_free(a);
        atom_free(b);
    }
    return st;
}
