// Lion: the sign of an interpolated momentum. Chen et al. 2023, arXiv:2302.06675.
//   u = sign(b1 m + (1 - b1) g)      p = (1 - lr wd) p - lr u      m = b2 m + (1 - b2) g
#include <mortise/plugin.h>

typedef struct {
  double beta1, beta2;
} lion;

static mortise_status prepare(lion *l, mortise_host *host) {
  l->beta1 = mortise_config_float(host, "beta1");
  l->beta2 = mortise_config_float(host, "beta2");
  return MORTISE_OK;
}

// Called once a group, on applied steps only. Gradients in memory are scaled; `grad_multiplier` makes them true.
static mortise_status step(lion *l, mortise_host *host, const mortise_lists_api *op, const mortise_optimizer_group *g) {
  mortise_list *momentum = g->state[0], *grad = NULL, *u = NULL;
  mortise_status s = op->scaled(host, g->grads, g->grad_multiplier, &grad);
  if (!s) s = op->lerp(host, momentum, grad, 1 - l->beta1, &u);
  if (!s) s = op->sign_(host, u);
  if (!s) s = op->mul_(host, g->params, 1 - g->lr * g->weight_decay);
  if (!s) s = op->add_(host, g->params, u, -g->lr);
  if (!s) s = op->lerp_(host, momentum, grad, 1 - l->beta2);
  op->release(host, u);
  op->release(host, grad);
  return s;  // the host keeps the text of whatever failed
}

MORTISE_OPTIMIZER_SIMPLE(lion, prepare, step, "momentum")
