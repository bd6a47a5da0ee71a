"""The model card: what a saved model is, how good it is and how it is used."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeGuard

from .config import SHALLOW

if TYPE_CHECKING:
    from .language import LanguageModel
    from .sequence import SequenceModel

NAMES = {"EIREHN": "EI-REHN"}
CARD = """---
library_name: eirehn
{pipeline}tags:
- eirehn
- recurrent
- elastic-depth
- {task}
---

# {title}

{kind} for {task}, trained with eirehn: recurrent networks with elastic depth, for PyTorch.

|   |   |
|---|---|
{rows}

## Use

```python
{use}
```

`max_depth` limits the inner steps of a call. The files are JSON and safetensors; nothing is unpickled.

## Licence

The library eirehn has the licence Apache-2.0; the weights have the one that their author gives them.
"""

GENERATE = """prompt = read_prompt("", model.tokens).ids
print(*(token.text for token in generate(model, model.tokens, prompt, tokens=50)))"""


def card(model: SequenceModel | LanguageModel, results: Mapping[str, Any], name: str, repo_id: str | None) -> str:
    """The page of a model with these results, whose folder has this name, or of a repository on the hub."""
    language = not hasattr(model, "last")
    task = "language" if language else "classification" if model.classes else "regression"
    cells = {
        "task": task if language else f"{task} of sequences",
        **_values(model),
        "network": _network(model),
        "parameters": f"{sum(each.numel() for each in model.parameters() if each.requires_grad):,}",
        **_results(results),
    }
    if _is_number(depth := results.get("depth")) and model.network.kind not in SHALLOW:
        cells["mean depth"] = f"{depth:.2f} of at most {model.network.max_depth} inner steps"
    if "recipe" in results:
        cells["recipe"] = f"`{results['recipe']}`"
    return CARD.format(
        pipeline="pipeline_tag: text-generation\n" if language else "",
        title=repo_id.split("/")[-1] if repo_id else name,
        kind=f"{NAMES.get(model.network.kind, model.network.kind)} network",
        task={"language": "language modelling"}.get(task, task),
        rows="\n".join(f"| {key} | {value} |" for key, value in cells.items()),
        use=_use(model, name, repo_id),
    )


def _values(model: Any) -> dict[str, str]:
    if not hasattr(model, "last"):
        return {"tokens": f"{model.vocabulary:,} {model.tokens.level}s"}
    size = model.output_size
    outputs = f"`(B, {size})`, for each sequence" if model.last else f"`(B, T, {size})`, at each time step"
    classes = {"classes": ", ".join(map(str, model.classes))} if model.classes else {}
    return {"input": f"`(B, T, {model.input_size})`", "output": outputs, **classes}


def _network(model: Any) -> str:
    network = model.network
    words = [
        NAMES.get(network.kind, network.kind),
        f"{network.hidden_size} units",
        f"{network.num_layers} layer{'s' if network.num_layers > 1 else ''}",
    ]
    if getattr(network, "bidirectional", False):
        words.append("bidirectional")
    if network.kind not in SHALLOW:
        words.append(f"at most {network.max_depth} inner steps a time step")
    return ", ".join(words)


def _results(results: Mapping[str, Any]) -> dict[str, str]:
    """The metric of these weights on test data, and its mean over the seeds that were trained together. Nothing
    if one of them is missing or not a number."""
    metric, value, values = (results.get(key) for key in ("metric", "value", "values"))
    if not isinstance(metric, str) or not isinstance(values, list | tuple):
        return {}
    values = [each for each in values if each is not None]
    if not _is_number(value) or not all(map(_is_number, [results.get("seed"), *values])):
        return {}
    found = {f"test {metric}": f"{_number(metric, value)} (seed {results['seed']})"}
    if len(values) > 1:
        mean, std = statistics.mean(values), statistics.stdev(values)
        found[f"mean of {len(values)} seeds"] = f"{_number(metric, mean)} ± {_number(metric, std)}"
    return found


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and abs(value) < 1e100  # more than fits into a float cannot be formatted


def _number(metric: str, value: float) -> str:
    return f"{100 * value:.2f} %" if metric == "accuracy" else f"{value:.4g}"


def _use(model: Any, name: str, repo_id: str | None) -> str:
    kind, language = type(model).__name__, not hasattr(model, "last")
    more = "from eirehn.models.generate import generate, read_prompt\n" if language else ""
    if repo_id:
        head, load = f"from eirehn.models import {kind}  # pip install 'eirehn[hub]'\n", f"{kind}.from_pretrained"
    else:
        head, load = "import eirehn\n", "eirehn.load"
    do = GENERATE if language else f"model.predict(x)  # x: (B, T, {model.input_size}), a tensor or a NumPy array"
    return f'{head}{more}\nmodel = {load}("{repo_id or name}")\n{do}'
