#!/bin/sh
# The same GPT, weights and batches here and in transformers' GPT-2 with torch.optim.AdamW. Called by `make parity`, which sets MORTISE.
set -eu
exec python3 "$(dirname "$0")/parity.py"
