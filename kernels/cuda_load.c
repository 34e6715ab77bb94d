/*
 * Owns the loading of the CUDA module. One idea: everything about CUDA is behind one dlopen, so
 * that a machine without driver, card or toolkit runs the whole program and is told in one line
 * why. Tried once per process; what was found, or why nothing was, is kept. Refuses a module of
 * another build.
 */
#include "kernels/cuda_load.h"

#include "atom/base/files.h"
#include "atom/base/log.h"
#include "atom/base/mem.h"
#include "kernels/cuda_module.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char FILE_NAME[] = "libatom_cuda.so";

static struct {
    pthread_once_t once;
    const krn_cuda_module *module; /* NULL: why */
    char why[640];
} loaded = {.once = PTHREAD_ONCE_INIT};

static atom_status host_fail(atom_status status, const char *text)
{
    return atom_fail(status, "%s", text);
}

static void host_log(int level, const char *text)
{
    atom_log((atom_log_level)level, "%s", text);
}

/* The module beside the program or in ../lib; NULL where there is none. */
static char *beside_program(void)
{
    static const char *const places[] = {"", "/../lib", "/../lib/x86_64-linux-gnu"};
    char exe[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (n <= 0)
        return NULL;
    exe[n] = '\0';
    *strrchr(exe, '/') = '\0';
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        char *path = atom_format("%s%s/%s", exe, places[i], FILE_NAME);
        if (path && atom_path_exists(path))
            return path;
        atom_free(path);
    }
    return NULL;
}

/* The loader names what it lacks; where that is CUDA's, what to do is known. */
static void tell_refused(const char *said)
{
    said = said ? said : "the module cannot be loaded";
    snprintf(loaded.why, sizeof loaded.why, "CUDA is not used: %s%s", said,
             strstr(said, "libcublas")
                 ? "; install the CUDA toolkit's cuBLAS, or name the folder that has this file in "
                   "LD_LIBRARY_PATH (PyTorch brings it in nvidia/*/lib)"
                 : "");
}

static void open_module(const char *path)
{
    static const krn_cuda_host host = {.fail = host_fail,
                                       .fail_message = atom_fail_message,
                                       .log = host_log,
                                       .parallel = atom_parallel};
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        tell_refused(dlerror());
        return;
    }
    krn_cuda_entry entry;
    void *symbol = dlsym(handle, "atom_cuda_module");
    memcpy(&entry, &symbol, sizeof entry);
    const krn_cuda_module *module = entry ? entry(&host) : NULL;
    if (!module || module->abi != krn_cuda_abi()) {
        snprintf(loaded.why, sizeof loaded.why,
                 "CUDA is not used: %s is from another build; build the program and the module "
                 "together",
                 path);
        (void)dlclose(handle);
        return;
    }
    loaded.module = module; /* stays loaded until the process ends */
}

static void load_once(void)
{
    const char *asked = getenv("ATOM_CUDA_MODULE");
    char *path = asked && *asked ? atom_strdup(asked) : beside_program();
    if (path)
        open_module(path);
    else
        snprintf(loaded.why, sizeof loaded.why,
                 "CUDA is not used: there is no %s next to the program; build it with the preset "
                 "'cuda', or set ATOM_CUDA_MODULE to its path",
                 FILE_NAME);
    atom_free(path);
}

atom_status krn_cuda_module_get(const krn_cuda_module **out)
{
    pthread_once(&loaded.once, load_once);
    if (!loaded.module)
        return atom_fail(ATOM_E_UNSUPPORTED, "%s", loaded.why);
    *out = loaded.module;
    return ATOM_OK;
}

atom_status dev_cuda_describe(int card, dev_cuda_info *out)
{
    const krn_cuda_module *module;
    atom_status st = krn_cuda_module_get(&module);
    return st == ATOM_OK ? module->describe(card, out) : st;
}

atom_status krn_cuda_table(int card, atom_dtype dtype, const krn_table **out)
{
    const krn_cuda_module *module;
    atom_status st = krn_cuda_module_get(&module);
    return st == ATOM_OK ? module->table(card, dtype, out) : st;
}

atom_status dev_cuda_open(const dev_cuda_config *config, atom_threads *threads, dev **out)
{
    const krn_cuda_module *module;
    atom_status st = krn_cuda_module_get(&module);
    return st == ATOM_OK ? module->open(config, threads, out) : st;
}

bool dev_cuda_driver_there(void)
{
    return atom_path_exists("/dev/nvidiactl") || atom_path_exists("/proc/driver/nvidia/version");
}

uint64_t dev_cuda_kept_bytes(void)
{
    return loaded.module ? loaded.module->kept_bytes() : 0;
}

uint64_t dev_cuda_free_bytes(int card)
{
    const krn_cuda_module *module;
    return krn_cuda_module_get(&module) == ATOM_OK ? module->free_bytes(card) : 0;
}
