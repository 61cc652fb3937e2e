#!/usr/bin/env python3
"""Laws of what is written, in the sources and in the documents. usage: scripts/check_texts.py LAW

verbs   every `mortise VERB` in a text names a verb of core/cli/verbs.cpp, and its word after that if it has several
codes   every code of an error in core/ and formats/ stands in core/base/errors.def, every row there is used, and the
        test that it names exists and knows the code; likewise [errors] of each plugin.toml
lines   no line of source is longer than 120 characters
links   every link of a Markdown page that leads to a file or a heading of the tree finds it, and docs/techniques.md
        has the page of every plugin
keys    the table of keys in a plugin's README.md has each key of its plugin.toml with its default, and no other key
"""
import re
import subprocess
import sys
from pathlib import Path

try:
    import tomllib
except ImportError:  # Python 3.10: as pip has it
    from pip._vendor import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
MOST_COLUMNS = 120
SOURCE = {".cpp", ".hpp", ".h", ".c", ".cu", ".cuh", ".def", ".py", ".sh", ".cmake", ".toml"}
TEXT = SOURCE | {".md", ".in"}
NAMES = {"CMakeLists.txt", "Makefile"}


def files(suffixes):
    """Files of the tree: tracked, or new and not ignored."""
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                            capture_output=True, text=True, check=False)
    if listed.returncode != 0:  # an archive of the sources has no git
        names = [str(path.relative_to(ROOT)) for top in sorted(ROOT.iterdir())
                 if not top.name.startswith((".", "build")) for path in ([top] if top.is_file() else top.rglob("*"))]
    else:
        names = listed.stdout.splitlines()
    for name in sorted(set(names)):
        path = ROOT / name
        if path.is_file() and not path.is_symlink() and (path.suffix in suffixes or path.name in NAMES):
            yield path.relative_to(ROOT)


def lines_of(path):
    return (ROOT / path).read_text(encoding="utf-8", errors="replace").split("\n")


def verbs():
    """Each verb of the program with the words that may follow it; none: whatever follows."""
    main = (ROOT / "core/cli/verbs.cpp").read_text(encoding="utf-8")
    table = main[main.index("Verb>& verbs()"):]
    found = re.findall(r'\{"([a-z]+)",\s*\w+,\s*"([^"]*)",\s*"', table[:table.index("return all;")])
    return {verb: set(re.findall(r"\b[a-z]+\b", usage)) for verb, usage in found}


def check_verbs():
    known = verbs()
    if not {"train", "plugin"} <= set(known):
        return [f"core/cli/verbs.cpp: the verbs are not found where they were: {sorted(known)}"]
    said = re.compile(r"(?<![\w./-])mortise ([a-z]+)(?: ([a-z]+)\b(?![./:]))?")
    errors = []
    for path in files(TEXT):
        if path.suffix == ".cmake" or path.name == "CMakeLists.txt":
            continue  # there, `mortise` is a target
        for number, line in enumerate(lines_of(path), 1):
            for match in said.finditer(line):
                verb, word = match[1], match[2]
                if verb not in known:
                    errors.append(f"{path}:{number}: there is no verb `{verb}`: {line.strip()[:100]}")
                elif word and known[verb] and word not in known[verb]:
                    errors.append(f"{path}:{number}: there is no `mortise {verb} {word}`: {line.strip()[:100]}")
    return errors


def check_lines():
    return [f"{path}:{number}: {len(line)} characters; a line has at most {MOST_COLUMNS}"
            for path in files(SOURCE) for number, line in enumerate(lines_of(path), 1) if len(line) > MOST_COLUMNS]


# What makes an error: its code stands among the first arguments, and no other argument there is a bare slug.
MAKERS = re.compile(r"\b(?:mistake|trouble|refusal|plugins_mistake|plugin_error|add_mistake|TomlError|FormatError|"
                    r"report_unavailable|refuse|missing|warn|disagree)\b(?:\s+\w+)?\s*[({]")
SLUG = re.compile(r'"([a-z]+(?:_[a-z0-9]+)+)"')
ROW = re.compile(r'ERROR\((\w+), (\d+),\s*"[^"]*",\s*"([^"]*)"\)')


def first_arguments(text, at, most=3):
    """The arguments of a call whose bracket ends at `at`, as text, with commas inside brackets left alone."""
    depth, commas, quoted, end = 0, 0, "", at
    while end < len(text):
        c = text[end]
        if quoted:
            if c == "\\":
                end += 1
            elif c == quoted:
                quoted = ""
        elif c == '"':
            quoted = c
        elif c in "([{":
            depth += 1
        elif c in ")]}":
            depth -= 1
        elif c == "," and depth == 0:
            commas += 1
        if depth < 0 or commas == most:
            break
        end += 1
    return text[at:end]


def is_test(path):
    return path.stem.endswith("_test") or path.stem.startswith(("test_", "testing")) or "fixtures" in path.parts


def used_codes():
    """Each code that a source makes, with a place."""
    used = {}
    for path in files({".cpp", ".hpp"}):
        if path.parts[0] not in ("core", "formats") or is_test(path):
            continue
        text = "\n".join(lines_of(path))
        places = [(match.start(), first_arguments(text, match.end())) for match in MAKERS.finditer(text)]
        places += [(match.start(), match[0]) for match in re.finditer(r'\bcode (?:=|==) "\w+"', text)]
        for at, part in places:
            for slug in SLUG.findall(part):
                used.setdefault(slug, f"{path}:{text.count(chr(10), 0, at) + 1}")
    return used


def test_knows(test, code):
    """Whether the test `Suite.Name` or `FILE::name` is there, in a file that speaks of the code."""
    head, _, name = test.partition("::" if "::" in test else ".")
    pattern = rf"def {name}\b" if "::" in test else rf"TEST(?:_F|_P)?\({head},\s*{name}\)"
    for path in files({".cpp", ".py"}):
        if is_test(path) and ("::" not in test or path.name == head):
            text = "\n".join(lines_of(path))
            if re.search(pattern, text) and re.search(rf"\b{code}\b", text):
                return True
    return False


def check_codes():
    rows = {code: test for code, _, test in ROW.findall("\n".join(lines_of(Path("core/base/errors.def"))))}
    used = used_codes()
    # Words that stand where a code could, and are something else.
    errors = [f"{at}: `{code}` stands in no row of core/base/errors.def" for code, at in sorted(used.items())
              if code not in rows and code not in {"lr_scale", "micro_batch_size"}]
    source = "\n".join("\n".join(lines_of(path)) for path in files({".cpp", ".hpp"})
                       if path.parts[0] in ("core", "formats") and not is_test(path))
    errors += [f"core/base/errors.def: nothing makes `{code}`" for code in rows if f'"{code}"' not in source]
    errors += [f"core/base/errors.def: no test `{test}` speaks of `{code}`" for code, test in rows.items()
               if not test_knows(test, code)]
    return errors + check_own_codes()


def check_own_codes():
    """Of plugins: [errors] of plugin.toml has the codes that the sources beside it make, and a test knows each."""
    errors = []
    tests = "\n".join("\n".join(lines_of(path)) for path in files({".cpp", ".py"}) if is_test(path))
    for path in files({".toml"}):
        if path.parts[0] != "plugins" or path.name != "plugin.toml":
            continue
        source = "\n".join(own.read_text() for own in (ROOT / path.parent).glob("*.cpp") if not is_test(own))
        made = set(re.findall(r'\.code = "(\w+)"', source))
        said = set(tomllib.loads((ROOT / path).read_text()).get("errors", {}))
        errors += [f"{path}: `{code}` stands in no [errors.{code}]" for code in sorted(made - said)]
        errors += [f"{path}: nothing makes `{code}`" for code in sorted(said - made)]
        errors += [f"{path}: no test speaks of `{code}`" for code in sorted(said) if code not in tests]
    return errors


def without_code(path):
    """A Markdown page without its blocks of code and its `code`."""
    text = re.sub(r"^```.*?^```", "", "\n".join(lines_of(path)), flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"``.+?``|`[^`\n]+`", "", text)


def anchors(path):
    """What a link may say behind `#`, as GitHub makes it of a heading."""
    headings = re.findall(r"^#+ (.*)$", "\n".join(lines_of(path)), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def check_links():
    errors, linked = [], set()
    for page in files({".md"}):
        for target in re.findall(r"\]\(([^()\s]+)\)", without_code(page)):
            if re.match(r"[a-z]+:", target):
                continue
            name, _, anchor = target.partition("#")
            there = (ROOT / page.parent / name).resolve() if name else ROOT / page
            if not there.exists():
                errors.append(f"{page}: there is no {target}")
            elif anchor and anchor not in anchors(there):
                errors.append(f"{page}: {name} has no heading #{anchor}")
            if page == Path("docs/techniques.md"):
                linked.add(there)
    for toml in sorted(ROOT.glob("plugins/*/*/plugin.toml")):
        if toml.with_name("README.md") not in linked:
            errors.append(f"docs/techniques.md: no link to {toml.with_name('README.md').relative_to(ROOT)}")
    return errors


def toml_value(text):
    """As TOML has it, 1 and 1.0 told apart; None: it is no value."""
    try:
        return repr(tomllib.loads(f"value = {text}")["value"])
    except tomllib.TOMLDecodeError:
        return None


def keys_of_page(page):
    """Key -> its default; None: that is no value of TOML. A row may have several keys, each with its own default."""
    found, columns = {}, []
    for line in lines_of(page):
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if not cells or "key" in cells:
            columns = cells
        elif columns and not set(line) <= set("|-"):
            keys, defaults = (re.findall("`([^`]+)`", cells[columns.index(name)]) for name in ("key", "default"))
            found |= {key: toml_value(defaults[i]) if i < len(defaults) else None for i, key in enumerate(keys)}
    return found


def check_keys():
    errors = []
    for toml in sorted(ROOT.glob("plugins/*/*/plugin.toml")):
        page = toml.with_name("README.md").relative_to(ROOT)
        config = tomllib.loads(toml.read_text(encoding="utf-8")).get("config", {})
        said = keys_of_page(page)
        errors += [f"{page}: there is no key `{key}`" for key in said if key not in config]
        for key, row in config.items():
            default = repr(row["default"]) if "default" in row else None
            if key not in said:
                errors.append(f"{page}: the table of keys has no `{key}`")
            elif said[key] != default:
                errors.append(f"{page}: the default of `{key}` is {default or 'none'}, not {said[key] or 'none'}")
    return errors


def main():
    checks = {"verbs": check_verbs, "lines": check_lines, "codes": check_codes, "links": check_links,
              "keys": check_keys}
    if len(sys.argv) != 2 or sys.argv[1] not in checks:
        sys.exit(__doc__)
    errors = checks[sys.argv[1]]()
    print("\n".join(errors))
    sys.exit(f"{len(errors)} against the law" if errors else 0)


if __name__ == "__main__":
    main()
