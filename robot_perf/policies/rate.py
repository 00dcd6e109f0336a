"""The stated rate against a deployment's configuration: the rate is in no policy file, so a YAML near it is the only witness."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from robot_perf.errors import UsageError
from robot_perf.policies.asked import shown

LARGEST_YAML = 4_000_000
TOLERANCE = Fraction(1, 1000)
PERIOD_KEYS = ("control_dt", "policy_dt", "step_dt", "ctrl_dt")
RATE_KEYS = ("rl_rate",)
_FACTORS = ("dt", "simulation_dt", "sim_dt", "decimation", "control_decimation", "loop_frequency")
_LIKE_A_RATE = re.compile(r"(^|_)(dt|hz|rate|freq|frequency|period|timestep)(_|$)", re.IGNORECASE)
_MOST_SHOWN = 4


Pair = tuple[Any, Any]  # nodes of a key and its value


@dataclass(frozen=True, slots=True)
class RateCheck:
    """What a configuration says: its rate, where, and whether the stated one agrees within 0.1 %."""

    rate_hz: float
    where: str
    agrees: bool
    text: str


def check_rate(config: str | None, rate_hz: Fraction | float) -> tuple[list[RateCheck], str]:
    """Every rate that the YAML file `config` states, and one sentence: unchecked, agreement, or a warning with file and line.

    Reads dt * decimation, control_dt, policy_dt, step_dt, ctrl_dt, rl_rate and loop_frequency / decimation, at any depth.
    Where none is stated the sentence names the keys that look like a rate and are not read: a deployment's file has many
    others, so they are no error. Raises UsageError for a file that can't be read as YAML.
    """
    if config is None:
        return [], "the stated rate is unchecked: no configuration was given (--config)"
    stated = Fraction(str(rate_hz)) if isinstance(rate_hz, float) else Fraction(rate_hz)
    mappings = list(_mappings(_compose(config)))
    checks = [_compare(config, *found, stated) for pairs in mappings for found in _of_mapping(_numbers(pairs))]
    if not checks:
        known = ", ".join((*PERIOD_KEYS, *RATE_KEYS, "dt with decimation", "loop_frequency with decimation"))
        sentence = f"the stated rate, {float(stated):.6g} Hz, is unchecked: {config} has none of {known}"
        return [], sentence + _not_read(mappings)
    wrong = [c for c in checks if not c.agrees]
    return checks, (wrong or checks)[0].text


def _not_read(mappings: list[list[Pair]]) -> str:
    """The keys that look like a rate and gave none, each with its line and what is wrong with its value."""
    found = []
    for key, value in (pair for pairs in mappings for pair in pairs):
        name = str(key.value)
        if key.id != "scalar" or value.id != "scalar" or not _like_a_rate(name):
            continue
        line = f"line {key.start_mark.line + 1}"
        wrong = "" if _number(value) is not None else f", {shown(value.value, 20)!r} is no number above 0"
        if name in _FACTORS and not wrong:
            wrong = ", half of a pair"
        found.append(f"{shown(name, 40)} ({line}{wrong})")
    more = f" and {len(found) - _MOST_SHOWN} more" if len(found) > _MOST_SHOWN else ""
    return f"; not read: {', '.join(found[:_MOST_SHOWN])}{more}" if found else ""


def _like_a_rate(name: str) -> bool:
    """A word of it says so, or it is nearly a key that is read."""
    near = difflib.get_close_matches(name, (*PERIOD_KEYS, *RATE_KEYS, *_FACTORS), n=1, cutoff=0.85)
    return bool(near or _LIKE_A_RATE.search(name))


def _compare(config: str, rate: Fraction, key: str, line: int, stated: Fraction) -> RateCheck:
    agrees = abs(rate - stated) <= TOLERANCE * rate
    where = f"{config}:{line}"
    said = f"{where}: {key} is {float(rate):.6g} Hz"
    text = f"{said}, as stated" if agrees else f"warning: {said}, the stated rate is {float(stated):.6g} Hz"
    return RateCheck(float(rate), where, agrees, text)


def _compose(config: str) -> Any:
    import yaml

    path = Path(config)
    try:
        if path.stat().st_size > LARGEST_YAML:
            raise UsageError(
                f"--config {config} has {path.stat().st_size:,} bytes", why=f"At most {LARGEST_YAML:,} are read."
            )
        # Composed, not constructed: nodes keep their lines, and tags of a robot's own (!ruby, !!python) are not executed.
        return yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except OSError as error:
        raise UsageError(
            f"--config {config} can't be read",
            do="Name the deployment's YAML, or leave out --config.",
            detail=error.strerror or str(error),
        ) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UsageError(
            f"--config {shown(config, 200)} is not sound YAML", detail=" ".join(str(error).split())
        ) from error


def _mappings(root: Any) -> Iterator[list[Pair]]:
    """The mappings of a document at any depth, each as its pairs of nodes."""
    seen: set[int] = set()
    stack = [root] if root is not None else []
    while stack:
        node = stack.pop(0)
        if id(node) in seen:
            continue
        seen.add(id(node))
        pairs = node.value if node.id == "mapping" else []
        yield pairs
        stack += [v for _, v in pairs if v.id != "scalar"]
        stack += [v for v in node.value if v.id != "scalar"] if node.id == "sequence" else []


def _numbers(pairs: list[Pair]) -> dict[str, tuple[Fraction, int]]:
    """Keys with a number above 0: it, and its line."""
    return {
        str(k.value): (n, k.start_mark.line + 1) for k, v in pairs if (n := _number(v)) is not None and k.id == "scalar"
    }


def _of_mapping(numbers: dict[str, tuple[Fraction, int]]) -> Iterator[tuple[Fraction, str, int]]:
    for key in PERIOD_KEYS:
        if key in numbers:
            yield 1 / numbers[key][0], key, numbers[key][1]
    for key in RATE_KEYS:
        if key in numbers:
            yield numbers[key][0], key, numbers[key][1]
    decimation = next((numbers[k] for k in ("decimation", "control_decimation") if k in numbers), None)
    if decimation is None:
        return
    step = next(((k, numbers[k]) for k in ("dt", "simulation_dt", "sim_dt") if k in numbers), None)
    if step is not None:
        yield 1 / (step[1][0] * decimation[0]), f"{step[0]} * decimation", step[1][1]
    if "loop_frequency" in numbers:
        yield numbers["loop_frequency"][0] / decimation[0], "loop_frequency / decimation", numbers["loop_frequency"][1]


def _number(node: Any) -> Fraction | None:
    if node.id != "scalar" or len(node.value) > 40:
        return None
    try:
        number = Fraction(node.value.replace("_", "").strip())
    except (ValueError, ZeroDivisionError):
        return None
    return number if Fraction(1, 10**9) < number < 10**9 else None
