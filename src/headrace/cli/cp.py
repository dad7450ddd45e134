"""``headrace cp SOURCE… TARGET``."""

from __future__ import annotations

import click


@click.command()
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
@click.argument("destination", metavar="TARGET")
@click.option("-r", "--recursive", is_flag=True, help="Whole trees too.")
@click.option("-j", "--jobs", default=16, show_default=True, type=click.IntRange(1, 256), help="Copies at a time.")
@click.option("-L", "--follow", is_flag=True, help="With -r: also what links lead to that point out of a local tree.")
@click.option("-n", "--no-clobber", is_flag=True, help="Leave alone what TARGET has already.")
@click.option("--resume", is_flag=True, help="Leave alone what is there, as large as in SOURCE and no older.")
@click.option("--checksum", is_flag=True, help="Leave alone what is there with the same bytes.")
def command(
    sources: tuple[str, ...],
    destination: str,
    *,
    recursive: bool,
    jobs: int,
    follow: bool,
    no_clobber: bool,
    resume: bool,
    checksum: bool,
) -> None:
    """Copy files, and with -r trees and snapshots, between any two places: paths, URLs, files on this machine.

    One SOURCE lands at TARGET: a file under that name, a tree with its files directly below it. Where TARGET ends
    in / or is a folder, or there are several SOURCES, each file lands in it under its own name; several trees
    each in a folder of their own.

    Of a tree on this machine, links that lead out of it or nowhere, pipes, sockets and devices are left out and named.

    A file appears whole or not at all, so a copy that was interrupted goes on with --resume. --checksum compares sizes
    and ETags where these are MD5, and else reads both.

    Of a snapshot NAME@VERSION exactly the recorded versions are copied; one that is no more ends the copying.
    """
    import headrace as hr
    from headrace.cli.progress import progress

    if no_clobber + resume + checksum > 1:
        raise click.UsageError("--no-clobber, --resume and --checksum exclude each other")
    existing = "keep" if no_clobber else "resume" if resume else "checksum" if checksum else "overwrite"
    with progress("copied", "files") as report:
        hr.copy(
            sources, destination, recursive=recursive, existing=existing, follow=follow, jobs=jobs,
            progress=report, tell=lambda line: click.echo(line, err=True),
        )  # fmt: skip
