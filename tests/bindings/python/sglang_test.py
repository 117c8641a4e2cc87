"""SGLang's own wrapper of the Transfer Engine, out of its wheel and unmodified, over the shim.

Two processes, prefill and decode, have one each; the decode side judges the bytes. What the file
imports of SGLang is stubbed: settings with their defaults, and address texts. `./dev test` fetches
the wheel (tests/interop/sglang); where it is not, the test ends with code 77, shown as skipped.
"""

import ctypes
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import types
import unittest
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
FILE = "sglang/srt/distributed/device_communicators/mooncake_transfer_engine.py"
PIECE, PIECES = 65536, 64


def find_wheel():
    return next((ROOT / "build/peers/sglang").glob("sglang-*.whl"), None)


class Setting:
    def __init__(self, value):
        self.get = lambda: value


class NetworkAddress:
    def __init__(self, host, port):
        self.to_host_port_str = lambda: f"{host}:{port}"


STUBS = {
    "sglang.srt.environ": {"envs": types.SimpleNamespace(
        ENABLE_ASCEND_TRANSFER_WITH_MOONCAKE=Setting(False), MOONCAKE_PROTOCOL=Setting("rdma"),
        SGLANG_DISAGGREGATION_ENGINE_INIT_TIMEOUT=Setting(0))},
    "sglang.srt.runtime_context": {"get_disagg": None, "get_exec": None, "get_memory": None},
    "sglang.srt.utils.common": {"run_with_deadline": lambda call, timeout_s, what: call()},
    "sglang.srt.utils.network": {"NetworkAddress": NetworkAddress, "get_free_port": None,
                                 "get_local_ip_auto": None},
}


def load_wrapper(folder):
    with zipfile.ZipFile(find_wheel()) as wheel:
        path = wheel.extract(FILE, folder)
    for name, members in STUBS.items():
        for parent in (name.rsplit(".", depth)[0] for depth in range(name.count(".") + 1)):
            sys.modules.setdefault(parent, types.ModuleType(parent))
        vars(sys.modules[name]).update(members)
    spec = importlib.util.spec_from_file_location("wrapper", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["wrapper"] = module
    spec.loader.exec_module(module)
    return module


class Side:
    """One process' wrapper and its KV pages."""

    def __init__(self, folder):
        self.wrapper = load_wrapper(folder).init_mooncake_transfer_engine("127.0.0.1", 0, "mlx5_0")
        self.pages = bytearray(PIECE * PIECES)
        self.address = ctypes.addressof((ctypes.c_char * len(self.pages)).from_buffer(self.pages))
        half = len(self.pages) // 2
        assert self.wrapper.batch_register([self.address, self.address + half], [half, half]) == 0

    def close(self):
        half = len(self.pages) // 2
        return self.wrapper.batch_deregister([self.address, self.address + half])


def decode(folder):
    """The other process: says where its pages are, then their bytes once it is asked."""
    side = Side(folder)
    print(json.dumps([side.wrapper.get_session_id(), side.address]), flush=True)
    sys.stdin.readline()
    sys.stdout.write(side.pages.hex())


class SglangTest(unittest.TestCase):
    def test_prefill_to_decode(self):
        with tempfile.TemporaryDirectory() as folder:
            self.check(folder)

    def check(self, folder):
        from mooncake.engine import TransferEngine
        self.assertEqual(TransferEngine.__module__, "railhop.engine")
        side = Side(folder)
        wrapper = side.wrapper
        other = subprocess.Popen([sys.executable, __file__, "decode", folder], text=True,
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(other.wait)
        self.addCleanup(other.kill)
        session, address = json.loads(other.stdout.readline())
        side.pages[:] = os.urandom(len(side.pages))
        self.assertEqual(wrapper.send_probe(session), 0)
        self.assertEqual(wrapper.transfer_sync(session, side.address, address, PIECE), 0)
        order = list(range(1, PIECES))[::-1]
        self.assertEqual(wrapper.batch_transfer_sync(
            session, [side.address + i * PIECE for i in order],
            [address + i * PIECE for i in order], [PIECE] * len(order)), 0)
        self.assertLess(wrapper.transfer_sync(session, side.address, 4096, PIECE), 0)
        self.assertIsNotNone(wrapper.get_engine())
        received, _ = other.communicate("\n")
        self.assertEqual(bytes.fromhex(received), side.pages)
        self.assertLess(wrapper.transfer_sync(session, side.address, address, PIECE), 0, "it ended")

        more = (ctypes.c_char * PIECE)()
        wrapper.register(ctypes.addressof(more), PIECE)
        with self.assertRaises(RuntimeError):
            wrapper.register(ctypes.addressof(more), PIECE)
        wrapper.deregister(ctypes.addressof(more))
        with self.assertRaises(RuntimeError):
            wrapper.deregister(ctypes.addressof(more))
        self.assertEqual(side.close(), 0)


if __name__ == "__main__":
    if find_wheel() is None:
        print("SKIPPED: sglang's wheel is not in build/peers/sglang (./dev test fetches it)")
        sys.exit(77)
    import railhop.shim
    railhop.shim.install()
    if sys.argv[1:2] == ["decode"]:
        decode(sys.argv[2])
    else:
        unittest.main(verbosity=2)
