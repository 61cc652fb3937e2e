#!/bin/sh
# The same GPT, weights and batches here and in transformers' GPT-2 with torch.optim.AdamW; then weights from one to the
# other and back; ids of tokenizers. Called by `make parity`, which sets MORTISE.
set -eu
here=$(dirname "$0")
python3 "$here/huggingface.py"
RUST_BACKTRACE=0 python3 -B "$here/tokenizer.py"
exec python3 "$here/parity.py"
