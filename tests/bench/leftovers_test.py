"""Ends benchmarks in every way, and looks at what they leave in shared memory.

Usage: leftovers_test.py IDLE_BENCHMARK PIPELINE_BENCHMARK [unittest arguments]
"""

import os
import pathlib
import signal
import subprocess
import sys
import time
import unittest

BENCHMARKS = {}
CANNOT_MEASURE = 77
TIMEOUT_S = 120


def descendants(parent):
    """Of a process: those below it, the nearest first."""
    found = []
    for path in pathlib.Path(f"/proc/{parent}/task").glob("*/children"):
        for child in path.read_text().split():
            found += [int(child), *descendants(int(child))]
    return found


class LeftoversTest(unittest.TestCase):
    def start(self, kind):
        """A benchmark that would run for minutes, its folder and its processes once they work."""
        process = subprocess.Popen([BENCHMARKS[kind], "--pairs", "1000", "--sample-ms", "1000"],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        until = time.monotonic() + TIMEOUT_S
        while time.monotonic() < until:
            if process.poll() == CANNOT_MEASURE:
                self.skipTest(process.stderr.read())
            self.assertIsNone(process.poll(), "it has ended")
            folders = list(pathlib.Path("/dev/shm").glob(f"railhop-{kind}-{process.pid}.*"))
            below = descendants(process.pid)
            if folders and any(folders[0].iterdir()) and len(below) > 1:
                return process, folders[0], below
            time.sleep(0.02)
        self.fail("its folder or its processes did not appear")

    def assert_all_end(self, pids):
        until = time.monotonic() + TIMEOUT_S
        while any(pathlib.Path(f"/proc/{pid}").exists() for pid in pids):
            self.assertLess(time.monotonic(), until, "some processes go on")
            time.sleep(0.02)

    def test_an_interrupted_one_leaves_nothing(self):
        for kind in BENCHMARKS:
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                with self.subTest(kind=kind, signal=number):
                    process, folder, below = self.start(kind)
                    process.send_signal(number)
                    process.communicate(timeout=TIMEOUT_S)
                    self.assertFalse(folder.exists())
                    self.assertEqual(process.returncode, 128 + number)
                    self.assert_all_end(below)

    def test_one_that_fails_leaves_nothing(self):
        process, folder, below = self.start("pipeline")
        os.kill(below[-1], signal.SIGKILL)
        _, errors = process.communicate(timeout=TIMEOUT_S)
        self.assertFalse(folder.exists())
        self.assertEqual(process.returncode, 1)
        self.assertIn("pipeline: ", errors)

    def test_one_whose_process_is_killed_leaves_nothing(self):
        for kind in BENCHMARKS:
            with self.subTest(kind=kind):
                process, folder, below = self.start(kind)
                os.kill(below[0], signal.SIGKILL)
                _, errors = process.communicate(timeout=TIMEOUT_S)
                self.assertFalse(folder.exists())
                self.assertEqual(process.returncode, 128 + signal.SIGKILL)
                self.assertIn("killed by signal 9", errors)

    def test_what_a_killed_one_leaves_the_next_removes(self):
        for kind, binary in BENCHMARKS.items():
            with self.subTest(kind=kind):
                process, folder, below = self.start(kind)
                process.kill()
                process.communicate(timeout=TIMEOUT_S)
                self.assert_all_end(below)
                self.assertTrue(folder.exists())
                done = subprocess.run([binary, "--pairs", "1", "--sample-ms", "1"],
                                      capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertFalse(folder.exists())


if __name__ == "__main__":
    BENCHMARKS = {"idle": sys.argv.pop(1), "pipeline": sys.argv.pop(1)}
    unittest.main()
