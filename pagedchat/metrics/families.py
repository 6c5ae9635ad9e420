"""Metric families with the labels that vLLM puts on all of them. Knows no figures."""

from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric

from pagedchat.metrics.histogram import Histogram

ENGINE = "0"
"""vLLM numbers its engines; here there is one."""
LABELS = ("model_name", "engine")


@dataclass(frozen=True, slots=True)
class Families:
    """Makes the families of one model."""

    model: str

    @property
    def _labels(self) -> list[str]:
        return [self.model, ENGINE]

    def gauge(self, name: str, text: str, value: float) -> Metric:
        """What goes up and down."""
        family = GaugeMetricFamily(name, text, labels=LABELS)
        family.add_metric(self._labels, value)
        return family

    def gauges(self, name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
        """The same, told apart by one more label."""
        family = GaugeMetricFamily(name, text, labels=[*LABELS, label])
        for key, value in values.items():
            family.add_metric([*self._labels, key], value)
        return family

    def counter(self, name: str, text: str, value: float) -> Metric:
        """What only goes up; `_total` is appended to its name."""
        family = CounterMetricFamily(name, text, labels=LABELS)
        family.add_metric(self._labels, value)
        return family

    def counters(self, name: str, text: str, label: str, values: Mapping[str, float]) -> Metric:
        """The same, told apart by one more label."""
        family = CounterMetricFamily(name, text, labels=[*LABELS, label])
        for key, value in values.items():
            family.add_metric([*self._labels, key], value)
        return family

    def histogram(self, name: str, text: str, histogram: Histogram) -> Metric:
        """How often which values occurred."""
        family = HistogramMetricFamily(name, text, labels=LABELS)
        family.add_metric(self._labels, [_bucket(*range_) for range_ in histogram.cumulative()], histogram.total)
        return family


def _bucket(bound: float, count: int) -> tuple[str, float]:
    return ("+Inf" if bound == float("inf") else str(bound), count)
