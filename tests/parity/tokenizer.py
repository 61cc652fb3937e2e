"""tokenizer.huggingface beside Hugging Face's tokenizers: ids and texts of about ten megabytes, each kind of tokenizer.

Not one id may differ. `MEGABYTES=1` takes less text, names as arguments take only these kinds.
"""

import array
import os
import pathlib
import random
import sys
import tempfile
import time

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import corpus  # noqa: E402
import plugin  # noqa: E402
from tokenizer_kinds import kinds  # noqa: E402

SIZE = int(float(os.environ.get("MEGABYTES", "10")) * 1e6)
LIBRARY = pathlib.Path(os.environ["MORTISE"]).resolve().parents[1]


def library():
    for folder in ("plugins", "lib/mortise/plugins"):
        if (LIBRARY / folder / "tokenizer.huggingface.so").exists():
            return LIBRARY / folder / "tokenizer.huggingface.so"
    sys.exit(f"there is no tokenizer.huggingface.so below {LIBRARY}")


def show(name, text, theirs, ours):
    """The first place where they differ."""
    at = next((i for i, (a, b) in enumerate(zip(theirs, ours)) if a != b), min(len(theirs), len(ours)))
    print(f"  {name}: {text[:60]!r}…: id {at}: {theirs[max(0, at - 3):at + 5]} here {ours[max(0, at - 3):at + 5]}",
          flush=True)


def compare(name, theirs, ours, documents):
    """How many ids there are, how many documents have others, and how many come back as another text."""
    count = ids_differ = texts_differ = 0
    for text in documents:
        expected = theirs.encode(text, add_special_tokens=False).ids
        raw, n = ours.encode(text.encode())
        count += len(expected)
        if list(raw[:n]) != expected:
            ids_differ += 1
            if ids_differ <= 3:
                show(name, text, expected, list(raw[:n]))
        if ours.decode(raw, n) != theirs.decode(list(raw[:n]), skip_special_tokens=False):
            texts_differ += 1
            if texts_differ <= 3:
                print(f"  {name}: {text[:60]!r}… comes back differently")
    return count, ids_differ, texts_differ


def random_ids(theirs, ours):
    """How many of a thousand rows of ids come back as another text."""
    draw, size, wrong = random.Random(3), theirs.get_vocab_size(), 0
    for _ in range(1000):
        ids = [draw.randrange(size) for _ in range(draw.randint(0, 20))]
        row = array.array("q", ids)
        mine = ours.decode((plugin.c.c_int64 * len(ids)).from_buffer(row) if ids else None, len(ids))
        if mine != theirs.decode(ids, skip_special_tokens=False):
            wrong += 1
            if wrong <= 3:
                print(f"  {[theirs.id_to_token(i) for i in ids]}: {mine!r}")
    return wrong


def seconds(work):
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def main():
    documents = corpus.documents(SIZE)
    training = documents[::3]
    training = [text[:20000] for text in training][:600]
    size = sum(len(d.encode()) for d in documents)
    everything = list(corpus.every_character())
    print(f"{len(documents)} documents, {size / 1e6:.1f} MB, and {sum(map(len, everything)) / 1e6:.1f} million characters "
          "of all that there are", flush=True)
    passed = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, make in kinds().items():
            if sys.argv[1:] and name not in sys.argv[1:]:
                continue
            theirs = make(training)
            path = pathlib.Path(folder) / "tokenizer.json"
            theirs.save(str(path))
            ours = plugin.Tokenizer(library(), folder)
            encoded = [d.encode() for d in documents]
            here = min(seconds(lambda: [ours.encode(d) for d in encoded]) for _ in range(2))
            there = seconds(lambda: theirs.encode_batch_fast(documents, add_special_tokens=False))
            count, ids, texts = compare(name, theirs, ours, documents)
            more, odd_ids, odd_texts = compare(name, theirs, ours, everything)
            rows = random_ids(theirs, ours)
            ours.close()
            ok = ids + texts + odd_ids + odd_texts + rows == 0
            passed, failed = passed + ok, failed + (not ok)
            print(f"{name}: {count:,} and {more:,} ids, other ids in {ids} documents and {odd_ids} of all characters, "
                  f"other texts in {texts}, {odd_texts} and {rows}; {here:.2f} s, tokenizers {there:.2f} s  "
                  f"{'ok' if ok else 'FAIL'}", flush=True)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
