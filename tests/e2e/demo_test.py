"""Runs `railhop demo` as a user does: small batches, real processes, real faults.

Usage: demo_test.py RAILHOP_BINARY [unittest arguments]
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

RAILHOP = None
ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
TIMEOUT_S = 240
SMALL = {
    "batches": [
        {"name": "small/state", "lengths": [64, 64, 512, 1, 8192]},
        {"name": "small/kv", "lengths": [2359296] * 6},
    ]
}
STAGES = ["submitted -> sliced", "sliced -> copy issued", "copy issued -> doorbell seen",
          "doorbell seen -> posted", "posted -> completed", "completed -> reaped"]


def demo_processes():
    """Process ids and command lines of the children of running demos."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                found[int(entry.name)] = (entry / "cmdline").read_bytes().decode().split("\0")
            except OSError:
                pass  # it ended meanwhile
    return found


def descendants(parent, word):
    """Children of `parent` with `word` in their command line."""
    children = []
    for pid, command in demo_processes().items():
        try:
            status = pathlib.Path(f"/proc/{pid}/status").read_text()
        except OSError:
            continue
        if f"\nPPid:\t{parent}\n" in status and word in command:
            children.append(pid)
    return children


class DemoTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.batches = self.write("batches.json", json.dumps(SMALL))

    def write(self, name, text):
        path = pathlib.Path(self.folder.name, name)
        path.write_text(text)
        return str(path)

    def command(self, *arguments, batches=None):
        return [RAILHOP, "demo", "--ranks", "2", "--duration", "0", "--line-rate", "2",
                "--batches", batches or self.batches, *arguments]

    def run_demo(self, *arguments, prefix=(), env=None, batches=None):
        return subprocess.run(
            [*prefix, *self.command(*arguments, batches=batches)], capture_output=True, text=True,
            timeout=TIMEOUT_S, env={**os.environ, **(env or {})}, check=False)

    def assert_fails_saying(self, result, *words):
        self.assertNotIn(result.returncode, (0, None))
        self.assertGreater(result.returncode, 0, "ended by a signal: " + result.stderr)
        for word in words:
            self.assertIn(word, result.stderr)

    def test_relays_every_batch_and_says_so_in_tables_and_json(self):
        results = pathlib.Path(self.folder.name, "results.json")
        done = self.run_demo("--json", str(results))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("small/kv", done.stdout)
        self.assertRegex(done.stdout, r"(?m)^0 +submit ")
        lines = [json.loads(line) for line in results.read_text().splitlines()]
        ratios = {line["batch"]: line for line in lines if line["name"] == "demo.relay_ratio"}
        self.assertEqual(set(ratios), {"small/state", "small/kv"})
        for line in ratios.values():
            self.assertEqual(line["relayed_share"], 1.0)
            self.assertGreater(line["ratio"], 0)
        actors = {(line["rank"], line["actor"]) for line in lines if line["name"] == "demo.actor"}
        for actor in ("submit", "copy", "relay_post", "cq_poll", "peer", "endpoint", "watchdog"):
            self.assertIn((0, actor), actors)
            self.assertIn((1, actor), actors)

    def fake_gpus(self):
        """The environment in which the driver is the stand-in of the tests: two GPUs."""
        return {"LD_LIBRARY_PATH": os.environ["RAILHOP_FAKE_CUDA_FOLDER"]}

    def test_on_gpus_every_byte_is_checked_once_and_then_the_clock_gives_the_figures(self):
        total = sum(sum(batch["lengths"]) for batch in SMALL["batches"])
        for memory in ("cuda", "host"):
            with self.subTest(target=memory):
                results = pathlib.Path(self.folder.name, f"{memory}.json")
                done = self.run_demo("--staging", "cuda", "--target-memory", memory, "--json",
                                     str(results), env=self.fake_gpus())
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertRegex(done.stdout, r"staged on 2 GPU\(s\): 0000:[0-9a-f]+:00")
                lines = [json.loads(line) for line in results.read_text().splitlines()]
                checked, = [line for line in lines if line["name"] == "demo.checked"]
                # Two ranks, relayed and direct.
                self.assertEqual(checked["value"], 4 * total)
                line, = [line for line in lines if line["name"] == "demo.line_rate"]
                self.assertEqual((len(line["gpus"]), line["target"]), (2, memory))
                ratios = [line for line in lines if line["name"] == "demo.relay_ratio"]
                self.assertEqual([line["relayed_share"] for line in ratios], [1.0, 1.0])
                self.assertEqual([line["pairs"] for line in ratios], [1, 1])

    def test_on_gpus_ranks_share_them(self):
        done = self.run_demo("--staging", "cuda", "--ranks", "3", env=self.fake_gpus())
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("3 ranks", done.stdout)

    def test_on_gpus_a_demo_that_relays_nothing_fails_before_it_measures(self):
        config = self.write("large.textproto", "pxn { min_relay_bytes: 1000000000 }")
        done = self.run_demo("--staging", "cuda", "--config", config, env=self.fake_gpus())
        self.assert_fails_saying(done, "nothing was relayed", "small batch")

    def test_without_a_gpu_it_says_what_is_missing_and_what_to_do(self):
        done = self.run_demo("--staging", "cuda", env={"CUDA_VISIBLE_DEVICES": ""})
        self.assert_fails_saying(done, "--staging cuda needs a GPU", "CUDA", "leave the option out")

    def test_where_the_target_is_asks_for_gpus(self):
        done = self.run_demo("--target-memory", "host")
        self.assert_fails_saying(done, "--target-memory", "--staging")
        self.assertEqual(done.returncode, 2)

    def read_trace(self, path):
        """Events of the trace by piece, in the order of stages, and the names of its rows."""
        events = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))["traceEvents"]
        pieces, names = {}, {}
        for event in events:
            if event["ph"] == "M":
                names[event["name"], event["pid"], event["tid"]] = event["args"]["name"]
            else:
                self.assertEqual(event["ph"], "X")
                pieces.setdefault(event["args"]["piece"], []).append(event)
        for stages in pieces.values():
            stages.sort(key=lambda event: STAGES.index(event["name"]))
        return pieces, names

    def test_a_trace_has_every_stage_of_every_piece_at_both_ranks(self):
        path = str(pathlib.Path(self.folder.name, "trace.json"))
        done = self.run_demo("--trace", path)
        self.assertEqual(done.returncode, 0, done.stderr)
        pieces, names = self.read_trace(path)
        sent = [sum(event["args"]["bytes"] for stages in pieces.values() for event in stages
                    if event["name"] == STAGES[1] and event["pid"] == pid) for pid in (1, 2)]
        total = sum(sum(batch["lengths"]) for batch in SMALL["batches"])
        self.assertEqual(sent, [total, total], "all bytes of both ranks are in some piece")
        for piece, stages in pieces.items():
            with self.subTest(piece=piece):
                self.assertEqual([event["name"] for event in stages], STAGES)
                sender = stages[0]["pid"]
                self.assertEqual([event["pid"] for event in stages],
                                 [sender, sender, sender, 3 - sender, 3 - sender, sender])
                for event, following in zip(stages, stages[1:]):
                    self.assertGreaterEqual(event["dur"], 0)
                    # The clocks of two processes may differ by some tens of nanoseconds.
                    self.assertAlmostEqual(event["ts"] + event["dur"], following["ts"], delta=1)
                self.assertGreaterEqual(stages[0]["args"]["waited_us"] + 0.001, stages[0]["dur"])
                self.assertTrue(all(event["args"]["status"] == 0 for event in stages))

        rows = {}  # of the picture: events in one of them follow each other
        for event in (event for stages in pieces.values() for event in stages):
            rows.setdefault((event["pid"], event["tid"]), []).append(event)
        self.assertEqual(len(rows), len({tid for _, tid in rows}), "a number is one row")
        ranks = {pid: name for (kind, pid, _), name in names.items() if kind == "process_name"}
        self.assertEqual(ranks, {1: "rank 0", 2: "rank 1"})
        for (pid, row), events in rows.items():
            self.assertRegex(names["thread_name", pid, row], r"^(submit|copy|relay_post|cq_poll) \d")
            events.sort(key=lambda event: (event["ts"], event["dur"]))
            for event, following in zip(events, events[1:]):
                self.assertLess(event["ts"] + event["dur"], following["ts"] + 0.002)

    def test_tells_how_slots_are_used_how_long_stages_take_and_what_bounds_throughput(self):
        results = pathlib.Path(self.folder.name, "results.json")
        config = self.write("rank.textproto", "tracing { sample_every: 1 }\n")
        # Slow enough for a look at the slots: 28 ms for a batch.
        done = self.run_demo("--json", str(results), "--config", config, "--line-rate", "0.5")
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = [json.loads(line) for line in results.read_text(encoding="utf-8").splitlines()]
        slots = {line["rank"]: line for line in lines if line["name"] == "demo.slots"}
        self.assertEqual(set(slots), {0, 1})
        for rank, line in slots.items():
            self.assertEqual(line["to_rank"], str(1 - rank))
            self.assertGreater(line["samples"], 0)
            self.assertAlmostEqual(18, sum(line[state] for state in
                                           ("free", "copying", "rung", "posted", "completed")))
        stages = {line["stage"]: line for line in lines if line["name"] == "demo.stage"}
        self.assertEqual(list(stages), [*STAGES, "submitted -> reaped"])
        counts = {line["count"] for line in stages.values()}
        self.assertEqual(len(counts), 1, "every piece was recorded by both ranks")
        self.assertGreater(counts.pop(), 0)
        for stage, line in stages.items():
            self.assertLessEqual(line["value"], line["p99_us"])
            self.assertIn("\n" + stage + " ", done.stdout)
        (bound,) = (line for line in lines if line["name"] == "demo.bound")
        self.assertIn(bound["actor"], ("submit", "copy", "relay_post", "cq_poll"))
        self.assertEqual(bound["records_lost"], 0)
        self.assertEqual(bound["failed"], 0)
        self.assertIn(f"throughput is bounded by {bound['actor']} of rank {bound['rank']}", done.stdout)

    def test_without_tracing_it_says_that_nothing_was_recorded(self):
        config = self.write("rank.textproto", "tracing { pieces: false }\n")
        done = self.run_demo("--config", config)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("\n0 pieces were recorded", done.stdout)

    def test_the_slot_log_has_a_line_per_lane(self):
        config = self.write("rank.textproto", "slot_log { every_ms: 10 }\n")
        done = self.run_demo("--config", config, env={"RAILHOP_LOG_LEVEL": "info"})
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = re.findall(r"(?m)^railhop info: lane 0 to process \d+ \((sim[01])\): (\d+) free, "
                           r"(\d+) copying, (\d+) rung, (\d+) posted, (\d+) completed$", done.stderr)
        self.assertEqual({line[0] for line in lines}, {"sim0", "sim1"})
        for line in lines:
            self.assertEqual(sum(int(count) for count in line[1:]), 18)

    def test_more_ranks_and_rails_and_every_layout(self):
        for layout in ("one_core", "two_core", "four_core", "per_nic"):
            with self.subTest(layout=layout):
                done = self.run_demo("--layout", layout, "--rails-per-rank", "2", "--ranks", "3")
                if "core" in done.stderr and done.returncode != 0:
                    # A preset that wants more cores than are allowed says so.
                    self.assertRegex(done.stderr, r"allowed|cores")
                    continue
                self.assertEqual(done.returncode, 0, done.stderr)

    def test_leaves_nothing_in_shared_memory(self):
        def leftovers():
            return {path.name for path in pathlib.Path("/dev/shm").glob("railhop-demo-*")}
        before = leftovers()
        self.assertEqual(self.run_demo().returncode, 0)
        self.assertEqual(leftovers() - before, set())

    def test_removes_what_a_killed_demo_left_and_nothing_else(self):
        with subprocess.Popen(["true"]) as ended:
            ended.wait()
            left = pathlib.Path(f"/dev/shm/railhop-demo-{ended.pid}.1")
        ticks = pathlib.Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19]
        kept = pathlib.Path(f"/dev/shm/railhop-demo-{os.getpid()}.{ticks}")
        for folder in (left, kept):
            folder.mkdir()
            (folder / "rank0.textproto").touch()
            self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        self.assertEqual(self.run_demo().returncode, 0)
        self.assertFalse(left.exists())
        self.assertTrue(kept.exists())

    def test_names_a_batch_file_that_is_missing_or_wrong(self):
        self.assert_fails_saying(self.run_demo(batches="/nowhere.json"), "/nowhere.json")
        for text in ("", "[]", "{}", '{"batches": []}', '{"batches": [{"name": "x"}]}',
                     '{"batches": [{"name": "x", "lengths": [-1]}]}',
                     '{"batches": [{"name": "x", "lengths": [0]}]}',
                     '{"batches": [{"name": "x", "lengths": []}]}',
                     '{"batches": [{"name": "x\\u001b[31m", "lengths": [8]}]}',
                     '{"batches": [{"name": "", "lengths": [8]}]}',
                     '{"batches": [{"name": "x", "lengths": [8]}, {"name": "x", "lengths": [9]}]}',
                     '{"batches": [{"name": "x", "count": 2, "lengths": [8]}]}',
                     '{"batches": [{"name": "x", "total": 9, "lengths": [8]}]}',
                     '{"batches": [{"name": "x", "lengths": [99999999999999999999]}]}'):
            with self.subTest(text=text):
                path = self.write("bad.json", text)
                self.assert_fails_saying(self.run_demo(batches=path), "bad.json")

    def test_names_an_unknown_config_field_by_file_and_line(self):
        config = self.write("rank.textproto", "piece_timeout_ms: 4000\nslice_sice: 4096\n")
        self.assert_fails_saying(self.run_demo("--config", config), f"{config}:2:", "slice_sice",
                                 "Known fields here", "slice_size")

    def test_names_a_bad_config_value_by_file_and_line(self):
        nics = "".join(f'nics {{ name: "mlx5_{i}" sim {{}} }}\n' for i in (0, 1, 0))
        for line, text in ((2, "# first\nslice_size: 3\n"), (3, nics)):
            with self.subTest(text=text):
                config = self.write("rank.textproto", text)
                self.assert_fails_saying(self.run_demo("--config", config), f"{config}:{line}:")

    def test_names_a_bad_pxn_value_of_the_config_by_file_and_line(self):
        for value in ('group_id: "a/b"', "credit_timeout_ms: 0", 'rail_map: "[1]"'):
            with self.subTest(value=value):
                config = self.write("rank.textproto", "# first\npxn { enable: true " + value + " }\n")
                self.assert_fails_saying(self.run_demo("--config", config), f"{config}:2:")

    def test_refuses_files_that_never_end(self):
        self.assert_fails_saying(self.run_demo(batches="/dev/zero"), "/dev/zero", "--batches")
        self.assert_fails_saying(self.run_demo("--config", "/dev/zero"), "/dev/zero", "--config")

    def test_says_that_its_tables_could_not_be_written(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            done = subprocess.run(self.command(), stdout=full, stderr=subprocess.PIPE, text=True,
                                  timeout=TIMEOUT_S, check=False)
        self.assert_fails_saying(done, "standard output")

    def test_refuses_two_layouts(self):
        config = self.write("rank.textproto", 'reactors { name: "data" }\n')
        self.assert_fails_saying(self.run_demo("--config", config, "--layout", "one_core"),
                                 config, "--layout one_core")

    def test_starts_from_the_example_config(self):
        done = self.run_demo("--config", "config/demo_rank.textproto")
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_names_a_core_outside_the_allowed_set(self):
        core = max(os.sched_getaffinity(0)) + 1000
        config = self.write("rank.textproto",
                            f'reactors {{ name: "data" core: {core} }}\n'
                            + "".join(f'placement {{ actor: {a} reactor: "data" }}\n'
                                      for a in ("SUBMIT", "COPY", "RELAY_POST", "CQ_POLL")))
        self.assert_fails_saying(self.run_demo("--config", config), f"{config}:1:", str(core))

    def test_bad_group_id_switches_relaying_off_with_the_reason(self):
        self.assert_fails_saying(self.run_demo(env={"MC_PXN_GROUP_ID": "a/b"}),
                                 "MC_PXN_GROUP_ID", "a/b")

    def test_bad_rail_map_switches_relaying_off_with_the_reason(self):
        self.assert_fails_saying(self.run_demo(env={"MC_PXN_RAIL_MAP": '["sim0"]'}),
                                 "MC_PXN_RAIL_MAP")

    def test_a_rail_map_that_its_own_nics_do_not_fit_is_refused(self):
        self.assert_fails_saying(self.run_demo(env={"MC_PXN_RAIL_MAP": '{"sim0": "sim1"}'}),
                                 "MC_PXN_RAIL_MAP", "sim0", "sim1")
        config = self.write("map.textproto", 'pxn { rail_map: "{\\"sim1\\": \\"east\\"}" }')
        self.assert_fails_saying(self.run_demo("--config", config), "rail_map", "sim1", "east")

    def test_a_demo_that_relays_nothing_fails_and_says_why(self):
        config = self.write("large.textproto", "pxn { min_relay_bytes: 1000000000 }")
        self.assert_fails_saying(self.run_demo("--config", config),
                                 "nothing was relayed", "small batch")

    def test_a_batch_that_is_not_relayed_has_no_relayed_rate(self):
        config = self.write("small.textproto", "pxn { min_relay_bytes: 100000 }")
        results = pathlib.Path(self.folder.name, "results.json")
        done = self.run_demo("--config", config, "--json", str(results))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"small/state +5 +8\.8 kB +1 +- +[0-9.]+ +- +0 ")
        lines = [json.loads(line) for line in results.read_text().splitlines()]
        state, kv = [line for line in lines if line["name"] == "demo.relay_ratio"]
        self.assertEqual((state["value"], state["ratio"], state["relayed_share"]), (None, None, 0))
        self.assertGreater(kv["ratio"], 0)

    def test_results_of_a_failed_run_say_so_and_hold_nothing_older(self):
        results = pathlib.Path(self.write("results.json", '{"old": 1}\n'))
        done = self.run_demo("--json", str(results), env={"MC_PXN_GROUP_ID": "a/b"})
        self.assertEqual(done.returncode, 1)
        line, = [json.loads(line) for line in results.read_text().splitlines()]
        self.assertEqual(line["name"], "demo.error")
        self.assertIn("MC_PXN_GROUP_ID", line["error"])

    def with_shared_memory_of(self, size):
        """A command prefix under which /dev/shm is so small."""
        mount = f"mount -t tmpfs -o size={size} tmpfs /dev/shm && exec \"$@\""
        prefix = ("unshare", "--mount", "--map-root-user", "sh", "-c", mount, "sh")
        if os.geteuid() == 0:
            prefix = ("unshare", "--mount", "sh", "-c", mount, "sh")
        probe = subprocess.run([*prefix, "true"], capture_output=True, check=False)
        if probe.returncode != 0:
            self.skipTest("no private mount namespace can be made here: " + str(probe.stderr))
        return prefix

    def test_names_bytes_needed_and_free_when_shared_memory_is_small(self):
        done = self.run_demo(prefix=self.with_shared_memory_of("4m"))
        self.assertGreater(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, r"/dev/shm")
        self.assertRegex(done.stderr, r"\d+ .*free|free .*\d+")

    def test_names_the_file_for_which_shared_memory_has_no_room(self):
        done = self.run_demo(prefix=self.with_shared_memory_of("4k"))
        self.assert_fails_saying(done, "/dev/shm/railhop-demo-", "cannot be written", "No space left",
                                 "make room")

    def start_and_find(self, word, count):
        """A demo that would run for a minute, and its children of one kind once all are there."""
        process = subprocess.Popen(self.command("--duration", "60"), stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.kill)
        until = time.monotonic() + 60
        while time.monotonic() < until:
            children = descendants(process.pid, word)
            if len(children) == count:
                return process, children
            time.sleep(0.05)
        self.fail("the demo's processes did not appear")

    def kill_and_expect(self, word, count, name):
        process, children = self.start_and_find(word, count)
        os.kill(children[-1], signal.SIGKILL)
        _, errors = process.communicate(timeout=TIMEOUT_S)
        self.assertGreater(process.returncode, 0, errors)
        self.assertRegex(errors, name)

    def test_says_that_the_target_died(self):
        self.kill_and_expect("demo-target", 1, r"the process target was killed by signal 9")

    def test_says_that_a_rank_died(self):
        self.kill_and_expect("demo-rank", 2, r"rank \d")

    def test_an_interrupted_demo_leaves_nothing_behind(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(signal=number):
                before = set(pathlib.Path("/dev/shm").glob("railhop-demo-*"))
                process, ranks = self.start_and_find("demo-rank", 2)
                process.send_signal(number)
                _, errors = process.communicate(timeout=TIMEOUT_S)
                self.assertEqual(process.returncode, 128 + number)
                self.assertIn("interrupted", errors)
                self.assertEqual(set(pathlib.Path("/dev/shm").glob("railhop-demo-*")) - before, set())
                self.assertFalse([pid for pid in ranks if pid in demo_processes()])

    def test_refuses_what_it_could_not_use_in_the_end(self):
        for arguments in (("--json", "/nowhere/x.json"), ("--json", "/tmp"),
                          ("--trace", "/nowhere/x.json"), ("--trace", "/tmp"),
                          ("--line-rate", "nan"), ("--duration", "nan"), ("--ranks", "0"),
                          ("--ranks", "x"), ("--layout", "spiral")):
            with self.subTest(arguments=arguments):
                self.assert_fails_saying(self.run_demo(*arguments), arguments[1].strip("/"))

    def test_refuses_an_output_that_is_another_file_of_the_run(self):
        batches = pathlib.Path(self.batches)
        config = pathlib.Path(self.write("rank.textproto", "slice_size: 65536"))
        folder = batches.parent
        link, hard_link, nowhere = folder / "link", folder / "hard", folder / "nowhere"
        link.symlink_to(batches.name)
        os.link(batches, hard_link)
        nowhere.symlink_to("new")
        new, again = str(folder / "new"), str(folder / ".." / folder.name / "new")
        for output in ("--json", "--trace"):
            for first, other, arguments in (
                    ("--batches", batches, (output, str(batches))),
                    ("--batches", batches, (output, str(link))),
                    ("--batches", batches, (output, str(hard_link))),
                    ("--batches", nowhere, (output, new)),
                    ("--config", config, (output, str(config), "--config", str(config)))):
                with self.subTest(arguments=arguments, other=other):
                    done = self.run_demo(*arguments, batches=str(other if first == "--batches" else batches))
                    self.assert_fails_saying(done, output, first, arguments[1], str(other), "give")
                    self.assertEqual(done.returncode, 2)
        for other in (new, again, str(nowhere)):
            with self.subTest(other=other):
                done = self.run_demo("--json", new, "--trace", other)
                self.assert_fails_saying(done, "--json", "--trace", new, other, "give")
                self.assertEqual(done.returncode, 2)
        self.assertEqual(batches.read_text(), json.dumps(SMALL))
        self.assertEqual(config.read_text(), "slice_size: 65536")
        self.assertFalse(pathlib.Path(new).exists())

    def test_the_script_refuses_a_picture_in_place_of_another_file(self):
        for option in ("--batches", "--config", "--trace", "--json"):
            for arguments in ((option, self.batches), (f"{option}={self.batches}",)):
                with self.subTest(arguments=arguments):
                    done = subprocess.run([ROOT / "dev", "demo", "--png", self.batches, *arguments],
                                          capture_output=True, text=True, timeout=60, check=False)
                    self.assert_fails_saying(done, "--png", option, self.batches, "give")
                    self.assertEqual(done.returncode, 2)
        self.assertEqual(pathlib.Path(self.batches).read_text(), json.dumps(SMALL))

    def test_results_may_go_where_its_tables_go(self):
        for name in ("/dev/stdout", "/dev/fd/1"):
            with self.subTest(name=name), tempfile.TemporaryFile("w+") as output:
                done = subprocess.run(self.command("--json", name), stdout=output,
                                      stderr=subprocess.PIPE, text=True, timeout=TIMEOUT_S, check=False)
                self.assertEqual(done.returncode, 0, done.stderr)
                output.seek(0)
                text = output.read()
                self.assertTrue(text.startswith("2 ranks"), text[:100])
                self.assertGreater(len([json.loads(line) for line in text.splitlines()
                                        if line.startswith("{")]), 5)

    def test_devices_may_be_named_twice(self):
        done = self.run_demo("--json", "/dev/null", "--trace", "/dev/null")
        self.assertEqual(done.returncode, 0, done.stderr)

    def pipe(self, name):
        path = str(pathlib.Path(self.folder.name, name))
        os.mkfifo(path)
        return path

    def test_takes_and_gives_its_files_by_pipes(self):
        batches, config, results = self.pipe("batches"), self.pipe("config"), self.pipe("results")
        process = subprocess.Popen(
            self.command("--json", results, "--config", config, batches=batches),
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.kill)
        with open(results, encoding="utf-8") as reader:
            pathlib.Path(batches).write_text(json.dumps(SMALL))
            pathlib.Path(config).write_text("slice_size: 65536")
            lines = [json.loads(line) for line in reader.read().splitlines()]
        _, errors = process.communicate(timeout=TIMEOUT_S)
        self.assertEqual(process.returncode, 0, errors)
        self.assertEqual(len([line for line in lines if line["name"] == "demo.relay_ratio"]), 2)

    def expect_end_by(self, process, number):
        process.send_signal(number)
        try:
            process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            self.fail("the signal does not end it")
        self.assertEqual(process.returncode, -number)

    def test_a_pipe_that_nobody_uses_holds_no_interruption_up(self):
        for option in ("--json", "--trace", "--batches", "--config"):
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                with self.subTest(option=option, signal=number):
                    pipe = self.pipe(f"pipe{option}{number}")
                    arguments = () if option == "--batches" else (option, pipe)
                    process = subprocess.Popen(
                        self.command(*arguments, batches=pipe if option == "--batches" else None),
                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                    self.addCleanup(process.kill)
                    stat = pathlib.Path(f"/proc/{process.pid}/stat")
                    while stat.read_text().rsplit(")", 1)[1].split()[0] not in "SZ":
                        time.sleep(0.01)
                    self.expect_end_by(process, number)

    def test_a_reader_that_stops_reading_holds_no_interruption_up(self):
        pipe = self.pipe("pipe")
        process = subprocess.Popen(self.command("--trace", pipe), stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE)
        self.addCleanup(process.kill)
        with open(pipe, encoding="utf-8"):
            self.assertIn(b"2 ranks", process.stdout.readline())
            self.expect_end_by(process, signal.SIGTERM)

    def test_a_command_line_that_is_wrong_ends_with_2(self):
        for arguments in (("--ranks", "0"), ("--json", ""), ("--batches", ""), ("--unknown",)):
            with self.subTest(arguments=arguments):
                self.assertEqual(self.run_demo(*arguments).returncode, 2)

    def test_a_folder_is_no_batch_file(self):
        self.assert_fails_saying(self.run_demo(batches="/tmp"), "/tmp", "folder")

    def test_children_end_with_their_parent(self):
        process, ranks = self.start_and_find("demo-rank", 2)
        children = ranks + descendants(process.pid, "demo-target")
        process.kill()
        process.communicate(timeout=TIMEOUT_S)
        until = time.monotonic() + 30
        while time.monotonic() < until and any(
                "demo-rank" in demo_processes().get(pid, ())
                or "demo-target" in demo_processes().get(pid, ()) for pid in children):
            time.sleep(0.05)
        self.assertFalse([pid for pid in children if pid in demo_processes()
                          and re.search("demo-", " ".join(demo_processes()[pid]))])


if __name__ == "__main__":
    RAILHOP = sys.argv.pop(1)
    unittest.main()
