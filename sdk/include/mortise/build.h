/* Declaring a model: segments, layers, parameters. Nothing is allocated until every filter ran; no tensor exists yet.
 * [build] throughout. */
#ifndef MORTISE_BUILD_H
#define MORTISE_BUILD_H
#include "abi.h"
MORTISE_BEGIN

typedef struct mortise_attr {
  mortise_str key;
  mortise_value value;
} mortise_attr;

/** What a model asks for: a slot ("linear", "attention", "mlp", …) at a path, with attributes that operator.h lists. */
typedef struct mortise_layer_spec {
  uint32_t struct_size, n_attrs;
  mortise_str slot, path;
  const mortise_attr *attrs;
} mortise_layer_spec;

/** A parameter to be. `init`: "normal" (mean 0, deviation init_scale), "constant" (init_scale), "uniform"
 * (±init_scale). Bits come from (run.seed, name, logical index), so every sharding and every thread count starts from
 * the same weights. */
typedef struct mortise_param_spec {
  uint32_t struct_size, rank, n_tags;
  mortise_str name; /* whole, as in Hugging Face's files */
  mortise_str role; /* matrix vector norm embedding buffer */
  const mortise_str *dims;
  const int64_t *sizes;
  const mortise_str *tags;
  mortise_str init;
  double init_scale;
  mortise_param *tie; /* this name is that parameter: one value, one gradient, one state; NULL: a new one */
} mortise_param_spec;

enum { MORTISE_BLOCK = 1 }; /* segment: one of a stack of alike; called through the point `block` */

/** "mortise.build/0" */
typedef struct mortise_build_api {
  uint32_t struct_size;
  /** The next segment, in the order of forward; layers declared from here on belong to it. */
  MORTISE_FN(segment, mortise_builder *, mortise_str path, uint32_t flags);
  /** Asks for a layer; its provider declares its parameters and sub-layers before this returns. */
  MORTISE_FN(layer, mortise_builder *, const mortise_layer_spec *, mortise_layer **);
  MORTISE_FN(param, mortise_builder *, const mortise_param_spec *, mortise_param **);
  /** A number that somebody else decided: "vocabulary" (tokenizer or data), "sequence_length" (manifest).
   * MORTISE_E_NOT_FOUND if nobody did. */
  MORTISE_FN(fact, mortise_builder *, mortise_str name, int64_t *);
} mortise_build_api;

MORTISE_END
#endif
