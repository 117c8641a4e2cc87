#!/usr/bin/env python3
"""Draws benchmark results.

  plot_results.py RESULTS.jsonl PICTURE.png

RESULTS holds the JSON lines that benchmarks print. The picture has one bar a figure: the ratio to
its reference on a logarithmic axis, with the quartiles of the pairs and a mark at the goal. Figures
without a reference are named below with their value.
"""

import json
import re
import sys

import matplotlib

matplotlib.use("Agg")  # no display needed; must come before pyplot
import matplotlib.pyplot as plt
import matplotlib.ticker

MET, MISSED, NO_GOAL, INK = "#2a7f62", "#c0392b", "#5b7aa6", "#333333"


def read(path):
    with open(path) as file:
        return [json.loads(line) for line in file if line.strip()]


def goal_of(figure):
    """(number, whether it is met) or None."""
    match = re.fullmatch(r"[<>]=? ([0-9.]+)", figure.get("goal", ""))
    if not match:
        return None
    return float(match[1]), figure["goal_met"]


def label(figure):
    return (f"{figure['name']}\n{figure['value']:.4g} {figure['unit']}, "
            f"reference {figure['reference']:.4g}")


def draw(figures, path):
    compared = [figure for figure in figures if figure.get("ratio", 0) > 0]
    alone = [figure for figure in figures if "ratio" not in figure]
    fig, axes = plt.subplots(figsize=(9, 1.6 + 0.62 * len(compared) + 0.25 * len(alone)))
    for row, figure in enumerate(compared):
        goal = goal_of(figure)
        color = NO_GOAL if goal is None else MET if goal[1] else MISSED
        ratio = figure["ratio"]
        low, high = figure.get("ratio_quartiles", (ratio, ratio))
        # Bars start at 1, where subject and reference are the same.
        axes.barh(row, ratio - 1, left=1, height=0.55, color=color)
        axes.plot([low, high], [row, row], color=INK, linewidth=2)
        if goal is not None:
            axes.plot([goal[0]] * 2, [row - 0.38, row + 0.38], color=INK, linestyle=":")
            axes.text(goal[0], row - 0.4, figure["goal"], fontsize=7, ha="center", color=INK)
        above = ratio >= 1
        axes.annotate(f"{ratio:.3g}", (max(ratio, high) if above else min(ratio, low), row),
                      xytext=(6 if above else -6, 0), textcoords="offset points", va="center",
                      ha="left" if above else "right", fontsize=9)
    axes.axvline(1, color=INK, linewidth=0.8)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(matplotlib.ticker.StrMethodFormatter("{x:g}"))
    axes.margins(x=0.15)
    axes.set_yticks(range(len(compared)), [label(figure) for figure in compared], fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("ratio to the reference (dotted: the goal)")
    axes.spines[["top", "right"]].set_visible(False)
    if compared:
        placement = compared[0]["placement"]
        axes.set_title(f"cores {placement['cores'][0]} and {placement['cores'][1]} "
                       f"({placement['relation']}{', virtual machine' if placement['virtualised'] else ''}), "
                       f"medians of {compared[0]['pairs']} pairs", fontsize=9, loc="left")
    for line, figure in enumerate(alone):
        fig.text(0.02, 0.02 + 0.03 * line,
                 f"{figure['name']}: {figure['value']:.4g} {figure['unit']}", fontsize=8)
    fig.tight_layout(rect=(0, 0.05 * len(alone), 1, 1))
    fig.savefig(path, dpi=130)


def main(arguments):
    if len(arguments) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    figures = read(arguments[0])
    if not figures:
        print(f"{arguments[0]}: no results", file=sys.stderr)
        return 1
    draw(figures, arguments[1])
    print(f"wrote {arguments[1]}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
