"""The house itself: versions agree, links exist, the README's commands are the ones that CI runs, imports stay lean."""

from __future__ import annotations

import ast
import graphlib
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

import robot_perf

ROOT = Path(__file__).resolve().parents[1]


def test_versions_agree():
    setup = re.search(r'^VERSION = "(.+)"$', (ROOT / "setup.py").read_text(encoding="utf-8"), re.MULTILINE)
    assert setup is not None
    assert setup[1] == robot_perf.__version__
    assert ET.parse(ROOT / "package.xml").getroot().findtext("version") == robot_perf.__version__


def test_install_hints_use_the_name_and_the_extras_of_setup_py():
    from robot_perf.errors import install_line

    text = (ROOT / "setup.py").read_text(encoding="utf-8")
    name = re.search(r'^NAME = "(.+)"$', text, re.MULTILINE)
    assert name is not None and install_line("gpu") == f"pip install '{name[1]}[gpu]'"
    for path in sorted(p for folder in ("robot_perf", "kernels", "nodes") for p in (ROOT / folder).rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        for extra in re.findall(r"install_line\([\"'](.+?)[\"']\)", source):
            assert f'"{extra}": [' in text, (path, extra)
        if path.name != "errors.py":
            assert not re.search(r"robot[-_]perf\[\w", source), f"{path}: use errors.install_line"


@pytest.mark.parametrize("name", ["kernels", "nodes", "configs"])
def test_links_are_relative_and_alive(name):
    link = ROOT / "robot_perf" / name
    assert link.is_symlink()
    assert link.readlink() == Path(f"../{name}")
    assert link.is_dir()


def test_ci_runs_the_readme_test_command():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    command = next(line for line in readme.splitlines() if line.endswith("python -m pytest"))
    assert command in (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()


def test_setup_cfg_has_no_dash():
    assert "script-dir" not in (ROOT / "setup.cfg").read_text(encoding="utf-8")


def loaded_modules(code: str, *arguments: str) -> set[str]:
    """Top-level modules that a fresh interpreter holds after `code`."""
    script = f"{code}\nimport sys\nprint('\\n'.join(sorted({{m.split('.')[0] for m in sys.modules}})), file=sys.stderr)"
    environment = {k: v for k, v in os.environ.items() if not k.startswith("ROBOT_PERF")}
    result = subprocess.run(
        [sys.executable, "-c", script, *arguments],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env=environment,
    )
    return set(result.stderr.split())


HEAVY = {
    "numpy",
    "scipy",
    "pyarrow",
    "torch",
    "onnx",
    "onnxruntime",
    "triton",
    "tensorrt",
    "rclpy",
    "plotly",
    "matplotlib",
    "pandas",
}


def test_help_imports_nothing_heavy():
    code = (
        "import sys\nfrom robot_perf.cli.__main__ import main\ntry:\n    main(['--help'])\nexcept SystemExit:\n    pass"
    )
    assert not loaded_modules(code) & (HEAVY | {"pydantic"})


@pytest.mark.parametrize(
    ("command", "allowed"),
    [
        ("deadline", set()),
        ("report", set()),
        ("watch", set()),
        ("recover", set()),
        ("selftest", set()),
        ("bench", set()),
    ],
)
def test_command_help_imports_nothing_heavy(command, allowed):
    code = f"from robot_perf.cli.__main__ import main\ntry:\n    main(['{command}', '--help'])\nexcept SystemExit:\n    pass"
    # typer itself brings pydantic when it builds one command's options
    assert not loaded_modules(code) & HEAVY - allowed


def test_the_worker_is_lean():
    modules = loaded_modules("import robot_perf.measure.worker, robot_perf.backends.python")
    assert "numpy" in modules
    assert not modules & {
        "scipy",
        "pyarrow",
        "rich",
        "typer",
        "pydantic",
        "torch",
        "onnx",
        "onnxruntime",
        "plotly",
        "yaml",
    }


def test_the_reading_half_needs_no_runtime():
    code = "import robot_perf.run.parquet, robot_perf.analyze.document, robot_perf.analyze.summary, robot_perf.analyze.verdict"
    assert not loaded_modules(code) & {"torch", "onnxruntime", "onnx", "triton", "tensorrt", "rclpy"}


def test_every_module_imports_with_the_core_requirements_alone():
    """Blocks every optional package, then imports the whole tree: an extra must never be needed at import."""
    code = """
import importlib, pkgutil, sys
optional = {"torch", "onnx", "onnxruntime", "triton", "tensorrt", "tensorrt_rtx", "cuda", "pynvml", "jinja2", "plotly", "matplotlib",
            "rclpy", "duckdb", "distributed", "rosbags", "mcap", "pandas", "psutil", "nvtx", "jtop"}
class Block:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in optional:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Block())
import robot_perf
names = [m.name for m in pkgutil.walk_packages(robot_perf.__path__, "robot_perf.")]
failed = []
for name in names:
    if name.endswith("__main__"):
        continue
    try:
        importlib.import_module(name)
    except Exception as error:
        failed.append(f"{name}: {type(error).__name__}: {error}")
print(len(names), *failed, sep="\\n")
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    count, *failed = result.stdout.splitlines()
    assert int(count) > 60
    assert not failed


def imports_of(path: Path, known: set[str]) -> set[str]:
    """Modules of this package that a file imports, anywhere in it: those inside functions too, those for types alone not."""
    found: set[str] = set()
    todo: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            todo += node.orelse
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {
                f"{node.module}.{a.name}" if f"{node.module}.{a.name}" in known else node.module for a in node.names
            }
        elif isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
        todo += ast.iter_child_nodes(node)
    return found & known


def test_no_module_imports_itself_by_way_of_others():
    """A cycle that an import inside a function hides is one all the same: neither module can be read, or loaded, without the other."""
    files = {}
    for top in ("robot_perf", "robot_perf/kernels", "robot_perf/nodes"):
        for path in (ROOT / top).rglob("*.py"):
            name = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
            files[name] = path
    graph = {name: imports_of(path, set(files)) - {name} for name, path in files.items()}
    assert len(graph) > 400 and sum(map(len, graph.values())) > 1500
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        pytest.fail(f"imports in a circle: {' -> '.join(error.args[1])}")
