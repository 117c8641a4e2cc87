"""The processes of an interop test: the demo's ranks and target, and version-1 peers."""

import json
import os
import pathlib
import select
import signal
import subprocess
import sys
import time

import v1_abi as abi

HERE = pathlib.Path(__file__).parent
PATIENCE_S = 120  # that only a hang reaches
GROUP = "interop"


class Child:
    """A process that answers each line of JSON with one."""

    def __init__(self, name, command, env=None):
        self.name = name
        self.errors = open(f"{env['RAILHOP_TEST_LOGS']}/{name}.log", "w+")
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.errors, env=env)
        self.pid = self.process.pid
        self.killed = False
        self.buffer = b""

    def log(self):
        self.errors.flush()
        return pathlib.Path(self.errors.name).read_text()

    def send(self, command, **request):
        self.process.stdin.write(json.dumps({"command": command, **request}).encode() + b"\n")
        self.process.stdin.flush()

    def receive(self):
        until = time.monotonic() + PATIENCE_S
        out = self.process.stdout.fileno()
        while b"\n" not in self.buffer:
            if not select.select([out], [], [], max(0, until - time.monotonic()))[0]:
                raise AssertionError(f"{self.name} does not answer; it said:\n{self.log()}")
            data = os.read(out, 1 << 20)
            if not data:
                raise AssertionError(f"{self.name} ended; it said:\n{self.log()}")
            self.buffer += data
        line, self.buffer = self.buffer.split(b"\n", 1)
        reply = json.loads(line)
        if "error" in reply:
            raise AssertionError(f"{self.name}: {reply['error']}; it said:\n{self.log()}")
        return reply

    def ask(self, command, **request):
        self.send(command, **request)
        return self.receive()

    def has_answered(self):
        return bool(self.buffer or select.select([self.process.stdout], [], [], 0)[0])

    def stop(self):
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.pid, os.WSTOPPED)

    def go_on(self):
        self.process.send_signal(signal.SIGCONT)

    def kill(self):
        self.killed = True
        self.process.kill()
        self.process.wait()

    def finish(self):
        """Ends it the orderly way; its exit code."""
        self.process.stdin.close()
        try:
            return self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{self.name} does not end; it said:\n{self.log()}") from None

    def close(self):
        self.kill()
        for file in (self.process.stdin, self.process.stdout, self.errors):
            file.close()


class Host:
    """One group of one host: a folder for the registry and everything else, and the processes."""

    def __init__(self, railhop, folder):
        self.railhop = railhop
        self.folder = folder
        self.registry = f"{folder}/mooncake-pxn-{os.geteuid()}-{GROUP}.host"
        self.env = {key: value for key, value in os.environ.items()
                    if not key.startswith(("MC_", "RAILHOP_"))}
        self.env["RAILHOP_TEST_LOGS"] = folder
        self.children = []

    def close(self):
        for child in self.children:
            child.close()

    def start(self, name, command):
        self.children.append(Child(name, command, self.env))
        return self.children[-1]

    def target(self, rails, area_bytes):
        """A target named decode-0 with one area per entry of `rails`, preferred on that rail."""
        preferred = [word for rail in rails for word in ("--preferred", rail)]
        target = self.start("target", [
            self.railhop, "demo-target", "--directory", self.folder, "--name", "decode-0",
            "--area-bytes", str(area_bytes), *preferred])
        target.addresses = target.ask("areas")["addresses"]
        return target

    def rank(self, rail, wanted="", source_bytes=1 << 20, line_rate=2_000_000_000, **pxn):
        """A Railhop rank with one NIC; `pxn`: fields of that block."""
        options = {"enable": "true", "group_id": f'"{GROUP}"', **pxn}
        block = " ".join(f"{field}: {value}" for field, value in options.items())
        files = []
        for kind, relaying in (("", f"pxn {{ {block} }}"), ("-direct", "")):
            files.append(f"{self.folder}/{rail}{kind}.textproto")
            pathlib.Path(files[-1]).write_text(
                f'name: "rank-{rail}{kind}"\n'
                f'sim_directory: "{self.folder}"\nregistry_root: "{self.folder}"\n'
                f'nics {{ name: "{rail}" sim {{ line_rate_bytes_per_s: {line_rate} }} }}\n'
                f"ranks_on_host: 8\nlayout: ONE_CORE\npiece_timeout_ms: {1000 * PATIENCE_S}\n"
                f"{relaying}\n")
        return self.start(f"rank-{rail}", [
            self.railhop, "demo-rank", "--config-file", files[0], "--direct-config-file", files[1],
            "--target", "decode-0", "--source-bytes", str(source_bytes),
            *(["--wanted-rails", wanted] if wanted else [])])

    def v1(self, rail, target=None, name=None):
        """A version-1 process on `rail` that reaches `target`'s memory."""
        peer = self.start(name or f"v1-{rail}", [
            sys.executable, str(HERE / "v1_peer.py"), self.folder, f"{GROUP}.host", rail])
        peer.info = peer.ask("info")
        if target is not None:
            peer.ask("serve", session="decode-0", pid=target.pid)
        return peer

    def entries(self):
        return sorted(name for name in os.listdir(self.registry) if name.startswith("peer."))

    def entry(self, pid):
        """The published entry of one process, to be read from outside; None while there is none."""
        for name in self.entries() if os.path.isdir(self.registry) else ():
            if name.split(".")[1] == str(pid):
                return Entry(f"{self.registry}/{name}")
        return None

    def wait_for(self, condition, what):
        """The first true value of `condition`, asked again and again while all processes live."""
        until = time.monotonic() + PATIENCE_S
        while True:
            value = condition()
            if value:
                return value
            for child in self.children:
                if not child.killed and child.process.poll() is not None:
                    raise AssertionError(f"{what}: {child.name} ended; it said:\n{child.log()}")
            if time.monotonic() > until:
                logs = "".join(f"\n{child.name}: {child.log()}" for child in self.children)
                raise AssertionError(f"waited {PATIENCE_S} s in vain: {what}{logs}")
            time.sleep(0.001)


class Entry:
    """An entry's file as raw bytes."""

    def __init__(self, path):
        self.path = path
        with open(path, "rb") as file:
            self.fd = os.dup(file.fileno())

    def __del__(self):
        os.close(self.fd)

    def read(self, at, size):
        return os.pread(self.fd, size, at)

    def header(self):
        return abi.Header(*abi.HEADER.unpack(self.read(0, abi.HEADER_BYTES)))

    def lane(self, number):
        return abi.LaneHeader(*abi.LANE_HEADER.unpack(
            self.read(abi.lane_at(number), abi.LANE_HEADER_BYTES)))

    def lane_of(self, pid):
        """The number of the lane that a process holds ready; None if there is none."""
        for number in range(abi.LANES):
            lane = self.lane(number)
            if lane.state == abi.LANE_READY and lane.pid == pid:
                return number
        return None

    def descriptor(self, lane, sequence):
        return self.read(abi.descriptor_at(lane, sequence), abi.DESCRIPTOR_BYTES)

    def completion(self, lane, sequence):
        return abi.Completion(*abi.COMPLETION.unpack(
            self.read(abi.completion_at(lane, sequence), abi.COMPLETION_BYTES)))
