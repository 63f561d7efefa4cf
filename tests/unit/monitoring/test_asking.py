"""What an exporter serves, as the roles' tests read it."""

from __future__ import annotations

from coldiron.testing.asking import samples


def test_samples_are_read_with_their_labels() -> None:
    text = '# TYPE up gauge\nup 1\nrate{a="b",c="say \\"so\\", {x}"} 2.5e-3\nnan_one NaN\n'
    found = samples(text)
    assert found["up"] == [({}, 1.0)]
    assert found["rate"] == [({"a": "b", "c": 'say \\"so\\", {x}'}, 0.0025)]
    assert list(found) == ["up", "rate", "nan_one"]
