/*
 * A member of a test pool in a process of its own: opens the real transport (gate or plain), links
 * to the peers it is told, sends them messages that each receiver can check by itself, and says
 * what came. One idea: a message's bytes follow from (sender, channel, number), so nothing has to
 * be remembered to know whether one is right. Refuses to end before everybody has everything, or
 * before the time it was given is over.
 *
 *   net_node ME ADDRESS:PORT SECONDS CONTROL BULK BYTES [gate|plain] [NUMBER@ADDRESS:PORT ...]
 *
 * Sends CONTROL messages of up to 1 KiB and BULK messages of BYTES to each peer. Prints one line
 * of JSON at the end; 0 when everything of everybody came, once, whole, control in order.
 */
#include "tests/lib/gossip_pool.h"

#include "atom/base/machine.h"

#include <stdio.h>

enum { PEERS_MAX = 8, COUNT_MAX = 65536, HEAD_BYTES = 16 };

typedef struct peer {
    unsigned number;
    gsp_address address;
    bool up, room[GSP_NET_CHANNEL_N];
    uint32_t sent[GSP_NET_CHANNEL_N], received[GSP_NET_CHANNEL_N];
    bool got[COUNT_MAX]; /* bulk messages by number */
    bool done;           /* it says that it has everything of ours */
    bool told;           /* we said so to it */
} peer;

typedef struct node {
    gsp_net *net;
    test_pool pool;
    unsigned me, n;
    peer peer[PEERS_MAX];
    uint32_t want[GSP_NET_CHANNEL_N]; /* per peer */
    size_t bulk_bytes;
    uint64_t wrong, twice, downs;
    double first, last; /* bulk came in */
} node;

static const uint32_t FAREWELL = UINT32_MAX;

static size_t bytes_of(const node *n, gsp_net_channel channel, uint32_t number)
{
    return channel == GSP_NET_BULK ? n->bulk_bytes : HEAD_BYTES + number * 37u % 1009u;
}

static void fill(uint8_t *out, size_t bytes, unsigned sender, gsp_net_channel channel,
                 uint32_t number)
{
    uint64_t word = sender * 1000003u + channel * 7919u + number * 0x9e3779b97f4a7c15u;
    memset(out, 0, HEAD_BYTES);
    memcpy(out, &number, sizeof number);
    out[4] = (uint8_t)sender;
    out[5] = (uint8_t)channel;
    for (size_t i = HEAD_BYTES; i < bytes; i++) {
        word = word * 6364136223846793005u + 1442695040888963407u;
        out[i] = (uint8_t)(word >> 56);
    }
}

static peer *find(node *n, const uint8_t *key)
{
    for (unsigned i = 0; i < n->n; i++)
        if (memcmp(n->pool.member[n->peer[i].number].public_key, key, GSP_NET_KEY_BYTES) == 0)
            return &n->peer[i];
    return NULL;
}

static void send_some(node *n, peer *p)
{
    static uint8_t data[GSP_NET_BULK_BYTES_MAX];
    const uint8_t *key = n->pool.member[p->number].public_key;
    for (gsp_net_channel c = 0; c < GSP_NET_CHANNEL_N; c++)
        while (p->up && p->room[c] && p->sent[c] < n->want[c]) {
            size_t bytes = bytes_of(n, c, p->sent[c]);
            fill(data, bytes, n->me, c, p->sent[c]);
            p->room[c] = gsp_net_send(n->net, key, c, data, HEAD_BYTES, data + HEAD_BYTES,
                                      bytes - HEAD_BYTES) == GSP_NET_SENT;
            p->sent[c] += p->room[c];
        }
    bool all = p->received[0] == n->want[0] && p->received[1] == n->want[1];
    if (all && p->up && !p->told)
        p->told = gsp_net_send(n->net, key, GSP_NET_CONTROL, &FAREWELL, sizeof FAREWELL, NULL, 0) ==
                  GSP_NET_SENT;
}

static void take(node *n, peer *p, const gsp_net_event *e)
{
    static uint8_t right[GSP_NET_BULK_BYTES_MAX];
    uint32_t number = 0;
    memcpy(&number, e->data, e->bytes < 4 ? e->bytes : 4);
    if (e->bytes == 4 && number == FAREWELL) {
        p->done = true;
        return;
    }
    if (number >= n->want[e->channel] || e->bytes != bytes_of(n, e->channel, number)) {
        n->wrong++;
        return;
    }
    fill(right, e->bytes, p->number, e->channel, number);
    n->wrong += memcmp(right, e->data, e->bytes) != 0;
    if (e->channel == GSP_NET_CONTROL) {
        n->wrong += number != p->received[0]; /* in order */
    } else {
        n->twice += p->got[number];
        p->got[number] = true;
        n->last = atom_clock_seconds();
        n->first = n->first > 0 ? n->first : n->last;
    }
    p->received[e->channel]++;
}

static bool finished(const node *n)
{
    for (unsigned i = 0; i < n->n; i++)
        if (!n->peer[i].done || !n->peer[i].told)
            return false;
    return true;
}

static void serve(node *n, double end)
{
    gsp_net_event e;
    double linger = 0;
    while (atom_clock_seconds() < end && (linger <= 0 || atom_clock_seconds() < linger)) {
        test_must(gsp_net_next(n->net, 50000000, &e));
        peer *p = e.kind == GSP_NET_NOTHING ? NULL : find(n, e.key);
        if (e.kind == GSP_NET_REFUSED)
            fprintf(stderr, "node %u: refused: %s\n", n->me, e.why);
        if (p && e.kind == GSP_NET_UP)
            p->up = p->room[0] = p->room[1] = true;
        if (p && e.kind == GSP_NET_DOWN) {
            p->up = false;
            /* After everybody has everything the others leave: that is no loss. */
            n->downs += !(p->done && p->told);
        }
        if (p && e.kind == GSP_NET_ROOM)
            p->room[e.channel] = true;
        if (p && e.kind == GSP_NET_MESSAGE)
            take(n, p, &e);
        gsp_net_free(n->net, e.data);
        for (unsigned i = 0; i < n->n; i++)
            send_some(n, &n->peer[i]);
        if (linger <= 0 && finished(n))
            linger = atom_clock_seconds() + 1; /* for the farewell to arrive */
    }
}

static void report(const node *n)
{
    gsp_net_stats stats;
    uint64_t control = 0, bulk = 0;
    gsp_net_read_stats(n->net, &stats);
    for (unsigned i = 0; i < n->n; i++) {
        control += n->peer[i].received[0];
        bulk += n->peer[i].received[1];
    }
    double seconds = n->last - n->first;
    double rate = seconds > 0 ? (double)(bulk - 1) * (double)n->bulk_bytes / seconds : 0;
    printf("{\"me\":%u,\"finished\":%s,\"control\":%llu,\"bulk\":%llu,\"wrong\":%llu,"
           "\"twice\":%llu,\"downs\":%llu,\"seconds\":%.3f,\"mbit_per_s\":%.1f,"
           "\"wire_bytes_sent\":%llu,\"strangers\":%llu,\"rss_bytes\":%llu}\n",
           n->me, finished(n) ? "true" : "false", (unsigned long long)control,
           (unsigned long long)bulk, (unsigned long long)n->wrong, (unsigned long long)n->twice,
           (unsigned long long)n->downs, seconds, rate * 8e-6,
           (unsigned long long)stats.wire_bytes_sent, (unsigned long long)stats.strangers,
           (unsigned long long)atom_vm_peak_bytes());
}

static void open_net(node *n, const char *listen, bool plain)
{
    if (plain) {
        gsp_net_plain_config c = {.listen = test_address(listen)};
        memcpy(c.key, n->pool.member[n->me].public_key, sizeof c.key);
        test_must(gsp_net_open_plain(&c, &n->net));
    } else {
        gsp_net_gate_config c = {.gate.handshake = test_member(&n->pool, n->me)};
        c.gate.n_listen = 1;
        c.gate.listen[0] = test_address(listen);
        test_must(gsp_net_open_gate(&c, &n->net));
    }
}

int main(int argc, char **argv)
{
    static node n;
    if (argc < 8 || argc - 8 > PEERS_MAX) {
        fprintf(stderr, "see the top of net/node.c\n");
        return 2;
    }
    test_pool_make(&n.pool, 1);
    n.me = (unsigned)atoi(argv[1]);
    double end = atom_clock_seconds() + atof(argv[3]);
    n.want[0] = (uint32_t)atoi(argv[4]);
    n.want[1] = (uint32_t)atoi(argv[5]);
    n.bulk_bytes = (size_t)atoll(argv[6]);
    if (n.want[1] > COUNT_MAX || n.bulk_bytes < HEAD_BYTES || n.bulk_bytes > GSP_NET_BULK_BYTES_MAX)
        return 2;
    open_net(&n, argv[2], strcmp(argv[7], "plain") == 0);
    for (int i = 8; i < argc; i++) {
        peer *p = &n.peer[n.n++];
        char *at = strchr(argv[i], '@');
        p->number = (unsigned)atoi(argv[i]);
        p->address = test_address(at ? at + 1 : "");
        if (p->number > n.me) /* one of the two dials */
            test_must(gsp_net_dial(n.net, n.pool.member[p->number].public_key, &p->address, 1));
    }
    fprintf(stderr, "node %u: up\n", n.me);
    serve(&n, end);
    report(&n);
    bool right = finished(&n) && n.wrong == 0 && n.twice == 0 && n.downs == 0;
    gsp_net_close(&n.net);
    return right ? 0 : 1;
}
