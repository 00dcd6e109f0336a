"""Events of a Chrome-trace JSON file in batches, in bounded memory. Numbers with a fraction stay text, so that no digit is lost.

A batch is the text up to the last `}, {"key":` of the buffer, given to the standard library's C parser at once. A boundary
that lies inside a string or a nested array makes that parse fail; then the events are decoded one by one, exactly.

A reader can name a key whose digits it needs all of. Batches in which each event holds it once go through pydantic's parser: 60 % of the
time, but a number with a fraction becomes a double. The key's own digits are then taken from the text and checked against the doubles.

A reader can name events that it doesn't want by a pattern: they are cut out of the text before it is parsed. That is safe because
`{"ph": "` can't stand inside a string of valid JSON (its first quote would end the string), and because the pattern covers all of an event.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator
from typing import Any, BinaryIO, NoReturn

from pydantic_core import from_json

from robot_perf.errors import ProfileError

CHUNK_BYTES = 1 << 18  # 1 MiB takes 9 % longer: the objects of a batch leave the cache
MAX_VALUE_BYTES = 64 << 20  # the longest single event or top-level value that is read
_BOUNDARY = re.compile(r"\}\s*,\s*(?=\{\s*\"[^\"\\]*\"\s*:)")
_SPACE = re.compile(r"[ \t\r\n]*")
_TAILS = (
    8 << 10,
    64 << 10,
)  # where the last boundary of a batch is looked for: an event is rarely longer than the first
_EVENT = re.compile(r"\}\s*,\s*\{\s*\"ph\"\s*:\s*\"")
_SCAN_AGAIN = 16  # batches after one that held few unwanted events


def _refuse_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


_DECODER = json.JSONDecoder(parse_float=str, parse_constant=_refuse_constant, strict=False)


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


class EventStream:
    """Iterate over lists of events. `header` holds the wanted top-level keys read so far; it is complete after the last batch.

    `unwanted` matches a whole event from the value of its `"ph"` (without the quote before it) to before its last brace; it has to match
    valid JSON only. `skipped` counts the events that were not parsed because of it.

    Numbers with a fraction are text. With `exact`, the name of a key, those of other keys may be doubles.
    """

    def __init__(
        self,
        stream: BinaryIO,
        source: str,
        wanted: frozenset[str],
        unwanted: re.Pattern[str] | None = None,
        exact: str | None = None,
    ) -> None:
        self.header: dict[str, Any] = {}
        self.has_events = False
        self.skipped = 0
        self._unwanted, self._scan_in = unwanted, 0
        self._exact = exact
        self._digits = (
            None if exact is None else re.compile(rf'"{exact}"\s*:\s*([0-9]+(?:\.[0-9]+)?)(?=\s*[,}}])').findall
        )
        self._stream, self._source, self._wanted = stream, source, wanted
        self._text, self._at = "", 0
        self._consumed_bytes = 0
        self._dropped = 0  # characters before the buffer
        self._one_by_one_until = (
            0  # a batch up to here could not be parsed: trying again after each event would be quadratic
        )
        self._ended = False
        self._decode = codecs.getincrementaldecoder("utf-8-sig")("replace").decode

    def __iter__(self) -> Iterator[list[Any]]:
        first = self._peek()
        if first == "[":
            self._at += 1
            yield from self._events()
        elif first == "{":
            self._at += 1
            yield from self._object()
        else:
            self._fail("the file is not JSON")
        if self._peek():
            self._fail("there is text after the end of the JSON value")

    def _fill(self) -> bool:
        """Drops what is consumed and reads a chunk, or as much again as is buffered; False at the end of the file."""
        if self._ended:
            return False
        kept = self._text[self._at :]
        if self._at:
            self._consumed_bytes += _bytes(self._text[: self._at])
        if len(kept) > MAX_VALUE_BYTES:
            self._fail(f"one value is longer than {MAX_VALUE_BYTES >> 20} MiB")
        self._dropped += self._at
        raw = self._stream.read(max(CHUNK_BYTES, len(kept)))
        self._ended = not raw
        self._text, self._at = kept + self._decode(raw, self._ended), 0
        return not self._ended

    def _peek(self) -> str:
        """The next character that is no blank; empty at the end of the file."""
        while True:
            match = _SPACE.match(self._text, self._at)
            self._at = match.end() if match else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._fill():
                return ""

    def _expect(self, allowed: str, where: str) -> str:
        found = self._peek()
        if not found or found not in allowed:
            self._fail(
                f"{where}: expected {' or '.join(allowed)}"
                + (f", found {found!r}" if found else ", the file ends here: truncated")
            )
        self._at += 1
        return found

    def _value(self) -> Any:
        """One JSON value at the current position, reading on while it is incomplete."""
        self._peek()
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
            except (ValueError, RecursionError) as error:
                if isinstance(error, RecursionError) or not self._fill():
                    self._fail_parse(error)
                continue
            # a number at the end of the buffer may go on in the next chunk
            if end == len(self._text) and self._fill():
                continue
            self._at = end
            return value

    def _object(self) -> Iterator[list[Any]]:
        if self._peek() == "}":
            self._at += 1
            return
        while True:
            if self._peek() != '"':
                self._fail("expected a key")
            key = self._value()
            self._expect(":", f"after the key {key[:40]!r}")
            if key == "traceEvents":
                self._expect("[", "traceEvents")
                self.has_events = True
                yield from self._events()
            else:
                value = self._value()
                if key in self._wanted:
                    self.header[key] = value
            if self._expect(",}", "after a top-level value") == "}":
                return

    def _events(self) -> Iterator[list[Any]]:
        self.has_events = True
        if self._peek() == "]":
            self._at += 1
            return
        while True:
            batch = self._batch()
            if batch is None:
                batch = [self._value()]
                if self._expect(",]", "after an event") == "]":
                    yield batch
                    return
            yield batch
            del batch  # the next one takes its place in the processor's cache

    def _batch(self) -> list[Any] | None:
        """The events up to the last boundary in the buffer, or None when they must be decoded one by one."""
        if self._dropped + self._at < self._one_by_one_until:
            return None
        if len(self._text) - self._at < CHUNK_BYTES // 2:
            self._fill()
        last = self._last_boundary()
        if last is None:
            return None
        text, skipped = self._without_unwanted(self._text[self._at : last.start()])
        try:
            events = self._parsed("[" + text + "}]")
        except (ValueError, RecursionError):
            self._one_by_one_until = self._dropped + last.end()
            return None
        self._at = last.end()
        self.skipped += skipped
        return events

    def _parsed(self, text: str) -> list[Any]:
        """The events of an array. Raises ValueError or RecursionError."""
        if self._digits is not None:
            try:
                return self._parsed_fast(text)
            except (
                ValueError,
                TypeError,
                KeyError,
            ):  # the exact parser decides: it reads more, or it says where the fault is
                pass
        events: list[Any] = _DECODER.decode(text)
        return events

    def _parsed_fast(self, text: str) -> list[Any]:
        assert self._digits is not None
        key = self._exact
        events: list[Any] = from_json(text, allow_inf_nan=False, cache_strings="keys")
        for event, digits in zip(events, self._digits(text), strict=True):
            value = event[key]
            if type(value) is float:
                if float(digits) != value:
                    raise ValueError("these digits are another event's")
                event[key] = digits
        return events

    def _last_boundary(self) -> re.Match[str] | None:
        for tail in _TAILS:
            found = list(_BOUNDARY.finditer(self._text, max(self._at, len(self._text) - tail)))
            if found:
                return found[-1]
        return None

    def _without_unwanted(self, text: str) -> tuple[str, int]:
        """The text of a batch (without its last brace) less its unwanted events, and how many these were."""
        if self._unwanted is None or self._scan_in > 0:
            self._scan_in -= 1
            return text, 0
        separator = _EVENT.search(text)
        if separator is None:
            return text, 0
        events = text.split(separator[0])  # the first one keeps its opening brace, so that it never matches
        matches = self._unwanted.fullmatch
        kept = [event for event in events if not matches(event)]
        skipped = len(events) - len(kept)
        if skipped * 8 < len(events):
            self._scan_in = _SCAN_AGAIN
        return (separator[0].join(kept), skipped) if skipped else (text, 0)

    def _fail_parse(self, error: Exception) -> NoReturn:
        if isinstance(error, json.JSONDecodeError):
            truncated = error.pos >= len(self._text) - 1 or error.msg.startswith("Unterminated")
            self._at = min(error.pos, len(self._text))
            self._fail(error.msg + (" (the file ends here: truncated?)" if truncated and self._ended else ""))
        self._fail("too many nested values" if isinstance(error, RecursionError) else str(error)[:120])

    def _fail(self, why: str) -> NoReturn:
        offset = self._consumed_bytes + _bytes(self._text[: self._at])
        raise ProfileError(
            f"{self._source}: not a readable trace: {why}",
            why=f"At byte {offset:,} of the unpacked file.",
            do="Export the trace again; a file cut while it was written can't be repaired.",
        )
