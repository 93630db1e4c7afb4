"""How a text is drawn from a model's distributions, one token a step."""
