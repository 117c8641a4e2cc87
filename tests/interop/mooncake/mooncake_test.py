"""Railhop's engine and Mooncake's own, as it is on PyPI, over TCP: each in both roles.

Usage: mooncake_test.py PACKAGE_FOLDER PEER_PYTHON [unittest arguments]

PACKAGE_FOLDER holds the package railhop, PEER_PYTHON has mooncake installed (./dev makes it). Ends
with code 77, which ctest shows as skipped, where it has not.
"""

import contextlib
import json
import os
import subprocess
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGE, PEER_PYTHON = None, None
MIB = 1 << 20
MODES = {
    "acknowledged": {},
    "version 1": {"MC_TCP_PROTO": "1"},
    "connection pool": {"MC_TCP_ENABLE_CONNECTION_POOL": "1"},
}


class Engine:
    def __init__(self, kind, settings):
        environment = dict(os.environ, **settings)
        if kind == "railhop":
            environment["PYTHONPATH"] = PACKAGE
            command = ["/usr/bin/python3"]
        else:
            environment.update(MC_FORCE_TCP="1", MC_LOG_LEVEL="ERROR", GLOG_minloglevel="2")
            command = [PEER_PYTHON]
        self.process = subprocess.Popen(
            command + [os.path.join(HERE, "engine_peer.py"), kind + ".engine"], env=environment,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        hello = self._read()
        self.name, self.address = hello["name"], hello["address"]

    def _read(self):
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"the engine ended with code {self.process.wait()}")
        return json.loads(line)

    def ask(self, *words):
        self.process.stdin.write(json.dumps(words) + "\n")
        self.process.stdin.flush()
        return self._read()

    def kill(self):
        self.process.kill()
        self.close()

    def close(self):
        if not self.process.stdin.closed:
            self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


class PairTest:
    """Run with Railhop on one side and Mooncake on the other, in all modes."""

    initiator, target = None, None

    @contextlib.contextmanager
    def pair(self, settings):
        initiator, target = Engine(self.initiator, settings), Engine(self.target, settings)
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
            gone = Engine(self.target, {})
            gone.kill()
            self.assertNotEqual(initiator.ask("probe", gone.name), 0)

        self.in_each_mode(check)

    def test_target_that_dies_and_another_that_comes(self):
        def check(_, initiator, target):
            self.assertEqual(initiator.ask("sync", "write", target.name, target.address, 0, MIB), 0)
            target.kill()
            self.assertEqual(initiator.ask("sync", "write", target.name, target.address, 0, MIB),
                             -1)
            another = Engine(self.target, {})
            self.assertEqual(initiator.ask("sync", "write", another.name, another.address, 0,
                                           16 * MIB), 0)
            self.assert_equal_memory(initiator, another)
            another.close()

        self.in_each_mode(check)


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
