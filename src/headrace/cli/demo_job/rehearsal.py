"""Train as runs: one that is stopped half-way, one that goes on from it, one from its record alone; and compare."""

from __future__ import annotations

import json
import shutil
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from headrace.base.errors import InternalError
from headrace.cli.demo_job.mounted import headrace
from headrace.cli.demo_job.plan import Plan
from headrace.cli.demo_job.proof import compare

if TYPE_CHECKING:
    from headrace.namespace import Home

_PACE_S = 32.0
"""What the first run takes at least, so that there is time to stop it."""
_WAIT_S = 120.0  # seconds for a line of a run, its start included
_COMMITTED = "LEARNING_RATE = 5e-4"
_CHANGED = "LEARNING_RATE = 2e-3"


@dataclass(frozen=True, slots=True)
class Performed:
    """`accuracy`: held-out; `stopped`, `resumed`: the runs, the first of which has a checkpoint, the second the end."""

    accuracy: float
    stopped: str
    resumed: str


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """`folder`: the demonstration's; `environment`: of its commands; `home`: where its runs are recorded."""

    plan: Plan
    folder: Path
    environment: Mapping[str, str]
    home: Home

    def perform(self) -> Performed:
        """All of it.

        Raises:
            InternalError: a command failed, a sample was lost or repeated, or the runs trained different models.
        """
        stamp = time.strftime("%Y%m%d-%H%M%S")
        first, second, third = (f"{stamp}-digits-{name}" for name in ("stopped", "resumed", "again"))
        project = self._project()
        pause = f"PAUSE={_PACE_S / self.plan.steps:.3f}"
        click.echo("   at a slow pace, in the background, until it is stopped:")
        headrace(["run", "-d", "--id", first, "--env", pause, "job.toml"], project, self.environment)
        self._wait_for_line(first, f"epoch {max(1, self.plan.epochs // 4)} of")
        headrace(["stop", first, "--wait", "1min"], project, self.environment)
        if self._result(first) is not None:
            raise InternalError("the first run was over before it was stopped")
        click.echo("\n   at full speed, from its checkpoint in the bucket:")
        headrace(["run", "--resume", first, "--id", second, "job.toml"], project, self.environment)

        elsewhere = self._clean_folder(project)
        click.echo("\n   project and caches are deleted; again from the first run's record alone, in an empty folder:")
        headrace(["rerun", first, "--id", third, "--env", "PAUSE=0"], elsewhere, self.environment)
        click.echo("\n   what the bucket tells:")
        for words in (
            ["runs", "--limit", "3"], ["logs", second, "--tail", "2"], ["runs", "diff", second, third],
            ["metrics", second, third, "--name", "loss", "--table"], ["why", first],
        ):  # fmt: skip
            headrace(words, elsewhere, self.environment)
        return Performed(self._judge(first, second, third), first, second)

    def _project(self) -> Path:
        """A git tree with a change that is not committed: the learning rate."""
        project = self.folder / "project"
        shutil.rmtree(project, ignore_errors=True)
        project.mkdir()
        script = Path(__file__).with_name("train.py").read_text(encoding="utf-8")
        if _CHANGED not in script:
            raise InternalError("the training script has another learning rate", path="train.py")
        (project / "train.py").write_text(script.replace(_CHANGED, _COMMITTED), encoding="utf-8")
        command = json.dumps(["python", "train.py", *self.plan.flags()])
        inputs = f'[inputs]\ntrain = "{self.plan.train}"\ntest = "{self.plan.test}"\n'
        (project / "job.toml").write_text(
            f'name = "digits"\ncommand = {command}\n\n{inputs}\n[environment]\nvariables = {{ PAUSE = "0" }}\n'
        )
        if shutil.which("git") is None:
            click.echo("   git is not installed: the folder is recorded as it is")
        else:
            who = ["-c", "user.name=demo", "-c", "user.email=demo@localhost"]
            for words in (["init", "-q"], ["add", "-A"], [*who, "commit", "-q", "-m", "Train on digits"]):
                subprocess.run(["git", *words], cwd=project, check=True)
        (project / "train.py").write_text(script, encoding="utf-8")
        click.echo(f"   {project}: committed with {_COMMITTED}, changed to {_CHANGED}")
        return project

    def _clean_folder(self, project: Path) -> Path:
        shutil.rmtree(project)
        shutil.rmtree(self.folder / "cache", ignore_errors=True)
        shutil.rmtree(self.folder / "kept", ignore_errors=True)
        elsewhere = self.folder / "elsewhere"
        shutil.rmtree(elsewhere, ignore_errors=True)
        elsewhere.mkdir()
        return elsewhere

    # from the bucket

    def _wait_for_line(self, run: str, beginning: str) -> None:
        """Raises InternalError: the run ended, or two minutes went by, without it."""
        from headrace.tracking import FINAL, LogReader, Run

        it = Run(self.home, run)
        until = time.monotonic() + _WAIT_S
        while time.monotonic() < until:
            over = it.look().state in FINAL
            if any(line.text.startswith(beginning) for line in LogReader(it.store, f"{it.prefix}logs/").read()):
                return
            if over:
                headrace(["logs", run], self.folder, self.environment)
                break
            time.sleep(0.5)
        raise InternalError(f"the run did not come to its line {beginning!r}", path=run)

    def _output(self, run: str, name: str) -> bytes | None:
        from headrace.base.errors import NotFoundError
        from headrace.tracking import Run

        it = Run(self.home, run)
        try:
            return bytes(it.store.get(f"{it.prefix}outputs/{name}").data)
        except NotFoundError:
            return None

    def _result(self, run: str) -> dict[str, Any] | None:
        told = self._output(run, "result.json")
        return None if told is None else json.loads(told)

    def _seen(self, run: str) -> list[tuple[int, str]]:
        """Epoch and key of each sample, in the order in which the run learned from them."""
        lines = (self._output(run, "seen.txt") or b"").decode().splitlines()
        return [(int(epoch), key) for epoch, _, key in (line.partition(" ") for line in lines)]

    def _judge(self, first: str, second: str, third: str) -> float:
        before, after, whole = self._seen(first), self._seen(second), self._seen(third)
        cut = before[-1][0] if before else 0
        proof = compare(
            {key for epoch, key in whole if epoch == cut},
            [key for epoch, key in before if epoch == cut],
            [key for epoch, key in after if epoch == cut],
        )
        click.echo(f"\n   epoch {cut + 1}, in which it was stopped: {proof}")
        if not proof.holds or before + after != whole:
            raise InternalError(f"the resumed run did not see exactly the samples left, in their order: {proof}")
        resumed, again = self._result(second), self._result(third)
        if resumed is None or again is None or resumed["weights"] != again["weights"]:
            raise InternalError("the run from the record alone trained another model")
        if again["learning_rate"] != float(_CHANGED.rpartition("=")[2]):
            raise InternalError("the change that was not committed is not in the record")
        click.echo(f"   stopped and resumed, or in one go from the record: the same weights, {again['weights'][:16]}…")
        click.echo(f"   held-out accuracy {again['accuracy']:.1%}")
        return float(again["accuracy"])
