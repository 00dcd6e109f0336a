"""`robot-perf roofline`: which side of the ridge, and by how much; as text, JSON, an offline HTML page, PNG or SVG."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from robot_perf.cli.options import Force, Json, Output, check_output, emit_json, write_output
from robot_perf.cli.parsing import parse_shapes
from robot_perf.errors import UsageError

if TYPE_CHECKING:
    from robot_perf.tasks.ceiling.roofline import RooflineAnswer

DEVICE = "The device"
WORK = "The work"
_FORMS = {".html": "html", ".htm": "html", ".png": "png", ".svg": "svg"}


# fmt: off
def command(
    what: Annotated[str, typer.Argument(help="linear, rmsnorm, attention, or a POLICY whose operators are counted (.onnx, .pt2, mlp, gru, lstm).")],
    on: Annotated[list[str] | None, typer.Option(help="Device of the table, exactly by name or alias.", rich_help_panel=DEVICE, show_default="this machine")] = None,
    power_mode: Annotated[str | None, typer.Option(help="nvpmodel mode of a Jetson, by name.", rich_help_panel=DEVICE, show_default="the one with most bandwidth")] = None,
    bandwidth_gb_s: Annotated[float | None, typer.Option(help="Bandwidth in GB/s (1e9 B/s) in place of the table's.", rich_help_panel=DEVICE, show_default=False)] = None,
    peak: Annotated[list[str] | None, typer.Option(help="Dense peak as DTYPE=TFLOP/s, such as bf16=42.5; repeatable.", rich_help_panel=DEVICE, show_default=False)] = None,
    l2_mib: Annotated[float | None, typer.Option(help="Last-level cache in MiB in place of the table's.", rich_help_panel=DEVICE, show_default=False)] = None,
    hidden: Annotated[int | None, typer.Option(help="Hidden size d.", rich_help_panel=WORK, show_default=False)] = None,
    tokens: Annotated[int | None, typer.Option(help="Tokens per step N (rows of rmsnorm, context of attention).", rich_help_panel=WORK, show_default=False)] = None,
    dtype: Annotated[str | None, typer.Option(help="Precision of the arithmetic: bf16, fp16, fp8, int8, fp4, fp32.", rich_help_panel=WORK, show_default="bf16, or the policy's")] = None,
    activations: Annotated[bool, typer.Option(help="Count the activations' bytes of a linear layer.", rich_help_panel=WORK)] = True,
    query_heads_per_kv: Annotated[int, typer.Option(help="Query heads that share one KV head (attention).", rich_help_panel=WORK)] = 4,
    bytes_per_element: Annotated[float | None, typer.Option(help="Bytes that rmsnorm moves per element: 4 fused in bf16, about 14 unfused.", rich_help_panel=WORK, show_default="read once, written once")] = None,
    shape: Annotated[list[str] | None, typer.Option(help="Size of a policy's input or open axis, NAME=1,12; repeatable.", rich_help_panel=WORK, show_default=False)] = None,
    action: Annotated[str | None, typer.Option(help="Which output of a policy is the action.", rich_help_panel=WORK, show_default="the only output")] = None,
    output: Output = None,
    json: Json = False,
    force: Force = False,
) -> None:
    """Attainable = min(peak, intensity x bandwidth); ridge = peak / bandwidth.

    `robot-perf roofline linear --hidden 4096 --tokens 1 --on "H100 SXM" -o roofline.html`
    """
    # fmt: on
    form = _form(output)
    if output is not None and str(output) != "-":
        check_output(output, force=force)
    from robot_perf.tasks.ceiling.roofline import RooflineRequest, document, place
    from robot_perf.tasks.ceiling.targets import TargetRequest

    answer = place(
        RooflineRequest(
            what=what,
            target=TargetRequest(tuple(on or ()), power_mode, bandwidth_gb_s, tuple(peak or ()), l2_mib),
            hidden=hidden,
            tokens=tokens,
            dtype=dtype,
            activations=activations,
            query_heads_per_kv=query_heads_per_kv,
            bytes_per_element=bytes_per_element,
            shapes=parse_shapes(shape),
            action=action,
        )
    )
    if output is not None:
        write_output(output, _drawn(answer, form), force=force)
    if json:
        emit_json(document(answer))
    elif output is None or str(output) != "-":
        from robot_perf.cli.show import say, table_width
        from robot_perf.render.lines import fit

        say(fit(_text(answer), table_width()))
        say(f"saved      {output}" if output else "next       -o roofline.html draws it, with sliders; opens offline")


def _form(output: Path | None) -> str:
    if output is None:
        return ""
    if str(output) == "-":
        return "html"
    form = _FORMS.get(output.suffix.lower())
    if form is None:
        raise UsageError(f"{output}: no known picture format", why=f"Known: {', '.join(_FORMS)}.")
    return form


def _text(answer: RooflineAnswer) -> str:
    from robot_perf.render.hardware import roofline

    return roofline.text(
        answer.placement,
        power_mode=answer.mode.name if answer.mode else None,
        hidden=answer.hidden,
        tokens=answer.tokens,
        crossover=answer.crossover,
        crossover_weights=answer.crossover_weights,
        parts=answer.parts,
        uncounted=answer.uncounted,
        resident=answer.resident,
        notes=answer.notes,
        lower_bound=answer.lower_bound,
    )


def _drawn(answer: RooflineAnswer, form: str) -> str | bytes:
    from robot_perf.analyze.ceiling.roofline import DTYPE_BYTES
    from robot_perf.render.hardware import roofline

    if form == "html":
        return roofline.page(
            answer.placement,
            answer.device,
            answer.mode,
            hidden=answer.hidden or 512,
            tokens=answer.tokens or 1,
            summary=_text(answer).splitlines()[0],
            parts=answer.parts,
            element_bytes=DTYPE_BYTES[answer.placement.roof.dtype],
        )
    return roofline.picture(answer.placement, hidden=answer.hidden, tokens=answer.tokens, parts=answer.parts, form=form, whole=not answer.lower_bound)
