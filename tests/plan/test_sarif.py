"""Findings as a code host takes them: SARIF 2.1.0 with places relative to the repository."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import typer
from typer.testing import CliRunner

from coldiron.plan import Finding, Severity, cli
from coldiron.plan.codes import pages
from coldiron.plan.sarif import sarif
from tests.plan.test_cli import CLASH

# What of the standard is used here, by the sections of SARIF 2.1.0: nothing may be in a log that is not named.
TEXT = {"type": "object", "required": ["text"], "additionalProperties": False, "properties": {
    "text": {"type": "string", "minLength": 1}, "markdown": {"type": "string", "minLength": 1}}}  # fmt: skip
LEVEL = {"enum": ["error", "warning", "note", "none"]}
LOCATION = {"type": "object", "required": ["physicalLocation"], "additionalProperties": False, "properties": {
    "physicalLocation": {
        "type": "object", "required": ["artifactLocation", "region"], "additionalProperties": False,
        "properties": {
            "artifactLocation": {
                "type": "object", "required": ["uri"], "additionalProperties": False,
                "properties": {"uri": {"type": "string", "format": "uri-reference"},
                               "uriBaseId": {"const": "SRCROOT"}}},
            "region": {"type": "object", "required": ["startLine"], "additionalProperties": False,
                       "properties": {"startLine": {"type": "integer", "minimum": 1}}}}}}}  # fmt: skip
LOG = {"type": "object", "required": ["$schema", "version", "runs"], "additionalProperties": False, "properties": {
    "$schema": {"type": "string"}, "version": {"const": "2.1.0"},
    "runs": {"type": "array", "minItems": 1, "items": {
        "type": "object", "required": ["tool", "results"], "additionalProperties": False, "properties": {
            "tool": {"type": "object", "required": ["driver"], "additionalProperties": False, "properties": {
                "driver": {"type": "object", "required": ["name"], "additionalProperties": False, "properties": {
                    "name": {"type": "string"}, "semanticVersion": {"type": "string"},
                    "rules": {"type": "array", "uniqueItems": True, "items": {
                        "type": "object", "required": ["id"], "additionalProperties": False, "properties": {
                            "id": {"type": "string"}, "shortDescription": TEXT, "fullDescription": TEXT,
                            "help": TEXT, "defaultConfiguration": {
                                "type": "object", "additionalProperties": False,
                                "properties": {"level": LEVEL}}}}}}}}},
            "originalUriBaseIds": {"type": "object", "additionalProperties": {
                "type": "object", "additionalProperties": False, "properties": {"description": TEXT}}},
            "columnKind": {"enum": ["utf16CodeUnits", "unicodeCodePoints"]},
            "results": {"type": "array", "items": {
                "type": "object", "required": ["message"], "additionalProperties": False, "properties": {
                    "ruleId": {"type": "string"}, "ruleIndex": {"type": "integer", "minimum": 0},
                    "level": LEVEL, "message": TEXT, "locations": {"type": "array", "items": LOCATION},
                    "partialFingerprints": {"type": "object", "additionalProperties": {"type": "string"}},
                    "properties": {"type": "object"}}}}}}}}}  # fmt: skip

FOUND = [
    Finding("CH101", Severity.REFUSE, "inventories/a/cluster.yml:7", "too little", "add", "gpu1", "gpu1"),
    Finding("CH101", Severity.REFUSE, "inventories/a/cluster.yml:9", "too little", "add", "gpu1", "gpu1"),
    Finding("CA101", Severity.ADVICE, "inventories/a/cluster.yml:9", "unknown", figures=(("watts", 3.5),)),
    Finding("CR105", Severity.WARN, "inventories/a/group_vars/b c.yml", "no YAML"),
    Finding("CS101", Severity.REFUSE, "/elsewhere/vault.yml", "locked"),
]


def test_a_log_is_what_the_standard_wants(tmp_path: Path) -> None:
    log = json.loads(json.dumps(sarif(FOUND, tmp_path)))
    jsonschema.validate(log, LOG)
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == [code for code in pages() if code in {f.code for f in FOUND}]
    assert all(pages()[rule["id"]].means in rule["help"]["text"] for rule in rules)
    for result, finding in zip(run["results"], FOUND, strict=True):
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"] == finding.code
        assert finding.what in result["message"]["text"]
    assert [result["level"] for result in run["results"]] == ["error", "error", "note", "warning", "error"]
    assert run["results"][2]["properties"]["watts"] == 3.5


def places(directory: Path) -> list[tuple[str, bool, int]]:
    found = [
        result["locations"][0]["physicalLocation"] for result in sarif(FOUND, directory)["runs"][0]["results"]
    ]
    return [
        (at["artifactLocation"]["uri"], "uriBaseId" in at["artifactLocation"], at["region"]["startLine"])
        for at in found
    ]


def test_places_are_relative_to_the_repository(tmp_path: Path) -> None:
    assert places(tmp_path) == [
        ("inventories/a/cluster.yml", True, 7),
        ("inventories/a/cluster.yml", True, 9),
        ("inventories/a/cluster.yml", True, 9),
        ("inventories/a/group_vars/b%20c.yml", True, 1),
        ("file:///elsewhere/vault.yml", False, 1),
    ]


def test_the_repository_may_begin_above(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "ansible").mkdir()
    assert places(tmp_path / "ansible")[0] == ("ansible/inventories/a/cluster.yml", True, 7)
    assert str(tmp_path) not in json.dumps(sarif(FOUND, tmp_path / "ansible"))


def test_a_finding_keeps_its_fingerprint_when_its_line_moves(tmp_path: Path) -> None:
    def prints(found: list[Finding]) -> list[str]:
        results = sarif(found, tmp_path)["runs"][0]["results"]
        return [result["partialFingerprints"]["coldironFinding/v1"] for result in results]

    first, second, *_ = prints(FOUND)
    assert first != second
    moved = Finding("CH101", Severity.REFUSE, "inventories/a/cluster.yml:70", "less", "add", "gpu1", "gpu1")
    assert prints([moved])[0] == first


def test_the_command_writes_it_beside_what_it_prints(tmp_path: Path) -> None:
    app = typer.Typer()
    cli.register(app)
    (tmp_path / "cluster.yml").write_text(CLASH)
    log = tmp_path / "plan.sarif"
    done = CliRunner().invoke(app, ["plan", "-i", str(tmp_path), "--sarif", str(log)])
    assert done.exit_code == 3
    assert done.output.startswith("refused: ")
    written = json.loads(log.read_text())
    jsonschema.validate(written, LOG)
    assert "CU101" in {result["ruleId"] for result in written["runs"][0]["results"]}


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    app = typer.Typer()
    cli.register(app)
    (tmp_path / "cluster.yml").write_text(CLASH)
    done = CliRunner().invoke(
        app, ["plan", "-i", str(tmp_path), "--sarif", str(tmp_path / "no" / "plan.sarif")]
    )
    assert "cannot be written" in str(done.exception)
