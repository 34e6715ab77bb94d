/*
 * Marks of vectors, by which a checkpoint knows its own files: a hash of eight numbers of each trained
 * parameter, and a sum of all numbers, both taken while they pass by, so they cost no reading. Files of
 * another step or of another run have another hash, and a number that changed on the disk changes the sum.
 * Not for security.
 *
 *     train_mark_open(g, &mark);
 *     file_vector seen = train_mark_over(mark, vector);    who gets or puts through it is watched
 *     train_mark_hash(mark);                               once all of it has passed; any order
 *     train_mark_got(mark);                                of what was got, or train_mark_put
 *     train_mark_close(&mark);
 *
 * Ownership: the mark must outlive `seen`. Thread: as the vector's.
 */
#ifndef ATOM_TRAIN_MARK_H
#define ATOM_TRAIN_MARK_H

#include "atom/file/vector.h"
#include "atom/graph/graph.h"

typedef struct train_mark train_mark;

ATOM_MUST atom_status train_mark_open(const graph *g, train_mark **out);
void train_mark_close(train_mark **mark);
/* One vector for each mark. What its maker sees is what passes through `under`. */
file_vector train_mark_over(train_mark *mark, file_vector under);
/* Never 0. */
uint64_t train_mark_hash(const train_mark *mark);

/* Of numbers and their places, in any order and in pieces of any size; one that passes twice counts twice. */
typedef struct train_sum {
    uint64_t n, sum;
} train_sum;

train_sum train_mark_got(const train_mark *mark);
train_sum train_mark_put(const train_mark *mark);
/* What was summed so far does not count. */
void train_mark_again(train_mark *mark);

#endif
