/*
 * Owns the bytes of the words of life. Its one idea: fixed fields first, one body at the end, so
 * that nothing is copied. It refuses what has bytes left over, names that a terminal would obey,
 * and sizes above the limits.
 */
#include "gossip/pool/words.h"

#include "atom/base/assert.h"
#include "atom/base/bytes.h"

#include <string.h>

static void write_address(atom_writer *w, const gsp_address *a)
{
    atom_write_bytes(w, a->ip, sizeof a->ip);
    atom_write_uint(w, a->port, 2);
}

static void read_address(atom_reader *r, gsp_address *a)
{
    *a = (gsp_address){0}; /* a scope means nothing on another host */
    atom_read_bytes(r, a->ip, sizeof a->ip);
    a->port = atom_read_u16(r);
}

static void write_piece(atom_writer *w, const gsp_word *m)
{
    atom_write_bytes(w, m->hash.byte, sizeof m->hash.byte);
    atom_write_uint(w, m->piece, 4);
    if (m->kind == GSP_WORD_ASK_PIECES)
        atom_write_uint(w, m->n_pieces, 2);
    if (m->kind != GSP_WORD_PIECE)
        return;
    atom_write_uint(w, m->n_path, 1);
    atom_write_bytes(w, m->path[0].byte, m->n_path * sizeof m->path[0]);
}

static void read_piece(atom_reader *r, gsp_word *m)
{
    atom_read_bytes(r, m->hash.byte, sizeof m->hash.byte);
    m->piece = atom_read_u32(r);
    if (m->kind == GSP_WORD_ASK_PIECES)
        m->n_pieces = atom_read_u16(r);
    if (m->kind != GSP_WORD_PIECE)
        return;
    m->n_path = atom_read_u8(r);
    if (m->n_path > GSP_STATE_PATH_MAX)
        r->bad = true;
    else
        atom_read_bytes(r, m->path[0].byte, m->n_path * sizeof m->path[0]);
}

gsp_net_channel gsp_word_channel(gsp_word_kind kind)
{
    return kind == GSP_WORD_FILE || kind == GSP_WORD_PIECE ? GSP_NET_BULK : GSP_NET_CONTROL;
}

size_t gsp_word_encode(const gsp_word *m, uint8_t out[GSP_WORD_HEAD_BYTES])
{
    atom_writer w = atom_writer_make(out, GSP_WORD_HEAD_BYTES);
    atom_write_uint(&w, GSP_WORD_MARK, 1);
    atom_write_uint(&w, GSP_WORD_VERSION, 1);
    atom_write_uint(&w, m->kind, 1);
    switch (m->kind) {
    case GSP_WORD_HELLO:
        atom_write_uint(&w, m->number, 4);
        atom_write_bytes(&w, m->name, sizeof m->name);
        write_address(&w, &m->seen);
        atom_write_uint(&w, m->n_contacts, 2);
        break;
    case GSP_WORD_ASK_ADMISSION:
    case GSP_WORD_ADMISSION:
        atom_write_bytes(&w, m->key, sizeof m->key);
        if (m->kind == GSP_WORD_ADMISSION)
            atom_write_uint(&w, m->refusal, 1);
        atom_write_uint(&w, m->credential_bytes, 2);
        atom_write_bytes(&w, m->credential, m->credential_bytes);
        break;
    case GSP_WORD_MANIFEST:
        atom_write_bytes(&w, m->psk, sizeof m->psk);
        break;
    case GSP_WORD_ASK_FILE:
        atom_write_bytes(&w, m->hash.byte, sizeof m->hash.byte);
        atom_write_uint(&w, m->offset, 8);
        atom_write_uint(&w, m->bytes, 4);
        break;
    case GSP_WORD_FILE:
        atom_write_bytes(&w, m->hash.byte, sizeof m->hash.byte);
        atom_write_uint(&w, m->offset, 8);
        atom_write_uint(&w, m->of_bytes, 8);
        break;
    case GSP_WORD_ASK_NOTE:
    case GSP_WORD_NOTE:
        atom_write_bytes(&w, m->hash.byte, sizeof m->hash.byte);
        break;
    case GSP_WORD_ASK_PIECES:
    case GSP_WORD_PIECE:
    case GSP_WORD_NO_PIECE:
        write_piece(&w, m);
        break;
    case GSP_WORD_ASK_MANIFEST:
    case GSP_WORD_N:
        break;
    }
    ATOM_ASSERT(!w.bad);
    return (size_t)(w.at - out);
}

static bool name_right(const char *name)
{
    size_t n = strnlen(name, GSP_WORD_NAME_BYTES);
    if (n == GSP_WORD_NAME_BYTES)
        return false;
    for (size_t i = 0; i < GSP_WORD_NAME_BYTES; i++)
        if (i < n ? name[i] < ' ' || name[i] > '~' : name[i] != 0)
            return false;
    return true;
}

/* Each contact has its size in front, and they fill the body. */
static bool contacts_right(const gsp_word *m)
{
    atom_reader r = atom_reader_make(m->body, m->body_bytes);
    if (m->n_contacts > GSP_WORD_CONTACTS_MAX)
        return false;
    for (uint32_t i = 0; i < m->n_contacts && atom_reader_ok(&r); i++) {
        size_t bytes = atom_read_u16(&r);
        if (bytes > GSP_CONTACT_BODY_BYTES_MAX || bytes > atom_reader_left(&r))
            return false;
        r.at += bytes;
    }
    return atom_reader_ok(&r) && atom_reader_left(&r) == 0;
}

static void read_credential(atom_reader *r, gsp_word *m)
{
    m->credential_bytes = atom_read_u16(r);
    if (m->credential_bytes > sizeof m->credential)
        r->bad = true;
    else
        atom_read_bytes(r, m->credential, m->credential_bytes);
}

static void read_kind(atom_reader *r, gsp_word *m)
{
    switch (m->kind) {
    case GSP_WORD_HELLO:
        m->number = atom_read_u32(r);
        atom_read_bytes(r, m->name, sizeof m->name);
        read_address(r, &m->seen);
        m->n_contacts = atom_read_u16(r);
        break;
    case GSP_WORD_ASK_ADMISSION:
    case GSP_WORD_ADMISSION:
        atom_read_bytes(r, m->key, sizeof m->key);
        if (m->kind == GSP_WORD_ADMISSION)
            m->refusal = atom_read_u8(r);
        read_credential(r, m);
        break;
    case GSP_WORD_MANIFEST:
        atom_read_bytes(r, m->psk, sizeof m->psk);
        break;
    case GSP_WORD_ASK_FILE:
        atom_read_bytes(r, m->hash.byte, sizeof m->hash.byte);
        m->offset = atom_read_u64(r);
        m->bytes = atom_read_u32(r);
        break;
    case GSP_WORD_FILE:
        atom_read_bytes(r, m->hash.byte, sizeof m->hash.byte);
        m->offset = atom_read_u64(r);
        m->of_bytes = atom_read_u64(r);
        break;
    case GSP_WORD_ASK_NOTE:
    case GSP_WORD_NOTE:
        atom_read_bytes(r, m->hash.byte, sizeof m->hash.byte);
        break;
    case GSP_WORD_ASK_PIECES:
    case GSP_WORD_PIECE:
    case GSP_WORD_NO_PIECE:
        read_piece(r, m);
        break;
    case GSP_WORD_ASK_MANIFEST:
    case GSP_WORD_N:
        break;
    }
}

static bool right(const gsp_word *m)
{
    switch (m->kind) {
    case GSP_WORD_HELLO:
        return name_right(m->name) && contacts_right(m);
    case GSP_WORD_MANIFEST:
        return m->body_bytes > 0 && m->body_bytes <= GSP_MANIFEST_TEXT_BYTES_MAX;
    case GSP_WORD_ASK_FILE:
        return m->body_bytes == 0 && m->bytes > 0 && m->bytes <= GSP_WORD_CHUNK_BYTES;
    case GSP_WORD_FILE:
        return m->body_bytes > 0 && m->body_bytes <= GSP_WORD_CHUNK_BYTES &&
               m->offset <= m->of_bytes && m->body_bytes <= m->of_bytes - m->offset;
    case GSP_WORD_NOTE:
        return m->body_bytes <= GSP_WORD_NOTE_BYTES_MAX;
    case GSP_WORD_ASK_PIECES:
        return m->body_bytes == 0 && m->n_pieces > 0 && m->n_pieces <= GSP_WORD_PIECES_MAX &&
               m->piece < GSP_PIECES_MAX;
    case GSP_WORD_PIECE:
        return m->body_bytes > 0 && m->body_bytes <= GSP_PIECE_BYTES && m->piece < GSP_PIECES_MAX;
    default:
        return m->body_bytes == 0;
    }
}

bool gsp_word_decode(const void *data, size_t bytes, gsp_word *out)
{
    atom_reader r = atom_reader_make(data, bytes);
    memset(out, 0, sizeof *out);
    if (atom_read_u8(&r) != GSP_WORD_MARK || atom_read_u8(&r) != GSP_WORD_VERSION)
        return false;
    uint8_t kind = atom_read_u8(&r);
    if (!atom_reader_ok(&r) || kind < GSP_WORD_HELLO || kind >= GSP_WORD_N)
        return false;
    out->kind = (gsp_word_kind)kind;
    read_kind(&r, out);
    out->body = r.at;
    out->body_bytes = atom_reader_left(&r);
    return atom_reader_ok(&r) && right(out);
}

size_t gsp_word_add_contact(uint8_t *body, size_t used, size_t bytes, const gsp_contact *contact)
{
    uint8_t one[GSP_CONTACT_BODY_BYTES_MAX];
    size_t n = gsp_contact_encode(contact, one);
    if (bytes - used < n + 2)
        return used;
    body[used] = (uint8_t)n;
    body[used + 1] = (uint8_t)(n >> 8);
    memcpy(body + used + 2, one, n);
    return used + n + 2;
}

bool gsp_word_next_contact(const gsp_word *m, size_t *at, gsp_contact *out)
{
    while (*at + 2 <= m->body_bytes) {
        size_t n = (size_t)m->body[*at] | (size_t)m->body[*at + 1] << 8;
        const uint8_t *body = m->body + *at + 2;
        *at += 2 + n;
        if (gsp_contact_decode(body, n, out))
            return true; /* one that is malformed is passed over: it may be of a newer atom */
    }
    return false;
}
