"""Bringing a rack up and taking it down, on a machine made of files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from coldiron.errors import ColdironError, ExitCode
from coldiron.rack.build import Builder, Wishes
from coldiron.rack.host import CommandError
from coldiron.rack.preserve import forget, reset, take
from coldiron.rack.rack import Rack
from coldiron.rack.snapshot import find
from coldiron.rack.spec import from_cluster
from coldiron.rack.state import RackState
from coldiron.rack.teardown import down

from .conftest import Toy


def up(toy: Toy, rack: Rack | None = None, **wishes: Any) -> RackState:
    rack = rack or toy.rack()
    return Builder(rack, from_cluster(rack.layout.inventory), Wishes(**wishes)).up()


def files(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*")}


def test_what_is_made_was_written_down_before(toy: Toy) -> None:
    rack = toy.rack()

    def look(words: list[str]) -> None:
        if words[0] in {"mount", "systemd-nspawn", "unshare"} or ("-batch" in words and words[0] == "ip"):
            assert rack.layout.state.exists(), words
            assert "toy" in rack.keeper.registry().racks, words
        if words[0] in {"mount", "systemd-nspawn"}:
            state = rack.state()
            assert state is not None
            assert any(name in " ".join(words) for name in state.nodes), words

    toy.host.before = look
    state = up(toy, rack)
    assert list(state.nodes) == ["head01", "gpu01"]
    assert len(toy.host.ran("systemd-nspawn")) == 2
    assert not any(node.renew for node in state.nodes.values())


def test_a_node_gets_its_own_identity(toy: Toy) -> None:
    rack = toy.rack()
    up(toy, rack)
    root = rack.layout.node("gpu01") / "root"
    assert (root / "etc/hostname").read_text() == "gpu01\n"
    assert "10.9.0.41 gpu01.toy.internal gpu01" in (root / "etc/hosts").read_text()
    assert "10.9.0.254:3143" in (root / "etc/apt/apt.conf.d/91virtual-rack-cache").read_text()
    assert (root / "root/.ssh/authorized_keys").read_text() == rack.layout.client_key.with_suffix(
        ".pub"
    ).read_text()
    assert len((root / "etc/machine-id").read_text()) == 33
    known = rack.layout.known_hosts.read_text().splitlines()
    assert [line.split()[0] for line in known] == [
        "10.9.0.1,head01,head01.toy.internal",
        "10.9.0.41,gpu01,gpu01.toy.internal",
    ]


def test_a_second_up_starts_nothing(toy: Toy) -> None:
    up(toy)
    toy.host.calls.clear()
    up(toy)
    assert not toy.host.ran("systemd-nspawn")
    assert not toy.host.ran("mmdebstrap")
    assert not toy.host.ran("-batch")


def test_up_starts_what_has_stopped(toy: Toy) -> None:
    rack = toy.rack()
    up(toy)
    toy.host.alive.discard(rack.group("gpu01").path)
    assert rack.status()["up"] is False
    toy.host.calls.clear()
    up(toy)
    assert [call for call in toy.host.ran("systemd-nspawn") if "--hostname=gpu01" in call]
    assert len(toy.host.ran("systemd-nspawn")) == 1
    assert rack.status()["up"] is True


def test_down_leaves_the_machine_as_it_was(toy: Toy) -> None:
    before = files(toy.root / "proc"), dict(toy.host.links), list(toy.host.mounts)
    inotify = toy.root / "proc/sys/fs/inotify/max_user_instances"
    rack = toy.rack()
    up(toy, rack)
    assert int(inotify.read_text()) > 128
    # As the nodes' systemd does.
    (toy.root / "proc/sys/fs/file-max").write_text("9223372036854775807")
    rack.layout.sockets.joinpath("10.9.0.1-22-root").touch()
    assert down(rack)
    assert (files(toy.root / "proc"), toy.host.links, toy.host.mounts) == before
    assert inotify.read_text() == "128"
    assert (toy.root / "proc/sys/fs/file-max").read_text() == "1000"
    assert not toy.host.alive
    assert files(toy.machine.cache) >= {"base"}
    for gone in (
        toy.machine.lib,
        toy.machine.run,
        rack.layout.own,
        toy.machine.netns,
        toy.root / "cgroup/coldiron",
    ):
        assert not gone.exists()
    assert not down(rack)


def test_down_works_by_name_alone(toy: Toy) -> None:
    rack = toy.rack()
    up(toy, rack)
    for path in sorted(rack.layout.own.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    with pytest.raises(ColdironError, match="state is gone") as caught:
        up(toy)
    assert caught.value.exit_code == ExitCode.REFUSED
    assert down(rack)
    assert set(toy.host.links) == {"lo", "eth0"}
    assert not toy.machine.lib.exists()


def test_one_node_can_go_alone(toy: Toy) -> None:
    rack = toy.rack()
    up(toy, rack)
    assert down(rack, ["gpu01"])
    state = rack.standing()
    assert list(state.nodes) == ["head01"]
    assert "gpu01" not in rack.layout.known_hosts.read_text()
    assert not rack.layout.node("gpu01").exists()
    with pytest.raises(ColdironError, match="no node gpu01; it has head01"):
        down(rack, ["gpu01"])
    assert list(up(toy, only=["gpu01"]).nodes) == ["head01", "gpu01"]


def test_the_last_rack_puts_the_host_back_not_the_first(toy: Toy, tmp_path: Path) -> None:
    up(toy)
    other = tmp_path / "other"
    other.mkdir()
    text = (toy.inventory / "cluster.yml").read_text()
    (other / "cluster.yml").write_text(
        text.replace("10.9.0.", "10.9.1.").replace("name: toy\n", "name: toy-b\n")
    )
    second = toy.rack("toy-b", other)
    up(toy, second)
    down(toy.rack())
    assert toy.root.joinpath("proc/sys/fs/inotify/max_user_instances").read_text() != "128"
    assert second.keeper.cache.running()
    with pytest.raises(ColdironError, match="racks stand on it"):
        second.keeper.purge()
    down(second)
    assert toy.root.joinpath("proc/sys/fs/inotify/max_user_instances").read_text() == "128"
    assert not second.keeper.cache.running()
    second.keeper.purge()
    assert not toy.machine.cache.exists()


def test_nodes_that_left_the_file_stay_until_told(toy: Toy) -> None:
    toy.describe(gpus=2)
    up(toy)
    toy.describe(gpus=1)
    assert "gpu02" in up(toy).nodes
    assert "left as they are: gpu02" in toy.said.getvalue()
    assert "gpu02" not in up(toy, prune=True).nodes
    assert "removed: gpu02" in toy.said.getvalue()


def test_a_node_that_the_file_describes_otherwise_is_told(toy: Toy) -> None:
    up(toy)
    text = (toy.inventory / "cluster.yml").read_text()
    (toy.inventory / "cluster.yml").write_text(text.replace("count: 2", "count: 4"))
    up(toy)
    assert "gpu01: cluster.yml says something else" in toy.said.getvalue()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"subnet": "10.9.0.0/16"}, "10.9.0.0/16 with gateway 10.9.0.254"),
        ({"gateway": "10.9.0.253"}, "10.9.0.254; type: coldiron rack down"),
        ({"name": "other"}, "is called toy, the file says other"),
    ],
)
def test_a_file_that_no_longer_fits_the_rack_is_refused(toy: Toy, change: dict[str, str], says: str) -> None:
    up(toy)
    toy.describe(**change)  # type: ignore[arg-type]
    with pytest.raises(ColdironError, match=says) as caught:
        up(toy)
    assert caught.value.exit_code == ExitCode.REFUSED


def test_foreign_things_are_refused_before_anything_is_made(toy: Toy) -> None:
    rack = toy.rack()
    for plant, clear, says in (
        (
            lambda: toy.host.links.update({"ci-toy": {}}),
            lambda: toy.host.links.pop("ci-toy"),
            "interface ci-toy",
        ),
        (lambda: rack.layout.data.mkdir(parents=True), rack.layout.data.rmdir, "a directory"),
        (lambda: rack.group().path.mkdir(parents=True), rack.group().path.rmdir, "a control group"),
        (
            lambda: toy.host.routes.append({"dst": "10.9.0.128/25", "dev": "eth1"}),
            toy.host.routes.pop,
            "meets 10.9.0.128/25, which this machine has on eth1",
        ),
    ):
        plant()
        with pytest.raises(ColdironError, match=says) as caught:
            up(toy)
        assert caught.value.exit_code == ExitCode.REFUSED
        assert not rack.layout.state.exists()
        assert not toy.machine.run.exists()
        assert not toy.host.ran("-batch")
        clear()
    up(toy)


def test_another_inventorys_rack_of_the_same_name_is_refused(toy: Toy, tmp_path: Path) -> None:
    up(toy)
    other = tmp_path / "other"
    other.mkdir()
    (other / "cluster.yml").write_text((toy.inventory / "cluster.yml").read_text())
    with pytest.raises(ColdironError, match=f"down -i {toy.inventory}"):
        up(toy, toy.rack("toy", other))
    assert not down(toy.rack("toy", other))
    assert toy.rack().status()["up"]


def test_a_bridge_that_is_half_made_is_made_anew(toy: Toy) -> None:
    rack = toy.rack()
    builder = Builder(rack, from_cluster(toy.inventory))
    state = builder.take_up()
    toy.host.links[state.bridge] = {}
    up(toy, rack)
    assert toy.host.ran("ip", "link", "delete", "ci-toy")


def test_lacking_things_are_said_in_one_line(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    toy.host.installed = False
    with pytest.raises(ColdironError, match="apt-get install systemd-container systemd mmdebstrap"):
        up(toy)
    toy.host.installed = True
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    for verb in (lambda: up(toy), lambda: down(toy.rack()), lambda: reset(toy.rack())):
        with pytest.raises(ColdironError, match="sudo") as caught:
            verb()
        assert caught.value.exit_code == ExitCode.ENVIRONMENT


def test_a_bake_that_fails_leaves_nothing_and_says_why(toy: Toy) -> None:
    toy.host.bake_code = 1
    toy.host.bake_log = "E: Failed to fetch http://mirror.example/x  Could not resolve 'mirror.example'\n"
    with pytest.raises(
        CommandError, match=r"http://mirror.example/debian: the mirror does not answer .* network\?"
    ):
        up(toy)
    assert files(toy.machine.bases) == set()
    toy.host.bake_log = "dpkg: error: No space left on device\n"
    with pytest.raises(CommandError, match="no space left on the device; free some"):
        up(toy)
    toy.host.bake_code = 0
    up(toy)


def test_a_base_is_baked_once_and_anew_when_wished(toy: Toy, monkeypatch: pytest.MonkeyPatch) -> None:
    up(toy)
    down(toy.rack())
    up(toy)
    assert len(toy.host.ran("mmdebstrap")) == 1
    down(toy.rack())
    monkeypatch.setattr("coldiron.rack.base.time.time", lambda: 4e9)
    state = up(toy, rebuild_base=True)
    assert len(toy.host.ran("mmdebstrap")) == 2
    assert {node.base for node in state.nodes.values()} == {
        str(next(toy.machine.bases.glob("*-4000000000")) / "root")
    }
    # Nothing stands on the older one.
    assert len(list(toy.machine.bases.glob("debian-13-*"))) == 1


def test_a_node_that_does_not_come_is_named_with_its_console(
    toy: Toy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "coldiron.rack.rack.wait_for_ssh",
        lambda addresses, *rest: dict.fromkeys(addresses, "no ssh after 1 s"),
    )
    with pytest.raises(
        ColdironError, match=r"head01: no ssh after 1 s; its console: .*console.log .*: gpu01"
    ) as caught:
        up(toy)
    assert caught.value.exit_code == ExitCode.HOSTS_FAILED


def test_a_node_that_cannot_be_made_is_named_with_the_reason(toy: Toy) -> None:
    def fail(words: list[str]) -> None:
        if words[0] == "mount":
            raise CommandError("root of gpu01", "wrong fs type")

    toy.host.before = fail
    with pytest.raises(ColdironError, match="head01: root of gpu01: wrong fs type"):
        up(toy)
    toy.host.before = lambda _: None
    up(toy)


# --- snapshots ---


def write(rack: Rack, node: str, name: str, text: str) -> None:
    """As the node would write: into its upper layer (a toy root is no overlay)."""
    (rack.layout.node(node) / "upper" / name).write_text(text)


def test_a_snapshot_freezes_and_a_reset_returns_to_it(toy: Toy) -> None:
    rack = toy.rack()
    up(toy, rack)
    write(rack, "gpu01", "mark", "one")
    (rack.layout.node("gpu01") / "docker/mark").write_text("one")
    (rack.layout.home / "mark").write_text("one")
    taken = take(rack, "one")
    state = rack.standing()
    layer = Path(state.nodes["gpu01"].layers[0])
    assert (layer / "mark").read_text() == "one"
    assert taken.home
    assert f"lowerdir={layer}:{state.nodes['gpu01'].base}" in toy.host.ran("mount", "gpu01")[-1][4]
    write(rack, "gpu01", "mark", "two")
    (rack.layout.node("gpu01") / "docker/mark").write_text("two")
    (rack.layout.home / "mark").write_text("two")
    reset(rack, ["gpu01"], "one")
    assert not (rack.layout.node("gpu01") / "upper/mark").exists()
    assert (rack.layout.node("gpu01") / "docker/mark").read_text() == "one"
    assert (rack.layout.home / "mark").read_text() == "two"
    assert "left as it is" in toy.said.getvalue()
    reset(rack, to="one")
    assert (rack.layout.home / "mark").read_text() == "one"
    assert rack.status()["nodes"][1]["snapshot"] == "one"
    reset(rack)
    assert list(rack.layout.home.iterdir()) == []
    assert rack.standing().nodes["gpu01"].layers == []
    forget(rack, "one")
    assert not layer.exists()


def test_the_seeds_of_a_bare_node_spare_what_a_role_wrote(toy: Toy) -> None:
    rack = toy.rack()
    up(toy, rack)
    take(rack, "one")
    root = rack.layout.node("gpu01") / "root"
    (root / "etc/hosts").write_text("a role's\n")
    (root / "root/.ssh/authorized_keys").write_text("ssh-ed25519 SOMEBODY\n")
    (root / "etc/hostname").unlink()
    (root / "etc/hostname").symlink_to("/etc/passwd")
    reset(rack, ["gpu01"], "one")
    assert (root / "etc/hosts").read_text() == "a role's\n"
    assert len((root / "root/.ssh/authorized_keys").read_text().splitlines()) == 2
    assert not (root / "etc/hostname").is_symlink()
    assert (root / "etc/hostname").read_text() == "gpu01\n"


def test_a_node_that_boots_again_keeps_what_a_role_wrote(toy: Toy) -> None:
    rack = toy.rack()
    up(toy, rack)
    seen, written = (rack.layout.node("gpu01") / layer / "etc/hosts" for layer in ("root", "upper"))
    for hosts in (seen, written):  # one and the same where the overlay is real
        hosts.parent.mkdir(parents=True, exist_ok=True)
        hosts.write_text("a role's\n")
    rack.nodes(rack.standing()).stop("gpu01")
    up(toy, rack)
    assert seen.read_text() == "a role's\n"


def test_names_are_taken_once(toy: Toy) -> None:
    rack = toy.rack()
    up(toy, rack)
    take(rack, "one")
    with pytest.raises(ColdironError, match="--replace"):
        take(rack, "one")
    first = Path(rack.standing().nodes["gpu01"].layers[0])
    reset(rack)
    take(rack, "one", replace=True)
    assert not first.exists()
    with pytest.raises(ColdironError, match="is no name for a snapshot"):
        take(rack, "../x")
    with pytest.raises(ColdironError, match="there is no snapshot two; there are: one"):
        reset(rack, to="two")


def test_a_snapshot_of_some_nodes_has_neither_the_others_nor_home(toy: Toy) -> None:
    rack = toy.rack()
    up(toy, rack)
    (rack.layout.home / "mark").write_text("stays")
    assert not take(rack, "head", ["head01"]).home
    with pytest.raises(ColdironError, match="snapshot head has no gpu01; name the nodes that it has: head01"):
        reset(rack, to="head")
    reset(rack, ["head01"], "head")
    assert (rack.layout.home / "mark").read_text() == "stays"


def test_a_kept_snapshot_outlives_its_rack(toy: Toy) -> None:
    rack = toy.rack()
    up(toy, rack)
    (rack.layout.home / "mark").write_text("kept")
    write(rack, "gpu01", "mark", "kept")
    take(rack, "kept", keep=True)
    down(rack)
    toy.describe(gpus=2)
    state = up(toy, rack, image=find(rack.layout, "kept"))
    assert (Path(state.nodes["gpu01"].layers[0]) / "mark").read_text() == "kept"
    assert state.nodes["gpu02"].layers == []
    assert "gpu02: not in snapshot kept" in toy.said.getvalue()
    assert (rack.layout.home / "mark").read_text() == "kept"
    assert rack.status()["kept_snapshots"] == ["kept"]
    forget(rack, "kept")
    down(rack)
    assert files(toy.machine.layers) == set()


def test_an_image_that_does_not_fit_is_left_out(toy: Toy) -> None:
    rack = toy.rack()
    up(toy, rack)
    take(rack, "kept", keep=True)
    down(rack)
    image = find(rack.layout, "kept")
    image.nodes["gpu01"].distribution = "debian-12"
    image.nodes["head01"].layers.append("/gone")
    state = up(toy, rack, image=image)
    assert [node.layers for node in state.nodes.values()] == [[], []]
    assert toy.said.getvalue().count("does not fit") == 2


def test_a_snapshot_cut_off_before_its_layer_is_finished_by_up(toy: Toy) -> None:
    rack = toy.rack()
    up(toy, rack)
    write(rack, "gpu01", "mark", "mine")
    state = rack.standing()
    named = toy.machine.layers / "toy.gpu01.1"
    state.nodes["gpu01"].layers.insert(0, str(named))
    rack.save(state)
    toy.host.alive.discard(rack.group("gpu01").path)
    up(toy, rack)
    assert (named / "mark").read_text() == "mine"


def test_a_reset_cut_off_is_finished_by_up(toy: Toy) -> None:
    rack = toy.rack()
    up(toy, rack)
    write(rack, "gpu01", "mark", "old")
    (rack.layout.home / "mark").write_text("old")
    state = rack.standing()
    state.nodes["gpu01"].renew = True
    state.home_from = ""
    rack.save(state)
    toy.host.alive = {path for path in toy.host.alive if path.name.startswith("_")}
    up(toy, rack)
    assert not (rack.layout.node("gpu01") / "upper/mark").exists()
    assert not (rack.layout.home / "mark").exists()


def test_what_runs_is_never_renewed(toy: Toy) -> None:
    rack = toy.rack()
    up(toy, rack)
    state = rack.standing()
    state.nodes["gpu01"].renew = True
    rack.save(state)
    assert not up(toy, rack).nodes["gpu01"].renew


def test_what_was_told_to_shut_down_is_booted_by_up(toy: Toy) -> None:
    rack = toy.rack()
    up(toy, rack)
    state = rack.standing()
    state.nodes["gpu01"].stopping = True
    rack.save(state)
    toy.host.calls.clear()
    assert not up(toy, rack).nodes["gpu01"].stopping
    assert len(toy.host.ran("systemd-nspawn")) == 1


def test_a_node_whose_base_is_gone_is_made_anew(toy: Toy) -> None:
    rack = toy.rack()
    state = up(toy, rack)
    toy.host.alive.discard(rack.group("gpu01").path)
    Path(state.nodes["gpu01"].base).joinpath("usr").rmdir()
    Path(state.nodes["gpu01"].base).rmdir()
    assert Path(up(toy, rack).nodes["gpu01"].base).is_dir()


def test_the_state_of_another_version_is_refused(toy: Toy) -> None:
    rack = toy.rack()
    up(toy, rack)
    rack.layout.state.write_text(json.dumps({"version": 0}))
    with pytest.raises(ColdironError, match="not of this version"):
        up(toy)
