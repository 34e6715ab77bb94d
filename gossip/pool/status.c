/*
 * Owns the JSON of what is seen of a membership. Its one idea: it is made of a copy, on the thread
 * of whoever asks. It refuses to look at anything that is alive.
 */
#include "gossip/pool/status.h"

#include "atom/base/mem.h"
#include "gossip/trust/identity.h"

#include <jansson.h>
#include <sodium.h>

static const char *const stages[] = {"seeking", "asking",  "reading", "fetching",
                                     "ready",   "running", "left",    "dead"};
static const char *const wishes[] = {"go", "pause", "rest", "stop"};

static json_t *key_json(const uint8_t *key)
{
    char text[GSP_PUBLIC_TEXT_BYTES];
    return json_string(gsp_public_text(key, text));
}

static json_t *hash_json(const gsp_hash *hash)
{
    char text[2 * GSP_HASH_BYTES + 1];
    sodium_bin2hex(text, sizeof text, hash->byte, sizeof hash->byte);
    return json_string(text);
}

json_t *gsp_pool_text_json(const char *text)
{
    json_t *right = json_string(text);
    char *plain = right ? NULL : atom_strdup(text);
    for (char *c = plain; c && *c; c++)
        *c = *c & 0x80 ? '?' : *c;
    if (plain)
        right = json_string(plain);
    atom_free(plain);
    return right;
}

static json_t *peer_json(const gsp_pool_peer *x)
{
    static const gsp_address nowhere;
    char at[GSP_ADDRESS_TEXT_BYTES];
    return json_pack(
        "{s:o, s:s, s:b, s:b, s:b, s:b, s:b, s:b, s:b, s:o, s:I, s:I, s:I, s:I, s:I, s:f, s:I, "
        "s:I, "
        "s:b, s:o}",
        "key", key_json(x->key), "name", x->name, "self", x->self, "up", x->up, "on_roster",
        x->on_roster, "waiting", x->waiting, "rests", x->rests, "muted", x->muted, "relayed",
        x->relayed, "address",
        gsp_address_equal(&x->address, &nowhere) ? json_null()
                                                 : json_string(gsp_address_text(&x->address, at)),
        "version", (json_int_t)x->certified, "applied", (json_int_t)x->applied, "samples",
        (json_int_t)x->samples, "tokens", (json_int_t)x->tokens, "brought", (json_int_t)x->brought,
        "share", x->share, "up_bytes_per_s", (json_int_t)x->rates.up_bytes_per_s,
        "down_bytes_per_s", (json_int_t)x->rates.down_bytes_per_s, "accepts", x->rates.accepts,
        "heard_s", x->heard_s < 0 ? json_null() : json_real(x->heard_s));
}

static json_t *month_json(const gsp_quota *q)
{
    char text[160];
    return json_pack("{s:i, s:I, s:I, s:I, s:I, s:s}", "month", (int)q->month, "up_bytes",
                     (json_int_t)q->up, "up_max_bytes", (json_int_t)q->up_max, "down_bytes",
                     (json_int_t)q->down, "down_max_bytes", (json_int_t)q->down_max, "text",
                     gsp_quota_text(q, text, sizeof text));
}

static json_t *rounds_json(const gsp_pool_status *s)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < s->n_rounds; i++) {
        const gsp_pool_round *r = &s->round[i];
        json_array_append_new(
            list, json_pack("{s:I, s:i, s:i, s:I, s:I, s:f, s:f}", "version",
                            (json_int_t)r->version, "contributors", (int)r->n_contributors,
                            "roster", (int)r->n_roster, "tokens", (json_int_t)r->tokens, "samples",
                            (json_int_t)r->samples, "time", r->wall_s, "round_s", r->round_s));
    }
    return list;
}

static json_t *bans_json(const gsp_node_status *s)
{
    json_t *list = json_array();
    for (uint32_t k = s->n_bans > GSP_BANS_SHOWN ? s->n_bans - GSP_BANS_SHOWN : 0; k < s->n_bans;
         k++) {
        char who[GSP_PUBLIC_TEXT_BYTES];
        const gsp_ban *b = &s->ban[k % GSP_BANS_SHOWN];
        json_array_append_new(list,
                              json_pack("{s:s, s:o, s:o}", "key", gsp_public_text(b->key.byte, who),
                                        "why", gsp_pool_text_json(b->why), "evidence",
                                        b->file[0] ? gsp_pool_text_json(b->file) : json_null()));
    }
    return list;
}

/* What is said of the pool and of this host. */
static json_t *head_json(const gsp_pool_status *s, const gsp_pool_head *head)
{
    return json_pack("{s:b, s:s, s:s, s:s, s:s, s:o, s:s, s:o, s:b, s:i, s:i, s:f}", "ok", 1,
                     "name", head->name, "trust", gsp_trust_name(head->trust), "settings",
                     head->settings, "state", stages[s->stage], "text", gsp_pool_text_json(s->text),
                     "wish", wishes[s->wish], "key", key_json(head->key), "owner", head->is_owner,
                     "manifest", (int)s->manifest, "port", (int)head->port, "up_s", s->up_s);
}

static json_t *counts_json(const gsp_pool_status *s)
{
    json_t *peers = json_array();
    for (uint32_t i = 0; i < s->n_peers; i++)
        json_array_append_new(peers, peer_json(&s->peer[i]));
    return json_pack(
        "{s:I, s:I, s:o, s:o, s:b, s:o, s:i, s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o}",
        "version", (json_int_t)s->member.certified, "applied", (json_int_t)s->member.applied,
        "lineage", hash_json(&s->member.lineage), "newest", hash_json(&s->member.newest),
        "is_member", s->member.is_member, "alone_from",
        s->member.alone ? json_integer((json_int_t)s->member.alone_from) : json_null(), "roster",
        (int)s->member.n_roster, "links", (int)s->member.n_links, "certified_tokens",
        (json_int_t)s->tokens, "certified_samples", (json_int_t)s->samples, "samples",
        (json_int_t)s->own_samples, "tokens", (json_int_t)s->own_tokens, "bytes_out",
        (json_int_t)s->bytes_out, "bytes_in", (json_int_t)s->bytes_in, "faults",
        (json_int_t)s->faults, "members", peers, "rounds", rounds_json(s));
}

static json_t *month_and_audits_json(const gsp_pool_status *s)
{
    return json_pack("{s:o, s:o, s:I, s:I, s:I, s:I}", "month", month_json(&s->quota), "banned",
                     bans_json(&s->member), "audits", (json_int_t)s->member.audits, "audits_open",
                     (json_int_t)s->member.audits_open, "false_accusations",
                     (json_int_t)s->member.false_claims, "unanswered",
                     (json_int_t)s->member.unanswered);
}

/* What contacts in the directory say; null: none was seen there lately. */
static json_t *directory_json(const gsp_heartbeats_seen *d)
{
    char text[GSP_HEARTBEATS_TEXT_BYTES];
    json_t *o = d->members
                    ? json_pack("{s:I, s:I, s:I, s:f, s:I, s:s}", "members", (json_int_t)d->members,
                                "version", (json_int_t)d->version, "samples",
                                (json_int_t)d->samples, "samples_per_s", d->samples_per_s, "time",
                                (json_int_t)d->issued_s, "text", gsp_heartbeats_text(d, text))
                    : json_null();
    return json_pack("{s:o}", "directory", o);
}

/* Adds the members of `more`, which is taken; false: no memory. */
static bool add(json_t *o, json_t *more)
{
    bool good = o && more && json_object_update(o, more) == 0;
    json_decref(more);
    return good;
}

struct json_t *gsp_pool_status_json(const gsp_pool_status *s, const gsp_pool_head *head)
{
    json_t *o = head_json(s, head);
    if (add(o, counts_json(s)) && add(o, month_and_audits_json(s)) &&
        add(o, directory_json(&s->directory)))
        return o;
    json_decref(o);
    return NULL;
}
