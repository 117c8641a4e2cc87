"""Gives benchmarks wrong command lines: each is refused at once, with 2.

Usage: arguments_test.py BENCHMARK... (railhop_bench_NAME)
"""

import pathlib
import re
import subprocess
import sys
import unittest

BENCHMARKS = []
POINTS = pathlib.Path(__file__).resolve().parent.parent / "faults/fault_points.h"


class ArgumentsTest(unittest.TestCase):
    def assert_refused(self, binary, *arguments):
        done = subprocess.run([binary, *arguments], capture_output=True, text=True, timeout=20,
                              check=False)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertEqual(done.stdout, "")
        return done.stderr

    def test_a_file_that_cannot_be_written(self):
        for binary in BENCHMARKS:
            for path in ("/nowhere/lines", "/tmp"):
                with self.subTest(binary=binary, path=path):
                    said = self.assert_refused(binary, "--save", path)
                    self.assertRegex(said, f"--save: the file {path} cannot be written: .*; give another")

    def test_a_fault_point_that_is_not_there(self):
        faults, = [binary for binary in BENCHMARKS if binary.endswith("_faults")]
        names = re.findall(r'\{"((?:sender|relay)\.\w+)"', POINTS.read_text(encoding="utf-8"))
        self.assertGreater(len(names), 20)
        for points in ("nonsense", "relay,nonsense"):
            with self.subTest(points=points):
                said = self.assert_refused(faults, "--points", points)
                self.assertIn('no point\'s name contains "nonsense"', said)
                self.assertIn(", ".join(names), said)


if __name__ == "__main__":
    BENCHMARKS = sys.argv[1:]
    unittest.main(argv=sys.argv[:1])
