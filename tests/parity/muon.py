"""torch.optim.Muon for the matrices of a GPT-2 of transformers, torch.optim.AdamW for the rest.

torch's takes every parameter as one matrix with a row an output. Conv1D holds them the other way round and packs
queries, keys and values, so each part is a parameter of its own here: a transposed view of the model's."""

import torch


def in_fp32(gradient, coefficients, steps, eps):
    """torch.optim._muon._zeropower_via_newtonschulz, which is in bf16, in the dtype of the gradient."""
    a, b, c = coefficients
    x = gradient.T if gradient.size(0) > gradient.size(1) else gradient
    x = x / x.norm().clamp(min=eps)
    for _ in range(steps):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if gradient.size(0) > gradient.size(1) else x


def parts(weight):
    """Views of c_attn's three matrices [out, in], or of the one that another is."""
    return [part.T for part in weight.chunk(3 if weight.size(1) == 3 * weight.size(0) else 1, dim=1)]


class MuonBesideAdamW:
    def __init__(self, groups, lr, muon_lr, adjust_lr_fn, orthogonal=None):
        decayed, plain = groups
        embeddings, self.matrices = decayed["params"][:2], decayed["params"][2:]  # wte and wpe come first
        self.adamw = torch.optim.AdamW([{**decayed, "params": embeddings}, plain], lr=lr)
        self.views = [torch.nn.Parameter(part) for matrix in self.matrices for part in parts(matrix.detach())]
        self.muon = torch.optim.Muon(self.views, lr=muon_lr, weight_decay=decayed["weight_decay"],
                                     adjust_lr_fn=adjust_lr_fn)
        self.orthogonal = orthogonal or torch.optim._muon._zeropower_via_newtonschulz

    def zero_grad(self):
        for parameter in self.matrices:
            parameter.grad = None
        self.adamw.zero_grad()

    def step(self):
        gradients = [part for matrix in self.matrices for part in parts(matrix.grad)]
        for view, gradient in zip(self.views, gradients, strict=True):
            view.grad = gradient
        torch.optim._muon._zeropower_via_newtonschulz = self.orthogonal
        self.muon.step()
        self.adamw.step()
