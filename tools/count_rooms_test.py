#!/usr/bin/env python3
"""Holds count_rooms.py against a tree of three rooms: its arrows and floors, and a walk that goes down, back up and down again."""
import tempfile
import unittest
from pathlib import Path

import count_rooms

FILES = {
    "tools/layers.toml": '[plan]\nbase = []\nplan = ["base"]\nsim = ["plan"]\n',
    "src/base/text.cc": "namespace braid {\nvoid print(const Plan& plan, int width) {\n}\n}\n",
    "src/plan/plan.h": '#include "base/text.h"\nstruct Plan {};\n',
    "src/plan/plan.cc": '#include "plan/plan.h"\nnamespace braid {\nbool check(const Plan& given) {\n  print(given, 80);  // check(given) again\n  return rest(given);\n}\n'
                        "bool rest(const Plan& all) {\n  return all.calls.empty();\n}\n}\n",
    "src/sim/sim.cc": '#include "plan/plan.h"\nnamespace braid {\nTrace run(\n    const Plan& plan, double seconds) {\n  if (!check(plan) || !unknown(plan)) return {};\n'
                      '  log("plan");\n  const Clock clock(plan.calls, seconds);\n  return trace_of(clock);\n}\n'
                      "Clock::Clock(const Calls& calls, double seconds)\n    : calls_(calls) {\n}\n}\n",
    "src/sim/sim_test.cc": '#include "plan/plan.h"\nvoid check(const Plan& plan) {\n}\n',
    "apps/braid/main.cc": '#include "sim/sim.h"\nint main(int count) {\n  run(count);\n}\n',
}


class CountRooms(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        root = Path(self.folder.name)
        for name, text in FILES.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        self.tree = count_rooms.Tree(root)

    def tearDown(self):
        self.folder.cleanup()

    def test_rooms_and_arrows(self):
        self.assertEqual(sorted(self.tree.files), ["apps", "base", "plan", "sim"])
        self.assertEqual(sorted(self.tree.arrows), [("apps", "sim"), ("plan", "base"), ("sim", "plan")])
        self.assertEqual([self.tree.floor(room) for room in ("base", "plan", "sim", "apps")], [1, 2, 3, 4])

    def test_a_walk(self):
        [start] = count_rooms.starts(self.tree, "sim.cc:run:plan")
        names = [f"{f.room}:{f.name}" for f in self.tree.stays(start, "plan", set())]
        self.assertEqual(names, ["sim:run", "plan:check", "base:print", "plan:rest", "sim:Clock"])
        self.assertEqual(self.tree.walk(start, "plan"), (5, 3, 3, 4, 2))

    def test_a_report(self):
        first, _, walk, whole = count_rooms.report(self.tree.root, ["run:plan", "none:plan"])
        self.assertEqual(first, "rooms 4, the largest plan with 2 files; arrows between them 3, 2 of them declared; floors 4")
        self.assertEqual(walk.split(), ["run:plan", "5", "3", "3", "4", "2"])
        self.assertEqual(whole.split(), ["all", "5", "4", "2"])


if __name__ == "__main__":
    unittest.main()
