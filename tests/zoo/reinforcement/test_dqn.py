"""Deep Q-learning: the rules of Catch, targets, replay buffer, and values against exact ones."""

import io
from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image

import everynet
from everynet import runs
from everynet.data.dataset import Data
from everynet.runs import checkpoint
from everynet.runs.checkpoint import read_bundle
from everynet.runs.job import Job
from everynet.system.errors import UserError
from everynet.system.seeds import seeded_by
from everynet.training.device import choose
from everynet.training.graph import watching_step
from everynet.training.loop import begin, evaluate, train
from everynet.training.processes import World
from everynet.zoo.reinforcement import episodes as played_episodes
from everynet.zoo.reinforcement.dqn import (
    RECIPES,
    HuberTDLoss,
    PlayCartPole,
    PlayCatch,
    QNetwork,
    ReplayBuffer,
    StateQNetwork,
    choose_actions,
    compute_double_td_target,
    compute_td_target,
    td_loss,
)
from everynet.zoo.reinforcement.environments import CartPole, Catch
from everynet.zoo.reinforcement.episodes import Episodes, draw_games, play_greedily
from tests.runs.test_resume import stopped_after

SMALL = replace(
    RECIPES["catch"].tiny(),
    name="catch",
    steps=8,
    eval_every=4,
    target_every=3,
    explore=4,
    memory=64,
)
GAME = Catch(4, 3)


# ---------------------------------------------------------------------------------------- the rules


def by_hand(game, state, action):
    """One move, in words."""
    row, ball, paddle = state
    if action == 0 and paddle > 0:
        paddle -= 1
    if action == 2 and paddle < game.width - 1:
        paddle += 1
    row += 1
    if row < game.height - 1:
        return (row, ball, paddle), 0.0, False
    return (row, ball, paddle), (1.0 if ball == paddle else -1.0), True


@pytest.mark.parametrize("game", [Catch(), GAME, Catch(2, 2)])
def test_every_move_of_every_state(game):
    states = game.states()
    assert len(states) == (game.height - 1) * game.width**2
    for action in range(3):
        after, reward, end, over = game.step(states, torch.full((len(states),), action))
        assert torch.equal(end, over)
        expected = [by_hand(game, state, action) for state in states.tolist()]
        assert [tuple(row) for row in after.tolist()] == [row for row, _, _ in expected]
        assert reward.tolist() == [reward for _, reward, _ in expected]
        assert end.tolist() == [end for _, _, end in expected]


def test_what_is_seen():
    """The ball and the paddle, as one where the ball has been caught."""
    seen = GAME.observe(torch.tensor([[1, 2, 0], [3, 1, 1]]))
    assert seen.shape == (2, 1, 4, 3)
    assert seen[0, 0].nonzero().tolist() == [[1, 2], [3, 0]]
    assert seen[1, 0].nonzero().tolist() == [[3, 1]]
    assert seen.max() == 1


def test_every_start_is_there_once():
    starts = Catch().first_states().tolist()
    assert len({tuple(s) for s in starts}) == len(starts) == 25
    assert {row for row, _, _ in starts} == {0}


# ------------------------------------------------------------------------------- exact values


def recursive(game, state, gamma, random):
    """The values of the actions in a state, by going through all that can follow."""
    found = []
    for action in range(3):
        after, reward, end = by_hand(game, state, action)
        later = 0.0
        if not end:
            following = recursive(game, after, gamma, random)
            later = sum(following) / 3 if random else max(following)
        found.append(reward + gamma * later)
    return found


@pytest.mark.parametrize("random", [False, True])
def test_exact_values_are_those_of_the_whole_tree(random):
    q = GAME.exact_q(0.9, random=random)
    for row, ball, paddle in GAME.states().tolist():
        expected = recursive(GAME, (row, ball, paddle), 0.9, random)
        assert q[row, ball, paddle].tolist() == pytest.approx(expected)


def test_the_best_play_of_catch_is_worth_the_discount():
    """Every ball can be caught from the top: 0.95 to the 8th; a far one on the last row is lost."""
    q = Catch().exact_q(0.95)
    torch.testing.assert_close(q[0].amax(2), torch.full((5, 5), 0.95**8, dtype=torch.float64))
    assert q[8, 0, 4].tolist() == [-1, -1, -1]
    assert q[8, 0, 1].tolist() == [1, -1, -1]


def test_random_play_gets_what_dynamic_programming_says():
    """The mean return of n games is within four standard errors."""
    game, n = Catch(), 20_000
    draw = torch.Generator().manual_seed(0)
    state = game.begin(*torch.randint(5, (2, n), generator=draw))
    for _ in range(game.height - 1):
        state, reward, end, _ = game.step(state, torch.randint(3, (n,), generator=draw))
    assert end.all()
    expected = game.exact_q(1.0, random=True)[0].mean().item()
    assert reward.mean().item() == pytest.approx(expected, abs=4 * reward.std().item() / n**0.5)


# ---------------------------------------------------------------------------------------- equations


def test_a_share_of_the_actions_is_random():
    """The best action is taken with probability 1 - eps + eps / 3."""
    n, epsilon = 30_000, 0.3
    q = torch.tensor([[0.0, 2.0, 1.0]]).expand(n, 3)
    chance = torch.rand(n, 2, generator=torch.Generator().manual_seed(0))
    action = choose_actions(q, epsilon, chance)
    shares = action.bincount(minlength=3) / n
    expected = torch.tensor([0.1, 0.8, 0.1])
    torch.testing.assert_close(shares, expected, rtol=0, atol=4 * (0.25 / n) ** 0.5)
    assert choose_actions(q, 0.0, torch.zeros(n, 2)).eq(1).all()
    assert choose_actions(q, 1.0, torch.full((n, 2), 0.999)).eq(2).all()


def test_targets_by_hand():
    """The end of a game cuts off what the target network says of the state after it."""
    after = torch.tensor([[1.0, 5.0, 2.0], [1.0, 5.0, 2.0], [-3.0, -2.0, -1.0]])
    y = compute_td_target(torch.tensor([0.0, -1.0, 0.5]), torch.tensor([0.0, 1.0, 0.0]), after, 0.9)
    assert y.tolist() == pytest.approx([4.5, -1.0, 0.5 - 0.9])


def test_the_error_reaches_only_the_action_taken():
    q = torch.tensor([[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]], requires_grad=True)
    y = torch.tensor([5.0, 1.0], requires_grad=True)
    found = td_loss(q, torch.tensor([1, 0]), y)
    assert found.item() == pytest.approx((9 + 1) / 2 / 2)
    found.backward()
    assert q.grad.tolist() == [[0, -1.5, 0], [-0.5, 0, 0]]
    assert y.grad is None


def test_randomness_falls_in_a_line_and_stays():
    recipe = PlayCatch(epsilon=0.2, explore=10)
    shares = [recipe.exploration(torch.tensor(step)).item() for step in (0, 5, 10, 99)]
    assert shares == pytest.approx([1, 0.6, 0.2, 0.2])


def test_one_network_chooses_and_the_other_values():
    next_q = torch.tensor([[1.0, 5.0, 2.0], [4.0, 0.0, 0.0]])
    online_q = torch.tensor([[9.0, 0.0, 1.0], [0.0, 0.0, 1.0]])
    reward, end = torch.tensor([0.5, -1.0]), torch.tensor([0.0, 1.0])
    y = compute_double_td_target(reward, end, next_q, online_q, 0.9)
    assert y.tolist() == pytest.approx([0.5 + 0.9 * 1.0, -1.0])
    same = compute_double_td_target(reward, end, next_q, next_q, 0.9)
    torch.testing.assert_close(same, compute_td_target(reward, end, next_q, 0.9))


def test_the_maximum_of_noise_is_too_large_and_double_values_are_not():
    """All true values are 0: n values with unit errors have a mean maximum of n = 2: pi^-1/2."""
    n = 40_000
    draw = torch.Generator().manual_seed(0)
    next_q, online_q = torch.randn(2, n, 2, generator=draw)
    zero = torch.zeros(n)
    single = compute_td_target(zero, zero, next_q, 1.0).mean().item()
    double = compute_double_td_target(zero, zero, next_q, online_q, 1.0).mean().item()
    assert single == pytest.approx(torch.pi**-0.5, abs=4 / n**0.5)
    assert double == pytest.approx(0, abs=4 / n**0.5)


@pytest.mark.parametrize("delta", [0.5, 1.0, 3.0])
def test_huber_loss_is_that_of_torch(delta):
    """And only the output of the action taken gets a gradient, of at most delta."""
    q = torch.randn(50, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) * 3
    q.requires_grad_()
    action, y = torch.arange(50) % 3, torch.linspace(-4, 4, 50, dtype=torch.float64)
    loss = HuberTDLoss(delta)(q, action, y)
    taken = q[torch.arange(50), action]
    torch.testing.assert_close(loss, torch.nn.functional.huber_loss(taken, y, delta=delta))
    loss.backward()
    assert q.grad.abs().max() * 50 <= delta + 1e-9
    assert (q.grad != 0).sum() == 50


def test_a_network_of_states_gives_values_of_a_scale():
    small, large = StateQNetwork(4, 8, 2), StateQNetwork(4, 8, 2, scale=50)
    large.load_state_dict(small.state_dict())
    x = torch.randn(5, 4)
    torch.testing.assert_close(large(x), 50 * small(x))


# ---------------------------------------------------------------- replay buffer and target network


def test_the_replay_buffer_overwrites_its_oldest():
    buffer = ReplayBuffer(capacity=6, state_size=3)
    for step in range(4):
        new = torch.full((2,), step + 1)
        buffer.add(
            torch.tensor(step),
            new[:, None].expand(2, 3),
            new % 3,
            new / 10,
            new[:, None] + 1,
            new > 3,
        )
    assert buffer.state[:, 0].tolist() == [4, 4, 2, 2, 3, 3]
    assert buffer.action.tolist() == [1, 1, 2, 2, 0, 0]
    assert buffer.reward.tolist() == pytest.approx([0.4, 0.4, 0.2, 0.2, 0.3, 0.3])
    assert buffer.next_state[:, 2].tolist() == [5, 5, 3, 3, 4, 4]
    assert buffer.end.tolist() == [1, 1, 0, 0, 0, 0]


def test_minibatches_are_uniform_over_what_has_been_written():
    """Each of 40 written places is drawn with the frequency 1/40, within five standard errors."""
    buffer, draws = ReplayBuffer(capacity=100, state_size=1), 400
    torch.manual_seed(0)
    for step in range(4):
        new = torch.arange(10) + 10 * step
        buffer.add(torch.tensor(step), new[:, None], new, new, new[:, None], new)
    rows = torch.cat([buffer.sample(200, torch.tensor(40))[1] for _ in range(draws)])
    shares = rows.bincount(minlength=100) / len(rows)
    error = (1 / 40 / len(rows)) ** 0.5
    torch.testing.assert_close(shares[:40], torch.full((40,), 1 / 40), rtol=0, atol=5 * error)
    assert shares[40:].eq(0).all()


def test_a_memory_of_one_step_is_no_replay():
    """Then a minibatch is drawn from the moves just made, and from no others."""
    recipe = replace(RECIPES["dqn"].tiny(), environments=4, memory=4, steps=6)
    state = begun(recipe)
    for record in train(recipe, state, recipe.dataset()):
        age = state.extra.replay_buffer.next_state[:, 4]
        assert (age <= record.step).all()
        following = state.extra.games
        going = following[:, 4] > 0
        assert torch.equal(state.extra.replay_buffer.next_state[going], following[going])


def test_a_cut_off_is_not_an_end():
    """A game that reaches its limit begins anew, but its last state has a value."""
    recipe = replace(RECIPES["dqn"].tiny(), environments=2, steps=1)
    state = begun(recipe)
    state.extra.games[:, 4] = recipe.game.limit - 1
    for _ in train(recipe, state, recipe.dataset()):
        buffer = state.extra.replay_buffer
        assert buffer.next_state[:2, 4].tolist() == [500, 500]
        assert buffer.end[:2].tolist() == [0, 0]
        assert state.extra.games[:, 4].tolist() == [0, 0]


@pytest.mark.parametrize("name", RECIPES)
def test_an_update_can_be_captured(name):
    """It reads the clock and not the step, and what it carries stays in its place."""
    recipe = replace(RECIPES[name].tiny(), steps=3)
    state = begun(recipe)
    places = {key: value.data_ptr() for key, value in state.extra.state_dict().items()}
    with watching_step(state) as reads:
        state.set_clock(0)
        recipe.step(state, ())
    assert not reads
    assert recipe.captured
    after = {key: value.data_ptr() for key, value in state.extra.state_dict().items()}
    assert after == places


def test_a_car_practises_anywhere_and_is_tested_from_the_bottom():
    recipe = replace(RECIPES["dqn-mountain-car"], environments=200, memory=200)
    data = recipe.dataset()
    for part in ("valid", "test"):
        (states,) = data.splits[part]
        assert states[:, 0].min() >= -0.6
        assert states[:, 0].max() <= -0.4
        assert not states[:, 1:].any()
    with seeded_by(0):
        model = recipe.model(data)
        playing = recipe.extra(model)
        assert playing.games[:, 1].std() > 0.03, "at any speed"
        playing.games[:, 2] = recipe.game.limit - 1  # all are over now
        recipe.play(playing, model, torch.tensor(0))
    assert playing.games[:, 1].std() > 0.03
    assert not playing.games[:, 2].any()


def test_starts_of_the_splits_differ():
    data = RECIPES["dqn"].dataset()
    (valid,), (test,) = data.splits["valid"], data.splits["test"]
    assert valid.shape == test.shape == (100, 5)
    assert not torch.equal(valid, test)
    assert valid[:, :4].abs().max() <= 0.05


class Balance(StateQNetwork):
    """Pushes by a rule that keeps the pole up, or lets it fall."""

    def __init__(self, sign):
        super().__init__(4, 1, 2)
        self.register_parameter("sign", torch.nn.Parameter(torch.tensor(float(sign))))

    def forward(self, x):
        x, v, theta, w = (x * torch.tensor([2.4, 2, CartPole.STEEPEST, 2])).unbind(1)
        push = self.sign * (0.05 * x + 0.1 * v + theta + 0.3 * w)
        return torch.stack([-push, push], 1)


def test_episodes_of_the_best_and_of_the_worst_play():
    recipe, draw = RECIPES["dqn"], torch.Generator().manual_seed(0)
    data = recipe.dataset()
    best = recipe.final(Balance(1), data, draw, episodes=7)
    assert best == {"episode_mean": 500, "episode_spread": 0, "episode_worst": 500}
    assert evaluate(recipe, Balance(1), data.test) == {"mean_return": 500}
    worst = recipe.final(Balance(-1), data, draw, episodes=50)
    assert 5 < worst["episode_worst"] <= worst["episode_mean"] < 15
    assert worst["episode_spread"] > 0


@pytest.mark.parametrize("episodes", [0, -3, 100_001])
def test_a_number_of_episodes_that_cannot_be_played(episodes):
    recipe = RECIPES["dqn"]
    line = rf"episodes \({episodes}\) must be between 1 and 100,000, because so many games are"
    with pytest.raises(UserError, match=line):
        recipe.final(Balance(1), recipe.dataset(), torch.Generator(), episodes=episodes)


def begun(recipe=SMALL):
    return begin(recipe, Data.none(), choose("cpu"))


def weights(module):
    return torch.cat([p.detach().flatten() for p in module.parameters()])


def test_the_target_network_lags():
    """It is the network of steps 0, 3, 6 for three updates each, and is never trained."""
    state, known = begun(), {}
    known[0] = weights(state.model)
    for record in train(SMALL, state, Data.none()):
        followed = (record.step - 1) // 3 * 3
        assert torch.equal(weights(state.extra.target_network), known[followed])
        known[record.step] = weights(state.model)
    assert not torch.equal(known[0], known[3])
    assert all(p.grad is None for p in state.extra.target_network.parameters())


def test_what_is_remembered_is_what_was_played():
    """Each step adds a move of every game: what came after is the next state unless it ended."""
    state, count = begun(), SMALL.environments
    before = state.extra.games.clone()
    for record in train(replace(SMALL, steps=4), state, Data.none()):
        buffer = state.extra.replay_buffer
        rows = slice((record.step - 1) * count, record.step * count)
        assert torch.equal(buffer.state[rows], before)
        after, reward, end, _ = SMALL.game.step(before, buffer.action[rows])
        assert torch.equal(buffer.next_state[rows], after)
        assert torch.equal(buffer.reward[rows], reward)
        assert torch.equal(buffer.end[rows].bool(), end)
        before = state.extra.games.clone()
        assert torch.equal(before[~end], after[~end])
        assert (before[end][:, 0] == 0).all()


def test_three_updates_equal_those_by_hand(monkeypatch):
    """Only rows that have been written are drawn, and the target is that of the old network."""
    drawn, sample = [], ReplayBuffer.sample

    def watched(buffer, batch_size, added):
        before = torch.default_generator.get_state()
        rows = torch.randint(2**62, (batch_size,)) % added.clamp(max=len(buffer.action))
        torch.default_generator.set_state(before)
        drawn.append(rows)
        return sample(buffer, batch_size, added)

    monkeypatch.setattr(ReplayBuffer, "sample", watched)
    state, hand, old = begun(), begun(), begun().model
    rule = torch.optim.Adam(hand.model.parameters(), SMALL.lr)
    for record in train(replace(SMALL, steps=3, schedule="constant"), state, Data.none()):
        rows, buffer = drawn[-1], state.extra.replay_buffer
        assert rows.max() < record.step * SMALL.environments
        errors = []
        for row in rows.tolist():
            q = hand.model(SMALL.game.observe(buffer.state[row : row + 1]))[0]
            later = old(SMALL.game.observe(buffer.next_state[row : row + 1]))[0].max().item()
            y = buffer.reward[row].item() + (0 if buffer.end[row] else SMALL.gamma * later)
            errors.append((y - q[buffer.action[row]]) ** 2 / 2)
        mean = torch.stack(errors).mean()
        torch.testing.assert_close(record.terms["td_error"], mean.detach())
        rule.zero_grad()
        mean.backward()
        rule.step()
        torch.testing.assert_close(weights(state.model), weights(hand.model))


class Expert(QNetwork):
    """Plays by the exact values of what it sees, for better or worse."""

    def __init__(self, game, sign):
        super().__init__(game.height, game.width, 3, 1)
        self.register_parameter("sign", torch.nn.Parameter(torch.tensor(float(sign))))
        self.game, self.q = game, game.exact_q(0.95)

    def forward(self, x):
        states = self.game.states()
        row = (x[:, None] == self.game.observe(states)).flatten(2).all(2).long().argmax(1)
        return self.sign * self.q.flatten(0, 2)[row].float()


def test_figures_of_the_best_and_of_the_worst_play():
    recipe = RECIPES["catch"]
    best = evaluate(recipe, Expert(recipe.game, 1), [])
    assert best == {"mean_return": 1.0, "caught": 1.0, "value_error": pytest.approx(0, abs=1e-6)}
    worst = evaluate(recipe, Expert(recipe.game, -1), [])
    assert (worst["mean_return"], worst["caught"]) == (-1.0, 0.0)
    assert worst["value_error"] > 0.5


# -------------------------------------------------------------------------------------------- films


def test_the_frames_of_a_film_are_the_states_that_were_played():
    """Each with the values in that very state; the last has none, and says how the game went."""
    recipe = replace(SMALL, height=4, width=3)
    expert = Expert(recipe.game, -1)  # it misses every ball
    starts = recipe.game.begin(torch.tensor([2, 0]), torch.tensor([2, 1]))
    with torch.no_grad():
        played = play_greedily(recipe.game, lambda state: recipe.values(expert, state), starts)
        figures = [*draw_games(recipe.game, played)]
        assert len(figures) == 2 * 4
        for game, start in enumerate(starts.tolist()):
            state, end = tuple(start), False
            for step, drawn in enumerate(figures[4 * game : 4 * game + 4]):
                seen = recipe.game.observe(torch.tensor([state]))
                grid, bars = drawn.axes
                assert torch.equal(torch.tensor(grid.images[0].get_array()).float(), seen[0, 0])
                heights = [bar.get_height() for bar in bars.patches]
                q = [] if end else expert(seen)[0].tolist()
                assert heights == pytest.approx(q)
                words = "missed" if end else f"step {step}"
                assert grid.get_title() == f"game {game + 1}\n{words}"
                if not end:
                    state, _, end = by_hand(recipe.game, state, q.index(max(q)))
            assert end


def test_values_that_look_alike_are_filmed_less_their_mean():
    game, states = CartPole(), torch.zeros(3, 1, 5)
    for shift, label, heights in ((100.0, "value less mean", [0.5, -0.5]), (1.0, "value", [2, 1])):
        q = torch.tensor([[[1.0, 0.0]], [[7.0, 8.0]]]) + shift
        played = Episodes(states, q, torch.tensor([2.0]), torch.tensor([2]))
        first, *_ = draw_games(game, played)
        assert first.axes[1].get_title() == label
        assert [bar.get_height() for bar in first.axes[1].patches] == heights


def test_a_film_of_episodes_from_random_starts(monkeypatch):
    recipe, begins = replace(SMALL, height=2, width=40), []
    play = played_episodes.play_greedily
    monkeypatch.setattr(
        played_episodes, "play_greedily", lambda *given: begins.append(given[2]) or play(*given)
    )
    model = begun(recipe).model.requires_grad_(False)
    film = recipe.sample(model, {}, torch.Generator().manual_seed(3), episodes=2)
    assert (len(film.frames), film.rate) == (2 * 2, 4)
    image = Image.open(io.BytesIO(film.webp()))
    assert (image.n_frames, image.size) == (4, film.frames.shape[2:0:-1])
    monkeypatch.setattr(played_episodes, "draw_games", lambda *_given: [np.zeros((1, 1), np.uint8)])
    for seed in (3, 4):
        recipe.sample(model, {}, torch.Generator().manual_seed(seed), episodes=2)
    assert torch.equal(begins[0], begins[1])
    assert not torch.equal(begins[0], begins[2])
    assert not torch.equal(begins[0][0], begins[0][1])
    assert begins[0][:, 0].tolist() == [0, 0]


@pytest.mark.parametrize("episodes", [0, -1, 61])
def test_episodes_that_cannot_be(unbroken, episodes):
    line = rf"episodes \({episodes}\) must be between 1 and 60, because frames of each are"
    with pytest.raises(UserError, match=line):
        everynet.trained(str(unbroken.folder)).sample(episodes=episodes)


# --------------------------------------------------------------------------- stopping, many ranks


@pytest.fixture(scope="module", autouse=True)
def undrawn():
    """Runs without pictures, which take longer than the rest."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Job, "draw", lambda self, model: ())
        yield


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory, undrawn):
    return runs.run(SMALL, tmp_path_factory.mktemp("unbroken"), device="cpu")


@pytest.mark.parametrize("stop", [1, 3, 5])
def test_stop_and_resume_is_bit_equal(stop, unbroken, tmp_path, monkeypatch):
    folder = stopped_after(stop, SMALL, tmp_path, monkeypatch)
    assert runs.resume(SMALL, folder).metrics == unbroken.metrics
    for newest in (folder, unbroken.folder):
        assert checkpoint.steps(newest)[-1] == SMALL.steps
    assert read_bundle(checkpoint.newest(folder)) == read_bundle(checkpoint.newest(unbroken.folder))
    log = "metrics.jsonl"
    assert (folder / log).read_bytes() == (unbroken.folder / log).read_bytes()


def test_restoring_into_another_seed_brings_everything_back(unbroken, tmp_path):
    path = checkpoint.newest(unbroken.folder)
    state = begun(replace(SMALL, seed=99))
    progress = checkpoint.restore(path, state, SMALL.deployed(state))
    checkpoint.save(tmp_path / path.name, state, SMALL.deployed(state), progress)
    assert read_bundle(tmp_path / path.name) == read_bundle(path)


def test_several_processes_are_refused():
    with pytest.raises(UserError, match="catch cannot be trained by several processes"):
        World(0, 2).check(SMALL.batch_size, SMALL.per_rank, "catch")


# ------------------------------------------------------------------------------------------- errors


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"height": 1}, r"height \(1\) must be at least 2"),
        ({"width": 1}, r"width \(1\) must be at least 2"),
        ({"environments": 0}, r"environments \(0\) must be at least 1"),
        ({"explore": 0}, r"explore \(0\) must be at least 1"),
        ({"target_every": 0}, r"target_every \(0\) must be at least 1"),
        ({"hidden_size": 0}, r"hidden_size \(0\) must be at least 1"),
        ({"memory": 15}, r"memory \(15\) must be at least the 16 environments"),
        ({"gamma": 1.5}, r"gamma \(1.5\) must be a number from 0 to 1"),
        ({"epsilon": -0.1}, r"epsilon \(-0.1\) must be a number from 0 to 1"),
    ],
)
def test_bad_settings(fields, message):
    with pytest.raises(UserError, match=message):
        PlayCatch(**fields)


def test_games_that_may_go_on_for_ever_need_a_discount():
    with pytest.raises(UserError, match=r"gamma \(1.0\) must be below 1, because these games"):
        PlayCartPole(gamma=1.0)


@pytest.mark.slow
@pytest.mark.covers("Q7")
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_goal(seed, tmp_path):
    """The values of all states too are near those of dynamic programming."""
    result = runs.run(replace(RECIPES["catch"], seed=seed), tmp_path, device="cpu")
    assert result.reached, result.metrics


@pytest.mark.slow
@pytest.mark.parametrize("name", ["dqn", "double-dqn", "dqn-mountain-car"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_games_of_a_few_numbers_are_learned(name, seed, tmp_path):
    result = runs.run(replace(RECIPES[name], seed=seed), tmp_path, device="cpu")
    assert result.reached, result.metrics
