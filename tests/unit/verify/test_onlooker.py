"""The read-only view: what its guards let through, and (as root) what the kernel refuses."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path

import pytest

from coldiron.testing import onlooker
from coldiron.testing.backend import read_only

REAL = '#!/bin/sh\necho real "$*"\n'


@pytest.fixture
def call(tmp_path):
    """Call a program through its guard; what is behind it only says how it was called."""

    def ask(line: str, called: str = "") -> subprocess.CompletedProcess[str]:
        name, *words = shlex.split(line)
        real = tmp_path / "real" / name
        real.parent.mkdir(exist_ok=True)
        real.write_text(REAL)
        real.chmod(0o755)
        guard = tmp_path / (called or name)
        guard.write_text(onlooker.guard({name}, str(real)))
        guard.chmod(0o755)
        return subprocess.run([str(guard), *words], capture_output=True, text=True, input="x", check=False)

    return ask


LOOKS = """
systemctl is-active chrony
systemctl
systemctl --version
systemctl -p MainPID show chrony
systemctl show --property Restart --value slurmd
systemctl --no-pager --lines 3 status ssh
systemctl cat start
scontrol show config
scontrol --oneliner show node
scontrol token lifespan=60
scontrol --version
sacctmgr --noheader --parsable2 show cluster
chronyc -n -c sources
chronyc accheck 192.0.2.1
journalctl -n 20 --no-pager
exportfs -s
exportfs
hostnamectl
timedatectl show -p NTP
crontab -l
dmesg
curl -sSf --max-time 3 http://head01/
nvidia-smi --query-gpu=name --format=csv
nvidia-smi -i 0 -q -d ECC
nvidia-smi topo -m
mariadb --batch --execute "SELECT 1"
mysql -e "show databases;"
mariadb --version
mariadb-admin ping
systemd-analyze cat-config sysctl.d
"""

ACTS = """
systemctl stop chrony
systemctl --no-block restart chrony
systemctl -H node01 stop chrony
systemctl daemon-reload
systemctl edit x
scontrol update NodeName=a State=drain
scontrol reconfigure
scontrol
sacctmgr -i delete user alice
sacctmgr
chronyc makestep
chronyc
journalctl --vacuum-size=1M
journalctl --rotate
exportfs -ra
hostnamectl set-hostname x
timedatectl set-time 12:00
crontab -r
dmesg -C
sdiag --reset
srun hostname
sbatch job
scancel 1
curl -X POST http://head01/
curl -sXPOST http://head01/
curl --data a http://head01/
wget --post-data=a http://head01/
nvidia-smi -pl 300
nvidia-smi --gpu-reset
nvidia-smi -i 0 -mig 1
mariadb --execute "DROP DATABASE x"
mariadb -e "SELECT 1; DROP DATABASE x"
mariadb -e "SELECT 1 INTO OUTFILE '/x'"
mariadb slurm
mysql
mariadb-admin shutdown
systemd-run true
logger hello
ssh node01 true
nfs-cp a b
busctl call a b c d
loginctl terminate-session 1
"""


@pytest.mark.parametrize("line", LOOKS.strip().splitlines())
def test_a_question_is_let_through(call, line):
    answer = call(line)
    assert answer.returncode == 0, answer.stderr
    assert answer.stdout.startswith("real" + "".join(f" {word}" for word in shlex.split(line)[1:]))


@pytest.mark.parametrize("line", ACTS.strip().splitlines())
def test_an_order_is_refused(call, line):
    answer = call(line)
    assert (answer.returncode, answer.stdout) == (77, "")
    assert answer.stderr.startswith("coldiron: refused: '")
    assert "this run only looks" in answer.stderr


def test_a_program_called_by_another_name_is_refused(call):
    """``reboot`` is a link to systemctl."""
    assert call("systemctl", called="reboot").returncode == 77


def test_sql_runs_in_a_transaction_that_reads_only(call):
    assert "--init-command=SET SESSION TRANSACTION READ ONLY" in call("mariadb -e 'SELECT 1'").stdout


def test_every_option_with_a_value_is_known_as_one():
    """A value that looks like an allowed verb must not open the door: -p status stop chrony."""
    for allowed, valued, _ in onlooker.VERBS.values():
        assert not set(allowed.split()) & set(valued.split())


def test_programs_are_found_under_every_name(monkeypatch, tmp_path):
    (tmp_path / "mariadb").write_text("")
    (tmp_path / "mysql").symlink_to("mariadb")
    monkeypatch.setattr(onlooker, "FOLDERS", (str(tmp_path),))
    assert onlooker.guarded() == {str(tmp_path / "mariadb"): {"mariadb", "mysql"}}


def test_the_source_is_one_that_the_oldest_python_of_a_node_reads():
    source = Path(onlooker.__file__).read_text(encoding="utf-8")
    compile(source, "onlooker", "exec", dont_inherit=True)
    assert "match " not in source.split('"""')[2].split("CLONE")[0]


def test_a_command_travels_in_one_line():
    words = shlex.split(read_only("echo 'a b' \"$HOME\""))
    assert words[:4] == ["python3", "-I", "-S", "-c"]
    assert words[-1] == "echo 'a b' \"$HOME\""


class Kernel:
    """Stands in for the C library: notes the calls, and fails those that it is told to."""

    def __init__(self, failing: str = "") -> None:
        self.calls: list[tuple[str, tuple[object, ...]]] = []
        self.failing = failing

    def __getattr__(self, name: str):
        def call(*words: object) -> int:
            self.calls.append((name, words))
            return -1 if name == self.failing else 0

        return call

    def attributes(self) -> list[tuple[bytes, int, list[int]]]:
        """Every mount_setattr: path, flags, and what is set and cleared."""
        return [
            (words[2], words[3].value, list(words[4])[:2])  # type: ignore[attr-defined, call-overload]
            for name, words in self.calls
            if name == "syscall"
        ]


@pytest.fixture
def kernel(monkeypatch, tmp_path):
    """A kernel that only notes, and folders that may be written into."""
    made = Kernel()
    monkeypatch.setattr(onlooker, "LIBC", made)
    monkeypatch.setattr(onlooker, "OWN", str(tmp_path / "own"))
    monkeypatch.setattr(onlooker, "SCRATCH", (str(tmp_path),))
    monkeypatch.setattr(onlooker, "ANSWERED_IN", (str(tmp_path), "/not/there"))
    monkeypatch.setattr(onlooker, "automounts", lambda: ["/not/there"])
    monkeypatch.setattr(onlooker, "dangerous", lambda: ["/dev/sda"])
    return made


def test_all_is_made_read_only_but_what_is_named(kernel, tmp_path):
    onlooker.make_read_only()
    attributes = kernel.attributes()
    root = (b"/", onlooker.AT_RECURSIVE, [onlooker.ATTR_RDONLY, 0])
    assert attributes.count(root) == 1
    after = attributes[attributes.index(root) + 1 :]
    assert {path for path, _, _ in after} == {os.fsencode(tmp_path)}
    assert (b"/dev/sda", 0, [onlooker.ATTR_NODEV, 0]) in attributes[: attributes.index(root)]
    covered = {words[1] for name, words in kernel.calls if name == "mount"}
    assert {os.fsencode(path) for path in onlooker.guarded()} <= covered


def test_a_kernel_that_cannot_is_named(kernel):
    kernel.failing = "syscall"
    with pytest.raises(onlooker.Unable, match=r"make .* read-only"):
        onlooker.make_read_only()


def test_every_other_capability_is_dropped(kernel):
    onlooker.give_up_power()
    dropped = {
        words[1] for name, words in kernel.calls if name == "prctl" and words[0] == onlooker.PR_CAPBSET_DROP
    }
    assert not dropped & set(onlooker.KEPT.values())
    assert {12, 16, 21, 22, 25} <= dropped  # networks, modules, mounts, reboots, clocks
    assert kernel.calls[-1][0] == "capset"


def test_the_device_files_of_disks_are_found(monkeypatch, tmp_path):
    for name in ("nvme0", "null", "rtc0"):
        (tmp_path / name).write_text("")
    real = os.walk
    monkeypatch.setattr(os, "walk", lambda top: real(tmp_path))
    monkeypatch.setattr(onlooker.stat, "S_ISCHR", lambda mode: True)
    assert sorted(Path(path).name for path in onlooker.dangerous()) == ["nvme0", "rtc0"]


def test_places_that_mount_themselves_are_found(tmp_path, monkeypatch):
    table = tmp_path / "mountinfo"
    table.write_text(
        "36 35 0:30 / /home rw,relatime shared:1 - autofs systemd-1 rw\n"
        "37 35 0:31 / /proc/sys/fs/binfmt_misc rw - autofs systemd-1 rw\n"
        "38 35 0:32 / / rw - ext4 /dev/sda1 rw\n"
    )
    real = open
    monkeypatch.setattr(
        "builtins.open", lambda path, *words: real(table if "mountinfo" in str(path) else path, *words)
    )
    assert list(onlooker.automounts()) == ["/home"]
