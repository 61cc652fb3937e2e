#!/bin/sh
# Weights of GPT-2, Llama, BERT and ViT from transformers and back, their logits and gradients; adapters by PEFT; ids of
# tokenizers; then the same GPT, weights and batches here and in transformers' GPT-2 with torch.optim.AdamW; attention
# beside float64. Called by `make parity`, which sets MORTISE and PARITY_ROWS: where the results go, for
# docs/fidelity.md.
set -eu
here=$(dirname "$0")
export CUDA_VISIBLE_DEVICES=  # both sides on the CPU; on a GPU: parity.sh of `make gpu-folder`
[ -z "${PARITY_ROWS:-}" ] || python3 "$here/fidelity.py" --begin "$PARITY_ROWS"
python3 "$here/huggingface.py"
python3 "$here/models.py"
python3 "$here/attention.py"
python3 "$here/adapters.py"
RUST_BACKTRACE=0 python3 "$here/tokenizer.py"
exec python3 "$here/parity.py"
