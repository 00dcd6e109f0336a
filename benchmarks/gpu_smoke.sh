#!/usr/bin/env bash
# Everything of the GPU backends in one go: their tests, the provoked failures, and the two side-by-side figures.
#
#   benchmarks/gpu_smoke.sh [OUTDIR]
#
# python3 must hold torch with CUDA; onnxruntime-gpu and TensorRT are used where they are. TensorRT may live under an interpreter
# of its own: export ROBOT_PERF_TENSORRT_PYTHON=python3.10. Exit code: that of the tests; the figures are printed either way.
set -uo pipefail
cd "$(dirname "$0")/.."
out=${1:-$(mktemp -d)}; mkdir -p "$out"
export PYTHONPATH="$PWD${PYTHONPATH:+:$PYTHONPATH}" PYTHONUNBUFFERED=1
trt=${ROBOT_PERF_TENSORRT_PYTHON:-}
common=(-m gpu -q -p no:cacheprovider --tb=short --durations=10)
workers=()
python3 -c 'import xdist' 2>/dev/null && workers=(-n "${SMOKE_WORKERS:-4}" -p no:benchmark)
python3 -c 'import pytest_timeout' 2>/dev/null && common+=(--timeout=300) # a hang on a device costs the rest of a session

echo "== tests that may share the device (pytest -m gpu)"
python3 -m pytest tests/backends "${common[@]}" ${workers[@]+"${workers[@]}"} > "$out/pytest.txt" 2>&1
code=$?
tail -n 40 "$out/pytest.txt"
echo "== tests that measure, alone on it"
python3 -m pytest tests/measure tests/tasks tests/cli "${common[@]}" > "$out/pytest_alone.txt" 2>&1 || code=$?
tail -n 40 "$out/pytest_alone.txt"

echo "== robot-perf beside a hand-written loop of the same graph"
python3 benchmarks/minimal_graph_loop.py --backend cuda_graph --rates tight,200,50 --blocks 4 -o "$out/minimal_cuda_graph.json"
[ -n "$trt" ] && "$trt" benchmarks/minimal_graph_loop.py --backend tensorrt --rates tight,200,50 --blocks 4 -o "$out/minimal_tensorrt.json"

echo "== what queueing, waiting, marks and ranges cost here"
python3 benchmarks/queue_costs.py -o "$out/queue_costs.json"
exit $code
