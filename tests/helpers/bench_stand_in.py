"""A stand-in for the RMSNorm bench's worker processes, and a bench with it: no GPU, no torch."""

from __future__ import annotations

from robot_perf.measure.kernel_bench.conductor import BenchRequest, run_bench
from robot_perf.measure.kernel_bench.points import HEADLINE
from robot_perf.measure.kernel_bench.providers import PROVIDERS

STAND_IN = """
import json, os, random, sys
name = sys.argv[1]
speed = {"robot-perf": 1.0, "robot-perf, no dependent launch": 1.1, "copy": 0.99, "eager": 10.0, "F.rms_norm": 1.25}.get(name, 1.05)
rng, point, order = random.Random(name), None, open(%r, "a")
for line in sys.stdin:
    m = json.loads(line)
    c = m["command"]
    if c == "hello":
        r = {"unavailable": "quack.rmsnorm does not import; pip install quack-kernels"} if name == "quack" else {
            "note": "", "version": "1", "torch": "2.x", "triton": "3.x", "kernels": "k" + str(os.environ.get("STAND_IN_KERNELS", 1)),
            "gpu": {"name": "Stand-in", "capability": "9.0", "sm": 132, "l2_bytes": 62914560, "memory_bytes": 1}}
    elif c == "floor": r = {"us": 0.5}
    elif c == "setup":
        point = m["point"]
        size = point["m"] * point["d"] * 2 * (4 if point["op"] == "add_rms_norm" else 2)
        us = (1.0 + size / 4.1e6) * speed
        r = {"failed": None, "order": "fp32", "max_ulp": 0.5, "cold_by": "rotation" if size > 3e6 else "flush", "sets": 3,
             "nodes_per_call": {"kernel": 1.0}, "calls_per_graph": 8}
        if name == "copy": r["ways"] = ["memcpy", "Triton kernel"]
        if m["profile"] and point["m"] == 1: r |= {"gap_us": 0.3, "kernel_us": 0.9}
        if name == "fla" and point["d"] > 32768: r = {"error": "RuntimeError: rows above 64 KB"}
        if name == "liger" and point["d"] == 1024: r = {"failed": "7 ulp from FP64 of the fp32 order", "order": "fp32", "max_ulp": 7.0}
        if name == "F.rms_norm": r["fused_op_ran"] = True
        if name == "torch.compile" and point["d"] == 5120: sys.exit(3)
    elif c == "time":
        order.write(name + " " + m["what"] + "\\n"); order.flush()
        if point is None:
            print(json.dumps({"error": "KeyError: 'cold'"}), flush=True)
            continue
        if os.environ.get("STAND_IN_DIES") == name + "@" + m["what"]:
            print("warned", "of nothing", file=sys.stderr)
            print("Segmentation fault in the peer's runtime", file=sys.stderr, flush=True)
            sys.exit(7)
        slow = 1.05 if "Triton" in m["what"] else 1.0
        r = {"us": [us * slow * rng.uniform(0.99, 1.01) for _ in range(m["times"])]}
        if os.environ.get("STAND_IN_FAILS") == name + "@" + m["what"]: r, point = {"error": "RuntimeError: CUDA error"}, None
        if m["what"] == "host": r = {"us": [9.0 * speed] * m["times"]}
    elif c == "prepare":
        r = {"took_s": {p["op"] + str(p["m"]): 0.1 for p in m["points"]}}
        order.write(name + (" tune " if m.get("anew") else " prepare ") + json.dumps([[p["op"], p["m"], p["d"]] for p in m["points"]]) + "\\n"); order.flush()
    else: r = {}
    if c == "setup": order.write(name + " setup\\n"); order.flush()
    print(json.dumps(r), flush=True)
"""


def measure(points=HEADLINE, providers=tuple(PROVIDERS), **more):
    kept = []
    parts = more.pop("parts", (tuple(points),))
    request = BenchRequest(parts, tuple(providers), rounds=3, replays=3, profiled=frozenset(HEADLINE), **more)
    report = run_bench(request, lambda line: None, kept.append)
    return {**report, "date": "2026-01-01"}, kept
