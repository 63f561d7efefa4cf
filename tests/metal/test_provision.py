"""From power-off to a Slurm job on machines with firmware and a BMC, and back after a disk died. In their order."""

from __future__ import annotations

import re
import subprocess
import warnings
from base64 import b64encode
from collections.abc import Iterator

import pytest
import yaml

from coldiron.catalog.load import load
from coldiron.rack.gpu.cards import CARDS, MARKER, description, marker
from coldiron.rack.gpu.package import build
from coldiron.rack.host import Host
from coldiron.rack.layout import Machine
from coldiron.testing.steps import environment
from tests.metal.site import Metal

pytestmark = pytest.mark.metal

BIOS, UEFI = "gpu01", "gpu02"
MACHINES = (BIOS, UEFI)
# The task of role deploy that says so.
RETRIED = "the machine fell silent and is started once more"
# Emulated machines are slow, more so side by side: seconds for a whole site from power-off.
# One that falls silent while its disk is written is told after half an hour, and started once more.
SITE_SECONDS = 4200
REPAIR_SECONDS = 4200
DATA = "/dev/disk/by-id/virtio-DATA-GPU01"
MARK = "data that nobody may lose"
# Of each machine, as its inventory has it.
GPUS, DRIVER = 4, "580.95.05"


def job(metal: Metal, node: str, *words: str, run: str, seconds: float = 120) -> str:
    """Run a step of one ordinary user on one node and return what it printed."""
    return metal.as_user(f"srun -w {node} -t 5 {' '.join(words)} {run}", timeout=seconds)


def test_the_machines_are_off_and_their_disks_empty(metal: Metal) -> None:
    for name in MACHINES:
        machine = metal.machine(name)
        assert (machine["state"], machine["bmc_state"]) == ("off", "running")
    assert {metal.machine(BIOS)["firmware"], metal.machine(UEFI)["firmware"]} == {"bios", "uefi"}


def test_a_dry_run_names_images_and_disks(metal: Metal) -> None:
    told = metal.verb("provision", "--dry-run", *MACHINES)
    assert "disk SYSTEM-GPU01: written if it is blank, else refused" in told
    assert "DATA-GPU01" not in told


def test_the_site_comes_from_power_off(metal: Metal) -> None:
    record = metal.run(timeout=SITE_SECONDS)
    metal.converged = record.status == 0
    assert record.status == 0, record.told()
    for name in MACHINES:
        print(name, metal.times(name))
        # Emulation kills a machine now and then; which one it was is in the summary of the tests.
        if any(RETRIED in task for task in record.tasks.get(name, ())):
            warnings.warn(f"{name}: {RETRIED}", stacklevel=1)


def test_a_job_runs_on_each_machine(metal: Metal) -> None:
    answer = metal.as_user("srun -N 2 --ntasks-per-node=1 -t 5 hostname", timeout=180)
    assert sorted(answer.split()) == sorted(MACHINES)


def test_apt_reads_its_configuration(metal: Metal) -> None:
    for name in MACHINES:
        assert "Acquire::http::Proxy" in metal.on(name, "apt-config dump")


def test_homes_are_mounted_by_the_kernel(metal: Metal) -> None:
    assert job(metal, BIOS, run="stat -f -c %T /home/alice").strip() == "nfs"
    job(metal, UEFI, run="touch /home/alice/from-the-job")
    metal.on(metal.head, "test -e /home/alice/from-the-job")


@pytest.mark.parametrize("node", MACHINES)
def test_memory_over_the_limit_is_killed(metal: Metal, node: str) -> None:
    login = metal.site.hosts("slurm_login")[0]
    hungry = "python3 -c 'x = bytearray(300 << 20); print(len(x))'"
    line = f'runuser -l alice -c "srun -w {node} -t 5 --mem=60M {hungry}"'
    done = metal.site.connections.run(login, line, timeout=180)
    assert done.returncode != 0
    assert "oom" in done.stderr.lower() or "out of memory" in done.stderr.lower(), done.stderr


@pytest.mark.parametrize("node", MACHINES)
def test_a_gpu_that_was_not_granted_cannot_be_opened(metal: Metal, node: str) -> None:
    look = "sh -c 'true < /dev/nvidia0 && echo open || echo closed'"
    assert job(metal, node, "--mem=100M", "--gres=gpu:1", run=look).strip().endswith("open")
    assert job(metal, node, "--mem=100M", run=look).strip().endswith("closed")


LOGIN = "ssh -o BatchMode=yes -o StrictHostKeyChecking=accept-new"


@pytest.fixture
def key(metal: Metal) -> Iterator[None]:
    """A key of an ordinary user's own, in the home that every node mounts. The file of keys is role users' own."""
    metal.as_user(
        "cp -p .ssh/authorized_keys .ssh/before; "
        "test -e .ssh/id_ed25519 || ssh-keygen -q -t ed25519 -N '' -f .ssh/id_ed25519; "
        "cat .ssh/id_ed25519.pub >> .ssh/authorized_keys"
    )
    yield
    metal.as_user("mv .ssh/before .ssh/authorized_keys")


@pytest.mark.usefixtures("key")
def test_a_login_is_let_in_by_a_job_and_confined_to_it(metal: Metal) -> None:
    """By pam_slurm_adopt: the job's limits are the session's, and its end is the session's."""
    for node in MACHINES:
        let_in_and_confined(metal, node)


def let_in_and_confined(metal: Metal, node: str) -> None:
    """Try to log in to a machine without a job, and with one."""
    refused = metal.as_user(f"{LOGIN} {node} true 2>&1 || echo refused", timeout=120)
    assert refused.strip().endswith("refused")
    assert "you have no active jobs on this node" in refused
    submit = f"sbatch --parsable -w {node} -t 5 --mem=60M -o /dev/null --wrap 'sleep 280'"
    number = metal.as_user(submit).strip()
    try:
        metal.as_user(f"timeout 60 sh -c 'until squeue -h -j {number} -t R | grep -q .; do sleep 1; done'")
        # slurmd makes the container for logins a moment after the job runs.
        metal.as_user(f"timeout 60 sh -c 'until {LOGIN} {node} true; do sleep 2; done'", timeout=90)
        look = "cat /proc/self/cgroup; true < /dev/nvidia0 && echo open || echo closed"
        told = metal.as_user(f'{LOGIN} {node} "{look}"', timeout=90)
        assert f"/job_{number}/step_extern/" in told
        assert told.strip().endswith("closed"), told
        hungry = "python3 -c 'x = bytearray(300 << 20); print(len(x))'"
        starved = metal.as_user(f'{LOGIN} {node} "{hungry}" || echo killed', timeout=90)
        assert starved.strip() == "killed"
        # The last one is cut off by the job's end, long before its own.
        session = f"{LOGIN} {node} 'echo in; sleep 250; echo outlived' || echo ended"
        cancel = f'while read -r said; do echo "$said"; test "$said" != in || scancel {number}; done'
        assert metal.as_user(f"{{ {session}; }} | {cancel}", timeout=120).split()[-2:] == ["in", "ended"]
    finally:
        metal.as_user(f"scancel {number}")


def test_a_data_disk_gets_data(metal: Metal) -> None:
    metal.on(BIOS, f"mkfs.ext4 -q {DATA} && mount {DATA} /mnt && echo '{MARK}' > /mnt/mark && umount /mnt")


def test_the_second_run_changes_nothing(metal: Metal) -> None:
    record = metal.run(timeout=SITE_SECONDS)
    assert record.status == 0, record.told()
    assert record.restless == {}, record.told()


def test_no_secret_is_where_it_must_not_be(metal: Metal) -> None:
    """The site's own secrets and the machines' keys: not in the web root, the process list, the consoles."""
    vault = subprocess.run(
        ["ansible-vault", "view", "--vault-password-file", ".vault-password", "group_vars/all/vault.yml"],
        cwd=metal.inventory, capture_output=True, text=True, env=environment(), check=True, timeout=60,
    ).stdout  # fmt: skip
    # Keys are looked for by their middle: a line of its own, whatever wraps it.
    canaries = {
        line for value in yaml.safe_load(vault).values() if isinstance(value, str) for line in lines(value)
    }
    for name in MACHINES:
        canaries |= lines(metal.on(metal.head, f"cat /var/lib/coldiron/host-keys/{name}"))
    assert len(canaries) > 6
    public = lines(yaml.safe_load(vault)["coldiron_ca_certificate"])
    wanted = "\n".join(sorted(canaries - public))
    metal.on(metal.head, f"cat > /root/canaries <<'END'\n{wanted}\nEND\nchmod 0600 /root/canaries")
    found = metal.on(
        metal.head,
        "grep -rlF -f /root/canaries /srv/coldiron /var/www /usr/share/nginx /srv/tftp 2>/dev/null; "
        "ps axww -o args | grep -F -f /root/canaries | grep -v grep; "
        "journalctl -q --no-pager | grep -cF -f /root/canaries | grep -v '^0$'; rm /root/canaries",
        timeout=120,
    )
    assert found.strip() == ""
    for name in MACHINES:
        console = metal.console(name)
        assert console
        assert not [canary for canary in canaries - public if canary in console]
        # What its RAM environment was told it by is not what it is started with from now on.
        left = metal.on(name, "grep -rlF coldiron.token /proc/cmdline /boot/grub /etc || true")
        assert left == ""


def lines(text: str) -> set[str]:
    """The lines of a secret that could give it away."""
    return {line for line in text.splitlines() if len(line) >= 16 and not line.startswith("-----")}


def answer(metal: Metal, url: str, *words: str) -> tuple[int, str]:
    """What the provisioner answers to curl from the machines' network: its status, and the text."""
    address = metal.site.hostvars(metal.head)["coldiron_address"]
    command = ["curl", "-sk", "--noproxy", "*", "--max-time", "20", "-w", "\n%{http_code}", *words]
    done = subprocess.run([*command, url.format(address=address)], capture_output=True, text=True, timeout=40)
    text, _, code = done.stdout.rpartition("\n")
    return int(code), text


def test_who_has_no_order_is_told_to_boot_from_disk(metal: Metal) -> None:
    mac = metal.machine(BIOS)["mac"].replace(":", "-")
    code, text = answer(metal, f"http://{{address}}/boot/{mac}.ipxe")
    assert (code, "sanboot" in text) == (200, True)
    assert "token" not in text


def test_a_secret_is_not_given_over_plain_http(metal: Metal) -> None:
    code, text = answer(
        metal, f"http://{{address}}/api/v1/nodes/{BIOS}/redeem", "-X", "POST", "-H", "Authorization: Bearer x"
    )
    assert code == 403
    assert "BEGIN" not in text


@pytest.fixture(scope="module")
def ordered(metal: Metal) -> Iterator[str]:
    """A machine with an open order that is placed as role deploy does, and left alone: scripts are fetched for it."""
    order(metal, BIOS)
    yield metal.machine(BIOS)["mac"].replace(":", "-")
    metal.deployd("cancel", BIOS)


@pytest.mark.parametrize("token", ["wrong", "foreign", "expired", "used"])
def test_a_token_opens_once_for_its_node_and_for_a_while(metal: Metal, ordered: str, token: str) -> None:
    """Each script has a token of its own; the last one is shown twice."""
    _, script = answer(metal, f"http://{{address}}/boot/{ordered}.ipxe")
    given = re.search(r"coldiron\.token=(\S+)", script)
    assert given, script
    text, node = given[1], BIOS
    if token == "wrong":
        text = "A" * len(text)
    if token == "foreign":
        node = UEFI
    if token == "expired":
        metal.on(
            metal.head,
            "python3 - <<'END'\nimport json, pathlib\n"
            "path = pathlib.Path('/var/lib/coldiron/deploy/tokens/tokens.json')\n"
            "data = json.loads(path.read_text())\n"
            "for entry in data['tokens']: entry['expires'] = 1.0\n"
            "path.write_text(json.dumps(data))\nEND",
        )
    if token == "used":
        assert redeem(metal, BIOS, text)[0] == 200
    code, refusal = redeem(metal, node, text)
    assert code in (401, 403), refusal
    assert text not in refusal


def redeem(metal: Metal, node: str, token: str) -> tuple[int, str]:
    """Show a token to the provisioner."""
    return answer(
        metal,
        f"https://{{address}}:8443/api/v1/nodes/{node}/redeem",
        "-X",
        "POST",
        "-H",
        f"Authorization: Bearer {token}",
    )


def order(metal: Metal, node: str) -> None:
    """Place an order, and do not boot the machine."""
    play = metal.scratch / "order.yml"
    play.write_text(
        "- hosts: bare_metal\n  gather_facts: false\n  tasks:\n    - ansible.builtin.include_role:\n"
        "        {name: coldiron.cluster.deploy, tasks_from: order, rolespec_validate: false}\n",
        encoding="utf-8",
    )
    done = metal.playbook(play, "-l", node)
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.fixture
def cards(metal: Metal) -> None:
    """Simulated cards and Debian's own nvidia-smi on the machine whose disk is wiped afterwards."""
    (package,) = build(Host(), Machine(), (DRIVER,))
    model = load().gpus["h100-sxm5-80gb"]
    for path, text in ((CARDS, description(model, GPUS, BIOS)), (MARKER, marker(model, GPUS))):
        metal.on(BIOS, f"mkdir -p /etc/coldiron; cat > /{path}", source=text)
    metal.on(BIOS, "base64 -d > /var/tmp/simulated.deb", source=b64encode(package.read_bytes()).decode())
    only = "-o Dir::Etc::sourcelist=/etc/apt/non-free.list -o Dir::Etc::sourceparts=/nowhere"
    metal.on(
        BIOS,
        "sed 's/ main$/ non-free/; 1q' /etc/apt/sources.list > /etc/apt/non-free.list;"
        f" export DEBIAN_FRONTEND=noninteractive; apt-get -q {only} -o APT::Get::List-Cleanup=0 update;"
        f" apt-get -q -y --no-install-recommends {only} install /var/tmp/simulated.deb nvidia-smi",
        timeout=300,
    )
    # The cards' device files are new ones.
    metal.on(BIOS, "systemctl restart slurmd")


@pytest.fixture
def image(metal: Metal, cards: None) -> str:
    """An image of the machine's own nvidia-smi, built there by an ordinary user: role apptainer, on a real kernel."""
    group = metal.scratch / "apptainer.yml"
    group.write_text(f"all: {{children: {{apptainer: {{hosts: {{{BIOS}: {{}}}}}}}}}}\n", encoding="utf-8")
    record = metal.run("-i", str(group), "--limit", BIOS, "--tags", "apptainer,subids", timeout=900)
    assert record.status == 0, record.told()
    tools, root, made = "/bin/sh /usr/lib/nvidia/current/nvidia-smi", "/var/tmp/image", "/var/tmp/image.sif"
    metal.on(
        BIOS,
        f"mkdir -p {root}/etc {root}/tmp {root}/proc {root}/sys {root}/dev; cd {root};"
        f" {{ ldd {tools} | grep -o '/[^ :]*' | grep -v libnvidia; printf '%s\\n' {tools}; }} | sort -u"
        f" | tar -c --dereference --files-from=- 2>/dev/null | tar -x -C {root};"
        f" touch etc/passwd etc/group; chmod -R a+rX .;"
        f" runuser -l alice -c 'apptainer --quiet build --force {made} {root}'",
        timeout=300,
    )
    return made


def test_a_job_sees_its_two_gpus_and_so_does_its_container(metal: Metal, image: str) -> None:
    """What the control group does not open, nvidia-smi does not list: neither outside nor inside Apptainer."""
    smi = "/usr/lib/nvidia/current/nvidia-smi -L"
    both = f"bash -c '{smi}; echo; apptainer --quiet exec --nv {image} {smi}'"
    everything = metal.on(BIOS, smi).splitlines()
    assert len(everything) == GPUS
    uuids = [line.partition("UUID: ")[2] for line in everything]
    said = job(metal, BIOS, "--mem=300M", "--gres=gpu:h100:2", run=both, seconds=300)
    outside, inside = (
        [line.partition("UUID: ")[2] for line in half.splitlines()] for half in said.split("\n\n")
    )
    assert outside == inside == uuids[:2], said
    none = job(metal, BIOS, "--mem=300M", run=f"bash -c '{smi} 2>&1 || true'", seconds=300)
    # nvidia-smi's words are others from release to release.
    assert re.match(r"No devices (were )?found", none), none


def test_a_wiped_disk_is_repaired_while_jobs_run_elsewhere(metal: Metal) -> None:
    keys = metal.on(BIOS, "cat /etc/ssh/ssh_host_ed25519_key.pub")
    other = metal.boot_id(UEFI)
    steady = metal.as_user(f"sbatch --parsable -w {UEFI} -t 60 --wrap 'sleep 3000'").strip()
    metal.on(BIOS, "systemctl poweroff")
    metal.wait_until_off(BIOS)
    metal.wipe_system_disk(BIOS)
    metal.site.connections.forget()
    refused = metal.verb("node", "repair", BIOS, seconds=60, code=3)
    assert "SYSTEM-GPU01" in refused
    metal.verb("node", "repair", BIOS, "--yes", "SYSTEM-GPU01", seconds=REPAIR_SECONDS)
    print(BIOS, metal.times(BIOS))
    assert job(metal, BIOS, "--mem=100M", run="hostname", seconds=180).strip() == BIOS
    assert metal.on(BIOS, f"mount -o ro {DATA} /mnt && cat /mnt/mark && umount /mnt").strip() == MARK
    # The same host key, though the disk that had it is gone.
    assert metal.on(BIOS, "cat /etc/ssh/ssh_host_ed25519_key.pub").split()[:2] == keys.split()[:2]
    assert metal.boot_id(UEFI) == other
    assert metal.as_user(f"squeue -h -j {steady} -o %T").strip() == "RUNNING"
    metal.as_user(f"scancel {steady}")
