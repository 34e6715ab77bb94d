/*
 * Chains and the file `chain` against a fuzzer that owns keys (gossip/agree/certificate_chain.h,
 * gossip/member/trail_file.h). The input is a script: it makes the history of a pool with forks and resets,
 * takes the beginning of it, goes on with steps of its own, whose fields it changes and whose seals it makes
 * right again with the keys that it has, and tells all that to a member page by page as messages. Or it
 * writes a chain as a file, changes it, and makes the checks of its entries right again.
 *
 * A step is taken only if somebody honest signed it or nobody honest had to. A member follows no lineage
 * of those who are few enough to be survived. What is read of a file is what the file says.
 */
#include "atom/base/assert.h"
#include "gossip/agree/wire.h"
#include "gossip/member/inquiry.h"
#include "gossip/member/trail_file.h"
#include "gossip/trust/identity.h"
#include "tests/fuzz/forge_fields.h"
#include "tests/fuzz/forge_seals.h"

#include <sodium.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { OWNER = FORGE_KEYS - 1, PEOPLE = 8, STEPS_MAX = 20, FORGED_MAX = 5, FILE_MAX = 1 << 16 };
enum { MAGIC_BYTES = 8, CHECK_BYTES = 16, ENTRY_HEAD_BYTES = 4 + CHECK_BYTES };

static gsp_seals seals;
static gsp_chain_terms terms;
static forge_keys keys;
static const forge_keys EVERYBODY = {UINT64_MAX};
static gsp_hash honest[STEPS_MAX + 1]; /* ids of what honest members signed */
static uint32_t n_honest;
static bool survived; /* the fuzzer is nowhere more than may be hostile */
static forge_fields fields;

/* ---- making steps ---- */

static void sign_link(const forge_keys *by, const gsp_roster *voters, gsp_chain_link *link)
{
    gsp_statement vote = {.kind = GSP_SAYS_VOTE,
                          .lineage = link->head.lineage,
                          .version = link->head.version,
                          .ballot = link->ballot};
    if (link->head.next.n > GSP_MEMBERS_MAX)
        return;
    gsp_head_hash(&seals, &link->head, &vote.subject);
    for (uint32_t k = 0; k < link->n_votes && k < GSP_MEMBERS_MAX; k++) {
        if (link->vote[k].member >= voters->n)
            continue;
        vote.signer = voters->member[link->vote[k].member];
        memcpy(vote.seal, link->vote[k].seal, sizeof vote.seal);
        forge_sign(by, &vote);
        memcpy(link->vote[k].seal, vote.seal, sizeof vote.seal);
    }
}

static void sign_genesis(const forge_keys *by, const gsp_chain *at, gsp_genesis *g)
{
    const gsp_order order = g->order;
    if (g->roster.n > GSP_MEMBERS_MAX)
        return;
    forge_keys orders = *by;
    if (g->reset == at->reset) /* a fork repeats the order that its parent has */
        orders.owned &= ~((uint64_t)1 << OWNER);
    forge_sign_genesis(&orders, &terms.owner, g);
    if (g->reset == at->reset && g->reset) {
        g->order = order;
        forge_sign_genesis(&orders, &terms.owner, g);
    }
}

static gsp_step a_link(const gsp_chain *at, forge_script *s, bool changes)
{
    gsp_step step = {.is_genesis = false};
    gsp_chain_link *link = &step.as.link;
    gsp_roster *next = &link->head.next;
    uint64_t version = at->version + 1 + forge_draw(s, 3);
    *next = at->roster;
    gsp_member who = forge_member(forge_draw(s, PEOPLE));
    who.incarnation += forge_draw(s, 8) / 4;
    uint32_t i = gsp_roster_find_key(next, &who.key);
    if (changes && i == GSP_NOBODY && next->n < PEOPLE) {
        for (i = next->n++; i > 0 && gsp_key_compare(&next->member[i - 1].key, &who.key) > 0; i--)
            next->member[i] = next->member[i - 1];
        next->member[i] = who;
    } else if (changes && i != GSP_NOBODY && next->n > 1) {
        next->n--;
        memmove(&next->member[i], &next->member[i + 1], (next->n - i) * sizeof who);
        memset(&next->member[next->n], 0, sizeof who);
    }
    link->head.lineage = at->lineage;
    link->head.version = version;
    link->head.tokens = at->tokens + forge_draw(s, 100);
    link->head.samples = at->samples + forge_draw(s, 100);
    link->head.contents = (gsp_hash){{(uint8_t)forge_draw(s, 256)}};
    link->head.since = at->made;
    link->head.made = gsp_roster_equal(next, &at->roster) ? at->made : version;
    link->ballot = 1 + forge_draw(s, 3);
    for (uint32_t k = 0; k < at->roster.n; k++)
        link->vote[link->n_votes++].member = (uint8_t)k;
    return step;
}

/* A fork by some of the roster, or the owner's reset. */
static gsp_step a_genesis(const gsp_chain *at, forge_script *s, uint32_t who, bool reset)
{
    gsp_step step = {.is_genesis = true};
    gsp_genesis *g = &step.as.genesis;
    *g = (gsp_genesis){.pool = at->pool,
                       .reset = at->reset + reset,
                       .order = at->order,
                       .generation = at->generation + 1,
                       .parent = at->lineage,
                       .version = at->version,
                       .previous = at->newest,
                       .tokens = at->tokens,
                       .samples = at->samples};
    g->founder = forge_member(reset ? OWNER : forge_draw(s, PEOPLE));
    g->founder.incarnation += forge_draw(s, 3);
    for (uint32_t i = 0; i < at->roster.n && !reset; i++) {
        if (!(who >> i & 1))
            continue;
        g->founder = at->roster.member[i];
        g->founder.incarnation++;
        g->roster.member[g->roster.n++] = g->founder;
    }
    if (g->roster.n == 1)
        g->roster = (gsp_roster){.n = 0};
    return step;
}

static void sign(const forge_keys *by, const gsp_chain *at, gsp_step *step)
{
    if (step->is_genesis)
        sign_genesis(by, at, &step->as.genesis);
    else
        sign_link(by, &at->roster, &step->as.link);
}

/* ---- the pool ---- */

static uint32_t n_owned(const gsp_roster *r)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->n; i++)
        n += forge_owns(&keys, &r->member[i].key);
    return n;
}

static void note(const gsp_trail *t)
{
    honest[n_honest++] = t->step[t->n - 1].id;
    survived &= n_owned(&t->end.roster) <= gsp_liars_max(terms.trust, t->end.roster.n);
}

/* What really happened: everybody signs, with all keys. */
static void live(gsp_trail *t, forge_script *s)
{
    gsp_step step = {.is_genesis = true};
    uint32_t n = 1 + forge_draw(s, STEPS_MAX - 1);
    step.as.genesis = (gsp_genesis){.pool = {{7}}, .founder = forge_member(0)};
    gsp_genesis_hash(&seals, &step.as.genesis, &terms.first);
    n_honest = 0;
    survived = !forge_owns(&keys, &terms.owner);
    gsp_trail_open(t, &terms);
    ATOM_ASSERT(gsp_trail_add(t, &step, false) == ATOM_OK);
    note(t);
    for (uint32_t k = 1; k < n && s->left; k++) {
        uint32_t what = forge_draw(s, 8), all = (1u << t->end.roster.n) - 1;
        if (what < 6 && !t->end.still)
            step = a_link(&t->end, s, what < 5);
        else
            step =
                a_genesis(&t->end, s, what == 7 ? 0 : all & ~(1u << forge_draw(s, 4)), what == 7);
        if (step.is_genesis && !step.as.genesis.reset && step.as.genesis.roster.n == 0)
            step.as.genesis.founder =
                (gsp_member){.key = t->end.roster.member[0].key, .incarnation = 100 + k};
        sign(&EVERYBODY, &t->end, &step);
        if (gsp_trail_add(t, &step, false) == ATOM_OK)
            note(t);
    }
}

static bool was_signed(const gsp_hash *id)
{
    for (uint32_t i = 0; i < n_honest; i++)
        if (gsp_hash_equal(&honest[i], id))
            return true;
    return false;
}

/* Nobody honest has to sign this. */
static bool needs_nobody(const gsp_chain *at, const gsp_step *step)
{
    const gsp_chain_link *link = &step->as.link;
    const gsp_genesis *g = &step->as.genesis;
    bool owned = true;
    if (step->is_genesis && g->reset > at->reset && !forge_owns(&keys, &terms.owner))
        return false;
    if (step->is_genesis)
        return forge_owns(&keys, &g->founder.key) && n_owned(&g->roster) == g->roster.n;
    for (uint32_t k = 0; k < link->n_votes; k++)
        owned &= forge_owns(&keys, &at->roster.member[link->vote[k].member].key);
    return owned;
}

/* ---- telling ---- */

static void change_some(forge_script *s, gsp_step *step)
{
    gsp_chain_link *link = &step->as.link;
    for (uint32_t k = forge_draw(s, 4); k > 0; k--) {
        fields.n = 0;
        if (step->is_genesis) {
            forge_genesis(&fields, &step->as.genesis);
        } else {
            forge_hash(&fields, &link->head.lineage);
            forge_hash(&fields, &link->head.previous);
            forge_hash(&fields, &link->head.contents);
            FORGE_NUMBER_OF(&fields, link->head.version);
            FORGE_NUMBER_OF(&fields, link->head.tokens);
            FORGE_NUMBER_OF(&fields, link->head.samples);
            FORGE_NUMBER_OF(&fields, link->head.since);
            FORGE_NUMBER_OF(&fields, link->head.made);
            FORGE_NUMBER_OF(&fields, link->ballot);
            uint32_t n = forge_list(&fields, link->head.next.member, sizeof(gsp_member),
                                    &link->head.next.n, GSP_MEMBERS_MAX);
            for (uint32_t i = 0; i < n; i++)
                forge_who(&fields, &link->head.next.member[i]);
            n = forge_list(&fields, link->vote, sizeof link->vote[0], &link->n_votes,
                           GSP_MEMBERS_MAX);
            for (uint32_t i = 0; i < n; i++)
                FORGE_NUMBER_OF(&fields, link->vote[i].member);
        }
        forge_change(&fields, s);
    }
}

static gsp_step forge_step(const gsp_trail *truth, const gsp_chain *at, forge_script *s)
{
    gsp_step step;
    uint32_t what = forge_draw(s, 8), owned = 0;
    for (uint32_t i = 0; i < at->roster.n; i++)
        owned |= (uint32_t)forge_owns(&keys, &at->roster.member[i].key) << i;
    if (what < 2)
        step = a_genesis(at, s, what ? owned : forge_draw(s, 256), false);
    else if (what == 2)
        step = a_genesis(at, s, 0, true);
    else if (what < 6)
        step = a_link(at, s, what != 5);
    else
        gsp_trail_read(truth, forge_draw(s, truth->n), &step);
    if (what == 4)
        step.as.link.head.tokens = (uint64_t)1 << (40 + forge_draw(s, 24));
    change_some(s, &step);
    if (forge_draw(s, 8))
        sign(&keys, at, &step);
    return step;
}

/* All that a liar says: the first steps of the truth, then its own. */
static uint32_t tell(const gsp_trail *truth, forge_script *s, gsp_step *out)
{
    uint32_t n = forge_draw(s, truth->n + 1), own = forge_draw(s, FORGED_MAX);
    gsp_chain at;
    gsp_trail_lead(truth, n, &at);
    for (uint32_t i = 0; i < n; i++)
        gsp_trail_read(truth, i, &out[i]);
    for (uint32_t k = 0; k < own; k++) {
        out[n] = forge_step(truth, &at, s);
        const char *wrong = gsp_chain_take(&terms, &at, &out[n++], true);
        (void)wrong; /* it is told all the same */
    }
    return n;
}

/* A page as a message, through its bytes. */
static bool page(const gsp_step *step, uint32_t n, bool more, const gsp_hash *after,
                 gsp_chain_said *out)
{
    static gsp_message m, back;
    static uint8_t bytes[GSP_WIRE_BYTES_MAX];
    memset(&m, 0, sizeof m);
    m.kind = GSP_CHAIN;
    m.from = forge_member(1);
    m.as.chain.after = *after;
    m.as.chain.more = more;
    m.as.chain.n = n;
    memcpy(m.as.chain.step, step, n * sizeof *step);
    size_t size = gsp_wire_encode(&m, bytes, sizeof bytes);
    if (size == 0 || !gsp_wire_decode(bytes, size, &m.from.key, &back, NULL, NULL))
        return false;
    *out = back.as.chain;
    return true;
}

static void judge(const gsp_trail *mine, const gsp_trail *theirs)
{
    static const gsp_plight plights[] = {{0}, {.waits = true}, {.waits = true, .gave_up = true}};
    gsp_match match;
    gsp_chain at;
    gsp_step step;
    bool lies = false;
    for (uint32_t i = 0; i < theirs->n; i++) {
        gsp_trail_lead(theirs, i, &at);
        gsp_trail_read(theirs, i, &step);
        bool right = was_signed(&theirs->step[i].id);
        ATOM_ASSERT(right || needs_nobody(&at, &step));
        lies |= !right;
    }
    gsp_trail_match(mine, NULL, theirs, &match);
    for (uint32_t p = 0; p < 3; p++) {
        gsp_choice choice = gsp_match_judge(&match, terms.trust, plights[p]);
        ATOM_ASSERT(choice == GSP_STAY || choice == GSP_GO || choice == GSP_DIVIDED);
        ATOM_ASSERT(p == 2 || !lies || !survived || mine->n == 0 || choice != GSP_GO);
    }
}

static void hear(const gsp_trail *mine, const gsp_step *step, uint32_t n, forge_script *s)
{
    static gsp_chain_ask ask;
    static gsp_chain_said said;
    gsp_inquiry q = {0};
    gsp_key of = forge_member(1).key;
    gsp_inquiry_news news = GSP_INQUIRY_GOES;
    gsp_inquiry_begin(&q, &terms, &of, 0);
    gsp_inquiry_ask(&q, mine, &ask);
    gsp_hash after = forge_draw(s, 4) || ask.n == 0 ? (gsp_hash){0} : ask.known[0];
    uint32_t from = gsp_hash_none(&after) || mine->n > n ? 0 : mine->n;
    for (uint32_t at = from; news == GSP_INQUIRY_GOES;) {
        uint32_t some = n - at < GSP_CHAIN_SAID_MAX ? n - at : GSP_CHAIN_SAID_MAX;
        some = some ? 1 + forge_draw(s, some) : 0;
        if (!page(step + at, some, at + some < n, &after, &said))
            break;
        news = gsp_inquiry_heard(&q, mine, &said, 1);
        at += some;
        after = q.last;
    }
    if (news == GSP_INQUIRY_WHOLE)
        judge(mine, &q.theirs);
    gsp_inquiry_close(&q);
}

/* ---- files ---- */

static void check_of(uint64_t place, const uint8_t *data, size_t bytes, uint8_t *out)
{
    crypto_generichash_state state;
    uint8_t at[8];
    for (uint32_t k = 0; k < 8; k++)
        at[k] = (uint8_t)(place >> 8 * k);
    crypto_generichash_init(&state, NULL, 0, CHECK_BYTES);
    crypto_generichash_update(&state, at, sizeof at);
    crypto_generichash_update(&state, data, bytes);
    crypto_generichash_final(&state, out, CHECK_BYTES);
}

static size_t put_entry(uint64_t place, const void *data, uint32_t bytes, uint8_t *out)
{
    memcpy(out, &bytes, 4);
    check_of(place, data, bytes, out + 4);
    memcpy(out + ENTRY_HEAD_BYTES, data, bytes);
    return ENTRY_HEAD_BYTES + bytes;
}

static size_t put_trail(const gsp_trail *t, uint8_t *out)
{
    size_t n = MAGIC_BYTES;
    memcpy(out, "atomchn3", MAGIC_BYTES);
    for (uint32_t i = 0; i < t->n && n + GSP_WIRE_STEP_BYTES_MAX + ENTRY_HEAD_BYTES < FILE_MAX; i++)
        n += put_entry(i, t->step[i].data, t->step[i].bytes, out + n);
    return n;
}

/* What is read, written again, is the beginning of the file. */
static void read_file(const gsp_trail *truth, const uint8_t *file, size_t bytes)
{
    static uint8_t again[FILE_MAX + GSP_WIRE_STEP_BYTES_MAX];
    gsp_trail t;
    gsp_match match;
    gsp_trail_open(&t, &terms);
    size_t good = gsp_trail_parse(&t, file, bytes);
    ATOM_ASSERT(good <= bytes && (good || t.n == 0));
    ATOM_ASSERT(good == 0 || (put_trail(&t, again) == good && memcmp(again, file, good) == 0));
    gsp_trail_match(truth, NULL, &t, &match);
    gsp_saved saved = {.genesis = {.pool = {{7}}, .founder = forge_member(0)}};
    if (gsp_trail_back(&t, &saved)) {
        ATOM_ASSERT(t.n >= 1 && t.end.roster.n == 1);
    }
    gsp_trail_close(&t);
}

static void try_file(const gsp_trail *truth, const gsp_step *step, uint32_t n, forge_script *s)
{
    static uint8_t file[FILE_MAX], entry[GSP_WIRE_STEP_BYTES_MAX];
    size_t bytes = MAGIC_BYTES, size;
    memcpy(file, "atomchn3", MAGIC_BYTES);
    for (uint32_t i = 0; i < n && bytes + sizeof entry + ENTRY_HEAD_BYTES < sizeof file; i++) {
        size = gsp_wire_put_step(&step[i], entry, sizeof entry);
        if (size && forge_draw(s, 16) == 0)
            entry[forge_draw(s, (uint32_t)size)] ^= (uint8_t)(1 + forge_draw(s, 255));
        bytes += put_entry(i, entry, (uint32_t)size, file + bytes);
    }
    for (uint32_t k = forge_draw(s, 3); k > 0; k--)
        file[forge_draw(s, (uint32_t)bytes)] ^= (uint8_t)forge_draw(s, 256);
    read_file(truth, file, forge_draw(s, 2) ? bytes : forge_draw(s, (uint32_t)bytes + 1));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool ready;
    static gsp_step step[STEPS_MAX + FORGED_MAX];
    forge_script script = {data, size}, *s = &script;
    gsp_trail truth, mine;
    ready = ready || gsp_crypto_start() == ATOM_OK;
    ATOM_ASSERT(ready);
    uint32_t options = forge_draw(s, 256);
    seals = forge_seals(NULL);
    terms = (gsp_chain_terms){.seals = &seals,
                              .trust = options & 1 ? GSP_STRANGERS : GSP_FRIENDS,
                              .owner = forge_member(OWNER).key};
    keys.owned = options & 2 ? UINT64_MAX : (uint64_t)1 << (1 + forge_draw(s, PEOPLE - 1));
    if (!(options & 2) && (options & 4))
        keys.owned |= (uint64_t)1 << (1 + forge_draw(s, PEOPLE - 1));
    keys.owned |= (uint64_t)3 << PEOPLE; /* who is on no roster yet */
    live(&truth, s);
    for (uint32_t k = 0; k < 4 && s->left; k++) {
        uint32_t n = tell(&truth, s, step);
        gsp_trail_open(&mine, &terms);
        ATOM_ASSERT(gsp_trail_copy(&mine, &truth) == ATOM_OK);
        gsp_trail_cut(&mine, forge_draw(s, 2) ? truth.n : forge_draw(s, truth.n + 1));
        if (forge_draw(s, 4))
            hear(&mine, step, n, s);
        else
            try_file(&truth, step, n, s);
        gsp_trail_close(&mine);
    }
    if (options & 8) /* any bytes */
        read_file(&truth, data, size);
    gsp_trail_close(&truth);
    return 0;
}
