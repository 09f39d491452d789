"""How many parameters, and how much memory: the paper's arithmetic as plain formulas. No torch here.

embeddings   V E + (positions + segments) E + 2 E        word table, position and segment tables, LayerNorm
projection   E H + H                                     only where E != H: V E + E H instead of V H
             (with project_words_only no + H, and E is H in embeddings' other terms and in the masked LM head)
attention    blocks x (4 (H H + H) + 2 H)                query, key, value, output, LayerNorm
ffn          blocks x (H I + I + I H + H + 2 H)
pooler       H H + H
heads        masked LM  H E + E + 2 E + V                its output matrix is the word table itself, else + V E
             sentence   2 H + 2
"""

from __future__ import annotations

from dataclasses import dataclass

from litebert.model.config import ModelConfig, num_blocks, plan_of, preset


@dataclass(frozen=True)
class ParameterCount:
    """Parameters by part; `total` is the backbone with its pooler, as the paper counts."""

    embeddings: int
    projection: int
    attention: int
    ffn: int
    pooler: int
    heads: int

    @property
    def total(self) -> int:
        """The backbone: everything but the heads."""
        return self.embeddings + self.projection + self.attention + self.ffn + self.pooler

    @property
    def with_heads(self) -> int:
        """With the masked LM and sentence heads, as pretrained."""
        return self.total + self.heads


def count_parameters(config: ModelConfig) -> ParameterCount:
    """The exact number of parameters of a config."""
    v, e, h, i = config.vocab_size, config.embedding_size, config.hidden_size, config.intermediate_size
    w = config.embedding_norm_size
    attention_blocks, ffn_blocks = num_blocks(config)
    return ParameterCount(
        embeddings=v * e + (config.max_position_embeddings + config.type_vocab_size) * w + 2 * w,
        projection=e * h + (0 if config.project_words_only else h) if config.embedding_projection else 0,
        attention=attention_blocks * (4 * (h * h + h) + 2 * h),
        ffn=ffn_blocks * (2 * h * i + i + h + 2 * h),
        pooler=h * h + h,
        heads=(h * w + w + 2 * w + v) + (0 if config.tie_word_embeddings else v * e) + (2 * h + 2),
    )


def forward_flops(config: ModelConfig, length: int, depth: int | None = None, mask_rate: float = 0.15) -> float:
    """Floating-point operations per token of a forward pass over sequences of `length`; training takes thrice that."""
    h, i, e = config.hidden_size, config.intermediate_size, config.embedding_size
    applications = len(plan_of(config, depth))
    per_application = 2 * (4 * h * h + 2 * h * i) + 4 * length * h  # matrices; logits and context of attention
    projection = 2 * e * h if config.embedding_projection else 0
    words = h * e + e * config.vocab_size + (h * h if config.project_words_only else 0)  # of the masked LM head
    return applications * per_application + projection + mask_rate * 2 * words


@dataclass(frozen=True)
class TrainingMemory:
    """Bytes that training needs: what is kept per parameter, and what one token keeps for the backward pass."""

    weights: int  # fp32
    gradients: int  # fp32
    moments: int  # two of them, fp32
    activations_per_token: int

    def total(self, tokens: int) -> int:
        """Bytes for micro-batches of that many tokens."""
        return self.weights + self.gradients + self.moments + tokens * self.activations_per_token


def training_memory(config: ModelConfig, bytes_per_value: int = 2, mask_rate: float = 0.15) -> TrainingMemory:
    """An estimate for the plain model: parameters in fp32, activations of `bytes_per_value` (2 = bf16).

    Sharing saves parameters, not activations: every application keeps its own, as in BERT (google-research/albert#76).
    """
    parameters = count_parameters(config).with_heads
    h, i, e = config.hidden_size, config.intermediate_size, config.embedding_size
    # Per application: input of q, k, v; q; k; v; context; sum before and output of the first LayerNorm;
    # FFN before and after its activation; sum before the second LayerNorm (its output is the next input).
    per_application = 8 * h + 2 * i
    embeddings = 3 * e  # sum before LayerNorm, its output, input of the projection
    # Masked positions: their state, dense, activation, LayerNorm; logits and their softmax in fp32.
    head = mask_rate * ((h + 3 * e) * bytes_per_value + 2 * 4 * config.vocab_size)
    per_token = (len(plan_of(config)) * per_application + embeddings) * bytes_per_value + head
    return TrainingMemory(4 * parameters, 4 * parameters, 8 * parameters, round(per_token))


_COUNTED = (
    *("model_type", "vocab_size", "embedding_size", "hidden_size", "num_hidden_layers", "intermediate_size", "sharing"),
    *("num_hidden_groups", "inner_group_num", "max_position_embeddings", "type_vocab_size"),
    *("embedding_projection", "project_words_only"),
)


def paper_figure(config: ModelConfig) -> str:
    """The paper's figure for a model of this shape, "-" if it has none: albert-base -> "12M"."""

    def shape(config: ModelConfig) -> list[object]:
        return [getattr(config, name) for name in _COUNTED]

    return next((entry.paper for entry in paper_models() if shape(entry.config) == shape(config)), "-")


@dataclass(frozen=True)
class PaperModel:
    """A model of the paper with its figure as printed there."""

    table: str
    name: str
    config: ModelConfig
    paper: str


def paper_models() -> list[PaperModel]:
    """Every model whose size the paper prints (Tables 1, 3, 4, 12), and the groups it gives no figures for."""
    models = [
        PaperModel("Table 1", name, preset(name), paper)
        for name, paper in (
            ("bert-base", "108M"),
            ("bert-large", "334M"),
            ("albert-base", "12M"),
            ("albert-large", "18M"),
            ("albert-xlarge", "60M"),
            ("albert-xxlarge", "235M"),
        )
    ]
    for sharing, printed in (("none", ("87M", "89M", "93M", "108M")), ("all", ("10M", "12M", "16M", "31M"))):
        for size, paper in zip((64, 128, 256, 768), printed, strict=True):
            config = preset("albert-base", sharing=sharing, embedding_size=size)
            models.append(PaperModel("Table 3", f"albert-base-e{size}-{sharing}", config, paper))
    for size, printed in ((768, ("31M", "83M", "57M", "108M")), (128, ("12M", "64M", "38M", "89M"))):
        for sharing, paper in zip(("all", "attention", "ffn", "none"), printed, strict=True):
            config = preset("albert-base", sharing=sharing, embedding_size=size)
            models.append(PaperModel("Table 4", f"albert-base-e{size}-{sharing}", config, paper))
    for hidden, paper in ((1024, "18M"), (2048, "60M"), (4096, "225M"), (6144, "499M")):
        config = preset(
            "albert-large",
            num_hidden_layers=3,
            hidden_size=hidden,
            num_attention_heads=hidden // 64,
            intermediate_size=4 * hidden,
        )
        models.append(PaperModel("Table 12", f"albert-3-layers-h{hidden}", config, paper))
    for groups in (1, 2, 3, 4, 6, 12):
        config = preset("albert-base", num_hidden_groups=groups)
        models.append(PaperModel("groups", f"albert-base-groups{groups}", config, "-"))
    return models
