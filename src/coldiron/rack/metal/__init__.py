"""Machines of the virtual rack: QEMU guests with firmware, empty disks and a management controller each."""
