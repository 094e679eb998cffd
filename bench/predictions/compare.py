"""Predicted beside measured, and whether the difference is chance.

The simulator runs each set-up with 20 seeds; the real run is one more draw. Were the model right, the difference of that draw and
the mean of the others, over their standard deviation times sqrt(1 + 1/20), has Student's t distribution with 19 degrees of
freedom (for a metric that is about normal over runs, as means, shares and quantiles of thousands of requests are). The *spread* is
the mean ± T of these: a right model falls outside by chance once in ten thousand comparisons.
"""

import math
from dataclasses import dataclass

from .forecast import Forecast

# Two-sided, 1e-4, 19 degrees of freedom.
T = 4.90
# Of the prediction.
TOLERANCE = 0.10


@dataclass(frozen=True)
class Row:
    """One metric of one set-up."""

    setup: str
    metric: str
    predicted: float
    deviation: float
    measured: float
    seeds: int
    t: float = T

    @property
    def ratio(self) -> float | None:
        """Measured over predicted; None for a prediction of nothing."""
        return self.measured / self.predicted if self.predicted else None

    @property
    def spread(self) -> float:
        """Largest difference that is chance."""
        return self.t * self.deviation * math.sqrt(1 + 1 / self.seeds)

    @property
    def is_in_spread(self) -> bool:
        return abs(self.measured - self.predicted) <= self.spread + 1e-9

    @property
    def is_close(self) -> bool:
        return abs(self.measured - self.predicted) <= TOLERANCE * self.predicted

    @property
    def holds(self) -> bool:
        return self.is_close or self.is_in_spread

    @classmethod
    def of(cls, setup: str, metric: str, forecast: Forecast, measured: float, t: float = T) -> "Row":
        return cls(setup, metric, forecast.mean, forecast.deviation, measured, len(forecast.values), t)


def rows(setup: str, forecasts: dict[str, Forecast], measured: dict[str, float], t: float = T) -> list[Row]:
    return [Row.of(setup, name, forecast, measured[name], t) for name, forecast in forecasts.items()]
