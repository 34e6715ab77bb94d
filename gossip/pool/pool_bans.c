/*
 * Owns what a host tells of members that were banned: one event each, and a list for status. One
 * idea: the member decides and keeps the evidence; here it is only said. It refuses to ban.
 */
#include "gossip/pool/pool_inner.h"

#include "atom/base/mem.h"

#include <jansson.h>
#include <string.h>

void life_watch_bans(gsp_pool *p)
{
    gsp_node_status *s = atom_alloc(1, sizeof *s);
    if (!s)
        return;
    gsp_node_read_status(p->driver, s);
    for (; p->seen_bans < s->n_bans; p->seen_bans++) {
        char who[GSP_PUBLIC_TEXT_BYTES];
        const gsp_ban *b = &s->ban[p->seen_bans % GSP_BANS_SHOWN];
        json_t *file = json_string(b->file);
        char *text = file ? json_dumps(file, JSON_ENCODE_ANY) : NULL;
        gsp_diary_add(
            &p->diary, "\"event\":\"banned\",\"key\":\"%s\",\"why\":\"%s\",\"evidence\":%s",
            gsp_public_text(b->key.byte, who), b->why, b->file[0] && text ? text : "null");
        json_decref(file);
        free(text);
    }
    atom_free(s);
}

json_t *life_bans_json(const gsp_node_status *s)
{
    json_t *list = json_array();
    for (uint32_t k = s->n_bans > GSP_BANS_SHOWN ? s->n_bans - GSP_BANS_SHOWN : 0; k < s->n_bans;
         k++) {
        char who[GSP_PUBLIC_TEXT_BYTES];
        const gsp_ban *b = &s->ban[k % GSP_BANS_SHOWN];
        json_array_append_new(
            list, json_pack("{s:s, s:s, s:o}", "key", gsp_public_text(b->key.byte, who), "why",
                            b->why, "evidence", b->file[0] ? json_string(b->file) : json_null()));
    }
    return list;
}
