#!/bin/sh
# Weights of GPT-2, Llama, BERT and ViT from transformers and back, their logits and gradients; adapters by PEFT; ids of
# tokenizers; then the same GPT, weights and batches here and in transformers' GPT-2 with torch.optim.AdamW; attention
# beside float64. Called by `make parity`, which sets MORTISE and PARITY_ROWS: where the results go, for
# docs/fidelity.md.
set -eu
here=$(dirname "$0")
[ -z "${PARITY_ROWS:-}" ] || python3 "$here/fidelity.py" --begin "$PARITY_ROWS"
python3 "$here/huggingface.py"
python3 "$here/models.py"
python3 "$here/attention.py"
python3 "$here/adapters.py"
RUST_BACKTRACE=0 python3 "$here/tokenizer.py"
exec python3 "$here/parity.py"
