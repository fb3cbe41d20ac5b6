"""Charts are SVG of this package's own: well-formed, with alternative texts, and marks where the numbers are."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from meta.pictures import Picture, areas, bars, bytes_text, curves

SVG = "{http://www.w3.org/2000/svg}"


def parsed(picture: Picture) -> ElementTree.Element:
    root = ElementTree.fromstring(picture)
    assert root.get("role") == "img"
    assert root.get("aria-label") == root.findtext(f"{SVG}title")
    return root


def test_bars_are_as_long_as_their_values() -> None:
    root = parsed(bars("a < b & c", [("first", 4.0, "4 us"), ("second", 1.0, "1 us"), ("x" * 80, 0.0, "")]))
    assert root.get("aria-label") == "a < b & c"
    lengths = [float(bar.get("width", "")) for bar in root.iter(f"{SVG}rect")]
    assert lengths[0] == pytest.approx(4 * lengths[1])
    assert lengths[2] == 0
    assert all(len(text.text or "") < 80 for text in root.iter(f"{SVG}text"))


def test_curves_share_their_axes() -> None:
    root = parsed(curves("loss", {"train": [4.0, 2.0, 0.0], "test": [4.0, 3.0]}))
    lines = [line.get("points", "").split() for line in root.iter(f"{SVG}polyline") if line.get("stroke")]
    assert [len(points) for points in lines] == [3, 2]
    assert lines[0][0] == lines[1][0]
    (x0, y0), (x1, y1), (x2, y2) = (map(float, point.split(",")) for point in lines[0])
    assert x1 - x0 == pytest.approx(x2 - x1)
    assert y1 - y0 == pytest.approx(y2 - y1)
    assert y2 > y0
    assert {"train", "test"} <= {text.text for text in root.iter(f"{SVG}text")}


def test_areas_are_on_top_of_each_other() -> None:
    root = parsed(areas("memory", {"low": [1024.0] * 2, "high": [0.0, 3072.0]}, 1, 8192.0, ["note", "of 4.0 KiB"]))
    low, high = (
        [tuple(map(float, p.split(","))) for p in a.get("points", "").split()] for a in root.iter(f"{SVG}polygon")
    )
    assert low[:4] == list(reversed(high[4:]))
    assert (low[4][1] - low[0][1]) * 4 == pytest.approx(low[4][1] - high[2][1], abs=0.1)
    shown = [text.text for text in root.iter(f"{SVG}text")]
    assert {"peak 4.0 KiB", "reserved 8.0 KiB", "note", "of 4.0 KiB", "0 bytes"} <= set(shown)


@pytest.mark.parametrize("picture", [bars("none", []), curves("none", {}), areas("none", {}, 0, 0.0, [])])
def test_pictures_of_nothing(picture: Picture) -> None:
    assert parsed(picture).get("aria-label") == "none"


def test_bytes_in_units() -> None:
    texts = [bytes_text(count) for count in (0, 1000, 1536, 5 * 2**20, 3.5 * 2**30)]
    assert texts == ["0 bytes", "1000 bytes", "1.5 KiB", "5.0 MiB", "3.5 GiB"]
