"""Manifests match the published schemas, and their script starts the plan's ranks; no cluster runs them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from headfirst.common.errors import InputError
from headfirst.decide.cluster.settings import ServiceSettings
from headfirst.decide.containers.blanks import ADDRESS, CONFIG_FILE, HEAD_ADDRESS, filled
from headfirst.decide.plan.types import Plan
from headfirst.decide.render import kubernetes
from headfirst.decide.render.shell import PROBE_INTERVAL_S
from rendering import HEADER, ODD, Programs, model_in, planned, with_words

ENGINE = ServiceSettings().engine_port
VERSION = "1.37.0"
OPTIONS = kubernetes.Options("hostpath", "rdma/hca")
CLAIM = kubernetes.Options("pvc", "rdma/hca")
INVENTORIES = [
    *("lab.ini", "a100x4.ini", "h100x2-services.ini", "h200x1.ini", "a100x1-70b.ini"),
    "lab-disaggregated.ini",
]
# The prefill replica has two hosts, each decode replica one.
DIVIDED = (
    *("prefill_replicas=1", "decode_replicas=2", "model=Qwen/Qwen3-32B", "engine_env="),
    *("prefill_gpus_per_replica=16", "decode_gpus_per_replica=8"),
)


def fields(*required: str, **properties: Any) -> dict[str, Any]:
    """The schema of an object with these fields alone."""
    return {
        "type": "object",
        "additionalProperties": False,
        "required": list(required),
        "properties": properties,
    }


RESTARTS = ["Default", "None", "RecreateGroupOnPodRestart", "RecreateGroupAfterStart"]
# The fields around the pods, after config/crd/bases/leaderworkerset.x-k8s.io_leaderworkersets.yaml of
# kubernetes-sigs/lws, commit 060ab4da17ee (sha256 c5dcad8ed943…). Pods have Kubernetes' own schema.
LEADER_WORKER_SET = fields(
    *("apiVersion", "kind", "metadata", "spec"),
    apiVersion={"const": "leaderworkerset.x-k8s.io/v1"},
    kind={"const": "LeaderWorkerSet"},
    metadata={"type": "object"},
    spec=fields(
        "leaderWorkerTemplate",
        replicas={"type": "integer"},
        startupPolicy={"enum": ["LeaderCreated", "LeaderReady"]},
        leaderWorkerTemplate=fields(
            "workerTemplate",
            size={"type": "integer", "minimum": 1},
            restartPolicy={"enum": RESTARTS},
            leaderTemplate={"type": "object"},
            workerTemplate={"type": "object"},
        ),
    ),
)


def manifests(plan: Plan, options: kubernetes.Options = OPTIONS) -> list[dict[str, Any]]:
    made = kubernetes.files(plan, HEADER, options)
    pages = [yaml.safe_load_all(file.text) for name, file in made.items() if name.endswith(".yaml")]
    return [page for one in pages for page in one]


def of_kind(kind: str, pages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [page for page in pages if page["kind"] == kind]


def templates(page: dict[str, Any]) -> list[dict[str, Any]]:
    template = page["spec"]["leaderWorkerTemplate"]
    return [template["leaderTemplate"], template["workerTemplate"]]


def validate(page: dict[str, Any]) -> None:
    """Raises where the API server would refuse it, unknown fields too."""
    import jsonschema  # it compiles grammars for seconds
    import kubernetes_validate

    if page["kind"] != "LeaderWorkerSet":
        kubernetes_validate.validate(page, VERSION, strict=True)
        return
    jsonschema.validate(page, LEADER_WORKER_SET)
    for template in templates(page):
        pod = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "x"}, "template": template}
        kubernetes_validate.validate(pod, VERSION, strict=True)


@pytest.mark.parametrize("options", [OPTIONS, CLAIM], ids=["hostpath", "pvc"])
@pytest.mark.parametrize("inventory", INVENTORIES)
def test_manifests_match_the_schemas(inventory: str, options: kubernetes.Options) -> None:
    pages = manifests(planned(inventory), options)
    assert {"ConfigMap", "LeaderWorkerSet", "Service"} <= {page["kind"] for page in pages}
    for page in pages:
        validate(page)


def router_of(pages: list[dict[str, Any]]) -> dict[str, Any]:
    (page,) = of_kind("Deployment", pages)
    container: dict[str, Any] = page["spec"]["template"]["spec"]["containers"][0]
    return container


def test_the_router_has_the_command_of_compose_and_the_names_of_the_leaders() -> None:
    plan = planned("lab-disaggregated.ini")
    (service,) = plan.services
    pages = manifests(plan)
    container = router_of(pages)
    (router,) = service.routers
    assert container["image"] == router.container.image
    assert container["command"] == [router.container.entrypoint]
    names = [page["metadata"]["name"] for page in of_kind("LeaderWorkerSet", pages)]
    expected = list(router.fixed_command)
    expected[expected.index("--host") + 1] = "0.0.0.0"
    expected[expected.index("--prometheus-host") + 1] = "0.0.0.0"
    text = "\0".join(expected)
    for replica, name in zip(service.replicas, names, strict=True):
        # The LeaderWorkerSet controller makes a headless Service of the set's name.
        text = text.replace(replica.engine_url, f"http://{name}-0.{name}:{replica.engine_port}")
    assert container["args"] == text.split("\0")


def test_clients_of_a_divided_service_ask_the_router() -> None:
    pages = manifests(planned("lab-disaggregated.ini"))
    (page,) = of_kind("Deployment", pages)
    (service,) = of_kind("Service", pages)
    pod = page["spec"]["template"]
    assert service["spec"]["selector"].items() <= pod["metadata"]["labels"].items()
    assert page["spec"]["selector"]["matchLabels"].items() <= pod["metadata"]["labels"].items()
    for workers in of_kind("LeaderWorkerSet", pages):
        for template in templates(workers):
            assert not service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    container = router_of(pages)
    assert [port["name"] for port in container["ports"]] == ["api", "metrics"]
    assert service["spec"]["ports"] == [{"name": "api", "port": 80, "targetPort": "api"}]
    # A prefill and a decode replica must be there before a request is answered.
    assert container["readinessProbe"]["httpGet"] == {"path": "/readiness", "port": "api"}
    assert container["livenessProbe"]["httpGet"] == {"path": "/health", "port": "api"}
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert "hostNetwork" not in pod["spec"]


def test_the_keys_of_the_router_are_in_a_secret_of_their_own(tmp_path: Path) -> None:
    plan = planned("lab-disaggregated.ini")
    made = kubernetes.files(plan, HEADER, OPTIONS)
    assert router_of(manifests(plan))["env"] == [
        {
            "name": "ROUTER_ARGUMENTS",
            "valueFrom": {"secretKeyRef": {"name": "headfirst-router", "key": "ROUTER_ARGUMENTS"}},
        }
    ]
    line = "kubectl create secret generic headfirst-router --from-env-file=secrets/router.env"
    assert f"#   {line}\n" in made["headfirst-api.yaml"].text
    assert "secrets/router.env" in made["make-secrets.sh"].text


def test_each_side_of_a_divided_service_has_its_own_arguments() -> None:
    plan = planned("a100x4.ini", *DIVIDED)
    pages = manifests(plan)
    for page in pages:
        validate(page)
    sets, scripts = of_kind("LeaderWorkerSet", pages), of_kind("ConfigMap", pages)
    sides = ["prefill", "decode", "decode"]
    assert [len(replica.nodes) for replica in plan.services[0].replicas] == [2, 1, 1]
    for side, workers, script, replica in zip(sides, sets, scripts, plan.services[0].replicas, strict=True):
        assert workers["spec"]["leaderWorkerTemplate"]["size"] == len(replica.nodes)
        launch = script["data"]["launch.sh"]
        assert f"--disaggregation-mode {side}" in launch
        assert "--disaggregation-ib-device mlx5_1,mlx5_2,mlx5_3,mlx5_4" in launch
        # What a rank is reached at is the address of its own pod.
        assert 'export SGLANG_HOST_IP="$HEADFIRST_ADDRESS"' in launch
        limits = templates(workers)[0]["spec"]["containers"][0]["resources"]["limits"]
        assert limits["rdma/hca"] == "1"


def test_undivided_replicas_have_no_router() -> None:
    assert of_kind("Deployment", manifests(planned("h100x2-services.ini"))) == []


@pytest.mark.parametrize("field", ["hostNetwork", "containers", "no_such_field"])
def test_the_schemas_refuse_mistakes(field: str) -> None:
    (page,) = of_kind("LeaderWorkerSet", manifests(planned("lab.ini")))
    templates(page)[0]["spec"][field] = "wrong"
    from jsonschema import ValidationError

    with pytest.raises(ValidationError):
        validate(page)


def test_a_replica_is_a_set_with_all_its_ranks() -> None:
    plan = planned("a100x4.ini")
    (page,) = of_kind("LeaderWorkerSet", manifests(plan))
    assert page["spec"]["replicas"] == 1
    assert page["spec"]["leaderWorkerTemplate"]["size"] == 4
    # A rank that comes back alone finds peers that serve without it.
    assert page["spec"]["leaderWorkerTemplate"]["restartPolicy"] == "RecreateGroupOnPodRestart"
    for template in templates(page):
        (container,) = template["spec"]["containers"]
        assert container["resources"]["limits"] == {"nvidia.com/gpu": "8", "rdma/hca": "1"}
        assert container["resources"]["requests"] == container["resources"]["limits"]
        assert container["securityContext"]["capabilities"] == {"add": ["IPC_LOCK"]}


def test_a_set_for_each_replica_and_one_address_for_a_service() -> None:
    pages = manifests(planned("h100x2-services.ini"))
    sets = [page["metadata"]["name"] for page in of_kind("LeaderWorkerSet", pages)]
    assert sets == [
        "headfirst-engine-chat",
        "headfirst-engine-chat-1",
        "headfirst-engine-chat-2",
        "headfirst-engine-embedding",
    ]
    chat, _ = of_kind("Service", pages)
    for page in of_kind("LeaderWorkerSet", pages):
        leader, _ = templates(page)
        selected = leader["metadata"]["labels"]["app.kubernetes.io/name"] == "headfirst-api-chat"
        assert selected == page["metadata"]["name"].startswith("headfirst-engine-chat")
        assert [port["name"] for port in leader["spec"]["containers"][0]["ports"]] == ["api"]
    assert chat["spec"]["selector"] == {
        "app.kubernetes.io/name": "headfirst-api-chat",
        "leaderworkerset.sigs.k8s.io/worker-index": "0",
    }


def test_ranks_of_a_replica_are_on_different_hosts() -> None:
    (page,) = of_kind("LeaderWorkerSet", manifests(planned("a100x4.ini")))
    for template in templates(page):
        ((term,),) = template["spec"]["affinity"]["podAntiAffinity"].values()
        assert term["topologyKey"] == "kubernetes.io/hostname"
        assert term["labelSelector"]["matchLabels"] == template["metadata"]["labels"]


def test_the_probes_are_those_of_the_plan() -> None:
    plan = planned("a100x4.ini")
    ready = plan.services[0].readiness
    (page,) = of_kind("LeaderWorkerSet", manifests(plan))
    leader, worker = (template["spec"]["containers"][0] for template in templates(page))
    assert leader["startupProbe"]["failureThreshold"] * PROBE_INTERVAL_S >= ready.start_seconds
    assert ready.hang_seconds is not None
    assert leader["livenessProbe"]["failureThreshold"] * PROBE_INTERVAL_S >= ready.hang_seconds
    assert f":{ENGINE}{ready.path}" in leader["readinessProbe"]["exec"]["command"][-1]
    assert not [name for name in worker if name.endswith("Probe")]


def test_a_path_that_computes_nothing_is_no_sign_of_life() -> None:
    (page,) = of_kind("LeaderWorkerSet", manifests(planned("h100x2.ini", "engine=vllm")))
    assert "livenessProbe" not in templates(page)[0]["spec"]["containers"][0]


@pytest.mark.parametrize(
    ("settings", "workers"),
    [([], False), (["engine=vllm", "engine_runtime=ray", "engine_image=acme/vllm-ray:v0.33.0"], True)],
)
def test_the_secret_is_referenced_where_it_is_read(settings: list[str], workers: bool) -> None:
    pages = manifests(planned("h100x2.ini", *settings))
    assert of_kind("Secret", pages) == []
    (page,) = of_kind("LeaderWorkerSet", pages)
    found = [
        [volume["secret"] for volume in template["spec"]["volumes"] if "secret" in volume]
        for template in templates(page)
    ]
    expected = {
        "secretName": "headfirst-api",
        "items": [{"key": "engine.yaml", "path": "engine.yaml"}],
        "defaultMode": 0o400,
    }
    assert found == [[expected], [expected] if workers else []]


def test_weights_are_folders_of_the_host_or_of_a_claim(tmp_path: Path) -> None:
    plan = planned("a100x4.ini", "engine_cache_dir=/data/cache")
    directory = plan.services[0].weights.directory
    for options in (OPTIONS, CLAIM):
        pages = manifests(plan, options)
        (page,) = of_kind("LeaderWorkerSet", pages)
        spec = templates(page)[1]["spec"]
        mounts = {mount["mountPath"]: mount for mount in spec["containers"][0]["volumeMounts"]}
        assert mounts[directory]["readOnly"]
        assert "readOnly" not in mounts["/data/cache"]
        volumes = {volume["name"]: volume for volume in spec["volumes"]}
        claims = of_kind("PersistentVolumeClaim", pages)
        if options is CLAIM:
            assert mounts[directory]["subPath"] == directory.strip("/")
            assert volumes["data"]["persistentVolumeClaim"]["claimName"] == claims[0]["metadata"]["name"]
            size = int(claims[0]["spec"]["resources"]["requests"]["storage"].removesuffix("Gi"))
            assert size * 2**30 >= plan.services[0].weights.served_bytes
        else:
            assert volumes[mounts[directory]["name"]]["hostPath"] == {"path": directory, "type": "Directory"}
            assert claims == []


def test_names_that_differ_by_a_sign_that_kubernetes_lacks(tmp_path: Path) -> None:
    plan = planned("h100x2-services.ini")
    chat, other = plan.services
    renamed = [
        service.model_copy(update={"name": name, "replicas": service.replicas[:1]})
        for service, name in ((chat, "a_"), (other, "a"))
    ]
    with pytest.raises(InputError, match="headfirst-api-a"):
        kubernetes.files(plan.model_copy(update={"services": renamed}), HEADER, OPTIONS)


def test_the_script_starts_the_ranks_of_the_plan(tmp_path: Path) -> None:
    plan = with_words(planned("lab.ini", f"weights_dir={tmp_path}/models"), ODD)
    model_in(tmp_path, plan)
    (scripts,) = of_kind("ConfigMap", manifests(plan))
    script = tmp_path / "launch.sh"
    script.write_text(scripts["data"]["launch.sh"])
    programs = Programs(tmp_path / "programs")
    programs.record("python3")
    # The leader's name has an address at the second try.
    programs.add("sleep", "touch slept\n")
    programs.add("getent", '[ -e slept ] && [ "$1" = ahostsv4 ] && echo "192.0.2.5 STREAM $2"\n')
    (scheduled,) = plan.services[0].scheduled
    for number, rank in enumerate(scheduled.ranks):
        own = f"192.0.2.{5 + number}"
        environment = {
            "LWS_WORKER_INDEX": str(number),
            "LWS_LEADER_ADDRESS": "leader-0.leader.default",
            "HEADFIRST_ADDRESS": own,
        }
        done = programs.run("bash", script, cwd=tmp_path, environment=environment)
        assert done.returncode == 0, done.stderr
        assert ("waiting for the address" in done.stdout) == (number == 1)
        values = {HEAD_ADDRESS: "192.0.2.5", ADDRESS: own, CONFIG_FILE: "/etc/headfirst/engine.yaml"}
        arguments, seen = programs.records("python3")[number]
        assert ["python3", *arguments] == [filled(word, values) for word in rank.command]
        expected = {name: filled(text, values) for name, text in rank.environment.items()}
        assert {name: seen[name] for name in expected} == expected


def test_a_rank_that_the_service_does_not_have_fails(tmp_path: Path) -> None:
    plan = planned("lab.ini", f"weights_dir={tmp_path}/models")
    model_in(tmp_path, plan)
    (scripts,) = of_kind("ConfigMap", manifests(plan))
    (tmp_path / "launch.sh").write_text(scripts["data"]["launch.sh"])
    programs = Programs(tmp_path / "programs")
    programs.add("getent", "echo 192.0.2.5\n")
    environment = {"LWS_WORKER_INDEX": "2", "LWS_LEADER_ADDRESS": "a", "HEADFIRST_ADDRESS": "192.0.2.9"}
    done = programs.run("bash", "launch.sh", cwd=tmp_path, environment=environment)
    assert done.returncode == 1
    assert "There is no rank 2: the service has 2." in done.stderr
