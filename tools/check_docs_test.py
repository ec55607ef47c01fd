#!/usr/bin/env python3
"""Holds check_docs.py against small repositories with one fault each: it must name the fault, and nothing in the one without. And
wrap_pages.py against single lines."""
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from check_docs import SEARCHED
from wrap_pages import WIDTH, too_long, wrap

CHECK = Path(__file__).resolve().with_name("check_docs.py")
COMMAND = "<!-- output: braid --version -->\n```\nbraid 1\n```\n"
NATURAL = sorted({name for names in SEARCHED.values() for name in names})
QUESTIONS = "".join(f"| Where is {name}? | [page](../{name}) |\n" for name in NATURAL if name.startswith("docs/"))
INDEX = ("# Pages\n\n[tree](../README.md) [one](../examples/one/README.md)\n\n| question | page |\n|---|---|\n| What is a? | [a](a.md){} |\n"
         f"| What is a word? | [words](glossary.md) |\n{QUESTIONS}\n{COMMAND}")
WORDS = ("data parallel (`dp`)", "deterministic", "gradient accumulation", "gradient checkpointing", "mixed precision", "offload", "pipeline parallel",
         "tensor parallel")


def glossary(*words):
    return "# Words\n\n| word | meaning |\n|---|---|\n" + "".join(f"| {word} | what it means |\n" for word in words) + "\n" + COMMAND


def searched(name):
    """The words that people search for on a page, a line each."""
    return "\n".join(word for word, names in SEARCHED.items() if name in names)


FILES = {
    **{name: f"# Page\n\n{searched(name)}\n\n{COMMAND}" for name in NATURAL},
    "README.md": f"# Tree\n\n[All pages](docs/README.md)\n\n{searched('README.md')}\n\n```sh runnable\nbraid --version\n```\n",
    "docs/glossary.md": glossary(*WORDS),
    "docs/README.md": INDEX.format(""),
    "docs/a.md": f"# A\n\n## Two words\n\n[here](#two-words)\n\n{COMMAND}",
    "examples/one/README.md": f"# One\n\n{COMMAND}",
    "src/base/text.h": "// As docs/a.md says.\n",
}


def faults(**changed):
    """What the check says of the tree with these files replaced (in names, "_in_" stands for a slash, "_dot_" for a point)."""
    files = {**FILES, **{name.replace("_in_", "/").replace("_dot_", "."): text for name, text in changed.items()}}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        for name, text in {**files, "tools/check_docs.py": CHECK.read_text()}.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        subprocess.run(["git", "init", "-q", folder], check=True)
        ended = subprocess.run([sys.executable, root / "tools" / "check_docs.py"], capture_output=True, text=True)
        return [] if ended.returncode == 0 else ended.stdout.splitlines()


class CheckDocs(unittest.TestCase):
    def only(self, expected, **changed):
        found = faults(**changed)
        self.assertEqual(len(found), 1, found)
        self.assertIn(expected, found[0])

    def test_a_tree_without_fault(self):
        self.assertEqual(faults(), [])

    def test_a_link_to_nothing(self):
        self.only("docs/a.md: gone.md does not exist", docs_in_a_dot_md=f"[x](gone.md)\n\n{COMMAND}")

    def test_a_heading_that_is_not_there(self):
        self.only("has no such heading", docs_in_a_dot_md=f"[x](#other)\n\n{COMMAND}")

    def test_a_file_that_is_not_there(self):
        self.only("`base/gone.h` is no file", docs_in_a_dot_md=f"`base/gone.h`\n\n{COMMAND}")

    def test_a_first_mention_that_is_no_link(self):
        self.only("`base/text.h` is not a link", docs_in_a_dot_md=f"`base/text.h`\n\n{COMMAND}")

    def test_a_block_that_nothing_made(self):
        self.only("a block without a language needs", docs_in_a_dot_md=f"{COMMAND}\n```\nmade up\n```\n")

    def test_a_command_without_its_block(self):
        self.only("nothing stands below", docs_in_a_dot_md=f"{COMMAND}\n<!-- output: braid -->\n\nText.\n")

    def test_a_message_that_escapes_the_check(self):
        self.only("a message of the program stands in a block", docs_in_a_dot_md=f"{COMMAND}\nText:\n\n    braid: error: no\n")

    def test_pages_that_run_no_command(self):
        self.only("docs/a.md: runs no command", docs_in_a_dot_md="# A\n")
        self.only("docs/a_appendix.md: runs no command", docs_in_a_appendix_dot_md="# A\n", docs_in_README_dot_md=INDEX.format(" [b](a_appendix.md)"))
        self.only("examples/one/README.md: runs no command", examples_in_one_in_README_dot_md="# One\n")
        self.only("README.md: runs no command", README_dot_md=f"# Tree\n\n[All pages](docs/README.md)\n\n{searched('README.md')}\n")

    def test_pages_that_tell_history(self):
        self.only("docs/a.md: line 4: 'no longer' tells history", docs_in_a_dot_md="# A\n\nA plan\nno longer fits.\n\n" + COMMAND)
        self.only("'is now' tells history", docs_in_a_dot_md="# A\n\nIt is now fast.\n\n" + COMMAND)
        self.only("'in that hour' tells history", docs_in_a_dot_md="# A\n\nIt was fast in that hour.\n\n" + COMMAND)
        self.only("'passed the second time' tells history", docs_in_a_dot_md="# A\n\nIt passed the second time.\n\n" + COMMAND)
        self.only("'| first time |' tells history", docs_in_a_dot_md="# A\n\n| | s |\n|---|---|\n| first time | 5 |\n\n" + COMMAND)
        self.only("'has not become' tells history", docs_in_a_dot_md="# A\n\nIt has not become smaller.\n\n" + COMMAND)
        self.only("'then saved' tells history", docs_in_a_dot_md="# A\n\nOne unit then saved 55 s.\n\n" + COMMAND)
        self.only("'states of the code' tells history", docs_in_a_dot_md="# A\n\nOf two states of the code.\n\n" + COMMAND)
        self.assertEqual(faults(docs_in_a_dot_md="# A\n\nIt is read for the first time, and fast the second time.\n\n" + COMMAND), [])
        self.assertEqual(faults(docs_in_a_dot_md="# A\n\nIt is there before the step, is used to train, and `is now` is code.\n\n" + COMMAND), [])

    def test_a_glossary_out_of_order(self):
        self.only("'bubble' stands behind 'tensor parallel'", docs_in_glossary_dot_md=glossary(*WORDS, "bubble\\*"))

    def test_a_word_that_people_search_for(self):
        self.only("'offload', for which people search, is not there", docs_in_glossary_dot_md=glossary(*(word for word in WORDS if word != "offload")))

    def test_an_abbreviation_of_many_pages(self):
        uses = {f"docs_in_{name}_dot_md": f"# Page\n\nGAEs and CPUs. `RLOO` is code.\n\n{COMMAND}" for name in "abc"}
        found = {"docs_in_README_dot_md": INDEX.format(" [b](b.md) [c](c.md)")}
        self.only("'GAE' is not there, and 3 pages use it", **uses, **found)
        self.assertEqual(faults(**uses, **found, docs_in_glossary_dot_md=glossary(*WORDS[:2], "GAE", *WORDS[2:])), [])

    def test_a_page_that_the_index_lacks(self):
        found = faults(docs_in_b_dot_md=COMMAND)
        self.assertEqual(len(found), 2, found)
        self.assertIn("docs/b.md is not in the index", found[0])
        self.assertIn("no question leads to docs/b.md", found[1])

    def test_a_page_without_a_question(self):
        self.only("no question leads to docs/b.md", docs_in_b_dot_md=COMMAND, docs_in_README_dot_md=INDEX.format("") + "\n| [b](b.md) | about b |\n")
        self.assertEqual(faults(docs_in_b_dot_md=COMMAND, docs_in_README_dot_md=INDEX.format(", [b](b.md)")), [])

    def test_a_word_that_its_page_lacks_or_breaks(self):
        self.only("docs/models.md: 'mixed precision', for which people search", docs_in_models_dot_md=f"# Page\n\n{COMMAND}")
        self.only("docs/models.md: 'mixed precision', for which people search", docs_in_models_dot_md=f"# Page\n\nmixed\nprecision\n\n{COMMAND}")

    def test_a_source_that_sends_to_a_page_that_is_gone(self):
        self.only("docs/gone.md does not exist", src_in_base_in_text_dot_h="// As docs/gone.md says.\n")

    def test_a_comment_that_names_a_source_that_is_gone(self):
        self.only("names gone.h, which is not there", src_in_base_in_text_dot_h="// Like gone.h.\n")


class WrapPages(unittest.TestCase):
    def test_a_word_that_people_search_for_is_not_broken(self):
        line = (WIDTH - 9) * "x"
        self.assertEqual(wrap(f"{line} pipeline parallel.\n"), f"{line}\npipeline parallel.\n")
        self.assertEqual(wrap(f"{line} pipeline stages.\n"), f"{line} pipeline\nstages.\n")

    def test_lines_that_are_to_be_broken_by_hand(self):
        long = (WIDTH + 1) * "x"
        for fault in (f"`{long}`", f"    {long}"):
            self.assertEqual(list(too_long(f"# Page\n\n{fault}\n")), [3])
        for fine in (f"| {long} |", f"<!-- output: {long} -->", f"```sh\n{long}\n```", f"<!-- text: x -->\n{long}\n<!-- end -->", f"[page]({long})"):
            self.assertEqual(list(too_long(f"# Page\n\n{fine}\n")), [])


if __name__ == "__main__":
    unittest.main()
