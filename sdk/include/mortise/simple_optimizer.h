/* The simple form of an optimizer: plain C, header-only, an adapter over `mortise_optimizer` (optimizer.h). It is
 * short to write, and somewhat slower than the form below it. The adapter reads the ledger on the host, so that the
 * author gets numbers, and hands over lists of tensors, so that one call works on all parameters of a group, on any
 * device. The price is one synchronisation a step: plugin.toml says `syncs = ["verdict"]` in [capabilities].
 *
 *   typedef struct { double beta; } signum;
 *   static mortise_status prepare(signum *s, mortise_host *host) {
 *     s->beta = mortise_config_float(host, "beta");
 *     return MORTISE_OK;
 *   }
 *   static mortise_status step(signum *s, const mortise_simple_group *g) {
 *     mortise_list *grad = mortise_list_scaled(g->grads, g->grad_multiplier);
 *     mortise_list_lerp_(g->states[0], grad, 1 - s->beta);
 *     …
 *     return MORTISE_OK;
 *   }
 *   MORTISE_SIMPLE_OPTIMIZER(signum, prepare, step, "momentum")
 *
 * A failed operation makes those after it do nothing, and the step returns its status: the author need not look. A list
 * that is NULL, such as a state that is not named, is a failure too. Lists that an operation makes are released when
 * `step` returns, or earlier by mortise_list_release.
 *
 * Since 0.1 */
#ifndef MORTISE_SIMPLE_OPTIMIZER_H
#define MORTISE_SIMPLE_OPTIMIZER_H
#include <assert.h>

#include "ops.h"
#include "optimizer.h"
#include "plugin.h"
MORTISE_BEGIN

typedef struct mortise_simple mortise_simple;
typedef struct mortise_list mortise_list;

/** Tensors that are handled together, one a slice of the group, always in the same order. Read-only to the author. */
struct mortise_list {
  mortise_simple *simple;
  mortise_list *next; /* of the group under way */
  mortise_tensor **tensors;
  uint32_t n;
  int owned; /* its tensors are new and released with it */
};

/** What has one learning rate and weight decay. */
typedef struct mortise_simple_group {
  double lr, weight_decay;
  double grad_multiplier; /* true gradient = in memory × this */
  int64_t applied;        /* steps applied before this one */
  mortise_list *params;   /* the master weights */
  mortise_list *grads;
  mortise_list *states[MORTISE_MAX_STATES]; /* as named in MORTISE_SIMPLE_OPTIMIZER: of the master's dtype and shape,
                                               zero at first, saved and restored by the host */
} mortise_simple_group;

/* ---- what the adapter keeps ---- */

enum {
  MORTISE_LIST_TO,
  MORTISE_LIST_MUL,
  MORTISE_LIST_LERP,
  MORTISE_LIST_SQRT,
  MORTISE_LIST_LERP_,
  MORTISE_LIST_MUL_,
  MORTISE_LIST_ADD_,
  MORTISE_LIST_ADD_SCALAR_,
  MORTISE_LIST_ADDCMUL_,
  MORTISE_LIST_ADDCDIV_,
  MORTISE_LIST_SIGN_,
  MORTISE_LIST_OPS
};

struct mortise_simple {
  mortise_host *host;
  const mortise_tensor_api *tensor;
  const mortise_ops_api *ops;
  mortise_op *op[MORTISE_LIST_OPS];
  void *user;
  const char *const *names; /* of states */
  uint32_t n_states;
  mortise_status (*step)(void *user, const mortise_simple_group *) MORTISE_NOEXCEPT;
  /* Of the group under way. */
  mortise_status status; /* of the first operation that failed */
  mortise_list *lists, *params;
};

/* Whose step is under way: one thread trains. */
static mortise_simple *mortise_simple_under_way;

static inline mortise_status mortise_simple_memory(mortise_simple *s) {
  return s->status = s->host->fail(s->host, MORTISE_E_MEMORY, MORTISE_STR("out of memory"));
}

/* An empty list with room for n tensors; NULL, and the status kept, if there is no memory. */
static inline mortise_list *mortise_list_create(mortise_simple *s, uint32_t n, int owned) {
  mortise_list *list = (mortise_list *)calloc(1, sizeof *list);
  mortise_tensor **tensors = (mortise_tensor **)calloc(n ? n : 1, sizeof *tensors);
  if (!list || !tensors) {
    free(list);
    free(tensors);
    mortise_simple_memory(s);
    return NULL;
  }
  list->simple = s;
  list->next = s->lists;
  list->tensors = tensors;
  list->owned = owned;
  s->lists = list;
  return list;
}

/* ---- operations: those ending in an underscore work in place on the first list ---- */

/** Gives a list that an operation made back before `step` returns: once, and nothing may use it afterwards. Never one
 * of the group: params, grads and states are the adapter's. NULL is fine. */
static inline void mortise_list_release(mortise_list *list) {
  mortise_list **at;
  if (!list) return;
  for (at = &list->simple->lists; *at != list;) at = &(*at)->next;
  *at = list->next;
  for (uint32_t i = 0; list->owned && i < list->n; ++i)
    list->simple->tensor->release(list->simple->host, list->tensors[i]);
  free(list->tensors);
  free(list);
}

static inline mortise_value mortise_list_value(const mortise_list *list) {
  mortise_value v;
  v.tag = MORTISE_TENSORS;
  v.count = list->n;
  v.v.ts = list->tensors;
  return v;
}
static inline mortise_value mortise_list_number(double number) {
  mortise_value v;
  v.tag = MORTISE_FLOAT;
  v.count = 0;
  v.v.f = number;
  return v;
}
static inline int mortise_list_ready(const mortise_list *a, const mortise_list *b, const mortise_list *c) {
  mortise_simple *s = mortise_simple_under_way;
  if (a && b && c) return a->simple->status == MORTISE_OK;
  /* After a failure lists are NULL as a matter of course; without one the author has none. */
  if (s && s->status == MORTISE_OK)
    s->status = s->host->fail(s->host, MORTISE_E_ARGUMENT, MORTISE_STR("a list is NULL: a state that is not named?"));
  return 0;
}

static inline void mortise_list_call_(mortise_list *a, int op, const mortise_value *args, uint32_t n) {
  mortise_simple *s = a->simple;
  uint32_t count = 0;
  s->status = s->ops->call(s->host, s->op[op], args, n, NULL, 0, &count);
}
static inline mortise_list *mortise_list_call(const mortise_list *a, int op, const mortise_value *args, uint32_t n) {
  mortise_simple *s = a->simple;
  mortise_list *out = mortise_list_create(s, a->n, 1);
  mortise_value *results = (mortise_value *)calloc(a->n ? a->n : 1, sizeof *results);
  uint32_t count = 0;
  if (!results) mortise_simple_memory(s);
  if (out && results) s->status = s->ops->call(s->host, s->op[op], args, n, results, a->n, &count);
  for (uint32_t i = 0; out && s->status == MORTISE_OK && i < count && i < a->n; ++i)
    out->tensors[out->n++] = results[i].v.t;
  free(results);
  return s->status == MORTISE_OK ? out : NULL;
}

/* The same tensors, each in the dtype of its master. Those that had it already are shared. */
static inline mortise_list *mortise_list_wide(const mortise_list *a) {
  mortise_simple *s = a->simple;
  mortise_list *out = mortise_list_create(s, a->n, 1);
  for (uint32_t i = 0; out && i < a->n; ++i) {
    mortise_tensor_info from, to;
    from.struct_size = to.struct_size = sizeof from;
    s->status = s->tensor->info(s->host, a->tensors[i], &from);
    if (s->status == MORTISE_OK) s->status = s->tensor->info(s->host, s->params->tensors[i], &to);
    if (s->status != MORTISE_OK) return NULL;
    if (from.dtype == to.dtype) {
      s->tensor->retain(s->host, a->tensors[i]);
      out->tensors[i] = a->tensors[i];
    } else { /* self, dtype, non_blocking, copy, memory_format */
      mortise_value args[5];
      memset(args, 0, sizeof args);
      args[0].tag = MORTISE_TENSOR;
      args[0].v.t = a->tensors[i];
      args[1].tag = MORTISE_DTYPE;
      args[1].v.i = to.dtype;
      args[2].tag = args[3].tag = MORTISE_LOGICAL;
      s->status = s->ops->call1(s->host, s->op[MORTISE_LIST_TO], args, 5, &out->tensors[i]);
      if (s->status != MORTISE_OK) return NULL;
    }
    out->n = i + 1;
  }
  return out;
}

/** A new list: a · factor, in the dtype of the master. */
static inline mortise_list *mortise_list_scaled(const mortise_list *a, double factor) {
  mortise_list *wide, *out;
  mortise_value args[2];
  if (!mortise_list_ready(a, a, a)) return NULL;
  wide = mortise_list_wide(a);
  if (!wide) return NULL;
  args[0] = mortise_list_value(wide);
  args[1] = mortise_list_number(factor);
  out = mortise_list_call(wide, MORTISE_LIST_MUL, args, 2);
  mortise_list_release(wide);
  return out;
}
/** A new list: a + weight (b - a). */
static inline mortise_list *mortise_list_lerp(const mortise_list *a, const mortise_list *b, double weight) {
  if (!mortise_list_ready(a, b, b)) return NULL;
  const mortise_value args[] = {mortise_list_value(a), mortise_list_value(b), mortise_list_number(weight)};
  return mortise_list_call(a, MORTISE_LIST_LERP, args, 3);
}
/** A new list: the square roots. */
static inline mortise_list *mortise_list_sqrt(const mortise_list *a) {
  if (!mortise_list_ready(a, a, a)) return NULL;
  const mortise_value args[] = {mortise_list_value(a)};
  return mortise_list_call(a, MORTISE_LIST_SQRT, args, 1);
}
/** a += weight (b - a) */
static inline void mortise_list_lerp_(mortise_list *a, const mortise_list *b, double weight) {
  if (!mortise_list_ready(a, b, b)) return;
  const mortise_value args[] = {mortise_list_value(a), mortise_list_value(b), mortise_list_number(weight)};
  mortise_list_call_(a, MORTISE_LIST_LERP_, args, 3);
}
/** a *= factor */
static inline void mortise_list_mul_(mortise_list *a, double factor) {
  if (!mortise_list_ready(a, a, a)) return;
  const mortise_value args[] = {mortise_list_value(a), mortise_list_number(factor)};
  mortise_list_call_(a, MORTISE_LIST_MUL_, args, 2);
}
/** a += factor · b */
static inline void mortise_list_add_(mortise_list *a, const mortise_list *b, double factor) {
  if (!mortise_list_ready(a, b, b)) return;
  const mortise_value args[] = {mortise_list_value(a), mortise_list_value(b), mortise_list_number(factor)};
  mortise_list_call_(a, MORTISE_LIST_ADD_, args, 3);
}
/** a += number */
static inline void mortise_list_add_scalar_(mortise_list *a, double number) {
  if (!mortise_list_ready(a, a, a)) return;
  const mortise_value args[] = {mortise_list_value(a), mortise_list_number(number)};
  mortise_list_call_(a, MORTISE_LIST_ADD_SCALAR_, args, 2);
}
/** a += factor · b · c */
static inline void mortise_list_addcmul_(mortise_list *a, const mortise_list *b, const mortise_list *c, double factor) {
  if (!mortise_list_ready(a, b, c)) return;
  const mortise_value args[] = {mortise_list_value(a), mortise_list_value(b), mortise_list_value(c),
                                mortise_list_number(factor)};
  mortise_list_call_(a, MORTISE_LIST_ADDCMUL_, args, 4);
}
/** a += factor · b / c */
static inline void mortise_list_addcdiv_(mortise_list *a, const mortise_list *b, const mortise_list *c, double factor) {
  if (!mortise_list_ready(a, b, c)) return;
  const mortise_value args[] = {mortise_list_value(a), mortise_list_value(b), mortise_list_value(c),
                                mortise_list_number(factor)};
  mortise_list_call_(a, MORTISE_LIST_ADDCDIV_, args, 4);
}
/** Each element's sign: -1, 0 or 1. */
static inline void mortise_list_sign_(mortise_list *a) {
  if (!mortise_list_ready(a, a, a)) return;
  const mortise_value args[] = {mortise_list_value(a)};
  mortise_list_call_(a, MORTISE_LIST_SIGN_, args, 1);
}

/* ---- the adapter; authors need not read on ---- */

static inline mortise_status mortise_simple_open(mortise_simple *s, mortise_host *host) {
  static const char *const names[MORTISE_LIST_OPS] = {"aten::to.dtype",
                                                      "aten::_foreach_mul.Scalar",
                                                      "aten::_foreach_lerp.Scalar",
                                                      "aten::_foreach_sqrt",
                                                      "aten::_foreach_lerp_.Scalar",
                                                      "aten::_foreach_mul_.Scalar",
                                                      "aten::_foreach_add_.List",
                                                      "aten::_foreach_add_.Scalar",
                                                      "aten::_foreach_addcmul_.Scalar",
                                                      "aten::_foreach_addcdiv_.Scalar",
                                                      "aten::_foreach_sign_"};
  s->host = host;
  s->tensor = (const mortise_tensor_api *)mortise_get(host, "mortise.tensor/0");
  s->ops = (const mortise_ops_api *)mortise_get(host, "mortise.ops/0");
  if (!MORTISE_HAS(s->tensor, read))
    return host->fail(host, MORTISE_E_NOT_FOUND, MORTISE_STR("this host has no mortise.tensor/0"));
  if (!MORTISE_HAS(s->ops, call1))
    return host->fail(host, MORTISE_E_NOT_FOUND, MORTISE_STR("this host has no mortise.ops/0"));
  for (int i = 0; i < MORTISE_LIST_OPS; ++i) {
    const mortise_status status = s->ops->find(host, mortise_text(names[i]), &s->op[i]);
    if (status != MORTISE_OK) return status;
  }
  return MORTISE_OK;
}

static inline mortise_status mortise_simple_states(void *self, const mortise_param_info *info,
                                                   mortise_state_spec *specs, uint32_t *n) MORTISE_NOEXCEPT {
  const mortise_simple *s = (const mortise_simple *)self;
  for (uint32_t i = 0; i < s->n_states; ++i) {
    memset(&specs[i], 0, sizeof specs[i]);
    specs[i].name = mortise_text(s->names[i]);
    specs[i].relation = MORTISE_STR("same");
    specs[i].dtype = info->master_dtype;
  }
  *n = s->n_states;
  return MORTISE_OK;
}

/* An element of an array whose elements may be larger than this header's. */
static inline const mortise_slice *mortise_simple_slice(const mortise_slice *slices, uint32_t i) {
  return (const mortise_slice *)((const char *)slices + (size_t)i * slices->struct_size);
}

/* The slices of one group as lists, and the author's step over them. Nothing if the group has none in this step. */
static inline mortise_status mortise_simple_step_group(mortise_simple *s, mortise_simple_group *g, int32_t group,
                                                       const mortise_slice *slices, uint32_t n) {
  mortise_status status;
  s->status = MORTISE_OK;
  s->params = g->params = mortise_list_create(s, n, 0);
  g->grads = mortise_list_create(s, n, 0);
  for (uint32_t k = 0; k < s->n_states; ++k) g->states[k] = mortise_list_create(s, n, 0);
  for (uint32_t i = 0; s->status == MORTISE_OK && i < n; ++i) {
    const mortise_slice *slice = mortise_simple_slice(slices, i);
    if (slice->group != group) continue;
    g->params->tensors[g->params->n++] = slice->master;
    g->grads->tensors[g->grads->n++] = slice->grad;
    for (uint32_t k = 0; k < s->n_states; ++k) g->states[k]->tensors[g->states[k]->n++] = slice->states[k];
  }
  mortise_simple_under_way = s;
  status = s->status == MORTISE_OK && g->params->n > 0 ? s->step(s->user, g) : MORTISE_OK;
  mortise_simple_under_way = NULL;
  while (s->lists) mortise_list_release(s->lists);
  return status != MORTISE_OK ? status : s->status;
}

static inline mortise_status mortise_simple_step(void *self, const mortise_slice *slices, uint32_t n,
                                                 const mortise_ledger *ledger) MORTISE_NOEXCEPT {
  mortise_simple *s = (mortise_simple *)self;
  mortise_simple_group g;
  double verdict = 0, *rates;
  mortise_status status = s->tensor->read(s->host, ledger->verdict, &verdict, sizeof verdict);
  if (status != MORTISE_OK || verdict == 0 || n == 0) return status;

  memset(&g, 0, sizeof g);
  rates = (double *)calloc((size_t)ledger->n_groups * 2, sizeof *rates);
  if (!rates) return mortise_simple_memory(s);
  status = s->tensor->read(s->host, ledger->multiplier, &g.grad_multiplier, sizeof g.grad_multiplier);
  if (status == MORTISE_OK) status = s->tensor->read(s->host, ledger->applied, &g.applied, sizeof g.applied);
  if (status == MORTISE_OK) status = s->tensor->read(s->host, ledger->lr, rates, ledger->n_groups * sizeof *rates);
  if (status == MORTISE_OK)
    status = s->tensor->read(s->host, ledger->weight_decay, rates + ledger->n_groups, ledger->n_groups * sizeof *rates);
  for (uint32_t group = 0; status == MORTISE_OK && group < ledger->n_groups; ++group) {
    g.lr = rates[group];
    g.weight_decay = rates[ledger->n_groups + group];
    status = mortise_simple_step_group(s, &g, (int32_t)group, slices, n);
  }
  free(rates);
  return status;
}

static inline void mortise_simple_attach(const mortise_attachment **list, uint32_t *n, uint32_t *stride) {
  static mortise_optimizer object;
  static mortise_attachment attachment;
  object.struct_size = sizeof object;
  object.states = mortise_simple_states;
  object.step = mortise_simple_step;
  attachment.struct_size = sizeof attachment;
  attachment.point = mortise_text("optimizer");
  attachment.object = &object;
  *list = &attachment;
  *n = 1;
  *stride = sizeof attachment;
}

/** Makes the library a plugin. `type` is the author's struct, zero at first; `prepare(type *, mortise_host *)` reads
 * the configuration [build]; `step(type *, const mortise_simple_group *)` is called once a group that got gradients, on
 * applied steps only [loop]. Then the names of the states, at most MORTISE_MAX_STATES; NULL for none. */
#define MORTISE_SIMPLE_OPTIMIZER(type, prepare, step, ...)                                                       \
  MORTISE_EMBED_MANIFEST                                                                                         \
  typedef struct {                                                                                               \
    mortise_simple simple;                                                                                       \
    type user;                                                                                                   \
  } mortise_simple_instance;                                                                                     \
  static const char *const mortise_simple_names[] = {__VA_ARGS__};                                               \
  enum { MORTISE_SIMPLE_STATES = sizeof mortise_simple_names / sizeof *mortise_simple_names };                   \
  /* C99 has no static_assert. */                                                                                \
  typedef char                                                                                                   \
      mortise_an_optimizer_has_at_most_8_states[(int)MORTISE_SIMPLE_STATES <= (int)MORTISE_MAX_STATES ? 1 : -1]; \
  static mortise_status mortise_simple_call(void *user, const mortise_simple_group *g) MORTISE_NOEXCEPT {        \
    return step((type *)user, g);                                                                                \
  }                                                                                                              \
  static mortise_status mortise_simple_create(mortise_host *host, void **self) MORTISE_NOEXCEPT {                \
    mortise_status status;                                                                                       \
    mortise_simple_instance *s = (mortise_simple_instance *)calloc(1, sizeof *s);                                \
    if (!s) return host->fail(host, MORTISE_E_MEMORY, MORTISE_STR("out of memory"));                             \
    *self = s;                                                                                                   \
    s->simple.user = &s->user;                                                                                   \
    s->simple.step = mortise_simple_call;                                                                        \
    s->simple.names = mortise_simple_names;                                                                      \
    while (s->simple.n_states < MORTISE_SIMPLE_STATES && mortise_simple_names[s->simple.n_states])               \
      ++s->simple.n_states;                                                                                      \
    status = mortise_simple_open(&s->simple, host);                                                              \
    return status != MORTISE_OK ? status : prepare(&s->user, host);                                              \
  }                                                                                                              \
  static mortise_status mortise_simple_attachments(void *self, const mortise_attachment **list, uint32_t *n,     \
                                                   uint32_t *stride) MORTISE_NOEXCEPT {                          \
    (void)self;                                                                                                  \
    mortise_simple_attach(list, n, stride);                                                                      \
    return MORTISE_OK;                                                                                           \
  }                                                                                                              \
  static void mortise_simple_destroy(void *self) MORTISE_NOEXCEPT { free(self); }                                \
  MORTISE_DESCRIBE_PLUGIN(mortise_simple_create, mortise_simple_attachments, mortise_simple_destroy)

MORTISE_END
#endif
