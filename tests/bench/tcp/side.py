"""One process of the TCP benchmark: an engine, or a plain blocking socket.

Usage: side.py KIND            railhop | mooncake | stream

Says "NAME ADDRESS" once it is up. Then, for each line
  write|read NAME ADDRESS COUNT LENGTH THREADS MILLISECONDS
it moves batches of COUNT x LENGTH bytes to or from that peer for so long, from THREADS threads, and
answers "GB_PER_S P50_US P99_US CPU_SECONDS_PER_GB"; for
  tiny NAME ADDRESS ENTRIES
it writes ENTRIES x 64 bytes in one batch and answers with the bytes of memory that each took.
"""

import ctypes
import os
import resource
import socket
import sys
import threading
import time

BYTES = 64 << 20


def memory():
    buffer = bytearray(BYTES)
    address = ctypes.addressof((ctypes.c_char * BYTES).from_buffer(buffer))
    for at in range(0, BYTES, 4096):
        buffer[at] = 1  # no page is new when it is measured
    return buffer, address


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def peak_bytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class Engine:
    def __init__(self, kind):
        module = __import__(kind + ".engine", fromlist=["engine"])
        self.engine = module.TransferEngine()
        self.buffer, self.address = memory()
        if self.engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") != 0:
            sys.exit(f"{kind}: the engine cannot be initialized")
        if self.engine.register_memory(self.address, BYTES) != 0:
            sys.exit(f"{kind}: memory cannot be registered")
        self.name = f"127.0.0.1:{self.engine.get_rpc_port()}"

    def mover(self, opcode, name, address, count, length, thread):
        """What moves one batch. Batches go through the memory in turn, each thread its own part."""
        call = getattr(self.engine, f"batch_transfer_sync_{opcode}")
        places = BYTES // length
        offsets = [((thread * 7 + i) % places) * length for i in range(count)]
        here = [self.address + at for at in offsets]
        there = [address + at for at in offsets]
        lengths = [length] * count

        def move():
            if call(name, here, there, lengths) != 0:
                sys.exit(f"a batch of {count} x {length} bytes failed")
        return move

    def tiny(self, name, address, entries):
        here = [self.address + 64 * i % BYTES for i in range(entries)]
        there = [address + 64 * i % BYTES for i in range(entries)]
        lengths = [64] * entries
        before = peak_bytes()
        if self.engine.batch_transfer_sync_write(name, here, there, lengths) != 0:
            sys.exit(f"a batch of {entries} x 64 bytes failed")
        return (peak_bytes() - before) / entries


class Stream:
    """The limit: one blocking socket, a byte back when all has arrived."""

    def __init__(self):
        self.buffer, self.address = memory()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.name = f"127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            peer, _ = self.listener.accept()
            peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self.take, args=(peer,), daemon=True).start()

    def take(self, peer):
        view = memoryview(self.buffer)
        while True:
            size = peer.recv(8, socket.MSG_WAITALL)
            if len(size) < 8:
                return
            left = int.from_bytes(size, "little")
            while left:
                left -= peer.recv_into(view[:min(left, BYTES)])
            peer.sendall(b"x")

    def mover(self, _opcode, name, _address, count, length, _thread):
        host, port = name.split(":")
        peer = socket.create_connection((host, int(port)))
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        view = memoryview(self.buffer)[:count * length]

        def move():
            peer.sendall(len(view).to_bytes(8, "little"))
            peer.sendall(view)
            peer.recv(1)
        return move


def run(side, opcode, name, address, count, length, threads, milliseconds):
    latencies = [[] for _ in range(threads)]
    moves = [side.mover(opcode, name, address, count, length, t) for t in range(threads)]
    for move in moves:
        move()  # connections are made by the first one
    until = time.perf_counter() + milliseconds / 1e3

    def work(thread):
        now = time.perf_counter()
        while True:  # once at least
            moves[thread]()
            after = time.perf_counter()
            latencies[thread].append(after - now)
            now = after
            if now >= until:
                return

    cpu, began = cpu_seconds(), time.perf_counter()
    workers = [threading.Thread(target=work, args=(t,)) for t in range(1, threads)]
    for worker in workers:
        worker.start()
    work(0)
    for worker in workers:
        worker.join()
    seconds = time.perf_counter() - began
    cpu = cpu_seconds() - cpu
    all_of_them = sorted(latency for each in latencies for latency in each)
    gigabytes = len(all_of_them) * count * length / 1e9
    return (gigabytes / seconds, all_of_them[len(all_of_them) // 2] * 1e6,
            all_of_them[len(all_of_them) * 99 // 100] * 1e6, cpu / gigabytes)


def main():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not come between the answers
    side = Stream() if sys.argv[1] == "stream" else Engine(sys.argv[1])
    print(side.name, side.address, file=answers, flush=True)
    for line in sys.stdin:
        order, name, *numbers = line.split()
        numbers = [int(number) for number in numbers]
        if order == "tiny":
            result = [side.tiny(name, *numbers)]
        else:
            result = run(side, order, name, *numbers)
        print(*(f"{number:.6g}" for number in result), file=answers, flush=True)
    os._exit(0)  # some engines wait at exit for longer than a benchmark likes


if __name__ == "__main__":
    main()
