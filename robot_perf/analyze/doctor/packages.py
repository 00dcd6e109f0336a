"""Checks of the software beside us: wheels that hide a vendor's build, a JetPack that is too old, a damaged checkout."""

from __future__ import annotations

from typing import Any

from robot_perf.analyze.doctor.types import Advice, Check, Facts
from robot_perf.kernels.rmsnorm_support import ptxas_export, ptxas_too_old, slow_launch

__all__ = ["CHECKS"]

_JETPACK = {35: "5", 36: "6", 38: "7", 39: "7"}  # L4T release -> JetPack
_VENDOR = "JetPack's own build"


def _all(facts: Facts, name: str) -> list[dict[str, Any]]:
    return [row for row in facts["installed"] if row["name"] == name]


def _both_onnxruntimes(facts: Facts) -> Advice | None:
    plain, gpu = _all(facts, "onnxruntime"), _all(facts, "onnxruntime-gpu")
    if not plain or not gpu:
        return None
    why = "both fill the one package onnxruntime: files of the later install win, and the GPU provider may be gone without a word"
    # on a Jetson the GPU build is the vendor's and must not be fetched from PyPI
    again = (
        "" if facts.get("l4t") else f" && pip install --force-reinstall --no-deps onnxruntime-gpu=={gpu[0]['version']}"
    )
    if facts.get("l4t"):
        again = " && pip install --force-reinstall --no-deps ONNXRUNTIME_GPU_WHEEL_OF_YOUR_JETPACK.whl"
    what = f"onnxruntime {plain[0]['version']} lies beside onnxruntime-gpu {gpu[0]['version']}"
    return Advice("mend", what, why, f"pip uninstall -y onnxruntime{again}")


def _shadowed(facts: Facts) -> Advice | None:
    """The same package twice along the import path: the first hides the second."""
    for name in ("torch", "tensorrt", "onnxruntime-gpu", "numpy", "triton"):
        rows = _all(facts, name)
        if len(rows) < 2 or rows[0]["version"] == rows[1]["version"]:
            continue
        first, hidden = rows[:2]
        what = f"{name} {first['version']} in {first['place']} hides {hidden['version']} in {hidden['place']}"
        why = (
            "a wheel in a virtual environment hides the vendor's build under it"
            if facts.get("l4t")
            else "two builds of one package: only the first is used"
        )
        return Advice("mend" if facts.get("l4t") else "note", what, why, f"pip uninstall {name}")
    return None


def _torch_without_cuda(facts: Facts) -> Advice | None:
    rows = _all(facts, "torch")
    if not facts.get("l4t") or not rows or rows[0]["cuda"]:
        return None
    what = f"torch {rows[0]['version']} was built without CUDA"
    why = f"a wheel from PyPI stands where {_VENDOR} belongs: every policy would run on the processor"
    return Advice("mend", what, why, "pip uninstall -y torch && pip install --no-deps TORCH_WHEEL_OF_YOUR_JETPACK.whl")


def _numpy_two(facts: Facts) -> Advice | None:
    rows = _all(facts, "numpy")
    l4t = facts.get("l4t")
    if not l4t or l4t["release"] != 36 or not rows or _major(rows[0]) < 2:
        return None
    why = "JetPack 6's torch, onnxruntime-gpu and tensorrt were built against numpy 1 and break on numpy 2"
    return Advice(
        "mend", f"numpy {rows[0]['version']} on JetPack 6", why, "pip install -c constraints-jetson.txt 'numpy<2'"
    )


def _pyarrow(facts: Facts) -> Advice | None:
    numpy, pyarrow = _all(facts, "numpy"), _all(facts, "pyarrow")
    if not numpy or not pyarrow or _major(numpy[0]) >= 2 or _major(pyarrow[0]) < 25:
        return None
    why = (
        "pyarrow 25 refuses numpy 1 when it is imported, and its metadata does not say so: no Run can be saved or read"
    )
    return Advice(
        "mend", f"pyarrow {pyarrow[0]['version']} beside numpy {numpy[0]['version']}", why, "pip install 'pyarrow<25'"
    )


def _major(row: dict[str, Any]) -> int:
    digits = str(row["version"]).split(".")[0]
    return int(digits) if digits.isdecimal() else 0


def _jetpack(facts: Facts) -> Advice | None:
    l4t, version = facts.get("l4t"), tuple(facts["python_version"])
    if l4t and l4t["release"] < 36:
        name = _JETPACK.get(l4t["release"], f"of L4T R{l4t['release']}")
        why = "robot-perf needs Python 3.10; JetPack 5 ships 3.8, and its vendor wheels exist for no other"
        return Advice(
            "mend",
            f"this is JetPack {name} (L4T R{l4t['release']}.{l4t['revision']})",
            why,
            "flash JetPack 6 (Python 3.10) or JetPack 7 (Python 3.12)",
        )
    if version < (3, 10):
        why = "robot-perf needs Python 3.10 or newer"
        return Advice(
            "mend", f"this is Python {version[0]}.{version[1]}", why, "python3.10 -m venv --system-site-packages .venv"
        )
    return None


def _links(facts: Facts) -> Advice | None:
    lost = facts["lost_links"]
    if not lost:
        return None
    why = "a zip archive, a Windows checkout or an exFAT stick loses symbolic links: configs, kernels or nodes can't be found"
    command = " && ".join(f"ln -sfn ../{name} robot_perf/{name}" for name in lost)
    return Advice("mend", f"this checkout lost robot_perf/{', robot_perf/'.join(lost)}", why, command)


def _ptxas(facts: Facts) -> Advice | None:
    triton = facts["triton"]
    if not triton["installed"]:
        return None
    capability = triton["capability"]
    why = ptxas_too_old(capability, tuple(triton["ptxas_cuda"]))
    if why is None:
        return None
    what = f"Triton's ptxas can't assemble for this GPU (compute capability {capability // 10}.{capability % 10})"
    return Advice("mend", what, why, ptxas_export(capability))


def _launch(facts: Facts) -> Advice | None:
    triton = facts["triton"]
    why = slow_launch(triton["version"]) if triton["installed"] else None
    if why is None:
        return None
    return Advice(
        "note",
        f"Triton {triton['version']} launches the RMSNorm kernels the slow way",
        why,
        "pip install torch==2.11.0",
    )


CHECKS: tuple[Check, ...] = (
    Check("jetpack", ("python_version",), _jetpack),
    Check("onnxruntime_twice", ("installed",), _both_onnxruntimes),
    Check("shadowed_package", ("installed",), _shadowed),
    Check("torch_without_cuda", ("installed",), _torch_without_cuda),
    Check("numpy_on_jetpack", ("installed",), _numpy_two),
    Check("pyarrow_beside_numpy", ("installed",), _pyarrow),
    Check("triton_ptxas", ("triton",), _ptxas),
    Check("triton_launch", ("triton",), _launch),
    Check("lost_links", ("lost_links",), _links),
)
