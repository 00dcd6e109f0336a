"""What the backends share when the work is queued on a CUDA device: options, pinned buffers, the runner, the fault messages."""

from __future__ import annotations
