/* The local socket: one line each way, long paths, dead sockets, other programs. */
#include "gossip/pool/control.h"
#include "gossip/pool/control_orders.h"
#include "tests/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static char *echo(void *context, const char *request)
{
    atomic_fetch_add((_Atomic unsigned *)context, 1); /* it is called on a thread of its own */
    if (strcmp(request, "nothing") == 0)
        return NULL;
    if (strcmp(request, "long") == 0) {
        char *text = atom_alloc(1, 1000001);
        if (text)
            memset(text, 'x', 1000000);
        return text;
    }
    return atom_format("you said %s", request);
}

static void must(atom_status st)
{
    if (st != ATOM_OK)
        fail_msg("%s", atom_fail_message());
}

static void asks(void **state)
{
    (void)state;
    scratch place;
    _Atomic unsigned calls = 0;
    char *answer = NULL, name[200];
    gsp_control *c = NULL, *second = NULL;
    scratch_open(&place);
    /* Longer than a socket's name can be. */
    memset(name, 'd', sizeof name - 1);
    name[sizeof name - 1] = 0;
    const char *dir = scratch_path(&place, name);
    must(atom_dir_make(dir));
    assert_int_equal(gsp_control_ask(dir, "x", 1, &answer), ATOM_E_RUNTIME);
    must(gsp_control_open(dir, echo, &calls, &c));
    must(gsp_control_ask(dir, "hello", 5, &answer));
    assert_string_equal(answer, "you said hello");
    atom_free(answer);
    must(gsp_control_ask(dir, "long", 10, &answer));
    assert_int_equal(strlen(answer), 1000000);
    atom_free(answer);
    assert_int_equal(gsp_control_ask(dir, "nothing", 5, &answer), ATOM_E_RUNTIME);
    assert_int_equal(calls, 3);
    /* Another program must not take it over. */
    assert_int_equal(gsp_control_open(dir, echo, &calls, &second), ATOM_E_USAGE);
    assert_null(second);
    must(gsp_control_ask(dir, "again", 5, &answer));
    atom_free(answer);
    gsp_control_close(&c);
    assert_null(c);
    assert_int_equal(gsp_control_ask(dir, "x", 1, &answer), ATOM_E_RUNTIME);
    assert_int_equal(gsp_control_ask("/no/such/directory", "x", 1, &answer), ATOM_E_USAGE);
    scratch_close(&place);
}

/* A raw connection that sends these bytes and reads to the end; how many came back. */
static size_t raw(const char *dir, const void *data, size_t bytes)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    char back[256];
    size_t n = 0;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_true(strlen(dir) + 20 < sizeof at.sun_path);
    strcpy(at.sun_path, dir);
    strcat(at.sun_path, "/control.sock");
    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    while (bytes) {
        ssize_t sent = send(fd, data, bytes, MSG_NOSIGNAL);
        if (sent <= 0)
            break;
        data = (const char *)data + sent;
        bytes -= (size_t)sent;
    }
    shutdown(fd, SHUT_WR);
    for (ssize_t got; (got = read(fd, back, sizeof back)) > 0;)
        n += (size_t)got;
    close(fd);
    return n;
}

static void bad_clients(void **state)
{
    (void)state;
    scratch place;
    _Atomic unsigned calls = 0;
    gsp_control *c = NULL;
    struct stat s;
    static char much[64 * 1024];
    scratch_open(&place);
    must(gsp_control_open(place.dir, echo, &calls, &c));
    assert_int_equal(stat(scratch_path(&place, "control.sock"), &s), 0);
    assert_int_equal(s.st_mode & 0777, 0600);
    memset(much, 'm', sizeof much);
    assert_int_equal(raw(place.dir, much, sizeof much), 0); /* no line within the limit */
    assert_int_equal(raw(place.dir, "", 0), 0);
    assert_int_equal(raw(place.dir, "cut", 3), 0);
    assert_int_equal(calls, 0);
    assert_true(raw(place.dir, "a\nb\n", 4) > 0); /* one request per connection */
    assert_int_equal(calls, 1);
    gsp_control_close(&c);
    scratch_close(&place);
}

/* A program that was killed leaves its socket file. */
static void dead_sockets(void **state)
{
    (void)state;
    scratch place;
    _Atomic unsigned calls = 0;
    char *answer = NULL;
    gsp_control *c = NULL;
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    scratch_open(&place);
    strcpy(at.sun_path, scratch_path(&place, "control.sock"));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    close(fd);
    assert_true(atom_path_exists(at.sun_path));
    assert_int_equal(gsp_control_ask(place.dir, "x", 1, &answer), ATOM_E_RUNTIME);
    must(gsp_control_open(place.dir, echo, &calls, &c));
    must(gsp_control_ask(place.dir, "x", 5, &answer));
    atom_free(answer);
    gsp_control_close(&c);
    assert_false(atom_path_exists(at.sun_path));
    scratch_close(&place);
}

/* Whoever does not come to answering is there nevertheless. */
static void a_queue_that_is_full_is_not_nobody(void **state)
{
    (void)state;
    scratch place;
    _Atomic unsigned calls = 0;
    char *answer = NULL;
    gsp_control *c = NULL;
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    scratch_open(&place);
    must(atom_file_write(scratch_path(&place, "identity"), "x", 1));
    strcpy(at.sun_path, scratch_path(&place, "control.sock"));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(fd, 0), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(gsp_control_ask(place.dir, "x", 0.1, &answer), ATOM_E_RUNTIME);
        assert_non_null(strstr(atom_fail_message(), "gave no answer"));
    }
    assert_int_equal(gsp_control_open(place.dir, echo, &calls, &c), ATOM_E_USAGE);
    close(fd);
    assert_int_equal(gsp_control_ask(place.dir, "x", 0.1, &answer), ATOM_E_RUNTIME);
    assert_non_null(strstr(atom_fail_message(), "no member runs here now"));
    scratch_close(&place);
}

enum { CALLERS = 2 }; /* that are in a queue of one place */

/* Answers the callers of before, who have gone, and then one who asks something. */
static void *answer_late(void *context)
{
    const int *fd = context;
    const struct timespec a_while = {.tv_nsec = 100000000};
    bool answered = false;
    nanosleep(&a_while, NULL);
    while (!answered) {
        char byte = 0;
        int caller = accept(*fd, NULL, NULL);
        if (caller < 0)
            return NULL;
        while (byte != '\n' && read(caller, &byte, 1) == 1)
            continue; /* what is left unread would end the connection before the answer is read */
        answered = byte == '\n' && write(caller, "late\n", 5) == 5;
        close(caller);
    }
    return NULL;
}

/* Whoever finds the queue full tries again, in the time that it has. */
static void a_queue_gets_shorter(void **state)
{
    (void)state;
    scratch place;
    char *answer = NULL;
    pthread_t thread;
    int caller[CALLERS];
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    scratch_open(&place);
    must(atom_file_write(scratch_path(&place, "identity"), "x", 1));
    strcpy(at.sun_path, scratch_path(&place, "control.sock"));
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(fd, 0), 0);
    for (int i = 0; i < CALLERS; i++) {
        caller[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        int failed = connect(caller[i], (struct sockaddr *)&at, sizeof at);
        assert_true(i == 0 ? failed == 0 : failed != 0 && errno == EAGAIN);
        close(caller[i]);
    }
    assert_int_equal(pthread_create(&thread, NULL, answer_late, &fd), 0);
    must(gsp_control_ask(place.dir, "x", 60, &answer));
    assert_string_equal(answer, "late");
    atom_free(answer);
    pthread_join(thread, NULL);
    close(fd);
    scratch_close(&place);
}

static atomic_int refused_with; /* errno; 0: the kernel is asked */
static atomic_uint asked;

/* Takes the place of the C library's. */
int accept4(int fd, struct sockaddr *from, socklen_t *bytes, int flags)
{
    int error = refused_with;
    asked++;
    if (!error)
        return (int)syscall(SYS_accept4, fd, from, bytes, flags);
    errno = error;
    return -1;
}

/* A process without descriptors does not spin; with one again, whoever waited is answered. */
static void without_descriptors(void **state)
{
    (void)state;
    enum { SPINS = 100 }; /* it would be asked many thousand times */
    scratch place;
    _Atomic unsigned calls = 0;
    char *answer = NULL;
    gsp_control *c = NULL;
    scratch_open(&place);
    must(gsp_control_open(place.dir, echo, &calls, &c));
    static const int errors[] = {EMFILE, ENFILE, ENOMEM, ENOBUFS};
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        refused_with = errors[i];
        asked = 0;
        assert_int_equal(gsp_control_ask(place.dir, "x", i ? 0.1 : 1, &answer), ATOM_E_RUNTIME);
        assert_in_range(asked, 1, SPINS);
        refused_with = 0;
        must(gsp_control_ask(place.dir, "x", 10, &answer));
        assert_string_equal(answer, "you said x");
        atom_free(answer);
    }
    refused_with = ENFILE;
    gsp_control_close(&c); /* nor does it sleep through its end */
    refused_with = 0;
    scratch_close(&place);
}

int __real_clock_gettime(clockid_t clock, struct timespec *out);
int __wrap_clock_gettime(clockid_t clock, struct timespec *out);
/* The calendar is an hour ahead: whoever waits by it waits for an hour, as where it is set back meanwhile. */
int __wrap_clock_gettime(clockid_t clock, struct timespec *out)
{
    int failed = __real_clock_gettime(clock, out);
    out->tv_sec += clock == CLOCK_REALTIME ? 3600 : 0;
    return failed;
}

/* An order that nobody takes ends in its time, whatever the calendar says. */
static void orders_end(void **state)
{
    (void)state;
    const gsp_control_order wanted = {.kind = GSP_CONTROL_ORDER_ROTATE};
    gsp_control_order answer;
    gsp_control_orders o;
    gsp_control_orders_open(&o);
    alarm(60);
    assert_false(gsp_control_orders_give(&o, &wanted, 1, &answer));
    alarm(0);
    assert_false(gsp_control_orders_take(&o, &answer)); /* whoever gave it has gone */
    gsp_control_orders_close(&o);
}

typedef struct giver {
    gsp_control_orders *orders;
    gsp_control_order wanted, answer;
    int seconds;
    bool heard;
    pthread_t thread;
} giver;

static void *give(void *context)
{
    giver *g = context;
    g->heard = gsp_control_orders_give(g->orders, &g->wanted, g->seconds, &g->answer);
    return NULL;
}

/* Starts to give an order, and takes it. */
static gsp_control_order begin(giver *g, gsp_control_orders *o, gsp_control_order_kind kind,
                               int seconds)
{
    gsp_control_order taken;
    *g = (giver){.orders = o, .wanted.kind = kind, .seconds = seconds};
    assert_int_equal(pthread_create(&g->thread, NULL, give, g), 0);
    while (!gsp_control_orders_take(o, &taken))
        usleep(1000);
    assert_int_equal(taken.kind, kind);
    return taken;
}

/* One that took longer than somebody waited for it, as with a full disk, is not the answer to the next order. */
static void an_answer_is_of_its_order(void **state)
{
    (void)state;
    gsp_control_orders o;
    gsp_control_order again;
    static giver first, second;
    gsp_control_orders_open(&o);
    const gsp_control_order slow = begin(&first, &o, GSP_CONTROL_ORDER_BAN, 1);
    pthread_join(first.thread, NULL);
    assert_false(first.heard);
    const gsp_control_order next = begin(&second, &o, GSP_CONTROL_ORDER_ROTATE, 60);
    gsp_control_orders_answer(&o, &slow, ATOM_OK, "banned", NULL);
    assert_true(gsp_control_orders_take(&o, &again)); /* it still waits to be obeyed */
    gsp_control_orders_answer(&o, &next, ATOM_E_USAGE, "not rotated", "why");
    pthread_join(second.thread, NULL);
    assert_true(second.heard && second.answer.st == ATOM_E_USAGE);
    assert_string_equal(second.answer.text, "not rotated");
    assert_string_equal(second.answer.note, "why");
    assert_false(gsp_control_orders_take(&o, &again));
    gsp_control_orders_close(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(asks),
        cmocka_unit_test(bad_clients),
        cmocka_unit_test(dead_sockets),
        cmocka_unit_test(a_queue_that_is_full_is_not_nobody),
        cmocka_unit_test(a_queue_gets_shorter),
        cmocka_unit_test(without_descriptors),
        cmocka_unit_test(orders_end),
        cmocka_unit_test(an_answer_is_of_its_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
