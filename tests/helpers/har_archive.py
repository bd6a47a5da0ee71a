"""Archives of UCI HAR's layout, made here."""

from __future__ import annotations

import io
import zipfile

import numpy as np

CHANNELS = [f"{sensor}_{axis}" for sensor in ("body_acc", "body_gyro", "total_acc") for axis in "xyz"]


def some_arrays():
    """Small, with values of seven digits as the published ones have."""
    random = np.random.default_rng(0)
    arrays = {}
    for part, rows, people in (("train", 24, (1, 3, 5, 6)), ("test", 12, (2, 4))):
        x = random.normal(0.1, 0.4, (rows, 128, 9))
        arrays[f"X_{part}"] = np.array([float(f"{v:.6e}") for v in x.ravel()]).reshape(x.shape).astype(np.float32)
        arrays[f"y_{part}"] = (np.arange(rows) % 6).astype(np.int8)
        arrays[f"subject_{part}"] = np.array(people, np.int8)[np.arange(rows) // 6 % len(people)]
    return arrays


def field(value):
    """A number as the published files have it: 16 characters, three digits of exponent."""
    mantissa, exponent = f"{value:.6e}".split("e")
    return f"{mantissa}0e{exponent[0]}{int(exponent[1:]):03d}".rjust(16)


def signals(rows):
    return "".join("".join(map(field, row)) + "\r\n" for row in rows.tolist())


def published_files(arrays):
    """The text files, by their paths in the data's folder, to the byte as they are published."""
    files = {"README.txt": b"about", "activity_labels.txt": b"1 WALKING\n"}
    for part in ("train", "test"):
        for index, channel in enumerate(CHANNELS):
            text = signals(arrays[f"X_{part}"][:, :, index])
            files[f"{part}/Inertial Signals/{channel}_{part}.txt"] = text.encode()
        for name, offset in (("y", 1), ("subject", 0)):
            values = arrays[f"{name}_{part}"].astype(int) + offset
            files[f"{part}/{name}_{part}.txt"] = "".join(f"{value}\n" for value in values).encode()
    return files


def zipped(files, prefix="UCI HAR Dataset/", compression=zipfile.ZIP_DEFLATED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as archive:
        for path, content in files.items():
            archive.writestr(prefix + path, content)
        archive.writestr("__MACOSX/" + prefix + "train/._y_train.txt", b"\0\5")
        archive.writestr("__MACOSX/" + prefix + "train/y_train.txt", b"\0\5")
    return out.getvalue()


def zipped_twice(inner):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("UCI HAR Dataset.names", b"names")
        archive.writestr("UCI HAR Dataset.zip", inner)
    return out.getvalue()
