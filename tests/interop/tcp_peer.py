"""A target and an initiator of the TCP data protocol, written from the protocol's page alone.

They share no code with Railhop, and do one thing after the other, as other implementations do.
"""

import socket
import struct
import threading

HEADER = struct.Struct("<QQB7x")  # size, address, operation
STATUS = struct.Struct("<Q")
MAGIC = 0x4D43545600000000
READ, WRITE, VERSION_2 = 0, 1, 0x80
PATIENCE_S = 120  # that only a hang reaches


def receive(sock, count):
    """Exactly `count` bytes; fewer when the other side has hung up."""
    data = bytearray()
    while len(data) < count:
        some = sock.recv(min(count - len(data), 1 << 16))
        if not some:
            break
        data += some
    return bytes(data)


class Target:
    """Serves `size` bytes at a made-up address, on as many connections as come."""

    ADDRESS = 0x7F0000001000

    def __init__(self, size):
        self.memory = bytearray(size)
        self.versions = set()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def close(self):
        self.listener.close()

    def accept(self):
        while True:
            try:
                sock, _ = self.listener.accept()
            except OSError:
                return
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self.serve, args=(sock,), daemon=True).start()

    def serve(self, sock):
        with sock:
            while True:
                header = receive(sock, HEADER.size)
                if len(header) < HEADER.size:
                    return
                size, address, operation = HEADER.unpack(header)
                version_2 = bool(operation & VERSION_2)
                self.versions.add(2 if version_2 else 1)
                begin = address - self.ADDRESS
                if size == 0 or begin < 0 or begin + size > len(self.memory):
                    if version_2:
                        sock.sendall(STATUS.pack(MAGIC | 1))
                    return
                if operation & 0x7F == WRITE:
                    payload = receive(sock, size)
                    self.memory[begin:begin + len(payload)] = payload
                    if len(payload) < size:
                        return
                    if version_2:
                        sock.sendall(STATUS.pack(MAGIC))
                else:
                    if version_2:
                        sock.sendall(STATUS.pack(MAGIC))
                    sock.sendall(self.memory[begin:begin + size])


class Initiator:
    """One connection to a target."""

    def __init__(self, port, version):
        self.flag = VERSION_2 if version == 2 else 0
        self.sock = socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self):
        self.sock.close()

    def status(self):
        """The code of a status frame; None when the target has hung up instead."""
        frame = receive(self.sock, STATUS.size)
        if len(frame) < STATUS.size:
            return None
        word, = STATUS.unpack(frame)
        assert word & ~0xFFFFFFFF == MAGIC, hex(word)
        return word & 0xFFFFFFFF

    def write(self, address, data):
        self.sock.sendall(HEADER.pack(len(data), address, WRITE | self.flag) + data)
        return self.status() if self.flag else 0

    def read(self, address, size):
        self.sock.sendall(HEADER.pack(size, address, READ | self.flag))
        if self.flag and self.status() != 0:
            return None
        return receive(self.sock, size)
