"""A damaged or hostile record is refused in a sentence, or it can be used in every way; and it takes no other down."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from inspection.record.mutations import Mutations
from page.serve.fakes import Fake, client_of, place_of, record_of
from regard.errors import RecordError
from regard.inspection import Record
from regard.inspection.attribution.head_statistics import all_head_statistics
from regard.page.export import save_arrays, save_json
from regard.page.serve import Limits

LENGTH = 9


@pytest.fixture(scope="module")
def mutations() -> Mutations:
    return Mutations()


def use(record: Record, folder: Path) -> None:
    """All that can be done with a record from a file, but pictures."""
    assert record.title is not None and repr(record) and record.notes is not None
    for place in record.places:
        assert repr(place)
        if place.stored is not None:
            all_head_statistics(place)
    save_json(record, folder / "a.json")
    save_arrays(record, folder / "a.npz")
    record.save(folder / "again.regard")


def ask(client, record: Record) -> None:
    """Every request about a record, and for an intervention on it."""
    paths = ["", "/payload", "/file"]
    for number, place in enumerate(record.places[:2]):
        for head in {0, place.heads - 1}:
            spot = f"place={number}&head={head}"
            ends = f"top=0&bottom={place.T}&left=0&right={place.S}&rows={min(place.T, 5)}&cols={min(place.S, 3)}"
            paths += [f"/tile?{spot}&{ends}", f"/row?{spot}&query={place.T - 1}"]
            paths += [f"/pair?{spot}&query={place.T - 1}&key=0"]
    for path in paths:
        response = client.get(f"/api/records/odd{path}")
        assert response.status_code < 500, (path, response.text)
    change = {"changes": [{"place": 0, "head": 0, "weights": "zero"}]}
    response = client.post("/api/records/odd/intervene", json=change)
    assert response.status_code < 500, response.text


def read(path: Path) -> Record | None:
    """The record of a file, or None where it is refused in a sentence of reasonable length that names the file."""
    try:
        return Record.load(path)
    except RecordError as error:
        said = str(error)
    assert path.name in said and len(said) < 600, said
    return None


def fuzz(mutations: Mutations, folder: Path, seeds: range) -> Counter[str]:
    found: Counter[str] = Counter()
    good = record_of(place_of(LENGTH))
    with client_of(Fake(), records={"good": good}, limits=Limits(cells=64)) as client:
        service = client.app.state.service
        for seed in seeds:
            path = folder / "odd.regard"
            mutations.write(seed, path)
            record = read(path)
            if record is None:
                found["refused"] += 1
                continue
            found["read"] += 1
            use(record, folder)
            service.records.preloaded["odd"] = record
            for key in list(service.cache._values):
                service.cache._values.pop(key)
            ask(client, record)
            listed = client.get("/api/records")
            assert [one["id"] for one in listed.json()] == ["good", "odd"], listed.text
    return found


def test_no_damage_escapes_as_another_error(mutations, tmp_path) -> None:
    found = fuzz(mutations, tmp_path, range(500))
    assert found["refused"] > 250 and found["read"] > 30, found


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_no_damage_of_many_escapes_as_another_error(mutations, tmp_path) -> None:
    found = fuzz(mutations, tmp_path, range(1000, 51_000))
    assert sum(found.values()) == 50_000


def test_a_record_that_cannot_be_read_is_listed_with_its_error(tmp_path) -> None:
    (tmp_path / "bad.regard").write_bytes(b"no record")
    with pytest.raises(RecordError) as caught:
        Record.load(tmp_path / "bad.regard")
    good = record_of(place_of(LENGTH))
    with client_of(records={"good": good, "bad": caught.value}) as client:
        listed = client.get("/api/records").json()
        assert [(one["id"], bool(one["problem"])) for one in listed] == [("good", False), ("bad", True)]
        assert "bad.regard: The file cannot be read" in listed[1]["problem"]
        assert str(tmp_path) not in listed[1]["problem"]
        assert client.get("/api/records/good").status_code == 200
        response = client.get("/api/records/bad/payload")
        assert response.status_code == 422 and "cannot be read" in response.text


def test_a_record_without_axes_does_not_break_the_list() -> None:
    with client_of(records={"empty": Record((), ()), "good": record_of(place_of(LENGTH))}) as client:
        assert [one["id"] for one in client.get("/api/records").json()] == ["empty", "good"]
