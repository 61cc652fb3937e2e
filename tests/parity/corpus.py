"""Text to train tokenizers on and to compare them with: what lies on the machine, and Unicode made at random."""

import pathlib
import random
import sysconfig

SCRIPTS = [(0x20, 0x7F), (0xA0, 0x180), (0x180, 0x250), (0x370, 0x400), (0x400, 0x530), (0x530, 0x590), (0x590, 0x600),
           (0x600, 0x700), (0x700, 0x800), (0x900, 0x980), (0x980, 0xA00), (0xB80, 0xC80), (0xE00, 0xE80),
           (0x1000, 0x10A0), (0x10A0, 0x1100), (0x1100, 0x1200), (0x1200, 0x1380), (0x1780, 0x1800), (0x1E00, 0x2000),
           (0x2000, 0x2070), (0x2070, 0x2100), (0x2100, 0x2190), (0x2190, 0x2400), (0x2460, 0x2600), (0x3000, 0x3100),
           (0x3130, 0x3190), (0x3200, 0x3400), (0x3400, 0x3500), (0x4E00, 0x9FFF), (0xAC00, 0xD7A4), (0xA640, 0xA830),
           (0xF900, 0xFB00), (0xFB00, 0xFE00), (0xFE00, 0xFE70), (0xFF00, 0x10000), (0x10400, 0x10500),
           (0x1D400, 0x1D800), (0x1F100, 0x1F200), (0x1F300, 0x1F700), (0x1F900, 0x1FA00), (0x20000, 0x20200)]
PIECES = ["\r\n", "\n\n", "\t", "   ", " " * 17, "\u00a0", "\u3000", "\u200b", "\u200d", "\ufeff", "\ufffd", "\u2581",
          "\x00", "\x01", "\x1b", "\x7f", "\x85", "\u2028", "'s", "'S", "'ll", "'\u017f", "'RE", "don't", "1234567",
          "3.14", "\u00bd\u00b2", "\u0664\u0665", "e\u0301", "A\u030a", "\u00aa\u0301", "\u2122\ufe0f", "n\u0323\u0307",
          "\u1e9b\u0323", "\u0130", "\u01c5", "\u03a3\u03c2", "\ufb01", "\ufdfa",
          "\U0001f468\u200d\U0001f469\u200d\U0001f467",
          "\U0001f1e9\U0001f1ea", "\u2764\ufe0f", "\u0915\u094d\u0937", "\u1112\u1161\u11ab", "__init__", "->", "!!!",
          "...", "<s>", "</s>", "<|endoftext|>", "[MASK]", "<mask>", "<0x0A>", "aaaaaaaaaaaaaaaaaaaaaaaa", "=" * 40]


def words(seed, size):
    """Words of one script after another, with what is odd between them."""
    draw = random.Random(seed)
    out, length = [], 0
    while length < size:
        low, high = draw.choice(SCRIPTS)
        for _ in range(draw.randint(1, 12)):
            word = "".join(chr(draw.randrange(low, high)) for _ in range(draw.randint(1, 9)))
            out.append(word + draw.choice([" ", " ", " ", "", "\n", ", ", "  "]))
            length += len(out[-1].encode())
        out.append(draw.choice(PIECES) + draw.choice(["", " ", "\n"]))
        length += len(out[-1].encode())
    return "".join(out)


def any_characters(seed, size):
    draw = random.Random(seed)
    out = []
    while len(out) * 3 < size:
        c = draw.randrange(0x110000) if draw.random() < 0.3 else draw.randrange(0x3200)
        if not 0xD800 <= c < 0xE000:
            out.append(chr(c) + draw.choice(["", "", " ", "a", "1", "\u0301"]))
    return "".join(out)


def every_character():
    """Each once between letters, once between spaces, once before a mark."""
    characters = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]
    characters = [c for c in characters if c < "\U00030000" or c > "\U000e0000" and c < "\U000e0200"]
    for begin in range(0, len(characters), 4096):
        part = characters[begin:begin + 4096]
        yield "".join(f"x{c}y {c} {c}\u0301 1{c}" for c in part)


def sources(size):
    """Python's own sources and this tree's texts."""
    root = pathlib.Path(__file__).resolve().parents[2]
    files = sorted(pathlib.Path(sysconfig.get_paths()["stdlib"]).glob("*.py")) + sorted(root.glob("docs/**/*.md"))
    files += sorted(pathlib.Path(sysconfig.get_paths()["stdlib"]).glob("*/*.py"))
    out, length = [], 0
    for file in files:
        text = file.read_text(encoding="utf-8", errors="replace")
        out.append(text)
        length += len(text.encode())
        if length >= size:
            break
    return out


def documents(size):
    """About `size` bytes: six tenths sources, the rest Unicode, in documents of one line to a whole file."""
    draw = random.Random(7)
    texts = sources(size * 6 // 10)
    texts += [words(seed, 50000) for seed in range(size * 3 // 10 // 50000)]
    texts += [any_characters(seed, 20000) for seed in range(size // 10 // 20000)]
    out = []
    for text in texts:
        while text:
            length = draw.choice([20, 200, 2000, 20000, len(text)])
            out.append(text[:length])
            text = text[length:]
    return out
