/* What outlives a run: the format of tensors in a checkpoint, and the state that a plugin keeps. */
#ifndef MORTISE_CHECKPOINT_H
#define MORTISE_CHECKPOINT_H
#include "abi.h"
MORTISE_BEGIN

/** One tensor of a file: a whole logical tensor, or a slice of one. Dense, row-major, little-endian. */
typedef struct mortise_entry {
  uint32_t struct_size, dtype; /* MORTISE_F32 … */
  mortise_str name;
  uint32_t n_dims, reserved;
  const int64_t *sizes;  /* of what is here */
  const int64_t *offset; /* its place in the logical tensor, of sizes `whole`; NULL: it is the whole */
  const int64_t *whole;
  const void *data;
  uint64_t bytes;
} mortise_entry;

/** Takes the next bytes; returns 0, or a status that the caller hands on. */
typedef struct mortise_sink {
  uint32_t struct_size, reserved;
  void *user;
  mortise_status (*write)(void *user, const void *data, uint64_t bytes) MORTISE_NOEXCEPT;
} mortise_sink;

/** Gets one tensor; its memory is borrowed for the call. Returns 0, or a status that the caller hands on. */
typedef struct mortise_entry_visitor {
  uint32_t struct_size, reserved;
  void *user;
  mortise_status (*entry)(void *user, const mortise_entry *) MORTISE_NOEXCEPT;
} mortise_entry_visitor;

/** The object of `checkpoint.format`: how tensors become the bytes of a file, and back. Opening, syncing, hashing and
 * renaming are the core's. [any-thread] */
typedef struct mortise_format {
  uint32_t struct_size, reserved;
  mortise_str extension; /* ".safetensors" */
  MORTISE_PLUG(write, const mortise_entry *, uint32_t n, const mortise_sink *);
  MORTISE_PLUG(read, const void *data, uint64_t bytes, const mortise_entry_visitor *);
} mortise_format;

/** A piece of a plugin's state: UTF-8 text of the plugin's own form. */
typedef struct mortise_blob {
  uint32_t struct_size;
  uint32_t version; /* of its form; `load` is told the one that was saved */
  mortise_str name;
  MORTISE_PLUG(save, const mortise_sink *); /* [loop] between steps */
  MORTISE_PLUG(load, uint32_t version,
               mortise_str text); /* [loop] before run.begin of a resumed run; not called if nothing was saved */
} mortise_blob;

/** "mortise.state/0": what is declared here is in every checkpoint. Nothing in it may depend on the time, the machine
 * or the folder. */
typedef struct mortise_state_api {
  uint32_t struct_size;
  /** [build] in `create`; the callbacks get the plugin's `self`. The blob lives as long as the plugin. */
  MORTISE_FN(keep, const mortise_blob *);
} mortise_state_api;

MORTISE_END
#endif
