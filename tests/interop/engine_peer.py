"""One engine in a process of its own, told what to do over standard input.

Usage: engine_peer.py MODULE [METADATA NAME]       MODULE: railhop.engine or mooncake.engine

With METADATA, the URL of a service, peers find it there by NAME; else by P2PHANDSHAKE. ENGINE_PROTOCOL
and ENGINE_DEVICES of the environment are initialize's last two arguments.

Says {"name": ..., "address": ...} once it is up, then answers each line, a JSON array
[method, arguments...], with a line of JSON. It ends with standard input.
"""

import ctypes
import hashlib
import importlib
import json
import os
import sys

BYTES = 16 << 20


class Peer:
    def __init__(self, module, metadata="P2PHANDSHAKE", name=None):
        self.module = importlib.import_module(module)
        self.engine = self.module.TransferEngine()
        self.memory = bytearray(BYTES)
        self.address = ctypes.addressof((ctypes.c_char * BYTES).from_buffer(self.memory))
        self.extra = []
        protocol = os.environ.get("ENGINE_PROTOCOL", "tcp")
        devices = os.environ.get("ENGINE_DEVICES", "")
        if self.engine.initialize(name or "127.0.0.1", metadata, protocol, devices) != 0:
            sys.exit("the engine cannot be initialized")
        self.name = name or f"127.0.0.1:{self.engine.get_rpc_port()}"
        if self.engine.register_memory(self.address, BYTES) != 0:
            sys.exit("memory cannot be registered")

    def hello(self):
        return {"name": self.name, "address": self.address}

    def fill(self, seed):
        block = b"".join(hashlib.sha256(f"{seed}/{i}".encode()).digest() for i in range(1024))
        self.memory[:] = (block * (BYTES // len(block) + 1))[:BYTES]
        return 0

    def digest(self):
        return hashlib.sha256(self.memory).hexdigest()

    def first(self, name):
        return self.engine.get_first_buffer_address(name)

    def sync(self, opcode, name, address, offset, length):
        call = getattr(self.engine, "transfer_sync_" + opcode)
        return call(name, self.address + offset, address + offset, length)

    def batch(self, opcode, name, address, count, length, gap=0):
        offsets = [i * (length + gap) for i in range(count)]
        call = getattr(self.engine, "batch_transfer_sync_" + opcode)
        return call(name, [self.address + at for at in offsets], [address + at for at in offsets],
                    [length] * count)

    def asynchronous(self, name, address, length):
        batch = self.engine.batch_transfer_async_write(name, [self.address], [address], [length])
        return -1 if batch == 0 else self.engine.get_batch_transfer_status([batch])

    def notify(self, name, address, word):
        note = self.module.TransferNotify("interop", word)
        return self.engine.transfer_sync(name, self.address, address, 64,
                                         self.module.TransferOpcode.Write, note)

    def notes(self):
        return [[note.name, note.msg] for note in self.engine.get_notifies()]

    def probe(self, name):
        return self.engine.send_probe(name)

    def unregister(self):
        return self.engine.unregister_memory(self.address)

    def register_more(self):
        """Registers a second buffer, after others may have read the descriptor."""
        self.extra.append(bytearray(1 << 20))
        address = ctypes.addressof((ctypes.c_char * (1 << 20)).from_buffer(self.extra[-1]))
        return address if self.engine.register_memory(address, 1 << 20) == 0 else 0


def main():
    # What libraries print on standard output must not come between the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    peer = Peer(*sys.argv[1:])
    print(json.dumps(peer.hello()), file=answers, flush=True)
    for line in sys.stdin:
        method, *arguments = json.loads(line)
        if method == "end":  # as an engine ends that is let go of; else it just dies
            peer.engine = None
            print(json.dumps(0), file=answers, flush=True)
            break
        print(json.dumps(getattr(peer, method)(*arguments)), file=answers, flush=True)
    answers.flush()
    os._exit(0)  # some engines wait for their threads at exit for longer than a test likes


if __name__ == "__main__":
    main()
