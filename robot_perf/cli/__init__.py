"""The command line: one file per command, each calling one task. This table is all that knows which commands exist."""

from __future__ import annotations

# name -> (module with a function of the same name as the module's last part, one line of help)
COMMANDS: dict[str, tuple[str, str]] = {
    "deadline": ("robot_perf.cli.deadline", "Run a policy at its control rate and say whether it keeps its deadline."),
    "bench": ("robot_perf.cli.bench", "Compare backends at the control rates and back to back, on this device."),
    "report": ("robot_perf.cli.report", "Show a saved Run as text, HTML, markdown or JSON."),
    "compare": ("robot_perf.cli.compare", "Compare two Runs: faster, slower, no difference, or can't say."),
    "ceiling": ("robot_perf.cli.ceiling", "Bound on decode and policy rates from a device's bandwidth and peaks."),
    "roofline": ("robot_perf.cli.roofline", "Operational intensity against a device's ridge point."),
    "devices": ("robot_perf.cli.devices", "List, show, detect or probe devices."),
    "launch": ("robot_perf.cli.launch", "Launch overhead, busy fraction and concurrency as arithmetic."),
    "profile": ("robot_perf.cli.profile", "Trace a policy at its rate, or print the nsys and ncu lines for it."),
    "diagnose": ("robot_perf.cli.diagnose", "Name what makes steps slow, with evidence, from a profile or a Run."),
    "utilisation": ("robot_perf.cli.utilisation", "How busy the GPU is at the control rate, and why it is not busier."),
    "kernels": ("robot_perf.cli.kernels", "Benchmarks of the kernels that robot-perf ships."),
    "doctor": ("robot_perf.cli.doctor", "What on this machine hurts latency, and the command that mends it."),
    "watch": ("robot_perf.cli.watch", "Follow a measurement that is running."),
    "recover": ("robot_perf.cli.recover", "Make a Run of a step map that a killed process left."),
    "selftest": ("robot_perf.cli.selftest", "Measure policies of known duration and check the readings."),
}
