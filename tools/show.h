/*
 * Profiles and plans as text for people, for the commands that make them and for atom inspect. All
 * of it goes to stdout.
 */
#ifndef TOOLS_SHOW_H
#define TOOLS_SHOW_H

#include "tools/cli.h"

/* How the optimizer and its moments are named behind a model's dtype: "" for AdamW's in fp32. */
const char *show_optimizer(graph_optimizer optimizer, atom_dtype moments);

/* Device, rates, and time by kind of node. */
void show_profile(const part_profile *profile);

/* What a plan is and predicts. g may be NULL: then nodes are numbers, not names. */
void show_plan(const part_plan *plan, const graph *g);

/* The memory map: every region of the device arena and the host slab. */
void show_memory(const gen_lowered *lowered, const part_plan *plan);

#endif
