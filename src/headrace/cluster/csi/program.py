"""The CSI plugin of a node as a program: `headrace k8s csi`."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable

from headrace.base.errors import UnsupportedError
from headrace.cluster.csi.attendant import attend
from headrace.cluster.csi.volumes import Volumes


def serve_csi(
    endpoint: str, node: str, state: str, grace_s: float, *, guarded: Callable[[Callable[[], object]], int],
    answers: Callable[[str], object],
) -> int:  # fmt: skip
    """Be the CSI plugin of this node until SIGTERM or SIGINT; then its mounts end in order. Returns the exit code.

    Main thread, before any other runs: the plugin is a child, which is started again where it dies.

    Args:
        endpoint: ``unix:///path`` of the socket that kubelet asks.
        node: what Kubernetes calls this node.
        state: folder where published volumes are noted.
        grace_s: seconds that mounts may take at the end to send what is left.
        guarded: runs the plugin in the child, says what goes wrong there, and gives its exit code.
        answers: called in the child with the endpoint once the plugin answers there.
    """
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING)
    volumes = Volumes(state)
    return attend(lambda: guarded(lambda: _plugin(endpoint, node, volumes, answers)), lambda: volumes.end(grace_s))


def _plugin(endpoint: str, node: str, volumes: Volumes, answers: Callable[[str], object]) -> None:
    try:
        from headrace.cluster.csi.plugin import Plugin
    except ModuleNotFoundError as error:
        raise UnsupportedError(f"the CSI plugin needs {error.name}", hint="pip install 'headrace[csi]'") from None
    ended = threading.Event()
    plugin = Plugin(endpoint, node, volumes)
    signal.signal(signal.SIGTERM, lambda _, __: ended.set())
    answers(endpoint)
    ended.wait()
    plugin.close(5.0)
