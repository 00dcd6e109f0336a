"""Makes the 30 % problem on purpose: a decoder under several loads and planted faults, what each number says, which rung is named.

    python benchmarks/utilisation_30.py -o DIR [--device cuda:0] [--seconds 5] [--limit-s 100]
    python benchmarks/utilisation_30.py -o DIR --tiny --device cpu        the same code, small, for tests

A decoder of 0.73 B random parameters (bf16, static KV cache, one CUDA graph a batch size) is served by a continuous-batching loop.
For every scenario: running, waiting, tokens/s and NVML over time (the sampler is a process of its own), Little's law from two
independent counts, the busy fraction from the kernels of a short traced pass, and the ladder of robot_perf.analyze.utilisation on
that evidence. Writes utilisation_30.json and utilisation_30.md. Exit 1 when Little's law is off by over 10 %, a planted cause is
not named, or a scenario did not run.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from utilisation_30_decoder import FULL, STATS, TINY, Decoder, Size
from utilisation_30_report import CPU_MS, remarks, series, table, tell
from utilisation_30_server import Clients, Little, Plant, Server, little, now_ns

from robot_perf import __version__
from robot_perf.analyze.utilisation import climb
from robot_perf.analyze.utilisation.model import Evidence, Inside, Load
from robot_perf.analyze.utilisation.numbers import cost_of_sampling, host_time, neighbours, readings
from robot_perf.analyze.utilisation.of_run import busy_of, inside_of
from robot_perf.errors import RobotPerfError
from robot_perf.measure.watch.use_sampler import UseSampler
from robot_perf.render.diagnose.text import plain

LITTLE_TOLERANCE = 0.10
LOW, NEAR = 0.25, 0.85  # of the saturated rate
TRACE_STEPS, TRACE_S = 60, 0.8
STEP_MS = 15.0  # about 12 ms of GPU beside 28 ms of CPU is the 30 % of the arithmetic
PHASES = "the server's own stamps: after the tokens are on the host, against the whole step"
NOTHING = Plant()


@dataclass(frozen=True)
class Scenario:
    """A load, a cap on the batch, a fault, and the rung that must be named (None: nothing was planted)."""

    name: str
    words: str
    concurrency: int = 0
    of_saturation: float = 0.0
    cap: int | None = None
    plant: Plant = NOTHING
    rung: str | None = None
    needs_gpu: bool = False


def scenarios(places: int) -> list[Scenario]:
    """All of them, in order: the third one measures the saturation that the open loops refer to."""
    eighth, some = max(2, places // 8), f"{STATS + 1} .item() a token"
    return [
        Scenario("closed-1", "closed loop, 1 client", 1, rung="is there work"),
        Scenario("closed-8th", f"closed loop, {eighth} clients", eighth, rung="is there work"),
        Scenario("closed-full", f"closed loop, {places} clients", places, rung="kernels", needs_gpu=True),
        Scenario("open-low", f"open loop, {LOW:.0%} of saturation", of_saturation=LOW, rung="is there work"),
        Scenario("open-near", f"open loop, {NEAR:.0%} of saturation", of_saturation=NEAR),
        Scenario("capped", f"closed loop, {places} clients, batch capped at {eighth}", places, cap=eighth, rung="is the batch capped"),
        Scenario("item", f"closed loop, {places} clients, planted: {some}", places, plant=Plant(items=True), rung="is the CPU in the path", needs_gpu=True),
        Scenario("cpu-28ms", f"closed loop, {places} clients, planted: {CPU_MS:g} ms of CPU work a step", places, plant=Plant(cpu_ms=CPU_MS), rung="is the CPU in the path"),
    ]  # fmt: skip


@dataclass(frozen=True)
class Timing:
    """Lengths of the parts of a scenario, and request lengths in tokens."""

    warm_s: float
    window_s: float
    drain_s: float
    lengths: tuple[int, int]
    every_s: float = 0.25


class Bench:
    """Runs scenarios on one decoder with one sampler beside all of them."""

    def __init__(self, decoder: Decoder, sampler: UseSampler, timing: Timing, *, trace: bool) -> None:
        self.decoder, self.sampler, self.timing, self.trace = decoder, sampler, timing, trace
        self.saturated_hz: float | None = None

    def run(self, scenario: Scenario) -> dict[str, Any]:
        """Warm-up, window, the end of the window's requests, a traced pass."""
        places = scenario.cap or self.decoder.size.places
        rate = scenario.of_saturation * (self.saturated_hz or 0.0)
        clients = Clients(self.timing.lengths, concurrency=scenario.concurrency, rate_hz=rate, seed=1)
        server = Server(self.decoder, clients, places, scenario.plant)
        begin = now_ns()
        clients.start(begin)
        low = begin + int(self.timing.warm_s * 1e9)
        high = low + int(self.timing.window_s * 1e9)
        server.run(lambda: now_ns() >= high, high + 1_000_000_000)

        def drained() -> bool:
            return all(r.done_ns is not None for r in clients.sent if low <= r.sent_ns < high)

        server.run(drained, high + int(self.timing.drain_s * 1e9))
        measured = little(server, low, high)
        if scenario.name == "closed-full":
            self.saturated_hz = measured.arrivals_hz
        diagnosis, why = traced(server) if self.trace else (None, "on the CPU there is no device work to trace")
        return self._result(scenario, places, rate, server, (low, high), measured, diagnosis, why)

    def _result(
        self, scenario: Scenario, places: int, rate: float, server: Server, window: tuple[int, int], law: Little, diagnosis: Any, why: str
    ) -> dict[str, Any]:  # fmt: skip
        kept = self.sampler.conditions() | {"samples": self.sampler.read()}
        steps = [s for s in server.steps if window[0] <= s.begin_ns < window[1]]
        evidence = self._evidence(kept, window, law, places, steps, diagnosis, why)
        ladder = climb(evidence)
        named = None if ladder.found is None else ladder.found.rule
        judged = scenario.rung is not None and (not scenario.needs_gpu or self.trace)
        whole = [s.end_ns - s.begin_ns for s in steps]
        return {
            "name": scenario.name, "words": scenario.words, "places": places, "offered_rate_hz": rate or None, "little": asdict(law) | {"ratio": law.ratio},
            "tokens_per_s": sum(s.batch for s in steps) / law.window_s, "steps": len(steps), "batch_mean": statistics.mean(s.batch for s in steps) if steps else None,
            "step_median_ns": statistics.median(whole) if whole else None, "to_tokens_median_ns": statistics.median(s.tokens_ns - s.begin_ns for s in steps) if steps else None,
            "numbers": {r.field: asdict(r) for r in readings(kept, *window)}, "busy": asdict(busy_of(diagnosis, why)), "evidence": asdict(evidence),
            "ladder": {"headline": ladder.headline, "rungs": [{"rule": f.rule, "outcome": f.outcome, "reason": f.reason} for f in ladder.rungs], "not_asked": ladder.not_asked},
            "planted": scenario.rung, "named": named, "right": named == scenario.rung if judged else None, "series": series(server, kept, window, self.timing.every_s),
        }  # fmt: skip

    def _evidence(self, kept: Any, window: tuple[int, int], law: Little, places: int, steps: list[Any], diagnosis: Any, why: str) -> Evidence:  # fmt: skip
        inside, reason = inside_of(diagnosis, why)
        if inside is None and steps:
            shares = [100 * (s.end_ns - s.tokens_ns) / (s.end_ns - s.begin_ns) for s in steps]
            inside = Inside(PHASES, host_pct=statistics.median(shares), host_name="host stage")
        others, alone = neighbours(kept, *window, (os.getpid(),))
        load = Load(law.running, law.waiting, places, "request", "the server's gauge", law.arrivals_hz, law.time_in_system_s)  # fmt: skip
        absent = {"inside": reason} | ({"neighbours": alone} if others is None else {})
        return Evidence(load, inside, host_time(kept, *window, os.getpid()), others, 1 if self.trace else None, absent=absent)  # fmt: skip


def traced(server: Server) -> tuple[Any, str]:
    """The diagnosis of a short pass under torch's profiler, the load going on; None and why."""
    from torch.profiler import ProfilerActivity, profile, record_function

    from robot_perf.tasks.profiling.diagnose import DiagnoseRequest, diagnose_file

    activities = [ProfilerActivity.CPU, ProfilerActivity.CUDA]

    def some(count: int) -> None:
        first = len(server.steps)
        server.run(lambda: len(server.steps) - first >= count, now_ns() + int(TRACE_S * 1e9))

    server.mark = record_function
    with profile(activities=activities):  # CUPTI's own set-up happens in the first profiled calls
        some(3)
    with profile(activities=activities) as recorded:
        some(TRACE_STEPS // 3 if server.plant.items else TRACE_STEPS)
    with tempfile.TemporaryDirectory(prefix="utilisation-30-") as folder:
        path = Path(folder) / "trace.json"
        recorded.export_chrome_trace(str(path))
        try:
            return diagnose_file(DiagnoseRequest(path, steps_pattern="policy_step")).diagnosis, ""
        except RobotPerfError as error:
            return None, f"no trace: {error.what}"


def conditions(arguments: argparse.Namespace, size: Size, decoder: Decoder, sampler: UseSampler) -> dict[str, Any]:
    """Machine, versions, sizes."""
    on_gpu = arguments.device != "cpu"
    itemsize = decoder.embedding.element_size()
    return {
        "robot_perf": __version__, "torch": str(torch.__version__), "python": platform.python_version(), "kernel": platform.release(), "cpus": len(os.sched_getaffinity(0)),
        "device": torch.cuda.get_device_name(arguments.device) if on_gpu else "cpu", "identity": sampler.facts.get("identity"), "sampler": sampler.facts.get("source") or sampler.facts.get("reason"),
        "size": asdict(size), "parameters": size.parameters, "dtype": str(decoder.embedding.dtype), "weight_bytes": size.parameters * itemsize, "cache_bytes": size.cache_bytes(itemsize),
        "attention_span": decoder.span, "graphs": sorted(decoder.graphs), "utc": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "command": "python benchmarks/utilisation_30.py " + " ".join(sys.argv[1:]),
    }  # fmt: skip


def fitting(size: Size, device: str, itemsize: int) -> Size:
    """The context halved until the cache takes at most half of the free memory."""
    if device == "cpu":
        return size
    free = torch.cuda.mem_get_info(device)[0]
    while size.cache_bytes(itemsize) > free / 2 and size.context > 128:
        size = replace(size, context=size.context // 2)
    return size


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True, help="folder for the JSON and the table")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--tiny", action="store_true", help="a small decoder and short windows")
    parser.add_argument("--seconds", type=float, help="length of each window (5; tiny: 1)")
    parser.add_argument("--context", type=int, help="tokens in every place's cache (4096; tiny: 32)")
    parser.add_argument("--limit-s", type=float, default=100.0, help="no scenario begins that would end later")
    parser.add_argument("--only", default="", help="comma-separated scenario names")
    return parser.parse_args()


def main() -> int:
    """Runs everything and writes both files."""
    arguments = parsed()
    began = time.monotonic()
    on_gpu = arguments.device != "cpu"
    dtype = torch.bfloat16 if on_gpu else torch.float32
    size = TINY if arguments.tiny else FULL
    size = replace(size, context=arguments.context or size.context)
    size = fitting(size, arguments.device, torch.empty(0, dtype=dtype).element_size())
    timing = Timing(0.3, arguments.seconds or 1.0, 2.0, (4, 12)) if arguments.tiny else Timing(1.0, arguments.seconds or 5.0, 4.0, (8, 24))  # fmt: skip
    if on_gpu:
        torch.cuda.set_device(arguments.device)
    else:
        torch.set_num_threads(1)  # a tiny decoder's threads would wait for each other longer than they work
    decoder = Decoder(size, arguments.device, dtype)
    if on_gpu:
        decoder.calibrate(STEP_MS)
        decoder.capture()
    print(f"ready after {time.monotonic() - began:.1f} s", flush=True)
    rows: list[dict[str, Any]] = []
    with UseSampler(arguments.device, timing.every_s) as sampler:
        sampler.follow(os.getpid())
        facts = conditions(arguments, size, decoder, sampler)
        print(json.dumps(plain(facts)), flush=True)
        bench = Bench(decoder, sampler, timing, trace=on_gpu)
        wanted = [s for s in scenarios(size.places) if not arguments.only or s.name in arguments.only.split(",")]
        for scenario in wanted:
            need_s = timing.warm_s + timing.window_s + 2.0
            if time.monotonic() - began + need_s > arguments.limit_s:
                rows.append({"name": scenario.name, "words": scenario.words, "skipped": f"the limit of {arguments.limit_s:g} s was near"})  # fmt: skip
            elif scenario.of_saturation and bench.saturated_hz is None:
                rows.append({"name": scenario.name, "words": scenario.words, "skipped": "needs closed-full before it"})
            else:
                rows.append(bench.run(scenario))
            tell(rows[-1], time.monotonic() - began)
    return finish(arguments.output, facts, rows, sampler)


def finish(folder: Path, facts: dict[str, Any], rows: list[dict[str, Any]], sampler: UseSampler) -> int:
    """Writes both files; the exit code."""
    kept = sampler.conditions()
    document = {"conditions": facts, "sampling": cost_of_sampling(kept) | {k: kept.get(k) for k in ("gpu_reasons", "host_reasons")}, "scenarios": rows, "remarks": remarks(rows, kept)}  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "utilisation_30.json").write_text(json.dumps(plain(document), indent=1) + "\n", encoding="utf-8")
    (folder / "utilisation_30.md").write_text(table(document), encoding="utf-8")
    print(table(document))
    ran = [r for r in rows if "skipped" not in r]
    held = [r["little"]["ratio"] is not None and abs(r["little"]["ratio"] - 1) <= LITTLE_TOLERANCE and not r["little"]["unfinished"] for r in ran]  # fmt: skip
    wrong = [r["name"] for r, ok in zip(ran, held, strict=True) if not ok or r["right"] is False]
    print("Little's law and every planted cause: " + ("as they should be" if not wrong else f"NOT in {', '.join(wrong)}"))  # fmt: skip
    return 0 if not wrong and len(ran) == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
