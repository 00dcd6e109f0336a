"""Package metadata of robot-perf.

The metadata lives here and not in pyproject.toml because ROS 2's ament_python drives this file:
colcon reads `data_files` and `entry_points` from it. pyproject.toml carries the build requirement
and the settings of the tools.
"""

from __future__ import annotations

import os
import sys
from glob import glob

from setuptools import find_packages, setup

NAME = "robot_perf"
VERSION = "0.1.0"
# colcon --symlink-install runs a link of this file in a folder that has no README.md: follow it to the checkout.
HERE = os.path.dirname(os.path.realpath(__file__))

# Python 3.8 (JetPack 5) would otherwise fail much later, inside a wheel that has no build for it.
if sys.version_info < (3, 10):
    sys.exit(
        f"robot-perf needs Python 3.10 or newer, this is {sys.version.split()[0]}. JetPack 5 ships "
        "Python 3.8: use JetPack 6 (Python 3.10) or JetPack 7 (Python 3.12)."
    )

# A zip archive, a Windows checkout or an exFAT stick loses symbolic links; without these three the
# package would install and then fail at the first import.
_lost = [n for n in ("kernels", "nodes", "configs") if not os.path.isdir(os.path.join(HERE, NAME, n))]
if _lost:
    sys.exit(
        f"robot-perf: this checkout lost the symbolic links robot_perf/{{{','.join(_lost)}}}. Clone it with git on a "
        "file system that has symbolic links, or run: " + "; ".join(f"ln -sfn ../{n} robot_perf/{n}" for n in _lost)
    )

# JetPack supplies torch, triton, onnxruntime-gpu and tensorrt on aarch64: no extra may put another build over them.
DESKTOP = "platform_machine == 'x86_64'"

EXTRAS = {
    "onnx": ["onnx>=1.16", f"onnxruntime>=1.18; {DESKTOP}"],
    "onnx-gpu": ["onnx>=1.16", f"onnxruntime-gpu>=1.20; {DESKTOP}"],
    "torch": [f"torch>=2.4; {DESKTOP}"],
    "tensorrt": [f"tensorrt>=8.6; {DESKTOP}", "cuda-python>=12.4"],
    "tensorrt-rtx": [f"tensorrt-rtx>=1.7; {DESKTOP}", f"cuda-python>=12.4; {DESKTOP}"],
    "gpu": ["cuda-python>=12.4", "nvidia-ml-py>=12.535"],
    "ros": [
        f"ros-jazzy-{name}; {DESKTOP}"
        for name in (
            "rclpy",
            "rmw-fastrtps-cpp",
            "std-msgs",
            "sensor-msgs",
            "geometry-msgs",
            "trajectory-msgs",
            "diagnostic-msgs",
            "std-srvs",
            "lifecycle-msgs",
            "rcl-interfaces",
        )
    ],
    "report": ["jinja2>=3.1", "plotly>=5.22", "matplotlib>=3.8"],
    "bags": ["rosbags>=0.10", "mcap>=1.2"],
    "fleet": ["duckdb>=1.0", "distributed>=2024.5"],
}
EXTRAS["test"] = [
    "pytest>=8",
    "hypothesis>=6.100",
    "psutil>=5.9",
    f"triton>=3.6; {DESKTOP}",  # the kernels' tests run through its interpreter; torch without CUDA does not bring it
    f"onnxruntime-extensions>=0.12; {DESKTOP}",  # a real library of custom operators
    *EXTRAS["onnx"],
    *EXTRAS["torch"],
    *EXTRAS["report"],
    *EXTRAS["ros"],
]
EXTRAS["dev"] = [
    "ruff",
    "mypy",
    "import-linter",
    "codespell",
    "pre-commit",
    "types-PyYAML",
]


def _data_files() -> list[tuple[str, list[str]]]:
    configs = [
        (f"share/{NAME}/{directory}", files)
        for directory in sorted(glob("configs/*"))
        if (files := sorted(glob(f"{directory}/*.yaml")))
    ]
    launch = sorted(glob("launch/*.launch.py"))
    return [
        ("share/ament_index/resource_index/packages", [f"resource/{NAME}"]),
        (f"share/{NAME}", ["package.xml"]),
        *([(f"share/{NAME}/launch", launch)] if launch else []),
        *configs,
    ]


setup(
    name=NAME,
    version=VERSION,
    description="Runs a robot's policy as the robot will and says, with stated confidence, whether it keeps its deadline",
    long_description=open(os.path.join(HERE, "README.md"), encoding="utf-8").read(),
    long_description_content_type="text/markdown",
    author="robot-perf maintainers",
    license="Apache-2.0",
    license_files=["LICENSE"],
    python_requires=">=3.10",
    packages=find_packages(include=["robot_perf", "robot_perf.*"]),
    package_data={"robot_perf": ["py.typed", "configs/*/*.yaml", "render/templates/*"]},
    data_files=_data_files(),
    zip_safe=False,
    install_requires=[
        "numpy>=1.23.5",
        "scipy>=1.10",
        "pydantic>=2.6",
        "PyYAML>=6.0",
        "typer>=0.12",
        "rich>=13.7",
        "pyarrow>=14",
    ],
    extras_require=EXTRAS,
    entry_points={
        "console_scripts": [
            "robot-perf = robot_perf.cli.__main__:main",
            "policy_node = robot_perf.nodes.policy_node:main",
            "monitor_node = robot_perf.nodes.monitor_node:main",
            "observation_node = robot_perf.nodes.observation_node:main",
        ]
    },
    classifiers=[
        "License :: OSI Approved :: Apache Software License",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3.10",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
    ],
)
