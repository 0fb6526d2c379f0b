"""A config accepts what it says, names what it refuses, and survives JSON and the command line."""

import dataclasses
import json

import pytest

from selabel_tf import config as cfg


def small(**changes):
    sections = {
        "data": cfg.Data(),
        "augment": cfg.Augment(),
        "model": cfg.Model(num_clusters=(5, 7)),
        "label": cfg.Label(),
        "optimizer": cfg.Optimizer(),
        "evaluation": cfg.Evaluation(),
    }
    return cfg.Config(**{"name": "small", "epochs": 3, "batch_size": 11, **sections, **changes})


BAD = [
    (
        cfg.Data,
        {"source": "tdfs"},
        "data.source='tdfs' is unknown. Did you mean 'tfds'? Available: digits, tfds",
    ),
    (cfg.Data, {"source": "tfds"}, "data.name is empty, but data.source='tfds' needs it"),
    (cfg.Data, {"source": "tfds", "name": "mnist", "split": ""}, "data.split is empty"),
    (cfg.Data, {"source": "folder"}, "data.path is empty, but data.source='folder' needs it"),
    (cfg.Data, {"path": "images"}, "data.path='images' has no meaning with data.source='digits'"),
    (cfg.Data, {"name": "mnist"}, "Set data.source=tfds, or leave data.name empty"),
    (cfg.Data, {"data_dir": "here"}, "data.data_dir='here' has no meaning"),
    (cfg.Data, {"examples_per_class": -1}, "data.examples_per_class=-1 must be at least 0"),
    (cfg.Data, {"split": 3}, "data.split=3 must be of type str, not int"),
    (cfg.Augment, {"policy": None}, "augment.policy=None must be of type str, not NoneType"),
    (cfg.Augment, {"size": 2.5}, "augment.size=2.5 must be of type int, not float"),
    (cfg.Augment, {"size": -2}, "augment.size=-2 must be at least 0"),
    (cfg.Augment, {"mean": (0.5,)}, "augment.mean has 1 values and augment.std 0"),
    (cfg.Augment, {"mean": (0.5,), "std": (0.0,)}, "augment.std[0]=0.0 must be above 0"),
    (cfg.Augment, {"mean": (float("nan"),), "std": (1.0,)}, "augment.mean[0]=nan must be finite"),
    (cfg.Model, {"width": -1}, "model.width=-1 must be at least 0"),
    (cfg.Model, {"objectives": ()}, "model.objectives=(): give each objective once, and one at least"),
    (cfg.Model, {"objectives": ("labels", "labels")}, "model.objectives=('labels', 'labels'): give each"),
    (cfg.Model, {"objectives": ("label",)}, "model.objectives[0]='label' is unknown. Did you mean 'labels'"),
    (cfg.Augment, {"more": "two_of"}, "augment.more='two_of' is unknown"),
    (
        cfg.Label,
        {"labels": "runs/first"},
        "label.labels='runs/first' gives the labels, which",
    ),
    (cfg.Label, {"labeller": "given", "label_heads": (2,)}, "label.label_heads is of a labels file"),
    (cfg.Label, {"labeller": "given", "labels_sha256": "ab"}, "label.labels_sha256 is of a labels file"),
    (cfg.Label, {"labeller": "given", "labels": "a", "label_heads": (2, 2)}, "names a head twice"),
    (cfg.Model, {"num_clusters": (7, 0)}, "model.num_clusters[1]=0 must be at least 2"),
    (cfg.Model, {"num_clusters": [7]}, "model.num_clusters=[7] must be a tuple of int"),
    (cfg.Model, {"num_clusters": (7.0,)}, "model.num_clusters[0]=7.0 must be of type int"),
    (
        cfg.Model,
        {"precision": "float_32"},
        "model.precision='float_32' is unknown. Did you mean 'float32'?",
    ),
    (cfg.Model, {"backbone": 18}, "model.backbone=18 must be of type str"),
    (cfg.Label, {"lambda_": 0}, "label.lambda_=0.0 must be above 0"),
    (cfg.Label, {"lambda_": float("inf")}, "label.lambda_=inf must be finite"),
    (cfg.Label, {"lambda_": "25"}, "label.lambda_='25' must be of type float, not str"),
    (cfg.Label, {"num_relabels": -1}, "label.num_relabels=-1 must be at least 0"),
    (cfg.Label, {"num_relabels": True}, "label.num_relabels=True must be of type int, not bool"),
    (cfg.Label, {"schedule": "cubic"}, "label.schedule='cubic' is unknown. Available: quadratic, linear."),
    (cfg.Label, {"heads": "one"}, "label.heads='one' is unknown"),
    (cfg.Label, {"views": 0}, "label.views=0 must be at least 1"),
    (cfg.Label, {"batch_norm": "train"}, "label.batch_norm='train' is unknown. Did you mean 'training'?"),
    (cfg.Label, {"rounding": "balance"}, "Did you mean 'balanced'?"),
    (cfg.Label, {"tolerance": 0.0}, "label.tolerance=0.0 must be above 0"),
    (cfg.Label, {"max_passes": 0}, "label.max_passes=0 must be at least 1"),
    (cfg.Label, {"warm_start": 1}, "label.warm_start=1 must be of type bool, not int"),
    (cfg.Label, {"storage": "ram"}, "label.storage='ram' is unknown. Available: auto, exact, float32, recompute,"),
    (cfg.Label, {"cluster_weights": (1.0, -1.0)}, "label.cluster_weights[1]=-1.0 must be above 0"),
    (cfg.Optimizer, {"learning_rate": 0.0}, "optimizer.learning_rate=0.0 must be above 0"),
    (cfg.Optimizer, {"momentum": 1.0}, "optimizer.momentum=1.0 must be at least 0 and below 1"),
    (cfg.Optimizer, {"momentum": -0.1}, "optimizer.momentum=-0.1 must be at least 0 and below 1"),
    (cfg.Optimizer, {"l2": -1e-4}, "optimizer.l2=-0.0001 must be at least 0"),
    (cfg.Optimizer, {"drop_epochs": (3, 3)}, "optimizer.drop_epochs=(3, 3) must increase"),
    (cfg.Optimizer, {"drop_epochs": (5, 3)}, "optimizer.drop_epochs=(5, 3) must increase"),
    (cfg.Optimizer, {"drop_epochs": (3,), "schedule": "cosine"}, "drop_epochs=(3,) has no meaning with optimizer.sch"),
    (cfg.Optimizer, {"schedule": "linear"}, "optimizer.schedule='linear' is unknown"),
    (cfg.Augment, {"small_crops": 2}, "augment.small_crops=2 and augment.small_size=0: give both"),
    (cfg.Augment, {"small_size": 16}, "augment.small_crops=0 and augment.small_size=16: give both"),
    (cfg.Augment, {"small_area": (0.4, 0.1)}, "augment.small_area=(0.4, 0.1): give smallest and largest share"),
    (cfg.Augment, {"small_area": (0.4,)}, "augment.small_area=(0.4,): give smallest and largest share"),
    (cfg.Label, {"spread": 0}, "label.spread=0 must be at least 1"),
    (cfg.Label, {"spread": 3, "labeller": "kmeans"}, "label.spread=3 takes shares from a transport plan"),
    (cfg.Label, {"spread": 3, "rounding": "balanced"}, "label.spread=3 has its shares learnt instead"),
    (cfg.Model, {"over_heads": "median"}, "model.over_heads='median' is unknown"),
    (cfg.Model, {"projection": (64, 0)}, "model.projection[1]=0 must be at least 1"),
    (cfg.Optimizer, {"drop_epochs": (0,)}, "optimizer.drop_epochs[0]=0 must be at least 1"),
    (cfg.Optimizer, {"drop_factor": 1.5}, "optimizer.drop_factor=1.5 must be above 0 and at most 1"),
    (cfg.Evaluation, {"knn_k": 0}, "evaluation.knn_k=0 must be at least 1"),
    (cfg.Evaluation, {"knn_sigma": 0.0}, "evaluation.knn_sigma=0.0 must be above 0"),
    (cfg.Evaluation, {"knn": "yes"}, "evaluation.knn='yes' must be of type bool"),
    (small, {"name": ""}, "name is empty"),
    (cfg.Evaluation, {"knn_every": -1}, "evaluation.knn_every=-1 must be at least 0"),
    (cfg.Data, {"imbalance": "strong"}, "data.imbalance='strong' is unknown. Available: none, light, heavy"),
    (cfg.Label, {"labeller": "k-means"}, "label.labeller='k-means' is unknown. Did you mean 'kmeans'?"),
    (
        cfg.Label,
        {"labeller": "kmeans", "rounding": "balanced"},
        "label.rounding='balanced' decides cluster sizes, which label.labeller='kmeans' does not. Leave it out",
    ),
    (
        cfg.Label,
        {"labeller": "given", "cluster_weights": (1.0, 2.0)},
        "label.cluster_weights=(1.0, 2.0) decides cluster sizes, which label.labeller='given' does not",
    ),
    (small, {"epochs": -1}, "epochs=-1 must be at least 0"),
    (small, {"batch_size": 0}, "batch_size=0 must be at least 1"),
    (small, {"seed": -1}, "seed=-1 must be at least 0"),
    (small, {"checkpoint_every": 0}, "checkpoint_every=0 must be at least 1"),
    (small, {"checkpoint_steps": 0}, "checkpoint_steps=0 must be at least 1"),
    (small, {"data": "digits"}, "data='digits' must be of type Data, not str"),
    (small, {"label": cfg.Label(cluster_weights=(1, 1, 2))}, "label.cluster_weights has 3 values"),
    (small, {"model": cfg.Model(num_clusters=())}, "model.num_clusters is empty"),
    (small, {"model": cfg.Model(objectives=("rotation",))}, "learns no labels, but labels are to be made"),
    (
        small,
        {"model": cfg.Model(objectives=("rotation",)), "label": cfg.Label(num_relabels=0, labeller="given")},
        "learns no labels, but labels are to be made",
    ),
]


@pytest.mark.parametrize(("kind", "values", "message"), BAD, ids=[message[:40] for _, _, message in BAD])
def test_a_bad_value_is_refused_by_its_full_name(kind, values, message):
    with pytest.raises(ValueError) as error:
        kind(**values)
    assert message in str(error.value)


def test_every_field_of_every_section_is_refused_with_a_wrong_type():
    for section in (cfg.Data, cfg.Augment, cfg.Model, cfg.Label, cfg.Optimizer, cfg.Evaluation):
        for field in dataclasses.fields(section):
            with pytest.raises(ValueError, match=rf"^{section.section}\.{field.name}="):
                section(**{field.name: object()})


def test_whole_numbers_become_floats_where_floats_are_wanted_and_nothing_else_is_coerced():
    label = cfg.Label(lambda_=10, cluster_weights=(1, 2))
    assert type(label.lambda_) is float and [type(w) for w in label.cluster_weights] == [float, float]
    assert label == cfg.Label(lambda_=10.0, cluster_weights=(1.0, 2.0))


def test_a_config_cannot_be_changed_in_place():
    with pytest.raises(dataclasses.FrozenInstanceError):
        small().epochs = 5
    with pytest.raises(dataclasses.FrozenInstanceError):
        small().label.lambda_ = 5.0


def test_one_weight_per_cluster_is_accepted_when_all_heads_have_that_many():
    config = small(model=cfg.Model(num_clusters=(3, 3)), label=cfg.Label(cluster_weights=(1, 1, 2)))
    assert config.label.cluster_weights == (1.0, 1.0, 2.0)


def test_override_reads_each_type_from_its_annotation():
    config = cfg.override(
        small(),
        [
            "epochs=2",
            "name=other",
            "optimizer.learning_rate=1e-2",
            "optimizer.drop_epochs=3, 5",
            "model.num_clusters=20,21,22",
            "label.warm_start=False",
            "augment.mean=0.5,0.25",
            "augment.std=1,2",
            " evaluation.knn_k = 13 ",
        ],
    )
    assert config == small(
        epochs=2,
        name="other",
        optimizer=cfg.Optimizer(learning_rate=0.01, drop_epochs=(3, 5)),
        model=cfg.Model(num_clusters=(20, 21, 22)),
        label=cfg.Label(warm_start=False),
        augment=cfg.Augment(mean=(0.5, 0.25), std=(1.0, 2.0)),
        evaluation=cfg.Evaluation(knn_k=13),
    )


def test_override_writes_equal_heads_as_clusters_times_heads():
    assert cfg.override(small(), ["model.num_clusters=128x10"]).model.num_clusters == (128,) * 10
    assert cfg.override(small(), ["model.num_clusters=128x2,7"]).model.num_clusters == (128, 128, 7)
    assert cfg.override(small(), ["model.num_clusters=19"]).model.num_clusters == (19,)


def test_override_empties_words_and_tuples():
    config = small(data=cfg.Data(source="tfds", name="mnist"), optimizer=cfg.Optimizer(drop_epochs=(2,)))
    config = cfg.override(config, ["data.name=", "data.source=digits", "optimizer.drop_epochs="])
    assert config == small()


def test_override_takes_fields_that_belong_together_in_any_order():
    expected = small(data=cfg.Data(source="folder", path="a=b"))
    assert cfg.override(small(), ["data.source=folder", "data.path=a=b"]) == expected
    assert cfg.override(small(), ["data.path=a=b", "data.source=folder"]) == expected


def test_override_lets_the_last_value_of_a_field_win_and_leaves_the_original_alone():
    config = small()
    assert cfg.override(config, ["epochs=5", "epochs=7"]).epochs == 7
    assert cfg.override(config, []) == config == small()


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("epochs", "Cannot read 'epochs'. Write section.field=value"),
        ("epoch=2", "Unknown field 'epoch'. Did you mean 'epochs'? Available: name, data"),
        (
            "label.lambda=2",
            "Unknown field 'label.lambda'. Did you mean 'label.lambda_'? Available: label.lambda_,",
        ),
        (
            "lable.lambda_=2",
            "Unknown section 'lable' in 'lable.lambda_'. Did you mean 'label'? Available: data, aug",
        ),
        ("a.b.c=2", "Unknown section 'a.b'"),
        ("epochs.x=2", "Unknown section 'epochs'"),
        ("label=2", "label is a section. Set one of its fields: label.lambda_, label.num_relabels"),
        ("epochs=2.5", "epochs: cannot read '2.5' as int"),
        ("epochs=", "epochs: cannot read '' as int"),
        ("label.lambda_=ten", "label.lambda_: cannot read 'ten' as float"),
        ("label.lambda_=nan", "label.lambda_=nan must be finite"),
        ("label.warm_start=yes", "label.warm_start='yes' must be true or false"),
        ("model.num_clusters=3,,5", "model.num_clusters: cannot read '' as int"),
        ("model.num_clusters=128x", "model.num_clusters: cannot read '' as int"),
        ("model.num_clusters=128x0", "model.num_clusters is empty"),
        ("augment.mean=0.5x3", "augment.mean: cannot read '0.5x3' as float"),
        ("epochs=-1", "epochs=-1 must be at least 0"),
    ],
)
def test_override_says_what_is_wrong_with_an_assignment(assignment, message):
    with pytest.raises(ValueError) as error:
        cfg.override(small(), [assignment])
    assert message in str(error.value)


def test_json_gives_back_an_equal_config_with_equal_hash():
    config = small(optimizer=cfg.Optimizer(learning_rate=0.1 + 0.2, drop_epochs=(2, 3)), seed=5)
    again = cfg.from_json(cfg.to_json(config))
    assert again == config
    assert cfg.config_hash(again) == cfg.config_hash(config)


def test_json_with_unknown_or_missing_keys_is_refused_by_name():
    values = json.loads(cfg.to_json(small()))
    del values["label"]["views"]
    values["label"]["vews"] = 1
    with pytest.raises(ValueError, match=r"Keys of label: unknown \['vews'\], missing \[\]"):
        cfg.from_json(json.dumps(values))
    values = json.loads(cfg.to_json(small()))
    del values["epochs"]
    with pytest.raises(ValueError, match=r"Keys of the config: unknown \[\], missing \['epochs'\]"):
        cfg.from_json(json.dumps(values))
    with pytest.raises(ValueError, match="the config must be a JSON object, not 3"):
        cfg.from_json("3")


def test_json_from_before_a_field_came_to_be_has_its_default():
    values = json.loads(cfg.to_json(small()))
    del values["label"]["labeller"], values["data"]["imbalance"], values["seed"]
    assert cfg.from_json(json.dumps(values)) == small()


def test_json_values_are_checked_like_any_others():
    values = json.loads(cfg.to_json(small()))
    values["label"]["views"] = 0
    with pytest.raises(ValueError, match=r"label\.views=0 must be at least 1"):
        cfg.from_json(json.dumps(values))


def test_the_hash_changes_with_any_value_and_with_nothing_else():
    hashes = {cfg.config_hash(small())}
    assert len(next(iter(hashes))) == 64
    hashes.add(cfg.config_hash(small(epochs=5)))
    hashes.add(cfg.config_hash(small(label=cfg.Label(views=2))))
    hashes.add(cfg.config_hash(small(model=cfg.Model(num_clusters=(7, 5)))))
    assert len(hashes) == 4
    assert cfg.config_hash(small(label=cfg.Label(lambda_=25))) in hashes


def test_a_field_that_comes_to_be_later_leaves_the_hash_alone():
    @dataclasses.dataclass(frozen=True)
    class Later(cfg.Label):
        new: int = 3

    def hash_with(label):
        config = small()
        object.__setattr__(config, "label", label)  # a Config takes a Label only
        return cfg.config_hash(config)

    assert hash_with(Later()) == cfg.config_hash(small())
    assert hash_with(Later(new=4)) != cfg.config_hash(small())


def test_differences_name_each_changed_field():
    changed = small(epochs=5, label=cfg.Label(lambda_=10))
    assert cfg.differences(small(), changed) == ["label.lambda_: 25.0 -> 10.0", "epochs: 3 -> 5"]
    assert cfg.differences(changed, changed) == []


GOOD_FILE = """
from selabel_tf import config as cfg


def get_config():
    return cfg.Config("here", cfg.Data(), cfg.Augment(), cfg.Model(), cfg.Label(), cfg.Optimizer(),
                      cfg.Evaluation(), epochs=3, batch_size=11)
"""


def test_load_takes_a_path_or_a_bare_name_in_configs(tmp_path, monkeypatch):
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "here.py").write_text(GOOD_FILE)
    monkeypatch.chdir(tmp_path)
    assert cfg.load("configs/here.py") == cfg.load("here") == cfg.load(tmp_path / "configs" / "here.py")
    assert cfg.load("here").name == "here"


def test_load_suggests_the_config_that_was_meant(tmp_path, monkeypatch):
    (tmp_path / "configs").mkdir()
    for name in ("digits", "cifar10", "__init__"):
        (tmp_path / "configs" / f"{name}.py").write_text(GOOD_FILE)
    monkeypatch.chdir(tmp_path)
    for asked in ("digit", "configs/digit.py"):
        with pytest.raises(FileNotFoundError) as error:
            cfg.load(asked)
        assert "digit.py. Did you mean 'digits'? Available: cifar10, digits." in str(error.value)
    with pytest.raises(FileNotFoundError, match=r"No config file .*x\.py\.$"):
        cfg.load("nowhere/x.py")


@pytest.mark.parametrize(
    ("name", "text", "kind", "message"),
    [
        ("a.py", "x = 1\n", ValueError, r"a\.py has no get_config\(\)"),
        (
            "a.py",
            "def get_config():\n    return {'epochs': 3}\n",
            ValueError,
            r"returned \{'epochs': 3\}, not a",
        ),
        ("a.json", "{}", ValueError, r"a\.json is not the config\.json of a run: Keys of the config"),
        ("a.txt", "{}", ValueError, r"a\.txt is no Python file"),
    ],
)
def test_load_says_what_a_config_file_lacks(tmp_path, name, text, kind, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(kind, match=message):
        cfg.load(tmp_path / name)


def test_the_config_of_a_run_can_be_loaded_again(tmp_path):
    (tmp_path / "here.py").write_text(GOOD_FILE)
    config = cfg.load(tmp_path / "here.py")
    (tmp_path / "config.json").write_text(cfg.to_json(config))
    assert cfg.load(tmp_path / "config.json") == config


def test_a_damaged_config_of_a_run_is_named(tmp_path):
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ValueError, match=r"config\.json is not the config\.json of a run"):
        cfg.load(tmp_path / "config.json")


def test_a_misspelt_field_in_a_config_file_is_an_error_of_that_file(tmp_path):
    (tmp_path / "mine.py").write_text(
        "from selabel_tf.config import Label\ndef get_config():\n    return Label(lamda=3)\n"
    )
    with pytest.raises(ValueError, match=r"mine\.py.*lamda"):
        cfg.load(tmp_path / "mine.py")


def test_assignments_make_the_new_config_of_the_old():
    old = small()
    texts = ["seed=3", "model.num_clusters=128x10", "label.lambda_=12.5", "optimizer.drop_epochs=1,2", "label.views=2"]
    texts += ["label.warm_start=false", "model.objectives=labels,rotation", "name=b", "augment.mean=0.25,0.5,0.125"]
    texts += ["augment.std=0.5,0.5,0.25"]
    new = cfg.override(old, texts)
    found = cfg.assignments(old, new)
    assert sorted(found) == sorted(texts)
    assert cfg.override(old, found) == new
    assert cfg.override(new, cfg.assignments(new, old)) == old
