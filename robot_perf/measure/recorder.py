"""Writes step rows into the step map: no allocation that grows, no lock, no I/O, nothing printed."""

from __future__ import annotations

import ctypes
import mmap
import resource
import struct
from collections.abc import Callable, Sequence
from typing import Protocol

from robot_perf.run.columns import NOT_MEASURED, STEP_COLUMNS, stage_column
from robot_perf.run.stepmap import StepMap, Word

_HEAD = struct.Struct("<4q")  # step, release, wake, start
_TAIL = struct.Struct("<10q")  # start again, enqueue end, end, device, the four counters, gc, cpu
_WORD = struct.Struct("<q")
_START_AT = 8 * STEP_COLUMNS.index("start_ns")
_OWN_AT = 8 * STEP_COLUMNS.index("own_ns")
_STAGES_AT = 8 * len(STEP_COLUMNS)
_MADV_POPULATE_WRITE = 23  # Linux 5.14
_SLICE = 1 << 20

Noise = Callable[[], tuple[int, int, int, int, int, int]]


def host_noise(gc_total_ns: list[int]) -> Noise:
    """Voluntary and involuntary switches, minor and major faults, ns of garbage collection since the last call; the processor."""
    usage, thread = resource.getrusage, resource.RUSAGE_THREAD
    processor = ctypes.CDLL(None).sched_getcpu
    processor.argtypes, processor.restype = (), ctypes.c_int
    last = usage(thread)
    last_gc = gc_total_ns[0]

    def read() -> tuple[int, int, int, int, int, int]:
        nonlocal last, last_gc
        before, before_gc = last, last_gc
        last, last_gc = now, now_gc = usage(thread), gc_total_ns[0]
        # By position, which the kernel's struct fixes: 6 ru_minflt, 7 ru_majflt, 14 ru_nvcsw, 15 ru_nivcsw.
        return (
            now[14] - before[14],
            now[15] - before[15],
            now[6] - before[6],
            now[7] - before[7],
            now_gc - before_gc,
            processor(),
        )

    return read


class Begin(Protocol):
    """Writes the head of the row, so that a call that never returns can be seen from outside."""

    def __call__(self, step: int, release_ns: int, wake_ns: int, start_ns: int) -> None:
        """Times in ns."""
        ...


class Finish(Protocol):
    """Completes the row and commits it."""

    def __call__(
        self,
        start_ns: int,
        enqueue_end_ns: int,
        end_ns: int,
        device_ns: int = NOT_MEASURED,
        stages: Sequence[int] | None = None,
    ) -> None:
        """Times in ns; `stages` holds the end of each stage of a pipeline."""
        ...


class Recorder:
    """The writer's end of a step map. `begin` before the call, `finish` after it, `own` once the harness's work is known.

    The three are closures over the row's place, not methods: woken with cold caches, each object that a step touches costs.
    `later(*values)` fills the columns of the last row that come after the stages: what a ROS node adds to a step.
    """

    begin: Begin
    finish: Finish
    own: Callable[[int], None]
    later: Callable[..., None]

    def __init__(self, stepmap: StepMap, noise: Noise) -> None:
        memory, row_bytes = stepmap.memory, stepmap.row_bytes
        committed = stepmap[Word.COMMITTED]
        at = last = stepmap.rows_at + committed * row_bytes
        stages_count = sum(name.startswith(stage_column("")) for name in stepmap.columns)
        pack_stages = struct.Struct(f"<{stages_count}q").pack_into
        later_count = len(stepmap.columns) - len(STEP_COLUMNS) - stages_count
        pack_later, later_at = struct.Struct(f"<{later_count}q").pack_into, _STAGES_AT + 8 * stages_count
        window = _ResidentWindow(stepmap)
        slide_at = window.slide_at
        pack_head, pack_tail, pack_word = _HEAD.pack_into, _TAIL.pack_into, _WORD.pack_into
        start_at, stages_at, own_at, committed_at = _START_AT, _STAGES_AT, _OWN_AT, int(Word.COMMITTED)

        def begin(step: int, release_ns: int, wake_ns: int, start_ns: int) -> None:
            pack_head(memory, at, step, release_ns, wake_ns, start_ns)

        def finish(
            start_ns: int,
            enqueue_end_ns: int,
            end_ns: int,
            device_ns: int = NOT_MEASURED,
            stages: Sequence[int] | None = None,
        ) -> None:
            nonlocal at, last, committed
            pack_tail(memory, at + start_at, start_ns, enqueue_end_ns, end_ns, device_ns, *noise())
            if stages is not None:
                pack_stages(memory, at + stages_at, *stages)
            last = at
            at += row_bytes
            committed += 1
            pack_word(memory, committed_at, committed)

        def own(own_ns: int) -> None:
            nonlocal slide_at
            pack_word(memory, last + own_at, own_ns)
            if at >= slide_at:
                slide_at = window.slide(at)

        def later(*values: int) -> None:
            pack_later(memory, last + later_at, *values)

        self.begin, self.finish, self.own, self.later = begin, finish, own, later
        self._stepmap = stepmap

    @property
    def full(self) -> bool:
        """No row is left."""
        return self._stepmap[Word.COMMITTED] >= self._stepmap[Word.ROWS]


class _ResidentWindow:
    """Keeps two slices of the rows mapped in this process: the one being written and the next.

    The pages themselves exist from the start. Mapping all of them would let the worker's resident size grow with the run
    (112 bytes a step); mapping none ahead costs a minor fault every 36 steps.
    """

    def __init__(self, stepmap: StepMap) -> None:
        self._memory = stepmap.memory
        self._size = len(stepmap.memory)
        self._front = stepmap.rows_at // mmap.PAGESIZE * mmap.PAGESIZE
        self.slide_at = self.slide(self._front)
        self._populate(self._front, self._front + 2 * _SLICE)

    def slide(self, at: int) -> int:
        """Maps the slice after next, drops those behind; returns where to slide again."""
        behind = (at // mmap.PAGESIZE) * mmap.PAGESIZE - _SLICE
        if behind > self._front:
            try:
                self._memory.madvise(mmap.MADV_DONTNEED, self._front, behind - self._front)
                self._front = behind
            except OSError:
                # mlockall holds every page: the map stays resident as a whole, which is what was asked for.
                self._front = self._size
        self._populate(at // mmap.PAGESIZE * mmap.PAGESIZE + _SLICE, at // mmap.PAGESIZE * mmap.PAGESIZE + 2 * _SLICE)
        return at + _SLICE

    def _populate(self, start: int, stop: int) -> None:
        stop = min(stop, self._size // mmap.PAGESIZE * mmap.PAGESIZE)
        if start >= stop:
            return
        try:
            self._memory.madvise(_MADV_POPULATE_WRITE, start, stop - start)
        except OSError:
            # Older kernels lack it: reading one byte a page maps the page, at the price of a fault here instead of in a step.
            for page in range(start, stop, mmap.PAGESIZE):
                _ = self._memory[page]
