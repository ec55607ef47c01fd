#!/usr/bin/env python3
"""Holds check_symbols.py against what objdump prints of programs: too new a symbol has to be named, and nothing of one that is not."""
import unittest

import check_symbols

LINE = "0000000000000000      DF *UND*  0000000000000000 ({}) {}\n"


def faults(*needs):
    return check_symbols.judge("braid", check_symbols.needed("".join(LINE.format(version, symbol) for version, symbol in needs)))[1]


class CheckSymbols(unittest.TestCase):
    def test_old_enough(self):
        self.assertEqual(faults(("GLIBC_2.2.5", "printf"), ("GLIBC_2.35", "hypot"), ("GLIBCXX_3.4.30", "_ZSt3x")), [])

    def test_a_newer_one_is_named(self):
        self.assertEqual(faults(("GLIBC_2.34", "printf"), ("GLIBC_2.36", "arc4random")), ["braid: newer than GLIBC_2.35: arc4random"])
        self.assertEqual(faults(("GLIBC_2.34", "printf"), ("GLIBCXX_3.4.31", "_ZSt3x")), ["braid: newer than GLIBCXX_3.4.30: _ZSt3x"])

    def test_output_that_is_not_understood(self):
        self.assertEqual(len(faults()), 1)


if __name__ == "__main__":
    unittest.main()
