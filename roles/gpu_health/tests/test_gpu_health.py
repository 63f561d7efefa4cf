"""The node's GPUs are looked at around jobs, by a program that answers quickly and says what is so."""

from __future__ import annotations

import json

CHECK = "/usr/bin/python3 -I -S /usr/lib/coldiron/gpu_health.py check"


def test_the_gpus_have_nothing_against_them(host, opts):
    answer = host.run(CHECK)
    assert answer.rc == 0, answer.stdout + answer.stderr
    assert answer.stdout.strip() == f"{opts['gpu_health_gpus']} GPUs, nothing against them"


def test_it_looks_for_what_is_declared(host, opts):
    wanted = json.loads(host.file("/etc/coldiron/gpu-health.json").content_string)
    assert wanted == opts["__gpu_health_wanted"]


def test_slurmd_runs_it_before_and_after_each_job(host):
    """The hooks judge as slurmd calls them, and a sound node is neither drained nor a job refused."""
    for moment in ("prolog", "epilog"):
        hook = f"/etc/slurm/{moment}.d/50-gpu-health"
        assert (host.file(hook).user, host.file(hook).mode) == ("root", 0o755)
        answer = host.run(f"env -i SLURM_JOB_GPUS=0 {hook}")
        assert answer.rc == 0, answer.stderr
        assert answer.stderr == ""


def test_nobody_else_writes_what_root_runs(host):
    for path in ("/usr/lib/coldiron/gpu_health.py", "/etc/coldiron/gpu-health.json"):
        assert (host.file(path).user, host.file(path).mode) == ("root", 0o644)
