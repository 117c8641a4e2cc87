#!/usr/bin/env python3
"""Draws what gpu_relay_bench and gpu_copy_bench printed.

  plot_gpu.py RESULTS.jsonl... PICTURE.png

Left: relayed / direct over the size of a write, a line per number of writes under way, for each NIC. Then the same
for pieces of at most 512 KiB, 1 MiB and 8 MiB. Right: how long a piece takes until its doorbell shows, by
each way to copy it. Only what the results have is drawn; sources are ready, rows with a fence are left out.
"""

import pathlib
import sys

try:
    import matplotlib
except ImportError:
    sys.exit("plot_gpu.py needs matplotlib: apt-get install python3-matplotlib")

matplotlib.use("Agg")  # no display needed; must come before pyplot
import matplotlib.pyplot as plt
import matplotlib.ticker

from gpu_rows import read_rows

COLORS = {1: "#5b7aa6", 8: "#c08a2b", 32: "#2a7f62"}  # by writes under way
DASHES = {25: "-", 50: "--"}  # by GB/s of the NIC
CAPS = {512 << 10: ":", 1 << 20: "--", 8 << 20: "-"}  # by bytes of a piece
WAYS = {"async": "#5b7aa6", "batch": "#c08a2b", "gather": "#2a7f62", "auto": "#333333"}


def size(number):
    for unit in ("B", "KiB", "MiB"):
        if number < 1024 or unit == "MiB":
            return f"{number:g} {unit}"
        number /= 1024
    return ""


def lines_of(rows, key):
    """The rows of writes that differ in nothing but their size, by key(row)."""
    lines = {}
    for row in rows:
        lines.setdefault(key(row), []).append(row)
    return {name: sorted(line, key=lambda row: row["chunk"]) for name, line in lines.items()}


def draw_ratios(axes, lines, style, title):
    for name, line in lines.items():
        axes.plot([row["chunk"] for row in line], [row["value"] for row in line], marker="o",
                  markersize=3, **style(name))
    axes.axhline(1, color="#333333", linewidth=0.6)
    axes.set_xscale("log", base=2)
    chunks = sorted({row["chunk"] for line in lines.values() for row in line})
    axes.set_xticks(chunks, [size(chunk) for chunk in chunks], rotation=45, fontsize=8)
    axes.set_ylim(0, 1.1)
    axes.set_ylabel("relayed / direct")
    axes.set_title(title, fontsize=9)
    axes.legend(fontsize=7)


def draw_nics(axes, rows):
    draw_ratios(axes, lines_of(rows, lambda row: (row["outstanding"], row["nic_gb_per_s"])),
                lambda name: {"color": COLORS.get(name[0]), "linestyle": DASHES.get(name[1], ":"),
                              "label": f"{name[0]} at a time, {name[1]:g} GB/s"},
                "writes over one NIC")


def draw_caps(axes, rows):
    draw_ratios(axes, lines_of(rows, lambda row: (row["outstanding"], row["piece_bytes"])),
                lambda name: {"color": COLORS.get(name[0]), "linestyle": CAPS.get(name[1], "-."),
                              "label": f"{name[0]} at a time, pieces <= {size(name[1])}"},
                f"by the largest piece, {min(DASHES)} GB/s")


def draw_ways(axes, rows):
    shapes = sorted({(row["spans"], row["span_bytes"]) for row in rows},
                    key=lambda shape: (shape[0], shape[1]))
    for place, way in enumerate(WAYS):
        seen = {(row["spans"], row["span_bytes"]): row["seen_us"] for row in rows
                if row["way"] == way}
        places = [shapes.index(shape) for shape in seen]
        axes.plot(list(seen.values()), [at + 0.15 * (place - 1.5) for at in places], "o",
                  markersize=4, color=WAYS[way], label="chosen by cost" if way == "auto" else way)
    axes.set_yticks(range(len(shapes)), [f"{spans} x {size(length)}" for spans, length in shapes],
                    fontsize=8)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(matplotlib.ticker.StrMethodFormatter("{x:g}"))
    axes.set_xlabel("microseconds until the doorbell shows")
    axes.set_title("a piece by each way to copy it", fontsize=9)
    axes.legend(fontsize=7)


def main(results, picture):
    rows = read_rows([pathlib.Path(path) for path in results])
    relay = [row for row in rows if row["name"] == "gpu.relay" and "case" not in row
             and row["fence"] == "ready" and "chunk" in row and not row.get("copy")]
    panels = [
        (draw_nics, [row for row in relay if row["piece_bytes"] == max(CAPS)]),
        (draw_caps, [row for row in relay if row["nic_gb_per_s"] == min(DASHES)
                     and row["outstanding"] > 1]),
        (draw_ways, [row for row in rows if row["name"] == "gpu.copy" and row["way"] in WAYS
                     and row["doorbell"] == "stream_write"]),
    ]
    panels = [(draw, found) for draw, found in panels if found]
    if not panels:
        sys.exit(f"{' '.join(results)}: neither gpu.relay nor gpu.copy")
    figure, places = plt.subplots(1, len(panels), figsize=(5.7 * len(panels), 6), squeeze=False)
    for axes, (draw, found) in zip(places[0], panels):
        draw(axes, found)
        axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    try:
        figure.savefig(picture, dpi=130)
    except (OSError, ValueError) as error:  # no such folder, or no such kind of picture
        sys.exit(f"{picture}: not written: {error}")


if __name__ == "__main__":
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(__doc__)
        sys.exit()
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    main(sys.argv[1:-1], sys.argv[-1])
