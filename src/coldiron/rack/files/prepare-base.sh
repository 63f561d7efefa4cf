#!/bin/sh
# Makes a fresh Debian root fit for many nodes: run by mmdebstrap on the finished root file system ($1).
set -eu
root=$1

mask() {
    for unit; do
        ln -sf /dev/null "$root/etc/systemd/system/$unit"
    done
}

# The host's devices, consoles, modules and kernel file systems are the host's.
mask systemd-udevd.service systemd-udev-trigger.service systemd-udev-settle.service \
    systemd-udevd-control.socket systemd-udevd-kernel.socket systemd-hwdb-update.service \
    systemd-modules-load.service systemd-pstore.service systemd-random-seed.service \
    getty@.service serial-getty@.service console-getty.service container-getty@.service getty.target \
    modprobe@.service dev-hugepages.mount sys-kernel-debug.mount sys-kernel-tracing.mount \
    sys-kernel-config.mount sys-fs-fuse-connections.mount proc-sys-fs-binfmt_misc.automount \
    proc-sys-fs-binfmt_misc.mount systemd-binfmt.service
# A container's /dev and root are made before it boots.
mask systemd-remount-fs.service systemd-tmpfiles-setup-dev-early.service systemd-tmpfiles-setup-dev.service
mkdir -p "$root/etc/systemd/system-generators"
for generator in debug getty gpt-auto hibernate-resume run ssh system-update tpm2; do
    ln -sf /dev/null "$root/etc/systemd/system-generators/systemd-$generator-generator"
done
# The rack sets addresses; a resolver, a time server or a network manager comes by a role.
mask systemd-networkd.service systemd-networkd.socket systemd-networkd-wait-online.service
# Nothing may change a node behind a test's back.
mask apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer fstrim.timer e2scrub_all.timer man-db.timer

# Node and host share one kernel: at boot a node applies what belongs to its own network namespace only.
mkdir -p "$root/etc/systemd/system/systemd-sysctl.service.d"
cat > "$root/etc/systemd/system/systemd-sysctl.service.d/virtual-rack.conf" <<'EOF'
[Service]
ExecStart=
ExecStart=/usr/lib/systemd/systemd-sysctl --prefix=/net
EOF

# Many connections at once from one controller are no attack.
{
    echo 'MaxStartups 200:30:400'
    echo 'UseDNS no'
    if [ "$COLDIRON_DISTRIBUTION" != debian-12 ]; then
        echo 'PerSourcePenalties no'
    fi
} > "$root/etc/ssh/sshd_config.d/00-virtual-rack.conf"

# Nodes are thrown away: no package is worth an fsync.
rm -f "$root/etc/dpkg/dpkg.cfg.d/99mmdebstrap" "$root/etc/apt/apt.conf.d/99mmdebstrap"
echo force-unsafe-io > "$root/etc/dpkg/dpkg.cfg.d/90-virtual-rack"
printf '%s' "$COLDIRON_APT_OPTIONS" > "$root/etc/apt/apt.conf.d/90virtual-rack"

# Identity is each node's own.
rm -f "$root"/etc/ssh/ssh_host_* "$root/etc/resolv.conf" "$root/etc/hostname" "$root/var/lib/dbus/machine-id"
: > "$root/etc/machine-id"
: > "$root/etc/resolv.conf"
install -d -m 0700 "$root/root/.ssh"
mkdir -p "$root/var/lib/docker" "$root/var/lib/containerd"
rm -rf "$root"/var/log/apt "$root/var/log/dpkg.log" "$root/var/log/bootstrap.log" "$root/var/log/alternatives.log"

# What a first boot would work out on every node is worked out once.
chroot "$root" ldconfig
chroot "$root" journalctl --update-catalog
touch "$root/etc/.updated" "$root/var/.updated"
