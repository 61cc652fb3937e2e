/* Where samples come from, and how text becomes ids. The core orders, splits, truncates, pads and counts.
 *
 * A micro-batch holds each field as one tensor of the field's element type, on the host at first: [B, the sizes of one
 * sample], B samples. A sequence, a field whose first size is -1, is [B, T, the other sizes]: T is the length of the
 * longest, rounded up to data.pad_to_multiple but not above data.sequence_length, and shorter ones end with `fill`. By
 * convention the data of a language model has "input_ids", "labels" (each the id that follows; -100: no loss) and
 * "positions", sequences of int64; a label of a whole sample has no sizes, so its tensor is [B]. */
#ifndef MORTISE_DATA_H
#define MORTISE_DATA_H
#include "abi.h"
MORTISE_BEGIN

/** One field of a sample. `unit`: elements other than `fill` are counted as this unit ("tokens"), which a term of the
 * loss can be divided by; empty: they are not counted. Each field has its own name, and its own unit if any. Fields
 * stand in an array, each `struct_size` bytes behind the one before. */
typedef struct mortise_field {
  uint32_t struct_size;
  uint32_t dtype;   /* MORTISE_I64, MORTISE_F32, MORTISE_U8, … */
  mortise_str name; /* "input_ids", "labels", "pixel_values" */
  mortise_str unit;
  double fill; /* what padding holds, and a sample that has nothing of this field; one that the type can hold */
  const int64_t *sizes; /* of one sample: {-1} a sequence, {3, 224, 224} an image, {-1, 80} frames of sound */
  uint32_t n_sizes;     /* at most MORTISE_MAX_FIELD_SIZES; 0: one element, and `sizes` may be NULL */
  uint32_t reserved;
} mortise_field;
enum { MORTISE_MAX_FIELD_SIZES = 7 };

/** What is asked of the data when the run is assembled. */
typedef struct mortise_data_request {
  uint32_t struct_size, reserved;
  int64_t sequence_length; /* samples need be no longer */
  uint64_t seed;           /* for data that is made, not read */
} mortise_data_request;

typedef struct mortise_split {
  uint32_t struct_size, reserved;
  int64_t samples;   /* 0: there is no such split */
  mortise_str about; /* "README.md and 41 others, 512,204 tokens"; lives as long as the plugin */
  /** A text that is another one whenever a token of the split or its cut into samples is, and the same for the same
   * samples on any machine: a checkpoint keeps it, and a resumed run that has another one is refused with both. So it
   * is short, and says what a person can compare: "1,196,287 tokens, 128 a sample, 1f0c…". Empty: this data has none.
   * Written only where MORTISE_HAS_ROOM; lives as long as the plugin. */
  mortise_str fingerprint;
} mortise_split;

/** Samples of a split that come from one place, such as the files of one pattern. Groups stand in an array, each
 * `struct_size` bytes behind the one before; their samples follow one another, the first of the first group being
 * sample 0. Since 0.2 */
typedef struct mortise_group {
  uint32_t struct_size, reserved;
  mortise_str name;
  int64_t samples;
} mortise_group;

/** The object of `data`. */
typedef struct mortise_data {
  uint32_t struct_size, n_fields;
  const mortise_field *fields;
  /** Opens what it needs; called once. [build] */
  MORTISE_PLUG(open, const mortise_data_request *);
  /** `split` is "train" or "validation". What it needs of it may be read here: of a split that nobody asks for the
   * files need not exist. [build] */
  MORTISE_PLUG(describe, mortise_str split, mortise_split *);
  /** The size of the vocabulary, 0 if the data does not know (a tokenizer does). [build] */
  MORTISE_PLUG(vocabulary, int64_t *);
  /** Puts samples `numbers[0..n)` of a split into rows 0..n. `epochs[i]` is how often sample numbers[i] was trained on
   * before, for whoever changes samples at random; 0 in an evaluation. Pure in its arguments. [data] Several threads at
   * once, unless plugin.toml says [data] threads = "one". Where it says [data] validation = "KEY", that key holds the
   * files of the split. */
  MORTISE_PLUG(get, mortise_str split, const int64_t *numbers, const int64_t *epochs, uint32_t n, mortise_rows *);
  /** What the labels of whole samples mean: label i is names[i], of `n`; 0: this data has no classes. The names live as
   * long as the plugin. May be NULL: it has none either. [build] Since 0.2 */
  MORTISE_PLUG(classes, const mortise_str **names, uint32_t *n);
  /** Where the samples of a split come from: `n` groups, all its samples together. They live as long as the plugin. May
   * be NULL: they are one group. Called after `describe` of that split. [build] Since 0.2 */
  MORTISE_PLUG(groups, mortise_str split, const mortise_group **groups, uint32_t *n);
} mortise_data;

/** What is asked of the order when the run is assembled. */
typedef struct mortise_order_request {
  uint32_t struct_size;
  uint32_t n_groups;
  const mortise_group *groups; /* of the samples to train on, without those held out; valid in the call */
  int64_t samples;             /* all of them: 0 to samples - 1, group after group */
  int64_t per_epoch;           /* how many make an epoch */
  int64_t per_step;            /* how many make a step; the last step of an epoch may have fewer */
  uint64_t seed;
  uint32_t shuffle; /* 0: [data] shuffle is off */
  uint32_t reserved;
} mortise_order_request;

/** The object of `data.order`: which samples are trained on, and when. Without a provider the core takes each sample
 * once an epoch, in an order of the seed. Since 0.2 */
typedef struct mortise_order {
  uint32_t struct_size, reserved;
  /** Called once, before training. Refuses what it cannot order. [build] */
  MORTISE_PLUG(open, const mortise_order_request *);
  /** What the plan says of it; after `open`. Lives as long as the plugin. [build] */
  MORTISE_PLUG(describe, mortise_str *about);
  /** Writes `per_epoch` samples of epoch `epoch`, in their order, and how often each was taken before (mortise_data's
   * `epochs`). Pure in its arguments: a resumed run asks for its epoch alone. [data] One thread at a time */
  MORTISE_PLUG(epoch, int64_t epoch, int64_t *samples, int64_t *before);
} mortise_order;

/** "mortise.batch/0" */
typedef struct mortise_batch_api {
  uint32_t struct_size;
  /** Copies `bytes` as field `field` (its index) of row `row`: one sample, contiguous, neighbours of the last size side
   * by side; of a sequence whole positions. 0 bytes: this sample has nothing of the field, which is then `fill`.
   * [data] */
  MORTISE_FN(put, mortise_rows *, uint32_t row, uint32_t field, const void *elements, size_t bytes);
  /** A field's tensor, borrowed; MORTISE_E_NOT_FOUND if the batch has none by that name. */
  MORTISE_FN(get, const mortise_batch *, mortise_str field, mortise_tensor **borrowed);
  /** The name of field `index`, MORTISE_E_NOT_FOUND at the end. */
  MORTISE_FN(name, const mortise_batch *, uint32_t index, mortise_str *);
  /** An empty batch; owned by the caller. Counts are copied from `like` if it is not NULL. */
  MORTISE_FN(create, const mortise_batch *like, mortise_batch **out);
  MORTISE_FN(set, mortise_batch *, mortise_str field, mortise_tensor *); /* retains the tensor */
  MORTISE_FN_VOID(retain, mortise_batch *);
  MORTISE_FN_VOID(release, mortise_batch *);
  /** A copy of this tensor on the run's device; the same tensor, retained, if it is there. */
  MORTISE_FN(to_device, mortise_tensor *, mortise_tensor **out);
  /** How many of `unit` the batch holds ("samples", "one", the data's own), 0 of one that nobody counts. Since 0.2 */
  MORTISE_FN(count, const mortise_batch *, mortise_str unit, int64_t *);
  /** Whoever changes what is in a batch says how many there are now; terms of the loss are divided by it. Since 0.2 */
  MORTISE_FN(set_count, mortise_batch *, mortise_str unit, int64_t);
} mortise_batch_api;

/** The object of `tokenizer`. Encoding and decoding always say how much room is needed, and write only if there is
 * enough. `encode` adds no special token: whoever makes samples puts them. [any-thread] */
typedef struct mortise_tokenizer {
  uint32_t struct_size, reserved;
  MORTISE_PLUG(size, int64_t *vocabulary);
  MORTISE_PLUG(encode, mortise_str text, int64_t *ids, size_t room, size_t *needed);
  MORTISE_PLUG(decode, const int64_t *ids, size_t n, char *text, size_t room, size_t *needed);
  /** The id of the special token of a role: "bos" "eos" "pad" "cls" "sep" "unk" "mask". MORTISE_E_NOT_FOUND: there is
   * none. May be NULL: there are none at all. Since 0.2 */
  MORTISE_PLUG(special, mortise_str role, int64_t *id);
  /** File `index` that others need to make the same ids, MORTISE_E_NOT_FOUND at the end: a checkpoint and an export
   * have it beside the weights. `name` is a plain file name ("tokenizer.json"); both live as long as the plugin. May be
   * NULL: there are none. Since 0.2 */
  MORTISE_PLUG(file, uint32_t index, mortise_str *name, mortise_str *contents);
} mortise_tokenizer;

/** "mortise.tokenizer/0": the run's tokenizer, for every other plugin. NULL from get_interface when nothing provides
 * one. */
typedef struct mortise_tokenizer_api {
  uint32_t struct_size;
  MORTISE_FN(size, int64_t *vocabulary);
  MORTISE_FN(encode, mortise_str text, int64_t *ids, size_t room, size_t *needed);
  MORTISE_FN(decode, const int64_t *ids, size_t n, char *text, size_t room, size_t *needed);
  MORTISE_FN(special, mortise_str role, int64_t *id); /* MORTISE_E_NOT_FOUND: it has none. Since 0.2 */
} mortise_tokenizer_api;

MORTISE_END
#endif
