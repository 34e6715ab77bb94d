/*
 * Owns the way from printed C to callable functions. One idea: the object's name is a hash of
 * everything that could change it (sources, compiler, flags, ABI), so a cache hit is always right.
 * Refuses the shell: the compiler is started directly.
 */
#include "codegen/build.h"

#include "atom/base/files.h"
#include "atom/base/hash.h"
#include "atom/base/mem.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

struct gen_module {
    char *dir;
    void *handle;
    uint32_t n;
    swap_compiled *compiled;
};

static const char *const flags[] = {"-std=gnu11", "-O1", "-fPIC", "-shared", "-w"};
enum { N_FLAGS = sizeof flags / sizeof flags[0] };

static bool in_path(const char *program)
{
    if (strchr(program, '/'))
        return access(program, X_OK) == 0;
    const char *path = getenv("PATH");
    char candidate[4096];
    while (path && *path) {
        size_t n = strcspn(path, ":");
        snprintf(candidate, sizeof candidate, "%.*s/%s", (int)n, path, program);
        if (access(candidate, X_OK) == 0)
            return true;
        path += n + (path[n] == ':');
    }
    return false;
}

const char *gen_compiler(void)
{
    static const char *const known[] = {"cc", "gcc", "clang"};
    const char *cc = getenv("CC");
    if (cc && *cc && in_path(cc))
        return cc;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (in_path(known[i]))
            return known[i];
    }
    return NULL;
}

static atom_status run_compiler(char *const argv[], const char *log)
{
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int status = 0;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, log, O_WRONLY | O_CREAT | O_TRUNC, 0644);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    int error = posix_spawnp(&pid, argv[0], &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error)
        return atom_fail(ATOM_E_UNSUPPORTED, "cannot start the compiler %s: %s", argv[0],
                         strerror(error));
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR)
            return atom_fail_errno(errno, "cannot wait for the compiler");
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
        return atom_fail(ATOM_E_UNSUPPORTED,
                         "the compiler %s refused the generated code; its messages are in %s",
                         argv[0], log);
    return ATOM_OK;
}

/* Writes sub_model_K.c files; returns the hash of all that decides the object. */
static atom_status write_sources(const swap_program *program, const char *dir, const char *cc,
                                 uint64_t *hash)
{
    atom_status st = ATOM_OK;
    uint32_t abi = GEN_ABI;
    *hash = atom_hash(ATOM_HASH_SEED, &abi, sizeof abi);
    *hash = atom_hash(*hash, cc, strlen(cc));
    for (int i = 0; i < N_FLAGS; i++)
        *hash = atom_hash(*hash, flags[i], strlen(flags[i]));
    for (uint32_t k = 0; st == ATOM_OK && k < program->n_sub_models; k++) {
        char *text = NULL;
        st = gen_emit(program, k, &text);
        if (st != ATOM_OK)
            break;
        *hash = atom_hash(*hash, text, strlen(text));
        char *path = dir ? atom_format("%s/sub_model_%u.c", dir, k) : NULL;
        if (dir)
            st = path ? atom_file_write(path, text, strlen(text)) : atom_fail_memory("a path", 64);
        atom_free(path);
        atom_free(text);
    }
    return st;
}

/* One file that includes those of all sub-models: the compiler is started once. */
static atom_status write_whole(uint32_t n, const char *path)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    if (!f)
        return atom_fail_memory("generated code", 0);
    for (uint32_t k = 0; k < n; k++)
        fprintf(f, "#include \"sub_model_%u.c\"\n", k);
    atom_status st =
        fclose(f) ? atom_fail_memory("generated code", bytes) : atom_file_write(path, text, bytes);
    free(text);
    return st;
}

static atom_status compile(const swap_program *program, const char *dir, const char *cc,
                           const char *object)
{
    char *argv[N_FLAGS + 5] = {(char *)(uintptr_t)cc};
    char *whole = atom_path_join(dir, "sub_models.c");
    char *temporary = atom_format("%s.%d", object, (int)getpid());
    char *log = atom_path_join(dir, "compiler.log");
    int at = 1;
    atom_status st = whole && temporary && log
                         ? write_whole(program->n_sub_models, whole)
                         : atom_fail_memory("a compiler's command line", strlen(object));
    if (st != ATOM_OK)
        goto cleanup;
    for (int i = 0; i < N_FLAGS; i++)
        argv[at++] = (char *)(uintptr_t)flags[i];
    argv[at++] = "-o";
    argv[at++] = temporary;
    argv[at++] = whole;
    st = run_compiler(argv, log);
    if (st == ATOM_OK && rename(temporary, object) < 0)
        st = atom_fail_errno(errno, "cannot rename %s", temporary);
cleanup:
    atom_free(whole);
    atom_free(temporary);
    atom_free(log);
    return st;
}

static atom_status load(gen_module *module, const swap_program *program, const char *object)
{
    char symbol[64];
    module->handle = dlopen(object, RTLD_NOW | RTLD_LOCAL);
    if (!module->handle)
        return atom_fail(ATOM_E_UNSUPPORTED, "cannot load generated code: %s", dlerror());
    for (uint32_t k = 0; k < program->n_sub_models; k++) {
        for (int l = 0; l < SWAP_LIST_N; l++) {
            if (program->sub_models[k].list[l].n == 0)
                continue;
            snprintf(symbol, sizeof symbol, "sub_model_%u_%s", k, swap_list_name((swap_list)l));
            void *address = dlsym(module->handle, symbol);
            if (!address)
                return atom_fail(ATOM_E_UNSUPPORTED, "generated code lacks %s; remove %s", symbol,
                                 object);
            memcpy(&module->compiled[k].list[l], &address, sizeof address);
        }
    }
    return ATOM_OK;
}

static atom_status open_dir(const swap_program *program, const char *dir, const char *cc,
                            gen_module *module)
{
    atom_status st;
    uint64_t hash = 0;
    char *base = NULL;
    ATOM_TRY_CLEAN(write_sources(program, NULL, cc, &hash));
    if (dir) {
        base = atom_strdup(dir);
    } else {
        char *cache = NULL;
        ATOM_TRY_CLEAN(atom_cache_dir(&cache));
        base = atom_path_join(cache, "code");
        atom_free(cache);
    }
    module->dir = base ? atom_format("%s/%016llx", base, (unsigned long long)hash) : NULL;
    st = module->dir ? atom_dir_make(module->dir) : atom_fail_memory("a path", 256);
cleanup:
    atom_free(base);
    return st;
}

atom_status gen_build(const swap_program *program, const char *dir, gen_module **out)
{
    atom_status st;
    uint64_t hash;
    char *object = NULL;
    const char *cc = gen_compiler();
    gen_module *module = atom_alloc(1, sizeof *module);
    if (!module)
        return atom_fail_memory("generated code", sizeof *module);
    module->n = program->n_sub_models;
    module->compiled = atom_alloc(module->n, sizeof *module->compiled);
    if (!cc) {
        st =
            atom_fail(ATOM_E_UNSUPPORTED, "no C compiler found (cc, gcc or clang); install gcc, or "
                                          "use --execute interpreted");
        goto cleanup;
    }
    if (!module->compiled)
        ATOM_TRY_CLEAN(atom_fail_memory("generated code", module->n * sizeof *module->compiled));
    ATOM_TRY_CLEAN(open_dir(program, dir, cc, module));
    object = atom_path_join(module->dir, "sub_models.so");
    if (!object)
        ATOM_TRY_CLEAN(atom_fail_memory("a path", 256));
    if (!atom_path_exists(object)) {
        ATOM_TRY_CLEAN(write_sources(program, module->dir, cc, &hash));
        ATOM_TRY_CLEAN(compile(program, module->dir, cc, object));
    }
    ATOM_TRY_CLEAN(load(module, program, object));
    atom_free(object);
    *out = module;
    return ATOM_OK;
cleanup:
    atom_free(object);
    gen_module_close(&module);
    return st;
}

void gen_module_close(gen_module **module_ref)
{
    gen_module *m = *module_ref;
    if (!m)
        return;
    if (m->handle)
        dlclose(m->handle);
    atom_free(m->compiled);
    atom_free(m->dir);
    atom_free(m);
    *module_ref = NULL;
}

const swap_compiled *gen_module_compiled(const gen_module *module)
{
    return module->compiled;
}
