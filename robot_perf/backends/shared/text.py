"""A library's own words made fit for our messages: one line, no source paths of the runtime, no unsafe advice."""

from __future__ import annotations

import re

_SOURCE = re.compile(
    r"(?:[A-Za-z]:)?[/\\]?[\w.+-]+(?:[/\\][\w.+-]+)+\.(?:cc|cpp|h|hpp|cu|py)(?::\d+)?(?: at line \d+)?:?\s*"
)
_STATUS = re.compile(r"^\[ONNXRuntimeError\] : \d+ : ")
_SIGNATURE = re.compile(r"\b[\w:<>&*~ ,]+::[\w:~]+\([^()]*(?:\([^()]*\)[^()]*)*\)\s*(?:const\s*)?")
# What ONNX Runtime says around a CUDA error: a C++ template's arguments before it, the machine and the call after it.
_TEMPLATE = re.compile(r"\[with [^\]]*\]\s*")
_PLACE = re.compile(r"\s*; GPU=-?\d+ ; hostname=.*")
_UNSAFE = re.compile(r"[^.]*weights_only[^.]*\.?", re.IGNORECASE)


def first_line(error: BaseException, limit: int = 240) -> str:
    """The first telling line of an exception's text."""
    text = str(error) or type(error).__name__
    for line in text.splitlines():
        clean = line
        for pattern in (_STATUS, _PLACE, _SOURCE, _SIGNATURE, _TEMPLATE, _UNSAFE):
            clean = pattern.sub("", clean)
        clean = clean.strip(" :")
        if clean:
            return clean if len(clean) <= limit else clean[: limit - 1] + "…"
    return type(error).__name__
