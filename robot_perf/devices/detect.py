"""Which row of the table this machine is: by exact evidence, with every candidate where it does not suffice."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from robot_perf.devices.host import GpuFacts, HostFacts
from robot_perf.devices.nvpmodel import current_mode
from robot_perf.devices.table import OVERRIDE_HELP, matches, nearest_memory, normalise, table
from robot_perf.errors import UsageError
from robot_perf.specs.device import DeviceSpec, PowerMode

_MODULE = re.compile(r"(p\d{4})(-\d{4})?(-super)?")
_SUPER = " super"
# CUDA and NVML names of integrated GPUs; NVML writes "Orin (nvgpu)"
_INTEGRATED = {"orin", "orin (nvgpu)", "thor", "xavier", "xavier (nvgpu)", "tegra x2"}


@dataclass(frozen=True, slots=True)
class Detection:
    """One device of this machine: one candidate where the evidence suffices, several where it does not."""

    answer: str
    candidates: tuple[DeviceSpec, ...]
    evidence: tuple[str, ...]
    mode: PowerMode | None = None
    mode_note: str = ""

    @property
    def device(self) -> DeviceSpec | None:
        """The row, where exactly one fits."""
        return self.candidates[0] if len(self.candidates) == 1 else None


def detect(facts: HostFacts) -> tuple[Detection, ...]:
    """The devices of this machine, a Jetson's module or each discrete GPU or the processor.

    Raises UsageError, asking for the numbers, where the machine's device is not in the table.
    """
    if _is_jetson(facts):
        return (_jetson(facts),)
    if facts.gpus:
        return tuple(_discrete(gpu) for gpu in facts.gpus)
    return (_processor(facts),)


def module_ids(compatible: Sequence[str]) -> tuple[list[str], bool]:
    """Module ids of a device tree's `compatible` list (`p3767-0005`), and whether it was flashed as super."""
    ids: list[str] = []
    is_super = False
    for entry in compatible:
        for part in entry.removeprefix("nvidia,").split("+"):
            match = _MODULE.fullmatch(part)
            if match:
                ids += [match[1] + match[2], match[1]] if match[2] else [match[1]]
                is_super = is_super or match[3] is not None
    return list(dict.fromkeys(ids)), is_super


def _is_jetson(facts: HostFacts) -> bool:
    known = {i for d in table() for i in d.module_ids}
    models = {normalise(m) for d in table() for m in d.device_tree_models}
    if set(module_ids(facts.compatible)[0]) & known or normalise(facts.device_tree_model or "") in models:
        return True
    return any(normalise(g.name) in _INTEGRATED for g in facts.gpus)


def _jetson(facts: HostFacts) -> Detection:
    rows = [d for d in table() if d.device_class == "jetson"]
    evidence: list[str] = []
    rows, named = _by_device_tree(rows, facts, evidence)
    gpu = facts.gpus[0] if facts.gpus else None
    if not named and gpu is not None:
        name = normalise(gpu.name.replace(" (nvgpu)", ""))
        rows = [d for d in rows if name in {normalise(n) for n in d.runtime_names}]
        evidence.append(f"GPU name {gpu.name} ({gpu.source}), shared by several modules; no device tree")
    if gpu is not None and gpu.sm_count is not None:
        rows = [d for d in rows if d.sm_count in (None, gpu.sm_count)]
        evidence.append(f"{gpu.sm_count} SMs ({gpu.source})")
    if facts.memory_bytes is not None:
        rows = nearest_memory(rows, facts.memory_bytes)
        evidence.append(f"{facts.memory_bytes / 2**30:.1f} GiB of memory (/proc/meminfo)")
    if not rows:
        raise _unknown(facts.device_tree_model or (gpu.name if gpu else "this Jetson"), "; ".join(evidence))
    if len(rows) > 1:
        family = "Orin" if rows[0].soc == "tegra234" else rows[0].soc or "Jetson"
        answer = f"{family}, module unknown: {' or '.join(d.name for d in rows)}"
        return Detection(answer, tuple(rows), tuple(evidence), None, "")
    mode, note = current_mode(rows[0], facts.nvpmodel_query, facts.nvpmodel_conf)
    evidence.append(f"EMC {facts.emc_hz / 1e6:.0f} MHz" if facts.emc_hz else "EMC clock unobserved")
    evidence.append(f"GPU {facts.gpu_hz / 1e6:.0f} MHz" if facts.gpu_hz else "GPU clock unobserved")
    return Detection(rows[0].name, (rows[0],), tuple(evidence), mode, note)


def _by_device_tree(rows: list[DeviceSpec], facts: HostFacts, evidence: list[str]) -> tuple[list[DeviceSpec], bool]:
    """The rows left by model string and module id; whether the device tree named the family at all."""
    ids, flashed_super = module_ids(facts.compatible)
    model = normalise(facts.device_tree_model or "")
    by_id = [d for d in rows if set(ids) & set(d.module_ids)]
    # "Super" in the model string says how the board was flashed, not which module it carries
    flash = "super" if flashed_super or model.endswith(_SUPER) else "standard" if model else None
    if by_id:
        evidence.append(f"module id {', '.join(i for i in ids if any(i in d.module_ids for d in by_id))} (device tree)")
    by_model = [d for d in rows if model and model in {normalise(m) for m in d.device_tree_models}]
    if by_model:
        evidence.append(f"model {facts.device_tree_model!r} (device tree)")
    kept = by_id or by_model
    if not kept:
        return rows, False
    if flash is not None and any(d.flash == flash for d in kept):
        kept = [d for d in kept if d.flash == flash]
        evidence.append(f"flashed as {flash}")
    return kept, True


def _discrete(gpu: GpuFacts) -> Detection:
    memory = "memory not reported" if gpu.memory_bytes is None else f"{gpu.memory_bytes / 2**30:.1f} GiB"
    evidence = (f"{gpu.name}, {memory} ({gpu.source})",)
    rows = matches(gpu.name, gpu.memory_bytes)
    if not rows:
        raise _unknown(
            f"{gpu.name} with {memory}", "Names and memory sizes are matched exactly; a GPU slice is no whole GPU."
        )
    answer = rows[0].name if len(rows) == 1 else f"{gpu.name}: {' or '.join(d.name for d in rows)}"
    return Detection(answer, tuple(rows), evidence)


def _processor(facts: HostFacts) -> Detection:
    name = facts.device_tree_model or facts.cpu_name or "this machine"
    rows = [d for n in (facts.device_tree_model, facts.cpu_name) if n for d in matches(n) if d.device_class == "cpu"]
    if not rows:
        raise _unknown(f"this machine ({name}, no GPU found)", " ".join(facts.problems))
    return Detection(rows[0].name, (rows[0],), (f"{name}; no GPU found",))


def _unknown(what: str, why: str) -> UsageError:
    return UsageError(f"{what} is not in the device table", why=why, do=OVERRIDE_HELP)
