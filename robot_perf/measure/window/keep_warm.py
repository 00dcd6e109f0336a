"""What the loop may do in the idle time before a release so that the policy call is not cold, and what that costs it.

A call after 20 idle ms finds the processor's caches and TLBs cold for everything that a step needs: Python, the runtime, the
driver. An MLP graph took 36 µs back to back and 290 at 50 Hz in a hand-written loop on one H200, and 265 of those until its
launch had returned. The cures act at release - lead and never touch what the policy computes. Their price, CPU share and watts,
is measured with them (docs/decisions/0008-keep-warm.md).

    none             sleep to the release
    spin:US          busy-wait the last US µs (`spin:period`: all of it): the processor stays awake
    tiny-kernel:US   one empty kernel US µs before the release: warms the driver's launch and the GPU's front end
    touch:US         reads the policy's weights into the GPU's cache
    rehearse:US      the whole step once through the step's own calls, its result thrown away, its state put back
    rehearse-loop:US the whole step again and again until the release
    rehearse-every:US the whole step every US µs through the idle time: the loop never idles for longer
    spin-sync        waits for the device by polling; belongs to the backend (its option `sync`), not to the loop

`+spin` after an action busy-waits from its end to the release: `rehearse:300+spin`. `+spin-sync` adds polling.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from robot_perf.backends.protocol import Arrays, Runner
from robot_perf.errors import UsageError
from robot_perf.measure.clock import Clock
from robot_perf.specs import LoopSpec

LEADS_US = {
    "spin": 1000.0,
    "tiny-kernel": 300.0,
    "touch": 300.0,
    "rehearse": 300.0,
    "rehearse-loop": 1000.0,
    "rehearse-every": 1000.0,
}
SPIN_SYNC = "spin-sync"
RUNTIME_WAITS = "the runtime waits for the device itself, inside the launch, and offers no choice there"
# What `bench --keep-warm all` compares: each first lead alone, and the combinations that cost less than a spun period.
ALL = (
    "none",
    "spin:1000",
    "spin:period",
    "tiny-kernel:300",
    "touch:300",
    "rehearse:300",
    "rehearse:300+spin",
    "rehearse-loop:600",
    "rehearse-loop:1000",
    "rehearse-loop:period",
    "rehearse-every:1000",
    "spin-sync",
    "rehearse:300+spin+spin-sync",
    "rehearse-loop:1000+spin-sync",
)
_COMPARED = 4  # steps after a reset: state that moves late needs more than two
_UNTIL_RELEASE = ("spin", "rehearse-loop", "rehearse-every")  # their own way to the release
_FORM = re.compile(r"^(?P<action>[a-z-]+?)(?::(?P<lead>period|[0-9]+(?:\.[0-9]+)?))?$")

Hook = Callable[[int], bool]


class Observed(Protocol):
    """The part of the observations that a rehearsal needs."""

    def reader(self) -> Callable[[int], Arrays]:
        """A function from step k to the arrays of `spec.fed`."""
        ...


@dataclass(frozen=True, slots=True)
class KeepWarm:
    """One cure. `lead_ns` before the release, or None for the whole period; `spin` busy-waits the rest of the lead."""

    action: str = "none"
    lead_ns: int | None = 0
    spin: bool = False
    spin_sync: bool = False


def parse_keep_warm(text: str) -> KeepWarm:
    """The cure that `text` names. Raises UsageError with the allowed forms."""
    first, *more = text.strip().split("+")
    spin, spin_sync = "spin" in more, SPIN_SYNC in more or first == SPIN_SYNC
    match = _FORM.match(first)
    unknown = set(more) - {"spin", SPIN_SYNC} or len(set(more)) != len(more)
    if match is None or unknown:
        raise _unknown(text)
    action, lead = match["action"], match["lead"]
    if action in ("none", SPIN_SYNC):
        if lead is not None or spin or (action == "none" and more):
            raise _unknown(text)
        return KeepWarm(spin_sync=spin_sync)
    if action not in LEADS_US or (lead == "period" and action not in ("spin", "rehearse-loop")):
        raise _unknown(text)
    if action in _UNTIL_RELEASE and spin:
        raise _unknown(text)
    lead_ns = None if lead == "period" else round(float(lead or LEADS_US[action]) * 1000)
    if lead_ns is not None and not 0 < lead_ns <= 10_000_000_000:
        raise UsageError(f"--keep-warm {text}: the lead is out of range", why="Allowed: above 0, at most 1e7 µs.")
    return KeepWarm(action, lead_ns, spin or action == "spin", spin_sync)


def loop_part(text: str) -> str:
    """The part of a cure that the loop does: `text` without spin-sync, which the backend does, and with its lead written out."""
    first, *more = [p for p in text.strip().split("+") if p != SPIN_SYNC] or ["none"]
    if first in LEADS_US:
        first = f"{first}:{LEADS_US[first]:g}"
    return "+".join([first, *more])


def _unknown(text: str) -> UsageError:
    actions = ", ".join(f"{name}:US" for name in LEADS_US)
    return UsageError(
        f"--keep-warm {text!r} is unknown",
        why=f"Allowed: none, {actions}, {SPIN_SYNC}, and +spin or +{SPIN_SYNC} after one of them; US is µs before the release.",
        do="Write for example rehearse:300 or rehearse:300+spin.",
    )


def keep_warm_hook(
    loop: LoopSpec, runner: Runner, observations: Observed, clock: Clock, stop: list[bool]
) -> Hook | None:
    """`before(release_ns)` for the loop, or None. Raises UsageError where this runner or loop can't do what is asked."""
    plan = parse_keep_warm(loop.keep_warm)
    if plan.spin_sync and runner.facts().get("sync") == "runtime":
        raise UsageError(f"--keep-warm {loop.keep_warm}: {RUNTIME_WAITS}")
    if plan.action == "none":
        return None
    if loop.period_ns == 0:
        raise UsageError(f"--keep-warm {loop.keep_warm} has no idle time to act in", why="The loop runs back to back.")
    if loop.shape != "absolute":
        raise UsageError(f"--keep-warm {loop.keep_warm} needs the loop shape absolute", why=f"It is {loop.shape}.")
    if plan.lead_ns is not None and plan.lead_ns >= loop.period_ns and plan.action not in ("spin", "rehearse-loop"):
        raise UsageError(
            f"--keep-warm {loop.keep_warm}: the lead does not fit the period of {loop.period_ns / 1000:g} µs",
            do="Give a shorter lead, or another rate.",
        )
    lead = loop.period_ns if plan.lead_ns is None else plan.lead_ns
    if plan.action == "spin":
        return _spin(lead, clock, stop)
    act = _action(plan.action, runner, observations)
    if plan.action == "rehearse-every":
        return _every(lead, act, clock, stop)
    if plan.action == "rehearse-loop":
        return _again_and_again(lead, act, clock, stop)
    return _once(lead, act, clock, stop, spin=plan.spin)


def rehearsal_faults(loop: LoopSpec, runner: Runner, observations: Observed) -> tuple[list[str], list[str]]:
    """Why a rehearsal of this policy is not invisible, as reasons for INVALID and as notes. Leaves the state moved.

    The answers to the first observations after a reset are held against the same with rehearsals between them. Where the
    policy doesn't repeat itself after a reset, nothing can be told, and that is said.
    """
    action = parse_keep_warm(loop.keep_warm).action
    if action not in ("rehearse", "rehearse-loop", "rehearse-every"):
        return [], []
    act, at = _action(action, runner, observations), observations.reader()

    def answers(between: Callable[[], Any]) -> list[list[Any]]:
        runner.reset()
        found = []
        for k in range(_COMPARED):
            between()
            found.append([np.array(a) for a in runner.step(at(k))])
        return found

    plain = answers(lambda: None)
    if _differ(plain, answers(lambda: None)):
        what = "its answers don't repeat after a reset (random numbers, or state that the reset does not reach)"
        return [], [f"keep-warm {loop.keep_warm}: {what}, so it is not known whether the rehearsals moved its state"]
    if _differ(plain, answers(act)):
        return [f"keep-warm {loop.keep_warm}: a rehearsal changes what {runner.spec.name} answers next"], []
    return [], []


def _differ(first: list[list[Any]], second: list[list[Any]]) -> bool:
    """Beyond what the order of a reduction can do: 1e-5 of an output's largest value."""
    for a, b in zip(first, second, strict=True):
        for x, y in zip(a, b, strict=True):
            scale = float(np.max(np.abs(x.astype(np.float64)), initial=0.0))
            if not np.allclose(x.astype(np.float64), y.astype(np.float64), rtol=0, atol=1e-5 * scale, equal_nan=True):
                return True
    return False


def _spin(lead: int, clock: Clock, stop: list[bool]) -> Hook:
    now, wait = clock.now, clock.wait

    def before(release: int) -> bool:
        if now() < release - lead:
            wait(release - lead)
        while now() < release and not stop[0]:
            pass
        return True

    return before


def _once(lead: int, act: Callable[[], Any], clock: Clock, stop: list[bool], *, spin: bool) -> Hook:
    now, wait = clock.now, clock.wait

    def before(release: int) -> bool:
        if now() < release - lead:
            wait(release - lead)
        act()
        if spin:
            while now() < release and not stop[0]:
                pass
        return now() >= release

    return before


def _again_and_again(lead: int, act: Callable[[], Any], clock: Clock, stop: list[bool]) -> Hook:
    """Rehearses while the next rehearsal, at twice the length of the last one, would end before the release; then spins."""
    now, wait = clock.now, clock.wait

    def before(release: int) -> bool:
        if now() < release - lead:
            wait(release - lead)
        begin, took = now(), 0
        while begin + 2 * took < release and not stop[0]:
            act()
            end = now()
            begin, took = end, end - begin
        while now() < release and not stop[0]:
            pass
        return True

    return before


def _every(gap: int, act: Callable[[], Any], clock: Clock, stop: list[bool]) -> Hook:
    """Rehearses at release - n * gap for every n that the idle time holds: the last one a gap before the release."""
    now, wait = clock.now, clock.wait

    def before(release: int) -> bool:
        beats = (release - now()) // gap
        while beats >= 1 and not stop[0]:
            at = release - beats * gap
            if now() < at:
                wait(at)
            act()
            # a rehearsal that took longer than the gap leaves out the beats that it covered
            beats = min(beats - 1, (release - now()) // gap)
        return now() >= release

    return before


def _action(action: str, runner: Runner, observations: Observed) -> Callable[[], Any]:
    if action in ("rehearse", "rehearse-loop", "rehearse-every"):
        return _rehearsal(runner, observations)
    own: Callable[[], Any] | None = getattr(runner, action.replace("-", "_"), None)
    if own is not None:
        return own
    backend = runner.facts().get("backend", type(runner).__name__)
    if action == "touch":
        raise UsageError(
            f"--keep-warm touch: backend {backend} doesn't say where its weights lie on a device", do="Use rehearse."
        )
    device = str(runner.facts().get("device", "cpu"))
    if not device.startswith("cuda"):
        raise UsageError(f"--keep-warm {action} needs a CUDA device; {backend} runs on {device}")
    from robot_perf.backends.gpu.nudge import nudge_of

    return nudge_of(int(device.partition(":")[2] or 0)).tiny_kernel


def _rehearsal(runner: Runner, observations: Observed) -> Callable[[], Any]:
    """The runner's own rehearsal, which puts the state back; or a plain step, for a policy that remembers nothing."""
    at = observations.reader()
    on: Callable[[Arrays], None] | None = getattr(runner, "rehearse_on", None)
    if on is not None:
        return lambda: on(at(0))
    spec = runner.spec
    if spec.state or any(not part.endswith("none found") for part in spec.state_note.split("; ")):
        raise UsageError(
            f"--keep-warm rehearse: backend {runner.facts().get('backend', type(runner).__name__)} can't rehearse {spec.name}",
            why="The policy has state, and a rehearsal would move it.",
            do="Use spin, or a backend that rehearses on a copy of the state.",
        )
    step = runner.step
    return lambda: step(at(0))
