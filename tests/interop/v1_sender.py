"""The sending side of a version-1 process: no probe, no claim words, completions read in order."""

import struct

import v1_abi as abi


class Quarantined(Exception):
    """A completion with the right sequence that is no answer."""


class Sender:
    """One claimed lane of a peer."""

    def __init__(self, peer, me, my_epoch):
        self.peer = peer
        self.block = peer.block
        self.lane, first = peer.claim(me, my_epoch)
        self.next_sequence = first
        self.reaped = first - 1
        self.left = {}  # slot -> (plans, session bytes) that its last use left there

    def has_credit(self):
        return self.next_sequence - self.reaped <= abi.SLOTS

    def publish(self, session, plans, data, spoil=()):
        """Sends `data`, cut into `plans` of (address, length). `spoil`: (offset in the descriptor,
        format, value), stored over what was right before the descriptor is committed."""
        sequence = self.next_sequence
        at = abi.descriptor_at(self.lane, sequence)
        commit = sequence
        self._fill(at, sequence, session.encode(), plans, len(data))
        for offset, form, value in spoil:
            if offset == abi.COMMIT_AT:
                commit = value
            else:
                struct.pack_into("<" + form, self.block.bytes, at + offset, value)
                self.left.pop(abi.slot_index(sequence), None)
        self.block.put_u64(at + abi.COMMIT_AT, commit)
        slot = abi.slot_at(self.lane, sequence)
        self.peer.arena[slot:slot + len(data)] = data
        self.block.put_u64(abi.lane_at(self.lane) + abi.LANE_DOORBELL, sequence)
        self.block.put_u64(abi.lane_at(self.lane) + abi.LANE_HEAD, sequence)
        self.next_sequence = sequence + 1
        return sequence

    def _fill(self, at, sequence, session, plans, length):
        block = self.block.bytes
        slot = abi.slot_index(sequence)
        left_plans, left_session = self.left.get(slot, (abi.MAX_PLANS, abi.MAX_SESSION))
        block[at + abi.SESSION_AT:at + abi.SESSION_AT + left_session] = bytes(left_session)
        plans_end = at + abi.PLANS_AT + left_plans * abi.PLAN.size
        block[at + abi.PLANS_AT:plans_end] = bytes(left_plans * abi.PLAN.size)
        struct.pack_into("<QIIII", block, at + abi.EPOCH_AT, self.peer.epoch, length, len(plans),
                         len(session), 0)
        block[at + abi.SESSION_AT:at + abi.SESSION_AT + len(session)] = session
        for i, (address, part) in enumerate(plans):
            abi.PLAN.pack_into(block, at + abi.PLANS_AT + i * abi.PLAN.size, address, part)
        self.left[slot] = (len(plans), len(session))

    def reap(self):
        """(sequence, status) of the next piece in order, or None."""
        sequence = self.reaped + 1
        if sequence == self.next_sequence:
            return None
        at = abi.completion_at(self.lane, sequence)
        if self.block.u64(at) != sequence:
            return None
        answer = abi.Completion(*abi.COMPLETION.unpack_from(self.block.bytes, at))
        if answer.reserved != 0 or answer.status > 0:
            raise Quarantined(str(answer))
        self.reaped = sequence
        return sequence, answer.status
