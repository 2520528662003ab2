"""A lab's description is refused before anything is made from it."""

from pathlib import Path

import pytest
from headfirst.common.errors import InputError
from headfirst.control.lab.types import Lab, LabNode


def lab(*nodes: LabNode, name: str = "demo", subnet: str = "10.9.8.0/24") -> Lab:
    return Lab(name, subnet, nodes, Path("/state"), Path("/shared"))


def test_names_and_gateway_follow_from_the_description() -> None:
    node = LabNode("node1", "10.9.8.11")
    described = lab(node)
    assert described.gateway == "10.9.8.1"
    assert described.network_name == "headfirst-demo"
    assert described.container_name(node) == "headfirst-demo-node1"


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        ("10.9.9.11", "outside the subnet"),
        ("10.9.8.0", "the network itself"),
        ("10.9.8.1", "the gateway"),
        ("10.9.8.255", "the broadcast address"),
        ("node1.example", "no address"),
    ],
)
def test_an_address_that_a_node_cannot_have_is_refused(address: str, reason: str) -> None:
    with pytest.raises(InputError, match=r"is not free in 10\.9\.8\.0/24") as refused:
        lab(LabNode("node1", address))
    assert "10.9.8.2 to 10.9.8.254" in str(refused.value), reason


def test_two_nodes_with_one_address_or_name_are_refused() -> None:
    with pytest.raises(InputError, match=r"same address: 10\.9\.8\.11"):
        lab(LabNode("node1", "10.9.8.11"), LabNode("node2", "10.9.8.11"))
    with pytest.raises(InputError, match="same name: node1"):
        lab(LabNode("node1", "10.9.8.11"), LabNode("node1", "10.9.8.12"))


@pytest.mark.parametrize("name", ["", "Node1", "node_1", "-node", "a" * 64, "x;reboot"])
def test_what_cannot_be_a_host_name_is_refused(name: str) -> None:
    with pytest.raises(InputError, match="cannot name"):
        lab(LabNode(name, "10.9.8.11"))
    with pytest.raises(InputError, match="cannot name"):
        lab(name=name)


@pytest.mark.parametrize("memory", ["4 GB", "0", "4gb", "lots", "-1g"])
def test_what_is_no_amount_of_memory_is_refused(memory: str) -> None:
    with pytest.raises(InputError, match="write 4g or 512m"):
        lab(LabNode("node1", "10.9.8.11", memory=memory))


@pytest.mark.parametrize("subnet", ["10.9.8.1/24", "10.9.8.0/33", "lan", "fd00::/64"])
def test_what_is_no_ipv4_network_is_refused(subnet: str) -> None:
    with pytest.raises(InputError, match="not an IPv4 network"):
        lab(subnet=subnet)
