#!/usr/bin/env python3
"""Writes what run.sh of the GPU bundle left in a folder as Markdown: what is wanted first, then the rows.

  report_gpu.py RESULTS_FOLDER > report.md

What must hold, and how a figure is made of the rows, stands here and nowhere else. Exit status: 0 if nothing that was
measured is missed, 1 if something is, 2 if nothing that is wanted was measured. Where one GPU served for both ranks there is no
NVLink between them: relayed rows are shown, and not judged.
"""

import pathlib
import re
import sys

from gpu_rows import read_rows

KIB, MIB = 1 << 10, 1 << 20


def size(number):
    return f"{number // MIB} MiB" if number >= MIB else f"{number // KIB} KiB" if number >= KIB else f"{number} B"


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows])


class Results:
    """The rows of all files, and what the other parts of run.sh said."""

    def __init__(self, folder):
        self.rows = read_rows(sorted(folder.glob("*.jsonl")))
        self.texts = {path.stem: path.read_text(encoding="utf-8", errors="replace")
                      for path in sorted(folder.glob("*.txt")) if path.is_file()}

    def named(self, name, **fields):
        return [row for row in self.rows if row.get("name") == name
                and all(row.get(key) == value for key, value in fields.items())]

    def one(self, name, key="value", **fields):
        found = self.named(name, **fields)
        return found[-1].get(key) if found else None

    def writes(self, nic, chunk, outstanding, fence="ready"):
        found = [row for row in self.named("gpu.relay", nic_gb_per_s=nic, chunk=chunk, outstanding=outstanding,
                                           fence=fence, piece_bytes=8 * MIB)
                 if not row.get("copy") and "case" not in row]
        return found[-1] if found else None

    def gpus(self):
        return self.one("gpu.layout", key="gpus")

    def sanitizer_findings(self):
        """None: it did not run, or not to its end. What a tool says last is how many errors there were."""
        counts = [re.findall(r"(?:ERROR SUMMARY|RACECHECK SUMMARY): (\d+)", text)
                  for name, text in self.texts.items() if name.startswith("sanitizer_")]
        return sum(int(count) for found in counts for count in found) if counts and all(counts) else None


class Goal:
    def __init__(self, what, measured, wanted, at_least=True, needs_two=True, beside=None):
        self.what, self.measured, self.wanted, self.at_least = what, measured, wanted, at_least
        self.needs_two, self.beside = needs_two, beside

    def verdict(self, gpus):
        if self.measured is None:
            return "not run"
        if self.needs_two and gpus != 2:
            return "not judged"
        met = self.measured >= self.wanted if self.at_least else self.measured <= self.wanted
        return "met" if met else "**MISSED**"

    def row(self, gpus):
        def number(value):
            return "" if value is None else f"{value:.4g}"
        sign = ">=" if self.at_least else "<="
        return [self.what, number(self.measured), f"{sign} {number(self.wanted)}", self.verdict(gpus),
                number(self.beside)]


def relay_goals(results):
    floor = results.one("gpu.copy_and_doorbell_64k")
    limits = {25: {32: 0.97, 8: 0.90, "large": 0.99, "one": 0.96}, 50: {32: 0.97, 8: 0.60, "large": 0.985, "one": 0.93}}
    for nic, wanted in limits.items():
        def value(chunk, outstanding, fence="ready", key="value", nic=nic):
            row = results.writes(nic, chunk, outstanding, fence)
            return None if row is None else row[key]

        def large(fence, nic=nic):
            found = [row["value"] for chunk in (512 * KIB, MIB, 2 * MIB, 4 * MIB, 8 * MIB) for outstanding in (8, 32)
                     if (row := results.writes(nic, chunk, outstanding, fence))]
            return min(found, default=None)

        at = f"{nic} GB/s"
        for outstanding in (32, 8):
            yield Goal(f"gpu.relay 64 KiB, {outstanding} at a time, {at}", value(64 * KIB, outstanding),
                       wanted[outstanding], beside=value(64 * KIB, outstanding, "thread_stream"))
        if floor is not None:
            yield Goal(f"gpu.relay 64 KiB, 1 at a time, {at}: us more than direct",
                       value(64 * KIB, 1, key="p50_difference_us"), floor + 2.5, at_least=False,
                       beside=value(64 * KIB, 1, "thread_stream", "p50_difference_us"))
        yield Goal(f"gpu.relay 512 KiB and more, 8 and 32 at a time, {at}: the least", large("ready"), wanted["large"],
                   beside=large("thread_stream"))
        for row in results.named("gpu.relay", nic_gb_per_s=nic, fence="ready", piece_bytes=8 * MIB):
            if row.get("bytes", 0) > MIB:  # the others of a model's batches are a few KiB of state
                fenced = results.one("gpu.relay", nic_gb_per_s=nic, fence="thread_stream", piece_bytes=8 * MIB,
                                     batch=row["batch"])
                yield Goal(f"gpu.relay KV batch {row['batch']}, {at}", row["value"], wanted["large"], beside=fenced)
        yield Goal(f"gpu.relay one write of 8 MiB, {at}", value(8 * MIB, 1), wanted["one"],
                   beside=value(8 * MIB, 1, "thread_stream"))


def other_goals(results):
    def seen(way):
        return results.one("gpu.copy", key="seen_us", way=way, doorbell="stream_write", spans=1024, span_bytes=2048)
    batch, gather = seen("batch"), seen("gather")
    yield Goal("gpu.gather_1024x2k: batch copy / gather", batch / gather if batch and gather else None, 30)
    floor = results.one("gpu.copy_and_doorbell_64k")
    latency = {fence: results.one("gpu.relay", key="relayed_p50_us", case="no wire", fence=fence)
               for fence in ("ready", "thread_stream")}
    over = {fence: value / floor if value and floor else None for fence, value in latency.items()}
    yield Goal("gpu.latency_64k: over copy + doorbell", over["ready"], 1.4, at_least=False,
               beside=over["thread_stream"])
    yield Goal("gpu.sanitizer: findings", results.sanitizer_findings(), 0, at_least=False, needs_two=False)
    yield Goal("gpu.leak: bytes gone after 100 restarts", results.one("gpu.leak"), 0, at_least=False, needs_two=False)


def relay_rows(results):
    for row in results.named("gpu.relay"):
        what = f"KV batch {row['batch']}" if "batch" in row else f"{size(row['chunk'])}, {row['outstanding']} at a time"
        notes = [row[key] for key in ("case", "copy") if row.get(key)]
        yield [what + "".join(f" ({note})" for note in notes), f"{row['nic_gb_per_s']:g}", size(row["piece_bytes"]),
               row["fence"], f"{row['value']:.3f}", f"{row['relayed_gb_per_s']:.2f}", f"{row['direct_gb_per_s']:.2f}",
               f"{row['relayed_p50_us']:.1f}", f"{row['direct_p50_us']:.1f}", size(row["mean_piece_bytes"])]


def copy_rows(results):
    ways = ["async", "batch", "gather", "auto"]
    shapes = {(row["spans"], row["span_bytes"]): None for row in results.named("gpu.copy")}
    for spans, length in shapes:
        cells = []
        for way in ways:
            found = results.named("gpu.copy", way=way, doorbell="stream_write", spans=spans, span_bytes=length)
            cells.append(f"{found[-1]['issue_us']:.1f} / {found[-1]['seen_us']:.1f} / {found[-1]['pipelined_us']:.1f}"
                         if found else "")
        yield [f"{spans} x {size(length)}", *cells]


def main(folder):
    results = Results(pathlib.Path(folder))
    if not results.rows:
        print(f"{folder}: no rows to report; give it the folder that run.sh left (NAME.jsonl in it)", file=sys.stderr)
        return 2
    gpus = results.gpus()
    goals = [*relay_goals(results), *other_goals(results)]
    parts = [
        "# GPU results",
        results.texts.get("machine", "").strip().replace("\n", ", "),
        ("Sender and relay have a GPU each." if gpus == 2 else "One GPU serves for both ranks: what is relayed crosses no "
         "NVLink, and is not judged." if gpus == 1 else "How many GPUs there were is not known: what is relayed is not "
         "judged."),
        "## What is wanted\n\nRatios are relayed / direct; sources are ready, beside them with a fence (the thread's own "
        "stream, idle).",
        table(["figure", "measured", "wanted", "", "with a fence"], [goal.row(gpus) for goal in goals]),
    ]
    summary = results.texts.get("summary", "").strip()
    if summary:
        parts += ["## Parts", f"```\n{summary}\n```"]
    rows = list(relay_rows(results))
    if rows:
        parts += ["## Relayed beside direct", table(["writes", "NIC, GB/s", "pieces <=", "fence", "ratio", "relayed, GB/s",
                  "direct, GB/s", "relayed p50, us", "direct p50, us", "mean piece"], rows)]
    rows = list(copy_rows(results))
    if rows:
        parts += ["## What a piece costs\n\nMicroseconds, doorbell by stream write: until `Issue` returned / until the "
                  "doorbell showed / from piece to piece with 18 under way.",
                  table(["spans", "async", "batch", "gather", "chosen by cost"], rows)]
    print("\n\n".join(part for part in parts if part))
    if all(goal.measured is None for goal in goals):
        print(f"{folder}: none of the figures that are wanted was measured", file=sys.stderr)
        return 2
    return int(any(goal.verdict(gpus) == "**MISSED**" for goal in goals))


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] in ("-h", "--help"):
        print(__doc__, file=sys.stdout if len(sys.argv) == 2 else sys.stderr)
        sys.exit(0 if len(sys.argv) == 2 else 2)
    if not pathlib.Path(sys.argv[1]).is_dir():
        print(f"{sys.argv[1]}: no folder; give it the one that run.sh left", file=sys.stderr)
        sys.exit(2)
    sys.exit(main(sys.argv[1]))
