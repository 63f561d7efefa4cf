"""What is exported can be read, and written where it may be, from another node; there is one home."""

from __future__ import annotations

import ipaddress
import shlex

import pytest

EXPORT_DEFAULT = ["rw", "sync", "no_subtree_check", "root_squash"]


def look_at(home):
    """A command that tells one directory from another: its number, its last change and what is in it."""
    return f"stat -c '%i %Y' {home} && ls -A {home}"


@pytest.fixture
def readers(site, hostname, role_hosts, run_on):
    """Other nodes that have a client in user space, which reads a server without mounting, and their addresses."""
    others = [
        (run_on(name), site.hostvars(name)["ansible_host"]) for name in role_hosts("nfs") if name != hostname
    ]
    return [(other, address) for other, address in others if other.exists("nfs-ls")]


def is_client(address, export):
    """Tell whether an address is let in by an export."""
    networks = [ipaddress.ip_network(client) for client in export["clients"]]
    return any(ipaddress.ip_address(address) in network for network in networks)


def server(hostvars):
    return hostvars["ansible_host"]


def served(export):
    return export.get("options", EXPORT_DEFAULT)


def test_the_home_is_one_and_the_same(host, opts, role_hosts, run_on):
    home = opts["nfs_home_path"]
    assert host.file(home).is_directory
    if opts["nfs_home_backend"] == "provided" or opts["nfs_mount_now"]:
        assert len({run_on(name).check_output(look_at(home)) for name in role_hosts("nfs")}) == 1


def test_a_provided_home_is_left_alone(host, opts):
    if opts["nfs_home_backend"] == "provided":
        assert not host.file("/etc/systemd/system/home.automount").exists
        assert not host.file("/etc/exports.d/coldiron.exports").exists


def test_the_server_runs_and_starts_at_boot(host, opts):
    if not opts["nfs_serve"]:
        return
    unit = {"kernel": "nfs-server", "ganesha": "nfs-ganesha"}[opts["nfs_implementation"]]
    assert host.service(unit).is_running
    assert host.service(unit).is_enabled
    if opts["nfs_implementation"] == "kernel":
        assert host.check_output("cat /proc/fs/nfsd/threads") == str(opts["nfs_threads"])
        live = host.check_output("exportfs -s")
        for export in opts["nfs_exports"]:
            assert f"{export['path']} " in live


def test_another_node_reads_what_is_exported_to_it(host, opts, hostvars, readers, eventually):
    if not opts["nfs_serve"]:
        return
    for export in opts["nfs_exports"]:
        here = set(host.check_output(f"ls -A {export['path']}").split())
        # What lies on an export's path is seen by those only whom that one lets in.
        inner = {other["path"].rpartition("/")[2] for other in opts["nfs_exports"]}
        for reader, address in readers:
            url = f"nfs://{server(hostvars)}{export['path']}?version=4"
            command = f"nfs-ls {shlex.quote(url)}"
            if not is_client(address, export):
                assert reader.run(command).rc != 0, f"{address} is let into {export}"
                continue

            def listed(reader=reader, command=command):
                """A server that has just started is not heard yet."""
                answer = reader.run(command)
                assert answer.rc == 0, answer.stderr
                return answer

            there = eventually(listed, seconds=30)
            assert {line.split()[-1] for line in there.stdout.splitlines()} | inner == here | inner


@pytest.mark.acts
def test_another_node_writes_only_where_it_may(host, opts, hostvars, readers, eventually):
    if not opts["nfs_serve"]:
        return

    def written(reader, path, uid, may):
        """Write a file over the network as somebody; a server that has just started asks for patience."""

        def answered():
            said = reader.run(command)
            return said.rc == 0 if may else "GRACE" not in said.stderr

        url = f"nfs://{server(hostvars)}{path}?version=4&uid={uid}&gid={uid}"
        command = f"nfs-cp /etc/os-release {shlex.quote(url)}"
        patience = opts["nfs_grace_seconds"] + 10
        eventually(answered, seconds=patience, every=2)
        return host.file(path).exists

    for export in opts["nfs_exports"]:
        # New names every time: a server in user space remembers for a while what was taken away behind its back.
        place = host.check_output(f"mktemp --directory {export['path']}/.written-by-a-test-XXXXXX")
        host.check_output(f"chown 65000:65000 {place}")
        try:
            for number, (reader, address) in enumerate(readers):
                writable = "rw" in served(export) and is_client(address, export)
                root = writable and "no_root_squash" in served(export)
                assert written(reader, f"{place}/owner{number}", 65000, writable) == writable, export
                assert written(reader, f"{place}/root{number}", 0, root) == root, export
        finally:
            host.run(f"rm -rf {place}")


def test_mounts_are_valid_and_start_at_boot(host, opts):
    for mount in opts["nfs_mounts"]:
        source = f"{mount['server']}:{mount['export']}"
        if opts["nfs_mount_with"] == "fstab":
            assert host.check_output(f"findmnt --fstab -no SOURCE {mount['path']}") == source
            continue
        kinds = ["mount", "automount"] if mount.get("automount", True) else ["mount"]
        escape = f"systemd-escape --path {mount['path']} --suffix"
        units = [host.check_output(f"{escape}={kind}") for kind in kinds]
        assert host.run(f"systemd-analyze verify --man=no {' '.join(map(shlex.quote, units))}").rc == 0
        assert host.service(units[-1]).is_enabled
        said = host.check_output(f"systemctl cat {shlex.quote(units[0])}").splitlines()
        options = ",".join(mount.get("options", ["hard", "noatime", "nodev", "nosuid"]))
        for line in (f"What={source}", f"Where={mount['path']}", "Type=nfs", f"Options={options}"):
            assert line in said


def test_mounts_are_there(host, opts):
    if not opts["nfs_mount_now"]:
        return
    for mount in opts["nfs_mounts"]:
        host.check_output(f"ls {mount['path']}")
        assert host.check_output(f"findmnt -t nfs,nfs4 -no SOURCE {mount['path']}") == (
            f"{mount['server']}:{mount['export']}"
        )
