import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics as sk
from sklearn.metrics import accuracy_score, confusion_matrix

from everynet.metrics import (
    accuracy,
    balanced_accuracy,
    confusion,
    macro_f1,
    majority_accuracy,
    name_classes,
    precision_recall_f1,
    predict_class,
)


@given(seed=st.integers(0, 10_000), samples=st.integers(1, 40), classes=st.integers(2, 6))
@settings(max_examples=25)
def test_equal_to_scikit_learn(seed, samples, classes):
    random = torch.Generator().manual_seed(seed)
    logits = torch.randn(samples, classes, generator=random)
    targets = torch.randint(classes, (samples,), generator=random)
    predicted = logits.argmax(1)
    reference = confusion_matrix(targets, predicted, labels=range(classes))
    assert confusion(predict_class(logits), targets, classes).tolist() == reference.tolist()
    share = accuracy(logits, targets).mean().item()
    assert share == pytest.approx(accuracy_score(targets, predicted))


def test_one_logit_tells_two_classes_by_its_sign():
    logits, targets = torch.tensor([[-2.0], [3.0], [0.5]]), torch.tensor([0, 0, 1])
    assert predict_class(logits).tolist() == [0, 1, 1]
    assert accuracy(logits, targets).tolist() == [1.0, 0.0, 1.0]


def test_a_single_logit_of_exactly_0_is_the_first_class():
    """The sigmoid is 1/2 there, and the second class has to be the likelier one."""
    logits = torch.tensor([[0.0], [-0.0], [1e-30]])
    assert predict_class(logits).tolist() == [0, 0, 1]


def test_true_classes_are_rows():
    counts = confusion(torch.tensor([1, 1, 2]), torch.tensor([0, 0, 2]), 3)
    assert counts.tolist() == [[0, 2, 0], [0, 0, 0], [0, 0, 1]]


def test_labels_beyond_the_classes_are_refused():
    with pytest.raises(ValueError, match=r"targets \(0 to 3\) must be at least 0 and below 3"):
        confusion(torch.tensor([0, 1]), torch.tensor([0, 3]), 3)
    with pytest.raises(ValueError, match=r"predicted \(-1 to 1\) must be at least 0"):
        confusion(torch.tensor([-1, 1]), torch.tensor([0, 1]), 3)


def test_a_class_that_was_predicted_and_never_occurs_counts_in_macro_f1():
    """As in scikit-learn, whose classes are those of either; one in neither counts nowhere."""
    y, p = torch.tensor([0, 0, 0, 1]), torch.tensor([0, 0, 2, 1])
    counts = confusion(p, y, 5)
    assert macro_f1(counts) == pytest.approx((0.8 + 1 + 0) / 3)
    assert macro_f1(counts) == pytest.approx(sk.f1_score(y, p, average="macro"))
    assert balanced_accuracy(counts) == pytest.approx((2 / 3 + 1) / 2)


@given(seed=st.integers(0, 10_000), samples=st.integers(1, 40), classes=st.integers(2, 6))
@settings(max_examples=25, deadline=None)
@pytest.mark.filterwarnings("ignore:y_pred contains classes not in y_true")
@pytest.mark.filterwarnings("ignore:A single label was found")
def test_figures_that_weigh_classes_alike_equal_scikit_learns(seed, samples, classes):
    random = torch.Generator().manual_seed(seed)
    y, p = torch.randint(classes, (2, samples), generator=random)
    counts, true, said = confusion(p, y, classes), y.numpy(), p.numpy()
    found = sk.precision_recall_fscore_support(true, said, labels=range(classes), zero_division=0)
    for name, expected in zip(("precision", "recall", "f1"), found, strict=False):
        assert precision_recall_f1(counts)[name].tolist() == pytest.approx(expected.tolist())
    assert balanced_accuracy(counts) == pytest.approx(sk.balanced_accuracy_score(true, said))
    assert macro_f1(counts) == pytest.approx(
        sk.f1_score(true, said, average="macro", zero_division=0)
    )
    assert majority_accuracy(counts) == torch.bincount(y).max().item() / samples


def test_a_threshold_decides_what_is_answered():
    p = torch.tensor([[0.9, 0.1], [0.75, 0.25], [0.4, 0.6]], dtype=torch.float64)
    plain = name_classes(p, ["stay", "churn"])
    assert [one["class"] for one in plain] == ["stay", "stay", "churn"]
    assert "threshold" not in plain[0]
    lower = name_classes(p, ["stay", "churn"], {"class": "churn", "value": 0.25})
    assert [one["class"] for one in lower] == ["stay", "churn", "churn"]
    assert [one["probability"] for one in lower] == [0.9, 0.25, 0.6]
    assert lower[1] == {
        "class": "churn", "probability": 0.25, "probabilities": {"stay": 0.75, "churn": 0.25},
        "threshold": 0.25, "positive": "churn",
    }  # fmt: skip
    of_first = name_classes(p, ["stay", "churn"], {"class": "stay", "value": 0.8})
    assert [one["class"] for one in of_first] == ["stay", "churn", "churn"]
