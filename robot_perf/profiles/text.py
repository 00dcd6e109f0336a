"""Reading text files of unknown origin: encodings, size limit, CSV rows."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from io import StringIO

from robot_perf.errors import ProfileError

MAX_TEXT_BYTES = 512 << 20
_BOMS = ((b"\xef\xbb\xbf", "utf-8-sig"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))


def decode(raw: bytes) -> str:
    """Text of a CSV file; a byte-order mark decides (PowerShell's redirection writes UTF-16), else UTF-8 with replacement."""
    encoding = next((name for mark, name in _BOMS if raw.startswith(mark)), "utf-8")
    return raw.decode(encoding, "replace")


def csv_rows(lines: list[str], source: str, first_line: int) -> Iterator[tuple[int, list[str]]]:
    """(line number, fields) of CSV text. Raises ProfileError where quoting is broken or a field is absurdly long."""
    reader = csv.reader(StringIO("\n".join(lines)), strict=True)
    while True:
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise ProfileError(
                f"{source}: line {first_line + reader.line_num:,} is not CSV",
                why=f"{error}.",
                do="Export it again; a file cut while it was written can't be repaired.",
            ) from None
        if row:
            yield first_line + reader.line_num, row
