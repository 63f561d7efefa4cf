"""The rack's parts by themselves: what they read, what they say, what they would type."""

from __future__ import annotations

import asyncio
import os
import shlex
import socket
import subprocess
import sys
import threading
from io import StringIO
from ipaddress import IPv4Interface, IPv4Network
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from coldiron.errors import ColdironError
from coldiron.rack import aptsource, base, cache, cgroup, keys, layers, machine, network, node, remote, spec
from coldiron.rack.connection import connection_vars, rack_nodes
from coldiron.rack.host import CommandError, Host, mount_points, search_path, wait_until
from coldiron.rack.layout import Layout
from coldiron.rack.report import Report
from coldiron.rack.requirements import REQUIREMENTS, Requirement, missing
from coldiron.rack.state import NodeState, RackState, Registry, read_json, write_atomically


def rack_state(inventory: Path, **changes: object) -> RackState:
    state = RackState(
        name="toy", inventory=str(inventory), domain="toy.internal", subnet="10.9.0.0/24", gateway="10.9.0.254",
        mtu=1400, bridge="ci-toy", home_backend="provided", sockets="/run/coldiron/12345678",
        apt_proxy="http://10.9.0.254:3143", apt_mirror="http://mirror.example/debian",
        nodes={"gpu01": NodeState("gpu01", "10.9.0.41", "debian-13", "gpu", "/base/root", 2, "h100")},
    )  # fmt: skip
    for name, value in changes.items():
        setattr(state, name, value)
    return state


# --- names ---


@given(
    st.from_regex(r"[a-z][a-z0-9_-]{0,31}", fullmatch=True),
    st.from_regex(r"[a-z][a-z0-9-]{0,62}", fullmatch=True),
)
def test_names_fit_the_kernel(name: str, host: str) -> None:
    layout = Layout(name, Path("/inventory"))
    assert len(layout.bridge) <= 15
    assert len(layout.veth(host)) <= 15
    assert int(layout.mac(host)[:2], 16) & 3 == 2  # one card's, and locally given
    # %h-%p-%r, and the 17 characters that ssh adds while it makes the socket.
    assert len(str(layout.sockets)) + len("/255.255.255.255-22-root") + 17 < 108


def test_racks_with_alike_names_share_nothing() -> None:
    one, other = Layout("a", Path("/one")), Layout("a-b", Path("/two"))
    assert not other.netns("c").startswith(one.netns_prefix)
    assert one.veth("b-c") != other.veth("c")
    assert one.bridge != other.bridge
    long = [Layout(f"{'x' * 20}{end}", Path("/one")).bridge for end in "ab"]
    assert long[0] != long[1]


# --- the host ---


def test_mount_points_are_deepest_first() -> None:
    text = (
        "1 0 0:1 / / rw - ext4 /dev/sda rw\n"
        "2 1 0:2 / /data/a rw - overlay x rw\n"
        "3 1 0:2 / /data/a/b\\040c rw - overlay x rw\n"
        "4 1 0:2 / /database rw - overlay x rw\n"
        "\n"
    )
    assert mount_points(text, Path("/data")) == [Path("/data/a/b c"), Path("/data/a")]


def test_a_command_that_fails_says_its_last_lines() -> None:
    host = Host()
    with pytest.raises(CommandError, match="trying: first; second"):
        host.run(["sh", "-c", "echo first >&2; echo second >&2; exit 3"], what="trying")
    with pytest.raises(CommandError, match="it said nothing"):
        host.run(["false"])
    with pytest.raises(CommandError, match="no-such-command is not installed"):
        host.run(["no-such-command"])
    with pytest.raises(CommandError, match="no end after 0 s"):
        host.run(["sleep", "5"], timeout_seconds=0.1)
    assert host.run(["cat"], stdin="in").stdout == "in"
    assert host.run(["sh", "-c", "exit 3"], check=False).returncode == 3


def test_system_commands_are_found_without_roots_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin")
    assert search_path() == "/usr/bin:/usr/sbin:/sbin"


def test_a_lock_is_waited_for_and_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "run/lock"
    told: list[str] = []
    order: list[str] = []

    def other() -> None:
        with Host().lock(path, told.append):
            order.append("second")

    with Host().lock(path):
        thread = threading.Thread(target=other)
        thread.start()
        assert wait_until(lambda: bool(told), 5.0)
        order.append("first")
    thread.join(5.0)
    assert order == ["first", "second"]
    assert len(told) == 1
    assert not path.exists()


def test_a_lock_lasts_as_long_as_a_command_of_its_holder(tmp_path: Path) -> None:
    """As after kill -9 of the holder: its command still works on the rack."""
    path, at_work, may_end = tmp_path / "lock", tmp_path / "at-work", tmp_path / "may-end"
    work = f"touch {at_work}; until test -e {may_end}; do sleep 0.05; done; touch {tmp_path}/done"
    code = (
        "import sys; from pathlib import Path; from coldiron.rack.host import Host\n"
        "host = Host()\n"
        "with host.lock(Path(sys.argv[1])):\n"
        "    host.run(['sh', '-c', sys.argv[2]])\n"
    )
    holder = subprocess.Popen([sys.executable, "-c", code, str(path), work])
    assert wait_until(at_work.exists, 60.0)
    holder.kill()
    holder.wait()
    told: list[str] = []

    def wait(text: str) -> None:
        told.append(text)
        may_end.touch()

    with Host().lock(path, wait):
        assert told
        assert (tmp_path / "done").exists()


def test_a_lock_held_too_long_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coldiron.rack.host._LOCK_WAIT_SECONDS", 0.1)
    with (
        Host().lock(tmp_path / "lock"),
        pytest.raises(ColdironError, match="has held this lock"),
        Host().lock(tmp_path / "lock"),
    ):
        pass


def test_a_spawned_command_is_in_its_control_group_first(tmp_path: Path) -> None:
    group = tmp_path / "group"
    group.mkdir()
    host = Host()
    with host.lock(tmp_path / "lock"):
        process = host.spawn(
            ["sh", "-c", "echo $X; cat"], cgroup=group, log=tmp_path / "log", env={"X": "said"}
        )
        assert process.wait(10) == 0
    assert (group / "cgroup.procs").read_text() == "0\n"
    # Its standard input is empty, not the lock.
    assert (tmp_path / "log").read_text() == "said\n"


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "a/b.json"
    write_atomically(path, "one", 0o600)
    write_atomically(path, "two")
    assert path.read_text() == "two"
    assert os.listdir(path.parent) == ["b.json"]
    path.write_text("[1]")
    with pytest.raises(ColdironError, match="not of this version"):
        read_json(path)
    path.write_text("{")
    with pytest.raises(ColdironError, match="not of this version"):
        read_json(path)
    assert read_json(tmp_path / "none") is None


def test_states_survive_a_round_trip(tmp_path: Path) -> None:
    state = rack_state(tmp_path)
    state.save(tmp_path / "state.json")
    assert RackState.load(tmp_path / "state.json") == state
    registry = Registry({"toy": "/x"}, {"fs.file-max": "1"}, True, 3143)
    registry.save(tmp_path / "registry.json")
    assert Registry.load(tmp_path / "registry.json") == registry
    assert Registry.load(tmp_path / "none") == Registry()


# --- control groups ---

HYBRID = (
    "24 1 0:9 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
    "25 24 0:9 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
    "26 24 0:10 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
)
PURE = "26 24 0:10 / /sys/fs/cgroup rw shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"


@pytest.mark.parametrize(
    ("mountinfo", "root"),
    [
        (HYBRID, "/sys/fs/cgroup/unified"),
        (PURE, "/sys/fs/cgroup"),
        ("26 24 0:10 / /mnt/cg rw - cgroup2 x rw\n", "/mnt/cg"),
        # A container's bind of a part of it is not the root.
        (PURE + "27 24 0:10 /sub /mnt/x rw - cgroup2 x rw\n", "/sys/fs/cgroup"),
    ],
)
def test_the_unified_hierarchy_is_found_beside_and_without_v1(mountinfo: str, root: str) -> None:
    assert cgroup.unified_root(mountinfo) == Path(root)


def test_a_host_without_the_unified_hierarchy_is_told_what_to_boot() -> None:
    with pytest.raises(ColdironError, match=r"systemd\.unified_cgroup_hierarchy=1"):
        cgroup.unified_root("25 24 0:9 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n")


def test_on_a_pure_v2_host_controllers_are_handed_on_below_our_own_group_only(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids\n")
    (tmp_path / "coldiron").mkdir()
    (tmp_path / "coldiron/cgroup.controllers").write_text("memory\n")
    cgroup.Cgroup(tmp_path, "coldiron/toy/gpu01").make()
    assert (tmp_path / "coldiron/toy/gpu01").is_dir()
    assert (tmp_path / "coldiron/cgroup.subtree_control").read_text() == "+memory"
    # The host's own root is not written to.
    assert not (tmp_path / "cgroup.subtree_control").exists()


def test_processes_are_killed_even_without_cgroup_kill(tmp_path: Path) -> None:
    group = cgroup.Cgroup(tmp_path, "g")
    group.kill()
    (tmp_path / "g/below").mkdir(parents=True)
    assert not group.populated()
    (tmp_path / "g/cgroup.events").write_text("populated 1\nfrozen 0\n")
    with subprocess.Popen(["sleep", "60"]) as process:
        (tmp_path / "g/below/cgroup.procs").write_text(f"{process.pid}\n")
        assert group.pids() == [process.pid]
        with pytest.raises(ColdironError, match="do not end"):
            group.kill(seconds=0.1)
        assert process.wait(5) == -9


def test_a_group_goes_with_all_below_it(tmp_path: Path) -> None:
    group = cgroup.Cgroup(tmp_path, "a")
    (tmp_path / "a/b/c").mkdir(parents=True)
    group.remove()
    group.remove()
    assert not group.exists()


# --- network ---


def test_the_mtu_is_the_uplinks() -> None:
    links = '[{"ifname": "lo", "mtu": 65536}, {"ifname": "eth0", "mtu": 1400}]'
    assert (
        network.uplink_mtu('[{"dst": "10.0.0.0/8", "dev": "lo"}, {"dst": "default", "dev": "eth0"}]', links)
        == 1400
    )
    assert network.uplink_mtu("[]", links) == 1500
    assert network.uplink_mtu("", "") == 1500


def test_overlapping_routes_are_found_whatever_their_table() -> None:
    routes = network.parse_routes(
        '[{"dst": "default", "dev": "eth0"}, {"dst": "fe80::/64", "dev": "eth0"},'
        ' {"type": "broadcast", "dst": "10.9.0.255", "dev": "x"}, {"type": "local", "dst": "127.0.0.0/8", "dev": "lo"},'
        ' {"dst": "10.8.0.0/16", "dev": "tun0"}, {"dst": "10.9.0.7", "dev": "ci-toy"}]'
    )
    subnet = IPv4Network("10.9.0.0/24")
    assert network.overlap(subnet, routes, "ci-toy") is None
    taken = network.overlap(subnet, routes, "ci-other")
    assert taken is not None
    assert taken.interface == "ci-toy"
    wide = network.overlap(IPv4Network("10.8.1.0/24"), routes, "ci-toy")
    assert wide is not None
    assert str(wide.network) == "10.8.0.0/16"


def test_what_ip_is_told() -> None:
    address = IPv4Interface("10.9.0.254/24")
    bridge = network.bridge_commands("ci-toy", "alias", address, 1400).splitlines()
    assert bridge[0].startswith("link add name ci-toy mtu 1400 type bridge")
    assert bridge[-1] == "link set dev ci-toy up"
    cable = network.Cable("ns", "veth", "02:00:00:00:00:01", IPv4Interface("10.9.0.41/24"))
    assert network.cable_commands("ci-toy", cable, 1400).splitlines() == [
        "netns add ns",
        "link add name veth mtu 1400 master ci-toy up type veth "
        "peer name eth0 address 02:00:00:00:00:01 mtu 1400 netns ns",
    ]
    inside = network.node_commands(cable.address)
    assert "addr add 10.9.0.41/24" in inside
    assert "default" not in inside
    inside = network.node_commands(cable.address, ("10.8.0.41", "10.9.0.141"))
    assert inside.splitlines()[-1] == "route add 10.8.0.41/32 dev eth0"


# --- the archive ---

DEB822 = """\
# A comment
Types: deb deb-src
URIs: http://mirror.example/debian
Suites: trixie trixie-updates
Components: main
 non-free-firmware
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://mirror.example/debian-security/
Suites: trixie-security
Components: main
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
 .
 abc

Enabled: no
Types: deb
URIs: http://off.example/debian
Suites: trixie
Components: main

Types: deb-src
URIs: http://src.example/debian
Suites: trixie
Components: main
"""


def test_a_deb822_file_is_read() -> None:
    entries = aptsource.parse_deb822(DEB822)
    assert [entry.uris for entry in entries] == [
        ("http://mirror.example/debian",),
        ("http://mirror.example/debian-security/",),
    ]
    assert entries[0].components == ("main", "non-free-firmware")
    assert entries[1].keyring is None
    source = aptsource.from_entries(entries, "here")
    assert source.mirror == "http://mirror.example/debian"
    assert source.sources("debian-12") == (
        "deb http://mirror.example/debian bookworm main non-free-firmware\n"
        "deb http://mirror.example/debian bookworm-updates main non-free-firmware\n"
        "deb http://mirror.example/debian-security bookworm-security main\n"
    )


def test_a_one_line_file_is_read() -> None:
    entries = aptsource.parse_one_line(
        "# deb http://off.example/debian trixie main\n"
        "deb-src http://src.example/debian trixie main\n"
        "deb [arch=amd64 signed-by=/site.gpg] https://mirror.example/debian trixie main contrib # x\n"
    )
    assert entries == [
        aptsource.Entry(
            ("https://mirror.example/debian",),
            ("trixie",),
            ("main", "contrib"),
            "/site.gpg",
        )
    ]
    source = aptsource.from_entries(entries, "here")
    assert source.keyring == "/site.gpg"
    # The cache speaks TLS by this spelling.
    assert source.sources("debian-13") == "deb http://HTTPS///mirror.example/debian trixie main contrib\n"


def test_other_projects_archives_are_not_taken_for_debian() -> None:
    entries = aptsource.parse_one_line(
        "deb [signed-by=/etc/apt/keyrings/salt.gpg] http://a.example/salt bookworm main\n"
        "deb http://b.example/pgdg bookworm-pgdg main\n"
        "deb http://c.example/docker bookworm stable\n"
        "deb cdrom:[x]/ bookworm main\n"
        "deb http://mirror.example/debian bookworm main\n"
    )
    assert aptsource.from_entries(entries, "here").mirror == "http://mirror.example/debian"
    with pytest.raises(ColdironError, match=r"here: no Debian archive .* add your mirror's line"):
        aptsource.from_entries(entries[1:4], "here")


def test_cloud_images_mirror_lists_are_followed(tmp_path: Path) -> None:
    listing = tmp_path / "debian.list"
    listing.write_text("# first\nhttp://mirror.example/debian priority:1\n")
    entry = aptsource.Entry((f"mirror+file:{listing}", "mirror+file:/none"), ("trixie",), ("main",))
    assert aptsource.resolve_mirror_lists(entry).uris == ("http://mirror.example/debian", "mirror+file:/none")


def test_apts_proxy_and_clock_options_are_passed_on(tmp_path: Path) -> None:
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list.d/debian.sources").write_text(DEB822)
    (tmp_path / "sources.list.d/debian.sources.bak").write_text("Types: deb\n")
    dump = 'Acquire::http::Proxy "http://proxy.example:8080";\nAcquire::Check-Date "false";\nAPT::X "y";\n'
    source = aptsource.read_host(tmp_path, dump)
    assert source.proxy == "http://proxy.example:8080"
    assert source.options == {"Acquire::Check-Date": "false"}
    assert aptsource.parse_options('Acquire::http::Proxy "DIRECT";\n') == (None, {})


def test_a_distribution_without_an_image_is_refused() -> None:
    with pytest.raises(
        ColdironError, match="no image of rocky-9; write distribution: debian-12 or debian-13"
    ):
        aptsource.codename_of("rocky-9")


# --- base images ---

SOURCE = aptsource.AptSource(
    (("", "http://mirror.example/debian", ("main",)),), options={"Acquire::Check-Date": "false"}
)


def test_a_recipe_names_all_that_the_image_is_made_of() -> None:
    recipe = base.recipe("debian-13", SOURCE, "amd64")
    assert recipe.digest == base.recipe("debian-13", SOURCE, "amd64").digest
    others = [
        base.recipe("debian-12", SOURCE, "amd64"),
        base.recipe("debian-13", SOURCE, "arm64"),
        base.recipe("debian-13", aptsource.AptSource(SOURCE.parts), "amd64"),
    ]
    assert len({one.digest for one in (recipe, *others)}) == 4
    command = recipe.mmdebstrap(Path("/t"), Path("/s"), Path("/p"), "http://127.0.0.1:3143")
    assert command[:2] == ["unshare", "--mount"]
    assert '--aptopt=Acquire::http::Proxy "http://127.0.0.1:3143"' in command
    assert '--aptopt=Acquire::Check-Date "false"' in command
    assert command[-3:] == ["trixie", "/t", "/s"]
    assert subprocess.run(["sh", "-n"], input=recipe.script, text=True).returncode == 0


def test_the_newest_whole_image_is_taken(tmp_path: Path) -> None:
    assert base.newest(tmp_path, "debian-13-abc") is None
    for name in ("debian-13-abc-9", "debian-13-abc-10", "debian-13-abcd-99", ".baking.x.debian-13-abc"):
        (tmp_path / name / "root").mkdir(parents=True)
    (tmp_path / "debian-13-abc-11").mkdir()
    newest = base.newest(tmp_path, "debian-13-abc")
    assert newest == tmp_path / "debian-13-abc-10/root"
    assert base.baked_for(str(newest)) == "debian-13-abc"


def test_why_a_bake_failed() -> None:
    assert base.why("I: x\nE: Unable to locate package nope\nE: Unable to locate package nope\n") == (
        "E: Unable to locate package nope"
    )
    assert base.why("a\nb\nc\nd\n") == "b\nc\nd"
    assert "503  Host not found" in base.why("E: Failed to fetch http://x  503  Host not found\n")


def test_little_room_is_said_beforehand(tmp_path: Path) -> None:
    base.refuse_little_room(tmp_path / "not/yet", 1, "a rack")
    with pytest.raises(ColdironError, match=f"{tmp_path}: .* MiB are free, a rack needs 99999999999"):
        base.refuse_little_room(tmp_path / "not/yet", 99999999999, "a rack")


# --- package cache ---


def test_the_caches_configuration() -> None:
    text = cache.configuration(Path("/store"), 3143, "http://proxy.example:8080")
    assert "BindAddress: 127.0.0.1\n" in text
    assert "Proxy: http://proxy.example:8080\n" in text
    assert "Remap" not in text
    assert "Proxy" not in cache.configuration(Path("/store"), 3143, None)
    assert "--reuid=apt-cacher-ng" in cache.cache_command(Path("/c"))
    assert cache.forwarder_command("10.9.0.254", 4000)[1:] == [
        "--listen=10.9.0.254:3143", "/lib/systemd/systemd-socket-proxyd", "127.0.0.1:4000",
    ]  # fmt: skip


def test_a_port_in_use_is_not_taken() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen(1)
        port = taken.getsockname()[1]
        assert cache.listening("127.0.0.1", port)
        assert cache.free_port(port) != port
    assert cache.free_port(port) == port
    assert not cache.listening("127.0.0.1", port)


def test_a_cache_that_does_not_start_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(Host):
        def spawn(self, argv: object, *, log: Path, **rest: object) -> subprocess.Popen[bytes]:  # type: ignore[override]
            log.write_text("Cannot bind\n")
            return subprocess.Popen(["true"])

    monkeypatch.setattr(cache, "_START_SECONDS", 0.1)
    monkeypatch.setattr(cache.shutil, "chown", lambda *words: None)
    packages = cache.PackageCache(Broken(), tmp_path, tmp_path / "store")
    with pytest.raises(ColdironError, match=r"start.log: the package cache does not start: Cannot bind"):
        packages.start(1, None)
    with pytest.raises(ColdironError, match="the rack's package forwarder does not start: Cannot bind"):
        packages.open_door(cgroup.Cgroup(tmp_path, "door"), "127.0.0.1", 1, tmp_path / "log")


# --- nodes ---


def test_the_command_that_boots_a_node(tmp_path: Path) -> None:
    layout = Layout("to_y", tmp_path)
    state = rack_state(tmp_path).nodes["gpu01"]
    command = node.nspawn_command(layout, state, shared_home=True, devices=["/dev/fuse"])
    own = layout.node("gpu01")
    # Not the machine's own file, which its udev may have left to root.
    assert f"--bind={own}/dev/fuse:/dev/fuse" in command
    assert f"--bind={own}/dev/nvidia1:/dev/nvidia1" in command
    assert f"--bind={own}/dev/nvidiactl:/dev/nvidiactl" in command
    assert f"--bind={layout.home}:/home" in command
    assert "--machine=to-y.gpu01" in command
    assert "--hostname=gpu01" in command
    assert "--register=no" in command
    state.gpu_count = 0
    assert not any("nvidia" in word or "/home" in word for word in node.nspawn_command(
        layout, state, shared_home=False, devices=[]
    ))  # fmt: skip


def test_too_many_snapshots_on_each_other_are_refused(tmp_path: Path) -> None:
    state = rack_state(tmp_path).nodes["gpu01"]
    state.layers = ["/top", "/below"]
    options = node.overlay_options(state, Path("/own"))
    assert options == "lowerdir=/top:/below:/base/root,upperdir=/own/upper,workdir=/own/work,volatile"
    state.layers = [f"/var/cache/coldiron/layers/toy.gpu01.{number:019}" for number in range(100)]
    with pytest.raises(ColdironError, match="gpu01: 100 snapshots lie on each other"):
        node.overlay_options(state, Path("/own"))


def test_a_seed_is_written_once_and_never_through_a_link(tmp_path: Path) -> None:
    seed = node.Seed("etc/a", "text", 0o600)
    node.plant(tmp_path, seed)
    first = (tmp_path / "etc/a").stat().st_ino
    node.plant(tmp_path, seed)
    assert (tmp_path / "etc/a").stat().st_ino == first
    (tmp_path / "victim").write_text("text")
    (tmp_path / "etc/a").unlink()
    (tmp_path / "etc/a").symlink_to(tmp_path / "victim")
    node.plant(tmp_path, node.Seed("etc/a", "other"))
    assert (tmp_path / "victim").read_text() == "text"
    assert (tmp_path / "etc/a").read_text() == "other"


def test_a_key_is_added_beside_others(tmp_path: Path) -> None:
    node.authorize(tmp_path, "ssh-ed25519 MINE x\n")
    path = tmp_path / "root/.ssh/authorized_keys"
    path.write_text("ssh-ed25519 THEIRS y")
    node.authorize(tmp_path, "ssh-ed25519 MINE x\n")
    node.authorize(tmp_path, "ssh-ed25519 MINE x\n")
    assert path.read_text() == "ssh-ed25519 THEIRS y\nssh-ed25519 MINE x\n"
    assert path.parent.stat().st_mode & 0o777 == 0o700


def test_ssh_is_waited_for_by_its_greeting(monkeypatch: pytest.MonkeyPatch) -> None:
    real = asyncio.open_connection
    answers: dict[str, bytes] = {"127.0.0.2": b"SSH-2.0-x\r\n", "127.0.0.3": b"220 smtp\r\n"}
    servers = []
    for address, greeting in answers.items():
        server = socket.create_server((address, 0))
        servers.append(server)

        def serve(server: socket.socket = server, greeting: bytes = greeting) -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(greeting)

        threading.Thread(target=serve, daemon=True).start()
    ports = {address: server.getsockname()[1] for address, server in zip(answers, servers, strict=True)}
    monkeypatch.setattr(asyncio, "open_connection", lambda host, port: real(host, ports.get(host, 1)))
    ready: list[str] = []
    faults = node.wait_for_ssh(
        {"good": "127.0.0.2", "odd": "127.0.0.3", "dead": "127.0.0.4", "late": "127.0.0.2"},
        lambda name: name != "dead",
        ready.append,
        1.0,
        lambda name: name != "late",
    )
    for server in servers:
        server.close()
    assert ready == ["good"]
    assert faults == {"odd": "no ssh after 1 s", "dead": "ended while booting", "late": "no ssh after 1 s"}
    assert node.wait_for_ssh({}, lambda _: True, ready.append, 1.0) == {}


def test_a_copy_keeps_what_matters(tmp_path: Path) -> None:
    source = tmp_path / "docker"
    source.mkdir()
    (source / "file").write_text("x")
    (source / "link").symlink_to("file")
    os.chmod(source / "file", 0o640)
    layers.save_engines(Host(), tmp_path, tmp_path / "saved")
    assert not (tmp_path / "saved/containerd").exists()
    (source / "file").write_text("y")
    layers.restore_engines(Host(), tmp_path / "saved", tmp_path)
    assert (source / "file").read_text() == "x"
    assert (source / "file").stat().st_mode & 0o777 == 0o640
    assert (source / "link").is_symlink()


def test_a_layer_is_frozen_once_even_across_file_systems(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    upper, layer = tmp_path / "upper", tmp_path / "layers/one"
    upper.mkdir()
    (upper / "file").write_text("x")
    real = os.rename

    def across(source: Path, target: Path) -> None:
        if Path(source) == upper:
            raise OSError(18, "Invalid cross-device link")
        real(source, target)

    monkeypatch.setattr(os, "rename", across)
    layers.freeze(Host(), upper, layer)
    assert (layer / "file").read_text() == "x"
    assert not upper.exists()
    layers.freeze(Host(), upper, layer)
    monkeypatch.setattr(os, "rename", lambda *_: (_ for _ in ()).throw(PermissionError(1, "no")))
    upper.mkdir()
    with pytest.raises(PermissionError):
        layers.freeze(Host(), upper, tmp_path / "layers/two")


# --- ssh ---


def test_ansible_is_told_how_to_reach_the_rack(tmp_path: Path) -> None:
    inventory = tmp_path / "my cluster"
    inventory.mkdir()
    assert connection_vars(inventory) is None
    assert rack_nodes(inventory) == frozenset()
    rack_state(inventory).save(inventory / ".rack/state.json")
    found = connection_vars(inventory)
    assert found is not None
    assert found["ansible_user"] == "root"
    assert found["ansible_ssh_private_key_file"] == f"{inventory}/.rack/id_ed25519"
    words = shlex.split(found["ansible_ssh_common_args"])
    assert f'UserKnownHostsFile="{inventory}/.rack/known_hosts" "{inventory}/.known_hosts"' in words
    assert "StrictHostKeyChecking=yes" in words
    assert "ControlPath=/run/coldiron/12345678/%h-%p-%r" in words
    assert found["coldiron_rack"] == {
        "name": "toy",
        "simulated": True,
        "home_backend": "provided",
        "apt_mirror": "http://mirror.example/debian",
        "apt_proxy": "http://10.9.0.254:3143",
    }
    assert rack_nodes(inventory) == {"gpu01"}
    (inventory / ".rack/state.json").write_text("{")
    assert connection_vars(inventory) is None


def test_the_plugins_side_needs_the_standard_library_only() -> None:
    code = (
        "import sys; before = set(sys.modules); import coldiron.rack.connection\n"
        "extra = {name.split('.')[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names)\n"
        "sys.exit(str(extra - {'coldiron'}) if extra - {'coldiron'} else 0)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_words_reach_the_node_as_they_are_or_as_a_line(tmp_path: Path) -> None:
    state = rack_state(tmp_path)
    command = remote.ssh_command(state, state.nodes["gpu01"], ["uptime"])
    assert command[0] == "ssh"
    assert command[-2:] == ["root@10.9.0.41", "uptime"]
    assert remote.as_line(["echo $HOME | wc"]) == ["echo $HOME | wc"]
    assert remote.as_line(["printf", "%s", "a b"]) == ["printf %s 'a b'"]


def test_commands_run_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = rack_state(tmp_path)
    monkeypatch.setattr(remote, "ssh_command", lambda state, node, line: ["sh", "-c", *line])
    seen: list[tuple[str, str]] = []
    codes = remote.run_everywhere(
        state,
        list(state.nodes.values()),
        ["echo a; echo b >&2; exit 4"],
        lambda name, line: seen.append((name, line)),
    )
    assert codes == {"gpu01": 4}
    assert sorted(seen) == [("gpu01", "a"), ("gpu01", "b")]
    went: list[list[str]] = []
    monkeypatch.setattr(os, "execvp", lambda file, argv: went.append(argv))
    remote.log_in(state, state.nodes["gpu01"], ["exit 3"])
    assert went == [["sh", "-c", "exit 3"]]


def test_half_a_key_pair_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "keys/id"
    keys.make_key(Host(), path, "toy")
    first = path.read_text()
    keys.make_key(Host(), path, "toy")
    assert path.read_text() == first
    path.unlink()
    (tmp_path / "keys/.id.partial").write_text("half")
    keys.make_key(Host(), path, "toy")
    assert path.read_text() != first
    assert sorted(os.listdir(path.parent)) == ["id", "id.pub"]


# --- the rest ---


def test_the_bridge_has_an_address_of_its_own() -> None:
    subnet = IPv4Network("10.9.0.0/29")
    assert spec.bridge_address(subnet, "10.9.0.1", {"10.9.0.2"}) == "10.9.0.1"
    assert spec.bridge_address(subnet, None, {"10.9.0.6"}) == "10.9.0.5"
    # A gateway that is a node of the cluster itself cannot be the bridge.
    assert spec.bridge_address(subnet, "10.9.0.6", {"10.9.0.6"}) == "10.9.0.5"
    with pytest.raises(ColdironError, match="no address left"):
        spec.bridge_address(subnet, None, {f"10.9.0.{number}" for number in range(1, 7)})


def test_the_spec_is_the_clusters(tmp_path: Path) -> None:
    with pytest.raises(ColdironError, match="no such directory"):
        spec.from_cluster(tmp_path / "none")
    (tmp_path / "cluster.yml").write_text(
        "plugin: coldiron.cluster.cluster\nname: toy\ndomain: toy.internal\n"
        "networks: {cluster: {subnet: 10.9.0.0/24, mtu: 9000}}\n"
        "nodes:\n  - {name: head01, kind: head, address: 10.9.0.1, distribution: debian-12}\n"
        "  - name: gpu[01-02]\n    kind: gpu\n    address: 10.9.0.41\n"
        "    hardware: {cores_per_socket: 2, memory_gib: 2, gpus: {type: h100, count: 8}}\n"
    )
    found = spec.from_cluster(tmp_path / "cluster.yml")
    assert found == spec.from_cluster(tmp_path)
    assert [(one.name, one.address, one.gpu_count) for one in found.nodes] == [
        ("head01", "10.9.0.1", 0), ("gpu01", "10.9.0.41", 8), ("gpu02", "10.9.0.42", 8),
    ]  # fmt: skip
    assert found.node("gpu02").gpu_type == "h100"
    assert found.nodes[0].distribution == "debian-12"
    assert (found.gateway, found.mtu, str(found.bridge_address)) == ("10.9.0.254", 9000, "10.9.0.254/24")
    with pytest.raises(ColdironError, match="no node is called gpu03; there are head01, gpu01, gpu02"):
        found.node("gpu03")


def test_missing_packages_by_command_and_by_file(tmp_path: Path) -> None:
    table = (
        Requirement("shell", command="sh"),
        Requirement("nothing", command="no-such-command"),
        Requirement("half", command="sh", file=str(tmp_path / "none")),
        Requirement("keys", file=str(tmp_path)),
    )
    assert missing(Host(), table) == ["nothing", "half"]
    assert len({one.package for one in REQUIREMENTS}) == len(REQUIREMENTS)


def test_progress_on_a_terminal_and_elsewhere() -> None:
    plain, live = StringIO(), StringIO()
    with Report(Console(file=plain, width=80)) as report:
        report.say("[bold]as it is[/]")
        report.count("nodes up", 2)
        report.ready("a")
        report.ready("b")
        report.count("nodes up", 64)
        for number in range(64):
            report.ready(f"n{number}")
    lines = plain.getvalue().splitlines()
    assert lines[:4] == ["[bold]as it is[/]", "nodes up: 2 to go", "  a (1/2)", "  b (2/2)"]
    assert lines[5:] == ["  n15 (16/64)", "  n31 (32/64)", "  n47 (48/64)", "  n63 (64/64)"]
    with Report(Console(file=live, width=80, force_terminal=True)) as report:
        report.count("nodes up", 2)
        report.ready("a")
        report.ready("b")
    assert "2/2" in live.getvalue()


def test_a_sysctl_is_a_file() -> None:
    assert machine.sysctl_path(Path("/proc"), "net.ipv4.x") == Path("/proc/sys/net/ipv4/x")
