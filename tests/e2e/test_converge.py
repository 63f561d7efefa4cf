"""converge on real nodes: as the stock modules would leave them, whole files whenever it dies, no restart lost."""

from __future__ import annotations

import base64
import binascii
import contextlib
import json
import os
import re
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "unit" / "converge")]

from ansible.plugins.loader import init_plugin_loader  # noqa: E402

# Ansible's own way of importing a collection, before the harness imports a part of it: other tests share the process.
init_plugin_loader([])

from ansible.executor.module_common import modify_module  # noqa: E402
from ansible.template import Templar  # noqa: E402
from converge_rack import Rack  # noqa: E402
from harness import ROOT, make_action  # noqa: E402

pytestmark = pytest.mark.rack

NO_CLOCK = "[Service]\nExecStart=\nExecStart=!/usr/sbin/chronyd -x -F 1\n"
CHRONY = "local stratum {stratum}\nbindcmdaddress /run/chrony/chronyd.sock\nconfdir /etc/chrony/conf.d\n"
# The passwords' hashes are of no password.
HASH = "$6$wxyzwxyzwxyz$" + "k" * 86
DECLARATION: dict[str, Any] = {
    "packages": ["chrony", {"name": "sudo", "hold": True}, {"name": "nano", "state": "absent"}, "awk"],
    "groups": [{"name": "hpc", "gid": 3000}, {"name": "daemons", "gid": 400, "system": True}],
    "users": [
        {
            "name": "alice",
            "uid": 2001,
            "group": "hpc",
            "groups": ["daemons"],
            "shell": "/bin/bash",
            "password": HASH,
        },
        {
            "name": "svc",
            "uid": 401,
            "group": "daemons",
            "system": True,
            "home": "/nonexistent",
            "comment": "A service",
        },
        {"name": "games", "state": "absent"},
    ],
    "directories": [
        {"path": "/srv/data", "owner": "alice", "group": "hpc", "mode": "2770"},
        {"path": "/etc/systemd/system/chrony.service.d"},
        {"path": "/etc/chrony/conf.d"},
    ],
    "files": [
        {
            "dest": "/etc/chrony/chrony.conf",
            "src": "chrony.conf.j2",
            "validate": "/usr/sbin/chronyd -p -f %s",
        },
        {"dest": "/etc/systemd/system/chrony.service.d/x.conf", "content": NO_CLOCK},
        {"dest": "/srv/data/blob", "src": "blob", "owner": "alice", "mode": "0600"},
        {"dest": "/etc/motd", "state": "absent"},
    ],
    "links": [{"path": "/etc/localtime", "src": "/usr/share/zoneinfo/Europe/Berlin"}],
    "sysctl": [{"name": "net.core.somaxconn", "value": 4097}],
    "sysctl_file": "/etc/sysctl.d/90-test.conf",
    "units": [
        {"name": "chrony", "restart_on": ["/etc/chrony/*", "/etc/systemd/system/chrony.service.d/*"]},
        {"name": "sshd-keygen.service", "enabled": False, "state": "none"},
        {"name": "debug-shell.service", "enabled": True, "state": "stopped"},
        {"name": "systemd-sysext.service", "masked": True},
    ],
}
VARIABLES = {"stratum": 8}


def stock(module: str, /, **arguments: Any) -> dict[str, Any]:
    return {"name": f"Stock {module}", f"ansible.builtin.{module}": arguments}


# The declaration above, task by task in the stock modules' own words.
STOCK = [
    stock("apt", name=["chrony", "sudo", "mawk"], install_recommends=False),
    stock("dpkg_selections", name="sudo", selection="hold"),
    stock("apt", name="nano", state="absent"),
    stock("group", name="hpc", gid=3000),
    stock("group", name="daemons", gid=400, system=True),
    stock(
        "user",
        name="alice",
        uid=2001,
        group="hpc",
        groups=["daemons"],
        shell="/bin/bash",
        password=HASH,
        create_home=False,
    ),
    stock(
        "user",
        name="svc",
        uid=401,
        group="daemons",
        system=True,
        home="/nonexistent",
        comment="A service",
        create_home=False,
    ),
    stock("user", name="games", state="absent"),
    stock("file", path="/srv/data", state="directory", owner="alice", group="hpc", mode="2770"),
    stock("file", path="/etc/systemd/system/chrony.service.d", state="directory", mode="0755"),
    stock("file", path="/etc/chrony/conf.d", state="directory", owner="root", group="root", mode="0755"),
    stock(
        "template",
        dest="/etc/chrony/chrony.conf",
        src="chrony.conf.j2",
        owner="root",
        group="root",
        mode="0644",
        validate="/usr/sbin/chronyd -p -f %s",
    )
    | {"register": "conf"},
    stock("copy", dest="/etc/systemd/system/chrony.service.d/x.conf", content=NO_CLOCK, mode="0644"),
    stock("copy", dest="/srv/data/blob", src="blob", owner="alice", group="root", mode="0600"),
    stock("file", path="/etc/motd", state="absent"),
    stock("file", path="/etc/localtime", src="/usr/share/zoneinfo/Europe/Berlin", state="link"),
    stock(
        "copy",
        dest="/etc/sysctl.d/90-test.conf",
        content="# Written by Ansible (coldiron.cluster.converge).\nnet.core.somaxconn = 4097\n",
        mode="0644",
    ),
    {
        "name": "s",
        "ansible.builtin.command": "sysctl -w net.core.somaxconn=4097",
        "changed_when": False,
        "when": "not ansible_check_mode",
    },
    stock("systemd_service", name="chrony.service", enabled=True, state="started", daemon_reload=True),
    stock("systemd_service", name="chrony.service", state="restarted") | {"when": "conf is changed"},
    stock("systemd_service", name="sshd-keygen.service", enabled=False),
    stock("systemd_service", name="debug-shell.service", enabled=True, state="stopped"),
    stock("systemd_service", name="systemd-sysext.service", masked=True, state="stopped"),
]
STATE = r"""
cd /; dpkg-query -W -f '${db:Status-Abbrev} ${Package} ${Version}\n'
sort etc/passwd etc/group; cut -d: -f1,2 etc/shadow | sort
find etc srv var/lib/chrony usr/sbin -xdev ! -path 'etc/ssh/*' ! -path 'etc/*-' ! -name hostname ! -name hosts \
  ! -name machine-id ! -name '.updated' ! -name 'subuid' ! -name 'subgid' ! -name ld.so.cache \
  ! -name .pwd.lock ! -name '*.drift' -printf '%p %M %U:%G %l\n' | sort
find etc srv -xdev -type f ! -path 'etc/ssh/*' ! -path 'etc/*-' ! -name hostname ! -name hosts ! -name machine-id \
  ! -name '.updated' ! -name shadow ! -name 'sub[ug]id' ! -name ld.so.cache ! -name passwd ! -name group \
  ! -name gshadow ! -name resolv.conf ! -name .pwd.lock -exec sha256sum {} + | sort -k2
for unit in chrony sshd-keygen.service debug-shell.service systemd-sysext.service; do
  systemctl show -p ActiveState,UnitFileState,LoadState,NeedDaemonReload $unit; done
cat /proc/sys/net/core/somaxconn; chronyc -n tracking | grep Stratum
cat /proc/$(pidof chronyd | tr ' ' '\n' | tail -1)/cmdline
ls -a / | grep coldiron
true
"""


@pytest.fixture(scope="module")
def rack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rack]:
    if os.geteuid() != 0:
        pytest.fail("virtual nodes need root")
    rack = Rack(tmp_path_factory.mktemp("converge"))
    (rack.folder / "templates").mkdir()
    (rack.folder / "files").mkdir()
    conf = "# {{ ansible_managed }}\n" + CHRONY.format(stratum="{{ stratum }}")
    (rack.folder / "templates/chrony.conf.j2").write_text(conf)
    (rack.folder / "files/blob").write_bytes(bytes(range(256)) * 16)
    rack.coldiron("up")
    try:
        yield rack
    finally:
        rack.coldiron("down")


def play(
    rack: Rack, tasks: list[dict[str, Any]], *options: str, hosts: str = "head01"
) -> list[dict[str, Any]]:
    played = rack.play(tasks, *options, hosts=hosts, play={"vars": VARIABLES})
    assert played.rc == 0, played.output
    return played.results


ONE = [{"name": "Converge", "coldiron.cluster.converge": DECLARATION}]


def test_one_declaration_equals_the_stock_modules(rack: Rack) -> None:
    before = rack.ssh("head01", STATE, check=False)
    predicted = play(rack, ONE, "--check", "--diff")[0]
    assert rack.ssh("head01", STATE, check=False) == before
    made = play(rack, ONE, "--diff")[0]
    assert made["changed"]
    for key in ("packages", "users", "sysctl"):
        assert made[key] == predicted[key]
    # A package brings a directory that the prediction could not know.
    assert set(predicted["paths"]) - set(made["paths"]) <= {"/etc/chrony/conf.d"}
    assert made["units"]["started"] == ["chrony.service"]
    assert made["units"]["masked"] == ["systemd-sysext.service"]
    assert made["units"]["enabled"] == ["debug-shell.service"]
    assert made["units"]["disabled"] == ["sshd-keygen.service"]
    assert made["units"]["restarted"] == []
    # Its daemon was started once, with its configuration: not by its package.
    assert rack.ssh("head01", "journalctl -u chrony -o cat | grep -c 'chronyd version'").strip() == "1"
    assert not rack.ssh("head01", "ls /usr/sbin/policy-rc.d* 2>/dev/null", check=False)

    play(rack, STOCK, hosts="cpu01")
    ours, theirs = (rack.ssh(node, STATE).splitlines() for node in ("head01", "cpu01"))
    assert ours == theirs

    # Each finds nothing to do after the other, and after itself.
    assert [result for result in play(rack, STOCK) if result["changed"]] == []
    for hosts in ("cpu01", "head01"):
        for options in ((), ("--check", "--diff")):
            again = play(rack, ONE, *options, hosts=hosts)[0]
            assert not again["changed"], again
    assert rack.ssh("head01", STATE).splitlines() == ours


def test_facts_are_those_of_setup(rack: Rack) -> None:
    tasks: list[dict[str, Any]] = [
        {"name": "Ours", "coldiron.cluster.os_facts": {}},
        {
            "name": "Setup",
            "ansible.builtin.setup": {
                "gather_subset": [
                    "!all",
                    "!min",
                    "distribution",
                    "virtual",
                    "platform",
                    "python",
                    "service_mgr",
                ]
            },
        },
    ]
    ours, theirs = (result["ansible_facts"] for result in play(rack, tasks))
    theirs = {key.removeprefix("ansible_"): value for key, value in theirs.items()}
    assert {key: theirs[key] for key in ours if key != "discovered_interpreter_python"} == ours


def test_os_data_in_a_role(rack: Rack) -> None:
    role = rack.folder / "roles" / "demo"
    for name, text in {
        "vars/main.yml": "__demo_os: \"{{ lookup('coldiron.cluster.os_data', 'demo') }}\"\n__demo_name: chrony\n",
        "vars/Debian.yml": '__demo_service: "{{ __demo_name }}.service"\n__demo_packages: [a]\n',
        "vars/Debian_13.yml": "__demo_packages: [a, b]\n",
        "tasks/main.yml": (
            "- name: Facts\n  coldiron.cluster.os_facts:\n"
            "- name: Data\n  ansible.builtin.debug:\n    msg: '{{ __demo_os.service }} {{ __demo_os.packages }}'\n"
            "- name: Settings\n  coldiron.cluster.converge:\n    sysctl: [{name: net.core.somaxconn, value: 4097}]\n"
        ),
    }.items():
        (role / name).parent.mkdir(parents=True, exist_ok=True)
        (role / name).write_text(text)
    results = play(rack, [{"name": "Role", "ansible.builtin.include_role": {"name": "demo"}}])
    assert "chrony.service ['a', 'b']" in [result.get("msg") for result in results]
    assert results[-1]["paths"] == ["/etc/sysctl.d/90-coldiron-demo.conf"]


@pytest.fixture(scope="module")
def clock(rack: Rack) -> Rack:
    """The rack with a chronyd on head01 that keeps its hands off the clock."""
    play(rack, ONE)
    return rack


def set_of(main: str, included: str, **extra: Any) -> dict[str, Any]:
    """Two files of which one includes the other; only the main one can be judged, and only with the other."""
    return {
        "directories": [{"path": "/etc/chrony/conf.d", "exclusive": True}],
        "files": [
            {"dest": "/etc/chrony/chrony.conf", "content": main, "validate": "/usr/sbin/chronyd -p -f %s"},
            {
                "dest": "/etc/chrony/conf.d/a.conf",
                "content": included,
                "validate": "/usr/sbin/chronyd -p -f /etc/chrony/chrony.conf",
            },
        ],
        "units": [{"name": "chrony", "restart_on": ["/etc/chrony/*"]}],
        **extra,
    }


def stratum(rack: Rack, node: str = "head01") -> int:
    """What the daemon itself says, not its file."""
    ask = "for i in 1 2 3 4 5 6 7 8 9; do chronyc -n tracking && break; sleep 0.3; done"
    found = re.search(r"Stratum *: (\d+)", said := rack.ssh(node, ask, check=False))
    assert found, said + rack.ssh(node, "systemctl status chrony; journalctl -n 20 -u chrony", check=False)
    return int(found.group(1))


def test_validation_sees_the_whole_set(clock: Rack) -> None:
    rack = clock
    main = CHRONY.format(stratum=8)
    assert not rack.converge(set_of(main, "# nothing\n"))["failed"]
    refused = rack.converge(set_of(main, "bogus directive\n"))
    assert refused["failed"]
    assert "files[1] /etc/chrony/conf.d/a.conf is not valid, nothing was changed" in refused["msg"]
    assert "Invalid directive at line 1 in file /etc/chrony/conf.d/a.conf" in refused["msg"]
    assert not refused["changed"]
    assert (
        rack.ssh("head01", "cat /etc/chrony/conf.d/a.conf; ls -a / | grep coldiron || true") == "# nothing\n"
    )
    # A stranger in the directory would spoil the set; it goes away, and is seen gone.
    rack.ssh("head01", "echo bogus directive > /etc/chrony/conf.d/b.conf")
    result = rack.converge(set_of(main, "allow 10.9.0.0/16\n"))
    assert not result["failed"], result["msg"]
    assert sorted(result["paths"]) == ["/etc/chrony/conf.d/a.conf", "/etc/chrony/conf.d/b.conf"]
    assert result["units"]["restarted"] == ["chrony.service"]


def module_text(rack: Rack, declaration: dict[str, Any]) -> str:
    """The very text that a node would be sent."""
    made, variables = make_action(declaration, rack.folder)
    sent: list[str] = []

    def build(arguments: str) -> dict[str, Any]:
        bits = modify_module(
            module_name="coldiron.cluster.converge",
            module_path=str(ROOT / "plugins/modules/converge.py"),
            module_args=json.loads(arguments),
            templar=Templar(loader=made._loader, variables={}),
            task_vars={"ansible_python_interpreter": "/usr/bin/python3"},
        )
        sent.append(bits.b_module_data.decode())
        return {}

    made.send = build
    made.run(None, variables)
    return sent[0]


# A systemctl that kills its caller in place of restarting anything.
MURDERER = '#!/bin/sh\n[ "$1" != restart ] || exec kill -9 $PPID\nexec /usr/bin/systemctl "$@"\n'


def test_no_restart_is_lost(clock: Rack) -> None:
    rack = clock
    rack.converge(set_of(CHRONY.format(stratum=8), "# nothing\n"))
    assert stratum(rack) == 8
    new = set_of(CHRONY.format(stratum=5), "# nothing\n")
    rack.ssh("head01", "cat > /root/converge.py", module_text(rack, new))
    rack.ssh(
        "head01", "mkdir -p /root/bin; cat > /root/bin/systemctl; chmod +x /root/bin/systemctl", MURDERER
    )
    killed = rack.ssh("head01", "PATH=/root/bin:$PATH python3 /root/converge.py; echo $?", check=False)
    assert killed.strip().endswith("137")
    assert "local stratum 5" in rack.ssh("head01", "cat /etc/chrony/chrony.conf")
    assert stratum(rack) == 8
    result = rack.converge(new)
    assert result["paths"] == []
    assert result["units"]["restarted"] == ["chrony.service"]
    assert stratum(rack) == 5
    assert not rack.converge(new)["changed"]


CRASHES = 20
# Starts one of two versions at a time, kills it after a random part of a whole run's time, looks at every file.
TORTURE = """
import os, random, signal, subprocess, sys, time
new = {path: open(path).read() for path in ("/root/a.py", "/root/b.py")}
size = 1000000
def run(name, seconds=None):
    work = subprocess.Popen(["/usr/bin/python3", name], stdout=subprocess.DEVNULL)
    if seconds is not None:
        time.sleep(seconds)
        work.kill()
    return work.wait()
def look():
    for index in range(6):
        text = open(f"/etc/crash/{index}").read()
        assert text in ("a" * size, "b" * size), f"half a file: {len(text)} bytes, {set(text)}"
assert run("/root/a.py") == 0
assert run("/root/b.py") == 0
def took():
    since = time.monotonic()
    assert run("/root/a.py") == 0
    took = time.monotonic() - since
    assert run("/root/b.py") == 0
    return took
# One that was held up would put most kills after the end of the others.
whole = min(took() for _ in range(3))
died = 0
for number in range(int(sys.argv[1])):
    died += run(("/root/a.py", "/root/b.py")[number % 2], random.uniform(0.1, 0.8) * whole) == -9
    look()
assert run("/root/b.py") == 0
look()
assert {open(f"/etc/crash/{index}").read() for index in range(6)} == {"b" * size}
print(died, sorted(name for name in os.listdir("/") if "coldiron" in name), os.listdir("/etc/crash"))
"""


def test_killed_at_random_points_files_are_whole(clock: Rack) -> None:
    rack = clock
    for letter in "ab":
        files = [{"dest": f"/etc/crash/{index}", "content": letter * 1000000} for index in range(6)]
        conf = {
            "dest": "/etc/chrony/chrony.conf",
            "content": CHRONY.format(stratum=6 if letter == "a" else 7),
        }
        unit = {"name": "chrony", "restart_on": ["/etc/chrony/chrony.conf"]}
        text = module_text(rack, {"files": [*files, conf], "units": [unit]})
        rack.ssh("head01", f"cat > /root/{letter}.py", text)
    # chrony would be restarted more often than systemd allows by default.
    rack.ssh(
        "head01",
        "mkdir -p /run/systemd/system/chrony.service.d; printf '[Unit]\\nStartLimitBurst=0\\n' > "
        "/run/systemd/system/chrony.service.d/often.conf; systemctl daemon-reload; cat > /root/torture.py",
        TORTURE,
    )
    said = rack.ssh("head01", f"python3 /root/torture.py {CRASHES} 2>&1", check=False)
    died, _, rest = said.partition(" ")
    assert rest.startswith("[] ["), said
    assert int(died) >= CRASHES // 4, said
    assert stratum(rack) == 7


CANARY = "Zaphod-Beeblebrox-42"


def test_secrets_stay_secret(rack: Rack) -> None:
    hashed = f"$6${CANARY[:8]}$" + "q" * 86
    declaration: dict[str, Any] = {
        "files": [
            {"dest": "/etc/key", "content": "{{ key }}\n", "secret": True, "validate": "cat %s /nosuch"}
        ],
        "users": [{"name": "carol", "password": "{{ hashed }}"}],
    }
    secrets = rack.folder / "secrets.yml"
    secrets.write_text(json.dumps({"key": CANARY, "hashed": hashed}))
    rack.ssh(
        "head01",
        "nohup sh -c 'while sleep 0.01; do cat /proc/[0-9]*/cmdline; done' > /root/seen 2>/dev/null & "
        "echo $! > /root/spy",
    )
    said = ""
    for tool in ("cat %s /nosuch", "cat %s"):
        declaration["files"][0]["validate"] = tool
        for env in ({}, {"ANSIBLE_DEBUG": "1"}, {"ANSIBLE_PIPELINING": "0"}):
            rack.ssh("head01", "rm -f /etc/key; userdel carol 2>/dev/null; true")
            task = [{"name": "Converge", "coldiron.cluster.converge": declaration}]
            played = rack.play(task, "-vvvvv", "--diff", "-e", f"@{secrets}", **env)
            assert (played.rc == 0) == (tool == "cat %s"), played.output
            assert "invocation" not in played.results[-1]
            said += played.output + json.dumps(played.results)
    rack.ssh("head01", "kill $(cat /root/spy)")
    assert rack.ssh("head01", "cat /etc/key; getent shadow carol").startswith(f"{CANARY}\ncarol:{hashed}:")
    said += rack.ssh(
        "head01", "cat /root/seen; journalctl --no-pager; cat /var/log/auth.log 2>/dev/null", check=False
    )
    for secret in (CANARY, hashed):
        for text in (secret, "x" + secret, "xx" + secret):
            for form in (text, base64.b64encode(text.encode()).decode()[4:-4]):
                assert form not in said
    # Nor what was sent, in any form: compressed JSON is unpacked where it looks like some.
    for run in re.findall(r"eJ[A-Za-z0-9+/=]{40,}", said):
        # What only looks so, as one fingerprint in a thousand does, is none.
        with contextlib.suppress(zlib.error, binascii.Error):
            assert CANARY.encode() not in zlib.decompressobj().decompress(base64.b64decode(run + "=="))
    assert not re.search(r"[A-Za-z0-9+/]{400,}", re.sub(r"/nix|/", "", said))


def test_a_full_and_a_read_only_file_system(rack: Rack) -> None:
    rack.ssh(
        "head01", "mkdir -p /srv/tiny; mount -t tmpfs -o size=64k none /srv/tiny; echo old > /srv/tiny/f"
    )
    files = {"files": [{"dest": "/srv/tiny/f", "content": "x" * 200000}]}
    result = rack.converge(files)
    assert "the file system is full; make room and run again" in result["msg"]
    assert "\n" not in result["msg"]
    rack.ssh("head01", "mount -o remount,ro /srv/tiny")
    result = rack.converge(files)
    assert "the file system is mounted read-only" in result["msg"]
    assert rack.ssh("head01", "cat /srv/tiny/f; ls -A /srv/tiny; umount /srv/tiny") == "old\nf\n"
    rack.ssh("head01", "mount -t tmpfs -o size=8k none /var/cache/apt/archives")
    result = rack.converge({"packages": ["tree"]})
    rack.ssh("head01", "umount /var/cache/apt/archives")
    assert result["msg"].startswith(
        "apt cannot install tree: E: You don't have enough free space in /var/cache/apt"
    )
    assert not result["changed"]


def test_a_package_that_does_not_exist(rack: Rack) -> None:
    assert rack.converge({"packages": ["nosuch-package"]})["msg"] == (
        "apt cannot install nosuch-package: E: Unable to locate package nosuch-package"
    )


def test_a_dpkg_that_was_cut_off(rack: Rack) -> None:
    rack.ssh(
        "head01",
        "apt-get -q download tree hello >/dev/null && dpkg --unpack tree_*.deb >/dev/null && "
        "touch /var/lib/dpkg/updates/0001",
    )
    result = rack.converge({"packages": ["tree"]})
    assert not result["failed"], result["msg"]
    assert (
        rack.ssh("head01", "dpkg-query -W -f '${db:Status-Abbrev}' tree; ls /var/lib/dpkg/updates") == "ii "
    )


def test_a_unit_that_fails_says_why(rack: Rack) -> None:
    text = "[Service]\nExecStart=/bin/sh -c 'echo no licence on this node; exit 3'\nType=oneshot\n"
    unit = "/etc/systemd/system/broken.service"
    declaration: dict[str, Any] = {
        "files": [{"dest": unit, "content": text}],
        "units": [{"name": "broken", "enabled": False, "restart_on": [unit]}],
    }
    result = rack.converge(declaration)
    assert result["failed"]
    assert result["paths"] == [unit]
    assert "systemctl start broken.service failed" in result["msg"]
    assert "no licence on this node" in result["msg"]
    assert "\n" not in result["msg"]
    declaration["files"][0]["content"] = "[Service]\nExecStart=/bin/sleep infinity\n"
    assert rack.converge(declaration)["units"]["started"] == ["broken.service"]


def test_become(rack: Rack) -> None:
    key = rack.ssh(
        "head01", "cat /root/.ssh/authorized_keys /etc/ssh/authorized_keys/root 2>/dev/null", check=False
    )
    played = rack.converge(
        {
            "packages": ["sudo"],
            "users": [
                {
                    "name": "bob",
                    "uid": 2077,
                    "home": "/var/bob",
                    "create_home": True,
                    "shell": "/bin/sh",
                    "password": "*",
                }
            ],
            "directories": [{"path": "/var/bob/.ssh", "owner": "bob", "mode": "0700"}],
            "files": [
                {"dest": "/var/bob/.ssh/authorized_keys", "content": key, "owner": "bob", "mode": "0600"},
                {
                    "dest": "/etc/sudoers.d/bob",
                    "content": "bob ALL=(ALL) NOPASSWD: ALL\n",
                    "mode": "0440",
                    "validate": "/usr/sbin/visudo -cf %s",
                },
            ],
        }
    )
    assert not played["failed"], played["msg"]
    file = {"files": [{"dest": "/etc/by-bob", "content": "x", "mode": "0600"}]}
    user = {"remote_user": "bob", "vars": {"ansible_user": "bob"}}
    result = rack.converge(file, play=user)
    assert result["msg"] == "converge works as root only: say become: true"
    for env in ({}, {"ANSIBLE_PIPELINING": "0"}):
        rack.ssh("head01", "rm -f /etc/by-bob")
        result = rack.converge(file, play={**user, "become": True}, **env)
        assert not result["failed"], result["msg"]
        assert rack.ssh("head01", "stat -c '%U %a' /etc/by-bob") == "root 600\n"


def test_a_chroot_is_only_prepared(rack: Rack) -> None:
    """As an image is made: the units of the declaration enabled, nothing started, everything else in place."""
    rack.ssh(
        "head01", "mkdir -p /root/image && mount --bind / /root/image && mount -t tmpfs none /root/image/run"
    )
    declaration = {
        "files": [{"dest": "/etc/in-image", "content": "x", "validate": "test -s %s"}],
        "sysctl": [{"name": "net.core.somaxconn", "value": 5000}],
        "sysctl_file": "/etc/sysctl.d/91-image.conf",
        "units": [{"name": "systemd-confext.service"}],
    }
    rack.ssh("head01", "cat > /root/converge.py", module_text(rack, declaration))
    result = json.loads(rack.ssh("head01", "chroot /root/image python3 /root/converge.py"))
    assert result["units"]["enabled"] == ["systemd-confext.service"]
    assert not result["units"]["started"]
    assert result["sysctl"] == []
    rack.ssh("head01", "umount /root/image/run /root/image")
    assert rack.ssh("head01", "cat /etc/in-image /proc/sys/net/core/somaxconn") == "x4097\n"
    assert "inactive" in rack.ssh("head01", "systemctl is-active systemd-confext", check=False)
