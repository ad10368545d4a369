"""CIFAR-10, whole and the first images of each class: colour images of 32x32 in 10 classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from everynet.data.download.contents import Content
from everynet.data.sets import Form, Known, Web

_THINGS = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)


def _binary(held: Sequence[bytes]) -> Any:  # noqa: ANN401 -- samples
    from everynet.data import cifar  # noqa: PLC0415 -- torch only where it is needed
    from everynet.data.samples import published  # noqa: PLC0415

    return published(cifar.binary(held[:-1]), cifar.binary(held[-1:]), _THINGS)


def _strips(held: Sequence[bytes]) -> Any:  # noqa: ANN401 -- samples
    from everynet.data import cifar  # noqa: PLC0415
    from everynet.data.samples import published  # noqa: PLC0415

    train, test = cifar.strips(held[:50]), cifar.strips(held[50:60])
    y = cifar.labels(held[60], len(train) + len(test))
    return published((train, y[: len(train)]), (test, y[len(train) :]), _THINGS)


def _first(held: Sequence[bytes]) -> Any:  # noqa: ANN401 -- samples
    from everynet.data import cifar  # noqa: PLC0415
    from everynet.data.samples import published  # noqa: PLC0415

    train = cifar.first_of_each(*cifar.binary(held[:-1]), cifar.SMALL_TRAIN)
    test = cifar.first_of_each(*cifar.binary(held[-1:]), cifar.SMALL_TEST)
    return published(train, test, _THINGS)


def _arrays(held: Sequence[bytes]) -> Any:  # noqa: ANN401 -- samples
    from everynet.data import cifar  # noqa: PLC0415
    from everynet.data.samples import published  # noqa: PLC0415

    return published(cifar.npy(held[0], held[1]), cifar.npy(held[2], held[3]), _THINGS)


def _batches(*sums: str) -> tuple[Content, ...]:
    """The six files of CIFAR-10."""
    names = (*(f"data_batch_{number}.bin" for number in range(1, 6)), "test_batch.bin")
    return tuple(
        Content(name, 30_730_000, digest) for name, digest in zip(names, sums, strict=True)
    )


_CIFAR10 = Form(
    folder="cifar10",
    decode=_binary,
    # Computed from the images themselves, which we had without loss in another packing, and equal
    # to what TorchVision for Ruby publishes; the archive's is what TensorFlow Datasets publishes.
    contents=_batches(
        "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
        "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
        "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
        "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
        "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
        "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
    ),
    sources=(Web("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"),),
    archive=Content(
        "cifar-10-binary.tar.gz",
        170_052_171,
        "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    ),
    unpacked="cifar-10-batches-bin",
)

_SMALL = Form(
    folder="cifar10",
    decode=_arrays,
    contents=(
        Content(
            "x_train.npy",
            30_720_128,
            "8ab6f11fdcdc153128fa66e3bb42e764dc203a5dff68373b93be2ff808db2fed",
        ),
        Content(
            "y_train.npy",
            10_128,
            "cba410e970bb6758fc8e44d1ab28c3ef892288cdca663954d485a251045c6f0a",
        ),
        Content(
            "x_test.npy",
            6_144_128,
            "b124c2bc5c43d6001d0d2fccfe48c21ccc76e35548cc47adbb36c94ffe266dc1",
        ),
        Content(
            "y_test.npy",
            2_128,
            "8c3d7460042ec61e77b8efa0cae18ccea8c28f48da76df283cf57d91d926cd42",
        ),
    ),
    archive=Content(
        "cifar10_subset_10k_2k.npz",
        33_942_412,
        "ed0741e8149f363e37eb9f647a74bfc54075142d7312f5844cfaf3251bbbf100",
    ),
)

_WHOLE_SUMS = """
1664552 caf63ce2e9e04039acf5a7745429dce0bc5f271409e52f452f1600ce0f64a3e4
1671524 cd1032c7ff2fd227ae77d89887a4415bda8abe3fe38d594f80268ade5f9f6408
1649924 587856dc59d6b721a1e8b92b931d992433aba9bd5a3befde3d4ec844fa186ec7
1665146 fdd3bec7a4092db840bebc4fb54090805179482f15bd6a3629e563912147ea2b
1640886 6fea172a86a1a19f6b7671a4fc7a48e3ea5e9f91660f092978f6f35544c6c20e
1641654 3d981fa4b18d3f64c43cf2258cf2603e7fced684d0c24eae0ed2ef7ec6247ac7
1671800 334482f43586923a3211d5427b361e1fc7bf94c69f3c8ddbba3cd5eabb6ee049
1655708 c39c63231d95a2d10ed71c7cd4fd1f24c52887621ccfbcc344fd42cbd1aa7d35
1644188 38d53454b4f0ef068f22b4d34360d57632052bc7db71a6364b0b3567ff546c4a
1643992 9dbf5993b90cd1231d958934ff8363f91affb30c211c9a8941e4d79d0f748b69
1644114 349541b008294b6efa6ebb31706e2587a4954f2ae24748a752bc0f61a058e34b
1657416 899fafb0d0027eb0c68962bbc1e15724eb396a6488acefeccf89ef5674db5000
1661654 c5da6f67d13bab7f1300b55b8eef12868825af63d5a2a47fcb191a6c657952f0
1655074 45a372c3434e565bc0553f17d528582e8aaf51808fc849bce22b34ca060a5b2d
1669366 bab1b86bfdadf4ee50ccf363664eee0d4d7b7f09e8674a9c41a290618b2ecea5
1658466 8192a5ec3f7755566eae32185d5405fcca39551cbec5ac28750e93da3feff171
1650658 5546db3d69a1722e5a01d0f7893ef6083b2e5a1ff2a13123e74ec77e659988d3
1666732 e310c5e79f5ae0a1318db5f1e2919109e026ad08bb3c799a998125244cb0c5a1
1662724 115668d43b4fd9730530f1ff74d62ee5665a899e7ccd1a0846c2c6b374e4f39d
1661252 391e9d89894bd0c9ea24d0f662bc1316b3d9673fe0569b6ebee5ab48bbf61549
1651198 b157082c5165d39a1fd17a89df6c13bf7938680e062ae94d693d59ef6fef5c93
1645752 6cdd0acae5751adebbb61c9983a5966304d728c1b3c85ecd17ab7ec2adfa97bd
1660260 a55f2acaf3dd162d3f95ee680986322cbb8f746e2980f3e86d5d574fca3275f3
1668570 40cd7ea9ea183db2a26d129a08cd17c2b9c94620a3c1892cdb37ab7932320668
1660558 fa2a79023223ec22103d59823db7fa09316fa8c45348b0917bbb09fb69e4f832
1654752 9defe822d17956052f7eddd89ba4dd9dae20b8fdbf7fcd189d9e604bdd16ca35
1663656 2301be9e4a9037cdce665f17f4fa3a1ce72c607d335cd68157ff1f67936eeaca
1654562 869108f52ebb70c1c67af9d26222de638878717f2866fde7401c0ce49b858313
1667316 09816ae7893caa426a744e94c83af3025770b4a011b3bb7c2fa420994a9e851a
1662296 471fe7367aedebed747ac0ad2edbce1e62aad4f2288f612d7083eda77c91a5ee
1672984 b2f2336c102fbf18debbcbd4129b48fbd59ae702bf086ffffeceddb2eebafced
1652170 e5b4e0dac3c6e09a537670b7dc1d61863bcfed9bd30b70fa8f70dbf3bd89bcb2
1660890 33c4cfff8abb65abbd4fe2cde860cb2de7001d918cbdb8fe12744e95a4b54620
1654162 16efdfabe1c839c82fd05f42445c34e87085d62fca619a5d6ddfe36980b57a03
1666878 451663c8c68b450e20d08e55ce45f7f4c09f4a0bf30ddd49d783edbb4ccc803d
1650536 ebb338c9926d2ee903862cc5d1c5f37adc5a0653396ea8c4f4fa60d658a28cb9
1659252 2a94d088060c0c5b6b75c9393aa092072a706ea4f53ccfab71a04df1c294c48a
1658634 df427183e1a91e94a47bab2790df9ff470d43e90d31e487eebabc542792fa361
1648870 ff20e25d49e91c35de1fbc7763809c0a77fd97566528233fa5673e338750e563
1646592 ba756c93660deb0f88a319ba965c0c59dc73b78a71a3cb868d343829f40d6adc
1658488 86391bd5c76696a4d6178ab0f46d86c51e809f47d090bff0c787db87923734b8
1656768 82f9679dbd5186120013feee6cd5c0ebd6d15cf0f8b0d1d87c1f971b8bdbb171
1648172 778ec7bf52a0616875938ee06f5f0a34d088ff3ba075519caafa6391c6b72183
1660320 fec1bb4c2eb0fbee96470195fa58da0299a5c49a132c300d2db22113b778a675
1650332 2bda740bf773f98dce55879c4940be84a8e1ad4167c409f2163048a225e1a420
1665792 b8116b94af1a504b2c2934e1977f494157d1920dadf82b95edf641067d9cfad8
1657752 3f0a46e838a91c0d608fe15ec84314a644257534058d14c24c7c6a65eb589884
1649676 9941d7be6edf79da8111d2c486c84257085cb123434611a9362c67e8e7d8e5e5
1649448 0fb12bbf46b3f37e733b249f90857dd43740ee6c33c08f8be6864666db674e6b
1653474 aaed53d5c9db60c2aa14ec82d109fba7e14a640d7ddeb2c4dee720b782ad54a9
1662906 84aa09a776b0559728ddee6f0e495bbd98deaabf72081b9f0ad1a473356b24d0
1659788 66a90d51e2087ac4a32364d9a1da12e578782608badc0b4ce1ab8959fbfd2a45
1649992 855a70c0653e2dab21112b95779f7829569e07c2ab0dde5afe33c1575752aaa4
1655908 586fb379f992c00daa71d5ba0c4a3047435f210c5fe483c9370cce0df36f6c83
1660900 63a18d2d7a0efeb550c8e89215f634a388156b126fc3d5edfc9dac77ecdcbee9
1659550 9a6ed5ad2c667ece57be971093cfe46deea5fbc2d978e26ac78c0f220be9d83f
1648256 620b229d9afe08946e407182dafaedd76901e5b083083e2647b4a8d06d4c2147
1664298 daedd3288b94349e087f9e010b000fe9057ebaac9debab3f27dc5a8d9f447747
1663238 39bc4b28e7c476e150876f76c3837a15141ca01ce03879420cd994dda7e65c7e
1652534 b34ee9ff070c47cd80cb15021b2fb80eb0e65bc6f92e19366b81be23b1fb59de
60128 0066c48b0955bbc1b1ba22a9133f597afe1d5ed01235d0f4f28340c9f8eb5a3c
"""
"""Bytes and SHA-256 of train-00.webp to train-49.webp, test-0.webp to test-9.webp, labels.npy."""

_WHOLE = Form(
    folder="cifar10-whole",
    decode=_strips,
    contents=tuple(
        Content(name, int(line.split()[0]), line.split()[1])
        for name, line in zip(
            (
                *(f"train-{number:02}.webp" for number in range(50)),
                *(f"test-{number}.webp" for number in range(10)),
                "labels.npy",
            ),
            _WHOLE_SUMS.strip().splitlines(),
            strict=True,
        )
    ),
)
"""The same images in strips without loss, a thousand to a file."""

SETS = (
    Known(
        name="cifar10",
        kind="image",
        about="things and animals: 50,000 + 10,000 colour images of 32x32",
        licence="none stated; cite Krizhevsky (2009)",
        forms=(_CIFAR10, _WHOLE),
    ),
    Known(
        name="cifar10-small",
        kind="image",
        about="the first 1,000 + 200 images of each class of cifar10",
        licence="as cifar10",
        forms=(_SMALL, replace(_CIFAR10, decode=_first)),
    ),
)
