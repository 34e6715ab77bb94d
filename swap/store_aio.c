/*
 * Owns requests through libaio, for kernels and containers that refuse io_uring. One idea: the same
 * queue with the older system calls; it is asynchronous only for files opened with O_DIRECT, which
 * is how a store opens them. Refuses nothing else.
 */
#include "swap/store_engine.h"

#include "atom/base/mem.h"

#include <errno.h>
#include <libaio.h>
#include <string.h>

struct store_queue {
    io_context_t context;
    int fd;
    uint32_t depth, waiting, free_blocks;
    struct iocb *block;     /* [depth] */
    struct iocb **unused;   /* [depth], the first free_blocks */
    struct iocb **pending;  /* [depth], the first waiting: not yet submitted */
    struct io_event *event; /* [depth] */
};

static void aio_close(store_queue *q)
{
    if (!q)
        return;
    if (q->context)
        (void)io_destroy(q->context);
    atom_free(q->block);
    atom_free((void *)q->unused);
    atom_free((void *)q->pending);
    atom_free(q->event);
    atom_free(q);
}

static atom_status aio_open(const store_queue_config *config, store_queue **out)
{
    store_queue *q = atom_alloc(1, sizeof *q);
    if (!q)
        return atom_fail_memory("a libaio queue", sizeof *q);
    q->fd = config->fd;
    q->depth = q->free_blocks = config->depth;
    q->block = atom_alloc(q->depth, sizeof *q->block);
    q->unused = atom_alloc(q->depth, sizeof(struct iocb *));
    q->pending = atom_alloc(q->depth, sizeof(struct iocb *));
    q->event = atom_alloc(q->depth, sizeof *q->event);
    if (!q->block || !q->unused || !q->pending || !q->event) {
        aio_close(q);
        return atom_fail_memory("a libaio queue", config->depth * sizeof *q->block);
    }
    for (uint32_t i = 0; i < q->depth; i++)
        q->unused[i] = &q->block[i];
    int code = io_setup((int)q->depth, &q->context);
    if (code) {
        q->context = NULL;
        aio_close(q);
        return atom_fail(ATOM_E_UNSUPPORTED, "libaio is not allowed here (%s); see fs.aio-max-nr",
                         strerror(-code));
    }
    *out = q;
    return ATOM_OK;
}

static void aio_submit(store_queue *q, store_io *io)
{
    struct iocb *b = q->unused[--q->free_blocks];
    if (io->write)
        io_prep_pwrite(b, q->fd, io->buffer, io->bytes, (long long)io->offset);
    else
        io_prep_pread(b, q->fd, io->buffer, io->bytes, (long long)io->offset);
    b->data = io;
    q->pending[q->waiting++] = b;
}

static atom_status aio_flush(store_queue *q)
{
    uint32_t sent = 0;
    while (sent < q->waiting) {
        int code = io_submit(q->context, (long)(q->waiting - sent), q->pending + sent);
        if (code == -EINTR)
            continue;
        if (code == -EAGAIN || code == 0)
            break; /* the rest goes down after the next completion */
        if (code < 0)
            return atom_fail_errno(-code, "libaio: submit");
        sent += (uint32_t)code;
    }
    q->waiting -= sent;
    memmove((void *)q->pending, (void *)(q->pending + sent), q->waiting * sizeof(struct iocb *));
    return ATOM_OK;
}

static atom_status aio_reap(store_queue *q, store_io **done, uint32_t max, uint32_t *n)
{
    ATOM_TRY(aio_flush(q));
    uint32_t room = max < q->depth ? max : q->depth;
    int code;
    do
        code = io_getevents(q->context, 1, (long)room, q->event, NULL);
    while (code == -EINTR);
    if (code < 0)
        return atom_fail_errno(-code, "libaio: wait");
    for (int i = 0; i < code; i++) {
        done[i] = q->event[i].data;
        done[i]->result = (int64_t)q->event[i].res;
        q->unused[q->free_blocks++] = q->event[i].obj;
    }
    *n = (uint32_t)code;
    return ATOM_OK;
}

const store_engine store_engine_aio = {.name = "libaio",
                                       .open = aio_open,
                                       .submit = aio_submit,
                                       .flush = aio_flush,
                                       .reap = aio_reap,
                                       .close = aio_close};
