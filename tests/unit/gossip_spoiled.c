/*
 * A member that sends wrong pieces of everybody's results, unasked and again and again, while another
 * member fetches them. It costs that one a second transfer and no more: what it sent is told apart
 * from what honest members sent, and it is not listened to any more.
 */
#include "gossip/agree/agree_inner.h"
#include "gossip/agree/wire.h"
#include "gossip/member/node_inner.h"
#include "tests/lib/gossip_cell.h"
#include "tests/lib/sanitized.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { VICTIM = 0, LIAR = 3, HEARD_MAX = 16 };
static cell c;

/* The liar's endpoint: what it hears of results, and its own way of sending. */
static struct {
    const gsp_net_ops *real;
    gsp_net_ops ops;
    cell_member *member;
    uint32_t n, sent, sequence; /* sequence: the piece that is false */
    uint64_t sent_ns;
    struct {
        gsp_message piece;
        gsp_key owner;
    } heard[HEARD_MAX];
    gsp_message m;
    uint8_t body[GSP_BLOB_PIECE_BYTES];
} L;

static void remember(const gsp_net_event *e)
{
    gsp_key key;
    memcpy(key.byte, e->key, sizeof key.byte);
    if (e->kind != GSP_NET_MESSAGE || e->channel != GSP_NET_CONTROL ||
        !gsp_wire_decode(e->data, e->bytes, &key, &L.m, NULL, NULL) || L.m.kind != GSP_REDUCED)
        return;
    const gsp_reduced *r = &L.m.as.reduced;
    gsp_message *p = &L.heard[L.n % HEARD_MAX].piece;
    L.heard[L.n++ % HEARD_MAX].owner = key;
    *p = (gsp_message){.kind = GSP_PIECE, .lineage = L.m.lineage, .version = L.m.version};
    p->as.piece = (gsp_piece){.root = r->part.hash, .is_result = true, .part = r->statement.item};
}

static void spoil(gsp_net *net)
{
    const gsp_terms t = {.codec = GSP_CODEC_FP32,
                         .n_parts = c.rules.n_parts,
                         .n_fragments = 1,
                         .n_floats = &c.n_floats};
    uint8_t head[GSP_WIRE_PIECE_BYTES_MAX];
    for (uint32_t k = 0; k < L.n && k < HEARD_MAX; k++) {
        gsp_message *m = &L.heard[k].piece;
        gsp_piece *p = &m->as.piece;
        p->codec = (uint8_t)t.codec;
        p->sequence = L.sequence;
        p->part_bytes = gsp_terms_bytes(&t, m->version, p->part);
        p->offset = (uint64_t)p->sequence * GSP_BLOB_PIECE_BYTES;
        p->bytes = p->part_bytes - p->offset;
        p->bytes = p->bytes < GSP_BLOB_PIECE_BYTES ? p->bytes : GSP_BLOB_PIECE_BYTES;
        size_t n = gsp_wire_encode(m, head, sizeof head);
        for (uint32_t i = 0; n && i < LIAR; i++) {
            const uint8_t *to = c.pool.member[i].public_key;
            if (memcmp(to, L.heard[k].owner.byte, GSP_KEY_BYTES) != 0)
                L.sent +=
                    L.real->send(net, to, GSP_NET_BULK, head, n, L.body, p->bytes) == GSP_NET_SENT;
        }
    }
}

static atom_status next(gsp_net *net, uint64_t timeout_ns, gsp_net_event *e)
{
    uint64_t now = atom_clock_ns();
    if (now - L.sent_ns > 5000000) {
        L.sent_ns = now;
        spoil(net);
    }
    atom_status st = L.real->next(net, timeout_ns < 5000000 ? timeout_ns : 5000000, e);
    if (st == ATOM_OK)
        remember(e);
    return st;
}

/* The victim's endpoint: results that it has not asked for are lost, so that it asks for those of
 * another's proposal. */
static struct {
    cell_member *member;
    const gsp_net_ops *real;
    gsp_net_ops ops;
    uint64_t lost, asked[GSP_PARTS_MAX]; /* pieces; the version each part was last asked for */
    gsp_message m;
} V;

static gsp_net_sent ask(gsp_net *net, const uint8_t *to, gsp_net_channel channel, const void *head,
                        size_t head_bytes, const void *body, size_t body_bytes)
{
    gsp_key key;
    memcpy(key.byte, to, sizeof key.byte);
    if (channel == GSP_NET_CONTROL && gsp_wire_decode(head, head_bytes, &key, &V.m, NULL, NULL) &&
        V.m.kind == GSP_PULL && V.m.as.pull.is_result && V.m.as.pull.part < GSP_PARTS_MAX)
        V.asked[V.m.as.pull.part] = V.m.version;
    return V.real->send(net, to, channel, head, head_bytes, body, body_bytes);
}

static atom_status lose(gsp_net *net, uint64_t timeout_ns, gsp_net_event *e)
{
    gsp_key key;
    const void *body;
    size_t bytes;
    atom_status st = V.real->next(net, timeout_ns, e);
    memcpy(key.byte, e->key, sizeof key.byte);
    if (st != ATOM_OK || e->kind != GSP_NET_MESSAGE ||
        !gsp_wire_decode(e->data, e->bytes, &key, &V.m, &body, &bytes))
        return st;
    const gsp_piece *p = &V.m.as.piece;
    if (V.m.kind != GSP_PIECE || !p->is_result || p->part >= GSP_PARTS_MAX)
        return st;
    const gsp_agree *a = &V.member->node->agree;
    bool proposes = a->self_i != GSP_NOBODY && gsp_view_proposer(a, a->view) == a->self_i;
    if (V.asked[p->part] != V.m.version && !proposes) {
        V.real->free(net, e->data);
        V.lost++;
        *e = (gsp_net_event){.kind = GSP_NET_NOTHING};
    }
    return st;
}

static void opened(cell_member *m)
{
    if (m->i == LIAR) {
        L.real = m->net->ops;
        L.ops = *L.real;
        L.ops.next = next;
        m->net->ops = &L.ops;
    } else if (m->i == VICTIM) {
        V.real = m->net->ops;
        V.ops = *V.real;
        V.ops.send = ask;
        V.ops.next = lose;
        V.member = m;
        m->net->ops = &V.ops;
    }
}

/* The liar's piece as it would come to the victim of a part that came with mixed pieces, while another
 * member is asked for it. */
static struct {
    bool pushed, seen, heard; /* heard: the liar alone is listened to about it */
    uint32_t part;
    gsp_hash root;
    gsp_net_ops ops;
    uint8_t text[GSP_WIRE_PIECE_BYTES_MAX + GSP_BLOB_PIECE_BYTES];
} U;

static const gsp_key *liar(void)
{
    static gsp_key key;
    memcpy(key.byte, c.pool.member[LIAR].public_key, sizeof key.byte);
    return &key;
}

/* It waits for the part, from somebody else; the others may have certified the version meanwhile. */
static bool is_asked_for(gsp_node *n, uint32_t part, gsp_hash *root)
{
    const gsp_agree *a = &n->agree;
    const gsp_round *r = &a->round;
    const uint64_t version = V.asked[part];
    uint32_t i = gsp_roster_find_key(gsp_agree_roster(a), liar());
    const gsp_friend *f = gsp_friends_find(&n->friends, liar());
    const gsp_proposal *p =
        version > a->certified ? &a->pending.as.propose.proposal : &a->certificate.proposal;
    bool owns = r->version == version && r->ballot != 0 && r->begin.owner[part] == i;
    if (version == 0 || !f || !f->up || i == GSP_NOBODY || owns || p->version != version ||
        (version > a->certified && !a->has_pending) ||
        gsp_key_compare(gsp_pulls_last(&n->pulls, part), liar()) == 0)
        return false;
    *root = p->part[part].hash;
    return !gsp_hash_none(root) && !gsp_recent_find(&n->held, part, root);
}

static void push_piece(gsp_node *n, gsp_net_event *e)
{
    const gsp_pieces_of nobody = {0};
    gsp_message *m = &V.m;
    *m = (gsp_message){.kind = GSP_PIECE, .lineage = n->agree.lineage, .version = V.asked[U.part]};
    m->as.piece = (gsp_piece){.root = U.root,
                              .is_result = true,
                              .part = U.part,
                              .codec = (uint8_t)n->terms.codec,
                              .part_bytes = gsp_terms_bytes(&n->terms, m->version, U.part),
                              .bytes = GSP_BLOB_PIECE_BYTES};
    size_t bytes = gsp_wire_encode(m, U.text, GSP_WIRE_PIECE_BYTES_MAX);
    assert_true(bytes > 0);
    assert_null(gsp_blame_false(&n->blame, &U.root, U.part, &nobody, atom_clock_ns()));
    *e = (gsp_net_event){.kind = GSP_NET_MESSAGE,
                         .channel = GSP_NET_BULK,
                         .data = U.text,
                         .bytes = bytes + GSP_BLOB_PIECE_BYTES};
    memcpy(e->key, liar()->byte, sizeof e->key);
}

static atom_status push(gsp_net *net, uint64_t timeout_ns, gsp_net_event *e)
{
    gsp_node *n = V.member->node;
    if (U.pushed && !U.seen) {
        U.seen = true;
        for (uint32_t k = 0; k < GSP_BLAME_PARTS; k++) {
            const gsp_spoiled *s = &n->blame.part[k];
            U.heard |= s->only_ns && gsp_key_compare(&s->only, liar()) == 0;
        }
        c.enough = true;
    }
    for (uint32_t p = 0; n && !U.pushed && p < n->terms.n_parts; p++)
        if (is_asked_for(n, p, &U.root)) {
            U.pushed = true;
            U.part = p;
            push_piece(n, e);
            return ATOM_OK;
        }
    return lose(net, timeout_ns, e);
}

static void free_all_but_mine(gsp_net *net, void *data)
{
    if (data != U.text)
        V.real->free(net, data);
}

static void opened_for_a_push(cell_member *m)
{
    if (m->i != VICTIM)
        return;
    V.real = m->net->ops;
    U.ops = *V.real;
    U.ops.send = ask;
    U.ops.next = push;
    U.ops.free = free_all_but_mine;
    V.member = m;
    m->net->ops = &U.ops;
}

static gsp_blame blame[LIAR + 1]; /* of each member, when it applied its last version */

static void look(cell_member *m, const gsp_certificate *certificate)
{
    (void)certificate;
    blame[m->i] = m->node->blame;
    for (uint32_t k = 0; k < GSP_BLAME_PEERS; k++)
        if (m->node->blame.peer[k].strikes)
            c.enough = true;
}

static void a_false_piece_costs_its_sender(uint32_t sequence)
{
    memset(&L, 0, sizeof L);
    memset(&V, 0, sizeof V);
    L.sequence = sequence;
    memset(blame, 0, sizeof blame);
    /* 1.2 MB a part: three pieces. It ends with the first strike; a victim that proposed the first
     * versions itself, or had what it lost from somebody else, takes longer to see one. */
    cell_make(&c, 4, GSP_CODEC_FP32, 900001, 3, 12);
    c.seconds = SANITIZED ? 100 : 40;
    c.opened = opened;
    c.check = look;
    test_must(gsp_sim_hub_open(&c.hub));
    assert_true(cell_go(&c));
    assert_true(L.sent > 0);
    uint32_t struck = 0;
    for (unsigned i = 0; i < LIAR; i++) {
        assert_false(c.member[i].failed);
        assert_true(c.member[i].n_contributed >= 1);
        for (uint32_t k = 0; k < GSP_BLAME_PEERS; k++) {
            if (!blame[i].peer[k].strikes)
                continue;
            assert_memory_equal(blame[i].peer[k].key.byte, c.pool.member[LIAR].public_key,
                                GSP_KEY_BYTES);
            struck++;
        }
    }
    assert_true(struck >= 1 || V.lost == 0); /* 0: it proposed every version itself */
    cell_close(&c);
}

static void of_the_first_piece(void **unused)
{
    (void)unused;
    a_false_piece_costs_its_sender(0);
}

static void of_the_last_piece(void **unused)
{
    (void)unused;
    a_false_piece_costs_its_sender(2);
}

/* A liar that is not asked cannot have itself listened to instead of the one that is: for a minute a
 * part, it could hold up all versions with one piece every three seconds. */
static void who_was_not_asked_is_not_listened_to(void **unused)
{
    (void)unused;
    memset(&V, 0, sizeof V);
    memset(&U, 0, sizeof U);
    cell_make(&c, 4, GSP_CODEC_FP32, 900001, 3, 12);
    c.seconds = SANITIZED ? 100 : 40;
    c.opened = opened_for_a_push;
    test_must(gsp_sim_hub_open(&c.hub));
    assert_true(cell_go(&c));
    assert_true(U.seen || V.lost == 0);
    assert_false(U.heard);
    cell_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(of_the_first_piece),
        cmocka_unit_test(of_the_last_piece),
        cmocka_unit_test(who_was_not_asked_is_not_listened_to),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
