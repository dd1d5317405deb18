"""Signals around the start of another process of ours."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker

_HELD = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
)


@contextmanager
def signals_held() -> Iterator[None]:
    """Keep interrupts waiting while a process is started, from this process and from the new one.

    An interrupt between a start and the message that tells the new process what to do would leave
    it with half a message, and one that reaches it while it imports would have it print a
    traceback. What came meanwhile is delivered here at the end of the block, and there when it
    calls `take_signals`.
    """
    resource_tracker.ensure_running()  # its start, with that of the first process, lets all through
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)  # the new process begins with it
    came: list[int] = []
    handlers = {}
    # The mask is of this thread, and any other one takes a signal that is sent to the process.
    if threading.current_thread() is threading.main_thread():
        for number in _HELD:
            if callable(handler := signal.getsignal(number)):
                handlers[number] = handler
                signal.signal(number, lambda number, frame: came.append(number))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for number in dict.fromkeys(came):
            signal.raise_signal(number)


def take_signals() -> None:
    """Let this process have the interrupts that `signals_held` kept from it."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _HELD)
