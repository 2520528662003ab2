"""NCCL's own lines, as people have posted them, and the way of the bytes that they tell."""

from __future__ import annotations

from ansible_collections.headfirst.serving.plugins.plugin_utils.comm_rules import transport

DIRECT = """\
10-90-43-152:120890:121560 [0] NCCL INFO Channel 01 : 2[c7000] -> 0[87000] [receive] via NET/IB/5/GDRDMA
10-90-43-152:120890:121563 [3] NCCL INFO Channel 01 : 3[ca000] -> 2[c7000] [send] via NET/IB/2/GDRDMA
node1:12345:12400 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0(1)/GDRDMA
n013:101855:101885 [0] NCCL INFO Using network IB
NCCL version 2.4.7+cuda10.0
master_node:20:289 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB ; OOB ib0:192.168.11.1<0>
"""
HALF = """\
hostA:31842:31905 [0] NCCL INFO NET/IB : Using [0]mlx5_2:1/RoCE [1]mlx5_3:1/RoCE [RO]; OOB eth0:10.0.4.19<0>
hostA:31842:31905 [0] NCCL INFO Using network IB
sz-k8s-master:65286:65341 [0] NCCL INFO GPU Direct RDMA Disabled for GPU 0 / HCA 2 (distance 7 > 0)
[0]<stdout>:node01:150770:150790 [0] NCCL INFO Channel 00/0 : 1[3b000] -> 0[3b000] [receive] via NET/IB/1
node1:1:1 [0] NCCL INFO Channel 01/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA
gpuserver1:15326:15400 [0] NCCL INFO Channel 00 : 0[0] -> 1[1] via SHM/direct/direct
gpuserver1:15326:15400 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read
"""
SOCKET = """\
ip-172-31-12-21:45361:45361 [0] NCCL INFO NET/IB : No device found.
ip-172-31-12-210:45305:45305 [0] NCCL INFO NET/Socket : Using [0]ens3:172.31.12.210<0>
ip-172-31-12-210:45305:45305 [0] NCCL INFO Using network Socket
c:920:1145 [1] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [receive] via NET/Socket/0
"""
PLUGIN = """\
hostname-test:984:1257 [4] NCCL INFO Channel 06/0 : 36[4] -> 20[4] [send] via NET/IBext_v8/3
hostname-test:984:1257 [4] NCCL INFO Using network IBext_v8
worker:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 8[0] [send] via NET/AWS Libfabric/0/GDRDMA
"""


def test_rdma_from_gpu_memory() -> None:
    way = transport(DIRECT.splitlines())
    assert way == {
        "version": "2.4.7+cuda10.0",
        "network": "IB",
        "devices": ["mlx5_0:1/IB"],
        "rdma": 3,
        "direct": 3,
        "socket": 0,
        "inside": 0,
        "disabled": [],
    }


def test_rdma_that_goes_through_the_hosts_memory() -> None:
    way = transport(HALF.splitlines())
    assert (way["rdma"], way["direct"], way["socket"], way["inside"]) == (2, 1, 0, 2)
    assert way["devices"] == ["mlx5_2:1/RoCE", "mlx5_3:1/RoCE"]
    assert way["disabled"] == ["GPU Direct RDMA Disabled for GPU 0 / HCA 2 (distance 7 > 0)"]


def test_sockets_and_their_interface() -> None:
    way = transport(SOCKET.splitlines())
    assert (way["network"], way["devices"]) == ("Socket", ["ens3:172.31.12.210"])
    assert (way["rdma"], way["socket"]) == (0, 1)


def test_plugins_are_rdma_too() -> None:
    way = transport(PLUGIN.splitlines())
    assert (way["rdma"], way["direct"], way["network"]) == (2, 1, "IBext_v8")


def test_a_log_that_tells_nothing() -> None:
    assert not any(transport(["node1:1:1 [0] NCCL INFO Bootstrap : Using eth0:10.0.0.1<0>"]).values())
