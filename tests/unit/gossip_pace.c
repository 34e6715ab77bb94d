/* Members that know their rates never ask for more than their link carries, on the links on which
 * something is sent; and no link is ever asked for so little that it would have to find its rate
 * anew. What they ask for is read at the endpoint. */
#include "tests/lib/gossip_cell.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

enum { MEMBERS = 4, RATE = 1000000 }; /* bytes per second: cell_open_node */

static cell c;
static gsp_net_ops sim_ops, ops;
static uint64_t pace[MEMBERS][MEMBERS]; /* a row belongs to its member's thread */
static bool used[MEMBERS][MEMBERS]; /* something went over it since paces were last shared out */
static atomic_uint sent, unpaced, too_much, too_little, ups;

static unsigned member_of(const uint8_t *key)
{
    unsigned i = 0;
    while (memcmp(c.pool.member[i].public_key, key, GSP_NET_KEY_BYTES) != 0)
        i++;
    return i;
}

static void take_pace(gsp_net *net, const uint8_t *key, uint64_t bytes_per_s)
{
    unsigned i = member_of(net->key), j = member_of(key);
    pace[i][j] = bytes_per_s;
    memset(used[i], 0, sizeof used[i]); /* a link that keeps its pace may be done */
    too_little += bytes_per_s < RATE / (6 * MEMBERS);
}

/* A link has a pace while it is up, and none when it comes up. */
static atom_status take_next(gsp_net *net, uint64_t timeout_ns, gsp_net_event *event)
{
    atom_status st = sim_ops.next(net, timeout_ns, event);
    if (st == ATOM_OK && (event->kind == GSP_NET_UP || event->kind == GSP_NET_DOWN)) {
        pace[member_of(net->key)][member_of(event->key)] = 0;
        ups += event->kind == GSP_NET_UP;
    }
    return st;
}

static gsp_net_sent take_send(gsp_net *net, const uint8_t *key, gsp_net_channel channel,
                              const void *head, size_t head_bytes, const void *body,
                              size_t body_bytes)
{
    unsigned i = member_of(net->key);
    gsp_node_status now = {0};
    if (c.member[i].node)
        gsp_node_read_status(c.member[i].node, &now);
    if (now.n_roster == MEMBERS) {
        uint64_t sum = 0;
        used[i][member_of(key)] |= channel == GSP_NET_BULK;
        for (unsigned j = 0; j < MEMBERS; j++)
            sum += used[i][j] ? pace[i][j] : 0;
        sent += channel == GSP_NET_BULK;
        unpaced += channel == GSP_NET_BULK && pace[i][member_of(key)] == 0;
        too_much += sum > RATE + RATE / 16; /* smaller changes are not worth a call */
    }
    return sim_ops.send(net, key, channel, head, head_bytes, body, body_bytes);
}

static void watch(cell_member *m)
{
    sim_ops = *m->net->ops; /* the same for all; members start later */
    ops = sim_ops;
    ops.send = take_send;
    ops.next = take_next;
    ops.pace = take_pace;
    m->net->ops = &ops;
}

/* Links between members are lost for a moment in each of two rounds. */
static void cut(cell_member *m, const gsp_certificate *certificate)
{
    unsigned next = (m->i + 1) % MEMBERS;
    if (m->n_whole != 1 && m->n_whole != 2)
        return;
    (void)certificate;
    gsp_sim_cut(c.hub, m->net->key, c.pool.member[next].public_key, true);
    gsp_sim_cut(c.hub, m->net->key, c.pool.member[next].public_key, false);
}

static void nobody_asks_for_more_than_its_link(void **unused)
{
    (void)unused;
    cell_make(&c, MEMBERS, GSP_CODEC_FP32, 400000, 16, 4);
    c.rate = 1000000; /* what this is about */
    c.opened = watch;
    c.check = cut;
    test_must(gsp_sim_hub_open(&c.hub));
    assert_true(cell_go(&c));
    assert_true(sent > 4 * MEMBERS * 12);               /* rounds, members, parts of others */
    assert_true(ups > 2 * MEMBERS * (MEMBERS - 1) / 2); /* links that came back among them */
    assert_int_equal(unpaced, 0);
    assert_true(too_much <= sent / 16); /* a link may wake just before paces are shared out anew */
    assert_int_equal(too_little, 0);
    cell_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_asks_for_more_than_its_link),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
