"""Every rule matches its real lines, and no rule matches another's: all engines' and the generic ones."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from ansible_collections.headfirst.serving.plugins.plugin_utils import engine_log_rules
from ansible_collections.headfirst.serving.plugins.plugin_utils.engine_log_rules import LogRule, profile
from failure_lines import BY_PROFILE, PROFILES, matched, unmatched
from headfirst.decide import engines

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


def none_has(check: Callable[[str, LogRule], object]) -> None:
    """Fails with `profile: rule: problem` for each rule for which `check` returns one."""
    found = [f"{name}: {rule.id}: {problem}" for name, rule in EACH_RULE if (problem := check(name, rule))]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("name", PROFILES)
def test_the_lines_of_a_rule_are_named_by_it_alone(name: str) -> None:
    log = PROFILES[name]
    of_rule = {rule.id: matched(name, rule.id) for rule in log.rules}
    for id, lines in of_rule.items():
        assert {(found := log.match(line)) and found.id for line in lines} == {id}
    # A general rule speaks only where no other does, so it may match what they match.
    assert [
        f"{rule.id} matches a line of {other}: {line}"
        for rule in log.rules
        for other, lines in of_rule.items()
        for line in lines
        if rule.id != other and rule.weight != "general" and rule.pattern.search(line)
    ] == []


def test_a_rule_leaves_other_lines_alone() -> None:
    none_has(lambda name, rule: [line for line in unmatched(name, rule.id) if rule.pattern.search(line)])


def test_an_engine_that_serves_matches_no_rule() -> None:
    lines = [line for its in SERVING.values() for line in its]
    none_has(lambda _, rule: [line for line in lines if rule.pattern.search(line)])


VERSIONS = re.compile(r"(\d+(\.\d+)*)?–(\d+(\.\d+)*)?")


def test_a_rule_names_who_writes_its_line_and_states_what_to_do() -> None:
    none_has(lambda _, rule: rule.weight not in WEIGHTS or not (rule.source or rule.producers))
    none_has(lambda _, rule: [text for text in rule.producers.values() if not VERSIONS.fullmatch(str(text))])
    every = [*(rule for _, rule in EACH_RULE), *engine_log_rules.conditions().values()]
    assert [rule.id for rule in every if not rule.fix.endswith(".") or rule.means.endswith(".")] == []


def test_a_sentence_has_every_value_or_leaves_its_part_out() -> None:
    """A name in braces is a group or a fact; outside brackets each line of the rule must have it."""

    def wrong(name: str, rule: LogRule) -> list[str]:
        texts = [rule.means, rule.fix]
        names = {found for text in texts for found in re.findall(r"\{(\w+)\}", text)}
        unknown = names - {*rule.pattern.groupindex, *engine_log_rules.FACTS}
        bare = [re.sub(r"\[[^\[\]]*\{[^\[\]]*\]", "", text) for text in texts]
        always = {found for text in bare for found in re.findall(r"\{(\w+)\}", text)}
        unused = rule.pattern.groupindex.keys() - names
        shown = [words for line in matched(name, rule.id) for words in rule.words(line, {})]
        left = [text for text in shown if re.search(r"[{}]|\[.*\{", text)]
        holes = [text for text in shown for found in always if found.upper() in text.split()]
        return [*unknown, *unused, *left, *holes, *(always & {*engine_log_rules.FACTS})]

    none_has(wrong)


@pytest.mark.parametrize("name", PROFILES)
def test_ids_are_unique(name: str) -> None:
    names = [rule.id for rule in PROFILES[name].rules]
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


def test_every_line_is_of_a_rule() -> None:
    assert {
        name: its.keys() - {rule.id for rule in PROFILES[name].rules} for name, its in BY_PROFILE.items()
    } == {name: set() for name in PROFILES}


def test_a_value_that_a_shell_or_a_terminal_would_read_is_left_out() -> None:
    rule = {"id": "own", "failures": [], "pattern": r"at (?P<place>.+)$", "means": "it fails[ at {place}]",
            "fix": "Type `ssh {place}`."}  # fmt: skip
    (own, *_) = profile({"rules": [rule]}).rules
    assert own.words("at 10.0.0.4", {}) == ("it fails at 10.0.0.4", "Type `ssh 10.0.0.4`.")
    for bad in ("$(reboot)", "a;b", "a`b`", "\x1b[31m", "{cuda}", "\u202eb", "x" * 101, "a|b", "'a'"):
        assert own.words(f"at {bad}", {}) == ("it fails", "Type `ssh PLACE`.")


def test_facts_of_the_rank_are_in_the_sentence() -> None:
    facts = {"driver": "570.86.15", "cuda": ""}
    rule = next(rule for rule in PROFILES["generic"].rules if rule.id == "driver-too-old")
    means, _ = rule.words(matched("generic", rule.id)[0], facts)
    assert means == "this host's driver 570.86.15 is too old for the CUDA of the image"
