"""A lab: nodes with systemd and sshd on this machine, where bare servers are not at hand."""

from headfirst.lab.lifecycle import down, status, up
from headfirst.lab.types import Lab, LabAccess, LabNode, NodeStatus, Progress, state_home

__all__ = ["Lab", "LabAccess", "LabNode", "NodeStatus", "Progress", "down", "state_home", "status", "up"]
