"""The shared-memory ABI, version 1: numbers, offsets, and access to the words.

Written from the page of the ABI alone, not from the C++ headers: where the two disagree, a test of
interop_test.py fails.

A word goes through a memoryview of native 4- or 8-byte items, so each access is one load or store
of an aligned word. The page's acquire and release orders are those of x86, where plain accesses
have them; the tests are skipped on other machines.
"""

import collections
import os
import pathlib
import struct

LANES = 7
SLOTS = 18
SLOT_BYTES = 8388608
ARENA_BYTES = LANES * SLOTS * SLOT_BYTES
MAX_PLANS = 4096
MAX_SESSION = 256
MAX_RAIL = 256
MAGIC = 0x4D4350584E524547
VERSION = 1

HEADER_BYTES = 448
LANE_BYTES = 1186624
LANE_HEADER_BYTES = 64
DESCRIPTOR_BYTES = 65856
COMPLETIONS_AT = 1185472
COMPLETION_BYTES = 64
BLOCK_BYTES = 8306816

INITIALIZING, READY, STOPPING = 0, 1, 2
LANE_FREE, LANE_CLAIMING, LANE_READY = 0, 1, 2

# Offsets in the RegistryHeader.
STATE_AT = 24
HEADER = struct.Struct("<QIIQIIIiQQQIIQQII256s64s32s")
Header = collections.namedtuple("Header", (
    "magic abi_version header_bytes mapping_bytes state rail_bytes uid pid start_ticks epoch "
    "heartbeat lane_count slots_per_lane slot_size arena_size ipc_handle_bytes reserved rail "
    "arena_handle padding"))

# Offsets in a LaneHeader.
LANE_STATE, LANE_ATTACHED, LANE_UID, LANE_PID, LANE_TICKS, LANE_EPOCH = 0, 4, 8, 12, 16, 24
LANE_HEAD, LANE_DOORBELL, LANE_COMPLETED = 32, 40, 48
LANE_HEADER = struct.Struct("<IIIiQQQQQQ")
LaneHeader = collections.namedtuple("LaneHeader", (
    "state arena_attached uid pid start_ticks sender_epoch head doorbell completed padding"))

# Offsets in a Descriptor.
COMMIT_AT, EPOCH_AT, SESSION_AT, PLANS_AT, TAIL_AT = 0, 8, 32, 288, 65824
DESCRIPTOR_HEAD = struct.Struct("<QQIIII256s")
DescriptorHead = collections.namedtuple("DescriptorHead", (
    "commit_sequence epoch piece_length plan_count session_length reserved session"))
PLAN = struct.Struct("<QQ")

# Offsets in a Completion.
STATUS_AT = 8
COMPLETION = struct.Struct("<QiI48s")
Completion = collections.namedtuple("Completion", "commit_sequence status reserved padding")

HOST_MARK = b"RHHOST1\0"
HANDLE = struct.Struct("<8siiQQQQ16s")
Handle = collections.namedtuple("Handle", "mark pid fd start_ticks st_dev st_ino size padding")

assert HEADER.size == HEADER_BYTES and LANE_HEADER.size == LANE_HEADER_BYTES
assert DESCRIPTOR_HEAD.size == PLANS_AT and TAIL_AT == PLANS_AT + MAX_PLANS * PLAN.size
assert DESCRIPTOR_BYTES == TAIL_AT + 32 and COMPLETION.size == COMPLETION_BYTES
assert COMPLETIONS_AT == LANE_HEADER_BYTES + SLOTS * DESCRIPTOR_BYTES
assert LANE_BYTES == COMPLETIONS_AT + SLOTS * COMPLETION_BYTES
assert BLOCK_BYTES == HEADER_BYTES + LANES * LANE_BYTES
assert HANDLE.size == 64 and ARENA_BYTES == 1056964608


def slot_index(sequence):
    return (sequence - 1) % SLOTS


def lane_at(lane):
    return HEADER_BYTES + lane * LANE_BYTES


def descriptor_at(lane, sequence):
    return lane_at(lane) + LANE_HEADER_BYTES + slot_index(sequence) * DESCRIPTOR_BYTES


def completion_at(lane, sequence):
    return lane_at(lane) + COMPLETIONS_AT + slot_index(sequence) * COMPLETION_BYTES


def slot_at(lane, sequence):
    """Offset of the slot in the arena."""
    return (lane * SLOTS + slot_index(sequence)) * SLOT_BYTES


Identity = collections.namedtuple("Identity", "uid pid start_ticks")


def stat_fields(pid):
    """The fields of /proc/PID/stat from the third on; None if there is no such process."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def own_identity():
    return Identity(os.geteuid(), os.getpid(), int(stat_fields(os.getpid())[19]))


def is_alive(identity):
    fields = stat_fields(identity.pid)
    return fields is not None and fields[0] not in "ZX" and int(fields[19]) == identity.start_ticks


class Block:
    """A mapped ControlBlock; offsets are those of the whole block."""

    def __init__(self, mapping):
        self.bytes = mapping
        self._u32 = memoryview(mapping).cast("I")
        self._u64 = memoryview(mapping).cast("Q")

    def u32(self, at):
        return self._u32[at // 4]

    def put_u32(self, at, value):
        self._u32[at // 4] = value

    def u64(self, at):
        return self._u64[at // 8]

    def put_u64(self, at, value):
        self._u64[at // 8] = value

    def header(self):
        return Header(*HEADER.unpack_from(self.bytes, 0))

    def lane_header(self, lane):
        return LaneHeader(*LANE_HEADER.unpack_from(self.bytes, lane_at(lane)))

    def holder(self, lane):
        """Identity and epoch of a lane's sender; sure only under the entry lock."""
        header = self.lane_header(lane)
        return Identity(header.uid, header.pid, header.start_ticks), header.sender_epoch

    def clear_lane(self, lane):
        at = lane_at(lane)
        self.put_u32(at + LANE_STATE, LANE_CLAIMING)
        self.put_u32(at + LANE_ATTACHED, 0)
        self.bytes[at + LANE_UID:at + LANE_BYTES] = bytes(LANE_BYTES - LANE_UID)
        self.put_u32(at + LANE_STATE, LANE_FREE)
