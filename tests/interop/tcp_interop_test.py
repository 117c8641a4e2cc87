"""Railhop's TCP fabric against a peer written from the page of the protocol, in both roles.

Usage: tcp_interop_test.py TCP_PLAYER [unittest arguments]
"""

import random
import subprocess
import sys
import unittest

import tcp_peer

PLAYER = None
SIZE = 9_000_001


class TcpInteropTest(unittest.TestCase):
    def play(self, version):
        target = tcp_peer.Target(SIZE)
        self.addCleanup(target.close)
        result = subprocess.run(
            [PLAYER, "play", f"127.0.0.1:{target.port}:{version}", str(target.ADDRESS), str(SIZE)],
            capture_output=True, text=True, timeout=2 * tcp_peer.PATIENCE_S, check=True)
        expected = bytes((i * 7 + i // 256) & 0xFF for i in range(SIZE))
        self.assertEqual(bytes(target.memory), expected)
        self.assertEqual(target.versions, {version})
        return result.stdout.split("\n")[:-1]

    def test_railhop_initiates_version_2(self):
        self.assertEqual(self.play(2), ["write ok", "read ok", "outside remote access error"])

    def test_railhop_initiates_version_1(self):
        self.assertEqual(self.play(1), ["write ok", "read ok", "outside the target hung up"])

    def serve(self):
        process = subprocess.Popen([PLAYER, "serve", str(SIZE)], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, text=True)

        def end():
            process.stdin.close()
            self.assertEqual(process.wait(tcp_peer.PATIENCE_S), 0)
            process.stdout.close()

        self.addCleanup(end)
        port, address = process.stdout.readline().split()
        return int(port), int(address)

    def connect(self, port, version):
        initiator = tcp_peer.Initiator(port, version)
        self.addCleanup(initiator.close)
        return initiator

    def test_railhop_serves(self):
        port, address = self.serve()
        choose = random.Random(5)
        for version in 1, 2:
            initiator = self.connect(port, version)
            expected = bytearray(initiator.read(address, SIZE))
            for size in [1, 100, 65_536, 3_000_000] + [choose.randrange(1, 9000) for _ in range(200)]:
                begin = choose.randrange(SIZE - size)
                data = choose.randbytes(size)
                self.assertEqual(initiator.write(address + begin, data), 0)
                expected[begin:begin + size] = data
            self.assertEqual(initiator.read(address, SIZE), expected)

    def test_railhop_serves_a_connection_for_each_request(self):
        port, address = self.serve()
        for i in range(300):
            initiator = tcp_peer.Initiator(port, 2)
            self.assertEqual(initiator.write(address + i, bytes([i & 0xFF])), 0)
            initiator.close()
        expected = bytes(i & 0xFF for i in range(300))
        self.assertEqual(self.connect(port, 2).read(address, 300), expected)

    def test_railhop_refuses(self):
        port, address = self.serve()
        for begin, size in (-1, 10), (SIZE, 1), (SIZE - 1, 2), (0, 0):
            old = self.connect(port, 1)
            self.assertEqual(old.read(address + begin, size), b"")
            new = self.connect(port, 2)
            self.assertEqual(new.write(address + begin, bytes(size)), 1)
            self.assertIsNone(new.status())


if __name__ == "__main__":
    PLAYER = sys.argv.pop(1)
    unittest.main()
