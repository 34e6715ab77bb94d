/*
 * Owns the list of the variables that atom reads. One idea: what is set and read by nobody has no effect,
 * and its user believes that it has. Refuses nothing: another program may own the name.
 */
#include "atom/base/environment.h"

#include "atom/base/log.h"
#include "atom/base/nearest.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const char PREFIX[] = "ATOM_";

/* Each has its getenv; tests/cli/test_basics.py looks for one that is missing here. */
static const char *const known[] = {"ATOM_CUDA_BLAS", "ATOM_CUDA_GRAPHS", "ATOM_CUDA_MODULE",
                                    "ATOM_ISA", "ATOM_PYTHON"};
static const char *const of_tests[] = {"ATOM_TEST_", "ATOM_FAKE_", "ATOM_LIE", "ATOM_LIAR",
                                       "ATOM_SLOW"};
enum { KNOWN_N = sizeof known / sizeof *known, OF_TESTS_N = sizeof of_tests / sizeof *of_tests };

static bool is_known(const char *name)
{
    for (int i = 0; i < KNOWN_N; i++)
        if (strcmp(name, known[i]) == 0)
            return true;
    for (int i = 0; i < OF_TESTS_N; i++)
        if (strncmp(name, of_tests[i], strlen(of_tests[i])) == 0)
            return true;
    return false;
}

void atom_environment_check(char *const *environment)
{
    for (; environment && *environment; environment++) {
        char name[64];
        size_t bytes = strcspn(*environment, "=");
        if (strncmp(*environment, PREFIX, sizeof PREFIX - 1) != 0 || bytes >= sizeof name)
            continue;
        snprintf(name, sizeof name, "%.*s", (int)bytes, *environment);
        if (is_known(name))
            continue;
        const char *near = atom_did_you_mean(name, known, KNOWN_N);
        atom_log(ATOM_LOG_WARN,
                 "the environment variable %s has no effect, because atom does not read it%s%s%s",
                 name, near ? " (did you mean " : "", near ? near : "", near ? "?)" : "");
    }
}
