/* Pickles that are not what torch.save writes: refused by name, with nothing left behind. What it
 * does write meets PyTorch's own in tests/oracle/torchfile_oracle.py. */
#include "atom/file/pickle.h"

#include "atom/base/mem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define PICKLE(text) (const uint8_t *)"\x80\x02" text, sizeof("\x80\x02" text) - 1

static void refused(const uint8_t *bytes, size_t n, atom_status status, const char *why)
{
    file_pickle p = {.path = "a.bin"};
    const file_pickle_value *root = NULL;
    size_t used = 0;
    uint8_t *own = atom_alloc(n + 1, 1); /* of its own length, so that reading past it is seen */
    memcpy(own, bytes, n);
    atom_status st = file_pickle_load(&p, own, n, &used, &root);
    if (st != status || !strstr(atom_fail_message(), why) || !strstr(atom_fail_message(), "a.bin"))
        fail_msg("%s: %s", atom_status_name(st), atom_fail_message());
    file_pickle_free(&p);
    atom_free(own);
}

static void test_refuses_what_is_no_tensor(void **state)
{
    (void)state;
    refused(PICKLE("cos\nsystem\nX\x02\0\0\0ls\x85R."), ATOM_E_UNSUPPORTED, "names os.system");
    refused(PICKLE("\x8c\x08"
                   "builtins"
                   "\x8c\x04"
                   "eval"
                   "\x93."),
            ATOM_E_UNSUPPORTED, "names builtins.eval");
    refused(PICKLE("ctorch\nFloatStorage\n)R."), ATOM_E_UNSUPPORTED, "calls torch.FloatStorage");
    refused(PICKLE("ccollections\nOrderedDict\n]\x85R."), ATOM_E_UNSUPPORTED, "OrderedDict");
    refused(PICKLE("ctorch._utils\n_rebuild_tensor_v2\n)R."), ATOM_E_UNSUPPORTED,
            "_rebuild_tensor");
    refused(PICKLE("ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nFloatStorage\n"
                   "X\x01\0\0\0"
                   "0X\x03\0\0\0cpuK\x01tQK\0))\x89}}X\x03\0\0\0neg\x88stR."),
            ATOM_E_UNSUPPORTED, "negated");
    refused(PICKLE("(X\x07\0\0\0storagectorch\nFloatStorage\nX\x01\0\0\0"
                   "0X\x03\0\0\0cpuK\x01K\x02tQ."),
            ATOM_E_UNSUPPORTED, "a part of another");
    refused(PICKLE("ctorch._utils\n_rebuild_parameter\n)R."), ATOM_E_UNSUPPORTED,
            "_rebuild_parameter");
    refused(PICKLE("ctorch._utils\n_rebuild_parameter\nN\x85R."), ATOM_E_UNSUPPORTED,
            "_rebuild_parameter");
    refused(PICKLE("}}b."), ATOM_E_UNSUPPORTED, "a state of its own");
    refused(PICKLE("}\x81."), ATOM_E_UNSUPPORTED, "instruction 0x81"); /* an object of a class */
    refused(PICKLE("(i__main__\nf\n."), ATOM_E_UNSUPPORTED, "instruction 0x69");
}

/* The seventh argument of a tensor, which is None or empty unless it is negated or conjugated. */
static void test_takes_no_metadata(void **state)
{
    static const char *const ends[] = {"N", "}"};
    (void)state;
    for (int i = 0; i < 2; i++) {
        char text[256];
        static const uint8_t begin[] =
            "\x80\x02"
            "ctorch._utils\n_rebuild_tensor_v2\n((X\x07\0\0\0storagectorch\nFloatStorage\n"
            "X\x01\0\0\0"
            "0X\x03\0\0\0cpuK\x01tQK\0))\x89}";
        file_pickle p = {.path = "a.bin"};
        const file_pickle_value *root = NULL;
        size_t used = 0, n = sizeof begin - 1;
        memcpy(text, begin, n);
        memcpy(text + n, ends[i], 1);
        memcpy(text + n + 1, "tR.", 3);
        if (file_pickle_load(&p, text, n + 4, &used, &root) != ATOM_OK)
            fail_msg("%s", atom_fail_message());
        assert_int_equal(root->kind, FILE_PICKLE_TENSOR);
        file_pickle_free(&p);
    }
}

static void test_takes_protocols(void **state)
{
    (void)state;
    for (char protocol = 2; protocol <= 5; protocol++) {
        const char text[] = {'\x80', protocol, 'N', '.'};
        file_pickle p = {.path = "a.bin"};
        const file_pickle_value *root = NULL;
        size_t used = 0;
        assert_int_equal(file_pickle_load(&p, text, sizeof text, &used, &root), ATOM_OK);
        assert_int_equal(root->kind, FILE_PICKLE_NONE);
        file_pickle_free(&p);
    }
}

static void test_refuses_what_is_damaged(void **state)
{
    (void)state;
    refused((const uint8_t *)"", 0, ATOM_E_FORMAT, "protocol");
    refused((const uint8_t *)"\x80\x06N.", 4, ATOM_E_FORMAT, "protocol");
    refused((const uint8_t *)"\x80\x01N.", 4, ATOM_E_FORMAT, "protocol");
    refused(PICKLE(""), ATOM_E_FORMAT, "ends early");
    refused(PICKLE("N"), ATOM_E_FORMAT, "ends early");
    refused(PICKLE("J\1\2"), ATOM_E_FORMAT, "ends early");
    refused(PICKLE("."), ATOM_E_FORMAT, "empty stack");
    refused(PICKLE("NN."), ATOM_E_FORMAT, "leaves values");
    refused(PICKLE("N\x86."), ATOM_E_FORMAT, "empty stack");
    refused(PICKLE("(\x85."), ATOM_E_FORMAT, "empty stack");
    refused(PICKLE("Nt."), ATOM_E_FORMAT, "no mark");
    refused(PICKLE("N(Ne."), ATOM_E_FORMAT, "not a container");
    refused(PICKLE("}(Nu."), ATOM_E_FORMAT, "not a container"); /* a key without a value */
    refused(PICKLE("NNs."), ATOM_E_FORMAT, "not a container");
    refused(PICKLE("s."), ATOM_E_FORMAT, "not a container");
    refused(PICKLE("h\1."), ATOM_E_FORMAT, "never remembered");
    refused(PICKLE("Nr\xff\xff\xff\xff."), ATOM_E_FORMAT, "remembers more");
    refused(PICKLE("q\1."), ATOM_E_FORMAT, "empty stack");
    refused(PICKLE("X\xff\xff\xff\x7fno"), ATOM_E_FORMAT, "ends inside a text");
    refused(PICKLE("U\2a\0."), ATOM_E_FORMAT, "NUL");
    refused(PICKLE("cno end"), ATOM_E_FORMAT, "without an end");
    refused(PICKLE("NQ."), ATOM_E_FORMAT, "does not lead to a storage");
    refused(PICKLE("NNR."), ATOM_E_FORMAT, "not a name");
    refused(PICKLE("\x8a\x09"
                   "123456789."),
            ATOM_E_FORMAT, "64 bits");
}

static void test_reads_plain_values(void **state)
{
    /* {"a": -2, "b": (7, 257, True, -1, -2 in eight bytes), "c": [itself, None]} */
    static const uint8_t bytes[] =
        "\x80\x02}(X\1\0\0\0aJ\xfe\xff\xff\xff"
        "U\1b(K\7M\1\1\x88\x8a\1\xff"
        "\x8a\x08\xfe\xff\xff\xff\xff\xff\xff\xfft\x8c\1c]q\2(h\2Neu.more";
    file_pickle p = {0};
    const file_pickle_value *root = NULL;
    size_t used = 0, n = sizeof bytes - 1;
    (void)state;
    for (uint64_t want = 0; root == NULL; want++) {
        p.path = "a.bin";
        atom_mem_fail_after(want);
        atom_status st = file_pickle_load(&p, bytes, n, &used, &root);
        atom_mem_fail_after(0);
        assert_true(st == ATOM_OK || (st == ATOM_E_RESOURCE && want > 0));
        if (want == 0 || st != ATOM_OK) {
            file_pickle_free(&p);
            root = NULL;
        }
    }
    assert_int_equal(used, n - strlen("more"));
    assert_int_equal(root->kind, FILE_PICKLE_DICT);
    assert_int_equal(file_pickle_get(root, "a")->number, -2);
    const file_pickle_value *b = file_pickle_get(root, "b"), *c = file_pickle_get(root, "c");
    assert_int_equal(b->kind, FILE_PICKLE_TUPLE);
    assert_int_equal(b->n, 5);
    assert_int_equal(b->items[1]->number, 257);
    assert_int_equal(b->items[2]->kind, FILE_PICKLE_BOOL);
    assert_int_equal(b->items[3]->number, -1);
    assert_int_equal(b->items[4]->number, -2);
    assert_ptr_equal(c->items[0], c);
    assert_int_equal(c->items[1]->kind, FILE_PICKLE_NONE);
    assert_null(file_pickle_get(root, "d"));
    file_pickle_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refuses_what_is_no_tensor),
        cmocka_unit_test(test_takes_no_metadata),
        cmocka_unit_test(test_takes_protocols),
        cmocka_unit_test(test_refuses_what_is_damaged),
        cmocka_unit_test(test_reads_plain_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
