"""Railhop's engines, each in a process of its own, find each other through a metadata service.

Usage: metadata_service_test.py PACKAGE_FOLDER [unittest arguments]

The HTTP service is metadata_server.py; etcd is that of the package etcd-server, on loopback and in a
scratch folder. Where it cannot be had its tests skip themselves.
"""

import base64
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.error
import urllib.request

from engines import Engine, MetadataServer

PACKAGE = None
MIB = 1 << 20
PATIENCE_S = 60  # that only a hang reaches
# As ./dev test unpacks it, or as it is installed.
UNPACKED = os.path.join(os.path.dirname(os.path.abspath(__file__)),
                        "../../build/peers/etcd/usr/bin/etcd")
ETCD = UNPACKED if os.access(UNPACKED, os.X_OK) else shutil.which("etcd")


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class HttpService:
    """The keys of metadata_server.py."""

    def __init__(self):
        self.server = MetadataServer()
        self.connection = self.server.url

    def keys(self):
        return sorted(self.server.keys())

    def put(self, key, value):
        self.server.put(key, value)

    def close(self):
        self.server.close()


class EtcdService:
    """The keys of an etcd, by its JSON gateway."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="railhop-etcd-")
        client, peer = free_ports(2)
        self.url = f"http://127.0.0.1:{client}"
        self.connection = f"etcd://127.0.0.1:{client}"
        peer_url = f"http://127.0.0.1:{peer}"
        self.log = open(f"{self.folder}/log", "w")
        self.process = subprocess.Popen(
            [ETCD, "--data-dir", f"{self.folder}/data", "--name", "test",
             "--listen-client-urls", self.url, "--advertise-client-urls", self.url,
             "--listen-peer-urls", peer_url, "--initial-advertise-peer-urls", peer_url,
             "--initial-cluster", f"test={peer_url}"], stdout=self.log, stderr=self.log)
        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                self.keys()
                return
            except OSError:
                if time.monotonic() > until or self.process.poll() is not None:
                    with open(self.log.name) as log:
                        text = log.read()
                    self.close()
                    raise AssertionError("etcd does not come up:\n" + text) from None
                time.sleep(0.01)

    def call(self, name, **request):
        body = json.dumps(request).encode()
        # Without a proxy that the environment may name: this is loopback.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(f"{self.url}/v3/kv/{name}", body, timeout=PATIENCE_S) as reply:
            return json.load(reply)

    def keys(self):
        every = base64.b64encode(b"\0").decode()
        found = self.call("range", key=every, range_end=every).get("kvs", [])
        return sorted(base64.b64decode(one["key"]).decode() for one in found)

    def put(self, key, value):
        self.call("put", key=base64.b64encode(key.encode()).decode(),
                  value=base64.b64encode(value).decode())

    def close(self):
        self.process.kill()
        self.process.wait()
        self.log.close()
        shutil.rmtree(self.folder)


class ServiceTests:
    """What holds with each service."""

    service = None

    def setUp(self):
        self.service = self.make_service()
        self.addCleanup(lambda: self.service.close())

    def engine(self, name, **settings):
        engine = Engine("railhop", PACKAGE, settings, self.service.connection, name)
        self.addCleanup(engine.close)
        return engine

    def test_two_engines_find_each_other_by_name(self):
        a, b = self.engine("127.0.0.1:1"), self.engine("127.0.0.1:2")
        a.ask("fill", "a")
        self.assertEqual(a.ask("first", b.name), b.address)
        self.assertEqual(a.ask("sync", "write", b.name, b.address, 0, 16 * MIB), 0)
        self.assertEqual(a.ask("digest"), b.ask("digest"))
        b.ask("fill", "anew")
        self.assertEqual(a.ask("sync", "read", b.name, b.address, 0, 16 * MIB), 0)
        self.assertEqual(a.ask("digest"), b.ask("digest"))
        self.assertEqual(a.ask("notify", b.name, b.address, "kv is there"), 0)
        self.assertEqual(b.ask("notes"), [["interop", "kv is there"]])
        self.assertEqual(b.ask("probe", a.name), 0)

    def test_names_that_are_no_host_and_clusters(self):
        a = self.engine("127.0.0.1:1", MC_METADATA_CLUSTER_ID="blue")
        # In tests an interface besides loopback is not certain; listeners take all addresses.
        b = self.engine("decode/0", MC_METADATA_CLUSTER_ID="blue", MC_TCP_BIND_ADDRESS="127.0.0.1")
        self.assertEqual(self.service.keys(),
                         ["mooncake/blue/decode/0", "mooncake/blue/ram/127.0.0.1:1",
                          "mooncake/blue/rpc_meta/127.0.0.1:1", "mooncake/blue/rpc_meta/decode/0"])
        self.assertEqual(a.ask("sync", "write", b.name, b.address, 0, MIB), 0)
        other = self.engine("127.0.0.1:3")
        self.assertEqual(other.ask("sync", "write", b.name, b.address, 0, MIB), -1)

    def test_memory_comes_and_goes_in_the_descriptor(self):
        a, b = self.engine("127.0.0.1:1"), self.engine("127.0.0.1:2")
        self.assertEqual(a.ask("sync", "write", b.name, b.address, 0, 64), 0)
        later = b.ask("register_more")
        self.assertEqual(a.ask("sync", "write", b.name, later, 0, MIB), 0)
        self.assertEqual(b.ask("unregister"), 0)
        self.assertEqual(a.ask("sync", "write", b.name, b.address, 0, 64), -1)
        self.assertEqual(self.engine("127.0.0.1:3").ask("first", b.name), later)

    def test_an_engine_that_ends_leaves_nothing(self):
        a, b = self.engine("127.0.0.1:1"), self.engine("127.0.0.1:2")
        b.ask("end")
        self.assertEqual(self.service.keys(), ["mooncake/ram/127.0.0.1:1",
                                               "mooncake/rpc_meta/127.0.0.1:1"])
        self.assertEqual(a.ask("first", b.name), 0)
        self.assertNotEqual(a.ask("probe", b.name), 0)

    def test_an_engine_that_died(self):
        a, b = self.engine("127.0.0.1:1"), self.engine("127.0.0.1:2")
        self.assertEqual(a.ask("sync", "write", b.name, b.address, 0, 64), 0)
        b.kill()
        self.assertEqual(a.ask("sync", "write", b.name, b.address, 0, 64), -1)
        self.assertNotEqual(a.ask("probe", b.name), 0)
        another = self.engine("127.0.0.1:4")
        self.assertEqual(a.ask("sync", "write", another.name, another.address, 0, MIB), 0)

    def test_malformed_entries_fail_and_harm_nothing(self):
        a, b = self.engine("127.0.0.1:1"), self.engine("127.0.0.1:2")
        for value in (b"", b"null", b"{", b"[" * 100000, b'{"name":1}', b"\0\xff" * 100):
            self.service.put("mooncake/ram/bad", value)
            self.assertEqual(a.ask("sync", "write", "bad", b.address, 0, 64), -1)
        self.service.put("mooncake/ram/huge", b" " * (1200 << 10))
        self.assertEqual(a.ask("sync", "write", "huge", b.address, 0, 64), -1)
        self.assertEqual(a.ask("sync", "write", b.name, b.address, 0, MIB), 0)

    def test_a_service_that_goes_down(self):
        a, b = self.engine("127.0.0.1:1"), self.engine("127.0.0.1:2")
        self.assertEqual(a.ask("sync", "write", b.name, b.address, 0, 64), 0)
        self.service.close()
        self.service.close = lambda: None
        self.assertEqual(a.ask("sync", "write", b.name, b.address, 0, MIB), 0, "b is known")
        self.assertEqual(a.ask("sync", "write", "127.0.0.1:3", b.address, 0, 64), -1)
        self.assertEqual(a.ask("register_more"), 0)
        self.assertEqual(b.ask("unregister"), -200)


class HttpServiceTest(ServiceTests, unittest.TestCase):
    def make_service(self):
        return HttpService()

    def test_initialize_ext_puts_the_type_in_front(self):
        place = self.service.connection.removeprefix("http://")
        subprocess.run(["/usr/bin/python3", "-c", "import sys, railhop.engine as e; sys.exit("
                        "e.TransferEngine().initialize_ext('127.0.0.1:1', sys.argv[1], 'tcp', '', "
                        "'http'))", place], env=dict(os.environ, PYTHONPATH=PACKAGE), check=True,
                       timeout=PATIENCE_S)

    def test_a_listener_of_another_engine_of_that_name_is_said(self):
        self.service.put("mooncake/rpc_meta/127.0.0.1:1", b"{}")
        text = failure_of(self.service.connection)
        self.assertIn("PUT mooncake/rpc_meta/127.0.0.1:1: status 400: Duplicate", text)


@unittest.skipUnless(ETCD, "there is no etcd (./dev test fetches the package etcd-server)")
class EtcdServiceTest(ServiceTests, unittest.TestCase):
    def make_service(self):
        return EtcdService()

    # Mooncake's HTTP service would keep the first listener of the name.
    def test_an_engine_that_died_takes_its_name_again(self):
        a, b = self.engine("127.0.0.1:1"), self.engine("127.0.0.1:2")
        self.assertEqual(a.ask("sync", "write", b.name, b.address, 0, 64), 0)
        b.kill()
        self.assertEqual(a.ask("sync", "write", b.name, b.address, 0, 64), -1)
        again = self.engine("127.0.0.1:2")
        self.assertEqual(a.ask("first", again.name), again.address)
        self.assertEqual(a.ask("probe", again.name), 0)
        until = time.monotonic() + PATIENCE_S
        while a.ask("sync", "write", again.name, again.address, 0, MIB) != 0:
            self.assertLess(time.monotonic(), until, "a target that was down is not tried anew")


def failure_of(connection):
    """What is logged by initialize, which fails."""
    done = subprocess.run(
        ["/usr/bin/python3", "-c", "import sys, railhop.engine as e; sys.exit(-e.TransferEngine()."
         "initialize('127.0.0.1:1', sys.argv[1], 'tcp', ''))", connection],
        env=dict(os.environ, PYTHONPATH=PACKAGE), capture_output=True, text=True,
        timeout=PATIENCE_S)
    assert done.returncode == 1, done
    return done.stderr


class NoServiceTest(unittest.TestCase):
    def test_says_what_and_what_to_do(self):
        port = free_ports(1)[0]
        for connection, expected in (
                (f"http://127.0.0.1:{port}/metadata", f"http://127.0.0.1:{port}/metadata"),
                (f"etcd://127.0.0.1:{port}", f"127.0.0.1:{port}"),
                ("redis://127.0.0.1:1", "allowed: P2PHANDSHAKE, http://")):
            with self.subTest(connection):
                text = failure_of(connection)
                self.assertIn(expected, text)

    def test_one_that_does_not_answer_is_given_up(self):
        with socket.create_server(("127.0.0.1", 0)) as silent:
            text = failure_of(f"http://127.0.0.1:{silent.getsockname()[1]}/metadata")
        self.assertIn("timed out", text)


if __name__ == "__main__":
    PACKAGE = os.path.abspath(sys.argv[1])
    unittest.main(argv=[sys.argv[0]] + sys.argv[2:], verbosity=2)
