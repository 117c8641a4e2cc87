"""Engines in processes of their own (engine_peer.py), and the HTTP metadata service."""

import json
import os
import pathlib
import subprocess
import sys
import urllib.parse
import urllib.request

HERE = pathlib.Path(__file__).parent
# Without a proxy that the environment may name: all is on loopback.
OPEN = urllib.request.build_opener(urllib.request.ProxyHandler({})).open


class Engine:
    """`place`: the folder of the package railhop, or the Python that has mooncake."""

    def __init__(self, kind, place, settings, *arguments):
        environment = dict(os.environ, **settings)
        if kind == "railhop":
            environment["PYTHONPATH"] = place
            command = ["/usr/bin/python3"]
        else:
            environment.update(MC_LOG_LEVEL="ERROR", GLOG_minloglevel="2")
            if settings.get("ENGINE_PROTOCOL") != "rdma":
                environment["MC_FORCE_TCP"] = "1"  # it takes RDMA where there is any
            command = [place]
        self.process = subprocess.Popen(
            command + [str(HERE / "engine_peer.py"), kind + ".engine", *arguments], env=environment,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        hello = self._read()
        self.name, self.address = hello["name"], hello["address"]

    def _read(self):
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"the engine ended with code {self.process.wait()}")
        return json.loads(line)

    def ask(self, *words):
        self.process.stdin.write(json.dumps(words) + "\n")
        self.process.stdin.flush()
        return self._read()

    def kill(self):
        self.process.kill()
        self.close()

    def close(self):
        if not self.process.stdin.closed:
            self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()


class MetadataServer:
    def __init__(self):
        self.process = subprocess.Popen([sys.executable, str(HERE / "metadata_server.py")],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.url = self.process.stdout.readline().strip()

    def keys(self):
        with OPEN(self.url.replace("/metadata", "/keys")) as reply:
            return reply.read().decode().split("\n")

    def put(self, key, value):
        OPEN(urllib.request.Request(f"{self.url}?key={urllib.parse.quote(key, safe='')}", value,
                                    method="PUT")).close()

    def close(self):
        self.process.stdin.close()
        self.process.wait()
        self.process.stdout.close()
