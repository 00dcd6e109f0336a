"""Nodes in processes of their own over real DDS, and a driver that talks to them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOMAIN = str(1 + os.getpid() % 100)  # of this test process alone: two on one domain would see each other's topics


def environment() -> dict[str, str]:
    path = os.pathsep.join(
        p for p in (str(ROOT), str(ROOT / "tests" / "helpers"), os.environ.get("PYTHONPATH", "")) if p
    )
    return {
        **os.environ,
        "ROS_AUTOMATIC_DISCOVERY_RANGE": "LOCALHOST",
        "ROS_DOMAIN_ID": DOMAIN,
        "PYTHONPATH": path,
        "PYTHONUNBUFFERED": "1",
    }


class Process:
    """One node with its output in a file."""

    def __init__(
        self, folder: Path, module: str, parameters: dict[str, object], name: str = "", remap: tuple[str, ...] = ()
    ) -> None:
        arguments = [word for key, value in parameters.items() for word in ("-p", f"{key}:={_text(value)}")]
        self.log_path = folder / f"{name or module}-{time.monotonic_ns()}.log"
        with self.log_path.open("w") as log:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    f"robot_perf.nodes.{module}",
                    "--ros-args",
                    *arguments,
                    *[w for r in remap for w in ("-r", r)],
                ],
                cwd=folder,
                env=environment(),
                stdout=log,
                stderr=log,
            )

    @property
    def log(self) -> str:
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    def wait_for(self, text: str, timeout_s: float = 60.0) -> str:
        until = time.monotonic() + timeout_s
        while time.monotonic() < until:
            if text in self.log:
                return self.log
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        raise AssertionError(f"{text!r} is not in the log (exit {self.process.poll()}):\n{self.log[-3000:]}")

    def end(self, number: int = signal.SIGINT, timeout_s: float = 30.0) -> int:
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(timeout_s)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


class Driver:
    """A node in the test's own process: services, parameters, topics."""

    def __init__(self) -> None:
        os.environ["ROS_AUTOMATIC_DISCOVERY_RANGE"], os.environ["ROS_DOMAIN_ID"] = "LOCALHOST", DOMAIN
        import rclpy
        from rclpy.executors import SingleThreadedExecutor

        self.context = rclpy.Context()
        rclpy.init(context=self.context, domain_id=int(DOMAIN))
        self.node = rclpy.create_node(f"driver_{time.monotonic_ns()}", context=self.context)
        self.executor = SingleThreadedExecutor(context=self.context)
        self.executor.add_node(self.node)

    def close(self) -> None:
        self.executor.shutdown()
        self.node.destroy_node()
        self.context.try_shutdown()

    def spin(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            self.executor.spin_once(timeout_sec=0.05)

    def call(self, kind, name: str, request, timeout_s: float = 20.0, attempts: int = 1):
        """`attempts` above 1 only for questions: DDS may lose an answer whose reader is not matched yet."""
        client = self.node.create_client(kind, name)
        try:
            assert client.wait_for_service(timeout_sec=timeout_s), f"no service {name}"
            for _ in range(attempts):
                future = client.call_async(request)
                self.executor.spin_until_future_complete(future, timeout_sec=timeout_s / attempts)
                if future.done():
                    return future.result()
            raise AssertionError(f"{name} did not answer")
        finally:
            self.node.destroy_client(client)

    def state(self, node: str = "policy_node") -> str:
        from lifecycle_msgs.srv import GetState

        return self.call(GetState, f"/{node}/get_state", GetState.Request(), attempts=4).current_state.label

    def change(self, label: str, node: str = "policy_node") -> bool:
        from lifecycle_msgs.srv import ChangeState

        request = ChangeState.Request()
        request.transition.label = label
        return self.call(ChangeState, f"/{node}/change_state", request, 60.0).success

    def set(self, node: str, **values: float) -> list[str]:
        from rcl_interfaces.msg import Parameter, ParameterType, ParameterValue
        from rcl_interfaces.srv import SetParameters

        request = SetParameters.Request()
        for name, value in values.items():
            number = ParameterValue(type=ParameterType.PARAMETER_DOUBLE, double_value=float(value))
            request.parameters.append(Parameter(name=name.replace("__", "."), value=number))
        results = self.call(SetParameters, f"/{node}/set_parameters", request).results
        return [r.reason for r in results if not r.successful]

    def report(self, node: str = "policy_node") -> dict:
        from std_srvs.srv import Trigger

        return json.loads(self.call(Trigger, f"/{node}/report", Trigger.Request(), attempts=4).message)

    def until(self, look, timeout_s: float = 60.0, what: str = "it"):
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            found = look()
            if found:
                return found
            self.spin(0.1)
        raise AssertionError(f"{what} did not happen within {timeout_s} s")


def runs(folder: Path) -> list:
    """All saved Runs of a folder, oldest first."""
    from robot_perf.run.parquet import load

    return [load(path) for path in sorted((folder / "runs").glob("*.parquet"), key=lambda p: p.name.split("-")[-1])]
