"""The relaying side of a version-1 process: one slot of each lane per sweep, in order; it keeps
next_sequence when a lane changes hands between two sweeps.

Its fabric writes into the target's memory by the target's own descriptors.
"""

import os
import pathlib

import v1_abi as abi

OK, BAD_DESCRIPTOR, NOT_DELIVERED = 0, -1, -4


class TargetMemory:
    """The shared memory of another process, by the addresses it has there."""

    def __init__(self, pid):
        self.ranges = []  # (address, end, offset in the file, descriptor)
        files = {}
        for link in pathlib.Path(f"/proc/{pid}/fd").iterdir():
            if os.readlink(link).startswith("/memfd:"):
                files[link.stat().st_ino] = link
        for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines():
            span, rights, offset, _, inode = line.split()[:5]
            if "w" in rights and int(inode) in files:
                start, end = (int(edge, 16) for edge in span.split("-"))
                fd = os.open(files[int(inode)], os.O_RDWR | os.O_CLOEXEC)
                self.ranges.append((start, end, int(offset, 16), fd))

    def write(self, address, data):
        """False: the bytes would not lie in one range."""
        for start, end, offset, fd in self.ranges:
            if start <= address and address + len(data) <= end:
                return os.pwrite(fd, data, offset + address - start) == len(data)
        return False

    def read(self, address, size):
        for start, end, offset, fd in self.ranges:
            if start <= address and address + size <= end:
                return os.pread(fd, size, offset + address - start)
        raise ValueError(f"{size} bytes at {address:#x} are not shared")


class Relay:
    """The lanes of this process's own block."""

    def __init__(self, block, arena, epoch):
        self.block = block
        self.arena = arena
        self.epoch = epoch
        self.sessions = {}  # name -> TargetMemory
        self.holding = False  # good pieces are taken and stay in flight
        self.next_sequence = [1] * abi.LANES
        self.posted = [[] for _ in range(abi.LANES)]  # (sequence, target, plans), in order
        self.delivered = 0  # bytes
        self.answers = {}  # status -> how many

    def post(self):
        """Takes one slot of each lane; whether there was any."""
        found = False
        for lane in range(abi.LANES):
            at = abi.lane_at(lane)
            if self.block.u32(at + abi.LANE_STATE) != abi.LANE_READY:
                self.next_sequence[lane] = 1
                self.posted[lane].clear()
            elif self.block.u64(at + abi.LANE_DOORBELL) >= self.next_sequence[lane]:
                self.posted[lane].append(self._take(lane, self.next_sequence[lane]))
                self.next_sequence[lane] += 1
                found = True
        return found

    def complete(self):
        """Delivers and answers what was taken; whether there was any."""
        found = False
        for lane in range(abi.LANES):
            while self.posted[lane] and not (self.holding and self.posted[lane][0][1] is not None):
                sequence, target, plans = self.posted[lane].pop(0)
                status = BAD_DESCRIPTOR
                if plans is not None:
                    status = self._deliver(abi.slot_at(lane, sequence), target, plans)
                self._answer(lane, sequence, status)
                found = True
        return found

    def _answer(self, lane, sequence, status):
        at = abi.completion_at(lane, sequence)
        abi.COMPLETION.pack_into(self.block.bytes, at, self.block.u64(at), status, 0, bytes(48))
        self.block.put_u64(at, sequence)
        self.block.put_u64(abi.lane_at(lane) + abi.LANE_COMPLETED, sequence)
        self.answers[status] = self.answers.get(status, 0) + 1

    def _take(self, lane, sequence):
        at = abi.descriptor_at(lane, sequence)
        head = abi.DescriptorHead(*abi.DESCRIPTOR_HEAD.unpack_from(self.block.bytes, at))
        plans = self._plans(at, head, sequence)
        if plans is None:
            return sequence, None, None
        return sequence, self.sessions.get(head.session[:head.session_length].decode()), plans

    def _deliver(self, slot, target, plans):
        for address, length in plans:
            if target is None or not target.write(address, self.arena[slot:slot + length]):
                return NOT_DELIVERED
            slot += length
            self.delivered += length
        return OK

    def _plans(self, at, head, sequence):
        """The plan entries of a good descriptor; None for a bad one."""
        if (head.commit_sequence != sequence or head.epoch != self.epoch or head.reserved != 0
                or not 1 <= head.piece_length <= abi.SLOT_BYTES
                or not 1 <= head.plan_count <= abi.MAX_PLANS
                or not 1 <= head.session_length <= abi.MAX_SESSION):
            return None
        plans = list(abi.PLAN.iter_unpack(
            self.block.bytes[at + abi.PLANS_AT:
                             at + abi.PLANS_AT + head.plan_count * abi.PLAN.size]))
        if any(length == 0 or address + length > 2**64 for address, length in plans):
            return None
        if sum(length for _, length in plans) != head.piece_length:
            return None
        return plans
