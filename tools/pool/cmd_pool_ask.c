/*
 * Owns the way to a member that runs on this host. One idea: one line of JSON there and one back.
 * Refuses answers that do not say "ok".
 */
#include "tools/pool/cmd_pool_ask.h"

/* Where the control socket of what runs from dir lies: dir itself or dir/pool. */
static char *place_of(const char *dir)
{
    char *socket = atom_path_join(dir, "control.sock"), *inner = atom_path_join(dir, "pool");
    bool here = socket && atom_path_exists(socket);
    atom_free(socket);
    if (!here && inner && atom_path_is_dir(inner))
        return inner;
    atom_free(inner);
    return atom_strdup(dir);
}

static atom_status exchange(const char *dir, const json_t *request, json_t **answer)
{
    json_error_t error;
    char *place = place_of(dir), *line = request ? json_dumps(request, JSON_COMPACT) : NULL;
    char *text = NULL;
    atom_status st;
    if (!place || !line)
        ATOM_TRY_CLEAN(atom_fail_memory("a request", 0));
    ATOM_TRY_CLEAN(gsp_control_ask(place, line, 15, &text));
    *answer = json_loads(text, 0, &error);
    if (!*answer)
        st = atom_fail(ATOM_E_RUNTIME, "%s: the answer is not JSON: %s", place, error.text);
cleanup:
    free(line);
    atom_free(text);
    atom_free(place);
    return st;
}

atom_status pool_ask(const char *dir, json_t *request, json_t **answer)
{
    pool_run_done done;
    atom_status st = exchange(dir, request, answer);
    json_decref(request);
    if (st == ATOM_E_RUNTIME && pool_run_was_done(dir, &done))
        return atom_fail(st,
                         "%s: no member runs here now, and the run has ended: %s made step "
                         "%llu of %llu. To get its model: atom pool export %s -o model",
                         dir, done.alone ? "this member, alone in the end," : "the pool",
                         (unsigned long long)done.step, (unsigned long long)done.steps, dir);
    if (st != ATOM_OK || json_is_true(json_object_get(*answer, "ok")))
        return st;
    const char *why = json_string_value(json_object_get(*answer, "error"));
    st = atom_fail(ATOM_E_RUNTIME, "%s", why ? why : "refused");
    json_decref(*answer);
    *answer = NULL;
    return st;
}
