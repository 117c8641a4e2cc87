import ctypes

from railhop.engine import TransferEngine


def make_engine(buffer):
    engine = TransferEngine()
    assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
    assert engine.register_memory(ctypes.addressof(buffer), len(buffer)) == 0
    return engine


here, there = ctypes.create_string_buffer(b"hello", 4096), ctypes.create_string_buffer(4096)
engine, target = make_engine(here), make_engine(there)  # in two processes, as a rule
name = f"127.0.0.1:{target.get_rpc_port()}"
assert engine.transfer_sync_write(name, ctypes.addressof(here), ctypes.addressof(there), 4096) == 0
assert there.value == b"hello"
