"""Host memory that the device can reach: pinned torch tensors, and the same memory as a tensor on the device."""

from __future__ import annotations

from typing import Any

from robot_perf.errors import PolicyError


def pinned(torch: Any, tensor: Any) -> Any:
    """Zeros of a TensorSpec's shape and dtype in pinned memory."""
    return torch.zeros(tensor.shape, dtype=getattr(torch, tensor.dtype), pin_memory=True)


class _Pointer:
    """Pinned memory as the device sees it: under unified addressing its pointer is valid there too."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor  # keeps the memory
        self.__cuda_array_interface__ = {
            "shape": tuple(tensor.shape),
            "typestr": tensor.numpy().dtype.str,
            "data": (tensor.data_ptr(), False),
            "version": 3,
            "stream": None,
        }


def mapped(torch: Any, host: Any, device: Any) -> Any:
    """Pinned memory as a tensor of the device, no copy. Raises PolicyError where torch makes one."""
    view = torch.as_tensor(_Pointer(host), device=device)
    if view.data_ptr() != host.data_ptr():
        raise PolicyError("buffers=mapped: torch copied pinned memory instead of mapping it", do="Use buffers=copy.")
    return view
