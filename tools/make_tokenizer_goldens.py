#!/usr/bin/env python3
"""Writes tests/data/tokenizer: small tokenizers in the styles of well-known models, trained here, and what
the Hugging Face `tokenizers` package makes of a fixed list of texts.

usage: tools/make_tokenizer_goldens.py [FOLDER [STYLE ...]]      (needs: pip install tokenizers sentencepiece protobuf)

For each style: STYLE.json (a tokenizer.json) and STYLE.golden.jsonl with lines {"text", "ids", "decoded",
"decoded_skip"}.
"""
import json
import pathlib
import random
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

LLAMA3_PATTERN = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
                  r"|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2_PATTERN = LLAMA3_PATTERN.replace(r"\p{N}{1,3}", r"\p{N}")

SENTENCES = [
    "The quick brown fox jumps over the lazy dog.", "It's not what they've said; we'll see, won't we?",
    "Janet sells 16 eggs for $2 each: 16 - 3 - 4 = 9, and 9 * 2 = 18.", "Straße, naïve café, coöperate, Ångström",
    "Быстрая коричневая лиса прыгает через ленивую собаку.", "素早い茶色の狐がのろまな犬を飛び越える。", "敏捷的棕色狐狸跳过了懒狗",
    "빠른 갈색 여우가 게으른 개를 뛰어넘습니다", "الثعلب البني السريع يقفز", "तेज़ भूरी लोमड़ी आलसी कुत्ते के ऊपर कूदती है",
    "def add(a, b):\n    return a + b\n\n\nprint(add(1, 2))\n", "for (int i = 0; i < n; ++i) {\n\tsum += x[i];\n}",
    "Emoji: 🙂👍🏽 👩‍👩‍👧‍👦 🇩🇪 ❤️", "   leading and trailing   ", "tabs\t\tand\r\nnew lines\n\n", "1234567890 3.14159 ½ Ⅻ ٣٤",
]

CASES = SENTENCES + [
    "", " ", "  ", "\n", "a", " a", "Hello world", "Hello  world", "HELLO'S IT'LL 'Ve 'ſ", "e\u0301 \u00e9 \ufb01 \uff21 \u212b",
    "\u1100\u1161\u11a8 \uac01", "a\u0323\u0307 \u1e69", "\u00a0nbsp\u2003em\u3000wide\u180e\u200b", "\U00011de0\U00016ff4 new digits",
    "\u0897\u1c89\u1c8a\ua7cb \U00010d40\U000105c0", "\u0378\u0e80\U0001fffe\U000e0fff unassigned", "\x00\x01\x7f control",
    "▁literal ▁▁ mark▁", "<s>text</s>", "<|begin|> hi <|end|>", "  <|end|>  after", "x<|end|>y", "<mask>", "a <mask> b", "word", "words word wordy",
    "Word. word", "un<|pad|>known <unk>", "\U0001f1e9\U0001f1ea\U0001f1eb", "👨‍👩‍👧", "ǅ ʰ ⅷ ㊿ 𝟘𝟙", "x" * 70, "ab" * 60, " " * 40 + "end",
    "\n\n \n  \n\ttext", "Ünïcödé ÅÄÖ åäö", "𠮷野家 㐀 \U00031350", "e\u0301\u0316\u0e38 \U0001e08f\U00011070", "tail ", "tail\n", "don't DON'T",
]


def corpus(repeats=40):
    random.seed(1)
    lines = SENTENCES * repeats
    random.shuffle(lines)
    return lines


def specials(*texts, **options):
    return [AddedToken(text, special=True, normalized=False, **options) for text in texts]


def train_byte_level(tokenizer, size, special):
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=special, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(corpus(), trainer)


def gpt2_style():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    train_byte_level(tokenizer, 600, specials("<|end|>"))
    tokenizer.add_tokens([AddedToken("word", single_word=True, normalized=True), "new token", "é"])
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, special=True, normalized=False)])
    return tokenizer


def roberta_style():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase(), normalizers.Strip()])
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    train_byte_level(tokenizer, 500, specials("<s>", "</s>"))
    tokenizer.add_tokens([AddedToken("Word", single_word=True, normalized=True)])
    tokenizer.add_special_tokens([AddedToken("<mask>", rstrip=True, special=True, normalized=False)])
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0))
    return tokenizer


def llama3_style():
    tokenizer = Tokenizer(models.BPE(ignore_merges=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(LLAMA3_PATTERN), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    train_byte_level(tokenizer, 700, specials("<|begin|>", "<|end|>"))
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=True),
        processors.TemplateProcessing(single="<|begin|> $A", pair="<|begin|> $A <|begin|> $B",
                                      special_tokens=[("<|begin|>", 0)])])
    # A whole word that no merges lead to: ignore_merges must find it.
    content = json.loads(tokenizer.to_str())
    content["model"]["vocab"]["Ġlazy_only"] = 700
    content["model"]["vocab"]["Hello"] = 701
    return Tokenizer.from_str(json.dumps(content))


def qwen2_style():
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(QWEN2_PATTERN), "isolated"),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    train_byte_level(tokenizer, 700, [])
    tokenizer.add_special_tokens(specials("<|end|>", "<|begin|>"))
    return tokenizer


def digits_style():
    """Several pre-tokenizers in a row, with each behaviour of Split."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFD()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"[\r\n]+"), "merged_with_previous"), pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.Split(Regex(r"\w+|\p{Han}"), "contiguous"), pre_tokenizers.Split(".", "merged_with_next"),
        pre_tokenizers.Split("'", "removed"), pre_tokenizers.Split(Regex(r"[^,;]+"), "isolated", invert=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    tokenizer.decoder = decoders.ByteLevel()
    train_byte_level(tokenizer, 600, [])
    return tokenizer


def byte_tokens():
    return ["<0x%02X>" % byte for byte in range(256)]


def sentencepiece_style(size, special, normalizer, pre_tokenizer, decoder, split_pattern=None):
    """A SentencePiece-like model: pieces trained on words, byte tokens for what they do not cover."""
    trained = Tokenizer(models.BPE(unk_token="<unk>"))
    trained.normalizer = normalizers.Replace(" ", "▁")
    trained.pre_tokenizer = pre_tokenizers.Split(Regex(split_pattern or "▁*[^▁]+"), "isolated")
    trained.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=size, limit_alphabet=120, show_progress=False,
                                                              special_tokens=special + byte_tokens()))
    content = json.loads(trained.to_str())
    model = content["model"]
    # A line break is a piece in no such model, and neither are rare letters.
    content["model"] = dict(model, byte_fallback=True, fuse_unk=True)
    content["added_tokens"] = [t for t in content["added_tokens"] if not t["content"].startswith("<0x")]
    tokenizer = Tokenizer.from_str(json.dumps(content))
    tokenizer.normalizer = normalizer
    if pre_tokenizer:
        tokenizer.pre_tokenizer = pre_tokenizer
    else:
        content = json.loads(tokenizer.to_str())
        content["pre_tokenizer"] = None
        tokenizer = Tokenizer.from_str(json.dumps(content))
    tokenizer.decoder = decoder
    return tokenizer


def with_bos(tokenizer, bos):
    bos_id = tokenizer.token_to_id(bos)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{bos} $A", pair=f"{bos} $A {bos}:1 $B:1", special_tokens=[(bos, bos_id)])
    return tokenizer


def llama2_style():
    tokenizer = sentencepiece_style(
        700, ["<unk>", "<s>", "</s>"], normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]), None,
        decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]))
    return with_bos(tokenizer, "<s>")


def mistral_style():
    tokenizer = sentencepiece_style(
        700, ["<unk>", "<s>", "</s>"], None, pre_tokenizers.Metaspace("▁", "first", split=False),
        decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]))
    return with_bos(tokenizer, "<s>")


def metaspace_style():
    """No byte tokens: unknown characters, words cut at each space, the Metaspace decoder."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace("▁", "always", split=True)
    tokenizer.decoder = decoders.Metaspace("▁", "always", split=True)
    tokenizer.train_from_iterator(corpus(), trainers.BpeTrainer(vocab_size=400, limit_alphabet=80, show_progress=False,
                                                                special_tokens=["<unk>", "</s>"]))
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return tokenizer


def charsmap(pairs):
    """A precompiled_charsmap as SentencePiece writes it: of its own trainer, for the given rules."""
    import base64
    import tempfile
    import sentencepiece
    with tempfile.TemporaryDirectory() as folder:
        rules = pathlib.Path(folder, "rules.tsv")
        rules.write_text("".join(" ".join(f"{ord(c):X}" for c in a) + "\t" + " ".join(f"{ord(c):X}" for c in b) + "\n" for a, b in pairs))
        text = pathlib.Path(folder, "text.txt")
        text.write_text("\n".join(SENTENCES * 3), encoding="utf-8")
        sentencepiece.SentencePieceTrainer.train(
            input=str(text), model_prefix=f"{folder}/m", vocab_size=300, model_type="unigram", character_coverage=0.98,
            normalization_rule_tsv=str(rules), minloglevel=2, hard_vocab_limit=False)
        from sentencepiece import sentencepiece_model_pb2 as model_pb2
        model = model_pb2.ModelProto()
        model.ParseFromString(pathlib.Path(folder, "m.model").read_bytes())
        return model.normalizer_spec.precompiled_charsmap


CHARS_RULES = [("\u00e9", "e"), ("e\u0301", "e"), ("\ufb01", "fi"), ("\u00bd", "1/2"), ("\u216b", "XII"), ("\u3000", " "), ("\t", " "),
               ("\r", " "), ("\n", " "), ("\u00a0", " "), ("\u200b", ""), ("\uff21", "A"), ("\u00df", "ss"), ("a\u0323", "\u1ea1"),
               ("\U0001f642", ":)"), ("\u1100", "g"), ("\u2026", "..."), ("\u0915", "k")]


def train_unigram(tokenizer, size, special, **options):
    tokenizer.train_from_iterator(corpus(), trainers.UnigramTrainer(vocab_size=size, show_progress=False, special_tokens=special,
                                                                    unk_token="<unk>", **options))


def t5_style():
    """Precompiled normalizer, Metaspace, Unigram with unknown characters."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Precompiled(charsmap(CHARS_RULES))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace("\u2581", "always")
    tokenizer.decoder = decoders.Metaspace("\u2581", "always")
    train_unigram(tokenizer, 400, ["<pad>", "</s>", "<unk>"])
    tokenizer.add_special_tokens(["<extra_id_0>"])
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    return tokenizer


def albert_style():
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([
        normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), normalizers.NFKD(), normalizers.StripAccents(),
        normalizers.Lowercase(), normalizers.Precompiled(charsmap(CHARS_RULES[3:])), normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace("\u2581", "always")
    tokenizer.decoder = decoders.Metaspace("\u2581", "always")
    train_unigram(tokenizer, 300, ["<pad>", "<unk>", "[CLS]", "[SEP]"])
    tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return tokenizer


def unigram_style():
    """Byte fallback, no pre-tokenizer, NMT's clean-up; a run of unknown characters is one."""
    trained = Tokenizer(models.Unigram())
    trained.pre_tokenizer = pre_tokenizers.Metaspace("\u2581", "always")
    train_unigram(trained, 300, ["<unk>", "<s>", "</s>"])
    content = json.loads(trained.to_str())
    content["model"]["vocab"] += [[token, 0.0] for token in byte_tokens()] + [["ab", -3.5], ["aba", -4.0], ["ba", -3.5]]
    content["model"]["byte_fallback"] = True
    content["pre_tokenizer"] = None
    tokenizer = Tokenizer.from_str(json.dumps(content))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Nmt(), normalizers.Replace(" ", "\u2581")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    return tokenizer


def bert_style(lowercase=True):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=60))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece("##", cleanup=lowercase)
    tokenizer.train_from_iterator(corpus(), trainers.WordPieceTrainer(
        vocab_size=500, limit_alphabet=90, show_progress=False, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]))
    if lowercase:
        tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    else:
        tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return tokenizer


def bert_cased_style():
    return bert_style(lowercase=False)


def gemma_style():
    tokenizer = sentencepiece_style(
        700, ["<pad>", "<eos>", "<bos>", "<unk>"], normalizers.Replace(" ", "▁"), pre_tokenizers.Split(" ", "merged_with_previous"),
        decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]),
        split_pattern=r"▁+|[^▁]+")
    tokenizer.add_tokens([AddedToken("\n\n", normalized=False), AddedToken("▁▁▁", normalized=False)])
    tokenizer.add_special_tokens(specials("<start_of_turn>", "<end_of_turn>"))
    return with_bos(tokenizer, "<bos>")


STYLES = {"gpt2": gpt2_style, "roberta": roberta_style, "llama3": llama3_style, "qwen2": qwen2_style,
          "digits": digits_style, "llama2": llama2_style, "mistral": mistral_style, "metaspace": metaspace_style,
          "gemma": gemma_style, "t5": t5_style, "albert": albert_style, "unigram": unigram_style, "bert": bert_style,
          "bert_cased": bert_cased_style}


def compact(tokenizer, merges_as_text):
    content = json.loads(tokenizer.to_str())
    if merges_as_text and "merges" in content["model"]:
        content["model"]["merges"] = [pair if isinstance(pair, str) else " ".join(pair) for pair in content["model"]["merges"]]
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")) + "\n"


def golden_line(tokenizer, text):
    ids = tokenizer.encode(text).ids
    return {"text": text, "ids": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=False),
            "decoded_skip": tokenizer.decode(ids, skip_special_tokens=True)}


def main():
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "tests/data/tokenizer")
    folder.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[2:] or STYLES:
        make = STYLES[name]
        # Older files write merges as "a b": half of the styles do.
        text = compact(make(), merges_as_text=name in ("gpt2", "llama2", "qwen2", "roberta"))
        (folder / f"{name}.json").write_text(text, encoding="utf-8")
        tokenizer = Tokenizer.from_str(text)
        lines = [json.dumps(golden_line(tokenizer, case)) for case in CASES]
        (folder / f"{name}.golden.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
        print(f"{name}: {tokenizer.get_vocab_size()} tokens, {len(text.encode())} bytes")


if __name__ == "__main__":
    main()
