#!/usr/bin/env python3
"""What Hugging Face's tokenizers takes each character for, asked of the library itself and written as
plugins/tokenizer/huggingface/unicode_data.hpp. usage: .deps/parity/bin/python scripts/tokenizer_unicode.py > FILE

The library mixes several versions of Unicode: 8 for BERT's marks and punctuation, 16 for \\p{L}, that of its compiler
for lower case. No library of Unicode has all of them, and one of a distribution changes with it; ids must not.
"""
import struct
import sys
import unicodedata

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

CATEGORIES = ("Cn Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co").split()
CHARACTERS = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
HANGUL = range(0xAC00, 0xAC00 + 11172)


def removed(pre_tokenizer, before="", pieces=0):
    """The characters that leave so many pieces."""
    return {c for c in CHARACTERS if len(pre_tokenizer.pre_tokenize_str(before + c)) == pieces}


def charsmap(rules):
    """A Precompiled normalizer: a double array, then the texts. `rules`: one character each."""
    texts = b"".join(v.encode() + b"\0" for v in rules.values())
    starts, at = {}, 0
    for key, text in rules.items():
        starts[key.encode()] = at
        at += len(text.encode()) + 1
    trie = {}
    for key, value in starts.items():
        node = trie
        for byte in key:
            node = node.setdefault(byte, {})
        node[0] = value
    units, taken = [0] * 1024, {0}

    def place(node, position):
        # Offsets of few bits stand as they are, larger ones in steps of 256.
        offset = 1
        while True:
            wide = offset >= 1 << 21
            base = position ^ offset
            free = base not in bases and all(base ^ label not in taken for label in node)
            if free and (not wide or offset % 256 == 0):
                break
            offset += 1
        bases.add(base)
        while len(units) <= (base | 255):
            units.extend([0] * 1024)
        units[position] |= (offset << 10) | (256 if 0 in node else 0)
        for label in node:
            taken.add(base ^ label)
        for label, child in node.items():
            if label == 0:
                units[base] = (1 << 31) | child
            else:
                units[base ^ label] = label
        for label, child in node.items():
            if label != 0:
                place(child, base ^ label)

    bases = set()
    place(trie, 0)
    blob = struct.pack("<I", 4 * len(units)) + struct.pack(f"<{len(units)}I", *units) + texts
    return normalizers.Precompiled(blob)


def flags():
    """For each character its category, and a set of names."""
    category, found = {}, {}
    for number, name in enumerate(CATEGORIES):
        for c in removed(pre_tokenizers.Split(Regex(rf"\p{{{name}}}"), "removed")):
            category[c] = number
    bert = {"clean_text": False, "handle_chinese_chars": False, "strip_accents": False, "lowercase": False}
    clean = normalizers.BertNormalizer(**(bert | {"clean_text": True}))
    accents = normalizers.BertNormalizer(**(bert | {"strip_accents": True}))
    marks, nfd = normalizers.StripAccents(), normalizers.NFD()
    white = removed(pre_tokenizers.WhitespaceSplit())
    assert white == removed(pre_tokenizers.Split(Regex(r"\s"), "removed")) == removed(pre_tokenizers.Whitespace())
    words = removed(pre_tokenizers.Whitespace(), "a", 1) - white
    found["word"] = words
    found["numeric"] = removed(pre_tokenizers.Digits(True), "aa", 2)
    found["punctuation"] = removed(pre_tokenizers.Punctuation("removed"))
    found["cleaned"] = {c for c in CHARACTERS if clean.normalize_str(c) == ""}
    found["mark"] = {c for c in CHARACTERS if marks.normalize_str(c) == ""}
    found["nonspacing"] = {c for c in CHARACTERS if nfd.normalize_str(c) == c and accents.normalize_str(c) == ""}
    # Which characters one grapheme has: a rule of a short grapheme's first character replaces it whole.
    one = charsmap({"a": "b"})
    found["joins"] = {c for c in CHARACTERS if one.normalize_str("a" + c) == "b"}
    found["prepend"] = {c for c in CHARACTERS if len(c.encode()) < 3
                        and one.normalize_str(c + "a\u0301") == c + "b\u0301"}
    candidates = [c for c in CHARACTERS if len(c.encode()) < 4 and CATEGORIES[category[c]][0] in "CZ"]
    each = charsmap({c: "b" for c in candidates if c != "\0"})
    found["alone"] = {c for c in candidates if each.normalize_str(c + "\u0301") != "b"}
    sign = charsmap({"\u2122": "T"})
    found["pictograph"] = {c for c in CHARACTERS if sign.normalize_str(c + "\u200D\u2122\u0301").endswith("\u0301")
                           and c not in found["prepend"]}
    found["white"] = white
    return category, found


def runs(category, found):
    """"from:flags " in hexadecimal, the distance to the run before first."""
    names = list(found)
    words, last, before = [], None, 0
    for c in CHARACTERS:
        value = category[c] | sum(1 << (5 + i) for i, name in enumerate(names) if c in found[name])
        if value != last:
            words.append(f"{ord(c) - before:X}:{value:X}")
            last, before = value, ord(c)
    return words


def decompositions(normalizer, skip):
    words, before = [], 0
    compose = normalizers.NFC()
    for c in CHARACTERS:
        parts = normalizer.normalize_str(c)
        if parts == c or ord(c) in HANGUL or parts == skip.normalize_str(c):
            continue
        kept = "" if skip is not NONE or compose.normalize_str(parts) == c else "!"
        words.append(f"{ord(c) - before:X}:{kept}{'.'.join(f'{ord(p):X}' for p in parts)}")
        before = ord(c)
    return words


def classes():
    """Canonical combining classes, of the characters that the library knows to have one."""
    nfd, words, before = normalizers.NFD(), [], 0
    for c in CHARACTERS:
        value = unicodedata.combining(c)
        if value == 0 or nfd.normalize_str(c) != c:
            continue
        swaps = nfd.normalize_str("\u0301" + c) == c + "\u0301" if value == 1 else \
            nfd.normalize_str(c + "\u0334") == "\u0334" + c
        if swaps:
            words.append(f"{ord(c) - before:X}:{value:X}")
            before = ord(c)
    return words


def lower_cases():
    """"from:count.step.distance": distances are modulo 110000."""
    lower = normalizers.Lowercase()
    pairs = [(ord(c), ord(lower.normalize_str(c))) for c in CHARACTERS
             if lower.normalize_str(c) != c and len(lower.normalize_str(c)) == 1]
    assert [c for c in CHARACTERS if len(lower.normalize_str(c)) != 1] == ["\u0130"]
    groups = []
    for c, to in pairs:
        if groups:
            g = groups[-1]
            step = c - g["last"]
            if to - c == g["distance"] and step <= 2 and (g["count"] == 1 or step == g["step"]):
                g.update(last=c, count=g["count"] + 1, step=step)
                continue
        groups.append({"first": c, "last": c, "count": 1, "step": 1, "distance": to - c})
    return [f"{g['first']:X}:{g['count']:X}.{g['step']}.{g['distance'] % 0x110000:X}" for g in groups]


class Nothing:
    def normalize_str(self, text):
        return None


NONE = Nothing()


def show(name, comment, words):
    print("\n// " + "\n// ".join(comment) + f"\ninline constexpr char {name}[] =")
    line = ""
    for word in words:
        if len(line) + len(word) > 112:
            print(f'    "{line}"')
            line = ""
        line += word + " "
    print(f'    "{line.rstrip()}";')


def main():
    category, found = flags()
    print(f"// Made by scripts/tokenizer_unicode.py: what tokenizers {tokenizers.__version__} takes characters for.")
    print("// Numbers are hexadecimal; the first of each word is the distance to that of the word before.")
    print("// clang-format off\n#pragma once\n\nnamespace mortise::unicode_data {")
    show("kFlags", ["From this character on: the category, and bits from 5 on:", ", ".join(found) + ".",
                    "Categories: " + " ".join(CATEGORIES)], runs(category, found))
    show("kCanonical", ["NFD; with `!` NFC does not put it together again."], decompositions(normalizers.NFD(), NONE))
    show("kCompatible", ["NFKD where it is not NFD."], decompositions(normalizers.NFKD(), normalizers.NFD()))
    show("kClasses", ["Canonical combining classes other than 0."], classes())
    show("kLower", ["Lower case: from this character (no distance here) so many, in steps, each so far on."],
         lower_cases())
    print("\n}  // namespace mortise::unicode_data")


if __name__ == "__main__":
    sys.exit(main())
