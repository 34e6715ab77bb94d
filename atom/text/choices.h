/*
 * Questions with answers to choose from, one per line of JSONL, in the shapes that data sets for
 * evaluation have. By the keys of each line; other keys are passed over, but a text that the question
 * is about ("passage", "context" and the like) and pictures are refused:
 *
 *   HellaSwag  {"ctx": "...", "endings": ["...", ...], "label": 2}
 *   general    {"question": "...", "choices": ["...", ...], "answer": 2}
 *   ARC        {"question": "...", "choices": {"text": ["...", ...], "label": ["A", ...]},
 *               "answerKey": "C"}
 *   PIQA       {"goal": "...", "sol1": "...", "sol2": "...", "label": 0}
 *
 * "prompt" may stand for "question". label and answer count from 0, as a number or a text; answer
 * may be a letter as well ("A" is 0); an answerKey is one of the labels. The texts are taken as
 * they are: nothing is put around them, nothing taken out (HellaSwag's marks like "[header]").
 *
 * Sources: HellaSwag (Zellers et al. 2019), PIQA (Bisk et al. 2020) as their authors publish them,
 * ARC (Clark et al. 2018) as Hugging Face's data sets have it.
 *
 * Ownership: a question is borrowed for the call that gets it. Thread: no shared state. Errors:
 * ATOM_E_FORMAT with "name:line: what".
 */
#ifndef ATOM_TEXT_CHOICES_H
#define ATOM_TEXT_CHOICES_H

#include "atom/base/status.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

enum { TEXT_CHOICES_MIN = 2, TEXT_CHOICES_MAX = 26 };

/* UTF-8, may hold NUL. */
typedef struct text_phrase {
    const char *text;
    size_t bytes;
} text_phrase;

typedef struct text_question {
    text_phrase context;                   /* may be empty */
    text_phrase choices[TEXT_CHOICES_MAX]; /* none is empty */
    uint32_t n, answer;                    /* answer < n */
    const char *name;                      /* of the file */
    uint64_t line;                         /* from 1 */
} text_question;

/* One line's value, read with integers as reals or not. The question borrows from root and name. */
ATOM_MUST atom_status text_question_read(const json_t *root, const char *name, uint64_t line,
                                         text_question *out);

typedef atom_status (*text_question_fn)(void *ctx, const text_question *q);
/*
 * Calls fn for each of the first `limit` questions (0: all) of a .jsonl or .ndjson, or of one as
 * .gz or .zst; lines behind them are not looked at, but for their UTF-8. *n (may be NULL): how many
 * there were; a file without any is ATOM_E_FORMAT. ATOM_E_USAGE for another kind of file.
 */
ATOM_MUST atom_status text_questions_read(const char *path, uint64_t limit, text_question_fn fn,
                                          void *ctx, uint64_t *n);

#endif
