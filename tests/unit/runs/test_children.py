import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from swarepro.runs.children import signals_held, take_signals


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """What a shell starts in the background ignores SIGINT, and so do its tests."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def test_an_interrupt_waits_for_the_end_of_the_block() -> None:
    reached = False
    with pytest.raises(KeyboardInterrupt), signals_held():
        os.kill(os.getpid(), signal.SIGINT)
        reached = True
    assert reached


def test_another_thread_does_not_let_it_through() -> None:
    """The kernel gives a signal of the process to any thread that does not block it."""
    going_on = threading.Event()
    thread = threading.Thread(target=going_on.wait)
    thread.start()
    try:
        test_an_interrupt_waits_for_the_end_of_the_block()
    finally:
        going_on.set()
        thread.join()


def test_the_mask_is_as_before() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    with signals_held():
        assert signal.SIGTERM in signal.pthread_sigmask(signal.SIG_BLOCK, [])
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before


def _ready() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    take_signals()


def test_a_process_that_still_imports_is_not_interrupted() -> None:
    process = multiprocessing.get_context("spawn").Process(target=_ready)
    with signals_held():
        process.start()
    assert process.pid is not None
    os.kill(process.pid, signal.SIGINT)
    process.join()
    assert process.exitcode == 0


def test_without_it_the_new_process_would_be() -> None:
    """The negative control: the same signal ends one whose start held nothing."""
    with subprocess.Popen(
        [sys.executable, "-c", "import time; print(1, flush=True); time.sleep(60)"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) != 0
