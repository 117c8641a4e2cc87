"""A target in Python threads of the test's own process: it answers only while they can run.

Speaks as much of Mooncake's handshake and acknowledged TCP data protocol as a test needs.
"""

import json
import socket
import struct
import threading

HEADER = struct.Struct("<QQB7x")  # size, address, opcode
WRITE, ACKNOWLEDGED = 1, 0x80
STATUS_OK = struct.pack("<Q", 0x4D43545600000000)
NAMES = {1: "metadata", 2: "notify", 3: "probe"}


def receive(connection, size):
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            return None
        data += more
    return data


class PythonPeer:
    ADDRESS, LENGTH = 0x10000, 1 << 20

    def __init__(self):
        self.heard = []  # names of the messages and of the transfers, in order
        self.control = socket.create_server(("127.0.0.1", 0))
        self.data = socket.create_server(("127.0.0.1", 0))
        self.name = "127.0.0.1:%d" % self.control.getsockname()[1]
        self.threads = [threading.Thread(target=self.accept, args=arguments, daemon=True)
                        for arguments in ((self.control, self.talk), (self.data, self.transfer))]
        for thread in self.threads:
            thread.start()

    def accept(self, listener, serve):
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self.serve, args=(connection, serve), daemon=True).start()

    @staticmethod
    def serve(connection, serve):
        with connection:
            serve(connection)

    def talk(self, connection):
        (length,) = struct.unpack("<Q", receive(connection, 8))
        kind = receive(connection, length)[0]
        self.heard.append(NAMES[kind])
        answers = {
            1: {"name": self.name, "protocol": "tcp", "tcp_proto_version": 2,
                "tcp_data_port": self.data.getsockname()[1],
                "buffers": [{"name": self.name, "addr": self.ADDRESS, "length": self.LENGTH}]},
            2: {"name": "", "notify_msg": "success"},
            3: {"status": "success"},
        }
        text = json.dumps(answers[kind]).encode()
        connection.sendall(struct.pack("<QB", 1 + len(text), kind) + text)

    def transfer(self, connection):
        while True:
            header = receive(connection, HEADER.size)
            if header is None:
                return
            size, _, opcode = HEADER.unpack(header)
            if opcode == WRITE | ACKNOWLEDGED:
                receive(connection, size)
                self.heard.append("write")
                connection.sendall(STATUS_OK)
            else:
                self.heard.append("read")
                connection.sendall(STATUS_OK + bytes(size))

    def close(self):
        for listener in (self.control, self.data):
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        for thread in self.threads:
            thread.join()
