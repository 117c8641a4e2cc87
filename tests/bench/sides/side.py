"""One process of a benchmark: an engine, or a plain blocking socket.

Usage: side.py KIND            railhop | mooncake | stream

SIDE_PROTOCOL and SIDE_DEVICES of the environment are initialize's last two arguments (without: TCP),
SIDE_MIB is the size of the memory. Says "NAME ADDRESS" once it is up, then answers each line:
  write|read NAME ADDRESS COUNT LENGTH THREADS MILLISECONDS
    moves batches of COUNT x LENGTH bytes to or from that peer for so long, from THREADS threads:
    "GB_PER_S P50_US P99_US CPU_SECONDS_PER_GB GB", GB being all that was moved
  tiny NAME ADDRESS ENTRIES    writes ENTRIES x 64 bytes in one batch: the bytes of memory that each took
  first NAME ADDRESS LENGTH    one write: the seconds that it took
  put NAME ADDRESS             writes all its memory there: 0
  fill SEED, check SEED        fills its memory with what that seed makes: 0; whether that is there: 1 or 0
or with "failed WHAT".
"""

import ctypes
import os
import random
import resource
import socket
import sys
import threading
import time

BYTES = int(os.environ.get("SIDE_MIB", "64")) << 20


class Failed(Exception):
    """A batch did."""


def memory():
    buffer = bytearray(BYTES)
    address = ctypes.addressof((ctypes.c_char * BYTES).from_buffer(buffer))
    for at in range(0, BYTES, 4096):
        buffer[at] = 1  # no page is new when it is measured
    return buffer, address


def cpu_seconds():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def pattern(seed):
    return random.Random(seed).randbytes(1 << 20) * (BYTES >> 20)


def peak_bytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


class Engine:
    def __init__(self, kind):
        module = __import__(kind + ".engine", fromlist=["engine"])
        self.engine = module.TransferEngine()
        self.buffer, self.address = memory()
        where = (os.environ.get("SIDE_PROTOCOL", "tcp"), os.environ.get("SIDE_DEVICES", ""))
        if self.engine.initialize("127.0.0.1", "P2PHANDSHAKE", *where) != 0:
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
                raise Failed(f"a batch of {count} x {length} bytes")
        return move

    def fill(self, seed):
        self.buffer[:] = pattern(seed)
        return 0

    def check(self, seed):
        return int(self.buffer == pattern(seed))

    def put(self, name, address):
        self.mover("write", name, address, 1, BYTES, 0)()
        return 0

    def first(self, name, address, length):
        move = self.mover("write", name, address, 1, length, 0)
        began = time.perf_counter()
        move()
        return time.perf_counter() - began

    def tiny(self, name, address, entries):
        here = [self.address + 64 * i % BYTES for i in range(entries)]
        there = [address + 64 * i % BYTES for i in range(entries)]
        lengths = [64] * entries
        before = peak_bytes()
        if self.engine.batch_transfer_sync_write(name, here, there, lengths) != 0:
            raise Failed(f"a batch of {entries} x 64 bytes")
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


CONNECTED = set()  # peers, and from how many threads


def run(side, opcode, name, address, count, length, threads, milliseconds):
    latencies = [[] for _ in range(threads)]
    moves = [side.mover(opcode, name, address, count, length, t) for t in range(threads)]
    warm_up = moves if (name, threads) not in CONNECTED else []
    CONNECTED.add((name, threads))
    for move in warm_up:
        move()
    until = time.perf_counter() + milliseconds / 1e3
    failures = []

    def work(thread):
        now = time.perf_counter()
        while True:  # once at least
            try:
                moves[thread]()
            except Failed as failure:
                failures.append(failure)
                return
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
    if failures:
        raise failures[0]
    seconds = time.perf_counter() - began
    cpu = cpu_seconds() - cpu
    all_of_them = sorted(latency for each in latencies for latency in each)
    batch = count * length / 1e9
    gigabytes = len(all_of_them) * batch
    return (gigabytes / seconds, all_of_them[len(all_of_them) // 2] * 1e6,
            all_of_them[len(all_of_them) * 99 // 100] * 1e6, cpu / gigabytes,
            gigabytes + len(warm_up) * batch)


def answer_to(side, order, name, *words):
    numbers = [int(word) for word in words]
    if order in ("write", "read"):
        return run(side, order, name, *numbers)
    return [getattr(side, order)(name, *numbers)]


def main():
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print must not come between the answers
    side = Stream() if sys.argv[1] == "stream" else Engine(sys.argv[1])
    print(side.name, side.address, file=answers, flush=True)
    for line in sys.stdin:
        try:
            answer = " ".join(f"{number:.6g}" for number in answer_to(side, *line.split()))
        except Failed as failure:
            answer = f"failed {failure}"
        print(answer, file=answers, flush=True)
    os._exit(0)  # some engines wait at exit for longer than a benchmark likes


if __name__ == "__main__":
    main()
