"""Shapes from files of every kind, parameters counted exactly, operations by every formula."""

import json

import pytest

from datapipe.errors import ManifestError
from datapipe.estimate import flops, read
from datapipe.estimate.quantities import Problems
from datapipe.estimate.shape import Shape, describe, typical

GPT2 = {"model_type": "gpt2", "n_embd": 768, "n_layer": 12, "n_head": 12, "vocab_size": 50257, "n_positions": 1024}
LLAMA3 = {
    "model_type": "llama",
    "hidden_size": 4096,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
}
SMALL = {
    "hidden_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "intermediate_size": 100,
    "vocab_size": 1000,
}
SPARSE = {"moe_intermediate_size": 40, "num_experts": 7, "num_experts_per_tok": 2, "decoder_sparse_step": 2}
HUGGING_FACE = {
    "nanoGPT notebook transformer_sizing: GPT-2 124M without biases": (GPT2 | {"bias": False}, 124_337_664),
    "transformers 5.24 GPT2LMHeadModel": (GPT2, 124_439_808),
    "published total (unverified source): Llama-3-8B": (LLAMA3, 8_030_261_248),
    "published total (unverified source): Mistral-7B-v0.1": (
        LLAMA3 | {"model_type": "mistral", "vocab_size": 32000},
        7_241_732_096,
    ),
    "published total (unverified source): Mixtral-8x7B": (
        LLAMA3 | {"model_type": "mixtral", "vocab_size": 32000, "num_local_experts": 8, "num_experts_per_tok": 2},
        46_702_792_704,
    ),
    "published total (unverified source): Qwen2.5-0.5B": (
        {
            "model_type": "qwen2",
            "hidden_size": 896,
            "num_hidden_layers": 24,
            "num_attention_heads": 14,
            "num_key_value_heads": 2,
            "intermediate_size": 4864,
            "vocab_size": 151936,
            "tie_word_embeddings": True,
        },
        494_032_768,
    ),
    # the following were counted from modules of transformers 5.24 on the meta device
    "transformers 5.24 llama, biases": (
        SMALL | {"model_type": "llama", "attention_bias": True, "mlp_bias": True},
        354_456,
    ),
    "transformers 5.24 llama, wide heads": (SMALL | {"model_type": "llama", "head_dim": 32}, 426_528),
    "transformers 5.24 mistral": (SMALL | {"model_type": "mistral", "head_dim": 16}, 352_800),
    "transformers 5.24 mixtral": (
        SMALL | {"model_type": "mixtral", "num_local_experts": 5, "num_experts_per_tok": 2},
        699_840,
    ),
    "transformers 5.24 qwen2, tied": (SMALL | {"model_type": "qwen2", "tie_word_embeddings": True}, 257_280),
    "transformers 5.24 qwen3": (SMALL | {"model_type": "qwen3", "head_dim": 24}, 389_808),
    "transformers 5.24 qwen3_moe": (
        SMALL | SPARSE | {"model_type": "qwen3_moe", "num_hidden_layers": 5, "head_dim": 24, "mlp_only_layers": [1]},
        574_128,
    ),
    "transformers 5.24 qwen2_moe": (
        SMALL
        | SPARSE
        | {
            "model_type": "qwen2_moe",
            "num_hidden_layers": 5,
            "num_key_value_heads": 6,
            "shared_expert_intermediate_size": 60,
        },
        662_592,
    ),
}
REFERENCE = {"kind": "reference", "width": 32, "heads": 4, "layers": 2, "hidden": 64, "positions": 12}


@pytest.mark.parametrize("config, parameters", HUGGING_FACE.values(), ids=HUGGING_FACE)
def test_parameters_of_hugging_face_models(config, parameters):
    assert read.of(config, "config.json").counted == parameters


def test_the_models_of_datapipe_train():
    reference = read.of({"model": REFERENCE, "vocabulary": 16}, "x")
    assert reference.counted == 18_320
    assert sum(1 for _ in reference.outside()) + sum(t.copies * count for t, count in reference.layered()) == 26
    gpt = {"kind": "gpt", "width": 64, "heads": 4, "kv_heads": 2, "layers": 3, "hidden": 172}
    assert read.of({"model": gpt, "vocabulary": 100}, "x").counted == 596_736 // 4
    assert read.of({"model": gpt | {"tied": True}, "vocabulary": 100}, "x").counted == 571_136 // 4


def test_active_parameters_of_experts():
    mixtral = read.of(HUGGING_FACE["published total (unverified source): Mixtral-8x7B"][0], "x")
    idle = 6 * 3 * 4096 * 14336 * 32
    assert mixtral.active_parameters == mixtral.counted - idle
    dense = read.of(LLAMA3, "x")
    assert dense.active_parameters == dense.counted


FILES = {
    "config.json": (json.dumps(LLAMA3), 8_030_261_248),
    "own.yaml": (
        "layers: 2\nwidth: 64\nheads: 4\nhidden: 256\nvocabulary: 1k\n",
        2 * (12 * 64 * 64 + 4 * 64) + 2 * 64 + 2 * 64_000,
    ),
    "gated.yaml": (
        "{layers: 1, width: 64, heads: 4, hidden: 100, vocabulary: 10, gated: true, tied: true}",
        4 * 4096 + 3 * 6400 + 3 * 64 + 640,
    ),
    "train.yaml": (f"train:\n  name: x\n  model: {json.dumps(REFERENCE)}\nvocabulary: 16\n", 18_320),
    "state.json": (json.dumps({"step": 1, "config": {"name": "x", "model": REFERENCE}, "vocabulary": 16}), 18_320),
}


@pytest.mark.parametrize("name", FILES)
def test_files(tmp_path, name):
    text, parameters = FILES[name]
    (tmp_path / name).write_text(text)
    shape, model = read.read(tmp_path / name)
    assert shape.counted == parameters
    assert (model is not None) == (name in ("train.yaml", "state.json"))
    if name in ("config.json", "state.json"):
        assert read.read(tmp_path)[0] == shape


def test_a_run_and_its_checkpoint_know_their_vocabulary(tmp_path):
    asked = {"name": "x", "model": REFERENCE}
    (tmp_path / "run.json").write_text(json.dumps({"config": asked, "model": {"parameters": 18_320, "vocabulary": 16}}))
    assert read.read(tmp_path)[0].counted == 18_320
    checkpoint = tmp_path / "step-00000100"
    checkpoint.mkdir()
    (checkpoint / "state.json").write_text(json.dumps({"step": 100, "config": asked}))
    with pytest.raises(ManifestError, match="vocabulary: is required"):
        read.read(checkpoint)
    header = json.dumps({"token.weight": {"dtype": "F32", "shape": [16, 32], "data_offsets": [0, 2048]}}).encode()
    (checkpoint / "weights.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    assert read.read(checkpoint)[0].counted == 18_320


def test_a_train_manifest_takes_vocabulary_and_positions_from_the_command_line(tmp_path):
    (tmp_path / "t.yaml").write_text("train: {model: {kind: reference, width: 32, heads: 4, layers: 2, hidden: 64}}")
    shape, model = read.read(tmp_path / "t.yaml", 16, 12)
    assert model is not None
    assert (shape.counted, model["positions"]) == (18_320, 12)


WRONG = {
    "no file": (None, ["there is no such file"]),
    "no JSON": ("{", ["not JSON"]),
    "no object": ("[1]", ["expected an object"]),
    "another family": ('{"model_type": "bert"}', ["model_type: found 'bert', expected one of gpt2, llama"]),
    "everything missing": (
        '{"model_type": "llama"}',
        ["hidden_size: is required", "num_hidden_layers: is required", "vocab_size: is required"],
    ),
    "two that are wrong": (
        json.dumps(LLAMA3 | {"hidden_size": -1, "vocab_size": "many"}),
        ["hidden_size: found '-1'", "vocab_size: found 'many'"],
    ),
    "heads that do not divide": (json.dumps(LLAMA3 | {"num_key_value_heads": 5}), ["32 heads cannot share 5"]),
    "a misspelt key": ('{"layres": 3}', ["layres: unknown key; did you mean `layers`?", "width: is required"]),
    "no vocabulary": (json.dumps({"model": REFERENCE}), ["vocabulary: is required; give --vocabulary"]),
    "another kind": (json.dumps({"model": {"kind": "rnn"}, "vocabulary": 3}), ["model.kind: found 'rnn'"]),
    "true for a number": (json.dumps(LLAMA3 | {"hidden_size": True}), ["hidden_size: found True"]),
    "not UTF-8": (b"\xff\xfe", ["not JSON"]),
}


@pytest.mark.parametrize("text, said", WRONG.values(), ids=WRONG)
def test_wrong_files_say_everything_at_once(tmp_path, text, said):
    path = tmp_path / "c.json"
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ManifestError) as error:
        read.read(path)
    for part in said:
        assert part in str(error.value)
    assert all(str(path) in line for line in str(error.value).split("\n"))


def test_a_folder_without_a_shape(tmp_path):
    with pytest.raises(ManifestError, match=r"holds none of config.json"):
        read.read(tmp_path)


def test_broken_yaml_names_its_line(tmp_path):
    (tmp_path / "s.yaml").write_text("layers: 2\nlayers: 3\n")
    with pytest.raises(ManifestError, match=r"s.yaml:2: layers: stands there twice"):
        read.read(tmp_path / "s.yaml")


@pytest.mark.parametrize("parameters", [1e6, 124e6, 1e9, 7e9, 70e9, 1e12])
def test_a_typical_shape_is_near_and_says_that_it_is_assumed(parameters):
    shape = typical(parameters)
    assert shape.parameters == parameters
    assert 0.5 < shape.scale < 2
    assert "assumed" in shape.assumed[0]
    problems = Problems()
    shape.check(problems)
    assert not problems.found


def test_a_line_about_a_shape():
    assert describe(read.of(LLAMA3, "x")) == (
        "32 layers, width 4,096, 32 heads (8 of keys), hidden 14,336 gated, vocabulary 128,256"
    )


# --- operations -----------------------------------------------------------------------------------------------------

NANO = read.of(GPT2 | {"bias": False}, "x")
OPERATIONS = {
    "nanoGPT notebook: forward of 1,024 tokens": (sum(flops.forward(NANO, 1024).values()), 291_648_307_200),
    "nanoGPT notebook: exact, forward and backward": (flops.exact(NANO, 1024), 874_944_921_600),
    "nanoGPT notebook: PaLM's formula": (flops.palm(NANO, 1024), 875_062_886_400),
    "6ND": (flops.six_nd(7e9, 2e12), 8.4e22),
}


@pytest.mark.parametrize("found, golden", OPERATIONS.values(), ids=OPERATIONS)
def test_operations(found, golden):
    assert found == golden


CHINCHILLA = {  # layers, width, hidden, heads, width of a head, ratio
    "73M": (10, 640, 2560, 10, 64, 1.025),
    "305M": (20, 1024, 4096, 16, 64, 1.101),
    "552M": (24, 1280, 5120, 10, 128, 1.083),
    "1.1B": (26, 1792, 7168, 14, 128, 1.044),
    "1.6B": (28, 2048, 8192, 16, 128, 1.033),
    "6.8B": (40, 3584, 14336, 28, 128, 0.994),
}


@pytest.mark.parametrize(
    "row", CHINCHILLA.values(), ids=[f"Hoffmann 2203.15556 table A4: {name}" for name in CHINCHILLA]
)
def test_exact_over_six_nd(row):
    layers, width, hidden, heads, head, ratio = row
    shape = Shape(layers, width, heads, hidden, 32_000, head_width=head)
    # their parameters: relative positions have a projection and two biases, everything has biases
    attention = 5 * width * width + 6 * width
    block = attention + 2 * width * hidden + hidden + width + 4 * width
    parameters = layers * block + 2 * width + 32_000 * width
    assert flops.chinchilla(shape, 2048) / flops.six_nd(parameters, 2048) == pytest.approx(ratio, abs=0.0006)


def test_the_table_says_what_the_short_formulas_leave_out():
    table = flops.table(NANO, 1024)
    assert table.total == 874_944_921_600
    said = " ".join(table.assumptions)
    assert f"{6 * 124_337_664 * 1024 / 874_944_921_600:.3f}" in said
    assert "without embeddings" in said
    head, softmax = 3 * 2 * 50_257 * 768 * 1024, 3 * 3 * 12 * 12 * 1024**2  # 3 a position of 12 heads in 12 layers
    assert f"(softmax, no head) {(874_944_921_600 - head + softmax) / 874_944_921_600:.3f}" in said


def test_given_parameters_scale_products_and_not_attention():
    twice = Shape(2, 64, 4, 256, 100, given=2.0 * Shape(2, 64, 4, 256, 100).counted)
    one, two = flops.forward(Shape(2, 64, 4, 256, 100), 128), flops.forward(twice, 128)
    assert two["mlp_products"] == 2 * one["mlp_products"]
    assert two["attention_core"] == one["attention_core"]
