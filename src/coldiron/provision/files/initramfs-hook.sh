#!/bin/sh
# Drivers that may be needed to find the root file system, whatever the server.
[ "$1" != prereqs ] || exit 0
. /usr/share/initramfs-tools/hook-functions
modules="@MODULES@"
manual_add_modules $modules
# mdadm's hook, which ran before, has every kind of array loaded at each boot, and some measure the processor for half
# a second first. An array loads what it needs by itself; kinds of the list stay.
[ -e "$DESTDIR/conf/modules" ] || exit 0
for kind in linear multipath raid0 raid1 raid4 raid456 raid5 raid6 raid10; do
    case " $modules " in
    *" $kind "*) ;;
    *) sed -i "/^$kind\$/d" "$DESTDIR/conf/modules" ;;
    esac
done
