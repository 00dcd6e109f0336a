"""Where the loop's code runs: a thread of its own, or the only thread of the process (polled)."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from typing import Any, Protocol


class Place(Protocol):
    """`call` waits for a result, `start` doesn't; both run in the one thread that loads, captures and replays."""

    def call(self, job: Callable[[], Any], waiting: Callable[[], None] | None = None) -> Any:
        """The job's result or its exception; `waiting` is called once a second meanwhile, where another thread can."""
        ...

    def start(self, job: Callable[[], None]) -> None:
        """Begins a job; its exception is the job's own business."""
        ...

    def join(self, timeout_s: float) -> bool:
        """Whether the started job has ended within the limit."""
        ...

    def interrupt(self) -> None:
        """KeyboardInterrupt in a job that was called, where it runs in another thread than the one that signals interrupt."""
        ...

    def close(self) -> None:
        """Ends the thread."""
        ...


class OwnThread:
    """One dedicated thread. Between jobs it sleeps; during a job nobody shares a lock with it."""

    def __init__(self, name: str = "policy loop") -> None:
        self._job: Callable[[], None] | None = None
        self._wake = threading.Event()
        self._idle = threading.Event()
        self._idle.set()
        self._closing = False
        self._guard = threading.Lock()
        self._called = False  # a job runs that may be interrupted
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            self._wake.wait()
            self._wake.clear()
            if self._job is not None:
                job, self._job = self._job, None
                job()
                del job  # it holds the policy, which cleanup must be able to free
            self._idle.set()
            if self._closing:
                return

    def call(self, job: Callable[[], Any], waiting: Callable[[], None] | None = None) -> Any:
        """As `Place.call`."""
        outcome: list[Any] = [None, None]

        def run() -> None:
            try:
                self._called = True
                try:
                    outcome[0] = job()
                finally:
                    self._take_back()
            except BaseException as error:  # noqa: BLE001 - handed over to the caller, whatever it is
                outcome[1] = error

        self.start(run)
        while not self._idle.wait(1.0):
            if waiting is not None:
                waiting()
        try:
            if outcome[1] is not None:
                raise outcome[1]
            return outcome[0]
        finally:
            outcome.clear()  # an error leads to this frame: together they would keep what the job's frames hold

    def start(self, job: Callable[[], None]) -> None:
        """As `Place.start`."""
        if not self._idle.is_set():
            raise RuntimeError("the loop thread is busy")
        self._idle.clear()
        self._job = job
        self._wake.set()

    def join(self, timeout_s: float) -> bool:
        """As `Place.join`."""
        return self._idle.wait(timeout_s)

    def interrupt(self) -> None:
        """As `Place.interrupt`, as a signal does it in a main thread. Between two steps of the interpreter: a call into a library returns first."""
        with self._guard:
            if self._called:
                self._called = False  # once a job: what it does about it shall not be cut short too
                _raise_in(self._thread, KeyboardInterrupt)

    def _take_back(self) -> None:
        """The end of a called job: an interruption has arrived by now, or never does. One later would end this thread."""
        with self._guard:
            self._called = False
            _raise_in(self._thread, None)

    def close(self) -> None:
        """As `Place.close`; a hung job keeps its thread, which ends with the process."""
        self._closing = True
        self._wake.set()
        if self._idle.wait(0.5):
            self._thread.join(2.0)


class OnlyThread:
    """The polled place: jobs run where they are asked for; a started one waits until the main loop calls `pending`."""

    def __init__(self) -> None:
        self._job: Callable[[], None] | None = None
        self.busy = False

    def call(self, job: Callable[[], Any], waiting: Callable[[], None] | None = None) -> Any:
        """As `Place.call`."""
        return job()

    def start(self, job: Callable[[], None]) -> None:
        """As `Place.start`."""
        self._job = job

    def run_pending(self) -> bool:
        """Runs a started job to its end; False when there was none."""
        if self._job is None:
            return False
        job, self._job, self.busy = self._job, None, True
        try:
            job()
        finally:
            self.busy = False
        return True

    def interrupt(self) -> None:
        """Nothing: a signal has interrupted the job itself."""

    def join(self, timeout_s: float) -> bool:
        """Whether no job is left. The loop of this thread can't end while this thread asks: see `busy`."""
        self._job = None
        return not self.busy

    def close(self) -> None:
        """Nothing to end."""


def _raise_in(thread: threading.Thread, error: type[BaseException] | None) -> None:
    """Has `error` raised in the thread as soon as it runs Python again; None takes back one that is still on its way."""
    given = ctypes.py_object() if error is None else ctypes.py_object(error)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident or 0), given)
