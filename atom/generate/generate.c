/*
 * Owns a text while it is being written. One idea: what the model has seen is a list of tokens; the
 * decoder holds its tail, and when the decoder is full, it forgets everything and is fed the second
 * half of what it held. Refuses to print half a character.
 */
#include "atom/generate/writer.h"

#include "atom/base/clock.h"
#include "atom/base/files.h"
#include "atom/base/json.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"
#include "atom/base/size.h"
#include "atom/export/export.h"
#include "atom/plan/device.h"
#include "atom/plan/source.h"
#include "atom/plan/wire.h"
#include "atom/text/template.h"
#include "atom/text/utf8.h"

#include <jansson.h>
#include <string.h>

enum { SETTINGS_BYTES_MAX = 1 << 20 /* of generation_config.json */, PENALTY_MAX = 100 };

/* --- opening ---------------------------------------------------------------------------------- */

static atom_status check_request(const generate_request *r)
{
    if (r->max_tokens < 1)
        return atom_fail(ATOM_E_USAGE, "max_tokens must be at least 1");
    if (!(r->temperature >= 0))
        return atom_fail(ATOM_E_USAGE, "temperature must be 0 or more");
    if (r->top_k < 0)
        return atom_fail(ATOM_E_USAGE, "top_k must be 0 (all) or more");
    if (!(r->top_p > 0 && r->top_p <= 1))
        return atom_fail(ATOM_E_USAGE, "top_p must be above 0 and at most 1 (all)");
    if (!(r->min_p >= 0 && r->min_p <= 1))
        return atom_fail(ATOM_E_USAGE, "min_p must be at least 0 (all) and at most 1");
    if (!(r->repetition_penalty >= 0 && r->repetition_penalty <= PENALTY_MAX))
        return atom_fail(ATOM_E_USAGE, "repetition_penalty must be above 0 and at most %d",
                         PENALTY_MAX);
    if (r->stop_text && !*r->stop_text)
        return atom_fail(ATOM_E_USAGE, "the text to stop at is empty; leave it out");
    return ATOM_OK;
}

static atom_status open_model(generate_writer *w)
{
    plan_workbench_config config = {.model = w->request->model,
                                    .micro_batch = 1,
                                    .sequence = 1,
                                    .dtype = w->request->dtype,
                                    .dropout = 0,
                                    .threads = w->request->threads,
                                    .adapter = w->request->adapter};
    ATOM_TRY(plan_workbench_open(&config, &w->bench));
    if (!w->bench->model.has_weights)
        return atom_fail(ATOM_E_USAGE,
                         "model '%s' has no weights to generate with; name a checkpoint, a "
                         "directory with config.json, model.safetensors and tokenizer.json",
                         w->request->model);
    w->V = w->bench->model.config.vocab_size;
    w->positions = graph_model_reach(&w->bench->model.config, 1);
    return ATOM_OK;
}

/* Reads the weights into the only copy of them, rounded as they arrive. */
static atom_status open_params(generate_writer *w)
{
    const plan_workbench *b = w->bench;
    file_source source = plan_file_source(NULL);
    uint64_t available = plan_host_bytes();
    char need[24], has[24];
    w->params_bytes = b->g->param_extent * atom_dtype_bytes(b->g->dtype);
    if (available && w->params_bytes > available)
        return atom_fail(ATOM_E_RESOURCE,
                         "host memory: the weights in %s need %s, but only %s are available (%llu "
                         "bytes are missing); use %sa smaller model",
                         atom_dtype_name(b->g->dtype), atom_size_text(w->params_bytes, need),
                         atom_size_text(available, has),
                         (unsigned long long)(w->params_bytes - available),
                         b->g->dtype == ATOM_F32 ? "--dtype bf16, or " : "");
    ATOM_TRY(w->device->ops->host_alloc(w->device, w->params_bytes, &w->params));
    plan_wire wire = {b->g, b->host, b->threads, w->params};
    file_vector to = plan_wire_vector(&wire);
    to.source = &source;
    to.odd = &w->odd;
    return file_merged_read(&b->model, b->g, to);
}

atom_status generate_writer_remember(generate_writer *w, uint32_t token)
{
    ATOM_TRY(atom_grow(&w->seen.ids, w->seen.n, &w->seen.capacity, sizeof *w->seen.ids));
    w->seen.ids[w->seen.n++] = token;
    if (w->repeated && token < w->V)
        w->repeated[token] = 1;
    return ATOM_OK;
}

generate_sampling generate_writer_sampling(generate_writer *w)
{
    const generate_request *r = w->request;
    if (w->repeated)
        memset(w->repeated, 0, (size_t)w->V);
    for (size_t i = 0; w->repeated && i < w->seen.n; i++)
        if (w->seen.ids[i] < w->V)
            w->repeated[w->seen.ids[i]] = 1;
    return (generate_sampling){.temperature = r->temperature,
                               .top_k = r->top_k,
                               .top_p = r->top_p,
                               .min_p = r->min_p,
                               .penalty = r->repetition_penalty,
                               .seen = w->repeated};
}

/* Unless the prompt names it itself. */
static atom_status lead(generate_writer *w)
{
    const uint32_t start = text_tokenizer_start(w->tokenizer);
    if (!text_tokenizer_leads(w->tokenizer) || (w->seen.n && w->seen.ids[0] == start))
        return ATOM_OK;
    ATOM_TRY(generate_writer_remember(w, start));
    memmove(w->seen.ids + 1, w->seen.ids, (w->seen.n - 1) * sizeof *w->seen.ids);
    w->seen.ids[0] = start;
    return ATOM_OK;
}

static atom_status encode_text(generate_writer *w, text_encoder *encoder)
{
    const char *prompt = w->request->prompt ? w->request->prompt : "";
    const text_special_rule rule = w->request->special_tokens;
    text_specials specials = {0};
    text_named named = {0};
    atom_status st;
    ATOM_TRY_CLEAN(text_specials_init(&specials, w->tokenizer));
    ATOM_TRY_CLEAN(
        text_plain_encode(&specials, rule, encoder, prompt, strlen(prompt), &w->seen, &named));
    ATOM_TRY_CLEAN(lead(w));
    w->begins = true;
    for (size_t i = 0; i < w->seen.n; i++)
        w->begins = w->begins && text_tokenizer_control(w->tokenizer, w->seen.ids[i]);
    if (named.n && rule == TEXT_SPECIAL_BYTES)
        atom_log(
            ATOM_LOG_WARN,
            "the prompt contains names of special tokens %llu times (the first is %s), which were "
            "treated as ordinary text; with --special-tokens ids they become the tokens, and "
            "--chat writes them by the model's own template",
            (unsigned long long)named.n, named.first);
cleanup:
    text_specials_fini(&specials);
    return st;
}

atom_status generate_writer_encode_chat(generate_writer *w, text_encoder *encoder,
                                        const text_message *messages, size_t n)
{
    const char *dir = file_lora_tokenizer_dir(&w->bench->model);
    const text_conversation chat = {.messages = messages, .n = n};
    text_template_request by_model = {.name = w->request->template,
                                      .variables = w->request->template_vars};
    char *jinja = NULL;
    text_template *template = NULL;
    text_marked made = {0};
    atom_status st;
    bool ends;
    if (w->bench->model.kind == FILE_MODEL_GGUF && dir == w->bench->model.dir) {
        ATOM_TRY_CLEAN(import_template(dir, &jinja));
        by_model.jinja = jinja;
        dir = NULL;
    }
    ATOM_TRY_CLEAN(text_template_open(w->tokenizer, dir, &by_model, &template));
    ATOM_TRY_CLEAN(text_template_prompt(template, encoder, &chat, &made));
    ATOM_TRY_CLEAN(text_template_stop(template, encoder, &chat, &w->stop, &ends));
    if (made.ids.n == 0)
        ATOM_TRY_CLEAN(atom_fail(ATOM_E_FORMAT, "the chat template makes no text of these "
                                                "messages; name another one with --template"));
    if (made.answers.hidden)
        atom_log(
            ATOM_LOG_WARN,
            "the chat template shows nothing of %llu of these messages (such as the system's, or "
            "those before the last), so the model does not see them",
            (unsigned long long)made.answers.hidden);
    if (!ends && !w->endless && w->request->stop_at_end && !w->request->stop_text)
        atom_log(
            ATOM_LOG_WARN,
            "the chat template ends answers with text, not with a token, so the model may go on "
            "behind the end of its answer, up to max_tokens; name that text with --stop, or let "
            "the "
            "template end answers with the end-of-text token before you train");
    w->endless = !ends;
    w->seen.n = 0;
    for (size_t i = 0; i < made.ids.n; i++)
        ATOM_TRY_CLEAN(generate_writer_remember(w, made.ids.ids[i]));
    if (w->may)
        w->may[w->stop] = 1;
cleanup:
    text_marked_fini(&made);
    text_template_close(&template);
    atom_free(jinja);
    return st;
}

static atom_status encode_chat(generate_writer *w, text_encoder *encoder)
{
    const generate_request *r = w->request;
    text_message messages[2];
    size_t n = 0;
    if (r->system)
        messages[n++] =
            (text_message){.role = TEXT_SYSTEM, .text = r->system, .bytes = strlen(r->system)};
    messages[n++] =
        (text_message){.role = TEXT_USER, .text = r->prompt, .bytes = strlen(r->prompt)};
    return generate_writer_encode_chat(w, encoder, messages, n);
}

static atom_status encode_prompt(generate_writer *w)
{
    text_encoder *encoder = NULL;
    atom_status st;
    w->stop = text_tokenizer_end(w->tokenizer);
    ATOM_TRY_CLEAN(text_encoder_open(w->tokenizer, &encoder));
    st = w->request->chat ? encode_chat(w, encoder) : encode_text(w, encoder);
cleanup:
    text_encoder_close(&encoder);
    return st == ATOM_OK ? st : atom_fail_in(st, "prompt: ");
}

/* One id or a list of them, as transformers reads it. *any: there is one. */
static atom_status mark_ends(generate_writer *w, const char *path, const char *text, bool *any)
{
    json_t *root = NULL;
    ATOM_TRY(atom_json_parse(path, text, strlen(text), 0, &root));
    const json_t *ids = json_object_get(root, "eos_token_id");
    size_t n = json_is_array(ids) ? json_array_size(ids) : 1;
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_is_array(ids) ? json_array_get(ids, i) : ids;
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= w->V)
            continue;
        w->ends[json_integer_value(id)] = w->may[json_integer_value(id)] = 1;
        *any = true;
    }
    json_decref(root);
    return ATOM_OK;
}

/* generation_config.json goes before config.json. Models for chats name several tokens there, of which
 * tokenizer_config.json knows one. */
static atom_status read_ends(generate_writer *w)
{
    const file_model *m = &w->bench->model;
    char *path = atom_path_join(m->dir, "generation_config.json"), *text = NULL;
    uint64_t bytes;
    bool any = false;
    atom_status st = path ? ATOM_OK : atom_fail_memory("a path", strlen(m->dir));
    if (path && m->kind == FILE_MODEL_DIR && atom_path_exists(path))
        st = atom_file_read(path, SETTINGS_BYTES_MAX, &text, &bytes);
    if (st == ATOM_OK && text)
        st = mark_ends(w, path, text, &any);
    if (st == ATOM_OK && !any && m->source)
        st = mark_ends(w, m->dir, m->source, &any);
    atom_free(text);
    atom_free(path);
    return st;
}

bool generate_writer_ends(const generate_writer *w, uint32_t token)
{
    bool is_end = token == text_tokenizer_end(w->tokenizer) || token == w->stop || w->ends[token];
    return is_end && w->request->stop_at_end;
}

/* Ids that the tokenizer has no bytes for can never be chosen: padding of the vocabulary. */
static atom_status open_scratch(generate_writer *w)
{
    w->feed = atom_alloc((size_t)w->positions, sizeof *w->feed);
    w->may = atom_alloc((size_t)w->V, 1);
    w->ends = atom_alloc((size_t)w->V, 1);
    w->candidates = atom_alloc((size_t)w->V, sizeof *w->candidates);
    const double penalty = w->request->repetition_penalty;
    const bool marks = penalty > 0 && penalty != 1;
    w->repeated = marks ? atom_alloc((size_t)w->V, 1) : NULL;
    if (!w->feed || !w->may || !w->ends || !w->candidates || (marks && !w->repeated))
        return atom_fail_memory("sampling", (uint64_t)w->V * sizeof *w->candidates);
    for (int64_t i = 0; i < w->V; i++) {
        size_t bytes = 0;
        (void)text_tokenizer_piece(w->tokenizer, (uint32_t)i, &bytes);
        w->may[i] = bytes > 0;
    }
    w->may[text_tokenizer_end(w->tokenizer)] = w->may[w->stop] = 1;
    return read_ends(w);
}

/* room: how much it holds at most; 0: the prompt and what is asked for. */
static atom_status open_decoder(generate_writer *w, int64_t room)
{
    int64_t wanted = room ? room : (int64_t)w->seen.n + 1 + w->request->max_tokens;
    generate_decoder_config config = {.g = w->bench->g,
                                      .table = w->bench->table,
                                      .decode = krn_cpu_decode_table(w->bench->g->dtype),
                                      .threads = w->bench->threads,
                                      .device = w->device,
                                      .params = w->params,
                                      .room = wanted < w->positions ? wanted : w->positions};
    return generate_decoder_open(&config, &w->decoder);
}

atom_status generate_writer_open(generate_writer *w, atom_status (*encode)(generate_writer *w),
                                 int64_t room)
{
    dev_cpu_config device = {.budget_bytes = w->request->device_memory};
    ATOM_TRY(check_request(w->request));
    ATOM_TRY(open_model(w));
    ATOM_TRY(import_model_tokenizer(&w->bench->model, &w->tokenizer));
    ATOM_TRY(encode(w));
    ATOM_TRY(open_scratch(w));
    ATOM_TRY(dev_cpu_open(&device, w->bench->threads, &w->device));
    ATOM_TRY(open_params(w));
    return open_decoder(w, room);
}

void generate_writer_close(generate_writer *w)
{
    generate_decoder_close(&w->decoder);
    if (w->device)
        w->device->ops->host_free(w->device, w->params, w->params_bytes);
    dev_close(&w->device);
    text_tokenizer_close(&w->tokenizer);
    plan_workbench_close(&w->bench);
    text_ids_fini(&w->seen);
    atom_free(w->feed);
    atom_free(w->may);
    atom_free(w->ends);
    atom_free(w->repeated);
    atom_free(w->candidates);
    atom_free(w->text);
}

/* --- text ------------------------------------------------------------------------------------- */

atom_status generate_writer_room(generate_writer *w, size_t more)
{
    while (w->capacity < w->bytes + more + 1) {
        ATOM_TRY(atom_grow(&w->text, w->capacity, &w->capacity, 1));
    }
    return ATOM_OK;
}

static void emit(generate_writer *w, size_t bytes)
{
    if (bytes > 0 && w->request->emit)
        w->request->emit(w->request->ctx, w->text + w->whole, bytes);
    w->whole += bytes;
}

/* Bytes of the wrong sequence that starts here: a character's longest beginning, or one byte. */
static size_t wrong_bytes(const char *text, size_t left)
{
    size_t n = 1, cut;
    while (n < left && text_utf8_check_part(text, n + 1, &cut) == n + 1 && cut == 0)
        n++;
    return n;
}

/* Puts U+FFFD in the place of n bytes. */
static atom_status replace_wrong(generate_writer *w, size_t at, size_t n)
{
    static const char replacement[] = "\xef\xbf\xbd";
    ATOM_TRY(generate_writer_room(w, 3));
    memmove(w->text + at + 3, w->text + at + n, w->bytes - at - n);
    memcpy(w->text + at, replacement, 3);
    w->bytes += 3 - n;
    return ATOM_OK;
}

/* Emits the next n bytes, but not what stop_text may begin with: if that came, the text ends in front of it. */
static void emit_known(generate_writer *w, size_t n)
{
    const char *stop = w->request->stop_text, *text = w->text + w->whole;
    const size_t bytes = stop ? strlen(stop) : 0;
    const char *found = stop ? memmem(text, n, stop, bytes) : NULL;
    size_t held = stop && !found ? (bytes - 1 < n ? bytes - 1 : n) : 0;
    while (held > 0 && memcmp(text + n - held, stop, held) != 0)
        held--;
    emit(w, found ? (size_t)(found - text) : n - held);
    w->stopped = found != NULL;
    if (found)
        w->bytes = w->whole;
}

/* Hands over what is whole characters; a character that is not all there yet waits. */
static atom_status emit_whole(generate_writer *w)
{
    for (;;) {
        size_t left = w->bytes - w->whole, cut;
        size_t wrong = text_utf8_check_part(w->text + w->whole, left, &cut);
        if (wrong == left) {
            emit_known(w, cut);
            return ATOM_OK;
        }
        const size_t at = w->whole + wrong;
        ATOM_TRY(replace_wrong(w, at, wrong_bytes(w->text + at, left - wrong)));
    }
}

void generate_writer_finish(generate_writer *w)
{
    size_t cut = 0;
    (void)text_utf8_check_part(w->text + w->whole, w->bytes - w->whole, &cut);
    emit(w, cut);
}

/* The first token of a text, without the space that metaspaces put before every text. */
static atom_status put_first(generate_writer *w, uint32_t token)
{
    char *text;
    size_t bytes;
    ATOM_TRY(text_decode(w->tokenizer, &token, 1, true, &text, &bytes));
    atom_status st = generate_writer_room(w, bytes);
    if (st == ATOM_OK) {
        memcpy(w->text, text, bytes);
        w->bytes = bytes;
    }
    atom_free(text);
    return st == ATOM_OK ? emit_whole(w) : st;
}

atom_status generate_writer_put(generate_writer *w, uint32_t token)
{
    size_t bytes;
    const char *piece = text_tokenizer_piece(w->tokenizer, token, &bytes);
    if (w->begins) {
        w->begins = false;
        return put_first(w, token);
    }
    ATOM_TRY(generate_writer_room(w, bytes));
    memcpy(w->text + w->bytes, piece, bytes);
    w->bytes += bytes;
    return emit_whole(w);
}

/* --- the loop --------------------------------------------------------------------------------- */

/* Feeds the last n tokens that were seen. */
static atom_status feed_last(generate_writer *w, size_t n)
{
    for (size_t i = 0; i < n; i++)
        w->feed[i] = (int32_t)w->seen.ids[w->seen.n - n + i];
    return generate_decoder_feed(w->decoder, w->feed, (int64_t)n);
}

static atom_status feed_prompt(generate_writer *w)
{
    size_t n = w->seen.n, most = (size_t)w->positions;
    if (n > most) {
        atom_log(ATOM_LOG_WARN,
                 "the prompt has %zu tokens, but the model sees only %zu at a time; it continues "
                 "the last %zu",
                 n, most, most);
        n = most;
    }
    if ((int64_t)n + w->request->max_tokens - 1 > w->positions)
        atom_log(
            ATOM_LOG_INFO,
            "note: the model sees only %zu tokens at a time; whenever the text fills them, the "
            "model forgets the older half of what it sees",
            most);
    return feed_last(w, n);
}

/* Feeds the newest token; a full decoder forgets first. */
static atom_status feed_next(generate_writer *w)
{
    int64_t half = w->positions / 2;
    if (generate_decoder_past(w->decoder) < w->positions)
        return feed_last(w, 1);
    generate_decoder_reset(w->decoder);
    return feed_last(w, half > 0 ? (size_t)half : 1);
}

static atom_status write_text(generate_writer *w, int64_t *made)
{
    const generate_request *r = w->request;
    const generate_sampling how = generate_writer_sampling(w);
    ATOM_TRY(feed_prompt(w));
    for (*made = 0; *made < r->max_tokens;) {
        int32_t token;
        double u = generate_sample_uniform((uint64_t)r->seed, (uint64_t)*made);
        ATOM_TRY(generate_sample(&how, generate_decoder_logits(w->decoder), w->may, w->V,
                                 w->candidates, u, &token));
        (*made)++;
        if (generate_writer_ends(w, (uint32_t)token))
            break;
        ATOM_TRY(generate_writer_put(w, (uint32_t)token));
        if (w->stopped)
            break;
        ATOM_TRY(generate_writer_remember(w, (uint32_t)token));
        if (*made < r->max_tokens)
            ATOM_TRY(feed_next(w));
    }
    return ATOM_OK;
}

atom_status generate_text(const generate_request *request, generate_result *result)
{
    generate_writer w = {.request = request};
    int64_t prompt_tokens, made = 0;
    double begin;
    atom_status st;
    ATOM_TRY_CLEAN(generate_writer_open(&w, encode_prompt, 0));
    prompt_tokens = (int64_t)w.seen.n;
    if (prompt_tokens == 0) /* the start of a document */
        ATOM_TRY_CLEAN(generate_writer_remember(&w, text_tokenizer_start(w.tokenizer)));
    begin = atom_clock_seconds();
    ATOM_TRY_CLEAN(file_odd_explain(&w.odd, write_text(&w, &made), request->model));
    ATOM_TRY_CLEAN(generate_writer_room(&w, 0));
    generate_writer_finish(&w);
    w.text[w.whole] = 0; /* a character cut off by max_tokens is left out */
    *result = (generate_result){.text = w.text,
                                .bytes = w.whole,
                                .tokens = made,
                                .prompt_tokens = prompt_tokens,
                                .seconds = atom_clock_seconds() - begin};
    w.text = NULL;
cleanup:
    generate_writer_close(&w);
    return st;
}
