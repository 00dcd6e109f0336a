"""The device work of one device, joined with the calls that launched it: what steps, gaps and shares are computed from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from robot_perf.analyze.diagnose.intervals import Int, Union, union
from robot_perf.profiles.model import COMMAND_BUFFER_FULL, GRAPH, GRAPH_LAUNCH, KERNEL, LAUNCH, NULL, Profile, Table
from robot_perf.profiles.names import is_blocking, is_communication

Bool = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Work:
    """Timed device operations of one device in order of start, and the API calls of all threads."""

    device: int
    ops: Table
    calls: Table
    overhead: Union

    @cached_property
    def start(self) -> Int:
        """Start of each op, ns."""
        return self.ops["start_ns"]

    @cached_property
    def end(self) -> Int:
        """End of each op, ns."""
        return self.ops["end_ns"]

    @cached_property
    def linked(self) -> Bool:
        """Ops whose launch call is in the file."""
        linked: Bool = self.ops["api"] >= 0
        return linked

    @cached_property
    def call(self) -> Int:
        """Row of each op's call, 0 where unlinked."""
        return np.maximum(self.ops["api"], 0)

    def of_call(self, column: str) -> Int:
        """A column of each op's call; NULL where unlinked."""
        if not len(self.calls):
            return np.full(len(self.ops), NULL)
        return np.where(self.linked, self.calls[column][self.call], NULL)

    @cached_property
    def communication(self) -> Bool:
        """Kernels of collective libraries (T2)."""
        known = np.array([is_communication(s) for s in self.ops.strings], bool)
        kernels: Bool = self.ops["kind"] == KERNEL
        return kernels & known[self.ops["name"]] if len(known) and len(self.ops) else np.zeros(len(self.ops), bool)

    @cached_property
    def compute(self) -> Bool:
        """Kernels and whole graphs that are no communication (T2, T4)."""
        kind = self.ops["kind"]
        result: Bool = ((kind == KERNEL) | (kind == GRAPH)) & ~self.communication
        return result

    @cached_property
    def unions(self) -> tuple[Union, Union, Union]:
        """Unions of compute, of compute and communication, and of everything."""
        kernels = self.compute | self.communication
        return (
            union(self.start[self.compute], self.end[self.compute]),
            union(self.start[kernels], self.end[kernels]),
            union(self.start, self.end),
        )

    @property
    def first(self) -> int:
        """Start of the first op."""
        return int(self.start[0])

    @property
    def last(self) -> int:
        """End of the last op."""
        return int(self.end.max())

    @cached_property
    def first_of_call(self) -> Bool:
        """Ops that are the earliest of their call: of a graph launch only one is."""
        first = np.ones(len(self.ops), bool)
        seen: set[int] = set()
        for i, (call, linked) in enumerate(zip(self.call.tolist(), self.linked.tolist(), strict=True)):
            if linked:
                first[i] = call not in seen
                seen.add(call)
        return first

    @cached_property
    def blocking(self) -> dict[int, Union]:
        """Per thread, the union of synchronising calls."""
        known = np.array([is_blocking(s) for s in self.calls.strings], bool)
        if not len(self.calls) or not len(known):
            return {}
        blocked = known[self.calls["raw_name"]]
        threads = self.calls["thread"]
        return {
            int(t): union(
                self.calls["start_ns"][blocked & (threads == t)], self.calls["end_ns"][blocked & (threads == t)]
            )
            for t in np.unique(threads[blocked])
        }

    @cached_property
    def queue_ns(self) -> Int:
        """Start of each linked op minus the end of its call; negative where the call was still running (linked ops only)."""
        return (self.start - self.of_call("end_ns"))[self.linked]


def devices_of(profile: Profile) -> list[Work]:
    """One Work per device with timed ops, the device with most work first."""
    kernels = profile.kernels
    timed = (kernels["start_ns"] != NULL) & (kernels["end_ns"] != NULL)
    overhead = profile.overhead
    counted = overhead["kind"] != COMMAND_BUFFER_FULL
    loading = union(overhead["start_ns"][counted], overhead["end_ns"][counted])
    works = []
    for number in np.unique(kernels["device"][timed]) if timed.any() else ():
        mine = np.flatnonzero(timed & (kernels["device"] == number))
        # ops that start together: the linked one first, so that a gap is charged to the call that is known
        order = np.lexsort((kernels["end_ns"][mine], kernels["api"][mine] < 0, kernels["start_ns"][mine]))
        works.append(Work(int(number), kernels.take(mine[order]), profile.apis, loading))
    return sorted(works, key=lambda w: -w.unions[2].length)


def launch_calls(calls: Table) -> Bool:
    """Rows of the API table that launch kernels or graphs."""
    kind = calls["kind"]
    launches: Bool = (kind == LAUNCH) | (kind == GRAPH_LAUNCH)
    return launches


def loading_in(overhead: Table, kinds: tuple[int, ...] = (6, 7)) -> Union:
    """The union of module and lazy loading rows (T13)."""
    loading = np.isin(overhead["kind"], kinds)
    return union(overhead["start_ns"][loading], overhead["end_ns"][loading])
