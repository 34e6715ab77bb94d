/*
 * Owns the way of bytes through the gate: local socket -> seal -> TCP, and TCP -> open -> local
 * socket. Its one idea: one record per direction is in memory, and a direction only reads when what
 * it read before is gone, so a slow side slows the other by itself. It refuses to look into
 * messages.
 */
#include "gossip/gate/gate_inner.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

/* A record per direction, then other streams get their turn: so all of them start at once. */
enum { TURNS_OF_A_RECORD = 3 };
/* Larger marks make the kernel offer smaller windows. */
enum { LOW_WATER_MAX = 16384 };

static bool again(void)
{
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

/* Sends from[out_at .. end). WAITS: the socket is full, or all is gone (out_at == end). */
static pump_result send_until(gsp_gate *g, gate_stream *s, const uint8_t *from, size_t end,
                              const char **why)
{
    while (s->out_at < end && s->tcp_out) {
        ssize_t n = send(s->tcp, from + s->out_at, end - s->out_at, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && again()) {
            s->tcp_out = false;
        } else if (n < 0) {
            *why = strerror(errno);
            return PUMP_OVER;
        } else {
            s->out_at += (size_t)n;
            atomic_fetch_add_explicit(&g->sent_bytes, (uint64_t)n, memory_order_relaxed);
        }
    }
    return PUMP_WAITS;
}

/* Sends what is sealed; it counts towards the cap. */
static pump_result send_sealed(gsp_gate *g, gate_stream *s, const char **why)
{
    size_t before = s->out_at;
    pump_result result = send_until(g, s, s->out, s->out_end, why);
    gate_cap_take(&g->up, s->out_at - before);
    return result;
}

static pump_result pump_out(gsp_gate *g, gate_stream *s, const char **why)
{
    if (send_sealed(g, s, why) == PUMP_OVER)
        return PUMP_OVER;
    if (s->out_at < s->out_end || !s->host_in || !gate_cap_lets(g, s, &g->up))
        return PUMP_WAITS;
    s->out_at = s->out_end = 0;
    ssize_t n = recv(s->host, s->out + GSP_RECORD_HEAD_BYTES, GSP_RECORD_BYTES_MAX, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR)
        return PUMP_MORE;
    if (n < 0 && again()) {
        s->host_in = false;
        return PUMP_WAITS;
    }
    if (n <= 0) {
        *why = "closed on this side";
        return PUMP_OVER;
    }
    if (n < GSP_RECORD_BYTES_MAX && !s->host_end)
        s->host_in = false; /* that was all: the next byte rings again */
    atomic_fetch_add_explicit(&s->moved, (uint64_t)n, memory_order_relaxed);
    s->out_end = gsp_record_seal(&s->seal, s->out, (size_t)n);
    return send_sealed(g, s, why) == PUMP_OVER ? PUMP_OVER : PUMP_MORE;
}

/* Hands opened bytes to the local socket. */
static pump_result write_plain(gate_stream *s, const char **why)
{
    while (s->plain_at < s->plain_end && s->host_out) {
        ssize_t n = send(s->host, s->in + s->plain_at, s->plain_end - s->plain_at,
                         MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && again()) {
            s->host_out = false;
        } else if (n < 0) {
            *why = "closed on this side";
            return PUMP_OVER;
        } else {
            s->plain_at += (size_t)n;
            atomic_fetch_add_explicit(&s->moved, (uint64_t)n, memory_order_relaxed);
        }
    }
    return PUMP_WAITS;
}

/* Opens the record that fills `in`, and keeps the next head, which came with it. */
static bool open_record(gsp_gate *g, gate_stream *s)
{
    size_t n = gsp_record_length(s->in);
    bool right = gsp_record_open(&s->open, s->in, n);
    if (right && s->state == STREAM_RUNNING && !s->raw)
        right = gsp_frames_pass(&s->frames, s->in + GSP_RECORD_HEAD_BYTES, n);
    if (!right) {
        atomic_fetch_add(&g->records_refused, 1);
        return false;
    }
    s->plain_at = GSP_RECORD_HEAD_BYTES;
    s->plain_end = s->plain_at + n;
    return true;
}

/* After a record's plain bytes are gone: begin the next one with what is here of its head. */
static void next_record(gate_stream *s)
{
    size_t size = s->plain_end + GSP_RECORD_TAG_BYTES;
    size_t rest = s->in_end - size;
    memmove(s->in, s->in + size, rest);
    s->in_end = rest;
    s->plain_at = s->plain_end = 0;
}

/* Nothing can be done with half a record: sleep until more of it is here, which halves the cost of
 * receiving. Setting the mark rings when it has been reached already. */
static void await_bytes(gate_stream *s, size_t bytes)
{
    int low_water = (int)(bytes < LOW_WATER_MAX ? bytes : LOW_WATER_MAX);
    s->tcp_in = false;
    if (low_water != s->low_water)
        setsockopt(s->tcp, SOL_SOCKET, SO_RCVLOWAT, &low_water, sizeof low_water);
    s->low_water = low_water;
}

static pump_result receive(gsp_gate *g, gate_stream *s, const char **why)
{
    size_t want = GSP_RECORD_HEAD_BYTES, n = 0;
    if (s->in_end >= GSP_RECORD_HEAD_BYTES) {
        n = gsp_record_length(s->in);
        if (n == 0) {
            atomic_fetch_add(&g->records_refused, 1);
            *why = "a record was forged or damaged";
            return PUMP_OVER;
        }
        want = GSP_RECORD_HEAD_BYTES + n + GSP_RECORD_TAG_BYTES;
        if (s->in_end >= want) {
            if (open_record(g, s))
                return PUMP_MORE;
            *why = "a record was forged or damaged";
            return PUMP_OVER;
        }
    }
    size_t room = want + (n ? GSP_RECORD_HEAD_BYTES : 0); /* with the next head, in one call */
    if (!s->tcp_in || !gate_cap_lets(g, s, &g->down))
        return PUMP_WAITS;
    ssize_t got = recv(s->tcp, s->in + s->in_end, room - s->in_end, MSG_DONTWAIT);
    if (got > 0) {
        bool all = (size_t)got < room - s->in_end && !s->tcp_end;
        s->in_end += (size_t)got;
        gate_cap_take(&g->down, (size_t)got);
        if (all && s->in_end < want)
            await_bytes(s, want - s->in_end);
        atomic_fetch_add_explicit(&g->received_bytes, (uint64_t)got, memory_order_relaxed);
        return PUMP_MORE;
    }
    if (got < 0 && errno == EINTR)
        return PUMP_MORE;
    if (got < 0 && again()) {
        await_bytes(s, want - s->in_end);
        return PUMP_WAITS;
    }
    *why = got == 0 ? "the peer closed the connection" : strerror(errno);
    return PUMP_OVER;
}

static pump_result pump_in(gsp_gate *g, gate_stream *s, const char **why)
{
    for (int i = 0; i < TURNS_OF_A_RECORD; i++) {
        if (s->plain_end) {
            if (write_plain(s, why) == PUMP_OVER)
                return PUMP_OVER;
            if (s->plain_at < s->plain_end)
                return PUMP_WAITS;
            next_record(s);
        }
        pump_result result = receive(g, s, why);
        if (result != PUMP_MORE)
            return result;
    }
    return PUMP_MORE;
}

/* nanomsg gives its peer one second to speak, and the other host's may not be there yet: so the
 * first record of each side is one byte that says that it is. */
pump_result gate_pump_ready(gsp_gate *g, gate_stream *s, bool *ready, const char **why)
{
    *ready = false;
    if (s->seal.count == 0) {
        s->out[GSP_RECORD_HEAD_BYTES] = 1;
        s->out_end = gsp_record_seal(&s->seal, s->out, 1);
    }
    if (send_sealed(g, s, why) == PUMP_OVER)
        return PUMP_OVER;
    pump_result result = PUMP_MORE;
    while (result == PUMP_MORE && !s->plain_end)
        result = receive(g, s, why);
    if (s->plain_end && s->plain_end - s->plain_at != 1) {
        *why = "the peer speaks another protocol behind its gate";
        return PUMP_OVER;
    }
    if (s->plain_end && s->out_at == s->out_end) {
        next_record(s);
        *ready = true;
    }
    return result == PUMP_OVER ? PUMP_OVER : PUMP_WAITS;
}

pump_result gate_pump(gsp_gate *g, gate_stream *s, const char **why)
{
    pump_result in = pump_in(g, s, why);
    if (in == PUMP_OVER)
        return PUMP_OVER;
    pump_result out = pump_out(g, s, why);
    if (out == PUMP_OVER)
        return PUMP_OVER;
    return in == PUMP_MORE || out == PUMP_MORE ? PUMP_MORE : PUMP_WAITS;
}

/* Sends the handshake's answer, as far as the socket takes it. */
static pump_result send_answer(gsp_gate *g, gate_stream *s, const char **why)
{
    gsp_handshake *h = s->shake;
    if (send_until(g, s, h->out, h->out_bytes, why) == PUMP_OVER)
        return PUMP_OVER;
    if (s->out_at == h->out_bytes) {
        gsp_handshake_sent(h);
        s->out_at = 0;
    }
    return PUMP_WAITS;
}

pump_result gate_pump_shake(gsp_gate *g, gate_stream *s, const char **why)
{
    gsp_handshake *h = s->shake;
    uint8_t data[GSP_HANDSHAKE_BYTES_MAX];
    size_t used = 0;
    for (;;) {
        if (send_answer(g, s, why) == PUMP_OVER)
            return PUMP_OVER;
        size_t want = gsp_handshake_wants(h);
        if (want == 0 || h->out_bytes || !s->tcp_in)
            return PUMP_WAITS;
        ssize_t n = recv(s->tcp, data, want, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && again()) {
            s->tcp_in = false;
            return PUMP_WAITS;
        }
        if (n <= 0) {
            *why = n == 0 || errno == ECONNRESET ? GSP_GATE_SHUT : strerror(errno);
            return PUMP_OVER;
        }
        atomic_fetch_add_explicit(&g->received_bytes, (uint64_t)n, memory_order_relaxed);
        if (gsp_handshake_feed(h, data, (size_t)n, &used) != GSP_HANDSHAKE_GOES_ON)
            want = 0; /* the last answer may still wait to be sent */
    }
}
