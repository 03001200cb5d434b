"""How does a kernel start that nothing of the user's can change, and end without a trace?"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from queue import Empty

from jupyter_client import AsyncKernelClient, AsyncKernelManager
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.utils import run_sync

from kvprefetch.paths import IN_CHECKOUT, workspace
from kvprefetch.stops import undisturbed

OPTIONS = [
    "--log-level=CRITICAL",  # a kernel that outlives its parent by a moment says nothing about it
    "--HistoryManager.hist_file=:memory:",  # a write to disk a cell, which nobody reads
]
OF_THE_USERS = ("JUPYTER", "IPYTHON", "PYTHON", "MPL", "MATPLOTLIB")  # settings that a kernel would follow
SCRATCH = "/tmp"  # a short path, because that of a socket has at most some 100 bytes

Kernels = Callable[[], AbstractContextManager[AsyncKernelManager]]


class Client(AsyncKernelClient):
    """A client to which a kernel is ready once it has answered on both channels.

    jupyter_client's own then listens for a fifth of a second whether more comes, which nobody waits for.
    """

    async def wait_for_ready(self, timeout: float | None = None) -> None:
        """Return when the kernel has answered. Raises RuntimeError where it died, or took longer than `timeout` s."""
        end = time.monotonic() + (float("inf") if timeout is None else timeout)
        while True:
            self.kernel_info()
            try:
                reply = await self.get_shell_msg(timeout=1)
                await self.get_iopub_msg(timeout=0.2)  # none comes before that channel is connected
            except Empty:
                if not await self.is_alive():
                    raise RuntimeError("Kernel died before replying to kernel_info") from None
                if time.monotonic() > end:
                    raise RuntimeError(f"Kernel didn't respond in {timeout} seconds") from None
            else:
                self._handle_kernel_info_reply(reply)
                return


@contextmanager
def kernel(
    folder: str = SCRATCH, managers: type[AsyncKernelManager] = AsyncKernelManager
) -> Iterator[AsyncKernelManager]:
    """A running kernel that nothing of the user's can change, gone with the last trace of it when the block is left.

    Start-up files, other kernels' specs, plotting defaults and the hash seed stay out; the kernel finds this
    checkout's package first. It is talked to over files in `folder`, not TCP: no ports that two could both pick.
    """
    with tempfile.TemporaryDirectory(prefix="kvprefetch-", dir=folder) as scratch:
        environment = kernel_environment() | {"IPYTHONDIR": f"{scratch}/ipython"}
        manager = managers(
            kernel_name="python3",
            kernel_spec_manager=KernelSpecManager(kernel_dirs=[]),  # this interpreter's own, whatever others are found
            transport="ipc",
            ip=f"{scratch}/k",
            connection_file=f"{scratch}/connection.json",
            client_factory=Client,
        )
        try:
            with undisturbed():  # a kernel half started could not be stopped
                run_sync(manager.start_kernel)(cwd=str(workspace()), env=environment, extra_arguments=OPTIONS)
            yield manager
        finally:
            with undisturbed():
                if manager.has_kernel:  # ended here, because the manager looks only every tenth of a second
                    manager.provisioner.process.kill()
                    manager.provisioner.process.wait()
                run_sync(manager.shutdown_kernel)(now=True)


def kernel_environment() -> dict[str, str]:
    """The variables of a kernel: those of this process, less what would change it, and where it finds its package."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(OF_THE_USERS)}
    environment["PYTHONHASHSEED"] = "0"
    environment["MPLCONFIGDIR"] = str(workspace() / ".cache" / "matplotlib")
    return environment | ({"PYTHONPATH": str(workspace())} if IN_CHECKOUT else {})
