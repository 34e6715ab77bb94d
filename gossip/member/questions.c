/*
 * Owns the questions that others' complaints lead to. Its one idea: I ask the maker myself, so that
 * nobody's word about it counts. It refuses to hold more than a bounded number of bytes for anybody,
 * or to keep a question whose bytes its maker need not keep any more.
 */
#include "gossip/member/questions.h"

#include "atom/base/clock.h"

#include <string.h>

static const uint64_t ASK_NS = 2000000000u, LOOK_NS = 100000000u;
static const uint64_t QUESTION_BYTES_MAX = 32 << 20;

void gsp_questions_open(gsp_questions *qs, const gsp_terms *terms, gsp_friends *friends)
{
    qs->terms = terms;
    qs->friends = friends;
}

static void question_close(gsp_question *q)
{
    for (uint32_t i = 0; i < GSP_MEMBERS_MAX; i++)
        gsp_blob_close(&q->input[i]);
    memset(q, 0, sizeof *q);
}

void gsp_questions_close(gsp_questions *qs)
{
    for (uint32_t k = 0; k < GSP_MEMBERS_MAX; k++)
        question_close(&qs->of[k]);
}

/* The peer's own place, a free one, or the oldest. */
static gsp_question *place_for(gsp_questions *qs, const gsp_key *peer)
{
    gsp_question *oldest = &qs->of[0];
    for (uint32_t k = 0; k < GSP_MEMBERS_MAX; k++)
        if (qs->of[k].on && gsp_key_compare(&qs->of[k].peer, peer) == 0)
            return &qs->of[k];
    for (uint32_t k = 0; k < GSP_MEMBERS_MAX; k++)
        if (qs->of[k].began_ns < oldest->began_ns)
            oldest = &qs->of[k];
    return oldest;
}

void gsp_questions_begin(gsp_questions *qs, const gsp_action *a)
{
    gsp_question *q = place_for(qs, &a->peer);
    uint64_t bytes = gsp_terms_bytes(qs->terms, a->version, a->part);
    uint32_t wanted = 0;
    for (uint32_t i = 0, n = 0; i < GSP_MEMBERS_MAX; i++)
        if ((a->included >> i & 1) && (n == 0 || (n + 1) * bytes <= QUESTION_BYTES_MAX)) {
            wanted |= 1u << i;
            n++;
        }
    if (q->on && q->version == a->version && q->part == a->part && q->wanted == wanted)
        return;
    question_close(q);
    q->on = true;
    q->peer = a->peer;
    q->version = a->version;
    q->part = a->part;
    q->wanted = wanted;
    q->within_ns = a->within_ns;
    q->began_ns = atom_clock_ns();
}

static const gsp_named *named_of(const gsp_questions *qs, const gsp_question *q)
{
    return q->on ? gsp_withheld_find(qs->friends->agree, q->version) : NULL;
}

gsp_blob **gsp_questions_place(gsp_questions *qs, const gsp_message *m)
{
    const gsp_piece *p = &m->as.piece;
    for (uint32_t k = 0; k < GSP_MEMBERS_MAX && !p->is_result; k++) {
        gsp_question *q = &qs->of[k];
        const gsp_named *named = named_of(qs, q);
        if (!named || q->version != m->version || q->part != p->part)
            continue;
        for (uint32_t i = 0; i < named->n_contributors; i++)
            if ((q->wanted >> i & 1) && gsp_hash_equal(&named->contributor[i].root, &p->root) &&
                gsp_blob_lacks(q->input[i], p->sequence)) {
                gsp_questions_answered(&q->patience, named, i, m);
                return &q->input[i];
            }
    }
    return NULL;
}

bool gsp_questions_answered(gsp_patience *patience, const gsp_named *named, uint32_t i,
                            const gsp_message *m)
{
    const gsp_member *who = named ? gsp_withheld_maker(named, i) : NULL;
    return who && gsp_key_compare(&who->key, &m->from.key) == 0 &&
           gsp_patience_piece(patience, i, m->as.piece.sequence);
}

bool gsp_questions_exhibit(const gsp_questions *qs, uint64_t version, const gsp_hash *root,
                           uint32_t part, gsp_exhibit *out)
{
    for (uint32_t k = 0; k < GSP_MEMBERS_MAX; k++) {
        const gsp_question *q = &qs->of[k];
        for (uint32_t i = 0; q->on && i < GSP_MEMBERS_MAX; i++) {
            const gsp_blob *b = q->input[i];
            if (!b || !b->whole || q->version != version || q->part != part ||
                !gsp_hash_equal(&b->root, root))
                continue;
            *out = (gsp_exhibit){.data = b->data, .bytes = b->bytes, .n_path = b->n_path};
            memcpy(out->path, b->path, sizeof out->path);
            return true;
        }
    }
    return false;
}

void gsp_questions_links(gsp_friends *friends, const gsp_named *named,
                         uint64_t link[GSP_MEMBERS_MAX])
{
    memset(link, 0, GSP_MEMBERS_MAX * sizeof *link);
    for (uint32_t i = 0; named && i < named->n_contributors; i++) {
        const gsp_member *who = gsp_withheld_maker(named, i);
        const gsp_friend *f = who ? gsp_friends_find(friends, &who->key) : NULL;
        /* A process that has just come back has links before it has its member. */
        link[i] = f && gsp_agree_hears(friends->agree, &who->key) ? f->link : 0;
    }
}

void gsp_questions_pull(gsp_friends *friends, gsp_friend *to, uint64_t version, uint32_t part,
                        const gsp_hash *root)
{
    if (!to)
        return;
    gsp_message *m = gsp_friends_draft(friends, GSP_PULL);
    m->version = version;
    m->as.pull = (gsp_pull){.root = *root, .part = part};
    gsp_friends_tell(friends, to, m);
}

static bool look(gsp_questions *qs, gsp_question *q, const gsp_named *named, gsp_event *event)
{
    uint64_t now = atom_clock_ns(), link[GSP_MEMBERS_MAX];
    uint32_t here = 0;
    bool ask = q->asked_ns == 0 || now - q->asked_ns > ASK_NS;
    gsp_questions_links(qs->friends, named, link);
    gsp_patience_look(&q->patience, link, now);
    uint32_t asks = q->wanted & (ask ? UINT32_MAX : gsp_patience_unasked(&q->patience));
    for (uint32_t i = 0; i < named->n_contributors; i++) {
        const gsp_member *who = gsp_withheld_maker(named, i);
        if (q->input[i] && q->input[i]->whole) {
            here |= 1u << i;
        } else if (who && (asks >> i & 1)) {
            gsp_questions_pull(qs->friends, gsp_friends_find(qs->friends, &who->key), q->version,
                               q->part, &named->contributor[i].root);
            gsp_patience_asked(&q->patience, i);
        }
    }
    uint32_t late = q->wanted & ~here & gsp_patience_late(&q->patience, q->within_ns);
    if (ask)
        q->asked_ns = now;
    if (here == q->told && !(ask && late))
        return false;
    q->told = here;
    *event = (gsp_event){.kind = GSP_ON_INPUTS,
                         .version = q->version,
                         .part = q->part,
                         .peer = q->peer,
                         .included = here,
                         .withheld = late};
    return true;
}

bool gsp_questions_work(gsp_questions *qs, gsp_event *event)
{
    uint64_t now = atom_clock_ns();
    for (uint32_t k = 0; k < GSP_MEMBERS_MAX; k++) {
        gsp_question *q = &qs->of[k];
        const gsp_named *named = named_of(qs, q);
        if (q->on && !named)
            question_close(q); /* the version is too old, or of another lineage */
        else if (q->on && now - q->patience.looked_ns >= LOOK_NS && look(qs, q, named, event))
            return true;
    }
    return false;
}
