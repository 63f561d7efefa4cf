#!/bin/sh
# ROOT COMMAND...: run a command in the root of an image that is being made, as Ansible's chroot connection calls it.
# Name spaces of its own: whatever ends the command, no daemon of it lives on and no mount is left.
exec unshare --mount --pid --fork --kill-child --propagation private -- sh -c '
    set -eu
    root=$1
    shift
    mount -t proc proc "$root/proc"
    mount -t sysfs -o ro sysfs "$root/sys"
    mount -t tmpfs -o mode=0755 tmpfs "$root/run"
    mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
    mount -t tmpfs -o mode=0755 tmpfs "$root/dev"
    for device in null zero full random urandom tty; do
        : > "$root/dev/$device"
        mount --bind "/dev/$device" "$root/dev/$device"
    done
    mkdir "$root/dev/shm" "$root/dev/pts"
    ln -s /proc/self/fd "$root/dev/fd"
    # The archive is asked by name: by this machine, not by the image.
    if [ -e "$root/etc/resolv.conf" ]; then
        mount --bind /etc/resolv.conf "$root/etc/resolv.conf"
    fi
    exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LC_ALL=C.UTF-8 \
        SYSTEMD_OFFLINE=1 DEBIAN_FRONTEND=noninteractive chroot "$root" "$@"
' sh "$@"
