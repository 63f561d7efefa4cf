"""MPI is the one that was asked for, uses the cluster's network, and its programs run by srun on two nodes."""

from __future__ import annotations

import base64

import pytest

from coldiron.testing.jobs import with_nodes

PROGRAM = r"""
#include <mpi.h>
#include <stdio.h>

int main(int argc, char **argv) {
  int rank, size, mine, sum = 0, length;
  char name[MPI_MAX_PROCESSOR_NAME];
  MPI_Init(&argc, &argv);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Get_processor_name(name, &length);
  mine = rank + 1;
  MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  printf("%s %d %d %d\n", name, rank, size, sum);
  MPI_Finalize();
  return 0;
}
"""


@pytest.fixture
def person(opts):
    """Somebody who may submit jobs: an ordinary user where Slurm's accounts name one, else root."""
    users = [user for user in opts["users_accounts"] if user.get("state", "present") == "present"]
    submitting = [
        user["name"] for user in opts["slurm_controller_account_users"] if user.get("state") != "absent"
    ]
    return next((user["name"] for user in users if user["name"] in submitting), "root")


def test_the_programs_are_those_of_the_declared_mpi(host, opts):
    for item in opts["__mpi_os"]["alternatives"][opts["mpi_implementation"]]:
        assert host.check_output("readlink /etc/alternatives/%s", item["name"]) == item["path"]
    said = host.check_output("mpirun --version").lower()
    assert ("open mpi" in said) == (opts["mpi_implementation"] == "openmpi"), said


def parameters(host):
    """Open MPI's parameters as it takes them up: name -> (value, where it is from)."""
    found = {}
    for line in host.check_output("ompi_info --all --parsable --level 9").splitlines():
        words = line.split(":")
        if words[0] == "mca" and "param" in words and len(words) > words.index("param") + 3:
            at = words.index("param")
            name, what = words[at + 1], words[at + 2]
            if what in ("value", "source"):
                found.setdefault(name, {})[what] = ":".join(words[at + 3 :]).strip('"')
    return found


def test_open_mpi_has_every_declared_parameter(host, opts):
    if opts["mpi_implementation"] != "openmpi":
        return
    found = parameters(host)
    for name, value in opts["__mpi_settings"].items():
        # Parameters of another layer, or of a plugin that is not loaded, are in the file alone.
        if name in found:
            shown = found[name]
            # A number that stands for a word, such as a level, is shown as the word.
            named = str(value).isdigit() and not shown["value"].isdigit() and "file" in shown["source"]
            assert shown["value"] == str(value) or named, f"{name}: {shown}"
        assert f"{name} = {value}" in host.file(opts["__mpi_os"]["mca_file"]).content_string.splitlines()
    if opts["mpi_subnets"]:
        assert found["btl_tcp_if_include"]["value"] == ",".join(opts["mpi_subnets"])
        assert "file" in found["btl_tcp_if_include"]["source"]


def test_ucx_has_what_it_was_told(host, opts):
    if host.exists("ucx_info"):
        # UCX shows words of its own in capitals.
        taken = host.check_output("ucx_info -c").upper().splitlines()
        for name, value in opts["mpi_ucx"].items():
            assert f"{name}={value}".upper() in taken


def test_slurm_can_start_ranks_by_pmix(host):
    listed = host.check_output("srun --mpi=list 2>&1")
    assert "pmix" in [line.strip() for line in listed.splitlines()], listed


def test_there_are_compilers_or_none_are_asked_for(host, opts):
    if opts["mpi_compilers"]:
        assert host.exists("mpicc")
        assert host.exists("mpifort")


@pytest.mark.acts
def test_a_compiled_program_adds_up_over_two_nodes(host, opts, person, role_hosts):
    """Built here, brought to the nodes by Slurm, started by srun, as an ordinary user does it."""
    workers = [name for name in role_hosts("slurm_worker") if name in role_hosts("mpi")][:2]
    if not opts["mpi_compilers"] or len(workers) < 2:
        return
    flavour = "pmix" if opts["mpi_implementation"] == "openmpi" else "pmi2"
    source = base64.b64encode(PROGRAM.encode()).decode()
    script = (
        "set -e; work=$(mktemp -d); trap 'rm -rf $work' EXIT; cd $work;"
        f" echo {source} | base64 -d > sum.c; mpicc -o sum sum.c;"
        f" salloc --quiet --immediate=60 --time=2 --nodes=2 --ntasks=2 --ntasks-per-node=1 --mem=64M"
        f" --nodelist={','.join(workers)} sh -c"
        f" 'sbcast --force $0/sum /tmp/coldiron-mpi-$SLURM_JOB_ID;"
        f" cd /tmp; srun --chdir=/tmp --mpi={flavour} /tmp/coldiron-mpi-$SLURM_JOB_ID; status=$?;"
        " srun --chdir=/tmp rm -f /tmp/coldiron-mpi-$SLURM_JOB_ID; exit $status' $work"
    )
    done = with_nodes(lambda: host.run("runuser -u %s -- sh -c %s", person, script))
    assert done.rc == 0, done.stdout + done.stderr
    rows = sorted(line.split() for line in done.stdout.splitlines() if line.split()[-1:] == ["3"])
    assert sorted(row[0].split(".")[0] for row in rows) == sorted(workers), done.stdout + done.stderr
    assert sorted(row[1:] for row in rows) == [["0", "2", "3"], ["1", "2", "3"]]
    # Nothing that is wrong with the node's shared memory or network was passed over with a warning.
    assert "WARNING" not in done.stderr, done.stderr
