"""The roofline in words, as a page that needs no network, and as a picture; the page also in a real browser."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest
from chromium import Page, browser, open_page

from robot_perf.analyze.ceiling.roofline import Placement, Roof, Work, linear
from robot_perf.devices import find, mode_of
from robot_perf.render.hardware import roofline

H100 = Roof(3.35e12, 989e12, "H100 SXM")
HOSTILE = "</script><script>alert(1)</script><!-- & \u2028 '\""


def made(p: Placement | None = None, **more: object) -> str:
    pytest.importorskip("jinja2")
    pytest.importorskip("plotly")
    placement = p or H100.place(linear(4096, 1))
    options: dict[str, object] = {"hidden": 4096, "tokens": 1, "summary": "memory-bound"}
    return roofline.page(placement, find("H100 SXM"), None, **(options | more))  # type: ignore[arg-type]


def test_the_text_answers_first() -> None:
    lines = roofline.text(
        H100.place(linear(4096, 1)), hidden=4096, tokens=1, crossover=344.9, crossover_weights=295.2
    ).splitlines()
    assert (
        lines[0]
        == "linear d=4096 N=1 in bf16 on H100 SXM: memory-bound, at least 10.0 µs, at most 3.348 TFLOP/s (0.34 % of peak)"
    )
    text = "\n".join(lines)
    assert "33.57 MB" in text and "295.2 FLOP/byte; the work lies 295 x below it" in text
    assert "N = 345 tokens; counting weights alone it would seem 295" in text


def test_a_layer_that_never_crosses() -> None:
    text = roofline.text(H100.place(linear(512, 4)), hidden=512, tokens=4, crossover=math.inf, crossover_weights=295.2)
    assert "never" in text and "256" in text


def test_what_stays_in_cache_is_not_called_memory_bound() -> None:
    text = roofline.text(H100.place(linear(64, 1)), resident=True, parts=[H100.place(linear(64, 1))] * 7)
    assert "DRAM does not bound it" in text.splitlines()[0] and "7 operators x 5 µs = 35.0 µs" in text.splitlines()[0]


def test_shares_have_two_digits() -> None:
    assert [roofline.share(x) for x in (0.00339, 0.0339, 0.339, 1.0, 1.2)] == [
        "0.34 %",
        "3.4 %",
        "34 %",
        "100 %",
        "120 %",
    ]


def test_presets_are_every_device_and_mode_with_both_numbers() -> None:
    rows = {r["name"]: r for r in roofline.preset_rows("bf16")}
    assert rows["H100 SXM"] == {"name": "H100 SXM", "gb_s": 3350.0, "tflop_s": 989.0}
    assert rows["Jetson AGX Orin 64GB 15W"]["gb_s"] == 136.5
    assert rows["Jetson AGX Orin 64GB 15W"]["tflop_s"] == pytest.approx(42.5 * 408 / 1301 * 3 / 8)
    assert rows["Jetson Nano 4GB"]["tflop_s"] == 0.472  # fp16, where a chip has no bf16
    assert "Jetson AGX Orin Industrial" not in rows and "GB10 (DGX Spark)" not in rows


def test_the_page_asks_for_nothing_outside() -> None:
    page = made()
    own = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    assert "http:" not in own and "https:" not in own
    assert 'http-equiv="Content-Security-Policy" content="default-src \'none\'' in page
    assert not re.search(r"<(?:script|link|img|iframe)[^>]+(?:src|href)=", own)


def test_names_are_escaped_everywhere() -> None:
    work = Work(1e9, 1e6, HOSTILE)
    page = made(H100.place(work), parts=[H100.place(work)], summary=HOSTILE)
    assert "<script>alert(1)" not in page
    assert page.count("</script>") == 2  # our two elements end, and nothing else does


def test_pictures() -> None:
    pytest.importorskip("matplotlib")
    place = H100.place(linear(4096, 64))
    png = roofline.picture(place, hidden=4096, tokens=64, form="png")
    svg = roofline.picture(place, hidden=4096, tokens=64, parts=[place], form="svg")
    assert png.startswith(b"\x89PNG") and b"<svg" in svg
    assert svg == roofline.picture(place, hidden=4096, tokens=64, parts=[place], form="svg")  # the same bytes again


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "roofline.html"
    path.write_text(made(), encoding="utf-8")
    return path


def value(page: Page, element: str) -> float:
    """The number a person reads in an element."""
    text = page.text(element).replace(",", "")
    return float(re.match(r"[\d.]+", text)[0])  # type: ignore[index]


def dot(page: Page, name: str) -> tuple[float, float, str]:
    """Where Plotly drew a dot, and with which symbol."""
    x, y, symbol = page.js(
        f"(() => {{ const t = document.getElementById('chart').data.find((d) => d.name === {name!r}); "
        "return [t.x[0], t.y[0], t.marker.symbol]; })()"
    )
    return float(x), float(y), str(symbol)


def test_the_page_in_a_real_browser_without_network(file: Path, tmp_path: Path) -> None:
    if browser() is None:
        pytest.skip("no Chromium on this machine (Debian: apt-get install chromium)")
    with open_page(file, tmp_path / "profile") as page:
        assert page.js("navigator.onLine") is False
        assert value(page, "value-ridge") == 295.2
        assert value(page, "layer-intensity") == pytest.approx(1.0, abs=0.001) and page.text("layer-limit") == "memory"
        assert page.text("layer-memory") == "10 µs"
        assert value(page, "value-crossover") == 345 and value(page, "value-crossover-weights") == 295
        assert page.js("document.getElementById('preset').selectedOptions[0].textContent") == "H100 SXM"
        axes = page.js(
            "(() => { const l = document.getElementById('chart').layout; return [l.xaxis.type, l.yaxis.type]; })()"
        )
        assert axes == ["log", "log"]
        x, y, symbol = dot(page, "linear layer")
        assert (x, symbol) == (pytest.approx(1.0, abs=1e-3), "circle") and y == pytest.approx(3.348, abs=1e-3)
        assert dot(page, "RMSNorm")[2] == "circle-open" and dot(page, "RMSNorm")[0] == 1

        before = value(page, "value-ridge")
        page.press("bandwidth", "ArrowLeft", 8)  # less bandwidth moves the ridge right
        assert value(page, "value-ridge") > before
        assert page.js("document.getElementById('chart').data[0].x[1]") > before
        assert page.js("document.getElementById('preset').selectedOptions[0].textContent") == "custom"

        before = value(page, "value-ridge")
        page.press("peak", "ArrowLeft", 8)  # a lower peak moves it left
        assert value(page, "value-ridge") < before

        page.press("tokens", "End", 1)
        assert value(page, "value-tokens") == 16384 and page.text("layer-limit") == "compute"
        assert value(page, "layer-intensity") == pytest.approx(16384 * 4096 / (4096 + 2 * 16384), abs=1)

        before = value(page, "layer-intensity")
        page.press("hidden", "ArrowRight", 10)
        assert value(page, "value-hidden") > 4096 and value(page, "layer-intensity") > before

        page.js(
            "(() => { const s = document.getElementById('preset'); "
            "s.value = [...s.options].find((o) => o.textContent === 'Jetson AGX Orin 64GB 15W').value; "
            "s.dispatchEvent(new Event('change')); })()"
        )
        orin = find("Jetson AGX Orin 64GB")
        mode = mode_of(orin, "15W")
        assert page.text("value-bandwidth") == "136.5 GB/s"
        assert value(page, "value-ridge") == pytest.approx(
            orin.peaks["bf16"] * mode.gpu_hz / 1301e6 * 3 / 8 / mode.bandwidth_bytes_s, abs=0.06
        )
        page.screenshot(tmp_path / "page.png")
        assert (tmp_path / "page.png").stat().st_size > 20_000
        assert page.requests == [] and page.errors == []
