"""AdamW8bit of bitsandbytes, whose 8-bit kernels are for GPUs: its algorithm in operations of torch. Each
function names the one that it follows; the repository is bitsandbytes-foundation/bitsandbytes, in August 2026."""

import torch


def create_dynamic_map(signed):
    """bitsandbytes/functional.py, create_dynamic_map(signed, max_exponent_bits=7, total_bits=8)."""
    values = [0.0, 1.0]
    for i in range(7):
        boundaries = torch.linspace(0.1, 1, 2**i + 1 if signed else 2**(i + 1) + 1, dtype=torch.float32)
        means = 10**(i - 6) * ((boundaries[:-1] + boundaries[1:]) / 2.0)
        values += means.tolist() + ((-means).tolist() if signed else [])
    return torch.tensor(sorted(values), dtype=torch.float32)


def quantize_2d(code, x):
    """csrc/kernels.cu, quantize_2D: a binary search, in which only the last pivot, an even one, is compared with the
    midpoints beside it. So of two values as near the even one is taken."""
    pivot, lower, upper = (torch.full_like(x, n, dtype=torch.long) for n in (127, 0, 255))
    for i in (64, 32, 16, 8, 4, 2, 1):
        above = x > code[pivot]
        lower, upper = torch.where(above, pivot, lower), torch.where(above, upper, pivot)
        pivot = torch.where(above, pivot + i, pivot - i)
    down, up = (code[lower] + code[pivot]) * 0.5, (code[upper] + code[pivot]) * 0.5
    return torch.where(x > code[pivot], torch.where(x > up, upper, pivot), torch.where(x < down, lower, pivot))


class AdamW8bit(torch.optim.Optimizer):
    """bitsandbytes/optim/adamw.py with optimizer.py's Optimizer2State. `wide` are the parameters with 32-bit states
    whatever their size, as transformers' Trainer has nn.Embedding by GlobalOptimManager.register_module_override."""

    def __init__(self, groups, lr, betas=(0.9, 0.999), eps=1e-8, min_8bit_size=4096, wide=()):
        super().__init__(groups, {"lr": lr, "weight_decay": 1e-2})
        self.betas, self.eps, self.min_8bit_size = betas, eps, min_8bit_size
        self.wide = {id(p) for p in wide}
        self.maps = create_dynamic_map(True), create_dynamic_map(False)

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["step"] = 0
                    state["narrow"] = p.numel() >= self.min_8bit_size and id(p) not in self.wide
                    blocks = -(-p.numel() // 256)
                    shape = (blocks, 256) if state["narrow"] else (1, p.numel())
                    dtype = torch.long if state["narrow"] else torch.float32
                    state["m"], state["v"] = (torch.zeros(shape, dtype=dtype, device=p.device) for _ in range(2))
                    state["absmax1"], state["absmax2"] = (torch.zeros(blocks, 1, device=p.device) for _ in range(2))
                state["step"] += 1
                self.update(state, p, p.grad, group["lr"], group["weight_decay"])

    def update(self, state, p, grad, lr, weight_decay):
        """csrc/kernels.cu, kOptimizerStatic8bit2StateBlockwise and kOptimizer32bit2State, case ADAM. Zeros fill the
        last block up; their states stay zeros."""
        beta1, beta2 = self.betas
        correction1, correction2 = 1 - beta1**state["step"], (1 - beta2**state["step"])**0.5
        g = torch.zeros(state["m"].shape, device=p.device)
        g.view(-1)[:p.numel()] = grad.reshape(-1)
        finite = torch.isfinite(g) if state["narrow"] else torch.ones_like(g, dtype=torch.bool)
        m, v = state["m"], state["v"]
        if state["narrow"]:
            signed, unsigned = (code.to(p.device) for code in self.maps)
            m, v = signed[m] * state["absmax1"], unsigned[v] * state["absmax2"]
        m = torch.where(finite, m * beta1 + (1 - beta1) * g, 0.0)
        v = torch.where(finite, v * beta2 + (1 - beta2) * g * g, 0.0)
        step = -lr * correction2 / correction1 * (m / (v.sqrt() + correction2 * self.eps))
        moved = (p.view(-1) + step.view(-1)[:p.numel()]) * (1 - lr * weight_decay)
        p.view(-1).copy_(torch.where(finite.view(-1)[:p.numel()], moved, p.view(-1)))
        state["m"], state["v"] = m, v
        if state["narrow"]:
            state["m"], state["absmax1"] = self.quantise(m, signed=True)
            state["v"], state["absmax2"] = self.quantise(v, signed=False)

    def quantise(self, x, signed):
        """The end of kOptimizerStatic8bit2StateBlockwise. There 0 / 0 gives an index of its own to a block of zeros,
        whose value is 0 too."""
        code = self.maps[0 if signed else 1].to(x.device)
        absmax = x.abs().amax(dim=1, keepdim=True)
        index = quantize_2d(code, x * torch.where(absmax > 0, 1 / absmax, 0.0))
        if signed:
            other_sign = torch.signbit(code[index]) != torch.signbit(x)
            index = torch.where(other_sign, torch.where(x > 0, index + 1, index - 1), index)
        return index, absmax
