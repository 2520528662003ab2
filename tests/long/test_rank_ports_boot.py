"""A machine that boots with cgroup v2 and systemd: the slice, then the rules, then what listens."""

from __future__ import annotations

from pathlib import Path

import pytest
import virtual_machine
from host_tuning_role import rules

pytestmark = pytest.mark.slow

SLICE = "headfirst-ranks.slice"
MODULES = ["veth", "nf_tables", "nft_socket", "nft_reject_inet", "nft_fib_inet", "nft_ct"]
UNITS = "/new/etc/systemd/system"
# What would go through all files of this machine, which come over 9p.
LEFT_OUT = (
    *("systemd-tmpfiles-setup", "systemd-tmpfiles-setup-dev", "systemd-udev-trigger", "systemd-sysusers"),
    *(
        "systemd-hwdb-update",
        "systemd-journal-catalog-update",
        "systemd-journal-flush",
        "systemd-update-done",
    ),
    *("ldconfig", "apparmor"),
)
INIT = f"""
mount -t tmpfs tmpfs /new/tmp
cp /job/etc/headfirst-firewall.nft /new/etc/
cp /job/etc/*.service /job/etc/*.slice /job/etc/*.target {UNITS}/
mkdir -p {UNITS}/sysinit.target.wants
ln -s /etc/systemd/system/headfirst-firewall.service {UNITS}/sysinit.target.wants/headfirst-firewall.service
for unit in {" ".join(LEFT_OUT)}; do ln -s /dev/null {UNITS}/$unit.service; done
exec switch_root /new /lib/systemd/systemd --unit=job.target
"""
JOB = {
    "job.target": "[Unit]\nRequires=sysinit.target job.service\nAfter=sysinit.target\n",
    "job.service": "[Unit]\nAfter=sysinit.target\n[Service]\nType=oneshot\nTimeoutStartSec=infinity\n"
    "ExecStart=/bin/bash -c '/bin/bash /job/run >/job/output 2>&1'\n"
    "ExecStopPost=/bin/systemctl poweroff --force --force\n",
}
# 10.99.0.2 is a peer, 10.99.0.3 is none. A rank listens at 40001, another program at 40002.
REFUSED = "nc: can't connect to remote host (10.99.0.1): No route to host"
SCRIPT = f"""
systemctl is-active headfirst-firewall.service {SLICE}
systemctl stop {SLICE} 2>/dev/null || echo refused
ip netns add lan && ip link add v0 type veth peer name eth0 netns lan
ip address add 10.99.0.1/24 dev v0 && ip link set v0 up
ip -n lan link set eth0 up
systemd-run --quiet --slice={SLICE} busybox nc -ll -p 40001 -e busybox echo rank
systemd-run --quiet busybox nc -ll -p 40002 -e busybox echo other
for port in 40001 40002; do
  until busybox nc -w 5 10.99.0.1 $port </dev/null; do sleep 0.5; done
  for from in 2 3; do
    ip -n lan address flush dev eth0 && ip -n lan address add 10.99.0.$from/24 dev eth0
    echo "$from: $(ip netns exec lan busybox nc -w 5 10.99.0.1 $port </dev/null 2>&1)"
  done
done
"""


def test_after_a_boot_the_ports_of_the_slice_are_closed(tmp_path: Path) -> None:
    files = {
        name: rules(template, host_tuning_ranks_slice=SLICE, host_tuning_peers=["10.99.0.2"])
        for name, template in (
            ("headfirst-firewall.nft", "firewall.nft.j2"),
            ("headfirst-firewall.service", "firewall.service.j2"),
            (SLICE, "ranks.slice.j2"),
        )
    }
    (tmp_path / "job" / "etc").mkdir(parents=True)
    for name, text in (files | JOB).items():
        (tmp_path / "job" / "etc" / name).write_text(text)
    status, output = virtual_machine.run(["bash", "-c", SCRIPT], tmp_path, 600, modules=MODULES, init=INIT)
    assert status == 0, output
    rank, other = ["rank", "2: rank", f"3: {REFUSED}"], ["other", "2: other", "3: other"]
    expected = ["active", "active", "refused", *rank, *other]
    assert [line.strip() for line in output.splitlines()] == expected
