#!/usr/bin/env python3
"""Makes tests/golden/tokenizers/*.json: tiny tokenizers of many shapes, and what Hugging Face's library does with them.

Run with tokenizers 0.23.3 from PyPI:  python3 make_tokenizer_goldens.py tokenizers
Each file: {"tokenizer": the tokenizer.json, "cases": [{"text", "ids", "special_ids", "decoded", "decoded_skip"}]}
"""
import json
import random
import sys

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

CORPUS = [
    "the quick brown fox jumps over the lazy dog and then the other dog jumps over the fox 1234567890 times",
    "Hello world, hello World! How's it going? I'm fine, we're fine; they'll see. don't you think so?",
    "for (int i = 0; i < 10; ++i) {\n    sum += values[i];\n}\n\n\treturn sum;\n",
    "caf\u00e9 na\u00efve r\u00e9sum\u00e9 \u00fcber Stra\u00dfe \u0130stanbul Cu\u0309\u031ba Vi\u1ec7t \u0434\u043e\u0431\u0440\u044b\u0439 \u0434\u0435\u043d\u044c",
    "\u6211\u60f3\u5728apple\u5de5\u4f5c1314151\u5929\uff5e \u3053\u3093\u306b\u3061\u306f \uc548\ub155\ud558\uc138\uc694 \U0001f680\U0001f999 \u00bd \u00b2 \u2167",
]

TEXTS = [
    "", " ", "  ", "   ", "\t", "\n", "\n\n", "\n\n\n", "\t\n", " \n \n", "a", " a", "a ", "  a  ", "Hello world", " Hello world",
    "Hello  World", "Hello, world!", "hello's it's we're they'LL I'M don't", "x1y22z333 4444 55555", "12345678", "\u0661\u0662\u0663 \u00bd\u00b2\u2167",
    "for (int i = 0; i < 10; ++i) {\n    x += y[i];\n}", "!!!...???---", "a.b,c;d", "...a...b", "a\u00a0b\u2003c\u3000d\u180ee",
    "caf\u00e9 cafe\u0301 \u0130\u0131 \u017f Stra\u00dfe \ufb01 \uff21\uff22 \u212b", "\u0434\u043e\u0431\u0440\u044b\u0439 \u0434\u0435\u043d\u044c", "\u6211\u60f3\u5728apple\u5de5\u4f5c1314151\u5929\uff5e",
    "\uc548\ub155\ud558\uc138\uc694 \u1112\u1161\u11ab", "\U0001f680 \U0001f636\u200d\U0001f32b\ufe0f \U0001f999", "a\u0301\u0323\u0301b", "\u2581 \u2581\u2581x", "<s>", "<s>a</s>", "a <s> b",
    "a<s>b <mask> c", "x  <mask>  y", "<mask><mask>", "word wordy word, sword word", "a<|user|>b  <|user|>c", "<0x41><0x0A>", "tab\tseparated\tvalues\r\nnext line\r\n",
    "\u00e9<s>\u00e9", "<s", "s>", "HELLO WORLD Hello", "camelCaseWORDSAndMore", "path/to/file\n/more", "e\u0301", "\u0378\ue000\ufffd",
]


def random_texts(seed):
    rng = random.Random(seed)
    ranges = [(0x20, 0x7F), (0x20, 0x7F), (0xA0, 0x250), (0x300, 0x36F), (0x370, 0x600), (0x900, 0xA00), (0x2000, 0x2070), (0x3000, 0x30FF),
              (0x4E00, 0x4F00), (0xAC00, 0xAD00), (0xFB00, 0xFB50), (0xFF00, 0xFF60), (0x1F300, 0x1F700), (0x9, 0xE)]
    texts = []
    for _ in range(40):
        low, high = rng.choice(ranges)
        text = ""
        for _ in range(rng.randint(1, 24)):
            if rng.random() < 0.25:
                low, high = rng.choice(ranges)
            text += rng.choice([" ", chr(rng.randrange(low, high))]) if rng.random() < 0.2 else chr(rng.randrange(low, high))
        texts.append(text)
    return texts


def added(name, tokenizer, byte_level):
    tokenizer.add_special_tokens(["<s>", "</s>", AddedToken("<mask>", lstrip=True, special=True)])
    tokenizer.add_tokens([AddedToken("<|user|>", rstrip=True, normalized=False)])
    if name != "normalizer_byte_level":  # there the library takes a mapped space for a letter of a word
        tokenizer.add_tokens([AddedToken("word", single_word=True, normalized=True)])
    if not byte_level:  # there the library decodes the normalized accent as if it were a byte
        tokenizer.add_tokens([AddedToken("cafe\u0301", normalized=True)])


def train(name, tokenizer, byte_level=False, vocab_size=360, byte_tokens=False, unk=None):
    alphabet = pre_tokenizers.ByteLevel.alphabet() if byte_level else []
    special = ([unk] if unk else []) + (["<0x%02X>" % b for b in range(256)] if byte_tokens else [])
    trainer = trainers.BpeTrainer(vocab_size=vocab_size + (256 if byte_tokens else 0), initial_alphabet=alphabet, special_tokens=special,
                                  show_progress=False, max_token_length=12)
    tokenizer.train_from_iterator(CORPUS * 3, trainer)
    # The trainer registers its special tokens; byte tokens of real models are ordinary entries.
    data = json.loads(tokenizer.to_str())
    data["added_tokens"] = [t for t in data["added_tokens"] if not t["content"].startswith("<0x")]
    tokenizer = Tokenizer.from_str(json.dumps(data))
    added(name, tokenizer, byte_level)
    return name, tokenizer


def template(tokenizer, prefix, suffix):
    ids = {t: tokenizer.token_to_id(t) for t in prefix + suffix}
    return processors.TemplateProcessing(single=" ".join(prefix + ["$A"] + suffix), pair="$A $B", special_tokens=list(ids.items()))


LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
GPT4O = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}"
         r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
CL100K = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
KIMI = r"[\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}&&[^\p{Han}]]+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s+"


def byte_level(name, pre, normalizer=None, post=None, change_model=None):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre
    tokenizer.decoder = decoders.ByteLevel()
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    name, tokenizer = train(name, tokenizer, byte_level=True)
    if post is not None:
        tokenizer.post_processor = post(tokenizer)
    if change_model is not None:
        data = json.loads(tokenizer.to_str())
        change_model(data["model"])
        tokenizer = Tokenizer.from_str(json.dumps(data))
    return name, tokenizer


def character_level(name, pre, normalizer, decoder, byte_fallback=False, fuse_unk=False, unk="<unk>", post=None):
    tokenizer = Tokenizer(models.BPE(unk_token=unk, byte_fallback=byte_fallback, fuse_unk=fuse_unk))
    if pre is not None:
        tokenizer.pre_tokenizer = pre
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.decoder = decoder
    name, tokenizer = train(name, tokenizer, byte_tokens=byte_fallback, unk=unk)
    if post is not None:
        tokenizer.post_processor = post(tokenizer)
    return name, tokenizer


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


def plain_byte_level(use_regex=False, add_prefix_space=False):
    return pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space, use_regex=use_regex)


def make_all():
    sequence = pre_tokenizers.Sequence
    bos = lambda t: processors.Sequence([processors.ByteLevel(trim_offsets=False), template(t, ["<s>"], [])])
    both = lambda t: template(t, ["<s>"], ["</s>"])
    spm_decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    spm_normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    yield byte_level("gpt2", plain_byte_level(use_regex=True))
    yield byte_level("roberta", plain_byte_level(use_regex=True, add_prefix_space=True),
                     post=lambda t: processors.RobertaProcessing(("</s>", t.token_to_id("</s>")), ("<s>", t.token_to_id("<s>"))))
    yield byte_level("llama3", sequence([split(LLAMA3), plain_byte_level()]), post=bos,
                     change_model=lambda m: m.update(ignore_merges=True))
    yield byte_level("qwen", sequence([split(LLAMA3), plain_byte_level()]), normalizer=normalizers.NFC(),
                     change_model=lambda m: m.update(merges=[" ".join(p) for p in m["merges"]]))
    yield byte_level("gpt4o", sequence([split(GPT4O), plain_byte_level()]))
    yield byte_level("cl100k", sequence([split(CL100K, "removed", True), plain_byte_level()]))
    yield byte_level("kimi", sequence([split(KIMI), plain_byte_level()]))
    yield byte_level("falcon", sequence([pre_tokenizers.Punctuation("contiguous"), plain_byte_level(use_regex=True),
                                         pre_tokenizers.Digits(individual_digits=False), split("[0-9][0-9][0-9]")]))
    yield byte_level("smollm", sequence([pre_tokenizers.Digits(individual_digits=True), plain_byte_level(use_regex=True)]))
    yield byte_level("bert_split", sequence([pre_tokenizers.BertPreTokenizer(), plain_byte_level()]), normalizer=normalizers.NFD())
    yield byte_level("normalizer_byte_level", split(r"\S+|\s+"), normalizer=normalizers.Sequence([normalizers.NFKD(), normalizers.ByteLevel()]))
    for behavior in ["removed", "merged_with_previous", "merged_with_next", "contiguous"]:
        for invert in [False, True]:
            yield byte_level(behavior + ("_inverted" if invert else ""), sequence([split(r"[aeiou .]|\d", behavior, invert), plain_byte_level()]))
    yield character_level("llama2", None, spm_normalizer, spm_decoder, byte_fallback=True, fuse_unk=True, post=both)
    yield character_level("metaspace_first", pre_tokenizers.Metaspace(prepend_scheme="first", split=False), None, spm_decoder, byte_fallback=True)
    yield character_level("metaspace_split", pre_tokenizers.Metaspace(prepend_scheme="always", split=True), normalizers.NFKC(),
                          decoders.Metaspace(prepend_scheme="always"), fuse_unk=False)
    yield character_level("gemma", pre_tokenizers.Split(" ", "merged_with_previous"), normalizers.Replace(" ", "\u2581"),
                          decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]), byte_fallback=True, fuse_unk=True)
    yield character_level("whitespace", pre_tokenizers.Whitespace(),
                          normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase(), normalizers.Strip()]),
                          decoders.Fuse(), fuse_unk=True)
    yield character_level("whitespace_split", sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation()]),
                          normalizers.Replace(Regex(r"(?:''|\d{2,})"), "#"), decoders.Fuse(), unk=None)


def main():
    for name, tokenizer in make_all():
        cases = []
        for text in TEXTS + random_texts(name):
            ids = tokenizer.encode(text, add_special_tokens=False).ids
            cases.append({"text": text, "ids": ids, "special_ids": tokenizer.encode(text).ids,
                          "decoded": tokenizer.decode(ids, skip_special_tokens=False), "decoded_skip": tokenizer.decode(ids)})
        with open(f"{sys.argv[1]}/{name}.json", "w", encoding="utf-8") as out:
            tokenizer_json = json.loads(tokenizer.to_str())
            json.dump({"tokenizer": tokenizer_json, "cases": cases}, out, ensure_ascii=True, separators=(",", ":"))
            out.write("\n")


main()
