"""Alert rules and the example configuration, read and tried by promtool."""

import subprocess
from pathlib import Path

import yaml

from tests.agent.node.metrics.promtool import needs_promtool

RULES = Path("deploy/prometheus/rules.yml").absolute()
CONFIG = Path("deploy/prometheus/prometheus.yml").absolute()
CASES = Path("tests/deploy/rules_test.yml")


def promtool(*words: str) -> subprocess.CompletedProcess[str]:
    """Return promtool's output."""
    return subprocess.run(["promtool", *words], capture_output=True, text=True, timeout=120)


def alerts() -> list[str]:
    """Names, in the file's order."""
    return [rule["alert"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def tried(folder: Path, rules: str) -> subprocess.CompletedProcess[str]:
    """The cases over these rules."""
    (folder / "rules.yml").write_text(rules)
    (folder / "cases.yml").write_text(CASES.read_text().replace("RULES", str(folder / "rules.yml")))
    return promtool("test", "rules", str(folder / "cases.yml"))


@needs_promtool
def test_rules_and_configuration_can_be_read() -> None:
    """By the Prometheus of Debian 12."""
    for words in (("check", "rules", "--lint=all", "--lint-fatal", str(RULES)), ("check", "config", str(CONFIG))):
        ran = promtool(*words)
        assert ran.returncode == 0, ran.stdout + ran.stderr


@needs_promtool
def test_each_alert_fires_when_it_should_and_not_before(tmp_path: Path) -> None:
    """On written series."""
    ran = tried(tmp_path, RULES.read_text())
    assert ran.returncode == 0, ran.stdout + ran.stderr


@needs_promtool
def test_a_rule_that_is_wrong_is_found(tmp_path: Path) -> None:
    """The cases can fail: with another bound, another time, another word."""
    for right, wrong in (("> 90", "> 95"), ("for: 30m", "for: 5m"), ("hw_thermal|", "")):
        assert right in RULES.read_text()
        assert tried(tmp_path, RULES.read_text().replace(right, wrong)).returncode != 0, right


def test_each_alert_is_tried_and_says_what_to_do() -> None:
    """With a severity, a summary and a cure."""
    cases = yaml.safe_load(CASES.read_text())["tests"]
    fired = {each["alertname"] for case in cases for each in case["alert_rule_test"] if each["exp_alerts"]}
    assert fired == set(alerts())
    assert len(alerts()) == len(set(alerts()))
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        for rule in group["rules"]:
            assert rule["labels"]["severity"] in ("page", "ticket")
            assert set(rule["annotations"]) == {"summary", "cure"}
