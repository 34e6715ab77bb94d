/*
 * Owns a conversation. One idea: each answer is the whole chat rendered anew by the model's
 * template, and the decoder goes back to where the new tokens first differ from those it holds,
 * which is mostly its end. When not all fits, the oldest messages are left out, a question with its
 * answer. Refuses to forget in silence: the result says how many.
 */
#include "atom/generate/writer.h"

#include "atom/base/clock.h"
#include "atom/base/mem.h"
#include "atom/text/utf8.h"

#include <string.h>

struct generate_chat {
    generate_request request; /* with max_tokens that are allowed */
    bool as_many;             /* max_tokens was 0 */
    generate_writer w;
    text_encoder *encoder;
    text_message *messages; /* questions and answers by turns; their texts are ours */
    size_t n, first, capacity;
    uint32_t *held; /* tokens that the decoder holds, [positions] */
    int64_t held_n, positions;
    uint64_t drawn; /* random numbers so far */
};

static atom_status no_prompt(generate_writer *w)
{
    w->stop = text_tokenizer_end(w->tokenizer);
    return ATOM_OK;
}

atom_status generate_chat_open(const generate_request *request, generate_chat **out)
{
    atom_status st;
    generate_chat *c = atom_alloc(1, sizeof *c);
    if (!c)
        return atom_fail_memory("a conversation", sizeof *c);
    c->request = *request;
    c->as_many = request->max_tokens == 0;
    if (c->as_many)
        c->request.max_tokens = GENERATE_CHAT_POSITIONS;
    c->w.request = &c->request;
    ATOM_TRY_CLEAN(generate_writer_open(&c->w, no_prompt, GENERATE_CHAT_POSITIONS));
    ATOM_TRY_CLEAN(text_encoder_open(c->w.tokenizer, &c->encoder));
    c->positions =
        c->w.positions < GENERATE_CHAT_POSITIONS ? c->w.positions : GENERATE_CHAT_POSITIONS;
    c->held = atom_alloc((size_t)c->positions, sizeof *c->held);
    if (!c->held)
        ATOM_TRY_CLEAN(
            atom_fail_memory("a conversation", (uint64_t)c->positions * sizeof *c->held));
    *out = c;
    return ATOM_OK;
cleanup:
    generate_chat_close(&c);
    return st;
}

void generate_chat_reset(generate_chat *c)
{
    for (size_t i = 0; i < c->n; i++)
        atom_free((void *)(uintptr_t)c->messages[i].text);
    c->n = c->first = 0;
}

void generate_chat_close(generate_chat **c_ref)
{
    generate_chat *c = *c_ref;
    if (!c)
        return;
    generate_chat_reset(c);
    text_encoder_close(&c->encoder);
    generate_writer_close(&c->w);
    atom_free(c->messages);
    atom_free(c->held);
    atom_free(c);
    *c_ref = NULL;
}

static atom_status add_message(generate_chat *c, text_role role, const char *text, size_t bytes)
{
    ATOM_TRY(atom_grow(&c->messages, c->n, &c->capacity, sizeof *c->messages));
    char *copy = atom_alloc(bytes + 1, 1);
    if (!copy)
        return atom_fail_memory("a message", bytes);
    memcpy(copy, text, bytes);
    c->messages[c->n++] = (text_message){.role = role, .text = copy, .bytes = bytes};
    return ATOM_OK;
}

static void take_back(generate_chat *c)
{
    c->n--;
    atom_free((void *)(uintptr_t)c->messages[c->n].text);
}

/* seen: the system's message, the messages from `first` on, and the beginning of an answer. */
static atom_status render(generate_chat *c, size_t first)
{
    size_t n = 0, all = c->n - first + 1;
    const char *system = c->request.system;
    text_message *m = atom_alloc(all, sizeof *m);
    if (!m)
        return atom_fail_memory("messages", all * sizeof *m);
    if (system)
        m[n++] = (text_message){.role = TEXT_SYSTEM, .text = system, .bytes = strlen(system)};
    for (size_t i = first; i < c->n; i++)
        m[n++] = c->messages[i];
    atom_status st = generate_writer_encode_chat(&c->w, c->encoder, m, n);
    atom_free(m);
    return st;
}

/* As many messages as fit beside an answer, for which a quarter of all is left, or what was asked
 * for. */
static atom_status fit(generate_chat *c)
{
    int64_t answer = c->positions / 4;
    size_t first = c->first;
    if (c->request.max_tokens < answer)
        answer = c->request.max_tokens;
    for (;; first += 2) {
        ATOM_TRY(render(c, first));
        if ((int64_t)c->w.seen.n + answer <= c->positions)
            break;
        if (first + 1 < c->n)
            continue;
        if ((int64_t)c->w.seen.n < c->positions)
            break; /* alone it fits, with less of an answer */
        return atom_fail(ATOM_E_USAGE,
                         "the message has %zu tokens, including those of the template, but the "
                         "model sees %lld at a time; shorten it",
                         c->w.seen.n, (long long)c->positions);
    }
    c->first = first;
    return ATOM_OK;
}

static atom_status feed(generate_chat *c, int64_t from)
{
    int64_t n = (int64_t)c->w.seen.n;
    generate_decoder_rewind(c->w.decoder, from);
    for (int64_t i = from; i < n; i++) {
        c->held[i] = c->w.seen.ids[i];
        c->w.feed[i - from] = (int32_t)c->held[i];
    }
    c->held_n = from; /* should it fail */
    ATOM_TRY(generate_decoder_feed(c->w.decoder, c->w.feed, n - from));
    c->held_n = n;
    return ATOM_OK;
}

/* What differs from what the decoder holds; at least the last token, for its logits. */
static atom_status feed_prompt(generate_chat *c)
{
    int64_t same = 0, n = (int64_t)c->w.seen.n;
    while (same < c->held_n && same < n - 1 && c->held[same] == c->w.seen.ids[same])
        same++;
    return feed(c, same);
}

static atom_status answer(generate_chat *c, bool (*stop)(void *ctx), generate_chat_result *result)
{
    generate_writer *w = &c->w;
    const generate_request *r = &c->request;
    const generate_sampling how = generate_writer_sampling(w);
    int64_t made = 0;
    atom_status st = feed_prompt(c);
    while (st == ATOM_OK && made < r->max_tokens) {
        int32_t token;
        double u = generate_sample_uniform((uint64_t)r->seed, c->drawn++);
        result->stopped = stop && stop(r->ctx);
        if (result->stopped)
            break;
        ATOM_TRY(generate_sample(&how, generate_decoder_logits(w->decoder), w->may, w->V,
                                 w->candidates, u, &token));
        made++;
        if (generate_writer_ends(w, (uint32_t)token))
            break;
        ATOM_TRY(generate_writer_put(w, (uint32_t)token));
        if (w->stopped)
            break;
        result->full = (int64_t)w->seen.n == c->positions;
        if (result->full)
            break;
        ATOM_TRY(generate_writer_remember(w, (uint32_t)token));
        if (made < r->max_tokens)
            st = feed(c, (int64_t)w->seen.n - 1);
    }
    result->said.tokens = made;
    return st;
}

atom_status generate_chat_say(generate_chat *c, const char *message, bool (*stop)(void *ctx),
                              generate_chat_result *result)
{
    generate_chat_result said = {0};
    double begin = atom_clock_seconds();
    char *valid = NULL;
    size_t bytes = 0;
    atom_status st = text_utf8_repair(message, strlen(message), &valid, &bytes);
    if (st == ATOM_OK)
        st = add_message(c, TEXT_USER, valid, bytes);
    atom_free(valid);
    ATOM_TRY(st);
    st = fit(c);
    if (st != ATOM_OK) {
        take_back(c);
        return st;
    }
    c->w.bytes = c->w.whole = 0;
    c->w.stopped = false;
    said.said.prompt_tokens = (int64_t)c->w.seen.n;
    ATOM_TRY(file_odd_explain(&c->w.odd, answer(c, stop, &said), c->request.model));
    ATOM_TRY(generate_writer_room(&c->w, 0));
    generate_writer_finish(&c->w);
    c->w.text[c->w.whole] = 0;
    ATOM_TRY(add_message(c, TEXT_ASSISTANT, c->w.text, c->w.whole));
    said.said.text = c->w.text;
    said.said.bytes = c->w.whole;
    said.said.seconds = atom_clock_seconds() - begin;
    said.forgotten = c->first;
    *result = said;
    return st;
}
