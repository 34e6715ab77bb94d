/*
 * Owns suspicion. Its one idea: a hash of each piece is kept where the pieces themselves cannot be,
 * and the right bytes, when they come, say which of them were wrong. It refuses to strike anybody on
 * suspicion: an honest peer whose piece lay beside a wrong one stays as good as it was.
 */
#include "gossip/member/blame.h"

#include "gossip/agree/signed.h"
#include "gossip/sum/merkle.h"

#include <string.h>

static const uint64_t REFUSED_NS = 600000000000u, HOUR_NS = 3600000000000u;
static const uint64_t SILENT_NS = 3000000000u; /* of the one that is listened to */
static const uint64_t TURN_NS = 60000000000u;  /* after that another one may have its turn */

void gsp_piece_hash(uint32_t number, const void *data, uint64_t bytes, const gsp_hash *path,
                    uint32_t n_path, gsp_hash *out)
{
    gsp_merkle_leaf(number, data, bytes, out);
    for (uint32_t k = 0; k < n_path; k++)
        gsp_merkle_join(out, &path[k], out);
}

/* ---- peers ---- */

bool gsp_blame_refuses(const gsp_blame *b, const gsp_key *key, uint64_t now)
{
    for (uint32_t i = 0; i < GSP_BLAME_PEERS; i++)
        if (b->peer[i].strikes && gsp_key_compare(&b->peer[i].key, key) == 0)
            return now < b->peer[i].refuse_ns;
    return false;
}

void gsp_blame_strike(gsp_blame *b, const gsp_key *key, uint64_t now)
{
    uint32_t at = 0;
    for (uint32_t i = 0; i < GSP_BLAME_PEERS; i++) {
        if (b->peer[i].strikes && gsp_key_compare(&b->peer[i].key, key) == 0) {
            at = i;
            break;
        }
        if (b->peer[at].strikes &&
            (!b->peer[i].strikes || b->peer[i].last_ns < b->peer[at].last_ns))
            at = i;
    }
    if (!b->peer[at].strikes || gsp_key_compare(&b->peer[at].key, key) != 0 ||
        now - b->peer[at].last_ns > HOUR_NS) {
        memset(&b->peer[at], 0, sizeof b->peer[at]);
        b->peer[at].key = *key;
    }
    b->n_wrong++;
    b->peer[at].last_ns = now;
    if (++b->peer[at].strikes >= GSP_BLAME_STRIKES)
        b->peer[at].refuse_ns = now + REFUSED_NS;
}

/* ---- parts ---- */

static const gsp_spoiled *find(const gsp_blame *b, const gsp_hash *root, uint32_t part)
{
    for (uint32_t i = 0; i < GSP_BLAME_PARTS; i++)
        if (b->part[i].at_ns && b->part[i].part == part && gsp_hash_equal(&b->part[i].root, root))
            return &b->part[i];
    return NULL;
}

static gsp_spoiled *find_mine(gsp_blame *b, const gsp_hash *root, uint32_t part)
{
    const gsp_spoiled *s = find(b, root, part);
    return s ? &b->part[s - b->part] : NULL;
}

static gsp_spoiled *make(gsp_blame *b, const gsp_hash *root, uint32_t part)
{
    gsp_spoiled *s = find_mine(b, root, part);
    if (s)
        return s;
    s = &b->part[0];
    for (uint32_t i = 1; i < GSP_BLAME_PARTS; i++)
        if (b->part[i].at_ns < s->at_ns)
            s = &b->part[i];
    memset(s, 0, sizeof *s);
    s->root = *root;
    s->part = part;
    return s;
}

static bool was_wrong(const gsp_spoiled *s, const gsp_key *key)
{
    uint32_t n = s->n_wrong < GSP_BLAME_WRONG_MAX ? s->n_wrong : GSP_BLAME_WRONG_MAX;
    for (uint32_t i = 0; i < n; i++)
        if (gsp_key_compare(&s->wrong[i], key) == 0)
            return true;
    return false;
}

bool gsp_blame_may_ask(const gsp_blame *b, const gsp_hash *root, uint32_t part, const gsp_key *key,
                       uint64_t now)
{
    const gsp_spoiled *s = find(b, root, part);
    return !gsp_blame_refuses(b, key, now) && !(s && was_wrong(s, key));
}

gsp_blame_word gsp_blame_piece(gsp_blame *b, const gsp_hash *root, uint32_t part,
                               const gsp_key *from, bool asked, uint64_t now)
{
    gsp_spoiled *s = find_mine(b, root, part);
    if (!gsp_blame_may_ask(b, root, part, from, now))
        return GSP_BLAME_LEAVE;
    if (!s)
        return GSP_BLAME_TAKE;
    if (s->only_ns && gsp_key_compare(&s->only, from) == 0) {
        s->news_ns = now;
        return GSP_BLAME_TAKE;
    }
    if (!asked || (s->only_ns && now - s->news_ns < SILENT_NS && now - s->only_ns < TURN_NS))
        return GSP_BLAME_LEAVE;
    s->only = *from;
    s->only_ns = s->news_ns = now;
    return GSP_BLAME_TAKE_ANEW;
}

const gsp_key *gsp_blame_false(gsp_blame *b, const gsp_hash *root, uint32_t part,
                               const gsp_pieces_of *p, uint64_t now)
{
    gsp_spoiled *s = make(b, root, part);
    bool alone = p->n > 0;
    s->at_ns = now;
    s->only_ns = 0;
    for (uint32_t k = 1; k < p->n; k++)
        alone = alone && gsp_key_compare(&p->from[k], &p->from[0]) == 0;
    if (!alone) {
        s->mixed = *p;
        return NULL;
    }
    gsp_key *wrong = &s->wrong[s->n_wrong++ % GSP_BLAME_WRONG_MAX];
    *wrong = p->from[0];
    gsp_blame_strike(b, wrong, now);
    return wrong;
}

bool gsp_blame_awaits(const gsp_blame *b, const gsp_hash *root, uint32_t part)
{
    return find(b, root, part) != NULL;
}

uint32_t gsp_blame_right(gsp_blame *b, const gsp_hash *root, uint32_t part, const gsp_hash *pieces,
                         uint32_t n, uint64_t now)
{
    gsp_spoiled *s = find_mine(b, root, part);
    uint32_t struck = 0;
    if (!s)
        return 0;
    const gsp_pieces_of *m = &s->mixed;
    for (uint32_t k = 0; k < n && k < m->n; k++) {
        bool wrong = !gsp_hash_equal(&pieces[k], &m->hash[k]);
        for (uint32_t j = 0; wrong && j < k; j++) /* one strike for one part */
            wrong = gsp_key_compare(&m->from[j], &m->from[k]) != 0 ||
                    gsp_hash_equal(&pieces[j], &m->hash[j]);
        if (!wrong)
            continue;
        gsp_blame_strike(b, &m->from[k], now);
        struck++;
    }
    s->at_ns = 0;
    return struck;
}
