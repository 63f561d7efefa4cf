"""Jobs of an ordinary user: on all workers at once, and on two GPUs of one; accounting has seen both."""

from __future__ import annotations

import re
import time

import pytest

from tests.e2e.siterun import USER, SiteRun

pytestmark = pytest.mark.site


def accounted(run: SiteRun, job: str) -> dict[str, str]:
    """Return what sacct says of a job, once it is complete there."""
    words = "JobID,User,State,NNodes,AllocTRES"
    for _ in range(30):
        answer = run.as_user(f"sacct -X -n -P -j {job} --format={words}").strip()
        fields = dict(zip(words.split(","), answer.split("|"), strict=False))
        if fields.get("State") == "COMPLETED":
            return fields
        time.sleep(1)
    return fields


def test_a_job_runs_on_every_worker_at_once(converged: SiteRun) -> None:
    workers = converged.workers
    # The hostname comes from each task; the barrier of --wait and one step over all nodes shows them at once.
    answer = converged.as_user(
        f"srun -N {len(workers)} --ntasks-per-node=1 sh -c 'echo $SLURM_JOB_ID $(hostname) $(id -un)'"
    )
    lines = [line.split() for line in answer.splitlines()]
    assert sorted(host for _, host, _ in lines) == sorted(workers)
    assert {user for _, _, user in lines} == {USER}
    job = accounted(converged, lines[0][0])
    assert (job["User"], job["State"], job["NNodes"]) == (USER, "COMPLETED", str(len(workers)))


def test_a_job_has_the_gpus_it_asked_for(converged: SiteRun) -> None:
    answer = converged.as_user("srun --gres=gpu:2 sh -c 'echo $SLURM_JOB_ID $CUDA_VISIBLE_DEVICES'").split()
    assert re.fullmatch(r"\d,\d", answer[1])
    job = accounted(converged, answer[0])
    assert job["State"] == "COMPLETED"
    assert "gres/gpu=2" in job["AllocTRES"]


def test_a_stranger_runs_nothing(converged: SiteRun) -> None:
    """Without an account in the accounting there is no job: the limits hold for everybody."""
    login = converged.site.hosts("slurm_login")[0]
    refused = converged.site.connections.run(login, "runuser -u nobody -- srun -t 1 true", timeout=60)
    assert refused.returncode != 0
    assert "account" in refused.stderr.lower(), refused.stderr
