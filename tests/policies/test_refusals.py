"""Every file that must be refused ends in one message with the required words, and nothing in it is executed."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

BAD = {
    "empty.onnx": ["0 bytes", "download or copy failed"],
    "empty.pt": ["0 bytes", "download or copy failed"],
    "truncated.onnx": ["protobuf ends early", "8,192", "copy it again"],
    "lfs_pointer.onnx": ["Git LFS", "3,184,908", "git lfs pull", "132 bytes"],
    "lfs_pointer.pt": ["Git LFS", "3,184,908", "git lfs pull", "132 bytes"],
    "html_page.onnx": ["HTML", "a web page was saved instead of the file", "<!DOCTYPE html>"],
    "json_renamed.onnx": ["JSON", '{ "policy": "walk"'],
    "utf8_mangled.pt": ["damaged by a text conversion", "2,446", "EF BF BD", "fetch it in binary mode"],
    "pickle_canary.pt": ["pickle", "can run code", "never unpickles", "ONNX", "TorchScript"],
    "pickle_canary_zip.pt": ["pickle", "can run code", "never unpickles", "ONNX", "TorchScript"],
    "checkpoint_state_dict.pt": ["weights without a network", "actor.0.weight", "torch.onnx.export"],
    "unsupported_domain.onnx": ["FusedGait", "com.example.robot", "version 1", "--ort-library"],
    "external_missing.onnx": ["external_missing.onnx.data", "missing"],
    "external_short.onnx": ["256 bytes wanted", "96 found"],
    "external_escape.onnx": ["../good/g1_external/policy.onnx.data", "allowed folder"],
    "future_opset.onnx": ["opset 99", "newest", "e-export", "upgrade"],
    "future_ir.onnx": ["IR version 99", "newest", "e-export", "upgrade"],
    "state_shape_mismatch.onnx": ["h_in", "h_out", "[1,8]", "[1,4]"],
    "open_dims.onnx": ["images", "batch", "height", "width", "--shape images=1,3,<height>,<width>"],
    "flatbuffer.tflite": ["TensorFlow Lite"],
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_sample_is_refused_in_words(shared_dir: Path, refused: Callable[..., str], name: str) -> None:
    os.environ.pop("ROBOT_PERF_UNPICKLED", None)
    message = refused(shared_dir / "policies" / "bad" / name)
    assert name in message
    for word in BAD[name]:
        assert word in message, f"{word!r} is not in:\n{message}"
    assert "ROBOT_PERF_UNPICKLED" not in os.environ


def test_every_bad_sample_is_covered(shared_dir: Path) -> None:
    found = {p.name for p in (shared_dir / "policies" / "bad").iterdir() if p.suffix != ".data"}
    assert found == set(BAD)


def test_a_pipe_is_no_file(refused: Callable[..., str], tmp_path: Path) -> None:
    """It was called empty, and its download failed."""
    os.mkfifo(tmp_path / "walk.onnx")
    assert "is not a regular file" in refused(tmp_path / "walk.onnx")


class _Canary:
    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return os.putenv, ("ROBOT_PERF_UNPICKLED", "1")


@pytest.mark.parametrize("protocol", range(6))
def test_pickles_of_every_protocol_are_named_and_not_run(
    tmp_path: Path, refused: Callable[..., str], protocol: int
) -> None:
    path = tmp_path / "policy.pt"
    path.write_bytes(pickle.dumps(_Canary(), protocol=protocol))
    message = refused(path)
    assert "pickle" in message and "never unpickles" in message and "putenv" in message


MAGICS = {
    "plan.engine": (b"ftrt" + bytes(60), ["TensorRT plan", "one GPU and one TensorRT version", "ONNX file"]),
    "renamed.onnx": (b"ftrt" + bytes(60), ["TensorRT plan", "one GPU and one TensorRT version", "ONNX file"]),
    "unknown.plan": (b"\x01\x02\x03" * 30, ["TensorRT plan", "one GPU and one TensorRT version"]),
    "net.mlmodel": (b"\x08\x04\x12\x02ab" + b"\xa2\x1f\x02xx", ["CoreML"]),
    "weights.h5": (b"\x89HDF\r\n\x1a\n" + bytes(64), ["HDF5"]),
    "model.gguf": (b"GGUF" + bytes(64), ["GGUF"]),
    "obs.npy": (b"\x93NUMPY\x01\x00" + bytes(64), ["NumPy array", "--observations"]),
    "policy.onnx.gz": (b"\x1f\x8b\x08" + bytes(64), ["gzip", "Unpack"]),
    "libpolicy.so": (b"\x7fELF" + bytes(64), ["machine code"]),
    "noise.onnx": (bytes(range(256)) * 4, ["none of the formats", "1,024 bytes"]),
    "model.xml": (b"<?xml version='1.0'?><net name='a'></net>", ["XML"]),
    "notes.onnx": (b"please ask Marek for the file\n", ["plain text", "please ask Marek"]),
    "cut.onnx": (b"\x08\x08\x12\x05torch\x3a\x80\x80\x04abc", ["protobuf ends early", "copy it again"]),
    "garbled.onnx": (b"\x08\x08\x12\x05torch\x07\x07\x07", ["damaged"]),
    "mangled.onnx": (
        b"\x08\x08\x12\x05torch" + b"\xef\xbf\xbd" * 400 + b"\xff",
        ["text conversion", "400", "binary mode"],
    ),
    "crlf.pt": (b"PK\x03\x04" + b"\x00\x01" * 300, ["zip archive", "damaged or cut short", "604 bytes"]),
}


@pytest.mark.parametrize("name", MAGICS)
def test_foreign_formats_are_named(tmp_path: Path, refused: Callable[..., str], name: str) -> None:
    data, words = MAGICS[name]
    path = tmp_path / name
    path.write_bytes(data)
    message = refused(path)
    for word in words:
        assert word in message, f"{word!r} is not in:\n{message}"


def test_safetensors_names_are_read(tmp_path: Path, refused: Callable[..., str]) -> None:
    header = json.dumps(
        {"actor.0.weight": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}, "__metadata__": {}}
    ).encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + bytes(16))
    message = refused(path)
    assert "weights without a network" in message and "actor.0.weight" in message


def test_archives_that_are_no_policy(tmp_path: Path, refused: Callable[..., str]) -> None:
    arrays = tmp_path / "obs.npz"
    np.savez(arrays, obs=np.zeros((3, 4), np.float32))
    assert "--observations" in refused(arrays)
    other = tmp_path / "thing.pt"
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("readme.txt", "x")
    assert "readme.txt" in refused(other)
    package = tmp_path / "compiled.pt2"
    with zipfile.ZipFile(package, "w") as archive:
        archive.writestr("m/data/aotinductor/model/a.so", "x")
        archive.writestr("m/archive_format", "pt2")
    assert "AOTInductor" in refused(package)


def test_a_cut_zip_says_its_size(shared_dir: Path, tmp_path: Path, refused: Callable[..., str]) -> None:
    path = tmp_path / "policy.pt"
    path.write_bytes((shared_dir / "policies" / "good" / "g1_lstm_reset.pt").read_bytes()[:50_000])
    message = refused(path)
    assert "50,000 bytes" in message and "cut short" in message


def test_pickled_weights_inside_torch_export_are_refused(
    shared_dir: Path, tmp_path: Path, refused: Callable[..., str]
) -> None:
    path = tmp_path / "policy.pt2"
    with (
        zipfile.ZipFile(shared_dir / "policies" / "good" / "go1_actuator_export.pt2") as source,
        zipfile.ZipFile(path, "w") as out,
    ):
        for name in source.namelist():
            out.writestr(name, source.read(name).replace(b'"use_pickle": false', b'"use_pickle": true'))
    assert "never unpickles" in refused(path)


def test_folders_and_missing_files(tmp_path: Path, refused: Callable[..., str]) -> None:
    (tmp_path / "a.onnx").write_bytes(b"x")
    assert "is a folder" in refused(tmp_path) and "a.onnx" in refused(tmp_path)
    (tmp_path / "x.mlpackage").mkdir()
    assert "CoreML" in refused(tmp_path / "x.mlpackage")
    missing = refused(tmp_path / "absent.onnx")
    assert "absent.onnx" in missing and "check the path" in missing
    assert "empty" in refused(" ")
    assert refused("a" * 5000)


def test_a_link_out_of_the_folder_is_refused_and_one_inside_is_not(tmp_path: Path, refused: Callable[..., str]) -> None:
    onnx = pytest.importorskip("onnx", reason="the package onnx is not installed")
    from robot_perf import policies

    folder = tmp_path / "policy"
    folder.mkdir()
    (tmp_path / "outside.data").write_bytes(bytes(64))
    (folder / "inside.data").write_bytes(bytes(64))

    def model(location: str, length: int = 64, size: int = 16) -> Path:
        weight = onnx.TensorProto(name="w", data_type=1, dims=[1, size], data_location=1)
        for key, value in (("location", location), ("offset", "0"), ("length", str(length))):
            weight.external_data.add(key=key, value=value)
        info = onnx.helper.make_tensor_value_info
        graph = onnx.helper.make_graph(
            [onnx.helper.make_node("Add", ["x", "w"], ["y"])],
            "g",
            [info("x", 1, [1, size])],
            [info("y", 1, [1, size])],
            [weight],
        )
        path = folder / "policy.onnx"
        path.write_bytes(
            onnx.helper.make_model(
                graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8
            ).SerializeToString()
        )
        return path

    (folder / "link.data").symlink_to(tmp_path / "outside.data")
    assert "outside.data" in refused(model("link.data")) and "allowed folder" in refused(model("link.data"))
    assert "allowed folder" in refused(model(str(tmp_path / "outside.data")))
    (folder / "good.data").symlink_to(folder / "inside.data")
    assert policies.describe(str(model("good.data"))).size_bytes == 64 + (folder / "policy.onnx").stat().st_size
    assert "128 bytes wanted, 64 found" in refused(model("inside.data", length=64, size=32))
    (folder / "inside.data").write_bytes(bytes(9000))
    spec = policies.describe(str(model("inside.data")))
    assert any("9,000 bytes" in n and "first 64" in n for n in spec.notes)


def test_identity_covers_the_data_file(shared_dir: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnx", reason="the package onnx is not installed")
    from robot_perf import policies

    source = shared_dir / "policies" / "good" / "g1_external"
    for name in ("policy.onnx", "policy.onnx.data"):
        (tmp_path / name).write_bytes((source / name).read_bytes())
    first = policies.describe(str(tmp_path / "policy.onnx"))
    data = bytearray((tmp_path / "policy.onnx.data").read_bytes())
    data[1000] ^= 1
    (tmp_path / "policy.onnx.data").write_bytes(data)
    second = policies.describe(str(tmp_path / "policy.onnx"))
    assert first.sha256 != second.sha256
    assert first.size_bytes == 14_206 + 871_168


def test_names_from_files_cannot_write_to_the_terminal(tmp_path: Path, refused: Callable[..., str]) -> None:
    path = tmp_path / "checkpoint.pt"
    inner = io.BytesIO()
    pickle.dump({"\x1b[2Jevil": 1}, inner)
    path.write_bytes(b"\x1b[31mred text\x1b[0m and more of it\n")
    assert "\x1b" not in refused(path)
