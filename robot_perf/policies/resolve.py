"""From what a person wrote as POLICY to a PolicySpec: built-in, file, `module:callable`, a name in configs/policies."""

from __future__ import annotations

import dataclasses
import importlib.resources
import re
from pathlib import Path

from robot_perf.errors import PolicyError, UsageError, did_you_mean
from robot_perf.policies import builtin
from robot_perf.policies.asked import Asked, shown
from robot_perf.policies.formats import npz
from robot_perf.policies.identify import identify
from robot_perf.specs import PolicySpec

_POLICY_SUFFIXES = (".onnx", ".pt", ".pth", ".pt2", ".yaml", ".yml")
_CALLABLE = re.compile(r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$")


def resolve(text: str, asked: Asked) -> PolicySpec:
    """The PolicySpec of `text`. Raises PolicyError or UsageError, both with exit code 2."""
    if not text.strip() or "\x00" in text:
        raise UsageError("POLICY is empty", do="Give a built-in (mlp), a file (policy.onnx) or module:callable.")
    if asked.observations is not None:
        asked = _with_recording(asked)
    if builtin.is_builtin(text):
        return builtin.describe(text, asked)
    path = Path(text)
    if _exists(path):
        return describe_file(path, _without_preset(text, asked))
    if _CALLABLE.match(text):
        from robot_perf.policies import factory

        return factory.describe(text, _without_preset(text, asked))
    if text in (names := config_names()):
        from robot_perf.policies import pipeline

        with importlib.resources.as_file(
            importlib.resources.files("robot_perf") / "configs" / "policies" / f"{text}.yaml"
        ) as file:
            return pipeline.describe(file, asked, resolve)
    raise PolicyError(
        f"{shown(text, 200)} is no policy that can be found",
        why=f"It is no built-in ({', '.join(builtin.NAMES)}), no file here, no module:callable and no name in configs/policies"
        f"{' (' + ', '.join(names) + ')' if names else ''}.",
        do=" ".join(
            filter(
                None,
                (
                    did_you_mean(text.partition(":")[0], [*(n.partition(":")[0] for n in builtin.NAMES), *names])
                    or did_you_mean(path.name, _policy_files(path.parent)),
                    _looked_for(path),
                ),
            )
        ),
    )


def describe_file(path: Path, asked: Asked) -> PolicySpec:
    """The PolicySpec of an existing file, by its content."""
    found = identify(path)
    if found.kind == "onnx":
        from robot_perf.policies.onnxfile import model

        return model.describe(found, asked)
    if found.kind == "yaml":
        from robot_perf.policies import pipeline

        return pipeline.describe(path, asked, resolve)
    from robot_perf.policies.formats import torchfile

    return torchfile.describe(found, asked)


def config_names() -> tuple[str, ...]:
    """Names of the policies in configs/policies."""
    folder = importlib.resources.files("robot_perf") / "configs" / "policies"
    return tuple(sorted(f.name[:-5] for f in folder.iterdir() if f.name.endswith(".yaml"))) if folder.is_dir() else ()


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        return False  # a name that the file system can't hold


def _policy_files(folder: Path) -> list[str]:
    """Names of the files that lie where a policy was looked for and end as policies do."""
    try:
        return [p.name for p in folder.iterdir() if p.suffix in _POLICY_SUFFIXES and p.exists()]
    except OSError:
        return []


def _looked_for(path: Path) -> str:
    try:
        target = path.readlink()
    except OSError:  # no link, or a name that the file system can't hold
        return f"Looked for the file {shown(path.absolute(), 200)}: check the path."
    return f"{shown(path, 200)} is a link to {shown(target, 200)}, which is not there: mend the link."


def _without_preset(text: str, asked: Asked) -> Asked:
    if asked.preset is not None:
        raise UsageError(
            f"{text}: --preset belongs to built-in policies", why=f"Built in: {', '.join(builtin.NETWORKS)}."
        )
    return asked


def _with_recording(asked: Asked) -> Asked:
    recorded = {}
    for key, (dtype, shape) in npz.headers(str(asked.observations)).items():
        if shape and not key.startswith(("out.", "nocarry.", "replay.")):
            recorded[key.removeprefix("in.")] = (dtype.newbyteorder("=").name, shape[1:])
    absolute = str(Path(str(asked.observations)).absolute())
    return dataclasses.replace(asked, recorded=recorded, observations=absolute)
