/*
 * Owns requests on threads that read and write at positions, for machines that have neither
 * io_uring nor libaio. One idea: a list of requests, a few threads that take the oldest, a list of
 * what is done. Refuses to start a thread per request.
 */
#include "swap/store_engine.h"

#include "atom/base/mem.h"

#include <errno.h>
#include <pthread.h>
#include <unistd.h>

enum { WORKERS_MAX = 8 };

/* A first-in first-out list with room for `depth`. */
typedef struct io_list {
    store_io **at;
    uint32_t first, n;
} io_list;

struct store_queue {
    int fd;
    uint32_t depth, workers;
    pthread_mutex_t lock;
    pthread_cond_t work, finished;
    io_list todo, done;
    bool ending;
    pthread_t thread[WORKERS_MAX];
};

static void list_put(io_list *l, uint32_t depth, store_io *io)
{
    l->at[(l->first + l->n++) % depth] = io;
}
static store_io *list_get(io_list *l, uint32_t depth)
{
    store_io *io = l->at[l->first];
    l->first = (l->first + 1) % depth;
    l->n--;
    return io;
}

static void io_run(int fd, store_io *io)
{
    ssize_t moved = io->write ? pwrite(fd, io->buffer, io->bytes, (off_t)io->offset)
                              : pread(fd, io->buffer, io->bytes, (off_t)io->offset);
    io->result = moved < 0 ? -errno : moved;
}

static void *worker(void *arg)
{
    store_queue *q = arg;
    pthread_mutex_lock(&q->lock);
    for (;;) {
        while (q->todo.n == 0 && !q->ending)
            pthread_cond_wait(&q->work, &q->lock);
        if (q->todo.n == 0)
            break;
        store_io *io = list_get(&q->todo, q->depth);
        pthread_mutex_unlock(&q->lock);
        io_run(q->fd, io);
        pthread_mutex_lock(&q->lock);
        list_put(&q->done, q->depth, io);
        pthread_cond_signal(&q->finished);
    }
    pthread_mutex_unlock(&q->lock);
    return NULL;
}

static void threads_close(store_queue *q)
{
    if (!q)
        return;
    pthread_mutex_lock(&q->lock);
    q->ending = true;
    pthread_cond_broadcast(&q->work);
    pthread_mutex_unlock(&q->lock);
    for (uint32_t i = 0; i < q->workers; i++)
        pthread_join(q->thread[i], NULL);
    pthread_cond_destroy(&q->work);
    pthread_cond_destroy(&q->finished);
    pthread_mutex_destroy(&q->lock);
    atom_free((void *)q->todo.at);
    atom_free((void *)q->done.at);
    atom_free(q);
}

static atom_status threads_open(const store_queue_config *config, store_queue **out)
{
    store_queue *q = atom_alloc(1, sizeof *q);
    if (!q)
        return atom_fail_memory("a queue of reads and writes", sizeof *q);
    q->fd = config->fd;
    q->depth = config->depth;
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->work, NULL);
    pthread_cond_init(&q->finished, NULL);
    q->todo.at = atom_alloc(q->depth, sizeof(store_io *));
    q->done.at = atom_alloc(q->depth, sizeof(store_io *));
    int code = 0;
    while (q->todo.at && q->done.at && q->workers < WORKERS_MAX && q->workers < q->depth) {
        code = pthread_create(&q->thread[q->workers], NULL, worker, q);
        if (code)
            break;
        q->workers++;
    }
    if (q->workers == 0) {
        threads_close(q);
        return code ? atom_fail_errno(code, "a thread for the disk")
                    : atom_fail_memory("a queue of reads and writes", sizeof *q);
    }
    *out = q;
    return ATOM_OK;
}

static void threads_submit(store_queue *q, store_io *io)
{
    pthread_mutex_lock(&q->lock);
    list_put(&q->todo, q->depth, io);
    pthread_cond_signal(&q->work);
    pthread_mutex_unlock(&q->lock);
}

static atom_status threads_flush(store_queue *q)
{
    (void)q;
    return ATOM_OK;
}

static atom_status threads_reap(store_queue *q, store_io **done, uint32_t max, uint32_t *n)
{
    pthread_mutex_lock(&q->lock);
    while (q->done.n == 0)
        pthread_cond_wait(&q->finished, &q->lock);
    uint32_t count = 0;
    while (count < max && q->done.n > 0)
        done[count++] = list_get(&q->done, q->depth);
    pthread_mutex_unlock(&q->lock);
    *n = count;
    return ATOM_OK;
}

const store_engine store_engine_threads = {.name = "threads",
                                           .open = threads_open,
                                           .submit = threads_submit,
                                           .flush = threads_flush,
                                           .reap = threads_reap,
                                           .close = threads_close};
