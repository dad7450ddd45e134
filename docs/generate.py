"""Writes the reference pages that follow from the code (``python docs/generate.py``); a test checks that they do."""

from __future__ import annotations

import dataclasses
import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import click

import headrace
from headrace.base import errors
from headrace.base.settings import CacheSettings, FetchSettings, MountSettings, PriceSettings, RunSettings, SyncSettings
from headrace.base.units import format_bytes
from headrace.cli.app import SECTIONS, app
from headrace.jobs.spec import JobSpec
from headrace.jobs.spec_fields import keyed

REFERENCE = Path(__file__).parent / "reference"


def pages() -> dict[str, str]:
    """File name → text."""
    made = {"cli.md": _cli(), "settings.md": _settings(), "errors.md": _errors(), "job.md": _job()}
    made |= {f"python/{page}.md": _python(page) for page in _FACES}
    return {name: "\n".join(lines).rstrip() + "\n" for name, lines in made.items()}


def _cli() -> Iterator[str]:
    yield "# Command line"
    yield ""
    yield "Every command, as its own `--help` says it. How they go together: [the guide](../guides/command-line.md)."
    root = click.Context(app, info_name="headrace", **app.context_settings)
    for title, commands in SECTIONS.items():
        yield f"\n## {title}"
        for name in commands:
            yield from _command(app.get_command(root, name), root, f"headrace {name}")


def _command(command: click.Command | None, parent: click.Context, title: str) -> Iterator[str]:
    assert command is not None
    context = click.Context(command, info_name=title.rpartition(" ")[2], parent=parent, max_content_width=100)
    context.terminal_width = 100
    yield f"\n### `{title}`\n\n```text\n{command.get_help(context)}\n```"
    for name, inner in getattr(command, "commands", {}).items():
        yield from _command(inner, context, f"{title} {name}")


_SECTIONS = {"cache": CacheSettings, "fetch": FetchSettings, "mount": MountSettings, "sync": SyncSettings,
             "run": RunSettings, "prices": PriceSettings}  # fmt: skip

_FOLDERS = {"sync": "sync", "run": "runs"}


def _settings() -> Iterator[str]:
    yield _SETTINGS_HEAD
    for section, kind in _SECTIONS.items():
        yield f"\n## `[{section}]`: {(kind.__doc__ or '').strip().lower().rstrip('.')}\n"
        yield "| key | variable | default | meaning |"
        yield "|---|---|---|---|"
        for field in dataclasses.fields(kind):
            variable = f"`HEADRACE_{section}_{field.name}`".upper()
            yield f"| `{field.name}` | {variable} | {_default(section, field)} | {field.metadata['doc']} |"
    yield _SETTINGS_TAIL


def _default(section: str, field: dataclasses.Field[object]) -> str:
    if field.default is dataclasses.MISSING:
        if (section, field.name) == ("run", "cache"):
            return "`headrace/runs` in the user's cache folder"
        state = f"`headrace/{_FOLDERS.get(section)}` in the user's state folder"
        return "the user's cache folder" if field.name == "dir" else state
    match field.metadata["unit"], field.default:
        case "bytes", int(size):
            return _size(size)
        case "seconds", float(seconds):
            return f"{seconds:g}s"
        case _, "":
            return "none"
        case _, value:
            return str(value).lower()


def _size(size: int) -> str:
    return f"{size >> 20}MiB" if size % (1 << 20) == 0 else format_bytes(size).replace(" ", "")


def _errors() -> Iterator[str]:
    yield _ERRORS_HEAD
    for kind in _tree(errors.HeadraceError):
        depth = len(kind.__mro__) - len(errors.HeadraceError.__mro__)
        name = f"{'&nbsp;&nbsp;' * depth}`{kind.__name__}`"
        meaning = (kind.__doc__ or "").partition("\n")[0]
        yield f"| {name} | `{kind.code}` | {kind.exit_code} | {meaning} |"
    yield _ERRORS_TAIL


def _tree(kind: type[errors.HeadraceError]) -> Iterator[type[errors.HeadraceError]]:
    yield kind
    for below in kind.__subclasses__():
        if below.__module__ == errors.__name__:
            yield from _tree(below)


def _job() -> Iterator[str]:
    yield _JOB_HEAD
    yield from _fields(JobSpec)
    for key, one in keyed(JobSpec).items():
        if inner := one.metadata.get("section") or one.metadata.get("each"):
            title = f"[{key}.NAME]" if "each" in one.metadata else f"[{key}]"
            yield f"\n## `{title}`: {one.metadata['doc']}\n"
            yield from _fields(inner)
            for below, deep in keyed(inner).items():
                if "each" in deep.metadata:
                    yield f"\n## `[{key}.{below}.NAME]`: {deep.metadata['doc']}\n"
                    yield from _fields(deep.metadata["each"])
        elif inner := one.metadata.get("items"):
            yield f"\n## `[[{key}]]`: {one.metadata['doc']}\n"
            yield from _fields(inner)
    yield _JOB_TAIL


def _fields(kind: type) -> Iterator[str]:
    yield "| key | takes | default | meaning |"
    yield "|---|---|---|---|"
    for key, one in keyed(kind).items():
        if "section" not in one.metadata:
            told = one.metadata
            yield f"| `{key}` | {told['kind']} | {_written(told['default'])} | {told['doc']} |"


def _written(default: object) -> str:
    """A default as the file would say it."""
    if default in (None, "", (), {}):
        return "none"
    return f"`{json.dumps(default)}`"


def _python(page: str) -> Iterator[str]:
    """Each public name of these modules, for mkdocstrings, which takes the rest from the docstring."""
    title, modules = _FACES[page]
    yield f"# {title}\n"
    yield _PYTHON_HEAD
    for module in modules:
        there = _module(module)
        for name in _OF_FACE.get(module, there.__all__):
            if not name.startswith("_") and not isinstance(getattr(there, name), ModuleType):
                yield f"\n::: {module}.{name}"


def _module(name: str) -> ModuleType:
    """`headrace.decode` is no module, but what `headrace` has under that name."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        return getattr(headrace, name.removeprefix("headrace."))


_FACES = {
    "index": ("Python", ["headrace"]),
    "loader": ("Loaders, and what they say", ["headrace.loader", "headrace.catalog"]),
    "namespace": ("Paths and files", ["headrace.namespace"]),
    "decode": ("`hr.decode`", ["headrace.decode"]),
    "torch": ("`hr.torch`", ["headrace.torch"]),
    "tf": ("`hr.tf`", ["headrace.tf"]),
    "jax": ("`hr.jax`", ["headrace.jax"]),
    "models": ("`hr.models`, `hr.safetensors`", ["headrace.models", "headrace.safetensors"]),
    "ray": ("`hr.ray`", ["headrace.ray"]),
    "pack": ("`headrace.pack`, `headrace.sync`", ["headrace.pack", "headrace.sync"]),
    "running": ("Runs, mount, gateway, page, servers",
                ["headrace.jobs", "headrace.tracking", "headrace.mount", "headrace.gateway", "headrace.web",
                 "headrace.serving", "headrace.cluster", "headrace.cluster.serving", "headrace.cache",
                 "headrace.store"]),
}
"""Page → its title, and the modules whose public names it has."""

_OF_FACE = {
    "headrace.loader": ("Changed", "Dataset", "Loader", "Skip", "Skipped", "Stats"),
    "headrace.catalog": ("StoredObject",),
    "headrace.jobs": ("start", "start_again", "run_here", "RunRequest", "TaskOptions", "Outcome", "diff", "Difference",
                      "recover", "Recovered"),
    "headrace.tracking": ("RecordedRun", "RunView", "MetricsReader", "Series"),
    "headrace.gateway": ("open_gateway", "Gateway", "GatewayOptions", "Key"),
    "headrace.web": ("open_page", "Server", "Options", "export_run", "open_lab", "configure_lab"),
    "headrace.mount": ("open_mount", "end_mount", "Mounted", "MountOptions"),
    "headrace.serving": ("serve", "Ending", "Options", "Route", "Way", "Rules", "Server"),
    "headrace.cluster": ("KubernetesRequest", "Rendered", "kubernetes_manifests", "kubernetes_chart", "run_on_cluster",
                         "workers", "load_on", "verify_caches", "Checked"),
    "headrace.cluster.serving": ("serve", "ServiceSpec", "Scale", "FollowingService", "services", "all_listings",
                                 "restart", "stop", "Upstreams"),
    "headrace.cache": ("Cache", "CacheStatus", "VerifyReport", "BadEntry"),
    "headrace.store": ("EmbeddedS3",),
}
"""Of faces that other rooms use, too: what is there for everybody."""

_PYTHON_HEAD = """\
Made from the docstrings: the site (`make docs`) shows the entries. Errors have [a page of their own](../errors.md)."""


_SETTINGS_HEAD = """\
# Settings

Later wins: the defaults below; the user's `headrace/headrace.toml` in the configuration folder (`~/.config` on
Linux); the nearest `headrace.toml` upward from the working directory; environment variables. An unknown key or a value
that cannot be read is refused, with the file and the nearest known name. `headrace doctor` says which files apply.

Sizes are written `512MB` (powers of 1000), `512MiB` (powers of 1024) or as plain bytes; durations `30s`, `250ms`, `5m`,
`2h`, `1d`.

```toml
home = "s3://team-bucket/headrace"             # or HEADRACE_HOME

[cache]
dir = "/nvme/headrace"
size = "500GB"

[mounts."/training-data/imagenet"]
url = "s3://datasets/imagenet"
read_only = true
profile = "datasets"

[stores."s3://datasets"]
endpoint = "https://s3.example.com"
region = "eu-1"
```

| key | variable | default | meaning |
|---|---|---|---|
| `home` | `HEADRACE_HOME` | none | URL below which snapshots, runs and models are recorded |
| `progress` | `HEADRACE_PROGRESS` | `true` | draw bars where standard error is a terminal |"""

_SETTINGS_TAIL = """
## `[mounts."/path"]`: what is attached where

| key | meaning |
|---|---|
| `url` | the store, such as `s3://bucket/prefix` |
| `read_only` | `true`: every write and delete below the path is refused before any request |
| any key of `[stores]` | how to reach this store |

`headrace attach` and `headrace detach` write these tables, and keep your comments.

## `[stores."s3://bucket/prefix"]`: how to reach a store

The longest URL that is a prefix of the store's applies. What is left out comes from the standard variables (`AWS_*`,
with `AWS_ENDPOINT_URL_S3` over `AWS_ENDPOINT_URL`), then from the provider's own defaults.

| key | meaning |
|---|---|
| `endpoint` | address of the server, for stores other than the provider's own |
| `region` | region to sign for |
| `profile` | section of `~/.aws/credentials` and `~/.aws/config` |
| `role_arn` | role to assume |
| `anonymous` | `true`: sign nothing |
| `requester_pays` | `true`: you pay for the requests |
| `path_style` | `true`: bucket in the path, `false`: bucket in the host name |
| `ca_file` | PEM file of the authorities to trust |
| `sse`, `sse_kms_key_id` | how S3 encrypts what is written: `AES256`, `aws:kms` or `aws:kms:dsse`, and by which key |
| `sse_c` | your own key of 256 bits in base64: S3 encrypts by it and forgets it (SSE-C); also to read. Never shown |
| `storage_class`, `acl` | of what is written to S3, such as `STANDARD_IA`, `bucket-owner-full-control` |
| `allow_http` | `true`: permit an endpoint without TLS |
| `timeout_s`, `connect_timeout_s` | durations: longest wait for an answer, for a connection |
| `retries` | attempts after the first |
| `extra` | a table of anything else the backend takes by name |

Keys may stand here too (`access_key_id`, `secret_access_key`, `session_token`), but a profile or the environment is the
better place; `headrace attach` refuses to write them. See [credentials](../guides/credentials.md).

## Other variables

| variable | meaning |
|---|---|
| `HEADRACE_DEBUG` | `1`: show the traceback beside an error's message |
| `HEADRACE_WEB_TOKEN` | the token of `headrace web`, 16 characters or more: so given, it is not printed |
| `RANK`, `WORLD_SIZE` | as torchrun sets them: this process's share of the samples |"""

_ERRORS_HEAD = """\
# Errors

Every error that headrace raises on purpose is a `headrace.errors.HeadraceError`. It carries a `reason`, the `path` or
URL concerned, a `hint` that says what to do, a stable `code`, and the exit code the command line ends with. The tree is
grouped by what a handler would do; catch the group. Codes are never renamed or used again.

| class | code | exit | when |
|---|---|---|---|"""

_ERRORS_TAIL = """
The command line prints `error: PATH: REASON` and `hint: …` on standard error, never a traceback; `HEADRACE_DEBUG=1`
adds it. Further exit codes: 0 done; 2 for a wrong command line; 130 after Ctrl-C; 1 from `headrace doctor` when a
check failed, or when whoever read the output went away."""


_JOB_HEAD = """\
# The job file

What a job is: which command, which data, which code, in what environment. All of it may be left out but the command.
A key that is not known, a value of the wrong kind or out of range, and a name or path that is none are refused, with
the file, the line and the field.

Durations are written `30s`, `250ms`, `5m`, `10min`, `2h`, `1d`, or as a number of seconds; sizes `512MB` (powers of
1000), `512MiB` (powers of 1024), or as a number of bytes. The file is [TOML](https://toml.io): what stands below a
`[table]` belongs to it, so `name`, `command` and the like come first.

```toml
name = "digits"
command = ["python", "train.py", "--lr", "0.1"]
time_limit = "2h"
tags = { team = "vision" }

[inputs]
train = "imagenet@v3"
valid = { source = "/training-data/valid", as = "mount" }

[environment]
lock = "uv.lock"
python = "3.11"
variables = { OMP_NUM_THREADS = "2" }
record = ["OMP_*"]

[retry]
attempts = 3
exit_codes = [75]
log_patterns = ["CUDA error"]

[resources]
cpus = 4
memory = "8GB"
gpus = [0, 1]
```

## The job itself
"""

_JOB_TAIL = """
## What excludes what

- `code.path` and `code.git`: a working tree as it is, or a clean checkout.
- `environment.lock` and `environment.image`: a virtual environment, or an image; with neither, the command runs in
  what `headrace` itself runs in. `environment.python` needs `environment.lock`.
- `cluster.nodes` and `cluster.workers`. A job on a cluster takes no `environment.image`: Ray's nodes run in one.
- Two inputs whose variables are the same: `a-b` and `A_B` are both `HEADRACE_INPUT_A_B`. Likewise two tasks.
- `[[task]]` and the job's own `command`, `processes`, `[retry]` and `[resources]`: those are said of each task. What
  else the file says is for all of them; `time_limit` for all together. [Tasks and sweeps](../guides/tasks.md).

URLs that hold a password or a token are refused.

## Values over the file

`--set NAME=VALUE` replaces one value, by its name in the file with dots: `--set retry.attempts=3`,
`--set inputs.train=imagenet@v4`, `--set inputs.train.as=copy`, `--set environment.variables.OMP_NUM_THREADS=4`.

- A list takes one item, or a list as TOML writes one: `--set 'retry.exit_codes=[75, 76]'`. `resources.gpus` takes
  `0,1` as well.
- `command` takes the shell's line, or such a list.
- An empty value is the default again: `--set environment.lock=`. For an input it takes the input away; for tags and
  variables it is a value like others.
- `inputs.NAME=SOURCE` changes what is read, and keeps how it is given.

## What is recorded

A run's record holds all of this, but of `environment.variables` the names only, unless `environment.record` takes
them. A run that is started again from its record needs the other values again."""


if __name__ == "__main__":
    for name, text in pages().items():
        (REFERENCE / name).parent.mkdir(exist_ok=True)
        (REFERENCE / name).write_text(text)
        print(f"wrote reference/{name}", file=sys.stderr)
