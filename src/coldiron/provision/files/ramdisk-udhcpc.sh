#!/usr/bin/busybox sh
# Called by udhcpc. Addresses only: the provisioner is known by its address, so no resolver is needed.
case "$1" in
deconfig)
    ip addr flush dev "$interface"
    ;;
bound | renew)
    ip addr replace "$ip/${mask:-24}" dev "$interface"
    for gateway in $router; do
        ip route replace default via "$gateway" dev "$interface"
        break
    done
    ;;
esac
