/*
 * Linked in place of pthread_create into unit tests that are not on the list `threaded` of
 * tests/CMakeLists.txt: TSan's build leaves them out, so none of them may start a thread unseen.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *),
                          void *context);

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*run)(void *),
                          void *context)
{
    (void)thread, (void)how, (void)run, (void)context;
    fputs("This test starts a thread: name it in `threaded` of tests/CMakeLists.txt, so that TSan "
          "sees it.\n",
          stderr);
    abort();
}
