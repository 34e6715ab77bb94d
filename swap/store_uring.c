/*
 * Owns requests through io_uring: file and ring memory are registered, so that the kernel looks
 * them up once instead of once per request. One idea: requests collect in the submission ring and
 * go down in one system call with the wait for the next completion. Refuses to poll: a sleeping
 * lane costs no core.
 */
#include "swap/store_engine.h"

#include "atom/base/mem.h"

#include <errno.h>
#include <liburing.h>
#include <string.h>

/* The kernel registers pieces of 1 GiB at most. */
#define PIECE_BYTES ((uint64_t)1 << 30)
enum { PIECES_MAX = 1024 };

struct store_queue {
    struct io_uring ring;
    int fd;
    bool file_registered, registered;
    char *base;
    uint64_t bytes;
};

static void register_ring(store_queue *q, void *ring, uint64_t bytes)
{
    uint64_t pieces = (bytes + PIECE_BYTES - 1) / PIECE_BYTES;
    if (!ring || bytes == 0 || pieces > PIECES_MAX)
        return;
    struct iovec *v = atom_alloc(pieces, sizeof *v);
    if (!v)
        return;
    for (uint64_t i = 0; i < pieces; i++) {
        uint64_t left = bytes - i * PIECE_BYTES;
        v[i] =
            (struct iovec){(char *)ring + i * PIECE_BYTES, left < PIECE_BYTES ? left : PIECE_BYTES};
    }
    q->registered = io_uring_register_buffers(&q->ring, v, (unsigned)pieces) == 0;
    q->base = ring;
    q->bytes = bytes;
    atom_free(v);
}

static atom_status uring_open(const store_queue_config *config, store_queue **out)
{
    store_queue *q = atom_alloc(1, sizeof *q);
    if (!q)
        return atom_fail_memory("an io_uring", sizeof *q);
    int code = io_uring_queue_init(config->depth, &q->ring, 0);
    if (code) {
        atom_free(q);
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "io_uring is not allowed here (%s); that is usual in containers and "
                         "with io_uring_disabled",
                         strerror(-code));
    }
    q->fd = config->fd;
    q->file_registered = io_uring_register_files(&q->ring, &q->fd, 1) == 0;
    register_ring(q, config->ring, config->ring_bytes);
    *out = q;
    return ATOM_OK;
}

/* The registered piece that holds a request's buffer whole; -1: none. */
static int piece_of(const store_queue *q, const store_io *io)
{
    if (!q->registered || io->buffer < q->base)
        return -1;
    uint64_t from = (uint64_t)(io->buffer - q->base), last = from + io->bytes - 1;
    if (last >= q->bytes || from / PIECE_BYTES != last / PIECE_BYTES)
        return -1;
    return (int)(from / PIECE_BYTES);
}

static void uring_submit(store_queue *q, store_io *io)
{
    struct io_uring_sqe *e = io_uring_get_sqe(&q->ring);
    int file = q->file_registered ? 0 : q->fd, piece = piece_of(q, io);
    if (piece >= 0 && io->write)
        io_uring_prep_write_fixed(e, file, io->buffer, io->bytes, io->offset, piece);
    else if (piece >= 0)
        io_uring_prep_read_fixed(e, file, io->buffer, io->bytes, io->offset, piece);
    else if (io->write)
        io_uring_prep_write(e, file, io->buffer, io->bytes, io->offset);
    else
        io_uring_prep_read(e, file, io->buffer, io->bytes, io->offset);
    if (q->file_registered)
        io_uring_sqe_set_flags(e, IOSQE_FIXED_FILE);
    io_uring_sqe_set_data(e, io);
}

static atom_status uring_flush(store_queue *q)
{
    int code = io_uring_submit(&q->ring);
    if (code < 0 && code != -EBUSY && code != -EAGAIN && code != -EINTR)
        return atom_fail_errno(-code, "io_uring: submit");
    return ATOM_OK;
}

static atom_status uring_reap(store_queue *q, store_io **done, uint32_t max, uint32_t *n)
{
    int code = io_uring_submit_and_wait(&q->ring, 1);
    if (code < 0 && code != -EBUSY && code != -EAGAIN && code != -EINTR)
        return atom_fail_errno(-code, "io_uring: wait");
    struct io_uring_cqe *e;
    uint32_t count = 0;
    while (count < max && io_uring_peek_cqe(&q->ring, &e) == 0) {
        done[count] = io_uring_cqe_get_data(e);
        done[count++]->result = e->res;
        io_uring_cqe_seen(&q->ring, e);
    }
    *n = count;
    return ATOM_OK;
}

static bool uring_registered(const store_queue *q)
{
    return q->registered;
}

static void uring_close(store_queue *q)
{
    if (!q)
        return;
    io_uring_queue_exit(&q->ring);
    atom_free(q);
}

const store_engine store_engine_uring = {.name = "io_uring",
                                         .open = uring_open,
                                         .submit = uring_submit,
                                         .flush = uring_flush,
                                         .reap = uring_reap,
                                         .registered = uring_registered,
                                         .close = uring_close};
