/* An optimizer of the simple form that is none: it uses every operation once, and leaves the ledger's numbers behind.
 */
#include "mortise/simple_optimizer.h"

typedef struct {
  int groups;
} lists;

static mortise_status prepare(lists *l, mortise_host *host) {
  const char *key = getenv("LISTS_READS");
  if (key) mortise_config_int(host, key);
  l->groups = 0;
  return MORTISE_OK;
}

static mortise_status step(lists *l, const mortise_simple_group *g) {
  mortise_list *a = g->states[0], *b = g->states[1];
  mortise_list *grad = mortise_list_scaled(g->grads, g->grad_multiplier);
  mortise_list *half = mortise_list_lerp(a, grad, 0.5); /* (a + g) / 2 */
  mortise_list *root = NULL;
  ++l->groups;
  if (getenv("LISTS_UNNAMED")) mortise_list_mul_(g->states[2], 0.5);
  mortise_list_lerp_(a, half, 0.5);        /* a = (3 a + g) / 4 */
  mortise_list_addcmul_(b, grad, grad, 2); /* b += 2 g g */
  root = mortise_list_sqrt(b);
  mortise_list_add_scalar_(root, 1);
  mortise_list_addcdiv_(g->params, a, root, -g->lr); /* p -= lr a / (sqrt(b) + 1) */
  mortise_list_release(root);
  mortise_list_mul_(g->params, 1 - g->weight_decay);
  mortise_list_sign_(half);
  mortise_list_add_(g->params, half, (double)g->applied); /* p += applied · sign(a + g) */
  return MORTISE_OK;
}

#ifdef NINE_STATES /* does not compile */
MORTISE_SIMPLE_OPTIMIZER(lists, prepare, step, "a", "b", "c", "d", "e", "f", "g", "h", "i")
#else
MORTISE_SIMPLE_OPTIMIZER(lists, prepare, step, "a", "b")
#endif
