"""The JSON lines of the GPU benchmarks, read for report_gpu.py and plot_gpu.py."""

import json
import sys

NUMBERS = {
    "gpu.relay": ("value", "nic_gb_per_s", "piece_bytes", "relayed_gb_per_s", "direct_gb_per_s", "relayed_p50_us",
                  "direct_p50_us", "p50_difference_us", "mean_piece_bytes"),
    "gpu.copy": ("spans", "span_bytes", "issue_us", "seen_us", "pipelined_us"),
    "gpu.copy_and_doorbell_64k": ("value",),
    "gpu.leak": ("value",),
}
WORDS = {"gpu.relay": ("fence",), "gpu.copy": ("way", "doorbell")}


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def what_is_wrong(row):
    """"" for a row that can be used."""
    if not isinstance(row, dict) or not isinstance(row.get("name"), str):
        return "it is no row of a benchmark"
    name = row["name"]
    for key in NUMBERS.get(name, ()):
        if not is_number(row.get(key)):
            return f"it has no number {key}"
    for key in WORDS.get(name, ()):
        if not isinstance(row.get(key), str):
            return f"it has no {key}"
    if name == "gpu.relay" and not isinstance(row.get("batch"), str):
        if not is_number(row.get("chunk")) or not is_number(row.get("outstanding")):
            return "it has neither a batch nor chunk and outstanding"
    return ""


def read_rows(paths):
    """The usable rows of all files; what cannot be used is named on standard error and left out."""
    rows = []
    for path in paths:
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            print(f"{path}: left out: {error.strerror}", file=sys.stderr)
            continue
        for number, line in enumerate(text.splitlines(), 1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
                wrong = what_is_wrong(row)
            except (json.JSONDecodeError, RecursionError):  # a part that was stopped ends in half a line
                wrong = "it is no JSON"
            if wrong:
                print(f"{path}:{number}: left out, {wrong}: {line[:60]!r}", file=sys.stderr)
            else:
                rows.append(row)
    return rows
