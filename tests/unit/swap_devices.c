/*
 * Tapes for several devices: waits between them, what the proof finds, what runs, and what a device
 * that fails must not reach.
 */
#include "atom/base/mem.h"
#include "swap/exec.h"
#include "swap/stall.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum { PIECE = 256, N = 4 };

static swap_instr instr(swap_accesses *room, swap_code code, uint32_t device,
                        dev_stream_kind stream)
{
    return (swap_instr){.reads = room->reads,
                        .writes = room->writes,
                        .code = code,
                        .device = (uint8_t)device,
                        .stream = stream,
                        .sub_model = -1,
                        .micro_batch = -1};
}

static swap_range piece(swap_space space, uint64_t i)
{
    return (swap_range){space, i * PIECE, PIECE};
}

static void add_copy(swap_tape *tape, swap_code code, uint32_t device, dev_stream_kind stream,
                     swap_range dst, swap_range src)
{
    swap_accesses room;
    swap_instr in = instr(&room, code, device, stream);
    in.src = src;
    in.dst = dst;
    in.cost.seconds = 1;
    swap_instr_reads(&in, src);
    swap_instr_writes(&in, dst);
    assert_int_equal(swap_tape_add(tape, &in), ATOM_OK);
}

static void add_clear(swap_tape *tape, uint32_t device, swap_range dst)
{
    swap_accesses room;
    swap_instr in = instr(&room, SWAP_CLEAR, device, DEV_COMPUTE);
    in.dst = dst;
    in.cost.seconds = 1;
    swap_instr_writes(&in, dst);
    assert_int_equal(swap_tape_add(tape, &in), ATOM_OK);
}

/* What is in piece 0 of the slab goes through all devices, each time one piece further; then the
 * first device clears its copy, and sends that to piece 0. */
static swap_tape *relay(uint32_t n_devices)
{
    swap_tape *tape = NULL;
    assert_int_equal(swap_tape_open(SWAP_TAPE_FIRST, 1, n_devices, &tape), ATOM_OK);
    tape->device_bytes = PIECE;
    tape->host_bytes = (uint64_t)PIECE * (n_devices + 1);
    for (uint32_t d = 0; d < n_devices; d++) {
        add_copy(tape, SWAP_TAKE, d, DEV_H2D, piece(SWAP_DEVICE, 0), piece(SWAP_HOST, d));
        add_copy(tape, SWAP_HAND, d, DEV_D2H, piece(SWAP_HOST, d + 1), piece(SWAP_DEVICE, 0));
    }
    add_clear(tape, 0, piece(SWAP_DEVICE, 0));
    add_copy(tape, SWAP_HAND, 0, DEV_D2H, piece(SWAP_HOST, 0), piece(SWAP_DEVICE, 0));
    return tape;
}

static void waits_go_between_devices(void **state)
{
    (void)state;
    swap_tape *tape = relay(3);
    assert_int_equal(swap_tape_link(tape), ATOM_OK);
    assert_int_equal(swap_hazard_check(tape), ATOM_OK);
    assert_int_equal(tape->instrs[0].n_waits, 0);
    for (uint32_t i = 1; i < 6; i++) { /* each waits for the one before it, on another lane */
        assert_int_equal(tape->instrs[i].n_waits, 1);
        assert_int_equal(tape->instrs[i].waits[0], i - 1);
    }
    assert_int_equal(tape->instrs[6].waits[0], 1); /* its own device's copies, nobody else's */
    char *text = NULL;
    assert_int_equal(swap_tape_print(tape, &text), ATOM_OK);
    assert_non_null(strstr(text, "TAKE    @2"));
    atom_free(text);
    swap_tape_close(&tape);
}

/* The same offsets on two devices are different memory. */
static void arenas_are_apart(void **state)
{
    (void)state;
    swap_tape *tape = NULL;
    assert_int_equal(swap_tape_open(SWAP_TAPE_FIRST, 1, 2, &tape), ATOM_OK);
    tape->device_bytes = PIECE;
    add_clear(tape, 0, piece(SWAP_DEVICE, 0));
    add_clear(tape, 1, piece(SWAP_DEVICE, 0));
    assert_int_equal(swap_tape_link(tape), ATOM_OK);
    assert_int_equal(tape->instrs[1].n_waits, 0);
    assert_int_equal(swap_hazard_check(tape), ATOM_OK);
    swap_tape_close(&tape);
}

static void a_missing_wait_is_found(void **state)
{
    (void)state;
    for (uint32_t i = 1; i < 8; i++) {
        swap_tape *tape = relay(3);
        assert_int_equal(swap_tape_link(tape), ATOM_OK);
        if (tape->instrs[i].n_waits) {
            tape->instrs[i].n_waits = 0;
            assert_int_equal(swap_hazard_check(tape), ATOM_E_RUNTIME);
        }
        swap_tape_close(&tape);
    }
}

static void only_device_0_has_the_host(void **state)
{
    (void)state;
    const struct {
        uint32_t device;
        dev_stream_kind stream;
        atom_status status;
    } cases[] = {{0, DEV_HOST, ATOM_OK},           {1, DEV_D2H, ATOM_OK},
                 {1, DEV_HOST, ATOM_E_RUNTIME},    {1, DEV_STORE, ATOM_E_RUNTIME},
                 {2, DEV_COMPUTE, ATOM_E_RUNTIME}, {200, DEV_H2D, ATOM_E_RUNTIME}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        swap_tape *tape = NULL;
        assert_int_equal(swap_tape_open(SWAP_TAPE_FIRST, 1, 2, &tape), ATOM_OK);
        swap_accesses room;
        swap_instr in = instr(&room, SWAP_CLIP, cases[i].device, cases[i].stream);
        assert_int_equal(swap_tape_add(tape, &in), ATOM_OK);
        assert_int_equal(swap_hazard_check(tape), cases[i].status);
        swap_tape_close(&tape);
    }
}

/* --- running --------------------------------------------------------------------------------- */

typedef struct world {
    atom_threads *threads;
    dev *devices[N];
    swap_exec *exec;
} world;

static void open_world(world *w, const swap_tape *tape, bool null)
{
    *w = (world){0};
    assert_int_equal(atom_threads_open(2, &w->threads), ATOM_OK);
    swap_exec_config config = {.n_devices = tape->n_devices,
                               .threads = w->threads,
                               .device_bytes = tape->device_bytes,
                               .host_bytes = tape->host_bytes,
                               .instrs_max = tape->n};
    for (uint32_t d = 0; d < tape->n_devices; d++) {
        if (!null)
            assert_int_equal(dev_cpu_open(&(dev_cpu_config){0}, w->threads, &w->devices[d]),
                             ATOM_OK);
        else if (d == 0)
            assert_int_equal(dev_null_open(0, &w->devices[d]), ATOM_OK);
        else
            assert_int_equal(dev_null_open_beside(w->devices[0], 0, &w->devices[d]), ATOM_OK);
        config.devices[d] = w->devices[d];
    }
    assert_int_equal(swap_exec_open(&config, &w->exec), ATOM_OK);
}

static void close_world(world *w)
{
    swap_exec_close(&w->exec);
    for (int d = 0; d < N; d++)
        dev_close(&w->devices[d]);
    atom_threads_close(&w->threads);
}

static void a_relay_runs(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= N; n++) {
        world w;
        swap_tape *tape = relay(n);
        assert_int_equal(swap_tape_link(tape), ATOM_OK);
        open_world(&w, tape, false);
        char *slab = swap_exec_slab(w.exec);
        for (int turn = 0; turn < 50; turn++) {
            char want[PIECE], zero[PIECE] = {0};
            memset(want, 'a' + turn % 20, sizeof want);
            memcpy(slab, want, sizeof want);
            assert_int_equal(swap_exec_run(w.exec, tape, &(swap_step){0}, NULL), ATOM_OK);
            for (uint32_t d = 0; d < n; d++)
                assert_memory_equal(slab + (d + 1) * PIECE, want, sizeof want);
            assert_memory_equal(slab, zero, sizeof zero);
        }
        close_world(&w);
        swap_tape_close(&tape);
    }
}

static void virtual_time_of_a_relay(void **state)
{
    (void)state;
    world w;
    swap_result result;
    swap_tape *tape = relay(2);
    assert_int_equal(swap_tape_link(tape), ATOM_OK);
    open_world(&w, tape, true);
    assert_int_equal(swap_exec_run(w.exec, tape, &(swap_step){0}, &result), ATOM_OK);
    assert_float_equal(result.seconds, 4, 1e-9); /* the last two run beside device 1 */
    uint32_t n;
    swap_stalls stalls = swap_stalls_of(tape, swap_exec_spans(w.exec, &n));
    assert_float_equal(stalls.busy_seconds, 0.5, 1e-9); /* one of two devices for a second */
    assert_float_equal(stalls.step_seconds, 4, 1e-9);
    assert_float_equal(swap_exec_stats(w.exec, 1, DEV_H2D).busy_seconds, 1, 1e-9);
    assert_float_equal(swap_exec_stats(w.exec, 1, DEV_HOST).busy_seconds, 0, 0);
    close_world(&w);
    swap_tape_close(&tape);
}

static bool yes(const dev *d)
{
    (void)d;
    return true;
}

static atom_status break_down(void *arg)
{
    (void)arg;
    return atom_fail(ATOM_E_RUNTIME, "the card fell off");
}

static swap_tape *relay_with_clip(void)
{
    swap_tape *tape = relay(2);
    swap_accesses room;
    swap_instr clip = instr(&room, SWAP_CLIP, 0, DEV_HOST);
    swap_instr_reads(&clip, piece(SWAP_HOST, 2));
    assert_int_equal(swap_tape_add(tape, &clip), ATOM_OK);
    assert_int_equal(swap_tape_link(tape), ATOM_OK);
    return tape;
}

/* All that a device leaves behind when it fails in the middle of a step passes as if it were there;
 * the host must not use it. */
static void a_failed_device_stops_the_host(void **state)
{
    (void)state;
    world w;
    swap_tape *tape = relay_with_clip();
    open_world(&w, tape, false);
    dev_ops failed = *w.devices[1]->ops;
    failed.has_failed = yes;
    swap_result result = {.grad_norm = 7};
    assert_int_equal(swap_exec_run(w.exec, tape, &(swap_step){0}, &result), ATOM_OK);
    assert_float_equal(result.grad_norm, 0, 0); /* CLIP was here */
    w.devices[1]->ops = &failed;
    assert_int_equal(swap_exec_run(w.exec, tape, &(swap_step){0}, &result), ATOM_E_DEAD);
    assert_non_null(strstr(atom_fail_message(), "device 1 failed"));
    close_world(&w);
    swap_tape_close(&tape);
}

/* What it said itself is what is passed on. */
static void the_first_failure_is_told(void **state)
{
    (void)state;
    world w;
    swap_tape *tape = relay_with_clip();
    open_world(&w, tape, false);
    dev *second = w.devices[1];
    dev_stream *s = NULL;
    assert_int_equal(second->ops->stream_open(second, DEV_HOST, "s", &s), ATOM_OK);
    assert_int_equal(second->ops->host_call(second, s, break_down, NULL, (dev_cost){0}), ATOM_OK);
    while (!second->ops->has_failed(second))
        continue;
    assert_false(w.devices[0]->ops->has_failed(w.devices[0]));
    assert_int_equal(swap_exec_run(w.exec, tape, &(swap_step){0}, NULL), ATOM_E_RUNTIME);
    assert_non_null(strstr(atom_fail_message(), "the card fell off"));
    assert_int_equal(swap_exec_run(w.exec, tape, &(swap_step){0}, NULL), ATOM_E_DEAD);
    close_world(&w);
    swap_tape_close(&tape);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waits_go_between_devices),
        cmocka_unit_test(arenas_are_apart),
        cmocka_unit_test(a_missing_wait_is_found),
        cmocka_unit_test(only_device_0_has_the_host),
        cmocka_unit_test(a_relay_runs),
        cmocka_unit_test(virtual_time_of_a_relay),
        cmocka_unit_test(a_failed_device_stops_the_host),
        cmocka_unit_test(the_first_failure_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
