/*
 * Owns the shapes of questions in JSONL. One idea: each shape names a context, a list of answers
 * and which of them is right, and whoever scores sees only that. Refuses what it does not
 * understand, with the file, the line and the key; nothing is guessed and nothing dropped.
 */
#include "atom/text/choices.h"

#include "atom/text/input.h"
#include "atom/text/line.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The line that is read. */
typedef struct reading {
    const json_t *root;
    text_question *q;
} reading;

static atom_status read_context(const reading *r, const char *key)
{
    const json_t *value = json_object_get(r->root, key);
    if (!json_is_string(value))
        return text_fail_line(r->q->name, r->q->line,
                              value ? "\"%s\" is not a string" : "there is no \"%s\"", key);
    r->q->context = (text_phrase){json_string_value(value), json_string_length(value)};
    return ATOM_OK;
}

static atom_status add_choice(const reading *r, const json_t *value)
{
    text_question *q = r->q;
    if (!json_is_string(value))
        return text_fail_line(r->q->name, r->q->line, "answer %u (counted from 0) is not a string",
                              q->n);
    if (json_string_length(value) == 0)
        return text_fail_line(r->q->name, r->q->line,
                              "answer %u (counted from 0) is empty, so it has no score", q->n);
    q->choices[q->n++] = (text_phrase){json_string_value(value), json_string_length(value)};
    return ATOM_OK;
}

static atom_status read_choices(const reading *r, const char *key, const json_t *list)
{
    size_t n = json_array_size(list);
    if (!json_is_array(list))
        return text_fail_line(r->q->name, r->q->line, "\"%s\" is not a list of strings", key);
    if (n < TEXT_CHOICES_MIN || n > TEXT_CHOICES_MAX)
        return text_fail_line(r->q->name, r->q->line,
                              "\"%s\" has %zu answers; there must be %d to %d", key, n,
                              TEXT_CHOICES_MIN, TEXT_CHOICES_MAX);
    for (size_t i = 0; i < n; i++) {
        ATOM_TRY(add_choice(r, json_array_get(list, i)));
    }
    return ATOM_OK;
}

/* A whole number of at most 9 digits, and nothing else. */
static bool parse_index(const json_t *value, uint32_t *out)
{
    const char *text = json_string_value(value);
    size_t n = json_string_length(value);
    *out = 0;
    if (n == 0 || n > 9)
        return false;
    for (size_t i = 0; i < n; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        *out = *out * 10 + (uint32_t)(text[i] - '0');
    }
    return true;
}

static bool parse_letter(const json_t *value, uint32_t *out)
{
    const char *text = json_string_value(value);
    if (json_string_length(value) != 1 || text[0] < 'A' || text[0] > 'Z')
        return false;
    *out = (uint32_t)(text[0] - 'A');
    return true;
}

/* A number or a letter that is the text of another answer could mean either. */
static atom_status check_meaning(const reading *r, const char *key, const json_t *value)
{
    const text_question *q = r->q;
    const char *text = json_string_value(value);
    const size_t bytes = json_string_length(value);
    for (uint32_t i = 0; i < q->n; i++)
        if (i != q->answer && bytes == q->choices[i].bytes &&
            memcmp(text, q->choices[i].text, bytes) == 0)
            return text_fail_line(q->name, q->line,
                                  "\"%s\" is \"%s\", which may mean answer %u (counted from 0), or "
                                  "answer %u, whose text it is; write the number of the right one "
                                  "without quotes",
                                  key, text, q->answer, i);
    return ATOM_OK;
}

/* Which answer is right: counted from 0, as a number or a text; or a letter. */
static atom_status read_answer(const reading *r, const char *key, bool letters)
{
    const json_t *value = json_object_get(r->root, key);
    double number = json_number_value(value);
    uint32_t index = 0;
    if (!value)
        return text_fail_line(r->q->name, r->q->line,
                              "there is no \"%s\" that says which answer is right", key);
    if (json_is_number(value)) {
        if (!(number >= 0 && number < r->q->n) || number != floor(number))
            return text_fail_line(r->q->name, r->q->line,
                                  "\"%s\" is %.9g, but the %u answers are counted from 0", key,
                                  number, r->q->n);
        index = (uint32_t)number;
    } else if (!parse_index(value, &index) && !(letters && parse_letter(value, &index))) {
        return text_fail_line(r->q->name, r->q->line,
                              "\"%s\" is not the number of an answer, counted from 0%s", key,
                              letters ? ", nor its letter, from \"A\"" : "");
    }
    if (index >= r->q->n)
        return text_fail_line(r->q->name, r->q->line,
                              "\"%s\" is \"%s\", but there are %u answers, counted from %s", key,
                              json_string_value(value), r->q->n, letters ? "0 or \"A\"" : "0");
    r->q->answer = index;
    return json_is_string(value) ? check_meaning(r, key, value) : ATOM_OK;
}

/* The answer that a value names by its number, a letter or its own text; false: none. */
static bool named_answer(const reading *r, const json_t *value, uint32_t *index)
{
    const text_question *q = r->q;
    double number = json_number_value(value);
    for (*index = 0; json_is_string(value) && *index < q->n; ++*index)
        if (json_string_length(value) == q->choices[*index].bytes &&
            memcmp(json_string_value(value), q->choices[*index].text, q->choices[*index].bytes) ==
                0)
            return true;
    if (json_is_number(value) && number >= 0 && number < q->n && number == floor(number))
        *index = (uint32_t)number;
    else if (!parse_index(value, index) && !parse_letter(value, index))
        return false;
    return *index < q->n;
}

/* Another key that names an answer, too, must name the same one. */
static atom_status check_others(const reading *r, const char *used)
{
    static const char *const keys[] = {"answer", "label", "answerKey"};
    const json_t *right = json_object_get(r->root, used);
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const json_t *other = json_object_get(r->root, keys[i]);
        uint32_t index;
        if (strcmp(keys[i], used) != 0 && !json_equal(other, right) &&
            named_answer(r, other, &index) && index != r->q->answer)
            return text_fail_line(
                r->q->name, r->q->line,
                "\"%s\" says that answer %u is right (counted from 0), but \"%s\" "
                "that answer %u is; leave out the wrong one",
                used, r->q->answer, keys[i], index);
    }
    return ATOM_OK;
}

/* Answers with a name each, and the name of the right one. */
static atom_status read_named(const reading *r, const json_t *choices)
{
    const json_t *names = json_object_get(choices, "label"), *name;
    const json_t *key = json_object_get(r->root, "answerKey");
    size_t i;
    ATOM_TRY(read_choices(r, "choices.text", json_object_get(choices, "text")));
    if (json_array_size(names) != r->q->n)
        return text_fail_line(
            r->q->name, r->q->line,
            "\"choices.label\" is not a list of as many names as there are answers");
    if (!json_is_string(key))
        return text_fail_line(r->q->name, r->q->line,
                              "there is no string \"answerKey\" that says which answer is right");
    size_t found = 0;
    json_array_foreach(names, i, name)
    {
        if (!json_is_string(name) || !json_equal(name, key))
            continue;
        r->q->answer = (uint32_t)i;
        found++;
    }
    if (found == 1)
        return ATOM_OK;
    if (found)
        return text_fail_line(r->q->name, r->q->line,
                              "\"choices.label\" has \"%.40s\", which \"answerKey\" names, twice",
                              json_string_value(key));
    return text_fail_line(r->q->name, r->q->line,
                          "\"answerKey\" is \"%.40s\", which is none of \"choices.label\"",
                          json_string_value(key));
}

/* A text that the question is about has a key of its own in some data sets (BoolQ, RACE, SciQ); without
 * it the question is another one. */
static atom_status check_about(const reading *r)
{
    static const char *const keys[] = {"passage", "context", "article", "paragraph",
                                       "story",   "support", "hint",    "lecture"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (json_string_length(json_object_get(r->root, keys[i])))
            return text_fail_line(r->q->name, r->q->line,
                                  "there is a \"%s\" beside the question, which would not be asked "
                                  "with it; write both into \"question\", as the model should read "
                                  "them, and leave out \"%s\"",
                                  keys[i], keys[i]);
    return ATOM_OK;
}

static atom_status read_general(const reading *r)
{
    const json_t *choices = json_object_get(r->root, "choices");
    bool prompt = !json_object_get(r->root, "question") && json_object_get(r->root, "prompt");
    atom_status st = ATOM_OK;
    if (json_string_length(json_object_get(r->root, "question")) &&
        json_string_length(json_object_get(r->root, "prompt")))
        return text_fail_line(r->q->name, r->q->line,
                              "there are both a \"question\" and a \"prompt\", of which one would "
                              "not be asked; write them into one");
    ATOM_TRY(check_about(r));
    ATOM_TRY(read_context(r, prompt ? "prompt" : "question"));
    if (json_is_object(choices))
        return read_named(r, choices);
    st = read_choices(r, "choices", choices);
    if (st == ATOM_OK)
        st = read_answer(r, "answer", true);
    return st == ATOM_OK ? check_others(r, "answer") : st;
}

static atom_status read_hellaswag(const reading *r)
{
    atom_status st = read_context(r, "ctx");
    if (st == ATOM_OK)
        st = read_choices(r, "endings", json_object_get(r->root, "endings"));
    if (st == ATOM_OK)
        st = read_answer(r, "label", false);
    return st == ATOM_OK ? check_others(r, "label") : st;
}

static atom_status read_piqa(const reading *r)
{
    const json_t *second = json_object_get(r->root, "sol2");
    atom_status st = read_context(r, "goal");
    if (st == ATOM_OK && !second)
        st = text_fail_line(r->q->name, r->q->line, "there is no \"sol2\" beside \"sol1\"");
    if (st == ATOM_OK)
        st = add_choice(r, json_object_get(r->root, "sol1"));
    if (st == ATOM_OK)
        st = add_choice(r, second);
    if (st == ATOM_OK)
        st = read_answer(r, "label", false);
    return st == ATOM_OK ? check_others(r, "label") : st;
}

atom_status text_question_read(const json_t *root, const char *name, uint64_t line,
                               text_question *out)
{
    text_question q = {.name = name, .line = line};
    const reading r = {root, &q};
    atom_status st;
    int shapes = (json_object_get(root, "endings") != NULL) +
                 (json_object_get(root, "choices") != NULL) +
                 (json_object_get(root, "sol1") != NULL);
    if (shapes > 1)
        st = text_fail_line(name, line,
                            "there are two questions in it: it has more than one of \"endings\", "
                            "\"choices\" and \"sol1\"; leave out one of them");
    else if (json_object_get(root, "endings"))
        st = read_hellaswag(&r);
    else if (json_object_get(root, "choices"))
        st = read_general(&r);
    else if (json_object_get(root, "sol1"))
        st = read_piqa(&r);
    else
        st = text_fail_line(name, line,
                            "this is not a question: a line needs \"endings\" (HellaSwag), "
                            "\"choices\", or \"sol1\" and \"sol2\" (PIQA)");
    if (st == ATOM_OK)
        st = text_line_check_media(root, name, line);
    if (st == ATOM_OK)
        *out = q;
    return st;
}

/* --- files ------------------------------------------------------------------------------------ */

typedef struct asking {
    const char *name;
    text_question_fn fn;
    void *ctx;
    uint64_t n, limit;
} asking;

static atom_status ask(void *ctx, const json_t *root, uint64_t line, bool *stop)
{
    asking *a = ctx;
    text_question q;
    ATOM_TRY(text_question_read(root, a->name, line, &q));
    a->n++;
    *stop = a->n == a->limit;
    return a->fn(a->ctx, &q);
}

atom_status text_questions_read(const char *path, uint64_t limit, text_question_fn fn, void *ctx,
                                uint64_t *n)
{
    asking a = {.fn = fn, .ctx = ctx, .limit = limit};
    text_input *in = NULL;
    text_block b = {0};
    bool stop = false;
    atom_status st;
    if (!text_input_is_lines(path))
        return atom_fail(ATOM_E_USAGE,
                         "%s: questions are one JSON object per line, in a file named .jsonl (also "
                         "as .gz or .zst), or the rows of a .parquet; rename or convert it",
                         path);
    ATOM_TRY_CLEAN(text_input_open(&path, 1, 0, &in));
    do {
        text_block_fini(&b);
        ATOM_TRY_CLEAN(text_input_next(in, &b));
        a.name = b.name;
        if (b.data)
            ATOM_TRY_CLEAN(text_block_objects(&b, ask, &a, &stop));
    } while (b.data && !stop);
    if (a.n == 0)
        ATOM_TRY_CLEAN(atom_fail(ATOM_E_FORMAT, "%s: there is no question in it", path));
    if (n)
        *n = a.n;
cleanup:
    text_block_fini(&b);
    text_input_close(&in);
    return st;
}
