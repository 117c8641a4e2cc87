#!/usr/bin/env python3
"""tools/report_gpu.py: which figures it makes of which rows, and what it says of them."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).resolve().parents[2] / "tools" / "report_gpu.py"
KIB, MIB = 1 << 10, 1 << 20


def write(value, **fields):
    return {"name": "gpu.relay", "chunk": 64 * KIB, "outstanding": 8, "fence": "ready", "nic_gb_per_s": 25,
            "piece_bytes": 8 * MIB, "value": value, "relayed_gb_per_s": 20.0, "direct_gb_per_s": 25.0,
            "relayed_p50_us": 30.0, "direct_p50_us": 20.0, "p50_difference_us": 10.0, "mean_piece_bytes": 128 * KIB,
            **fields}


def copy(way, seen):
    return {"name": "gpu.copy", "way": way, "doorbell": "stream_write", "spans": 1024, "span_bytes": 2048,
            "issue_us": 1.0, "seen_us": seen, "pipelined_us": 2.0}


def layout(gpus):
    return {"name": "gpu.layout", "gpus": gpus}


class ReportTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def report(self, *rows, texts=None):
        if rows:
            (self.folder / "relay_bench.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        for name, text in (texts or {}).items():
            (self.folder / name).write_text(text)
        return subprocess.run([sys.executable, TOOL, self.folder], capture_output=True, text=True, check=False)

    def line(self, report, start):
        found = [line for line in report.stdout.splitlines() if line.startswith(f"| {start}")]
        self.assertEqual(len(found), 1, report.stdout)
        return [cell.strip() for cell in found[0].strip("|").split("|")][1:]

    def test_a_row_is_judged_by_what_is_wanted_of_its_nic(self):
        report = self.report(layout(2), write(0.7), write(0.61, fence="thread_stream"), write(0.7, nic_gb_per_s=50))
        self.assertEqual(self.line(report, "gpu.relay 64 KiB, 8 at a time, 25"), ["0.7", ">= 0.9", "**MISSED**", "0.61"])
        self.assertEqual(self.line(report, "gpu.relay 64 KiB, 8 at a time, 50")[:3], ["0.7", ">= 0.6", "met"])
        self.assertEqual(report.returncode, 1)

    def test_of_large_writes_the_least_counts_and_capped_pieces_or_other_ways_do_not(self):
        report = self.report(layout(2), write(1.0, chunk=MIB), write(0.991, chunk=2 * MIB, outstanding=32),
                             write(0.5, chunk=MIB, piece_bytes=MIB), write(0.5, chunk=MIB, copy="way: ASYNC"))
        self.assertEqual(self.line(report, "gpu.relay 512 KiB and more, 8 and 32 at a time, 25")[0], "0.991")
        self.assertEqual(report.returncode, 0)

    def test_a_latency_is_wanted_to_be_no_more(self):
        rows = [layout(2), {"name": "gpu.copy_and_doorbell_64k", "value": 8.0},
                write(1, outstanding=1, p50_difference_us=10.6), write(1, outstanding=1, case="no wire", relayed_p50_us=11)]
        report = self.report(*rows)
        self.assertEqual(self.line(report, "gpu.relay 64 KiB, 1 at a time, 25")[:3], ["10.6", "<= 10.5", "**MISSED**"])
        self.assertEqual(self.line(report, "gpu.latency_64k")[:3], ["1.375", "<= 1.4", "met"])

    def test_copies_batches_leaks_and_findings(self):
        report = self.report(layout(2), copy("batch", 930.0), copy("gather", 30.0),
                             write(0.98, batch="kv", bytes=184 * MIB, chunk=None),
                             write(0.5, batch="state", bytes=10 * KIB, chunk=None), {"name": "gpu.leak", "value": 4096},
                             texts={"sanitizer_memcheck_copy.txt": "========= ERROR SUMMARY: 2 errors\n",
                                    "sanitizer_racecheck_copy.txt": "========= RACECHECK SUMMARY: 0 hazards displayed"})
        self.assertEqual(self.line(report, "gpu.gather_1024x2k")[:3], ["31", ">= 30", "met"])
        self.assertEqual(self.line(report, "gpu.relay KV batch kv, 25")[:3], ["0.98", ">= 0.99", "**MISSED**"])
        self.assertNotIn("KV batch state, 25 GB/s", report.stdout)
        self.assertEqual(self.line(report, "gpu.leak")[:3], ["4096", "<= 0", "**MISSED**"])
        self.assertEqual(self.line(report, "gpu.sanitizer")[:3], ["2", "<= 0", "**MISSED**"])

    def test_a_sanitizer_that_was_stopped_counts_as_not_run(self):
        report = self.report(layout(2), write(1), texts={"sanitizer_memcheck_copy.txt": "ERROR SUMMARY: 0 errors\n",
                                                         "sanitizer_memcheck_relay.txt": "[ RUN      ] RelayTest"})
        self.assertEqual(self.line(report, "gpu.sanitizer")[2], "not run")

    def test_with_one_gpu_what_is_relayed_is_not_judged(self):
        report = self.report(layout(1), write(0.1), {"name": "gpu.leak", "value": 0})
        self.assertEqual(self.line(report, "gpu.relay 64 KiB, 8 at a time, 25")[2], "not judged")
        self.assertEqual(self.line(report, "gpu.leak")[2], "met")
        self.assertIn("One GPU serves for both ranks", report.stdout)
        self.assertEqual(report.returncode, 0)

    def test_what_did_not_run_is_said(self):
        report = self.report(layout(2), write(1))
        for figure in ("gpu.gather_1024x2k", "gpu.sanitizer", "gpu.leak", "gpu.latency_64k"):
            self.assertEqual(self.line(report, figure)[2], "not run")

    def test_what_is_no_row_is_left_out_and_named(self):
        lines = [b'{"name": "gpu.co', b"[1]", b"7", b'{"name": 3}', b'{"name": "gpu.leak", "value": "0"}',
                 b'{"name": "gpu.relay", "value": 1}', json.dumps(write(1, chunk=None)).encode(), b"\xff\xfe", b"[" * 9999,
                 json.dumps(copy("gather", None)).encode()]
        (self.folder / "copy_bench.jsonl").write_bytes(b"\n".join(lines))
        (self.folder / "folder.jsonl").mkdir()
        report = self.report(layout(2), write(1))
        for number in range(1, len(lines) + 1):
            self.assertIn(f"copy_bench.jsonl:{number}: left out", report.stderr)
        self.assertIn("folder.jsonl: left out", report.stderr)
        self.assertNotIn("Traceback", report.stderr)
        self.assertEqual(report.returncode, 0)

    def test_nothing_that_is_wanted_is_no_success(self):
        report = self.report(layout(2))
        self.assertEqual(report.returncode, 2)
        self.assertIn("none of the figures", report.stderr)

    def test_a_file_or_nothing_instead_of_a_folder(self):
        (self.folder / "file").write_text("")
        for path in (self.folder / "file", self.folder / "missing"):
            report = subprocess.run([sys.executable, TOOL, path], capture_output=True, text=True, check=False)
            self.assertEqual(report.returncode, 2)
            self.assertIn("no folder", report.stderr)

    def test_a_folder_without_rows_is_an_error(self):
        report = self.report()
        self.assertEqual(report.returncode, 2)
        self.assertIn("no rows to report", report.stderr)


if __name__ == "__main__":
    unittest.main()
