/* The CUDA module's loader: every way of not being there ends in one line that says why. */
#include "kernels/cuda_load.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* What a fresh process is told, because the module is looked for once in each. */
static void told(const char *module, char *text, size_t bytes)
{
    int ends[2], status = 0;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dev_cuda_info info;
        const krn_table *table;
        if (module)
            setenv("ATOM_CUDA_MODULE", module, 1);
        else
            unsetenv("ATOM_CUDA_MODULE");
        atom_status first = dev_cuda_describe(0, &info);
        atom_status again = krn_cuda_table(0, ATOM_F32, &table);
        const char *why = atom_fail_message();
        size_t n = strlen(why);
        bool sent = write(ends[1], why, n) == (ssize_t)n;
        _exit(sent && first == ATOM_E_UNSUPPORTED && again == ATOM_E_UNSUPPORTED ? 0 : 1);
    }
    close(ends[1]);
    ssize_t n = read(ends[0], text, bytes - 1);
    close(ends[0]);
    text[n > 0 ? n : 0] = '\0';
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    assert_null(strchr(text, '\n'));
    assert_non_null(strstr(text, "CUDA is not used: "));
}

static void test_no_module(void **state)
{
    char text[1024], here[1024];
    (void)state;
    ssize_t n = readlink("/proc/self/exe", here, sizeof here - 32);
    assert_true(n > 0);
    here[n] = '\0';
    strcpy(strrchr(here, '/'), "/libatom_cuda.so");
    if (access(here, F_OK) == 0)
        skip(); /* a build with the module */
    told(NULL, text, sizeof text);
    assert_non_null(strstr(text, "no libatom_cuda.so next to the program"));
    assert_non_null(strstr(text, "ATOM_CUDA_MODULE"));
}

static void test_missing_file(void **state)
{
    char text[1024];
    (void)state;
    told("/nowhere/libatom_cuda.so", text, sizeof text);
    assert_non_null(strstr(text, "/nowhere/libatom_cuda.so"));
}

static void test_other_library(void **state)
{
    char text[1024];
    (void)state;
    told("libm.so.6", text, sizeof text);
    assert_non_null(strstr(text, "is from another build"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_module),
        cmocka_unit_test(test_missing_file),
        cmocka_unit_test(test_other_library),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
