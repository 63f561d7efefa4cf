"""The virtual rack: a cluster's nodes as systemd containers on this machine."""
