"""What to do about each finding: what it gains, what it costs, and what confirms it. Gains are bounds from the evidence."""

from __future__ import annotations

from robot_perf.analyze.diagnose.context import Context
from robot_perf.analyze.diagnose.model import Fix
from robot_perf.units import format_duration

CONFIRM_STEP = (
    "robot-perf bench POLICY --backends A,B --rates HZ: compare response times of unprofiled runs, not of profiles"
)


def _amount(context: Context, share: float) -> str:
    """The share as a duration: "547 us a step", or of the capture where no steps are marked."""
    return f"{format_duration(share / 100 * float(context.step['window_median_ns']))} a {context.unit}"


def launch(context: Context, share: float) -> tuple[Fix, ...]:
    """Fixes of launch/CPU; a step that already is one graph launch is not told to use a graph (V5)."""
    step = context.step
    amount = _amount(context, share)
    item = Fix(
        "take work off the host inside the step: preallocate inputs and outputs, drop conversions, loops and logging",
        f"part of {amount}",
        "code changes",
    )
    if step.get("graph_launches_per_step") and (step.get("launches_per_step") or 0) <= 1:
        return (
            Fix("shorten the host work before and after the graph launch: copy into preallocated pinned buffers, wait once, return a view", f"at most {amount}", "code changes"),
            Fix("start the step earlier than its release where the observation allows it", "hides the host part behind the wait", "an observation older by as much"),
        )  # fmt: skip
    launches = step.get("launches_per_step") or 0
    return (
        Fix(
            f"CUDA graph: one launch instead of {launches:.0f}", f"at most {amount}",
            "fixed shapes and addresses, memory of its own pool, capture at start-up, no host decision inside the step",
            "robot-perf bench POLICY --backends eager,cuda_graph --rates HZ",
        ),
        Fix(
            "torch.compile: fewer, fused kernels", "fewer launches; a shorter device time is not yet a shorter step: compare step times",
            "compile time at start-up, recompilation when a shape or guard changes", "robot-perf bench POLICY --backends eager,compile --rates HZ",
        ),
        item,
    )  # fmt: skip


def sync(context: Context, share: float) -> tuple[Fix, ...]:
    """Fixes of synchronising calls."""
    return (
        Fix("keep the value on the device: no .item(), .cpu(), .tolist(), bool(tensor) or nonzero() inside the step", f"at most {_amount(context, share)}", "branches become masks or torch.where"),
        Fix("wait once, at the end of the step, on one event", "the host launches ahead while the device works", "the action is read in one place"),
    )  # fmt: skip


def stage(context: Context, share: float) -> tuple[Fix, ...]:
    """Fixes of a host stage."""
    amount = _amount(context, share)
    return (
        Fix("move the stage out of the step: run it while the device computes the step before, in another thread or process", f"up to {amount}", "one step of added age of its input"),
        Fix("do the stage on the device (resize, normalise, decode there)", f"part of {amount}", "device memory and kernels; copies shrink as raw bytes are sent"),
    )  # fmt: skip


def transfer(context: Context, share: float) -> tuple[Fix, ...]:
    """Fixes of exposed copies: pageable first, then overlap, then fewer bytes (V6)."""
    amount = _amount(context, share)
    fixes = []
    pageable = sum(c["copy_ns"] for c in context.copies if c["host_memory"] == "pageable")
    if pageable * 10 >= sum(c["copy_ns"] for c in context.copies):
        fixes.append(
            Fix("pinned host memory: copy the observation once into a preallocated pinned buffer, then non_blocking=True", f"part of {amount}; the copy no longer blocks its caller", "page-locked memory of the observation's size")
        )  # fmt: skip
    return (
        *fixes,
        Fix("fewer bytes: send uint8 and convert on the device, crop or downscale first", f"proportional to the bytes, of {amount}", "a kernel on the device"),
        Fix("overlap the copy with the computation of the step before, on a second stream", f"up to {amount}", "double buffers, one step of added age"),
    )  # fmt: skip


def communication(context: Context, share: float) -> tuple[Fix, ...]:
    """Fixes of exposed collectives."""
    return (
        Fix("run the policy on one device if it fits its memory", f"{_amount(context, share)}", "memory"),
        Fix("overlap collectives with computation; fewer, larger ones", f"part of {_amount(context, share)}", "buffers"),
    )  # fmt: skip


def dependency(context: Context, share: float) -> tuple[Fix, ...]:
    """Fixes of queued idle time."""
    return (Fix("fewer, larger kernels (fusion): each boundary between dependent kernels idles for about a microsecond", f"at most {_amount(context, share)}", "a compiler or a kernel of one's own"),)  # fmt: skip


def gpu(context: Context, labels: list[str]) -> tuple[Fix, ...]:
    """Fixes by kernel class; without counters the first step is to get them."""
    if not labels:
        return (Fix("measure the class of the longest kernels", "says whether bytes, arithmetic or latency limit them", "ncu replays kernels: never on a live robot", "robot-perf profile POLICY --rate HZ --ncu --kernels REGEX --trace FILE"),)  # fmt: skip
    return tuple(fix for label in labels[:2] for fix in CLASS_FIXES.get(label.split(",")[0], ()))


CLASS_FIXES: dict[str, tuple[Fix, ...]] = {
    "small grid": (
        Fix("more parallel work per kernel: batch the environments or heads, split the reduction (split-K)", "idle SMs get work", "other rounding order"),
        Fix("fuse the small kernels of the step, or put them into a CUDA graph", "the launch gaps go; the kernels themselves stay", "fixed shapes"),
    ),
    "latency": (
        Fix("more warps in flight: fewer registers or less shared memory a block, larger grid", "hides memory latency", "maybe spills"),
        Fix("vectorised and prefetched loads", "fewer stalls on the scoreboard", "a kernel of one's own"),
    ),
    "memory": (
        Fix("fewer bytes: lower precision, fused neighbours, no intermediate tensors", "proportional to the bytes", "accuracy must be checked"),
    ),
    "high throughput": (
        Fix("less work: the kernel is near a hardware limit; fewer bytes or FLOP, or lower precision", "proportional", "accuracy must be checked"),
    ),
    "compute": (Fix("tensor cores, or lower precision", "up to the ratio of the peaks", "accuracy must be checked"),),
    "balanced": (Fix("both parts must shrink: fewer bytes and fewer FLOP", "the smaller of the two gains", "accuracy must be checked"),),
}  # fmt: skip
