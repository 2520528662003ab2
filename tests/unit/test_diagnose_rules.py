"""Every rule matches its real line, and no rule matches another's: all engines' and the generic ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from ansible_collections.headfirst.serving.plugins.plugin_utils import engine_log_rules
from ansible_collections.headfirst.serving.plugins.plugin_utils.engine_log_rules import Profile, Rule, profile
from headfirst.decide import engines

PROFILES = {"generic": profile({}), **{name: profile(engines.get(name).log()) for name in engines.names()}}
# (name of the profile, rule) of the generic rules, and of what an engine adds to them or replaces.
EACH_RULE = [
    (name, rule)
    for name, log in PROFILES.items()
    for rule in log.rules
    if name == "generic" or rule not in PROFILES["generic"].rules
]
WEIGHTS = {"cause", "general", "consequence", "note"}
# Lines that an engine wrote while it started and served, some of them shortened.
SERVING = {
    path.stem: path.read_text().splitlines()
    for path in (Path(__file__).parent / "data/serving").glob("*.log")
}


def none_has(check: Callable[[Rule], object]) -> None:
    """Fails with `profile: rule: problem` for each rule for which `check` returns one."""
    found = [f"{name}: {rule.id}: {problem}" for name, rule in EACH_RULE if (problem := check(rule))]
    assert not found, "\n".join(found)


def test_a_rule_matches_its_line() -> None:
    def wrong(rule: Rule) -> list[str]:
        lines = [] if rule.pattern.search(rule.sample) else [rule.sample]
        return lines + [line for line in rule.counter if rule.pattern.search(line)]

    none_has(wrong)


@pytest.mark.parametrize("log", PROFILES.values(), ids=PROFILES)
def test_the_line_of_a_rule_is_named_by_it_alone(log: Profile) -> None:
    matched = {rule.id: log.match(rule.sample) for rule in log.rules}
    assert {id: rule and rule.id for id, rule in matched.items()} == {id: id for id in matched}
    # A general rule speaks only where no other does, so it may match what they match.
    assert [
        f"{rule.id} matches the line of {other.id}"
        for rule in log.rules
        for other in log.rules
        if rule is not other and rule.weight != "general" and rule.pattern.search(other.sample)
    ] == []


def test_an_engine_that_serves_matches_no_rule() -> None:
    lines = [line for its in SERVING.values() for line in its]
    none_has(lambda rule: [line for line in lines if rule.pattern.search(line)])


def test_a_rule_has_its_words() -> None:
    none_has(lambda rule: not (rule.source and rule.weight in WEIGHTS))
    every = [*(rule for _, rule in EACH_RULE), *engine_log_rules.conditions().values()]
    assert [rule.id for rule in every if not rule.fix.endswith(".") or rule.means.endswith(".")] == []


@pytest.mark.parametrize("log", PROFILES.values(), ids=PROFILES)
def test_ids_are_unique(log: Profile) -> None:
    names = [rule.id for rule in log.rules]
    assert len({*names, *engine_log_rules.conditions()}) == len(names) + len(engine_log_rules.conditions())


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
