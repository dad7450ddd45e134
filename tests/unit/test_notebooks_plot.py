"""A chart of a run: by headrace without matplotlib, by matplotlib for who draws with it, in axes that are given."""

from __future__ import annotations

import os
import subprocess
import sys

import matplotlib as mpl
import pytest
from matplotlib.figure import Figure

from headrace.tracking.charts import Chart
from headrace.tracking.curves import Axis, Curve

ODD = "$\\frac{_<script>\x1b[31m\u202e"
ALONE = """
import sys
import headrace as hr
from headrace.tracking.charts import Chart
from headrace.tracking.curves import Curve

chart = Chart("one", (Curve("loss", (0.0, 1.0), (3.0, 2.0), (3.0, 2.0), (3.0, 2.0), (0, 0), 2, 2),))
assert "data:image/svg+xml" in chart._repr_html_() and "<svg" in chart.svg and repr(chart)
print(sorted(one for one in sys.modules if one.partition(".")[0] in ("matplotlib", "mpl_toolkits")))
import matplotlib.pyplot
print("data:image/png" in chart._repr_html_(), matplotlib.pyplot.get_fignums())
"""


def curve(name: str = "loss", *, whole: bool = True) -> Curve:
    low = (3.0, None, 1.0)
    return Curve(name, (0.0, 1.0, 2.0), low, (4.0, None, 2.0), (3.5, None, 1.5), (0, 1, 0), 3 if whole else 900, 900)


def test_matplotlib_draws_where_it_is_in_use_and_is_imported_for_nobody_else() -> None:
    environ = {**os.environ, "MPLBACKEND": "agg"}
    ended = subprocess.run(
        [sys.executable, "-c", ALONE], env=environ, capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.stdout.splitlines() == ["[]", "True []"], ended.stderr


@pytest.mark.parametrize("whole", [True, False])
def test_what_is_drawn_is_what_the_curve_holds(whole: bool) -> None:
    ax = Figure().subplots()
    ax.plot([0, 1], [0, 1], label="mine")
    chart = Chart("one", (curve(whole=whole), curve("acc", whole=whole)))
    assert chart.draw(ax) is ax
    assert [line.get_label() for line in ax.lines] == ["mine", "one: loss", "one: acc"]
    assert list(ax.lines[1].get_xdata()) == [0.0, 1.0, 2.0]
    drawn = list(ax.lines[1].get_ydata())
    assert (drawn[0], drawn[1] == drawn[1], drawn[2]) == (3.5, False, 1.5), "a gap where nothing is finite"
    assert len(ax.collections) == (0 if whole else 2), "a band where a stretch holds several points"
    assert chart.draw(Figure().subplots()).get_yscale() == "linear"


@pytest.mark.parametrize("x", ["step", "time"])
@pytest.mark.parametrize("log", [True, False])
@pytest.mark.filterwarnings("ignore:Glyph")
def test_a_figure_of_whatever_name_is_drawn(x: Axis, log: bool) -> None:
    figure = Chart("one", (curve(ODD), curve("_hidden")), x, log).figure()
    figure.canvas.draw()
    (ax,) = figure.axes
    assert len(ax.get_legend().get_texts()) == 2
    assert (ax.get_yscale(), ax.get_xlabel()) == ("log" if log else "linear", x)


def test_a_style_that_is_set_is_kept() -> None:
    with mpl.rc_context({"lines.linewidth": 7.0}):
        (ax,) = Chart("one", (curve(),)).figure().axes
    assert ax.lines[0].get_linewidth() == 7.0
