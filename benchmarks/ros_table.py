"""Tables of benchmarks/ros_adds.py and benchmarks/ros_arrangements.py from their JSON, as markdown.

python benchmarks/ros_table.py reports/DEVICE/ros.json [reports/DEVICE/arrangements.json] > reports/DEVICE/ros.md
"""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ARMS = {
    "command": "command line",
    "random": "node, the desk's observations",
    "topics": "node, topics over DDS",
    "polled": "polled node, topics over DDS",
}
FIGURES = ("p50", "p99", "max")
PARTS = ("start latency", "execution", "response", "publish", "release to published", "observation age")
PLACES = {
    "timer": "executor timer",
    "thread": "own thread, executor beside it",
    "polled": "own thread that polls the executor",
    "direct": "own thread that takes messages itself",
}


def main() -> None:
    """Prints the page."""
    for number, path in enumerate(sys.argv[1:]):
        document = json.loads(Path(path).read_text(encoding="utf-8"))
        arranged = document["schema"].startswith("robot-perf/ros-arrangements")
        if number:
            print()
        print("\n".join(arrangements_markdown(document) if arranged else adds_markdown(document)))


def spread(rounds: list[dict[str, Any]], part: str, figure: str) -> tuple[float, float, float]:
    """(median, least, largest) over the rounds, µs."""
    values = [r[part][figure] for r in rounds]
    return statistics.median(values), min(values), max(values)


def number(value: float) -> str:
    """µs as people read them: three figures below 1000."""
    return f"{value:,.0f}" if abs(value) >= 99.95 else f"{value:.1f}"


def cell(rounds: list[dict[str, Any]], part: str, figure: str) -> str:
    """A median with its range."""
    middle, low, high = spread(rounds, part, figure)
    return number(middle) if len(rounds) == 1 else f"{number(middle)} ({number(low)} to {number(high)})"


def difference(rounds: list[dict[str, Any]], base: list[dict[str, Any]], part: str, figure: str) -> str:
    """What `part` has over the command line's response (or its own part), marked where the rounds' ranges overlap or there is one."""
    middle, low, high = spread(rounds, part, figure)
    there = "response" if part == "release to published" else part
    middle0, low0, high0 = spread(base, there, figure)
    sign = "+" if middle >= middle0 else "−"
    single = min(len(rounds), len(base)) < 2
    mark = " (one round)" if single else " ≈" if low <= high0 and low0 <= high else ""
    return f"{sign}{number(abs(middle - middle0))}{mark}"


def command_words(argv: list[str]) -> str:
    """The command as it is told: results by their file name, whatever folder they went to."""
    return " ".join(["python", *(Path(word).name if word.endswith((".json", ".md")) else word for word in argv)])


def measured(arms: dict[str, list[dict[str, Any]]]) -> dict[str, list[dict[str, Any]]]:
    """The arms that have a round."""
    return {arm: rounds for arm, rounds in arms.items() if rounds}


def conditions(document: dict[str, Any]) -> Iterator[str]:
    """Where and with what it was measured."""
    known = document["conditions"]
    host, ros, meter = known.get("host") or {}, known.get("ros") or {}, known.get("meter") or {}
    facts = known.get("backend_facts") or {}
    device = meter.get("name") or facts.get("device_name") or document["device"]
    packages = host.get("packages") or {}
    versions = ", ".join(f"{k} {v}" for k, v in packages.items() if k in ("torch", "onnxruntime", "triton", "numpy"))
    yield (
        f"{device}; {host.get('cpu_model', '?')}, {host.get('cpus', '?')} processors, kernel {host.get('kernel', '?')} {host.get('preemption', '')}; "
        f"load {host.get('load_1min', '?')} at the first arm."
    )
    yield (
        f"Python {host.get('python', '?')}{', ' + versions if versions else ''}; ROS 2 {ros.get('distro', '?')}, rclpy {ros.get('rclpy', '?')}, "
        f"{ros.get('rmw', '?')}; robot-perf {known.get('version', '?')}; {document['date_utc']}."
    )


def adds_summary(document: dict[str, Any]) -> Iterator[str]:
    """One sentence for each rate and arm: what ROS adds."""
    for rate, arms in document["rates"].items():
        have = measured(arms)
        base = have.get("command")
        if base is None:
            yield f"{rate} Hz: the command line was not measured, so nothing can be said."
            continue
        for arm, rounds in have.items():
            if arm != "command":
                words = ", ".join(f"{f} {difference(rounds, base, 'response', f)}" for f in FIGURES)
                out = ", ".join(f"{f} {difference(rounds, base, 'release to published', f)}" for f in FIGURES)
                yield f"{rate} Hz, {ARMS[arm]}: ROS adds, µs: to the response {words}; until the command is published {out}"


def adds_markdown(document: dict[str, Any]) -> Iterator[str]:
    """The page of ros_adds.py."""
    d = document
    yield f"# What ROS adds: {d['policy']} on {d['backend']}, {d['device']}"
    yield ""
    yield from conditions(d)
    yield ""
    yield (
        f"Made with `{d['command']}`. Each arm ran in processes of its own for {d['seconds']:g} s, in shuffled order; µs, medians over the rounds with "
        "their range. Percentiles are of the steps that ran; misses are of all releases. ≈: the ranges of the rounds overlap."
    )
    for rate, arms in d["rates"].items():
        have = measured(arms)
        yield from ("", f"## {rate} Hz", "")
        base = have.get("command")
        if base is not None and len(have) > 1:
            yield (
                "| ROS adds, µs | start latency p50 | execution p50 | response p50 | response p99 | response max | published p50 | published p99 |"
            )
            yield "|---|---|---|---|---|---|---|---|"
            for arm, rounds in have.items():
                if arm != "command":
                    asked = [("start latency", "p50"), ("execution", "p50"), *(("response", f) for f in FIGURES)]
                    asked += [("release to published", "p50"), ("release to published", "p99")]
                    texts = " | ".join(difference(rounds, base, part, f) for part, f in asked)
                    yield f"| {ARMS[arm]} | {texts} |"
            yield ""
            yield "Published: release to the command published, beside the command line's response."
            yield ""
        yield from _arms(have)
    for title, lines in (("Left out", d["left_out"]), ("Failed", d["failed"])):
        for line in lines:
            yield from ("", f"{title}: {line.splitlines()[0]}")


def _arms(have: dict[str, list[dict[str, Any]]]) -> Iterator[str]:
    yield "| arm | part, µs | p50 | p99 | max | misses | verdicts |"
    yield "|---|---|---|---|---|---|---|"
    for arm, rounds in have.items():
        for part in PARTS:
            if all(part in r for r in rounds):
                first = part == PARTS[0]
                misses = f"{sum(r['misses'] for r in rounds):,} of {sum(r['releases'] for r in rounds):,}"
                verdicts = ", ".join(r["status"] for r in rounds)
                cells = " | ".join(cell(rounds, part, f) for f in FIGURES)
                yield f"| {ARMS[arm] if first else ''} | {part} | {cells} | {misses if first else ''} | {verdicts if first else ''} |"


def arrangements_markdown(document: dict[str, Any]) -> Iterator[str]:
    """The page of ros_arrangements.py."""
    d = document
    yield f"# Where the loop runs: {d['policy']} on {d['backend']}, {d['device']}, {d['rate_hz']:g} Hz"
    yield ""
    yield from conditions(d)
    yield ""
    yield (
        f"Made with `{d['command']}`. {d['rounds']} of {d['seconds']:g} s in shuffled order, each place in a process of its own, observations from "
        "another process over DDS, the command published in the path. All rounds pooled, µs; in brackets the p50 of each round. The timer's latency is a lower "
        "bound: its grid is only known from its own calls."
    )
    yield ""
    names = ("p50", "p90", "p99", "p99.9", "max")
    yield "| place | | " + " | ".join(names) + " | executed of releases | observations taken |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for place, found in d["arrangements"].items():
        for key, text in (("start", "start latency"), ("published", "release to published")):
            head = key == "start"
            middles = ", ".join(number(v) for v in found[key]["p50_rounds"])
            cells = [number(found[key][n]) for n in names]
            cells[0] += f" ({middles})" if len(found[key]["p50_rounds"]) > 1 else ""
            more = f"{found['executed']:,} of {found['releases']:,} | {found['received']:,}" if head else " | "
            yield f"| {PLACES[place] if head else ''} | {text} | {' | '.join(cells)} | {more} |"
    for title, lines in (("Left out", d["left_out"]), ("Failed", d["failed"])):
        for line in lines:
            yield from ("", f"{title}: {line.splitlines()[0]}")


if __name__ == "__main__":
    main()
