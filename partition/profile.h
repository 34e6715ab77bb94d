/*
 * A profile: measured or modelled time and bytes per node of one graph on one device (ATOM III-D:
 * "the graph is executed operator by operator"). Also the device's rates. Times are seconds for one
 * micro-batch running alone with all cores.
 *
 * Measured profiles are filled by atom/train (timing a node comes in as a callback); modelled ones
 * come from a device spec file.
 */
#ifndef PARTITION_PROFILE_H
#define PARTITION_PROFILE_H

#include "atom/graph/graph.h"

typedef struct part_device {
    char name[64]; /* "cpu: Intel Xeon ..., 2 cores", "NVIDIA GeForce RTX 4090" */
    bool unified;  /* CPU: compute, copies and updates share cores and DRAM */
    bool modelled;
    char isa[32];
    uint32_t cores;
    uint64_t device_bytes; /* memory of the device, 0 = host memory is the limit */
    uint64_t host_bytes;
    double flops_fp32, flops_bf16; /* sustained matmul rate; 0 = unknown / not supported */
    double peak_flops_fp32, peak_flops_bf16; /* promised dense rate for MFU; 0 = unknown */
    double device_bytes_per_second;          /* device memory bandwidth */
    double h2d_bytes_per_second, d2h_bytes_per_second;           /* one direction at a time */
    double h2d_both_bytes_per_second, d2h_both_bytes_per_second; /* while the other runs too */
    double copy_latency_seconds;
    double host_bytes_per_second; /* host DRAM, all cores, triad */
    /* host AdamW, wire and moments as the graph has them; 0 in a spec, and then derived from
     * host_bytes_per_second when a profile is modelled */
    double adamw_params_per_second;
    double muon_flops_per_second; /* host Muon, of part_muon_seconds(); 0: not measured */
    double attention_fraction; /* of the rate of products, where that is modelled; 0: all of it */
    double ortho_flops_per_second; /* Muon's products on the device, of part_ortho_seconds(); 0: it
                                      makes none, or not measured. In a spec derived from flops_fp32 */
    double launch_seconds;         /* fixed cost per kernel */
    /* Of the last-level cache that one core has; 0: unknown, or not measured with its contents in
     * mind, and then every micro-batch is cold (below). */
    uint64_t cache_bytes;
    /* of the disk that the optimizer's state would go to; 0: unknown */
    double disk_read_bytes_per_second, disk_write_bytes_per_second;
    double disk_read_both_bytes_per_second, disk_write_both_bytes_per_second;
    double disk_sync_seconds; /* until what was written is durable */
} part_device;

/* Muon on one matrix on the host: five steps of Newton-Schulz, of whose products two are symmetric
 * and computed by half. Where it was not measured, at 50 GFLOP/s for each core. */
double part_muon_seconds(const part_device *device, int64_t rows, int64_t cols);
/* The same products where the device makes them (krn_ortho_fn); it must have a rate. */
double part_ortho_seconds(const part_device *device, int64_t rows, int64_t cols);
/* Of those products on so many elements what is left for the host, which memory limits: momentum and
 * X before them, weights after them. wire: bytes of an element that crosses the link. */
double part_muon_begin_seconds(const part_device *device, uint64_t elements, uint32_t wire,
                               uint32_t moment);
double part_muon_end_seconds(const part_device *device, uint64_t elements, uint32_t wire);

typedef struct part_disk {
    double read, write, read_both, write_both; /* bytes per second; both: while the other runs */
    double sync_seconds;
    bool assumed; /* not measured: the rates of a plain NVMe drive */
} part_disk;
part_disk part_device_disk(const part_device *device);

typedef struct part_node_cost {
    double fwd_seconds, bwd_seconds;           /* cold; bwd of a terminal op includes its forward */
    double fwd_gain_seconds, bwd_gain_seconds; /* by how much less it takes warm: 0 to all of it */
    uint64_t workspace_bytes;                  /* larger of forward and backward */
    /* Known without timing: filled by part_profile_open and friends,
     * whatever a part_time_fn does. */
    char name[GRAPH_NAME_MAX];
    uint64_t param_bytes, saved_bytes, output_bytes; /* saved: outputs that only backward reads */
} part_node_cost;

typedef struct part_profile {
    uint64_t graph_hash;
    char model[GRAPH_NAME_MAX];
    atom_dtype dtype;
    int64_t micro_batch, sequence;
    part_device device;
    uint32_t n_nodes;
    part_node_cost *nodes; /* n_nodes; alike nodes carry equal numbers */
    char *graph_text;      /* what graph_print wrote: a profile can be planned by itself; owned;
                              NULL when a file has none */
    double doubt; /* the median step of a run in terms of what was predicted from this profile, where
                     the two were far apart; 0: no run disagreed */
    uint32_t measured_again; /* how often in a row a profile was doubted and measured again */
} part_profile;

/*
 * Cold and warm micro-batches. A visit runs its C micro-batches one after another through the same
 * sub-model. The first meets caches that hold what came before, and each of its nodes takes fwd_seconds or
 * bwd_seconds. Each of the others takes
 *
 *     seconds - gain_seconds * part_warm_share(device, touched) / PART_WARM_ALL
 *
 * where `touched` is what one micro-batch touches of the device on its way through the sub-model:
 * parameters (with borrowed ones), all that backward reads of forward, scratch, the boundaries in front
 * and behind, and in backward the accumulators that the sub-model owns. Up to half of the cache that is
 * all still there when the next micro-batch comes (PART_WARM_ALL), from one and a half caches on nothing
 * is (0), and in between it falls in a straight line, so that plans that hardly differ hardly differ in
 * price. partition/pair.c prices ranges by this rule and codegen/cost.c instructions, for the null device.
 * docs/design/engine.md#cold-and-warm has the reasons.
 */
enum { PART_WARM_ALL = 1024 };
uint32_t part_warm_share(const part_device *device, uint64_t touched_bytes);

/*
 * Into how many pieces a sub-model's parameters are cut, each of which takes long enough for the latency of
 * its copy not to matter: up to PART_PIECES_MAX where copies and updates follow each other piece by piece,
 * and up to one for each of `n` micro-batches where boundaries cross the link meanwhile, so that these need
 * not queue behind all of it. codegen/tape_fetch.c cuts by this rule and partition/pair.c prices by it.
 */
enum { PART_PIECES_MAX = 8 };
uint32_t part_pieces(const part_device *device, uint64_t bytes);
uint32_t part_pieces_beside(const part_device *device, uint64_t bytes, uint32_t n);

/* All times zero. ATOM_E_USAGE names the figure of the device that makes no sense. */
ATOM_MUST atom_status part_profile_open(const graph *g, const part_device *device,
                                        part_profile **out);
void part_profile_close(part_profile **profile);

/* Times one node: median seconds of forward and backward, cold, their gains, and workspace. Called once per class of
 * alike nodes, with the first of them. */
typedef atom_status (*part_time_fn)(void *ctx, const graph *g, int32_t node, part_node_cost *cost);
ATOM_MUST atom_status part_profile_measure(const graph *g, const part_device *device,
                                           part_time_fn time, void *ctx, part_profile **out);
/* Roofline: max(flops / rate, bytes / bandwidth) + launch, per node (Williams, Waterman, Patterson
 * 2009). ATOM_E_UNSUPPORTED when the device has no rate for the graph's dtype. */
ATOM_MUST atom_status part_profile_model(const graph *g, const part_device *device,
                                         part_profile **out);

/* Device specs: built in ("rtx-4090", "h100": part_device_names) or a JSON file like those in
 * presets/devices/, which are compiled in; every figure carries its source in the file. */
ATOM_MUST atom_status part_device_spec(const char *name_or_path, part_device *out);
/* NULL-terminated. */
const char *const *part_device_names(void);
/* The JSON text of a built-in spec, to start one's own from; NULL if there is no such name. */
const char *part_device_text(const char *name);

/* JSON, versioned ("atom_profile": 1). Reading checks types, ranges and counts. */
ATOM_MUST atom_status part_profile_write(const part_profile *profile, const char *path);
ATOM_MUST atom_status part_profile_read(const char *path, part_profile **out);
/* The rates of a device alone ("atom_rates": 1), for profiles of other graphs on it. */
ATOM_MUST atom_status part_rates_write(const part_device *rates, const char *path);
ATOM_MUST atom_status part_rates_read(const char *path, part_device *rates);
/* For --json on stdout; free with atom_free. */
ATOM_MUST atom_status part_profile_json(const part_profile *profile, char **text);
/* Whether a profile may take this place (atom_file_check_place): what is asked for before measuring. */
ATOM_MUST atom_status part_profile_check_place(const char *path);
/* The graph that was profiled, from graph_text. ATOM_E_FORMAT when it is not the one of graph_hash,
 * ATOM_E_USAGE when there is none. */
ATOM_MUST atom_status part_profile_graph(const part_profile *profile, graph **out);
/* What Adam's moments were kept in, by its graph; ATOM_F32 when there is none. */
atom_dtype part_profile_moments(const part_profile *profile);
/* Likewise; GRAPH_ADAMW when there is none. */
graph_optimizer part_profile_optimizer(const part_profile *profile);
/* Matches the graph by hash; ATOM_E_USAGE says what differs. */
ATOM_MUST atom_status part_profile_matches(const part_profile *profile, const graph *g);

#endif
