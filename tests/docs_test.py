"""Checks that each test which the documentation names as a proof exists: Suite.Test in docs/*.md; and
that its examples are those that are built and run as tests (docs/examples)."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
NAMED = re.compile(r"\b([A-Z]\w*Test)\.([A-Z]\w+)\b")
DEFINED = re.compile(r"\bTEST(?:_F|_P)?\(\s*(\w+)\s*,\s*(\w+)\s*\)")


def named_tests(text):
    return set(NAMED.findall(text))


def defined_tests(root):
    return {test for path in root.rglob("*_test.cc")
            for test in DEFINED.findall(path.read_text(encoding="utf-8"))}


class DocsTest(unittest.TestCase):
    def test_finds_names(self):
        self.assertEqual(named_tests("see `LaneTest.GoesOn`, docs/x.md, tests.Foo"),
                         {("LaneTest", "GoesOn")})

    def test_each_named_test_exists(self):
        defined = defined_tests(ROOT / "tests")
        for page in sorted((ROOT / "docs").glob("*.md")):
            for name in sorted(named_tests(page.read_text(encoding="utf-8"))):
                with self.subTest(page=page.name, test=".".join(name)):
                    self.assertIn(name, defined)

    def test_the_examples_are_those_that_are_tested(self):
        page = (ROOT / "docs/engine.md").read_text(encoding="utf-8")
        printed = re.findall(r"^```\w+\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
        tested = [path.read_text(encoding="utf-8")
                  for path in (ROOT / "docs/examples").iterdir() if path.is_file()]
        self.assertEqual(sorted(printed), sorted(tested))

    def test_the_degrade_table_names_a_test_in_each_row(self):
        rows = [line for line in (ROOT / "docs/degrade.md").read_text(encoding="utf-8").splitlines()
                if line.startswith("|")][2:]
        self.assertGreater(len(rows), 20)
        for row in rows:
            self.assertTrue(named_tests(row), row)

    def test_each_rule_of_the_ring_has_a_test_of_its_name(self):
        page = (ROOT / "docs/ring.md").read_text(encoding="utf-8")
        shown = {int(number) for _, test in named_tests(page)
                 for number in re.findall(r"^Rule(\d+)", test)}
        self.assertEqual(shown, set(range(1, 13)))


if __name__ == "__main__":
    unittest.main()
