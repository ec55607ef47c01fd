#!/usr/bin/env python3
"""Checks the Markdown pages; exits non-zero with one line per violation.

* Every link leads to a file, and `#anchor` to a heading of it.
* A word in code font that looks like a file or folder of the repository exists, and its first mention in a page is a link (of
  another page every mention). It looks like one if it exists seen from the page, the root or src/, begins with a folder of the
  root, or ends like a source file (.cc .h .py .sh .md .toml). Names with * < > { } $ or words in capitals stand for others.
* Commands in code font and in blocks name files that exist, where these begin with a folder of the root.
* docs/README.md links every page and leads to each of docs/ by a question of a table "question | page"; every page (of the root, of docs/ and of an example) has a command that a test runs.
* Pages say how it is, and not how it was: no "since then", "no longer" and the like.
* The field's words that people search for stand on their natural pages in one line; docs/glossary.md has them all, and every abbreviation that three pages use, in the order of the alphabet.
* A block without a language shows an output: the comment before it says how it is made (tools/check_outputs.py), and such a
  comment has its block. Messages of the program do not stand in indented lines, which escape this.
* Sources and scripts name pages and anchors that exist; their comments, and the words of pages outside code font, name C++ sources
  that exist.

Usage: check_docs.py [--fix]        --fix turns first mentions into links
"""
import functools
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
INDEX = ROOT / "docs" / "README.md"
GLOSSARY = ROOT / "docs" / "glossary.md"
FOLDERS = ("src/", "tools/", "docs/", "examples/", "bench/", "apps/", "tests/", "cmake/", "fuzz/", "plugins/")
SOURCE_ENDINGS = (".cc", ".h", ".py", ".sh", ".md", ".toml")
NOT_OURS = {"my_reward.py", "braid_loss.h", "pyproject.toml", "setup.py"}  # files of a reader
OF_OTHERS = {"darts.h", "braid_loss.h", "record_writer.h", "unigram_model.cc"}  # of projects that a comment credits
NAMED_SOURCE = re.compile(r"(?<![\w./*{-])([a-z][a-z0-9_/]*\.(?:h|cc))\b")
PLACEHOLDER = re.compile(r"[*{}<>$…]|(^|[/._-])[A-Z][A-Z_]+([/._-]|$)")
OURS_IN_CAPITALS = re.compile(r"(^|/)(README|ARCHITECTURE|CONTRIBUTING|LICENSE)(\.md)?$")
LINK = re.compile(r"!?\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)|(?:src|srcset|href)=\"([^\"]+)\"")
CODE = re.compile(r"`([^`\n]+)`")
FENCE = re.compile(r"^ *(```+)([^\n]*)\n(.*?)^ *\1 *$", re.M | re.S)
MARKER = re.compile(r"<!-- (output|slow output|measured): .*-->\s*\Z")
NAMED_PAGE = re.compile(r"docs/[a-z_]+\.md(#[a-z0-9_-]+)?")
MESSAGE = re.compile(r"^(?:    |\t)\s*(?:braid: error|warning |info |\d\d:\d\d:\d\d ).*", re.M)
RUN = re.compile(r"^ *<!-- (output|text): |^```sh runnable$", re.M)  # tools/check_outputs.py, tools/run_readme.sh
RUN_BY_OTHERS = {"algorithms.md"}  # tests/runs/algorithms_test.cc
PRINTED = re.compile(r"<!-- (?:slow )?text: .*?<!-- end -->", re.S)
HISTORY = re.compile(r"\b(since then|no longer|until now|as of now|by now|nowadays|formerly|previously|in earlier versions|used to (?:be|have|take|say)|"
                     r"(?:is|are|has|have|does|do|can) now|now (?:is|are|has|have|does|do|can|takes|gives|says)|has been (?:added|removed|changed|replaced)|"
                     r"in (?:that|the first|the second) hour|both times|states? of the code|has not become|then saved|"
                     r"(?:was|were|is|passed|failed|took|met) the (?:first|second) time)\b|\| *(?:first|second) time *\|", re.I)
SEARCHED = {  # people look for these words: on these pages, besides the glossary
    "data parallel": ("README.md", "docs/ranks.md", "docs/plans.md", "docs/planner.md"),
    "deterministic": ("docs/checkpoints.md", "docs/limits.md", "docs/rollout.md"),
    "gradient accumulation": ("README.md", "docs/configuration.md", "docs/memory.md", "docs/plans.md", "docs/ranks.md", "docs/which_plan.md"),
    "gradient checkpointing": ("README.md", "docs/configuration.md", "docs/memory.md", "docs/plans.md", "docs/ranks.md", "docs/which_plan.md"),
    "mixed precision": ("docs/models.md",),
    "offload": ("docs/memory.md", "docs/plans.md", "docs/which_plan.md"),
    "pipeline parallel": ("README.md", "docs/ranks.md", "docs/plans.md", "docs/planner.md"),
    "tensor parallel": ("README.md", "docs/ranks.md", "docs/plans.md", "docs/planner.md"),
}
ABBREVIATION = re.compile(r"(?<![\w/.+-])([A-Z]{2,6})s?\b(?![/.]\w)")
EVERYDAY = {"CPU", "CSV", "CUDA", "GB", "GPU", "HTTP", "JSON", "MB", "PCRE", "README", "SHA", "SIGHUP", "SIGINT", "UTF", "YAML",  # known to all,
            "AMD", "APP", "TRL",  # names,
            "DIR", "FILE", "FOLDER", "MODEL", "NAME", "ORG", "OUT", "PATH", "RUN"}  # and what stands for a word of the reader


def listed(*patterns):
    out = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", *patterns], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / name for name in out.split("\n") if name and (ROOT / name).is_file()]


def anchors(page):
    """The anchors of a page's headings, as GitHub makes them."""
    text = FENCE.sub("", page.read_text())
    out = {}
    for title in re.findall(r"^#+ +(.*?) *$", text, re.M):
        title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title).replace("`", "")
        slug = re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")
        out[slug] = out.get(slug, -1) + 1
    return {slug if n == 0 else f"{slug}-{n}" for slug, count in out.items() for n in range(count + 1)}


def target_fault(page, target):
    """Why a link of a page leads nowhere; empty where it does lead somewhere."""
    name, _, anchor = target.partition("#")
    path = (page.parent / name) if name else page
    if not path.exists():
        return "does not exist"
    if anchor and path.suffix == ".md" and anchor not in anchors(path):
        return "has no such heading"
    return ""


@functools.lru_cache(maxsize=None)
def ours():
    """All files and folders of the repository."""
    files = listed()
    return {*files, *(folder for file in files for folder in file.parents if folder.is_relative_to(ROOT))}


def resolve(page, word):
    """The file or folder of the repository that a word in code font names, or None."""
    places = [ROOT / word, page.parent / word, *([ROOT / "src" / word] if "/" in word else [])]
    found = [place.resolve() for place in places if place.resolve() in ours()]
    return next((place for place in found if place.is_file() or "/" in word), None)


def looks_ours(word):
    if PLACEHOLDER.search(word) and not OURS_IN_CAPITALS.search(word):
        return False
    return word not in NOT_OURS and not word.startswith(".") and (word.startswith(FOLDERS) or word.endswith(SOURCE_ENDINGS))


def blank(match):
    """What a match covers as blanks: places and lines stay the same."""
    return re.sub(r"[^\n]", " ", match.group(0))


def prose(page, printed=()):
    """The text with blocks and comments blanked out (and what a program prints), so that places stay the same."""
    text = FENCE.sub(blank, page.read_text())
    for pattern in (*printed, re.compile(r"<!--.*?-->", re.S), re.compile(r"^(?:    |\t)(?! *[*\d-]).*$", re.M)):
        text = pattern.sub(blank, text)
    return text


def mentions(page):
    """Yields (place, word in code font, linked) of every file or folder of the repository in a page's prose."""
    text = prose(page, [PRINTED])
    linked = [match.span() for match in LINK.finditer(text)] + [match.span() for match in re.finditer(r"^#.*$", text, re.M)]
    for match in CODE.finditer(text):
        word = match.group(1).rstrip(".,;:")
        if " " not in word and (resolve(page, word) or looks_ours(word)):
            yield match.start(), word, any(start <= match.start() < end for start, end in linked)


def relative(page, path):
    return Path(*[".."] * len(page.parent.relative_to(ROOT).parts), path.relative_to(ROOT))


def short_link(page, path):
    """How a page links a file: the shortest relative path."""
    try:
        return path.relative_to(page.parent)
    except ValueError:
        return relative(page, path)


def unlinked(page):
    """Yields (place, word, path) of mentions that have to be links and are none."""
    seen = {(page.parent / target.partition("#")[0]).resolve(): match.start()
            for match in reversed(list(LINK.finditer(prose(page)))) for target in [match.group(2) or match.group(3)] if "://" not in target}
    for place, word, is_link in mentions(page):
        path = resolve(page, word)
        if path is None or is_link or path == page:
            continue
        if path.suffix == ".md" or not seen.get(path, place) < place:
            yield place, word, path
        seen[path] = min(place, seen.get(path, place))


def link_faults(page):
    for match in LINK.finditer(prose(page)):
        target = match.group(2) or match.group(3)
        if "://" in target:
            continue
        fault = target_fault(page, target)
        if fault:
            yield f"{target} {fault}"
        word = (match.group(1) or "").strip("`")
        path = (page.parent / target.partition("#")[0]).resolve()
        if not fault and looks_ours(word) and resolve(page, word) not in (path, path.parent if path.name == "README.md" else path):
            yield f"[{word}] leads to {target}"


def path_faults(page):
    for _, word, _ in mentions(page):
        if resolve(page, word) is None:
            yield f"`{word}` is no file of the repository (from its root, from src/ or from the page)"
    for word in re.findall(r"(?<![\w./-])((?:%s)[\w./-]*)" % "|".join(FOLDERS), page.read_text()):
        word = word.rstrip(".,;:")
        if not PLACEHOLDER.search(word) and not (ROOT / word).exists() and not (page.parent / word).exists():
            yield f"{word} does not exist"


def block_faults(page):
    text = page.read_text()
    for match in re.finditer(r"^ *<!-- (?:slow )?(?:output|text): .*", text, re.M):
        rest = text[match.end():]
        if not match.group(0).endswith("-->") or not (re.match(r"\n\n? *```\n", rest) or ("text: " in match.group(0) and "<!-- end -->" in rest)):
            yield f"nothing stands below {match.group(0).strip()}: a block without a language, or text that <!-- end --> ends, is due"
    for match in FENCE.finditer(text):
        if not match.group(2).strip() and not MARKER.search(text[: match.start()]):
            line = text.count("\n", 0, match.start()) + 1
            yield f"line {line}: a block without a language needs <!-- output: COMMAND --> or <!-- measured: … --> before it"
    for match in MESSAGE.finditer(FENCE.sub(blank, text)):
        line = text.count("\n", 0, match.start()) + 1
        yield f"line {line}: a message of the program stands in a block below <!-- output: COMMAND --> or <!-- measured: … -->, not indented"


def is_for_readers(page):
    """Pages of the root, of docs/ and of an example, not those that explain a folder of test data."""
    return page.parent in (ROOT, INDEX.parent) or page.parent.parent == ROOT / "examples"


def unrun(page):
    """Pages run a command in a test: an output, a printed text, or commands that a test takes from the page."""
    if is_for_readers(page) and page.name not in RUN_BY_OTHERS and not RUN.search(page.read_text()):
        yield "runs no command in a test: show what one prints below <!-- output: COMMAND -->"


def history_faults(page):
    text = CODE.sub(blank, prose(page, [PRINTED]))
    for match in HISTORY.finditer(text):
        yield f"line {text.count(chr(10), 0, match.start()) + 1}: '{match.group(0)}' tells history; say how it is"


def faults(page):
    yield from link_faults(page)
    yield from unrun(page)
    yield from history_faults(page)
    yield from path_faults(page)
    yield from (f"`{word}` is not a link" for _, word, _ in unlinked(page))
    yield from block_faults(page)


def index_faults(pages):
    linked = {(INDEX.parent / (match.group(2) or match.group(3)).partition("#")[0]).resolve() for match in LINK.finditer(prose(INDEX))}
    yield from (f"docs/README.md: {page.relative_to(ROOT)} is not in the index" for page in pages if page != INDEX and page not in linked)


def question_faults(pages):
    """Pages of docs/ to which no question of the index leads: no row `| …? | [page](page) |`."""
    rows = re.findall(r"^\| *[^|]*\? *\|([^|]*)\|$", prose(INDEX), re.M)
    led = {(INDEX.parent / match.group(2).partition("#")[0]).resolve() for row in rows for match in LINK.finditer(row) if match.group(2)}
    yield from (f"docs/README.md: no question leads to {page.relative_to(ROOT)}: give it a row '| question? | [page](page) |'"
                for page in pages if page.parent == INDEX.parent and page != INDEX and page not in led)


def searched_faults():
    """Natural pages of the field's words that a search in them does not find: a word that a line break divides counts as missing."""
    for word, names in SEARCHED.items():
        for name in names:
            if not (ROOT / name).exists() or word not in (ROOT / name).read_text().lower():
                yield f"{name}: '{word}', for which people search, is in none of its lines"


def glossary_faults(pages):
    """What docs/glossary.md lacks. Its words are the first cells of the rows of its table."""
    words = [re.sub(r"[`*\\]", "", word).strip() for word in re.findall(r"^\| *([^|]*?) *\|", GLOSSARY.read_text(), re.M)[2:]]
    text = "\n".join(words)
    order = [re.sub(r"[^a-z0-9]", "", word.lower()) for word in words]
    yield from (f"docs/glossary.md: '{words[k + 1]}' stands behind '{words[k]}'" for k in range(len(words) - 1) if order[k] > order[k + 1])
    yield from (f"docs/glossary.md: '{word}', for which people search, is not there" for word in SEARCHED if word not in text)
    users = {}
    for page in filter(is_for_readers, pages):
        for word in ABBREVIATION.findall(CODE.sub(blank, prose(page, [PRINTED]))):
            users.setdefault(word, set()).add(page)
    yield from (f"docs/glossary.md: '{word}' is not there, and {len(found)} pages use it"
                for word, found in sorted(users.items()) if len(found) > 2 and word not in EVERYDAY and not re.search(rf"\b{word}\b", text))


def source_faults():
    """Messages and comments that send a reader to a page which is not there."""
    for source in listed("src", "apps", "tools", "bench", "plugins", "examples", "cmake", "Makefile"):
        if source.suffix in (".cc", ".h", ".py", ".sh", ".yaml", ".cmake", "") and source.stem not in ("check_docs", "check_docs_test"):
            for match in NAMED_PAGE.finditer(source.read_text(errors="replace")):
                fault = target_fault(ROOT / "README.md", match.group(0))
                if fault:
                    yield f"{source.relative_to(ROOT)}: {match.group(0)} {fault}"


@functools.lru_cache(maxsize=None)
def source_names():
    return {path.name for path in ours()}


def named_source_faults(path, text):
    """C++ sources that a text names and that are not there: by their path from the root, src/, apps/, tests/ or the folder of the
    text, or by their bare name, which may be anywhere."""
    for name in NAMED_SOURCE.findall(text):
        places = [folder / name for folder in (ROOT, ROOT / "src", ROOT / "apps", ROOT / "tests", path.parent)]
        if name not in OF_OTHERS and not (name in source_names() if "/" not in name else any(place in ours() for place in places)):
            yield f"{path.relative_to(ROOT)}: names {name}, which is not there"


def named_sources():
    for path in listed("*.h", "*.cc"):
        comments = [line.partition("//")[2] for line in path.read_text().splitlines() if "//" in line and not line.startswith("#include")]
        yield from named_source_faults(path, "\n".join(comments))
    for page in listed("*.md"):
        yield from named_source_faults(page, CODE.sub(blank, prose(page)))


def fix(page):
    """Turns the mentions that have to be links into links."""
    text = page.read_text()
    for place, word, path in reversed(list(unlinked(page))):
        end = text.index("`", place + 1) + 1
        is_page = path.suffix == ".md" and ROOT not in (page.parent, path.parent)
        shown = str(short_link(page, path)) if is_page else text[place:end]
        text = text[:place] + f"[{shown}]({short_link(page, path)})" + text[end:]
    page.write_text(text)


def main():
    pages = listed("*.md")
    if sys.argv[1:] == ["--fix"]:
        for page in pages:
            fix(page)
    wrong = [f"{page.relative_to(ROOT)}: {fault}" for page in pages for fault in faults(page)]
    wrong += [*index_faults(pages), *question_faults(pages), *searched_faults(), *glossary_faults(pages), *source_faults(), *named_sources()]
    print("\n".join(wrong) or f"docs: {len(pages)} pages, every link and path leads to something, and the index has them all")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
