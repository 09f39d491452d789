"""The paper's experiments as data (`tables/*.yaml`), run at the scale one can afford, beside the paper's numbers."""
