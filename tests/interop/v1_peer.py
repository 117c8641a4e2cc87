"""A version-1 process: one pump for both roles, spoken to in JSON lines.

Usage: v1_peer.py REGISTRY_ROOT GROUP RAIL

It publishes an entry, then serves one request a line on standard input with one reply a line:
  {"command": "info"}                                pid, start ticks, epoch, name of the entry
  {"command": "claim", "rail": R}                    a lane of the peer on rail R; null: no peer
  {"command": "release", "rail": R}
  {"command": "send", "rail": R, "session": S, "seed": N, "pieces": [P ...]}
        replies with rail and statuses once all are answered; meanwhile others are served.
        P: {"plans": [[address, length, offset] ...], "spoil": [[offset, format, value] ...]}; the
        bytes are those of pattern N from `offset` on
  {"command": "serve", "session": S, "pid": P}       where a session's memory is
  {"command": "hold", "on": B}                       take pieces and never finish them
  {"command": "pause", "on": B}                      look at no lane
  {"command": "stats"}                               bytes delivered, answers by status
  {"command": "scan"}                                names of the live entries
It ends at end of file and unpublishes.
"""

import json
import os
import select
import sys
import time

import pattern
from v1_registry import Registry, ScanError
from v1_relay import Relay, TargetMemory
from v1_sender import Quarantined, Sender

IDLE_S = 0.001


class Job:
    """The pieces of one "send"."""

    def __init__(self, request, sender):
        self.sender = sender
        self.rail = request["rail"]
        self.session = request["session"]
        source = pattern.words(request["seed"], max(
            offset + length for piece in request["pieces"] for _, length, offset in piece["plans"]))
        self.pieces = [([plan[:2] for plan in piece["plans"]],
                        b"".join(source[offset:offset + length]
                                 for _, length, offset in piece["plans"]),
                        piece.get("spoil", ())) for piece in request["pieces"]]
        self.statuses = []
        self.sent = 0

    def publish(self):
        if self.sent == len(self.pieces) or not self.sender.has_credit():
            return False
        plans, data, spoil = self.pieces[self.sent]
        self.sender.publish(self.session, plans, data, spoil)
        self.sent += 1
        return True

    def reap(self):
        answer = self.sender.reap()
        if answer is not None:
            self.statuses.append(answer[1])
        return answer is not None

    def done(self):
        return len(self.statuses) == len(self.pieces)


class Process:
    def __init__(self, root, group, rail):
        self.registry = Registry(root, group)
        self.registry.publish(rail)
        self.relay = Relay(self.registry.block, self.registry.arena.bytes, self.registry.epoch)
        self.senders = {}  # rail -> Sender
        self.jobs = []
        self.paused = False
        self.buffer = b""

    def run(self):
        while self.read_requests():
            busy = self.pump()
            for job in [job for job in self.jobs if job.done()]:
                self.jobs.remove(job)
                self.reply({"rail": job.rail, "statuses": job.statuses})
            if not busy:
                time.sleep(IDLE_S)
        self.registry.unpublish()

    def pump(self):
        """The four steps, in order; whether one of them found work."""
        found = [job.publish() for job in self.jobs]
        if not self.paused:
            found += [self.relay.post(), self.relay.complete()]
        found += [job.reap() for job in self.jobs]
        return any(found)

    def read_requests(self):
        """False at end of file."""
        while select.select([sys.stdin], [], [], 0)[0]:
            data = os.read(sys.stdin.fileno(), 1 << 20)
            if not data:
                return False
            *lines, self.buffer = (self.buffer + data).split(b"\n")
            for line in lines:
                self.handle(json.loads(line))
        return True

    def handle(self, request):
        if request["command"] == "send":
            self.jobs.append(Job(request, self.senders[request["rail"]]))
            return
        try:
            self.reply(getattr(self, "on_" + request["command"])(request) or {})
        except (OSError, ScanError, Quarantined) as error:
            self.reply({"error": f"{type(error).__name__}: {error}"})

    def reply(self, value):
        print(json.dumps(value), flush=True)

    def on_info(self, _):
        return {"pid": self.registry.owner.pid, "start_ticks": self.registry.owner.start_ticks,
                "epoch": self.registry.epoch, "entry": self.registry.name}

    def on_claim(self, request):
        peer = self.registry.map(request["rail"])
        if peer is None:
            return {"lane": None}
        sender = Sender(peer, self.registry.owner, self.registry.epoch)
        self.senders[request["rail"]] = sender
        return {"lane": sender.lane, "first": sender.next_sequence, "pid": peer.owner.pid}

    def on_release(self, request):
        sender = self.senders.pop(request["rail"])
        sender.peer.release(sender.lane)

    def on_serve(self, request):
        self.relay.sessions[request["session"]] = TargetMemory(request["pid"])

    def on_hold(self, request):
        self.relay.holding = request["on"]

    def on_pause(self, request):
        self.paused = request["on"]

    def on_stats(self, _):
        return {"delivered": self.relay.delivered, "answers": self.relay.answers,
                "next_sequence": self.relay.next_sequence}

    def on_scan(self, _):
        return {"entries": sorted(self.registry.scan())}


if __name__ == "__main__":
    Process(*sys.argv[1:]).run()
