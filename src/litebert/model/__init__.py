"""The model: config, encoder, heads, and every form its weights come in."""
