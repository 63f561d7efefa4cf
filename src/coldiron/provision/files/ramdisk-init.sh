#!/usr/bin/busybox sh
# The RAM environment's first and only task: show Python the machine's devices and let it deploy.
export PATH=/usr/sbin:/usr/bin
mount -t proc -o nosuid,nodev,noexec proc /proc
mount -t sysfs -o nosuid,nodev,noexec sysfs /sys
mount -t devtmpfs -o nosuid,mode=0755 devtmpfs /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts -o nosuid,noexec,mode=620 devpts /dev/pts
mount -t tmpfs -o nosuid,nodev,mode=0755 tmpfs /run
# Drivers say much; what a person has to see is said by the deploy program.
echo 3 > /proc/sys/kernel/printk
echo "coldiron: RAM environment"
/usr/lib/systemd/systemd-udevd --daemon --resolve-names=never
udevadm trigger --type=all --action=add
python3 -I -S /usr/lib/coldiron/start.py
echo "coldiron: this machine waits; what went wrong is said above. Start it again by its BMC."
while :; do
    sleep 3600
done
