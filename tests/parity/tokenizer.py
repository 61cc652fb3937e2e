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
import tokenizer_random  # noqa: E402
from rows import note  # noqa: E402
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


def compare(name, theirs, ours, documents, expected):
    """How many ids there are, how many documents have others, and how many come back as another text."""
    count = ids_differ = texts_differ = 0
    for text, encoding in zip(documents, expected, strict=True):
        ids = encoding.ids
        raw, n = ours.encode(text.encode())
        count += len(ids)
        if raw[:n] != ids:
            ids_differ += 1
            if ids_differ <= 3:
                show(name, text, ids, raw[:n])
        if ours.decode(raw, n) != theirs.decode(ids, skip_special_tokens=False):
            texts_differ += 1
            if texts_differ <= 3:
                print(f"  {name}: {text[:60]!r}… comes back differently")
    return count, ids_differ, texts_differ


def compare_kind(name, theirs, folder, documents, everything):
    theirs.save(str(pathlib.Path(folder) / "tokenizer.json"))
    ours = plugin.Tokenizer(library(), folder)
    encoded = [d.encode() for d in documents]
    here, _ = seconds(lambda: [ours.encode(d) for d in encoded])
    there, expected = seconds(lambda: theirs.encode_batch_fast(documents, add_special_tokens=False))
    count, ids, texts = compare(name, theirs, ours, documents, expected)
    more, odd_ids, odd_texts = compare(name, theirs, ours, everything,
                                       theirs.encode_batch_fast(everything, add_special_tokens=False))
    rows = random_ids(theirs, ours)
    ours.close()
    ok = ids + texts + odd_ids + odd_texts + rows == 0
    print(f"{name}: {count:,} and {more:,} ids, other ids in {ids} documents and {odd_ids} of all characters, other "
          f"texts in {texts}, {odd_texts} and {rows}; {here:.2f} s, tokenizers {there:.2f} s  {'ok' if ok else 'FAIL'}",
          flush=True)
    return note("tokenizers", f"{name}: {count + more:,} ids", f"{ids + odd_ids} documents with others", "none", ok)


def encoded_by(theirs, text):
    """None where the library panics, as it does on some added tokens: that is no Exception."""
    try:
        return theirs.encode(text, add_special_tokens=False).ids
    except BaseException:
        return None


def compare_combinations(folder, sources, count=1000):
    """Parts put together at random. What the plugin refuses is counted: it may do so, but not often."""
    refused = wrong = made = 0
    for name, theirs, texts in tokenizer_random.combinations(count, sources):
        made += 1
        theirs.save(str(pathlib.Path(folder) / "tokenizer.json"))
        try:
            ours = plugin.Tokenizer(library(), folder)
        except RuntimeError:
            refused += 1
            continue
        for text in texts:
            ids = encoded_by(theirs, text)
            if ids is None:
                continue
            raw, n = ours.encode(text.encode())
            if raw[:n] == ids and ours.decode(raw, n) == theirs.decode(ids, skip_special_tokens=False):
                continue
            wrong += 1
            show(name, text, ids, raw[:n])
            break
        ours.close()
    ok = wrong == 0 and made > count / 2 and refused < made / 10
    print(f"combinations: {made} of parts at random, {wrong} with other ids or texts, {refused} refused  "
          f"{'ok' if ok else 'FAIL'}", flush=True)
    return ok


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
    """Of the processor: other work on the machine counts for nothing."""
    begin = time.process_time()
    result = work()
    return time.process_time() - begin, result


def main():
    documents = corpus.documents(SIZE)
    training = [text[:20000] for text in documents[::3]][:600]
    everything = list(corpus.every_character())
    size = sum(len(d.encode()) for d in documents)
    print(f"{len(documents)} documents, {size / 1e6:.1f} MB; all characters in {len(everything)} more", flush=True)
    results = []
    with tempfile.TemporaryDirectory() as folder:
        for name, make in kinds().items():
            if not sys.argv[1:] or name in sys.argv[1:]:
                results.append(compare_kind(name, make(training), folder, documents, everything))
        if not sys.argv[1:] or "combinations" in sys.argv[1:]:
            results.append(compare_combinations(folder, training))
    passed = sum(results)
    print(f"{passed} passed, {len(results) - passed} failed")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
