"""TensorRT 8.6, 10, 11 and the RTX edition behind one runner: versions, precision, engines and their cache, execution."""

from __future__ import annotations
