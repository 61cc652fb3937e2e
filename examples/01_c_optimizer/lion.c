// Lion: the sign of an interpolated momentum. Chen et al. 2023, arXiv:2302.06675.
//   u = sign(b1 m + (1 - b1) g)      p = (1 - lr wd) p - lr u      m = b2 m + (1 - b2) g
#include <mortise/simple_optimizer.h>

typedef struct {
  double beta1, beta2;
} lion;

static mortise_status prepare(lion *l, mortise_host *host) {
  l->beta1 = mortise_config_float(host, "beta1");
  l->beta2 = mortise_config_float(host, "beta2");
  return MORTISE_OK;
}

// Called once a group, on applied steps only. Gradients in memory are scaled; `grad_multiplier` makes them true.
static mortise_status step(lion *l, const mortise_simple_group *g) {
  mortise_list *momentum = g->states[0];
  mortise_list *grad = mortise_list_scaled(g->grads, g->grad_multiplier);
  mortise_list *u = mortise_list_lerp(momentum, grad, 1 - l->beta1);
  mortise_list_sign_(u);
  mortise_list_mul_(g->params, 1 - g->lr * g->weight_decay);
  mortise_list_add_(g->params, u, -g->lr);
  mortise_list_lerp_(momentum, grad, 1 - l->beta2);
  return MORTISE_OK;  // what failed above is kept and returned for us
}

MORTISE_SIMPLE_OPTIMIZER(lion, prepare, step, "momentum")
