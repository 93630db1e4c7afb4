"""From a name to logits: GPT-2, its cache, checkpoint, tokenizer; nothing here knows a decoder."""
