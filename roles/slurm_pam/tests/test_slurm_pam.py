"""Who has no job on the node is not let in, who has one is, and administrators are in any case."""

from __future__ import annotations

import pytest

from coldiron.testing.jobs import BACK_SECONDS

# What sshd does for somebody whose key was right; says PAM's answer, in words.
ASK = """
import ctypes, sys
TALK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
class Conversation(ctypes.Structure):
    _fields_ = (("talk", TALK), ("data", ctypes.c_void_p))
pam = ctypes.CDLL("libpam.so.0", mode=ctypes.RTLD_GLOBAL)
pam.pam_strerror.restype = ctypes.c_char_p
handle, conversation = ctypes.c_void_p(), Conversation(TALK(lambda *_: 19), None)
status = pam.pam_start(b"sshd", sys.argv[1].encode(), ctypes.byref(conversation), ctypes.byref(handle))
assert status == 0, status
print(pam.pam_strerror(handle, pam.pam_acct_mgmt(handle, 0)).decode())
"""
PLACE = "/run/coldiron-slurm-pam-test"
PORT = 2299


def answer(host, name):
    """PAM's answer to sshd about ``name``."""
    return host.check_output("python3 -c %s %s", ASK, name)


@pytest.fixture
def ordinary(host, opts):
    """People whom only a job lets in."""
    people = [user["name"] for user in opts["users_accounts"] if user.get("state", "present") == "present"]
    own = set(opts["__slurm_pam_admins"])
    groups = set(opts["slurm_pam_admin_groups"])
    return [name for name in people if name not in own and not groups & set(host.user(name).groups)]


@pytest.fixture
def controller(role_hosts, run_on):
    """The host that slurmctld runs on."""
    return run_on(role_hosts("slurm_controller")[0])


@pytest.fixture
def person(ordinary, opts):
    """Somebody of them who may submit jobs; nothing where there is none."""
    users = [user["name"] for user in opts["slurm_controller_account_users"] if user.get("state") != "absent"]
    return next((name for name in ordinary if name in users), None)


@pytest.fixture
def job(controller, hostname, person, eventually):
    """The number of a job that this person has on the node, until the test ends."""

    def state(number):
        return controller.check_output("squeue --noheader --jobs=%s --format=%%T", number)

    if person is None:
        yield None
        return
    number = controller.check_output(
        "runuser -u %s -- sbatch --parsable --chdir=/tmp --output=/dev/null --time=3 --mem=16M --nodelist=%s"
        " --wrap 'sleep 100'",
        person,
        hostname,
    ).split(";")[0]
    try:
        assert eventually(lambda: state(number) == "RUNNING", seconds=BACK_SECONDS), state(number)
        yield number
    finally:
        controller.run("scancel %s", number)


@pytest.fixture
def login(host, eventually):
    """Logs in by ssh with a key, as an own sshd of the node takes it; returns what the command said."""
    options = "-o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o BatchMode=yes"
    host.check_output(
        f"install -d -m 0755 {PLACE} /run/sshd && rm -f {PLACE}/key* &&"
        f" ssh-keygen -q -t ed25519 -N '' -f {PLACE}/key && chmod 0644 {PLACE}/key.pub"
    )
    host.check_output(
        f"/usr/sbin/sshd -p {PORT} -o ListenAddress=127.0.0.1 -o UsePAM=yes -o StrictModes=no"
        f" -o AuthorizedKeysFile={PLACE}/key.pub -o PidFile={PLACE}/pid </dev/null >/dev/null 2>&1"
    )
    # It goes to the background before it listens.
    heard = host.socket(f"tcp://127.0.0.1:{PORT}")
    assert eventually(lambda: heard.is_listening, seconds=30)
    try:
        # ssh's own status for a refusal would pass for a node that does not answer.
        yield lambda name, command: host.run(
            f"ssh -i {PLACE}/key -p {PORT} {options} %s@127.0.0.1 %s || exit 1", name, command
        )
    finally:
        host.run(f"kill $(cat {PLACE}/pid); rm -rf {PLACE}")
        assert eventually(lambda: not heard.is_listening, seconds=30)


def test_sshd_asks_slurm_for_every_login(host):
    assert host.file("/etc/pam.d/sshd").contains(r"^account\s\+substack\s\+coldiron-slurm$")
    assert host.check_output("sshd -T | grep -i '^usepam '").lower() == "usepam yes"


def test_administrators_get_in(host, opts):
    for name in opts["__slurm_pam_admins"]:
        if host.user(name).exists:
            assert answer(host, name) == "Success", name


@pytest.mark.acts
def test_nobody_else_gets_in_without_a_job(host, hostname, controller, ordinary):
    for name in ordinary:
        if not controller.check_output("squeue --noheader --user=%s --nodelist=%s", name, hostname):
            assert answer(host, name) != "Success", name


@pytest.mark.acts
def test_somebody_without_a_job_is_told_so(login, hostname, controller, person):
    if person is None or controller.check_output(
        "squeue --noheader --user=%s --nodelist=%s", person, hostname
    ):
        return
    done = login(person, "hostname")
    assert done.rc != 0
    assert "you have no active jobs on this node" in done.stderr


@pytest.mark.acts
def test_somebody_with_a_job_gets_in(login, opts, person, job, eventually):
    """And, where sessions are adopted, into the job's control group."""
    if person is None:
        return

    def enter():
        done = login(person, "cat /proc/self/cgroup")
        assert done.rc == 0, done.stderr
        return done

    # slurmd makes the job's container a moment after slurmctld has said that the job runs.
    done = eventually(enter, seconds=30)
    if opts["slurm_pam_not_adopted"] == "deny":
        assert f"/job_{job}/step_extern/" in done.stdout


def test_sessions_stay_in_their_job_s_control_group(host, opts):
    """pam_systemd would move them into a session of its own."""
    if opts["__slurm_pam_os"]["session_profile"]:
        assert not host.file("/etc/pam.d/common-session").contains(r"^[^#]*pam_systemd\.so")


def test_a_job_has_a_container_from_its_first_second(host, controller):
    assert "contain" in controller.check_output("scontrol show config | grep ^PrologFlags").lower()


def test_the_package_is_held_or_not(host, opts):
    """Only apt's holds are looked at."""
    if host.exists("apt-mark"):
        held = set(host.check_output("apt-mark showhold").split())
        named = set(opts["__slurm_pam_os"]["packages"])
        assert named <= held if opts["slurm_pam_hold"] else not named & held
