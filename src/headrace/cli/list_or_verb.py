"""A command that lists, unless a verb follows: ``headrace runs``, ``headrace models``."""

from __future__ import annotations

import click


class ListOrVerb(click.Group):
    """A group whose default command is ``list``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        known = bool(args) and (args[0] in self.commands or args[0] in ("-h", "--help"))
        return super().parse_args(ctx, args if known else ["list", *args])
