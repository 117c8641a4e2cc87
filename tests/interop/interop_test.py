"""Version-1 processes and Railhop ranks in one group, in both roles.

Usage: interop_test.py RAILHOP_BINARY [unittest arguments]

The version-1 side (v1_*.py) is written from the page of the ABI alone and shares no code with
Railhop. Every byte is checked at the target.
"""

import os
import platform
import random
import stat
import sys
import tempfile
import unittest

import pattern
import v1_abi as abi
from processes import Host
from v1_registry import check_header, open_arena
from v1_relay import TargetMemory

RAILHOP = None
MIB = 1 << 20
NEVER_MS = 100_000  # a timeout that only a hang reaches


def cut(total, lengths, shuffle=None):
    """Spans (offset, length) that cover `total` bytes once; lengths in turn, then in any order."""
    spans, at = [], 0
    while at < total:
        length = min(lengths[len(spans) % len(lengths)], total - at)
        spans.append((at, length))
        at += length
    if shuffle is not None:
        shuffle.shuffle(spans)
    return spans


def piece(address, spans, spoil=()):
    return {"plans": [(address + offset, length, offset) for offset, length in spans],
            "spoil": spoil}


@unittest.skipUnless(platform.machine() == "x86_64", "the Python side relies on x86's memory order")
class GroupTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir="/dev/shm", prefix="railhop-interop-")
        self.addCleanup(folder.cleanup)
        self.host = Host(RAILHOP, folder.name)
        self.addCleanup(self.host.close)

    def claim(self, v1, rail):
        """A lane of the rank on `rail` for `v1`."""
        def claim():
            reply = v1.ask("claim", rail=rail)
            return None if reply["lane"] is None else reply
        return self.host.wait_for(claim, f"a peer on {rail}")

    def run_batch(self, rank, address, lengths, seed, gap=0):
        """Starts a batch; receive_batch ends it. `gap` bytes are left out at the target after each
        request."""
        rank.ask("fill", bytes=sum(lengths), seed=seed)
        rank.send("run", relayed=True, address=address, timeout_ms=NEVER_MS, lengths=lengths,
                  gap=gap)

    def receive_batch(self, rank):
        reply = rank.receive()
        self.assertEqual(reply["state"], "COMPLETED", (reply, rank.log()))
        return reply

    def assert_arrived(self, target, area, size, seed):
        self.assertEqual(target.ask("check", area=area, bytes=size, seed=seed)["mismatch"], -1)

    def assert_untouched(self, target, area, size):
        self.assert_arrived(target, area, size, 0)


class VersionOneSenderTest(GroupTest):
    def test_every_piece_of_a_version_1_sender_arrives_through_a_railhop_relay(self):
        order = random.Random(1)
        small = cut(60 * 20_000, [1, 4096, 7, 12_345, 64, 3551], order)
        pieces = [small[i::60] for i in range(60)]
        many = cut(4096 * 5, [5], order)
        total = 60 * 20_000 + len(many) * 5 + abi.SLOT_BYTES
        pieces.insert(20, [(60 * 20_000 + offset, length) for offset, length in many])
        pieces.insert(40, [(total - abi.SLOT_BYTES, abi.SLOT_BYTES)])
        self.assertEqual(sum(length for spans in pieces for _, length in spans), total)

        target = self.host.target(["sim0"], total)
        rank = self.host.rank("sim0")
        v1 = self.host.v1("sim1")
        claim = self.claim(v1, "sim0")
        reply = v1.ask("send", rail="sim0", session="decode-0", seed=7,
                       pieces=[piece(target.addresses[0], spans) for spans in pieces])
        self.assertEqual(reply["statuses"], [0] * len(pieces))
        self.assert_arrived(target, 0, total, 7)
        self.assertEqual(rank.ask("stats")["bytes_relayed_for_others"], total)
        lane = self.host.entry(rank.pid).lane(claim["lane"])
        self.assertEqual((lane.head, lane.doorbell, lane.completed), (len(pieces),) * 3)

    def test_a_bad_descriptor_is_answered_with_an_error_and_the_lane_goes_on(self):
        bad = {
            "another sequence": [(abi.COMMIT_AT, "Q", 999)],
            "no epoch": [(8, "Q", 0)],
            "another epoch": [(8, "Q", 12345)],
            "no bytes": [(16, "I", 0)],
            "more bytes than a slot has": [(16, "I", abi.SLOT_BYTES + 1)],
            "fewer bytes than its plan": [(16, "I", 999)],
            "no plan": [(20, "I", 0)],
            "too many plan entries": [(20, "I", abi.MAX_PLANS + 1)],
            "no session": [(24, "I", 0)],
            "a session that is too long": [(24, "I", abi.MAX_SESSION + 1)],
            "reserved bits": [(28, "I", 1)],
            "a session that nobody serves": [(32, "B", ord("x"))],
            "an address outside the target": [(288, "Q", 4096)],
            "an address that wraps": [(288, "Q", 2**64 - 500)],
            "an entry of no bytes": [(16, "I", 0), (296, "Q", 0)],
        }
        size = 1000
        target = self.host.target(["sim0", "sim0"], size * (len(bad) + 10))
        self.host.rank("sim0")
        v1 = self.host.v1("sim1")
        self.claim(v1, "sim0")
        pieces, expected = [], []
        for number, spoil in enumerate(bad.values()):
            at = number * size
            pieces.append(piece(target.addresses[1], [(at, size)], spoil))
            halves = [(at, size // 2), (at + size // 2, size // 2)]
            pieces.append(piece(target.addresses[0], halves))
            expected += ["refused", "delivered"]
        reply = v1.ask("send", rail="sim0", session="decode-0", seed=3, pieces=pieces)
        self.assertEqual(["refused" if status < 0 else "delivered" for status in reply["statuses"]],
                         expected, list(zip(bad, reply["statuses"][::2])))
        self.assert_arrived(target, 0, size * len(bad), 3)
        self.assert_untouched(target, 1, size * len(bad))

    def test_a_sender_that_releases_its_lane_and_claims_it_again_starts_anew(self):
        size = 1000
        # Fewer pieces than before, as many, and more: the doorbell goes back, stands, or goes on.
        counts = (5, 3, 3, 8)
        target = self.host.target(["sim0"] * len(counts), max(counts) * size)
        rank = self.host.rank("sim0")
        v1 = self.host.v1("sim1")
        lane = self.claim(v1, "sim0")["lane"]
        for area, count in enumerate(counts):
            if area > 0:
                # It sees neither the release nor the claim.
                rank.stop()
                v1.ask("release", rail="sim0")
                self.assertEqual(self.claim(v1, "sim0")["lane"], lane)
            v1.send("send", rail="sim0", session="decode-0", seed=area + 1, pieces=[
                piece(target.addresses[area], [span]) for span in cut(count * size, [size])])
            if area > 0:
                entry = self.host.entry(rank.pid)
                self.host.wait_for(lambda: entry.lane(lane).head == count, "all pieces published")
                rank.go_on()
            self.assertEqual(v1.receive()["statuses"], [0] * count)
            self.assert_arrived(target, area, count * size, area + 1)


class VersionOneRelayTest(GroupTest):
    def test_every_byte_arrives_through_a_version_1_relay(self):
        target = self.host.target(["sim1"], 4 * MIB)
        v1 = self.host.v1("sim1", target)
        rank = self.host.rank("sim0", wanted="sim1", source_bytes=4 * MIB, max_piece_bytes=65536,
                              credit_timeout_ms=NEVER_MS)
        rank.ask("attach")
        lengths = [200_000, 1, 65_536, 4 * MIB - 400_000, 134_463]
        self.run_batch(rank, target.addresses[0], lengths, 5)
        reply = self.receive_batch(rank)
        self.assertEqual(reply["relayed_bytes"], sum(lengths))
        self.assert_arrived(target, 0, sum(lengths), 5)
        stats = v1.ask("stats")
        self.assertEqual(stats["delivered"], sum(lengths))
        # The probe, and nothing else, was refused.
        self.assertEqual(stats["answers"]["-1"], 1)
        self.assertEqual(set(stats["answers"]), {"-1", "0"})
        self.assertGreater(stats["answers"]["0"], 2 * abi.SLOTS)

    def test_pieces_of_many_spans_go_through_a_version_1_relay(self):
        target = self.host.target(["sim1"], MIB)
        v1 = self.host.v1("sim1", target)
        rank = self.host.rank("sim0", wanted="sim1", credit_timeout_ms=NEVER_MS)
        rank.ask("attach")
        self.run_batch(rank, target.addresses[0], [100] * 9000, 8, gap=7)
        self.assertEqual(self.receive_batch(rank)["relayed_bytes"], 900_000)
        found = TargetMemory(target.pid).read(target.addresses[0], 9000 * 107)
        sent, before = pattern.words(8, 900_000), pattern.words(0, 9000 * 107)
        for i in range(9000):
            at = i * 107
            self.assertEqual(found[at:at + 107],
                             sent[i * 100:i * 100 + 100] + before[at + 100:at + 107], i)
        # The probe was refused; so few pieces show that many spans were packed into one.
        self.assertLess(v1.ask("stats")["answers"]["0"], 100)

    def test_a_relay_with_a_stale_sequence_is_offered_nothing_and_everything_goes_direct(self):
        target = self.host.target(["sim1"], MIB)
        v1 = self.host.v1("sim1", target)
        former = self.host.v1("sim2")
        lane = self.claim(former, "sim1")["lane"]
        former.ask("send", rail="sim1", session="decode-0", seed=1,
                   pieces=[piece(target.addresses[0], [(0, 100)])] * 3)
        # It sees neither that the lane's sender dies nor that the next one starts anew at 1.
        v1.ask("pause", on=True)
        former.kill()
        rank = self.host.rank("sim0", preattach="true", probe_timeout_ms=1)
        entry = self.host.entry(v1.pid)
        self.host.wait_for(lambda: entry.lane_of(rank.pid) == lane and entry.lane(lane).head == 1,
                           "the probe of the rank")
        v1.ask("pause", on=False)
        self.host.wait_for(lambda: "did not answer the probe" in rank.log(), "the rank's warning")
        for seed in range(2, 6):
            self.run_batch(rank, target.addresses[0], [MIB // 2, MIB // 2], seed)
            self.assertEqual(self.receive_batch(rank)["relayed_bytes"], 0)
            self.assert_arrived(target, 0, MIB, seed)
        found = entry.lane(lane)
        self.assertEqual((found.head, found.doorbell, found.completed), (1, 1, 0))
        stats = v1.ask("stats")
        self.assertEqual((stats["delivered"], stats["answers"]), (300, {"0": 3}))
        self.assertEqual(stats["next_sequence"][lane], 4)

    def test_pieces_in_flight_go_direct_when_a_version_1_relay_is_killed(self):
        target = self.host.target(["sim1"], 4 * MIB)
        v1 = self.host.v1("sim1", target)
        rank = self.host.rank("sim0", wanted="sim1", source_bytes=4 * MIB, max_piece_bytes=65536,
                              credit_timeout_ms=NEVER_MS)
        rank.ask("attach")
        v1.ask("hold", on=True)
        self.run_batch(rank, target.addresses[0], [MIB] * 4, 9)
        entry = self.host.entry(v1.pid)
        # The probe, and the half of the slots that one target may have.
        sent = 1 + abi.SLOTS // 2
        self.host.wait_for(lambda: entry.lane(0).doorbell == sent, "pieces in flight")
        self.host.wait_for(lambda: v1.ask("stats")["next_sequence"][0] == sent + 1,
                           "the relay's taking them")
        self.assertFalse(rank.has_answered())
        v1.kill()
        self.assertEqual(self.receive_batch(rank)["relayed_bytes"], 0)
        self.assert_arrived(target, 0, 4 * MIB, 9)
        self.assertGreaterEqual(rank.ask("stats")["fallbacks"]["relay lost"], sent - 1)
        # The next owner of the rail is found and used.
        self.host.v1("sim1", target, name="v1-sim1-again")
        rank.ask("attach")
        self.run_batch(rank, target.addresses[0], [MIB] * 4, 10)
        self.assertEqual(self.receive_batch(rank)["relayed_bytes"], 4 * MIB)
        self.assert_arrived(target, 0, 4 * MIB, 10)


class DeadVersionOneSenderTest(GroupTest):
    """A version-1 sender is killed while the NIC of its Railhop relay still sends its pieces."""

    SIZE = 18 * MIB // 2

    def setUp(self):
        super().setUp()
        self.target = self.host.target(["sim0"] * 2, self.SIZE)
        # Two seconds for what a full ring holds; and a lane that was taken over stays so for long
        # enough to be looked at.
        self.rank = self.host.rank("sim0", line_rate=5_000_000, lane_grace_ms=3000)
        self.former = self.host.v1("sim1")
        self.new = self.host.v1("sim2")
        self.lane = self.claim(self.former, "sim0")["lane"]
        self.entry = self.host.entry(self.rank.pid)
        self.send(self.former, 0, 11)
        self.host.wait_for(lambda: self.entry.lane(self.lane).completed >= 1, "the first piece")
        # So that the rest stays in flight, and the rank does not see at once what comes now.
        self.rank.stop()
        self.former.kill()
        self.answered = self.entry.lane(self.lane).completed
        self.assertLess(self.answered, 18)

    def send(self, v1, area, seed):
        address = self.target.addresses[area]
        v1.send("send", rail="sim0", session="decode-0", seed=seed,
                pieces=[piece(address, [span]) for span in cut(self.SIZE, [MIB // 2])])

    def assert_new_sender_is_served(self):
        self.send(self.new, 1, 22)
        self.assertEqual(self.new.receive()["statuses"], [0] * 18)
        self.assert_arrived(self.target, 1, self.SIZE, 22)

    def wrong_pages(self, size):
        """Pages of the dead sender's area with other bytes than its own or those of before."""
        found = TargetMemory(self.target.pid).read(self.target.addresses[0], size)
        own, before = pattern.words(11, size), pattern.words(0, size)
        return [at for at in range(0, size, 4096)
                if found[at:at + 4096] not in (own[at:at + 4096], before[at:at + 4096])]

    def test_the_relay_drains_its_lane_and_another_version_1_sender_gets_it(self):
        self.rank.go_on()
        rank_epoch = self.entry.header().epoch
        self.host.wait_for(lambda: self.entry.lane(self.lane).sender_epoch == rank_epoch,
                           "the take-over")
        taken = self.entry.lane(self.lane)
        self.assertEqual((taken.state, taken.pid), (abi.LANE_READY, self.rank.pid))
        self.host.wait_for(lambda: self.entry.lane(self.lane).state == abi.LANE_FREE, "a free lane")
        self.assertEqual(self.entry.read(abi.lane_at(self.lane), abi.LANE_BYTES).count(0),
                         abi.LANE_BYTES)
        self.assertEqual(self.claim(self.new, "sim0")["lane"], self.lane)
        self.assert_new_sender_is_served()
        self.assertEqual(self.wrong_pages(self.SIZE), [])

    def test_a_version_1_claimer_that_comes_before_the_relay_is_served_every_byte(self):
        self.assertEqual(self.claim(self.new, "sim0")["lane"], self.lane)
        self.rank.go_on()
        self.assert_new_sender_is_served()
        # Beyond these the new sender's bytes may land where the dead one's pieces pointed: it
        # fills slots that the NIC still reads, as no relay can keep version 1 from doing.
        self.assertEqual(self.wrong_pages(self.answered * MIB // 2), [])


class MixedGroupTest(GroupTest):
    def test_one_version_1_process_and_two_ranks_relay_for_each_other_at_once(self):
        rails = ("sim0", "sim1", "v1")
        ways = [(sender, rail) for sender in rails for rail in rails if sender != rail]
        size = 2 * MIB
        target = self.host.target([rail for _, rail in ways], size)
        areas = {way: (number, target.addresses[number]) for number, way in enumerate(ways)}
        v1 = self.host.v1("v1", target)
        ranks = {rail: self.host.rank(rail, source_bytes=size, max_piece_bytes=65536,
                                      wanted=",".join({*rails} - {rail}), preattach="true",
                                      credit_timeout_ms=NEVER_MS)
                 for rail in ("sim0", "sim1")}
        for rail, rank in ranks.items():
            rank.send("attach")
            self.claim(v1, rail)
        for rank in ranks.values():
            rank.receive()

        spans = cut(size, [50_000, 3, 4096], random.Random(2))
        for turn in range(4):
            seed = 100 + turn
            to = {"sim0": ("sim1", "v1")[turn % 2], "sim1": ("v1", "sim0")[turn % 2]}
            for rail, rank in ranks.items():
                self.run_batch(rank, areas[rail, to[rail]][1], [size // 8] * 8, seed)
            for rail in ranks:
                v1.send("send", rail=rail, session="decode-0", seed=seed, pieces=[
                    piece(areas["v1", rail][1], spans[i::40]) for i in range(40)])
            v1.send("scan")
            replies = sorted((v1.receive() for _ in range(3)), key=lambda reply: "rail" in reply)
            self.assertEqual(len(replies[0]["entries"]), 3)
            for reply in replies[1:]:
                self.assertEqual(reply["statuses"], [0] * 40)
            for rail, rank in ranks.items():
                self.assertEqual(self.receive_batch(rank)["relayed_bytes"], size)
                self.assert_arrived(target, areas[rail, to[rail]][0], size, seed)
                self.assert_arrived(target, areas["v1", rail][0], size, seed)
        self.assertEqual(v1.ask("stats")["delivered"], 4 * size)
        for rank in ranks.values():
            # One batch of version 1 each turn, and one of the other rank every other turn.
            self.assertEqual(rank.ask("stats")["bytes_relayed_for_others"], 6 * size)
            self.assertEqual(rank.ask("stats")["fallbacks"], {})
        for child in (*ranks.values(), v1):
            self.assertEqual(child.finish(), 0, child.log())
        self.assertEqual(self.host.entries(), [])


class LayoutTest(GroupTest):
    """What Railhop writes, byte by byte at the offsets of the page."""

    def assert_descriptor(self, raw, sequence, epoch, session, plans):
        head = abi.DescriptorHead(*abi.DESCRIPTOR_HEAD.unpack_from(raw))
        self.assertEqual(head, (sequence, epoch, sum(length for _, length in plans), len(plans),
                                len(session), 0, session.ljust(abi.MAX_SESSION, b"\0")))
        used = abi.PLANS_AT + len(plans) * abi.PLAN.size
        self.assertEqual(list(abi.PLAN.iter_unpack(raw[abi.PLANS_AT:used])), plans)
        self.assertEqual(raw[used:].count(0), abi.DESCRIPTOR_BYTES - used)

    def test_an_entry_of_a_rank(self):
        self.host.target(["sim0"], MIB)
        rank = self.host.rank("sim0")
        entry = self.host.wait_for(lambda: self.host.entry(rank.pid), "its entry")
        header = entry.header()
        uid, ticks = os.geteuid(), int(abi.stat_fields(rank.pid)[19])
        check_header(header, entry.path, uid)
        self.assertEqual(os.path.basename(entry.path),
                         f"peer.{rank.pid}.{ticks}.{header.epoch}.reg")
        self.assertEqual(header._replace(epoch=1, heartbeat=0, arena_handle=b""), (
            0x4D4350584E524547, 1, 448, 8306816, abi.READY, 4, uid, rank.pid, ticks, 1, 0, 7, 18,
            8388608, 1056964608, 64, 0, b"sim0".ljust(256, b"\0"), b"", bytes(32)))
        handle = abi.Handle(*abi.HANDLE.unpack(header.arena_handle))
        arena = os.stat(f"/proc/{rank.pid}/fd/{handle.fd}")
        self.assertEqual(handle, (b"RHHOST1\0", rank.pid, handle.fd, ticks, arena.st_dev,
                                  arena.st_ino, abi.ARENA_BYTES, bytes(16)))
        self.assertEqual(arena.st_size, abi.ARENA_BYTES)
        self.assertEqual(entry.read(abi.HEADER_BYTES, abi.BLOCK_BYTES).count(0), 7 * 1186624)
        found = os.stat(entry.path)
        self.assertEqual((stat.S_IMODE(found.st_mode), found.st_nlink, found.st_size),
                         (0o600, 1, 8306816))
        folder = os.stat(self.host.registry)
        self.assertEqual(stat.S_IMODE(folder.st_mode), 0o700)
        self.assertEqual(sorted(os.listdir(self.host.registry)),
                         [".lock", os.path.basename(entry.path)])
        # It still beats: a version-1 reader accepts any value there.
        self.host.wait_for(lambda: entry.header().heartbeat != header.heartbeat, "a heartbeat")

    def test_the_claim_and_the_probe_of_a_rank(self):
        target = self.host.target(["sim1"], MIB)
        v1 = self.host.v1("sim1", target)
        v1.ask("pause", on=True)
        rank = self.host.rank("sim0", wanted="sim1", preattach="true")
        entry = self.host.entry(v1.pid)
        self.host.wait_for(lambda: entry.lane(0).head == 1, "the probe")
        mine = self.host.entry(rank.pid).header()
        self.assertEqual(entry.lane(0), (
            abi.LANE_READY, 1, mine.uid, mine.pid, mine.start_ticks, mine.epoch, 1, 1, 0, 0))
        raw = entry.descriptor(0, 1)
        head = abi.DescriptorHead(*abi.DESCRIPTOR_HEAD.unpack_from(raw))
        self.assertNotIn(head.epoch, (0, v1.info["epoch"]))
        self.assertEqual((head.piece_length, head.plan_count), (1, 1))
        self.assertGreaterEqual(head.session_length, 1)
        self.assert_descriptor(raw, 1, head.epoch, head.session[:head.session_length],
                               list(abi.PLAN.iter_unpack(raw[288:304])))
        for sequence in range(2, abi.SLOTS + 1):
            self.assertEqual(entry.descriptor(0, sequence).count(0), abi.DESCRIPTOR_BYTES)
        v1.ask("pause", on=False)
        rank.ask("attach")
        self.assertEqual(v1.ask("stats")["answers"], {"-1": 1})
        self.assertEqual(v1.ask("stats")["delivered"], 0)
        self.assertEqual(entry.completion(0, 1), (1, -1, 0, bytes(48)))
        self.assertEqual(entry.lane(0).completed, 1)

    def test_pieces_of_a_rank_in_flight(self):
        target = self.host.target(["sim1"], MIB)
        v1 = self.host.v1("sim1", target)
        rank = self.host.rank("sim0", wanted="sim1", credit_timeout_ms=NEVER_MS)
        rank.ask("attach")
        entry = self.host.entry(v1.pid)
        # Many entries first, so that the slots' next use has something to clear; full rounds of the
        # ring, so that what is looked at lies in a slot used before.
        for turn in range(2 * abi.SLOTS):
            self.run_batch(rank, target.addresses[0], [64] * 200, turn, gap=8)
            self.receive_batch(rank)
        self.assertGreater(abi.DescriptorHead(*abi.DESCRIPTOR_HEAD.unpack_from(
            entry.descriptor(0, entry.lane(0).head))).plan_count, 1)
        before = entry.lane(0).head
        v1.ask("hold", on=True)
        # Small enough for one piece.
        self.run_batch(rank, target.addresses[0], [70_000], 77)
        self.host.wait_for(lambda: entry.lane(0).head > before, "a piece in flight")
        lane = entry.lane(0)
        self.assertEqual((lane.head, lane.doorbell, lane.completed, lane.padding),
                         (before + 1, before + 1, before, 0))
        self.assert_descriptor(entry.descriptor(0, before + 1), before + 1, v1.info["epoch"],
                               b"decode-0", [(target.addresses[0], 70_000)])
        arena = open_arena(entry.header().arena_handle)
        slot = abi.slot_at(0, before + 1)
        self.assertTrue(arena[slot:slot + 70_000] == pattern.words(77, 70_000))
        v1.ask("hold", on=False)
        self.assertEqual(self.receive_batch(rank)["relayed_bytes"], 70_000)
        self.assert_arrived(target, 0, 70_000, 77)

    def test_answers_of_a_rank(self):
        target = self.host.target(["sim0"], MIB)
        rank = self.host.rank("sim0")
        v1 = self.host.v1("sim1")
        number = self.claim(v1, "sim0")["lane"]
        good = piece(target.addresses[0], [(0, 1000)])
        v1.ask("send", rail="sim0", session="decode-0", seed=1,
               pieces=[good, {**good, "spoil": [(28, "I", 1)]}, good])
        entry = self.host.entry(rank.pid)
        self.assertEqual([entry.completion(number, sequence) for sequence in range(1, 5)],
                         [(1, 0, 0, bytes(48)), (2, -1, 0, bytes(48)), (3, 0, 0, bytes(48)),
                          (0, 0, 0, bytes(48))])
        lane = entry.lane(number)
        self.assertEqual((lane.state, lane.pid, lane.sender_epoch),
                         (abi.LANE_READY, v1.pid, v1.info["epoch"]))
        self.assertEqual((lane.head, lane.doorbell, lane.completed, lane.padding), (3, 3, 3, 0))
        v1.ask("release", rail="sim0")
        self.assertEqual(entry.read(abi.lane_at(number), abi.LANE_BYTES).count(0), abi.LANE_BYTES)


if __name__ == "__main__":
    RAILHOP = sys.argv.pop(1)
    unittest.main()
