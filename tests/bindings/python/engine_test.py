"""railhop.engine: each method of Mooncake's, with its argument names, codes and behaviour."""

import ast
import ctypes
import faulthandler
import inspect
import os
import pathlib
import unittest

import railhop.engine
from python_peer import PythonPeer
from railhop.engine import TransferEngine, TransferNotify, TransferOpcode

P2P = "P2PHANDSHAKE"
MIB = 1 << 20
PATIENCE_S = 200  # that only a hang reaches


class Memory:
    def __init__(self, size):
        self.bytes = bytearray(size)
        self.address = ctypes.addressof((ctypes.c_char * size).from_buffer(self.bytes))


def make_engine():
    engine = TransferEngine()
    assert engine.initialize("127.0.0.1", P2P, "tcp", "") == 0
    return engine


class ModuleTest(unittest.TestCase):
    def test_attributes(self):
        for feature in ("EFA", "HIP", "MNNVL", "MUSA", "INTRA_NVLINK", "CUDA"):
            self.assertIs(getattr(railhop.engine, "SUPPORT_" + feature), False)
        self.assertEqual(int(TransferOpcode.Read), 0)
        self.assertEqual(int(TransferOpcode.Write), 1)
        self.assertEqual(railhop.engine.Write, TransferOpcode.Write)
        self.assertIs(TransferEngine.TransferOpcode, TransferOpcode)

    def test_notify(self):
        note = TransferNotify()
        self.assertEqual((note.name, note.msg), ("", ""))
        note = TransferNotify(name="a", msg="b")
        note.msg = "c"
        self.assertEqual((note.name, note.msg), ("a", "c"))

    # Each public method is in the stubs with the same argument names in the same order, and has a
    # docstring that says more than its signature.
    def test_stubs_and_docstrings(self):
        stubs = pathlib.Path(railhop.engine.__file__).with_name("engine.pyi")
        classes = {node.name: node for node in ast.parse(stubs.read_text()).body
                   if isinstance(node, ast.ClassDef)}
        declared = {node.name: [argument.arg for argument in node.args.args]
                    for node in classes["TransferEngine"].body
                    if isinstance(node, ast.FunctionDef)}
        defined = {name for name, _ in inspect.getmembers(TransferEngine, callable)
                   if not name.startswith("_") and name != "TransferOpcode"}
        self.assertEqual(set(declared) - {"__init__"}, defined)
        for name in sorted(defined):
            with self.subTest(name):
                signature, _, text = getattr(TransferEngine, name).__doc__.partition("\n\n")
                names = [part.split(":")[0].strip()
                         for part in signature[signature.index("(") + 1:].split(",")
                         if ":" in part]
                names = [part.partition(") ->")[0] for part in names if part.isidentifier()]
                self.assertEqual(names, declared[name])
                self.assertTrue(text.strip())
        self.assertTrue(stubs.with_name("py.typed").exists())


class SetUpTest(unittest.TestCase):
    def test_initialize_by_keyword_and_none(self):
        engine = TransferEngine()
        self.assertEqual(engine.initialize(local_hostname="127.0.0.1", metadata_server=P2P,
                                           protocol="tcp", device_name=None), 0)
        self.assertEqual(engine.initialize("127.0.0.1", P2P, "tcp", ""), -1, "once is enough")
        for protocol in (None, "rdma"):  # a hint: without devices it is TCP
            self.assertEqual(TransferEngine().initialize("127.0.0.1", P2P, protocol, ""), 0)

    def test_initialize_refuses(self):
        for arguments in (("", P2P, "tcp", ""), ("127.0.0.1", "redis://x:1", "tcp", ""),
                          ("127.0.0.1", P2P, "xgmi", "")):
            self.assertEqual(TransferEngine().initialize(*arguments), -1, arguments)
        with self.assertRaises(TypeError):
            TransferEngine().initialize(None, P2P, "tcp", "")

    def test_initialize_ext(self):
        for metadata, kind, expected in ((P2P, P2P, 0), (P2P, "", 0), ("127.0.0.1:1", "redis", -1),
                                         ("127.0.0.1:1/metadata", "http", -1)):
            self.assertEqual(TransferEngine().initialize_ext(
                local_hostname="127.0.0.1", metadata_server=metadata, protocol="tcp",
                device_name="", metadata_type=kind), expected, metadata)

    def test_ports_and_handles(self):
        a, b = make_engine(), make_engine()
        self.assertIn(a.get_rpc_port(), range(15000, 17001))
        self.assertNotEqual(a.get_rpc_port(), b.get_rpc_port())
        self.assertEqual(a.get_local_topology(device_name=None), "{}")
        self.assertEqual(type(a.get_engine()).__name__, "InnerTransferEngine")
        self.assertNotEqual(a.get_engine_ptr(), 0)
        self.assertEqual(a.warmup_efa_segment(segment_name="x"), 0)

    def test_before_initialize_everything_fails(self):
        engine = TransferEngine()
        memory = Memory(64)
        where = ("127.0.0.1:1", memory.address, memory.address, 64)
        lists = ("127.0.0.1:1", [memory.address], [memory.address], [64])
        self.assertEqual(engine.get_rpc_port(), -1)
        for code in (engine.register_memory(memory.address, 64),
                     engine.unregister_memory(memory.address),
                     engine.batch_register_memory([memory.address], [64]),
                     engine.batch_unregister_memory([memory.address]),
                     engine.transfer_sync_write(*where), engine.transfer_sync_read(*where),
                     engine.transfer_sync(*where, TransferOpcode.Write),
                     engine.batch_transfer_sync_write(*lists),
                     engine.batch_transfer_sync(*lists, TransferOpcode.Read),
                     engine.get_batch_transfer_status([1]), engine.transfer_check_status(1),
                     engine.send_probe("127.0.0.1:1")):
            self.assertLess(code, 0)
        for nothing in (engine.allocate_managed_buffer(64), engine.transfer_submit_write(*where),
                        engine.batch_transfer_async_write(*lists),
                        engine.batch_transfer_async_read(*lists),
                        engine.batch_transfer_async(*lists, TransferOpcode.Write),
                        engine.get_first_buffer_address("127.0.0.1:1"), engine.get_engine_ptr()):
            self.assertEqual(nothing, 0)
        scatter = ("127.0.0.1:1", TransferOpcode.Write, memory.address, 64, memory.address, 64,
                   [0], [0], [64])
        self.assertEqual(engine.transfer_scatter(*scatter), -1)
        self.assertEqual(engine.submit_scatter(*scatter), 0)
        self.assertEqual(engine.get_nic_load_stats(), [])
        self.assertEqual(engine.get_notifies(), [])
        self.assertIsNone(engine.get_engine())


class MemoryTest(unittest.TestCase):
    def setUp(self):
        self.engine = make_engine()
        self.memory = Memory(4096)

    def test_codes_of_registration(self):
        engine, at = self.engine, self.memory.address
        self.assertEqual(engine.register_memory(buffer_addr=at, capacity=1024, location="cpu:0"), 0)
        self.assertEqual(engine.register_memory(at, 1024), -7)
        self.assertEqual(engine.register_memory(at + 1023, 10), -7)
        self.assertEqual(engine.register_memory(at + 1024, 0), -1)
        self.assertEqual(engine.register_memory(at + 1024, 1024), 0, "neighbours")
        self.assertEqual(engine.unregister_memory(buffer_addr=at), 0)
        self.assertEqual(engine.unregister_memory(at), -3)

    def test_codes_of_batches(self):
        engine, at = self.engine, self.memory.address
        two = [at, at + 1024]
        self.assertEqual(engine.batch_register_memory(two, [1024]), -1)
        self.assertEqual(engine.batch_register_memory(two, [1025, 10]), -7)
        self.assertEqual(engine.batch_register_memory(buffer_addresses=two, capacities=[1024, 1024],
                                                      location="*"), 0)
        self.assertEqual(engine.batch_unregister_memory(buffer_addresses=two), 0)
        self.assertEqual(engine.batch_unregister_memory(two), -3)
        self.assertEqual(engine.batch_register_memory([], []), 0)
        self.assertEqual(engine.batch_unregister_memory([]), 0)

    def test_managed_buffers(self):
        engine = self.engine
        at = engine.allocate_managed_buffer(length=100)
        self.assertNotEqual(at, 0)
        self.assertEqual(engine.write_bytes_to_buffer(dest_address=at, bytes=b"\0\xffxyz", length=4),
                         0)
        self.assertEqual(engine.read_bytes_from_buffer(source_address=at, length=5),
                         b"\0\xffxy\0")
        self.assertEqual(engine.write_bytes_to_buffer(at, b"ab", 3), -1)
        self.assertEqual(engine.register_memory(at, 10), -7, "it is registered")
        self.assertEqual(engine.free_managed_buffer(addr=at, length=99), -1)
        self.assertEqual(engine.free_managed_buffer(at, 100), 0)
        self.assertEqual(engine.allocate_managed_buffer(0), 0)


class TransferTest(unittest.TestCase):
    def setUp(self):
        self.engine, self.target = make_engine(), make_engine()
        self.source, self.sink = Memory(MIB), Memory(MIB)
        self.source.bytes[:] = os.urandom(MIB)
        self.assertEqual(self.engine.register_memory(self.source.address, MIB), 0)
        self.assertEqual(self.target.register_memory(self.sink.address, MIB), 0)
        self.name = f"127.0.0.1:{self.target.get_rpc_port()}"
        self.one = {"target_hostname": self.name, "buffer": self.source.address,
                    "peer_buffer_address": self.sink.address, "length": MIB}
        half = MIB // 2
        self.many = {"target_hostname": self.name,
                     "buffers": [self.source.address + half, self.source.address],
                     "peer_buffer_addresses": [self.sink.address + half, self.sink.address],
                     "lengths": [half, half]}

    def check_written(self):
        self.assertEqual(self.sink.bytes, self.source.bytes)
        self.sink.bytes[:] = bytes(MIB)

    def check_read(self):
        self.assertEqual(self.source.bytes, self.sink.bytes)

    def test_one_by_keyword(self):
        self.assertEqual(self.engine.transfer_sync_write(**self.one, transport_hint=""), 0)
        self.check_written()
        self.assertEqual(self.engine.transfer_sync(**self.one, opcode=TransferOpcode.Write,
                                                   notify=None, transport_hint=""), 0)
        self.check_written()
        batch = self.engine.transfer_submit_write(**self.one, transport_hint="")
        self.assertEqual(self.engine.get_batch_transfer_status(batch_ids=[batch]), 0)
        self.check_written()
        self.sink.bytes[:] = os.urandom(MIB)
        self.assertEqual(self.engine.transfer_sync_read(**self.one, transport_hint=""), 0)
        self.check_read()
        self.sink.bytes[:] = os.urandom(MIB)
        self.assertEqual(self.engine.transfer_sync(**self.one, opcode=TransferOpcode.Read), 0)
        self.check_read()

    def test_batches_by_keyword(self):
        engine = self.engine
        self.assertEqual(engine.batch_transfer_sync_write(**self.many, transport_hint=""), 0)
        self.check_written()
        self.assertEqual(engine.batch_transfer_sync(**self.many, opcode=TransferOpcode.Write,
                                                    notify=None, transport_hint=""), 0)
        self.check_written()
        batches = [engine.batch_transfer_async_write(**self.many, transport_hint=""),
                   engine.batch_transfer_async(**self.many, opcode=TransferOpcode.Write,
                                               transport_hint="")]
        self.assertNotIn(0, batches)
        self.assertEqual(engine.get_batch_transfer_status(batches), 0)
        self.check_written()
        self.sink.bytes[:] = os.urandom(MIB)
        self.assertEqual(engine.batch_transfer_sync_read(**self.many, transport_hint=""), 0)
        self.check_read()
        self.sink.bytes[:] = os.urandom(MIB)
        batch = engine.batch_transfer_async_read(**self.many, transport_hint="")
        self.assertEqual(engine.get_batch_transfer_status([batch]), 0)
        self.check_read()

    def test_check_status_ends_the_id(self):
        batch = self.engine.transfer_submit_write(**self.one)
        while (status := self.engine.transfer_check_status(batch_id=batch)) == 0:
            pass
        self.assertEqual(status, 1)
        self.check_written()
        self.assertEqual(self.engine.transfer_check_status(batch), -1, "freed")
        self.assertEqual(self.engine.get_batch_transfer_status([batch]), -1)
        self.assertEqual(self.engine.get_batch_transfer_status([]), 0)
        wrong = self.engine.transfer_submit_write(self.name, self.source.address, 4096, 64)
        while (status := self.engine.transfer_check_status(wrong)) == 0:
            pass
        self.assertEqual(status, -1)

    def test_one_failed_batch_among_good_ones(self):
        good = self.engine.transfer_submit_write(**self.one)
        bad = self.engine.transfer_submit_write(self.name, self.source.address, 4096, 64)
        self.assertEqual(self.engine.get_batch_transfer_status([bad, good]), -1)
        self.check_written()

    def test_nothing_to_move(self):
        self.assertEqual(self.engine.transfer_sync_write(**{**self.one, "length": 0}), 0)
        self.assertEqual(self.engine.batch_transfer_sync_write(self.name, [], [], []), 0)
        batch = self.engine.batch_transfer_async_write(self.name, [], [], [])
        self.assertNotEqual(batch, 0)
        self.assertEqual(self.engine.transfer_check_status(batch), 1)
        self.assertEqual(bytes(MIB), bytes(self.sink.bytes))

    def test_lists_of_unequal_length(self):
        for key in ("buffers", "peer_buffer_addresses", "lengths"):
            lists = {**self.many, key: self.many[key][:1]}
            self.assertEqual(self.engine.batch_transfer_sync_write(**lists), -1)
            self.assertEqual(self.engine.batch_transfer_sync_read(**lists), -1)
            self.assertEqual(self.engine.batch_transfer_async_write(**lists), 0)
        self.assertEqual(bytes(MIB), bytes(self.sink.bytes))

    def test_memory_that_is_not_registered(self):
        at = self.source.address
        self.assertEqual(self.engine.transfer_sync_write(self.name, at, 4096, 64), -1)
        self.assertEqual(self.engine.transfer_sync_write(self.name, at,
                                                         self.sink.address + MIB - 32, 64), -1)
        self.assertEqual(self.engine.transfer_sync_write(**self.one), 0)

    def test_a_target_that_is_not_there(self):
        gone = make_engine()
        name = f"127.0.0.1:{gone.get_rpc_port()}"
        self.assertEqual(self.engine.send_probe(peer_server_name=name), 0)
        del gone
        one, many = {**self.one, "target_hostname": name}, {**self.many, "target_hostname": name}
        self.assertEqual(self.engine.transfer_sync_write(**one), -1)
        self.assertEqual(self.engine.transfer_submit_write(**one), 0)
        self.assertEqual(self.engine.batch_transfer_async_read(**many), 0)
        self.assertEqual(self.engine.get_first_buffer_address(name), 0)
        self.assertEqual(self.engine.send_probe(name), -102)

    def test_first_buffer_and_notifications(self):
        self.assertEqual(self.engine.get_first_buffer_address(segment_name=self.name),
                         self.sink.address)
        note = TransferNotify("request 7", "done")
        self.assertEqual(self.engine.transfer_sync(**self.one, opcode=TransferOpcode.Write,
                                                   notify=note), 0)
        self.assertEqual(self.engine.batch_transfer_sync(**self.many, notify=note,
                                                         opcode=TransferOpcode.Write), 0)
        self.assertEqual([(word.name, word.msg) for word in self.target.get_notifies()],
                         [("request 7", "done")] * 2)
        self.assertEqual(self.target.get_notifies(), [])
        self.assertEqual(self.engine.transfer_sync(self.name, self.source.address, 4096, 64,
                                                   TransferOpcode.Write, note), -1)
        self.assertEqual(self.target.get_notifies(), [], "not of a transfer that failed")

    def test_half_a_million_small_ones_in_one_batch(self):
        count, size = 500_000, 64
        source, sink = Memory(count * size), Memory(count * size)
        source.bytes[:] = os.urandom(MIB) * (count * size // MIB) + os.urandom(count * size % MIB)
        self.assertEqual(self.engine.register_memory(source.address, count * size), 0)
        self.assertEqual(self.target.register_memory(sink.address, count * size), 0)
        # Each to another place, so that none can be merged with its neighbour.
        buffers = [source.address + i * size for i in range(count)]
        peers = [sink.address + (count - 1 - i) * size for i in range(count)]
        self.assertEqual(self.engine.batch_transfer_sync_write(self.name, buffers, peers,
                                                               [size] * count), 0)
        words = memoryview(source.bytes).cast("B", (count, size)).tolist()
        self.assertEqual(memoryview(sink.bytes).cast("B", (count, size)).tolist(), words[::-1])


class ScatterTest(unittest.TestCase):
    def setUp(self):
        self.engine, self.target = make_engine(), make_engine()
        self.source, self.sink = Memory(4096), Memory(4096)
        self.source.bytes[:] = os.urandom(4096)
        self.assertEqual(self.engine.register_memory(self.source.address, 4096), 0)
        self.assertEqual(self.target.register_memory(self.sink.address, 4096), 0)
        self.range = {"target_hostname": f"127.0.0.1:{self.target.get_rpc_port()}",
                      "buffer": self.source.address, "capacity": 4096,
                      "peer_buffer_address": self.sink.address, "peer_size": 4096,
                      "offsets": [0, 100, 4000], "peer_offsets": [1000, 4000, 0],
                      "lengths": [50, 96, 96]}

    def check(self):
        for i in range(3):
            here, there = self.range["offsets"][i], self.range["peer_offsets"][i]
            length = self.range["lengths"][i]
            self.assertEqual(self.sink.bytes[there:there + length],
                             self.source.bytes[here:here + length])

    def test_write_and_read(self):
        self.assertEqual(self.engine.transfer_scatter(opcode=TransferOpcode.Write, **self.range), 0)
        self.check()
        self.assertEqual(self.sink.bytes[2000:3000], bytes(1000), "nothing else was written")
        self.sink.bytes[:] = os.urandom(4096)
        batch = self.engine.submit_scatter(opcode=TransferOpcode.Read, **self.range)
        self.assertNotEqual(batch, 0)
        self.assertEqual(self.engine.get_batch_transfer_status([batch]), 0)
        self.check()

    def test_bad_ranges(self):
        for bad in ({"capacity": 4095}, {"peer_size": 4095}, {"lengths": [50, 96]},
                    {"peer_offsets": [1000, 4001, 0]}, {"target_hostname": "127.0.0.1:1"}):
            with self.subTest(bad):
                arguments = self.range | bad
                self.assertEqual(
                    self.engine.transfer_scatter(opcode=TransferOpcode.Write, **arguments), -1)
                self.assertEqual(
                    self.engine.submit_scatter(opcode=TransferOpcode.Write, **arguments), 0)
        self.assertEqual(self.sink.bytes, bytes(4096))

    def test_nic_load_stats(self):
        self.assertEqual(self.engine.transfer_scatter(opcode=TransferOpcode.Write, **self.range), 0)
        stats = self.engine.get_nic_load_stats()
        self.assertEqual([nic.device_name for nic in stats], ["tcp0"])
        self.assertEqual(stats[0].inflight_bytes, 0)
        self.assertGreaterEqual(stats[0].ewma_bandwidth_bps, 0)


class GilTest(unittest.TestCase):
    """Python threads of this process must answer; a call that kept the GIL would never end."""

    def setUp(self):
        self.peer = PythonPeer()
        self.addCleanup(self.peer.close)
        self.engine = make_engine()
        self.memory = Memory(4096)
        self.assertEqual(self.engine.register_memory(self.memory.address, 4096), 0)

    def test_transfers(self):
        engine = self.engine
        one = (self.peer.name, self.memory.address, self.peer.ADDRESS, 4096)
        many = (self.peer.name, [self.memory.address], [self.peer.ADDRESS], [4096])
        for calls in (
                lambda: engine.transfer_sync_write(*one), lambda: engine.transfer_sync_read(*one),
                lambda: engine.transfer_sync(*one, TransferOpcode.Write),
                lambda: engine.batch_transfer_sync_write(*many),
                lambda: engine.batch_transfer_sync_read(*many),
                lambda: engine.batch_transfer_sync(*many, TransferOpcode.Read),
                lambda: engine.get_batch_transfer_status(
                    [engine.batch_transfer_async_write(*many),
                     engine.batch_transfer_async(*many, TransferOpcode.Write)])):
            self.assertEqual(calls(), 0)
        self.assertEqual(self.peer.heard.count("write"), 5)
        self.assertEqual(self.peer.heard.count("read"), 3)

    def test_words(self):
        self.assertEqual(self.engine.send_probe(self.peer.name), 0)
        self.assertEqual(self.engine.get_first_buffer_address(self.peer.name), self.peer.ADDRESS)
        self.assertEqual(self.engine.transfer_sync(
            self.peer.name, self.memory.address, self.peer.ADDRESS, 64, TransferOpcode.Write,
            TransferNotify("a", "b")), 0)
        self.assertIn("notify", self.peer.heard)
        self.assertIn("probe", self.peer.heard)


if __name__ == "__main__":
    faulthandler.dump_traceback_later(PATIENCE_S, exit=True)
    unittest.main(verbosity=2)
