"""podman or docker: which there is, how images are found, and what this machine lets it do."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, cast

from headrace.base.errors import DeniedError, HeadraceError, NotFoundError, UnreachableError, UnsupportedError
from headrace.jobs.environment.programs import Answer, Tell, ask

_ASK_S: Final = 60.0  # seconds for what an engine answers at once, unless its daemon is just starting
_NO_PROGRAM: Final = "/.headrace-is-not-here"
_CDI: Final = ("/etc/cdi", "/run/cdi", "/var/run/cdi")  # https://github.com/cncf-tags/container-device-interface
_REFUSED: Final = ("unauthorized", "denied", "authentication required")
_NETWORK: Final = ("no such host", "connection refused", "timeout", "unreachable", "tls", "pinging container registry")


class Engine:
    """One of the two, found on ``PATH`` of `environ`, with which it is always called. Any thread.

    Raises:
        UnsupportedError: neither is installed. UnreachableError: docker is, but its service does not answer.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.environ = dict(environ)
        found = [shutil.which(name, path=environ.get("PATH")) for name in ("podman", "docker")]
        self.program = next(filter(None, found), "")
        if not self.program:
            hint = "apt install podman runc catatonit, or the like; or use a lock file in place of the image"
            raise UnsupportedError("an image needs podman or docker, and neither is installed", hint=hint)
        said = self.ask("--version")
        self.podman = "podman" in said.out.lower()  # which also comes under the name of docker
        if not self.podman and (answer := self.ask("version", "--format", "{{.Server.Version}}")).code:
            hint = "start the docker service, or install podman, which needs none"
            raise UnreachableError(f"docker does not answer: {answer.last(2)}", path=self.program, hint=hint)

    def ask(self, *words: str, deadline: float = _ASK_S, tell: Tell | None = None) -> Answer:
        """Call it. Raises as `programs.ask`."""
        return ask([self.program, *words], self.environ, deadline=deadline, tell=tell)

    def image(self, name: str, deadline: float, tell: Tell) -> Mapping[str, Any]:
        """What is known of an image; fetched if it is not here.

        Raises:
            NotFoundError, DeniedError, UnreachableError: by what the registry says. DeadlineError.
        """
        if (told := self._inspect(name)) is not None:
            return told
        if name.startswith("localhost/"):  # podman's name for images that come from no registry
            raise _not_here(name)
        tell(f"fetching {name}")
        answer = self.ask("pull", name, deadline=deadline, tell=tell)
        if answer.code:
            raise _not_fetched(answer, name)
        if (told := self._inspect(name)) is None:
            raise _not_here(name)
        return told

    def _inspect(self, name: str) -> Mapping[str, Any] | None:
        answer = self.ask("image", "inspect", name)
        if answer.code:
            said = answer.last(3)
            if any(word in said.lower() for word in ("no such image", "not known", "not found", "unable to find")):
                return None
            raise UnsupportedError(f"images cannot be looked at: {said}", path=self.program, hint="try it by hand")
        told: Any = json.loads(answer.out)
        return cast("Mapping[str, Any]", told[0])

    def flags(self, image: str) -> tuple[list[str], list[str]]:
        """Options under which containers start here, and notes on what is missing: by trying, some 0.3 s a try.

        Raises UnsupportedError: none does.
        """
        common, wanted = [*self._common(), *_limits()], self._wanted()
        everything = [word for words, _ in wanted for word in words]
        # Debian's crun does not do with hybrid cgroups, runc not without any.
        runtimes = [[], ["--runtime=runc"], ["--runtime=crun", "--cgroups=disabled"]] if self.podman else [[]]
        said: list[str] = []
        for extra in (everything, []):
            for runtime in runtimes:
                flags = [*common, *runtime, *extra]
                if (why := self._starts(flags, image)) is None:
                    return self._widened(flags, image, [one for one in wanted if not extra or not one[0]])
                said.append(why)
        hint = f"try yourself: {os.path.basename(self.program)} run --rm {image[:12]} true"
        raise UnsupportedError(f"containers do not start here: {said[-len(runtimes)]}", path=self.program, hint=hint)

    def _wanted(self) -> list[tuple[list[str], str]]:
        """What a command should have, and what to say where it cannot."""
        wanted = [(["--init"], "no init program (catatonit): SIGTERM ends only commands that have a handler for it")]
        if os.path.exists("/dev/nvidiactl"):
            note = "GPUs are not passed on: run `nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`"
            wanted.append((self._gpus(), note))
        return wanted

    def _widened(
        self, flags: list[str], image: str, missing: list[tuple[list[str], str]]
    ) -> tuple[list[str], list[str]]:
        """`flags`, with each of what is `missing` that works."""
        notes: list[str] = []
        for words, note in missing:
            if words and self._starts([*flags, *words], image) is None:
                flags = [*flags, *words]
            else:
                notes.append(note)
        return flags, notes

    def _starts(self, flags: Sequence[str], image: str) -> str | None:
        """None: it does (to find that the program is missing in the image); else why not."""
        answer = self.ask("run", "--rm", *flags, image, _NO_PROGRAM)
        said = answer.last(3)
        got_there = answer.code not in (125, 126) and (
            _NO_PROGRAM in said or "failed to exec pid1" in said
        )  # catatonit
        return None if got_there else said or f"exit code {answer.code}"

    def _common(self) -> list[str]:
        """As if started by hand: the host's network, all of its shared memory, no second copy of what is said."""
        words = ["--pull=never", "--network=host", "--entrypoint=", "--log-driver=none", "--security-opt=label=disable"]
        with suppress(OSError):
            memory = os.statvfs("/dev/shm")  # noqa: S108
            words.append(f"--shm-size={max(memory.f_frsize * memory.f_blocks, 64 << 20)}")
        user = f"--user={os.getuid()}:{os.getgid()}"
        if self.podman:
            words += ["--userns=keep-id"] if os.getuid() else []
            if not os.getuid() or os.path.exists("/sys/fs/cgroup/cgroup.controllers"):  # elsewhere it only warns
                words.append("--pids-limit=-1")
        return [*words, user]

    def _gpus(self) -> list[str]:
        if not self.podman:
            return ["--gpus=all"]
        folders = [Path(folder) for folder in _CDI]
        known = any("nvidia" in one.name for folder in folders if folder.is_dir() for one in folder.iterdir())
        return ["--device=nvidia.com/gpu=all"] if known else []

    def signal(self, name: str, number: signal.Signals) -> bool:
        """Send a signal to a container's command. False: there is none. Raises DeadlineError."""
        return self.ask("kill", f"--signal={number.name}", name).code == 0

    def remove(self, name: str) -> None:
        """Kill a container and remove it; fine if there is none.

        Raises:
            UnsupportedError: it is still there. DeadlineError.
        """
        self.ask("kill", "--signal=KILL", name)  # at once: rm would give it ten seconds
        answer = self.ask("rm", "--force", name)
        left = self.ask("ps", "--all", "--quiet", f"--filter=name=^{name}$")
        if left.code or left.out.strip():
            said = answer.last(3) or left.last(3)
            raise UnsupportedError(f"the container cannot be removed: {said}", path=name, hint="remove it by hand")


def _limits() -> list[str]:
    """This process's own: podman's are higher, which takes a privilege that some machines do not give.

    podman itself lowers its number of processes to the kernel's number of process ids.
    """
    words: list[str] = []
    ids = int(Path("/proc/sys/kernel/pid_max").read_text(encoding="ascii"))
    for name, what, most in (("nofile", resource.RLIMIT_NOFILE, None), ("nproc", resource.RLIMIT_NPROC, ids)):
        soft, hard = resource.getrlimit(what)
        if most is not None:
            soft, hard = (most if one == resource.RLIM_INFINITY else min(one, most) for one in (soft, hard))
        words.append(f"--ulimit={name}={soft}:{hard}")
    return words


def _not_here(name: str) -> HeadraceError:
    hint = "build or import it, or name one of a registry"
    return NotFoundError("no such image on this machine", path=name, hint=hint)


def _not_fetched(answer: Answer, name: str) -> HeadraceError:
    said, low = answer.last(3), answer.last(3).lower()
    if "short-name" in low:
        hint = f"write it in full, like docker.io/library/{name}"
        return NotFoundError("no registry is set for short names", path=name, hint=hint)
    if any(word in low for word in ("manifest unknown", "not found", "name unknown", "repository does not exist")):
        return NotFoundError(f"no such image: {said}", path=name, hint="check its name and tag")
    if any(word in low for word in _REFUSED):
        return DeniedError(f"the registry refuses: {said}", path=name, hint="podman login, or docker login")
    if any(word in low for word in _NETWORK):
        return UnreachableError(f"the registry does not answer: {said}", path=name, hint="is the network up?")
    return UnsupportedError(f"the image cannot be fetched: {said}", path=name, hint="fetch it by hand, to see more")
