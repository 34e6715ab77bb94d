/*
 * Weights as torch.save writes them: pytorch_model.bin, adapter_model.bin. A pickle (pickle.h) names
 * the tensors, and their bytes lie beside it uncompressed: in entries of a zip, or, in files older
 * than PyTorch 1.6, one after another behind it. Once that is read, they are tensors at known places
 * of a file, so what comes back is a file_safetensors that everything reads as it reads those.
 *
 * Tensors must be contiguous; several may share one storage, as tied weights do. The dict that was
 * saved must be a state_dict: texts and tensors alone.
 *
 * Ownership: file_st_close. Thread: see safetensors.h. Errors: ATOM_E_FORMAT for what is damaged;
 * ATOM_E_UNSUPPORTED names what is no plain tensor, and what to do; ATOM_E_RESOURCE.
 * Source: torch/serialization.py; docs/design/files.md#torchsave.
 */
#ifndef ATOM_FILE_TORCHFILE_H
#define ATOM_FILE_TORCHFILE_H

#include "atom/file/safetensors.h"

ATOM_MUST atom_status file_torch_open(const char *path, file_safetensors **out);
/* Does the name end as those of such files do, in .bin? */
bool file_torch_is_name(const char *path);

#endif
