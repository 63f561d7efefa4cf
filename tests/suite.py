"""The phases of ``make test``, cheapest first; the first that fails ends it.

``fast`` needs no node and no root. ``full`` builds the virtual rack anew and proves a fresh site, the second run,
machines from power-off to a job and back after a disk died, the packages in empty environments, the other Python,
every role's tests and sabotage, and the molecule scenarios that a change touches. ``all`` adds the other rehearsals,
what else is asked of machines, the other scenarios and the slow ones. A single phase, such as ``lint``, can be named
too.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "inventories" / "virtual"
# The tests edit their inventory and break their rack: both are their own, so a demo stays as it is.
INVENTORY = ".cache/site/virtual"
COVERAGE_FLOOR = 90
UNIT = ("-q", "-n", "2", "tests/unit", "tests/plan", "tests/contract")
# What differs most between two versions of Ansible: what runs in it, and what calls it.
WITH_ANSIBLE = [
    f"tests/unit/{part}" for part in ("converge", "inventory", "playbooks", "run", "slurm", "verify")
]
# Python 3.11 has the oldest supported ansible-core, 3.13 the newest; the checkout's environment has one of them.
OTHER_PYTHON = os.environ.get("COLDIRON_OTHER_PYTHON") or ("3.11" if sys.version_info >= (3, 12) else "3.13")


# Set for all that a suite starts which ends with what its tests have covered.
MEASURED = "COLDIRON_TESTS_MEASURED"


def measured() -> bool:
    """Whether what the tests cover is counted, which costs half as much time again: where it is told in the end."""
    told = any(name == "coverage" or coverage in SUITES.get(name, ()) for name in sys.argv[1:])
    return told or bool(os.environ.get(MEASURED))


def run(*command: str, **env: str) -> None:
    """Run a command from the checkout's root; a failure ends the suite with its exit code."""
    print(f"$ {' '.join(command)}", flush=True)
    result = subprocess.run(command, cwd=ROOT, env=os.environ | env, stdin=subprocess.DEVNULL, check=False)
    if result.returncode:
        print(f"FAILED ({result.returncode}): {' '.join(command)}", flush=True)
        sys.exit(1)


def side_by_side(*commands: Sequence[str]) -> None:
    """Run commands that leave a core idle each, and print what each has said when all have ended."""
    with contextlib.ExitStack() as files:
        outputs = [files.enter_context(tempfile.TemporaryFile()) for _ in commands]
        started = [
            subprocess.Popen(
                words, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
            )
            for words, output in zip(commands, outputs, strict=True)
        ]
        codes = [process.wait() for process in started]
        for words, output in zip(commands, outputs, strict=True):
            output.seek(0)
            print(f"$ {' '.join(words)}\n{output.read().decode(errors='replace').rstrip()}", flush=True)
    for words, code in zip(commands, codes, strict=True):
        if code:
            print(f"FAILED ({code}): {' '.join(words)}", flush=True)
    if any(codes):
        sys.exit(1)


def python(*arguments: str, **env: str) -> None:
    """Run this interpreter."""
    run(sys.executable, *arguments, **env)


def covered(*pytest_arguments: str) -> None:
    """Run pytest; where the suite ends with what was covered, keep that in a data file of its own."""
    python(*(("-m", "coverage", "run") if measured() else ()), "-m", "pytest", *pytest_arguments)


def lint() -> None:
    """Style and types."""
    run("ruff", "check", ".")
    run("ruff", "format", "--check", ".")
    run("yamllint", "--strict", "-c", ".config/yamllint.yml", ".")
    side_by_side(["mypy"], ["ansible-lint", "--offline", "-c", ".config/ansible-lint.yml"])


def unit() -> None:
    """Unit and contract tests."""
    if measured():
        run("coverage", "erase")
    covered(*UNIT)


def quick() -> None:
    """Unit, contract and documentation tests, without a look at what they cover."""
    python("-m", "pytest", *UNIT, "tests/docs")


def pages() -> None:
    """The documentation, the dashboards and the reports' pages, each by a process of its own."""
    first, *others = (phase.__name__ for phase in PAGES)
    side_by_side(*([sys.executable, __file__, *names] for names in ([first], others)))


def docs() -> None:
    """The documentation builds, its links lead somewhere, its commands are there."""
    covered("-q", "tests/docs")


def browser() -> None:
    """The reports' pages, in a headless Chromium."""
    covered("-q", "tests/browser")


def rules() -> None:
    """Prometheus' rules, by promtool."""
    covered("-q", "-n", "2", "tests/rules")


def dashboards() -> None:
    """Grafana's dashboards: against its own types, and every panel's question to a real Prometheus."""
    covered("-q", "tests/dashboards")


def rack() -> None:
    """The rack's own tests: strict ssh, snapshots, two racks, kill -9, nothing left behind."""
    covered("-q", "tests/e2e", "-m", "rack")


def rehearse() -> None:
    """One reference design from bare nodes to jobs, and rehearsals that are cut off."""
    covered("-q", "tests/e2e/test_rehearse.py", "-m", "rehearsal and not slow")


def metal() -> str | None:
    """Machines from power-off to a job, and back after a disk died."""
    if shutil.which("qemu-system-x86_64") is None:
        return "there is no qemu-system-x86_64 here"
    covered("-q", "-s", "tests/metal", "-m", "metal and not slow")
    return None


def machines() -> str | None:
    """What else is asked of machines: their faults, their network, the making of images, the disks' own tools."""
    if shutil.which("qemu-system-x86_64") is None:
        return "there is no qemu-system-x86_64 here"
    covered("-q", "-s", "tests/metal", "-m", "metal and slow")
    return None


def rehearsals() -> None:
    """The other reference designs, the large one sampled."""
    covered("-q", "-s", "tests/e2e/test_rehearse.py", "-m", "rehearsal and slow")


def own_inventory() -> None:
    """Copy the virtual inventory under a name and a subnet of its own; an earlier copy goes with its rack."""
    copy = ROOT / INVENTORY
    if (copy / "cluster.yml").exists():
        run("coldiron", "rack", "down", "-i", INVENTORY)
    shutil.rmtree(copy, ignore_errors=True)
    generated = shutil.ignore_patterns(".rack", ".vault-password", "vault.yml")
    shutil.copytree(SOURCE, copy, ignore=generated)
    text = (SOURCE / "cluster.yml").read_text(encoding="utf-8")
    text = text.replace("name: virtual\n", "name: site-test\n").replace("10.77.0.", "10.77.240.")
    (copy / "cluster.yml").write_text(text, encoding="utf-8")


def site() -> None:
    """A fresh site, then everything that is asked of a converged one."""
    own_inventory()
    run("coldiron", "secrets", "init", "-i", INVENTORY)
    run("coldiron", "rack", "up", "-i", INVENTORY)
    covered("-q", "tests/e2e", "-m", "site and not slow", "--inventory", INVENTORY)


def watched() -> None:
    """A site with monitoring and logging: silent when well, each planted fault told, every panel answered."""
    covered("-q", "tests/e2e/test_watched.py", "-m", "watched")


def rolling() -> None:
    """Three log servers restarted and upgraded one after the other, while they are written to and searched."""
    covered("-q", "-s", "tests/e2e/test_elastic_roll.py", "-m", "rolling")


def packaging() -> None:
    """Wheel, sdist and Galaxy tarball: what is in them, and that they work where nothing else is."""
    python("-m", "pytest", "-q", "tests/packaging", "--inventory", INVENTORY)


def interpreter(version: str) -> str | None:
    """The path of a Python of this version that works: on PATH, of pyenv, or of uv."""
    found = [shutil.which(f"python{version}")]
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    found += [str(path) for path in sorted(pyenv.glob(f"versions/{version}.*/bin/python{version}"))]
    if uv := shutil.which("uv"):
        told = subprocess.run([uv, "python", "find", version], capture_output=True, text=True, check=False)
        found.append(told.stdout.strip())
    # A shim of pyenv's is there also where no such Python is chosen.
    check = [
        "-c",
        f"import ensurepip, sys, venv; sys.exit(sys.version.split('.')[:2] != {version.split('.')})",
    ]
    works = (
        path for path in found if path and not subprocess.run([path, *check], capture_output=True).returncode
    )
    return next(works, None)


def matrix() -> str | None:
    """The tests of what speaks with Ansible, and a run on the site that stands, by the other Python."""
    return other_python(*WITH_ANSIBLE)


def whole_matrix() -> str | None:
    """All unit and contract tests by the other Python."""
    return other_python("tests/unit", "tests/plan", "tests/contract")


def other_python(*tests: str) -> str | None:
    """Run tests, and those on the site that stands, with the other Python."""
    other = interpreter(OTHER_PYTHON)
    if other is None:
        return f"there is no python{OTHER_PYTHON} here"
    venv = f".venv-{OTHER_PYTHON}"
    run("scripts/setup.sh", COLDIRON_VENV=venv, COLDIRON_PYTHON=other)
    pytest = (f"{venv}/bin/python", "-m", "pytest", "-q")
    # Its own commands first: the tests call them by name.
    path = os.pathsep.join([str(ROOT / venv / "bin"), os.environ.get("PATH", os.defpath)])
    run(f"{venv}/bin/python", "-m", "compileall", "-q", "src", "plugins", PATH=path)
    run(*pytest, "-n", "2", *tests, PATH=path)
    if not (ROOT / INVENTORY / ".rack").is_dir():
        print(f"no site stands in {INVENTORY}: the run on it is left out", flush=True)
        return None
    run(*pytest, "tests/matrix", "--inventory", INVENTORY, PATH=path)
    return None


def roles() -> None:
    """Every role's testinfra on that site, and every third of the roles' sabotages: another third for each commit."""
    python("-m", "pytest", "-q", "-p", "coldiron.testing.plugin", "roles", "--inventory", INVENTORY)
    told = subprocess.run(
        ["git", "rev-list", "--count", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    turn = told.stdout.strip() or "0"
    python("-m", "coldiron.testing.sabotage", "--inventory", INVENTORY, "--one-in", "3", "--turn", turn)


def sabotage() -> None:
    """Every role's sabotages on that site, all of them."""
    python("-m", "coldiron.testing.sabotage", "--inventory", INVENTORY)


def touched_scenarios() -> None:
    """The molecule scenarios of the roles that a change touches: since COLDIRON_TEST_BASE, or the last commit."""
    python(
        "-m", "coldiron.testing.scenarios", "--changed-since", os.environ.get("COLDIRON_TEST_BASE", "HEAD~1")
    )


def scenarios() -> None:
    """Every molecule scenario."""
    python("-m", "coldiron.testing.scenarios")


def exhaustive() -> None:
    """The slow ones: the kill matrix, every class of edit to Slurm's configuration."""
    python("-m", "pytest", "-q", "tests/e2e", "-m", "site", "--exhaustive", "--inventory", INVENTORY)


def coverage() -> None:
    """How much of src/coldiron the tests ran."""
    # A process that a test killed leaves a data file without data.
    for data in ROOT.glob(".coverage.*"):
        if data.stat().st_size == 0:
            data.unlink()
    run("coverage", "combine", "--quiet")
    run("coverage", "report", f"--fail-under={COVERAGE_FLOOR}")


def clear() -> None:
    """Leave no rack behind."""
    run("coldiron", "rack", "down", "-i", INVENTORY)


def gpu() -> None:
    """Simulated GPUs under unmodified programs, then the GPU node's roles on them."""
    covered("-q", "tests/e2e", "-m", "gpu")


# What ``pages`` runs side by side: the first beside the others.
PAGES = (docs, dashboards, browser)
BEFORE = [
    lint,
    unit,
    pages,
    rules,
    rack,
    rehearse,
    site,
    watched,
    metal,
    packaging,
    matrix,
    roles,
]
# A phase that cannot be done on this machine returns why; any other failure ends the suite.
SUITES: dict[str, list[Callable[[], str | None]]] = {
    "fast": [lint, quick],
    "full": [*BEFORE, touched_scenarios, clear],
    "all": [
        *BEFORE,
        whole_matrix,
        sabotage,
        gpu,
        rolling,
        rehearsals,
        machines,
        scenarios,
        exhaustive,
        coverage,
        clear,
    ],
}


def main() -> None:
    """Run the phases named on the command line and say what each took."""
    if measured():
        os.environ[MEASURED] = "1"
    started = time.monotonic()
    taken = []
    left_out = []
    single = {
        phase.__name__: [phase] for phase in (*(one for suite in SUITES.values() for one in suite), *PAGES)
    }
    if unknown := set(sys.argv[1:]) - set(SUITES | single):
        sys.exit(
            f"tests/suite.py: no suite or phase {', '.join(sorted(unknown))}; there are {', '.join(SUITES | single)}"
        )
    for phase in [phase for name in sys.argv[1:] for phase in (SUITES | single)[name]]:
        print(f"\n=== {phase.__name__}: {phase.__doc__}", flush=True)
        begun = time.monotonic()
        if why := phase():
            print(f"LEFT OUT: {phase.__name__}: {why}", flush=True)
            left_out.append(f"{phase.__name__} ({why})")
        else:
            taken.append(f"{phase.__name__} {time.monotonic() - begun:.0f} s")
    print(f"\n{', '.join([*taken, 'all in all'])} {time.monotonic() - started:.0f} s")
    if left_out:
        print(f"left out: {', '.join(left_out)}")
    print(f"\nphases: {len(taken)} passed, 0 failed" + f", {len(left_out)} left out" * bool(left_out))


if __name__ == "__main__":
    main()
