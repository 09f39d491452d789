"""Raw text in, plain answers out: the Predictor and its parts."""
