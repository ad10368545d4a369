import torch

from everynet.plot import confusion_matrix, heatmap


def texts(drawn):
    return {text.get_position(): text.get_text() for text in drawn.axes[0].texts}


def test_counts_and_rates_of_a_confusion_matrix(tmp_path):
    """Rates are shares of the true class, which is a row."""
    counts = torch.tensor([[9, 1, 0], [0, 50, 0], [3, 1, 96]])
    drawn = confusion_matrix(counts, ["cat", "dog", "bird"])
    assert texts(drawn) == {
        (0, 0): "9\n90%",
        (1, 0): "1\n10%",
        (1, 1): "50\n100%",
        (0, 2): "3\n3.0%",
        (1, 2): "1\n1.0%",
        (2, 2): "96\n96%",
    }
    axes = drawn.axes[0]
    assert axes.get_title() == "validation: 155 of 160 right (96.9%)"
    assert [label.get_text() for label in axes.get_yticklabels()] == ["cat", "dog", "bird"]
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("predicted class", "true class")
    wrong, right = axes.images
    assert wrong.get_clim() == (0, 0.1)  # the worst mistake has the strongest colour
    assert right.get_array().compressed().tolist() == [0.9, 1.0, 0.96]
    drawn.savefig(tmp_path / "confusion.png")


def test_a_class_without_samples_and_a_perfect_score():
    drawn = confusion_matrix(torch.tensor([[4, 0], [0, 0]]))
    assert texts(drawn) == {(0, 0): "4\n100%"}
    assert [axes.get_ylabel() for axes in drawn.axes] == ["true class", "right"]
    drawn.canvas.draw()


def test_many_classes_carry_no_numbers():
    drawn = confusion_matrix(torch.eye(100, dtype=torch.long))
    assert not drawn.axes[0].texts
    assert len(drawn.axes[0].get_xticklabels()) == 20


def test_white_is_zero_in_a_signed_heatmap(tmp_path):
    values = torch.tensor([[-1.0, 0.0, 3.0]])
    drawn = heatmap(values, xlabel="time (s)", ylabel="unit", title="h", unit="mV")
    image = drawn.axes[0].images[0]
    assert image.get_clim() == (-3, 3)
    assert image.get_array().tolist() == values.tolist()
    assert drawn.axes[0].get_xlabel() == "time (s)"
    drawn.savefig(tmp_path / "heatmap.png")
    plain = heatmap(values.abs(), xlabel="", ylabel="").axes[0].images[0]
    assert plain.get_clim() == (0, 3)
    assert plain.get_cmap().name != image.get_cmap().name


def test_rows_and_columns_of_a_heatmap_are_named():
    drawn = heatmap(
        torch.rand(2, 3), xlabel="", ylabel="", down=["a", "b"], across=["x", "y", "zz"]
    )
    axes = drawn.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b"]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["x", "y", "zz"]
    assert axes.get_yticks().tolist() == [0, 1]
