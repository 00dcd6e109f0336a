"""The key of a report: a GPU's figures never stand under the name of the processor."""

from __future__ import annotations

from robot_perf.run.bench_report import Row
from robot_perf.tasks.bench.machine import UNNAMED, machine_of, named_by

HOST = {"cpu_model": "Some Processor", "packages": {}}


def test_a_gpu_without_nvml_is_not_named_after_the_processor():
    machine = machine_of("cuda:0", None, "nvidia-ml-py is not installed", HOST)
    assert machine.device == UNNAMED
    assert machine_of("cpu", None, "", HOST).device == "Some Processor"
    assert machine_of("cuda:0", None, "", HOST | {"device_tree_model": "NVIDIA Jetson"}).device == "NVIDIA Jetson"


def test_a_backend_that_ran_on_the_gpu_names_it():
    machine = machine_of("cuda:0", None, "", HOST)
    on_gpu = Row("mlp", "eager", "eager", facts={"device_name": "NVIDIA H200"})
    assert named_by(machine, [Row("mlp", "python", "python"), on_gpu]).device == "NVIDIA H200"
    assert named_by(machine, [Row("mlp", "python", "python")]).device == UNNAMED
    known = machine_of("cpu", None, "", HOST)
    assert named_by(known, [on_gpu]) == known
