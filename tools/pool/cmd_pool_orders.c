/*
 * atom pool ticket, invite, ban, delegate, rotate, reset, leave, pause, resume: a word to the member that runs here.
 * One idea: each is one request over the local socket, and the member does it. Refuses to change
 * files behind a member's back: what does not run takes no orders, but pause and resume, which are
 * meant for later too.
 */
#include "tools/pool/cmd_pool_ask.h"

#include <string.h>

typedef struct order_values {
    bool json, whole_invite;
    int64_t hosts;
    double days;
} order_values;

#define AT(member) .offset = offsetof(order_values, member)

static const char *const count_names[] = {"hosts", NULL};
static const opt_spec plain_specs[] = {PLAN_ROW_JSON(.help = "One JSON object on stdout.")};
/* clang-format off */
static const opt_spec invite_specs[] = {
    {.name = "count", .type = OPT_INT, AT(hosts), .fallback = "16", .min = 1, .max = 100000,
     .aliases = count_names,
     .help = "How many hosts may join with the ticket. Each key that is admitted counts once."},
    {.name = "days", .type = OPT_NUMBER, AT(days), .fallback = "7", .min = 0.01, .max = 3650,
     .help = "How many days the ticket is valid."},
    PLAN_ROW_JSON(.help = "One JSON object on stdout."),
};
static const opt_spec delegate_specs[] = {
    {.name = "days", .type = OPT_NUMBER, AT(days), .fallback = "365", .min = 1, .max = 3650,
     .help = "How many days it may do so. Name it again in time to renew that."},
    PLAN_ROW_JSON(.help = "One JSON object on stdout."),
};
static const opt_spec ban_specs[] = {
    {.name = "whole_invite", .type = OPT_FLAG, AT(whole_invite),
     .help = "Ban all keys that came with the same invite, because whoever has a ticket can make "
             "as many keys as it admits."},
    PLAN_ROW_JSON(.help = "One JSON object on stdout."),
};
/* clang-format on */

static atom_status finish(const order_values *v, json_t *answer, const char *said)
{
    if (v->json)
        return cli_print_json(answer);
    const char *ticket = json_string_value(json_object_get(answer, "ticket"));
    const char *note = json_string_value(json_object_get(answer, "note"));
    if (note)
        cli_print("%s\n", note);
    if (said)
        cli_print("%s\n", said);
    if (ticket)
        cli_print("%s\n", ticket);
    json_decref(answer);
    return ATOM_OK;
}

static atom_status tell(const order_values *v, const char *dir, json_t *request, const char *said)
{
    json_t *answer = NULL;
    atom_status st = pool_ask(dir, request, &answer);
    return st == ATOM_OK ? finish(v, answer, said) : st;
}

static const char *dir_of(const opt_parsed *parsed, uint32_t at)
{
    return parsed->n_positional > at ? parsed->positional[at] : ".";
}

static atom_status say(void *values, const opt_parsed *parsed, const char *word, const char *said)
{
    return tell(values, dir_of(parsed, 0), json_pack("{s:s}", "do", word), said);
}

/* ---- each of them ---- */

static const opt_command ticket_options = {
    .name = "pool ticket",
    .summary = "print the ticket that others join with",
    .description =
        "Works only on the host where the pool's owner or a delegate of it runs. A ticket "
        "is a secret: anybody who has it can join, until as many hosts have joined, or as "
        "many days have passed, as atom pool create said: 16 and 7 by default (atom pool "
        "invite makes other tickets).",
    .examples = "atom pool ticket run\n",
    .positional = "[DIR]",
    .positional_max = 1,
    OPT_TABLE(plain_specs, order_values),
};

static atom_status ticket(void *values, const opt_parsed *parsed)
{
    return say(values, parsed, "ticket", NULL);
}

static const opt_command invite_options = {
    .name = "pool invite",
    .summary = "make a new ticket, for a number of hosts and days",
    .description = "Earlier tickets stay valid until they expire or the key is rotated.",
    .examples = "atom pool invite run --count 5 --days 2\n",
    .positional = "[DIR]",
    .positional_max = 1,
    OPT_TABLE(invite_specs, order_values),
};

static atom_status invite(void *values, const opt_parsed *parsed)
{
    const order_values *v = values;
    return tell(v, dir_of(parsed, 0),
                json_pack("{s:s, s:I, s:f}", "do", "invite", "count", (json_int_t)v->hosts, "days",
                          v->days),
                NULL);
}

static const opt_command ban_options = {
    .name = "pool ban",
    .summary = "expel a member from the pool for good, and rotate the key",
    .description =
        "KEY is the member's key as atom pool status shows it; its beginning is enough if it "
        "fits only one member. Also ends the invite that the key came with, and says which that "
        "was. Earlier tickets become invalid, and a new one is printed. The order is part of a "
        "new manifest, which the owner signs and members pass on.",
    .examples = "atom pool ban K_P-_8ZI run\n"
                "# and everybody else who came with the same ticket\n"
                "atom pool ban K_P-_8ZI run --whole-invite\n",
    .positional = "KEY [DIR]",
    .positional_min = 1,
    .positional_max = 2,
    OPT_TABLE(ban_specs, order_values),
};

/* A directory where the key should be. */
static atom_status check_order(const opt_parsed *parsed, const char *command)
{
    if (parsed->n_positional == 2 && atom_path_is_dir(parsed->positional[0]) &&
        !atom_path_is_dir(parsed->positional[1]))
        return atom_fail(ATOM_E_USAGE, "the key comes first: atom pool %s %s %s", command,
                         parsed->positional[1], parsed->positional[0]);
    return ATOM_OK;
}

static atom_status ban(void *values, const opt_parsed *parsed)
{
    const order_values *v = values;
    ATOM_TRY(check_order(parsed, "ban"));
    return tell(v, dir_of(parsed, 1),
                json_pack("{s:s, s:s, s:b}", "do", "ban", "key", parsed->positional[0],
                          "whole_invite", (int)v->whole_invite),
                "banned; the ticket is now:");
}

static const opt_command delegate_options = {
    .name = "pool delegate",
    .summary = "let a member admit others and renew admissions while the owner is away",
    .description =
        "KEY is the member's key as atom pool status shows it; its beginning is enough if it fits "
        "only one member. Works only on the host where the pool's owner runs. Admissions end after "
        "30 days unless somebody renews them, so a pool without delegates ends a month after its "
        "owner was last there. A delegate admits newcomers, renews admissions and makes tickets; "
        "each one counts by itself how many hosts have used a ticket. Bans, new keys and resets "
        "stay "
        "with the owner. To take it back, ban the member: that makes everything void that it "
        "signed "
        "as a delegate.",
    .examples = "atom pool delegate K_P-_8ZI run\n"
                "atom pool delegate K_P-_8ZI run --days 90\n",
    .positional = "KEY [DIR]",
    .positional_min = 1,
    .positional_max = 2,
    OPT_TABLE(delegate_specs, order_values),
};

static atom_status delegate(void *values, const opt_parsed *parsed)
{
    const order_values *v = values;
    ATOM_TRY(check_order(parsed, "delegate"));
    return tell(v, dir_of(parsed, 1),
                json_pack("{s:s, s:s, s:f}", "do", "delegate", "key", parsed->positional[0], "days",
                          v->days),
                NULL);
}

static const opt_command rotate_options = {
    .name = "pool rotate",
    .summary = "make a new pre-shared key, so that earlier tickets become invalid",
    .description = "Members that are connected get the new key at once, and others if they come "
                   "back within a day; after that they need a new ticket. From now on nobody can "
                   "join with an earlier ticket.",
    .examples = "atom pool rotate run\n",
    .positional = "[DIR]",
    .positional_max = 1,
    OPT_TABLE(plain_specs, order_values),
};

static atom_status rotate(void *values, const opt_parsed *parsed)
{
    return say(values, parsed, "rotate", NULL);
}

static const opt_command reset_options = {
    .name = "pool reset",
    .summary = "reunite a pool that has fallen apart, with the state of this host",
    .description =
        "Works only on the host where the pool's owner runs. For a pool whose members train "
        "separately because a network was cut for long, or because some followed a member they "
        "should not have followed. All members obey this order: they take over the state of this "
        "host and rejoin, and what they computed elsewhere since then is lost. A pool whose "
        "members all agree does not need it.",
    .examples = "atom pool reset run\n",
    .positional = "[DIR]",
    .positional_max = 1,
    OPT_TABLE(plain_specs, order_values),
};

static atom_status reset(void *values, const opt_parsed *parsed)
{
    return say(values, parsed, "reset", NULL);
}

static const opt_command leave_options = {
    .name = "pool leave",
    .summary = "leave the roster, save, and stop",
    .examples = "atom pool leave run\n",
    .positional = "[DIR]",
    .positional_max = 1,
    OPT_TABLE(plain_specs, order_values),
};

static atom_status leave(void *values, const opt_parsed *parsed)
{
    return say(values, parsed, "leave", "leaving: it saves and stops");
}

/* Of a member that does not run: for when it does. *done false: one runs, or there is none. */
static atom_status pause_for_later(const order_values *v, const char *dir, bool paused, bool *done)
{
    char *place = atom_path_join(dir, "pool"), said[512];
    atom_status st = ATOM_OK;
    *done = false;
    if (!place)
        return atom_fail_memory("a path", 0);
    if (!gsp_pool_exists(place))
        goto cleanup;
    st = gsp_pause_keep_for_later(place, paused);
    *done = st != ATOM_E_USAGE;
    if (st != ATOM_OK) {
        st = *done ? st : ATOM_OK;
        goto cleanup;
    }
    snprintf(said, sizeof said,
             paused
                 ? "no member runs here now; when it is started it is paused, until you say: atom "
                   "pool resume %s"
                 : "no member runs here now; when it is started it computes: atom pool join -o %s",
             dir);
    st = finish(v, json_pack("{s:b, s:b}", "ok", 1, "running", 0), said);
cleanup:
    atom_free(place);
    return st;
}

static atom_status say_pause(void *values, const opt_parsed *parsed, bool paused, const char *said)
{
    bool done;
    ATOM_TRY(pause_for_later(values, dir_of(parsed, 0), paused, &done));
    return done ? ATOM_OK : say(values, parsed, paused ? "pause" : "resume", said);
}

static const opt_command pause_options = {
    .name = "pool pause",
    .summary = "stop computing, but stay in the pool",
    .description =
        "Holds until atom pool resume, also when the member ends and is started again. A "
        "member that does not run now is paused for when it does.",
    .examples = "atom pool pause run\natom pool resume run\n",
    .positional = "[DIR]",
    .positional_max = 1,
    OPT_TABLE(plain_specs, order_values),
};

static atom_status pause_it(void *values, const opt_parsed *parsed)
{
    char said[512];
    snprintf(said, sizeof said, "it pauses after this step, until you say: atom pool resume %s",
             dir_of(parsed, 0));
    return say_pause(values, parsed, true, said);
}

static const opt_command resume_options = {
    .name = "pool resume",
    .summary = "compute again after atom pool pause",
    .examples = "atom pool resume run\n",
    .positional = "[DIR]",
    .positional_max = 1,
    OPT_TABLE(plain_specs, order_values),
};

static atom_status resume(void *values, const opt_parsed *parsed)
{
    return say_pause(values, parsed, false, "going on");
}

const cli_command cli_pool_ticket = {&ticket_options, ticket};
const cli_command cli_pool_invite = {&invite_options, invite};
const cli_command cli_pool_ban = {&ban_options, ban};
const cli_command cli_pool_delegate = {&delegate_options, delegate};
const cli_command cli_pool_rotate = {&rotate_options, rotate};
const cli_command cli_pool_reset = {&reset_options, reset};
const cli_command cli_pool_leave = {&leave_options, leave};
const cli_command cli_pool_pause = {&pause_options, pause_it};
const cli_command cli_pool_resume = {&resume_options, resume};
