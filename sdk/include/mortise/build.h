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

/** What a model asks for: a slot, which is the name of an operator point ("linear", "attention", "mlp", …), at a path,
 * with attributes that operator.h lists. An attribute is an INT, FLOAT, LOGICAL, TEXT, DTYPE or PARAM; the host copies
 * it, texts too. A layer whose provider does not list all of them in its plugin.toml, [SLOT] attributes, is
 * refused. */
typedef struct mortise_layer_spec {
  uint32_t struct_size, n_attrs;
  mortise_str slot, path;
  const mortise_attr *attrs;
  double share; /* of the positions of whoever asks, how many this layer sees on average: an expert sees few. 0: all.
                   What is said of a run's arithmetic counts with it. Since 0.2 */
} mortise_layer_spec;

/** A parameter to be, fp32 unless a listener of params.declared says otherwise. `init` is one of
 *   "normal"    mean 0, standard deviation init_scale
 *   "uniform"   between -init_scale and init_scale
 *   "constant"  init_scale
 *   "values"    those of `values`
 * The bits come from run.seed, the name and the index of the element: every number of threads starts from the same
 * weights. */
typedef struct mortise_param_spec {
  uint32_t struct_size, rank, n_tags;
  mortise_str name;        /* whole, as in Hugging Face's files */
  mortise_str role;        /* matrix vector norm embedding buffer */
  const mortise_str *dims; /* logical names of the dimensions, `rank` of them; a `where` finds them as "dim:NAME" */
  const int64_t *sizes;
  const mortise_str *tags;
  mortise_str init;
  double init_scale;
  mortise_param *tie; /* this name is that parameter: one value, one gradient, one state; NULL: a new one */
  /** Several parameters packed into one, side by side along the dimension `part_dim`, as queries, keys and values are:
   * the sizes of the parts, `n_parts` of them, which add up to sizes[part_dim]. 0: it is one. Since 0.2 */
  uint32_t part_dim, n_parts;
  const int64_t *parts;
  /** Of the init "values": one for each element, in memory order, alive until run.begin; else NULL. Since 0.2 */
  const float *values;
} mortise_param_spec;

/** A matrix that is trained as a sum: in what `mortise export` writes, `into` + scale × left · right stands in its
 * place, and `left` and `right` are left out, as if they had never been. */
typedef struct mortise_merge_spec {
  uint32_t struct_size;
  uint32_t transposed;         /* 1: `into` has the dimensions of left · right the other way round */
  mortise_str into;            /* the whole name of a parameter that is declared already */
  mortise_param *left, *right; /* [n, rank] and [rank, m] */
  double scale;
} mortise_merge_spec;

enum { MORTISE_BLOCK = 1 }; /* flag of a segment: one of several alike; called through the point `block` */

/** "mortise.build/0" */
typedef struct mortise_build_api {
  uint32_t struct_size;
  /** The next segment, in the order of forward; layers declared from here on belong to it. */
  MORTISE_FN(segment, mortise_builder *, mortise_str path, uint32_t flags);
  /** Asks for a layer; its provider declares its parameters and sub-layers before this returns. The handle lives as
   * long as the run; mortise_call_api.layer calls it. A provider that asks, in its `declare`, for a layer of the slot
   * and the path that it is declaring gets the one that the next claim on them provides: so it wraps that, with
   * parameters of its own. Its table has a `where`; without one no other claim is left. */
  MORTISE_FN(layer, mortise_builder *, const mortise_layer_spec *, mortise_layer **);
  MORTISE_FN(param, mortise_builder *, const mortise_param_spec *, mortise_param **);
  /** A number that somebody else decided: "vocabulary" (tokenizer or data), "classes" (data), "sequence_length" (0:
   * the data has none) and "micro_batch_size" (manifest), "field.NAME" (1: the data has a field of that name),
   * "validation" (1: the run is evaluated). MORTISE_E_NOT_FOUND if nobody did. */
  MORTISE_FN(fact, mortise_builder *, mortise_str name, int64_t *);
  /** How parameters that were added to a model go back into its own. Since 0.2 */
  MORTISE_FN(merge, mortise_builder *, const mortise_merge_spec *);
} mortise_build_api;

MORTISE_END
#endif
