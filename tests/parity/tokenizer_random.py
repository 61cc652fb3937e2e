"""Parts of tokenizers put together at random, compared on short odd texts: what no known model combines."""

import json
import random
import re

from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

import corpus
from charsmap import charsmap

CHARSMAP = charsmap()
PATTERNS = [r"\s+", r"\p{L}+|\p{N}{1,2}", r" ?[^\s\p{L}]+", r"(?i:'s|'t|k)|\S", r"[a-f\-]{2,3}",
            r"\p{Lu}?\p{Ll}+?(?=\s)", r"(?:a|ab)?c?b+|\n", r"x*+y|[^x]", r"\s+(?!\S)|\s", r"\P{L}+", r"[\r\n]++|\t"]
BEHAVIORS = ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"]


def normalizer(draw):
    n = normalizers
    return draw.choice([
        n.NFC, n.NFD, n.NFKC, n.NFKD, n.Lowercase, n.StripAccents, lambda: CHARSMAP,
        lambda: n.Strip(left=draw.random() < 0.7, right=draw.random() < 0.7),
        lambda: n.BertNormalizer(*(draw.random() < 0.5 for _ in range(4))),
        lambda: n.Replace(Regex(draw.choice(PATTERNS)), draw.choice(["", " ", "\u2581", "ab"])),
        lambda: n.Replace(draw.choice(["a", " ", "  ", "\u0301", "="]), draw.choice(["", "b", " c ", "\u2581"]))])()


def pre_tokenizer(draw):
    p = pre_tokenizers
    return draw.choice([
        p.BertPreTokenizer, p.Whitespace, p.WhitespaceSplit,
        lambda: p.Digits(individual_digits=draw.random() < 0.5),
        lambda: p.Punctuation(draw.choice(BEHAVIORS)),
        lambda: p.Split(Regex(draw.choice(PATTERNS)), draw.choice(BEHAVIORS), invert=draw.random() < 0.3),
        lambda: p.Split(draw.choice([" ", "a", "--", "."]), draw.choice(BEHAVIORS), invert=draw.random() < 0.3),
        lambda: p.Metaspace(prepend_scheme=draw.choice(["first", "always", "never"]), split=draw.random() < 0.5),
        lambda: p.ByteLevel(add_prefix_space=draw.random() < 0.5, use_regex=draw.random() < 0.5)])()


def added(draw, count):
    contents = ["a", "The", "==", " x", "\u00e9", "e\u0301", "de", "!", "__", "<s>", "<", "s>", "\u2581", "  ",
                "import"]
    return [{"id": count + i, "content": content, "single_word": draw.random() < 0.3, "lstrip": draw.random() < 0.3,
             "rstrip": draw.random() < 0.3, "normalized": draw.random() < 0.4, "special": draw.random() < 0.5}
            for i, content in enumerate(draw.sample(contents, draw.randint(0, 4)))]


def models_of(texts):
    """Trained once each; what stands before them is drawn."""
    small = ["".join(c for c in text if c < "\u0500") for text in texts]
    made = []
    for pre in (pre_tokenizers.Whitespace(), pre_tokenizers.Metaspace(), pre_tokenizers.ByteLevel()):
        for model, trainer in (
                (models.BPE(unk_token="[UNK]"), trainers.BpeTrainer),
                (models.WordPiece(unk_token="[UNK]"), trainers.WordPieceTrainer),
                (models.Unigram(), trainers.UnigramTrainer)):
            t = Tokenizer(model)
            t.pre_tokenizer = pre
            more = {"unk_token": "[UNK]"} if trainer is trainers.UnigramTrainer else {}
            more |= {"special_tokens": ["[UNK]"], "show_progress": False}
            t.train_from_iterator(small, trainer(vocab_size=1500, **more))
            made.append(json.loads(t.to_str())["model"])
    return made


def texts_of(draw, sources):
    for _ in range(12):
        text = draw.choice(sources)
        begin = draw.randrange(max(1, len(text)))
        parts = [text[begin:begin + draw.randint(0, 60)], corpus.words(draw.random(), 40),
                 corpus.any_characters(draw.random(), 30), draw.choice(corpus.PIECES), draw.choice(corpus.PIECES)]
        draw.shuffle(parts)
        yield "".join(parts[:draw.randint(0, 5)])
    yield ""


def combinations(count, sources):
    """(what it is, tokenizer, texts); what the library itself refuses is left out."""
    draw = random.Random(11)
    every = models_of(sources[:300])
    for _ in range(count):
        model = draw.choice(every)
        vocab = model["vocab"]
        tokens = added(draw, len(vocab))
        known = vocab if isinstance(vocab, dict) else {token: i for i, (token, _) in enumerate(vocab)}
        next_id = len(vocab)
        for token in tokens:
            token["id"] = known.get(token["content"], next_id)
            next_id += token["id"] == next_id
        text = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": tokens, "normalizer": None,
                "pre_tokenizer": None, "post_processor": None, "decoder": None, "model": model}
        try:
            t = Tokenizer.from_str(json.dumps(text))
            chain = [normalizer(draw) for _ in range(draw.randint(0, 3))]
            cuts = [pre_tokenizer(draw) for _ in range(draw.randint(0, 3))]
            if chain:
                t.normalizer = normalizers.Sequence(chain)
            if cuts:
                t.pre_tokenizer = pre_tokenizers.Sequence(cuts)
            t = Tokenizer.from_str(t.to_str())
        except Exception:  # the library's own complaint
            continue
        parts = json.loads(t.to_str())
        name = json.dumps({k: parts[k] for k in ("normalizer", "pre_tokenizer", "added_tokens")})
        yield re.sub(r'(?<="precompiled_charsmap": ")[^"]*', "", name), t, list(texts_of(draw, sources))
