"""What launchers say in the environment, and what cannot be meant."""

import pytest

from everynet.system.errors import UserError
from everynet.system.launcher import Launch, read_launch

MEET = {"MASTER_ADDR": "gpu01", "MASTER_PORT": "29500"}
HAND = {"RANK": "1", "WORLD_SIZE": "2", **MEET}
STEP = {"SLURM_PROCID": "3", "SLURM_NTASKS": "4", "SLURM_STEP_NUM_TASKS": "4", "SLURM_LOCALID": "1",
        "SLURM_JOB_ID": "77", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_NODES": "2",
        "SLURM_STEP_NODELIST": "gpu[03-04,09]"}  # fmt: skip
BATCH = {"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_LOCALID": "0"}
MPI = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}


@pytest.fixture
def launched(monkeypatch):
    def read(environment):
        for name in {*HAND, *STEP, *MPI, "LOCAL_RANK"}:
            monkeypatch.delenv(name, raising=False)
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        return read_launch()

    return read


@pytest.mark.parametrize(("environment", "found", "meet"), [
    (HAND, Launch(1, 2), ("gpu01", 29500)),
    ({**HAND, "LOCAL_RANK": "0"}, Launch(1, 2, 0), ("gpu01", 29500)),
    ({**STEP, **MEET}, Launch(3, 4, 1, "SLURM_STEP_NUM_TASKS"), ("gpu01", 29500)),
    ({**BATCH, **MEET}, Launch(0, 4, 0, "SLURM_NTASKS"), ("gpu01", 29500)),
    ({**STEP, **MPI, **MEET}, Launch(1, 2, 1, "OMPI_COMM_WORLD_SIZE"), ("gpu01", 29500)),
    ({**STEP, **HAND}, Launch(1, 2), ("gpu01", 29500)),
])  # fmt: skip
def test_several_processes(environment, found, meet, launched):
    assert launched(environment) == found
    assert found.address() == meet


@pytest.mark.parametrize("environment", [
    {},
    {"RANK": "1"},  # anybody's
    {**HAND, "WORLD_SIZE": "1"},
    {**STEP, "WORLD_SIZE": "1"},
    {**STEP, "WORLD_SIZE": "", "SLURM_STEP_NUM_TASKS": "1"},  # a shell inside an allocation of four
    {"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_LOCALID": "0"},
    {"SLURM_NTASKS": "4"},  # an allocation whose shell is no step
])  # fmt: skip
def test_one_process_alone(environment, launched):
    assert launched(environment) == Launch()


@pytest.mark.parametrize(("nodes", "host"), [
    ({}, "gpu03"),
    ({"SLURM_STEP_NODELIST": "gpu-a.example,gpu-b.example"}, "gpu-a.example"),
    ({"SLURM_STEP_NODELIST": "n1", "SLURM_STEP_NUM_NODES": "1"}, "127.0.0.1"),
])  # fmt: skip
def test_the_processes_of_a_step_meet_where_its_first_machine_is(
    nodes, host, launched, monkeypatch
):
    first, port = launched({**STEP, **nodes}).address()
    assert first == host
    assert 10_000 <= port < 30_000
    assert launched({**STEP, "SLURM_PROCID": "0"}).address()[1] == port
    assert launched({**STEP, "SLURM_STEP_ID": "1"}).address()[1] != port
    assert launched({**STEP, "MASTER_PORT": "7"}).address()[1] == 7


@pytest.mark.parametrize(("environment", "words"), [
    ({**HAND, "WORLD_SIZE": "two"}, r"WORLD_SIZE \(two\) must be a whole number from 1 to 65536, "),
    ({**HAND, "WORLD_SIZE": "0"}, r"WORLD_SIZE \(0\) must be .* set WORLD_SIZE=1 to train in one"),
    ({**HAND, "RANK": "2"}, r"RANK \(2\) must be a whole number from 0 to 1, because processes"),
    ({**HAND, "RANK": "-1"}, r"RANK \(-1\) must be"),
    ({**HAND, "RANK": ""}, r"RANK must be set, because WORLD_SIZE \(2\) says .* from 0 to 1, or"),
    ({**HAND, "LOCAL_RANK": "x"}, r"LOCAL_RANK \(x\) must be a whole number from 0 to 1"),
    ({**HAND, "MASTER_ADDR": ""}, r"MASTER_ADDR must be set, because WORLD_SIZE \(2\) .* srun"),
    ({**HAND, "MASTER_PORT": ""}, r"MASTER_PORT must be set, because WORLD_SIZE \(2\) says"),
    ({**HAND, "MASTER_PORT": "65536"}, r"MASTER_PORT \(65536\) must be a whole number from 1 to"),
    (BATCH, r"MASTER_ADDR must be set, because SLURM_NTASKS \(4\) says that several processes"),
    (MPI, r"MASTER_ADDR must be set, because OMPI_COMM_WORLD_SIZE \(2\) says"),
])  # fmt: skip
def test_what_cannot_be_is_refused(environment, words, launched):
    with pytest.raises(UserError, match=words):
        launched(environment).address()
