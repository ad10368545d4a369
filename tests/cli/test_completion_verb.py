"""`everynet completion`: the words a shell offers."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from everynet.cli import VERBS
from everynet.cli.completion import SCRIPTS, complete
from everynet.recipes.catalog import entries, find
from everynet.recipes.settings import setting_types


@pytest.mark.parametrize(
    ("line", "known"),
    [
        ("everynet ", [*VERBS, "--help", "--version", "--debug"]),
        ("everynet r", ["run", "resume", "runs"]),
        ("everynet --v", ["--version"]),
        ("everynet run len", [e.name for e in entries()[0] if e.name.startswith("len")]),
        ("everynet show mlp-x", ["mlp-xor"]),
        ("everynet run mlp wei", ["weight_decay="]),
        ("everynet run mlp ep", ["epochs="]),
        ("everynet run mlp lr=3 l", []),
        ("everynet run --device cpu mlp hid", ["hidden="]),
        ("everynet run gradient-descent ep", []),
        ("everynet run mlp --dev", ["--device"]),
        ("everynet run mlp --device ", ["auto", "cpu", "cuda", "mps"]),
        ("everynet run mlp --device c", ["cpu", "cuda"]),
        ("everynet run mlp --quiet lr", ["lr="]),
        ("everynet run mlp --out ", []),
        ("everynet run ./mine.py ", []),
        ("everynet list feed", ["feedforward"]),
        ("everynet list feedforward ", []),
        ("everynet list da", ["data="]),
        ("everynet list data=my.csv t", ["target=", "text="]),
        ("everynet list --", ["--help", "--long", "--debug"]),
        ("everynet data ", ["list", "get", "check"]),
        ("everynet data get mn", ["mnist"]),
        ("everynet data check ", []),
        ("everynet completion ", ["bash", "zsh", "fish"]),
        ("everynet completion bash ", []),
        ("everynet resume ", ["runs/a", "runs/b"]),
        ("everynet runs runs/a runs/", ["runs/a", "runs/b"]),
        ("everynet predict runs/a ", []),
        ("everynet nothing ", []),
        ("everynet", [*VERBS, "--help", "--version", "--debug"]),
    ],
)
def test_words(line, known):
    for name in "ab":
        Path(f"runs/{name}").mkdir(parents=True)
        Path(f"runs/{name}/recipe.json").touch()
    Path("runs/c").mkdir()
    assert complete(line) == known


@pytest.mark.parametrize("name", [entry.name for entry in entries()[0]])
def test_every_setting_is_offered(name):
    offered = complete(f"everynet run {name} ")
    recipe = find(name)
    epochs = ["epochs="] if recipe.kind == "training" else []
    assert sorted(offered) == sorted([*(f"{word}=" for word in setting_types(recipe)), *epochs])


def test_the_verb_prints_words(call):
    assert call("completion", "words", "everynet run mlp-x") == (0, "mlp-xor\n", "")
    assert call("completion", "words", "everynet", "run", "mlp-x") == (0, "mlp-xor\n", "")
    assert call("completion", "words", "everynet run --dev")[1] == "--device\n"


@pytest.mark.parametrize("shell", SCRIPTS)
def test_a_script_for_each_shell(call, shell):
    code, out, _ = call("completion", shell)
    assert (code, out) == (0, SCRIPTS[shell])
    assert "everynet completion words" in out


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not here")
@pytest.mark.parametrize(
    ("line", "reply"),
    [
        ("everynet run mlp-x", "mlp-xor"),
        ("everynet run mlp weig", "weight_decay="),
        ("everynet run mlp data=x", ""),
        ("everynet co", "completion"),
    ],
)
def test_bash_completes(tmp_path, line, reply):
    script = tmp_path / "script"
    script.write_text(SCRIPTS["bash"])
    (tmp_path / "everynet").write_text(f'#!/bin/sh\nexec {sys.executable} -m everynet "$@"\n')
    (tmp_path / "everynet").chmod(0o755)
    program = (
        f'PATH="{tmp_path}:$PATH"; source "{script}"; compopt() {{ :; }}; '
        f"COMP_LINE='{line}'; COMP_POINT={len(line)}; COMP_WORDS=({line.split('=')[0]}); "
        'COMP_CWORD=2; _everynet; echo "${COMPREPLY[*]}"; complete -p everynet'
    )
    ran = subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=True)
    assert ran.stderr == ""
    assert ran.stdout == f"{reply}\ncomplete -o default -F _everynet everynet\n"
