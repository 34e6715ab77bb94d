/*
 * The public header of libatom: what a program needs to read models and text, profile a machine,
 * plan a run, train, and take part in a pool. It includes the headers of the parts that a program
 * may call; everything else is internal and may change.
 *
 *   text   ->  token shards           text_prepare()          atom/text/prepare.h
 *   model  ->  graph                  graph_model_build()     atom/graph/models.h
 *   graph  ->  profile                plan_profile_get()      atom/plan/workbench.h
 *   profile -> plan                   plan_search()           atom/plan/workbench.h
 *   plan   ->  tape, memory map       gen_lower()             codegen/lower.h
 *   hosts  ->  best way to train      plan_pool_open()        atom/plan/pool_plan.h
 *   all of it: a trained model        trainer_open() ...      atom/train/trainer.h
 *   model  ->  loss, accuracy         eval_loss() ...         atom/generate/evaluate.h, choices.h
 *   model  ->  text, a conversation   generate_text() ...     atom/generate/generate.h
 *   model  ->  other programs         export_hf() ...         atom/export/export.h
 *   many machines -> one model        pool_run_create(), pool_run_join(), pool_run_train() ...
 *                                                             atom/pool/run.h
 *   several pools on one box          host_run()              atom/host/host.h
 *   the pool -> a model directory     pool_export()           atom/pool/export.h
 *   questions to a running member     gsp_control_ask()       gossip/pool/control.h
 *
 * Errors: every call that can fail returns an atom_status (atom/base/status.h); atom_fail_message()
 * has the message. Ownership: an object that an _open or a constructor gives is closed by the
 * _close with the same prefix. Texts are freed with atom_free().
 */
#ifndef ATOM_ATOM_H
#define ATOM_ATOM_H

#include "atom/base/clock.h"
#include "atom/base/entropy.h"
#include "atom/base/environment.h"
#include "atom/base/files.h"
#include "atom/base/hex.h"
#include "atom/base/log.h"
#include "atom/base/machine.h"
#include "atom/base/mem.h"
#include "atom/base/nearest.h"
#include "atom/base/rng.h"
#include "atom/base/size.h"
#include "atom/base/status.h"
#include "atom/base/threads.h"
#include "atom/export/export.h"
#include "atom/file/hfdir.h"
#include "atom/file/pt2.h"
#include "atom/file/safetensors.h"
#include "atom/generate/choices.h"
#include "atom/generate/evaluate.h"
#include "atom/generate/generate.h"
#include "atom/graph/models.h"
#include "atom/host/host.h"
#include "atom/plan/pool_plan.h"
#include "atom/plan/what_if.h"
#include "atom/plan/workbench.h"
#include "atom/pool/anchor.h"
#include "atom/pool/export.h"
#include "atom/pool/run.h"
#include "atom/text/dataset.h"
#include "atom/text/prepare.h"
#include "atom/text/shard.h"
#include "atom/text/tokenizer.h"
#include "atom/text/utf8.h"
#include "atom/train/config.h"
#include "atom/train/epochs.h"
#include "atom/train/metrics.h"
#include "atom/train/progress.h"
#include "atom/train/trainer.h"
#include "codegen/lower.h"
#include "gossip/gate/net_address.h"
#include "gossip/member/evidence.h"
#include "gossip/pool/control.h"
#include "gossip/pool/pause.h"
#include "partition/plan.h"
#include "partition/profile.h"

#endif
