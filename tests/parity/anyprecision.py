"""AnyPrecisionAdamW of torchdistx (torchdistx/optimizers/anyprecision_optimizer.py), which needs a build of its own:
its algorithm in operations of torch, so that every rounding is where it is there."""

import torch


class AnyPrecisionAdamW(torch.optim.Optimizer):
    def __init__(self, groups, lr, betas=(0.9, 0.999), eps=1e-8, kahan_summation=False, momentum_dtype=torch.float32,
                 variance_dtype=torch.bfloat16, compensation_dtype=torch.bfloat16):
        super().__init__(groups, {"lr": lr, "weight_decay": 0.0})
        self.betas, self.eps, self.kahan_summation = betas, eps, kahan_summation
        self.dtypes = momentum_dtype, variance_dtype, compensation_dtype

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                self.update(p, p.grad, group["lr"], group["weight_decay"])

    def update(self, p, grad, lr, weight_decay):
        state = self.state[p]
        if not state:
            state["step"] = torch.tensor(0.0)
            for name, dtype in zip(("exp_avg", "exp_avg_sq", "compensation"), self.dtypes):
                state[name] = torch.zeros_like(p, dtype=dtype)
        state["step"] += 1
        (beta1, beta2), step = self.betas, state["step"]
        if weight_decay:
            p.mul_(1 - lr * weight_decay)
        mean = state["exp_avg"].mul_(beta1).add_(grad, alpha=1 - beta1)
        variance = state["exp_avg_sq"].mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        step_size = (lr / (1 - beta1**step)).item()
        denominator = (variance.sqrt() / (1 - beta2**step) ** 0.5).add_(self.eps)
        if not self.kahan_summation:
            p.addcdiv_(mean, denominator, value=-step_size)
            return
        compensation = state["compensation"].addcdiv_(mean, denominator, value=-step_size)
        before = p.clone()
        p.add_(compensation)
        compensation.add_(before.sub_(p))
