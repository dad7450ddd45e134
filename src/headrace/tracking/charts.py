"""Curves as a picture in a notebook: our SVG, or that of matplotlib for who draws with it.

Matplotlib is never imported unless somebody asks for what is its own: it takes longer than the picture.
"""

from __future__ import annotations

import io
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from headrace.base.cards import card, picture
from headrace.base.errors import UnsupportedError
from headrace.base.words import plain

if TYPE_CHECKING:
    from headrace.tracking.curves import Axis, Curve


@dataclass(frozen=True, repr=False)
class Chart:
    """Curves of a run. A notebook shows them as a picture: by matplotlib, in the style that is set there, where
    `matplotlib.pyplot` is imported already; else by headrace itself. Any thread.
    """

    run: str
    curves: tuple[Curve, ...]
    x: Axis = "step"
    log: bool = False

    def __repr__(self) -> str:
        points = sum(one.total for one in self.curves)
        return f"<chart of {self.title}; {points:,} points>"

    @property
    def title(self) -> str:
        """For who does not see it."""
        return f"{self.run}: {', '.join(one.name for one in self.curves)}"

    @property
    def svg(self) -> str:
        """The picture by headrace, a whole SVG file."""
        from headrace.tracking.svg import alone, chart

        return alone(chart(self.curves, title=self.title, axis=self.x, log=self.log)).decode()

    def figure(self) -> Any:
        """A `matplotlib.figure.Figure` of its own, which `pyplot` does not keep. Raises UnsupportedError: matplotlib is
        not installed.
        """
        try:
            from matplotlib.figure import Figure
        except ImportError as error:
            raise UnsupportedError("matplotlib is not installed", hint="pip install matplotlib") from error
        figure = Figure(layout="constrained")
        self.draw(figure.subplots())
        return figure

    def draw(self, ax: Any) -> Any:
        """Draw the curves in `ax`, a `matplotlib.axes.Axes`, beside what is there; returns it. A curve of many points
        is the last value of each stretch, with a band from its least to its largest.
        """
        for one in self.curves:
            across = [datetime.fromtimestamp(x, UTC) for x in one.x] if self.x == "time" else one.x
            (line,) = ax.plot(across, _numbers(one.last), label=_label(f"{self.run}: {one.name}"))
            if not one.is_whole:
                low, high = _numbers(one.low), _numbers(one.high)
                ax.fill_between(across, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
        if self.log:
            ax.set_yscale("log")
        ax.set_xlabel(self.x)
        ax.legend()
        return ax

    def _repr_html_(self) -> str:
        if "matplotlib.pyplot" in sys.modules:
            out = io.BytesIO()
            self.figure().savefig(out, format="png")
            shown = picture(out.getvalue(), "image/png", self.title)
        else:
            shown = picture(self.svg.encode(), "image/svg+xml", self.title)
        return card(self.title, {}, pictures=[shown])


def _label(text: str) -> str:
    """As it is: a dollar would begin a formula."""
    return plain(text).replace("$", r"\$")


def _numbers(values: tuple[float | None, ...]) -> list[float]:
    """A line has a gap where a stretch has no finite value."""
    return [float("nan") if value is None else value for value in values]
