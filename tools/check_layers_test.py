#!/usr/bin/env python3
"""Holds check_layers.py against small trees with one fault each: it must name the fault, and nothing in the tree without one."""
import tempfile
import unittest
from pathlib import Path

import check_layers

LAYERS = '[plan]\nbase = []\nplan = ["base"]\n\n[run]\nhost = ["base"]\nruntime = ["host", "plan"]\n'
FILES = {
    "base/text.h": "namespace braid::inline base {\nstruct Text {\n};\n}  // namespace braid::inline base\n",
    "plan/plan.h": '#include "base/text.h"\nnamespace braid::inline plan {\nstruct Plan;\nclass Planner {\n};\n}  // namespace braid::inline plan\n',
    "host/file.cc": '#include "base/text.h"\n#include <fstream>\nnamespace {\nstruct Local {\n};\n}  // namespace\n',
    "runtime/run.cc": '#include "host/file.h"\n#include "plan/plan.h"\nnamespace {\nstruct Local {\n};\n}  // namespace\n',
}


def faults(layers=LAYERS, **changed):
    """What the check says of the tree with these files replaced (in names, "_in_" stands for the folder's slash)."""
    files = {**FILES, **{name.replace("_in_", "/", 1).replace("_dot_", "."): text for name, text in changed.items()}}
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "tools").mkdir()
        (root / "tools" / "layers.toml").write_text(layers)
        for name, text in files.items():
            path = root / "src" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return [fault.replace(f"{root}/", "") for fault in check_layers.violations(root)]


class CheckLayers(unittest.TestCase):
    def test_a_tree_without_fault(self):
        self.assertEqual(faults(), [])

    def test_an_include_without_an_edge(self):
        found = faults(plan_in_plan_dot_h='#include "base/text.h"\n#include "host/file.h"\n')
        self.assertEqual(found, ["src/plan/plan.h:2: plan may not include host (tools/layers.toml)"])

    def test_what_a_module_never_sees(self):
        layers = LAYERS + '\n[never]\nruntime = ["base"]\n'
        self.assertEqual(faults(layers), [])
        found = faults(layers, runtime_in_run_dot_cc='#include "host/file.h"\n#include "plan/plan.h"\n#include "base/text.h"\n')
        self.assertEqual(found, ["src/runtime/run.cc:3: runtime may not include base (tools/layers.toml)"])

    def test_an_edge_that_nothing_uses(self):
        found = faults(runtime_in_run_dot_cc='#include "host/file.h"\n')
        self.assertEqual(found, ["tools/layers.toml: runtime includes nothing of plan"])

    def test_a_cycle(self):
        found = faults(LAYERS.replace("base = []", 'base = ["plan"]'))
        self.assertEqual(found, ["tools/layers.toml: cycle: base -> plan -> base"])

    def test_an_undeclared_module(self):
        self.assertEqual(faults(other_in_a_dot_cc=""), ["src/other: module is not declared in tools/layers.toml"])

    def test_a_clock_on_the_plan_side(self):
        found = faults(base_in_text_dot_h="#include <chrono>\n")
        self.assertEqual(found, ["src/base/text.h:1: the plan side has no files, clocks or threads"])

    def test_two_types_of_one_name(self):
        found = faults(host_in_plan_dot_h='#include "base/text.h"\nnamespace braid::inline host {\nclass Planner final : public Base {\n};\n}  // namespace braid::inline host\n')
        self.assertEqual(found, ["braid::Planner is defined in src/host/plan.h and src/plan/plan.h: one of them needs another name"])

    def test_two_other_names_for_types(self):
        found = faults(host_in_plan_dot_h='#include "base/text.h"\nnamespace braid::inline host {\nusing Planner = int;\n}  // namespace braid::inline host\n')
        self.assertEqual(found, ["braid::Planner is defined in src/host/plan.h and src/plan/plan.h: one of them needs another name"])

    def test_the_namespace_of_another_module(self):
        found = faults(plan_in_plan_dot_h='#include "base/text.h"\nnamespace braid::inline base {\nclass Text;\n}\nnamespace braid {\nclass Planner {\n};\n}\n')
        self.assertEqual(found, ["src/plan/plan.h:5: the namespace of plan is braid::inline plan"])

    def test_a_folder_of_a_module_that_is_one_of_its_own(self):
        layers = LAYERS.replace('[run]', '"host/names" = ["base"]\n[run]')
        names = '#include "base/text.h"\nnamespace braid::inline host_names {\nint names();\n}  // namespace braid::inline host_names\n'
        self.assertEqual(faults(layers, **{"host_in_names/names_dot_h": names}), [])
        found = faults(layers, **{"host_in_names/names_dot_h": names + '#include "host/file.h"\n'})
        self.assertEqual(found, ["src/host/names/names.h:5: host/names may not include host (tools/layers.toml)"])


if __name__ == "__main__":
    unittest.main()
