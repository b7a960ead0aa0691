"""What an operator watches: the dashboard and the alerts ask for what the service measures."""

import re

from agentops_memory.telemetry.metrics import Kind

from ..support.manifests import (
    ALERTS,
    DEPLOY,
    LABELS,
    ROOT,
    SELECTOR,
    alerts,
    dashboard,
    manifest,
    panels,
    queries,
    query_of,
)
from ..support.measures import MEASURES, series

RULES = DEPLOY / "components" / "monitoring" / "rules.yaml"
DOCUMENT = ROOT / "docs" / "deployment.md"
UNITS = {"none", "short", "bytes", "s", "percentunit", "reqps", "ops"}


def test_queries_ask_for_all_that_the_service_measures_and_nothing_else() -> None:
    known, shown = series(), set[str]()
    for name, expression in queries():
        query = query_of(expression)

        assert query.metrics, name
        shown |= {re.sub("_(bucket|sum|count)$", "", metric) for metric in query.metrics}
        assert [metric for metric in query.metrics if metric not in known] == [], name
        for metric, labels in query.metrics.items():
            assert labels <= known[metric] | LABELS, (name, metric)
        assert query.grouping <= LABELS.union(*(known[each] for each in query.metrics)), name
    assert {re.sub("_(bucket|sum|count)$", "", name) for name in known} == shown


def test_a_function_fits_the_measure_that_it_is_given() -> None:
    histograms = {name for name, (kind, _) in MEASURES.items() if kind is Kind.HISTOGRAM}
    for name, expression in queries():
        for function, metric in re.findall(r"\b(\w+)\(([a-z_]+)(?:\{[^}]*\})?\[", expression):
            of_a_histogram = re.sub("_(bucket|sum|count)$", "", metric) in histograms
            is_counted = metric.endswith("_total") or of_a_histogram
            assert (function in {"rate", "increase"}) is is_counted, (name, function, metric)
        quantiles = expression.count("histogram_quantile(")
        assert quantiles == len(re.findall(r"by \([^)]*\ble\)", expression)), name
        assert quantiles == len(re.findall(r"_bucket\b", expression)), name


def test_the_dashboard_chooses_by_source_and_leads_from_latencies_to_traces() -> None:
    ids = [panel["id"] for panel in dashboard()["panels"]]
    assert len(set(ids)) == len(ids)
    for words in ("title", "description"):
        texts = [panel[words] for panel in panels()]
        assert all(texts)
        assert len(set(texts)) == len(texts)

    variables = dashboard()["templating"]["list"]

    assert [each["name"] for each in variables] == ["datasource", "namespace", "job", "instance"]
    assert {each["allValue"] for each in variables[1:]} == {".*"}  # also those without the label

    with_exemplars = {
        panel["title"]
        for panel in panels()
        if any(each.get("exemplar") for each in panel["targets"])
    }

    assert with_exemplars == {"Seconds of /context", "Commit duration"}


def test_every_panel_asks_the_chosen_source_about_the_chosen_services() -> None:
    source = {"type": "prometheus", "uid": "${datasource}"}
    for panel in panels():
        assert panel["datasource"] == source
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS
        references = [target["refId"] for target in panel["targets"]]
        assert len(set(references)) == len(references)
        for target in panel["targets"]:
            assert target["datasource"] == source
            selectors = SELECTOR.findall(target["expr"])
            assert selectors
            for _, matchers in selectors:
                assert 'namespace=~"$namespace", job=~"$job", instance=~"$instance"' in matchers


def test_each_alert_says_how_grave_it_is_what_it_means_and_where_to_read_on() -> None:
    anchors = re.findall(r'<a id="([^"]*)"></a>`(\w+)`', DOCUMENT.read_text("utf-8"))
    described = {name: anchor for anchor, name in anchors}

    assert len({alert["alert"] for alert in alerts()}) == len(alerts()) == len(anchors)
    for alert in alerts():
        words = alert["annotations"]
        assert alert["labels"]["severity"] in {"critical", "warning"}
        assert words["summary"].endswith(".")
        assert len(words["description"]) > 100
        assert words["runbook"] == f"docs/deployment.md#{described[alert['alert']]}"


def test_each_alert_is_documented_tested_and_given_to_the_operator() -> None:
    rows = re.findall(r"`(Agentops\w+)` \| (\w+) \|", DOCUMENT.read_text("utf-8"))

    assert rows == [(alert["alert"], alert["labels"]["severity"]) for alert in alerts()]

    text = ALERTS.with_name("alerts.test.yaml").read_text("utf-8")

    assert [alert["alert"] for alert in alerts() if alert["alert"] not in text] == []

    rule = manifest(RULES)

    assert (rule["kind"], rule["spec"]) == ("PrometheusRule", manifest(ALERTS))

    (job,) = manifest(DEPLOY / "prometheus" / "prometheus.yaml")["scrape_configs"]
    asked = {name for alert in alerts() for name in re.findall(r'job="([^"]*)"', alert["expr"])}

    assert asked == {job["job_name"]}
