#!/usr/bin/env python3
"""Draws what `railhop demo --json RESULTS` wrote.

  plot_demo.py RESULTS.jsonl PICTURE.png

Left: GB/s of each batch kind, relayed beside direct, with the ratio. Middle: for each actor the queue
wait and the service time, p50 to p99, the worst of the ranks. Right: the stages of a relayed piece, p50
to p99, over all ranks.
"""

import json
import sys

import matplotlib

matplotlib.use("Agg")  # no display needed; must come before pyplot
import matplotlib.pyplot as plt

RELAYED, DIRECT, WAIT, SERVICE = "#2a7f62", "#5b7aa6", "#c08a2b", "#2a7f62"


def draw_batches(axes, figures):
    for row, figure in enumerate(figures):
        axes.barh(row - 0.2, figure["value"], height=0.38, color=RELAYED,
                  label="relayed" if row == 0 else None)
        axes.barh(row + 0.2, figure["reference"], height=0.38, color=DIRECT,
                  label="direct" if row == 0 else None)
        axes.annotate(f"{figure['ratio']:.3f}", (figure["value"], row - 0.2), xytext=(4, 0),
                      textcoords="offset points", va="center", fontsize=8)
    axes.set_yticks(range(len(figures)),
                    [f"{figure['batch']}\n{figure['bytes'] / 1e6:.3g} MB" for figure in figures],
                    fontsize=8)
    axes.invert_yaxis()
    axes.margins(x=0.12)
    axes.set_xlabel("GB/s of all ranks together (number: relayed / direct)")
    axes.legend(fontsize=8)


def draw_actors(axes, rows):
    actors = list(dict.fromkeys(row["actor"] for row in rows))
    for place, actor in enumerate(actors):
        for offset, key, color in ((-0.15, "queue_wait", WAIT), (0.15, "service", SERVICE)):
            spans = [row[key] for row in rows if row["actor"] == actor and row[key]["count"]]
            if spans:
                low = max(min(span["p50_us"] for span in spans), 0.01)
                high = max(span["p99_us"] for span in spans)
                axes.plot([low, max(high, low)], [place + offset] * 2, color=color, linewidth=5,
                          solid_capstyle="butt", label=key.replace("_", " ") if place == 0 else None)
    axes.set_yticks(range(len(actors)), actors, fontsize=8)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("microseconds, p50 to p99, over all ranks")
    axes.legend(fontsize=8)


def draw_stages(axes, stages, bound):
    for place, stage in enumerate(stages):
        if stage["count"]:
            low = max(stage["value"], 0.01)
            axes.plot([low, max(stage["p99_us"], low)], [place] * 2, color=DIRECT, linewidth=5,
                      solid_capstyle="butt")
    axes.set_yticks(range(len(stages)), [stage["stage"] for stage in stages], fontsize=8)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("microseconds, p50 to p99, of a piece")
    if bound["actor"]:
        waits = " (waits for its NIC)" if bound["waits_for_nic"] else ""
        axes.set_title(f"bounded by {bound['actor']} of rank {bound['rank']}{waits}", fontsize=8)


def main(results, picture):
    with open(results, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file if line.strip()]
    line_rate = next(line for line in lines if line["name"] == "demo.line_rate")
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(17, 5))
    draw_batches(left, [line for line in lines if line["name"] == "demo.relay_ratio"])
    draw_actors(middle, [line for line in lines if line["name"] == "demo.actor"])
    draw_stages(right, [line for line in lines if line["name"] == "demo.stage"],
                next(line for line in lines if line["name"] == "demo.bound"))
    for axes in (left, middle, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(f"railhop demo: {line_rate['ranks']} ranks, simulated NICs of "
                    f"{line_rate['value']:.3g} GB/s, layout {line_rate['layout']}", fontsize=10)
    figure.tight_layout()
    figure.savefig(picture, dpi=130)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2])
