"""The loop does what the equations of a hand-written one say."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.optim.lr_scheduler import CosineAnnealingLR, OneCycleLR

from everynet.data.dataset import Data
from everynet.data.draws import permutation
from everynet.recipes.catalog import find
from everynet.recipes.recipe import Goal
from everynet.recipes.state import State
from everynet.recipes.training import OPTIMIZERS, make_optimizer
from everynet.runs.folder import describe_environment
from everynet.system.errors import UserError
from everynet.system.seeds import generator, mix, seed
from everynet.training.device import Setup, choose, denormals_flushed, threads_for
from everynet.training.loop import INITIAL, UPDATE, begin, evaluate, train
from tests.runs.recipes import RECIPES, BatchNorm, Dropout, Gan, Small


def test_training_equals_a_hand_written_loop():
    """Same seeds, same batches, same masks, same optimiser: the very same weights."""
    recipe = Dropout(steps=20, optimizer="momentum", schedule="linear", clip=0.1, clip_value=0.04)
    data = recipe.dataset()
    state = begin(recipe, data)
    for _ in train(recipe, state, data):
        pass
    cpu = torch.device("cpu")
    seed(cpu, recipe.seed, INITIAL)
    net = nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.5), nn.ReLU(), nn.Linear(6, 2))
    sgd = torch.optim.SGD(net.parameters(), momentum=0.9, fused=True)
    x, y = data.splits["train"]
    clipped = 0
    for step in range(20):
        epoch, position = divmod(step, 8)
        rows = permutation(64, recipe.seed, epoch)[position * 8 : position * 8 + 8]
        seed(cpu, recipe.seed, UPDATE, step, 0)
        for group in sgd.param_groups:
            group["lr"] = recipe.lr * (1 - step / 20)
        sgd.zero_grad()
        cross_entropy(net(x[rows]), y[rows]).backward()
        nn.utils.clip_grad_value_(net.parameters(), 0.04)
        norm = nn.utils.clip_grad_norm_(net.parameters(), 0.1)
        clipped += norm > 0.1
        sgd.step()
    assert clipped > 0
    for mine, theirs in zip(state.model.parameters(), net.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_values_are_clipped_before_the_norm():
    x = nn.Parameter(torch.tensor([30.0, 4.0]))
    state = State(nn.Module(), nn.Module(), {"main": torch.optim.SGD([x], lr=1.0)})
    state.descend((x.square() / 2).sum(), clip=1.0, clip_value=3.0)  # (30, 4), (3, 3), norm 1
    torch.testing.assert_close(x.detach(), torch.tensor([30 - 0.5**0.5, 4 - 0.5**0.5]))


def test_a_noisy_evaluation_repeats():
    """Spike trains are drawn in the evaluation: twice the same."""
    recipe = find("snn-poisson").tiny()
    data = recipe.dataset()
    state = begin(recipe, data)
    torch.rand(3)
    first = evaluate(recipe, state.model, data.valid)
    torch.rand(5)
    assert evaluate(recipe, state.model, data.valid) == first


def test_schedules_equal_torchs():
    steps, lr = 40, 0.7
    for name, make in {
        "cosine": lambda o: CosineAnnealingLR(o, steps),
        "one-cycle": lambda o: OneCycleLR(  # torch's peak is at pct_start of the steps, less one
            o,
            lr,
            total_steps=steps + 1,
            pct_start=(0.3 * steps + 1) / (steps + 1),
            cycle_momentum=False,
        ),
    }.items():
        recipe = Small(steps=steps, lr=lr, schedule=name)
        sgd = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=lr)
        schedule = make(sgd)
        for step in range(steps):
            expected = sgd.param_groups[0]["lr"]
            assert recipe.lr * recipe.rate(step, ()) == pytest.approx(expected, abs=1e-5)
            sgd.step()
            schedule.step()
    cycle = [Small(steps=100, schedule="one-cycle").rate(s, ()) for s in (0, 15, 30, 65, 100)]
    assert cycle == pytest.approx([1 / 25, (1 + 1 / 25) / 2, 1, 0.5, 0], abs=1e-4)
    assert [Small(steps=4, schedule="linear").rate(s, ()) for s in range(5)] == [
        1,
        0.75,
        0.5,
        0.25,
        0,
    ]


def test_a_metric_is_a_mean_over_samples_not_over_batches():
    recipe = Small()
    data = replace(recipe.dataset(), eval_batch_size=60)  # batches of 60 and 4
    net = recipe.model(data)
    found = evaluate(recipe, net, data.valid)
    x, y = data.splits["valid"]
    assert found["cross_entropy"] == pytest.approx(cross_entropy(net(x), y).item(), abs=1e-6)


def test_evaluation_leaves_the_mode_and_the_statistics_alone():
    recipe = BatchNorm()
    data = recipe.dataset()
    state = begin(recipe, data)
    state.model.train()
    before = {n: b.clone() for n, b in state.model.named_buffers()}
    evaluate(recipe, state.model, data.valid)
    assert state.model.training
    assert all(torch.equal(b, before[n]) for n, b in state.model.named_buffers())


def test_two_players_leave_no_gradients_on_each_other():
    recipe = Gan()
    data = recipe.dataset()
    state = begin(recipe, data)
    before = [p.detach().clone() for p in state.model["generator"].parameters()]
    state.descend(
        state.model["critic"](state.model["generator"](torch.randn(4, 3))).sum(), "critic"
    )
    assert all(p.grad is None for p in state.model["generator"].parameters())
    after = state.model["generator"].parameters()
    assert all(torch.equal(a, b) for a, b in zip(after, before, strict=True))


FIRST = {  # the first two steps of size 0.1 down x^2 from 3, by each rule's own equation
    "sgd": (3 - 0.1 * 6, 2.4 - 0.1 * 4.8),
    "momentum": (2.4, 2.4 - 0.1 * (4.8 + 0.9 * 6)),
    "nesterov": (3 - 0.1 * 1.9 * 6, 1.86 - 0.1 * (3.72 + 0.9 * (3.72 + 0.9 * 6))),
    "adagrad": (2.9, 2.9 - 0.1 * 5.8 / (36 + 5.8**2) ** 0.5),
    "rmsprop": (2.0, 2.0 - 0.1 * 4 / (0.99 * 0.36 + 0.01 * 16) ** 0.5),
    "adam": (2.9, 2.9 - 0.1 * (0.09 * 6 + 0.1 * 5.8) / 0.19
             / ((0.000999 * 36 + 0.001 * 5.8**2) / 0.001999) ** 0.5),
    "lion": (2.9, 2.8),
}  # fmt: skip
FIRST["adamw"] = FIRST["adam"]


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_every_optimiser_takes_the_steps_of_its_equation(name):
    x = nn.Parameter(torch.tensor([[3.0, -2.0]], dtype=torch.float64))
    state = State(nn.Module(), nn.Module(), {"main": make_optimizer([x], name, 0.1)})
    found = []
    for _ in range(2):
        state.descend(x.square().sum())
        found.append(x[0, 0].item())
    assert found == pytest.approx(FIRST[name], rel=1e-6)


def test_weight_decay_spares_biases():
    net = nn.Linear(3, 2)
    groups = make_optimizer(net.parameters(), "adamw", 0.1, 0.5).param_groups
    assert {g["weight_decay"]: len(g["params"]) for g in groups} == {0.5: 1, 0.0: 1}


def test_an_epoch_sees_every_sample_once_and_epochs_differ():
    x = torch.arange(10.0)[:, None]
    data = Data(splits={"train": (x,)}, batch_size=5, seed=4)
    epochs = [torch.cat([data.train(2 * e)[0], data.train(2 * e + 1)[0]]).flatten() for e in (0, 1)]
    assert all(sorted(epoch.tolist()) == list(range(10)) for epoch in epochs)
    assert not torch.equal(*epochs)
    assert torch.equal(data.train(3)[0], data.train(3)[0])


def test_seeds_of_neighbours_are_unrelated():
    seeds = {mix(seed, step) for seed in range(50) for step in range(200)}
    assert len(seeds) == 10_000
    ones = sum(bin(mix(0, step) ^ mix(0, step + 1)).count("1") for step in range(1000)) / 1000
    assert 30 < ones < 33  # of 63 bits about half change
    assert torch.rand(1, generator=generator(1, 2)) != torch.rand(1, generator=generator(2, 1))


def test_bf16_computes_in_half_and_learns_in_full_precision():
    recipe = Small(steps=3)
    data, setup = recipe.dataset(), choose("cpu", "bf16")
    state = begin(recipe, data, setup)
    seen = []
    state.model[0].register_forward_hook(lambda _module, _inputs, y: seen.append(y.dtype))
    for record in train(recipe, state, data, setup=setup):
        assert record.terms["cross_entropy"].isfinite()
    assert set(seen) == {torch.bfloat16}
    assert state.model[0].weight.dtype == torch.float32


def test_small_networks_get_one_thread(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS")
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    assert threads_for(nn.Linear(100, 10), 32) == 1
    assert threads_for(nn.Conv2d(32, 64, 3), 128) == 8


@pytest.mark.parametrize(("given", "threads"), [("2", 2), ("3,1", 3), ("0", 8), ("many", 8)])
def test_omp_num_threads_decides_whatever_the_process_has_now(given, threads, monkeypatch):
    """A run begins with one thread: what torch has then is not what was asked for."""
    monkeypatch.setenv("OMP_NUM_THREADS", given)
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    assert threads_for(nn.Conv2d(32, 64, 3), 128) == threads


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("cuda",), "torch finds no cuda; try --device cpu"),
        (("gpu",), r"unknown device 'gpu'; did you mean "),
        (("cpu", "fp16"), r"precision \(fp16\) must be one of fp32, tf32, bf16, fp64"),
        (("cpu", "tf32"), r"precision \(tf32\) must be another on cpu, because cuda alone has it"),
    ],
)
def test_a_device_that_is_not_there_is_refused(arguments, words, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UserError, match=words):
        choose(*arguments)


def test_each_process_takes_its_card_and_a_resume_does_so_again(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _device: "card")
    monkeypatch.setenv("WORLD_SIZE", "8")
    for rank in ("2", "3"):
        monkeypatch.setenv("RANK", rank)
        monkeypatch.setenv("LOCAL_RANK", rank)
        setup = choose("cuda")
        stored = describe_environment(setup, 4)["device"]
        assert (str(setup.device), stored) == (f"cuda:{rank}", "cuda")
    monkeypatch.delenv("LOCAL_RANK")
    monkeypatch.setenv("RANK", "6")
    assert str(choose(stored).device) == "cuda:2"  # variables set by hand, four cards a machine
    monkeypatch.delenv("WORLD_SIZE")
    assert str(choose(stored).device) == "cuda:0"
    for name, value in (("STEP_NUM_TASKS", "4"), ("PROCID", "3"), ("LOCALID", "1")):
        monkeypatch.setenv(f"SLURM_{name}", value)
    assert str(choose(stored).device) == "cuda:1"
    with monkeypatch.context() as patch:
        patch.setattr(torch.cuda, "device_count", lambda: 1)  # the one that srun shows it
        assert str(choose(stored).device) == "cuda:0"
        patch.setattr(torch.cuda, "current_device", lambda: 0)
        patch.setattr(torch.distributed, "is_initialized", lambda: True)
        assert str(choose(stored).device) == "cuda:0"  # the caller's own choice
        assert str(choose("cuda:0").device) == "cuda:0"
    monkeypatch.setenv("WORLD_SIZE", "1")
    asked = choose("cuda:1")
    assert (str(asked.device), describe_environment(asked, 1)["device"]) == ("cuda:1", "cuda:1")
    with pytest.raises(UserError, match=r"device \(cuda:4\) must be among the 4 .* not number 4"):
        choose("cuda:4")
    monkeypatch.setenv("WORLD_SIZE", "8")
    monkeypatch.setenv("LOCAL_RANK", "4")
    with pytest.raises(UserError, match=r"device \(cuda\) must be among the 4 .* fewer processes"):
        choose("cuda")
    with pytest.raises(UserError, match=r"device \(cuda:1\) must be cuda with several processes"):
        choose("cuda:1")


@pytest.mark.parametrize("name", ["cpu:1", "cuda:x", "cuda:", "mps:0", "cuda:-1"])
def test_a_strange_device_is_refused(name):
    with pytest.raises(UserError, match="unknown device"):
        choose(name)


def test_auto_takes_cuda_then_mps_then_cpu(monkeypatch):
    for cuda, mps, expected in ((True, True, "cuda"), (False, True, "mps"), (False, False, "cpu")):
        monkeypatch.setattr(torch.cuda, "is_available", lambda cuda=cuda: cuda)
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
        monkeypatch.setattr(torch.backends.mps, "is_available", lambda mps=mps: mps)
        assert choose("auto").device.type == expected


def test_denormals_are_seen():
    torch.set_flush_denormal(False)
    assert denormals_flushed() == "no"
    torch.set_flush_denormal(True)
    flushed = denormals_flushed()
    torch.set_flush_denormal(False)
    assert flushed == "yes"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"steps": 0}, r"steps \(0\) must be at least 1"),
        ({"batch_size": 0}, r"batch_size \(0\) must be at least 1"),
        ({"lr": -1.0}, r"lr \(-1.0\) must be a positive number"),
        ({"weight_decay": -1.0}, r"weight_decay \(-1.0\) must be a number from 0 up"),
        ({"clip": -1.0}, r"clip \(-1.0\) must be a number from 0 up"),
        ({"eval_every": -1}, r"eval_every \(-1\) must be at least 0"),
        ({"save_every": -1}, r"save_every \(-1\) must be at least 0"),
        ({"seed": -1}, r"seed \(-1\) must be at least 0"),
        ({"optimizer": "adm"}, r"unknown optimizer 'adm'; did you mean adam"),
        ({"schedule": "cos"}, r"unknown schedule 'cos'; did you mean cosine"),
        ({"schedule": "plateau", "goal": ""}, r"schedule \(plateau\) must be another"),
    ],
)
def test_bad_settings_are_refused(fields, words):
    with pytest.raises(UserError, match=words):
        replace(RECIPES["small"], **fields)


def test_a_batch_larger_than_the_set_is_refused():
    with pytest.raises(UserError, match=r"batch_size \(100\) must be between 1 and the 64"):
        Small(batch_size=100).dataset()


def test_goals_are_read_and_judged():
    two = Goal.parse("accuracy >= 0.9 and error < 2")
    assert [goal.reached({"accuracy": 0.9, "error": 2.0}) for goal in two] == [True, False]
    assert Goal.parse("count == 3")[0].merit({"count": 5.0}) == -2
    with pytest.raises(ValueError, match=r"goal \(accuracy\) must read like"):
        Goal.parse("accuracy")


def test_batches_go_channels_last_and_into_the_precision():
    setup = Setup(torch.device("cpu"), "fp64")
    x, y = setup.place((torch.ones(2, 3, 4, 4), torch.ones(2, dtype=torch.int64)), images=True)
    assert x.is_contiguous(memory_format=torch.channels_last)
    assert (x.dtype, y.dtype) == (torch.float64, torch.int64)
