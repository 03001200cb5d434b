"""A kernel that does not answer, and one that is gone before it is waited for."""

import sys
import time
from queue import Empty

import psutil
import pytest
from jupyter_client import AsyncKernelManager
from jupyter_client.utils import run_sync

from kvprefetch.kernels import Client, kernel, kernel_environment
from kvprefetch.nursery import Forked, Nursery


class Silent(AsyncKernelManager):
    """Of kernels that live and say nothing."""

    def format_kernel_cmd(self, extra_arguments=None):
        return [sys.executable, "-c", "import time; time.sleep(60)"]


def test_a_kernel_that_says_nothing_is_not_waited_for_longer_than_asked():
    with kernel(managers=Silent) as manager:
        client = manager.client()
        client.start_channels()
        try:
            with pytest.raises(RuntimeError, match=r"^Kernel didn't respond in 0 seconds$"):
                run_sync(client.wait_for_ready)(timeout=0)
        finally:
            client.stop_channels()


def test_a_kernel_is_asked_again_until_both_channels_answer():
    asked = []

    class Once(Client):
        async def get_iopub_msg(self, *arguments, **options):
            answer = await super().get_iopub_msg(*arguments, **options)
            asked.append(answer)
            if len(asked) == 1:
                raise Empty
            return answer

    with kernel() as manager:
        client = Once(**manager.get_connection_info(session=True), parent=manager)
        client.start_channels()
        try:
            run_sync(client.wait_for_ready)(timeout=30)
        finally:
            client.stop_channels()
    assert len(asked) == 2


def test_a_forked_kernel_ends_with_the_process_it_was_forked_from():
    nursery = Nursery(kernel_environment())
    with kernel(managers=nursery.managers()) as manager:
        forked = psutil.Process(manager.provisioner.pid)
        time.sleep(0.5)
        assert forked.is_running()
        nursery._process.kill()
        end = time.monotonic() + 10
        while psutil.pid_exists(forked.pid) and forked.status() != psutil.STATUS_ZOMBIE and time.monotonic() < end:
            time.sleep(0.1)
        assert not psutil.pid_exists(forked.pid) or forked.status() == psutil.STATUS_ZOMBIE
        nursery._process.wait()
        nursery._process.stdin.close()
        nursery._process.stdout.close()


def test_no_kernel_is_left_when_its_block_is():
    with kernel() as manager:
        pid = manager.provisioner.pid
    assert Forked(pid).poll() == 1


def test_a_process_that_does_not_go_away_is_not_waited_for_for_ever(monkeypatch):
    monkeypatch.setattr("kvprefetch.nursery.PATIENCE", 0.05)
    begun = time.monotonic()
    Forked(1).wait()
    assert time.monotonic() - begun < 5
    Forked(2**22 + 1).send_signal(9)  # no process has such a number
