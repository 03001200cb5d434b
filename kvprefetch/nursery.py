"""How do many kernels start quickly? As forks of a process that has loaded what every one of them needs.

python -m kvprefetch.nursery: for each line of JSON on stdin, [arguments, environment], a kernel, whose pid it prints.
Each is a process of its own, as one started by itself would be; all end when stdin does.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from importlib import import_module
from typing import Any, NoReturn

from jupyter_client import AsyncKernelManager

from kvprefetch.paths import workspace

LOADED = (
    *("ipykernel.ipkernel", "ipykernel.kernelapp", "ipykernel.debugger", "IPython.extensions.storemagic"),
    *("tornado.platform.asyncio", "sqlite3", "contourpy"),
    *("matplotlib.backends.backend_agg", "matplotlib.backends.backend_svg"),
    *("kvprefetch.notebook", "kvprefetch.overview", "kvprefetch.heatmap", "kvprefetch.verify", "kvprefetch.metrics"),
    *("kvprefetch.answers", "kvprefetch.captions", "kvprefetch.caveats", "kvprefetch.derivation", "kvprefetch.holding"),
    "kvprefetch.validationprose",
)

PATIENCE = 5  # seconds; a killed kernel whose nursery is gone stays a process where nobody takes over orphans


class Nursery:
    """The process that forks; gone with the process that made it."""

    def __init__(self, environment: dict[str, str]) -> None:
        command = [sys.executable, "-Xfrozen_modules=off", "-m", "kvprefetch.nursery"]  # as kernels are started
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "start_new_session": True}
        self._process = subprocess.Popen(command, cwd=workspace(), env=environment, **pipes)

    @property
    def lives(self) -> bool:
        return self._process.poll() is None

    def fork(self, arguments: list[str], environment: dict[str, str]) -> Forked:
        """A kernel with these arguments. Raises RuntimeError where none can be had."""
        try:
            self._process.stdin.write(json.dumps([arguments, environment]).encode() + b"\n")
            self._process.stdin.flush()
            return Forked(int(self._process.stdout.readline()))
        except (OSError, ValueError):
            raise RuntimeError("the process that kernels are forked from died") from None

    def managers(self) -> type[AsyncKernelManager]:
        """Kernel managers whose kernels are forked here."""
        nursery = self

        class Forking(AsyncKernelManager):
            async def _async_launch_kernel(self, kernel_cmd: list[str], **options: Any) -> None:
                kernel = nursery.fork(kernel_cmd[kernel_cmd.index("-f") :], options["env"])
                self.provisioner.process, self.provisioner.pid, self.provisioner.pgid = kernel, kernel.pid, kernel.pid
                self._reconcile_connection_info(self.provisioner.connection_info)

        return Forking


class Forked:
    """What a kernel manager asks of a process that is not its child."""

    stdin = stdout = stderr = None

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def poll(self) -> int | None:
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return 1
        return None

    def wait(self) -> int:
        end = time.monotonic() + PATIENCE
        while self.poll() is None and time.monotonic() < end:
            time.sleep(0.01)
        return 1

    def send_signal(self, number: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


def main() -> None:
    """Fork a kernel for each line of stdin."""
    for name in LOADED:
        import_module(name)
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them, so nothing of a kernel stays when it ends
    for line in sys.stdin.buffer:
        if not os.fork():
            _become_kernel(*json.loads(line))


def _become_kernel(arguments: list[str], environment: dict[str, str]) -> NoReturn:
    """What `python -m ipykernel_launcher` does, in a session of its own and with no word to anyone."""
    from ipykernel import kernelapp

    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    try:
        os.write(1, b"%d\n" % os.getpid())
    except BrokenPipeError:  # whoever asked is gone
        os._exit(1)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nowhere, stream)
    os.environ.clear()
    os.environ.update(environment)
    # Its parent's end is its own. The variable that usually says so was read when kernelapp was loaded.
    kernelapp.launch_new_instance(argv=[*arguments, f"--IPKernelApp.parent_handle={os.getppid()}"])
    os._exit(0)


if __name__ == "__main__":
    main()
