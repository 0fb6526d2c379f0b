"""Results beside the run."""

import pytest

from selabel_tf.evaluation import results

FOUND = {"tool": "knn", "model": {"epoch": 3}, "data": {"name": "x"}, "settings": {"k": 5}, "rows": [{"top1": 0.5}]}


def test_what_is_saved_comes_back_by_name(tmp_path):
    results.save(tmp_path, "knn-cifar100", **FOUND)
    results.save(tmp_path, "knn", **FOUND | {"rows": []})
    found = results.load_all(tmp_path)
    assert list(found) == ["knn", "knn-cifar100"]
    assert {key: found["knn-cifar100"][key] for key in FOUND} == FOUND
    assert found["knn"]["date"].endswith("UTC")


def test_a_folder_without_results_has_none(tmp_path):
    assert results.load_all(tmp_path) == {}


def test_a_name_cannot_leave_the_folder(tmp_path):
    with pytest.raises(ValueError, match="cannot name a result"):
        results.save(tmp_path, "../knn", **FOUND)


@pytest.mark.parametrize(
    "text, complaint", [("{", "is not JSON"), ("[]", "not a result of ours"), ("{}", "needs tool")]
)
def test_files_that_are_not_ours_are_refused(tmp_path, text, complaint):
    (tmp_path / "evaluation").mkdir()
    (tmp_path / "evaluation" / "x.json").write_text(text)
    with pytest.raises(ValueError, match=complaint):
        results.load_all(tmp_path)
