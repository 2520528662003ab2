"""Every rule knows its real line, and no rule claims another's: all engines' and the generic ones."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ansible_collections.headfirst.serving.plugins.plugin_utils import engine_log_rules
from ansible_collections.headfirst.serving.plugins.plugin_utils.engine_log_rules import Profile, Rule, profile
from headfirst.decide import engines
from headfirst.decide.diagnose import rules

PROFILES = {"generic": profile({}), **{name: profile(engines.get(name).log()) for name in engines.names()}}
EACH_RULE = [
    pytest.param(log, rule, id=f"{name}-{rule.id}") for name, log in PROFILES.items() for rule in log.rules
]
WEIGHTS = {"cause", "general", "consequence", "note"}
# Lines that an engine wrote while it started and served, some of them shortened.
SERVING = {
    path.stem: path.read_text().splitlines()
    for path in (Path(__file__).parent / "data/serving").glob("*.log")
}


@pytest.mark.parametrize(("log", "rule"), EACH_RULE)
def test_a_rule_knows_its_line(log: Profile, rule: Rule) -> None:
    assert rule.pattern.search(rule.sample)
    assert log.match(rule.sample) is rule
    assert not any(rule.pattern.search(line) for line in rule.counter)


@pytest.mark.parametrize(("log", "rule"), EACH_RULE)
def test_no_rule_claims_the_line_of_another(log: Profile, rule: Rule) -> None:
    others = [other for other in log.rules if other is not rule]
    # A general rule speaks only where no other does, so it may match what they match.
    claimed = [other.id for other in others if rule.pattern.search(other.sample) and rule.weight != "general"]
    assert claimed == []


@pytest.mark.parametrize(("log", "rule"), EACH_RULE)
def test_an_engine_that_serves_matches_no_rule(log: Profile, rule: Rule) -> None:
    lines = [line for its in SERVING.values() for line in its]
    assert [line for line in lines if rule.pattern.search(line)] == []


@pytest.mark.parametrize(("log", "rule"), EACH_RULE)
def test_a_rule_has_its_words(log: Profile, rule: Rule) -> None:
    assert rule.source
    assert rule.weight in WEIGHTS


@pytest.mark.parametrize(
    "rule",
    [*(rule for log in PROFILES.values() for rule in log.rules), *rules.conditions().values()],
    ids=lambda rule: rule.id,
)
def test_a_rule_says_what_to_do(rule: Rule) -> None:
    assert rule.fix.endswith(".")
    assert not rule.means.endswith(".")
    assert all(1 <= number <= 61 for number in rule.failures)


@pytest.mark.parametrize("log", PROFILES.values(), ids=PROFILES)
def test_ids_are_unique(log: Profile) -> None:
    names = [rule.id for rule in log.rules]
    assert len({*names, *rules.conditions()}) == len(names) + len(rules.conditions())


def test_every_file_of_rules_is_read() -> None:
    folder = Path(engine_log_rules.__file__).with_name("failure_rules")
    families = {path.stem for path in folder.glob("*.yml")} - {"conditions", "engine_log"}
    assert families == set(engine_log_rules.FAMILIES)
    entries = sum(len(yaml.safe_load((folder / f"{name}.yml").read_text())) for name in families)
    assert entries == len(PROFILES["generic"].rules)


@pytest.mark.parametrize("name", engines.names())
def test_every_engine_says_when_it_is_ready_and_when_it_dies(name: str) -> None:
    log = engines.get(name).log()
    assert {"ready", "dying", "stages", "rules"} <= log.keys()
    assert any(PROFILES[name].ready.search(line) for line in SERVING[name])
    assert not any(PROFILES[name].dying.search(line) for line in SERVING[name])


@pytest.mark.parametrize("name", [name for name in engines.names() if "arguments" in engines.get(name).log()])
def test_no_line_shows_the_arguments_with_the_api_key(name: str) -> None:
    assert any("sesame" in line for line in SERVING[name])
    assert all("sesame" not in PROFILES[name].shown(line) for line in SERVING[name])
