/* Ranks: processes that train one model together. `comm` moves bytes between them, `replicas` says how their copies of
 * the parameters stay one. A run of one rank goes through the same calls. */
#ifndef MORTISE_RANKS_H
#define MORTISE_RANKS_H
#include "params.h"
MORTISE_BEGIN

/** The ranks of a run, as whoever started them has it. */
typedef struct mortise_world {
  uint32_t struct_size;
  int32_t rank, size;             /* this one, from 0, of how many */
  int32_t local_rank, local_size; /* the same among those on this host */
  int32_t port;                   /* of `address`, where rank 0 listens */
  int32_t listen_fd;              /* rank 0: a socket that listens there already, taken over; -1: none */
  uint32_t reserved;
  mortise_str address;
} mortise_world;

enum { MORTISE_SUM = 0, MORTISE_MAX = 1, MORTISE_MIN = 2 };

/* Some of the ranks, which start collectives among themselves, in an order of their own: `comm`'s. */
typedef struct mortise_rank_group mortise_rank_group;

/* What `in` and `out` are, of n ranks; both contiguous, of one dtype, on the run's device. */
enum {
  MORTISE_ALL_REDUCE = 0,     /* out: in place, `in` is not read */
  MORTISE_REDUCE_SCATTER = 1, /* in [n * k], out [k]: the k of this rank */
  MORTISE_ALL_GATHER = 2,     /* in [k], out [n * k], rank after rank; `in` may be this rank's part of `out` */
  MORTISE_BROADCAST = 3,      /* out: of rank `root`, `in` is not read */
  MORTISE_ALL_TO_ALL = 4,     /* in: rows, along the first dimension, for one rank after another; out: from each. They
                                 share no memory */
  MORTISE_REDUCE = 5          /* out: in place on rank `root`, on the others left undefined; `in` is not read */
};
typedef struct mortise_collective {
  uint32_t struct_size, kind;
  uint32_t op; /* MORTISE_SUM, … of those that reduce */
  int32_t root;
  mortise_tensor *in, *out;
  /** Among these, whose number and order count above; NULL: among all. Since 0.2 */
  const mortise_rank_group *group;
  /** Of MORTISE_ALL_TO_ALL [n]: how many rows go to each, and come from each; NULL, both: as many for all. Since 0.2 */
  const int64_t *in_rows, *out_rows;
} mortise_collective;
typedef struct mortise_work mortise_work; /* a collective that was started: the plugin's own */

/** The object of `comm`. Every rank makes the same calls in the same order. A rank that is lost, or does not come
 * within the plugin's own time: MORTISE_E_LOST, and nothing of this object can be used any more. Since 0.2 in this
 * form */
typedef struct mortise_comm {
  uint32_t struct_size, reserved;
  /** Meets the other ranks. Before all others, once; a run that is only planned does not call it. [build] */
  MORTISE_PLUG(open, const mortise_world *);
  /** Begins after what the current stream has so far; the plugin keeps the tensors alive. [loop, autograd] */
  MORTISE_PLUG(start, const mortise_collective *, mortise_work **);
  /** The current stream waits for it (on the CPU the thread does); releases it. [loop, autograd] */
  MORTISE_PLUG(wait, mortise_work *);
  /** Over numbers on the host; never touches the device. Waits. Of no numbers (n 0) nothing is exchanged: an error if a
   * rank is known to be lost. [build, loop; of none: any-thread] */
  MORTISE_PLUG(host_all_reduce, int64_t *, uint32_t n, uint32_t op);
  /** A text under a key, once a run; and whatever a rank shared under it, waiting for that. It lives until the next
   * call of `fetch`. [build, loop] */
  MORTISE_PLUG(share, mortise_str key, mortise_str text);
  MORTISE_PLUG(fetch, mortise_str key, mortise_str *text);
  /** A group of ranks, in this order, this one among them; it lives as long as the object. Every rank makes as many
   * groups, and those that one names name the same. [build] Since 0.2 */
  MORTISE_PLUG(group, const int32_t *ranks, uint32_t n, mortise_rank_group **out);
  /** `start` of each of n, in this order, a work for each. They are sent together, so every rank begins the same
   * together. NULL: one after another. [loop, autograd] Since 0.2 */
  MORTISE_PLUG(start_all, const mortise_collective *const *, uint32_t n, mortise_work **works);
} mortise_comm;

/** "mortise.comm/0": the run's `comm`, for any other plugin, as the object above says it: every rank makes the same
 * calls in the same order, and waits for each work that it starts. Since 0.2 */
typedef struct mortise_comm_api {
  uint32_t struct_size;
  MORTISE_FN(place, int32_t *rank, int32_t *size);                /* [any-thread] */
  MORTISE_FN(start, const mortise_collective *, mortise_work **); /* [loop, autograd] */
  MORTISE_FN(wait, mortise_work *);                               /* [loop, autograd] */
  /** Of no numbers: MORTISE_E_LOST if a rank is known to be lost. Where one is lost, what was on its way over a device
   * ends without its numbers, so whoever uses on the host what other ranks sent asks before, and after it has waited
   * for the device.
   * [build, loop; of none: any-thread] */
  MORTISE_FN(host_all_reduce, int64_t *, uint32_t n, uint32_t op);
  /** An axis that a plugin of the run has ([ranks] axis of plugin.toml): the ranks along it, as a group, and this one's
   * number among them. In a plan, which meets nobody, the group is NULL. MORTISE_E_NOT_FOUND: no plugin has it.
   * [build, loop] Since 0.2 */
  MORTISE_FN(axis, mortise_str name, mortise_rank_group **group, int32_t *rank, int32_t *size);
  /** As `place`, among those that samples are dealt out to: ranks that see the same count as one. [any-thread]
   * Since 0.2 */
  MORTISE_FN(data_place, int32_t *rank, int32_t *size);
  /** n collectives that are sent together, which is less work than one by one where they are small: a work for each.
   * [loop, autograd] Since 0.2 */
  MORTISE_FN(start_all, const mortise_collective *const *, uint32_t n, mortise_work **works);
} mortise_comm_api;

/** The object of `replicas`. */
typedef struct mortise_replicas {
  uint32_t struct_size, reserved;
  /** [autograd] This micro-batch's gradient is complete; in the order of this rank's backward, which others may not
   * have: collectives need one of their own. Each trainable parameter comes once a micro-batch that is `last`, a
   * sharded one in every one; one that brought no gradient on this rank is 0 then. */
  MORTISE_PLUG(ready, mortise_param *, int32_t micro, int32_t last);
  /** [loop] Every gradient is summed over its replicas (params.h) when this returns (or will be, on the stream); if
   * `norm` stands here, on one rank. */
  MORTISE_PLUG(finish, uint32_t reserved);
  /** [build] Parameters have memory and values on every rank; gradients are to be placed. May be NULL. Since 0.2 */
  MORTISE_PLUG(layout, uint32_t reserved);
  /** [build] The elements of a parameter that a rank updates, and keeps states of: `*length` from `*offset` on, each a
   * multiple of `cut` but for the end of the parameter. Asked of every trainable parameter, in an order that is the
   * same on every rank, of each of its `replicas`, whose elements together are the parameter, each once. NULL: all
   * update all. Since 0.2 */
  MORTISE_PLUG(own, const mortise_param_info *, int64_t cut, int32_t rank, int64_t *offset, int64_t *length);
  /** [loop] Each rank has updated its elements. Every rank has all masters when this returns (or will, on the stream),
   * but for what is sharded, whose gathered values are old from now on. Stands where `own` stands. Since 0.2 */
  MORTISE_PLUG(gather, uint32_t reserved);
  /** [build] What a rank has of a parameter, one of MORTISE_WHOLE, …; asked after `own` of each rank, of frozen
   * parameters too, whose cut is 1. `*room`, the parameter's elements at first: for how many a whole value and a whole
   * gradient have memory, at least as many. NULL: all is whole. Since 0.2 */
  MORTISE_PLUG(shard, const mortise_param_info *, uint32_t *what, int64_t *room);
  /** [build] Bytes at most, beside what `shard` says, of values that are gathered and gradients that are on their way;
   * asked after it. Stands where `shard` stands. Since 0.2 */
  MORTISE_PLUG(transient, int64_t *bytes);
  /** [loop, autograd] A sharded parameter is about to be used: its value is there when this returns (or will be, on the
   * stream). `segment`: which one computes, -1 outside of all; `backward`: 1 inside backward. Stands where `shard`
   * stands. Since 0.2 */
  MORTISE_PLUG(need, mortise_param *, int32_t segment, int32_t backward);
  /** [loop] Its master was written, on every rank: a value that was gathered is old. Stands where `shard` stands.
   * Since 0.2 */
  MORTISE_PLUG(written, mortise_param *);
  /** [loop] A norm of all gradients as this rank has them, 0-dim, on the run's device: becomes that of the rank which
   * has the sums (or will, on the stream). NULL: every rank has them. Since 0.2 */
  MORTISE_PLUG(norm, mortise_tensor *);
} mortise_replicas;

/** Of a parameter whose elements several ranks own. */
enum {
  MORTISE_WHOLE = 0,   /* master, value and gradient are whole on each of them */
  MORTISE_SHARDED = 1, /* of master and gradient a rank has the elements that it owns; its value is whole, and stays */
  MORTISE_COMES_AND_GOES = 2 /* so, and a value is there from `hold` to `drop` only */
};

/** "mortise.replicas/0": for the provider of `replicas`. Since 0.2 */
typedef struct mortise_replicas_api {
  uint32_t struct_size;
  /** The gradient of this parameter is a part of `flat` [n], its own dtype, from element `offset` on: from here on,
   * with what it has. [build, loop] In `layout` and `finish` only. */
  MORTISE_FN(place, mortise_param *, mortise_tensor *flat, int64_t offset);
  /** Did this step bring a gradient on this rank? [loop] Inside `finish`. */
  MORTISE_FN(has_gradient, const mortise_param *, int32_t *);
  /** Says whether it did on any. [loop] Inside `finish`. */
  MORTISE_FN(set_has_gradient, mortise_param *, int32_t);
  /** Elements of a master, [length], in its own memory; owned. [loop] Inside `gather`. Since 0.2 */
  MORTISE_FN(master, mortise_param *, int64_t offset, int64_t length, mortise_tensor **out);
  /** 1: a plugin of this run records steps, each rank when it has seen such batches before. What `finish` does on the
   * host is then not done by every rank in the same steps, the first one apart. [build] Since 0.2 */
  MORTISE_FN(recorded, int32_t *);
  /* Of sharded parameters only: */
  /** The memory of a value, flat, [room], with this rank's elements in their place as the master has them now; owned.
   * Whoever computes sees what is written there. [loop, autograd] Since 0.2 */
  MORTISE_FN(hold, mortise_param *, mortise_tensor **flat);
  /** Nobody needs this value for now: of one that comes and goes the memory goes. [loop, autograd] Since 0.2 */
  MORTISE_FN(drop, mortise_param *);
  /** This micro-batch's gradient on this rank, flat, [room], 0 where there was none; owned, and the caller's alone from
   * here on. Once a micro-batch. [autograd] Since 0.2 */
  MORTISE_FN(take_gradient, mortise_param *, mortise_tensor **flat);
  /** This rank's elements of a micro-batch's gradient, summed over the ranks, at the beginning of `own`, flat: kept, or
   * added to those of the micro-batches before. [autograd, loop] Since 0.2 */
  MORTISE_FN(add_gradient, mortise_param *, mortise_tensor *own);
  /** The ranks over which the gradient of a parameter is summed, its `replicas`; NULL: all ranks of the run.
   * [build, loop, autograd] Since 0.2 */
  MORTISE_FN(group, const mortise_param *, const mortise_rank_group **);
} mortise_replicas_api;

MORTISE_END
#endif
