"""How fast a replica answers again after a fault, as multiples of a plain start in the same run.

Usage: python benchmarks/recovery.py [ROUNDS]    (default 3)
Runs on the lab of inventories/lab.ini, which is brought up first: two nodes, the real engine on CPUs.
A plain start is what a person does by hand: both ranks stopped, then `docker start`, the head first.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests")]

from readme_lab import Service, bring_up, on_node  # noqa: E402

NAME = "headfirst-engine"
SUPERVISOR = "/opt/headfirst/venv/bin/headfirst-supervisor"
HEAD, WORKER = "node1", "node2"
LONGEST_S = 600.0


def main() -> None:
    """Measure each fault and print a table."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    service = bring_up()
    plain = [plain_start(service) for _ in range(rounds)]
    boot = [boot_time() for _ in range(rounds)]
    # After a reboot of the worker the replica is back when the boot and an engine start are over.
    both = statistics.median(boot) + statistics.median(plain)
    base = statistics.median(plain)
    print(f"{'':<28}{'seconds':>9}{'of plain':>10}{'beyond':>9}")
    show("plain start", plain, base)
    show("boot of a node", boot, base)
    for node in (HEAD, WORKER):
        show(f"rank on {node} killed", [killed(service, node) for _ in range(rounds)], base)
        show(f"{node} rebooted", [rebooted(service, node) for _ in range(rounds)], both)
    print("Beyond: seconds more than a plain start; after a reboot, than a boot and a plain start.")


def show(what: str, found: list[float], base: float) -> None:
    """One line: the median, its ratio to `base`, and the seconds beyond it."""
    middle = statistics.median(found)
    print(f"{what:<28}{middle:>9.1f}{middle / base:>10.2f}{middle - base:>9.1f}", flush=True)


def plain_start(service: Service) -> float:
    """Seconds from `docker start` of the head to the first answer."""
    on_node(HEAD, f"{SUPERVISOR} hold {NAME}")
    for node in (HEAD, WORKER):
        on_node(node, f"docker stop --time 3 {NAME}")
    began = time.monotonic()
    for node in (HEAD, WORKER):
        on_node(node, f"docker start {NAME}")
    wait(lambda: answers(service))
    took = time.monotonic() - began
    on_node(HEAD, f"{SUPERVISOR} release {NAME}")
    settle(service)
    return took


def boot_time() -> float:
    """Seconds from a restart of a node to its Docker Engine."""
    on_node(HEAD, f"{SUPERVISOR} hold {NAME}")
    began = time.monotonic()
    subprocess.run(
        ["docker", "restart", "--time", "2", f"headfirst-lab-{WORKER}"], check=True, stdout=subprocess.DEVNULL
    )
    wait(lambda: _works(WORKER, "docker ps >/dev/null"))
    took = time.monotonic() - began
    on_node(HEAD, f"{SUPERVISOR} release {NAME}")
    return took


def killed(service: Service, node: str) -> float:
    """Seconds from kill -9 of a rank to the next answer of a new start."""
    settle(service)
    on_node(node, f"kill -9 $(docker inspect --format '{{{{.State.Pid}}}}' {NAME})")
    return until_it_answers_again(service)


def rebooted(service: Service, node: str) -> float:
    """Seconds from a restart of a node to the next answer of a new start."""
    settle(service)
    began = time.monotonic()
    subprocess.run(
        ["docker", "restart", "--time", "2", f"headfirst-lab-{node}"], check=True, stdout=subprocess.DEVNULL
    )
    return until_it_answers_again(service, began)


def reboot(node: str) -> None:
    """Restart the container that is the node: its systemd ends and boots."""
    argv = ["docker", "restart", "--time", "2", f"headfirst-lab-{node}"]
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL)


def until_it_answers_again(service: Service, began: float | None = None) -> float:
    """Seconds until the replica, which has ended, answers."""
    began = time.monotonic() if began is None else began
    wait(lambda: not answers(service))
    wait(lambda: answers(service))
    return time.monotonic() - began


def settle(service: Service) -> None:
    """Wait until the supervisor keeps a replica that answers."""
    wait(lambda: answers(service) and '"serving"' in on_node(HEAD, "cat /run/headfirst/supervisor.json"))


def answers(service: Service) -> bool:
    """Whether the model answers a chat now."""
    body = {"model": service.model, "messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 1}
    headers = {"Authorization": f"Bearer {service.api_key}"}
    try:
        answer = httpx.post(f"{service.api}/v1/chat/completions", json=body, headers=headers, timeout=5)
    except httpx.HTTPError:
        return False
    return answer.is_success


def wait(condition: Callable[[], bool]) -> None:
    """Return when the condition holds; it is looked at five times a second."""
    end = time.monotonic() + LONGEST_S
    while not condition():
        if time.monotonic() > end:
            raise SystemExit(f"no change within {LONGEST_S:.0f} s")
        time.sleep(0.2)


def _works(node: str, command: str) -> bool:
    try:
        on_node(node, command)
    except subprocess.CalledProcessError:
        return False
    return True


if __name__ == "__main__":
    main()
