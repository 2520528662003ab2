"""The batch script runs with two tasks and recorded programs: each rank is that of the plan."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from headfirst.common import container_names as names
from headfirst.decide.cluster.settings import ServiceSettings
from headfirst.decide.containers.blanks import ADDRESS, CONFIG_FILE, HEAD_ADDRESS, filled
from headfirst.decide.plan.types import Plan
from headfirst.decide.render import slurm, slurm_steps
from rendering import HEADER, ODD, Programs, model_in, planned, put, with_words

ADDRESSES = ["127.0.0.21", "127.0.0.22"]
# Runs the command once for each task, with the same input, as srun does; ends when one fails.
SRUN = """\
first=0
while [ "${1#--}" != "$1" ]; do
  case "$1" in
  --ntasks=*) TASKS=${1#*=} ;;
  --relative=*) first=${1#*=} ;;
  esac
  shift
done
input=$(cat; echo x)
for task in $(seq 0 $((TASKS - 1))); do
  export SLURM_PROCID=$task SLURMD_NODENAME=n$((first + task))
  printf '%s' "${input%x}" | "$@" || exit
done
"""
IP = 'echo "2: $6 inet 127.0.0.2$((SLURM_PROCID + 1))/24 brd 127.0.0.255 scope global $6"\n'


class Job:
    """A folder where the job is submitted."""

    def __init__(self, folder: Path, plan: Plan, container: slurm_steps.ContainerOf = "none") -> None:
        self.folder, self.plan = folder, plan
        put(slurm.files(plan, HEADER, container), folder)
        model_in(folder, plan)
        self.programs = Programs(folder / "programs")
        self.programs.record("srun", SRUN)
        self.programs.record("python3")
        self.programs.add("scontrol", "echo n0; echo n1\n")
        self.programs.add("ip", IP)
        # The service answers at once, and nothing waits for long.
        self.programs.add("sleep", "exec /bin/sleep 0.05\n")
        self.programs.add("curl", "cat >/dev/null\n")
        self.venv = folder / "venv" / "bin"
        self.venv.mkdir(parents=True)
        (self.venv / "activate").write_text(f'PATH={self.programs.bin}:$PATH\necho "$UNSET" >/dev/null\n')
        assert self.programs.run(folder / "make-secrets.sh", cwd=folder).returncode == 0

    def run(self, tasks: int = 2, **environment: str) -> tuple[int, str, str]:
        path = next(self.folder.glob("*.sbatch"))
        variables = {
            "TASKS": str(tasks),
            "SLURM_SUBMIT_DIR": str(self.folder),
            "SLURM_JOB_NODELIST": "n[0-1]",
            "HEADFIRST_VENV": str(self.venv.parent),
        }
        done = self.programs.run("bash", path, cwd=self.folder, environment=variables | environment)
        return done.returncode, done.stdout, done.stderr

    def refused(self, tasks: int = 2) -> str:
        """Why it ended before a rank started."""
        code, _, error = self.run(tasks)
        assert (code, self.programs.records("python3")) == (1, [])
        return error


def lab(folder: Path, *settings: str) -> Plan:
    return planned("lab.ini", f"weights_dir={folder}/models", *settings)


def test_each_rank_is_that_of_the_plan(tmp_path: Path) -> None:
    plan = with_words(lab(tmp_path), ODD)
    job = Job(tmp_path, plan)
    code, out, error = job.run()
    assert code == 0, error
    assert "head: 127.0.0.21" in out
    started = job.programs.records("python3")
    (scheduled,) = plan.services[0].scheduled
    for number, (rank, (arguments, environment)) in enumerate(zip(scheduled.ranks, started, strict=True)):
        values = {
            HEAD_ADDRESS: ADDRESSES[0],
            ADDRESS: ADDRESSES[number],
            CONFIG_FILE: str(tmp_path / "secrets" / "engine.yaml"),
        }
        assert ["python3", *arguments] == [filled(word, values) for word in rank.command]
        expected = {name: filled(text, values) for name, text in rank.environment.items()}
        assert {name: environment[name] for name in expected} == expected


def test_what_slurm_is_asked_for() -> None:
    made = slurm.files(planned("a100x4.ini"), HEADER, "pyxis")["headfirst-engine.sbatch"].text
    options = [line.removeprefix("#SBATCH ") for line in made.splitlines() if line.startswith("#SBATCH")]
    assert {"--nodes=4", "--ntasks-per-node=1", "--gres=gpu:8", "--exclusive"} <= set(options)
    assert "--distribution=block" in options
    assert "srun --kill-on-bad-exit=1 --cpu-bind=none --output=%x-%j-rank%t.log" in made
    # The ranks' logs are for their owner alone.
    assert made.index("\numask 077\n") < made.index("srun ")
    # Slurm reads options up to the first command.
    before = made[: made.index("set -euo pipefail")]
    assert before.count("#SBATCH") == made.count("#SBATCH")


def test_a_part_of_the_hosts_is_not_exclusive() -> None:
    made = slurm.files(planned("h100x2-services.ini"), HEADER, "pyxis")
    assert set(made) == {
        "make-secrets.sh",
        "headfirst-engine-chat.sbatch",
        "headfirst-engine-chat-1.sbatch",
        "headfirst-engine-chat-2.sbatch",
        "headfirst-engine-embedding.sbatch",
    }
    text = made["headfirst-engine-chat.sbatch"].text
    assert "--gres=gpu:4\n" in text
    assert "--exclusive" not in text


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("models/headfirst-demo-bf16/config.json", "has no config.json"),
        ("models/headfirst-demo-bf16/model-1.safetensors", "lacks model-1.safetensors"),
        ("secrets/engine.yaml", "Make it: ./make-secrets.sh"),
    ],
)
def test_nothing_starts_where_a_file_is_missing(tmp_path: Path, missing: str, message: str) -> None:
    job = Job(tmp_path, lab(tmp_path))
    (tmp_path / missing).unlink()
    assert message in job.refused()


def test_a_cache_that_cannot_be_written_ends_the_job(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    job = Job(tmp_path, lab(tmp_path, f"engine_cache_dir={tmp_path}/file/cache"))
    assert "engine_cache_dir=" in job.refused()


def test_the_job_ends_as_the_ranks_end(tmp_path: Path) -> None:
    job = Job(tmp_path, lab(tmp_path))
    job.programs.record("python3", "exit 7\n")
    code, out, _ = job.run()
    assert code == 7
    assert len(job.programs.records("python3")) == 1  # srun ends the others
    assert out.count("ready:") <= 1


def test_a_service_that_does_not_answer_ends_the_job(tmp_path: Path) -> None:
    plan = lab(tmp_path)
    service = plan.services[0]
    ready = service.readiness.model_copy(update={"start_seconds": 2})
    service = service.model_copy(update={"readiness": ready})
    job = Job(tmp_path, plan.model_copy(update={"services": [service]}))
    job.programs.record("python3", "exec /bin/sleep 4 >/dev/null 2>&1\n")
    job.programs.add("curl", "exit 22\n")
    code, _, error = job.run(tasks=1)
    assert code == 1
    assert "does not answer after 2 s" in error


def test_a_venv_must_be_named(tmp_path: Path) -> None:
    job = Job(tmp_path, lab(tmp_path))
    code, _, error = job.run(HEADFIRST_VENV="")
    assert code != 0
    assert "HEADFIRST_VENV must name a virtual environment" in error


def test_pyxis_mounts_what_the_plan_mounts(tmp_path: Path) -> None:
    plan = lab(tmp_path, f"engine_cache_dir={tmp_path}/cache")
    job = Job(tmp_path, plan, "pyxis")
    assert job.run()[0] == 0
    words, _ = job.programs.records("srun")[1]
    container = plan.services[0].replicas[0].nodes[0].container.without_files()
    assert f"--container-image={container.image}" in words
    mounts = next(word for word in words if word.startswith("--container-mounts="))
    config = names.engine_config(container.name)
    expected = [volume for volume in container.volumes if not volume.startswith(config)]
    expected.append(f"{tmp_path}/secrets/engine.yaml:{config}:ro")
    assert mounts.removeprefix("--container-mounts=").split(",") == expected
    # In the container the key is where the plan has it.
    arguments, _ = job.programs.records("python3")[0]
    assert arguments[arguments.index("--config") + 1] == config


def test_apptainer_binds_what_the_plan_mounts(tmp_path: Path) -> None:
    plan = lab(tmp_path)
    job = Job(tmp_path, plan, "apptainer")
    job.programs.record("apptainer", 'while [ "$1" != bash ]; do shift; done\nexec "$@"\n')
    code, _, error = job.run(HEADFIRST_IMAGE="/images/my engine.sif")
    assert code == 0, error
    words, _ = job.programs.records("apptainer")[0]
    container = plan.services[0].replicas[0].nodes[0].container
    assert words[:2] == ["exec", "--no-home"]
    assert words[-3] == "/images/my engine.sif"
    for volume in container.volumes[:1]:
        assert words[words.index(volume) - 1] == "--bind"
    assert len(job.programs.records("python3")) == 2


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("lmsysorg/sglang:v0.5.23", "lmsysorg/sglang:v0.5.23"),
        ("ghcr.io/org/image:1", "ghcr.io#org/image:1"),
        ("registry:5000/image:1", "registry:5000#image:1"),
        ("image", "image"),
    ],
)
def test_images_as_enroot_writes_them(image: str, expected: str) -> None:
    assert slurm_steps._enroot(image) == expected


def test_words_cannot_end_the_script_of_the_ranks(tmp_path: Path) -> None:
    job = Job(tmp_path, with_words(lab(tmp_path), ["a\nRANK\ntouch evil\n", "RANK_END"]))
    code, _, error = job.run()
    assert code == 0, error
    arguments, _ = job.programs.records("python3")[0]
    assert arguments[-2:] == ["a\nRANK\ntouch evil\n", "RANK_END"]
    assert not (tmp_path / "evil").exists()


def divided(folder: Path, *settings: str) -> Plan:
    """The prefill replica has two hosts, each decode replica one."""
    sides = ["prefill_replicas=1", "decode_replicas=2", "prefill_gpus_per_replica=16"]
    model = [*("model=Qwen/Qwen3-32B", "engine_env="), f"weights_dir={folder}/models"]
    return planned("a100x4.ini", *sides, "decode_gpus_per_replica=8", *model, *settings)


def test_a_divided_service_is_one_job_with_its_router(tmp_path: Path) -> None:
    plan = divided(tmp_path)
    (service,) = plan.services
    job = Job(tmp_path, plan)
    assert [path.name for path in tmp_path.glob("*.sbatch")] == ["headfirst-engine.sbatch"]
    job.programs.record("python3", "exec /bin/sleep 2 >/dev/null 2>&1\n")
    code, out, error = job.run(tasks=4)
    assert code == 0, error
    assert f"ready: http://127.0.0.21:{ServiceSettings().router_port}/v1" in out
    hosts = [f"127.0.0.2{number}" for number in range(1, 5)]
    sides = [hosts[:2], hosts[2:3], hosts[3:]]
    expected = []
    for scheduled, addresses in zip(service.scheduled, sides, strict=True):
        for rank, address in zip(scheduled.ranks, addresses, strict=True):
            values = {
                HEAD_ADDRESS: addresses[0],
                ADDRESS: address,
                CONFIG_FILE: str(tmp_path / "secrets" / "engine.yaml"),
            }
            environment = {name: filled(text, values) for name, text in rank.environment.items()}
            expected.append(([filled(word, values) for word in rank.command][1:], environment))
    (router,) = service.routers
    text = "\0".join(router.fixed_command).replace(router.address, hosts[0])
    for replica, addresses in zip(service.replicas, sides, strict=True):
        text = text.replace(replica.engine_url, f"http://{addresses[0]}:{replica.engine_port}")
    environment = {
        "ROUTER_ARGUMENTS": (tmp_path / "secrets" / "router.env").read_text().split("=", 1)[1][:-1]
    }
    expected.append((text.split("\0"), environment))
    started = job.programs.records("python3")
    assert len(started) == len(expected)
    for arguments, environment in expected:
        (seen,) = [seen for words, seen in started if words == arguments]
        assert {name: seen[name] for name in environment} == environment


def test_the_steps_of_a_divided_service_have_hosts_of_their_own(tmp_path: Path) -> None:
    job = Job(tmp_path, divided(tmp_path), "pyxis")
    text = (tmp_path / "headfirst-engine.sbatch").read_text()
    assert "#SBATCH --nodes=4\n" in text
    assert "#SBATCH --gres=gpu:8\n" in text
    assert "# By number in the job, hosts 0 to 1: prefill, host 2: decode, host 3: decode.\n" in text
    # No container has the router's file here.
    mounted = 'sed "s|/etc/headfirst/router.env|$SLURM_SUBMIT_DIR/secrets/router.env|"'
    job.programs.record("srun", SRUN.replace("$(cat;", f"$({mounted};"))
    code, _, error = job.run(tasks=4)
    assert code == 0, error
    steps = [words[: words.index("bash")] for words, _ in job.programs.records("srun")][1:]
    places = {
        tuple(word for word in words if word.startswith(("--nodes", "--ntasks", "--relative")))
        for words in steps
    }
    assert places == {
        ("--nodes=2", "--ntasks=2", "--relative=0"),
        ("--nodes=1", "--ntasks=1", "--relative=2"),
        ("--nodes=1", "--ntasks=1", "--relative=3"),
        ("--nodes=1", "--ntasks=1", "--relative=0"),
    }
    # By default a step takes all of its hosts: the router is on one of another step.
    assert all("--overlap" in words for words in steps)
    (router,) = [words for words in steps if "--output=%x-%j-router.log" in words]
    assert f"--container-image={slurm_steps._enroot('lightseekorg/smg:1.13.0')}" in router
    mounts = f"{tmp_path}/secrets/router.env:/etc/headfirst/router.env:ro"
    assert f"--container-mounts={mounts}" in router


def test_the_job_of_a_divided_service_ends_with_its_first_step(tmp_path: Path) -> None:
    job = Job(tmp_path, divided(tmp_path))
    job.programs.record(
        "python3", 'case "$*" in *" decode "*) exit 7 ;; esac\nexec /bin/sleep 4 >/dev/null 2>&1\n'
    )
    assert job.run(tasks=4)[0] == 7


@pytest.mark.parametrize(
    ("plan", "setting", "tasks"), [(lab, "dist_port", 2), (divided, "router_port", 4)], ids=["lab", "divided"]
)
def test_a_port_in_use_ends_the_job_before_the_start(
    tmp_path: Path, plan: Callable[..., Plan], setting: str, tasks: int
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        job = Job(tmp_path, plan(tmp_path, f"{setting}={port}"))
        job.programs.add("ip", IP.replace("127.0.0.2$((SLURM_PROCID + 1))", "127.0.0.1"))
        error = job.refused(tasks)
    assert f"Port {port} of" in error
    assert f"-e {setting}=" in error
