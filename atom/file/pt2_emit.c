/*
 * Owns what of the exported graph becomes ours: nodes, their bases, and parameters made of pieces
 * of the user's tensors. One idea: a product waits as rows of a weight until somebody reads columns
 * of it, so several products of one input (q, k and v; gate and up) become one whose weight lists
 * their rows one after another. Refuses tensors that would be in two parameters, or in none.
 */
#include "atom/file/pt2_inner.h"

#include "atom/base/mem.h"

#include <stdio.h>
#include <string.h>

atom_status pt2_base_new(pt2_eval *e, const pt2_base *base, int32_t *id)
{
    ATOM_TRY(atom_grow(&e->bases, e->n_bases, &e->bases_room, sizeof *e->bases));
    e->bases[e->n_bases] = *base;
    *id = (int32_t)e->n_bases++;
    return ATOM_OK;
}

pt2_view pt2_front(const pt2_view *v, int64_t width)
{
    pt2_view front = *v;
    front.rank--;
    front.offset = 0;
    for (int i = 0; i < front.rank; i++) {
        front.stride[i] /= width;
        front.inner[i] /= width;
    }
    return front;
}

atom_status pt2_whole(pt2_eval *e, int32_t base, pt2_view front, pt2_value **out)
{
    int64_t W = e->bases[base].width;
    int last = front.rank++;
    pt2_view packed;
    pt2_value *made = pt2_value_new(e);
    if (!made)
        return atom_fail_memory("a value", sizeof *made);
    for (int i = 0; i < last; i++) {
        front.stride[i] *= W;
        front.inner[i] *= W;
    }
    front.size[last] = W;
    front.stride[last] = front.rep[last] = 1;
    front.inner[last] = 0;
    made->kind = PT2_ACT;
    made->base = base;
    made->v = front;
    if (!pt2_view_packed(front.rank, front.size, &packed))
        return pt2_refuse(e, "a result is too large");
    *out = made;
    return ATOM_OK;
}

atom_status pt2_whole_result(pt2_eval *e, int32_t base, const pt2_value *like)
{
    pt2_value *v;
    atom_status st = pt2_whole(e, base, pt2_front(&like->v, e->bases[like->base].width), &v);
    return st == ATOM_OK ? pt2_result(e, 0, v) : st;
}

bool pt2_columns(const pt2_eval *e, const pt2_value *v, int64_t *first, int64_t *n)
{
    int last = v->v.rank - 1;
    int64_t W = v->kind == PT2_ACT ? e->bases[v->base].width : 0, rows = 1;
    if (v->kind != PT2_ACT || last < 0 || v->norm >= 0 || v->complex || v->cap != 0 ||
        v->v.rep[last] != 1 || (v->v.size[last] > 1 && v->v.stride[last] != 1) ||
        v->v.offset + v->v.size[last] > W)
        return false;
    /* From the innermost outwards, whichever axis is next: each begins where the one before ends. */
    for (int met = -1; met != 0;) {
        met = 0;
        for (int i = 0; i < 2 * last && rows < e->B * e->T; i++) {
            int64_t n_inner = v->v.rep[i / 2], n_outer = v->v.size[i / 2] / n_inner;
            int64_t many = i % 2 ? n_inner : n_outer;
            int64_t step = i % 2 ? v->v.inner[i / 2] : v->v.stride[i / 2];
            if (many > 1 && step == rows * W) {
                rows *= many;
                met++;
            }
        }
    }
    *first = v->v.offset;
    *n = v->v.size[last];
    return rows == e->B * e->T && pt2_view_elements(&v->v) == rows * *n;
}

bool pt2_same_rows(const pt2_eval *e, const pt2_value *a, const pt2_value *b)
{
    pt2_view fronts[2] = {pt2_front(&a->v, e->bases[a->base].width),
                          pt2_front(&b->v, e->bases[b->base].width)};
    for (int k = 0; k < 2; k++)
        while (fronts[k].rank > fronts[!k].rank && fronts[k].size[0] == 1)
            pt2_view_remove(&fronts[k], 0);
    return pt2_view_same(&fronts[0], &fronts[1]);
}

/* --- parameters ------------------------------------------------------------------------------- */

static const pt2_tensor *tensor_of(const pt2_eval *e, const pt2_piece *p)
{
    return &e->archive->tensors[p->tensor];
}

static bool fits_a_name(const char *text, size_t n)
{
    return n > 0 && n < GRAPH_NAME_MAX &&
           strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == n;
}

/* "blocks.0.wq+wk+wv.weight": what differs of names that begin and end alike. */
static void joined_name(const pt2_eval *e, const pt2_piece *pieces, uint32_t n, char *out,
                        size_t room)
{
    const char *one = tensor_of(e, &pieces[0])->name, *tail = strrchr(one, '.');
    size_t head = tail ? (size_t)(tail - one) : 0, used = 0;
    for (uint32_t i = 1; i < n; i++) {
        const char *other = tensor_of(e, &pieces[i])->name;
        size_t same = 0;
        while (same < head && other[same] == one[same])
            same++;
        head = same;
    }
    while (head > 0 && one[head - 1] != '.')
        head--;
    used = (size_t)snprintf(out, room, "%.*s", (int)head, one);
    for (uint32_t i = 0; i < n && used < room; i++) {
        const char *name = tensor_of(e, &pieces[i])->name, *dot = strrchr(name, '.');
        size_t begin = strlen(name) < head ? 0 : head;
        if (i > 0 && pieces[i].tensor == pieces[i - 1].tensor)
            continue;
        int length = dot && dot > name + begin ? (int)(dot - name - (ptrdiff_t)begin)
                                               : (int)(strlen(name) - begin);
        used +=
            (size_t)snprintf(out + used, room - used, "%s%.*s", i ? "+" : "", length, name + begin);
    }
    if (used < room && tail)
        snprintf(out + used, room - used, "%s", tail);
}

/* Names are for people: what files call the tensors is in the table. */
static void param_name(const pt2_eval *e, const pt2_piece *pieces, uint32_t n, char *out)
{
    const pt2_tensor *t = tensor_of(e, &pieces[0]);
    char name[4 * GRAPH_NAME_MAX];
    bool part = n == 1 &&
                pieces[0].rows != (t->rank == 1 || !pieces[0].transposed ? t->dims[0] : t->dims[1]);
    if (n > 1)
        joined_name(e, pieces, n, name, sizeof name);
    else if (part)
        snprintf(name, sizeof name, "%.100s:%lld", t->name, (long long)pieces[0].row);
    else
        snprintf(name, sizeof name, "%.100s", t->name);
    bool taken = false;
    for (uint32_t i = 0; i < e->g->n_params; i++)
        taken |= strcmp(e->g->params[i].name, name) == 0;
    bool fits = strlen(name) < GRAPH_NAME_MAX && (n > 1 || part || fits_a_name(name, strlen(name)));
    if (fits && !taken)
        memcpy(out, name, strlen(name) + 1);
    else
        snprintf(out, GRAPH_NAME_MAX, "parameter.%u", e->g->n_params);
}

static bool overlap(const pt2_piece *a, const pt2_piece *b)
{
    int64_t a_end = a->row + (a->rows - 1) * a->step, b_end = b->row + (b->rows - 1) * b->step;
    if (a->tensor != b->tensor || a_end < b->row || b_end < a->row)
        return false;
    return a->step == 1 || b->step == 1 || a->step != b->step || (a->row - b->row) % a->step == 0;
}

/* Has this list been made already, or does it share rows with one that has? */
static atom_status find_made(const pt2_eval *e, const pt2_piece *pieces, uint32_t n, int32_t *found)
{
    *found = -1;
    for (size_t m = 0; m < e->n_made; m++) {
        const pt2_made *made = &e->made[m];
        bool touches = false;
        for (uint32_t i = 0; i < n; i++)
            for (uint32_t k = 0; k < made->n; k++)
                touches |= overlap(&pieces[i], &made->pieces[k]);
        bool same = touches && n == made->n;
        for (uint32_t i = 0; i < n && same; i++)
            same = memcmp(&pieces[i], &made->pieces[i], sizeof *pieces) == 0;
        if (same)
            *found = made->param;
        else if (touches)
            return pt2_refuse(e, "%s is used in two different ways",
                              tensor_of(e, &pieces[0])->name);
    }
    return ATOM_OK;
}

/* Pieces that follow each other become one. Writes to `to`, which has room for all. */
static uint32_t melt_pieces(const pt2_piece *from, uint32_t n, pt2_piece *to)
{
    uint32_t used = 0;
    for (uint32_t i = 0; i < n; i++) {
        pt2_piece *last = used ? &to[used - 1] : NULL;
        if (last && last->tensor == from[i].tensor && last->step == 1 && from[i].step == 1 &&
            last->row + last->rows == from[i].row && last->transposed == from[i].transposed)
            last->rows += from[i].rows;
        else
            memcpy(&to[used++], &from[i], sizeof *to);
    }
    return used;
}

atom_status pt2_param(pt2_eval *e, const pt2_piece *pieces, uint32_t n, int rank, int64_t cols,
                      graph_init init, int32_t *id)
{
    pt2_piece *kept = atom_alloc(n, sizeof *kept);
    char name[GRAPH_NAME_MAX];
    int64_t dims[2] = {0, cols};
    int32_t found;
    atom_status st;
    if (!kept)
        return atom_fail_memory("a parameter", n * sizeof *kept);
    n = melt_pieces(pieces, n, kept);
    ATOM_TRY_CLEAN(find_made(e, kept, n, &found));
    if (found >= 0) {
        atom_free(kept);
        *id = found;
        return ATOM_OK;
    }
    for (uint32_t i = 0; i < n; i++) {
        dims[0] += kept[i].rows;
        if (kept[i].transposed && n > 1)
            ATOM_TRY_CLEAN(pt2_refuse(e, "%s is stored transposed and cannot be joined with others",
                                      tensor_of(e, &kept[i])->name));
    }
    param_name(e, kept, n, name);
    ATOM_TRY_CLEAN(atom_grow(&e->made, e->n_made, &e->made_room, sizeof *e->made));
    ATOM_TRY_CLEAN(
        graph_add_param(e->g, name, rank, dims, init, init == GRAPH_INIT_NORMAL ? 0.02f : 0, id));
    e->made[e->n_made++] = (pt2_made){kept, n, *id};
    return ATOM_OK;
cleanup:
    atom_free(kept);
    return st;
}

/* --- nodes ------------------------------------------------------------------------------------ */

/* Of a node's name, with its 0: graph_add_node keeps the rest for endings. And what is kept of a name that
 * gets a tail; saved runs have such names. */
enum { ROOM = GRAPH_NAME_MAX - 5, KEPT = 50 };

/* "blocks.0.attn.linear_1": where in the user's modules, and the exported graph's own word. */
static void node_name(const json_t *node, char out[GRAPH_NAME_MAX])
{
    const json_t *first = json_array_get(json_object_get(node, "outputs"), 0);
    const json_t *list = json_object_get(first, "as_tensors");
    const json_t *tensor = list ? json_array_get(list, 0) : json_object_get(first, "as_tensor");
    const char *word = json_string_value(json_object_get(tensor, "name"));
    const char *stack =
        json_string_value(json_object_get(json_object_get(node, "metadata"), "nn_module_stack"));
    const char *last = stack ? strrchr(stack, ';') : NULL;
    const char *path = last ? strchr(last, ',') : NULL, *end = path ? strchr(path + 1, ',') : NULL;
    size_t n = end ? (size_t)(end - path - 1) : 0;
    char name[2 * GRAPH_NAME_MAX];
    if (!word || !fits_a_name(word, strlen(word)))
        word = "node";
    if (n > 0 && fits_a_name(path + 1, n))
        snprintf(name, sizeof name, "%.*s.%.60s", (int)n, path + 1, word);
    else
        snprintf(name, sizeof name, "%.60s", word);
    snprintf(out, GRAPH_NAME_MAX, "%.*s", ROOM - 1, strlen(name) < ROOM ? name : word);
}

static bool name_taken(const pt2_eval *e, const char *name)
{
    for (uint32_t i = 0; i < e->g->n_nodes; i++)
        if (strcmp(e->g->nodes[i].name, name) == 0)
            return true;
    return false;
}

/* Of a long name the beginning, so that the tail has room. */
static void name_with(char out[GRAPH_NAME_MAX], const char *name, const char *tail)
{
    size_t room = ROOM - 1 - strlen(tail);
    snprintf(out, GRAPH_NAME_MAX, "%.*s%s", room < KEPT ? (int)room : KEPT, name, tail);
}

/* Parts of one product may begin at one row, and names that are cut may be the same: counted until one is free. */
static void name_apart(const pt2_eval *e, char name[GRAPH_NAME_MAX])
{
    char wanted[GRAPH_NAME_MAX], tail[16];
    memcpy(wanted, name, sizeof wanted);
    for (unsigned n = 2; name_taken(e, name); n++) {
        snprintf(tail, sizeof tail, ":%u", n);
        name_with(name, wanted, tail);
    }
}

atom_status pt2_node(pt2_eval *e, graph_node *node, int32_t *base)
{
    int32_t id;
    atom_status st;
    if (!node->name[0])
        node_name(e->node, node->name);
    name_apart(e, node->name);
    st = graph_add_node(e->g, node, &id);
    if (st != ATOM_OK)
        return st == ATOM_E_FORMAT ? pt2_refuse(e, "%s", atom_fail_message()) : st;
    const graph_tensor *t = &e->g->tensors[id];
    pt2_base made = {.op = node->op, .tensor = id, .width = t->dims[t->rank - 1], .node = e->node};
    return pt2_base_new(e, &made, base);
}

atom_status pt2_node_part(pt2_eval *e, graph_node *node, const char *tail, int32_t *base)
{
    char name[GRAPH_NAME_MAX];
    node_name(e->node, name);
    name_with(node->name, name, tail);
    return pt2_node(e, node, base);
}

/* Columns of a waiting product as pieces of its weight, or of its bias. */
static pt2_piece rows_of(const pt2_piece *whole, int64_t first, int64_t step, int64_t n)
{
    pt2_piece p;
    memset(&p, 0, sizeof p);
    p.tensor = whole->tensor;
    p.transposed = whole->transposed;
    p.row = whole->row + first;
    p.step = n == 1 ? 1 : step;
    p.rows = n;
    return p;
}

/* A product of which others read other parts is named after its first row, too: "blocks.0.mlp.linear:64". */
static void name_part(const pt2_eval *e, int64_t first, graph_node *node)
{
    char name[GRAPH_NAME_MAX], tail[24];
    node_name(e->node, name);
    snprintf(tail, sizeof tail, ":%lld", (long long)first);
    if (name_taken(e, name))
        name_with(node->name, name, tail);
}

static int64_t inputs_of(const pt2_eval *e, const pt2_base *b)
{
    const graph_tensor *t = &e->g->tensors[b->x];
    return t->dims[t->rank - 1];
}

static atom_status check_runs(const pt2_eval *e, const pt2_run *runs, uint32_t n)
{
    const pt2_base *first = &e->bases[runs[0].base];
    for (uint32_t i = 0; i < n; i++) {
        const pt2_base *b = &e->bases[runs[i].base];
        if (b->op != ATOM_OP_linear || b->tensor != GRAPH_NONE)
            return pt2_refuse(e,
                              "what it reads must come from linear layers that nobody else reads");
        if (b->x != first->x)
            return pt2_refuse(e, "the linear layers it reads must have the same input");
        if (b->has_b != first->has_b)
            return pt2_refuse(e, "some of the linear layers it reads have a bias and some do not");
    }
    return ATOM_OK;
}

atom_status pt2_join(pt2_eval *e, const pt2_run *runs, uint32_t n, int32_t *id)
{
    pt2_piece *pieces = atom_alloc(n, sizeof *pieces);
    graph_node node = {.op = ATOM_OP_linear, .n_params = 1};
    const json_t *now = e->node;
    atom_status st;
    if (!pieces)
        return atom_fail_memory("a product", n * sizeof *pieces);
    ATOM_TRY_CLEAN(check_runs(e, runs, n));
    const pt2_base first = e->bases[runs[0].base];
    for (uint32_t i = 0; i < n; i++)
        pieces[i] = rows_of(&e->bases[runs[i].base].w, runs[i].first, runs[i].step, runs[i].n);
    node.in[0] = first.x;
    e->node = first.node;
    ATOM_TRY_CLEAN(
        pt2_param(e, pieces, n, 2, inputs_of(e, &first), GRAPH_INIT_NORMAL, &node.params[0]));
    for (uint32_t i = 0; i < n && first.has_b; i++)
        pieces[i] = rows_of(&e->bases[runs[i].base].b, runs[i].first, runs[i].step, runs[i].n);
    if (first.has_b)
        ATOM_TRY_CLEAN(
            pt2_param(e, pieces, n, 1, 0, GRAPH_INIT_ZERO, &node.params[node.n_params++]));
    name_part(e, runs[0].first, &node);
    ATOM_TRY_CLEAN(pt2_node(e, &node, id));
cleanup:
    e->node = now;
    atom_free(pieces);
    return st;
}

static atom_status emit_embed(pt2_eval *e, int32_t base)
{
    graph_node node = {.op = ATOM_OP_embed, .n_params = 1};
    const pt2_base b = e->bases[base];
    int32_t made;
    node.in[0] = e->tokens;
    ATOM_TRY(pt2_param(e, &b.w, 1, 2, b.width, GRAPH_INIT_NORMAL, &node.params[0]));
    if (b.has_b)
        ATOM_TRY(
            pt2_param(e, &b.b, 1, 2, b.width, GRAPH_INIT_NORMAL, &node.params[node.n_params++]));
    ATOM_TRY(pt2_node(e, &node, &made));
    e->bases[base].tensor = e->bases[made].tensor;
    return ATOM_OK;
}

atom_status pt2_emit_base(pt2_eval *e, int32_t base)
{
    const json_t *now = e->node;
    int32_t made;
    atom_status st;
    if (e->bases[base].tensor != GRAPH_NONE)
        return ATOM_OK;
    e->node = e->bases[base].node;
    if (e->bases[base].op == ATOM_OP_embed) {
        st = emit_embed(e, base);
    } else {
        pt2_run all = {base, 0, 1, e->bases[base].width};
        st = pt2_join(e, &all, 1, &made);
        if (st == ATOM_OK)
            e->bases[base].tensor = e->bases[made].tensor;
    }
    e->node = now;
    return st;
}

atom_status pt2_force(pt2_eval *e, const pt2_value *v, int32_t *id)
{
    int64_t first, n;
    atom_status st;
    if (!v || !pt2_columns(e, v, &first, &n))
        return pt2_refuse_rows(e, v);
    if (first == 0 && n == e->bases[v->base].width) {
        st = pt2_emit_base(e, v->base);
        if (st == ATOM_OK)
            *id = e->bases[v->base].tensor;
        return st;
    }
    pt2_run part = {v->base, first, 1, n};
    int32_t made;
    st = pt2_join(e, &part, 1, &made);
    if (st == ATOM_OK)
        *id = e->bases[made].tensor;
    return st;
}

/* --- the table -------------------------------------------------------------------------------- */

/* One row for each name of each piece. */
static atom_status put_piece(const pt2_eval *e, const pt2_piece *p, int32_t param, int64_t first,
                             graph_stored *rows, uint32_t *n)
{
    const pt2_archive *a = e->archive;
    for (uint32_t i = 0; i < a->n_tensors; i++) {
        const pt2_tensor *t = &a->tensors[i];
        graph_stored *row = &rows[*n];
        if (t->first != p->tensor || !t->parameter)
            continue;
        if (t->rank > GRAPH_RANK_MAX || strlen(t->name) >= sizeof row->name)
            return atom_fail(ATOM_E_UNSUPPORTED,
                             "%s: parameter '%.300s' has a name of more than %zu "
                             "characters or more than %d dimensions",
                             e->path, t->name, sizeof row->name - 1, GRAPH_RANK_MAX);
        *row = (graph_stored){.rank = (uint8_t)t->rank,
                              .param = param,
                              .from = p->row,
                              .step = p->step,
                              .first = first,
                              .rows = p->rows,
                              .transposed = p->transposed};
        snprintf(row->name, sizeof row->name, "%s", t->name);
        memcpy(row->dims, t->dims, t->rank * sizeof t->dims[0]);
        ++*n;
    }
    return ATOM_OK;
}

/* Every number of every parameter must have found its place. */
static atom_status check_used(const pt2_eval *e)
{
    const pt2_archive *a = e->archive;
    for (uint32_t i = 0; i < a->n_tensors; i++) {
        const pt2_tensor *t = &a->tensors[i];
        int64_t used = 0;
        for (size_t m = 0; m < e->n_made; m++)
            for (uint32_t k = 0; k < e->made[m].n; k++) {
                const pt2_piece *p = &e->made[m].pieces[k];
                const graph_param *g = &e->g->params[e->made[m].param];
                if (p->tensor == t->first)
                    used += p->rows * (g->rank == 2 ? g->dims[1] : 1);
            }
        if (t->parameter && used != t->elements)
            return atom_fail(ATOM_E_UNSUPPORTED,
                             "%s: parameter '%.128s' is %s; take it out of the model, or do not "
                             "freeze any of it",
                             e->path, t->name, used ? "used only in part" : "never used");
    }
    return ATOM_OK;
}

atom_status pt2_store_names(pt2_eval *e)
{
    uint32_t n = 0, most = 0;
    atom_status st = ATOM_OK;
    ATOM_TRY(check_used(e));
    for (uint32_t i = 0; i < e->archive->n_tensors; i++)
        for (size_t m = 0; m < e->n_made; m++)
            for (uint32_t k = 0; k < e->made[m].n; k++)
                most += e->made[m].pieces[k].tensor == e->archive->tensors[i].first;
    graph_stored *rows = atom_alloc(most + 1, sizeof *rows);
    if (!rows)
        return atom_fail_memory("the names of tensors", most * sizeof *rows);
    for (size_t m = 0; m < e->n_made && st == ATOM_OK; m++) {
        int64_t first = 0;
        for (uint32_t k = 0; k < e->made[m].n && st == ATOM_OK; k++) {
            st = put_piece(e, &e->made[m].pieces[k], e->made[m].param, first, rows, &n);
            first += e->made[m].pieces[k].rows;
        }
    }
    if (st == ATOM_OK)
        st = graph_set_stored(e->g, rows, n);
    atom_free(rows);
    return st;
}
