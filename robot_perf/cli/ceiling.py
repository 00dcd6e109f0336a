"""`robot-perf ceiling`: what the hardware allows: tokens per second of a decoder, steps per second of a policy."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from robot_perf.cli.options import Json, emit_json, in_range
from robot_perf.errors import unknown
from robot_perf.units import parse_bytes

if TYPE_CHECKING:
    from robot_perf.tasks.ceiling.targets import TargetRequest

MODEL = "The model"
POLICY = "A policy's chunk"
DEVICE = "The device"
STEP = "The step"
ASK = "The question"


# fmt: off
def command(
    params: Annotated[float | None, typer.Option(help="Parameters of a decoder, such as 8e9.", rich_help_panel=MODEL, show_default=False)] = None,
    model: Annotated[str | None, typer.Option(help="Name in the catalogue: pi0, OpenVLA-7B, SmolVLA, Llama-3.1-8B, …", rich_help_panel=MODEL, show_default=False)] = None,
    config: Annotated[Path | None, typer.Option(help="A decoder's config.json: layers, heads, KV heads, vocabulary, experts.", rich_help_panel=MODEL, show_default=False)] = None,
    checkpoint: Annotated[Path | None, typer.Option(help="safetensors file or folder: bytes by stored dtype.", rich_help_panel=MODEL, show_default=False)] = None,
    active_params: Annotated[float | None, typer.Option(help="Parameters that one token of a mixture of experts reads.", rich_help_panel=MODEL, show_default=False)] = None,
    layers: Annotated[int | None, typer.Option(help="Layers, for the KV cache.", rich_help_panel=MODEL, show_default=False)] = None,
    kv_heads: Annotated[int | None, typer.Option(help="KV heads, not query heads.", rich_help_panel=MODEL, show_default=False)] = None,
    head_dim: Annotated[int | None, typer.Option(help="Head size, where the config has none.", rich_help_panel=MODEL, show_default=False)] = None,
    weight_bits: Annotated[float | None, typer.Option(help="Bits per weight.", rich_help_panel=STEP, show_default="16, or the policy's")] = None,
    weight_format: Annotated[str | None, typer.Option(help="int4-g128, int4-g32, nvfp4, mxfp4, q4_0, q4_k_m, q8_0, fp8, …", rich_help_panel=STEP, show_default=False)] = None,
    group_size: Annotated[int | None, typer.Option(help="Weights that share a 16-bit scale.", rich_help_panel=STEP, show_default="128 below 5 bits")] = None,
    weight_size: Annotated[str | None, typer.Option(help="Streamed weights as a size, such as '4.92 GB', in place of parameters times bits.", rich_help_panel=STEP, show_default=False)] = None,
    kv_bits: Annotated[float, typer.Option(help="Bits of a cached value.", rich_help_panel=STEP)] = 16,
    context: Annotated[int, typer.Option(help="Tokens in the KV cache.", rich_help_panel=STEP)] = 0,
    batch: Annotated[int | None, typer.Option(help="Streams per step.", rich_help_panel=STEP, show_default="1")] = None,
    accepted: Annotated[float | None, typer.Option(help="Accepted tokens per step of a speculative decoder.", rich_help_panel=STEP, show_default=False)] = None,
    speculative: Annotated[bool, typer.Option("--speculative", help="The measured rate is speculative.", rich_help_panel=STEP)] = False,
    compute: Annotated[str | None, typer.Option(help="Precision of the arithmetic; weight-only formats compute in bf16.", rich_help_panel=STEP, show_default="bf16")] = None,
    launches: Annotated[int | None, typer.Option(help="Kernel launches per step.", rich_help_panel=STEP, show_default=False)] = None,
    launch_us: Annotated[float, typer.Option(help="Host cost of a launch, µs.", rich_help_panel=STEP)] = 5.0,
    views: Annotated[int | None, typer.Option(help="Camera views.", rich_help_panel=POLICY, show_default="the catalogue's")] = None,
    prompt_tokens: Annotated[int | None, typer.Option(help="Text and state tokens of the prefix.", rich_help_panel=POLICY, show_default="the catalogue's")] = None,
    solver_steps: Annotated[int | None, typer.Option(help="Denoise steps per chunk.", rich_help_panel=POLICY, show_default="the catalogue's")] = None,
    decode_tokens: Annotated[int | None, typer.Option(help="Action tokens decoded per chunk.", rich_help_panel=POLICY, show_default="the catalogue's")] = None,
    chunk: Annotated[int | None, typer.Option(help="Actions that one call predicts.", rich_help_panel=POLICY, show_default="the catalogue's")] = None,
    executed: Annotated[int | None, typer.Option(help="Actions executed before the next chunk.", rich_help_panel=POLICY, show_default="the catalogue's")] = None,
    head_params: Annotated[float | None, typer.Option(help="Parameters of the language head (0: pruned away).", rich_help_panel=POLICY, show_default=False)] = None,
    on: Annotated[list[str] | None, typer.Option(help="Device, exactly by name or alias; repeatable.", rich_help_panel=DEVICE, show_default="all")] = None,
    power_mode: Annotated[str | None, typer.Option(help="nvpmodel mode of a Jetson, by name.", rich_help_panel=DEVICE, show_default="every mode")] = None,
    bandwidth_gb_s: Annotated[float | None, typer.Option(help="Bandwidth in GB/s (1e9 B/s).", rich_help_panel=DEVICE, show_default="the table's")] = None,
    peak: Annotated[list[str] | None, typer.Option(help="Dense peak as DTYPE=TFLOP/s; repeatable.", rich_help_panel=DEVICE, show_default="the table's")] = None,
    l2_mib: Annotated[float | None, typer.Option(help="Last-level cache in MiB.", rich_help_panel=DEVICE, show_default="the table's")] = None,
    probe: Annotated[Path | None, typer.Option(help="Report of `devices probe`: what to expect instead of 0.8 of spec.", rich_help_panel=DEVICE, show_default=False)] = None,
    rate: Annotated[float | None, typer.Option(help="Does it fit this rate of actions, Hz? And what is the most that does?", rich_help_panel=ASK, show_default=False)] = None,
    action_tokens: Annotated[int, typer.Option(help="Tokens that one action takes (a decoder at --rate).", rich_help_panel=ASK)] = 1,
    measured: Annotated[float | None, typer.Option(help="A rate or latency to judge against the bound; needs --batch for tok/s.", rich_help_panel=ASK, show_default=False)] = None,
    unit: Annotated[str, typer.Option(help="Of --measured: tok/s, ms or Hz.", rich_help_panel=ASK)] = "tok/s",
    run: Annotated[Path | None, typer.Option(help="A saved Run (.parquet) or bench report (.json): its median step against the device's bound.", rich_help_panel=ASK, show_default=False)] = None,
    json: Json = False,
) -> None:
    """Bound = minimum bytes over spec bandwidth; expected = scales, KV, distinct experts and a probe's bandwidth.

    `robot-perf ceiling --params 8e9 --weight-bits 4 --rate 10 --on "Jetson AGX Orin 64GB"`
    """
    # fmt: on
    from robot_perf.tasks.ceiling.targets import TargetRequest

    for name, value in (("--batch", batch), ("--accepted", accepted)):
        if value is not None:
            in_range(name, value, 1, 1e9)
    in_range("--launch-us", launch_us, 0.001, 1e9)
    target = TargetRequest(tuple(on or ()), power_mode, bandwidth_gb_s, tuple(peak or ()), l2_mib)
    if run is not None:
        _show_run(run, target, probe, compute, json)
        return
    if unit not in ("tok/s", "ms", "Hz"):
        raise unknown("--unit", unit, ("tok/s", "ms", "Hz"))
    from robot_perf.cli.show import say, table_width
    from robot_perf.render.hardware.ceiling import ceiling_text
    from robot_perf.tasks.ceiling.answer import ceilings, document
    from robot_perf.tasks.ceiling.model import ModelRequest
    from robot_perf.tasks.ceiling.types import CeilingRequest

    answer = ceilings(
        CeilingRequest(
            target=target,
            model=ModelRequest(
                params=params, model=model, config=config, checkpoint=checkpoint, active_params=active_params,
                layers=layers, kv_heads=kv_heads, head_dim=head_dim, head_params=head_params, views=views,
                prompt_tokens=prompt_tokens, solver_steps=solver_steps, decode_tokens=decode_tokens, executed=executed, chunk=chunk,
            ),
            weight_bits=weight_bits, weight_format=weight_format, group_size=group_size,
            weight_bytes=None if weight_size is None else parse_bytes(weight_size),
            kv_bits=kv_bits, compute=compute, context=context, batch=batch, accepted=accepted, launches=launches,
            launch_us=launch_us, probe=probe, rate_hz=rate, action_tokens=action_tokens, executed=executed,
            measured=measured, measured_unit=unit, speculative=speculative,
        )
    )  # fmt: skip
    if json:
        emit_json(document(answer))
    else:
        say(ceiling_text(document(answer), rate_hz=rate, width=table_width()))


def _show_run(run: Path, target: TargetRequest, probe: Path | None, compute: str | None, json: bool) -> None:
    from robot_perf.cli.show import say, table_width
    from robot_perf.render.hardware.ceiling import share_text
    from robot_perf.render.lines import fit
    from robot_perf.specs import to_json
    from robot_perf.tasks.ceiling.meets import meet, meet_bench

    if run.suffix == ".json":
        shares = meet_bench(run, target, probe=probe, dtype=compute)
        if json:
            emit_json({"schema": "robot-perf/ceiling-share-1", "rows": [to_json(s) for s in shares]})
        else:
            say(fit("\n\n".join(share_text(s) for s in shares), table_width()))
        return
    share = meet(run, target, probe=probe, dtype=compute)
    if json:
        emit_json({"schema": "robot-perf/ceiling-share-1", **to_json(share)})
    else:
        say(fit(share_text(share), table_width()))
