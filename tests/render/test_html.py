"""The HTML page: offline, escaped, complete, and golden without its script."""

from __future__ import annotations

import json
import re
import sys
from html.parser import HTMLParser

import pytest
from chromium import browser, open_page

from robot_perf import __version__
from robot_perf.errors import RobotPerfError
from robot_perf.render.html import report_html
from robot_perf.render.parts.figures import figures_of
from robot_perf.render.parts.glossary import GLOSSARY

pytest.importorskip("jinja2", reason="the extra `report` is not installed: jinja2")
pytest.importorskip("plotly", reason="the extra `report` is not installed: plotly")

SCRIPT = re.compile(r"<script(?P<kind>[^>]*)>(?P<body>.*?)</script>", re.DOTALL)


class Page(HTMLParser):
    """Tags, their attributes and the visible text of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.words.append(data)


@pytest.fixture(scope="module")
def pages(runs):
    names = ("pass", "fail", "inconclusive", "tight", "empty", "hostile")
    return {name: report_html([(f"runs/{name}.parquet", runs[name])]) for name in names}


@pytest.fixture(scope="module")
def bare(pages):
    """The pages without their scripts: what is there to read."""
    return {
        n: SCRIPT.sub("", html).replace(f"robot-perf {__version__}", "robot-perf VERSION") for n, html in pages.items()
    }


@pytest.mark.parametrize("name", ["fail", "inconclusive", "tight"])
def test_golden(name, bare, golden):
    golden(f"report_{name}.html", bare[name])


def test_the_page_asks_for_nothing(bare):
    for html in bare.values():
        page = Page(html)
        assert not [
            a for _, attributes in page.tags for a in attributes if a in ("src", "href", "action", "data", "background")
        ]
        assert "url(" not in html
        assert {tag for tag, _ in page.tags}.isdisjoint({"link", "iframe", "img", "object", "embed", "form", "base"})
        policy = next(a["content"] for tag, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
        assert policy.startswith("default-src 'none'")


def test_hostile_names_stay_text(pages, bare):
    html = pages["hostile"]
    assert "<script>alert(1)" not in html
    assert "&lt;/script&gt;&lt;script&gt;alert(1)" in html
    kinds = [match["kind"] for match in SCRIPT.finditer(html)]
    assert [k for k in kinds if "application/json" not in k] == ["", ""]  # plotly and the lines that call it
    assert "\x1b" not in bare["hostile"]
    attributes = [value or "" for _, a in Page(bare["hostile"]).tags for value in a.values()]
    assert not [value for value in attributes if "alert" in value or "evil" in value]


def test_figures_hold_numbers_and_our_own_words(runs):
    for _title, _words, figure in figures_of(runs["hostile"]):
        text = figure.to_json()
        assert "alert" not in text
        assert "evil" not in text


def test_figure_data_is_json(pages):
    bodies = [m["body"] for m in SCRIPT.finditer(pages["fail"]) if "application/json" in m["kind"]]
    assert len(bodies) == 3
    for body in bodies:
        assert "<" not in body
        assert {"data", "layout"} <= set(json.loads(body))


def test_the_page_defines_its_words_and_says_where_it_never_ran(bare):
    words = " ".join(Page(bare["pass"]).words)
    for word, text in GLOSSARY:
        assert word in words
        assert text.split(";")[0] in words
    assert "never run on a Jetson" in words


def test_every_number_of_the_text_report_is_in_the_page(bare, runs):
    from robot_perf.analyze.summary import summarize
    from robot_perf.render.cells import main_rows, number

    words = " ".join(Page(bare["fail"]).words)
    for row in main_rows(summarize(runs["fail"])):
        for quantile in row.data.quantiles:
            assert quantile.value is None or number(quantile.value, row.unit) in words


def test_conditions_are_all_there(bare, runs):
    words = " ".join(Page(bare["pass"]).words)
    for fact in (
        "host.kernel",
        "6.8.0-45-generic",
        "loop.overrun",
        "budget.miss_rate",
        "policy.sha256",
        "backend.name",
    ):
        assert fact in words
    assert runs["pass"].conditions["host"]["unread"]["device_tree_model"] in words


def test_a_run_without_steps_has_a_page_without_figures(pages):
    html = pages["empty"]
    assert "there is nothing to draw" in html
    assert len(html) < 200_000


def test_several_runs_share_one_script(runs):
    html = report_html([("a.parquet", runs["pass"]), ("b.parquet", runs["fail"])])
    assert html.count("<section>") == 2
    ids = re.findall(r'id="(plot-[^"]+)"', html)
    assert len(ids) == len(set(ids)) == 6
    assert len(html) < 12_000_000


@pytest.mark.slow
@pytest.mark.skipif(browser() is None, reason="no Chromium on this machine")
def test_a_browser_without_network_draws_the_page(pages, tmp_path):
    file = tmp_path / "report.html"
    file.write_text(pages["hostile"], encoding="utf-8")
    with open_page(file, tmp_path / "profile") as page:
        assert (
            page.js(
                "document.querySelectorAll('.plot .main-svg').length > 0 && document.querySelectorAll('.plot').length"
            )
            == 3
        )
        assert page.js("Array.from(document.querySelectorAll('.plot')).every(p => p.data.length > 0)") is True
        assert page.requests == []
        assert page.errors == []


@pytest.mark.parametrize("module", ["jinja2", "plotly.offline"])
def test_an_absent_extra_is_named_with_its_install_line(module, runs, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(RobotPerfError, match=re.escape("pip install 'robot_perf[report]'")) as caught:
        report_html([("x", runs["pass"])])
    assert module.split(".")[0] in str(caught.value)
    assert caught.value.exit_code == 2
