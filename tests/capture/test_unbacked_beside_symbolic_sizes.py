"""Results whose sizes depend on data, in a graph whose inputs change their sizes from call to call."""

import pytest
import torch
import torch.nn.functional as F

import burnish

from ..recorded_events import recorded


def columns_read(boxes, scores):
    kept = boxes[scores > 0]
    return kept * kept.shape[1]


def columns_of_a_transposed_part(boxes, scores):
    kept = boxes[scores > 0]
    return kept.t().contiguous() * kept.shape[1], kept.reshape(-1)


def half_of_the_columns(boxes, scores):
    kept = boxes[scores > 0]
    half = kept.shape[1] // 2
    return kept[:, :half], kept[:, half:]


def chosen_columns(boxes, scores):
    kept = boxes.t()[:, scores > 0]
    return kept.softmax(0) * kept.shape[0], kept[1:-1]


def rows_by_position(boxes, scores):
    rows = (scores > 0).nonzero()[:, 0]
    return boxes[rows] * boxes.shape[1], rows + boxes.shape[0]


def elements_by_position(boxes, scores):
    rows, columns = torch.where(boxes > 0)
    return boxes[rows, columns] * boxes.shape[1], (boxes > 0).nonzero(as_tuple=True)[1]


def a_detection(boxes, scores):
    best = scores.sigmoid()
    keep = best > 0.4
    boxes, best = boxes[keep], best[keep]
    order = best.argsort(descending=True)
    x, y, w, h = boxes[order][:, :4].unbind(-1)
    corners = torch.stack([x - w / 2, y - h / 2, x + w / 2, y + h / 2], -1)
    return torch.cat([corners, best[order][:, None]], 1)


def an_image_at_a_time(boxes, scores):
    found = []
    for one, best in ((boxes, scores), (boxes * 2, -scores)):
        keep = best > 0
        found.append((one[keep].clamp(0, 1), best[keep][:, None]))
    return found


def written_rows(boxes, scores):
    made, rows = torch.zeros_like(boxes), (scores > 0).nonzero()[:, 0]
    made[rows] = boxes[rows] * 2
    return made


def padded(boxes, scores):
    kept = boxes[scores > 0]
    rest = torch.zeros(boxes.shape[0] - kept.shape[0], boxes.shape[1])
    return torch.cat([kept, rest]), F.pad(kept, (0, 3))


def a_product(boxes, scores):
    kept = boxes[scores > 0]
    assert kept.shape[1] == boxes.shape[1]
    return kept @ boxes.t()


def no_more_columns_than(boxes, scores):
    kept = boxes[scores > 0]
    return kept[:, :9] * 1, kept.unfold(1, 3, 1)


def the_highest(boxes, scores):
    kept = boxes[scores > 0]
    return scores.topk(kept.shape[0]).values * boxes.shape[0]


PROGRAMS = [
    the_highest,
    columns_read,
    columns_of_a_transposed_part,
    half_of_the_columns,
    chosen_columns,
    rows_by_position,
    elements_by_position,
    a_detection,
    an_image_at_a_time,
    written_rows,
    padded,
    a_product,
    no_more_columns_than,
]


@pytest.mark.parametrize("program", PROGRAMS)
def test_sizes_from_data_and_sizes_that_change_are_in_one_graph(program):
    compiled = burnish.compile(program, backend="eager", fullgraph=True)
    with recorded("segment") as segments, recorded("guards.given_up") as given_up:
        for i, rows in enumerate((5, 7, 12, 9, 6, 33, 18, 50, 7, 64, 8, 11)):
            columns = (5, 6, 7, 8)[i % 4] if rows < 50 else 40
            boxes, scores = torch.randn(rows, columns), torch.randn(rows)
            scores[:2] = torch.tensor([1.0, -1.0])
            torch.testing.assert_close(compiled(boxes, scores), program(boxes, scores), rtol=0, atol=0)
    assert not given_up
    assert len(segments) <= 4  # one size, one that changes, both, and fewer than the nine columns
