from itertools import combinations

from matplotlib.text import Annotation, Text

from cascade_sim.analysis.report.figures.style import CROWD, _overlap, blank, place_labels, style


def boxes(points, box_of=Annotation.get_window_extent):
    """Label boxes in pixels after placing one label per point; `box_of` a Text leaves out its line."""
    with style("labels"):
        figure, axes = blank(3.0)
        axes.set(xlim=(0, 10), ylim=(0, 10))
        names = [f"a fairly long name {i}" for i in range(len(points))]
        place_labels(axes, points, names, ["black"] * len(points), [])
        figure.canvas.draw()
        renderer = figure.canvas.get_renderer()
        return [box_of(text, renderer) for text in axes.texts], axes.get_window_extent(renderer)


def test_labels_of_neighbouring_points_do_not_cover_each_other():
    labels, _ = boxes([(5, 5), (5.3, 5.1), (5.1, 5.6), (4.8, 4.7)])
    assert len(labels) == 4
    assert all(_overlap(a, b) == 0 for a, b in combinations(labels, 2))


def test_a_label_at_the_edge_stays_inside_the_axes():
    labels, frame = boxes([(9.9, 9.9), (0.1, 0.1)])
    for box in labels:
        assert frame.x0 <= box.x0 and box.x1 <= frame.x1 and frame.y0 <= box.y0 and box.y1 <= frame.y1


def test_in_a_crowd_a_name_without_room_is_left_out_and_none_covers_another():
    labels, _ = boxes([(4 + 0.01 * i, 5 + 0.03 * i) for i in range(CROWD + 20)], Text.get_window_extent)
    assert 3 < len(labels) < CROWD + 20
    assert all(_overlap(a, b) == 0 for a, b in combinations(labels, 2))
