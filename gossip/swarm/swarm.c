/*
 * Owns the schedule of a download: which donors there are, what each was asked for and how fast it
 * gives, which pieces are here or in flight. Its one idea: a piece in flight stands on the list of
 * whoever was asked and nowhere else, so taking a donor's list away is all there is to forgetting
 * it. It refuses to judge pieces and to know what they are pieces of.
 */
#include "gossip/swarm/swarm.h"

#include "atom/base/assert.h"

#include <string.h>

static const uint64_t SECOND = 1000000000u;

typedef struct asked {
    uint32_t set, piece;
    uint64_t ns;
} asked;

typedef struct donor {
    bool known, up, barred, passed; /* passed: it gets no more questions in this turn */
    bool there;                     /* its link; one that is barred is not up */
    uint8_t name[GSP_SWARM_NAME_BYTES];
    uint32_t n, window;
    asked *out;                         /* [n]; room for window_max */
    uint64_t *lacks;                    /* bits of sets */
    uint64_t heard_ns, denied_ns;       /* denied: 0: no set, of late */
    uint64_t aside_ns;                  /* not asked until then */
    uint64_t given;                     /* pieces */
    uint64_t rate, rate_ns, rate_bytes; /* bytes per second, of late; what is being measured */
} donor;

typedef struct piece_set {
    bool open;
    uint32_t n, cursor, end; /* below cursor all are here or in flight; asked for below end only */
    uint64_t rank;
    uint64_t *here, *flies; /* bits of pieces */
} piece_set;

struct gsp_swarm {
    gsp_swarm_config config;
    donor *donor;
    piece_set *set;
    uint32_t turn; /* counts turns: another donor is first in each */
    uint64_t came, again, wrong;
};

static bool bit_get(const uint64_t *bits, uint32_t k)
{
    return bits[k / 64] >> (k % 64) & 1;
}

static void bit_set(uint64_t *bits, uint32_t k, bool on)
{
    bits[k / 64] = (bits[k / 64] & ~(1ull << (k % 64))) | (uint64_t)on << (k % 64);
}

static size_t words(uint32_t n)
{
    return (size_t)n / 64 + 1;
}

/* ---- memory ---- */

size_t gsp_swarm_bytes(const gsp_swarm_config *c)
{
    size_t bytes = sizeof(gsp_swarm) + c->n_sets * sizeof(piece_set);
    bytes += c->n_donors * (sizeof(donor) + c->window_max * sizeof(asked) + 8 * words(c->n_sets));
    for (uint32_t k = 0; k < c->n_sets; k++)
        bytes += 16 * words(c->n_pieces[k]);
    return bytes;
}

/* The next so many bytes of what the caller gave. */
static void *carve(uint8_t **at, size_t bytes)
{
    void *here = *at;
    *at += bytes;
    return here;
}

gsp_swarm *gsp_swarm_open(const gsp_swarm_config *c, void *memory)
{
    uint8_t *at = memory;
    gsp_swarm *s = carve(&at, sizeof *s);
    ATOM_ASSERT(c->n_donors < GSP_SWARM_NOBODY && c->piece_bytes && c->run_max && c->window_min);
    ATOM_ASSERT(c->window_min <= c->window_first && c->window_first <= c->window_max);
    s->config = *c;
    s->config.n_pieces = NULL;
    s->donor = carve(&at, c->n_donors * sizeof *s->donor);
    s->set = carve(&at, c->n_sets * sizeof *s->set);
    for (uint32_t k = 0; k < c->n_donors; k++) {
        s->donor[k].out = carve(&at, c->window_max * sizeof(asked));
        s->donor[k].lacks = carve(&at, 8 * words(c->n_sets));
    }
    for (uint32_t k = 0; k < c->n_sets; k++) {
        s->set[k].n = c->n_pieces[k];
        s->set[k].here = carve(&at, 8 * words(c->n_pieces[k]));
        s->set[k].flies = carve(&at, 8 * words(c->n_pieces[k]));
    }
    ATOM_ASSERT((size_t)(at - (uint8_t *)memory) == gsp_swarm_bytes(c));
    return s;
}

static donor *donor_at(const gsp_swarm *s, uint32_t number)
{
    ATOM_ASSERT(number < s->config.n_donors);
    return &s->donor[number];
}

static piece_set *set_at(const gsp_swarm *s, uint32_t set)
{
    ATOM_ASSERT(set < s->config.n_sets);
    return &s->set[set];
}

/* ---- what is in flight ---- */

/* Where a question stands on a donor's list; its n: nowhere. */
static uint32_t find_out(const donor *o, uint32_t set, uint32_t piece)
{
    uint32_t k = 0;
    while (k < o->n && (o->out[k].set != set || o->out[k].piece != piece))
        k++;
    return k;
}

/* A question is off somebody's list: the piece may be asked of others, but for another's list. */
static void land(gsp_swarm *s, uint32_t set, uint32_t piece)
{
    piece_set *t = &s->set[set];
    for (uint32_t i = 0; i < s->config.n_donors; i++)
        if (find_out(&s->donor[i], set, piece) < s->donor[i].n)
            return;
    bit_set(t->flies, piece, false);
    if (piece < t->cursor)
        t->cursor = piece;
}

/* Takes question k off the donor's list. */
static void drop(gsp_swarm *s, donor *o, uint32_t k)
{
    asked a = o->out[k];
    o->out[k] = o->out[--o->n];
    land(s, a.set, a.piece);
}

static void drop_all(gsp_swarm *s, donor *o)
{
    while (o->n)
        drop(s, o, o->n - 1);
}

static void drop_set(gsp_swarm *s, donor *o, uint32_t set)
{
    for (uint32_t k = o->n; k-- > 0;)
        if (o->out[k].set == set)
            drop(s, o, k);
}

/* ---- donors ---- */

uint32_t gsp_swarm_find(const gsp_swarm *s, const uint8_t name[GSP_SWARM_NAME_BYTES])
{
    for (uint32_t i = 0; i < s->config.n_donors; i++)
        if (s->donor[i].known && memcmp(s->donor[i].name, name, GSP_SWARM_NAME_BYTES) == 0)
            return i;
    return GSP_SWARM_NOBODY;
}

/* For a new donor: a number that nobody had, or that of one that went away. A barred one is
 * forgotten last: else those that are barred could leave no room for others. */
static uint32_t place(const gsp_swarm *s)
{
    uint32_t gone = GSP_SWARM_NOBODY, barred = GSP_SWARM_NOBODY;
    for (uint32_t i = 0; i < s->config.n_donors; i++) {
        const donor *o = &s->donor[i];
        if (!o->known)
            return i;
        if (!o->there && !o->barred)
            gone = i;
        else if (!o->there && barred == GSP_SWARM_NOBODY)
            barred = i;
    }
    return gone != GSP_SWARM_NOBODY ? gone : barred;
}

static void forgive(const gsp_swarm *s, donor *o)
{
    memset(o->lacks, s->config.offers_all ? 0 : 0xff, 8 * words(s->config.n_sets));
    o->denied_ns = 0;
}

uint32_t gsp_swarm_up(gsp_swarm *s, const uint8_t name[GSP_SWARM_NAME_BYTES])
{
    uint32_t at = gsp_swarm_find(s, name);
    bool is_new = at == GSP_SWARM_NOBODY;
    if (is_new && (at = place(s)) == GSP_SWARM_NOBODY)
        return at;
    donor *o = &s->donor[at];
    o->there = true;
    if (!is_new && (o->up || o->barred))
        return at;
    *o = (donor){.known = true,
                 .up = true,
                 .there = true,
                 .window = s->config.window_first,
                 .out = o->out,
                 .lacks = o->lacks,
                 .given = is_new ? 0 : o->given};
    memcpy(o->name, name, sizeof o->name);
    forgive(s, o);
    return at;
}

void gsp_swarm_down(gsp_swarm *s, uint32_t number)
{
    donor *o = donor_at(s, number);
    drop_all(s, o);
    o->up = o->there = false;
}

void gsp_swarm_bar(gsp_swarm *s, uint32_t number)
{
    donor *o = donor_at(s, number);
    drop_all(s, o);
    o->up = false;
    o->barred = true;
}

bool gsp_swarm_is_up(const gsp_swarm *s, uint32_t number)
{
    return donor_at(s, number)->up;
}

bool gsp_swarm_is_barred(const gsp_swarm *s, uint32_t number)
{
    return donor_at(s, number)->barred;
}

const uint8_t *gsp_swarm_name(const gsp_swarm *s, uint32_t number)
{
    const donor *o = donor_at(s, number);
    return o->known ? o->name : NULL;
}

void gsp_swarm_offer(gsp_swarm *s, uint32_t number, uint32_t set, bool has)
{
    ATOM_ASSERT(set < s->config.n_sets);
    bit_set(donor_at(s, number)->lacks, set, !has);
}

/* ---- sets ---- */

void gsp_swarm_end(gsp_swarm *s, uint32_t set)
{
    piece_set *t = set_at(s, set);
    for (uint32_t i = 0; i < s->config.n_donors; i++)
        drop_set(s, &s->donor[i], set);
    t->open = false;
}

void gsp_swarm_begin(gsp_swarm *s, uint32_t set, uint64_t rank)
{
    piece_set *t = set_at(s, set);
    gsp_swarm_end(s, set);
    memset(t->here, 0, 8 * words(t->n));
    t->open = true;
    t->rank = rank;
    t->cursor = 0;
    t->end = t->n;
}

bool gsp_swarm_is_open(const gsp_swarm *s, uint32_t set)
{
    return set_at(s, set)->open;
}

void gsp_swarm_reach(gsp_swarm *s, uint32_t set, uint32_t end)
{
    piece_set *t = set_at(s, set);
    t->end = end < t->n ? end : t->n;
}

void gsp_swarm_here(gsp_swarm *s, uint32_t set, uint32_t piece, bool here)
{
    piece_set *t = set_at(s, set);
    ATOM_ASSERT(piece < t->n);
    bit_set(t->here, piece, here);
    if (!here && piece < t->cursor)
        t->cursor = piece;
}

bool gsp_swarm_reachable(const gsp_swarm *s, uint32_t set)
{
    ATOM_ASSERT(set < s->config.n_sets);
    for (uint32_t i = 0; i < s->config.n_donors; i++)
        if (s->donor[i].up && !bit_get(s->donor[i].lacks, set))
            return true;
    return false;
}

/* ---- answers ---- */

/* Bytes per second decide how many pieces are in flight: about half a second's worth. */
static void learn_rate(const gsp_swarm *s, donor *o, uint64_t now, uint64_t bytes)
{
    const gsp_swarm_config *c = &s->config;
    uint64_t passed = now - o->rate_ns;
    o->heard_ns = now;
    o->rate_bytes += bytes;
    if (passed < SECOND / 4)
        return;
    uint64_t rate = (uint64_t)((double)o->rate_bytes * 1e9 / (double)passed);
    o->rate = o->rate ? (o->rate + rate) / 2 : rate;
    o->rate_ns = now;
    o->rate_bytes = 0;
    uint64_t window = o->rate / 2 / c->piece_bytes + c->window_min;
    o->window = window < c->window_max ? (uint32_t)window : c->window_max;
}

bool gsp_swarm_asked(const gsp_swarm *s, uint32_t number, uint32_t set, uint32_t piece)
{
    const donor *o = donor_at(s, number);
    return find_out(o, set, piece) < o->n;
}

static void came_good(gsp_swarm *s, donor *o, piece_set *t, uint32_t piece)
{
    if (bit_get(t->here, piece)) {
        s->again++;
        return;
    }
    bit_set(t->here, piece, true);
    o->given++;
    s->came++;
}

void gsp_swarm_came(gsp_swarm *s, uint64_t now, uint32_t number, uint32_t set, uint32_t piece,
                    uint64_t bytes, gsp_swarm_verdict verdict)
{
    donor *o = donor_at(s, number);
    piece_set *t = set_at(s, set);
    ATOM_ASSERT(piece < t->n);
    if (verdict == GSP_SWARM_GOOD) {
        learn_rate(s, o, now, bytes);
        if (t->open)
            came_good(s, o, t, piece);
    }
    uint32_t k = find_out(o, set, piece);
    if (k < o->n)
        drop(s, o, k);
    if (verdict == GSP_SWARM_WRONG) {
        s->wrong++;
        gsp_swarm_bar(s, number);
    }
    if (verdict == GSP_SWARM_DENIED) {
        drop_set(s, o, set);
        bit_set(o->lacks, set, true);
        o->denied_ns = now;
    }
}

/* ---- questions ---- */

/* The set's next piece that is neither here nor in flight is `cursor`; false: there is none. */
static bool next_piece(piece_set *t)
{
    while (t->cursor < t->end && (bit_get(t->here, t->cursor) || bit_get(t->flies, t->cursor)))
        t->cursor++;
    return t->cursor < t->end;
}

/* The set to ask this donor for; n_sets: none. */
static uint32_t pick_set(const gsp_swarm *s, const donor *o)
{
    uint32_t best = s->config.n_sets;
    for (uint32_t k = 0; k < s->config.n_sets; k++) {
        piece_set *t = &s->set[k];
        if (t->open && !bit_get(o->lacks, k) &&
            (best == s->config.n_sets || t->rank > s->set[best].rank) && next_piece(t))
            best = k;
    }
    return best;
}

/* The piece that others have owed for longest, and for too long; NULL: there is none. */
static const asked *pick_late(const gsp_swarm *s, const donor *o, uint64_t now)
{
    const asked *late = NULL;
    for (uint32_t i = 0; i < s->config.n_donors && s->config.late_ns; i++)
        for (uint32_t k = 0; k < s->donor[i].n; k++) {
            const asked *a = &s->donor[i].out[k];
            if (now - a->ns > s->config.late_ns && (!late || a->ns < late->ns) &&
                !bit_get(o->lacks, a->set) && !bit_get(s->set[a->set].here, a->piece))
                late = a;
        }
    return late;
}

static void put_out(gsp_swarm *s, donor *o, uint32_t set, uint32_t piece, uint64_t now)
{
    bit_set(s->set[set].flies, piece, true);
    o->out[o->n++] = (asked){set, piece, now};
    ATOM_ASSERT(o->n <= s->config.window_max);
}

/* One question to a donor; false: it gets no more in this turn. */
static bool ask_one(gsp_swarm *s, uint32_t number, uint64_t now, gsp_swarm_sink *sink,
                    void *context)
{
    donor *o = &s->donor[number];
    gsp_swarm_ask ask = {.donor = number, .name = o->name};
    uint32_t before = o->n;
    if (o->n >= o->window || now < o->aside_ns)
        return false;
    ask.set = pick_set(s, o);
    bool late = ask.set == s->config.n_sets;
    if (late) {
        const asked *a = o->n == 0 ? pick_late(s, o, now) : NULL;
        if (!a)
            return false;
        ask.set = a->set;
        ask.first = a->piece;
        ask.n = 1;
        put_out(s, o, ask.set, ask.first, now);
    } else {
        piece_set *t = &s->set[ask.set];
        for (ask.first = t->cursor; o->n < o->window && ask.n < s->config.run_max &&
                                    next_piece(t) && t->cursor == ask.first + ask.n;
             ask.n++)
            put_out(s, o, ask.set, t->cursor, now);
    }
    if (before == 0)
        o->heard_ns = o->rate_ns = now;
    if (sink(context, &ask))
        return !late;
    while (o->n > before)
        drop(s, o, o->n - 1);
    return false;
}

static void give_up_on_silent(gsp_swarm *s, donor *o, uint64_t now)
{
    if (o->n && now - o->heard_ns > s->config.silent_ns) {
        drop_all(s, o);
        o->window = s->config.window_min;
        o->aside_ns = now + s->config.aside_ns;
    }
    if (o->denied_ns && s->config.deny_ns && now - o->denied_ns > s->config.deny_ns)
        forgive(s, o);
}

void gsp_swarm_turn(gsp_swarm *s, uint64_t now, gsp_swarm_sink *sink, void *context)
{
    uint32_t n = s->config.n_donors, first = s->turn++;
    bool more = true;
    for (uint32_t i = 0; i < n; i++) {
        give_up_on_silent(s, &s->donor[i], now);
        s->donor[i].passed = !s->donor[i].up;
    }
    while (more) {
        more = false;
        for (uint32_t i = 0; i < n; i++) {
            donor *o = &s->donor[(first + i) % n];
            if (o->passed)
                continue;
            o->passed = !ask_one(s, (first + i) % n, now, sink, context);
            more = more || !o->passed;
        }
    }
}

void gsp_swarm_look(const gsp_swarm *s, uint64_t now, gsp_swarm_status *out)
{
    *out = (gsp_swarm_status){.came = s->came, .again = s->again, .wrong = s->wrong};
    for (uint32_t i = 0; i < s->config.n_donors; i++) {
        const donor *o = &s->donor[i];
        out->givers += o->known && o->given > 0;
        out->giving += o->n && now - o->heard_ns < 2 * SECOND;
    }
}
