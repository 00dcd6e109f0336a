"""Lines of a text report: safe words, columns by display width, hanging indents. Nothing here knows what is reported."""

from __future__ import annotations

import re
import textwrap
import unicodedata
from collections.abc import Iterable

from rich.cells import cell_len, set_cell_size
from rich.text import Text

__all__ = ["LABEL", "clean", "fit", "hanging", "join", "labelled", "pad", "pad_left", "shorten"]

_NUMBER_AND_UNIT = re.compile(r"(\d) (?=(?:%|ns|µs|ms|s|min|h|Hz|ppm)\b|%)")

_LABELLED = re.compile(r"(?= {0,2}\S.{0,11} {2,}\S) {0,2}\S+(?: \S+)* {2,}")

LABEL = 11  # width of the column of labels; only INCONCLUSIVE is wider


def clean(value: object) -> str:
    """Text that a policy, a path or a file's metadata brought, without anything that moves a terminal's cursor.

    Control, format (bidirectional overrides among them), surrogate and line-separator characters are shown as escapes: a
    policy's name can't clear the screen, forge a verdict line or break the encoding.
    """
    return "".join(_visible(c) for c in str(value))


def _visible(character: str) -> str:
    if character.isascii():
        return character if character.isprintable() else f"\\x{ord(character):02x}"
    if unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp", "Co", "Cn"):
        return character.encode("unicode_escape").decode("ascii")
    return character


def pad(text: str, width: int) -> str:
    """`text` with blanks to its right up to `width` cells."""
    return text + " " * max(0, width - cell_len(text))


def pad_left(text: str, width: int) -> str:
    """`text` with blanks to its left up to `width` cells."""
    return " " * max(0, width - cell_len(text)) + text


def shorten(text: str, width: int) -> str:
    """`text` cut to `width` cells, the cut shown by an ellipsis."""
    return text if cell_len(text) <= width else set_cell_size(text, width - 1).rstrip() + "…"


def hanging(text: str, width: int, indent: int = LABEL) -> list[str]:
    """`text` in lines of at most `width` - `indent` cells, later lines to be indented. Long words (paths) stay whole."""
    room = max(20, width - indent)
    glued = _NUMBER_AND_UNIT.sub("\\1\N{NO-BREAK SPACE}", text)
    lines = textwrap.wrap(glued, room, break_long_words=False, break_on_hyphens=False)
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines] or [""]


def fit(text: str, width: int | None) -> str:
    """A finished plain text with the lines that are wider than `width` wrapped, under their text where they have a label.

    None has no limit. Tables are made to fit by whoever makes them (`grid.columns_that_fit`).
    """
    if width is None:
        return text
    lines = []
    for line in text.split("\n"):
        if cell_len(line) <= width:
            lines.append(line)
            continue
        label = _LABELLED.match(line)
        head = label[0] if label else " " * (len(line) - len(line.lstrip()))
        indent = len(head) or 2
        first, *rest = hanging(line[len(head) :], width, indent)
        lines += [head + first, *(" " * indent + more for more in rest)]
    return "\n".join(lines)


def labelled(label: str, text: str, width: int, *, style: str = "", label_style: str = "") -> list[Text]:
    """A label in its column and the text beside it, wrapped under itself."""
    indent = LABEL if cell_len(label) < LABEL else cell_len(label) + 2
    first, *rest = hanging(text, width, indent)
    lines = [Text.assemble((pad(label, indent), label_style), (first, style))]
    return lines + [Text.assemble(" " * indent, (line, style)) for line in rest]


def join(lines: Iterable[Text | str]) -> Text:
    """One text of all lines, without a newline at the end."""
    return Text("\n").join([line if isinstance(line, Text) else Text(line) for line in lines])
