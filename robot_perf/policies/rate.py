"""The stated rate against a deployment's configuration: the rate is in no policy file, so a YAML near it is the only witness."""

from __future__ import annotations

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


@dataclass(frozen=True, slots=True)
class RateCheck:
    """What a configuration says: its rate, where, and whether the stated one agrees within 0.1 %."""

    rate_hz: float
    where: str
    agrees: bool
    text: str


def check_rate(config: str | None, rate_hz: Fraction | float) -> tuple[list[RateCheck], str]:
    """Every rate that the YAML file `config` states, and one sentence: `unchecked: …`, agreement, or a warning with file and line.

    Reads dt * decimation, control_dt, policy_dt, step_dt, ctrl_dt, rl_rate and loop_frequency / decimation, at any depth.
    Raises UsageError for a file that can't be read as YAML.
    """
    if config is None:
        return [], "the stated rate is unchecked: no configuration was given (--config)"
    stated = Fraction(str(rate_hz)) if isinstance(rate_hz, float) else Fraction(rate_hz)
    checks = [_compare(config, rate, key, line, stated) for rate, key, line in _rates(_compose(config))]
    if not checks:
        return (
            [],
            f"the stated rate is unchecked: {config} has none of {', '.join((*PERIOD_KEYS, *RATE_KEYS))}, dt * decimation",
        )
    wrong = [c for c in checks if not c.agrees]
    return checks, (wrong or checks)[0].text


def _compare(config: str, rate: Fraction, key: str, line: int, stated: Fraction) -> RateCheck:
    agrees = abs(rate - stated) <= TOLERANCE * rate
    where = f"{config}:{line}"
    text = f"{where}: {key} is {float(rate):.6g} Hz, the stated rate is {float(stated):.6g} Hz"
    return RateCheck(float(rate), where, agrees, text if agrees else f"warning: {text}")


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
        raise UsageError(f"--config {config} can't be read", why=error.strerror or str(error)) from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UsageError(
            f"--config {shown(config, 200)} is not sound YAML", detail=" ".join(str(error).split())
        ) from error


def _rates(root: Any) -> Iterator[tuple[Fraction, str, int]]:
    seen: set[int] = set()
    stack = [root] if root is not None else []
    while stack:
        node = stack.pop(0)
        if id(node) in seen:
            continue
        seen.add(id(node))
        pairs = node.value if node.id == "mapping" else []
        numbers = {
            str(k.value): (n, k.start_mark.line + 1)
            for k, v in pairs
            if (n := _number(v)) is not None and k.id == "scalar"
        }
        yield from _of_mapping(numbers)
        stack += [v for _, v in pairs if v.id != "scalar"]
        stack += [v for v in node.value if v.id != "scalar"] if node.id == "sequence" else []


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
