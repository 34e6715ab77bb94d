/*
 * Plans that travel between hosts of a pool (docs/design/pool.md#who-gets-in: plans are shared,
 * code is not).
 *
 * A plan is good for another host where the same graph runs on the same kind of device. The device
 * class says what "the same" is, as a text; two hosts with equal texts may use each other's plans:
 *
 *   atom-plan-class 1                      of this definition
 *   graph HASH DTYPE                       operators, shapes, micro-batch, sequence, data type
 *   micro-batches C; clip; recompute       what a plan is bound to beside the graph
 *   device MODEL                           the card and its MiB, or the processor's model name
 *   isa NAME                               of the kernels
 *   threads N                              of the CPU, where it computes; a card's host counts not
 *   device memory BYTES                    the cap of --device-memory; 0: all there is
 *   link CLASS                             the throttle of --link-bandwidth in bytes/s; else, on a
 *                                          card, a short copy as a power of two of 12.3 GB/s
 *                                          (PCIe 3.0 x16 is 0, 4.0 x16 is 1, 3.0 x8 is -1)
 *   devices N                              that share the micro-batches; no such line for one
 *
 * The host's memory is not in it: whether a plan fits there is checked, like the device's, by
 * laying the plan out here; and how quick it is here is asked of this host's own profile. So a
 * stranger's plan can take no more memory than this host gives, it says nothing of its own speed
 * that anybody believes, and it cannot change what is learned (docs/design/engine.md#the-same-bits).
 *
 * Thread: the trainer's. Texts are atom_free'd by who gets them.
 */
#ifndef ATOM_PLAN_SHARE_H
#define ATOM_PLAN_SHARE_H

#include "atom/plan/workbench.h"

/* A card's link is measured for it: a tenth of a second. */
ATOM_MUST atom_status plan_class(const plan_workbench *bench, const plan_request *request,
                                 char **text);

/*
 * A plan of somebody else as this host's own: read (it is no string: bytes, without a NUL), proven
 * legal (part_plan_check), for the very C, clipping, caps, kind and number of devices of `request`,
 * with the state in host memory, and laid out here: what it takes must be within
 * request->device_memory (or the card's) and request->host_memory. Its predicted times are those of
 * `profile`, which this host measured.
 * Errors  ATOM_E_FORMAT  not a plan; ATOM_E_USAGE  a plan for something else, or not legal;
 *         ATOM_E_RESOURCE  it takes more memory than there is. The message is one line.
 */
ATOM_MUST atom_status plan_accept(const plan_workbench *bench, const plan_request *request,
                                  const part_profile *profile, const char *text, size_t bytes,
                                  part_plan **plan);

#endif
