"""Writes a tiny random Llama checkpoint in the Hugging Face layout, with a byte-level tokenizer."""
import json
import os
import random
import struct

VOCAB = 260  # the bytes, <s>, </s>, <|user|>, <|assistant|>
BOS, EOS = 256, 257
DIM, LAYERS, HEADS, KV_HEADS, FFN, CONTEXT = 32, 2, 4, 2, 64, 256
WIDE_LAYERS, WIDE_FFN = 9, 32768  # 28 M weights, for tests of memory

CHAT_TEMPLATE = (
    "{{ bos_token }}{% for message in messages %}<|{{ message['role'] }}|>{{ message['content'] }}{{ eos_token }}"
    "{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}")


def byte_alphabet():
    """The printable characters that byte-level BPE writes bytes with (GPT-2)."""
    plain = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    rest = [byte for byte in range(256) if byte not in plain]
    alphabet = {byte: chr(byte) for byte in plain}
    alphabet.update({byte: chr(256 + index) for index, byte in enumerate(rest)})
    return alphabet


def write_json(folder, name, value):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        json.dump(value, file)


def tensor_shapes(layers=LAYERS, ffn=FFN):
    shapes = {"model.embed_tokens.weight": (VOCAB, DIM), "model.norm.weight": (DIM,), "lm_head.weight": (VOCAB, DIM)}
    head_dim = DIM // HEADS
    for layer in range(layers):
        prefix = "model.layers.%d." % layer
        shapes.update({
            prefix + "input_layernorm.weight": (DIM,),
            prefix + "post_attention_layernorm.weight": (DIM,),
            prefix + "self_attn.q_proj.weight": (HEADS * head_dim, DIM),
            prefix + "self_attn.k_proj.weight": (KV_HEADS * head_dim, DIM),
            prefix + "self_attn.v_proj.weight": (KV_HEADS * head_dim, DIM),
            prefix + "self_attn.o_proj.weight": (DIM, HEADS * head_dim),
            prefix + "mlp.gate_proj.weight": (ffn, DIM),
            prefix + "mlp.up_proj.weight": (ffn, DIM),
            prefix + "mlp.down_proj.weight": (DIM, ffn),
        })
    return shapes


def parrot(name, shape, says):
    """Weights of a model that says one byte, whatever it has read."""
    if name == "lm_head.weight":
        return [float(row == ord(says)) for row in range(shape[0]) for _ in range(shape[1])]
    return [float("proj" not in name)] * (shape[0] * shape[1])


def write_weights(folder, wide, says):
    generator = random.Random(7)
    header, blobs, offset = {}, [], 0
    shapes = tensor_shapes(WIDE_LAYERS, WIDE_FFN) if wide else tensor_shapes()
    for name, shape in shapes.items():
        count = 1
        for dim in shape:
            count *= dim
        if wide:  # bf16, 1/64 and -1/64 by turns
            blob = b"\x80\x3c\x80\xbc" * (count // 2)
        elif len(shape) == 1:
            blob = struct.pack("<%df" % count, *([1.0] * count))
        elif says:
            blob = struct.pack("<%df" % count, *parrot(name, shape, says))
        else:
            blob = struct.pack("<%df" % count, *(generator.gauss(0.0, 0.2) for _ in range(count)))
        header[name] = {"dtype": "BF16" if wide else "F32", "shape": list(shape), "data_offsets": [offset, offset + len(blob)]}
        blobs.append(blob)
        offset += len(blob)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + b"".join(blobs))


def write_tokenizer(folder, chat_template):
    vocabulary = {text: byte for byte, text in byte_alphabet().items()}
    special = ["<s>", "</s>", "<|user|>", "<|assistant|>"]
    added = [{"id": 256 + index, "content": text, "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False, "special": True} for index, text in enumerate(special)]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    write_json(folder, "tokenizer.json", {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": byte_level, "post_processor": None, "decoder": byte_level,
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "vocab": vocabulary,
                  "merges": []}})
    config = {"bos_token": "<s>", "eos_token": "</s>", "tokenizer_class": "PreTrainedTokenizerFast"}
    if chat_template:
        config["chat_template"] = CHAT_TEMPLATE
    write_json(folder, "tokenizer_config.json", config)


def write_checkpoint(folder, chat_template=True, tokenizer=True, wide=False, says=None):
    os.makedirs(folder)
    write_json(folder, "config.json", {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": VOCAB, "hidden_size": DIM,
        "intermediate_size": WIDE_FFN if wide else FFN, "num_hidden_layers": WIDE_LAYERS if wide else LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS, "max_position_embeddings": CONTEXT, "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0, "hidden_act": "silu", "tie_word_embeddings": False, "attention_bias": False,
        "mlp_bias": False, "bos_token_id": BOS, "eos_token_id": EOS, "torch_dtype": "float32"})
    write_json(folder, "generation_config.json", {"bos_token_id": BOS, "eos_token_id": EOS})
    write_weights(folder, wide, says)
    if tokenizer:
        write_tokenizer(folder, chat_template)
