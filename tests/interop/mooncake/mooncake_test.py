"""Railhop's engine and Mooncake's own, as it is on PyPI, over TCP: each in both roles.

Usage: mooncake_test.py PACKAGE_FOLDER PEER_PYTHON [unittest arguments]

PACKAGE_FOLDER holds the package railhop, PEER_PYTHON has mooncake installed (./dev makes it). Ends
with code 77, which ctest shows as skipped, where it has not.
"""

import contextlib
import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir))
from engines import Engine, MetadataServer

PACKAGE, PEER_PYTHON = None, None
MIB = 1 << 20
MODES = {
    "acknowledged": {},
    "version 1": {"MC_TCP_PROTO": "1"},
    "connection pool": {"MC_TCP_ENABLE_CONNECTION_POOL": "1"},
}


def start(kind, settings, *arguments):
    return Engine(kind, PACKAGE if kind == "railhop" else PEER_PYTHON, settings, *arguments)


class PairTest:
    """Run with Railhop on one side and Mooncake on the other, in all modes."""

    initiator, target = None, None

    @contextlib.contextmanager
    def pair(self, settings):
        initiator, target = start(self.initiator, settings), start(self.target, settings)
        try:
            initiator.ask("fill", "i")
            target.ask("fill", "t")
            yield initiator, target
        finally:
            initiator.close()
            target.close()

    def in_each_mode(self, check):
        for mode, settings in MODES.items():
            with self.subTest(mode=mode), self.pair(settings) as (initiator, target):
                check(mode, initiator, target)

    def assert_equal_memory(self, a, b):
        self.assertEqual(a.ask("digest"), b.ask("digest"))

    def test_one_large_write_and_read(self):
        def check(_, initiator, target):
            self.assertEqual(initiator.ask("first", target.name), target.address)
            where = (target.name, target.address, 0, 16 * MIB)
            self.assertEqual(initiator.ask("sync", "write", *where), 0)
            self.assert_equal_memory(initiator, target)
            target.ask("fill", "anew")
            self.assertEqual(initiator.ask("sync", "read", *where), 0)
            self.assert_equal_memory(initiator, target)

        self.in_each_mode(check)

    def test_batches(self):
        def check(_, initiator, target):
            for count, length in ((256, 65536), (1000, 1), (16, MIB)):
                for opcode in ("write", "read"):
                    self.assertEqual(initiator.ask("batch", opcode, target.name, target.address,
                                                   count, length), 0)
            self.assert_equal_memory(initiator, target)

        self.in_each_mode(check)

    # Upstream takes about 2000 requests at a time.
    def test_scattered_batch(self):
        def check(_, initiator, target):
            self.assertEqual(initiator.ask("batch", "write", target.name, target.address, 1500,
                                           777, 8000), 0)
            self.assertNotEqual(initiator.ask("digest"), target.ask("digest"))
            self.assertEqual(initiator.ask("batch", "read", target.name, target.address, 1,
                                           16 * MIB), 0)
            self.assert_equal_memory(initiator, target)

        self.in_each_mode(check)

    def test_asynchronous(self):
        def check(_, initiator, target):
            self.assertEqual(initiator.ask("asynchronous", target.name, target.address, 5 * MIB), 0)

        self.in_each_mode(check)

    def test_memory_that_is_not_registered(self):
        def check(mode, initiator, target):
            self.assertEqual(initiator.ask("sync", "read", target.name, 4096, 0, 100), -1)
            # A version 1 write is over when it is in the socket, so upstream cannot tell.
            if mode != "version 1" or self.initiator == "railhop":
                self.assertEqual(initiator.ask("sync", "write", target.name, 4096, 0, 100), -1)
            self.assertEqual(initiator.ask("sync", "write", target.name, target.address, 0, 100), 0)

        self.in_each_mode(check)

    def test_memory_that_was_registered_later(self):
        def check(_, initiator, target):
            where = (target.name, target.address, 0, 64)
            self.assertEqual(initiator.ask("sync", "write", *where), 0)
            later = target.ask("register_more")
            self.assertNotEqual(later, 0)
            self.assertEqual(initiator.ask("sync", "write", target.name, later, 0, MIB), 0)

        self.in_each_mode(check)

    def test_notification_and_probe(self):
        def check(_, initiator, target):
            self.assertEqual(initiator.ask("notify", target.name, target.address, "kv is there"), 0)
            self.assertEqual(target.ask("notes"), [["interop", "kv is there"]])
            self.assertEqual(target.ask("notes"), [])
            self.assertEqual(initiator.ask("probe", target.name), 0)
            gone = start(self.target, {})
            gone.kill()
            self.assertNotEqual(initiator.ask("probe", gone.name), 0)

        self.in_each_mode(check)

    def test_target_that_dies_and_another_that_comes(self):
        def check(_, initiator, target):
            self.assertEqual(initiator.ask("sync", "write", target.name, target.address, 0, MIB), 0)
            target.kill()
            self.assertEqual(initiator.ask("sync", "write", target.name, target.address, 0, MIB),
                             -1)
            another = start(self.target, {})
            self.assertEqual(initiator.ask("sync", "write", another.name, another.address, 0,
                                           16 * MIB), 0)
            self.assert_equal_memory(initiator, another)
            another.close()

        self.in_each_mode(check)


    # Both through one HTTP metadata service, by names of their own.
    def test_found_through_a_metadata_service(self):
        server = MetadataServer()
        initiator = start(self.initiator, {}, server.url, "127.0.0.1:1")
        target = start(self.target, {}, server.url, "127.0.0.1:2")
        self.assertEqual(set(server.keys()),
                         {f"mooncake/{kind}/127.0.0.1:{port}" for kind in ("ram", "rpc_meta")
                          for port in (1, 2)})
        initiator.ask("fill", "i")
        where = (target.name, target.address, 0, 16 * MIB)
        self.assertEqual(initiator.ask("first", target.name), target.address)
        self.assertEqual(initiator.ask("sync", "write", *where), 0)
        self.assert_equal_memory(initiator, target)
        target.ask("fill", "anew")
        self.assertEqual(initiator.ask("sync", "read", *where), 0)
        self.assert_equal_memory(initiator, target)
        self.assertEqual(initiator.ask("notify", target.name, target.address, "kv is there"), 0)
        self.assertEqual(target.ask("notes"), [["interop", "kv is there"]])
        self.assertEqual(target.ask("probe", initiator.name), 0)
        for engine in (initiator, target):
            engine.ask("end")
            engine.close()
        self.assertEqual(server.keys(), [""])
        server.close()


class RailhopToMooncakeTest(PairTest, unittest.TestCase):
    initiator, target = "railhop", "mooncake"


class MooncakeToRailhopTest(PairTest, unittest.TestCase):
    initiator, target = "mooncake", "railhop"


class RailhopToRailhopTest(PairTest, unittest.TestCase):
    initiator, target = "railhop", "railhop"


def peer_is_there():
    try:
        done = subprocess.run([PEER_PYTHON, "-c", "import mooncake.engine"], capture_output=True,
                              text=True)
    except OSError as error:
        return f"{PEER_PYTHON}: {error.strerror}"
    return "" if done.returncode == 0 else done.stderr.strip().splitlines()[-1]


if __name__ == "__main__":
    PACKAGE, PEER_PYTHON = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
    missing = peer_is_there()
    if missing:
        print(f"SKIPPED: mooncake-transfer-engine-non-cuda is not here ({missing})")
        sys.exit(77)
    unittest.main(argv=[sys.argv[0]] + sys.argv[3:], verbosity=2)
