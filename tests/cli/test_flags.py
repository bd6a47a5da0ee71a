"""Flags: hyphens and underscores, short forms, help, and what is said of mistakes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import suppress
from dataclasses import fields
from pathlib import Path

import pytest
from helpers.command import refused

from eirehn.cli import COMMANDS, main, train_help
from eirehn.cli import train as module
from eirehn.cli.parser import underscored
from eirehn.recipes import find
from eirehn.training.config import DATA, Recipe

RECIPES = (None, "synthetic-ei-rehn-20-penalty-0.01", "har-best", "ptb-best", "lm", "classify", "regress")


@pytest.fixture
def recipe_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The recipe that a command line of `eirehn train` would train."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "_train", lambda recipe, folder, logger: found.append(recipe) or 0)
    found: list[Recipe] = []

    def recipe_of(line: str) -> Recipe:
        assert main(["train", *line.split()]) == 0
        return found.pop()

    return recipe_of


def help_of(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with suppress(SystemExit):  # of argparse
        assert main([*words]) == 0
    return capsys.readouterr().out


def test_hyphens_and_underscores_are_the_same(recipe_of) -> None:
    lines = (
        "--recipe har-best --optimisation.learning-rate 0.2 --network.hidden-size=7 --data.held-out 3",
        "--recipe har-best --optimisation.learning_rate 0.2 --network.hidden_size=7 --data.held_out 3",
    )
    first, second = map(recipe_of, lines)
    assert first == second
    assert (first.optimisation.learning_rate, first.network.hidden_size, first.data.held_out) == (0.2, 7, 3)
    start = recipe_of("--recipe synthetic-ei-rehn-10 --network.start.gate-bias -1.5").network.start
    assert start["gate_bias"] == -1.5


@pytest.mark.parametrize(
    "line",
    [
        "evaluate nowhere --max-depth 3",
        "generate nowhere --top-p 0.5 --show-depth --max-depth 2",
        "score nowhere none.txt --max-depth 2",
        "predict nowhere none.csv --max-depth 2 --depths",
        "compare none.csv --tuning-epochs 2 --data.class-weights none",
    ],
)
def test_hyphens_and_underscores_are_the_same_in_other_commands(
    line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both get as far as the file or folder that does not exist."""
    said = refused(line, capsys)
    assert said == refused(re.sub(r"(?<=\w)-(?=\w)", "_", line), capsys)
    assert "flag" not in said


def test_values_are_left_alone(recipe_of) -> None:
    assert underscored(["a-b", "--a-b=c-d", "--a.b-c", "e-f", "-x", "--", "--g-h"]) == [
        *("a-b", "--a_b=c-d", "--a.b_c", "e-f", "-x", "--", "--g-h")
    ]
    assert recipe_of("--name my-own_name").name == "my-own_name"


def test_short_forms(recipe_of) -> None:
    short = recipe_of("--recipe synthetic-best --lr 0.5 --epochs 3 --batch-size=9 --seed 7")
    long = recipe_of(
        "--recipe synthetic-best --optimisation.learning-rate 0.5 --optimisation.epochs 3 "
        "--optimisation.batch-size 9 --seeds [7]"
    )
    assert short == long
    assert short.seeds == (7,)
    assert recipe_of("--seeds 0,1,2").seeds == recipe_of("--seeds=[0,1,2]").seeds == (0, 1, 2)


@pytest.mark.parametrize("line", ["--lr 1 --optimisation.learning-rate 2", "--optimisation.learning-rate 1 --lr 2"])
def test_of_a_flag_given_twice_the_last_counts(line: str, recipe_of) -> None:
    assert recipe_of(line).optimisation.learning_rate == 2


@pytest.mark.parametrize("order", [("{config}", "{flags}"), ("{flags}", "{config}")])
def test_short_forms_change_what_a_yaml_file_says(order: tuple[str, str], recipe_of) -> None:
    Path("my.yaml").write_text("optimisation: {learning_rate: 0.3, batch_size: 4}\nseeds: [5, 6]\n")
    line = " ".join(order).format(config="--config my.yaml", flags="--lr 0.1 --seed 8")
    recipe = recipe_of(line)
    assert (recipe.optimisation.learning_rate, recipe.optimisation.batch_size, recipe.seeds) == (0.1, 4, (8,))


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_help_of_train_is_short(
    recipe: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    words = [] if recipe is None else ["--recipe", recipe]
    shown = help_of(capsys, "train", *words, "--help")
    assert shown == help_of(capsys, "train", "-h", *words)
    lines = shown.splitlines()
    assert len(lines) <= 80
    assert max(map(len, lines)) <= 80
    assert lines[-1] == "all fields: `eirehn train --help-all`"
    for noise in ("_", "type:", "null", "None", "<class"):
        assert noise not in shown.replace("32_", "")


def test_the_help_of_train_is_of_the_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    shown = help_of(capsys, "train", "--recipe", "classify", "--help")
    optimisation = find("classify").optimisation
    assert f"--epochs {optimisation.epochs} " in shown
    assert f"--optimisation.depth-penalty {optimisation.depth_penalty} " in shown
    data = "data target task values sequence time group split validation test class-weights"
    assert all(f"--{name if name == 'data' else f'data.{name}'} " in shown for name in data.split())
    other = help_of(capsys, "train", "--recipe", "synthetic-best", "--help")
    assert "--data.noise-std" in other
    assert "--data.target" not in other


@pytest.mark.parametrize("kind", DATA)
def test_the_help_of_train_has_all_fields_of_data(kind: str) -> None:
    hidden = {"sha256"} | ({"train", "validation", "test"} if kind == "text" else set())
    assert set(train_help.DATA[kind]) == {each.name for each in fields(DATA[kind])} - hidden


def test_the_full_help_of_train_has_every_field(capsys: pytest.CaptureFixture[str]) -> None:
    for recipe in ("classify", "lm"):
        shown = help_of(capsys, "train", "--recipe", recipe, "--help-all")
        start = find(recipe)
        for part in ("network", "optimisation", "data", "hardware"):
            for each in fields(getattr(start, part)):
                assert f"--{part}.{each.name.replace('_', '-')} " in shown


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_hyphens_and_no_types(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    shown = help_of(capsys, command, *(["--help-all"] if command == "train" else ["--help"]))
    assert not re.search(r"--[\w.]*_", shown)
    assert not re.search(r"type:|null\)|<class|None", shown)


def test_train_alone_shows_examples(recipe_of, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train"]) == 2
    shown = capsys.readouterr().out
    assert len(shown.splitlines()) < 15
    for file in ("my.csv", "train.txt", "validation.txt", "test.txt"):
        Path(file).write_text("label,a\n0,1\n1,2\n")
    examples = re.findall(r"^  eirehn train (.*)", shown, re.M)
    assert len(examples) == 3
    for line in examples:
        recipe_of(line)


MEANT = {
    "train --recipe classify --learning-rate 0.1": "unknown flag --learning-rate; did you mean --lr or "
    "--optimisation.learning-rate? (eirehn train --help)",
    "train --recipe classify --hidden_size=4": "unknown flag --hidden-size; did you mean --network.hidden-size?",
    "train --epoch 1": "did you mean --epochs or --optimisation.epochs?",
    "train --network.hiden-size 1": "did you mean --network.hidden-size?",
    "train --zzzzz": "unknown flag --zzzzz (eirehn train --help)",
    "train classify": "did you mean --recipe classify?",
    "train --data my.csv": "--data is for data of your own: give --recipe classify or --recipe regress",
    "train my.csv": "did you mean --recipe classify --data my.csv?",
    "train --recipe lm --data.held-out 3": "--data.held-out is for data of kind har",
    "evaluate a --maxdepth 1": "unknown flag --maxdepth; did you mean --max-depth? (eirehn evaluate --help)",
    "report a --output b": "did you mean --out?",
    "generate a --token 5": "did you mean --tokens?",
    "predict a b --depth": "did you mean --depths?",
    "score a b --max_dept 5": "unknown flag --max-dept; did you mean --max-depth?",
    "compare synthetic --trial 5": "did you mean --trials?",
    "compare a.csv --data.targt 5": "did you mean --data.target?",
    "reproduce synthetic --row a": "did you mean --rows?",
    "data har --output 3": "did you mean --out?",
    "recipes --nam": "unknown flag --nam",
    "evalute a": "unknown command 'evalute'; did you mean 'evaluate'? (eirehn --help)",
    "xyz": "the commands are reproduce, compare",
}


@pytest.mark.parametrize("line", MEANT)
def test_a_wrong_flag_suggests_the_right_one(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert MEANT[line] in refused(line, capsys)


def wrong_lines() -> list[str]:
    """Every flag of every command with wrong values, with a file that does not exist and with none at all."""
    values = ("", "=", " nowhere/x.yaml", " [x,-1.5]", " {a:b")
    flags = {
        "train --recipe classify": "config init seeds seed lr epochs batch-size data data.values data.ragged "
        "network data.channels network.start network.hidden-size hardware.devices hardware.capture "
        "optimisation.clip data.validation name recipe text resume level hardware "
        "optimisation.optimizer data.kind",
        "train --resume nowhere": "epochs lr",
        "evaluate nowhere": "split batch which max-depth device together results",
        "generate nowhere": "prompt tokens temperature top-p seed show-depth which max-depth device",
        "predict nowhere none.csv": "out depths top which max-depth device",
        "score nowhere none.txt": "out apart encoding which max-depth device",
        "report nowhere": "out",
        "compare none.csv": "layers parameters trials tuning-epochs seeds quick jobs data.values data.test",
        "reproduce table": "quick epochs seeds sequences rows jobs",
        "data none": "from out",
        "recipes none": "all",
    }
    named = [f"{start} --{flag}" for start, each in flags.items() for flag in each.split()]
    return [f"{line}{value}" for line in named for value in values]


def test_no_message_names_a_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line and exit code 2, whatever is given."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EIREHN_DATA_DIR", "data")
    for line in wrong_lines():
        said = refused(line, capsys)
        assert not re.search(r"<class|Traceback|Namespace|Parser key|NoneType", said), (line, said)
        assert not re.search(r"--[a-z.]+_", said), (line, said)
    assert list(tmp_path.iterdir()) == []


def test_the_commands_are_listed_without_torch() -> None:
    code = "import sys; from eirehn.cli import main; main(['--help']); main(['--version']); main(['trian']);"
    code += "print(*{'torch', 'numpy', 'jsonargparse'} & set(sys.modules), file=sys.stderr)"
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ)
    assert ended.stderr.splitlines()[-1] == ""
    assert len(ended.stdout.splitlines()) < 25
