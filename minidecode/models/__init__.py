"""From a name to logits: GPT-2, its cache, checkpoints, tokenizers; nothing here knows a decoder."""
