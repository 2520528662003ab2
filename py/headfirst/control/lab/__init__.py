"""A lab: nodes with systemd and sshd on this machine, where bare servers are not at hand."""
