"""A charsmap as SentencePiece's nmt_nfkc has it, made here: NFKC of each character, and some control characters."""

import struct
import unicodedata

from tokenizers import normalizers


def double_array(values):
    """The units of a darts-clone double array. `values`: of keys in bytes."""
    trie = {}
    for key, value in values.items():
        node = trie
        for byte in key:
            node = node.setdefault(byte, {})
        node[0] = value
    units, taken, bases, lowest = [0] * 1024, {0}, set(), 1
    pending = [(trie, 0)]
    while pending:
        node, position = pending.pop()
        # Offsets of up to 21 bits stand as they are, larger ones in steps of 256.
        base = lowest
        while True:
            offset = position ^ base
            if base not in bases and (offset < 1 << 21 or offset % 256 == 0) and offset:
                if all(base ^ label not in taken for label in node):
                    break
            base += 1
        if len(node) == 1:
            lowest = max(lowest, base - 512)
        bases.add(base)
        while len(units) <= (base | 255):
            units.extend([0] * 1024)
        offset = position ^ base
        units[position] |= (offset << 10 if offset < 1 << 21 else offset << 2 | 512) | (256 if 0 in node else 0)
        for label, child in node.items():
            taken.add(base ^ label)
            units[base ^ label] = 1 << 31 | child if label == 0 else label
            if label:
                pending.append((child, base ^ label))
    return units


def precompiled(rules):
    texts, values = b"", {}
    for key, text in rules.items():
        values[key.encode()] = len(texts)
        texts += text.encode() + b"\0"
    units = double_array(values)
    return normalizers.Precompiled(struct.pack(f"<{len(units) + 1}I", 4 * len(units), *units) + texts)


def charsmap():
    rules = {}
    for code in range(1, 0x30000):
        c = chr(code)
        if not 0xD800 <= code < 0xE000 and not 0xAC00 <= code < 0xD7A4:
            normal = unicodedata.normalize("NFKC", c)
            if normal != c:
                rules[c] = normal
            whole = unicodedata.normalize("NFD", c)
            if len(whole) > 1 and unicodedata.normalize("NFC", whole) == c:
                rules.setdefault(whole, c)
    for code in [*range(1, 9), 0xB, *range(0xE, 0x20), 0x7F, 0x8F, 0x9F]:
        rules[chr(code)] = ""
    for c in "\t\n\f\r\u1680\u200b\u200c\u200d\u200e\u200f\u2028\u2029\u2581\ufeff\ufffd":
        rules[c] = " "
    return precompiled(rules)
