"""Alert rules and dashboard of contrib/: by the tables of the documentation, by promtool, and by Prometheus with a real fleet."""

import copy
import json
import re
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import yaml

from harness.fleet import Fleet, Proxy, QuotaServer, config, http
from harness.pages import ROOT, anchors
from harness.process import Process, find_program, free_port, run, wait_until
from harness.promql import Selector, parse

PROMETHEUS = ROOT / "contrib" / "prometheus"
RULES = PROMETHEUS / "alerts.yml"
RULE_TESTS = PROMETHEUS / "alerts_test.yml"
DASHBOARD = ROOT / "contrib" / "grafana" / "plimsoll.json"
PAGE = ROOT / "docs" / "monitoring.md"

# Labels that Prometheus adds to each series.
TARGET = {"instance", "job"}
# Metrics of Prometheus itself.
OWN = {"up": ("gauge", set())}


def documented() -> dict[str, tuple[str, set[str]]]:
    """Kind and labels of each metric, by the tables of the documentation."""
    found = dict(OWN)
    for page in ("metrics", "quotas"):
        text = (ROOT / "docs" / f"{page}.md").read_text()
        for name, kind, labels in re.findall(r"^\| `(plimsoll_\w+)` \| (\w+) \| ([^|]*)\|", text, re.MULTILINE):
            known = set(re.findall(r"`(\w+)`", labels))
            if kind == "histogram":
                found |= {f"{name}_bucket": (kind, known | {"le"}), f"{name}_sum": (kind, known), f"{name}_count": (kind, known)}
            else:
                found[name] = (kind, known)
    return found


METRICS = documented()


def problems(expression: str, shown: str = "") -> list[str]:
    """Metrics that are not documented, and labels that they do not have. `shown` has labels of the answer as `{{name}}`."""
    query, found = parse(expression), []
    for selector in query.selectors:
        if selector.metric not in METRICS:
            found.append(f"{selector.metric} is not in docs/metrics.md or docs/quotas.md")
            continue
        kind, labels = METRICS[selector.metric]
        if (kind != "gauge") != selector.is_range:
            found.append(f"{selector.metric} is a {kind}: counters, and no gauges, have a range")
        for label, _, _ in selector.matchers:
            if label not in labels | TARGET:
                found.append(f"{selector.metric} has no label {label}")
    if found:
        return found
    for grouping in query.groupings:
        for selector in grouping.selectors:
            for label in set(grouping.labels) - METRICS[selector.metric][1] - TARGET:
                found.append(f"{grouping.word} ({label}): {selector.metric} has no label {label}")
    every = set.intersection(*(METRICS[selector.metric][1] | TARGET for selector in query.selectors))
    answer = query.grouped("by") or every - query.grouped("without")
    for label in re.findall(r"\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}", shown.replace("$value", "")):
        if label not in answer:
            found.append(f"{{{{{label}}}}} is no label of the answer")
    return found


def alerts() -> list[dict]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def annotation_queries(alert: dict) -> list[str]:
    """Queries in the templates of an alert, with any string for each `%q`."""
    quoted = re.findall(r'printf "((?:[^"\\]|\\.)*plimsoll(?:[^"\\]|\\.)*)"', alert["annotations"]["description"])
    return [text.replace('\\"', '"').replace("%q", '"x"') for text in quoted]


def dashboard() -> dict:
    return json.loads(DASHBOARD.read_text())


def panels(kind: str | None = None) -> list[dict]:
    every = [panel for panel in dashboard()["panels"] if panel["type"] != "row"]
    return [panel for panel in every if kind in (None, panel["type"])]


def dashboard_queries() -> list[tuple[str, str, str]]:
    """Title, expression and legend of every query of the dashboard."""
    found = [(panel["title"], target["expr"], target["legendFormat"]) for panel in panels() for target in panel["targets"]]
    events = dashboard()["annotations"]["list"]
    return found + [(event["name"], event["expr"], event["titleFormat"]) for event in events if "expr" in event]


# Names and labels


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert["alert"])
def test_alert_has_documented_metrics_and_labels(alert: dict) -> None:
    shown = " ".join(re.findall(r"\{\{\s*\$labels\.\w+\s*\}\}", json.dumps(alert["annotations"])))
    assert problems(alert["expr"], shown) == []
    for query in annotation_queries(alert):
        assert problems(query) == [], query


def test_dashboard_has_documented_metrics_and_labels() -> None:
    queries = dashboard_queries()
    assert len(queries) > 60, "the queries were not found"
    found = [f"{title}: {problem}" for title, expr, legend in queries for problem in problems(expr, "" if "is in" in legend else legend)]
    assert not found, "\n".join(found)
    for variable in dashboard()["templating"]["list"]:
        if variable["type"] == "query":
            selector, label = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["definition"]).groups()
            assert problems(selector, f"{{{{{label}}}}}") == [], variable["name"]


@pytest.mark.parametrize(
    ("expression", "shown", "problem"),
    [
        ("plimsoll_unknown > 0", "", "is not in docs"),
        ('plimsoll_pressure_level{cluster="x"}', "", "has no label cluster"),
        ("sum by (backend) (plimsoll_panics_total)", "", "have a range"),
        ("rate(plimsoll_pressure_level[1m])", "", "have a range"),
        ("sum by (backend) (rate(plimsoll_panics_total[1m]))", "", "by (backend): plimsoll_panics_total has no label backend"),
        ("max(sum without (state) (plimsoll_ready) / 2)", "", "without (state): plimsoll_ready has no label state"),
        ("sum by (le) (rate(plimsoll_latency_seconds_sum[1m]))", "", "by (le)"),
        ("sum by (state) (plimsoll_backend_state)", "{{backend}}", "{{backend}} is no label of the answer"),
        ("sum without (state) (plimsoll_backend_state)", "{{ $labels.state }}", "{{state}} is no label of the answer"),
        ("plimsoll_quota_cut", "{{ $labels.cluster }}", "{{cluster}} is no label of the answer"),
    ],
)
def test_wrong_names_and_labels_are_found(expression: str, shown: str, problem: str) -> None:
    assert any(problem in found for found in problems(expression, shown)), problems(expression, shown)


def test_labels_of_every_answer_are_accepted_by_the_check() -> None:
    assert problems('sum by (cluster, le) (rate(plimsoll_latency_seconds_bucket{instance=~"$instance"}[$__rate_interval]))', "{{cluster}}") == []
    assert problems("sum without (backend, state) (plimsoll_backend_state) == 0 or plimsoll_known_backends == 0", "{{ $labels.cluster }}") == []


# Rules


def promtool(*arguments: str) -> str:
    done = run([find_program("promtool"), *arguments])
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_promtool_accepts_the_rules() -> None:
    assert f"{len(alerts())} rules found" in promtool("check", "rules", str(RULES))


def test_alerts_fire_and_stay_silent_as_in_their_tests() -> None:
    promtool("test", "rules", str(RULE_TESTS))


def test_every_alert_has_a_test_that_fires_and_ones_that_stay_silent() -> None:
    groups = yaml.safe_load(RULE_TESTS.read_text())["tests"]
    healthy = {test["alertname"] for group in groups if "healthy" in group["name"] for test in group["alert_rule_test"]}
    names = {alert["alert"] for alert in alerts()}
    assert healthy >= names, f"not in the healthy system: {names - healthy}"
    for alert in alerts():
        tests = [test for group in groups for test in group["alert_rule_test"] if test["alertname"] == alert["alert"]]
        # `for` is known to work: just before it, with the same series, there is no alert.
        assert [test for test in tests if test["exp_alerts"]], f"{alert['alert']} never fires"
        assert len([test for test in tests if not test["exp_alerts"]]) > 3, f"{alert['alert']} has only healthy cases"


def test_rule_tests_notice_a_changed_rule(tmp_path) -> None:
    changed = copy.deepcopy(yaml.safe_load(RULES.read_text()))
    next(rule for group in changed["groups"] for rule in group["rules"] if rule["alert"] == "PlimsollSpreadHigh")["for"] = "5m"
    (tmp_path / "alerts.yml").write_text(yaml.safe_dump(changed))
    (tmp_path / "alerts_test.yml").write_text(RULE_TESTS.read_text())
    done = run([find_program("promtool"), "test", "rules", str(tmp_path / "alerts_test.yml")])
    assert done.returncode == 1 and "PlimsollSpreadHigh" in done.stdout + done.stderr


@pytest.mark.parametrize("alert", alerts(), ids=lambda alert: alert["alert"])
def test_alert_has_a_severity_texts_and_a_row_in_its_runbook(alert: dict) -> None:
    assert alert["labels"]["severity"] in ("page", "ticket", "info")
    annotations = alert["annotations"]
    assert annotations["summary"] and annotations["description"].endswith((".", "{{ end }}")), annotations
    page, anchor = annotations["runbook_url"].split("#")
    assert ROOT / page == PAGE and anchor in anchors(PAGE), annotations["runbook_url"]
    sections = re.split(r"^#+ ", PAGE.read_text(), flags=re.MULTILINE)
    (section,) = [text for text in sections if text.lower().split("\n")[0].replace(" ", "-") == anchor]
    assert f"| `{alert['alert']}` | {alert['labels']['severity']} |" in section


def test_page_lists_no_alert_that_is_not_there() -> None:
    assert set(re.findall(r"^\| `(Plimsoll\w+)`", PAGE.read_text(), re.MULTILINE)) == {alert["alert"] for alert in alerts()}


# Dashboard


def test_dashboard_has_current_panels_with_units_and_descriptions() -> None:
    ids = [panel["id"] for panel in dashboard()["panels"]]
    assert len(ids) == len(set(ids)) and all(isinstance(number, int) for number in ids)
    for panel in panels():
        title = panel["title"]
        assert panel["type"] in ("timeseries", "stat", "state-timeline", "table", "bargauge"), title
        assert len(panel["description"]) > 20 and panel["description"].endswith("."), title
        assert panel["fieldConfig"]["defaults"]["unit"], title
        steps = panel["fieldConfig"]["defaults"]["thresholds"]["steps"]
        assert steps[0]["value"] is None and [step["value"] for step in steps[1:]] == sorted(step["value"] for step in steps[1:]), title
        references = [target["refId"] for target in panel["targets"]]
        assert references and len(references) == len(set(references)), title
    rows = [panel["title"] for panel in dashboard()["panels"] if panel["type"] == "row"]
    assert rows == ["Verdict", "Asked for and admitted", "Backends", "Customers", "Throttled, retries, hedges", "Batch", "Quota", "The process"]


def test_panels_of_the_dashboard_do_not_overlap() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in dashboard()["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24, panel["title"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert taken.setdefault((x, y), panel["title"]) == panel["title"], f"{panel['title']} covers {taken[x, y]}"


def test_dashboard_belongs_to_no_data_source() -> None:
    def sources(value: object) -> Iterator[dict]:
        if isinstance(value, dict):
            if "datasource" in value:
                yield value["datasource"]
            value = list(value.values())
        if isinstance(value, list):
            for each in value:
                yield from sources(each)

    found = list(sources(dashboard()))
    # Annotations of Grafana itself have a source of this fixed name.
    assert {source["uid"] for source in found} == {"${datasource}", "-- Grafana --"} and len(found) > 100
    variables = {variable["name"]: variable["type"] for variable in dashboard()["templating"]["list"]}
    assert variables == {"datasource": "datasource", "cluster": "query", "instance": "query", "service": "query"}
    assert dashboard()["id"] is None
    used = set(re.findall(r"\$(\w+)", " ".join(expr for _, expr, _ in dashboard_queries())))
    assert used == {"cluster", "instance", "service", "__rate_interval"}


def test_legend_of_the_capacity_names_a_line_that_is_drawn() -> None:
    for panel in panels("timeseries"):
        fixed = {target["legendFormat"] for target in panel["targets"] if "{{" not in target["legendFormat"]}
        lines = {
            override["matcher"]["options"]
            for override in panel["fieldConfig"]["overrides"]
            if any(item["id"] == "custom.lineStyle" for item in override["properties"])
        }
        assert lines <= fixed, panel["title"]


# A real fleet under a real Prometheus


@dataclass
class Scene:
    """Prometheus with these rules, and the processes that it scrapes each second."""

    port: int
    overloaded: Proxy
    idle: Proxy
    broken: list[Proxy]
    quota: QuotaServer

    def get(self, path: str, **arguments: str) -> dict:
        status, text = http(f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(arguments)}")
        answer = json.loads(text)
        assert status == 200 and answer["status"] == "success", f"{arguments}: {text}"
        return answer["data"]

    def query(self, expression: str) -> list[dict]:
        return self.get("query", query=expression)["result"]

    def active(self, server: Proxy | QuotaServer) -> set[str]:
        """The alerts of a process, pending or firing."""
        return {row["metric"]["alertname"] for row in self.query(f'ALERTS{{instance="127.0.0.1:{server.admin.port}"}}')}


QUOTA = """
listen = "127.0.0.1:{port}"
[admin]
listen = "127.0.0.1:{admin}"
[services.default.groups.free]
hard_limit = 10
[services.default.customers.acme]
hard_limit = 0.1
group = "free"
"""


@pytest.fixture(scope="module")
def scene(module_fleet: Fleet) -> Scene:
    fleet = module_fleet
    users = 'trust_criticality = "critical-plus"\ncustomer_header = "x-customer"'
    # At most a hundred requests a second, of three hundred.
    served = fleet.backend("--cost", "fixed:2ms")
    gate = f"[clusters.main.inbound]\npid = {served.pid}\ncpus = 0.2\n"
    overloaded = fleet.proxy([served.address], listener=users, further=gate)
    overloaded.admin.wait_for_healthy(1)
    quiet = fleet.backend()
    batch = f"""
[clusters.main.inbound]
pid = {quiet.pid}
cpus = 1

[clusters.jobs]
backends = ["{quiet.address}"]

[[routes]]
path_prefix = "/jobs"
listeners = ["jobs"]
cluster = "jobs"

[[listeners]]
address = "127.0.0.1:{free_port()}"
name = "jobs"
[listeners.batch]
max_active = 8

[clusters.jobs.probes]
"""
    port, admin_port = free_port(), free_port()
    text = config(port, admin_port, [quiet.address], listener='name = "users"', further=batch)
    idle = fleet.proxy_with(text.replace('[[routes]]\n', '[[routes]]\nlisteners = ["users"]\n', 1), port, admin_port)
    nobody = [f"127.0.0.1:{free_port()}" for _ in range(3)]
    broken = []
    for setting in ("all", "aggregate"):
        ports = free_port(), free_port()
        text = f"""
            [admin]
            listen = "127.0.0.1:{ports[1]}"
            backend_metrics = "{setting}"
            [[listeners]]
            address = "127.0.0.1:{ports[0]}"
            [[routes]]
            cluster = "main"
            [clusters.main]
            backends = {json.dumps(nobody)}
        """
        broken.append(fleet.proxy_with(text, *ports))
    server, _ = fleet.quota_with(lambda port, admin: QUOTA.format(port=port, admin=admin))
    task = fleet.backend("--emulate", "fcfs", "--cost", "fixed:2ms", "--protect", "--quota", server.address)
    server.wait_for_tasks(1, seconds=30)
    mix = ["--criticality", "critical=4,sheddable=1", "--customers", "acme=1,web=1"]
    fleet.load(f"{overloaded.url}/", "--rate", "300", "--duration", "100s", *mix)
    fleet.load(f"http://{task.address}/", "--rate", "150", "--duration", "100s", "--customers", "acme=1")

    port, home = free_port(), fleet.directory / "prometheus"
    home.mkdir()
    proxies = [f"127.0.0.1:{proxy.admin.port}" for proxy in (overloaded, idle, *broken)]
    settings = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [
            {"job_name": "plimsoll", "static_configs": [{"targets": proxies}]},
            {"job_name": "plimsoll-quota", "static_configs": [{"targets": [f"127.0.0.1:{server.admin.port}"]}]},
        ],
    }
    (home / "prometheus.yml").write_text(yaml.safe_dump(settings))
    arguments = [f"--config.file={home}/prometheus.yml", f"--storage.tsdb.path={home}/data", f"--web.listen-address=127.0.0.1:{port}"]
    fleet.processes.append(Process("prometheus", [find_program("prometheus"), *arguments], fleet.directory))
    fleet.processes[-1].wait_for_port(port, 20)
    wait_until("Prometheus is ready", lambda: http(f"http://127.0.0.1:{port}/-/ready")[0] == 200, 20)
    scene = Scene(port, overloaded, idle, broken, server)
    wait_until("all are scraped", lambda: len(scene.query("up == 1")) == 5, 20, every=0.5)
    # Rates need two scrapes, a rule one evaluation.
    wait_until("rates are known", lambda: scene.query("rate(plimsoll_requests_total[1m]) > 0"), 20, every=0.5)
    return scene


@pytest.mark.alone
def test_users_affected_is_active_for_an_overloaded_service_only(scene: Scene) -> None:
    wait_until("the alert", lambda: "PlimsollUsersAffected" in scene.active(scene.overloaded), 45, every=0.5)
    (rule,) = [rule for rule in alerts() if rule["alert"] == "PlimsollUsersAffected"]
    rows = scene.query(rule["expr"])
    assert [row["metric"]["instance"] for row in rows] == [f"127.0.0.1:{scene.overloaded.admin.port}"]

    def description() -> str:
        (alert,) = [alert for alert in scene.get("alerts")["alerts"] if alert["labels"]["alertname"] == "PlimsollUsersAffected"]
        return alert["annotations"]["description"]

    # Its rates need a second scrape of the overload.
    wait_until("the figures", lambda: re.search(r"It shed [\d.]+% of them in five minutes\. Requests ask for \d", description()), 20, every=0.5)
    assert "The process can use 0.20." in description()


@pytest.mark.alone
def test_idle_proxy_has_no_alert_not_even_a_pending_one(scene: Scene) -> None:
    assert scene.query(f'plimsoll_throttling_verdict{{verdict="fine",instance="127.0.0.1:{scene.idle.admin.port}"}} == 1')
    assert scene.active(scene.idle) == set()


@pytest.mark.alone
def test_lack_of_backends_is_active_for_both_settings_of_backend_metrics(scene: Scene) -> None:
    # A proxy is ready once a backend has been healthy.
    expected = {"PlimsollNoHealthyBackend", "PlimsollNotReady"}
    wait_until("the alerts", lambda: all(scene.active(proxy) == expected for proxy in scene.broken), 20, every=0.5)


@pytest.mark.alone
def test_customer_at_its_limit_is_pending(scene: Scene) -> None:
    wait_until("the alert", lambda: "PlimsollQuotaCustomerCut" in scene.active(scene.quota), 20, every=0.5)
    # A server that has just started is not sure of its tasks for the time of a lease.
    assert scene.active(scene.quota) <= {"PlimsollQuotaCustomerCut", "PlimsollQuotaUnsure"}


@pytest.mark.alone
def test_prometheus_evaluates_every_rule(scene: Scene) -> None:
    rules = [rule for group in scene.get("rules")["groups"] for rule in group["rules"]]
    assert len(rules) == len(alerts())
    assert [rule for rule in rules if rule["health"] != "ok"] == []


# Series that appear with their first event, or only in set-ups that the scene does not have.
EVENTS = {
    "plimsoll_retries_total",
    "plimsoll_inbound_enough_cpus",
    "plimsoll_locality_requests_total",
    "plimsoll_locality_room_qps",
    "plimsoll_spill_shed_requests_total",
    "plimsoll_batch_utilization_ratio",
    "plimsoll_quota_group_cut",
    "plimsoll_quota_failed_handshakes_total",
    "plimsoll_certificate_expiry_timestamp_seconds",
    "plimsoll_quota_certificate_expiry_timestamp_seconds",
}


def real(selector: Selector) -> list[str]:
    """Queries that have an answer if the values of the labels are those of real series: one for each word of an alternation."""
    if selector.metric in EVENTS:
        return []
    found = [selector.metric]
    for label, _, value in selector.matchers:
        # Not variables, the placeholder of a template, a name that is there at all, and the jobs.
        if "$" not in value and value not in ('"x"', '""', '"plimsoll.*"'):
            found += [f'{selector.metric}{{{label}="{word}"}}' for word in value.strip('"').split("|")]
    return found


@pytest.mark.alone
def test_every_value_in_a_selector_is_one_of_real_series(scene: Scene) -> None:
    expressions = [alert["expr"] for alert in alerts()] + [query for alert in alerts() for query in annotation_queries(alert)]
    expressions += [expr for _, expr, _ in dashboard_queries()]
    queries = {query for expr in expressions for selector in parse(expr).selectors for query in real(selector)}
    assert len(queries) > 80, "the selectors were not found"
    missing = [query for query in sorted(queries) if not scene.query(query)]
    assert not missing, "no such series:\n" + "\n".join(missing)
    assert not scene.query('plimsoll_throttling_verdict{verdict="user-affected"}'), "a wrong value has no series"


@pytest.mark.alone
def test_prometheus_answers_every_query_of_the_dashboard(scene: Scene) -> None:
    empty = set()
    for title, expr, _ in dashboard_queries():
        for name, value in {"$__rate_interval": "30s", "$cluster": ".*", "$instance": ".*", "$service": ".*"}.items():
            expr = expr.replace(name, value)
        if not scene.query(expr):
            empty.add(title)
    # Those without an answer have nothing to show in this scene.
    absent = {"Capacity and enough CPUs", "Retries", "Requests by locality", "Not sent", "Cut", "Reloads", "Utilization that sets the credit"}
    absent |= {"Time until certificates expire"}
    assert empty <= absent, empty - absent
