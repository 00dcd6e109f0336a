"""Text that strangers bring can't move a cursor, and lines keep to their width."""

from __future__ import annotations

import unicodedata

from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from robot_perf.render.lines import LABEL, clean, fit, hanging, labelled, pad, pad_left, shorten


@given(st.text())
@settings(deadline=None)
def test_clean_text_holds_nothing_that_moves_a_cursor(text):
    shown = clean(text)
    assert not any(unicodedata.category(c) in ("Cc", "Cf", "Cs", "Zl", "Zp") for c in shown)
    shown.encode("utf-8")


def test_clean_shows_what_was_hidden():
    assert clean("a\x1b[2Jb\n\r\x7f") == "a\\x1b[2Jb\\x0a\\x0d\\x7f"
    assert clean("\u202egnp.exe") == "\\u202egnp.exe"
    assert clean("café 政策 µs →") == "café 政策 µs →"


def test_surrogate_of_an_undecodable_path():
    assert clean(b"run-\xff.parquet".decode("utf-8", "surrogateescape")) == "run-\\udcff.parquet"


def test_padding_counts_cells_not_characters():
    assert cell_len(pad("政策", 8)) == cell_len(pad_left("政策", 8)) == 8
    assert shorten("abcdef", 4) == "abc…"
    assert shorten("abc", 4) == "abc"


def test_number_stays_with_its_unit_and_a_path_stays_whole():
    assert all(not line.startswith(("%", "ms")) for line in hanging("x " * 14 + "95 % 20.00 ms", 42))
    path = "runs/" + "a" * 200 + ".parquet"
    assert path in hanging(f"saved {path}", 80)


def test_labels_wrap_under_themselves():
    lines = [line.plain for line in labelled("note", "word " * 40, 60)]
    assert lines[0].startswith("note" + " " * (LABEL - 4) + "word")
    assert all(line.startswith(" " * LABEL + "word") for line in lines[1:])
    assert max(map(len, lines)) <= 60
    assert labelled("INCONCLUSIVE", "text", 60)[0].plain == "INCONCLUSIVE  text"


def test_lines_that_are_too_wide_are_wrapped_under_their_text():
    text = (
        "assumes    "
        + "one two three " * 8
        + "\n  ridge      "
        + "four " * 20
        + "\nshort\n"
        + "an answer of many words " * 5
    )
    assert fit(text, None) == text
    lines = fit(text, 60).split("\n")
    assert max(map(cell_len, lines)) <= 60
    assert lines[0].startswith("assumes    one") and lines[1].startswith("           ") and lines[1][11] != " "
    assert any(line.startswith("  ridge      four") for line in lines) and "short" in lines
    assert lines[-1].startswith("  ") and lines[-1][2] != " "
    assert " ".join(fit(text, 60).split()) == " ".join(text.split())
