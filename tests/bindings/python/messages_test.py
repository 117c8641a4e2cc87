"""What a user of railhop.engine is told of a mistake: each failing call says in one line of the log
what happened, to what, and what to do; a loop of failing calls does not flood it."""

import ctypes
import os
import tempfile
import unittest

from railhop.engine import TransferEngine, TransferOpcode

WRITE = TransferOpcode.Write


class Memory:
    def __init__(self, size):
        self.bytes = bytearray(size)
        self.address = ctypes.addressof((ctypes.c_char * size).from_buffer(self.bytes))


def make_engine():
    engine = TransferEngine()
    assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
    return engine


def lines_of(call):
    """What the call returns, and the lines that it logs."""
    with tempfile.TemporaryFile() as file:
        saved = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            result = call()
        finally:
            os.dup2(saved, 2)
            os.close(saved)
        file.seek(0)
        return result, file.read().decode().splitlines()


class MessagesTest(unittest.TestCase):
    kept = []  # all engines, so that no test meets the name of another one's

    def says(self, call, code, *parts):
        result, lines = lines_of(call)
        self.assertEqual(result, code)
        self.assertEqual(len(lines), 1, lines)
        for part in parts:
            self.assertIn(part, lines[0])

    def setUp(self):
        self.target, self.engine = make_engine(), make_engine()
        self.kept.append((self.target, self.engine))
        self.there, self.here = Memory(4096), Memory(4096)
        self.assertEqual(self.target.register_memory(self.there.address, 4096), 0)
        self.assertEqual(self.engine.register_memory(self.here.address, 4096), 0)
        self.name = f"127.0.0.1:{self.target.get_rpc_port()}"

    def write(self, source, destination, length):
        return lambda: self.engine.transfer_sync_write(self.name, source, destination, length)

    def test_an_unregistered_source(self):
        self.says(self.write(0x5000, self.there.address, 8), -1, f"transfer with {self.name}",
                  "WRITE of 8 bytes, local address 0x5000", f"{self.there.address:#x}",
                  "not inside memory that this engine has registered: register all of it first")

    def test_an_unregistered_target_address(self):
        self.says(self.write(self.here.address, 0x5000, 8), -1, f"transfer with {self.name}",
                  f"remote address 0x5000 of {self.name}",
                  f"not inside memory that {self.name} has registered")

    def test_a_range_that_crosses_the_end(self):
        self.says(self.write(self.here.address, self.there.address + 4090, 8), -1,
                  f"not inside memory that {self.name} has registered")
        self.says(self.write(self.here.address + 4090, self.there.address, 8), -1,
                  "not inside memory that this engine has registered")

    def test_a_range_that_wraps(self):
        self.says(self.write(self.here.address, 2**64 - 4, 8), -1, "wraps around")

    def test_a_batch_names_the_task(self):
        here, there = self.here.address, self.there.address
        self.says(lambda: self.engine.batch_transfer_sync_write(
            self.name, [here, here, here], [there, 0x5000, there], [8, 8, 8]), -1, "task 1: WRITE")

    def test_a_transfer_that_is_not_waited_for(self):
        batch = self.engine.transfer_submit_write(self.name, 0x5000, self.there.address, 8)
        self.assertNotEqual(batch, 0)
        self.says(lambda: self.engine.get_batch_transfer_status([batch]), -1, "local address 0x5000")
        self.says(lambda: self.engine.get_batch_transfer_status([batch]), -1,
                  f"batch {batch:#x} is not there")
        self.says(lambda: self.engine.transfer_check_status(batch), -1,
                  f"transfer_check_status: batch {batch:#x} is not there")

    def test_a_loop_of_failures_does_not_flood_the_log(self):
        def loop():
            return {self.write(0x5000, self.there.address, 8)() for _ in range(200)}
        result, lines = lines_of(loop)
        self.assertEqual(result, {-1})
        self.assertIn(len(lines), range(1, 20), "200 failures")  # one in 10 s

    def test_memory(self):
        engine, here = self.engine, self.here.address
        self.says(lambda: engine.register_memory(here + 8, 4), -7, "register_memory",
                  f"range {here + 8:#x} of 4 bytes overlaps {here:#x} of 4096 bytes")
        self.says(lambda: engine.register_memory(0x7000, 0), -1, "range 0x7000 of 0 bytes is empty")
        self.says(lambda: engine.unregister_memory(0x7000), -3, "begins at 0x7000")
        self.says(lambda: engine.batch_register_memory([1, 2], [3]), -1,
                  "batch_register_memory: 2 addresses and 1 capacities")
        self.says(lambda: engine.allocate_managed_buffer(1 << 60), 0,
                  f"allocate_managed_buffer: no {1 << 60} bytes of memory: Cannot allocate memory")
        self.says(lambda: engine.free_managed_buffer(0x7000, 5), -1, "gave out no 0x7000")
        self.says(lambda: engine.write_bytes_to_buffer(here, b"abc", 5), -1, "5 bytes of 3")

    def test_a_managed_buffer_is_freed_with_its_length(self):
        buffer = self.engine.allocate_managed_buffer(4096)
        self.says(lambda: self.engine.free_managed_buffer(buffer, 17), -1,
                  f"{buffer:#x} has 4096 bytes, not 17")
        self.assertEqual(self.engine.free_managed_buffer(buffer, 4096), 0)

    def test_peers_that_cannot_be_reached(self):
        nobody = "127.0.0.1:1"
        self.says(lambda: self.engine.transfer_sync_write(nobody, self.here.address, 1, 1), -1,
                  f"target {nobody} cannot be opened: {nobody}: connect: Connection refused")
        self.says(lambda: self.engine.get_first_buffer_address(nobody), 0, "Connection refused")
        self.says(lambda: self.engine.send_probe(nobody), -102, "Connection refused")
        empty = make_engine()
        name = f"127.0.0.1:{empty.get_rpc_port()}"
        self.says(lambda: self.engine.get_first_buffer_address(name), 0, f"segment {name} has")

    def test_a_host_that_peers_may_not_find(self):
        def initialize(host):
            return lambda: TransferEngine().initialize(host, "P2PHANDSHAKE", "tcp", "")
        self.says(initialize("nowhere.invalid"), 0, 'host "nowhere.invalid" has no IPv4')
        self.says(initialize("127.0.0.1\0x"), -1, "a NUL byte is in the host")

    def test_before_initialize(self):
        engine = TransferEngine()
        scatter = ("x", WRITE, 1, 1, 1, 1, [0], [0], [1])
        for name, call in {
                "get_rpc_port": engine.get_rpc_port,
                "get_local_topology": engine.get_local_topology,
                "register_memory": lambda: engine.register_memory(1, 1),
                "unregister_memory": lambda: engine.unregister_memory(1),
                "batch_register_memory": lambda: engine.batch_register_memory([1], [1]),
                "batch_unregister_memory": lambda: engine.batch_unregister_memory([1]),
                "allocate_managed_buffer": lambda: engine.allocate_managed_buffer(1),
                "get_first_buffer_address": lambda: engine.get_first_buffer_address("x"),
                "transfer": lambda: engine.transfer_sync_write("x", 1, 1, 1),
                "scatter": lambda: engine.transfer_scatter(*scatter),
                "transfer_check_status": lambda: engine.transfer_check_status(1),
                "get_batch_transfer_status": lambda: engine.get_batch_transfer_status([1]),
                "get_nic_load_stats": engine.get_nic_load_stats,
                "get_notifies": engine.get_notifies,
                "send_probe": lambda: engine.send_probe("x")}.items():
            with self.subTest(name):
                _, lines = lines_of(call)
                self.assertEqual(len(lines), 1, lines)
                self.assertIn(f"{name}: this engine is not initialized: call initialize", lines[0])


if __name__ == "__main__":
    unittest.main(verbosity=2)
