"""UCI HAR: archives and folders good and bad, the published data, its splits and its augmentation."""

import hashlib
import io
import math
import os
import stat
import zipfile

import numpy as np
import pytest
import torch
from helpers.har_archive import published_files, signals, some_arrays, zipped, zipped_twice

from eirehn._internal.files import RunError
from eirehn.data import har
from eirehn.data.download import data_dir
from eirehn.data.har import (
    Har,
    HarData,
    Windows,
    digest,
    held_out_subjects,
    moved,
    prepare,
    read,
    read_source,
)

REAL = data_dir() / "har" / "har.npz"
needs_data = pytest.mark.skipif(not REAL.exists(), reason="UCI HAR is not here: `eirehn data har` gets it")

ORIGINALS = {
    "y_test.txt": "2a94cb53ca46b956c1b2aebd4a09a72badd8a8e9ea9cdfe9f31b3306a08666bb",
    "subject_test.txt": "63b8c577f4a85431c06bd87f6384608c90a9f72f05c7956dd21255dc63515c07",
    "Inertial Signals/total_acc_x_test.txt": "ea71c339c828561bc1dc6f7301a54aeb7e61e6312cb2387ebaea832ffd04203d",
}


@pytest.fixture(scope="module")
def arrays():
    return some_arrays()


@pytest.fixture(scope="module")
def files(arrays):
    return published_files(arrays)


@pytest.fixture(scope="module")
def real():
    return read(REAL)


@pytest.fixture
def published(arrays, monkeypatch):
    """As if these arrays were the published ones."""
    monkeypatch.setattr(har, "PUBLISHED", {name: digest(array) for name, array in arrays.items()})


def write(path, content):
    path.write_bytes(content)
    return path


def unpacked(folder, files):
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    return folder


def same(got, expected):
    assert list(got) == list(expected)
    for name, array in expected.items():
        np.testing.assert_array_equal(got[name], array, strict=True)


@pytest.mark.parametrize("form", ["zip in a zip", "zip", "flat zip", "folder", "its parent"])
def test_every_form_gives_the_same_arrays(tmp_path, arrays, files, form):
    if form == "folder":
        source = unpacked(tmp_path / "any name", files)
    elif form == "its parent":
        source = unpacked(tmp_path / "parent" / "UCI HAR Dataset", files).parent
    else:
        content = zipped(files, prefix="" if form == "flat zip" else "UCI HAR Dataset/")
        source = write(tmp_path / "archive.zip", zipped_twice(content) if form == "zip in a zip" else content)
    same(read_source(source), arrays)


def test_prepared_once_and_read_back(published, tmp_path, arrays, files):
    source, target = write(tmp_path / "a.zip", zipped(files)), tmp_path / "new" / "har.npz"
    made = prepare(source, target)
    again = read(target)
    for one, other in zip(made, again, strict=True):
        for a, b in zip(one, other, strict=True):
            np.testing.assert_array_equal(a, b, strict=True)
    np.testing.assert_array_equal(again.train.x, arrays["X_train"], strict=True)
    assert again.train.target.dtype == again.test.subject.dtype == np.int64
    with np.load(target, allow_pickle=False) as kept:
        same(dict(kept), arrays)
    assert os.listdir(target.parent) == ["har.npz"]
    assert digest(arrays["X_test"].astype(">f4")) == digest(arrays["X_test"])
    prepare(target, tmp_path / "copy.npz")
    assert read(tmp_path / "copy.npz").test.x.shape == (12, 128, 9)


def test_other_data_of_the_same_form_are_refused_and_nothing_is_written(tmp_path, files):
    with pytest.raises(RunError, match="not the published data: X_train differs"):
        prepare(write(tmp_path / "a.zip", zipped(files)), tmp_path / "new" / "har.npz")
    assert not (tmp_path / "new").exists()


def test_nothing_is_unpacked_whatever_members_are_called(tmp_path, arrays, files):
    names = ("../evil.txt", "/etc/evil", "C:/evil", "a\\..\\evil")
    inner = io.BytesIO(zipped({**files, **dict.fromkeys(names, b"evil")}, prefix=""))
    with zipfile.ZipFile(inner, "a") as each:
        link = zipfile.ZipInfo("link")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        each.writestr(link, "/etc/passwd")
    same(read_source(write(tmp_path / "a.zip", zipped_twice(inner.getvalue()))), arrays)
    assert os.listdir(tmp_path) == ["a.zip"]


def patched_size(content, member, size):
    """The archive, with another size of a member in its list and before the member."""
    with zipfile.ZipFile(io.BytesIO(content)) as each:
        info, start = each.getinfo(member), each.start_dir
    out = bytearray(content)
    out[info.header_offset + 22 : info.header_offset + 26] = size.to_bytes(4, "little")
    entry = out.index(member.encode(), start) - 46
    out[entry + 24 : entry + 28] = size.to_bytes(4, "little")
    return bytes(out)


def test_a_bomb_by_what_it_is(tmp_path, files):
    """A member that says it is small: no more than that is ever taken from it, and its checksum gives it away."""
    path = "train/Inertial Signals/body_acc_x_train.txt"
    bomb = {**files, path: files[path] + b" " * 50_000_000}
    member = f"UCI HAR Dataset/{path}"
    source = write(tmp_path / "a.zip", patched_size(zipped(bomb), member, 5000))
    with pytest.raises(RunError, match="damaged"):
        read_source(source)


def test_what_is_too_long_or_nested_too_deep(tmp_path, files, monkeypatch):
    inner = zipped(files)
    with pytest.raises(RunError, match="is not UCI HAR"):
        read_source(write(tmp_path / "a.zip", zipped_twice(zipped_twice(inner))))
    monkeypatch.setattr(har, "LARGEST_TEXT", 30_000)
    for source in (write(tmp_path / "a.zip", inner), unpacked(tmp_path / "folder", files)):
        with pytest.raises(RunError, match="more than 30,000 bytes"):
            read_source(source)
    monkeypatch.setattr(har, "LARGEST_INNER", 20_000)
    with pytest.raises(RunError, match="more than 20,000 bytes"):
        read_source(write(tmp_path / "a.zip", zipped_twice(inner)))


def test_compressions_without_a_bound_and_encryption(tmp_path, files):
    with pytest.raises(RunError, match="is not compressed as in the published file"):
        read_source(write(tmp_path / "a.zip", zipped(files, compression=zipfile.ZIP_LZMA)))
    content = bytearray(zipped(files))
    with zipfile.ZipFile(io.BytesIO(content)) as each:
        entry = content.index(b"UCI HAR Dataset/train/y_train.txt", each.start_dir) - 46
    content[entry + 8] |= 1
    with pytest.raises(RunError, match="is encrypted"):
        read_source(write(tmp_path / "a.zip", bytes(content)))


@pytest.mark.parametrize("path", ["train/y_train.txt", "test/Inertial Signals/body_gyro_z_test.txt"])
@pytest.mark.parametrize("form", ["zip", "folder"])
def test_a_missing_file_is_named(tmp_path, files, path, form):
    rest = {name: content for name, content in files.items() if name != path}
    source = unpacked(tmp_path / "folder", rest) if form == "folder" else write(tmp_path / "a.zip", zipped(rest))
    with pytest.raises(RunError, match=f"(has no|cannot read) .*{path}|has no {path}"):
        read_source(source)


def test_cut_anywhere_or_changed_anywhere_it_is_refused_or_read_right(tmp_path, arrays, files):
    """Bytes of an archive that matter to nobody may change; none may change what is read."""
    whole, random, refused = zipped_twice(zipped(files)), np.random.default_rng(3), 0
    for trial in range(60):
        content = bytearray(whole[: random.integers(len(whole))] if trial % 2 else whole)
        for _ in range(0 if trial % 2 else random.integers(1, 4)):
            content[random.integers(len(content))] ^= 1 << random.integers(8)
        try:
            got = read_source(write(tmp_path / "a.zip", bytes(content)))
        except RunError:
            refused += 1
        else:
            same(got, arrays)
    assert refused >= 45


def test_no_data_there(tmp_path):
    for content in (b"", b"PK", b"no zip at all", bytes(1000)):
        with pytest.raises(RunError, match=r"a\.zip is damaged or not a zip file"):
            read_source(write(tmp_path / "a.zip", content))
    with pytest.raises(RunError, match="no such file or folder"):
        read_source(tmp_path / "missing.zip")
    with pytest.raises(RunError, match="is not UCI HAR"):
        read_source(tmp_path)
    with pytest.raises(RunError, match="is not UCI HAR"):
        read_source(write(tmp_path / "a.zip", zipped({"other": b"data"}).replace(b"y_train", b"x_train")))


@pytest.mark.parametrize(
    ("path", "change", "message"),
    [
        ("test/y_test.txt", lambda text: b" \n", "y_test.txt: it is empty"),
        ("test/y_test.txt", lambda text: text.replace(b"5", b"five"), "y_test.txt: could not convert"),
        ("test/Inertial Signals/body_acc_x_test.txt", lambda text: text[16:], "changed from 127 to 128"),
        (
            "test/Inertial Signals/body_acc_x_test.txt",
            lambda text: text[: 128 * 16],
            r"has \(1, 128\) numbers, not \(12, 128\)",
        ),
        ("test/Inertial Signals/body_acc_x_test.txt", lambda text: "１".encode() + text[16:], "damaged"),
    ],
)
def test_texts_that_are_not_what_they_should_be(tmp_path, files, path, change, message):
    source = write(tmp_path / "a.zip", zipped({**files, path: change(files[path])}))
    with pytest.raises(RunError, match=message):
        read_source(source)


def test_a_prepared_file_that_is_another_or_a_bomb(published, tmp_path, arrays, monkeypatch):
    path = tmp_path / "har.npz"
    without = {name: array for name, array in arrays.items() if name != "y_test"}
    for changed in (
        without,
        {**arrays, "y_test": arrays["y_test"].view(np.uint8)},
        {**arrays, "X_test": arrays["X_test"].reshape(128, 12, 9)},
    ):
        np.savez_compressed(path, **changed)
        with pytest.raises(RunError, match=r"har\.npz is not the published data: (X|y)_test differs"):
            read(path)
    monkeypatch.setattr(har, "LARGEST", 1000)
    with pytest.raises(RunError, match="is too large: it unpacks to"):
        read(path)


def windows(people, classes, seed=0):
    """A window of each class for each of the people; `classes` may give somebody fewer."""
    rows = [(each, c) for each in people for c in classes.get(each, range(6))]
    subject, target = (np.array(column) for column in zip(*rows, strict=True))
    x = np.random.default_rng(seed).normal(2.0, 3.0, (len(rows), 4, 9)).astype(np.float32)
    return Windows(x, target, subject)


def test_held_out_people_are_apart_fixed_by_the_seed_and_leave_all_classes():
    part = windows(range(1, 22), {3: [0], 4: [1, 2]})
    draws = {seed: held_out_subjects(part, 4, seed) for seed in range(40)}
    assert draws == {seed: held_out_subjects(part, 4, seed) for seed in range(40)}
    assert len({tuple(each) for each in draws.values()}) > 30
    for chosen in draws.values():
        assert len(set(chosen)) == 4
        assert set(part.target[np.isin(part.subject, chosen)]) == set(range(6))


def test_a_draw_that_lacks_a_class_is_drawn_again():
    only = {each: [0, 1, 2] for each in range(1, 9)} | {9: [3, 4, 5], 10: [3, 4, 5]}
    part = windows(range(1, 11), only)
    for seed in range(20):
        chosen = held_out_subjects(part, 2, seed)
        assert len(set(chosen) & {9, 10}) == 1
    with pytest.raises(ValueError, match="no 1 people found"):
        held_out_subjects(part, 1, 0)
    with pytest.raises(ValueError, match="less than the 10 people"):
        held_out_subjects(part, 10, 0)


def test_standardised_by_the_windows_to_train_on_and_nothing_else():
    part, test = windows(range(1, 8), {}), windows(range(8, 11), {}, seed=1)
    part.x[part.subject == 2] += 50.0
    held = HarData(held_out=2, seed=next(s for s in range(99) if 2 in held_out_subjects(part, 2, s)))
    splits = held.splits(Har(part, test))
    out = np.isin(part.subject, held_out_subjects(part, 2, held.seed))
    train = part.x[~out].astype(np.float64).reshape(-1, 9)
    for split, x in zip(splits, (part.x[~out], part.x[out], test.x), strict=True):
        expected = (x - train.mean(0)) / train.std(0)
        np.testing.assert_allclose(split.x.numpy(), expected, rtol=1e-5, atol=1e-6)
        assert split.x.dtype == torch.float32
        assert split.target.dtype == torch.int64
    assert splits.validation.x.max() > 10
    plain = HarData(standardise=False).splits(Har(part, test))
    np.testing.assert_array_equal(plain.test.x.numpy(), test.x)


def test_none_held_out_and_a_signal_that_never_changes():
    part = windows(range(1, 8), {})
    part.x[:, :, 3] = 5.0
    splits = HarData(held_out=0).splits(Har(part, part))
    assert splits.train.x.shape[0] == len(part.x)
    assert splits.train.x[:, :, 3].abs().max() == 0
    assert splits.validation.x.shape == (0, 4, 9)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("held_out", value) for value in (-1, 30, 2.0)),
        *(("seed", value) for value in (-1, True)),
        *(("frame", value) for value in (3, 256)),
        ("tilt", -1.0),
        ("gain", math.inf),
    ],
)
def test_wrong_options(name, value):
    with pytest.raises(ValueError, match=name):
        HarData(**{name: value})
    with pytest.raises(TypeError, match="bool"):
        HarData(standardise=1)


def test_data_that_are_not_there(tmp_path, monkeypatch):
    monkeypatch.setenv("EIREHN_DATA_DIR", str(tmp_path))
    with pytest.raises(RunError, match=r"har\.npz is missing; get it with `eirehn data har`"):
        HarData().load()


@needs_data
def test_the_published_figures(real):
    assert [np.bincount(part.target).tolist() for part in real] == [
        [1226, 1073, 986, 1286, 1374, 1407],
        [496, 471, 420, 491, 532, 537],
    ]
    assert set(real.train.subject) == {1, 3, 5, 6, 7, 8, 11, *range(14, 18), 19, 21, 22, 23, *range(25, 31)}
    assert set(real.test.subject) == {2, 4, 9, 10, 12, 13, 18, 20, 24}
    assert real.train.x.mean(dtype=np.float64) == pytest.approx(0.1020661, abs=1e-7)
    assert real.test.x.std(dtype=np.float64) == pytest.approx(0.3956708, abs=1e-7)
    first = [1.808515e-04, 1.076681e-02, 5.556068e-02, 3.019122e-02, 6.601362e-02, 2.285864e-02]
    np.testing.assert_allclose(real.train.x[0, 0], [*first, 1.012817, -1.232167e-01, 1.029341e-01], rtol=1e-6)
    assert [len(split.target) for split in HarData().splits(real)] == [5902, 1450, 2947]


@needs_data
def test_the_layout_these_tests_make_is_the_published_one_to_the_byte(real):
    """Files whose digests are published, made anew from the arrays."""
    texts = {
        "y_test.txt": "".join(f"{label + 1}\n" for label in real.test.target),
        "subject_test.txt": "".join(f"{person}\n" for person in real.test.subject),
        "Inertial Signals/total_acc_x_test.txt": signals(real.test.x[:, :, 6]),
    }
    for path, text in texts.items():
        assert hashlib.sha256(text.encode()).hexdigest() == ORIGINALS[path]


@pytest.mark.parametrize("frame", [1, 4])
def test_the_three_vectors_of_a_window_turn_together(frame):
    random = np.random.default_rng(1)
    raw = random.normal(0, 1, (5, 128, 9))
    mean, scale = random.normal(0, 1, 9), random.uniform(0.5, 2, 9)
    standard = torch.from_numpy((raw - mean) / scale).reshape(5, 128 // frame, 9 * frame)
    target = torch.arange(5)
    options = {"mean": mean, "scale": scale, "tilt": 0.3, "gain": 0.1}
    # Two members, the second with draws of its own.
    batch = standard.expand(2, *standard.shape), target
    (x, other), same = moved(batch, [np.random.default_rng(seed) for seed in (2, 3)], **options)
    assert same is target
    assert not torch.equal(x, other)
    after = x.reshape(5, 128, 9).numpy() * scale + mean
    draws = np.random.default_rng(2)
    angles, gains = draws.normal(0, 0.3, (5, 3)), np.exp(draws.normal(0, 0.1, (5, 1, 1)))
    crossed = np.stack([np.cross(angles, axis) for axis in np.eye(3)], -1)  # its product with v is angle × v
    matrices = torch.linalg.matrix_exp(torch.from_numpy(crossed)).numpy() * gains
    for vector in (slice(0, 3), slice(3, 6), slice(6, 9)):
        expected = np.stack([raw[i, :, vector] @ matrices[i].T for i in range(5)])
        np.testing.assert_allclose(after[:, :, vector], expected, atol=1e-12)


def test_no_tilt_and_no_gain_change_nothing():
    x = torch.randn(1, 3, 32, 36, dtype=torch.float64)
    options = {"mean": np.zeros(9), "scale": np.ones(9), "tilt": 0.0, "gain": 0.0}
    torch.testing.assert_close(moved((x,), [np.random.default_rng(0)], **options)[0], x, rtol=1e-12, atol=1e-12)
    assert HarData().augment is None


def test_a_frame_is_steps_that_follow_each_other():
    x = np.random.default_rng(0).normal(0, 1, (12, 128, 9)).astype(np.float32)
    windows = Windows(x, np.arange(12) % 6, np.repeat([1, 2], 6))
    train = HarData(held_out=0, frame=4, standardise=False).splits(Har(windows, windows)).train
    assert train.x.shape == (12, 32, 36)
    np.testing.assert_array_equal(train.x[3, 5, 9:18], x[3, 21])
    assert HarData(frame=4).input_size == 36
