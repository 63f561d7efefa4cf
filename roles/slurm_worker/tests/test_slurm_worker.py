"""slurmd is up, runs by the controller's configuration, and a real job gets what the node has."""

from __future__ import annotations

import pytest

from coldiron.testing.jobs import BACK_SECONDS, with_nodes


@pytest.fixture(scope="module")
def controller(role_hosts, run_on):
    """The host that slurmctld runs on."""
    return run_on(role_hosts("slurm_controller")[0])


def test_the_daemon_runs_and_starts_at_boot(host):
    slurmd = host.service("slurmd")
    assert slurmd.is_running
    assert slurmd.is_enabled


def test_the_node_is_in_service(hostname, controller, eventually):
    """Anything but down, drained, invalid or silent (a star)."""

    def state():
        return controller.check_output("sinfo --noheader --Node --nodes %s --format %%t", hostname).split()[0]

    assert eventually(
        lambda: state().rstrip("-+") in ("idle", "mix", "alloc", "comp", "resv", "plnd"),
        seconds=BACK_SECONDS,
    ), state()


def test_the_configuration_is_the_controllers(host, opts, controller, eventually):
    if opts["slurm_worker_local_config"]:
        return
    for name in ("slurm.conf", "gres.conf", "cgroup.conf"):
        assert not host.file(f"/etc/slurm/{name}").exists
        wanted = controller.file(f"/etc/slurm/{name}").sha256sum
        # A reconfigure reaches the nodes a moment after it reached slurmctld.
        assert eventually(lambda: host.file(f"/run/slurm/conf/{name}").sha256sum == wanted, seconds=15), name  # noqa: B023


def test_the_daemon_started_with_what_only_a_start_takes_up(host, opts):
    """The unit's environment names the controllers, and the process that runs was given them."""
    servers = opts["__slurm_worker_servers"]
    written = host.file(opts["__slurm_worker_os"]["start_file"]).content_string
    assert f'SLURMD_OPTIONS="--conf-server {servers}"' in written
    pid = host.check_output("systemctl show --property MainPID --value slurmd")
    assert servers in host.check_output("tr '\\0' ' ' < /proc/%s/cmdline", pid)


def test_a_node_that_is_up_before_its_controller_tries_again(host):
    assert host.check_output("systemctl show --property Restart --value slurmd") == "on-failure"


@pytest.mark.acts
def test_a_job_runs_here_with_every_gpu(hostname, hostvars, controller):
    gpus = (hostvars["coldiron_hardware"] or {}).get("gpus")
    asked = f"--gres=gpu:{gpus['type']}:{gpus['count']}" if gpus else ""
    command = (
        f"srun --immediate=30 --time=1 --ntasks=1 --mem=16M {asked} --nodelist={hostname}"
        " sh -c 'hostname -s; echo \"$CUDA_VISIBLE_DEVICES\"'"
    )
    answer = with_nodes(lambda: controller.run(command))
    assert answer.rc == 0, answer.stderr
    lines = answer.stdout.splitlines()
    assert lines[0] == hostname
    assert len([device for device in lines[1].split(",") if device]) == (gpus["count"] if gpus else 0)


def test_the_package_is_held_or_not(host, opts):
    """An upgrade belongs to a maintenance window. Only apt's holds are looked at."""
    if host.exists("apt-mark"):
        held = set(host.check_output("apt-mark showhold").split())
        named = set(opts["__slurm_worker_os"]["packages"])
        assert named <= held if opts["slurm_worker_hold"] else not named & held
