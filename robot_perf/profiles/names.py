"""Names of kernels and API calls: cleaning, classing, shortening."""

from __future__ import annotations

import re

from robot_perf.profiles.model import ALLOC, COPY, GRAPH_LAUNCH, LAUNCH, OTHER, SYNC

MAX_NAME = 4096
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_ABI = re.compile(r"_v\d{4,5}$")
_VARIANT = re.compile(r"(?:_v\d{4,5}|_ptsz|_ptds|_spt)+$")
_COMMUNICATION = re.compile(r"nccl|rccl|nvshmem|multimem|all_?reduce", re.IGNORECASE)
_SYNC = re.compile(r"(?:Synchronize|StreamSync|EventSync|CtxSync)$")
_ALLOC = re.compile(
    r"^(?:cuda|cu|hip)(?:Malloc|Free|Mem(?:Alloc|Free|Host|Pool|Create|Map|Unmap|Address)|HostAlloc|HostRegister|HostUnregister)"
)
_COPY = re.compile(r"^(?:cuda|cu|hip)(?:Memcpy|Memset)")
_LAUNCH = frozenset(
    f"{prefix}{name}"
    for prefix, names in (
        ("cuda", ("LaunchKernel", "LaunchKernelExC", "LaunchCooperativeKernel", "LaunchCooperativeKernelMultiDevice", "LaunchDevice")),
        ("cu", ("LaunchKernel", "LaunchKernelEx", "LaunchCooperativeKernel", "LaunchCooperativeKernelMultiDevice")),
        ("hip", ("LaunchKernel", "ExtLaunchKernel", "ModuleLaunchKernel", "ExtModuleLaunchKernel", "LaunchCooperativeKernel",
                 "LaunchCooperativeKernelMultiDevice", "ModuleLaunchCooperativeKernel", "LaunchKernelExC")),
    )
    for name in names
)  # fmt: skip
_GRAPH_LAUNCH = frozenset({"cudaGraphLaunch", "cuGraphLaunch", "hipGraphLaunch"})


def clean(text: object) -> str:
    """A name fit for a terminal and a report: no control or direction characters, no lone surrogates, at most 4,096 characters."""
    plain = text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)
    return _CONTROL.sub("�", plain[:MAX_NAME])


def base_api_name(raw: str) -> str:
    """The API name without its ABI suffix: `cudaLaunchKernel` of `cudaLaunchKernel_v7000`."""
    return _ABI.sub("", raw)


def api_kind(raw: str) -> int:
    """Code of API_KINDS for a call's name, whatever its suffix."""
    name = _VARIANT.sub("", raw)
    if name in _LAUNCH:
        return LAUNCH
    if name in _GRAPH_LAUNCH:
        return GRAPH_LAUNCH
    if _SYNC.search(name):
        return SYNC
    if _COPY.match(name):
        return COPY
    return ALLOC if _ALLOC.match(name) else OTHER


def is_blocking(raw: str) -> bool:
    """True for calls that make the host wait: `*Synchronize`, and cudaMemcpy or cuMemcpy without Async."""
    name = _VARIANT.sub("", raw)
    return bool(_SYNC.search(name)) or (bool(re.match(r"^(?:cuda|cu|hip)Memcpy", name)) and "Async" not in name)


def is_communication(name: str) -> bool:
    """True for kernels of collective libraries."""
    return bool(_COMMUNICATION.search(name))


def short_name(name: str) -> str:
    """The name without return type, template arguments and parameter list, for matching across tools."""
    depth = 0
    kept: list[str] = []
    protected = (
        name.replace("(anonymous namespace)::", "")
        .replace("<unnamed>::", "")
        .replace("operator()", "operator_call")
        .replace("->", "")
    )
    for character in protected:
        if character in "<[{":
            depth += 1
        elif character in ">]}":
            depth = max(0, depth - 1)
        elif depth == 0:
            if character == "(":
                if "".join(kept).strip():
                    break
                continue
            kept.append(character)
    words = "".join(kept).replace("...", "").split()
    return words[-1] if words else name.strip()


def collapse_digits(name: str) -> str:
    """`Step 10 to 20` and `ProfilerStep#3` as `Step # to #` and `ProfilerStep#`: one name for the repetitions of a range."""
    return re.sub(r"#+", "#", re.sub(r"\d+", "#", name))


def redact(text: str) -> str:
    """A tool's message without paths, assignments, addresses and long tokens (profiles carry environments and identities)."""
    text = re.sub(r"\S*[/\\]\S+", "<path>", text)
    text = re.sub(r"\b\w+=\S+", "<assignment>", text)
    text = re.sub(r"\S+@\S+", "<address>", text)
    text = re.sub(r"\b\d{1,3}(?:\.\d{1,3}){3}\b", "<address>", text)
    return clean(re.sub(r"\b(?=\w*\d)(?=\w*[A-Za-z])[\w-]{20,}\b", "<token>", text))[:300]
