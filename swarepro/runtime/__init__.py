"""The stage runtime: chunked prefill and decode of a Gemma stage over a hybrid KV cache."""
