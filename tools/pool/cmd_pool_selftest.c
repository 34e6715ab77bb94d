/*
 * atom pool selftest: can this host take part in a pool, and how well. One idea: it opens the very
 * gate that a member opens, so what it finds is what a member would find; a second host
 * (--serve there, --via here) measures what one host cannot know of itself. Refuses to change
 * anything.
 */
#include "tools/pool/cmd_pool_selftest.h"
#include "tools/progress.h"

#include "gossip/net/net_nanomsg.h"

#include <sodium.h>
#include <string.h>

typedef struct pool_values {
    char *listen, *via, *ticket, *dir;
    bool serve, json;
    double seconds, minutes;
    uint64_t bytes;
} pool_values;

#define AT(member) .offset = offsetof(pool_values, member)

/* clang-format off */
static const opt_spec specs[] = {
    {.name = "listen", .type = OPT_TEXT, AT(listen), .fallback = "*:4400", .value = "ADDRESS:PORT",
     .help = "The address at which this host would accept members. *: all its addresses, IPv6 "
             "and IPv4."},
    {.name = "via", .type = OPT_TEXT, AT(via), .value = "-|TICKET|HOST:PORT",
     .help = "Also test with a second host: give the ticket that --serve printed there (-: read "
             "it from standard input), or the host's address and --ticket."},
    {.name = "ticket", .type = OPT_TEXT, AT(ticket), .value = "-|FILE|TICKET",
     .help = "The ticket for --via HOST:PORT. It is a secret, and everybody on this machine can "
             "see a command line."},
    {.name = "seconds", .type = OPT_NUMBER, AT(seconds), .fallback = "3", .min = 0.1, .max = 60,
     .help = "For how long to measure each direction."},
    {.name = "bytes", .type = OPT_SIZE, AT(bytes), .fallback = "64MiB", .min = 1 << 20,
     .max = 0x1p29, .help = "Send at most this much in each direction."},
    {.name = "dir", .type = OPT_TEXT, AT(dir), .fallback = ".", .value = "DIR",
     .help = "The directory where the pool's state would be kept."},
    {.name = "serve", .type = OPT_FLAG, AT(serve),
     .help = "Answer the selftests of other hosts: print a ticket for them and wait."},
    {.name = "minutes", .type = OPT_NUMBER, AT(minutes), .fallback = "30", .min = 0.01, .max = 1440,
     .help = "With --serve: for how long."},
    PLAN_ROW_JSON(.help = "One JSON object on stdout."),
};
/* clang-format on */

static const opt_command options = {
    .name = "pool selftest",
    .summary = "test whether this host can take part in a pool, and say what to change",
    .description =
        "Checks addresses, port, kernel limits, clock and disk. With --via it also asks a second "
        "host for the address it sees, whether it can connect back, and the difference of the "
        "clocks, and measures round trip time and rates up and down. For everything that should "
        "be better, it says what to do, with a command if there is one. Exit code 0: this host "
        "can take part; 1: it cannot; 4: it cannot, because the disk is full.",
    .examples = "atom pool selftest\n"
                "# on a second host\n"
                "atom pool selftest --serve\n"
                "# then on this host; paste the ticket that the second one printed\n"
                "atom pool selftest --via -\n",
    OPT_TABLE(specs, pool_values),
};

/* A pool of one evening: fresh keys, an invite for those with the ticket. */
static atom_status make_ticket(const gsp_identity *owner, const pool_values *v, uint16_t port,
                               gsp_ticket *t)
{
    gsp_address listen, ours[GSP_TICKET_HOSTS_MAX];
    uint64_t now = (uint64_t)atom_wall_seconds();
    *t = (gsp_ticket){.manifest = 1, .has_invite = true};
    ATOM_TRY(gsp_address_parse(v->listen, &listen));
    memcpy(t->owner, owner->public_key, sizeof t->owner);
    randombytes_buf(t->pool, sizeof t->pool);
    randombytes_buf(t->psk, sizeof t->psk);
    t->invite = (gsp_invite){
        .count = 1000, .issued_s = now, .expires_s = now + (uint64_t)(v->minutes * 60) + 60};
    randombytes_buf(t->invite.id, sizeof t->invite.id);
    memcpy(t->invite.pool, t->pool, sizeof t->pool);
    gsp_invite_sign(&t->invite, owner);
    static const uint8_t any[16];
    uint32_t n = 1;
    ours[0] = listen;
    if (memcmp(listen.ip, any, sizeof any) == 0)
        n = pool_addresses(ours, GSP_TICKET_HOSTS_MAX);
    for (uint32_t i = 0; i < n; i++) {
        ours[i].port = port;
        gsp_address_text(&ours[i], t->hosts[t->n_hosts++]);
    }
    if (n == 0)
        return atom_fail(ATOM_E_RUNTIME,
                         "this host has no address except loopback; to test it with itself, use "
                         "--listen 127.0.0.1:%u",
                         port);
    return ATOM_OK;
}

static atom_status open_gate(const gsp_identity *self, const gsp_ticket *t, const char *listen,
                             gsp_net **out)
{
    gsp_net_gate_config c = {
        .gate.handshake.self = self, .gate.n_listen = 1, .guests_are_peers = true};
    gsp_handshake_config *h = &c.gate.handshake;
    memcpy(h->pool, t->pool, sizeof h->pool);
    memcpy(h->owner, t->owner, sizeof h->owner);
    memcpy(h->psk[0], t->psk, sizeof h->psk[0]);
    h->n_psks = 1;
    if (memcmp(self->public_key, t->owner, sizeof t->owner) != 0)
        h->credential_bytes = (uint32_t)gsp_ticket_credential(t, h->credential);
    atom_status st = gsp_address_parse(listen, &c.gate.listen[0]);
    if (st == ATOM_OK)
        st = gsp_net_open_gate(&c, out);
    explicit_bzero(h->psk, sizeof h->psk);
    return st;
}

/* Of one host in a day: who serves does it to be measured. */
static const uint64_t SERVED_BYTES = 4ull << 30;

static atom_status answer_all(gsp_net *net, double seconds)
{
    gsp_probe_server *server = NULL;
    double end = atom_clock_seconds() + seconds;
    atom_status st = gsp_probe_server_open(net, SERVED_BYTES, &server);
    while (st == ATOM_OK && atom_clock_seconds() < end && !cli_signal()) {
        gsp_net_event e;
        uint64_t wait = gsp_probe_wait_ns(server);
        st = gsp_net_next(net, wait < 200000000 ? wait : 200000000, &e);
        if (st != ATOM_OK)
            break;
        char who[GSP_PUBLIC_TEXT_BYTES], where[GSP_ADDRESS_TEXT_BYTES];
        if (e.kind == GSP_NET_UP)
            atom_log(ATOM_LOG_INFO, "%.8s at %s asks", gsp_public_text(e.key, who),
                     gsp_address_text(&e.address, where));
        gsp_probe_server_take(server, &e);
        gsp_net_free(net, e.data);
        gsp_probe_server_step(server);
    }
    gsp_probe_server_close(&server);
    return st;
}

static atom_status serve(const pool_values *v)
{
    gsp_identity owner = {0};
    gsp_ticket ticket = {0};
    gsp_address listen;
    gsp_net *net = NULL;
    char text[GSP_TICKET_TEXT_BYTES];
    atom_status st;
    cli_signals_catch();
    ATOM_TRY_CLEAN(gsp_identity_make(&owner));
    ATOM_TRY_CLEAN(gsp_address_parse(v->listen, &listen));
    /* The hosts are not part of the gate's keys: with port 0 they are known once it is open. */
    ATOM_TRY_CLEAN(make_ticket(&owner, v, listen.port, &ticket));
    ATOM_TRY_CLEAN(open_gate(&owner, &ticket, v->listen, &net));
    for (uint32_t i = 0; i < ticket.n_hosts; i++) {
        gsp_address host;
        ATOM_TRY_CLEAN(gsp_address_parse(ticket.hosts[i], &host));
        host.port = gsp_net_port(net);
        gsp_address_text(&host, ticket.hosts[i]);
    }
    ATOM_TRY_CLEAN(gsp_ticket_text(&ticket, text));
    if (v->json)
        ATOM_TRY_CLEAN(cli_print_json(json_pack("{s:s, s:i, s:f}", "ticket", text, "port",
                                                (int)gsp_net_port(net), "minutes", v->minutes)));
    else
        cli_print("Run this on the other host within %g minutes:\n"
                  "\n"
                  "  atom pool selftest --via %s\n",
                  v->minutes, text);
    ATOM_TRY_CLEAN(cli_flush());
    ATOM_TRY_CLEAN(answer_all(net, v->minutes * 60));
cleanup:
    gsp_net_close(&net);
    gsp_identity_wipe(&owner);
    explicit_bzero(&ticket, sizeof ticket);
    return st;
}

/* Whom to ask and what to show; n_hosts stays 0 where nobody is to be asked. */
static atom_status read_via(const pool_values *v, gsp_ticket *ticket, gsp_probe_wish *wish)
{
    bool is_ticket = v->via && (strcmp(v->via, "-") == 0 || strncmp(v->via, "atom1-", 6) == 0);
    const char *where = is_ticket ? v->via : v->ticket;
    char text[GSP_TICKET_TEXT_BYTES];
    if (v->via && !where)
        return atom_fail(ATOM_E_USAGE,
                         "--via %s also needs --ticket, because nobody answers without one; "
                         "'atom pool selftest --serve' on the other host prints one",
                         v->via);
    if (!where)
        return ATOM_OK;
    ATOM_TRY(gsp_ticket_read(where, text));
    atom_status st = gsp_ticket_parse(text, ticket);
    explicit_bzero(text, sizeof text);
    if (st != ATOM_OK)
        return st;
    ATOM_TRY(gsp_ticket_check(ticket, (uint64_t)atom_wall_seconds()));
    if (v->via && !is_ticket) {
        size_t n = 0;
        st = gsp_address_resolve(v->via, wish->hosts, GSP_NET_ADDRESSES_MAX, &n);
        wish->n_hosts = (uint32_t)n;
        return st;
    }
    for (uint32_t i = 0; i < ticket->n_hosts && wish->n_hosts < GSP_NET_ADDRESSES_MAX; i++) {
        size_t n = 0;
        if (gsp_address_resolve(ticket->hosts[i], &wish->hosts[wish->n_hosts],
                                GSP_NET_ADDRESSES_MAX - wish->n_hosts, &n) == ATOM_OK)
            wish->n_hosts += (uint32_t)n;
        else
            atom_log(ATOM_LOG_WARN, "%s", atom_fail_message());
    }
    return wish->n_hosts
               ? ATOM_OK
               : atom_fail(ATOM_E_USAGE, "none of the hosts in the ticket can be found; add --via "
                                         "HOST:PORT");
}

static void judge_port(pool_findings *to, const pool_values *v, gsp_net *net, uint16_t port)
{
    pool_finding *f = pool_find(to, "port", net ? POOL_GOOD : POOL_BAD);
    if (net) {
        pool_finding_say(f, "TCP port %u can be opened at %s", gsp_net_port(net), v->listen);
        return;
    }
    pool_finding_say(f, "%s", atom_fail_message());
    pool_finding_fix(
        f,
        "to see which program uses it: sudo ss -ltnp 'sport = :%u'; or choose another port: "
        "--listen '*:%u'",
        port, port + 1u);
}

/* The line to paste: bash opens the connection itself, so nothing has to be installed. */
static void fix_way(pool_finding *f, const gsp_address *address)
{
    char text[GSP_ADDRESS_TEXT_BYTES], *host = text;
    gsp_address_text(address, text);
    char *colon = strrchr(text, ':');
    unsigned port = address->port;
    if (!colon)
        return;
    *colon = 0;
    if (*host == '[') { /* IPv6 */
        host++;
        host[strcspn(host, "]")] = 0;
    }
    pool_finding_fix(f,
                     "is atom running there? this command says whether the port can be reached: "
                     "timeout 5 bash -c '</dev/tcp/%s/%u' && echo open",
                     host, port);
}

static void judge_peer(pool_findings *to, const gsp_probe_wish *wish, const gsp_probe_result *r,
                       const char *problem)
{
    if (problem) {
        pool_finding *f = pool_find(to, "peer", POOL_BAD);
        pool_finding_say(f, "%s", problem);
        for (uint32_t i = 0; i < wish->n_hosts && i < 2; i++)
            fix_way(f, &wish->hosts[i]);
        return;
    }
    pool_finding *f = pool_find(to, "peer", POOL_GOOD);
    char who[GSP_PUBLIC_TEXT_BYTES], seen[GSP_ADDRESS_TEXT_BYTES];
    pool_finding_say(f, "%.8s answers in %s and sees us at %s", gsp_public_text(r->peer, who),
                     cli_seconds(r->rtt_s), gsp_address_text(&r->seen, seen));
    if (r->offered == 0) {
        f = pool_find(to, "rates", POOL_NOTE);
        pool_finding_say(f, "not measured: the peer measures only with members");
        pool_finding_fix(f, "to measure them, run atom pool selftest --serve on the other host");
        return;
    }
    f = pool_find(to, "rates", POOL_GOOD);
    pool_finding_say(f, "up %.1f Mbit/s (%s), down %.1f Mbit/s (%s)", r->up_bytes_per_s * 8e-6,
                     cli_size(r->up_bytes), r->down_bytes_per_s * 8e-6, cli_size(r->down_bytes));
    if (r->up_bytes_per_s <= 0 || r->down_bytes_per_s <= 0) {
        f->state = POOL_NOTE;
        pool_finding_fix(f, "one direction was too slow to be measured; try --seconds 20");
    }
}

static json_t *peer_json(const gsp_probe_result *r)
{
    char who[GSP_PUBLIC_TEXT_BYTES], seen[GSP_ADDRESS_TEXT_BYTES];
    return json_pack("{s:s, s:s, s:o, s:o, s:b, s:b, s:o, s:o, s:I, s:I}", "key",
                     gsp_public_text(r->peer, who), "seen", gsp_address_text(&r->seen, seen),
                     "rtt_s", cli_real(r->rtt_s), "clock_off_s", cli_real(r->clock_off_s),
                     "dialled", r->dialled, "reachable", r->reachable, "up_bytes_per_s",
                     cli_real(r->up_bytes_per_s), "down_bytes_per_s", cli_real(r->down_bytes_per_s),
                     "up_bytes", (json_int_t)r->up_bytes, "down_bytes", (json_int_t)r->down_bytes);
}

static atom_status show(const pool_values *v, const pool_findings *all,
                        const gsp_probe_result *peer, uint16_t port, bool can)
{
    static const char *const states[] = {"good", "note", "bad"};
    json_t *list = json_array();
    for (uint32_t i = 0; i < all->n; i++) {
        const pool_finding *f = &all->finding[i];
        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:s}", "name", f->name, "state",
                                              states[f->state], "text", f->text, "fix", f->fix));
        if (v->json)
            continue;
        cli_print("%-5s %-19s %s\n", f->state == POOL_GOOD ? "" : states[f->state], f->name,
                  f->text);
        for (const char *line = f->fix; *line;) {
            size_t n = strcspn(line, "\n");
            cli_print("%-25s -> %.*s\n", "", (int)n, line);
            line += n + (line[n] == '\n');
        }
    }
    if (v->json)
        return cli_print_json(json_pack("{s:b, s:i, s:o, s:o}", "can_take_part", can, "port",
                                        (int)port, "findings", list, "peer",
                                        peer ? peer_json(peer) : json_null()));
    json_decref(list);
    cli_print("\n%s\n", can ? "This host can take part." : "This host cannot take part yet.");
    return ATOM_OK;
}

/* The first bad finding as the command's own failure. */
static atom_status verdict(const pool_findings *all)
{
    for (uint32_t i = 0; i < all->n; i++)
        if (all->finding[i].state == POOL_BAD)
            return atom_fail(all->short_of_disk ? ATOM_E_RESOURCE : ATOM_E_RUNTIME,
                             "this host cannot take part: %s: %s", all->finding[i].name,
                             all->finding[i].text);
    return ATOM_OK;
}

static atom_status selftest(const pool_values *v)
{
    gsp_identity self = {0};
    gsp_ticket ticket = {0};
    gsp_address listen;
    gsp_net *net = NULL;
    gsp_probe_result peer = {0};
    gsp_probe_wish wish = {.seconds = v->seconds, .bytes_max = v->bytes};
    static pool_findings all;
    const gsp_probe_result *asked = NULL;
    atom_status st;
    all.n = 0;
    ATOM_TRY_CLEAN(gsp_identity_make(&self));
    ATOM_TRY_CLEAN(gsp_address_parse(v->listen, &listen));
    ATOM_TRY_CLEAN(read_via(v, &ticket, &wish));
    bool opened = open_gate(&self, &ticket, v->listen, &net) == ATOM_OK;
    judge_port(&all, v, opened ? net : NULL, listen.port);
    uint16_t port = opened ? gsp_net_port(net) : listen.port;
    wish.port = port;
    if (opened && wish.n_hosts) {
        if (gsp_probe_run(net, &wish, &peer) == ATOM_OK)
            asked = &peer;
        judge_peer(&all, &wish, &peer, asked ? NULL : atom_fail_message());
    }
    pool_check_addresses(&all, port, asked);
    pool_check_buffers(&all,
                       peer.up_bytes_per_s > peer.down_bytes_per_s ? peer.up_bytes_per_s
                                                                   : peer.down_bytes_per_s,
                       peer.rtt_s);
    pool_check_clock(&all, asked);
    pool_check_files(&all);
    pool_check_disk(&all, v->dir);
    bool can = verdict(&all) == ATOM_OK;
    ATOM_TRY_CLEAN(show(v, &all, asked, port, can));
    st = can ? ATOM_OK : verdict(&all);
cleanup:
    gsp_net_close(&net);
    gsp_identity_wipe(&self);
    explicit_bzero(&ticket, sizeof ticket);
    return st;
}

static atom_status run(void *values, const opt_parsed *parsed)
{
    const pool_values *v = values;
    static const char *const of_via[] = {"seconds", "bytes", "ticket"};
    for (size_t i = 0; i < sizeof of_via / sizeof *of_via; i++)
        if (!v->via && opt_given(&options, parsed, of_via[i]))
            return atom_fail(ATOM_E_USAGE,
                             "--%s works only with --via; without it no other host is asked",
                             of_via[i]);
    if (!v->serve && opt_given(&options, parsed, "minutes"))
        return atom_fail(ATOM_E_USAGE,
                         "--minutes works only with --serve; without it the command does not "
                         "wait for anybody");
    return v->serve ? serve(v) : selftest(v);
}

const cli_command cli_pool_selftest = {&options, run};
