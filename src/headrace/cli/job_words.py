"""Options on either side of a job's file: ``run job.toml --name x``. Those of a command are never ours. (run)"""

from __future__ import annotations

import click


class JobCommand(click.Command):
    """Its words are a job's file, or a command, or the file and a command after ``--``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        before, words = self._split(ctx, args)
        if words and words[0].endswith(".toml") and words[1:] and words[1].startswith("-"):
            options, words[1:] = self._split(ctx, words[1:])
            dashes = options[-1:] == ["--"]
            before += options[: len(options) - dashes]
            words[1:1] = ["--"] if dashes else []
            args = [*before, *words]
        return super().parse_args(ctx, args)

    def _split(self, ctx: click.Context, args: list[str]) -> tuple[list[str], list[str]]:
        """Options with their values, and ``--`` where it stood, from what follows. Raises UsageError."""
        found, _, _ = self.make_parser(ctx).parse_args(args=list(args))
        words = found.get("words")
        count = len(words) if isinstance(words, (list, tuple)) else 0
        return args[: len(args) - count], args[len(args) - count :]
