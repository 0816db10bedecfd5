#!/usr/bin/env python3
"""Writes an f16 GGUF of random weights with the shape of a Llama-family config.json, for llama.cpp and linnet alike.

    make_random_gguf.py CONFIG OUT.gguf [--seed N]

Needs nothing beyond Python's standard library. Streams: a part of one matrix is in memory at a time. There is no
tokenizer (llama-bench makes up ids, linnet takes --ids). Rotary scaling is left out: it costs no time.
"""
import argparse
import json
import os
import random
import statistics
import struct
import sys

F32, F16 = 0, 1                      # ggml types
UINT32, FLOAT32, STRING = 4, 6, 8    # GGUF value types
ALIGNMENT = 32
PART_BYTES = 8 << 20


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def pair(key, kind, value):
    packed = text(value) if kind == STRING else struct.pack("<f" if kind == FLOAT32 else "<I", value)
    return text(key) + struct.pack("<I", kind) + packed


def metadata(config, name):
    heads = config["num_attention_heads"]
    head_dim = config.get("head_dim") or config["hidden_size"] // heads
    return [
        pair("general.architecture", STRING, "llama"),
        pair("general.name", STRING, name),
        pair("general.file_type", UINT32, 1),
        pair("llama.block_count", UINT32, config["num_hidden_layers"]),
        pair("llama.context_length", UINT32, config["max_position_embeddings"]),
        pair("llama.embedding_length", UINT32, config["hidden_size"]),
        pair("llama.feed_forward_length", UINT32, config["intermediate_size"]),
        pair("llama.attention.head_count", UINT32, heads),
        pair("llama.attention.head_count_kv", UINT32, config.get("num_key_value_heads", heads)),
        pair("llama.attention.key_length", UINT32, head_dim),
        pair("llama.attention.value_length", UINT32, head_dim),
        pair("llama.attention.layer_norm_rms_epsilon", FLOAT32, config["rms_norm_eps"]),
        pair("llama.rope.dimension_count", UINT32, head_dim),
        pair("llama.rope.freq_base", FLOAT32, config.get("rope_theta", 10000.0)),
        pair("llama.vocab_size", UINT32, config["vocab_size"]),
        pair("tokenizer.ggml.model", STRING, "none"),
    ]


def tensors(config):
    """(name, rows, columns); no rows: a vector of ones."""
    width, ffn, heads = config["hidden_size"], config["intermediate_size"], config["num_attention_heads"]
    head_dim = config.get("head_dim") or width // heads
    kv_width = config.get("num_key_value_heads", heads) * head_dim
    yield "token_embd.weight", config["vocab_size"], width
    for layer in range(config["num_hidden_layers"]):
        start = "blk.%d." % layer
        yield start + "attn_norm.weight", 0, width
        yield start + "attn_q.weight", heads * head_dim, width
        yield start + "attn_k.weight", kv_width, width
        yield start + "attn_v.weight", kv_width, width
        yield start + "attn_output.weight", width, heads * head_dim
        yield start + "ffn_norm.weight", 0, width
        yield start + "ffn_gate.weight", ffn, width
        yield start + "ffn_up.weight", ffn, width
        yield start + "ffn_down.weight", width, ffn
    yield "output_norm.weight", 0, width
    if not config.get("tie_word_embeddings", False):
        yield "output.weight", config["vocab_size"], width


def high_bytes(columns):
    """Maps a random byte to the upper byte of an f16: quantiles of a normal distribution of variance 1 / columns."""
    normal = statistics.NormalDist(0.0, columns ** -0.5)
    return bytes(struct.pack("<e", normal.inv_cdf((byte + 0.5) / 256))[1] for byte in range(256))


def write_matrix(file, rows, columns, generator):
    table = high_bytes(columns)
    left = rows * columns
    while left > 0:
        count = min(left, PART_BYTES // 2)
        part = bytearray(generator.randbytes(2 * count))
        part[1::2] = part[1::2].translate(table)
        file.write(part)
        left -= count


def padding(size):
    return -size % ALIGNMENT


def write(config, path, seed):
    pairs = metadata(config, "random weights of seed %d" % seed)
    listed = list(tensors(config))
    header = struct.pack("<4sIQQ", b"GGUF", 3, len(listed), len(pairs)) + b"".join(pairs)
    sizes = [2 * rows * columns if rows else 4 * columns for _, rows, columns in listed]
    offset = 0
    for (name, rows, columns), size in zip(listed, sizes):
        dims = [columns, rows] if rows else [columns]
        header += text(name) + struct.pack("<I%dQIQ" % len(dims), len(dims), *dims, F16 if rows else F32, offset)
        offset += size + padding(size)
    generator = random.Random(seed)
    with open(path + ".part", "wb") as file:
        file.write(header + bytes(padding(len(header))))
        for (name, rows, columns), size in zip(listed, sizes):
            if rows:
                write_matrix(file, rows, columns, generator)
            else:
                file.write(struct.pack("<f", 1.0) * columns)
            file.write(bytes(padding(size)))
    os.replace(path + ".part", path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", help="a Llama-family config.json, or the directory that holds it")
    parser.add_argument("output")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    path = arguments.config
    if os.path.isdir(path):
        path = os.path.join(path, "config.json")
    with open(path) as file:
        config = json.load(file)
    if config.get("model_type") != "llama":
        sys.exit("%s: model_type: expected llama, found %s" % (path, config.get("model_type")))
    write(config, arguments.output, arguments.seed)


if __name__ == "__main__":
    main()
