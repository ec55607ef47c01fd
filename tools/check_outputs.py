#!/usr/bin/env python3
"""Runs the commands whose outputs the pages show, and compares. A block of output follows a comment:

    <!-- output: braid plan examples/plans/ppo_7b_8gpu.yaml --max-units 20 -->

then a block without a language: what the command prints, standard error included. bash runs it at the root of the repository,
`braid` being the program that is given; files go to the folder $OUT, whose name is left out of what is printed. Seconds that a
search took and the time of day may differ. What a command prints as text of the
page stands between <!-- text: COMMAND --> and <!-- end -->. `measured:` in place of `output:` marks numbers of one machine and time: not run.
A planner alone (no braid-engine beside it) runs its own commands, and without --all those of `slow output:` and `slow text:` are left
out.

Usage: check_outputs.py BRAID [--all] [--write] [PAGE...]       --write puts what is printed into the pages
"""
import concurrent.futures
import difflib
import functools
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^(?P<indent> *)<!-- (?P<slow>slow )?output: (?P<command>(?:(?!-->).)+?) -->\n\n?(?P=indent)```\n(?P<shown>.*?)^(?P=indent)```$", re.M | re.S)
TEXT = re.compile(r"^<!-- (?P<slow>slow )?text: (?P<command>(?:(?!-->).)+?) -->\n\n?(?P<shown>.*?)^<!-- end -->$", re.M | re.S)
NEEDS_ALL = re.compile(r"\bbraid (train|sft|rm|export|eval|generate|score|profile|doctor|config|data|tokenize|reward-test)\b")
VARIES = re.compile(r"(?<= in )\d+(\.\d+)? (s|ms)$|^\d\d:\d\d:\d\d(?= )", re.M)
LIMIT_S = 3600  # of a command; the slowest takes ten minutes on two cores, and longer beside other work


@functools.lru_cache(maxsize=None)
def printed(braid, command):
    """What a command prints, and whether it ended well."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "bin").mkdir()
        (Path(folder) / "bin" / "braid").symlink_to(braid)
        surroundings = {**os.environ, "PATH": f"{folder}/bin:{os.environ['PATH']}", "OUT": folder}
        child = subprocess.Popen(["bash", "-c", command], cwd=ROOT, env=surroundings, text=True, stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT, start_new_session=True)
        try:
            out = child.communicate(timeout=LIMIT_S)[0]
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            sys.exit(f"{command}: has not ended after {LIMIT_S} s")
        return out.replace(f"{folder}/", "").replace(str(braid), "braid").rstrip() + "\n", child.returncode == 0


def refreshed(page, braid, slow):
    """The page's text, the same with its outputs made anew, and how many commands ran and were left out."""
    was = text = page.read_text()
    blocks = sorted([*BLOCK.finditer(text), *TEXT.finditer(text)], key=lambda match: match.start())
    has_engine = (braid.parent / "braid-engine").exists()
    chosen = [match for match in blocks if (has_engine or not NEEDS_ALL.search(match.group("command"))) and (slow or not match.groupdict().get("slow"))]
    for match in reversed(chosen):
        now, well = printed(braid, match.group("command"))
        if match.re is TEXT and not well:  # a page's own text is never what a command says when it fails
            sys.exit(f"{page}: {match.group('command')}: {now}")
        now = "".join(match.group("indent") + line for line in now.splitlines(keepends=True)) if match.re is BLOCK else now
        if VARIES.sub("", now) != VARIES.sub("", match.group("shown")):
            text = text[: match.start("shown")] + now + text[match.end("shown"):]
    return was, text, len(chosen), len(blocks) - len(chosen)


def main():
    write, slow = "--write" in sys.argv, "--all" in sys.argv
    names = [argument for argument in sys.argv[1:] if argument not in ("--write", "--all")]
    braid, pages = Path(names[0]).resolve(), [Path(name).resolve() for name in names[1:]]
    pages = pages or sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/**/*.md")])
    stale, ran, left = 0, 0, 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for page, (was, text, count, without) in zip(pages, pool.map(lambda page: refreshed(page, braid, slow), pages)):
            ran, left = ran + count, left + without
            if text != was and write:
                page.write_text(text)
                print(f"{page.relative_to(ROOT)}: written")
            elif text != was:
                stale += 1
                name = str(page.relative_to(ROOT))
                print("".join(difflib.unified_diff(was.splitlines(True), text.splitlines(True), name, f"{name}, as printed now")), end="")
    print(f"outputs: {ran} commands run, {left} left out (slow, or no braid-engine); {stale} pages show something else")
    if stale:
        print(f"tools/check_outputs.py {names[0]} --write mends them")
    sys.exit(1 if stale else 0)


if __name__ == "__main__":
    main()
