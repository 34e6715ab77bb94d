/*
 * Generated code: prints call lists as C (emit), compiles with the system compiler, caches by
 * content, loads with dlopen (docs/design/engine.md#generated-code). Code never travels: it is made
 * on the machine that runs it.
 */
#ifndef CODEGEN_BUILD_H
#define CODEGEN_BUILD_H

#include "swap/calls.h"

/* Version of the calling convention that generated code declares for itself. */
enum { GEN_ABI = 6 };

typedef struct gen_module gen_module;

/*
 * One readable C file: constants for parameters (shape, byte offset), one function per list, calls
 * only. It can be included beside those of the other sub-models. Reproducible byte for byte from the program. Free with
 * atom_free.
 */
ATOM_MUST atom_status gen_emit(const swap_program *program, uint32_t sub_model, char **text);

/*
 * Emits, compiles and loads all sub-models. dir: where sources and objects are cached (NULL: the
 * user's cache directory, "code" inside). ATOM_E_UNSUPPORTED when there is no C compiler.
 */
ATOM_MUST atom_status gen_build(const swap_program *program, const char *dir, gen_module **out);
void gen_module_close(gen_module **module);
/* n_sub_models entries, valid until close. */
const swap_compiled *gen_module_compiled(const gen_module *module);

/* "cc", "gcc" or "clang" found in PATH ($CC first), or NULL. */
const char *gen_compiler(void);

#endif
