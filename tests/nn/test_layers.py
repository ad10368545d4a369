"""The table of layers against naive loops that count, published totals and gradients."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from everynet.nn.layers import activations, layer_table


def seen(model, channels, size, *, dtype=torch.float64):
    """How far the non-zero input gradient of the middle output reaches, along each axis."""
    model = model.to(dtype).eval()
    for parameter in model.parameters():
        nn.init.constant_(parameter, 0.1)  # nothing cancels
    x = torch.rand(1, channels, *size, dtype=dtype, requires_grad=True)
    y = model(x)
    middle = tuple(side // 2 for side in y.shape[2:])
    y[(0, 0, *middle)].backward()
    places = x.grad[0].sum(0).nonzero()
    return tuple((places.amax(0) - places.amin(0) + 1).tolist())


# --------------------------------------------------------------------------------- output size


@pytest.mark.covers("C4")
def test_output_size_formula():
    """floor((n + 2p - f) / s) + 1 for every size up to 32, and AlexNet's 227 -> 55."""
    sizes = itertools.product(range(1, 33), range(1, 8), range(4), range(1, 5))
    for n, f, p, s in sizes:
        if n + 2 * p >= f:
            x = torch.empty(1, 1, n, device="meta")
            kernel = torch.empty(1, 1, f, device="meta")
            made = torch.nn.functional.conv1d(x, kernel, stride=s, padding=p)
            assert made.shape[-1] == (n + 2 * p - f) // s + 1, (n, f, p, s)
    assert layer_table(nn.Conv2d(3, 96, 11, stride=4), (3, 227, 227))[0].shape == (96, 55, 55)
    for f in (1, 3, 5, 7):  # size is kept by p = (f - 1) / 2, with stride s by (ns - n - s + f) / 2
        same = nn.Conv2d(1, 1, f, padding=(f - 1) // 2)
        assert layer_table(same, (1, 9, 9))[0].shape == (1, 9, 9)
    strided = nn.Conv1d(1, 1, 5, stride=2, padding=(9 * 2 - 9 - 2 + 5) // 2)
    assert layer_table(strided, (1, 9))[0].shape == (1, 9)


# ----------------------------------------------------------------------------- multiplications


class Counted:
    """A number that counts the products it takes part in."""

    products = 0

    def __mul__(self, other):
        Counted.products += 1
        return Counted()

    def __add__(self, other):
        return Counted()


def numbers(*shape):
    return {place: Counted() for place in itertools.product(*map(range, shape))}


def count_convolution(channels, size, width, kernel, *, stride, padding, groups):
    """Seven nested loops; outside the image stand zeros, which are multiplied too."""
    Counted.products = 0
    x = numbers(channels, size + 2 * padding, size + 2 * padding)
    w = numbers(width, channels // groups, kernel, kernel)
    side = (size + 2 * padding - kernel) // stride + 1
    for k, i, j in itertools.product(range(width), range(side), range(side)):
        first = k // (width // groups) * (channels // groups)
        for c, u, v in itertools.product(range(channels // groups), range(kernel), range(kernel)):
            w[k, c, u, v] * x[first + c, stride * i + u, stride * j + v]
    return Counted.products


@pytest.mark.parametrize(
    ("stride", "padding", "groups"), [(1, 0, 1), (2, 1, 1), (1, 2, 2), (3, 1, 4)]
)
def test_products_of_a_convolution(stride, padding, groups):
    options = {"stride": stride, "padding": padding, "groups": groups}
    row = layer_table(nn.Conv2d(4, 8, 3, **options), (4, 7, 7))[0]
    assert row.multiplications == count_convolution(4, 7, 8, 3, **options)
    assert row.parameters == 8 * (4 // groups) * 9 + 8


def test_products_of_a_transposed_convolution():
    """Each input value meets each kernel once for each output channel of its group."""
    row = layer_table(nn.ConvTranspose2d(4, 6, 3, stride=2, groups=2), (4, 5, 5))[0]
    Counted.products = 0
    for _ in itertools.product(range(4), range(5), range(5), range(3), range(3), range(3)):
        Counted() * Counted()
    assert row.multiplications == Counted.products == 4 * 25 * 3 * 9


def test_products_of_a_linear_layer_at_every_place():
    assert layer_table(nn.Linear(7, 3), (7,))[0].multiplications == 21
    assert layer_table(nn.Linear(7, 3), (5, 7))[0].multiplications == 5 * 21


def fused(q, k, v):
    return nn.functional.scaled_dot_product_attention(q, k, v)


def fused_and_causal(q, k, v):
    return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def with_matmul(q, k, v):
    return (q @ k.mT / 2).softmax(-1).matmul(v)


def with_einsum(q, k, v):
    weights = torch.einsum("bhqd,bhkd->bhqk", q, k).softmax(-1)
    return torch.einsum("bhqk,bhkd->bhqd", weights, v)


def with_baddbmm(q, k, v):
    q, k, v = (part.flatten(0, 1) for part in (q, k, v))
    bias = q.new_zeros(len(q), q.shape[1], k.shape[1])
    return torch.bmm(torch.baddbmm(bias, q, k.mT).softmax(-1), v)[None]


class SelfAttention(nn.Module):
    """Attention of any form between one projection to q, k, v and one back."""

    def __init__(self, width, heads, form):
        super().__init__()
        self.into, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.heads, self.form = heads, form

    def forward(self, x):
        q, k, v = self.into(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return self.out(self.form(q, k, v).transpose(1, 2).flatten(2))


@pytest.mark.parametrize("heads", [1, 2])
@pytest.mark.parametrize("form", [fused, fused_and_causal, with_matmul, with_einsum, with_baddbmm])
def test_products_of_attention(form, heads):
    """n d (3 d + d) of the projections, n^2 d of queries with keys and of weights with values."""
    n, d = 5, 8
    found = layer_table(SelfAttention(d, heads, form), (n, d))
    assert found[-1][:5] == ("SelfAttention", "SelfAttention", (n, d), 0, 2 * n * n * d)
    assert found.multiplications == 4 * n * d * d + 2 * n * n * d
    assert found.functions == []


@pytest.mark.parametrize("need_weights", [True, False])
def test_products_of_attention_between_two_sequences(need_weights):
    """n queries of width d meet m keys of width k and values of width v, given by name."""

    class Between(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = nn.MultiheadAttention(8, 2, kdim=6, vdim=3, batch_first=True)

        def forward(self, x):
            ways = {"key": x[:, 1:, :6], "value": x[:, 1:, :3], "need_weights": need_weights}
            return self.attention(query=x, **ways)[0]

    n, m, d, k, v = 5, 4, 8, 6, 3
    found = layer_table(Between(), (n, d))
    assert [row.name for row in found] == ["attention"]
    assert found.multiplications == 2 * n * d * d + m * k * d + m * v * d + 2 * n * m * d


def test_products_of_the_transformer_of_torch():
    """In eval mode it would compute a layer as one function; its rows are there all the same."""
    n, d, hidden = 5, 8, 16
    layer = nn.TransformerEncoderLayer(d, 2, hidden, batch_first=True)
    found = layer_table(nn.TransformerEncoder(layer, 3).eval(), (n, d))
    attention = [row.multiplications for row in found if row.kind == "MultiheadAttention"]
    assert attention == [4 * n * d * d + 2 * n * n * d] * 3
    linear = [row.multiplications for row in found if row.kind == "Linear"]
    assert linear == [n * d * hidden] * 6


def test_products_with_a_vector():
    class Vector(nn.Module):
        def forward(self, x):
            matrix, vector = x.new_empty(3, 8), x[0]
            return (vector @ vector + matrix @ vector + torch.addmv(matrix[:, 0], matrix, vector))[
                None
            ]

    assert layer_table(Vector(), (8,)).multiplications == 8 + 3 * 8 + 3 * 8


def test_products_stand_with_the_module_that_computes_them_at_each_call():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = SelfAttention(8, 2, fused)

        def forward(self, x):
            return self.inner(self.inner(x)[:, :3]) @ x.new_empty(8, 7)

    rows = [row for row in layer_table(Twice(), (5, 8)) if row.kind != "Linear"]
    assert [(row.name, row.multiplications) for row in rows] == [
        *(("inner", 2 * 25 * 8), ("inner", 2 * 9 * 8), ("Twice", 3 * 8 * 7)),
    ]


def count_norm(values, groups, *, gain):
    """Mean, variance, 1 / sigma and gain, each product written out."""
    Counted.products = 0
    for _ in range(groups):
        total = Counted()
        total * Counted()  # mean = sum / n
        for _ in range(values // groups):
            Counted() * Counted()  # the square of a deviation
        total * Counted()  # variance = sum / n
        for _ in range(values // groups):
            normed = Counted() * Counted()  # times 1 / sigma
            if gain:
                normed * Counted()
    return Counted.products


@pytest.mark.parametrize("gain", [True, False])
def test_products_of_norms(gain):
    layer = nn.LayerNorm(6, elementwise_affine=gain)
    assert layer_table(layer, (5, 6))[0].multiplications == count_norm(30, 5, gain=gain)
    group = nn.GroupNorm(2, 4, affine=gain)
    assert layer_table(group, (4, 3, 3))[0].multiplications == count_norm(36, 2, gain=gain)
    assert layer_table(nn.BatchNorm2d(4, affine=gain), (4, 3, 3))[0].multiplications == 36


def test_products_of_pools():
    assert layer_table(nn.AvgPool2d(2), (3, 8, 6))[0].multiplications == 3 * 4 * 3
    assert layer_table(nn.MaxPool2d(2), (3, 8, 6))[0].multiplications == 0
    assert layer_table(nn.AdaptiveAvgPool2d(1), (3, 8, 6))[0].multiplications == 3


def stacked(plan, channels):
    """Conv layers 3x3 of these widths with rectifiers, a max pool for each "M"."""
    layers = []
    for width in plan:
        if width == "M":
            layers.append(nn.MaxPool2d(2))
        else:
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()]
            channels = width
    return layers


VGG16 = [64, 64, "M", 128, 128, "M", *[256] * 3, "M", *[512] * 3, "M", *[512] * 3, "M"]


def total(model, shape):
    rows = layer_table(model, shape)
    return sum(row.multiplications for row in rows), sum(row.parameters for row in rows)


@pytest.mark.covers("C14")
def test_published_totals():
    """VGG-16, AlexNet without groups and the two inception modules of the notes."""
    head = [nn.Flatten(), nn.Linear(25088, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU()]
    with torch.device("meta"):
        vgg = nn.Sequential(*stacked(VGG16, 3), *head, nn.Linear(4096, 1000))
        assert total(vgg, (3, 224, 224)) == (15_470_264_320, 138_357_544)
        alex = nn.Sequential(
            *(nn.Conv2d(3, 96, 11, stride=4), nn.ReLU(), nn.MaxPool2d(3, 2)),
            *(nn.Conv2d(96, 256, 5, padding=2), nn.ReLU(), nn.MaxPool2d(3, 2)),
            *(nn.Conv2d(256, 384, 3, padding=1), nn.Conv2d(384, 384, 3, padding=1)),
            *(nn.Conv2d(384, 256, 3, padding=1), nn.MaxPool2d(3, 2), nn.Flatten()),
            *(nn.Linear(9216, 4096), nn.Linear(4096, 4096), nn.Linear(4096, 1000)),
        )
        multiplications, parameters = total(alex, (3, 227, 227))
        assert round(multiplications / 1e9, 3) == 1.135
        assert parameters == 62_378_344
        naive = [(256, 128, 1), (256, 192, 3), (256, 96, 5)]
        narrow = [(256, 128, 1), (256, 64, 1), (64, 192, 3), (256, 64, 1), (64, 96, 5)]
        narrow.append((256, 64, 1))  # after the pool
        for branches, expected in ((naive, 854_196_224), (narrow, 271_351_808)):
            convolutions = [nn.Conv2d(a, b, k, padding=k // 2) for a, b, k in branches]
            assert sum(total(c, (c.in_channels, 28, 28))[0] for c in convolutions) == expected


# ----------------------------------------------------------------------------- receptive field

sliding = st.tuples(
    st.sampled_from(["conv", "avg"]), st.integers(1, 4), st.integers(1, 3), st.integers(1, 3)
)


@pytest.mark.covers("C7")
@settings(max_examples=25)
@given(stack=st.lists(sliding, min_size=1, max_size=4))
def test_receptive_field_is_where_the_gradient_is_not_zero(stack):
    layers = [
        nn.Conv1d(1, 1, kernel, stride, dilation=dilation)
        if kind == "conv"
        else nn.AvgPool1d(kernel, stride)
        for kind, kernel, stride, dilation in stack
    ]
    model = nn.Sequential(*layers)
    row = layer_table(model, (1, 2000))[-1]
    assert row.receptive_field == seen(model, 1, (2000,))


@pytest.mark.covers("C7")
def test_receptive_fields_of_known_stacks():
    three = nn.Sequential(*(nn.Conv2d(1, 1, 3) for _ in range(3)))
    assert layer_table(three, (1, 20, 20))[-1].receptive_field == (7, 7) == seen(three, 1, (20, 20))
    vgg = nn.Sequential(*stacked([8, 8, "M", 8, 8, "M", 8, 8, 8, "M"], 3))
    for layer in vgg:
        if isinstance(layer, nn.MaxPool2d):
            layer.__class__ = nn.AvgPool2d  # the gradient of a maximum reaches one pixel only
            layer.ceil_mode, layer.count_include_pad, layer.divisor_override = False, True, None
    assert layer_table(vgg, (3, 96, 96))[-1].receptive_field == seen(vgg, 3, (96, 96)) == (44, 44)
    waves = nn.Sequential(*(nn.Conv1d(1, 1, 2, dilation=2**i) for i in range(10)))
    assert layer_table(waves, (1, 3000))[-1].receptive_field == seen(waves, 1, (3000,)) == (1024,)
    oblong = nn.Sequential(nn.Conv2d(1, 1, (1, 7), stride=(2, 1)), nn.Conv2d(1, 1, (3, 2)))
    assert (
        layer_table(oblong, (1, 30, 30))[-1].receptive_field == (5, 8) == seen(oblong, 1, (30,) * 2)
    )


class Branches(nn.Module):
    """A block whose longer path decides what it sees."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(1, 4, 3, padding=1, stride=2)
        self.wide = nn.Conv2d(4, 4, 5, padding=2)
        self.norm = nn.BatchNorm2d(4)
        self.last = nn.Conv2d(8, 2, 3, padding=1)

    def forward(self, x):
        h = self.first(x).relu()
        return self.last(torch.cat([h, self.norm(self.wide(h)).relu() + h], 1))


def test_the_longest_path_counts():
    rows = {row.name: row.receptive_field for row in layer_table(Branches(), (1, 40, 40))}
    assert rows == {"first": (3, 3), "wide": (11, 11), "norm": (11, 11), "last": (15, 15)}
    assert seen(Branches(), 1, (40, 40)) == (15, 15)


def test_what_sees_the_whole_image():
    model = nn.Sequential(
        nn.Conv2d(1, 2, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2, 2)
    )
    fields = [row.receptive_field for row in layer_table(model, (1, 12, 9))]
    assert fields == [(3, 3), (12, 9), (12, 9), (12, 9)]
    shared = nn.Sequential(nn.Conv2d(1, 2, 3), nn.AdaptiveMaxPool2d((5, 2)))
    assert layer_table(shared, (1, 12, 8))[-1].receptive_field == (4, 5)
    uneven = nn.Sequential(nn.Conv2d(1, 2, 3), nn.AdaptiveMaxPool2d(4))
    assert layer_table(uneven, (1, 12, 12))[-1].receptive_field is None


class Small(nn.Module):
    """A U: down by a pool, up again, joined with what was there before."""

    def __init__(self, up):
        super().__init__()
        self.first = nn.Conv2d(1, 2, 3, padding=1)
        self.pool = nn.AvgPool2d(4)
        self.bottom = nn.Conv2d(2, 2, 3, padding=1)
        self.up = up
        self.last = nn.Conv2d(4, 2, 3, padding=1)

    def forward(self, x):
        h = self.first(x)
        return self.last(torch.cat([h, self.up(self.bottom(self.pool(h)))], 1))


@pytest.mark.parametrize(
    ("up", "field"),
    [
        (nn.ConvTranspose2d(2, 2, 4, 4), 16),
        (nn.Upsample(scale_factor=4), 16),
        (nn.ConvTranspose2d(2, 2, 8, 4, padding=2), 20),
    ],
)
def test_the_field_where_an_image_grows(up, field):
    """Of the four places of a coarse cell those at its border see more: their mean is counted."""
    model = Small(up).double().eval()
    rows = {row.name: row.receptive_field for row in layer_table(model, (1, 48, 48))}
    assert [rows[name] for name in ("first", "pool", "bottom")] == [(3, 3), (6, 6), (14, 14)]
    assert rows["up"] == (field - 2, field - 2)
    assert rows["last"] == (field, field)
    for parameter in model.parameters():
        nn.init.constant_(parameter, 0.1)
    x = torch.rand(1, 1, 48, 48, dtype=torch.float64, requires_grad=True)
    sizes = []
    for phase in range(4):
        (gradient,) = torch.autograd.grad(model(x)[0, 0, 24 + phase, 24], x)
        places = gradient[0, 0].sum(1).nonzero()
        sizes.append(int(places.max() - places.min()) + 1)
    assert sum(sizes) / 4 == field


def test_an_image_made_of_numbers_has_no_field():
    made = nn.Sequential(
        nn.Linear(4, 8),
        nn.Unflatten(1, (2, 2, 2)),
        nn.ConvTranspose2d(2, 3, 2, 2),
        nn.Conv2d(3, 1, 1),
    )
    rows = layer_table(made, (4,))
    assert rows[-1].shape == (1, 4, 4)
    assert [row.receptive_field for row in rows] == [None] * 4


class Hidden(nn.Module):
    """Convolves by a function, which no table can notice."""

    def __init__(self):
        super().__init__()
        self.kernel = nn.Parameter(torch.ones(1, 1, 3, 3))
        self.after = nn.Conv2d(1, 1, 3)

    def forward(self, x):
        return self.after(torch.nn.functional.conv2d(x, self.kernel))


def test_nothing_is_guessed():
    after, hidden = layer_table(Hidden(), (1, 9, 9))
    assert after.multiplications == 25 * 9
    assert after.receptive_field is None
    assert (hidden.parameters, hidden.multiplications) == (9, None)
    blown_up = layer_table(
        nn.Sequential(nn.Conv2d(1, 1, 3), nn.Upsample(scale_factor=2)), (1, 9, 9)
    )
    assert blown_up[-1][4:6] == (None, None)
    assert layer_table(Hidden(), (1, 9, 9)).functions == ["conv2d in Hidden"]
    assert layer_table(nn.Sequential(nn.Linear(4, 3), nn.Tanh()), (4,))[-1].receptive_field is None


class Mean(nn.Module):
    """A global average written as a function, beside a layer of torch made anew."""

    class Conv(nn.Conv2d):
        def forward(self, x):
            return torch.nn.functional.conv2d(x, self.weight, self.bias)

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(self.Conv(1, 2, 3), Pooled())
        self.output = nn.Linear(2, 2)

    def forward(self, x):
        return self.output(self.body(x).mean((2, 3)))


class Squeezed(nn.Module):
    """Every pixel is weighed by what the whole image is like."""

    def __init__(self):
        super().__init__()
        self.gate, self.last = nn.Conv2d(1, 1, 1), nn.Conv2d(1, 1, 3)

    def forward(self, x):
        return self.last(x * self.gate(x.mean((2, 3), keepdim=True)))[..., :1, :1]


class Pooled(nn.Module):
    def forward(self, x):
        return torch.nn.functional.max_pool2d(x, 2).relu()


def test_functions_are_named_where_they_are_called():
    found = layer_table(Mean(), (1, 12, 9))
    assert found.functions == ["max_pool2d in body.1"]
    assert [row.kind for row in found] == ["Conv", "Pooled", "Linear"]
    assert found[0].receptive_field == (3, 3)
    assert found[1].receptive_field is None
    assert found[2].receptive_field == (12, 9), "a mean over all pixels sees them all"
    squeezed = layer_table(Squeezed(), (1, 12, 9))
    assert [row.receptive_field for row in squeezed] == [(12, 9), (14, 11)]
    assert [row.kernel for row in squeezed] == [(1, 1), (3, 3)]
    assert str(found).endswith("\nnot counted, because called as functions: max_pool2d in body.1")
    assert layer_table(nn.TransformerEncoderLayer(8, 2, batch_first=True), (5, 8)).functions == []


# ------------------------------------------------------------------------------------- memory


def test_memory_is_four_bytes_for_each_number_that_is_new():
    model = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Dropout(0.5),
        nn.Identity(),
        nn.Flatten(),
        nn.Linear(4 * 9, 5).double(),
    ).double()
    rows = layer_table(model, (1, 6, 6))
    assert [row.memory for row in rows] == [4 * 144, 0, 4 * 36, 0, 0, 0, 4 * 5]
    assert rows.memory == 4 * (144 + 36 + 5)
    lstm = layer_table(nn.LSTM(3, 5, batch_first=True), (7, 3))
    assert lstm.memory == 4 * (7 * 5 + 2 * 5), "states that come out beside the first are kept too"


def test_memory_of_vgg():
    """13.6 million numbers after the convolutions, 1.5 after the pools, and three vectors."""
    with torch.device("meta"):
        vgg = nn.Sequential(*stacked(VGG16, 3), nn.Flatten(), nn.Linear(25088, 4096))
    rows = layer_table(vgg, (3, 224, 224))
    maps = 2 * 64 * 224**2 + 2 * 128 * 112**2 + 3 * 256 * 56**2 + 3 * 512 * 28**2 + 3 * 512 * 14**2
    pools = 64 * 112**2 + 128 * 56**2 + 256 * 28**2 + 512 * 14**2 + 512 * 7**2
    assert rows.memory == 4 * (2 * maps + pools + 4096)  # convolution and rectifier


# -------------------------------------------------------------------------------------- in words


def test_the_table_in_words():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(32, 3))
    assert str(layer_table(model, (1, 6, 6))).splitlines() == [
        "layer  kind     output     bytes  parameters  multiplications  sees",
        "0      Conv2d   2 x 4 x 4    128          20              288  3 x 3",
        "1      ReLU     2 x 4 x 4    128           0                0  3 x 3",
        "2      Flatten  32             0           0                0  3 x 3",
        "3      Linear   3             12          99               96  6 x 6",
        "119 parameters",
        "384 multiplications for one sample",
        "268 bytes of activations for one sample in fp32",
    ]


class Auxiliary(nn.Module):
    """A second head that is for training only, and a layer without a formula."""

    def __init__(self):
        super().__init__()
        self.body, self.head, self.second = nn.Linear(2, 3), nn.Bilinear(3, 3, 1), nn.Linear(3, 4)

    def forward(self, x):
        h = self.body(x)
        return (self.head(h, h), self.second(h)) if self.training else self.head(h, h)


def test_totals_say_what_they_leave_out():
    found = layer_table(Auxiliary(), (2,))
    assert list(found.foot())[:2] == [
        "35 parameters, 16 of them in layers that were not called",
        "6 multiplications for one sample, and those of layers marked -",
    ]


# ------------------------------------------------------------------------------------- the rest


def test_the_network_is_left_as_it_was():
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Dropout(), nn.Flatten())
    model[2].eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    layer_table(model, (1, 5, 5))
    assert [module.training for module in model.modules()] == modes
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(module._forward_hooks for module in model.modules())
    with pytest.raises(RuntimeError):
        layer_table(model, (2, 5, 5))
    assert [module.training for module in model.modules()] == modes
    assert not any(module._forward_hooks for module in model.modules())


def test_shared_and_uncalled_parameters_are_counted_once():
    first = nn.Linear(3, 3)
    model = nn.Sequential(first, nn.Tanh(), first)
    assert [row.parameters for row in layer_table(model, (3,))] == [12, 0, 0]
    attention = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    counted = sum(row.parameters for row in layer_table(attention, (5, 8)))
    assert counted == sum(p.numel() for p in attention.parameters())


class Tied(nn.Module):
    """The weights that give a token its vector score it as an answer."""

    def __init__(self):
        super().__init__()
        self.embed, self.output = nn.Embedding(7, 3), nn.Linear(3, 7, bias=False)
        self.output.weight = self.embed.weight

    def forward(self, x):
        return self.output(self.embed(x)) + self.embed(x) @ self.embed.weight.mT


def test_tied_weights_are_counted_once_and_multiplied_each_time():
    found = layer_table(Tied(), (5,), dtype=torch.int64)
    assert [row.parameters for row in found] == [21, 0, 0, 0]
    assert [row.multiplications for row in found] == [0, 5 * 21, 0, 5 * 21]
    assert next(found.foot()) == "21 parameters"


def test_a_network_too_large_for_any_memory():
    """77,309,804,544 parameters, the example of the notes."""
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(196608, 196608), nn.Tanh(), nn.Linear(196608, 196608))
    rows = layer_table(model, (196608,))
    assert sum(row.parameters for row in rows) == 77_309_804_544
    assert sum(row.multiplications for row in rows) == 2 * 196608**2


def test_activations_are_those_of_the_named_modules():
    model = nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.Tanh(), nn.Linear(4, 2)))
    x = torch.randn(5, 3)
    found = activations(model, x, ["1.0", "0"])
    assert list(found) == ["0", "1.0"]
    torch.testing.assert_close(found["1.0"], model[0](x).tanh())
    assert list(activations(model, x)) == ["0", "1"]
    assert not any(module._forward_hooks for module in model.modules())
    with pytest.raises(
        ValueError, match=r"names \(conv\) must be modules of Sequential, which are"
    ):
        activations(model, x, ["conv", "0"])
