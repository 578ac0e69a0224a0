"""Small random models in folders, and engines that run them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from miles_plugin_torch.engine.options import TorchEngineOptions
from miles_plugin_torch.engine.torch_engine import TorchEngine
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    MistralConfig,
    PretrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
    Qwen3MoeConfig,
)

from miles_core import (
    BuildContext,
    Delivery,
    Form,
    GenerateRequest,
    ModelCard,
    ModelFiles,
    NoiseKey,
    PauseMode,
    Sampling,
    TensorInfo,
    UpdateManifest,
    WireTensor,
)

SIZES: dict[str, Any] = {
    "vocab_size": 300,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
}

CONFIGS: dict[str, Callable[[], PretrainedConfig]] = {
    "llama": lambda: LlamaConfig(**SIZES, tie_word_embeddings=True),
    "llama-untied-biased": lambda: LlamaConfig(
        **{**SIZES, "num_key_value_heads": 4}, tie_word_embeddings=False, attention_bias=True, mlp_bias=True
    ),
    "llama-linear-rope": lambda: LlamaConfig(
        **SIZES, rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 5000.0}
    ),
    "llama-llama3-rope": lambda: LlamaConfig(
        **SIZES,
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": 10000.0,
            "factor": 4.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        },
    ),
    "mistral": lambda: MistralConfig(**SIZES, sliding_window=None),
    "qwen2": lambda: Qwen2Config(**{**SIZES, "vocab_size": 307}, tie_word_embeddings=True),
    "qwen3": lambda: Qwen3Config(**{**SIZES, "num_attention_heads": 6}),
    "qwen3-moe": lambda: Qwen3MoeConfig(**SIZES, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32),
}


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    torch.set_num_threads(1)


class Model:
    """A random model in a folder, beside transformers' own object for it: the reference."""

    def __init__(self, config: PretrainedConfig, folder: Path, seed: int = 0) -> None:
        torch.manual_seed(seed)
        self.reference: PreTrainedModel = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
        for parameter in self.reference.parameters():  # far from uniform logits, biases and norms that matter
            parameter.data.mul_(3.0) if parameter.ndim > 1 else parameter.data.add_(0.3 * torch.randn(parameter.shape))
        self.reference.save_pretrained(folder)
        self.folder = folder
        architecture = type(self.reference).__name__
        self.files = ModelFiles(
            folder,
            ModelCard(
                name="random",
                architecture=architecture,
                context=config.max_position_embeddings,
                vocabulary=config.vocab_size,
                hidden=config.hidden_size,
                layers=config.num_hidden_layers,
                parameters=sum(p.numel() for p in self.reference.parameters()),
                stop_tokens=(2,),
                tied_embeddings=config.tie_word_embeddings,
            ),
        )

    def logprobs(self, tokens: np.ndarray, prompt: int, temperature: float) -> np.ndarray:
        """float32 log-probs of tokens[prompt:] in one forward pass of transformers."""
        ids = torch.from_numpy(tokens.astype(np.int64))[None]
        with torch.no_grad():
            every = torch.log_softmax(self.reference(ids).logits[0].double() / temperature, -1)
        return every[prompt - 1 : -1].gather(1, ids[0, prompt:, None])[:, 0].numpy()

    def tensors(self) -> dict[str, torch.Tensor]:
        return {name: parameter.data for name, parameter in self.reference.named_parameters()}


class MemoryTransport:
    """The receiving half of a transport: deliveries are lists of tensors in this process. An exception in a list is
    raised at its place."""

    def __init__(self) -> None:
        self.sent: dict[str, list[WireTensor | Exception]] = {}

    def send(self, name: str, tensors: dict[str, torch.Tensor], fail_after: int | None = None) -> Delivery:
        wires: list[WireTensor | Exception] = [
            WireTensor(info_of(key, tensor), tensor.contiguous().view(-1).view(torch.uint8).numpy())
            for key, tensor in tensors.items()
        ]
        if fail_after is not None:
            wires[fail_after:] = [OSError("the wire was cut")]
        self.sent[name] = wires
        return Delivery(Form.TENSORS, "memory", {"name": name})

    def receive(self, delivery: Delivery) -> Iterator[WireTensor]:
        for wire in self.sent[delivery.address["name"]]:
            if isinstance(wire, Exception):
                raise wire
            yield wire

    def build(self, context: BuildContext) -> MemoryTransport:
        """As `ComponentRef.build`: this object is its own reference."""
        return self


def info_of(name: str, tensor: torch.Tensor) -> TensorInfo:
    return TensorInfo(name, tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))


def manifest_of(version: int, tensors: dict[str, torch.Tensor]) -> UpdateManifest:
    return UpdateManifest(version, Form.TENSORS, tuple(info_of(name, tensor) for name, tensor in tensors.items()))


def request(
    name: str, tokens: np.ndarray, new: int = 16, temperature: float = 1.0, draw: int = 0, **sampling: Any
) -> GenerateRequest:
    """The noise depends on the name and the draw alone."""
    return GenerateRequest(
        id=name,
        tokens=np.asarray(tokens, dtype=np.int32),
        sampling=Sampling(temperature=temperature, max_new_tokens=new, **sampling),
        noise=NoiseKey(seed=1, purpose="test", task=name, draw=draw, index=0),
        affinity=name,
    )


class Tools:
    """What tests need beside engines, as one fixture (test folders are not packages)."""

    Model, MemoryTransport = Model, MemoryTransport
    request, manifest_of, info_of = staticmethod(request), staticmethod(manifest_of), staticmethod(info_of)
    CONFIGS = CONFIGS

    @staticmethod
    @asynccontextmanager
    async def engine(
        model: Model, transport: Any = None, publish: bool = True, **options: Any
    ) -> AsyncIterator[TorchEngine]:
        """A started engine with version 1 of the model's weights (unless not `publish`)."""
        parts = {} if transport is None else {"transport": transport}
        context = BuildContext(seed=1, name="engine-0", model=model.files, parts=parts)
        engine = TorchEngine(TorchEngineOptions(threads=1, **options), context)
        await engine.start()
        try:
            if publish:
                await Tools.publish_folder(engine, 1, model.folder)
            yield engine
        finally:
            await engine.close()

    @staticmethod
    async def publish_folder(
        engine: TorchEngine, version: int, folder: Path, mode: PauseMode = PauseMode.RETRACT
    ) -> None:
        await engine.pause(mode)
        await engine.begin_update(UpdateManifest(version, Form.DISK))
        await engine.load(Delivery(Form.DISK, "disk", {"path": str(folder)}))
        assert await engine.finish_update() == version
        await engine.resume()

    @staticmethod
    async def until(condition: Callable[[], Awaitable[bool]]) -> None:
        """Wait until the condition holds; the test's timeout is the limit."""
        import asyncio

        while not await condition():
            await asyncio.sleep(0.001)


@pytest.fixture(scope="session")
def tools() -> type[Tools]:
    return Tools


@pytest.fixture(scope="session")
def model_named(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Model]:
    """`model_named(config, seed=0)`: the model, made once."""
    made: dict[tuple[str, int], Model] = {}

    def make(name: str, seed: int = 0) -> Model:
        if (name, seed) not in made:
            made[name, seed] = Model(CONFIGS[name](), tmp_path_factory.mktemp(name), seed)
        return made[name, seed]

    return make


@pytest.fixture(scope="session")
def llama(model_named: Callable[..., Model]) -> Model:
    return model_named("llama")
