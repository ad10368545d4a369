"""Every operation: its value beside numpy's or torch's, its slopes beside differences."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import everynet.autodiff as ad
from everynet.autodiff.graph import Op

RANDOM = np.random.default_rng(5)
A = RANDOM.uniform(0.3, 2.0, (2, 3))
B = RANDOM.uniform(0.3, 2.0, (2, 3)) + 0.1
ROW = RANDOM.uniform(0.5, 1.5, 3)
SIGNED = np.array([[-1.2, 0.4, 2.0], [0.7, -0.3, -2.2]])
CUBE = RANDOM.standard_normal((2, 3, 4))
IMAGES = RANDOM.standard_normal((2, 3, 7, 6))
FILTERS = RANDOM.standard_normal((4, 3, 3, 2))
SYMMETRIC = CUBE[0] @ CUBE[0].T + np.eye(3)
CLASSES = np.array([1, 2])  # neither is the largest of its row
PICK = (np.array([0, 1, 1]), np.array([2, 0, 0]))  # one element twice
MASK = SIGNED > 0


def t(function):
    """A function of torch on arrays."""
    return lambda *args: function(*map(torch.as_tensor, args)).numpy()


CASES = {
    "add": (ad.add, (A, ROW), np.add),
    "subtract": (ad.subtract, (A, ROW), np.subtract),
    "multiply": (ad.multiply, (A, ROW), np.multiply),
    "divide": (ad.divide, (ROW, B), np.divide),
    "negative": (ad.negative, (A,), np.negative),
    "power": (ad.power, (A, ROW), np.power),
    "power of a number": (lambda x: x**3, (SIGNED,), lambda x: x**3),
    "number to a power": (lambda x: 2.0**x, (SIGNED,), lambda x: 2.0**x),
    "square": (ad.square, (SIGNED,), np.square),
    "exp": (ad.exp, (SIGNED,), np.exp),
    "log": (ad.log, (A,), np.log),
    "sqrt": (ad.sqrt, (A,), np.sqrt),
    "sin": (ad.sin, (SIGNED,), np.sin),
    "cos": (ad.cos, (SIGNED,), np.cos),
    "tan": (ad.tan, (SIGNED / 2,), np.tan),
    "sinh": (ad.sinh, (SIGNED,), np.sinh),
    "cosh": (ad.cosh, (SIGNED,), np.cosh),
    "tanh": (ad.tanh, (SIGNED,), np.tanh),
    "arctan": (ad.arctan, (SIGNED,), np.arctan),
    "absolute": (ad.abs, (SIGNED,), np.abs),
    "maximum": (ad.maximum, (SIGNED, ROW), np.maximum),
    "minimum": (ad.minimum, (SIGNED, ROW), np.minimum),
    "clip": (lambda x: ad.clip(x, -1.0, 1.0), (SIGNED,), lambda x: np.clip(x, -1, 1)),
    "where": (lambda a, b: ad.where(MASK, a, b), (A, ROW), lambda a, b: np.where(MASK, a, b)),
    "astype": (lambda x: ad.astype(x, "f8"), (A,), lambda x: x),
    "sigmoid": (ad.sigmoid, (SIGNED,), t(torch.sigmoid)),
    "relu": (ad.relu, (SIGNED,), t(F.relu)),
    "leaky_relu": (lambda x: ad.leaky_relu(x, 0.2), (SIGNED,), t(lambda x: F.leaky_relu(x, 0.2))),
    "softplus": (ad.softplus, (SIGNED,), t(F.softplus)),
    "softplus beta": (lambda x: ad.softplus(x, 2.0), (SIGNED,), t(lambda x: F.softplus(x, 2.0))),
    "softmax": (lambda x: ad.softmax(x, 1), (CUBE,), t(lambda x: F.softmax(x, 1))),
    "log_softmax": (lambda x: ad.log_softmax(x, -1), (CUBE,), t(lambda x: F.log_softmax(x, -1))),
    "logsumexp": (lambda x: ad.logsumexp(x, (0, 2)), (CUBE,), t(lambda x: x.logsumexp((0, 2)))),
    "cross_entropy": (
        lambda x: ad.cross_entropy(x, CLASSES),
        (SIGNED,),
        t(lambda x: F.cross_entropy(x, torch.as_tensor(CLASSES))),
    ),
    "cross_entropy none": (
        lambda x: ad.cross_entropy(x, CLASSES, "none"),
        (SIGNED,),
        t(lambda x: F.cross_entropy(x, torch.as_tensor(CLASSES), reduction="none")),
    ),
    "binary_cross_entropy": (
        lambda x, p: ad.binary_cross_entropy_with_logits(x, p, "sum"),
        (SIGNED, B / 3),
        t(lambda x, p: F.binary_cross_entropy_with_logits(x, p, reduction="sum")),
    ),
    "sum": (lambda x: ad.sum(x, (0, -1)), (CUBE,), lambda x: np.sum(x, (0, -1))),
    "sum all": (ad.sum, (CUBE,), np.sum),
    "mean": (lambda x: ad.mean(x, 1, keepdims=True), (CUBE,), lambda x: x.mean(1, keepdims=True)),
    "var": (lambda x: ad.var(x, -2), (CUBE,), lambda x: np.var(x, -2)),
    "var ddof": (lambda x: ad.var(x, ddof=1), (CUBE,), lambda x: np.var(x, ddof=1)),
    "max": (lambda x: ad.max(x, 1), (CUBE,), lambda x: np.max(x, 1)),
    "min": (
        lambda x: ad.min(x, (0, 2), keepdims=True),
        (CUBE,),
        lambda x: x.min((0, 2))[:, None][None],
    ),
    "norm": (ad.norm, (CUBE,), np.linalg.norm),
    "norm of rows": (
        lambda x: ad.norm(x, 2, axis=1, keepdims=True),
        (CUBE,),
        lambda x: np.linalg.norm(x, 2, axis=1, keepdims=True),
    ),
    "norm 1": (lambda x: ad.norm(x, 1, -1), (SIGNED,), lambda x: np.linalg.norm(x, 1, -1)),
    "norm inf": (lambda x: ad.norm(x, np.inf), (ROW,), lambda x: np.linalg.norm(x, np.inf)),
    **{
        f"einsum {how}": (
            lambda *xs, how=how: ad.einsum(how, *xs),
            xs,
            lambda *xs, how=how: np.einsum(how, *xs),
        )
        for how, xs in {
            "ij,jk->ik": (A, CUBE[0]),
            "ba , bA": (A, CUBE[0][:2, :3]),  # implicit: letters in order, capitals first
            "ij->": (A,),
            "i,j->ji": (ROW, A[0]),
            "ii->i": (SYMMETRIC,),
            "ii": (SYMMETRIC,),
            "iji->j": (CUBE[:, :, :2],),
            "ij,j,ik->k": (A, ROW, B),
            "...j,j": (CUBE.swapaxes(1, 2), ROW),
            "...i,...i->...": (CUBE, CUBE[:1, :1]),  # lengths of 1 are repeated
            "ij,kj->ik": (A, B[:, :1]),
            "i,i,i": (ROW, A[0], A[1]),
        }.items()
    },
    "matmul": (ad.matmul, (A, CUBE[0]), np.matmul),
    "matmul batch": (ad.matmul, (CUBE, CUBE.swapaxes(1, 2)), np.matmul),
    "matmul shared right": (ad.matmul, (CUBE, CUBE[1].T), np.matmul),
    "matmul shared left": (ad.matmul, (A, CUBE), np.matmul),
    "matmul vectors": (ad.matmul, (ROW, A[0]), np.matmul),
    "matmul row": (ad.matmul, (ROW, CUBE), np.matmul),
    "matmul column": (ad.matmul, (CUBE.swapaxes(1, 2), ROW), np.matmul),
    "solve": (ad.solve, (SYMMETRIC + 0.3 * np.eye(3, k=1), CUBE[1]), np.linalg.solve),
    "solve vector": (ad.solve, (SYMMETRIC, ROW), np.linalg.solve),
    "cholesky": (
        lambda a: ad.cholesky(a + a.T),
        (SYMMETRIC,),
        lambda a: np.linalg.cholesky(a + a.T),
    ),
    "reshape": (lambda x: ad.reshape(x, (4, -1)), (CUBE,), lambda x: x.reshape(4, -1)),
    "transpose": (ad.transpose, (CUBE,), np.transpose),
    "transpose axes": (
        lambda x: ad.transpose(x, (1, -1, 0)),
        (CUBE,),
        lambda x: x.transpose(1, 2, 0),
    ),
    "swapaxes": (lambda x: ad.swapaxes(x, 0, -1), (CUBE,), lambda x: x.swapaxes(0, -1)),
    "expand_dims": (lambda x: ad.expand_dims(x, (0, -1)), (A,), lambda x: x[None, ..., None]),
    "squeeze": (ad.squeeze, (A[:, None],), np.squeeze),
    "broadcast_to": (
        lambda x: ad.broadcast_to(x, (4, 2, 3)),
        (ROW,),
        lambda x: np.broadcast_to(x, (4, 2, 3)),
    ),
    "index": (lambda x: ad.index(x, np.s_[..., ::-2, None]), (CUBE,), lambda x: x[..., ::-2, None]),
    "index twice": (lambda x: x[PICK], (A,), lambda x: x[PICK]),
    "index mask": (lambda x: x[MASK], (A,), lambda x: x[MASK]),
    "index list": (lambda x: x[[1, 1, 0]], (A,), lambda x: x[[1, 1, 0]]),
    "scatter": (
        lambda x: ad.scatter(x, PICK, (2, 3)),
        (ROW,),
        lambda x: np.array([[0, 0, x[0]], [x[1] + x[2], 0, 0]]),
    ),
    "concatenate": (
        lambda a, b: ad.concatenate((a, b, a), -1),
        (A, B),
        lambda a, b: np.concatenate((a, b, a), -1),
    ),
    "stack": (lambda a, b: ad.stack((a, b), 1), (A, B), lambda a, b: np.stack((a, b), 1)),
    "pad": (
        lambda x: ad.pad(x, ((1, 0), (0, 2)), constant_values=0.5),
        (A,),
        lambda x: np.pad(x, ((1, 0), (0, 2)), constant_values=0.5),
    ),
    "conv2d": (ad.conv2d, (IMAGES, FILTERS, ROW[[0, 1, 2, 0]]), t(F.conv2d)),
    "conv2d stride": (
        lambda x, w: ad.conv2d(x, w, stride=(2, 1), padding=(0, 2)),
        (IMAGES, FILTERS),
        t(lambda x, w: F.conv2d(x, w, stride=(2, 1), padding=(0, 2))),
    ),
    "max_pool2d": (lambda x: ad.max_pool2d(x, 2), (IMAGES,), t(lambda x: F.max_pool2d(x, 2))),
    "max_pool2d overlap": (
        lambda x: ad.max_pool2d(x, 3, 2, 1),
        (IMAGES,),
        t(lambda x: F.max_pool2d(x, 3, 2, 1)),
    ),
    "avg_pool2d": (
        lambda x: ad.avg_pool2d(x, (3, 2), 2, 1),
        (IMAGES,),
        t(lambda x: F.avg_pool2d(x, (3, 2), 2, 1)),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_value(name):
    ours, args, reference = CASES[name]
    y = ours(*map(ad.stop_gradient, args))
    assert isinstance(y, ad.Var)
    assert y.creator is None  # of constants alone: a constant
    np.testing.assert_allclose(y.val, reference(*args), rtol=1e-12, atol=1e-14)


@pytest.mark.covers("A2")
@pytest.mark.parametrize("name", CASES)
def test_slopes_and_slopes_of_slopes(name):
    ours, args, _ = CASES[name]
    small = {4: np.s_[:2, :2, :4, :4], 1: np.s_[:2]} if "2d" in name else {}
    few = [arg[small.get(arg.ndim, ...)] for arg in args]  # differences are slow
    assert ad.gradcheck(ours, *few, order=2)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_precision_is_kept(name, dtype):
    ours, args, _ = CASES[name]
    xs = [ad.Var(arg.astype(dtype)) for arg in args]
    y = ours(*xs)
    assert y.dtype == (np.float64 if name == "astype" else dtype)
    y.backward(np.ones(y.shape))
    for x in xs:
        assert x.grad.shape == x.shape
        assert x.grad.dtype == dtype


def every(kind):
    """All kinds of Op there are."""
    for sub in kind.__subclasses__():
        yield sub
        yield from every(sub)


@pytest.mark.covers("A2")
def test_every_op_is_among_the_cases():
    used = {"identity"}  # what a derivative makes of its argument
    for ours, args, _ in CASES.values():
        y = ad.sum(ours(*map(ad.Var, args)))
        y.backward(create_graph=True)
        stack = [y] + [x.grad for x in leaves(y)]
        while stack:
            var = stack.pop()
            if isinstance(var, ad.Var) and var.creator is not None:
                used.add(var.creator.name)
                stack += var.creator
    ours = {kind.name for kind in every(Op) if kind.__module__.startswith("everynet.")}
    assert ours <= used


def leaves(y):
    found, stack = [], [y]
    while stack:
        var = stack.pop()
        if isinstance(var, ad.Var):
            stack += var.creator or ()
            found += [var] if var.creator is None else []
    return found


def test_ties_share_the_gradient_equally():
    x = ad.Var([3.0, 1.0, 3.0, 3.0])
    x.max().backward()
    np.testing.assert_array_equal(x.grad, [1 / 3, 0, 1 / 3, 1 / 3])
    x = ad.Var(np.zeros((1, 1, 2, 4)))
    ad.max_pool2d(x, 2).backward(np.array([[[[4.0, 8.0]]]]))
    np.testing.assert_array_equal(x.grad[0, 0], [[1, 1, 2, 2], [1, 1, 2, 2]])
    a, b = ad.Var(2.0), ad.Var(2.0)
    ad.minimum(a, b).backward()
    assert (a.grad, b.grad) == (0.5, 0.5)


def test_gradient_by_a_symmetric_matrix_is_symmetric():
    weights = np.tril(CUBE[0][:, :3])
    ours = ad.grad(lambda a: ad.sum(ad.cholesky(a) * weights))(SYMMETRIC)
    reference = torch.tensor(SYMMETRIC, requires_grad=True)
    (torch.linalg.cholesky(reference) * torch.as_tensor(weights)).sum().backward()
    np.testing.assert_allclose(ours, reference.grad.numpy(), rtol=1e-10)
    np.testing.assert_allclose(ours, ours.T)


TWICE = {
    "tan": (ad.tan, torch.tan, (SIGNED / 2,)),
    "sinh": (ad.sinh, torch.sinh, (SIGNED,)),
    "cosh": (ad.cosh, torch.cosh, (SIGNED,)),
    "norm": (ad.norm, torch.linalg.norm, (CUBE,)),
    "einsum": (
        lambda a, b: ad.einsum("bij,bkj->ik", a, b),
        lambda a, b: torch.einsum("bij,bkj->ik", a, b),
        (CUBE, CUBE[:, :2]),
    ),
}


@pytest.mark.parametrize("name", TWICE)
def test_second_derivatives_are_those_of_torch(name):
    """d/dx of the sum of squares of df/dx, where f is the sum of squares of the function."""
    ours, theirs, arrays = TWICE[name]
    first = ad.grad(lambda *xs: ad.sum(ad.square(ours(*xs))))
    second = ad.grad(lambda *xs: ad.sum(ad.square(first(*xs))))(*arrays)
    xs = [torch.tensor(x, requires_grad=True) for x in arrays]
    (once,) = torch.autograd.grad(theirs(*xs).square().sum(), xs[:1], create_graph=True)
    (twice,) = torch.autograd.grad(once.square().sum(), xs[:1])
    np.testing.assert_allclose(second, twice.numpy(), rtol=1e-10)


def test_slope_of_a_length_of_zero_is_zero():
    x = np.array([[0.0, 0.0], [3.0, 4.0]])
    slopes = ad.grad(lambda x: ad.sum(ad.norm(x, axis=1)))(x)
    np.testing.assert_allclose(slopes, [[0, 0], [0.6, 0.8]])
    at_zero = torch.zeros(2, requires_grad=True)
    torch.linalg.norm(at_zero).backward()
    np.testing.assert_array_equal(slopes[0], at_zero.grad.numpy())


def test_slopes_at_the_corners():
    for function, slope in ((ad.relu, 0), (ad.abs, 0), (lambda x: x**0, 0), (lambda x: x**2, 0)):
        assert ad.grad(function)(0.0) == slope
    assert ad.grad(ad.power, 1)(0.0, 2.0) == 0  # 0^b is flat in b
    assert ad.grad(ad.grad(lambda x: x**2))(0.0) == 2


def test_large_numbers_do_not_overflow():
    x = ad.Var(np.array([-1000.0, 0.0, 1000.0]))
    for f in (ad.sigmoid, ad.softplus, lambda x: ad.softmax(x, 0), lambda x: ad.logsumexp(x, 0)):
        x.zero_grad()
        y = f(x)
        y.backward(np.ones(y.shape))
        assert np.isfinite(y.val).all()
        assert np.isfinite(x.grad).all()
    np.testing.assert_allclose(ad.sigmoid(np.array([-50.0])).val, np.exp([-50.0]), rtol=1e-12)


def test_numpy_functions_take_vars():
    x = ad.Var(SIGNED)
    np.testing.assert_allclose(np.linalg.norm(x).val, np.linalg.norm(SIGNED))
    np.testing.assert_allclose(np.einsum("ij,ij", x, x, optimize=True).val, (SIGNED**2).sum())
    y = np.sum(np.where(x > 0, np.exp(x), np.concatenate([x[:1], x[1:]]) @ np.eye(3)))
    y.backward()
    np.testing.assert_allclose(x.grad, np.where(SIGNED > 0, np.exp(SIGNED), 1.0))
    z = SIGNED * x - np.float64(2.0) / x
    np.testing.assert_allclose(z.val, SIGNED**2 - 2 / SIGNED)
    assert isinstance(np.sign(x), np.ndarray)
    assert np.argmax(x) == 2
    assert np.shape(x) == (2, 3)


def test_methods_are_the_functions():
    x = ad.Var(CUBE)
    pairs = [
        (x.sum(1), CUBE.sum(1)),
        (x.mean((0, 1)), CUBE.mean((0, 1))),
        (x.var(0), CUBE.var(0)),
        (x.max(2), CUBE.max(2)),
        (x.min(), CUBE.min()),
        (x.T, CUBE.T),
        (x.transpose(2, 0, 1), CUBE.transpose(2, 0, 1)),
        (x.reshape(6, 4), CUBE.reshape(6, 4)),
        (x.reshape([24]), CUBE.reshape(24)),
        (x.astype(np.float32), CUBE.astype(np.float32)),
        (abs(x), np.abs(CUBE)),
        (3 - x, 3 - CUBE),
        (2 / x, 2 / CUBE),
        (np.stack(list(x)), CUBE),
    ]
    for ours, theirs in pairs:
        np.testing.assert_allclose(ours.val, theirs)
    assert len(x) == 2
    assert x.size == 24
    assert bool(ad.Var(1.0))
    for compare in ("__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__"):
        np.testing.assert_array_equal(getattr(x, compare)(0.1), getattr(CUBE, compare)(0.1))


def test_lists_and_numbers_are_arrays():
    np.testing.assert_array_equal(ad.add([1, 2], [3, 4]).val, [4, 6])
    np.testing.assert_array_equal(ad.add((1, 2), (3, 4)).val, [4, 6])
    assert ad.add(2.0, 3.0).shape == ()
    assert ad.exp(0).val == 1
    assert ad.cross_entropy([[1.0, 2.0]], [0]).shape == ()
    assert ad.matmul([[1.0, 2.0]], [[1.0], [2.0]]).val == 5
    assert ad.clip([0.0, 9.0], 1.0).val.tolist() == [1.0, 9.0]
    assert ad.clip(3.0).val == 3
