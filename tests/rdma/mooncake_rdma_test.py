"""Railhop's engine and Mooncake's own, as it is on PyPI, over RDMA: each in both roles.

Usage: mooncake_rdma_test.py PACKAGE_FOLDER PEER_PYTHON [unittest arguments]

PACKAGE_FOLDER holds the package railhop, PEER_PYTHON has mooncake installed (./dev test makes it). Ends
with code 77, which ctest shows as skipped, where it has not. For the rails of tools/rdma-vm.
"""

import contextlib
import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "interop"))
from engines import Engine

PACKAGE, PEER_PYTHON = None, None
KIB = 1 << 10


def start(kind, device):
    settings = {"ENGINE_PROTOCOL": "rdma", "ENGINE_DEVICES": device}
    if kind == "railhop":
        settings["RAILHOP_CONFIG"] = f"{os.environ['TEST_TMPDIR']}/{device}.textproto"
        with open(settings["RAILHOP_CONFIG"], "w", encoding="utf-8") as file:
            file.write(f'nics {{ name: "{device}" rdma {{}} }}\n')
    return Engine(kind, PACKAGE if kind == "railhop" else PEER_PYTHON, settings)


class PairTest:
    """Run with Railhop on one side and Mooncake on the other."""

    initiator, target = None, None

    @contextlib.contextmanager
    def pair(self):
        initiator, target = start(self.initiator, "rxe0"), start(self.target, "rxe1")
        try:
            initiator.ask("fill", "i")
            target.ask("fill", "t")
            yield initiator, target
        finally:
            initiator.close()
            target.close()

    def assert_equal_memory(self, a, b):
        self.assertEqual(a.ask("digest"), b.ask("digest"))

    def test_the_whole_memory_written_and_read_back(self):
        with self.pair() as (initiator, target):
            self.assertEqual(initiator.ask("first", target.name), target.address)
            where = (target.name, target.address, 0, 16 << 20)
            self.assertEqual(initiator.ask("sync", "write", *where), 0)
            self.assert_equal_memory(initiator, target)
            target.ask("fill", "other")
            self.assertEqual(initiator.ask("sync", "read", *where), 0)
            self.assert_equal_memory(initiator, target)

    def test_batches_of_slices(self):
        with self.pair() as (initiator, target):
            for opcode in ("write", "read"):
                self.assertEqual(initiator.ask("batch", opcode, target.name, target.address, 64,
                                               64 * KIB), 0)

    def test_both_ways_over_what_one_of_them_connected(self):
        with self.pair() as (initiator, target):
            for a, b in ((initiator, target), (target, initiator), (initiator, target)):
                self.assertEqual(a.ask("batch", "write", b.name, b.address, 16, 1000 * KIB), 0)

    def test_unregistered_memory_is_refused(self):
        with self.pair() as (initiator, target):
            past = target.address + (32 << 20)
            self.assertEqual(initiator.ask("sync", "write", target.name, past, 0, 4096), -1)


class RailhopToMooncakeTest(PairTest, unittest.TestCase):
    initiator, target = "railhop", "mooncake"


class MooncakeToRailhopTest(PairTest, unittest.TestCase):
    initiator, target = "mooncake", "railhop"


if __name__ == "__main__":
    PACKAGE, PEER_PYTHON = sys.argv[1:3]
    probe = [PEER_PYTHON, "-c", "import mooncake.engine"]
    if not os.path.exists(PEER_PYTHON) or subprocess.run(probe, capture_output=True).returncode != 0:
        print("skipped: there is no mooncake here to test against")
        sys.exit(77)
    unittest.main(argv=sys.argv[:1] + sys.argv[3:])
