"""Which of NVML's GPUs `cuda:N` is.

NVML counts every GPU in the order of the PCI bus. CUDA counts the fastest first and the others as it likes, unless CUDA_DEVICE_ORDER
says PCI_BUS_ID, and only what CUDA_VISIBLE_DEVICES shows. So the CUDA driver is asked for the UUID, in a process of its own: that one
reads the environment of the measured process as the driver does, and this one never loads CUDA. No context is created.

Run as a file this module is that process (`python which_gpu.py N`): the standard library alone.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import sys
import uuid
from collections.abc import Mapping
from typing import Any

ANSWER_S = 60  # where nothing keeps the driver loaded, cuInit brings up every GPU of the machine

# cuda.h, CUresult
_NO_DEVICE, _INVALID_DEVICE = 100, 101


class UnknownGpuError(Exception):
    """No GPU of NVML is that one for certain. The text is the reason, in one sentence."""


def find_gpu(device: str, nvml: Any, environment: Mapping[str, str]) -> Any:
    """NVML's handle of `cuda:N` as a process with that environment counts.

    `nvml` is the module pynvml, initialised. Raises UnknownGpuError, and NVMLError where NVML refuses.
    """
    name, _, ordinal = device.partition(":")
    if name != "cuda" or not (ordinal or "0").isdecimal():
        raise UnknownGpuError(f"{device} names no GPU")
    number, count = int(ordinal or 0), int(nvml.nvmlDeviceGetCount())
    if count == 1 and number == 0 and environment.get("CUDA_VISIBLE_DEVICES") in (None, "0"):
        gpu = nvml.nvmlDeviceGetHandleByIndex(0)
    else:
        gpu = _found(number, count, nvml, environment)
    if _in_mig_mode(gpu, nvml):
        raise _instance(number)
    return gpu


def _found(number: int, count: int, nvml: Any, environment: Mapping[str, str]) -> Any:
    answer = ask_driver(number, environment)
    if "absent" in answer:
        raise UnknownGpuError(answer["absent"])
    if "uuid" in answer:
        return _by_uuid(answer["uuid"], number, nvml)
    gpu = _by_index(number, count, nvml, environment)
    if gpu is None:
        raise UnknownGpuError(
            f"which of its {count} GPUs is cuda:{number} is not known: the CUDA driver can't be asked ({answer['error']}), "
            "and without it only CUDA_DEVICE_ORDER=PCI_BUS_ID with numbers in CUDA_VISIBLE_DEVICES is certain"
        )
    return gpu


def _by_uuid(text: str, number: int, nvml: Any) -> Any:
    """CUDA names a GPU or, in MIG mode, an instance of it; NVML has a prefix for each."""
    try:
        return nvml.nvmlDeviceGetHandleByUUID(f"GPU-{text}")
    except nvml.NVMLError as error:
        try:
            nvml.nvmlDeviceGetHandleByUUID(f"MIG-{text}")
        except nvml.NVMLError:
            raise UnknownGpuError(f"{error}: cuda:{number} is GPU-{text} to CUDA") from None
        raise _instance(number) from None


def _by_index(number: int, count: int, nvml: Any, environment: Mapping[str, str]) -> Any | None:
    """The GPU by its number in the order of the bus, None where that is not certain: CUDA then counts otherwise than NVML."""
    if environment.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        return None
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    names = [str(i) for i in range(count)] if visible is None else [name.strip() for name in visible.split(",")]
    if not all(name.isdecimal() and int(name) < count for name in names) or len(set(names)) != len(names):
        return None  # CUDA shows none of them, or those before the first that it can't find
    # Every one is opened: one that this process may not open (another's, in a container) counts for NVML and not for CUDA.
    gpus = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(count)]
    if number >= len(names) or any(
        _in_mig_mode(gpu, nvml) for gpu in gpus
    ):  # CUDA counts instances, and one of a process
        return None
    return gpus[int(names[number])]


def _in_mig_mode(gpu: Any, nvml: Any) -> bool:
    try:
        return bool(nvml.nvmlDeviceGetMigMode(gpu)[0])
    except (nvml.NVMLError_NotSupported, nvml.NVMLError_FunctionNotFound):
        return False  # a GPU without instances, a driver from before them


def _instance(number: int) -> UnknownGpuError:
    return UnknownGpuError(
        f"cuda:{number} is an instance of a GPU in MIG mode, and energy, power, clocks and utilisation are the whole GPU's"
    )


def ask_driver(number: int, environment: Mapping[str, str]) -> dict[str, str]:
    """The driver's answer in a process with that environment: {"uuid": …}, {"absent": why} or, unanswered, {"error": why}."""
    # -I -S: no user's start-up file, and the few imports of a bare interpreter
    command = [sys.executable, "-I", "-S", __file__, str(number)]
    try:
        done = subprocess.run(
            command,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=ANSWER_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"error": f"no answer in {ANSWER_S} s"}
    except OSError as error:
        return {"error": str(error)}
    if done.returncode != 0:
        return {"error": f"the process that asks it ended with exit code {done.returncode}"}
    try:
        answer: dict[str, str] = json.loads(done.stdout)
    except ValueError:  # a library that writes to stdout when it is loaded
        return {"error": f"the process that asks it wrote {done.stdout[:80]!r}"}
    return answer


def uuid_of(number: int, driver: Any) -> str:
    """The UUID of CUDA's device `number` from libcuda (ctypes): 16 octets, written in their order as 8-4-4-4-12 digits.

    An instance of a GPU in MIG mode has its own UUID from CUDA 11.4 on. Raises UnknownGpuError where CUDA shows no such device, OSError
    where the driver fails.
    """
    device, octets = ctypes.c_int(), (ctypes.c_ubyte * 16)()
    name = "cuDeviceGetUuid_v2" if hasattr(driver, "cuDeviceGetUuid_v2") else "cuDeviceGetUuid"
    calls = (
        ("cuInit", (0,)),
        ("cuDeviceGet", (ctypes.byref(device), number)),
        (name, (octets, device)),
    )
    for function, arguments in calls:
        code = int(getattr(driver, function)(*arguments))
        if code in (_NO_DEVICE, _INVALID_DEVICE):
            raise UnknownGpuError(f"CUDA shows no cuda:{number}")
        if code != 0:
            raise OSError(f"{function} failed with CUDA error {code}")
    return str(uuid.UUID(bytes=bytes(octets)))


def _main(number: int) -> None:
    try:
        answer = {"uuid": uuid_of(number, ctypes.CDLL("libcuda.so.1"))}
    except UnknownGpuError as error:
        answer = {"absent": str(error)}
    except (OSError, AttributeError) as error:  # no driver, or one too old to have these functions
        answer = {"error": str(error)}
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    _main(int(sys.argv[1]))
