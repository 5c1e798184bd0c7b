"""
A model's shape from a file: Hugging Face's config.json, a checkpoint or manifest of `datapipe train`, or our own keys.

A family that is not known is refused: a shape that is nearly right gives numbers that look right.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from datapipe.errors import ManifestError
from datapipe.estimate.quantities import Problems, QuantityError, parse
from datapipe.estimate.shape import Shape
from datapipe.manifest import messages, tree

NAMES = ("config.json", "state.json", "run.json")  # what is looked for in a folder
KEYS = {field.name: field.type for field in fields(Shape) if field.name not in ("name", "assumed", "given")}


def read(
    path: Path, vocabulary: int | None = None, positions: int | None = None
) -> tuple[Shape, Mapping[str, Any] | None]:
    """
    (the shape in a file or in a folder's config.json, `model` of a train manifest where it is one); ManifestError names
    what is missing or not known.

    vocabulary, positions: of the command line, for files that have none.
    """
    file = next((path / name for name in NAMES if (path / name).is_file()), path) if path.is_dir() else path
    values = _inner(_values(file))
    if vocabulary is None and file.name == "state.json":
        vocabulary = _embedded(file.parent)
    shape = of(values, str(file), vocabulary, positions)
    model = values.get("model")
    return shape, {**model, "positions": shape.positions or None} if isinstance(model, Mapping) else None


def of(values: Mapping[str, Any], where: str, vocabulary: int | None = None, positions: int | None = None) -> Shape:
    """The shape that the keys of a file say."""
    values = _inner(values)
    problems = Problems()
    if isinstance(values.get("model"), Mapping):
        model = {"positions": positions} | {key: value for key, value in values["model"].items() if value is not None}
        shape = _trained(model, values.get("vocabulary", vocabulary), where, problems)
    elif "model_type" in values or "architectures" in values:
        shape = _hugging_face(values, where, problems)
    else:
        shape = _own(values, where, vocabulary, problems)
    problems.refuse()
    assert shape is not None
    shape.check(problems)
    problems.found = [f"{where}: {line.removeprefix('--')}" for line in problems.found]
    problems.refuse()
    return shape


def _values(path: Path) -> Mapping[str, Any]:
    try:
        data = path.read_bytes()
    except IsADirectoryError:
        raise ManifestError(f"{path}: this folder holds none of {', '.join(NAMES)}") from None
    except FileNotFoundError:
        raise ManifestError(f"{path}: there is no such file") from None
    try:
        found = json.loads(data) if path.suffix == ".json" else tree.parse(tree.decode(data))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ManifestError(f"{path}: not JSON: {error}") from None
    except tree.BrokenError as broken:
        raise ManifestError(f"{path}:{broken.mistake}") from None
    if isinstance(found, tree.Tree):
        if found.mistakes:
            raise ManifestError("\n".join(f"{path}:{mistake}" for mistake in found.mistakes))
        found = found.values
    if not isinstance(found, Mapping):
        raise ManifestError(f"{path}: expected an object of keys such as model_type or layers")
    return found


def _inner(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """A run and its checkpoints keep what was asked under `config`, a train manifest under `train`."""
    for key in ("config", "train", "text_config"):
        inner = values.get(key)
        if isinstance(inner, Mapping) and {"model", "hidden_size", "n_embd"} & set(inner):
            result = values.get("model")  # of a finished run: has the vocabulary
            found = values.get("vocabulary", result.get("vocabulary") if isinstance(result, Mapping) else None)
            return {**({} if found is None else {"vocabulary": found}), **inner}
    return values


def _embedded(folder: Path) -> int | None:
    """Rows of a checkpoint's embedding: its vocabulary, from the header of weights.safetensors."""
    try:
        with open(folder / "weights.safetensors", "rb") as file:
            header = file.read(int.from_bytes(file.read(8), "little"))
        return int(json.loads(header)["token.weight"]["shape"][0])
    except (OSError, ValueError, KeyError, IndexError, OverflowError, MemoryError):
        return None


class _Keys:
    """Whole numbers of a mapping; what is missing or wrong is listed."""

    def __init__(self, values: Mapping[str, Any], where: str, problems: Problems):
        self.values, self.where, self.problems = values, where, problems

    def count(self, key: str, default: int | None = None) -> int:
        value = self.values.get(key)
        if value is None:
            if default is None:
                self.problems.add(f"{self.where}: {key}", "is required: a whole number")
            return default or 0
        try:
            if isinstance(value, bool):
                raise QuantityError(f"found {value}, expected a whole number")
            return int(parse(value, "count"))
        except QuantityError as error:
            self.problems.add(f"{self.where}: {key}", str(error))
            return 0

    def switch(self, key: str, default: bool = False) -> bool:
        value = self.values.get(key)
        if value is not None and not isinstance(value, bool):
            self.problems.add(f"{self.where}: {key}", f"found {value!r}, expected true or false")
        return default if value is None else bool(value)


# --- our own keys ---------------------------------------------------------------------------------------------------


def _own(values: Mapping[str, Any], where: str, vocabulary: int | None, problems: Problems) -> Shape | None:
    keys = _Keys(
        values if "vocabulary" in values or vocabulary is None else {**values, "vocabulary": vocabulary},
        where,
        problems,
    )
    for key in values:
        if key not in KEYS and key != "name":
            problems.add(f"{where}: {key}", f"unknown key; {messages.instead(key, KEYS)}")
    made: dict[str, Any] = {"name": str(values.get("name", Path(where).stem))}
    for key, kind in KEYS.items():
        if key == "norm":
            made[key] = values.get("norm", "rms" if values.get("gated") else "layer")
            if made[key] not in ("layer", "layer-weight", "rms"):
                problems.add(f"{where}: norm", f"found {made[key]!r}, expected layer, layer-weight or rms")
        elif kind is bool:
            made[key] = keys.switch(key, key == "final_norm")
        else:
            required = key in ("layers", "width", "heads", "hidden", "vocabulary")
            made[key] = keys.count(key, None if required else 0)
    return None if problems.found else Shape(**made)


# --- datapipe train -------------------------------------------------------------------------------------------------


def _trained(model: Mapping[str, Any], vocabulary: Any, where: str, problems: Problems) -> Shape | None:
    keys = _Keys({**model, "vocabulary": vocabulary}, f"{where}: model", problems)
    kind = model.get("kind", "gpt")
    if kind not in ("gpt", "reference"):
        problems.add(f"{where}: model.kind", f"found {kind!r}, expected gpt or reference")
    if vocabulary is None:
        problems.add(f"{where}: vocabulary", "is required; give --vocabulary (max_id + 1 of the build's tokenizer)")
        keys.values = {**model, "vocabulary": 1}
    common: dict[str, Any] = {
        "layers": keys.count("layers", 4), "width": keys.count("width", 128), "heads": keys.count("heads", 4),
        "hidden": keys.count("hidden", 344), "vocabulary": keys.count("vocabulary"), "name": f"datapipe train's {kind}",
    }  # fmt: skip
    if kind == "reference":
        positions = keys.count("positions")
        own = {"positions": positions, "norm": "layer", "mlp_bias": True, "head_bias": True, "joined": True}
    else:
        own = {"kv_heads": keys.count("kv_heads", 0), "norm": "rms", "gated": True, "tied": keys.switch("tied")}
    return None if problems.found else Shape(**common, **own)


# --- Hugging Face ---------------------------------------------------------------------------------------------------


def _gpt2(keys: _Keys) -> dict[str, Any]:
    width, bias = keys.count("n_embd"), keys.switch("bias", True)  # bias: nanoGPT's switch, not GPT2Config's
    return {
        "layers": keys.count("n_layer"), "width": width, "heads": keys.count("n_head"),
        "hidden": keys.count("n_inner", 4 * width), "vocabulary": keys.count("vocab_size"),
        "positions": keys.count("n_positions", keys.count("n_ctx", 1024)),
        "norm": "layer" if bias else "layer-weight", "tied": keys.switch("tie_word_embeddings", True),
        "qkv_bias": bias, "out_bias": bias, "mlp_bias": bias, "joined": True,
    }  # fmt: skip


def _llama(keys: _Keys) -> dict[str, Any]:
    bias = keys.switch("attention_bias")
    return {
        "layers": keys.count("num_hidden_layers"), "width": keys.count("hidden_size"),
        "heads": keys.count("num_attention_heads"), "hidden": keys.count("intermediate_size"),
        "vocabulary": keys.count("vocab_size"), "kv_heads": keys.count("num_key_value_heads", 0),
        "head_width": keys.count("head_dim", 0), "gated": True, "norm": "rms",
        "tied": keys.switch("tie_word_embeddings"), "qkv_bias": bias, "out_bias": bias,
        "mlp_bias": keys.switch("mlp_bias"),
    }  # fmt: skip


def _mixtral(keys: _Keys) -> dict[str, Any]:
    return _llama(keys) | {"experts": keys.count("num_local_experts"), "active": keys.count("num_experts_per_tok")}


def _qwen2(keys: _Keys) -> dict[str, Any]:
    return _llama(keys) | {"qkv_bias": True, "out_bias": False}


def _qwen3(keys: _Keys) -> dict[str, Any]:
    return _llama(keys) | {"head_norm": True, "head_width": keys.count("head_dim", 128)}


def _sparse(keys: _Keys, layers: int) -> dict[str, Any]:
    """Experts of Qwen: every decoder_sparse_step-th layer, but for mlp_only_layers."""
    step, only = keys.count("decoder_sparse_step", 1) or 1, keys.values.get("mlp_only_layers") or ()
    dense = sum(1 for n in range(layers) if n in only or (n + 1) % step)
    return {
        "experts": keys.count("num_experts", keys.count("num_local_experts", 0)) or keys.count("num_experts"),
        "active": keys.count("num_experts_per_tok"),
        "expert_hidden": keys.count("moe_intermediate_size"), "dense_layers": dense,
    }  # fmt: skip


def _qwen2_moe(keys: _Keys) -> dict[str, Any]:
    made = _qwen2(keys)
    shared = keys.count("shared_expert_intermediate_size")
    return made | _sparse(keys, made["layers"]) | {"shared_hidden": shared, "shared_gate": True}


def _qwen3_moe(keys: _Keys) -> dict[str, Any]:
    made = _qwen3(keys)
    return made | _sparse(keys, made["layers"])


FAMILIES: Mapping[str, Callable[[_Keys], dict[str, Any]]] = {
    "gpt2": _gpt2, "llama": _llama, "mistral": _llama, "mixtral": _mixtral, "qwen2": _qwen2, "qwen2_moe": _qwen2_moe,
    "qwen3": _qwen3, "qwen3_moe": _qwen3_moe,
}  # fmt: skip


def _hugging_face(values: Mapping[str, Any], where: str, problems: Problems) -> Shape | None:
    family = str(values.get("model_type"))
    if family not in FAMILIES:
        known = ", ".join(FAMILIES)
        problems.add(f"{where}: model_type", f"found {family!r}, expected one of {known}; or write the shape as YAML")
        return None
    made = FAMILIES[family](_Keys(values, where, problems))
    return None if problems.found else Shape(**made, name=str(values.get("_name_or_path") or family))
