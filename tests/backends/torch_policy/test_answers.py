"""What a torch policy answers, as it comes to the host: nested results opened in order, every kind of tensor an array."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from robot_perf.backends.torch_policy.runner import flatten, output_specs, to_numpy  # noqa: E402


@pytest.mark.parametrize("kind", ["plain", "wants a gradient", "bfloat16", "negative view", "conjugate view", "array"])
def test_an_answer_of_any_kind_becomes_an_array(kind: str) -> None:
    made = {
        "plain": lambda: torch.tensor([1.0, 2.0]),
        "wants a gradient": lambda: torch.tensor([1.0, 2.0], requires_grad=True),
        "bfloat16": lambda: torch.tensor([1.0, 2.0], dtype=torch.bfloat16),
        "negative view": lambda: torch._neg_view(torch.tensor([-1.0, -2.0])),
        "conjugate view": lambda: torch.tensor([1.0 - 0j, 2.0 - 0j]).conj(),
        "array": lambda: np.array([1.0, 2.0], np.float32),
    }[kind]()
    found = to_numpy(made)
    assert isinstance(found, np.ndarray) and found.tolist() == [1.0, 2.0]
    if kind == "plain":
        made[0] = 5.0
        assert found[0] == 5.0  # no copy


class Named(dict):  # type: ignore[type-arg]
    """A tensordict.TensorDict, as far as it matters: a Mapping that has tensors' own methods."""

    def numpy(self) -> dict[str, object]:
        return {k: v.numpy() for k, v in self.items()}

    detach = cpu = numpy


def test_a_mapping_with_a_tensor_s_methods_is_opened() -> None:
    a, b = torch.zeros(1), torch.ones(1)
    assert [float(t) for t in flatten(Named(a=a, b=(b, a)))] == [0.0, 1.0, 0.0]
    assert [s.name for s in output_specs(Named(a=a, b=b))] == ["a", "b"]


def test_a_result_is_opened_in_order() -> None:
    a, b, c, d = (torch.full((1,), float(i)) for i in range(4))
    assert [float(t) for t in flatten((a, [b, {"x": c}], d))] == [0.0, 1.0, 2.0, 3.0]
    assert flatten(a)[0] is a and flatten([]) == []
