"""Dice and IoU against sets of pixels, and where nothing is there to be found."""

import pytest
import torch

from everynet.metrics.segmentation import dice, iou, pixel_confusion


def masks(seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(4, (3, 5, 7), generator=generator)


def test_confusion_counts_pixels_of_each_image():
    predicted, true = masks(0), masks(1)
    counts = pixel_confusion(predicted, true, 4)
    for image in range(3):
        for j in range(4):
            for k in range(4):
                wanted = ((true[image] == j) & (predicted[image] == k)).sum()
                assert counts[image, j, k] == wanted


@pytest.mark.parametrize("seed", range(4))
def test_dice_and_iou_are_those_of_sets(seed):
    predicted, true = masks(seed), masks(seed + 10)
    confusion = pixel_confusion(predicted, true, 4).sum(0)
    for k in range(4):
        a = {i for i, v in enumerate(predicted.flatten().tolist()) if v == k}
        b = {i for i, v in enumerate(true.flatten().tolist()) if v == k}
        assert dice(confusion)[k].item() == pytest.approx(2 * len(a & b) / (len(a) + len(b)))
        assert iou(confusion)[k].item() == pytest.approx(len(a & b) / len(a | b))


def test_all_right_none_right_and_nothing_there():
    true = torch.tensor([[[0, 1], [1, 0]]])
    right = pixel_confusion(true, true, 3)[0]
    assert dice(right).tolist() == iou(right).tolist() == [1.0, 1.0, 1.0]
    wrong = pixel_confusion(1 - true, true, 3)[0]
    assert dice(wrong).tolist() == iou(wrong).tolist() == [0.0, 0.0, 1.0]
