"""Raw text in, plain answers out: the Predictor and what it is made of."""
