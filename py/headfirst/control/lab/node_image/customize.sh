#!/bin/sh
# Turns the Debian or Ubuntu root in $1 into a lab node. Run by mmdebstrap, as root.
set -eu
root=$1
here=$(dirname "$0")

# As root's own files, whoever owns the checkout.
cp -r --no-preserve=ownership,mode "$here/files/." "$root/"
chmod 0440 "$root/etc/sudoers.d/headfirst"
chmod 0755 "$root/usr/local/sbin/headfirst-node-init"

chroot "$root" useradd --uid 1000 --create-home --shell /bin/bash headfirst
install -d -m 0700 -o 1000 -g 1000 "$root/home/headfirst/.ssh"
chroot "$root" systemctl --quiet enable headfirst-first-boot.service
# Consoles that a node has not got, timers that would hold apt's lock, daemons that Docker's network replaces,
# and kernel settings, which are the host's.
chroot "$root" systemctl --quiet mask console-getty.service getty.target apt-daily.timer \
    apt-daily-upgrade.timer systemd-networkd.service systemd-networkd.socket systemd-resolved.service \
    systemd-sysctl.service

# Every node makes its own, and the host's package sources are no part of the image.
: >"$root/etc/machine-id"
rm -f "$root"/etc/ssh/ssh_host_* "$root/etc/apt/sources.list" "$root"/etc/apt/sources.list.d/* \
    "$root/etc/apt/apt.conf.d/99mmdebstrap" "$root"/etc/apt/auth.conf.d/* "$root/etc/hostname"
