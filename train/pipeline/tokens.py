"""Text to token ids: the teacher's own tokenizer and chat template. Only `prepare` needs them, later steps see ids alone."""

from pathlib import Path

from .config import Config, InputError

ANSWER = "\ue000answer\ue001"  # stands for an answer in a rendered conversation; private characters occur in no prompt

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
WORDS = r"|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
PATTERNS = {"llama-bpe": CONTRACTIONS + WORDS % r"\p{N}{1,3}", "qwen2": CONTRACTIONS + WORDS % r"\p{N}"}
CONTROL = 3  # tokenizer.ggml.token_type of a control token


class ChatTokenizer:
    """Turns conversations into pieces of token ids, with room for the teacher's answers between them."""

    def __init__(self, tokenizer, control_ids: list[int]):
        self.tokenizer = tokenizer
        self.control_ids = control_ids
        self.control_texts = [text for text in tokenizer.convert_ids_to_tokens(control_ids) if text]

    def mentions_control(self, text: str) -> bool:
        """Whether a user typed a control token: such text would not stay text."""
        return any(control in text for control in self.control_texts)

    def piece_texts(self, turns: list[str], system: str | None) -> list[str]:
        """Rendered text before each answer. Piece 0 opens the conversation; the others begin with the end of an answer."""
        messages = [] if system is None else [{"role": "system", "content": system}]
        for turn in turns:
            messages += [{"role": "user", "content": turn}, {"role": "assistant", "content": ANSWER}]
        text = self.tokenizer.apply_chat_template(messages[:-1], tokenize=False, add_generation_prompt=True)
        pieces = text.split(ANSWER)
        if len(pieces) != len(turns):
            raise InputError(
                f"chat template: expected {len(turns) - 1} earlier answers in the rendered text, got {len(pieces) - 1}"
            )
        return pieces

    def encode(self, texts: list[str]) -> list[list[int]]:
        return self.tokenizer(texts, add_special_tokens=False)["input_ids"]


def load_chat_tokenizer(config: Config) -> ChatTokenizer:
    path = Path(config.teacher.tokenizer or config.teacher.path)
    tokenizer, control_ids = folder_tokenizer(path) if path.is_dir() else gguf_tokenizer(path)
    if not tokenizer.chat_template:
        raise InputError(f"{path}: expected a chat template, got none")
    return ChatTokenizer(tokenizer, sorted(set(control_ids)))


def folder_tokenizer(path: Path):
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(path)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: expected the files of a tokenizer, got {str(error).splitlines()[0]}") from error
    added = [i for i, token in tokenizer.added_tokens_decoder.items() if token.special]
    return tokenizer, [*tokenizer.all_special_ids, *added]


def gguf_tokenizer(path: Path):
    """By hand from the metadata: the conversion in transformers forgets that some models cut digits apart."""
    import gguf
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    fields = gguf.GGUFReader(path).fields
    kind, pre = (
        fields[f"tokenizer.ggml.{key}"].contents() if f"tokenizer.ggml.{key}" in fields else None
        for key in ("model", "pre")
    )
    if kind != "gpt2" or pre not in ("smollm", "gpt-2", *PATTERNS):
        known = ", ".join(("smollm", "gpt-2", *PATTERNS))
        raise InputError(
            f"{path}: tokenizer: expected gpt2 with one of {known}, got {kind} with {pre}; set teacher.tokenizer to a folder"
        )
    tokens, types, merges = (fields[f"tokenizer.ggml.{key}"].contents() for key in ("tokens", "token_type", "merges"))
    tokenizer = Tokenizer(
        models.BPE({token: i for i, token in enumerate(tokens)}, [tuple(merge.split(" ")) for merge in merges])
    )
    if pre in PATTERNS:
        cut = pre_tokenizers.Split(Regex(PATTERNS[pre]), behavior="isolated")
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [cut, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        )
    else:
        digits = [pre_tokenizers.Digits(individual_digits=True)] if pre == "smollm" else []
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    if pre == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    control = [i for i, token_type in enumerate(types) if token_type == CONTROL]
    tokenizer.add_special_tokens([AddedToken(tokens[i], special=True, normalized=False) for i in control])
    template = fields["tokenizer.chat_template"].contents() if "tokenizer.chat_template" in fields else None
    named = {
        f"{name}_token": tokens[fields[f"tokenizer.ggml.{name}_token_id"].contents()]
        for name in ("bos", "eos")
        if f"tokenizer.ggml.{name}_token_id" in fields
    }
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, chat_template=template, **named), control
