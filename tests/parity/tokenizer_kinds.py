"""Tokenizers as those of well-known models are configured, trained on what lies on this machine."""

import json

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from charsmap import charsmap

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|"
          r"\s+(?!\S)|\s+")
CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|"
          r"\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
O200K = (rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|"
            r" ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
LETTERS = sorted(pre_tokenizers.ByteLevel.alphabet())


def byte_level(texts, pre_tokenizer, normalizer=None, added=("<|endoftext|>",), size=5000, **options):
    t = Tokenizer(models.BPE(**options))
    t.normalizer = normalizer
    t.pre_tokenizer = pre_tokenizer
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=size, initial_alphabet=LETTERS, show_progress=False))
    t.add_special_tokens([AddedToken(a, special=True) if isinstance(a, str) else a for a in added])
    return t


def split(pattern, behavior="isolated"):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert=False)


def after(*splits):
    return pre_tokenizers.Sequence([*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def bert(texts, lowercase):
    t = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    t.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    t.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    t.decoder = decoders.WordPiece()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    t.train_from_iterator(texts, trainers.WordPieceTrainer(vocab_size=5000, special_tokens=special,
                                                           limit_alphabet=600, show_progress=False))
    return t


def llama2(texts, pre_tokenizer, normalizer, byte_fallback=True, fuse=True, decoder=None):
    """A BPE of characters; the vocabulary begins as Llama's does, with the bytes."""
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    t.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=5000, limit_alphabet=500, show_progress=False))
    model = json.loads(t.to_str())["model"]
    tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{b:02X}>" for b in range(256)] + sorted(model["vocab"],
                                                                                      key=model["vocab"].get)
    vocab = {}
    for token in tokens:
        vocab.setdefault(token, len(vocab))
    merges = [tuple(m) if isinstance(m, list) else tuple(m.split(" ")) for m in model["merges"]]
    # Runs of spaces, as Llama's vocabulary has them.
    for n in (2, 4, 8):
        vocab.setdefault("\u2581" * n, len(vocab))
        merges.append(("\u2581" * (n // 2), "\u2581" * (n // 2)))
    t = Tokenizer(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=fuse, byte_fallback=byte_fallback))
    t.normalizer = normalizer
    if pre_tokenizer:
        t.pre_tokenizer = pre_tokenizer
    t.decoder = decoder or decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(),
                                              decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    t.add_special_tokens([AddedToken(a, normalized=False, special=True) for a in ("<unk>", "<s>", "</s>")])
    return t


def unigram(texts, normalizer, pre_tokenizer, decoder=None, size=6000, byte_fallback=False):
    t = Tokenizer(models.Unigram())
    t.normalizer = normalizer
    t.pre_tokenizer = pre_tokenizer
    # Its trainer wants every character of the texts in the vocabulary.
    texts = ["".join(c for c in x if c < "\u0600" or "\u3040" <= c < "\u3100" or "\u4e00" <= c < "\u4f00")
             for x in texts]
    special = ["<pad>", "</s>", "<unk>"] + ([f"<0x{b:02X}>" for b in range(256)] if byte_fallback else [])
    t.train_from_iterator(texts, trainers.UnigramTrainer(vocab_size=size, unk_token="<unk>", special_tokens=special,
                                                         show_progress=False))
    if byte_fallback:
        text = json.loads(t.to_str())
        text["model"]["byte_fallback"] = True
        text["added_tokens"] = text["added_tokens"][:3]
        t = Tokenizer.from_str(json.dumps(text))
    t.decoder = decoder or decoders.Metaspace()
    t.add_tokens([AddedToken("<extra_id_0>", lstrip=True, rstrip=True, normalized=False, special=True)])
    return t


def mixed(texts):
    """What none of the others has: parts that few files use, and every kind of added token."""
    t = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=40))
    t.normalizer = normalizers.Sequence([
        normalizers.Strip(), normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase(),
        normalizers.Replace(Regex(r"\p{Nd}{3,}"), " 0 "), normalizers.Replace("``", '"')])
    t.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Whitespace(), pre_tokenizers.Digits(individual_digits=False),
        pre_tokenizers.Punctuation("merged_with_previous"), pre_tokenizers.Split("_", "merged_with_next"),
        pre_tokenizers.Split(Regex(r"[aeiou]{2,}"), "contiguous", invert=True)])
    t.decoder = decoders.WordPiece(cleanup=True)
    t.train_from_iterator(texts, trainers.WordPieceTrainer(vocab_size=4000, special_tokens=["[UNK]"],
                                                           limit_alphabet=400, show_progress=False))
    t.add_tokens([AddedToken("import", single_word=True), AddedToken("Self", normalized=True),
                  AddedToken("def ", lstrip=True, normalized=False), AddedToken("==", rstrip=True, normalized=False),
                  AddedToken("!!", normalized=False), AddedToken("!", normalized=True, single_word=True)])
    return t


def kinds():
    pre, norm = pre_tokenizers, normalizers
    t5 = norm.Sequence([charsmap(), norm.Replace(Regex(" {2,}"), "\u2581")])
    strip = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    return {
        "gpt2": lambda x: byte_level(x, pre.ByteLevel(add_prefix_space=False)),
        "roberta": lambda x: byte_level(x, pre.ByteLevel(add_prefix_space=True), added=(
            "<s>", "</s>", AddedToken("<mask>", lstrip=True, special=True))),
        "llama3": lambda x: byte_level(x, after(split(LLAMA3)), ignore_merges=True, added=("<|begin_of_text|>",)),
        "cl100k": lambda x: byte_level(x, after(split(CL100K))),
        "qwen2": lambda x: byte_level(x, after(split(QWEN2)), normalizer=norm.NFC()),
        "o200k": lambda x: byte_level(x, after(split(O200K))),
        "deepseek": lambda x: byte_level(x, after(
            split(r"\p{N}{1,3}"), split("[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"), split(DEEPSEEK))),
        "starcoder": lambda x: byte_level(x, pre.Sequence([
            pre.Digits(individual_digits=True), pre.ByteLevel(add_prefix_space=False)])),
        "bert_uncased": lambda x: bert(x, True),
        "bert_cased": lambda x: bert(x, False),
        "llama2": lambda x: llama2(x, None, norm.Sequence([norm.Prepend("\u2581"), norm.Replace(" ", "\u2581")])),
        "llama2_metaspace": lambda x: llama2(x, pre.Metaspace(prepend_scheme="first", split=False), None),
        "gemma": lambda x: llama2(x, pre.Split(" ", "merged_with_previous"), norm.Replace(" ", "\u2581"),
                                  decoder=strip),
        "unknown": lambda x: llama2(x, pre.Metaspace(), None, byte_fallback=False, fuse=False,
                                    decoder=decoders.Metaspace()),
        "t5": lambda x: unigram(x, t5, pre.Metaspace()),
        "t5_first": lambda x: unigram(x, norm.Sequence([
            charsmap(), norm.Strip(left=False, right=True), norm.Replace(Regex(" {2,}"), "\u2581")]),
            pre.Metaspace(prepend_scheme="first")),
        "xlm_r": lambda x: unigram(x, charsmap(), pre.Sequence([pre.WhitespaceSplit(), pre.Metaspace()])),
        "albert": lambda x: unigram(x, norm.Sequence([
            norm.Replace("``", '"'), norm.Replace("''", '"'), norm.NFKD(), norm.StripAccents(), norm.Lowercase(),
            charsmap(), norm.Replace(Regex(" {2,}"), " ")]), pre.Metaspace()),
        "unigram_bytes": lambda x: unigram(x, norm.NFKC(), pre.Metaspace(), strip, byte_fallback=True),
        "mixed": mixed,
    }
