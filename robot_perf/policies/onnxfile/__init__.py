"""ONNX files read as protobuf: signature, state, operators, external data, cost. The model is never run here."""

from __future__ import annotations
