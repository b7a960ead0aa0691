"""The benchmark that holds a commit against another: its figures are ratios of each round."""

from benchmarks.compare import Measured, compared


def test_the_figures_are_medians_of_the_ratios_of_each_round() -> None:
    before = Measured(rates=[100.0, 50.0, 200.0], processor=[1.0, 2.0, 0.5])
    now = Measured(rates=[200.0, 50.0, 300.0], processor=[0.5, 2.0, 0.4])

    rate, processor = compared("/context", before, now)

    assert (rate.what, rate.value) == ("/context: rate", 1.5)
    assert (processor.what, processor.value) == ("/context: processor time", 0.8)
    assert rate.beside == "200 a second against 100"
    assert processor.beside == "0.500 ms each against 1.000"
