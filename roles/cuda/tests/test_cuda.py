"""Each toolkit is there and answers for its release; one of them is the default, by link and by module."""

from __future__ import annotations

import re

import pytest


@pytest.fixture
def default(opts):
    def key(release):
        return [int(part) for part in release.split(".")]

    return opts["cuda_default"] or max(opts["cuda_releases"], key=key, default="")


def installed(host):
    said = host.check_output("dpkg-query -W -f '${db:Status-Abbrev}|${Package}|${Version}\\n'")
    rows = [line.split("|") for line in said.splitlines()]
    return {row[1]: row[2] for row in rows if row[0][1:2] == "i"}


def test_each_release_s_compiler_answers_for_it(host, opts):
    for release in opts["cuda_releases"]:
        assert f"release {release}" in host.check_output(f"/usr/local/cuda-{release}/bin/nvcc --version")


def test_one_release_is_the_default(host, default):
    if default:
        assert host.check_output("readlink -f /usr/local/cuda") == f"/usr/local/cuda-{default}"


def test_libraries_are_built_for_the_releases(host, opts):
    if not opts["cuda_releases"]:
        return
    found = installed(host)
    majors = {release.split(".")[0] for release in opts["cuda_releases"]}
    if opts["cuda_nccl"]:
        assert f"+cuda{max(majors, key=int)}." in found["libnccl2"]
        assert found["libnccl-dev"] == found["libnccl2"]
    if opts["cuda_cudnn"]:
        assert {f"libcudnn9-cuda-{major}" for major in majors} <= set(found)


def test_each_release_is_an_environment_module_and_no_other(host, opts, default):
    folder = f"{opts['cuda_module_path']}/cuda"
    if not opts["cuda_releases"] or not opts["cuda_module_files"]:
        return
    assert set(host.check_output(f"ls -A {folder}").split()) == {*opts["cuda_releases"], ".version"}
    for release in opts["cuda_releases"]:
        said = host.file(f"{folder}/{release}").content_string
        assert said.startswith("#%Module")
        assert f"prepend-path PATH /usr/local/cuda-{release}/bin" in said
    version = re.search(r'ModulesVersion "(.*)"', host.file(f"{folder}/.version").content_string)
    assert version[1] == default
