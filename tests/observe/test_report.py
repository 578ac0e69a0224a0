from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import ClassVar

import made_up
import pytest

from miles_core.errors import RequestError
from miles_core.observe.charts import Curve, line_chart, share_chart, ticks
from miles_core.observe.folder import RunFolder
from miles_core.observe.report import write_report

VOID = {"meta", "line", "circle", "rect", "polyline", "polygon", "br"}


class Outline(HTMLParser):
    """Collects classes, titles and text, and fails on tags that do not close."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tokens: list[tuple[str, str]] = []
        self.text: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag == "script":
            raise AssertionError("a script in the report")
        if tag == "span" and given.get("title"):
            self.tokens.append((given.get("class") or "", given["title"] or ""))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def outline(path: Path) -> Outline:
    parsed = Outline()
    parsed.feed(path.read_text())
    assert parsed.open == []
    return parsed


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return made_up.finished_run(tmp_path_factory.mktemp("runs"))


def test_the_report_is_one_self_contained_well_formed_page(run: RunFolder) -> None:
    page = write_report(run, decode=chr)
    parsed = outline(page)
    assert page == run.report
    assert parsed.links == []
    assert "url(" not in page.read_text()
    assert "$" not in "".join(parsed.text)


def test_it_says_before_and_after_with_the_paired_interval(run: RunFolder) -> None:
    text = " ".join("".join(outline(write_report(run, decode=chr)).text).split())
    assert "0.102 → 0.508 +0.406 [+0.320, +0.492]" in text
    assert "12 of 12" in text
    assert "over 128 held-out tasks; outside the noise" in text


def test_every_curve_that_has_data_is_there(run: RunFolder) -> None:
    html = write_report(run, decode=chr).read_text()
    titles = re.findall(r"<figcaption><h3>(.*?)</h3>", html)
    assert titles == ["Reward", "Evaluation", "Loss", "Mismatch", "Length", "Gradient norm", "Speed", "Time"]


def test_tokens_say_where_they_came_from(run: RunFolder) -> None:
    tokens = outline(write_report(run, decode=chr)).tokens
    masked = [tip for shade, tip in tokens if shade == "masked"]
    sampled = [tip for shade, tip in tokens if shade.startswith("p")]
    assert all("not sampled" in tip for tip in masked)
    for tip in sampled:
        assert re.search(
            r"token \d+\nposition \d+\nsampled\nlog-prob -\d+\.\d{4}\nprobability .*\nweights version \d+", tip
        )
    assert len(masked) == 5 * 60  # best, median, worst of the last step; one evaluation before and after
    assert len(sampled) == 19 + 16 + 12 + 2 * 12


def test_what_a_run_holds_is_escaped(run: RunFolder) -> None:
    html = write_report(run, decode=lambda token: "<script>alert(1)</script>&").read_text()
    assert "<script>" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt;&amp;" in html
    assert "'&lt;smollm2&gt; &amp; co'" in html or "&#x27;&lt;smollm2&gt; &amp; co&#x27;" in html


def test_without_a_decoder_tokens_are_shown_by_their_ids(run: RunFolder) -> None:
    text = "".join(outline(write_report(run, decode=None)).text)
    assert f"{ord('<')} {ord('|')} {ord('i')}" in text


def test_a_run_that_has_nothing_yet_has_a_report(tmp_path: Path) -> None:
    text = "".join(outline(write_report(RunFolder.create(tmp_path, "empty"), decode=None)).text)
    assert "No step has been trained yet." in text
    assert "No trajectories are stored." in text


def test_a_damaged_trajectory_file_is_an_error_that_names_it(tmp_path: Path) -> None:
    folder = made_up.finished_run(tmp_path, steps=2)
    path = folder.trajectories / "step-000001.parquet"
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(RequestError, match=r"step-000001\.parquet"):
        write_report(folder, decode=None)


class TestCharts:
    LINE: ClassVar = Curve("a", ((0, 1.0), (1, 2.0)))

    def test_ticks_are_round_and_inside(self) -> None:
        assert ticks(0, 1, 4) == [0, 0.5, 1.0]
        assert ticks(0.11, 0.42, 4) == [0.2, 0.3, 0.4]
        assert ticks(-3, 12, 6) == [0, 5, 10]

    def test_nothing_is_drawn_of_nothing(self) -> None:
        assert line_chart("t", "n", [Curve("a", ())]) == ""
        assert share_chart("t", "n", [Curve("a", ((0, 0.0),))]) == ""

    def test_a_single_point_and_a_constant_are_drawn(self) -> None:
        assert "<circle" in line_chart("t", "n", [Curve("a", ((3, 0.0),))])
        assert "nan" not in line_chart("t", "n", [Curve("a", tuple((x, 7.0) for x in range(5)))])

    def test_long_curves_are_thinned_and_say_so(self) -> None:
        svg = line_chart("t", "note", [Curve("a", tuple((float(x), float(x)) for x in range(5000)))])
        assert svg.count("<circle") <= 200
        assert "each point is the mean of 25 steps" in svg

    def test_higher_values_stand_higher(self) -> None:
        first, second = re.findall(r'cy="([\d.]+)"', line_chart("t", "n", [self.LINE]))
        assert float(first) > float(second)
