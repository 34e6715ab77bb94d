/*
 * Owns a member's side of audits (audit.h): its last contribution, kept for who wants to check what
 * became of it; the case that is looked into; and proofs, in memory for others and on disk for
 * good. Its one idea: the bytes of a case prove themselves by the roots in the owner's own word, so
 * they may come from anybody. It refuses to hold more than one case, one proof and one
 * contribution.
 */
#include "gossip/member/node_inner.h"

#include "atom/base/clock.h"
#include "atom/base/files.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"
#include "gossip/member/evidence.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

static const uint64_t SECOND = 1000000000u, ASK_NS = 2000000000u, PATIENCE_NS = 20000000000u;
static const uint64_t CASE_BYTES_MAX = (uint64_t)1 << 30;
static const uint64_t FILE_BYTES_MAX = ((uint64_t)1 << 30) + (1 << 20);
enum { FILES_MAX = 64 };

/* ---- what I brought last ---- */

void gsp_audit_keep(gsp_node *d, const gsp_certificate *c)
{
    const gsp_freezing *f = &d->freezing;
    gsp_brought *k = &d->kept;
    uint32_t n_parts = d->config.rules.n_parts;
    uint64_t first;
    k->version = 0;
    if (d->config.rules.audit_percent == 0 || !f->done || !f->x ||
        f->version != c->proposal.version)
        return;
    if (d->config.codec == GSP_CODEC_FP32) {
        uint64_t n = d->config.n_floats[f->version % d->config.n_fragments];
        atom_free(k->encoded);
        k->encoded = atom_alloc(n ? n : 1, sizeof(float));
        d->freezing.done = false; /* the work may change it, once the version is applied */
        if (!k->encoded)
            return; /* then nobody can check this one with my help */
        memcpy(k->encoded, f->x, n * sizeof(float));
    } else {
        atom_free(k->encoded);
        k->encoded = d->freezing.encoded;
        d->freezing.encoded = NULL;
        d->freezing.done = false; /* its parts are found here from now on */
    }
    for (uint32_t p = 0; p < n_parts; p++) {
        gsp_node_part_floats(d, f->version, p, &first);
        k->offset[p] = p ? k->offset[p - 1] + gsp_node_part_bytes(d, f->version, p - 1) : 0;
    }
    memcpy(k->leaf, f->leaf, sizeof k->leaf);
    k->root = f->contribution.root;
    k->version = f->version;
}

/* ---- bytes for others ---- */

static bool exhibit_of_mine(gsp_node *d, uint64_t version, const gsp_hash *root, uint32_t part,
                            gsp_exhibit *out)
{
    const gsp_brought *k = &d->kept;
    uint32_t n_parts = d->config.rules.n_parts;
    const uint8_t *own = gsp_node_own_part(d, version, root, part);
    if (own) {
        out->data = own;
        out->n_path = gsp_merkle_path(d->freezing.leaf, n_parts, part, out->path);
        return true;
    }
    if (k->version != version || version == 0 || !gsp_hash_equal(&k->root, root))
        return false;
    out->data = k->encoded + k->offset[part];
    out->n_path = gsp_merkle_path(k->leaf, n_parts, part, out->path);
    return true;
}

bool gsp_audit_exhibit(gsp_node *d, uint64_t version, const gsp_hash *root, uint32_t part,
                       gsp_exhibit *out)
{
    const gsp_case *proof = &d->proof;
    if (part >= d->config.rules.n_parts)
        return false;
    memset(out, 0, sizeof *out);
    out->bytes = gsp_node_part_bytes(d, version, part);
    if (exhibit_of_mine(d, version, root, part, out))
        return true;
    for (uint32_t i = 0; i < proof->claim.n_contributors; i++) {
        const gsp_blob *b = proof->input[i];
        if (!b || proof->claim.version != version || proof->claim.number != part ||
            !gsp_hash_equal(&b->root, root))
            continue;
        out->data = b->data;
        out->n_path = b->n_path;
        memcpy(out->path, b->path, sizeof out->path);
        return true;
    }
    return false;
}

/* ---- a case ---- */

static void case_close(gsp_node *d, gsp_case *c)
{
    for (uint32_t i = 0; i < GSP_MEMBERS_MAX; i++)
        gsp_blob_close(d, &c->input[i]);
    memset(c, 0, sizeof *c);
}

void gsp_audit_start(gsp_node *d, const gsp_action *action)
{
    gsp_case *c = &d->audit;
    static const gsp_key nobody;
    case_close(d, c);
    c->on = true;
    c->claim = *action->claim;
    c->accuser = action->peer;
    c->accused = gsp_key_compare(&action->peer, &nobody) != 0;
    c->began_ns = c->news_ns = atom_clock_ns();
    uint64_t bytes = gsp_node_part_bytes(d, c->claim.version, c->claim.number);
    uint32_t n = (uint32_t)__builtin_popcount(c->claim.part.included);
    c->hopeless = bytes * n > CASE_BYTES_MAX;
    for (uint32_t i = 0; i < c->claim.n_contributors && !c->hopeless; i++) {
        gsp_exhibit mine;
        const gsp_hash *root = &c->claim.contributor[i].root;
        if ((c->claim.part.included >> i & 1) &&
            gsp_audit_exhibit(d, c->claim.version, root, c->claim.number, &mine))
            c->input[i] = gsp_blob_copy(root, &mine);
    }
}

gsp_blob **gsp_audit_place(gsp_node *d, const gsp_message *m)
{
    gsp_case *c = &d->audit;
    const gsp_piece *p = &m->as.piece;
    if (!c->on || p->is_result || m->version != c->claim.version || p->part != c->claim.number)
        return NULL;
    for (uint32_t i = 0; i < c->claim.n_contributors; i++)
        if ((c->claim.part.included >> i & 1) &&
            gsp_hash_equal(&c->claim.contributor[i].root, &p->root)) {
            c->news_ns = atom_clock_ns();
            return &c->input[i];
        }
    return NULL;
}

static void pull_one(gsp_node *d, gsp_friend *to, const gsp_case *c, uint32_t i)
{
    gsp_message *m = &d->scratch_message;
    memset(m, 0, gsp_message_bytes(GSP_PULL));
    m->kind = GSP_PULL;
    m->from = d->agree.self;
    m->lineage = d->agree.lineage;
    m->version = c->claim.version;
    m->as.pull = (gsp_pull){.root = c->claim.contributor[i].root, .part = c->claim.number};
    gsp_node_tell(d, to, m);
}

/* Who accuses has all; else who brought it, as long as it is known who that was. */
static void pull_missing(gsp_node *d, gsp_case *c)
{
    const gsp_audits *u = &d->agree.audits;
    bool roster = u->version == c->claim.version;
    c->asked_ns = atom_clock_ns();
    c->turn++;
    for (uint32_t i = 0; i < c->claim.n_contributors; i++) {
        gsp_friend *to = NULL;
        uint32_t who = c->claim.contributor[i].member;
        if (!(c->claim.part.included >> i & 1) || (c->input[i] && c->input[i]->whole))
            continue;
        if (roster && who < u->roster.n && (!c->accused || c->turn % 2 == 0))
            to = gsp_friend_find(d, &u->roster.member[who].key);
        if (!to && c->accused)
            to = gsp_friend_find(d, &c->accuser);
        if (to)
            pull_one(d, to, c, i);
    }
}

static bool complete(const gsp_case *c)
{
    for (uint32_t i = 0; i < c->claim.n_contributors; i++)
        if ((c->claim.part.included >> i & 1) && (!c->input[i] || !c->input[i]->whole))
            return false;
    return true;
}

/* ---- verdicts ---- */

static void name_of(const gsp_claim *c, char *name, size_t bytes)
{
    snprintf(name, bytes, "evidence-%02x%02x%02x%02x%02x%02x%02x%02x-%llu-%u", c->owner.key.byte[0],
             c->owner.key.byte[1], c->owner.key.byte[2], c->owner.key.byte[3], c->owner.key.byte[4],
             c->owner.key.byte[5], c->owner.key.byte[6], c->owner.key.byte[7],
             (unsigned long long)c->version, c->number);
}

/* Known from now on, with the reason; the newest stays where there are many. */
static gsp_ban *ban_note(gsp_node *d, const gsp_key *key)
{
    gsp_ban *b = &d->status.ban[d->status.n_bans++ % GSP_BANS_SHOWN];
    memset(b, 0, sizeof *b);
    b->key = *key;
    return b;
}

void gsp_audit_words(gsp_node *d, const gsp_evidence *e)
{
    char name[80], who[GSP_PUBLIC_TEXT_BYTES];
    const gsp_key *key = &e->first.signer.key;
    gsp_ban *ban = ban_note(d, key);
    gsp_claim of = {.owner = e->first.signer, .version = e->first.version};
    name_of(&of, name, sizeof name - 6);
    strcat(name, "-words");
    gsp_words_text(e, ban->why, sizeof ban->why);
    char *path = atom_path_join(d->config.directory, name);
    atom_status st = path ? gsp_evidence_write_words(path, e) : atom_fail_memory("a path", 256);
    if (st == ATOM_OK)
        snprintf(ban->file, sizeof ban->file, "%s", path);
    else /* the ban holds until a restart */
        atom_log(ATOM_LOG_WARN, "evidence against a member is not kept: %s", atom_fail_message());
    atom_log(ATOM_LOG_WARN, "member %s is banned: %s%s%s", gsp_public_text(key->byte, who),
             ban->why, st == ATOM_OK ? "; evidence: " : "", st == ATOM_OK ? path : "");
    atom_free(path);
}

static void proven(gsp_node *d, gsp_case *c)
{
    gsp_exhibit exhibit[GSP_MEMBERS_MAX] = {0};
    char name[64], who[GSP_PUBLIC_TEXT_BYTES];
    gsp_ban *ban = ban_note(d, &c->claim.owner.key);
    name_of(&c->claim, name, sizeof name);
    for (uint32_t i = 0; i < c->claim.n_contributors; i++) {
        const gsp_blob *b = c->claim.part.included >> i & 1 ? c->input[i] : NULL;
        if (!b)
            continue;
        exhibit[i] = (gsp_exhibit){.data = b->data, .bytes = b->bytes, .n_path = b->n_path};
        memcpy(exhibit[i].path, b->path, sizeof b->path);
    }
    char *path = atom_path_join(d->config.directory, name);
    atom_status st = path ? gsp_evidence_write(path, &d->agree.genesis, &c->claim, exhibit)
                          : atom_fail_memory("a path", 256);
    gsp_claim_text(&c->claim, ban->why, sizeof ban->why);
    if (st == ATOM_OK)
        snprintf(ban->file, sizeof ban->file, "%s", path);
    else /* the ban holds until a restart */
        atom_log(ATOM_LOG_WARN, "evidence against a member is not kept: %s", atom_fail_message());
    atom_log(ATOM_LOG_WARN, "member %s is banned: %s%s%s",
             gsp_public_text(c->claim.owner.key.byte, who), ban->why,
             st == ATOM_OK ? "; evidence: " : "", st == ATOM_OK ? path : "");
    atom_free(path);
    case_close(d, &d->proof);
    d->proof = *c;
    memset(c->input, 0, sizeof c->input); /* they are the proof's now */
}

static void close_with(gsp_node *d, gsp_verdict verdict)
{
    gsp_case *c = &d->audit;
    gsp_event event = {.kind = GSP_ON_AUDITED,
                       .version = c->claim.version,
                       .part = c->claim.number,
                       .verdict = verdict};
    if (verdict == GSP_VERDICT_LIE)
        proven(d, c);
    case_close(d, c);
    gsp_node_step(d, &event);
}

/* All is here: the sum again. */
static void judge(gsp_node *d)
{
    gsp_case *c = &d->audit;
    const void *input[GSP_MEMBERS_MAX] = {0};
    uint64_t first, n = gsp_node_part_floats(d, c->claim.version, c->claim.number, &first);
    uint64_t bytes = gsp_codec_bytes(d->config.codec, n);
    gsp_part made;
    atom_status st;
    void *out = atom_alloc(1, bytes ? bytes : 1);
    if (!out) {
        close_with(d, GSP_VERDICT_OPEN);
        return;
    }
    for (uint32_t i = 0; i < c->claim.n_contributors; i++)
        input[i] = c->claim.part.included >> i & 1 ? c->input[i]->data : NULL;
    bool made_it =
        gsp_mix_part(&d->mix, c->claim.number, c->claim.contributor, c->claim.n_contributors, input,
                     c->claim.part.included, n, out, &made, &st);
    atom_free(out);
    close_with(d, st != ATOM_OK ? GSP_VERDICT_OPEN
                                : gsp_claim_judge(&c->claim, made_it ? &made : NULL));
}

bool gsp_audit_work(gsp_node *d)
{
    gsp_case *c = &d->audit;
    uint64_t now = atom_clock_ns();
    if (!c->on)
        return false;
    if (complete(c)) {
        if (d->applying || d->n_reduce || (d->freezing.on && !d->freezing.later))
            return false; /* the round goes first */
        judge(d);
        return d->audit.on;
    }
    if (c->hopeless || now - c->news_ns > PATIENCE_NS || now - c->began_ns > 60 * SECOND) {
        close_with(d, GSP_VERDICT_OPEN);
        return d->audit.on;
    }
    if (c->asked_ns == 0 || now - c->asked_ns > ASK_NS)
        pull_missing(d, c);
    return false;
}

/* ---- after a restart ---- */

static void stays_banned(gsp_node *d, const gsp_key *key, const char *why, const char *path)
{
    char who[GSP_PUBLIC_TEXT_BYTES];
    gsp_event event = {.kind = GSP_ON_PROVEN, .peer = *key};
    gsp_ban *ban = ban_note(d, key);
    snprintf(ban->why, sizeof ban->why, "%s", why);
    snprintf(ban->file, sizeof ban->file, "%s", path);
    atom_log(ATOM_LOG_INFO, "member %s stays banned; evidence: %s", gsp_public_text(key->byte, who),
             path);
    gsp_node_step(d, &event);
}

static void recall(gsp_node *d, const char *path)
{
    char *data = NULL, why[200];
    gsp_evidence words;
    uint64_t bytes = 0;
    gsp_terms terms = {.pool = d->config.genesis.pool,
                       .codec = d->config.codec,
                       .robust = d->config.robust,
                       .n_parts = d->config.rules.n_parts,
                       .n_fragments = d->config.n_fragments,
                       .n_floats = d->config.n_floats};
    gsp_finding *f = atom_alloc(1, sizeof *f);
    atom_status st = f ? atom_file_read(path, FILE_BYTES_MAX, &data, &bytes) : ATOM_E_RESOURCE;
    bool two = st == ATOM_OK && gsp_evidence_is_words(data, bytes);
    if (st == ATOM_OK)
        st = two ? gsp_evidence_judge_words(data, bytes, &words)
                 : gsp_evidence_judge(&terms, data, bytes, f);
    if (st == ATOM_OK && two) {
        stays_banned(d, &words.first.signer.key, gsp_words_text(&words, why, sizeof why), path);
    } else if (st == ATOM_OK && f->verdict == GSP_VERDICT_LIE) {
        stays_banned(d, &f->claim.owner.key, gsp_claim_text(&f->claim, why, sizeof why), path);
    } else {
        atom_log(ATOM_LOG_WARN, "%s: %s", path,
                 st == ATOM_OK ? "this proves nothing: what the owner said is true"
                               : atom_fail_message());
    }
    atom_free(data);
    atom_free(f);
}

void gsp_audit_recall(gsp_node *d)
{
    DIR *dir = opendir(d->config.directory);
    struct dirent *e;
    for (uint32_t n = 0; dir && n < FILES_MAX && (e = readdir(dir));) {
        if (strncmp(e->d_name, "evidence-", 9) != 0 || strchr(e->d_name + 9, '.'))
            continue;
        char *path = atom_path_join(d->config.directory, e->d_name);
        if (path)
            recall(d, path);
        atom_free(path);
        n++;
    }
    if (dir)
        closedir(dir);
}

/* Who was banned in a way that nobody noted. */
void gsp_audit_note(gsp_node *d, uint32_t n_before)
{
    char who[GSP_PUBLIC_TEXT_BYTES];
    for (uint32_t k = n_before; k < d->agree.n_banned; k++) {
        const gsp_key *key = &d->agree.banned[k % GSP_BANNED_MAX];
        bool known = false;
        for (uint32_t i = 0; i < d->status.n_bans && i < GSP_BANS_SHOWN; i++)
            known |= gsp_key_compare(&d->status.ban[i].key, key) == 0;
        if (known)
            continue;
        gsp_ban *ban = ban_note(d, key);
        snprintf(ban->why, sizeof ban->why, "it signed two things where one is allowed");
        atom_log(ATOM_LOG_WARN, "member %s is banned: %s", gsp_public_text(key->byte, who),
                 ban->why);
    }
}

void gsp_audit_close(gsp_node *d)
{
    case_close(d, &d->audit);
    case_close(d, &d->proof);
    atom_free(d->kept.encoded);
    d->kept.encoded = NULL;
    d->kept.version = 0;
}
