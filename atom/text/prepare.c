/*
 * Owns the way from text files to a data set. One idea: blocks of text are handled in batches, each
 * block by one thread into its own list of ids, and then written in the order of the input; so the
 * result does not depend on the number of threads. Refuses to touch a directory that holds a data
 * set, and leaves nothing behind when it fails.
 */
#include "atom/text/prepare.h"

#include "atom/base/clock.h"
#include "atom/base/files.h"
#include "atom/base/mem.h"
#include "atom/base/rng.h"
#include "atom/text/bpe_train.h"
#include "atom/text/claims.h"
#include "atom/text/counts.h"
#include "atom/text/dataset.h"
#include "atom/text/input.h"
#include "atom/text/packer.h"
#include "atom/text/spec.h"
#include "atom/text/staging.h"
#include "atom/text/tail.h"
#include "atom/text/tokenizer.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum { BATCH_BLOCKS = 32, PROGRESS_NS = 100000000 };

typedef struct document_start {
    size_t at;
    bool chat;
} document_start;

/* One block and what became of it. */
typedef struct work_item {
    text_block block;
    text_marked marked;     /* marks are set in chats only */
    document_start *starts; /* of documents, in ids */
    size_t starts_n, starts_capacity;
    uint64_t text_bytes;
    text_named named;
    text_unknown unknown;
    text_unseen unused; /* keys beside chats */
    text_empty hidden;  /* messages */
    atom_status st;
    char *message;         /* of st, because messages are per thread */
    text_encoder *encoder; /* borrowed from the worker's slot while it works */
    const struct preparation *p;
} work_item;

typedef struct preparation {
    const text_prepare_options *options;
    text_prepare_report report;
    text_empty empty_files; /* of the input, as it was read last */
    text_staging staging;
    text_tokenizer *tokenizer;
    text_specials specials;
    text_template *template;
    text_words **words;      /* [slots], one per worker */
    text_encoder **encoders; /* [slots] */
    uint32_t slots;
    work_item items[BATCH_BLOCKS];
    text_packer *packers[2]; /* by text_split */
    text_split to;           /* where the document under way goes */
    uint64_t documents;      /* so far */
    bool in_chat;            /* the document under way is one */
    uint64_t val_next,
        val_stratum; /* next document for validation; UINT64_MAX: none by documents */
    uint64_t progress_ns;
} preparation;

/* ---- progress ---- */

static void report_progress(preparation *p, const char *phase, uint64_t done, uint64_t total)
{
    uint64_t now = atom_clock_ns();
    if (!p->options->progress || (done < total && now - p->progress_ns < PROGRESS_NS))
        return;
    p->progress_ns = now;
    p->options->progress(p->options->progress_ctx, phase, done, total);
}

static void merges_progress(void *ctx, uint32_t done, uint32_t total)
{
    report_progress(ctx, "train tokenizer", done, total);
}

/* ---- batches ---- */

/* Takes the worker's part in one item; a failure is kept in the item. */
typedef void (*item_fn)(preparation *p, work_item *item, uint32_t worker);
typedef struct batch {
    preparation *p;
    item_fn fn;
} batch;

static void run_item(void *ctx, uint32_t index, uint32_t worker)
{
    const batch *b = ctx;
    work_item *item = &b->p->items[index];
    b->fn(b->p, item, worker);
    if (item->st != ATOM_OK)
        item->message = atom_strdup(atom_fail_message());
}

static void clear_item(work_item *item)
{
    text_block_fini(&item->block);
    atom_free(item->message);
    item->message = NULL;
    item->st = ATOM_OK;
    item->marked.ids.n = 0;
    item->starts_n = 0;
    item->text_bytes = 0;
}

static atom_status fail_item(const work_item *item)
{
    return item->message ? atom_fail(item->st, "%s", item->message)
                         : atom_fail_memory("a block of text", item->block.bytes);
}

/* Reads all input in batches; fn works on the items in parallel, then `finish` gets
 * them in order. */
static atom_status each_batch(preparation *p, const char *phase, item_fn fn,
                              atom_status (*finish)(preparation *p, work_item *item))
{
    const text_prepare_options *o = p->options;
    atom_status st = ATOM_OK;
    text_input *in = NULL;
    uint64_t done = 0;
    uint32_t n;
    ATOM_TRY_CLEAN(text_input_open(o->inputs, o->inputs_n, 0, &in));
    if (p->tokenizer)
        text_input_cut(in, text_tokenizer_cut(p->tokenizer));
    do {
        batch b = {p, fn};
        for (n = 0; n < BATCH_BLOCKS; n++) {
            ATOM_TRY_CLEAN(text_input_next(in, &p->items[n].block));
            if (!p->items[n].block.data)
                break;
        }
        if (o->threads)
            atom_parallel(o->threads, n, run_item, &b);
        for (uint32_t i = 0; !o->threads && i < n; i++)
            run_item(&b, i, 0);
        for (uint32_t i = 0; i < n; i++) {
            if (p->items[i].st != ATOM_OK)
                ATOM_TRY_CLEAN(fail_item(&p->items[i]));
            done += p->items[i].block.file_bytes;
            ATOM_TRY_CLEAN(finish(p, &p->items[i]));
            clear_item(&p->items[i]);
        }
        report_progress(p, phase, done, text_input_bytes(in));
    } while (n == BATCH_BLOCKS);
    text_counts_empty_files(&p->empty_files, in);
cleanup:
    for (uint32_t i = 0; i < BATCH_BLOCKS; i++)
        clear_item(&p->items[i]);
    text_input_close(&in);
    return st;
}

/* ---- tokenizer ---- */

static atom_status add_words(void *ctx, const text_document *d)
{
    atom_status st = d->bytes ? text_words_add(ctx, d->text, d->bytes, NULL) : ATOM_OK;
    for (size_t i = 0; st == ATOM_OK && i < d->messages_n; i++)
        st = text_words_add(ctx, d->messages[i].text, d->messages[i].bytes, NULL);
    return st;
}

static void count_item(preparation *p, work_item *item, uint32_t worker)
{
    if (!p->words[worker])
        item->st = text_words_open(&p->words[worker]);
    if (item->st == ATOM_OK)
        item->st = text_block_walk(&item->block, p->options->format, add_words, p->words[worker]);
}

static atom_status finish_nothing(preparation *p, work_item *item)
{
    (void)p;
    (void)item;
    return ATOM_OK;
}

static atom_status train_tokenizer(preparation *p, uint32_t vocab)
{
    double started = atom_clock_seconds();
    text_words *all = NULL;
    atom_status st = ATOM_OK;
    ATOM_TRY_CLEAN(each_batch(p, "count words", count_item, finish_nothing));
    ATOM_TRY_CLEAN(text_words_open(&all));
    for (uint32_t i = 0; i < p->slots; i++) {
        if (p->words[i])
            ATOM_TRY_CLEAN(text_words_merge(all, p->words[i]));
        text_words_close(&p->words[i]);
    }
    ATOM_TRY_CLEAN(text_bpe_train(all, vocab, merges_progress, p, &p->tokenizer));
    p->report.train_tokenizer_seconds = atom_clock_seconds() - started;
cleanup:
    text_words_close(&all);
    return st;
}

static atom_status make_tokenizer(preparation *p)
{
    uint32_t n = 0;
    ATOM_TRY(text_spec_parse(p->options->tokenizer, &n));
    if (n == 0)
        ATOM_TRY(text_tokenizer_bytes(&p->tokenizer));
    else if (n == 1)
        ATOM_TRY(text_tokenizer_load(p->options->tokenizer, &p->tokenizer));
    else
        ATOM_TRY(train_tokenizer(p, n));
    p->report.vocab = text_tokenizer_vocab(p->tokenizer);
    p->report.vocab_asked = n > 1 ? n : p->report.vocab;
    return ATOM_OK;
}

/* The chat template; the tokenizer's own directory may say which. */
static atom_status open_template(preparation *p)
{
    const char *path = p->options->tokenizer, *slash = strrchr(path, '/');
    bool file = strcmp(path, "bytes") != 0 && strncmp(path, "bpe:", 4) != 0;
    char *dir = atom_format("%.*s", slash ? (int)(slash - path) + 1 : 1, slash ? path : ".");
    atom_status st = dir ? text_template_open(p->tokenizer, file ? dir : NULL,
                                              &p->options->template, &p->template)
                         : atom_fail_memory("a path", strlen(path));
    if (st == ATOM_OK && file)
        st = text_claims_check(p->tokenizer, dir);
    atom_free(dir);
    return st;
}

/* ---- encoding ---- */

/* A text stands behind the tokenizer's start token; a chat begins as its template says. */
static atom_status start_document(work_item *item, bool chat)
{
    text_ids *ids = &item->marked.ids;
    ATOM_TRY(
        atom_grow(&item->starts, item->starts_n, &item->starts_capacity, sizeof *item->starts));
    ATOM_TRY(atom_grow(&ids->ids, ids->n, &ids->capacity, sizeof *ids->ids));
    item->starts[item->starts_n++] = (document_start){ids->n, chat};
    if (!chat)
        ids->ids[ids->n++] = text_tokenizer_start(item->p->tokenizer);
    return ATOM_OK;
}

static atom_status encode_chat(work_item *item, const text_document *d)
{
    text_marked *m = &item->marked;
    size_t from = m->ids.n;
    uint64_t hidden = m->answers.hidden;
    bool all = item->p->options->loss_all;
    atom_status st = ATOM_OK;
    ATOM_TRY(start_document(item, true));
    if (d->unused && item->unused.messages++ == 0)
        snprintf(item->unused.key, sizeof item->unused.key, "%s", d->unused);
    for (size_t i = 0; i < d->messages_n; i++) {
        item->text_bytes += d->messages[i].bytes;
        if (all && d->messages[i].silent)
            return text_fail_line(
                d->name, d->line,
                "its message %zu (counted from 0) has weight 0, but with --loss all everything "
                "is learned; leave out one of them",
                i);
    }
    const text_conversation chat = {d->messages, d->messages_n, d->tools, d->documents,
                                    d->variables};
    st = text_template_render(item->p->template, item->encoder, &chat, m);
    if (st == ATOM_E_FORMAT)
        st = atom_fail_in(st, "%s:%llu: ", d->name, (unsigned long long)d->line);
    text_counts_hidden(&item->hidden, m->answers.hidden - hidden, d->name, d->line);
    if (st == ATOM_OK && !all && !memchr(m->marks + from, 1, m->ids.n - from))
        st =
            text_fail_line(d->name, d->line,
                           "the chat template shows no answer of this chat, so nothing of it would "
                           "be learned; remove the line, or name another template");
    if (st == ATOM_OK && all)
        st = text_marked_set(m, from, true);
    return st;
}

static atom_status encode_document(void *ctx, const text_document *d)
{
    work_item *item = ctx;
    if (d->messages_n)
        return encode_chat(item, d);
    if (d->starts)
        ATOM_TRY(start_document(item, false));
    item->text_bytes += d->bytes;
    return text_plain_encode(&item->p->specials, item->p->options->special_tokens, item->encoder,
                             d->text, d->bytes, &item->marked.ids, &item->named);
}

static void encode_item(preparation *p, work_item *item, uint32_t worker)
{
    if (!p->encoders[worker])
        item->st = text_encoder_open(p->tokenizer, &p->encoders[worker]);
    item->encoder = p->encoders[worker];
    item->p = p;
    if (item->st == ATOM_OK)
        item->st = text_block_walk(&item->block, p->options->format, encode_document, item);
    if (item->encoder)
        text_encoder_unknown(item->encoder, &item->unknown);
}

/* Document number val_next of stratum k: one of the documents [k/f, (k+1)/f), by
 * a random number. */
static void choose_val(preparation *p)
{
    double f = p->options->val_fraction;
    atom_rng_key key = {.seed = 0x76616c, .node = 0x73706c69};
    double u = atom_rng_uniform(atom_rng_u32(key, p->val_stratum << 2));
    p->val_next = (uint64_t)(((double)p->val_stratum + u) / f);
    p->val_stratum++;
}

static void begin_document(preparation *p)
{
    p->to = TEXT_TRAIN;
    if (p->documents == p->val_next) {
        p->to = TEXT_VAL;
        /* Two strata may touch: the next pick is a later document. */
        while (p->val_next <= p->documents)
            choose_val(p);
    }
    p->documents++;
    (p->to == TEXT_TRAIN ? &p->report.train : &p->report.val)->documents++;
}

/* After a text, where its end is another token than the next one's start. Answers
 * bring their own. */
static atom_status end_document(preparation *p)
{
    uint32_t end = text_tokenizer_end(p->tokenizer);
    if (p->documents == 0 || p->in_chat || end == text_tokenizer_start(p->tokenizer))
        return ATOM_OK;
    return text_packer_put(p->packers[p->to], &end, NULL, 1);
}

/* Ids [at, end) of an item, all of one document. */
static atom_status write_ids(preparation *p, const work_item *item, size_t at, size_t end)
{
    const uint8_t *marks = p->in_chat ? item->marked.marks + at : NULL;
    return text_packer_put(p->packers[p->to], item->marked.ids.ids + at, marks, end - at);
}

static atom_status write_item(preparation *p, work_item *item)
{
    size_t at = 0;
    text_counts_empty(&p->report.empty, &item->block);
    text_counts_objects(&p->report.objects, &item->block);
    p->report.text_bytes += item->text_bytes;
    for (size_t i = 0; i <= item->starts_n; i++) {
        size_t end = i < item->starts_n ? item->starts[i].at : item->marked.ids.n;
        ATOM_TRY(write_ids(p, item, at, end));
        at = end;
        if (i == item->starts_n)
            break;
        ATOM_TRY(end_document(p));
        begin_document(p);
        p->in_chat = item->starts[i].chat;
        p->report.chats += p->in_chat;
        ATOM_TRY(text_packer_begin(p->packers[p->to], p->in_chat));
    }
    return ATOM_OK;
}

static atom_status count_document(void *ctx, const text_document *d)
{
    *(uint64_t *)ctx += d->starts;
    return ATOM_OK;
}

/* Are there at least TEXT_SPLIT_DOCUMENTS_MIN documents? Reads no more than it takes to know. */
static atom_status many_documents(const text_prepare_options *o, bool *many)
{
    text_input *in = NULL;
    text_block block = {0};
    uint64_t documents = 0;
    atom_status st = ATOM_OK;
    ATOM_TRY_CLEAN(text_input_open(o->inputs, o->inputs_n, 0, &in));
    while (documents < TEXT_SPLIT_DOCUMENTS_MIN) {
        ATOM_TRY_CLEAN(text_input_next(in, &block));
        if (!block.data)
            break;
        ATOM_TRY_CLEAN(text_block_walk(&block, o->format, count_document, &documents));
        text_block_fini(&block);
    }
    *many = documents >= TEXT_SPLIT_DOCUMENTS_MIN;
cleanup:
    text_block_fini(&block);
    text_input_close(&in);
    return st;
}

/* What the items counted. */
static void add_counts(preparation *p)
{
    text_prepare_report *r = &p->report;
    if (r->empty.n == 0)
        r->empty = p->empty_files;
    else
        r->empty.n += p->empty_files.n;
    for (uint32_t i = 0; i < BATCH_BLOCKS; i++) {
        const text_marked *m = &p->items[i].marked;
        text_counts_unseen(&r->unseen, &m->unseen);
        text_counts_unseen(&r->unused, &p->items[i].unused);
        if (r->hidden.n == 0)
            memcpy(r->hidden.first, p->items[i].hidden.first, sizeof r->hidden.first);
        r->hidden.n += p->items[i].hidden.n;
        r->answers += m->answers.turns;
        r->rough_answers += m->answers.rough;
        if (p->items[i].named.n && r->named.n == 0)
            memcpy(r->named.first, p->items[i].named.first, sizeof r->named.first);
        r->named.n += p->items[i].named.n;
        text_unknown_add(&r->unknown, &p->items[i].unknown);
    }
    text_counts_say(r, p->options);
}

static atom_status open_packers(preparation *p)
{
    text_packer_config config = {.dir = p->staging.path,
                                 .vocab = p->report.vocab,
                                 .length = p->options->sequence_len,
                                 .start = text_tokenizer_start(p->tokenizer)};
    config.start_ends = config.start == text_tokenizer_end(p->tokenizer);
    for (int split = 0; split < 2; split++) {
        config.split = text_split_name((text_split)split);
        ATOM_TRY(text_packer_open(&config, &p->packers[split]));
    }
    return ATOM_OK;
}

static atom_status end_packers(preparation *p)
{
    text_prepare_report *r = &p->report;
    for (int split = 0; split < 2; split++) {
        text_part_counts *part = split == TEXT_TRAIN ? &r->train : &r->val;
        ATOM_TRY(text_packer_end(p->packers[split]));
        const text_packed made = text_packer_counts(p->packers[split]);
        r->cut += made.cut;
        r->padding += made.padding;
        r->targets += made.targets;
        part->tokens = made.tokens;
        part->shards = made.shards;
    }
    return ATOM_OK;
}

static atom_status encode_all(preparation *p)
{
    double started = atom_clock_seconds();
    bool many = false;
    p->val_next = UINT64_MAX;
    if (p->options->val_fraction > 0) {
        ATOM_TRY(many_documents(p->options, &many));
        if (many)
            choose_val(p);
    }
    ATOM_TRY(open_packers(p));
    ATOM_TRY(each_batch(p, "encode", encode_item, write_item));
    ATOM_TRY(end_document(p));
    ATOM_TRY(end_packers(p));
    p->report.encode_seconds = atom_clock_seconds() - started;
    add_counts(p);
    return ATOM_OK;
}

/* ---- the end ---- */

static atom_status split_val(preparation *p)
{
    text_prepare_report *r = &p->report;
    if (r->train.tokens + r->val.tokens == 0)
        return atom_fail(ATOM_E_FORMAT, "there is no text in the input (%s%s)",
                         p->options->inputs[0], p->options->inputs_n > 1 ? ", ..." : "");
    r->val_split = r->val.tokens ? TEXT_VAL_DOCUMENTS : TEXT_VAL_NONE;
    text_counts_say_split(r, p->options);
    if (r->val.tokens || p->options->val_fraction == 0 || r->train.tokens < 2)
        return ATOM_OK;
    if (p->options->sequence_len && r->train.documents < TEXT_SPLIT_DOCUMENTS_MIN)
        return atom_fail(ATOM_E_USAGE,
                         "sequence_len: there are %llu documents, but a validation split needs at "
                         "least %d, because packed sequences are not cut for it; bring more, or "
                         "say --val-fraction 0",
                         (unsigned long long)r->train.documents, TEXT_SPLIT_DOCUMENTS_MIN);
    if (p->options->sequence_len)
        return atom_fail(ATOM_E_USAGE,
                         "sequence_len: of %llu documents none was set aside whole for validation, "
                         "and packed sequences are not cut for it; choose a larger --val-fraction, "
                         "or 0",
                         (unsigned long long)r->train.documents);
    r->val_split = TEXT_VAL_TAIL;
    return text_tail_split(p->staging.path, p->tokenizer, p->options->val_fraction, &r->train,
                           &r->val);
}

static atom_status save_all(preparation *p)
{
    char *path = atom_path_join(p->staging.path, "tokenizer.json");
    atom_status st = path ? text_tokenizer_save(p->tokenizer, path)
                          : atom_fail_memory("a path", strlen(p->staging.path));
    atom_free(path);
    if (st == ATOM_OK && p->report.chats)
        st = text_template_save(p->template, p->staging.path);
    if (st == ATOM_OK)
        st = text_counts_write(&p->report, p->options, p->tokenizer, p->staging.path);
    return st == ATOM_OK ? text_staging_commit(&p->staging) : st;
}

static void preparation_fini(preparation *p)
{
    for (uint32_t i = 0; i < p->slots; i++) {
        if (p->words)
            text_words_close(&p->words[i]);
        if (p->encoders)
            text_encoder_close(&p->encoders[i]);
    }
    atom_free(p->words);
    atom_free(p->encoders);
    for (uint32_t i = 0; i < BATCH_BLOCKS; i++) {
        text_marked_fini(&p->items[i].marked);
        atom_free(p->items[i].starts);
    }
    text_packer_close(&p->packers[0]);
    text_packer_close(&p->packers[1]);
    text_template_close(&p->template);
    text_specials_fini(&p->specials);
    text_tokenizer_close(&p->tokenizer);
    text_staging_fini(&p->staging);
    atom_free(p);
}

static atom_status check_options(const text_prepare_options *o)
{
    text_input *in = NULL;
    uint32_t n;
    if (o->inputs_n == 0)
        return atom_fail(ATOM_E_USAGE, "no input; give .txt, .jsonl, .json or .csv files");
    if (!(o->val_fraction >= 0 && o->val_fraction <= 0.5))
        return atom_fail(ATOM_E_USAGE, "val_fraction is %g, but must be between 0 and 0.5",
                         o->val_fraction);
    if (o->sequence_len && (o->sequence_len < TEXT_PACK_MIN || o->sequence_len > TEXT_PACK_MAX))
        return atom_fail(ATOM_E_USAGE, "sequence_len is %u, but must be between %d and %d",
                         o->sequence_len, TEXT_PACK_MIN, TEXT_PACK_MAX);
    atom_status st = text_spec_parse(o->tokenizer, &n);
    if (st == ATOM_OK)
        st = text_input_open(o->inputs, o->inputs_n, 0, &in);
    if (st == ATOM_OK && o->format != TEXT_FORMAT_AUTO && !text_input_has_records(in))
        st = atom_fail(ATOM_E_USAGE, "format would have no effect, because it says what records "
                                     "contain and a .txt has none; leave it out");
    text_input_say_twice(in);
    text_input_close(&in);
    return st;
}

atom_status text_prepare(const text_prepare_options *options, text_prepare_report *report)
{
    atom_status st = ATOM_OK;
    ATOM_TRY(check_options(options));
    preparation *p = atom_alloc(1, sizeof *p);
    if (!p)
        return atom_fail_memory("a preparation", sizeof *p);
    p->options = options;
    p->staging.lock_fd = -1;
    p->slots = options->threads ? atom_threads_slots(options->threads) : 1;
    p->words = atom_alloc(p->slots, sizeof(text_words *));
    p->encoders = atom_alloc(p->slots, sizeof(text_encoder *));
    if (!p->words || !p->encoders)
        ATOM_TRY_CLEAN(atom_fail_memory("a preparation", p->slots * sizeof(void *)));
    json_object_seed(0); /* before threads use it */
    ATOM_TRY_CLEAN(text_staging_init(options->output_dir, options->force, &p->staging));
    ATOM_TRY_CLEAN(make_tokenizer(p));
    ATOM_TRY_CLEAN(text_specials_init(&p->specials, p->tokenizer));
    ATOM_TRY_CLEAN(open_template(p));
    ATOM_TRY_CLEAN(encode_all(p));
    p->report.template = p->report.chats ? text_template_name(p->template) : NULL;
    const char *of_chats = options->template.variables ? "template_vars" : options->of_chats;
    if (of_chats && p->report.chats == 0)
        ATOM_TRY_CLEAN(atom_fail(ATOM_E_USAGE,
                                 "%s would have no effect: there are no chats in the input, and "
                                 "texts have no template and are learned completely; leave it out",
                                 of_chats));
    ATOM_TRY_CLEAN(split_val(p));
    ATOM_TRY_CLEAN(save_all(p));
    if (report)
        *report = p->report;
cleanup:
    preparation_fini(p);
    return st;
}
