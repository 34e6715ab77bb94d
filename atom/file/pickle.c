/*
 * Owns pickles: the machine that reads them. One idea: a pickle is a program for a stack, and most
 * of what it may do is not needed for tensors, so a table says the few names it may use, and calling
 * one makes a value of ours, never Python's. Refuses every other name, and objects of any class.
 */
#include "atom/file/pickle.h"

#include "atom/base/bytes.h"
#include "atom/base/mem.h"

#include <stdio.h>
#include <string.h>

enum { NAME_MAX_BYTES = 256 };

typedef file_pickle_value value;

/* What calling a name makes. */
typedef enum makes { MAKES_NOTHING, MAKES_DICT, MAKES_TENSOR, MAKES_PARAMETER, MAKES_SIZE } makes;

static const struct {
    const char *module, *name;
    makes makes;
    file_dtype dtype; /* of a storage's class, whose calls make nothing */
} known[] = {
    {"collections", "OrderedDict", MAKES_DICT, FILE_DTYPE_N},
    {"torch._utils", "_rebuild_tensor_v2", MAKES_TENSOR, FILE_DTYPE_N},
    {"torch._utils", "_rebuild_tensor", MAKES_TENSOR, FILE_DTYPE_N},
    {"torch._utils", "_rebuild_parameter", MAKES_PARAMETER, FILE_DTYPE_N},
    {"torch", "Size", MAKES_SIZE, FILE_DTYPE_N},
    {"torch", "FloatStorage", MAKES_NOTHING, FILE_F32},
    {"torch", "HalfStorage", MAKES_NOTHING, FILE_F16},
    {"torch", "BFloat16Storage", MAKES_NOTHING, FILE_BF16},
    {"torch", "DoubleStorage", MAKES_NOTHING, FILE_F64},
    {"torch", "LongStorage", MAKES_NOTHING, FILE_I64},
    {"torch", "IntStorage", MAKES_NOTHING, FILE_I32},
    {"torch", "ShortStorage", MAKES_NOTHING, FILE_I16},
    {"torch", "CharStorage", MAKES_NOTHING, FILE_I8},
    {"torch", "ByteStorage", MAKES_NOTHING, FILE_U8},
    {"torch", "BoolStorage", MAKES_NOTHING, FILE_BOOL},
};

const char *file_pickle_kind_name(file_pickle_kind kind)
{
    static const char *const names[] = {"None",   "a truth value", "a number", "a number",
                                        "a text", "a tuple",       "a list",   "a dict",
                                        "a name", "a storage",     "a tensor", "a mark"};
    return names[kind];
}

const value *file_pickle_get(const value *dict, const char *key)
{
    for (size_t i = 0; dict->kind == FILE_PICKLE_DICT && i + 1 < dict->n; i += 2)
        if (dict->items[i]->kind == FILE_PICKLE_TEXT && strcmp(dict->items[i]->text, key) == 0)
            return dict->items[i + 1];
    return NULL;
}

static atom_status damaged(const file_pickle *p, const char *what)
{
    return atom_fail(ATOM_E_FORMAT, "%s: its pickle %s; the file is damaged", p->path, what);
}

static atom_status not_tensors(const file_pickle *p, const char *what)
{
    return atom_fail(ATOM_E_UNSUPPORTED,
                     "%s: its pickle %s, but atom reads only tensors from pickles; if you trust "
                     "the file, load it with PyTorch and save its state_dict as safetensors",
                     p->path, what);
}

/* --- stack and memo --------------------------------------------------------------------------- */

static atom_status push_old(file_pickle *p, value *v)
{
    if (p->depth == FILE_PICKLE_VALUES_MAX)
        return damaged(p, "has more values than a model needs");
    ATOM_TRY(atom_grow(&p->stack, p->depth, &p->stack_room, sizeof(value *)));
    p->stack[p->depth++] = v;
    return ATOM_OK;
}

static atom_status push(file_pickle *p, file_pickle_kind kind, int64_t number, value **out)
{
    value *v;
    if (p->n_values == FILE_PICKLE_VALUES_MAX)
        return damaged(p, "has more values than a model needs");
    ATOM_TRY(atom_grow(&p->values, p->n_values, &p->values_room, sizeof(value *)));
    v = atom_alloc(1, sizeof *v);
    if (!v)
        return atom_fail_memory("a pickle", sizeof *v);
    v->kind = kind;
    v->number = number;
    p->values[p->n_values++] = v;
    if (out)
        *out = v;
    return push_old(p, v);
}

static atom_status pop(file_pickle *p, value **out)
{
    if (p->depth == 0 || p->stack[p->depth - 1]->kind == FILE_PICKLE_MARK)
        return damaged(p, "takes a value from an empty stack");
    *out = p->stack[--p->depth];
    return ATOM_OK;
}

/* The top, which stays. */
static atom_status top(file_pickle *p, value **out)
{
    if (p->depth == 0 || p->stack[p->depth - 1]->kind == FILE_PICKLE_MARK)
        return damaged(p, "takes a value from an empty stack");
    *out = p->stack[p->depth - 1];
    return ATOM_OK;
}

static atom_status append(value *to, value *item)
{
    ATOM_TRY(atom_grow(&to->items, to->n, &to->room, sizeof(value *)));
    to->items[to->n++] = item;
    return ATOM_OK;
}

/* *first: where on the stack the items above the last mark begin. */
static atom_status find_mark(file_pickle *p, size_t *first)
{
    size_t at = p->depth;
    while (at > 0 && p->stack[at - 1]->kind != FILE_PICKLE_MARK)
        at--;
    if (at == 0)
        return damaged(p, "has no mark where one is needed");
    *first = at;
    return ATOM_OK;
}

/* The items from `first` on become those of a new value; `down`: where the stack then ends. */
static atom_status gather(file_pickle *p, file_pickle_kind kind, size_t first, size_t down)
{
    size_t end = p->depth;
    value *v;
    ATOM_TRY(push(p, kind, 0, &v));
    for (size_t i = first; i < end; i++)
        ATOM_TRY(append(v, p->stack[i]));
    p->depth = down;
    return push_old(p, v);
}

static atom_status gather_last(file_pickle *p, file_pickle_kind kind, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p->depth < n || p->stack[p->depth - 1 - i]->kind == FILE_PICKLE_MARK)
            return damaged(p, "takes a value from an empty stack");
    return gather(p, kind, p->depth - n, p->depth - n);
}

static atom_status gather_marked(file_pickle *p, file_pickle_kind kind)
{
    size_t first = 0;
    ATOM_TRY(find_mark(p, &first));
    return gather(p, kind, first, first - 1);
}

/* Items above the mark, or the last n, go into the list or dict below. */
static atom_status put_items(file_pickle *p, file_pickle_kind kind, size_t n)
{
    size_t first = 0, down;
    if (n == 0) {
        ATOM_TRY(find_mark(p, &first));
        down = first - 1;
    } else {
        first = down = p->depth < n ? 0 : p->depth - n;
    }
    if (down == 0 || p->stack[down - 1]->kind != kind ||
        (kind == FILE_PICKLE_DICT && (p->depth - first) % 2 != 0))
        return damaged(p, "puts items into something that is not a container");
    for (size_t i = first; i < p->depth; i++) {
        if (p->stack[i]->kind == FILE_PICKLE_MARK)
            return damaged(p, "takes a value from an empty stack");
        ATOM_TRY(append(p->stack[down - 1], p->stack[i]));
    }
    p->depth = down;
    return ATOM_OK;
}

static atom_status remember(file_pickle *p, uint64_t at)
{
    value *v = NULL;
    ATOM_TRY(top(p, &v));
    if (at >= FILE_PICKLE_VALUES_MAX)
        return damaged(p, "remembers more values than a model needs");
    while (p->n_memo <= at) {
        ATOM_TRY(atom_grow(&p->memo, p->n_memo, &p->memo_room, sizeof(value *)));
        p->memo[p->n_memo++] = NULL;
    }
    p->memo[at] = v;
    return ATOM_OK;
}

static atom_status recall(file_pickle *p, uint64_t at)
{
    if (at >= p->n_memo || !p->memo[at])
        return damaged(p, "recalls what it never remembered");
    return push_old(p, p->memo[at]);
}

/* --- texts and names -------------------------------------------------------------------------- */

static atom_status push_text(file_pickle *p, atom_reader *r, uint64_t n)
{
    value *v;
    if (n > atom_reader_left(r))
        return damaged(p, "ends inside a text");
    if (memchr(r->at, 0, (size_t)n))
        return damaged(p, "has a NUL inside a text");
    ATOM_TRY(push(p, FILE_PICKLE_TEXT, 0, &v));
    v->text = atom_alloc((size_t)n + 1, 1);
    if (!v->text)
        return atom_fail_memory("a pickle", n);
    atom_read_bytes(r, v->text, (size_t)n);
    return ATOM_OK;
}

static atom_status push_name(file_pickle *p, const char *module, const char *name)
{
    char what[2 * NAME_MAX_BYTES + 64];
    value *v;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (strcmp(module, known[i].module) != 0 || strcmp(name, known[i].name) != 0)
            continue;
        ATOM_TRY(push(p, FILE_PICKLE_GLOBAL, (int64_t)i, &v));
        v->dtype = known[i].dtype;
        return ATOM_OK;
    }
    snprintf(what, sizeof what, "names %.*s.%.*s", NAME_MAX_BYTES, module, NAME_MAX_BYTES, name);
    return not_tensors(p, what);
}

/* Up to the end of the line, which is not part of it. */
static atom_status take_line(file_pickle *p, atom_reader *r, char out[NAME_MAX_BYTES])
{
    size_t left = atom_reader_left(r), most = left < NAME_MAX_BYTES ? left : NAME_MAX_BYTES;
    const uint8_t *end = memchr(r->at, '\n', most);
    if (!end || memchr(r->at, 0, (size_t)(end - r->at)))
        return damaged(p, "has a name without an end");
    size_t n = (size_t)(end - r->at);
    memcpy(out, r->at, n);
    out[n] = 0;
    r->at = end + 1;
    return ATOM_OK;
}

static atom_status take_global(file_pickle *p, atom_reader *r)
{
    char module[NAME_MAX_BYTES], name[NAME_MAX_BYTES];
    ATOM_TRY(take_line(p, r, module));
    ATOM_TRY(take_line(p, r, name));
    return push_name(p, module, name);
}

static atom_status stack_global(file_pickle *p)
{
    value *module = NULL, *name = NULL;
    ATOM_TRY(pop(p, &name));
    ATOM_TRY(pop(p, &module));
    if (module->kind != FILE_PICKLE_TEXT || name->kind != FILE_PICKLE_TEXT)
        return damaged(p, "has a name that is not text");
    return push_name(p, module->text, name->text);
}

/* --- calls ------------------------------------------------------------------------------------ */

static atom_status call(file_pickle *p)
{
    value *args = NULL, *what = NULL, *v;
    ATOM_TRY(pop(p, &args));
    ATOM_TRY(pop(p, &what));
    if (args->kind != FILE_PICKLE_TUPLE || what->kind != FILE_PICKLE_GLOBAL)
        return damaged(p, "calls something that is not a name");
    switch (known[what->number].makes) {
    case MAKES_DICT:
        if (args->n != 0)
            break;
        return push(p, FILE_PICKLE_DICT, 0, NULL);
    case MAKES_SIZE:
        if (args->n != 1)
            break;
        return push_old(p, args->items[0]);
    case MAKES_PARAMETER:
        if (args->n == 0 || args->items[0]->kind != FILE_PICKLE_TENSOR)
            break;
        return push_old(p, args->items[0]);
    case MAKES_TENSOR:
        if (args->n < 4 || args->items[0]->kind != FILE_PICKLE_STORAGE)
            break;
        if (args->n > 6 && args->items[6]->kind != FILE_PICKLE_NONE &&
            (args->items[6]->kind != FILE_PICKLE_DICT || args->items[6]->n > 0))
            return not_tensors(p, "has a tensor whose numbers are not those stored (it is negated "
                                  "or conjugated when it is read)");
        ATOM_TRY(push(p, FILE_PICKLE_TENSOR, 0, &v));
        for (size_t i = 0; i < args->n; i++)
            ATOM_TRY(append(v, args->items[i]));
        return ATOM_OK;
    case MAKES_NOTHING:
        break;
    }
    char text[NAME_MAX_BYTES];
    snprintf(text, sizeof text, "calls %s.%s in a way that does not make a tensor",
             known[what->number].module, known[what->number].name);
    return not_tensors(p, text);
}

/* ('storage', class, key, place, elements) or, in old files, with None behind. */
static atom_status take_storage(file_pickle *p)
{
    value *id = NULL, *v;
    ATOM_TRY(pop(p, &id));
    if (id->kind != FILE_PICKLE_TUPLE || id->n < 5 || id->items[0]->kind != FILE_PICKLE_TEXT ||
        strcmp(id->items[0]->text, "storage") != 0)
        return damaged(p, "has a reference that does not lead to a storage");
    const value *class = id->items[1], *key = id->items[2], *elements = id->items[4];
    if (class->kind != FILE_PICKLE_GLOBAL || class->dtype == FILE_DTYPE_N ||
        key->kind != FILE_PICKLE_TEXT || elements->kind != FILE_PICKLE_INT || elements->number < 0)
        return damaged(p, "has a storage without a type, a key or a size");
    if (id->n > 5 && id->items[5]->kind != FILE_PICKLE_NONE)
        return not_tensors(p, "has a storage that is a part of another");
    ATOM_TRY(push(p, FILE_PICKLE_STORAGE, elements->number, &v));
    v->dtype = class->dtype;
    v->text = atom_strdup(key->text);
    return v->text ? ATOM_OK : atom_fail_memory("a pickle", strlen(key->text));
}

/* A state_dict carries the versions of its modules as an attribute; nothing else may have a state. */
static atom_status build(file_pickle *p)
{
    value *state = NULL, *object = NULL;
    ATOM_TRY(pop(p, &state));
    ATOM_TRY(top(p, &object));
    if (object->kind != FILE_PICKLE_DICT || state->kind != FILE_PICKLE_DICT || state->n != 2 ||
        !file_pickle_get(state, "_metadata"))
        return not_tensors(p, "gives an object a state of its own");
    return ATOM_OK;
}

/* --- the machine ------------------------------------------------------------------------------ */

/* A little-endian number of n bytes with a sign; more than 8 of them are no size. */
static atom_status take_long(file_pickle *p, atom_reader *r, uint64_t n)
{
    if (n > 8 || n > atom_reader_left(r))
        return damaged(p, "has a number of more than 64 bits");
    uint64_t x = atom_read_uint(r, (unsigned)n);
    if (n > 0 && n < 8 && x >> (8 * n - 1))
        x |= ~(uint64_t)0 << (8 * n);
    return push(p, FILE_PICKLE_INT, (int64_t)x, NULL);
}

static atom_status step_plain(file_pickle *p, atom_reader *r, uint8_t op)
{
    switch (op) {
    case 'N':
        return push(p, FILE_PICKLE_NONE, 0, NULL);
    case 0x88: /* NEWTRUE, NEWFALSE */
    case 0x89:
        return push(p, FILE_PICKLE_BOOL, op == 0x88, NULL);
    case 'K':
        return push(p, FILE_PICKLE_INT, atom_read_u8(r), NULL);
    case 'M':
        return push(p, FILE_PICKLE_INT, atom_read_u16(r), NULL);
    case 'J':
        return push(p, FILE_PICKLE_INT, (int32_t)atom_read_u32(r), NULL);
    case 0x8a: /* LONG1 */
        return take_long(p, r, atom_read_u8(r));
    case 'G':
        atom_read_u64(r);
        return push(p, FILE_PICKLE_REAL, 0, NULL);
    case 'X': /* BINUNICODE, SHORT_BINUNICODE, and Python 2's strings */
    case 'T':
        return push_text(p, r, atom_read_u32(r));
    case 0x8c:
    case 'U':
        return push_text(p, r, atom_read_u8(r));
    case 'c':
        return take_global(p, r);
    case 'q':
        return remember(p, atom_read_u8(r));
    case 'r':
        return remember(p, atom_read_u32(r));
    case 'h':
        return recall(p, atom_read_u8(r));
    case 'j':
        return recall(p, atom_read_u32(r));
    case 0x95: /* FRAME: how long the next part is */
        atom_read_u64(r);
        return ATOM_OK;
    default: {
        char what[64];
        snprintf(what, sizeof what, "has the instruction 0x%02x", op);
        return not_tensors(p, what);
    }
    }
}

static atom_status step(file_pickle *p, atom_reader *r, uint8_t op)
{
    switch (op) {
    case '(':
        return push(p, FILE_PICKLE_MARK, 0, NULL);
    case ')':
        return gather_last(p, FILE_PICKLE_TUPLE, 0);
    case ']':
        return gather_last(p, FILE_PICKLE_LIST, 0);
    case '}':
        return gather_last(p, FILE_PICKLE_DICT, 0);
    case 0x85: /* TUPLE1 to TUPLE3 */
    case 0x86:
    case 0x87:
        return gather_last(p, FILE_PICKLE_TUPLE, op - 0x84u);
    case 't':
        return gather_marked(p, FILE_PICKLE_TUPLE);
    case 'l':
        return gather_marked(p, FILE_PICKLE_LIST);
    case 'a':
        return put_items(p, FILE_PICKLE_LIST, 1);
    case 'e':
        return put_items(p, FILE_PICKLE_LIST, 0);
    case 's':
        return put_items(p, FILE_PICKLE_DICT, 2);
    case 'u':
        return put_items(p, FILE_PICKLE_DICT, 0);
    case 'Q':
        return take_storage(p);
    case 'R':
        return call(p);
    case 'b':
        return build(p);
    case 0x93:
        return stack_global(p);
    case 0x94: /* MEMOIZE */
        return remember(p, p->n_memo);
    default:
        return step_plain(p, r, op);
    }
}

atom_status file_pickle_load(file_pickle *p, const void *bytes, size_t n, size_t *used,
                             const value **root)
{
    atom_reader r = atom_reader_make(bytes, n);
    value *v = NULL;
    p->depth = p->n_memo = 0;
    if (atom_read_u8(&r) != 0x80 || atom_read_u8(&r) - 2u > 3)
        return damaged(p, "is not one of protocol 2 to 5");
    for (uint8_t op; (op = atom_read_u8(&r)) != '.';) {
        if (!atom_reader_ok(&r))
            return damaged(p, "ends early");
        ATOM_TRY(step(p, &r, op));
    }
    if (!atom_reader_ok(&r))
        return damaged(p, "ends early");
    ATOM_TRY(pop(p, &v));
    if (p->depth != 0)
        return damaged(p, "leaves values behind");
    *used = n - atom_reader_left(&r);
    *root = v;
    return ATOM_OK;
}

void file_pickle_free(file_pickle *p)
{
    for (size_t i = 0; i < p->n_values; i++) {
        atom_free(p->values[i]->text);
        atom_free(p->values[i]->items);
        atom_free(p->values[i]);
    }
    atom_free(p->values);
    atom_free(p->stack);
    atom_free(p->memo);
    *p = (file_pickle){0};
}
