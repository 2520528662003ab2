"""The container in which an image answers, with a program in place of `docker`, and what is kept of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from headfirst.common.errors import NotReadyError
from headfirst.common.untrusted import UntrustedError
from headfirst.control.image_probe import container, kept
from headfirst.control.image_probe.container import Answer
from headfirst.control.image_probe.kept import AskedCommand
from headfirst.control.live.ssh_access import local
from headfirst.control.live.ssh_access.ssh import ssh
from headfirst.decide.cluster.login import HostAccess
from headfirst.decide.engines import answers, probing

HERE = HostAccess(host="node1", address="127.0.0.1", local=True)
ID = "sha256:" + "a1" * 32
# Runs what follows `IMAGE -c`, as the image's own Python would.
DOCKER = f"""#!/bin/sh
echo "$*" | head -1 >> "$0.log"
case "$1 $2" in
  "image inspect") [ "$5" = there ] || exit 1; echo {ID} ;;
  "run --interactive") while [ "$1" != -c ]; do shift; done; exec python3 -c "$2" ;;
esac
"""


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the program logs its arguments."""
    program = tmp_path / "bin" / "docker"
    program.parent.mkdir()
    program.write_text(DOCKER)
    program.chmod(0o755)
    variables = {"PATH": f"{program.parent}:/usr/bin:/bin"}
    monkeypatch.setattr(local, "login_environment", lambda _: variables)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return program.with_name("docker.log")


def ask(monkeypatch: pytest.MonkeyPatch, code: str, commands: int = 1) -> Answer:
    """What is read of a probe with this code in its function `main(request)`."""
    text = "import json, sys\ndef main(request):\n    " + code
    monkeypatch.setattr(probing, "program", lambda engine: (probing.LOADER, {"probe": text}))
    question = {"answers": True, "commands": [{"argv": ["serve"], "env": {}}] * commands, "files": {}}
    with ssh(HERE) as connection:
        return container.ask(HERE, connection, "vllm", ID, {"gpus": "device=0,1"}, question)


def test_an_image_is_named_by_its_id(docker: Path) -> None:
    with ssh(HERE) as connection:
        assert container.image_id(HERE, connection, "there") == ID
        assert container.image_id(HERE, connection, "elsewhere") == ""


def test_the_container_has_no_network_no_capability_and_the_planned_gpus(
    docker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = ask(
        monkeypatch, "print(json.dumps({'answers': {'version': '1'}, 'commands': [{'problem': None}]}))"
    )
    assert told == Answer({"version": "1"}, (AskedCommand(),))
    words = docker.read_text().split()
    assert words[:4] == ["run", "--interactive", "--rm", "--name"]
    assert words[4].startswith("headfirst-probe-")
    assert "--network none" in " ".join(words)
    assert "--cap-drop ALL" in " ".join(words)
    assert "--user 0" in " ".join(words)
    assert '--gpus "device=0,1"' in " ".join(words)
    assert not {"--volume", "--env-file", "--privileged"} & set(words)


def test_the_sentence_of_an_engine_is_for_a_terminal(docker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = r"print(json.dumps({'commands': [{'problem': 'heads \x1b[31m7\n by 2'}, {'why': 'no GPU'}]}))"
    told = ask(monkeypatch, code, commands=2)
    assert told.document is None
    assert [each.why for each in told.commands] == ["", "no GPU"]
    assert "\x1b" not in told.commands[0].problem
    assert "\n" not in told.commands[0].problem


def test_a_probe_that_fails_names_its_last_line(docker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotReadyError, match=r"exit code 1: ModuleNotFoundError: No module named 'engine9'"):
        ask(monkeypatch, "import engine9")
    # So does the container engine, before its advice.
    docker.with_suffix("").write_text(
        "#!/bin/sh\necho 'docker: no space left.' >&2\necho \"Run 'x'\" >&2; exit 125\n"
    )
    with pytest.raises(NotReadyError, match=r"exit code 125: docker: no space left\."):
        ask(monkeypatch, "pass")


@pytest.mark.parametrize(
    "code",
    [
        "print('[1]')",
        "print('{}')",
        "print(json.dumps({'commands': []}))",
        "print(json.dumps({'commands': [7]}))",
        "print(json.dumps({'commands': [{'problem': 7}]}))",
        "print('no JSON')",
        "print('[' * 10000)",
        "sys.stdout.write('x' * (9 << 20))",
    ],
)
def test_what_is_no_answer_is_refused(docker: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    with pytest.raises(UntrustedError, match="answer"):
        ask(monkeypatch, code)


def document(engine: str, **changes: Any) -> dict[str, Any]:
    path = Path(answers.__file__).parent / engine / "snapshot.json"
    return {**json.loads(path.read_text("utf-8")), **changes}


def test_answers_are_kept_by_the_id_of_the_image(docker: Path) -> None:
    assert kept.answers_of("vllm", ID) is None
    told = kept.keep_answers("vllm", ID, document("vllm", version="0.99.0", cuda="13.1"), where="node1")
    again = kept.answers_of("vllm", ID)
    assert again is not None
    assert (told.version, again.version, again.cuda, again.image) == ("0.99.0", "0.99.0", "13.1", ID)
    assert kept.answers_of("vllm", "sha256:" + "b2" * 32) is None
    assert kept.answers_of("sglang", ID) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"version": "../../etc"},
        {"version": "1.0\n"},
        {"options": [{"flags": ["rm -rf"], "dest": "x", "type": "str"}]},
        {"options": [{"flags": ["--x"], "dest": "x", "type": "str", "choices": ["a"] * 5000}]},
        {"options": [{"flags": ["--x"], "dest": "x", "type": "str", "choices": ["a\x1b[2J"]}]},
        {"cuda": "13.0\x1b[2J"},
        {"more": 1},
    ],
)
def test_answers_that_no_engine_gives_are_refused_and_not_kept(docker: Path, changes: dict[str, Any]) -> None:
    with pytest.raises(UntrustedError, match="the answer of the image refused"):
        kept.keep_answers("vllm", ID, document("vllm", **changes), where="node1")
    assert kept.answers_of("vllm", ID) is None


def test_parts_that_an_image_does_not_answer_are_the_snapshots(docker: Path) -> None:
    told = document("sglang", version="0.5.99", options=None, unanswered={"options": "ImportError: x"})
    had = kept.keep_answers("sglang", ID, told, where="node1")
    assert had.options == answers.snapshot("sglang").options
    assert had.unanswered == {"options": "ImportError: x"}


def test_what_an_engine_made_of_a_command_is_kept_unless_it_was_not_asked(docker: Path) -> None:
    question = {"command": {"argv": ["serve"]}, "files": {}}
    kept.keep_command("vllm", ID, question, AskedCommand(why="no GPU"))
    assert kept.command("vllm", ID, question) is None
    kept.keep_command("vllm", ID, question, AskedCommand(problem="7 heads"))
    assert kept.command("vllm", ID, question) == AskedCommand(problem="7 heads")
    assert kept.command("vllm", ID, {**question, "files": {"/m/config.json": "{}"}}) is None


def test_the_last_image_of_a_name_is_known_without_a_host(docker: Path) -> None:
    assert kept.seen("vllm/vllm-openai:v0.99.0") == ""
    kept.see("vllm/vllm-openai:v0.99.0", ID)
    assert kept.seen("vllm/vllm-openai:v0.99.0") == ID
