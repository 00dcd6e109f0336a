"""State pairs by name: in/out, prev/next, suffixes, and what must never be carried."""

from __future__ import annotations

import pytest

from robot_perf.errors import PolicyError, UsageError
from robot_perf.policies import state
from robot_perf.specs import StatePair, TensorSpec


def tensors(**shapes: tuple[int, ...]) -> tuple[TensorSpec, ...]:
    return tuple(TensorSpec(n, "float32", s) for n, s in shapes.items())


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        ("h_in", "h_out"),
        ("hidden_in", "hidden_out"),
        ("in_state", "out_state"),
        ("stateIn", "stateOut"),
        ("prev_state", "next_state"),
        ("memory", "memory_out"),
        ("memory", "new_memory"),
        ("hidden", "hidden_1"),
        ("h0", "hn"),
        ("rnn.h_in", "rnn.h_out"),
        ("state_input", "state_output"),
    ],
)
def test_names_that_differ_only_by_direction(given: str, taken: str) -> None:
    inputs = tensors(obs=(1, 4), **{given: (1, 8)})
    outputs = tensors(actions=(1, 2), **{taken: (1, 8)})
    assert state.pairs(inputs, outputs, (), policy="p")[0] == (StatePair(1, 1),)


@pytest.mark.parametrize(
    ("given", "taken"),
    [("obs", "actions"), ("h_out", "h_in"), ("input", "output"), ("hidden", "cell_out"), ("command", "velocity")],
)
def test_equal_shapes_alone_are_never_carried(given: str, taken: str) -> None:
    inputs = tensors(proprio=(1, 4), **{given: (1, 8)})
    outputs = tensors(torque=(1, 2), **{taken: (1, 8)})
    carried, notes = state.pairs(inputs, outputs, (), policy="p")
    assert carried == ()
    assert len(notes) == 1 and f"--state {given}=1" in notes[0] and "not carried" in notes[0]


def test_the_only_observation_is_not_state() -> None:
    carried, notes = state.pairs(tensors(mlp_input=(180,)), tensors(mlp_output=(3,)), (), policy="p")
    assert carried == () and notes == ()
    carried, _ = state.pairs(tensors(mlp_input=(8,)), tensors(mlp_output=(8,)), (), policy="p")
    assert carried == ()


def test_a_pair_that_does_not_fit_is_refused_with_both_shapes() -> None:
    with pytest.raises(PolicyError, match=r"h_in.*\[1,8\].*\[1,4\]|h_in"):
        state.pairs(tensors(obs=(1, 2), h_in=(1, 8)), tensors(a=(1, 2), h_out=(1, 4)), (), policy="p")
    other = (TensorSpec("a", "float32", (1, 2)), TensorSpec("h_out", "float16", (1, 8)))
    with pytest.raises(PolicyError, match="float16"):
        state.pairs(tensors(obs=(1, 2), h_in=(1, 8)), other, (), policy="p")


def test_a_history_of_actions_is_not_refused() -> None:
    carried, _ = state.pairs(tensors(obs=(1, 2), prev_action=(1, 24)), tensors(action=(1, 12)), (), policy="p")
    assert carried == ()
    carried, _ = state.pairs(
        tensors(obs=(1, 2), prev_action=(1, 12)), tensors(action=(1, 12), v=(1, 1)), (), policy="p"
    )
    assert carried == (StatePair(1, 0),)


def test_two_outputs_of_one_name_are_a_question() -> None:
    outputs = (*tensors(a=(1, 3), h_out=(1, 8)), TensorSpec("h_out", "float32", (1, 8)))
    carried, notes = state.pairs(tensors(obs=(1, 2), h_in=(1, 8)), outputs, (), policy="p")
    assert carried == () and "1, 2" in notes[0]
    with pytest.raises(UsageError, match="2 outputs have this name"):
        state.pairs(tensors(obs=(1, 2), h_in=(1, 8)), outputs, (("h_in", "h_out"),), policy="p")


def test_one_output_feeds_one_input() -> None:
    inputs, outputs = tensors(obs=(1, 2), h=(1, 8), c=(1, 8)), tensors(a=(1, 2), s=(1, 8))
    with pytest.raises(UsageError, match="twice"):
        state.pairs(inputs, outputs, (("h", "1"), ("c", "1")), policy="p")


def test_nested_tuples_pair_by_their_tree() -> None:
    leaf, pair = None, [None, None]
    assert state.nested([leaf, pair], [leaf, pair]) == [(1, 1), (2, 2)]
    assert state.nested([pair, leaf], [leaf, leaf, pair]) == [(0, 2), (1, 3)]
    assert state.nested([leaf, pair], [pair, pair]) == []  # two members are equal: a question
    assert state.nested([leaf], leaf) == []
